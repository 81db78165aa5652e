"""The whole pre-training loop beside its two parts that cost: nothing else should.

`update` is timed inside the loop, compiled; `environment` is a step of one environment, resets included. A step of
the loop needs half an update and one step of the environment. `loop` is what a step takes, with sampling, acting,
storing and logging.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.updates import DOMAINS, SIZES, Size
from cic import __version__, envs
from cic.core.config import to_dict
from cic.runs.folder import Run
from cic.training.loading import make_agent
from cic.training.loop import Loop
from cic.training.pretraining import pretrain
from cic.training.script import Segment
from cic.training.settings import override, pretrain_defaults

WARMUP, COMPILING = 1_000, 20


class Stamped(Loop[Any]):
    """A loop that records when each step was done."""

    stamps: list[float]

    def _tick(self, segment: Segment) -> None:
        super()._tick(segment)
        self.stamps.append(time.perf_counter())


def measure(size: Size, domain: str) -> tuple[float, float, float]:
    """Milliseconds per step of the loop, of its updates, and of the environment."""
    steps = 1_200 if size.name == "small" else 200
    settings = {"hidden": size.hidden, "batch": size.batch, "threads": size.threads, "compile": "on"}
    settings |= {"num_envs": 1, "update_every": 2, "library": 0}
    settings |= {"warmup": WARMUP, "steps": WARMUP + COMPILING + steps, "checkpoint_every": 10**9, "log_every": 1_000}
    config = override(pretrain_defaults(domain), settings)
    updating: list[float] = []
    agent = make_agent(config)
    update = agent.update

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        metrics = update(*args, **kwargs)
        updating.append(time.perf_counter() - begin)
        return metrics

    with tempfile.TemporaryDirectory() as folder, patch.object(agent, "update", timed):
        run = Run.plan(Path(folder) / "run", "pretrain", to_dict(config))
        loop = Stamped(run, config, envs.make(domain, num_envs=1, seed=0), agent, pretrain, quiet=True)
        loop.stamps = []
        run.create({"version": __version__})
        loop.train()
    total = loop.stamps[-1] - loop.stamps[-1 - steps]
    updates = sum(updating[-1 - steps // 2 : -1])  # the last one comes after the last step
    return 1e3 * total / steps, 1e3 * updates / steps, environment_ms(domain)


def environment_ms(domain: str, steps: int = 2_000) -> float:
    env, rng = envs.make(domain, num_envs=1, seed=0), np.random.default_rng(0)
    env.reset(seed=0)
    actions = rng.uniform(-1, 1, (steps, 1, envs.domains()[domain].action)).astype(np.float32)
    begin = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if (over := terminated | truncated).any():
            env.reset(options={"reset_mask": over})
    end = time.perf_counter()
    env.close()
    return 1e3 * (end - begin) / steps


def main() -> None:
    print("\nA step of pre-training with CIC, milliseconds: its parts, and the loop")
    print(f"{'size':8}{'domain':11}{'update/2':>10}{'env':>8}{'sum':>9}{'loop':>9}{'loop/sum':>10}{'steps/s':>9}")
    for size in SIZES:
        for domain in DOMAINS:
            loop, updates, environment = measure(size, domain)
            total = updates + environment
            cells = f"{updates:10.2f}{environment:8.3f}{total:9.2f}{loop:9.2f}{loop / total:10.2f}{1e3 / loop:9.1f}"
            print(f"{size.name:8}{domain:11}{cells}", flush=True)


if __name__ == "__main__":
    main()
