"""VALOR, variational autoencoding learning of options by reinforcement (Achiam et al. 2018): a decoder predicts the
skill from the whole path, and skills are added when it succeeds.

    loss   = −mean log P(z | differences of 11 states, evenly spaced along the skill's path)
    reward = log P(z | …) at the skill's last step, 0 before it
    skills : K ← min(⌊1.5 K + 1⌋, all) whenever the mean of P(z | …) reaches 0.86

The decoder is a bidirectional LSTM without actions as input. A skill terminates: its last step has discount 0. From the
paper: the decoder reads state differences, and the number of contexts grows with its success. The threshold and the
rule for K are those of third-party code; layer sizes are specific to this library.

Deviations: URLB's learner on replayed steps instead of policy gradients with an entropy bonus (SAC has one); the mean
of P is a running mean over batches; skills last 50 steps so that the reward at their end propagates, in the paper a
whole episode (`preset="paper"`); unfinished paths are decoded up to their latest state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.objectives.base import Objective, SkillSpace, register

POINTS = 11


class Decoder(nn.Module):
    """Path (B, T, obs) → logits of the skill, by two LSTMs over its differences, one for each direction."""

    def __init__(self, obs: int, width: int, skills: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(obs, width) for _ in range(2))
        self.head = nn.Linear(2 * width, skills)

    def forward(self, path: Tensor) -> Tensor:
        steps = path.diff(dim=1)
        ways = (steps.unbind(dim=1), steps.flip(1).unbind(dim=1))
        logits: Tensor = self.head(torch.cat([_last(cell, way) for cell, way in zip(self.cells, ways, strict=True)], 1))
        return logits


def _last(cell: nn.Module, steps: tuple[Tensor, ...]) -> Tensor:
    state: tuple[Tensor, Tensor] | None = None
    for step in steps:
        state = cell(step, state)
    assert state is not None
    return state[0]


@dataclass(frozen=True)
class VALOROptions:
    skill_dim: int = 16
    """Largest number of skills."""
    first_skills: int = 2
    """Number of skills at the start."""
    skill_every: int = 50
    """Steps after which a skill ends; an episode's length or more keeps it for the whole episode."""
    decoder_width: int = 64
    """Width of each LSTM."""
    certainty: float = 0.86
    """Mean probability of the correct skill at which skills are added."""
    certainty_rate: float = 0.01
    """Rate of the running mean of this probability."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(1 <= self.first_skills <= self.skill_dim, f"first_skills must lie in 1 to {self.skill_dim}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(self.decoder_width >= 1, f"decoder_width must be at least 1, not {self.decoder_width}")
        require(0 < self.certainty <= 1, f"certainty must lie in (0, 1], not {self.certainty}")
        require(0 < self.certainty_rate <= 1, f"certainty_rate must lie in (0, 1], not {self.certainty_rate}")


@register("valor")
class VALOR(Objective):
    """A decoder of the skill from its path, and a curriculum of skills (Achiam et al. 2018)."""

    Options = VALOROptions
    title = "VALOR"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"urlb": {}, "paper": {"skill_every": 1_000_000}}
    options: VALOROptions
    active: Tensor
    mean_certainty: Tensor

    def __init__(self, spaces: Spaces, hidden: int, options: VALOROptions) -> None:
        super().__init__(spaces, hidden, options)
        self.decoder = Decoder(spaces.obs, options.decoder_width, options.skill_dim)
        self.register_buffer("active", torch.tensor(options.first_skills))
        self.register_buffer("mean_certainty", torch.zeros(()))

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim, self.options.skill_every, active=int(self.active))

    @property
    def policy_input_dim(self) -> int:
        return self.spaces.obs + self.unseen + self.options.skill_dim

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1, skill_start=True, path=POINTS)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch._replace(discount=batch.discount * (1 - batch.extras["skill_end"]))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = self._surprise(batch).mean()
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        surprise = self._surprise(batch)
        self._grow((-surprise).exp().mean())
        return -surprise.unsqueeze(1) * batch.extras["skill_end"]

    @torch.no_grad()
    def confidence(self, batch: Batch) -> Tensor:
        return (-self._surprise(batch)).exp()[:, None]

    def _surprise(self, batch: Batch) -> Tensor:
        """(B,): −log P(z | path)"""
        logits = self.decoder(batch.extras["path"])
        return F.cross_entropy(logits, batch.skill.argmax(dim=1), reduction="none")

    def _grow(self, certainty: Tensor) -> None:
        """Add skills if the decoder is certain enough, and restart the measurement."""
        self.mean_certainty.lerp_(certainty, self.options.certainty_rate)
        enough = self.mean_certainty >= self.options.certainty
        more = (1.5 * self.active + 1).floor().clamp_max(self.options.skill_dim).to(self.active.dtype)
        self.active.copy_(torch.where(enough, more, self.active))
        self.mean_certainty.copy_(torch.where(enough, torch.zeros_like(certainty), self.mean_certainty))

    def diagnose(self, batch: Batch) -> Metrics:
        return {"skill/active": self.active.float(), "skill/certainty": self.mean_certainty.clone()}
