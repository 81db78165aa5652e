"""Where metrics go: JSONL always, TensorBoard always, Weights & Biases on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.runs.lines import LineLog

LOGS = ("metrics.jsonl", "timing.jsonl")


class Logs:
    """Begun with what a checkpoint has of them, so that a resumed run writes what the uninterrupted one would have."""

    def __init__(self, folder: Path, start: Path | None, step: int, wandb: bool, config: dict[str, Any]) -> None:
        self.metrics, self.timing = (LineLog(folder / name, start and start / name) for name in LOGS)
        self._board = _board(folder / "tensorboard", step)
        self._wandb = _wandb(folder, config) if wandb else None

    def write(self, line: dict[str, Any]) -> None:
        self.metrics.write(line)
        for name, value in line.items():
            if name != "step" and self._board:
                self._board.add_scalar(name, value, line["step"])
        if self._wandb:
            self._wandb.log(line, step=line["step"])

    def write_timing(self, line: dict[str, Any]) -> None:
        self.timing.write(line)

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.metrics.close()
        self.timing.close()
        if self._board:
            self._board.close()
        if self._wandb:
            self._wandb.finish()


def _board(folder: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step or None, max_queue=100, flush_secs=30)


def _wandb(folder: Path, config: dict[str, Any]) -> Any:
    try:
        import wandb
    except ImportError:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'") from None
    return wandb.init(project="cic", dir=str(folder), name=folder.name, config=config, resume="allow", id=folder.name)
