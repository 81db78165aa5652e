"""Faults drawn at random over objectives, phases, num_envs and moments; each is repeated by its seed."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cic.learning.objectives import objectives

from .cases import Case, Scenario
from .folders import CHECKED, LIBRARY, extend, finetune, pretrain
from .injections import COSTLY, KINDS
from .processes import FINE, live, preload

FEW = ("cic", "rnd", "aps")
"""Methods with skills, without skills, and with skills that are inferred."""
PHASES = ("pretrain", "library", "finetune", "checked", "extended")
"""library: skills are recorded at the end; checked: with that library, relabelled pre-training data and the comparison
at the end; extended: a finished run is made longer."""


@dataclass
class Table:
    """Per kind: how many were injected, and the seeds of those that were not survived."""

    injected: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lost = Counter(kind for _, kind, _, _ in self.failures)
        rows = [(kind, count, count - lost[kind], lost[kind]) for kind, count in self.injected.items()]
        total = sum(self.injected.values())
        rows.append(("all", total, total - len(self.failures), len(self.failures)))
        head = "| fault | injected | survived | failed |\n|---|---:|---:|---:|\n"
        return head + "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


class Campaign:
    """Undisturbed runs are made once each, in `home`."""

    def __init__(self, home: Path, kinds: Sequence[str] = tuple(kind for kind in KINDS if kind not in COSTLY)) -> None:
        self.home, self._kinds = home, kinds
        self._names = [name for name, _ in objectives() if name != "ddpg"]  # it has no reward of its own
        preload()

    def draw(self, seed: int) -> tuple[str, Scenario, np.random.Generator]:
        """The kind of fault and the run that a seed means. As many seeds as there are kinds share a run."""
        rng = np.random.default_rng(seed)
        kind = self._kinds[seed % len(self._kinds)]
        shared = np.random.default_rng([seed // len(self._kinds), 1])
        few = kind.startswith(("command", "disturbed"))  # what they test depends little on the method
        objective = str(shared.choice(FEW if few else self._names))
        num_envs = 1 if few else int(shared.integers(1, 3))
        domain = "point_mass" if shared.random() < 0.2 else "gridworld"
        phase = "pretrain" if domain == "point_mass" else str(shared.choice(PHASES))
        return kind, self.scenario(objective, phase, domain, num_envs), rng

    @functools.cache  # noqa: B019  one campaign per process
    def scenario(self, objective: str, phase: str, domain: str, num_envs: int) -> Scenario:
        name = f"{objective} {phase} {domain} ×{num_envs}"
        folder = self.home / "references" / name.replace(" ", "-")
        folder.mkdir(parents=True)

        source = self.home / "references" / f"{objective}-source"
        if phase in ("finetune", "checked") and not source.exists():
            self._undisturbed(lambda: pretrain(source, objective, **LIBRARY))
        short = source.with_name(f"{objective}-short")
        if phase == "extended" and not short.exists():
            self._undisturbed(lambda: pretrain(short, objective))
        starts: dict[str, Callable[[Path], Any]] = {
            "pretrain": lambda path: pretrain(path, objective, domain, num_envs=num_envs),
            "library": lambda path: pretrain(path, objective, domain, num_envs=num_envs, **LIBRARY),
            "finetune": lambda path: finetune(path, source, num_envs=num_envs),
            "checked": lambda path: finetune(path, source, num_envs=num_envs, **CHECKED),
            "extended": lambda path: extend(path, short),
        }
        start = starts[phase]
        self._undisturbed(lambda: (folder / "events").write_text(str(_count(lambda: start(folder / "run")))))
        events = int((folder / "events").read_text())
        return Scenario(name, folder / "run", start, events, start if phase == "extended" else None)

    def _undisturbed(self, action: Any) -> None:
        end = live(action, self.home / "said")
        if end.code != FINE:
            raise RuntimeError(f"an undisturbed run failed: {end.said}")

    def inject(self, seed: int) -> tuple[str, str, str]:
        """One injection: its kind, its run, and what was wrong ("" if nothing)."""
        kind, scenario, rng = self.draw(seed)
        home = Path(tempfile.mkdtemp(prefix=f"{seed}-", dir=self.home))
        try:
            here = scenario.resume is None and rng.random() < 0.2
            wrong = KINDS[kind](Case(scenario, home, rng, here))
        except Exception as error:  # such as a folder that is not as it should be; the campaign goes on
            wrong = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(home, ignore_errors=True)
        return kind, scenario.name, wrong

    def run(self, seeds: Iterator[int], minutes: float = float("inf")) -> Table:
        table, deadline = Table(), time.monotonic() + 60 * minutes
        for seed in seeds:
            if time.monotonic() > deadline:
                break
            kind, name, wrong = self.inject(seed)
            table.injected[kind] += 1
            if wrong:
                table.failures.append((seed, kind, name, wrong))
                print(f"seed {seed}: {kind}: {name}: {wrong}", file=sys.stderr, flush=True)
        return table


def _count(action: Any) -> int:
    """How many calls of functions an action makes."""
    events = 0

    def watch(*_: Any) -> None:
        nonlocal events
        events += 1

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return events
