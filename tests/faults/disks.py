"""Disks without room, without permission, or without health; and company in one folder."""

from __future__ import annotations

import errno
import os
import shutil
import time
from typing import Any

import safetensors.numpy
import safetensors.torch

from cic import api

from .cases import OPERATIONS, Case, sentence
from .folders import contents
from .processes import FINE, MISTAKE, SmallDisk, at_operation, limit_files, live


def full_disk(case: Case) -> str:
    """A real file system without room, of a random size; with room again, the run goes on."""
    kilobytes = int(case.rng.integers(4, 400))
    if case.rng.random() < 0.5:
        case.stop()
        shutil.move(case.path, case.home / "before")
    place = case.home / "disk"
    place.mkdir()
    inner = Case(case.scenario, place, case.rng)

    def disaster() -> None:
        disk = SmallDisk(place, 64 << 20)
        if (case.home / "before").exists():
            shutil.copytree(case.home / "before", inner.path)
        used = sum(file.stat().st_blocks * 512 for file in place.rglob("*"))
        disk.resize((used // 4096 + 1) * 4096 + kilobytes * 1024)
        end = live(inner.go, case.home / "inner")
        wrong = sentence(end, FINE, MISTAKE)
        disk.resize(64 << 20)
        wrong = wrong or inner.to_the_end()
        (case.home / "wrong").write_text(wrong)

    end = live(disaster, case.home / "said")
    if end.code != FINE:
        return f"the disk: {end.said[-300:]}"
    return (case.home / "wrong").read_text()


def file_too_large(case: Case) -> str:
    """A limit on the size of files (RLIMIT_FSIZE), which fails writes of Python, safetensors and TensorBoard alike."""
    size = int(case.rng.integers(1, 30_000))
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: limit_files(size))
    return sentence(end, FINE, MISTAKE) or case.to_the_end()


def failing_write(case: Case) -> str:
    """ENOSPC, EIO or EDQUOT from the n-th operation on files."""
    owner, name, most = OPERATIONS[case.rng.integers(len(OPERATIONS) - 1)]
    number = int(case.rng.choice([errno.ENOSPC, errno.EIO, errno.EDQUOT]))
    count = int(case.rng.integers(1, most))

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number), str(args[0]) if args else None)

    if name == "close":  # whose descriptor would be lost
        name = "open"
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: at_operation(owner, name, count, fail, "before"))
    return sentence(end, FINE, MISTAKE) or case.to_the_end()


def read_only_disk(case: Case) -> str:
    """A file system that turned read-only: a sentence, and everything as it was."""
    case.stop()
    shutil.move(case.path, case.home / "before")
    place = case.home / "disk"
    place.mkdir()
    inner = Case(case.scenario, place, case.rng)

    def disaster() -> None:
        disk = SmallDisk(place, 64 << 20)
        shutil.copytree(case.home / "before", inner.path)
        before = contents(inner.path)
        disk.read_only(True)
        wrong = sentence(live(inner.go, case.home / "inner"), MISTAKE)
        wrong = wrong or sentence(live(lambda: api.load(inner.path), case.home / "inner"), FINE)
        disk.read_only(False)
        if not wrong and contents(inner.path) != before:
            wrong = "something changed"
        (case.home / "wrong").write_text(wrong or inner.to_the_end())

    end = live(disaster, case.home / "said")
    if end.code != FINE:
        return f"the disk: {end.said[-300:]}"
    return (case.home / "wrong").read_text()


def failing_read(case: Case) -> str:
    """EIO or EACCES when a stopped run is read: nothing is deleted, and the next try goes on."""
    case.stop()
    number = int(case.rng.choice([errno.EIO, errno.EACCES]))
    count = int(case.rng.integers(1, 16))
    readers = [(os, "open"), (safetensors.numpy, "load_file"), (safetensors.torch, "load_file")]
    owner, name = readers[case.rng.integers(3)]
    before = sorted(folder.name for folder in (case.path / "checkpoints").iterdir())

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number), str(args[0]))

    end = case.live(lambda: at_operation(owner, name, count % 5 + 1 if name != "open" else count, fail, "before"))
    if wrong := sentence(end, FINE, MISTAKE):
        return wrong
    left = sorted(folder.name for folder in (case.path / "checkpoints").iterdir() if folder.name.isdigit())
    if end.code == MISTAKE and left != before:
        return f"after a failed read there are {left}, before {before}"
    return case.to_the_end()


def raced(case: Case) -> str:
    """Three processes start with one --out, as far apart as a random moment: one run, and two sentences."""
    delays = case.rng.random(3) * 0.3
    children = []
    for index, delay in enumerate(delays):
        child = os.fork()
        if child == 0:
            time.sleep(float(delay))
            end = live(lambda: case.scenario.start(case.path), case.home / f"said-{index}")
            os._exit(end.code if end.code in (FINE, MISTAKE) else 1)
        children.append(child)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    if codes != [FINE, MISTAKE, MISTAKE]:
        return f"the three ended with {codes}"
    return case.difference()
