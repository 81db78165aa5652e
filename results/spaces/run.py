"""run.py FOLDER PART SEED …: learning with discrete actions and from pixels; PART is one of PARTS.

Finished runs in FOLDER are not repeated, stopped ones are resumed. Coverage is printed and appended to
FOLDER/coverage.jsonl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

import cic

sys.path.insert(0, str(Path(__file__).parent))
import grid

CARTPOLE = "gymnasium:CartPole-v1"
GRID_STEPS, LATEST = 30_000, 2_000
Positions = npt.NDArray[np.float64]


def run(folder: Path, name: str, command: str) -> Path:
    """A run folder of `cic COMMAND`."""
    out = folder / name
    if not (out / "result.json").is_file():
        words = [command.split()[0], "--resume", str(out)] if (out / "config.json").is_file() else command.split()
        words += [] if "--resume" in words else ["--out", str(out)]
        subprocess.run([sys.executable, "-m", "cic.cli", *words, "--quiet"], check=True)
    return out


def report(folder: Path, row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
    with (folder / "coverage.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def cartpole(folder: Path, seed: int) -> None:
    """From scratch, and after a pre-training with CIC and DIAYN."""
    run(folder, f"cartpole-scratch-{seed}", f"finetune --scratch --task {CARTPOLE} --seed {seed}")
    for method in ("cic", "diayn"):
        command = f"pretrain --domain {CARTPOLE} --objective {method} --seed {seed} --steps 50000 --library 0"
        before = run(folder, f"cartpole-{method}-{seed}", command)
        run(folder, f"cartpole-{method}-finetuned-{seed}", f"finetune {before} --task {CARTPOLE} --seed {seed}")


def grid_coverage(folder: Path, seed: int) -> None:
    """Cells that the last 2,000 steps of a pre-training visit, and that as many random actions visit."""
    rng = np.random.default_rng(seed)
    random = [random_grid_cells(rng) for _ in range(10)]
    report(folder, {"part": "grid", "method": "random actions", "seed": seed, "cells": float(np.mean(random))})
    for method in ("cic", "diayn", "rnd"):
        command = f"pretrain --import {grid.__file__} --domain grid10 --objective {method} --seed {seed}"
        out = run(folder, f"grid-{method}-{seed}", f"{command} --library 0 --steps {GRID_STEPS}")
        episodes = cic.data.open_dataset(str(out)).episodes[-(LATEST // grid.LENGTH) :]
        visited = grid.cells([episode.observation for episode in episodes])
        report(folder, {"part": "grid", "method": method, "seed": seed, "cells": visited})


def random_grid_cells(rng: np.random.Generator) -> int:
    env, paths = grid.Grid(), []
    for _ in range(LATEST // grid.LENGTH):
        path = [env.reset()[0]]
        path += [env.step(rng.integers(3))[0] for _ in range(grid.LENGTH)]
        paths.append(np.stack(path))
    return grid.cells(paths)


PIXELS = "--pixels --lr 3e-4"
REPEAT = 2  # environment steps per action with pixels
SIDE, GRIDS = 0.29, (20, 40, 80)  # the coverage of point_mass: 20 × 20 cells within ±0.29 m, and finer grids


def point_mass(folder: Path, seed: int) -> None:
    """From pixels, and from states with the same number of environment steps."""
    report_cells(folder, "random actions", seed, random_positions(seed, 24_000))
    report_cells(folder, "6,000 random actions", seed, random_positions(seed, 6_000))
    words = f"pretrain --domain point_mass --seed {seed} --library 0"
    tuned = f"--task reach_top_left --seed {seed} --eval-every"
    pixels = run(
        folder, f"point_mass-pixels-{seed}", f"{words} {PIXELS} --keep-physics --steps 24000 --update-every 16"
    )
    command = f"finetune {pixels} {tuned} 1000 --steps 6000 --update-every 4 --lr 3e-4"
    run(folder, f"point_mass-pixels-finetuned-{seed}", command)
    states = run(folder, f"point_mass-states-{seed}", f"{words} --steps 48000")
    run(folder, f"point_mass-states-finetuned-{seed}", f"finetune {states} {tuned} 2000 --steps 12000")
    report_cells(folder, "cic, pixels", seed, positions(pixels))
    report_cells(folder, "cic, pixels, 6,000 actions after the random ones", seed, positions(pixels, 4_000, 10_000))
    cells = json.loads((states / "result.json").read_text())["coverage/cells"]
    report(folder, {"part": "point_mass", "method": "cic, states", "seed": seed, "grid": GRIDS[0], "cells": cells})


def positions(out: Path, start: int = 0, stop: int | None = None) -> Positions:
    """The positions (N, 2) of point_mass before the actions `start` to `stop` of a run with `--keep-physics`."""
    checkpoint = max((out / "checkpoints").iterdir(), key=lambda path: int(path.name))
    replay = load_file(checkpoint / "replay.safetensors")
    envs = len(replay["physics"])
    found = [
        rows[~end][start // envs : stop and stop // envs]
        for rows, end in zip(replay["physics"][..., :2], replay["episode_end"].astype(bool), strict=True)
    ]
    return np.concatenate(found)


def random_positions(seed: int, actions: int, envs: int = 4) -> Positions:
    """The positions after random actions in point_mass."""
    env, rng, found = cic.envs.make("point_mass", num_envs=envs), np.random.default_rng(seed), []
    for step in range(actions // envs):
        if step % (1_000 // REPEAT) == 0:  # the length of an episode
            env.reset(seed=None if step else seed)
        action = rng.uniform(-1, 1, (envs, 2)).astype(np.float32)
        for _ in range(REPEAT):
            obs = env.step(action).obs
        found.append(obs[:, :2].copy())
    return np.concatenate(found)


def report_cells(folder: Path, method: str, seed: int, found: Positions) -> None:
    """Visited cells of each grid. As in `coverage/cells`, positions at the walls belong to the outermost cells."""
    for grid_side in GRIDS:
        cells = np.clip(np.floor((found + SIDE) / (2 * SIDE) * grid_side), 0, grid_side - 1)
        visited = len(np.unique(cells, axis=0))
        report(folder, {"part": "point_mass", "method": method, "seed": seed, "grid": grid_side, "cells": visited})


def walker(folder: Path, seed: int) -> None:
    """walker-stand from pixels, from scratch, with and without the auxiliary loss CURL."""
    for auxiliary in ("none", "curl"):
        command = f"finetune --scratch --task walker-stand {PIXELS} --auxiliary {auxiliary} --seed {seed}"
        command += " --steps 12000 --update-every 8 --eval-every 3000"
        run(folder, f"walker-pixels-{auxiliary}-{seed}", command)


PARTS = {"cartpole": cartpole, "grid": grid_coverage, "point_mass": point_mass, "walker": walker}


def main(folder: Path, part: str, seeds: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        PARTS[part](folder, seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [int(seed) for seed in sys.argv[3:]])
