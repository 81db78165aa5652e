"""The output folder of `cic reproduce`: the runs, which experiments share, and a folder of results for each.

reproduce.json       the scale and the version of cic: runs of others are not mixed with these
runs/                the run folders of all experiments, as a sweep keeps them
runs.csv and others  the same runs as tables (`cic.runs.study_tables`); figures are drawn from these if runs/ is gone
measured/RUN/        pictures and films that were measured of a run
NAME/                setup.json (the user's choices), figures, data.csv, tables, summary.json, page.html
index.html           all experiments on one page
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from cic import __version__
from cic.core.config import from_dict, to_dict
from cic.core.errors import UserError
from cic.experiments import measurements
from cic.experiments.experiment import ExperimentSetup, PlannedRun
from cic.report.study_data import write_study
from cic.runs import records, study_tables
from cic.runs.lock import lock_folder
from cic.runs.names import LOCK, partial
from cic.runs.records import RunRecord
from cic.runs.storage import write_json
from cic.runs.untrusted import plain, read_object
from cic.sweep.plan import Entry

MARK = "reproduce.json"
FORMAT = 1
_MEDIA = (".png", ".mp4")


class OutputFolder:
    """Read and write the output folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.runs = path, path / "runs"
        foreign = path.exists() and (not path.is_dir() or any(map(_is_foreign, path.iterdir())))
        self.made = self._read()  # after looking: a command that starts meanwhile writes the mark before anything else
        if self.made is None and foreign:
            raise UserError(f"{path} contains something else than experiments: choose a new folder for `out`")

    def _read(self) -> dict[str, Any] | None:
        if not (self.path / MARK).exists():
            return None
        found = read_object(self.path / MARK)
        if isinstance(found, str) or found.get("format") != FORMAT:
            raise UserError(f"{self.path / MARK} is damaged or of another version of cic: choose another `out`")
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a lock: two commands may share a folder (a domain each, say) and write one after the other."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from None
        with lock_folder(self.path, wait=True):
            yield

    def prepare(self, scale: str) -> None:
        """Mark the folder before anything is run: only runs of this version and scale belong here."""
        with self.held():
            self.made = self._read()  # another command may have started meanwhile
            self._prepare(scale)

    def _prepare(self, scale: str) -> None:
        if self.made is not None:
            version, other = plain(self.made.get("version")), plain(self.made.get("scale"))
            if (version, other) != (__version__, scale):
                raise UserError(
                    f"{self.path} was made by cic {version} at scale {other}, this is cic {__version__} at scale "
                    f"{scale}: choose another `out`, or set `draw` to draw the existing runs"
                )
            return
        self.made = {"format": FORMAT, "version": __version__, "scale": scale}
        write_json(self.path / MARK, self.made)  # first, so that no command takes a folder of runs for something else
        self.runs.mkdir(exist_ok=True)

    def of(self, name: str) -> Path:
        return self.path / name

    # ---- setups ------------------------------------------------------------------------------------------------

    def write_setup(self, name: str, setup: ExperimentSetup, runs: Sequence[PlannedRun]) -> None:
        """Store the user's choices and the planned runs: a later version may name the runs differently."""
        listed = [{"variant": run.variant, **to_dict(run.entry)} for run in runs]
        with self.held():
            self.of(name).mkdir(exist_ok=True)
            write_json(self.of(name) / "setup.json", setup.to_dict() | {"runs": listed})

    def read_setup(self, name: str) -> tuple[ExperimentSetup, list[PlannedRun]] | None:
        """Return what `write_setup` stored; None if the experiment was not run here."""
        path = self.of(name) / "setup.json"
        if not path.exists():
            return None
        found = read_object(path)
        try:
            if isinstance(found, str):
                raise ValueError(found)
            runs = [_planned(run) for run in found.pop("runs")]
            return from_dict(ExperimentSetup, found, str(path)), runs
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path} is damaged: run the experiment again") from None

    # ---- runs: folders, or rows of the tables ------------------------------------------------------------------

    def record(self, name: str) -> RunRecord | str | None:
        """Return the run, the reason why it cannot be read, or None if there is none.

        Rows of the tables count only if there is no run folder at all: otherwise a run that was deleted is missing.
        """
        path = self.runs / name
        if (path / "config.json").exists():
            return records.read_run(path)
        return None if self._has_folders else self._rows.get(name)

    @property
    def _has_folders(self) -> bool:
        return self.runs.is_dir() and next(records.folders(self.runs), None) is not None

    @cached_property
    def _rows(self) -> dict[str, RunRecord]:
        if not (self.path / study_tables.RUNS).is_file():
            return {}
        found = records.read_study(self.path)
        return {run.name: run for run in found if isinstance(run, RunRecord)}

    def measured(self, record: RunRecord, name: str, scale: str) -> dict[str, Any] | None:
        """Return the values of a measurement; None if there are none at this scale."""
        if record.tables is None:
            return measurements.read_measured(record.path, name, scale)
        of_run = self._measurements.get(record.name)
        return measurements.values_at(of_run.get(name) if isinstance(of_run, Mapping) else None, scale)

    @cached_property
    def _measurements(self) -> dict[str, Any]:
        found = read_object(self.path / study_tables.MEASUREMENTS)
        return {} if isinstance(found, str) else found

    def files(self, record: RunRecord) -> Path:
        """Return the folder of pictures and films that were measured of a run."""
        return record.path / measurements.FOLDER if record.tables is None else self._files(record.name)

    def _files(self, name: str) -> Path:
        return self.path / measurements.FOLDER / name

    def write_tables(self) -> None:
        """Write the runs as tables, to be committed in place of their folders. Rows of earlier runs are kept."""
        read = [records.read_run(path) for path in records.folders(self.runs)]
        found = {run.name: run for run in read if isinstance(run, RunRecord)}
        measured = {name: values for name, values in self._measurements.items() if name not in found}
        for run in found.values():
            folder = run.path / measurements.FOLDER
            for path in sorted(folder.glob("*")) if not folder.is_symlink() else ():
                if path.suffix == ".json" and isinstance(stored := read_object(path), dict):
                    measured.setdefault(run.name, {})[path.stem] = stored
                elif measurements.measured_file(folder, path.name, _MEDIA) is not None:
                    self._files(run.name).mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, self._files(run.name) / path.name)
        with self.held():
            write_study(self.path, list((self._rows | found).values()), measured)


def _is_foreign(path: Path) -> bool:
    """Return whether a command that starts in this moment did not make it."""
    return path.name not in (LOCK, partial(Path(MARK)).name)


def _planned(run: Any) -> PlannedRun:
    variant, entry = str(run.pop("variant")), from_dict(Entry, run, "a run")
    if Path(entry.name).name != entry.name:
        raise ValueError("not the name of a folder")
    return PlannedRun(variant, entry)
