"""One update of CIC beside the time of its matrix products alone and beside a textbook version; sampling and acting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.floor import flops, interleave, make_floor, record
from benchmarks.textbook import Textbook
from cic.core.types import Batch, Spaces
from cic.envs import domains
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import get_learner, learners
from cic.learning.objectives.cic import CICOptions
from cic.learning.particles import knn_distances
from cic.learning.replay import Replay


class Size(NamedTuple):
    name: str
    hidden: int
    batch: int
    threads: int
    seconds: float


SIZES = (Size("small", 256, 256, 1, 10.0), Size("paper", 1024, 1024, 2, 20.0))
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


def prepared(
    spaces: Spaces, hidden: int, batch: int, skill_dim: int = 64, learner: str = "ddpg"
) -> tuple[Agent, Replay, Batch]:
    config = get_learner(learner).Config(hidden=hidden, batch=batch)
    agent = build_agent(spaces, "cic", CICOptions(skill_dim=skill_dim), learner, config)
    replay = filled_replay(spaces, skill_dim)
    return agent, replay, replay.sample(batch, np.random.default_rng(1))


def milliseconds(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    return {name: 1e3 * duration for name, duration in interleave(calls, seconds).items()}


def measure(size: Size, spaces: Spaces) -> dict[str, float]:
    """Milliseconds of each part, taken in turn."""
    torch.set_num_threads(size.threads)
    agent, replay, batch = prepared(spaces, size.hidden, size.batch)
    compiled, _, _ = prepared(spaces, size.hidden, size.batch)
    compiled.compile_losses()
    textbook, rng = Textbook(agent), np.random.default_rng(1)
    products = record(lambda: agent.update(batch, intrinsic=True))
    calls: dict[str, Callable[[], Any]] = {
        "floor": make_floor(products),
        "eager": lambda: agent.update(batch, intrinsic=True),
        "compiled": lambda: compiled.update(batch, intrinsic=True),
        "textbook": lambda: textbook.update(batch),
        "sample": lambda: replay.sample(size.batch, rng),
    }
    return {"GFLOP": flops(products) / 1e9, **milliseconds(calls, size.seconds)}


def by_learner(size: Size, spaces: Spaces) -> dict[str, float]:
    """Milliseconds of an eager CIC update with each learner."""
    torch.set_num_threads(size.threads)
    calls: dict[str, Callable[[], Any]] = {}
    for name in learners():
        agent, _, batch = prepared(spaces, size.hidden, size.batch, learner=name)
        calls[name] = partial(agent.update, batch, intrinsic=True)
    return milliseconds(calls, size.seconds / 2)


def acting(size: Size, spaces: Spaces) -> dict[str, float]:
    torch.set_num_threads(size.threads)
    agent, _, _ = prepared(spaces, size.hidden, size.batch)
    obs, skill = np.zeros((16, spaces.obs), np.float32), np.zeros((16, 64), np.float32)
    times = {}
    for count in (1, 16):  # each by itself: what is compared here is with a bar, not with the other
        act = partial(agent.act, obs[:count], skill[:count], explore=True)
        times |= milliseconds({f"act {count}": act}, 2.0)
        times |= milliseconds({f"its products for {count}": make_floor(record(act))}, 1.0)
    return times


def exponent(xs: list[int], ys: list[float]) -> float:
    """Slope of log y over log x."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def scaling(spaces: Spaces) -> None:
    """Update time against batch, width and skill dimension around (256, 256, 64), and neighbours against batch."""
    torch.set_num_threads(1)

    def update(hidden: int = 256, batch: int = 256, skill_dim: int = 64) -> Callable[[], Any]:
        agent, _, sampled = prepared(spaces, hidden, batch, skill_dim)
        return lambda: agent.update(sampled, intrinsic=True)

    def neighbours(count: int) -> Callable[[], Any]:
        points = torch.randn(count, 64)
        return lambda: knn_distances(points, points, 16)

    sweeps: dict[str, tuple[list[int], Callable[[int], Callable[[], Any]]]] = {
        "batch": ([128, 256, 512, 1024], lambda n: update(batch=n)),
        "H": ([128, 256, 512, 1024], lambda n: update(hidden=n)),
        "skill": ([16, 64, 256], lambda n: update(skill_dim=n)),
        "neighbours": ([256, 512, 1024, 2048], neighbours),
    }
    print("\nHow one eager update grows (one thread, batch 256, H 256, skill 64 where not varied), milliseconds")
    for name, (values, make) in sweeps.items():
        times = list(milliseconds({str(value): make(value) for value in values}, 4.0).values())
        cells = "  ".join(f"{value}: {time:.2f}" for value, time in zip(values, times, strict=True))
        last = np.log(times[-1] / times[-2]) / np.log(values[-1] / values[-2])
        print(f"{name:11} {cells}   exponent {exponent(values, times):.2f}, at the end {last:.2f}", flush=True)


def main() -> None:
    print("\nOne CIC update in milliseconds; floor is its matrix products alone, each at its real shape")
    columns = ("GFLOP", "floor", "eager", "compiled", "textbook", "sample")
    ratios = ("eager/floor", "comp./floor", "textb./eager", "textb./comp.")
    print(f"{'size':8}{'domain':11}" + "".join(f"{c:>10}" for c in columns) + "".join(f"{r:>13}" for r in ratios))
    for size in SIZES:
        for name in DOMAINS:
            info = domains()[name]
            row = measure(size, Spaces(info.obs, info.action))
            cells = "".join(f"{row[c]:10.2f}" for c in columns)
            eager, compiled, floor, textbook = row["eager"], row["compiled"], row["floor"], row["textbook"]
            quotients = (eager / floor, compiled / floor, textbook / eager, textbook / compiled)
            print(f"{size.name:8}{name:11}{cells}" + "".join(f"{q:13.2f}" for q in quotients), flush=True)
    for size in SIZES:
        print(f"{size.name}: batch {size.batch}, H {size.hidden}, {size.threads} thread(s)")
    walker = Spaces(domains()["walker"].obs, domains()["walker"].action)
    for size in SIZES:
        times = by_learner(size, walker)
        print(f"CIC on {size.name}, eager: " + ", ".join(f"{name} {time:.2f} ms" for name, time in times.items()))
    for size in SIZES:
        times = acting(size, walker)
        print(f"acting at H {size.hidden}: " + ", ".join(f"{name} {time:.3f} ms" for name, time in times.items()))
    scaling(walker)


if __name__ == "__main__":
    main()
