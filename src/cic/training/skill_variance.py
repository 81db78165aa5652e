"""How much returns and behaviour depend on the skill, and so whether a skill search can improve the score.

Several skills act from several initial states each. The share of variance that the skill explains is the variance
between skills over the total, estimated by a one-way analysis of variance with random effects (the intraclass
correlation, Shrout & Fleiss 1979, case 1). Variance that is caused by the initial states is not attributed to skills.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.learning.agent import Agent
from cic.training.evaluation import rollout

Doubles = npt.NDArray[np.float64]
BEHAVIOUR = "behaviour"


@dataclass(frozen=True)
class Share:
    """A share of variance with its 90 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Diagnosis:
    """The share of variance that the skill explains, of each task's return and of the behaviour."""

    shares: dict[str, Share]
    """Shares per task, and `behaviour` for the mean standardised observation."""
    typical: dict[str, float]
    """Per task: the mean return over all skills."""
    best: dict[str, float]
    """Per task: the mean return of the best skill, without finetuning."""
    skills: int
    starts: int
    returns: dict[str, Doubles] = field(default_factory=dict)
    """Per task: (skills, starts)."""

    @property
    def sentence(self) -> str:
        """Return a one-line interpretation."""
        behaviour, tasks = self.shares[BEHAVIOUR], [share for name, share in self.shares.items() if name != BEHAVIOUR]
        most = max((share.value for share in tasks), default=0.0)
        if behaviour.high < 0.1 and most < 0.1:
            return "Skills do not differ: a skill search cannot improve the score."
        if most < 0.3:
            return "Skills differ little in their task returns: a short skill search is enough."
        if most < 0.7:
            return "Skills differ, but each also varies between initial states: search with several initial states."
        return "Skills differ strongly and act alike from every initial state: a skill search improves the score."

    def metrics(self) -> dict[str, float]:
        return {f"skill/explains_{name}": share.value for name, share in self.shares.items()}


def diagnose(
    agent: Agent,
    name: str,
    skills: Array,
    *,
    starts: int,
    seed: int,
    limit: int | None = None,
    timeout: float = 0.0,
    at_step: Callable[[int], object] | None = None,
) -> Diagnosis:
    """Measure every skill from the same `starts` initial states with the mean action."""
    from cic import envs

    count = len(skills)
    env = envs.make(name, num_envs=count * starts, seed=seed, timeout=timeout)
    try:
        seeds = [seed + start for _ in range(count) for start in range(starts)]
        seen = rollout(
            agent, env, np.repeat(skills, starts, axis=0), seed=seeds, keep=True, limit=limit, at_step=at_step
        )
        tasks = env.tasks or ("reward",)
    finally:
        env.close()
    every = np.concatenate(seen.observations).astype(np.float64)
    spread = np.where(every.std(axis=0) > 1e-6, every.std(axis=0), 1.0)
    means = np.stack([path.mean(axis=0, dtype=np.float64) for path in seen.observations]) / spread
    returns = {task: seen.returns[task].reshape(count, starts) for task in tasks}
    values = {BEHAVIOUR: means.reshape(count, starts, -1)} | {task: each[..., None] for task, each in returns.items()}
    return Diagnosis(
        {name: share_of(value, seed) for name, value in values.items()},
        {task: float(values.mean()) for task, values in returns.items()},
        {task: float(values.mean(axis=1).max()) for task, values in returns.items()},
        count,
        starts,
        returns,
    )


def share_of(values: Doubles, seed: int = 0, resamples: int = 300) -> Share:
    """Compute the share from values (skills, starts, dimensions), with a bootstrap interval over skills."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(values), (resamples, len(values)))
    low, high = np.quantile([explained(values[rows]) for rows in chosen], [0.05, 0.95])
    value = explained(values)
    return Share(value, min(float(low), value), max(float(high), value))


def explained(values: Doubles) -> float:
    """Variance between skills over all, summed over dimensions; 0 where nothing varies."""
    starts = values.shape[1]
    means = values.mean(axis=1)  # (skills, dimensions)
    within = float(values.var(axis=1, ddof=1).mean(axis=0).sum()) if starts > 1 else 0.0
    between = float(means.var(axis=0, ddof=1).sum()) - within / starts if len(values) > 1 else 0.0
    between = max(between, 0.0)
    return between / (between + within) if between + within > 0 else 0.0


def most_different(points: Doubles, count: int) -> list[int]:
    """Return up to `count` rows (N, F) that are far apart: first the most central one, then always the farthest."""
    chosen = [int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())]
    while len(chosen) < min(count, len(points)):
        nearest = np.linalg.norm(points[:, None] - points[chosen], axis=2).min(axis=1)
        if nearest.max() == 0:
            break
        chosen.append(int(nearest.argmax()))
    return chosen
