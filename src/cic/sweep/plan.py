"""A plan: run configs and their dependencies in one JSON file that a person can read and edit.

    {"format": 1, "version": "0.2.0", "runs": [
     {"name": "cic-walker-s0", "kind": "pretrain", "config": {"domain": "walker", "objective": "cic", "seed": 0}},
     {"name": "cic-walker-s0-run", "kind": "finetune", "after": ["cic-walker-s0"], "config": {"task": "walker-run"}}
    ]}

`config` holds what differs from the defaults, as `cic.pretrain` and `cic.finetune` take it. A name is how the plan's
runs refer to each other; a run's folder follows from its complete config (`cic.sweep.completion`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cic import __version__
from cic.core.config import from_dict, require
from cic.core.errors import UserError, unknown
from cic.core.files import read_regular

FORMAT = 1
_BYTES = 256 << 20
_FIELDS = {"format", "version", "runs"}


@dataclass(frozen=True)
class Needs:
    """What a run takes of its node while it runs."""

    cpus: float = 1.0
    gpus: float = 0.0
    """A fraction lets several runs share one."""
    memory: float = 1.0
    """GB."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            require(0 <= value < 1e6, f"{name} of a run's needs must be a number from 0, not {value}")
        require(
            self.gpus <= 1 or float(self.gpus).is_integer(),
            f"a run needs a fraction of one GPU or whole ones, not {self.gpus}",
        )


@dataclass(frozen=True)
class Entry:
    """One run of a plan."""

    name: str
    kind: Literal["pretrain", "finetune"]
    config: dict[str, Any]
    after: tuple[str, ...] = ()
    """Runs that must be done before. A finetuning continues the pre-training among them; without one it learns from
    scratch."""
    pretrained: str | None = None
    """For a finetuning of a run that is no part of the plan: its folder."""
    needs: Needs | None = None
    """By default a CPU per thread, a GPU if the device is one, and memory for the replay."""

    def __post_init__(self) -> None:
        require(bool(self.name) and self.name.isprintable(), f"a run's name must be printable, not {self.name!r}")
        require(isinstance(self.config, dict), f'the config of "{self.name}" must be an object, not {self.config!r}')


@dataclass(frozen=True)
class Plan:
    """Runs in an order in which they can be done; every dependency exists and nothing waits for itself."""

    runs: tuple[Entry, ...]
    version: str = field(default=__version__, compare=False)
    """The cic that made it."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.runs]
        known = set(names)
        if len(known) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f'the plan names two runs "{twice}": give each a name of its own')
        for entry in self.runs:
            for other in entry.after:
                if other not in known:
                    raise UserError(
                        f'"{entry.name}" waits for a run that the plan lacks: {unknown("run", other, known)}'
                    )
        object.__setattr__(self, "runs", _ordered(self.runs))

    def to_text(self) -> str:
        """JSON, a run per line."""
        lines = ",\n".join(f"  {json.dumps(_plain(entry))}" for entry in self.runs)
        return f'{{\n "format": {FORMAT},\n "version": {json.dumps(self.version)},\n "runs": [\n{lines}\n ]\n}}\n'

    def write(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_text())
        except OSError as error:
            raise UserError(f"the plan cannot be written to {path}: {error.strerror}") from None


def read_plan(path: Path) -> Plan:
    try:
        text = read_regular(path, _BYTES).decode()
    except OSError as error:
        raise UserError(f"the plan {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the plan {path} is not a text file") from None
    return plan_from_text(text, str(path))


def plan_from_text(text: str, where: str = "the plan") -> Plan:
    """What `to_text` wrote or a person did; every mistake is named."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(data, dict) or "format" not in data or not isinstance(data.get("runs"), list):
        raise UserError(f'{where} is not a plan: it must be an object with "format" and a list of "runs"')
    if data["format"] != FORMAT:
        raise UserError(
            f"{where} was made by another version of cic ({data.get('version', '?')}, plan format {data['format']}; "
            f"this one, {__version__}, reads {FORMAT}): make it anew with this version"
        )
    for name in data:
        if name not in _FIELDS:
            raise unknown(f"field of {where}", name, _FIELDS)
    return Plan(
        tuple(from_dict(Entry, run, f"run {number} of {where}") for number, run in enumerate(data["runs"], 1)),
        str(data.get("version", "?")),
    )


def _plain(entry: Entry) -> dict[str, Any]:
    """The fields that say something."""
    content = {"name": entry.name, "kind": entry.kind, "config": entry.config}
    if entry.after:
        content["after"] = list(entry.after)
    if entry.pretrained is not None:
        content["pretrained"] = entry.pretrained
    if entry.needs is not None:
        content["needs"] = dataclasses.asdict(entry.needs)
    return content


def _ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Dependencies first, else in the order given (Kahn 1962)."""
    left = {entry.name: entry for entry in entries}
    waits = {name: set(entry.after) for name, entry in left.items()}
    followers: dict[str, list[str]] = {name: [] for name in left}
    for name, others in waits.items():
        for other in others:
            followers[other].append(name)
    ready = [name for name, others in waits.items() if not others]
    order: list[Entry] = []
    for name in ready:  # grows while it is walked
        order.append(left.pop(name))
        for follower in followers[name]:
            waits[follower].discard(name)
            if not waits[follower]:
                ready.append(follower)
    if left:
        circle = _circle(next(iter(left)), {name: waits[name] for name in left})
        raise UserError(f"the plan goes in a circle, so none of these can begin: {' → '.join(circle)}")
    return tuple(order)


def _circle(name: str, waits: dict[str, set[str]]) -> list[str]:
    path = [name]
    while True:
        name = min(waits[path[-1]])  # each of those left waits for one of those left
        if name in path:
            return [*path[path.index(name) :], name][::-1]
        path.append(name)
