"""The whole pre-training loop beside its two parts that cost: nothing else should.

`update` is a compiled update, `environment` one step of one copy, resets included; a step of the loop needs half an
update and one step of the environment. `loop` is what a step takes in a real run, with sampling, acting, storing and
logging. It may come out below the sum, because the environment steps beside the update where a core is free.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.updates import DOMAINS, SIZES, Size, filled_replay, milliseconds
from cic import __version__, envs
from cic.agent import Agent
from cic.config import to_dict
from cic.runs import Run
from cic.settings import override, pretrain_defaults
from cic.workflow import build

WARMUP, COMPILING = 1_000, 20


def loop_ms(size: Size, domain: str, steps: int) -> tuple[float, Agent]:
    """Milliseconds per step of the loop: the fastest third of windows of 20 steps; and its agent."""
    settings = {"hidden": size.hidden, "batch": size.batch, "threads": size.threads, "compile": "on"}
    settings |= {"warmup": WARMUP, "steps": WARMUP + COMPILING + steps, "checkpoint_every": 10**9, "log_every": 1_000}
    config = override(pretrain_defaults(domain), settings)
    stamps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        loop = build(Run.create(Path(folder) / "run", "pretrain", to_dict(config), __version__, None), quiet=True)
        loop.at_boundary = lambda: stamps.append(time.perf_counter())  # type: ignore[method-assign]
        loop.train()
    windows = np.sort(np.diff(stamps[WARMUP + COMPILING :: 20])) / 20
    return 1e3 * float(windows[: max(len(windows) // 3, 1)].mean()), loop.agent


def measure(size: Size, domain: str) -> tuple[float, float, float]:
    loop, agent = loop_ms(size, domain, steps=1_200 if size.name == "small" else 200)
    batch = filled_replay(agent.spaces, agent.objective.skill.dim).sample(size.batch, np.random.default_rng(0))
    update = milliseconds({"update": lambda: agent.update(batch)}, size.seconds / 2)["update"]
    env = envs.make(domain, num_envs=1, seed=0)
    env.reset(seed=0)
    rng, count = np.random.default_rng(0), 2_000
    actions = rng.uniform(-1, 1, (count, 1, agent.spaces.action)).astype(np.float32)
    begin = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if (over := terminated | truncated).any():
            env.reset(options={"reset_mask": over})
    environment = 1e3 * (time.perf_counter() - begin) / count
    env.close()
    return loop, update, environment


def main() -> None:
    print("\nA step of pre-training with CIC, milliseconds: its parts, and the loop")
    print(f"{'size':8}{'domain':11}{'update/2':>10}{'env':>8}{'sum':>9}{'loop':>9}{'loop/sum':>10}{'steps/s':>9}")
    for size in SIZES:
        for domain in DOMAINS:
            loop, update, environment = measure(size, domain)
            total = update / 2 + environment
            cells = f"{update / 2:10.2f}{environment:8.3f}{total:9.2f}{loop:9.2f}{loop / total:10.2f}{1e3 / loop:9.1f}"
            print(f"{size.name:8}{domain:11}{cells}", flush=True)


if __name__ == "__main__":
    main()
