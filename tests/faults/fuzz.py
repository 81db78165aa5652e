"""Configs and states changed at random, with right checksums: no traceback, nothing outside, little memory."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from cic import api
from cic.core.errors import Interrupted, UserError
from cic.learning import compilation
from cic.training import preflight

from .folders import finetune, forge, forge_state, newest, pretrain, stopped
from .mutations import mutate
from .processes import preload

GIGABYTE = 1 << 30


class Stuck(Exception):
    """Neither an end nor an answer to a signal."""


@dataclass
class Report:
    """What became of the forged folders."""

    ends: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    memory: int = 0
    disk: int = 0

    def __str__(self) -> str:
        rows = "\n".join(f"| {what} | {count} |" for what, count in sorted(self.ends.items()))
        lost = "".join(f"\nseed {seed}: {what}" for seed, what in self.failures)
        sizes = f"memory {self.memory / 1e6:.0f} MB beyond the start, largest folder {self.disk / 1e6:.1f} MB"
        return f"| what happened | times |\n|---|---:|\n{rows}\n| failed | {len(self.failures)} |\n\n{sizes}{lost}"


def fuzz(home: Path, count: int, seed: int) -> Report:
    """`count` forged folders, opened and resumed in this process; seed i is that of mutation i."""
    preload()
    warnings.simplefilter("ignore")
    preflight.available_memory = lambda: 2 * GIGABYTE  # so that half of it may be asked for
    compilation.wanted = lambda *_: False  # a million steps to go are worth compiling for, which takes long
    skills = pretrain(home / "skills")
    stops = [stopped(skills, home / "a"), stopped(finetune(home / "tuned", skills), home / "b")]
    stops.append(stopped(pretrain(home / "others", "rnd", num_envs=2), home / "c"))
    for path in (*stops, home):  # what is copied ten thousand times, and watched, should be little
        for folder in ("tensorboard", "milestones", "skills", "tuned", "others"):
            shutil.rmtree(path / folder, ignore_errors=True)
    report, before = Report(), _memory()
    outside = _outside(home)
    for number in range(seed, seed + count):
        rng = np.random.default_rng(number)
        path = home / "forged"
        shutil.copytree(stops[rng.integers(len(stops))], path)
        what = _forge(path, rng)
        try:
            report.ends[f"{what}: {_open(path, what)}"] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            report.failures.append((number, f"{what}: {''.join(traceback.format_exception(error))[-1500:]}"))
            print(f"seed {number}: {report.failures[-1][1]}", file=sys.stderr, flush=True)
        report.disk = max(report.disk, _disk(path))
        shutil.rmtree(path)
        if _outside(home) != outside:
            report.failures.append((number, f"{what}: something outside of the folder changed"))
            outside = _outside(home)
        done = number - seed + 1
        if done % 250 == 0:
            print(f"{done} of {count}: {len(report.failures)} failed; {dict(report.ends)}", file=sys.stderr, flush=True)
    report.memory = _memory() - before
    for name, size in (("memory", report.memory), ("disk", report.disk)):
        if size > GIGABYTE:
            report.failures.append((-1, f"more than a gigabyte of {name}"))
    return report


def _forge(path: Path, rng: np.random.Generator) -> str:
    if rng.random() < 0.5:
        forge(path, lambda header: mutate(header if rng.random() < 0.2 else header["config"], rng))
        return "config"
    forge_state(newest(path), lambda state: mutate(state, rng))
    return "state"


def _open(path: Path, what: str) -> str:
    """Load the weights, whose config may be odd, then go on with the run for a second at most."""
    torch.set_num_threads(1)
    loaded = "loaded"
    try:
        with _impatient():
            if what == "config":
                api.load(path)
    except (UserError, OSError) as error:
        _one_line(error)
        loaded = "refused"
    try:
        with _impatient():
            api.resume(path, quiet=True)
    except (UserError, OSError) as error:
        _one_line(error)
        return f"{loaded}, not resumed"
    except Interrupted:
        return f"{loaded}, resumed and stopped after a second"
    return f"{loaded}, resumed to its end"


def _one_line(error: Exception) -> None:
    if any(not (letter.isprintable() or letter == "\n") for letter in str(error)):
        raise AssertionError(f"control characters reach the terminal: {str(error)[:300]!r}")


@contextmanager
def _impatient() -> Iterator[None]:
    """SIGTERM after a second of computing; who does not answer it within twenty is stuck."""
    asked = 0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Stuck
        os.kill(os.getpid(), signal.SIGTERM)

    def refuse(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 20.0)  # not in the loop yet: give it time

    before = signal.signal(signal.SIGPROF, ask), signal.signal(signal.SIGTERM, refuse)
    signal.setitimer(signal.ITIMER_PROF, 1.0, 20.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGTERM, before[1])


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _disk(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*"))


def _outside(home: Path) -> dict[str, Any]:
    """Names, sizes and times of what a forged folder must not reach."""
    names = [path for path in home.rglob("*") if "forged" not in path.parts]
    names += [path for path in Path.cwd().iterdir() if not path.name.startswith(".")]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in names}
