"""Validity checks of a run: whether it still learns, and which part of it does not work.

The checks read the metrics of a log line, so they cost nothing between two lines. A sign that appears in `LASTING`
lines (minus those without it) is a problem: it is printed once with a remedy, and listed under `problems` in
result.json. A problem whose sign disappears for as many lines is removed. An objective adds checks of its own in
`Objective.problems`, and excludes checks that do not apply to it with `Objective.exempt`.

The thresholds were chosen on the tables in `results/`; `results/validity/README.md` has the counts of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cic.learning.agent import Agent
from cic.training.checkpoint_checks import need, texts

LASTING = 3
"""Log lines with a sign before it is reported."""
LEARNING_FROM = 0.1
"""Fraction of the run before which nothing is expected to work yet."""

REWARD = 1e-4
"""Size of a reward (|mean| + standard deviation) below which the noise of an untrained critic is larger."""
SPREAD = 1e-3
"""Standard deviation of the reward over its mean, below which all states are rewarded alike."""
RANK = 1.5
"""Effective rank of an embedding, if observations and embedding have at least `RANK_DIM` dimensions."""
RANK_DIM = 3
INFORMATION = 0.01
"""Share of the skill's entropy that the discriminator must explain."""
SATURATED = 0.75
"""Share of the entries of mean actions within 1e-5 of their bounds."""
SKILL_SHARE = 1e-4
"""Share of the variance of actions that must depend on the skill."""
DIVERGED = 10.0
"""Q-value over the largest possible sum of discounted rewards."""
SCALES = 1_000.0
"""Ratio of the entries of an observation, and their largest and smallest size."""


@dataclass
class Problems:
    """The problems of a run so far. `state` and `restore` make it part of the checkpoint."""

    discount: float
    """γⁿ of the n-step returns."""
    exempt: frozenset[str] = frozenset()
    """Checks that do not apply."""
    found: dict[str, str] = field(default_factory=dict)
    """The name of each problem, and a message with the remedy."""
    lines: dict[str, int] = field(default_factory=dict)
    """Log lines with each sign minus those without, between 0 and `LASTING`."""
    peak: float = 0.0
    """Largest size of the reward so far."""

    def update(self, numbers: Mapping[str, float], own: Mapping[str, str], step: int, progress: float) -> list[str]:
        """Take the metrics of a log line and the objective's problems; return the messages that are new."""
        self.peak = max(self.peak, reward_size(numbers))
        signs = dict(own) | observation_scale(numbers)
        if progress >= LEARNING_FROM:
            signs |= general(numbers, self.peak, self.discount)
        return [message for name in sorted({*self.lines, *signs}) if (message := self._count(name, signs, step))]

    def _count(self, name: str, signs: Mapping[str, str], step: int) -> str:
        present = name in signs and name not in self.exempt
        count = self.lines.get(name, 0) + (1 if present else -1)
        self.lines[name] = min(max(count, 0), LASTING)
        if self.lines[name] == 0:
            del self.lines[name]
            self.found.pop(name, None)
        if count < LASTING or name in self.found:
            return ""
        self.found[name] = f"{signs[name]} (step {step:,})"
        return self.found[name]

    def state(self) -> dict[str, Any]:
        return {"found": self.found, "lines": self.lines, "peak": self.peak}

    def restore(self, state: Any) -> None:
        need(isinstance(state, dict) and state.keys() == self.state().keys(), "problems must have found, lines, peak")
        lines, peak = state["lines"], state["peak"]
        counts = isinstance(lines, dict) and all(type(one) is int and 0 < one <= LASTING for one in lines.values())
        need(counts, "the lines of problems must be counts")
        need(type(peak) in (int, float) and 0 <= peak < math.inf, "the peak of problems must be a number")
        self.found, self.lines, self.peak = texts(state["found"], "problems"), dict(lines), float(peak)


def exempt_checks(agent: Agent) -> frozenset[str]:
    """Return the names of the checks that do not apply to an agent."""
    with torch.no_grad():
        features = agent.objective.spaces.obs
        embedded = agent.objective.embed(torch.zeros(1, features, device=agent.device))
    small = embedded is not None and min(features, embedded.shape[1]) < RANK_DIM
    return agent.objective.exempt | ({"collapsed embedding"} if small else set())


def reward_size(numbers: Mapping[str, float]) -> float:
    """|mean| + standard deviation of the reward of the batch."""
    mean = numbers.get("reward/intrinsic", numbers.get("reward/task", 0.0))
    return abs(mean) + numbers.get("reward/std", 0.0)


def general(numbers: Mapping[str, float], peak: float, discount: float) -> dict[str, str]:
    """Return the signs that every method can show: the name of each, and a message with the remedy."""
    found: dict[str, str] = {}
    if "reward/intrinsic" in numbers:
        found |= _reward(numbers)
    if (rank := numbers.get("embedding/effective_rank", math.inf)) < RANK:
        found["collapsed embedding"] = (
            f"the embedding has collapsed to a line: its effective rank is {rank:.2f}; use a smaller lr or a larger "
            "batch"
        )
    if numbers.get("skill/information", 1.0) < INFORMATION:
        found["skills at chance"] = (
            f"the discriminator recognises skills at chance: it explains {numbers['skill/information']:.1%} of their "
            "entropy, so skills have no meaning; use a larger batch, more steps or another method"
        )
    if (share := numbers.get("action/saturation", 0.0)) > SATURATED:
        found["saturated actions"] = (
            f"{share:.0%} of the policy's actions lie at their bounds, where the actor has no gradient; use a smaller "
            "lr, saturation=0.1 (learner ddpg) or the learner sac"
        )
    if numbers.get("action/skill_share", 1.0) < SKILL_SHARE:
        found["skills without effect"] = (
            f"the policy ignores its skill: {numbers['action/skill_share']:.1e} of the variance of actions depends on "
            "it; pre-train longer or use another method"
        )
    value, limit = abs(numbers.get("critic/q", 0.0)), peak / max(1 - discount, 1e-6)
    if peak > REWARD and value > DIVERGED * limit:
        found["diverging Q"] = (
            f"Q-values are {value:.3g}, while the rewards so far allow at most about {limit:.3g}: the critic diverges; "
            "use a smaller lr"
        )
    return found


def _reward(numbers: Mapping[str, float]) -> dict[str, str]:
    size, mean = reward_size(numbers), abs(numbers["reward/intrinsic"])
    if size < REWARD:
        return {
            "no reward": f"the intrinsic reward is about zero ({size:.1e}), so the policy learns from the noise of the "
            "critic; check the scale of the observations (normalise_obs=True), or use another method"
        }
    if numbers.get("reward/std", math.inf) < SPREAD * mean:
        return {
            "constant reward": f"the intrinsic reward is the same everywhere ({mean:.3g} ± {numbers['reward/std']:.1e})"
            "; check the scale of the observations (normalise_obs=True), or use another method"
        }
    return {}


def observation_scale(numbers: Mapping[str, float]) -> dict[str, str]:
    """The sign of observations that networks cannot use as they are."""
    if "obs/largest" not in numbers:
        return {}
    largest, smallest = numbers["obs/largest"], numbers["obs/smallest"]
    if largest <= SCALES and largest >= 1 / SCALES and largest <= SCALES * smallest:
        return {}
    return {
        "unscaled observations": f"the entries of the observation have sizes from {smallest:.2g} to {largest:.2g}; "
        "networks expect about 1: use normalise_obs=True"
    }
