"""Checks of an environment before a long run: problems that would disturb training, found with random actions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from cic import envs
from cic.core.errors import UserError
from cic.core.spaces import flat_bounds
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.training.reward_model import fitted, standardiser
from cic.training.validity import SCALES

Level = Literal["ok", "warning", "error"]
REPLAYED = 200
"""Steps that are repeated to test determinism and the restored state."""
FITTED = 500
"""Steps with different rewards that a regression needs."""
PREDICTABLE = 0.5
"""R² of held-out rewards below which relabelled pre-training data misleads finetuning."""
SLOW_SECONDS = 1e-3


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    text: str
    """What was measured; for a warning or an error also what to do."""


@dataclass(frozen=True)
class EnvCheck:
    """The results of `check_env`."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether training can use the environment. There may be warnings."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "warning")


@dataclass
class _Trial:
    """Some episodes with random actions."""

    obs: list[Array] = field(default_factory=list)
    action: list[Array] = field(default_factory=list)
    next_obs: list[Array] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Of the episodes that ended."""
    terminations: int = 0
    seconds: float = 0.0

    def rows(self, name: str) -> npt.NDArray[np.float64]:
        return np.stack(getattr(self, name)).astype(np.float64)


def check_env(name: str, *, steps: int = 2_000, seed: int = 0) -> EnvCheck:
    """Check an environment before a long run: spaces, values, episodes, determinism, rewards and speed.

    Args:
        name: A name given to `register_env`, `"gymnasium:ID"`, or a built-in task or domain.
        steps: Number of steps with random actions.
        seed: Seed of the environment and the actions.

    Returns:
        One finding per check. Errors are findings too; nothing is raised for a faulty environment.

    Raises:
        UserError: The name is unknown, or `steps` is not positive.

    Example:
        ```python
        found = cic.check_env("gymnasium:Pendulum-v1", steps=500)
        print(found.ok, [finding.text for finding in found.warnings])
        ```
    """
    if steps < 1:
        raise UserError(f"steps must be at least 1, not {steps}")
    envs.split_name(name)
    findings: list[Finding] = []
    try:
        findings += _checks(name, steps, seed, findings)
    except UserError as error:
        findings.append(Finding("values" if findings else "spaces", "error", str(error)))
    return EnvCheck(name, tuple(findings))


def _checks(name: str, steps: int, seed: int, findings: list[Finding]) -> list[Finding]:
    """The remaining findings; those before an error are added to `findings` as they are made."""
    env = envs.make(name, seed=seed, threads=1)
    try:
        findings.append(_spaces(env))
        trial = _play(env, steps, seed)
        findings += [_bounds(env, trial), *_scale(env, trial), _episodes(env, trial, steps)]
        findings.append(_determinism(name, trial, seed))
        findings.append(_resume(env, seed))
        if env.task is not None or not env.tasks:
            findings.append(_reward(trial, seed))
        return [_speed(name, trial)]
    finally:
        env.close()


def _play(env: VectorEnv, steps: int, seed: int, actions: list[Array] | None = None) -> _Trial:
    """Steps with these actions, or with random ones."""
    rng, trial = np.random.default_rng(seed), _Trial()
    obs, _ = env.reset(seed=seed)
    length, start = 0, time.perf_counter()
    for index in range(steps):
        action = env.spaces.random_actions(1, rng) if actions is None else actions[index]
        found = env.step(action)
        length += 1
        trial.obs.append(obs[0])
        trial.action.append(action)
        trial.next_obs.append(found.obs[0])
        trial.reward.append(float(found.reward[0]))
        obs = found.obs
        if found.terminated[0] or found.truncated[0]:
            trial.lengths.append(length)
            trial.terminations += int(found.terminated[0])
            length, obs = 0, env.reset(options={"reset_mask": found.terminated | found.truncated})[0]
    trial.seconds = time.perf_counter() - start
    return trial


# ---- the checks ------------------------------------------------------------------------------------------------


def _spaces(env: VectorEnv) -> Finding:
    action = env.layout.action
    if isinstance(action, Box):
        kind = f"{env.spaces.action} continuous actions in [{action.low.min():g}, {action.high.max():g}]"
    else:
        kind = f"discrete actions with {' × '.join(map(str, env.spaces.choices))} choices"
    return Finding("spaces", "ok", f"{env.spaces.obs} numbers observed, {kind}")


def _bounds(env: VectorEnv, trial: _Trial) -> Finding:
    low, high = flat_bounds(env.layout.observation)
    seen = np.concatenate([trial.rows("obs"), trial.rows("next_obs")])
    slack = 1e-5 * np.maximum(1.0, np.abs(seen))
    outside = np.flatnonzero(((seen < low - slack) | (seen > high + slack)).any(axis=0))
    if len(outside):
        entry = int(outside[0])
        worst = float(seen[:, entry][np.argmax(np.maximum(low[entry] - seen[:, entry], seen[:, entry] - high[entry]))])
        return Finding(
            "bounds",
            "warning",
            f"{_entry(env, entry)} reached {worst:g}, outside of its bounds {low[entry]:g} to {high[entry]:g}: "
            "correct the observation space, on which other programs rely",
        )
    return Finding("bounds", "ok", "all observations are finite and within the bounds of their space")


def _scale(env: VectorEnv, trial: _Trial) -> Iterator[Finding]:
    seen = trial.rows("obs")
    spread, size = seen.std(axis=0), np.abs(seen).max()
    moving = np.flatnonzero(spread > 1e-9 * np.maximum(1.0, np.abs(seen).max(axis=0)))
    if not len(moving):
        yield Finding("scale", "error", "no entry of the observation ever changed: the actions have no visible effect")
        return
    large, small = (int(moving[pick(spread[moving])]) for pick in (np.argmax, np.argmin))
    ratio = spread[large] / spread[small]
    if ratio > SCALES or size > SCALES or size < 1 / SCALES:
        yield Finding(
            "scale",
            "warning",
            f"{_entry(env, large)} varies by {spread[large]:.2g} and {_entry(env, small)} by {spread[small]:.2g}, "
            f"largest value {size:.2g}: divide entries by their typical size, or the intrinsic reward sees only some",
        )
    else:
        yield Finding("scale", "ok", f"entries vary by {spread[small]:.2g} to {spread[large]:.2g}")
    if constant := sorted(set(range(len(spread))) - set(moving.tolist())):
        names = ", ".join(_entry(env, entry) for entry in constant[:3]) + (", …" if len(constant) > 3 else "")
        yield Finding("constant entries", "warning", f"never changed: {names}; remove them if they are always constant")


def _episodes(env: VectorEnv, trial: _Trial, steps: int) -> Finding:
    if trial.lengths:
        ends = f"{trial.terminations} terminated, {len(trial.lengths) - trial.terminations} truncated"
        return Finding("episodes", "ok", f"mean length {np.mean(trial.lengths):.0f} steps ({ends})")
    if env.episode_length is not None:
        return Finding("episodes", "ok", f"they have {env.episode_length:,} steps; none ended in {steps:,} steps")
    return Finding(
        "episodes",
        "warning",
        f"no episode ended in {steps:,} steps: wrap the environment in gymnasium.wrappers.TimeLimit; evaluations "
        "stop episodes that never end",
    )


def _determinism(name: str, trial: _Trial, seed: int) -> Finding:
    count = min(REPLAYED, len(trial.reward))
    again = envs.make(name, seed=seed, threads=1)
    try:
        second = _play(again, count, seed, trial.action)
    finally:
        again.close()
    for step in range(count):
        same = (second.next_obs[step] == trial.next_obs[step]).all() and second.reward[step] == trial.reward[step]
        if not same or not (second.obs[step] == trial.obs[step]).all():
            return Finding(
                "determinism",
                "warning",
                f"the same seed and actions give another result at step {step + 1}: draw random numbers from "
                "self.np_random, which reset(seed=…) seeds",
            )
    return Finding("determinism", "ok", f"the same seed and actions give the same {count} steps")


def _resume(env: VectorEnv, seed: int) -> Finding:
    if not env.exact_state:
        text = "resumed runs restart the current episode: get_state() and set_state() make resuming bit-exact"
        return Finding("resume", "ok", text)
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    state: Any = None
    results: list[list[Any]] = [[], []]
    actions = [env.spaces.random_actions(1, rng) for _ in range(20)]
    for part in results:
        if state is None:
            state = env.state()
        else:
            env.restore(state)
        for action in actions:
            found = env.step(action)
            part += [found.obs, found.reward]
            if found.terminated[0] or found.truncated[0]:
                break
    if all((one == other).all() for one, other in zip(*results, strict=False)):
        return Finding("resume", "ok", "a restored state continues bit-exactly")
    return Finding("resume", "warning", "a restored state continues differently: get_state() lacks a part of the state")


def _reward(trial: _Trial, seed: int) -> Finding:
    reward = np.array(trial.reward)
    if np.ptp(reward) == 0:
        return Finding(
            "reward",
            "warning",
            f"always {reward[0]:g} with random actions: finetuning learns only after a skill has found another reward",
        )
    text = f"{reward.min():.3g} to {reward.max():.3g}, {np.mean(reward != 0):.0%} not zero"
    if len(reward) < FITTED:
        return Finding("reward", "ok", text)
    share = _predictability(trial, reward, seed)
    text += f"; a regression on (s, a, s') explains {max(share, 0.0):.0%} of it"
    if share < PREDICTABLE:
        advice = "if it depends on a hidden state, finetune with `prior_data=0`"
        return Finding("reward", "warning", f"{text}: {advice}")
    return Finding("reward", "ok", text)


def _predictability(trial: _Trial, reward: npt.NDArray[np.float64], seed: int) -> float:
    """The R² of rewards that a regression on (s, a, s') was not fitted to."""
    rows = np.concatenate([trial.rows("obs"), trial.rows("action")[:, 0], trial.rows("next_obs")], axis=1)
    order = np.random.default_rng(seed).permutation(len(rows))
    held, known = order[: len(rows) // 5], order[len(rows) // 5 :]
    if np.ptp(reward[held]) == 0:
        return 1.0
    transform = standardiser(rows[known])
    predict = fitted(transform(rows[known]), reward[known], updates=500, seed=seed)
    error = np.square(predict(transform(rows[held])) - reward[held]).mean()
    return float(1.0 - error / reward[held].var())


def _speed(name: str, trial: _Trial) -> Finding:
    each = trial.seconds / len(trial.reward)
    text = f"{1 / each:,.0f} steps per second, so 100,000 steps take {_duration(100_000 * each)} without training"
    cores = os.cpu_count() or 1
    if each > SLOW_SECONDS and cores > 1 and name not in envs.domains():
        return Finding(
            "speed", "warning", f"{text}: `num_envs=8` and `workers={min(cores, 8)}` step several in parallel"
        )
    return Finding("speed", "ok", text)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _entry(env: VectorEnv, index: int) -> str:
    return env.entry_names()[index]
