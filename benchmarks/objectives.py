"""Every method's update, eager and compiled, beside its matrix products alone; and the method's own part of it.

The method's own part (loss, gradients, Adam, reward; eager) cannot come near its products where it is shallow (ICM,
Disagreement, ProtoRL): a ReLU over (B, H) moves as many bytes as a product with 24 columns. What a user feels is the
whole update.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.floor import Product, flops, interleave, make_floor, record
from cic.core.types import Batch, Spaces
from cic.learning.agent import build_agent
from cic.learning.learners.ddpg import DDPGConfig
from cic.learning.objectives import Objective, get_objective, objectives
from cic.learning.optim import Adam, GradientStep

WALKER = Spaces(obs=24, action=6)


@dataclass(frozen=True)
class Row:
    name: str
    gflop: float
    floor_ms: float
    eager_ms: float
    compiled_ms: float
    own_floor_ms: float
    own_ms: float

    def line(self) -> str:
        own = f"{self.own_ms / self.own_floor_ms:6.2f}×" if self.own_floor_ms else f"{'-':>7}"
        return (
            f"{self.name:14}{self.gflop:8.2f}{self.floor_ms:10.2f}{self.eager_ms:10.2f}{self.compiled_ms:10.2f}"
            f"{self.eager_ms / self.floor_ms:7.2f}×{self.compiled_ms / self.floor_ms:9.2f}×"
            f"{self.own_floor_ms:11.2f}{self.own_ms:9.2f}{own}"
        )


def make_batch(objective: Objective, size: int) -> Batch:
    rng = np.random.default_rng(0)

    def normal(columns: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal((size, columns), dtype=np.float32))

    obs, needs = normal(WALKER.obs), objective.needs
    extras: dict[str, torch.Tensor] = {}
    if needs.skill_start:
        extras |= {"first_obs": normal(WALKER.obs), "skill_end": (normal(1) > 2).float()}
    if needs.path:
        extras["path"] = normal(needs.path * WALKER.obs).view(size, needs.path, WALKER.obs)
    if needs.goals:
        extras |= {"goal": normal(WALKER.obs), "random_goal": normal(WALKER.obs)}
    return Batch(
        obs=obs,
        action=normal(WALKER.action).tanh_(),
        reward=normal(1),
        discount=torch.full((size, 1), 0.97),
        next_obs=obs + 0.1 * normal(WALKER.obs),
        skill=torch.from_numpy(objective.skills.sample(size, rng)),
        extras=extras,
    )


def objective_update(objective: Objective, lr: float = 1e-4) -> Callable[[Batch], None]:
    """What the agent does for its objective in one update."""
    groups, generator = objective.parameter_groups(lr), torch.Generator().manual_seed(0)
    step = GradientStep(objective.loss, Adam(groups)) if groups else None

    def update(batch: Batch) -> None:
        batch = objective.prepare(batch, generator)
        if step is not None:
            step(batch)
            objective.after_step()
        objective.reward(batch)

    return update


def solid(product: Product) -> Product:
    """An expanded operand (Disagreement's input, shared by its members) as one of its own, which can be filled."""
    left, right = product
    if 0 in left[1]:
        left = (left[0], torch.empty(left[0]).stride())
    return left, right


def measure(name: str, batch_size: int, hidden: int, seconds: float) -> Row:
    cls, config = get_objective(name), DDPGConfig(hidden=hidden, batch=batch_size)
    options = cls.Options(**(cls.scales.get("laptop", {}) if batch_size < 1024 else {}))
    agent, compiled = (build_agent(WALKER, name, options, "ddpg", config) for _ in range(2))
    compiled.compile_losses()
    batch = make_batch(agent.objective, batch_size)
    update = objective_update(agent.objective)
    own = [solid(product) for product in record(lambda: update(batch))]
    whole = [solid(product) for product in record(lambda: agent.update(batch, intrinsic=True))]
    times = interleave(
        {
            "floor": make_floor(whole),
            "eager": lambda: agent.update(batch, intrinsic=True),
            "compiled": lambda: compiled.update(batch, intrinsic=True),
            "own floor": make_floor(own),
            "own": lambda: update(batch),
        },
        seconds,
    )
    floor, eager, fast, own_floor, own_time = (1e3 * duration for duration in times.values())
    return Row(name, flops(whole) / 1e9, floor, eager, fast, own_floor if own else 0.0, own_time)


def main(names: list[str] | None = None, seconds: float = 6.0) -> list[Row]:
    """Both settings, a line per method."""
    rows = []
    for batch_size, hidden, threads in [(1024, 1024, 2), (256, 256, 1)]:
        torch.set_num_threads(threads)
        print(f"\nbatch {batch_size}, H {hidden}, {threads} thread(s), walker; milliseconds")
        print(f"{'':50}{'/products':>18}{'of its own part':>27}")
        print(
            f"{'method':14}{'GFLOP':>8}{'products':>10}{'eager':>10}{'compiled':>10}{'eager':>8}{'compiled':>10}"
            f"{'products':>11}{'eager':>9}{'ratio':>7}"
        )
        for name in names or [name for name, _ in objectives()]:
            rows.append(measure(name, batch_size, hidden, seconds))
            print(rows[-1].line(), flush=True)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:] or None)
