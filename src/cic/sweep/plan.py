"""A plan: run configs and their dependencies in one JSON file that can be read and edited.

    {"format": 1, "version": "0.2.0", "runs": [
     {"name": "cic-walker-s0", "kind": "pretrain", "config": {"domain": "walker", "objective": "cic", "seed": 0}},
     {"name": "cic-walker-s0-run", "kind": "finetune", "after": ["cic-walker-s0"], "config": {"task": "walker-run"}}
    ]}

`config` contains the settings that differ from the defaults, as `cic.pretrain` and `cic.finetune` take them. Runs refer
to each other by name; the folder of a run follows from its complete config (`cic.sweep.resolve`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from cic import __version__
from cic.core.config import from_dict, require
from cic.core.errors import UserError, unknown
from cic.core.imports import imported
from cic.runs.untrusted import read_regular

FORMAT = 1
_BYTES = 256 << 20
_FIELDS = {"format", "version", "imports", "runs"}


@dataclass(frozen=True)
class Resources:
    """Resources that a run occupies on its node."""

    cpus: float = 1.0
    gpus: float = 0.0
    """With a fraction, several runs share one GPU."""
    memory: float = 1.0
    """GB."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            require(0 <= value < 1e6, f"{name} of a run's needs must be at least 0 and below 1e6, not {value}")
        require(
            self.gpus <= 1 or float(self.gpus).is_integer(),
            f"a run needs a fraction of one GPU or a whole number of GPUs, not {self.gpus}",
        )


@dataclass(frozen=True)
class Entry:
    """One run of a plan."""

    name: str
    kind: Literal["pretrain", "finetune"]
    config: dict[str, Any]
    after: tuple[str, ...] = ()
    """Runs that must be finished before. A finetuning continues the pre-training among them; without one it trains from
    scratch."""
    pretrained: str | None = None
    """Folder of the pre-training of a finetuning, if that run is not part of the plan."""
    needs: Resources | None = None
    """By default one CPU per thread, one GPU if the device is one, and memory for the replay buffer."""

    def __post_init__(self) -> None:
        require(bool(self.name) and self.name.isprintable(), f"a run's name must be printable, not {self.name!r}")
        require(isinstance(self.config, dict), f'the config of "{self.name}" must be an object, not {self.config!r}')


@dataclass(frozen=True)
class Plan:
    """Runs, sorted so that each follows its dependencies."""

    runs: tuple[Entry, ...]
    version: str = field(default=__version__, compare=False)
    """The version of cic that made the plan."""
    imports: tuple[str, ...] = field(default_factory=lambda: tuple(imported()))
    """The user's modules (by name) and files (by absolute path) that the runs need."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.runs]
        known = set(names)
        if len(known) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f'the plan names two runs "{twice}": give each run its own name')
        for entry in self.runs:
            for other in entry.after:
                if other not in known:
                    raise UserError(
                        f'"{entry.name}" depends on a run that the plan lacks: {unknown("run", other, known)}'
                    )
        object.__setattr__(self, "runs", _sorted(self.runs))

    def to_text(self) -> str:
        """Return JSON with one run per line."""
        lines = ",\n".join(f"  {json.dumps(_plain(entry))}" for entry in self.runs)
        header = f' "format": {FORMAT},\n "version": {json.dumps(self.version)},\n'
        if self.imports:
            header += f' "imports": {json.dumps(self.imports)},\n'
        return f'{{\n{header} "runs": [\n{lines}\n ]\n}}\n'

    def write(self, path: Path | str) -> None:
        """Write the plan to a JSON file."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_text())
        except OSError as error:
            raise UserError(f"the plan cannot be written to {path}: {error.strerror}") from None


def read_plan(path: Path) -> Plan:
    try:
        text = read_regular(path.resolve(), _BYTES).decode()
    except OSError as error:
        raise UserError(f"the plan {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the plan {path} is not a text file: give a JSON file that `plan` has written") from None
    return plan_from_text(text, str(path))


def plan_from_text(text: str, where: str = "the plan") -> Plan:
    """Read what `to_text` or a person wrote."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(data, dict) or "format" not in data or not isinstance(data.get("runs"), list):
        raise UserError(f'{where} is not a plan: it must be an object with "format" and a list of "runs"')
    if data["format"] != FORMAT:
        raise UserError(
            f"{where} was made by another version of cic ({data.get('version', '?')}, plan format {data['format']}; "
            f"this one, {__version__}, reads {FORMAT}): make the plan again with this version"
        )
    for name in data:
        if name not in _FIELDS:
            raise unknown(f"field of {where}", name, _FIELDS)
    imports = data.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
        raise UserError(f"imports of {where} must be a list of modules and files, not {imports!r}")
    return Plan(
        tuple(from_dict(Entry, run, f"run {number} of {where}") for number, run in enumerate(data["runs"], 1)),
        str(data.get("version", "?")),
        tuple(imports),
    )


def _plain(entry: Entry) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    content = {"name": entry.name, "kind": entry.kind, "config": entry.config}
    if entry.after:
        content["after"] = list(entry.after)
    if entry.pretrained is not None:
        content["pretrained"] = entry.pretrained
    if entry.needs is not None:
        content["needs"] = dataclasses.asdict(entry.needs)
    return content


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Sort dependencies first, otherwise in the order given."""
    by_name = {entry.name: entry for entry in entries}
    graph = TopologicalSorter({name: entry.after for name, entry in by_name.items()})
    try:
        return tuple(by_name[name] for name in graph.static_order())
    except CycleError as error:
        raise UserError(f"the plan has circular dependencies: {' → '.join(error.args[1])}") from None
