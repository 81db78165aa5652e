"""Every command on a folder from somebody else: one message or a result, nothing outside changed, no code executed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cic import api, cli
from cic.data import open_dataset

from .cases import Case, Rng, sentence
from .folders import FINETUNE, forge, forge_arrays, forge_state, newest, seal
from .mutations import mutate
from .processes import FINE, MISTAKE, live
from .untrusted import change_array

SECONDS = 60.0
SMALL = ("result.json", "status.json", "trials.json")
NAMES = [
    "gymnasium:Pendulum-v1?max_episode_steps=-1",
    "gymnasium:Hopper-v5?frame_skip=2000000000",
    "gymnasium:Pendulum-v1?g=" + "(" * 5000,
    "gymnasium:Pendulum-v1?g=" + "-" * 900 + "1",
    "gymnasium:antigravity:x-v0",
    "gymnasium:Pendulum-v1?g=1e308",
    "gymnasium:Pendulum-v1?render_mode=human",
    "walker",
    "gridworld-reach_top_left",
    "[/red]",
    "",
]
"""Names of environments that a folder may contain."""


def on_forged_folder(case: Case) -> str:
    """A file changed at random, with right checksums, and a command."""
    shutil.copytree(case.scenario.reference, case.path)
    what = str(case.rng.choice(sorted(FORGERIES)))
    FORGERIES[what](case.path, case.rng)
    return _execute(case, what)


def on_odd_files(case: Case) -> str:
    """A link, a FIFO, a socket's place or a folder instead of a file or folder of the run, and a command."""
    shutil.copytree(case.scenario.reference, case.path)
    (case.path / "pictures").mkdir()
    (case.path / "pictures" / "skills.png").write_bytes(b"x")
    secret = case.home / "secret"
    secret.mkdir()
    (secret / "a.png").write_text("a private picture")
    paths = sorted(path for path in case.path.rglob("*") if "tensorboard" not in path.parts)
    new = [case.path / name for name in ("export", "pictures/new.png", "log.txt", "loop")]
    target = [*paths, *new][case.rng.integers(len(paths) + len(new))]
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    how = str(case.rng.choice(["link", "link to a folder", "link to /", "dangling", "fifo", "folder", "empty"]))
    links = {"link": secret / "a.png", "link to a folder": secret, "link to /": "/", "dangling": secret / "new"}
    if how in links:
        target.symlink_to(links[how])
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "folder":
        target.mkdir()
    else:
        target.touch()
    wrong = _execute(case, f"{how} at {target.relative_to(case.path)}")
    if [(file.name, file.read_text()) for file in secret.iterdir()] != [("a.png", "a private picture")]:
        return f"{how} at {target.name}: wrote through it. {wrong}"
    return wrong


def on_damaged_source(case: Case) -> str:
    """Finetuning, exporting and evaluating a damaged run changes nothing in it."""
    from .damage import harm

    shutil.copytree(case.scenario.reference, case.path)
    files = [path for path in sorted(case.path.rglob("*")) if path.is_file() and "tensorboard" not in path.parts]
    harm(files[case.rng.integers(len(files))], case.rng)
    return _execute(case, "damaged", ("evaluate", "finetune", "load", "runs", "compare", "export to a folder"))


# ---- what is changed -------------------------------------------------------------------------------------------


def _header(path: Path, rng: Rng) -> None:
    forge(path, lambda header: mutate(header, rng))


def _config(path: Path, rng: Rng) -> None:
    forge(path, lambda header: mutate(header["config"], rng))


def _environment(path: Path, rng: Rng) -> None:
    name = NAMES[rng.integers(len(NAMES))]
    forge(path, lambda header: header["config"].update({"domain" if header["kind"] == "pretrain" else "task": name}))


def _arrays(path: Path, rng: Rng) -> None:
    """In all checkpoints alike, so that no other one replaces it."""
    name, seed = str(rng.choice(["agent", "replay", "replay", "loop"])), int(rng.integers(10**6))
    for folder in [*(path / "checkpoints").iterdir(), *(path / "milestones").glob("*")]:
        if (folder / f"{name}.safetensors").exists():
            forge_arrays(folder, name, lambda arrays: change_array(arrays, _generator(seed)))


def _library(path: Path, rng: Rng) -> None:
    folder = path / "library" if (path / "library").is_dir() else path / "inherited"
    names = [file.stem for file in folder.glob("*.safetensors")]
    if names:
        forge_arrays(folder, str(rng.choice(sorted(names))), lambda arrays: change_array(arrays, rng))


def _state(path: Path, rng: Rng) -> None:
    forge_state(newest(path), lambda state: mutate(state, rng))


def _small_file(path: Path, rng: Rng) -> None:
    files = [path / name for name in SMALL if (path / name).exists()]
    file = files[rng.integers(len(files))]
    document = json.loads(file.read_text())
    mutate(document, rng)
    file.write_text(json.dumps(document))


def _metrics(path: Path, rng: Rng) -> None:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        mutate(line, rng)
    (path / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def _manifest(path: Path, rng: Rng) -> None:
    folder = newest(path)
    manifest = json.loads((folder / "manifest.json").read_text())
    mutate(manifest, rng)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _surplus(path: Path, rng: Rng) -> None:
    """Checkpoints with odd names, and files that no checkpoint has."""
    name = str(rng.choice(["99999999999999999999", "000000000", "²", "-1", "1e9"]))
    shutil.copytree(newest(path), path / "checkpoints" / name)
    (newest(path) / "surplus.safetensors").write_bytes(b"\x80\x04K\x01.")
    seal(newest(path))


FORGERIES: dict[str, Callable[[Path, Rng], None]] = {
    "header": _header,
    "config": _config,
    "environment": _environment,
    "arrays": _arrays,
    "library": _library,
    "state": _state,
    "small file": _small_file,
    "metrics": _metrics,
    "manifest": _manifest,
    "surplus": _surplus,
}


def _generator(seed: int) -> Rng:
    import numpy as np

    return np.random.default_rng(seed)


# ---- the commands ----------------------------------------------------------------------------------------------

_SETTINGS = [word for name, value in FINETUNE.items() for word in (f"--{name.replace('_', '-')}", str(value))]
_TASK = ["--task", "gridworld-reach_top_left", "--out", "{out}", "--quiet"]
COMMANDS: dict[str, list[str]] = {
    "evaluate": ["evaluate", "{run}", "--episodes", "1"],
    "infer": ["evaluate", "{run}", "--episodes", "1", "--infer", "5"],
    "goals": ["evaluate", "{run}", "--goals", "1"],
    "skills": ["skills", "{run}", "--count", "2", "--starts", "1", "--compare", "0", "--no-video", "--quiet"],
    "film": ["film", "{run}", "--seconds", "0.1", "--width", "64", "--height", "64", "--quiet"],
    "report": ["report", "{run}", "--out", "{out}", "--reps", "20", "--figures", "png"],
    "compare": ["compare", "{run}", "{run}"],
    "runs": ["runs", "{run}"],
    "doctor": ["doctor", "{run}", "--steps", "5"],
    "prompt": ["prompt", "{run}", "x", "--tries", "2", "--episodes", "1", "--out", "{out}"],
    "dataset": [],
    "export": ["export", "{run}"],
    "export to a folder": ["export", "{run}", "--out", "{out}"],
    "export policy": ["export", "{run}", "--format", "torch"],
    "finetune": ["finetune", "{run}", *_TASK, *_SETTINGS, "--prior-data", "0.5"],
    "finetune with a library": ["finetune", "{run}", *_TASK, *_SETTINGS, "--search", "library"],
    "sweep --status": ["sweep", "--status", "{sweep}"],
    "explore": [],
    "load": [],
}


def _execute(case: Case, what: str, names: tuple[str, ...] = tuple(COMMANDS)) -> str:
    """Execute one of the commands; return what was wrong."""
    name = str(case.rng.choice(names))
    if name == "sweep --status":
        _make_sweep(case)
    places = {"run": str(case.path), "out": str(case.home / "out"), "sweep": str(case.home)}
    before = _snapshot(case)
    known = {file.name for file in case.home.iterdir()} | {"out", "said"}

    def action() -> None:
        os.chdir(case.home)
        if name == "load":
            api.load(case.path)
        elif name == "dataset":
            open_dataset(case.path)
        elif name == "explore":
            _explore(case.path)
        else:
            sys.exit(cli.main([word.format(**places) for word in COMMANDS[name]]))

    end = live(action, case.home / "said", SECONDS)
    unsound = [1] if name == "doctor" else []  # its exit code for a run that learned nothing
    if wrong := sentence(end, FINE, MISTAKE, *unsound):
        return f"{name}, {what}: {wrong}"
    if end.megabytes > 1500:
        return f"{name}, {what}: {end.megabytes:.0f} MB of memory"
    if _snapshot(case) != before:
        return f"{name}, {what}: the run changed"
    if surplus := {file.name for file in case.home.iterdir()} - known:
        return f"{name}, {what}: wrote {sorted(surplus)}"
    page = case.home / "out" / "report.html"
    if page.exists() and "YSBwcml2YXRlIHBpY3R1cmU" in page.read_text(errors="replace"):
        return f"{name}, {what}: the report contains a private file"
    return ""


def _explore(path: Path) -> None:
    from cic.explore.agent_pool import AgentPool, ExploreOptions

    pool = AgentPool([str(path)], ExploreOptions(count=2, steps=10))
    pool.skill_map(pool.names[0])


def _make_sweep(case: Case) -> None:
    """The run as a run of a sweep, whose list is forged as well."""
    spec = {"name": "a", "folder": "run", "kind": "pretrain", "config": {}, "after": [], "source": None}
    spec |= {"outside": False, "method": "cic", "domain": "gridworld", "steps": 24}
    listed = [spec | {"needs": {"cpus": 1.0, "gpus": 0.0, "memory": 1.0}}]
    if case.rng.random() < 0.7:
        mutate(listed, case.rng)
    (case.home / "sweep").mkdir()
    (case.home / "sweep" / "jobs-0.json").write_text(json.dumps(listed))


def _snapshot(case: Case) -> dict[str, Any]:
    """Every path of the run but what commands may add, with its kind and content."""
    found: dict[str, Any] = {}
    for path, below, files in os.walk(case.path):
        below[:] = [name for name in below if name not in ("pictures", "export")]
        for name in (*below, *files):
            one = Path(path, name)
            kind = one.lstat().st_mode & 0o170000
            found[str(one)] = (kind, one.read_bytes() if kind == 0o100000 else b"")
    return found
