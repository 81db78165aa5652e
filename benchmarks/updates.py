"""One update of CIC beside the time of its matrix products alone and beside a textbook version; sampling and acting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.floor import flops, interleave, make_floor, record
from benchmarks.textbook import Textbook
from cic.agent import Agent, AgentConfig
from cic.envs import domains
from cic.objectives.cic import CICOptions
from cic.replay import Replay
from cic.types import Spaces


class Size(NamedTuple):
    name: str
    hidden: int
    batch: int
    threads: int
    seconds: float


SIZES = (Size("small", 256, 256, 1, 8.0), Size("paper", 1024, 1024, 2, 20.0))
DOMAINS = ("walker", "quadruped", "jaco")


def filled_replay(spaces: Spaces, skill_dim: int, steps: int = 5_000) -> Replay:
    """Random experience in episodes of 1,000 steps, a new skill every 50."""
    rng = np.random.default_rng(0)
    replay = Replay(spaces, skill_dim, capacity=10 * steps)
    obs = rng.standard_normal((steps + 1, 1, spaces.obs), dtype=np.float32)
    action = rng.uniform(-1, 1, (steps, 1, spaces.action)).astype(np.float32)
    reward, ended = np.zeros(1, np.float32), np.zeros(1, np.bool_)
    for step in range(steps):
        if step % 50 == 0:
            skill = rng.random((1, skill_dim), dtype=np.float32)
        replay.add(obs[step], skill, action[step], reward, ended)
        if step % 1_000 == 999:
            replay.finish(obs[step + 1], ~ended)
    return replay


def measure(size: Size, spaces: Spaces) -> dict[str, float]:
    """Milliseconds of each part, taken in turn."""
    torch.set_num_threads(size.threads)
    agent = Agent(spaces, "cic", CICOptions(), AgentConfig(hidden=size.hidden, batch=size.batch))
    textbook = Textbook(agent)
    replay, rng = filled_replay(spaces, agent.objective.skill.dim), np.random.default_rng(1)
    batch = replay.sample(size.batch, rng)
    products = record(lambda: agent.update(batch))
    obs, skill = np.zeros((16, spaces.obs), np.float32), np.zeros((16, 64), np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "floor": make_floor(products),
        "update": lambda: agent.update(batch),
        "textbook": lambda: textbook.update(batch),
        "sample": lambda: replay.sample(size.batch, rng),
        "act 1": lambda: agent.act(obs[:1], skill[:1], explore=True),
        "act 16": lambda: agent.act(obs, skill, explore=True),
    }
    times = {name: 1e3 * seconds for name, seconds in interleave(calls, size.seconds).items()}
    return {"GFLOP": flops(products) / 1e9, **times}


def main() -> None:
    print("\nOne CIC update in milliseconds; floor is its matrix products alone, each at its real shape")
    columns = ("GFLOP", "floor", "update", "textbook", "sample", "act 1", "act 16")
    print(f"{'size':8}{'domain':12}" + "".join(f"{c:>10}" for c in columns) + f"{'/floor':>9}{'textbook/':>11}")
    for size in SIZES:
        for name in DOMAINS:
            info = domains()[name]
            row = measure(size, Spaces(info.obs, info.action))
            cells = "".join(f"{row[c]:10.2f}" for c in columns)
            ratios = f"{row['update'] / row['floor']:8.2f}×{row['textbook'] / row['update']:10.2f}×"
            print(f"{size.name:8}{name:12}{cells}{ratios}", flush=True)
    for size in SIZES:
        print(f"{size.name}: batch {size.batch}, H {size.hidden}, {size.threads} thread(s)")


if __name__ == "__main__":
    main()
