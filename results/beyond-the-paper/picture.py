"""picture.py RUNS DOMAIN SEED: 48 skills of METRA, DIAYN and CIC from one start, and the cells they cover from five."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib
import numpy as np

import cic
from cic import envs
from cic.training.evaluation import BINS, Coverage, plane_cells, rollout

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS, COUNT, STARTS, STEPS = {"metra": "METRA", "diayn": "DIAYN", "cic": "CIC"}, 48, 5, 500


def main(runs: Path, domain: str, seed: str) -> None:
    here = Path(__file__).parent
    figure, panels = plt.subplots(
        1, len(METHODS), figsize=(3.4 * len(METHODS), 4), sharex=True, sharey=True, layout="constrained"
    )
    rows = []
    for (method, title), axes in zip(METHODS.items(), panels, strict=True):
        agent = cic.load(runs / f"{method}-{domain}-{seed}")
        skills = agent.objective.skills.sample(COUNT, np.random.default_rng(0))
        if skills.shape[1] == 2:  # colours go round with the skill
            skills = skills[np.argsort(np.arctan2(skills[:, 1], skills[:, 0]))]
        env = envs.make(domain, num_envs=COUNT, seed=0)
        info = envs.domains()[domain]
        cells = []
        for start in range(STARTS):
            seen = rollout(agent, env, skills, seed=[start] * COUNT, keep=True, limit=STEPS).observations
            grid = Coverage(env.coverage, agent.spaces.obs)
            grid.add(np.concatenate(seen))
            cells.append(plane_cells(seen, info.plane, info.cell) if info.cell else grid.cells)
            if start == 0:
                for path, colour in zip(seen, plt.get_cmap("hsv")(np.linspace(0, 1, COUNT)), strict=True):
                    axes.plot(path[:, 0], path[:, 1], color=colour, lw=0.8, alpha=0.8)
                axes.plot(*seen[0][0, :2], "k+", ms=9)
        env.close()
        unit = f"cells of {info.cell:g} m" if info.cell else f"of {BINS}×{BINS} cells"
        axes.set(title=f"{title}: {np.mean(cells):.0f} {unit}", aspect="equal")
        rows.append([method, *cells])
    figure.savefig(here / f"{domain}.png", dpi=130)
    with open(here / "data" / f"{domain}-48-skills.csv", "w", newline="") as file:
        csv.writer(file).writerows([["method", *(f"start {i}" for i in range(STARTS))], *rows])
    print(rows)


main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
