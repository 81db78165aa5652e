"""The runs of a plan, resolved. This module imports no torch, so that the status of a sweep is read quickly."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.core.config import from_dict, require
from cic.core.errors import UserError
from cic.sweep.plan import Resources
from cic.sweep.store import SWEEP, Store


@dataclass(frozen=True)
class RunSpec:
    """One run, as a worker receives it: plain data."""

    name: str
    folder: str
    kind: str
    config: dict[str, Any]
    """The config of the plan, not the complete one: `cic.api` adds the defaults."""
    after: tuple[str, ...]
    """Folders of the runs on which this one depends."""
    source: str | None
    """The pre-training of a finetuning: a folder beside this one, or a path if it is not part of the plan."""
    outside: bool
    """Whether `source` is a path."""
    method: str
    domain: str
    steps: int
    needs: Resources

    def __post_init__(self) -> None:
        for text in (self.name, self.folder, self.method, self.domain):
            require(text.isprintable(), f"a run of a sweep must have a printable name, not {text!r}")
        require(Path(self.folder).name == self.folder, f"the folder of a run must be a name, not {self.folder!r}")
        require(0 <= self.steps <= 10**12, f"steps must lie between 0 and 10¹², not {self.steps}")


def digest(specs: Sequence[RunSpec]) -> str:
    """Return an identifier of a set of runs."""
    return hashlib.sha256("\n".join(sorted(spec.folder for spec in specs)).encode()).hexdigest()[:8]


def write_specs(store: Store, specs: Sequence[RunSpec]) -> None:
    """Write the runs beside their folders, for the status of the sweep."""
    lines = ",\n".join(json.dumps(dataclasses.asdict(spec)) for spec in specs)
    store.write(f"{SWEEP}/jobs-{digest(specs)}.json", f"[\n{lines}\n]\n".encode())


def read_specs(store: Store) -> list[RunSpec]:
    """Return the runs of all plans that were executed into a store."""
    specs: dict[str, RunSpec] = {}
    for name in sorted(store.names(SWEEP)):
        if name.startswith("jobs-") and name.endswith(".json"):
            try:
                listed = json.loads(store.read(f"{SWEEP}/{name}") or b"")
                found = [from_dict(RunSpec, item, name) for item in listed]
            except (ValueError, TypeError, RecursionError):
                raise UserError(
                    f"{store.where}/{SWEEP}/{name} is damaged: start the sweep again to rewrite it"
                ) from None
            specs |= {spec.folder: spec for spec in found}
    if not specs:
        raise UserError(f"{store.where} contains no sweep: give the folder or URL that was `out` of the sweep")
    return list(specs.values())
