"""The run folder: the one interface between training and all that comes later.

    config.json       what was asked for; a run is reproduced from it alone. With it a folder is a run
    metrics.jsonl     a line per log; the same seed gives the same bytes
    timing.jsonl      wall-clock times, kept apart because they never repeat
    status.json       running, finished, interrupted or failed, and at which step
    result.json       once finished: with it the run has finished, whatever the status says
    trials.json       the skills that finetuning tried
    checkpoints/      the last two, complete, metrics and result included: training continues from them to the bit
    library/          what a pre-training's skills do, once finished
    milestones/       weights only, at 100k, 500k, 1M and 2M steps
    inherited/        the pre-trained weights that a finetuning started from, and with prior_data what it saw
    measured/         what `cic reproduce` measured of the finished run

Nothing in it is a pickle. A checkpoint is a folder of safetensors and JSON, written under another name, synced and
renamed, with a checksum for each file; so it is whole or it is not there. Paths inside are relative: a folder moves.
Nothing is written through a link, and nothing is deleted because it could not be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.runs.bundled import locate, shipped
from cic.runs.jsonl_log import LineLog
from cic.runs.links import refuse_links
from cic.runs.storage import (
    Arrays,
    Damaged,
    DiskError,
    Tensors,
    read_arrays,
    read_folder,
    read_json,
    read_tensors,
    verify,
    write_folder,
    write_json,
)
from cic.runs.untrusted_json import plain, read_object

FORMAT = 2
LIBRARY_LIMIT = 256 << 20  # bytes; of 128 skills a few million
STEPS_LIMIT = 2 << 30  # of 300,000 steps some 100 MB
KINDS = ("pretrain", "finetune")
_LARGEST_SPACE = 1_000_000


class Inheritance(NamedTuple):
    """What a finetuning starts from."""

    weights: Tensors
    library: Arrays
    """What the pre-training's skills do (`cic.training.library`); empty if it left nothing."""
    steps: Arrays | None = None
    """What the pre-training saw (`cic.training.relabelled_replay`), if the finetuning learns from it."""


class Run:
    """One run folder, open for reading; `lock` before writing."""

    def __init__(self, path: Path | str) -> None:
        self.path = locate(path)
        if not self.path.is_dir():
            what = "is a file" if self.path.is_file() else "does not exist"
            raise UserError(
                f"the run folder {self.path} {what}: give the folder that `cic pretrain` or `finetune` made, "
                f"or an agent that ships with cic ({', '.join(shipped())})"
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
                f"{self.path} was made by a newer version of cic ({plain(header.get('version', '?'))}, run format "
                f"{plain(header['format'])}; this one reads {FORMAT}): upgrade cic to open it"
            )
        if header["kind"] not in KINDS or not isinstance(header["config"], dict):
            raise UserError(f"{self.path / 'config.json'} is not the config of a run")
        self.about: dict[str, Any] = {key: header[key] for key in header if key not in ("format", "kind", "config")}
        self.kind: str = header["kind"]
        self.config: dict[str, Any] = header["config"]
        self.spaces = _spaces(header.get("spaces"))
        self._lock: int | None = None

    @classmethod
    def plan(cls, path: Path | str, kind: str, config: dict[str, Any], spaces: Spaces | None = None) -> Run:
        """A run that is not on disk yet: `create` makes its folder."""
        run = cls.__new__(cls)
        run.path, run.kind, run.config, run.spaces = Path(path), kind, config, spaces
        run.about, run._lock = {}, None
        return run

    def create(self, about: dict[str, Any], inherited: Inheritance | None = None) -> Run:
        """Make the folder. `about` says where the run comes from, for the record; `inherited` is what a finetuning
        starts from, so that its folder stands alone."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from None
        self.lock()  # of two that start with one --out, one gets it and the other finds a run
        try:
            self._fill(about, inherited)
        except (OSError, DiskError) as error:
            reason = error.reason if isinstance(error, DiskError) else error.strerror
            raise UserError(f"cannot write the run folder {self.path}: {reason}. Mend that, then start anew") from None
        finally:
            self.unlock()
        return self

    def _fill(self, about: dict[str, Any], inherited: Inheritance | None) -> None:
        if os.path.lexists(self.path / "config.json"):
            raise UserError(
                f"{self.path} holds a run already: continue it with --resume {self.path}, or choose another --out"
            )
        if inherited is not None:
            arrays = {"library": inherited.library} | ({"steps": inherited.steps} if inherited.steps else {})
            write_folder(self.path / "inherited", {"agent": inherited.weights}, arrays, {})
        # Last, because it makes the folder a run: one that was killed before can simply be started again.
        self.about = about if self.spaces is None else {**about, "spaces": self.spaces._asdict()}
        self._write_header()

    def _write_header(self) -> None:
        header = {"format": FORMAT, "kind": self.kind, **self.about, "config": self.config}
        write_json(self.path / "config.json", header)

    def extend(self, steps: int, ending: int) -> None:
        """Let the run be `steps` long, finished or not. Its last checkpoint before the `ending` is then the newest:
        later ones have already done what only the end does."""
        planned = int(self.config["steps"])
        if steps < planned or (self.finished and steps == planned):
            raise UserError(f"{self.path} has {planned:,} steps already: --steps must be more")
        self.lock()
        try:
            for end in [folder for folder in self.checkpoints() if int(folder.name) >= ending]:
                shutil.rmtree(end)
            (self.path / "result.json").unlink(missing_ok=True)
            if steps > planned:
                self.about = self.about | {"extended": [*self.about.get("extended", []), planned]}
                self.config = self.config | {"steps": steps}
                self._write_header()
        finally:
            self.unlock()

    def lock(self) -> None:
        """Hold the folder for writing, so that two processes never write one run. Freed when the process ends."""
        refuse_links(self.path)
        path = self.path / ".lock"
        try:
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise UserError(f"cannot write to the run folder {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.unlock()
            raise UserError(f"another process is writing to {self.path}: wait for it or stop it first") from None

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- small files -------------------------------------------------------------------------------------------

    def write_status(self, state: str, step: int, message: str = "") -> None:
        """With a heartbeat (host, process, time), by which a reader tells a run that goes on from a dead one."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        heart = {"updated": now, "host": platform.node(), "pid": os.getpid()}
        write_json(self.path / "status.json", {"state": state, "step": step, "message": message} | heart)

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.path / "result.json", result)

    def write_trials(self, table: dict[str, Any]) -> None:
        write_json(self.path / "trials.json", table)

    def result(self) -> dict[str, Any] | None:
        """What result.json holds; None if it is not there, or damaged: the last checkpoint has it too."""
        found = read_object(self.path / "result.json")
        return None if isinstance(found, str) else found

    @property
    def finished(self) -> bool:
        return self.result() is not None

    @property
    def says_finished(self) -> bool:
        """Whether the status says so too: a run may have been killed between the two."""
        status = read_object(self.path / "status.json")
        return not isinstance(status, str) and status.get("state") == "finished"

    def reached(self) -> int:
        """The step of the last status; 0 if there is none that can be read."""
        status = read_object(self.path / "status.json")
        step = 0 if isinstance(status, str) else status.get("step")
        return step if isinstance(step, int) else 0

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """Complete ones, oldest first."""
        return _steps(self.path / "checkpoints")

    def milestones(self) -> list[Path]:
        return _steps(self.path / "milestones")

    def save_checkpoint(
        self,
        step: int,
        tensors: dict[str, Tensors],
        arrays: dict[str, Arrays],
        state: Any,
        logs: Iterable[LineLog] = (),
    ) -> None:
        """Everything that training needs to continue; the last two are kept."""
        folder = self.path / "checkpoints" / f"{step:09d}"
        write_folder(folder, tensors, arrays, {"config": self._digest()} | state, logs)
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
            return _library(self.path / "library") if (self.path / "library").is_dir() else {}
        except Damaged as error:
            warnings.warn(f"{error}; the search goes without it", stacklevel=2)
            return {}

    def inherited(self, limit: int | None = None) -> Inheritance | None:
        if not (self.path / "inherited").is_dir():
            if self.config.get("pretrained") is None:
                return None
            raise UserError(f"{self.path / 'inherited'}, from which it started, is missing: start the finetuning anew")
        try:
            folder = self.path / "inherited"
            steps = _prior_steps(folder) if self.config.get("prior_data") else None
            return Inheritance(_weights(folder, limit), _library(folder), steps)
        except Damaged as error:
            raise UserError(f"{error}: start the finetuning anew") from None

    def load_checkpoint(
        self, limits: Mapping[str, int] | None = None
    ) -> tuple[dict[str, Tensors], dict[str, Arrays], Any] | None:
        """The newest checkpoint that is intact, with a warning for each that is not; None if there never was one.

        `limits` are the bytes that each of its safetensors files may have.
        """
        damaged = []
        for folder in reversed(self.checkpoints()):
            try:
                tensors, arrays, state = read_folder(folder, limits)
            except Damaged as error:
                warnings.warn(f"{error}; using the checkpoint before it", stacklevel=2)
                damaged.append(folder)
                continue
            if not isinstance(state, dict) or state.get("config") != self._digest():
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

    def chosen_skill(self) -> Any:
        """The skill that the newest intact checkpoint of a finetuning has settled on; None if none has."""
        for folder in reversed(self.checkpoints()):
            try:
                verify(folder, only="state.json")
            except Damaged:
                continue
            state = read_object(folder / "state.json")
            return None if isinstance(state, str) else _chosen(state.get("script"))
        return None

    def weights(self, step: int | None = None, limit: int | None = None) -> tuple[Tensors, int]:
        """An agent's weights and their step: the newest, or those of a milestone or checkpoint at `step`.

        `limit` is how many bytes they may have.
        """
        folders = [*self.checkpoints(), *self.milestones()]
        if not folders:
            raise UserError(f"{self.path} has no checkpoint yet: let it run until its first one")
        if step is None:
            wanted = sorted(folders, key=lambda folder: int(folder.name), reverse=True)
        # A milestone first: it stays, so a step means the same weights whether its checkpoint is still there or not.
        elif not (wanted := [folder for folder in reversed(folders) if int(folder.name) == step]):
            known = ", ".join(map(str, self.steps_held()))
            raise UserError(f"{self.path} has no weights at step {step}; there are: {known}")
        for folder in wanted:
            try:
                return _weights(folder, limit), int(folder.name)
            except Damaged as error:
                if folder == wanted[-1]:
                    raise UserError(str(error)) from None
                warnings.warn(f"{error}; using the weights before it", stacklevel=2)
        raise AssertionError

    def replay(self) -> Arrays:
        """The experience in the newest checkpoint, as the replay's own `state`."""
        for folder in reversed(self.checkpoints()):
            try:
                verify(folder, only="replay.safetensors")
            except Damaged as error:
                warnings.warn(f"{error}; using the checkpoint before it", stacklevel=2)
                continue
            return read_arrays(folder / "replay.safetensors")
        raise UserError(f"{self.path} has no intact checkpoint, and so no replay")

    def steps_held(self) -> list[int]:
        """The steps whose weights are here."""
        return sorted({int(folder.name) for folder in [*self.checkpoints(), *self.milestones()]})

    def _digest(self) -> str:
        """Of the settings but `steps`: a run may be made longer."""
        config = {name: value for name, value in self.config.items() if name != "steps"}
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _weights(folder: Path, limit: int | None) -> Tensors:
    verify(folder, only="agent.safetensors", limits=None if limit is None else {"agent": limit})
    tensors = read_tensors(folder / "agent.safetensors")
    # shipped agents keep their matrices as float16; nothing computes in it
    return {name: value.float() if value.dtype == torch.float16 else value for name, value in tensors.items()}


def _chosen(script: Any) -> Any:
    """The skill in the recorded outcome of a finetuning's search, which is the first that its script has."""
    with contextlib.suppress(LookupError, TypeError):
        return script[0][0][1]["skill"]
    return None


def _library(folder: Path) -> Arrays:
    verify(folder, only="library.safetensors", limits={"library": LIBRARY_LIMIT})
    return read_arrays(folder / "library.safetensors")


def _prior_steps(folder: Path) -> Arrays:
    verify(folder, only="steps.safetensors", limits={"steps": STEPS_LIMIT})
    return read_arrays(folder / "steps.safetensors")


def _steps(folder: Path) -> list[Path]:
    """Its folders by step. `isdigit` alone would take digits that `int` does not, such as ²."""
    return sorted(path for path in folder.glob("*") if path.name.isascii() and path.name.isdigit())


def _spaces(said: Any) -> Spaces | None:
    """The sizes that a header names, if they can be those of an environment."""
    if not isinstance(said, dict) or said.keys() != {"obs", "action"}:
        return None
    possible = all(type(size) is int and 1 <= size <= _LARGEST_SPACE for size in said.values())
    return Spaces(**said) if possible else None
