"""Processes that end at the wrong moment."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from cic.runs import storage

from .cases import OPERATIONS, Case, Scenario, sentence
from .folders import newest, pretrain
from .processes import FINE, STOPPED, at_event, at_operation, kill, live

COMPILING = 600.0
"""Seconds that a run may take which compiles its updates, also on a busy machine."""


def killed_at_any_moment(case: Case) -> str:
    """SIGKILL at a random call, up to three times in the life of a run."""
    for _ in range(int(case.rng.integers(1, 4))):
        number = int(case.rng.integers(1, case.scenario.events))
        if wrong := sentence(case.live(lambda number=number: at_event(number, kill)), FINE, -signal.SIGKILL):
            return wrong
        if (case.path / "result.json").exists():
            break
    return case.to_the_end()


def killed_at_a_file_operation(case: Case) -> str:
    """SIGKILL before or after the n-th open, sync, rename, removal or write, on a new run or a stopped one."""
    owner, name, most = OPERATIONS[case.rng.integers(len(OPERATIONS))]
    number, moment = int(case.rng.integers(1, most)), str(case.rng.choice(["before", "after"]))
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: at_operation(owner, name, number, lambda *_: kill(), moment))
    return sentence(end, FINE, -signal.SIGKILL) or case.to_the_end()


def half_written(case: Case) -> str:
    """SIGKILL while a file of a checkpoint is half on disk, as after a power failure."""
    number, share = int(case.rng.integers(1, 14)), float(case.rng.random())
    name = str(case.rng.choice(["save_tensors", "save_arrays"]))

    def cut(_: Any, path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))
        kill()

    end = case.live(lambda: at_operation(storage, name, number, cut, "after"))
    return sentence(end, FINE, -signal.SIGKILL) or case.to_the_end()


def signalled(case: Case) -> str:
    """SIGINT, SIGTERM or SIGHUP at a random call: the run saves and stops, or was not yet begun."""
    which = int(case.rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    number = int(case.rng.integers(1, case.scenario.events))
    end = case.live(lambda: at_event(number, lambda: kill(which)))
    if wrong := sentence(end, FINE, STOPPED, -which):
        return wrong
    if "saved at step" in end.said:
        status = json.loads((case.path / "status.json").read_text())
        if status["state"] != "interrupted" or int(newest(case.path).name) != status["step"]:
            return f"it says that it saved, but {status}"
    return case.to_the_end(saved_between=True)


def compiled(case: Case) -> str:
    """SIGKILL of a run whose updates are compiled; the reference is compiled too."""
    reference = case.home.parent / "compiled-reference"

    def start(path: Path) -> None:
        pretrain(path, "cic", compile="on")

    scenario = Scenario("compiled", reference, start, 1)
    if not reference.exists():
        first = live(lambda: start(reference), case.home / "said", COMPILING)
        if wrong := sentence(first, FINE):
            return wrong
    own = Case(scenario, case.home, case.rng, seconds=COMPILING)
    number = int(case.rng.integers(2, 20))
    killed = own.live(lambda: at_operation(storage, "save_arrays", number, lambda *_: kill(), "after"))
    return sentence(killed, FINE, -signal.SIGKILL) or own.to_the_end()
