"""run.py FOLDER SEED …: finetunings with and without relabelled pre-training data where rewards are hard to predict.

One pre-training per seed of a boat on a lake; then, for each reward, a finetuning without pre-training data, one with
rewards that are predicted from the next observation alone, and one with the checks of `cic.training.relabelled_replay`.
Prints and appends a line to FOLDER/log.jsonl per finetuning.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import cic
from cic.training.relabelled_replay import RelabelledReplay

LENGTH, GOAL = 100, np.array([0.6, 0.6])
PRETRAIN, FINETUNE = {"unreached": 1_100}, 2_000  # 1,100 steps stay near the start; otherwise 8,000
SMALL: dict[str, Any] = {"hidden": 64, "batch": 128, "quiet": True}


class Boat(gymnasium.Env[Any, Any]):
    """Position and velocity in the plane; `kind` names the reward."""

    observation_space = gymnasium.spaces.Box(-2, 2, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position, self.velocity, self.time = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2), 0
        self.mode = self.np_random.choice([-1.0, 1.0])
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.velocity = 0.9 * self.velocity + 0.05 * np.asarray(action)
        self.position = np.clip(self.position + 0.1 * self.velocity, -1, 1)
        self.time += 1
        return self._observation(), float(self._reward(np.asarray(action))), False, False, {}

    def _reward(self, action: Any) -> float:
        near = np.exp(-2 * np.linalg.norm(self.position - GOAL))
        return {
            "dense": near,
            "unreached": near,
            "sparse": float(np.linalg.norm(self.position - GOAL) < 0.5),
            "action": 1 - np.abs(action - [0.6, -0.6]).mean(),
            "action cost": near - 0.3 * np.square(action).mean(),
            "hidden time": near * (self.time > LENGTH // 2),
            "hidden mode": 0.1 * near + self.mode * self.position[0],
        }[self.kind]

    def _observation(self) -> Any:
        return np.concatenate([self.position, self.velocity]).astype(np.float32)


KINDS = ("dense", "action", "hidden mode", "action cost", "sparse", "hidden time", "unreached")
for known in KINDS:
    cic.register_env(known.replace(" ", "_"), lambda kind=known: gymnasium.wrappers.TimeLimit(Boat(kind), LENGTH))


label = RelabelledReplay.label


def label_unchecked(self: RelabelledReplay, *args: Any) -> str:
    """Use the predicted rewards in any case."""
    label(self, *args)
    self.usable = True
    return ""


def main(folder: Path, seeds: list[int]) -> None:
    warnings.simplefilter("ignore")
    for seed in seeds:
        for kind in KINDS:
            name = kind.replace(" ", "_")
            before = folder / f"{name}-pretrain-{seed}"
            if not (before / "result.json").exists():
                cic.pretrain(
                    name, steps=PRETRAIN.get(kind, 8_000), warmup=1_000, update_every=8, seed=seed, out=before,
                    library=0, diagnosed=0, milestones=(), loss="infonce", **SMALL,
                )  # fmt: skip
            for mode, share, guarded in (("none", 0.0, False), ("next state", 0.5, False), ("guard", 0.5, True)):
                RelabelledReplay.label = label if guarded else label_unchecked
                out = folder / f"{name}-{mode.replace(' ', '_')}-{seed}"
                if (out / "result.json").exists():
                    continue
                done = cic.finetune(
                    before, name, steps=FINETUNE, warmup=300, eval_every=100_000, seed=seed, prior_data=share,
                    search="fixed", out=out, **SMALL,
                )  # fmt: skip
                row = {"reward": kind, "seed": seed, "mode": mode, "return": round(done.result["return"], 2)}
                row |= {key: round(done.result[key], 3) for key in ("prior/r2", "prior/share") if key in done.result}
                print(json.dumps(row), flush=True)
                with (folder / "log.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])
