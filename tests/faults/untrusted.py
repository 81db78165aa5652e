"""Folders and environments that somebody else made."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from cic import api
from cic.learning import compilation

from .cases import Case, Rng, Scenario, sentence
from .folders import FINETUNE, forge, forge_arrays, forge_state, newest, pretrain
from .mutations import mutate
from .odd_environment import Odd, register
from .processes import FINE, MISTAKE, STOPPED, kill, live


def hostile_link(case: Case) -> str:
    """A link, a FIFO or a folder in place of a run's file: refused, and its target untouched."""
    case.stop()
    precious = case.home / "precious"
    precious.write_text("mine")
    files = [str(file.relative_to(case.path)) for file in case.path.rglob("*") if file.is_file()]
    names = [
        *files,
        ".lock",
        ".status.json.cic-part",
        ".metrics.jsonl.cic-part",
        ".result.json.cic-part",
        "result.json",
    ]
    target = case.path / str(case.rng.choice(names))
    target.unlink(missing_ok=True)
    how = case.rng.choice(["link", "dangling", "fifo", "folder", "hard link"])
    if how == "link":
        target.symlink_to(precious)
    elif how == "dangling":
        target.symlink_to(case.home / "nowhere")
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "folder":
        target.mkdir()
    else:
        target.hardlink_to(precious)
    ends = [case.live(), live(lambda: api.load(case.path), case.home / "said")]
    for end in ends:
        if wrong := sentence(end, FINE, MISTAKE):
            return f"{how} at {target.name}: {wrong}"
    if precious.read_text() != "mine" or (case.home / "nowhere").exists():
        return f"{how} at {target.name}: wrote outside of the folder"
    return ""


def forged(case: Case) -> str:
    """A config, state or array changed at random, with right checksums: a sentence, or a run like any other."""
    case.stop()
    precious = {file.name for file in case.home.iterdir()} | {"said"}
    what = case.rng.choice(["config", "state", "arrays"])
    if what == "config":
        forge(case.path, lambda header: mutate(header["config"], case.rng))
    elif what == "state":
        forge_state(newest(case.path), lambda state: mutate(state, case.rng))
    else:
        name = str(case.rng.choice(["agent", "optimisers", "replay", "env", "loop", "batches", "coverage"]))
        forge_arrays(newest(case.path), name, lambda arrays: change_array(arrays, case.rng))

    def resume() -> None:
        compilation.wanted = lambda *_: False  # which takes long
        signal.signal(signal.SIGPROF, lambda *_: kill(signal.SIGTERM))  # a million steps may be left
        signal.setitimer(signal.ITIMER_PROF, 3.0)  # of computing: a busy machine may take long to begin
        case.go()

    ends = [live(lambda: api.load(case.path), case.home / "said"), live(resume, case.home / "said")]
    for end in ends:
        if wrong := sentence(end, FINE, MISTAKE, STOPPED):
            return f"{what}: {wrong}"
        if end.megabytes > 1500:
            return f"{what}: {end.megabytes:.0f} MB of memory"
    if {file.name for file in case.home.iterdir()} - precious:
        return f"{what}: wrote outside of the folder"
    return ""


def change_array(arrays: dict[str, Any], rng: Rng) -> None:
    if not arrays:
        return
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name]
    how = rng.choice(["value", "shape", "dtype", "missing", "surplus"])
    if how == "value" and array.size:
        values = [0, 1, 7, 100] if array.dtype.kind in "ub" else [0, -1, 1, 10**9, -(10**9)]
        values += [np.nan, np.inf, 3e38] if array.dtype.kind == "f" else []
        array.reshape(-1)[rng.integers(array.size)] = values[rng.integers(len(values))]
    elif how == "shape":
        arrays[name] = np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])
    elif how == "dtype":
        arrays[name] = array.astype(np.float64 if array.dtype != np.float64 else np.int32)
    elif how == "missing":
        del arrays[name]
    else:
        arrays["surplus"] = np.zeros(3)


def misbehaving_environment(case: Case) -> str:
    """The environment raises, or returns something else than it should, at a random step; then it is mended."""
    how = str(case.rng.choice(Odd.WAYS))
    at = int(case.rng.integers(1, FINETUNE["steps"]))
    settings = {"num_envs": 1, "seed": int(case.rng.integers(100))}

    def begin(path: Path, how: str) -> None:
        register(how, at)
        if (path / "config.json").exists():
            api.resume(path, quiet=True)
        else:
            pretrain(path, "rnd", "odd", **settings)

    reference = case.home / "reference"
    ends = [
        live(lambda: begin(reference, "well"), case.home / "said"),
        live(lambda: begin(case.path, how), case.home / "said"),
        live(lambda: begin(case.path, "well"), case.home / "said"),
    ]
    wrong = sentence(ends[0], FINE) or sentence(ends[1], MISTAKE) or sentence(ends[2], FINE)
    if wrong:
        return f"{how}: {wrong}"
    scenario = Scenario("odd", reference, lambda path: None, 0)
    return Case(scenario, case.home, case.rng).difference()
