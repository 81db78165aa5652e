"""FB, forward-backward representations (Touati & Ollivier 2021; Touati et al. 2023): F(s, a, z) · B(s') is the
discounted frequency with which a policy visits s', so the skill of any reward is computed without further training.

    M_ij   = F(s_i, a_i, z_i) · B(s'_j),  M' the same with the target networks at (s'_i, a'_i)
    critic = Σ_k [½ mean_{i≠j} (M_k,ij − γ_i min_k M'_k,ij)² − mean_i M_k,ii]
             + κ [mean_{i≠j} (B_i · B_j)² − 2 mean_i ‖B_i‖²]
    Q      = F(s, a, z) · z
    z*     = √d · the direction of mean r(s') B(s')

Skills lie on the sphere of radius √d and are redrawn in each update: half from the prior, half as B(s) of states of the
batch. B has length √d. It is trained together with F by the loss of the critic, so this objective has no separate loss
and no reward; its `reward` returns empty features. Finetuning keeps B with the critic's trunk.

Deviations from the released code: `cic pretrain` collects data online; the actor is that of the learner,
without a separate stream for the state; B has half of the width H (512 of 1,024; there 526); the optional loss on F · z
is omitted, as there by default. As there, skills are mixed with B(s), and B(s') is trained. With discrete actions,
F has an output per action, as there; the policy is that of the learner (greedy with DQN).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.networks import Critic, expected, mlp, orthogonal_init, trunk
from cic.learning.objectives.base import Objective, SkillSpace, register


class Streams(nn.Module):
    """The shared layers of F's heads, a stream for (s, a) and one for (s, z), and B: what finetuning keeps."""

    def __init__(self, spaces: Spaces, skill: int, hidden: int) -> None:
        super().__init__()
        self.obs, self.width = spaces.obs, max(hidden // 2, 1)
        self.with_action, self.with_skill = (
            nn.Sequential(trunk(spaces.obs + other, hidden), nn.Linear(hidden, self.width), nn.ReLU(inplace=True))
            for other in (0 if spaces.choices else spaces.action, skill)
        )
        self.backward_net = nn.Sequential(trunk(spaces.obs, self.width), mlp(self.width, self.width, skill))

    def forward(self, x: Tensor, action: Tensor | None = None) -> Tensor:
        """Discrete actions select from the outputs instead of being an input."""
        obs = x[:, : self.obs]
        with_action = self.with_action(obs if action is None else torch.cat([obs, action], dim=-1))
        return torch.cat([with_action, self.with_skill(x)], dim=-1)

    def backward_features(self, obs: Tensor) -> Tensor:
        """B (N, d), of length √d."""
        features = self.backward_net(obs)
        return math.sqrt(features.shape[-1]) * F.normalize(features, dim=-1)


class ForwardBackwardCritic(Critic):
    """F with two heads, B, and the loss that trains both. `x` is (s, z)."""

    trunk: Streams  # type: ignore[assignment]

    def __init__(self, spaces: Spaces, skill: int, hidden: int, orthogonality: float) -> None:
        nn.Module.__init__(self)
        self.trunk = Streams(spaces, skill, hidden)
        self.choices, self.out = spaces.choices, skill
        width = skill * spaces.action if spaces.choices else skill
        self.heads = nn.ModuleList(mlp(2 * self.trunk.width, hidden, width) for _ in range(2))
        self.orthogonality = orthogonality
        self.apply(orthogonal_init)

    def features(self, x: Tensor, action: Tensor) -> Tensor:
        if self.choices:
            return expected(self.table(x), action, self.choices)
        shared = self.trunk(x, action)
        return torch.stack([head(shared) for head in self.heads])

    def table(self, x: Tensor) -> Tensor:
        shared = self.trunk(x)
        outputs = torch.stack([head(shared) for head in self.heads])
        return outputs.reshape(*outputs.shape[:-1], -1, self.out)

    def values(self, x: Tensor) -> Tensor:
        return (self.table(x) * x[:, None, self.trunk.obs :]).sum(dim=-1)

    def forward(self, x: Tensor, action: Tensor, skill: Tensor) -> Tensor:
        return (self.features(x, action) * skill).sum(dim=-1, keepdim=True)

    def measure(self, x: Tensor, action: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """M (2, B, N) over the states (N, …), whose first entries are observations; and their B (N, d)."""
        backward = self.trunk.backward_features(states[:, : self.trunk.obs])
        return self.features(x, action) @ backward.T, backward

    def td_loss(
        self, target: Critic, batch: Batch, next_action: Tensor, bonus: Tensor | float
    ) -> tuple[Tensor, Metrics]:
        if batch.reward.shape[1] == 1:  # the reward of a task
            return super().td_loss(target, batch, next_action, bonus)
        assert isinstance(target, ForwardBackwardCritic)
        with torch.no_grad():
            later = target.measure(batch.next_obs, next_action, batch.next_obs)[0].amin(dim=0)
            goal = batch.discount * later  # (B, B)
        measure, backward = self.measure(batch.obs, batch.action, batch.next_obs)
        likeness = backward @ backward.T
        fit = 0.5 * _off_diagonal((measure - goal).square()) - measure.diagonal(dim1=1, dim2=2).mean(dim=1)
        spread = _off_diagonal(likeness.square()) - 2 * likeness.diagonal().mean()
        loss = fit.sum() + self.orthogonality * spread
        q = (measure.detach().mean(dim=0).diagonal()).mean()
        return loss, {"critic/loss": loss.detach(), "critic/measure": q, "critic/likeness": spread.detach()}


def _off_diagonal(table: Tensor) -> Tensor:
    """The mean over i ≠ j of (…, B, B)."""
    count = table.shape[-1]
    total = table.sum(dim=(-2, -1)) - table.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return total / (count * (count - 1))


@dataclass(frozen=True)
class FBOptions:
    skill_dim: int = 50
    """d, dimension of skills, F and B."""
    skill_every: int = 300
    """Steps for which a skill is kept in pre-training."""
    orthogonality: float = 1.0
    """κ, weight of the orthogonality loss of B."""
    mixed_skills: float = 0.5
    """Share of an update's skills that are B of a state instead of a draw from the prior."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(self.orthogonality >= 0, f"orthogonality must not be negative, is {self.orthogonality}")
        require(0 <= self.mixed_skills <= 1, f"mixed_skills must lie in [0, 1], not {self.mixed_skills}")


@register("fb")
class FB(Objective):
    """Forward and backward representations of successor measures (Touati & Ollivier 2021)."""

    Options = FBOptions
    title = "FB"
    whole_input = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "urlb": {}}
    recommended: ClassVar[dict[str, dict[str, Any]]] = {"released": {"learner": "ddpg", "learning": {"nstep": 1}}}
    scales: ClassVar[dict[str, dict[str, Any]]] = {"smoke": {"skill_dim": 8}}
    redraws_skills = True
    options: FBOptions

    def __init__(self, spaces: Spaces, hidden: int, options: FBOptions) -> None:
        super().__init__(spaces, hidden, options)
        # The learner owns the critic with B and trains and saves it. Inside a tuple it is not a submodule here.
        self._critic = (ForwardBackwardCritic(spaces, options.skill_dim, hidden, options.orthogonality),)

    @property
    def skills(self) -> SkillSpace:
        options = self.options
        return SkillSpace("sphere", options.skill_dim, options.skill_every, radius=math.sqrt(options.skill_dim))

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def make_critic(self) -> Critic:
        return self._critic[0]

    @torch.no_grad()
    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        count, device = len(batch.obs), batch.obs.device
        drawn = self.skills.draw(count, generator)
        order = torch.randperm(count, generator=generator, device=device)
        mixed = torch.rand(count, 1, generator=generator, device=device) < self.options.mixed_skills
        return batch._replace(skill=torch.where(mixed, self._backward(batch.obs[order]), drawn))

    @property
    def exempt(self) -> frozenset[str]:
        return frozenset({"no reward"})  # the critic's own loss takes its place

    def embed(self, obs: Tensor) -> Tensor:
        return self._backward(obs)

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.skill)

    def _backward(self, obs: Tensor) -> Tensor:
        return self._critic[0].trunk.backward_features(obs)

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        direction = (reward * self._backward(next_obs)).mean(dim=0)
        if not direction.norm() > 1e-6:
            return None
        return self.skills.radius * F.normalize(direction, dim=0)

    @torch.no_grad()
    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor:
        return self._backward(goal)
