"""Create the bundled agents again: pre-train each, reduce its run folder, print its returns.

    python examples/make_agents.py                      (an hour on one core)
    python examples/make_agents.py steer_walker         (one of them, a quarter of an hour)

Finished runs in --runs are not trained again.

What is kept of a run: its config, the last weights with matrices as float16, half of the states of its skill library as
float16, its result, and made.json: the command, the seed, the date and the returns without finetuning.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic.report.skills import compare
from cic.runs.bundled import FOLDER
from cic.runs.folder import Run
from cic.runs.storage import write_folder, write_json

# 100,000 steps of learning (point_mass: 50,000), then 64 skills for 250 steps each without updates: the library
LIBRARY = "--library 64 --library-starts 1 --library-steps 250"
COMMANDS = {
    "point_mass": "--domain point_mass --normaliser std --skill-dim 16 --skill-every 100 "
    f"--steps 66000 {LIBRARY} --seed 0",
    "walker": f"--domain walker --normaliser std --steps 116000 {LIBRARY} --seed 0",
    "quadruped": f"--domain quadruped --normaliser std --steps 116000 {LIBRARY} --seed 0",
}
STEER = f"--objective steer --update-every 4 --steps 716000 {LIBRARY} --seed 0"
COMMANDS |= {f"steer_{domain}": f"--domain {domain} {STEER}" for domain in ("walker",)}
LIMIT = 5_000_000  # bytes, of all agents together


def train(name: str, runs: Path) -> Path:
    """Return the run folder. A finished run is not repeated, a stopped one is resumed."""
    out = runs / name
    if (out / "result.json").is_file():
        return out
    new = [*COMMANDS[name].split(), "--out", str(out)]
    words = ["--resume", str(out)] if (out / "config.json").is_file() else new
    subprocess.run([sys.executable, "-m", "cic.cli", "pretrain", *words], check=True)
    return out


def reduce(source: Path, out: Path, command: str) -> None:
    """The part of a run that ships."""
    run, target = Run(source), out.with_name(f".{out.name}")
    weights, step = run.weights()
    library, result = run.library(), run.result()
    assert result is not None
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    about = {key: run.about[key] for key in ("version", "title", "imports", "versions", "spaces")}
    header = {"format": 2, "kind": run.kind, **about, "command": command, "config": run.config}
    write_json(target / "config.json", header)
    write_json(target / "result.json", result)
    small = {name: value.half() if value.ndim > 1 else value for name, value in weights.items()}
    write_folder(target / "milestones" / f"{step:09d}", {"agent": small}, {}, {"step": step})
    thinned = {"skills": library["skills"], "paths": library["paths"][:, 1::2]}
    write_folder(target / "library", {}, {"library": {k: v.astype(np.float16) for k, v in thinned.items()}}, {})
    made = datetime.fromtimestamp((source / "result.json").stat().st_mtime, timezone.utc)
    write_json(target / "made.json", {"command": command, "seed": run.config["seed"], "date": f"{made:%Y-%m-%d}"})
    shutil.rmtree(out, ignore_errors=True)
    target.rename(out)


def score(agent: Path) -> dict[str, Any]:
    """Whole episodes of 24 random skills from three starts each: the mean of them all and the best skill's."""
    found = compare(agent, count=24, starts=3, seed=0)
    return {
        "episodes": "24 random skills from 3 starts each, whole episodes, mean action, no finetuning",
        "mean": {task: round(value, 1) for task, value in found.typical.items()},
        "best skill": {task: round(value, 1) for task, value in found.best.items()},
        "share of the variance that the skill explains": {
            name: round(share.value, 3) for name, share in found.shares.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", default=list(COMMANDS), help=f"of {', '.join(COMMANDS)}; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/agents"), help="where the whole run folders go")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the agents go")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.agents:
        reduce(train(name, given.runs), given.out / name, f"cic pretrain {COMMANDS[name]}")
        path = given.out / name / "made.json"
        write_json(path, json.loads(path.read_text()) | {"score": score(given.out / name)})
        print(f"{name}: {path.read_text()}")
    size = sum(file.stat().st_size for file in given.out.rglob("*") if file.is_file())
    print(f"{size / 1e6:.2f} MB together")
    assert size < LIMIT, "too large to ship"


if __name__ == "__main__":
    main()
