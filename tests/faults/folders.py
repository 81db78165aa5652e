"""Run folders to harm: a pre-training and a finetuning that were stopped, and how a stranger changes one."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from cic import api

PRETRAIN: dict[str, Any] = {
    "scale": "smoke",
    "steps": 24,
    "warmup": 8,
    "hidden": 8,
    "batch": 8,
    "replay": 40,
    "log_every": 6,
    "checkpoint_every": 6,
    "milestones": (12,),
}
FINETUNE: dict[str, Any] = {
    "scale": "smoke",
    "steps": 24,
    "warmup": 12,
    "hidden": 8,
    "batch": 8,
    "replay": 40,
    "trial_steps": 4,
    "log_every": 6,
    "checkpoint_every": 6,
    "eval_every": 14,
    "eval_episodes": 1,
}
LIBRARY: dict[str, Any] = {"steps": 36, "library": 2, "library_starts": 2, "library_steps": 3}
"""A pre-training that records its skills at the end."""
CHECKED: dict[str, Any] = {"prior_data": 0.5, "check_steps": 6}
"""A finetuning with everything that it can take from a pre-training."""
LONGER = 48
TASK = "gridworld-reach_top_left"
OWN: dict[str, dict[str, Any]] = {"cic": {"skill_dim": 4, "skill_every": 5}, "diayn": {"skill_dim": 4}}


def pretrain(path: Path, objective: str = "cic", domain: str = "gridworld", **settings: Any) -> Path:
    return api.pretrain(domain, objective, out=path, quiet=True, **PRETRAIN | OWN.get(objective, {}) | settings).path


def finetune(path: Path, source: Path, **settings: Any) -> Path:
    return api.finetune(source, TASK, out=path, quiet=True, **FINETUNE | settings).path


def extend(path: Path, source: Path) -> None:
    """Make a copy of a finished run longer, or continue that."""
    if not path.exists():
        shutil.rmtree(path.with_name("copy"), ignore_errors=True)
        shutil.copytree(source, path.with_name("copy"))
        path.with_name("copy").rename(path)
    planned = json.loads((path / "config.json").read_text())["config"].get("steps")
    short = type(planned) is not int or planned < LONGER  # a forged config may contain anything
    api.resume(path, steps=LONGER if short else None, quiet=True)


def stopped(finished: Path, path: Path) -> Path:
    """A copy of a finished run as it was before its last checkpoint."""
    shutil.copytree(finished, path)
    (path / "result.json").unlink()
    shutil.rmtree(sorted((path / "checkpoints").iterdir())[-1])
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps(status | {"state": "running"}))
    return path


def newest(path: Path) -> Path:
    return sorted((path / "checkpoints").iterdir())[-1]


# ---- what must be equal ----------------------------------------------------------------------------------------

VARIES = {"status.json", "timing.jsonl", ".lock"}


def contents(path: Path) -> dict[str, Any]:
    """Every file of a run but clocks: the bytes, or what is in them where they hold the checksum of a clock's file."""
    result: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if file.is_dir() or file.name in VARIES or name.startswith("tensorboard"):
            continue
        result[name] = file.read_bytes()
        if file.name == "manifest.json":
            result[name] = json.loads(result[name])
            result[name].pop("timing.jsonl", None)
    return result


# ---- what a stranger can do: change anything, and make the checksums right again -------------------------------


def forge(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of config.json; the checkpoints agree with it."""
    header = json.loads((path / "config.json").read_text())
    change(header)
    (path / "config.json").write_text(json.dumps(header))
    config = header.get("config")
    kept = config
    if isinstance(config, dict):
        kept = {name: value for name, value in config.items() if name != "steps"}  # a run may be made longer
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    for folder in (path / "checkpoints").iterdir():
        forge_state(folder, lambda state: state.__setitem__("config", digest))


def forge_state(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    state = json.loads((folder / "state.json").read_text())
    change(state)
    (folder / "state.json").write_text(json.dumps(state))
    seal(folder)


def forge_arrays(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    arrays = {key: value.copy() for key, value in load_file(folder / f"{name}.safetensors").items()}
    change(arrays)
    save_file(arrays, folder / f"{name}.safetensors")
    seal(folder)


def seal(folder: Path) -> None:
    """Right checksums for whatever is there."""
    files = [file for file in sorted(folder.iterdir()) if file.name != "manifest.json"]
    manifest = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
