"""Write metrics to JSONL files, to TensorBoard and, on request, to Weights & Biases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.runs.jsonl_log import JsonlLog
from cic.runs.records import flatten
from cic.training.settings import LoopConfig

LOGS = ("metrics.jsonl", "timing.jsonl")


class Logs:
    """The logs of one run. A resumed run continues from the copies in its checkpoint."""

    def __init__(
        self, folder: Path, start: Path | None, step: int, settings: LoopConfig[Any], config: dict[str, Any]
    ) -> None:
        self.metrics, self.timing = (JsonlLog(folder / name, start and start / name) for name in LOGS)
        threading.excepthook = _thread_error
        self._board_folder = folder / "tensorboard"
        with _named_errors(self._board_folder):
            self._board = _board(self._board_folder, step, config)
        self._wandb = _wandb(folder, settings, config) if settings.wandb else None

    def write(self, line: dict[str, Any]) -> None:
        self.metrics.write(line)
        self._show(line)

    def write_timing(self, line: dict[str, Any]) -> None:
        self.timing.write(line)
        shown = {name: value for name, value in line.items() if name != "time/unix"}  # TensorBoard has its own clock
        self._show(shown)

    def _show(self, line: dict[str, Any]) -> None:
        with _named_errors(self._board_folder):
            for name, value in line.items():
                if name != "step":
                    self._board.add_scalar(name, value, line["step"])
        if self._wandb:
            self._wandb.log(line, step=line["step"])

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.metrics.close()
        self.timing.close()
        try:
            with _named_errors(self._board_folder):
                self._board.close()
        finally:
            threading.excepthook = threading.__excepthook__
        if self._wandb:
            self._wandb.finish()


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    """Add the folder to errors of TensorBoard's thread, which name no file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _thread_error(error: threading.ExceptHookArgs) -> None:
    """Do not print disk errors of TensorBoard's thread: the next write raises them again in the main thread."""
    if not (isinstance(error.exc_value, OSError) and type(error.thread).__module__.startswith("tensorboard")):
        threading.__excepthook__(error)


def _board(folder: Path, step: int, config: dict[str, Any]) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    board = SummaryWriter(str(folder), purge_step=step or None, max_queue=100, flush_secs=30)
    rows = [f"| {name} | {value} |" for name, value in flatten(config).items()]
    board.add_text("config", "\n".join(["| setting | value |", "|---|---|", *rows]), step)
    return board


def _wandb(folder: Path, settings: LoopConfig[Any], config: dict[str, Any]) -> Any:
    try:
        import wandb
    except ImportError:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'") from None
    return wandb.init(
        project=settings.wandb_project,
        entity=settings.wandb_entity or None,
        group=settings.wandb_group or None,
        tags=list(settings.wandb_tags),
        dir=str(folder),
        name=folder.name,
        id=folder.name,
        config=config,
        resume="allow",
    )
