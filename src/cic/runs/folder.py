"""The run folder: the one interface between training and everything later.

    config.json       the settings; a run is reproduced from this file alone. It makes a folder a run folder
    metrics.jsonl     one line per log entry; the same seed gives the same bytes
    timing.jsonl      wall-clock times, in a file of their own because they never repeat
    status.json       running, finished, interrupted or failed, and the step
    result.json       the final result; a run with this file is finished, even if status.json differs
    trials.json       the skills that finetuning tried
    checkpoints/      the last two, complete, with metrics and result: training resumes bit-exactly from them
    library/          trajectories of the skills of a finished pre-training
    milestones/       weights only, at 100k, 500k, 1M and 2M steps
    inherited/        the weights that a finetuning started from, and the pre-training data it learns from
    measured/         measurements of `cic reproduce` on the finished run

Nothing in it is a pickle. A checkpoint is a folder of safetensors and JSON with a checksum for each file, and is
written atomically (`cic.runs.storage`). All paths inside are relative, so a run folder can be moved.

Reading a run never changes its folder. Only the process that holds the lock writes to it, and nothing is written
through a link.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import platform
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import BaseFileLock

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.runs.bundled import bundled_agents, locate, refuse_bundled
from cic.runs.header import FORMAT, current_settings, possible_spaces, read_header
from cic.runs.jsonl_log import JsonlLog
from cic.runs.lock import lock_folder
from cic.runs.replay_arrays import require_replay
from cic.runs.storage import Damaged, DiskError, read_folder, verify, write_folder, write_json
from cic.runs.untrusted import Arrays, Misfit, Tensors, check_folder, read_arrays, read_object, read_tensors

LIBRARY_LIMIT = 256 << 20  # bytes; the library of 128 skills has a few million
STEPS_LIMIT = 2 << 30  # bytes; 300,000 steps have about 100 MB
_OVERWRITTEN = ("checkpoints", "milestones", "library", "metrics.jsonl", "timing.jsonl", "result.json", "trials.json")


class Inheritance(NamedTuple):
    """The pre-trained weights and data of a finetuning."""

    weights: Tensors
    library: Arrays
    """The skill library of the pre-training (`cic.training.library`); empty if the run has none."""
    steps: Arrays | None = None
    """The pre-training data (`cic.training.relabelled_replay`), if the finetuning learns from it."""


class Checkpoint(NamedTuple):
    """The content of a checkpoint folder."""

    folder: Path
    tensors: dict[str, Tensors]
    arrays: dict[str, Arrays]
    state: dict[str, Any]


class ReplayUnusable(UserError):
    """A run has no replay, or only damaged ones, or one in the layout of another version."""


class Run:
    """One run folder, open for reading. Call `lock` before writing."""

    def __init__(self, path: Path | str) -> None:
        self.path = locate(path)
        if not self.path.is_dir():
            what = "is a file" if self.path.is_file() else "does not exist"
            raise UserError(
                f"the run folder {self.path} {what}: give the folder that `cic pretrain` or `cic finetune` made, "
                f"or a bundled agent ({', '.join(bundled_agents())})"
            )
        check_folder(self.path)
        header = read_header(self.path)
        self.format: int = header["format"]
        self.kind: str = header["kind"]
        self.config: dict[str, Any] = current_settings(header)
        self.spaces = possible_spaces(header.get("spaces"))
        self._discard_from: int | None = header.get("discard_from")
        own = ("format", "kind", "config", "discard_from")
        self.about: dict[str, Any] = {key: header[key] for key in header if key not in own}
        self._lock: BaseFileLock | None = None
        self._damaged: set[str] = set()

    @classmethod
    def plan(cls, path: Path | str, kind: str, config: dict[str, Any], spaces: Spaces | None = None) -> Run:
        """A run that is not on disk yet: `create` makes its folder."""
        run = cls.__new__(cls)
        run.path, run.kind, run.config, run.spaces = Path(path), kind, config, spaces
        run.format, run.about, run._lock, run._discard_from, run._damaged = FORMAT, {}, None, None, set()
        return run

    def create(self, about: dict[str, Any], inherited: Inheritance | None = None) -> Run:
        """Make the folder.

        Args:
            about: Where the run comes from, for the record.
            inherited: The pre-trained weights and data of a finetuning; copied, so that the folder is complete.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from None
        self.lock()  # of two processes with the same folder, one gets the lock and the other finds a run
        try:
            self._fill(about, inherited)
        except (OSError, DiskError) as error:
            reason = error.reason if isinstance(error, DiskError) else error.strerror
            raise UserError(f"cannot write the run folder {self.path}: {reason}. Fix this and start again") from None
        finally:
            self.unlock()
        return self

    def _fill(self, about: dict[str, Any], inherited: Inheritance | None) -> None:
        if os.path.lexists(self.path / "config.json"):
            raise UserError(
                f"{self.path} contains a run already: continue it with `resume={self.path}`, or choose another `out`"
            )
        self._refuse_files_of_others()
        if inherited is not None:
            arrays = {"library": inherited.library} | ({"steps": inherited.steps} if inherited.steps else {})
            write_folder(self.path / "inherited", {"agent": inherited.weights}, arrays, {})
        # Last, because it makes the folder a run: a start that is killed before this can simply be repeated.
        if self.spaces is not None:
            obs, action, choices, _ = self.spaces  # the parts follow from the layout
            about = {**about, "spaces": {"obs": obs, "action": action} | ({"choices": choices} if choices else {})}
        self.about = about
        self._write_header()

    def _refuse_files_of_others(self) -> None:
        """The folder may contain files of the user, but none of them is overwritten."""
        taken = [name for name in _OVERWRITTEN if os.path.lexists(self.path / name)]
        left = self.path / "inherited"  # a start that was killed may have left it
        if os.path.lexists(left) and not (left / "manifest.json").is_file():
            taken.append(left.name)
        if taken:
            raise UserError(
                f"{self.path} contains {', '.join(taken)}, which a run would overwrite: choose another `out`"
            )

    def _write_header(self) -> None:
        header = {"format": FORMAT, "kind": self.kind, **self.about, "config": self.config}
        if self._discard_from is not None:
            header["discard_from"] = self._discard_from
        write_json(self.path / "config.json", header)

    def require_current_format(self) -> None:
        """Raise a `UserError` if the run cannot be resumed, because an earlier version made it."""
        refuse_bundled(self.path)
        if self.format != FORMAT:
            raise UserError(f"{self.path} was made by cic 0.2: finish it with that version")

    # ---- making a run longer -----------------------------------------------------------------------------------

    def extend(self, steps: int, ending: int) -> None:
        """Plan to make the run `steps` long, whether it is finished or not.

        Nothing is written: `apply_extension` changes the folder once everything else is known to work. Until then
        this object already behaves as the extended run, without its result and its last checkpoints.

        Args:
            ending: The step from which on checkpoints contain the final phase of a run.
        """
        planned = int(self.config["steps"])
        if isinstance(steps, bool) or not hasattr(steps, "__index__"):
            raise UserError(f"steps must be a whole number, not {steps!r}")
        steps = operator.index(steps)
        if steps < planned or (self.finished and steps == planned):
            raise UserError(f"{self.path} has {planned:,} steps already: set `steps` to a larger number")
        if steps == planned:
            return
        saved = [int(folder.name) for folder in self.checkpoints()]
        if saved and min(saved) >= ending:
            raise UserError(
                f"{self.path} has no checkpoint from before step {ending:,}, where its final phase starts, so it "
                f"cannot be extended: start a new run with `steps={steps}` and a smaller `checkpoint_every`"
            )
        self.about = self.about | {"extended": [*self.about.get("extended", []), planned]}
        self.config = self.config | {"steps": steps}
        self._discard_from = ending

    def apply_extension(self) -> None:
        """Write a planned extension. Call it under the lock, after the checkpoint was restored; else it does nothing.

        The first write of config.json decides. Should the process be killed during the clean-up after it, the next
        resume repeats the clean-up.
        """
        if self._discard_from is None:
            return
        self._write_header()
        for folder in _steps(self.path / "checkpoints"):
            if int(folder.name) >= self._discard_from:
                shutil.rmtree(folder)
        (self.path / "result.json").unlink(missing_ok=True)
        self._discard_from = None
        self._write_header()

    # ---- one writer --------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock the folder for writing, so that two processes never write to one run."""
        refuse_bundled(self.path)
        check_folder(self.path)
        self._lock = lock_folder(self.path)

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ---- small files -------------------------------------------------------------------------------------------

    def write_status(self, state: str, step: int, message: str = "") -> None:
        """Write status.json with host, process and time, by which readers detect that a run was killed."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        heartbeat = {"updated": now, "host": platform.node(), "pid": os.getpid()}
        write_json(self.path / "status.json", {"state": state, "step": step, "message": message} | heartbeat)

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.path / "result.json", result)

    def write_trials(self, table: dict[str, Any]) -> None:
        write_json(self.path / "trials.json", table)

    def result(self) -> dict[str, Any] | None:
        """The content of result.json; None if it is missing or damaged. The last checkpoint has it too."""
        found = read_object(self.path / "result.json")
        return None if isinstance(found, str) or self._discard_from is not None else found

    @property
    def finished(self) -> bool:
        return self.result() is not None

    @property
    def says_finished(self) -> bool:
        """Whether status.json states it too: a run may be killed between the two writes."""
        status = read_object(self.path / "status.json")
        return not isinstance(status, str) and status.get("state") == "finished"

    def reached(self) -> int:
        """The step in status.json; 0 if the file is missing or damaged."""
        status = read_object(self.path / "status.json")
        step = 0 if isinstance(status, str) else status.get("step")
        return step if isinstance(step, int) else 0

    # ---- writing checkpoints -----------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        step: int,
        tensors: dict[str, Tensors],
        arrays: dict[str, Arrays],
        state: Any,
        logs: Iterable[JsonlLog] = (),
    ) -> None:
        """Save everything that resuming needs. The last two checkpoints are kept."""
        folder = self.path / "checkpoints" / f"{step:09d}"
        write_folder(folder, tensors, arrays, {"config": self._digest()} | state, logs)
        self._damaged.discard(folder.name)
        self._prune()

    def _prune(self) -> None:
        """Keep the last two intact checkpoints, and damaged ones until there is an intact one of a later step."""
        folders = self.checkpoints()
        intact = [folder for folder in folders if folder.name not in self._damaged]
        kept = {*intact[-2:], *folders[folders.index(intact[-1]) :]}
        for folder in folders:
            if folder not in kept:
                shutil.rmtree(folder)

    def save_milestone(self, step: int, weights: Tensors) -> None:
        write_folder(self.path / "milestones" / f"{step:09d}", {"agent": weights}, {}, {"step": step})

    def save_library(self, library: Arrays) -> None:
        """Save the skill library of a pre-training, for the finetunings that start from it."""
        write_folder(self.path / "library", {}, {"library": library}, {})

    def load_checkpoint(self, limits: Mapping[str, int] | None = None) -> Checkpoint | None:
        """The newest checkpoint that is entirely intact, to resume from; None if the run has none.

        Call it under the lock. Damaged checkpoints are reported as warnings. They stay until training has passed
        their step again, because their weights may be intact.

        Args:
            limits: The bytes that each safetensors file may have.
        """
        assert self._lock is not None, "resuming needs the lock"
        self.require_current_format()
        for folder in reversed(self.checkpoints()):
            try:
                found = Checkpoint(folder, *read_folder(folder, limits))
            except Damaged as error:
                warnings.warn(f"{error}; using the checkpoint before it", stacklevel=2)
                self._damaged.add(folder.name)
                continue
            if found.state.get("config") != self._digest():
                raise UserError(
                    f"{self.path / 'config.json'} was changed after this run's checkpoint was written: "
                    "restore it, or start a new run with the new settings"
                )
            self._prune()  # the process may have been killed before it did
            return found
        if self._damaged:
            raise UserError(f"every checkpoint in {self.path / 'checkpoints'} is damaged: start the run again")
        return None

    # ---- reading: nothing below writes -------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """The checkpoint folders, oldest first."""
        found = _steps(self.path / "checkpoints")
        return [folder for folder in found if self._discard_from is None or int(folder.name) < self._discard_from]

    def milestones(self) -> list[Path]:
        return _steps(self.path / "milestones")

    def steps_held(self) -> list[int]:
        """The steps whose weights are in the folder."""
        return sorted({int(folder.name) for folder in [*self.checkpoints(), *self.milestones()]})

    def weights(self, step: int | None = None, limit: int | None = None) -> tuple[Tensors, int]:
        """An agent's weights and their step: the newest, or those of a milestone or checkpoint at `step`.

        Args:
            limit: The bytes that they may have.
        """
        folders = [*self.checkpoints(), *self.milestones()]
        if not folders:
            raise UserError(f"{self.path} has no checkpoint yet: let it run until its first one")
        if step is None:
            wanted = sorted(folders, key=lambda folder: int(folder.name), reverse=True)
        # A milestone first: it is kept, so a step means the same weights after its checkpoint was removed.
        elif not (wanted := [folder for folder in reversed(folders) if int(folder.name) == step]):
            known = ", ".join(map(str, self.steps_held()))
            raise UserError(f"{self.path} has no weights at step {step}; there are: {known}")
        try:
            folder = _first_intact(wanted, "agent", limit)
        except Damaged as error:
            raise UserError(str(error)) from None
        return _read_weights(folder), int(folder.name)

    def replay(self) -> Arrays:
        """The `state` of the replay in the newest checkpoint whose replay is intact."""
        if self.format != FORMAT:
            raise ReplayUnusable(f"the replay of {self.path} was made by cic 0.2 and has another layout")
        if self.kind == "offline":
            raise ReplayUnusable(f"{self.path} learned from stored data and has no replay of its own")
        if not self.checkpoints():
            raise ReplayUnusable(f"{self.path} has no checkpoint, and so no replay")
        try:
            folder = _first_intact(self.checkpoints()[::-1], "replay")
        except Damaged as error:
            raise ReplayUnusable(str(error)) from None
        arrays = read_arrays(folder / "replay.safetensors")
        if "frames" in arrays:
            raise ReplayUnusable(f"the replay of {self.path} contains images, which only the run itself can use")
        sizes = {} if self.spaces is None else {"obs": self.spaces.obs, "action": self.spaces.action}
        try:
            require_replay(arrays, **sizes)
        except Misfit as error:
            raise ReplayUnusable(f"the replay of {self.path} does not fit its config.json ({error})") from None
        return arrays

    def chosen_skill(self) -> Any:
        """The skill that a finetuning has chosen, by the newest checkpoint with an intact state; None if none has."""
        for folder in reversed(self.checkpoints()):
            try:
                verify(folder, only="state.json")
            except Damaged:
                continue
            state = read_object(folder / "state.json")
            return None if isinstance(state, str) else _chosen_skill(state)
        return None

    def library(self) -> Arrays:
        """The skill library of a pre-training; empty if the run has none, or with a warning if it is damaged."""
        try:
            return _read_library(self.path / "library") if (self.path / "library").is_dir() else {}
        except Damaged as error:
            warnings.warn(f"{error}; the skill search does not use it", stacklevel=2)
            return {}

    def inherited(self, limit: int | None = None) -> Inheritance | None:
        """The pre-trained weights and data of a finetuning; None for a run from scratch.

        Args:
            limit: The bytes that the weights may have.
        """
        folder = self.path / "inherited"
        if not folder.is_dir():
            if self.config.get("pretrained") is None:
                return None
            raise UserError(f"{folder}, from which the run started, is missing: start the finetuning again")
        try:
            steps = None
            if self.config.get("prior_data"):
                verify(folder, only="steps.safetensors", limits={"steps": STEPS_LIMIT})
                steps = read_arrays(folder / "steps.safetensors")
            _first_intact([folder], "agent", limit)
            return Inheritance(_read_weights(folder), _read_library(folder), steps)
        except Damaged as error:
            raise UserError(f"{error}: start the finetuning again") from None

    def _digest(self) -> str:
        """A checksum of the settings except `steps`, because a run may be extended."""
        config = {name: value for name, value in self.config.items() if name != "steps"}
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _first_intact(folders: Sequence[Path], part: str, limit: int | None = None) -> Path:
    """The first of `folders` with an intact file of this part. A warning reports each damaged one before it."""
    for folder, following in zip(folders, [*folders[1:], None], strict=True):
        try:
            verify(folder, only=f"{part}.safetensors", limits=None if limit is None else {part: limit})
            return folder
        except Damaged as error:
            if following is None:
                raise
            warnings.warn(f"{error}; using {following} instead", stacklevel=3)
    raise AssertionError("there is at least one folder")


def _read_weights(folder: Path) -> Tensors:
    tensors = read_tensors(folder / "agent.safetensors")
    # Bundled agents store their matrices as float16; nothing computes in it.
    return {name: value.float() if value.dtype == torch.float16 else value for name, value in tensors.items()}


def _chosen_skill(state: dict[str, Any]) -> Any:
    """The skill in the state of a finetuning: the first outcome of its script; in format 2, a field of its phase."""
    with contextlib.suppress(LookupError, TypeError):
        return state["phase"]["chosen"] if "phase" in state else state["script"][0][0][1]["skill"]
    return None


def _read_library(folder: Path) -> Arrays:
    verify(folder, only="library.safetensors", limits={"library": LIBRARY_LIMIT})
    return read_arrays(folder / "library.safetensors")


def _steps(folder: Path) -> list[Path]:
    """The folders that are named by a step. `isdigit` alone accepts digits that `int` does not, such as ²."""
    found = [path for path in folder.glob("*") if path.name.isascii() and path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name))
