"""The run folder: the one interface between training and all that comes later.

    config.json       what was asked for; a run is reproduced from it alone
    metrics.jsonl     a line per log; the same seed gives the same bytes
    timing.jsonl      wall-clock times, kept apart because they never repeat
    status.json       running, finished, interrupted or failed, and at which step
    result.json       once finished
    trials.json       the skills that finetuning tried
    checkpoints/      the last two, complete: training continues from them to the bit
    library/          what a pre-training's skills do, once finished
    milestones/       weights only, at 100k, 500k, 1M and 2M steps
    inherited/        the pre-trained weights that a finetuning started from

Nothing in it is a pickle. A checkpoint is a folder of safetensors and JSON, written under another name, synced and
renamed, with a checksum for each file; so it is whole or it is not there. Paths inside are relative: a folder moves.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, NamedTuple

from cic.core.errors import UserError
from cic.runs.storage import (
    Arrays,
    Damaged,
    Tensors,
    read_folder,
    read_json,
    read_tensors,
    verify,
    write_folder,
    write_json,
)

FORMAT = 2
KINDS = ("pretrain", "finetune")


class Inheritance(NamedTuple):
    """What a finetuning starts from."""

    weights: Tensors
    library: Arrays
    """What the pre-training's skills do (`cic.training.library`); empty if it left nothing."""


class Run:
    """One run folder, open for reading; `lock` before writing."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            what = "is a file" if self.path.is_file() else "does not exist"
            raise UserError(
                f"the run folder {self.path} {what}: give the folder that `cic pretrain` or `finetune` made"
            )
        header = read_json(self.path / "config.json")
        if not isinstance(header, dict) or not {"format", "kind", "config"} <= header.keys():
            raise UserError(f"{self.path / 'config.json'} is not the config of a run")
        if header["format"] == 1:
            raise UserError(
                f"{self.path} was made by cic 0.1, whose weights this version does not read: "
                "open it with cic 0.1, or run its command anew (`cic report` still shows it)"
            )
        if header["format"] != FORMAT:
            raise UserError(
                f"{self.path} was made by a newer version of cic ({header.get('version', '?')}, run format "
                f"{header['format']}; this one reads {FORMAT}): upgrade cic to open it"
            )
        if header["kind"] not in KINDS or not isinstance(header["config"], dict):
            raise UserError(f"{self.path / 'config.json'} is not the config of a run")
        self.kind: str = header["kind"]
        self.config: dict[str, Any] = header["config"]
        self._lock: IO[Any] | None = None

    @classmethod
    def plan(cls, path: Path | str, kind: str, config: dict[str, Any]) -> Run:
        """A run that is not on disk yet: `create` makes its folder."""
        run = cls.__new__(cls)
        run.path, run.kind, run.config, run._lock = Path(path), kind, config, None
        return run

    def create(self, about: dict[str, Any], inherited: Inheritance | None = None) -> Run:
        """Make the folder. `about` says where the run comes from, for the record; `inherited` is what a finetuning
        starts from, so that its folder stands alone."""
        if (self.path / "config.json").exists():
            raise UserError(
                f"{self.path} holds a run already: continue it with --resume {self.path}, or choose another --out"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from None
        if inherited is not None:
            write_folder(self.path / "inherited", {"agent": inherited.weights}, {"library": inherited.library}, {})
        # Last, because it makes the folder a run: one that was killed before can simply be started again.
        write_json(self.path / "config.json", {"format": FORMAT, "kind": self.kind, **about, "config": self.config})
        return self

    def lock(self) -> None:
        """Hold the folder for writing, so that two processes never write one run. Freed when the process ends."""
        self._lock = open(self.path / ".lock", "w")  # noqa: SIM115  held until `unlock`
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is writing to {self.path}: wait for it or stop it first") from None

    def unlock(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None

    # ---- small files -------------------------------------------------------------------------------------------

    def write_status(self, state: str, step: int, message: str = "") -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_json(self.path / "status.json", {"state": state, "step": step, "message": message, "updated": now})

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.path / "result.json", result)

    def write_trials(self, table: dict[str, Any]) -> None:
        write_json(self.path / "trials.json", table)

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """Complete ones, oldest first."""
        return _steps(self.path / "checkpoints")

    def milestones(self) -> list[Path]:
        return _steps(self.path / "milestones")

    def save_checkpoint(self, step: int, tensors: dict[str, Tensors], arrays: dict[str, Arrays], state: Any) -> None:
        """Everything that training needs to continue; the last two are kept."""
        write_folder(self.path / "checkpoints" / f"{step:09d}", tensors, arrays, {"config": self._digest()} | state)
        self._prune()

    def _prune(self) -> None:
        for old in self.checkpoints()[:-2]:
            shutil.rmtree(old)

    def save_milestone(self, step: int, weights: Tensors) -> None:
        write_folder(self.path / "milestones" / f"{step:09d}", {"agent": weights}, {}, {"step": step})

    def save_library(self, library: Arrays) -> None:
        """What a pre-training's skills do, for the finetunings that start from it."""
        write_folder(self.path / "library", {}, {"library": library}, {})

    def library(self) -> Arrays:
        """Empty where the run has none that can be read: a search can do without."""
        try:
            return read_folder(self.path / "library")[1]["library"] if (self.path / "library").is_dir() else {}
        except Damaged as error:
            warnings.warn(f"{error}; the search goes without it", stacklevel=2)
            return {}

    def inherited(self) -> Inheritance | None:
        if self.config.get("pretrained") is None:
            return None
        try:
            tensors, arrays, _ = read_folder(self.path / "inherited")
            return Inheritance(tensors["agent"], arrays["library"])
        except Damaged as error:
            raise UserError(f"{error}: start the finetuning anew") from None

    def load_checkpoint(self) -> tuple[dict[str, Tensors], dict[str, Arrays], Any] | None:
        """The newest checkpoint that is intact, with a warning for each that is not; None if there never was one."""
        damaged = []
        for folder in reversed(self.checkpoints()):
            try:
                tensors, arrays, state = read_folder(folder)
            except Damaged as error:
                warnings.warn(f"{error}; using the checkpoint before it", stacklevel=2)
                damaged.append(folder)
                continue
            if state["config"] != self._digest():
                raise UserError(
                    f"{self.path / 'config.json'} was changed after this run's checkpoint was written: "
                    "put it back, or start a new run with the new settings"
                )
            for folder in damaged:  # its step comes again, and with it a good checkpoint of that name
                shutil.rmtree(folder)
            self._prune()  # the run may have been killed before it did
            return tensors, arrays, state
        if damaged:
            raise UserError(f"every checkpoint in {self.path / 'checkpoints'} is damaged: start the run anew")
        return None

    def weights(self, step: int | None = None) -> tuple[Tensors, int]:
        """An agent's weights and their step: the newest, or those of a milestone or checkpoint at `step`."""
        folders = [*self.checkpoints(), *self.milestones()]
        if not folders:
            raise UserError(f"{self.path} has no checkpoint yet: let it run until its first one")
        if step is None:
            wanted = sorted(folders, key=lambda folder: int(folder.name), reverse=True)
        # A milestone first: it stays, so a step means the same weights whether its checkpoint is still there or not.
        elif not (wanted := [folder for folder in reversed(folders) if int(folder.name) == step]):
            known = sorted({int(folder.name) for folder in folders})
            raise UserError(f"{self.path} has no weights at step {step}; there are: {', '.join(map(str, known))}")
        for folder in wanted:
            try:
                return _weights(folder), int(folder.name)
            except Damaged as error:
                if folder == wanted[-1]:
                    raise UserError(str(error)) from None
                warnings.warn(f"{error}; using the weights before it", stacklevel=2)
        raise AssertionError

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()


def _weights(folder: Path) -> Tensors:
    verify(folder, only="agent.safetensors")
    return read_tensors(folder / "agent.safetensors")


def _steps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.name.isdigit())
