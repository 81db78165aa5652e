"""Rewards of every task from stored simulator states, and a check that the simulator still behaves as it did.

The rewards of a dataset are computed once and kept in a cache folder: `$CIC_CACHE`, by default `~/.cache/cic`. The name
of a cache file is a digest of the states and of everything else that determines the rewards.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cic
from cic import envs
from cic.core.errors import UserError
from cic.core.expressions import parse
from cic.core.types import Array
from cic.learning.replay import Episode

Doubles = npt.NDArray[np.float64]
CACHE = "CIC_CACHE"
"""The environment variable with the cache folder; an empty value switches the cache off."""
_STATES_AT_ONCE = 1024
_CACHED_FROM = 20_000  # states; fewer are computed in no time


def task_rewards(domain: str, episodes: Sequence[Episode]) -> dict[str, Array]:
    """Return task → rewards (N,) of all steps of the episodes, recomputed from `physics` and the actions.

    Raises:
        UserError: An episode has no physics, or its size is not that of the domain.
    """
    physics = np.concatenate([_states(episode, domain)[1:] for episode in episodes])
    actions = np.concatenate([episode.action for episode in episodes])
    file = _cache_file(domain, physics, actions) if len(physics) >= _CACHED_FROM else None
    if file is not None and (known := _cached(file, len(physics))) is not None:
        return known
    rewards = _computed(domain, physics, actions)
    if file is not None:
        _keep(file, rewards)
    return rewards


def _states(episode: Episode, domain: str) -> Doubles:
    if episode.physics is None:
        raise UserError(
            f"the data have no simulator states, so rewards of {domain} cannot be computed: "
            "collect them with `keep_physics`"
        )
    return episode.physics


def _computed(domain: str, physics: Doubles, actions: Array) -> dict[str, Array]:
    count = min(_STATES_AT_ONCE, len(physics))
    env = envs.make(domain, num_envs=count)
    try:
        wanted = env.physics().shape[1]
        if physics.shape[1] != wanted:
            raise UserError(
                f"the data have simulator states of {physics.shape[1]} numbers, {domain} has {wanted}: "
                "they belong to another domain"
            )
        found = {task: np.empty(len(physics), np.float32) for task in env.tasks}
        for first in range(0, len(physics), count):
            first = min(first, len(physics) - count)  # the last chunk is as long as the others
            rows = slice(first, first + count)
            env.set_physics(physics[rows], actions[rows])
            for task, reward in env.task_rewards().items():
                found[task][rows] = reward
        return found
    finally:
        env.close()


def formula_reward(domain: str, formula: str, next_obs: Array) -> Array:
    """Return the rewards (N,) of a formula of the domain's named quantities at the observations (N, obs).

    Args:
        domain: An environment with named quantities; `cic.envs.named_quantities` lists them.
        formula: For example `"speed * upright"`. A name stands for the value in its unit.
        next_obs: The observations that the steps led to.
    """
    quantities = envs.named_quantities(domain) if domain else ()
    if not quantities:
        raise UserError(
            f'"{domain or "unknown"}" has no named quantities for a formula: set `domain`, or choose a task'
        )
    expression = parse(formula, [quantity.name for quantity in quantities])
    entries = {f"obs[{index}]": column for index, column in enumerate(next_obs.astype(np.float64).T)}
    used = [quantity for quantity in quantities if quantity.name in expression.names]
    values = {quantity.name: parse(quantity.formula)(entries, np, np.asarray) for quantity in used}
    reward = np.broadcast_to(expression(values, np, np.asarray), (len(next_obs),)).astype(np.float32)
    if not np.isfinite(reward).all():
        states = int((~np.isfinite(reward)).sum())
        raise UserError(f'the formula "{formula}" is not finite at {states:,} states: limit its values')
    return reward


# ---- the cache -------------------------------------------------------------------------------------------------


def _cache_file(domain: str, physics: Doubles, actions: Array) -> Path | None:
    place = os.environ.get(CACHE)
    if place == "":
        return None
    digest = hashlib.sha256(f"{domain} {cic.__version__} {version('mujoco')}".encode())
    for array in (physics, actions):
        digest.update(np.ascontiguousarray(array).data)
    folder = Path(place) if place else Path.home() / ".cache" / "cic"
    return folder / "rewards" / f"{digest.hexdigest()}.npz"


def _cached(file: Path, count: int) -> dict[str, Array] | None:
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return found if all(reward.shape == (count,) for reward in found.values()) else None


def _keep(file: Path, rewards: dict[str, Array]) -> None:
    """Write atomically. A cache that cannot be written is no error."""
    part = file.with_name(f"{file.stem}.{os.getpid()}.part.npz")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(part, **rewards)  # type: ignore[arg-type]  # numpy's stubs take names for its own arguments
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)


# ---- drift -----------------------------------------------------------------------------------------------------


def drift(domain: str, episodes: Sequence[Episode], samples: int = 256, seed: int = 0) -> float:
    """Re-simulate random steps of the data and return the largest deviation of the simulator state.

    Rounding gives about 1e-12. Larger values mean that the data come from another version of the simulator or of the
    model: rewards are still those of the stored states, but a policy meets other dynamics than in the data.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(episodes), size=samples)
    steps = [int(rng.integers(len(episodes[index]))) for index in chosen]
    pairs = [(episodes[index], step) for index, step in zip(chosen, steps, strict=True)]
    before = np.stack([_states(episode, domain)[step] for episode, step in pairs])
    after = np.stack([_states(episode, domain)[step + 1] for episode, step in pairs])
    env = envs.make(domain, num_envs=samples)
    try:
        env.reset(seed=0)
        try:
            env.set_physics(before)
            env.step(np.stack([episode.action[step] for episode, step in pairs]))
        except RuntimeError as error:  # unstable
            raise UserError(f"the simulator states of the data are not those of {domain}: {error}") from None
        return float(np.abs(env.physics() - after).max())
    finally:
        env.close()
