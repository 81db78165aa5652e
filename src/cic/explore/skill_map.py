"""Many skills as points in a plane: near each other where they behave alike.

Each skill acts from the same start. Its behaviour is the mean and spread of every observed number over the second half
of that time and where the body went; the plane is spanned by the two directions in which skills differ most (PCA).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.types import Array
from cic.explore.judging import Reference
from cic.explore.live_simulation import centre_of
from cic.explore.loaded_agent import Subject

Doubles = npt.NDArray[np.float64]
CLUSTERS = 6
LENGTH, CLUSTER = "path length", "cluster"


@dataclass(frozen=True)
class SkillMap:
    """K skills, their places and what each is worth by several measures."""

    skills: Array  # (K, dim)
    names: list[str]
    places: Doubles  # (K, 2), in [0, 1]
    measures: dict[str, Doubles]
    """By the name that the page offers: (K,) each."""
    explained: float
    """Share of the variance in behaviour that the plane shows."""
    steps: int
    reference: Reference


def telling(skill_map: SkillMap) -> str:
    """The measure to begin with: the task whose best skill is paid most, or how far skills go."""
    returns = [name for name in skill_map.measures if name.startswith("return")]
    best = max(returns, key=lambda name: float(skill_map.measures[name].max()), default=LENGTH)
    return best if float(np.ptp(skill_map.measures[best])) > 0 else LENGTH


def chosen_skills(subject: Subject, count: int, seed: int) -> tuple[Array, list[str]]:
    """Every one-hot skill, or `count` drawn from the prior."""
    space = subject.space
    if space.kind == "none":
        return np.zeros((1, 0), np.float32), ["the policy"]
    if space.kind == "onehot":
        shown = min(space.active or space.dim, max(count, 1))
        return np.eye(space.dim, dtype=np.float32)[:shown], [f"skill {i}" for i in range(shown)]
    return space.sample(count, np.random.default_rng(seed)), [f"#{i}" for i in range(count)]


def make_map(
    subject: Subject, *, count: int, steps: int, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> SkillMap:
    """Let the skills act, side by side; `stop` says that nobody wants it any more."""
    skills, names = chosen_skills(subject, count, seed)
    env = subject.make_env(num_envs=len(skills), seed=seed)
    try:
        steps = min(steps, env.episode_length or steps)
        obs, _ = env.reset(seed=[seed] * len(skills))
        seen, acted = [obs], []
        returns = {task: np.zeros(len(skills)) for task in env.tasks or ("reward",)}
        alive = np.ones(len(skills), np.bool_)
        tracks = [_centres(env)]
        for step in range(steps):
            if stop():
                raise UserError("nobody waits for this map")
            action = subject.agent.act(obs, skills)
            obs, reward, terminated, truncated, info = env.step(action)
            acted.append(action)
            seen.append(obs.copy())
            for task, paid in info.get("rewards", {"reward": reward}).items():
                returns[task] += paid * alive
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
    measures[CLUSTER] = clusters(axes, CLUSTERS).astype(np.float64)
    reference = Reference(skills, observations, np.stack(acted, axis=1))
    return SkillMap(skills, names, _into_square(axes[:, :2]), measures, share, steps, reference)


def _centres(env: object) -> Doubles:
    return np.stack([centre_of(env.model, env.poses(i)) for i in range(env.num_envs)])  # type: ignore[attr-defined]


def behaviour(observations: Array, track: Doubles) -> Doubles:
    """(K, F): standardised mean and spread of the second half, and how far the body came; each weighs the same."""
    late = observations[:, observations.shape[1] // 2 :].astype(np.float64)
    scale = _spread(late.reshape(-1, late.shape[2]))
    parts = [late.mean(axis=1) / scale, late.std(axis=1) / scale]
    way = track[:, -1] - track[:, 0]
    parts.append(way / max(float(np.abs(way).max()), 1e-9) * 2)
    return np.concatenate([part / np.sqrt(part.shape[1]) for part in parts], axis=1)


def _spread(values: Doubles) -> Doubles:
    spread = values.std(axis=0)
    return np.where(spread > 1e-6, spread, 1.0)


def principal(features: Doubles, most: int = 8) -> tuple[Doubles, float]:
    """(K, ≤ most): coordinates along the directions of the largest variance, and the first two's share of it."""
    centred = features - features.mean(axis=0)
    left, size, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])  # else it is a coin's toss
    axes = (left * size * signs)[:, :most]
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    total = float((size**2).sum())
    return axes, float((size[:2] ** 2).sum() / total) if total > 0 else 0.0


def clusters(points: Doubles, count: int) -> npt.NDArray[np.int64]:
    """(K,): k-means from centres as far from each other as can be, so that nothing is drawn by lot."""
    chosen = [int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())]
    while len(chosen) < min(count, len(points)):
        nearest = np.linalg.norm(points[:, None] - points[chosen], axis=2).min(axis=1)
        chosen.append(int(nearest.argmax()))
    centres = points[chosen]
    labels = np.zeros(len(points), np.int64)
    for _ in range(50):
        labels = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
        moved = np.stack(
            [points[labels == k].mean(axis=0) if (labels == k).any() else c for k, c in enumerate(centres)]
        )
        if np.allclose(moved, centres):
            break
        centres = moved
    return labels


def _into_square(axes: Doubles) -> Doubles:
    low, high = axes.min(axis=0), axes.max(axis=0)
    return np.asarray((axes - low) / np.where(high - low > 1e-9, high - low, 1.0))
