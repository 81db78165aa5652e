"""A plan's runs with everything decided. Light: a sweep's status is read without torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cic.core.config import from_dict
from cic.core.errors import UserError
from cic.sweep.plan import Needs
from cic.sweep.storage import SWEEP, Storage


@dataclass(frozen=True)
class Job:
    """One run, as a worker gets it: plain data."""

    name: str
    folder: str
    kind: str
    config: dict[str, Any]
    """The plan's, not the complete one: `cic.api` completes it again."""
    after: tuple[str, ...]
    """Folders of the jobs that must be done before."""
    source: str | None
    """The pre-training: a folder beside this one, or a path if it is no part of the plan."""
    outside: bool
    method: str
    domain: str
    steps: int
    needs: Needs


def digest(jobs: Sequence[Job]) -> str:
    """Names a plan: the same runs give the same word."""
    return hashlib.sha256("\n".join(sorted(job.folder for job in jobs)).encode()).hexdigest()[:8]


def write_jobs(storage: Storage, jobs: Sequence[Job]) -> None:
    """Beside the runs, so that anyone can see how far the sweep is."""
    lines = ",\n".join(json.dumps(dataclasses.asdict(job)) for job in jobs)
    storage.write(f"{SWEEP}/jobs-{digest(jobs)}.json", f"[\n{lines}\n]\n".encode())


def read_jobs(storage: Storage) -> list[Job]:
    """Of all plans that were run into a storage."""
    jobs: dict[str, Job] = {}
    for name in sorted(storage.names(SWEEP)):
        if name.startswith("jobs-") and name.endswith(".json"):
            try:
                listed = json.loads(storage.read(f"{SWEEP}/{name}") or b"[]")
            except ValueError:
                raise UserError(
                    f"{storage.where}/{SWEEP}/{name} is damaged: start the sweep again to renew it"
                ) from None
            found = [from_dict(Job, item, name) for item in listed]
            jobs |= {job.folder: job for job in found}
    if not jobs:
        raise UserError(f"{storage.where} holds no sweep: give the folder that `cic sweep PLAN --out` got")
    return list(jobs.values())
