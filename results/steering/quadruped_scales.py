"""quadruped_scales.py FOLDER: pre-train quadruped with other scales of speed and turn (seed 100)."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import torch

import cic
from cic.envs import catalogue

TRIALS = {  # name: scale of speed and sideways, scale of turn, weight of the exploration, steps, update every
    "quadruped-100": (2.0, 2.0, 0.3, 716_000, 4),
    "q-s05": (0.5, 4.0, 0.3, 300_000, 6),
    "q-s05-b1": (0.5, 4.0, 1.0, 300_000, 6),
    "q-new-450": (0.5, 4.0, 0.3, 450_000, 6),
}


def main() -> None:
    torch.set_num_threads(1)
    for name, (speed, turn, exploration, steps, every) in TRIALS.items():
        scales = {"speed": speed, "sideways": speed, "turn": turn}
        quantities = tuple(
            dataclasses.replace(one, scale=scales.get(one.name, one.scale))
            for one in catalogue.DOMAINS["quadruped"].quantities
        )
        settings = {"steps": steps, "update_every": every, "exploration": exploration, "library": 0, "milestones": ()}
        out = Path(sys.argv[1]) / name
        cic.pretrain("quadruped", "steer", quantities=quantities, seed=100, out=out, **settings)


if __name__ == "__main__":
    main()
