"""Environment steps per second: ours, dm_control's, and bare `mj_step` on the same actions from the same states.

All take turns in one process. An episode is timed in pieces, and of each piece the fastest of several rounds counts:
the trajectories are the same in every round, so what differs is the rest of the machine. Resets are pieces too.
The bars: one environment 1.3 times dm_control's speed, 16 environments on two cores 1.5 times bare `mj_step` on one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mujoco
import numpy as np

import cic.envs
from cic.envs.rendering import importing_dm_control
from cic.envs.suite.domain import Domain
from cic.envs.suite.hopper import Hopper
from cic.envs.suite.jaco import Jaco
from cic.envs.suite.quadruped import Quadruped
from cic.envs.suite.walker import Walker

with importing_dm_control():
    from dm_control import composer, suite

COPIES = 16
SINGLE_BAR, MANY_BAR = 1.3, 1.5
Episode = Callable[[], Iterator[None]]
"""Starts an episode, then takes a few steps at a time, yielding after each piece."""


class Case(NamedTuple):
    name: str
    domain: type[Domain]
    dm_control: Callable[[], Any]
    rounds: int
    piece: int
    """Steps that take a few milliseconds: short against the time slices of a busy machine."""


def jaco() -> Any:
    from dm_control.manipulation import reach

    return composer.Environment(reach.reach_duplo_features(), time_limit=10.0, random_state=0)


def of_suite(domain: str, task: str) -> Callable[[], Any]:
    return lambda: suite.load(domain, task, task_kwargs={"random": 0})


CASES = (
    Case("walker-run", Walker, of_suite("walker", "run"), 12, 25),
    Case("quadruped-run", Quadruped, of_suite("quadruped", "run"), 12, 25),
    Case("jaco-reach_top_left", Jaco, jaco, 6, 4),
    Case("hopper-hop", Hopper, of_suite("hopper", "hop"), 15, 50),
)


class Row(NamedTuple):
    """Steps per second."""

    name: str
    bare: float
    dm_control: float
    single: float
    many: float
    bare_many: float

    def line(self) -> str:
        one, many = self.single / self.dm_control, self.many / self.bare_many
        marks = ["" if share >= bar else " !" for share, bar in ((one, SINGLE_BAR), (many, MANY_BAR))]
        return (
            f"{self.name:22}{self.bare:>10,.0f}{self.dm_control:>12,.0f}{self.single:>10,.0f}"
            f"{one:>15.2f}{marks[0]:2}{self.single / self.bare:>7.2f}{self.many:>12,.0f}{many:>9.2f}{marks[1]}"
        )


def measure(case: Case) -> Row:
    env, many = cic.envs.make(case.name), cic.envs.make(case.name, COPIES)
    steps = env.episode_length or 1000
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, COPIES, env.spaces.action)).astype(np.float32)
    single = fastest(
        {
            "bare": bare_episode(case.domain(env.task), actions[:, :1], case.piece),
            "dm_control": dm_control_episode(case.dm_control(), actions[:, 0], case.piece),
            "ours": our_episode(env, actions[:, :1], case.piece),
        },
        case.rounds,
    )
    crowd = fastest(
        {
            "bare": bare_episode(case.domain(env.task), actions, max(1, case.piece // COPIES)),
            "ours": our_episode(many, actions, max(1, case.piece // COPIES)),
        },
        case.rounds,
    )
    rates = {name: steps / seconds for name, seconds in single.items()}
    crowd_rates = {name: COPIES * steps / seconds for name, seconds in crowd.items()}
    return Row(case.name, rates["bare"], rates["dm_control"], rates["ours"], crowd_rates["ours"], crowd_rates["bare"])


def fastest(episodes: dict[str, Episode], rounds: int) -> dict[str, float]:
    """Seconds per episode, each piece at its fastest."""
    best: dict[str, Any] = {}
    for _ in range(rounds):
        for name, episode in episodes.items():
            times = [time.perf_counter()]
            for _ in episode():
                times.append(time.perf_counter())
            pieces = np.diff(times)
            best[name] = np.minimum(best.get(name, np.inf), pieces)
    return {name: float(pieces.sum()) for name, pieces in best.items()}


def our_episode(env: Any, actions: Any, piece: int) -> Episode:
    def episode() -> Iterator[None]:
        env.reset(seed=0)
        yield
        for start in range(0, len(actions), piece):
            for action in actions[start : start + piece]:
                env.step(action)
            yield

    return episode


def dm_control_episode(env: Any, actions: Any, piece: int) -> Episode:
    random = env.random_state if isinstance(env, composer.Environment) else env.task.random
    spec = env.action_spec()
    scaled = spec.minimum + (spec.maximum - spec.minimum) * (actions.astype(np.float64) + 1) / 2

    def episode() -> Iterator[None]:
        random.seed(0)
        env.reset()
        yield
        for start in range(0, len(scaled), piece):
            for action in scaled[start : start + piece]:
                env.step(action)
            yield

    return episode


def bare_episode(domain: Domain, actions: Any, piece: int) -> Episode:
    """Nothing but controls and `mj_step`, copy after copy, from the initial states of ours; its reset costs nothing."""
    model, substeps = domain.model, domain.substeps
    low, high = model.actuator_ctrlrange.T
    scaled = low + (high - low) * (actions.astype(np.float64) + 1) / 2
    starts, copies = [], []
    for i in range(actions.shape[1]):
        data = mujoco.MjData(model)
        domain.begin(data, np.random.RandomState(i))
        starts.append(data)
        copies.append(mujoco.MjData(model))

    def episode() -> Iterator[None]:
        for copy, start in zip(copies, starts, strict=True):
            mujoco.mj_copyData(copy, model, start)
        yield
        for start in range(0, len(scaled), piece):
            for action in scaled[start : start + piece]:
                for data, control in zip(copies, action, strict=True):
                    data.ctrl[:] = control
                    mujoco.mj_step(model, data, substeps)
            yield

    return episode


def main(names: list[str] | None = None) -> list[Row]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(
        f"environment steps per second, {cores} cores; "
        f"! marks a missed bar ({SINGLE_BAR} of dm_control, {MANY_BAR} of bare)"
    )
    print(
        f"{'':22}{'mj_step':>10}{'dm_control':>12}{'one env':>10}{'of dm_control':>15}{'of bare':>9}"
        f"{f'{COPIES} copies':>14}{'of bare':>9}"
    )
    rows = []
    for case in CASES:
        if not names or case.name.partition("-")[0] in names:
            rows.append(measure(case))
            print(rows[-1].line(), flush=True)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
