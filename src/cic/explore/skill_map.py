"""Many skills as points in a plane: similar behaviour means a small distance.

Each skill starts from the same state. Its behaviour is the mean and standard deviation of every observation entry over
the second half of the steps, and the displacement of the body. The plane has the first two principal components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.named_quantities import Quantities
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.explore.cluster_names import mean_signals, name_of
from cic.explore.live_metrics import ReferencePaths
from cic.explore.live_simulation import centre_of
from cic.explore.loaded_agent import LoadedAgent
from cic.training.skill_variance import most_different

Doubles = npt.NDArray[np.float64]
CLUSTERS = 6
LENGTH, CLUSTER = "path length", "cluster"


class Group(NamedTuple):
    """Skills with similar behaviour."""

    name: str
    size: int
    typical: int
    """The skill nearest to the mean of the group."""


@dataclass(frozen=True)
class SkillMap:
    """K skills, their positions in the plane and several measures of each."""

    skills: Array  # (K, dim)
    names: list[str]
    places: Doubles  # (K, 2), in [0, 1]
    measures: dict[str, Doubles]
    """Name → (K,) values."""
    groups: list[Group]
    """The clusters; the measure `CLUSTER` is their index."""
    explained: float
    """Share of the variance in behaviour that the plane explains."""
    steps: int
    reference: ReferencePaths


def default_measure(skill_map: SkillMap) -> str:
    """Return the task with the highest return of a skill, or the path length if all returns are equal."""
    returns = [name for name in skill_map.measures if name.startswith("return")]
    best = max(returns, key=lambda name: float(skill_map.measures[name].max()), default=LENGTH)
    return best if float(np.ptp(skill_map.measures[best])) > 0 else LENGTH


def chosen_skills(agent: LoadedAgent, count: int, seed: int) -> tuple[Array, list[str]]:
    """Return every one-hot skill, or `count` samples from the prior."""
    space = agent.space
    if space.kind == "none":
        return np.zeros((1, 0), np.float32), ["the policy"]
    if space.kind == "onehot":
        shown = min(space.active or space.dim, max(count, 1))
        return np.eye(space.dim, dtype=np.float32)[:shown], [f"skill {i}" for i in range(shown)]
    return space.sample(count, np.random.default_rng(seed)), [f"#{i}" for i in range(count)]


def make_map(
    agent: LoadedAgent, *, count: int, steps: int, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> SkillMap:
    """Play the skills in parallel environments; `stop` returns true if the map is no longer needed."""
    skills, names = chosen_skills(agent, count, seed)
    env = agent.make_env(num_envs=len(skills), seed=seed)
    try:
        steps = min(steps, env.episode_length or steps)
        obs, _ = env.reset(seed=[seed] * len(skills))
        seen, acted = [obs], []
        returns = {task: np.zeros(len(skills)) for task in env.tasks or ("reward",)}
        alive = np.ones(len(skills), np.bool_)
        tracks = [_centres(env)]
        for step in range(steps):
            if stop():
                raise UserError("the map was cancelled")
            action = agent.agent.act(obs, skills)
            obs, reward, terminated, truncated, info = env.step(action)
            acted.append(action)
            seen.append(obs.copy())
            for task, value in info.get("rewards", {"reward": reward}).items():
                returns[task] += value * alive
            if step % 5 == 4:
                tracks.append(_centres(env))
            if (done := terminated | truncated).any():
                alive &= ~done
                obs, _ = env.reset(seed=[seed] * len(skills), options={"reset_mask": done})
    finally:
        env.close()
    observations, track = np.stack(seen, axis=1), np.stack(tracks, axis=1)  # (K, T + 1, obs), (K, t, 3)
    features = behaviour(observations, track)
    axes, share = principal(features)
    measures = {f"return: {task}": value for task, value in returns.items()}
    measures[LENGTH] = np.linalg.norm(np.diff(track, axis=1), axis=2).sum(axis=1)
    labels, found = groups(axes, agent.agent.quantities, observations)
    measures[CLUSTER] = labels.astype(np.float64)
    reference = ReferencePaths(skills, observations, np.stack(acted, axis=1))
    return SkillMap(skills, names, _into_square(axes[:, :2]), measures, found, share, steps, reference)


def _centres(env: VectorEnv) -> Doubles:
    """(K, 3): the centres of the bodies, or zeros without a MuJoCo model."""
    if env.model is None:
        return np.zeros((env.num_envs, 3))
    return np.stack([centre_of(env.model, env.poses(i)) for i in range(env.num_envs)])


def behaviour(observations: Array, track: Doubles) -> Doubles:
    """Return (K, F): standardised mean and deviation of the second half, and the displacement, with equal weights."""
    late = observations[:, observations.shape[1] // 2 :].astype(np.float64)
    scale = late.reshape(-1, late.shape[2]).std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0)
    parts = [late.mean(axis=1) / scale, late.std(axis=1) / scale]
    moved = track[:, -1] - track[:, 0]
    parts.append(moved / max(float(np.abs(moved).max()), 1e-9) * 2)
    return np.concatenate([part / np.sqrt(part.shape[1]) for part in parts], axis=1)


def principal(features: Doubles, most: int = 8) -> tuple[Doubles, float]:
    """Return the principal components (K, ≤ most), and the share of the variance that the first two explain."""
    centred = features - features.mean(axis=0)
    left, size, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])  # the sign of a component is arbitrary
    axes = (left * size * signs)[:, :most]
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    total = float((size**2).sum())
    return axes, float((size[:2] ** 2).sum() / total) if total > 0 else 0.0


def clusters(points: Doubles, count: int) -> npt.NDArray[np.int64]:
    """Return the k-means cluster of each point; the initial centres are far apart and deterministic."""
    from scipy.cluster.vq import kmeans2

    chosen = most_different(points, count)
    labels: npt.NDArray[np.int64] = kmeans2(points, points[chosen], iter=50, minit="matrix")[1].astype(np.int64)
    return labels


def groups(axes: Doubles, quantities: Quantities, observations: Array) -> tuple[npt.NDArray[np.int64], list[Group]]:
    """Return the group of each skill, and the groups: clusters, of which those with the same name are one group."""
    labels = clusters(axes, CLUSTERS)
    kept = np.unique(labels)
    names = [f"cluster {place + 1}" for place in range(len(kept))]
    if quantities:
        signals, sizes = mean_signals(quantities, observations)
        names = [name_of(quantities, signals[labels == k].mean(axis=0), sizes[labels == k].mean(axis=0)) for k in kept]
    order = sorted(set(names), key=names.index)
    index = np.array([order.index(names[int(np.searchsorted(kept, label))]) for label in labels], np.int64)
    found = []
    for place, name in enumerate(order):
        members = np.flatnonzero(index == place)
        distances = np.linalg.norm(axes[members] - axes[members].mean(axis=0), axis=1)
        found.append(Group(name, len(members), int(members[distances.argmin()])))
    return index, found


def best_skills(skill_map: SkillMap) -> dict[str, int]:
    """Return the skill with the highest return of each task, for tasks whose returns differ."""
    returns = {name.removeprefix("return: "): v for name, v in skill_map.measures.items() if name.startswith("return")}
    return {task: int(values.argmax()) for task, values in returns.items() if np.ptp(values) > 0}


def _into_square(axes: Doubles) -> Doubles:
    low, high = axes.min(axis=0), axes.max(axis=0)
    return np.asarray((axes - low) / np.where(high - low > 1e-9, high - low, 1.0))
