"""DADS, dynamics-aware discovery of skills (Sharma et al. 2020): transitions that are predictable with the skill
and unlikely with other skills.

    loss   = −mean log q(s' − s | s, z),  q a Gaussian of unit variance, without terminal steps
    reward = log(K + 1) − log(1 + Σ_i exp clip(log q(s' − s | s, z_i) − log q(s' − s | s, z), ±50)),  z_i ~ p(z)

States and differences are batch-normalised (momentum 0.01; the state's with gain and bias): by the batch's own
statistics in the loss, by running ones in the reward.

As in METRA's repository, q is one Gaussian over all entries of the state. In the authors' code, it is a mixture of four
and predicts only the position of the ant (`dynamics_of` selects entries). Deviations from both: replayed batches
without importance weights, URLB's networks, no planning over the learned dynamics, fewer draws at small scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import METRA_SAC, Objective, SkillKind, SkillSpace, register, require_kind

MOMENTUM, EPSILON, CHUNK = 0.01, 1e-5, 10


class Normaliser(nn.Module):
    """Batch normalisation whose running statistics change only on request: the loss stays a pure function."""

    mean: Tensor
    var: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    @torch.no_grad()
    def follow(self, x: Tensor) -> None:
        self.mean.lerp_(x.mean(dim=0), MOMENTUM)
        self.var.lerp_(x.var(dim=0), MOMENTUM)

    def by_batch(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=0, correction=0)
        return (x - mean) / (var + EPSILON).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / (self.var + EPSILON).sqrt()


@dataclass(frozen=True)
class DADSOptions:
    skill_dim: int = 2
    """Dimension of skills, or their number if one-hot."""
    skill_every: int = 0
    """Steps for which a skill is kept in pre-training; 0 keeps it for the whole episode."""
    skill_kind: SkillKind = "normal"
    """`normal` vectors (METRA's repository), uniform in the `cube` [-1, 1] (the authors') or `onehot`."""
    prior_samples: int = 100
    """K, skills drawn from the prior for each transition's reward."""
    dynamics_of: tuple[int, ...] = ()
    """Entries of the observation that the dynamics model uses and predicts; none means all."""

    def __post_init__(self) -> None:
        require(self.skill_every >= 0, f"skill_every must not be negative, is {self.skill_every}")
        require_kind(self.skill_kind, self.skill_dim, ("normal", "cube", "sphere", "onehot"), "DADS")
        require(self.prior_samples >= 1, f"prior_samples must be at least 1, not {self.prior_samples}")


@register("dads")
class DADS(Objective):
    """Transitions that are predictable given the skill (Sharma et al. 2020)."""

    Options = DADSOptions
    title = "DADS"
    trains_encoder = False  # constant features can be predicted without error
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {"skill_every": 50}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {"released": METRA_SAC}
    scales: ClassVar[dict[str, dict[str, Any]]] = {"smoke": {"prior_samples": 8}, "laptop": {"prior_samples": 20}}
    options: DADSOptions

    def __init__(self, spaces: Spaces, hidden: int, options: DADSOptions) -> None:
        super().__init__(spaces, hidden, options)
        entries = list(options.dynamics_of) or list(range(spaces.obs))
        require(
            all(0 <= entry < spaces.obs for entry in entries),
            f"dynamics_of names entry {max(entries)}, but observations have entries 0 to {spaces.obs - 1}",
        )
        self._entries = entries
        self.dynamics = mlp(len(entries) + options.skill_dim, hidden, hidden, len(entries))
        self.apply(orthogonal_init)
        self.states, self.changes = Normaliser(len(entries)), Normaliser(len(entries))
        self.gain, self.bias = nn.Parameter(torch.ones(len(entries))), nn.Parameter(torch.zeros(len(entries)))

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace(self.options.skill_kind, self.options.skill_dim, self.options.skill_every or None)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        state, change = self._seen(batch)
        self.states.follow(state.detach())
        self.changes.follow(change.detach())
        draws = self.skills.draw(self.options.prior_samples * len(batch.obs), generator)
        return batch.with_extras(other_skills=draws.view(self.options.prior_samples, len(batch.obs), -1))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        state, change = self._seen(batch)
        log_density = self._log_density(self.states.by_batch(state), batch.skill, self.changes.by_batch(change))
        going_on = (batch.discount > 0).float()
        loss = -(log_density * going_on).sum() / going_on.sum().clamp_min(1)
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        seen, happened = self._seen(batch)
        state, change = self.states(seen), self.changes(happened)
        own = self._log_density(state, batch.skill, change)
        ratios = torch.zeros_like(own)
        for others in torch.split(batch.extras["other_skills"], CHUNK):  # a few at a time, to limit memory
            log_density = self._log_density(state.expand(len(others), -1, -1), others, change)
            ratios += (log_density - own).clamp(-50, 50).exp().sum(dim=0)
        return math.log(self.options.prior_samples + 1) - torch.log1p(ratios)

    def _seen(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The entries that the dynamics model uses, and their changes."""
        here = batch.obs[:, self._entries]
        return here, batch.next_obs[:, self._entries] - here

    def _log_density(self, state: Tensor, skill: Tensor, change: Tensor) -> Tensor:
        """(…, B, 1): log q of a normalised change, given the normalised state."""
        guess = self.dynamics(torch.cat([state * self.gain + self.bias, skill], dim=-1))
        squares: Tensor = (change - guess).square().sum(dim=-1, keepdim=True)
        return -0.5 * (squares + change.shape[-1] * math.log(2 * math.pi))
