"""Steer: skills are weights of named quantities, such as speed, uprightness and height, that the user can command.

    loss   = mean over members and batch of ‖s' − f_m(s, a)‖
    reward = w · q(s') + β min(D / running mean of D, 5),  D = mean over dimensions of Var_m f_m(s, a)

w, the skill, is a unit vector; q(s') are the signals of the quantities, each about within [-1, 1]; D is Disagreement
(Pathak et al. 2019), which explores. A share of the skills of each batch is redrawn, so that every step trains every
skill (universal value functions, Schaul et al. 2015). The quantities are prior knowledge of the environment; rewards of
tasks are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cic.core.config import require
from cic.core.errors import UserError
from cic.core.expressions import parse
from cic.core.named_quantities import Quantities, check_quantities, entry_quantities
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.novelty import Novelty
from cic.learning.objectives.base import Objective, SkillSpace, register
from cic.learning.successor import least_squares

SLOWEST_RATE = 1e-3


@dataclass(frozen=True)
class SteerOptions:
    quantities: Quantities = ()
    """The quantities that skills weigh; by default those of the environment, or its standardised observation."""
    exploration: float = 0.3
    """β, weight of the disagreement of the forward models in the reward."""
    redrawn: float = 0.5
    """Share of the skills of each batch that are redrawn from the prior."""
    skill_every: int = 300
    """Steps for which a skill is kept in pre-training."""
    sparse: float = 0.5
    """Share of the skills of the prior in which each weight but the largest is zero with probability 1/2; the others
    are uniform on the sphere."""
    ensemble: int = 5
    """Forward models whose predictions are compared."""

    def __post_init__(self) -> None:
        check_quantities(self.quantities)
        require(0 <= self.exploration < 1e6, f"exploration must not be negative, not {self.exploration}")
        require(0 <= self.redrawn <= 1, f"redrawn must lie in [0, 1], not {self.redrawn}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(0 <= self.sparse <= 1, f"sparse must lie in [0, 1], not {self.sparse}")
        require(self.ensemble >= 2, "ensemble must be at least 2: one model cannot disagree")


@register("steer")
class Steer(Objective):
    """Weights of named quantities that the user can command (Schaul et al. 2015, Pathak et al. 2019)."""

    Options = SteerOptions
    title = "Steer"
    redraws_skills = True
    uses_units = True
    options: SteerOptions
    centre: Tensor
    spread: Tensor
    updates: Tensor
    _learned: Tensor
    _squashed: Tensor

    def __init__(self, spaces: Spaces, hidden: int, options: SteerOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.quantities = options.quantities or entry_quantities(spaces.obs)
        check_quantities(self.quantities)
        self._formulas = [parse(quantity.formula) for quantity in self.quantities]
        self._check_entries()
        self.novelty = Novelty(spaces.obs, spaces.action, hidden, options.ensemble)
        self.register_buffer("centre", torch.tensor([quantity.centre for quantity in self.quantities]))
        self.register_buffer("spread", torch.tensor([quantity.scale or 1.0 for quantity in self.quantities]))
        self.register_buffer("updates", torch.zeros(()))
        for name, chosen in (
            ("_learned", [quantity.scale is None for quantity in self.quantities]),
            ("_squashed", [quantity.squash for quantity in self.quantities]),
        ):
            self.register_buffer(name, torch.tensor(chosen), persistent=False)
        self._learns_scales = any(quantity.scale is None for quantity in self.quantities)

    def _check_entries(self) -> None:
        known = {f"obs[{index}]" for index in range(self.spaces.obs)}
        for quantity, formula in zip(self.quantities, self._formulas, strict=True):
            if missing := sorted(formula.names - known):
                raise UserError(
                    f"the quantity {quantity.name} uses {missing[0]}, but the entries of the observation are obs[0] to "
                    f"obs[{self.spaces.obs - 1}]"
                )

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("sphere", len(self.quantities), self.options.skill_every, sparse=self.options.sparse)

    @torch.no_grad()
    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Redraw a share of the skills."""
        self._update_scales(batch.next_obs)
        count = len(batch.obs)
        redrawn = torch.rand(count, 1, generator=generator, device=generator.device) < self.options.redrawn
        return batch._replace(skill=torch.where(redrawn, self.skills.draw(count, generator), batch.skill))

    def _update_scales(self, obs: Tensor) -> None:
        """Running mean and deviation of the quantities without a scale: of all updates, later of the last thousand."""
        if not self._learns_scales:
            return
        self.updates += 1
        rate = (1 / self.updates).clamp_min(SLOWEST_RATE)
        values = self.values(obs)
        deviation = values.std(dim=0).clamp_min(1e-6)
        self.centre.copy_(torch.where(self._learned, self.centre.lerp(values.mean(dim=0), rate), self.centre))
        self.spread.copy_(torch.where(self._learned, self.spread.lerp(deviation, rate), self.spread))

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        error = self.novelty.error(batch)
        return error, {"representation/loss": error.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        steered = (self.signals(batch.next_obs) * batch.skill).sum(dim=1, keepdim=True)
        if self.options.exploration == 0:
            return steered
        return steered + self.options.exploration * self.novelty.bonus(batch)

    def values(self, obs: Tensor) -> Tensor:
        """(B, quantities): the values in their units."""
        entries = {f"obs[{index}]": column for index, column in enumerate(obs.unbind(dim=1))}
        return torch.stack([formula(entries, torch, obs.new_tensor).expand(len(obs)) for formula in self._formulas], 1)

    def signals(self, obs: Tensor) -> Tensor:
        """(B, quantities): the scaled values that skills weigh."""
        scaled = (self.values(obs) - self.centre) / self.spread
        return torch.where(self._squashed, scaled.tanh(), scaled.clamp(-1, 1))

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        signals = self.signals(batch.next_obs)
        novelty = self.novelty.bonus(batch, update=False)
        return {
            "reward/steered": (signals * batch.skill).sum(dim=1).mean(),
            "reward/exploration": self.options.exploration * novelty.mean(),
            "representation/signal": signals.std(dim=0).mean(),
        }

    @torch.no_grad()
    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        """(dim,): the weights whose product with the signals is nearest to the rewards (N, 1), up to a constant."""
        signals = self.signals(next_obs)
        return least_squares(signals - signals.mean(dim=0), reward - reward.mean())
