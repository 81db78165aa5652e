"""Sweeps and exports that are disturbed: executed again, they end like undisturbed ones."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic.core.errors import UserError
from cic.export import export_data, export_policy
from cic.sweep.command import sweep
from cic.sweep.plan import Entry, Plan

from .cases import OPERATIONS, Case, sentence
from .folders import FINETUNE, PRETRAIN, TASK, contents
from .processes import FINE, MISTAKE, STOPPED, at_event, at_operation, kill, live

EVENTS = 200_000
"""About as many calls as a sweep of two runs makes."""


def _plan() -> Plan:
    pretrain = {"domain": "gridworld", "objective": "rnd", **PRETRAIN, "milestones": [12]}
    runs = Entry("a", "pretrain", pretrain), Entry("b", "finetune", {"task": TASK, **FINETUNE}, after=("a",))
    return Plan(runs)


def _sweep(out: Path) -> None:
    result = sweep(_plan(), out=str(out), slots=1, quiet=True)
    for _, failed in result.failed:
        raise UserError(failed.message)


def disturbed_sweep(case: Case) -> str:
    """A sweep that is killed, stopped, or finds damaged or linked files; then the same command again."""
    out, reference, precious = case.home / "sweep", case.home.parent / "sweep-reference", case.home / "precious"
    if not reference.exists() and (wrong := sentence(live(lambda: _sweep(reference), case.home / "said"), FINE)):
        return wrong
    precious.write_text("mine")
    how = str(case.rng.choice(["kill", "operation", "signal", "result", "link", "fifo", "disk"]))
    number = int(case.rng.integers(1, EVENTS))
    if how in ("kill", "signal"):
        which = signal.SIGKILL if how == "kill" else int(case.rng.choice([signal.SIGINT, signal.SIGTERM]))
        end = live(lambda: (at_event(number, lambda: kill(which)), _sweep(out)), case.home / "said")
        wrong = sentence(end, FINE, STOPPED, -which)
    elif how in ("operation", "disk"):
        owner, name, most = OPERATIONS[case.rng.integers(len(OPERATIONS) - 1)]
        deed = kill if how == "operation" else _fail
        count = int(case.rng.integers(1, 2 * most))
        end = live(
            lambda: (at_operation(owner, name, count, lambda *_: deed(), "before"), _sweep(out)), case.home / "said"
        )
        wrong = sentence(end, FINE, MISTAKE, -signal.SIGKILL)
    else:
        shutil.copytree(reference, out)
        runs = sorted(path for path in out.iterdir() if (path / "config.json").exists())
        run = runs[case.rng.integers(len(runs))]
        (run / "result.json").unlink()
        names = ["result.json", "status.json", "log.txt", "metrics.jsonl", ".worker.lock", "checkpoints"]
        odd = run / ("result.json" if how == "result" else str(case.rng.choice(names)))
        kept = case.home / "kept"
        if how == "result":
            odd.write_text(str(case.rng.choice(["", "{", "null", "[]"])))
        else:
            if odd.exists():
                shutil.move(odd, kept)
            odd.symlink_to(precious) if how == "link" else os.mkfifo(odd)
        wrong = sentence(live(lambda: _sweep(out), case.home / "said"), FINE, MISTAKE)
        if how != "result":
            odd.unlink(missing_ok=True)
            if kept.exists():
                shutil.move(kept, odd)
    if precious.read_text() != "mine":
        return f"{how}: wrote through a link"
    return f"{how}: {wrong}" if wrong else _same(case, how, out, reference)


def _same(case: Case, how: str, out: Path, reference: Path) -> str:
    """Execute the sweep again, undisturbed, and compare all runs."""
    if wrong := sentence(live(lambda: _sweep(out), case.home / "said"), FINE):
        return f"{how}: cannot continue: {wrong}"
    for run in sorted(path for path in reference.iterdir() if (path / "config.json").exists()):
        got, expected = _final(out / run.name), _final(run)
        if got != expected:
            different = [name for name in got.keys() | expected.keys() if got.get(name) != expected.get(name)]
            return f"{how}: {run.name} differs: {sorted(different)[:5]}"
    return ""


def _final(run: Path) -> dict[str, Any]:
    """Everything but logs, the checkpoint before the last, which a stopped run saves at another step, and the header,
    which contains the path of the pre-training."""
    last = sorted((run / "checkpoints").iterdir())[-1].name
    found = contents(run)
    return {
        name: value
        for name, value in found.items()
        if not name.endswith(("log.txt", ".worker.lock", "config.json", "state.json", "manifest.json"))
        and (not name.startswith("checkpoints/") or last in name)
    }


def _fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disturbed_export(case: Case) -> str:
    """An export that is killed or finds no space; exported again to the same place, it is complete."""
    shutil.copytree(case.scenario.reference, case.path)
    before = contents(case.path)
    policy = case.rng.random() < 0.3

    def export(place: Path) -> None:
        if policy:
            export_policy(case.path, place / "policy")
        else:
            export_data(case.path, place)

    whole, out = case.home / "whole", case.home / "out"
    wrong = sentence(live(lambda: export(whole), case.home / "said"), FINE, MISTAKE)
    number = int(case.rng.integers(1, 4000))
    writers = [(np, "savez_compressed"), (np, "savez_compressed"), (torch.export, "save"), (os, "replace")]
    owner, name = [*writers, (os, "rename"), (os, "mkdir"), (Path, "rename")][case.rng.integers(7)]
    deed = kill if case.rng.random() < 0.5 else _fail

    def disturb() -> None:
        if deed is kill and case.rng.random() < 0.5:
            at_event(number, kill)
        else:
            at_operation(owner, name, number % 3 + 1, lambda *_: deed(), str(case.rng.choice(["before", "after"])))

    end = live(lambda: (disturb(), export(out)), case.home / "said")
    wrong = wrong or sentence(end, FINE, MISTAKE, -signal.SIGKILL)
    if not wrong and end.code != FINE:
        wrong = sentence(live(lambda: export(out), case.home / "said"), FINE, MISTAKE)
    if wrong:
        return wrong
    if contents(case.path) != before:
        return "the run changed"
    names = [sorted(str(path.relative_to(place)) for path in place.rglob("*")) for place in (whole, out)]
    return "" if names[0] == names[1] else f"other files: {set(names[0]) ^ set(names[1])}"
