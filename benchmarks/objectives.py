"""Every method's part of an update (loss, backward, Adam, reward) beside its matrix products alone.

That none of those products is needless is counted by hand in `tests/objectives/test_objective_flops.py`. Shallow
methods (ICM, Disagreement, ProtoRL) cannot come near their products here: a ReLU over (B, H) moves as many bytes as a
product with 24 columns. What a user feels is the whole update, DDPG included: the last columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.floor import Product, flops, interleave, make_floor, record
from cic.agent import Agent, AgentConfig
from cic.objectives import Objective, get_objective, objectives
from cic.types import Batch, Spaces

WALKER = Spaces(obs=24, action=6)


@dataclass(frozen=True)
class Row:
    name: str
    gflop: float
    floor_ms: float
    objective_ms: float
    update_floor_ms: float
    update_ms: float

    def line(self) -> str:
        own = f"{self.objective_ms / self.floor_ms:5.2f}×" if self.floor_ms else "     -"
        return (
            f"{self.name:14}{self.gflop:8.2f}{self.floor_ms:10.2f}{self.objective_ms:10.2f} {own}"
            f"{self.update_floor_ms:10.2f}{self.update_ms:10.2f} {self.update_ms / self.update_floor_ms:5.2f}×"
        )


def make_batch(objective: Objective, size: int) -> Batch:
    rng = np.random.default_rng(0)

    def normal(columns: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal((size, columns), dtype=np.float32))

    obs = normal(WALKER.obs)
    return Batch(
        obs=obs,
        action=normal(WALKER.action).tanh_(),
        reward=normal(1),
        discount=torch.full((size, 1), 0.97),
        next_obs=obs + 0.1 * normal(WALKER.obs),
        skill=torch.from_numpy(objective.skill.sample(size, rng)),
    )


def objective_update(objective: Objective, lr: float = 1e-4) -> Callable[[Batch], None]:
    """What the agent does for its objective in one update."""
    groups = objective.parameter_groups(lr)
    optimiser = torch.optim.Adam(groups, fused=True) if groups else None

    def update(batch: Batch) -> None:
        if optimiser is not None:
            loss, _ = objective.loss(batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
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
    agent = Agent(WALKER, name, get_objective(name).Options(), AgentConfig(hidden=hidden, batch=batch_size))
    batch = make_batch(agent.objective, batch_size)
    update = objective_update(agent.objective)
    own = [solid(product) for product in record(lambda: update(batch))]
    whole = [solid(product) for product in record(lambda: agent.update(batch))]
    times = interleave(
        {
            "floor": make_floor(own),
            "objective": lambda: update(batch),
            "update floor": make_floor(whole),
            "update": lambda: agent.update(batch),
        },
        seconds,
    )
    floor_ms, objective_ms, update_floor_ms, update_ms = (1e3 * seconds for seconds in times.values())
    return Row(name, flops(own) / 1e9, floor_ms if own else 0.0, objective_ms, update_floor_ms, update_ms)


def main(names: list[str] | None = None, seconds: float = 6.0) -> list[Row]:
    """Both settings, a line per method."""
    rows = []
    for batch_size, hidden, threads in [(1024, 1024, 2), (256, 256, 1)]:
        torch.set_num_threads(threads)
        print(f"\nbatch {batch_size}, H {hidden}, {threads} thread(s), walker; milliseconds")
        print(f"{'method':14}{'GFLOP':>8}{'products':>10}{'method':>10}{'':7}{'products':>10}{'update':>10}")
        for name in names or [name for name, _ in objectives()]:
            rows.append(measure(name, batch_size, hidden, seconds))
            print(rows[-1].line(), flush=True)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:] or None)
