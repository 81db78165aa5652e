"""SSN4HRL, stochastic neural networks for hierarchical reinforcement learning (Florensa et al. 2017): move
fast, and visit cells that other skills do not visit.

    reward = w ‖p(s') − p(s)‖ − ½ c ‖a‖² + α log(n(z, cell) / n(cell)),  cell the square of side 1/5 that holds p(s')

p is the position in a plane, the entries `plane` of the observation; n counts within a batch. Only the policy is
trained, with the input (s, z, s ⊗ z), the bilinear form of the released code. The released code rewards the speed of
the body's centre (minus 0.01 times the squared actions; α 0.05, side 1/5) in rllab's swimmer and snake.

Deviations: URLB's learner on replayed batches instead of TRPO on batches of 50,000 new steps; the speed is measured in
the plane over the n steps of a transition; 16 skills for comparison with DIAYN, where the paper has 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cic.core.config import require
from cic.core.types import Batch, Metrics, Needs, Spaces
from cic.learning.objectives.base import Objective, SkillSpace, register


@dataclass(frozen=True)
class SSN4HRLOptions:
    skill_dim: int = 16
    """Number of skills; each is kept for a whole episode."""
    plane: tuple[int, ...] | None = None
    """Entries of the observation that are the position in the plane; by default those of the domain."""
    cells_per_unit: float = 5.0
    """Cells along one unit of the plane."""
    speed_weight: float = 10.0
    """w, weight of the distance travelled in a step."""
    control_cost: float = 0.01
    """c, weight of the squared actions."""
    information_weight: float = 0.05
    """α, weight of the log probability of the skill given the cell."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 2, f"skill_dim must be at least 2, not {self.skill_dim}")
        require(
            self.plane is None or (len(self.plane) >= 1 and min(self.plane) >= 0),
            f"plane must contain indices of the observation, not {self.plane}",
        )
        require(self.cells_per_unit > 0, f"cells_per_unit must be positive, not {self.cells_per_unit}")
        for name in ("speed_weight", "control_cost", "information_weight"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, is {getattr(self, name)}")


@register("ssn4hrl")
class SSN4HRL(Objective):
    """Speed, and cells from which the skill can be inferred (Florensa et al. 2017)."""

    Options = SSN4HRLOptions
    title = "SSN4HRL"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"urlb": {}, "paper": {"skill_dim": 6}}
    uses_units = True
    options: SSN4HRLOptions

    def __init__(self, spaces: Spaces, hidden: int, options: SSN4HRLOptions) -> None:
        super().__init__(spaces, hidden, options)
        self._plane = [0, 1] if options.plane is None else list(options.plane)
        require(
            max(self._plane) < spaces.obs,
            f"ssn4hrl counts over entries {', '.join(map(str, self._plane))} of the observation, which has only "
            f"{spaces.obs}: set `plane` to the position entries of this environment",
        )

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim)

    @property
    def needs(self) -> Needs:
        return Needs(nstep=1)

    def policy_input(self, obs: Tensor, skill: Tensor) -> Tensor:
        product = (obs.unsqueeze(-1) * skill.unsqueeze(-2)).flatten(-2)
        return torch.cat([obs, skill, product], dim=-1)

    @property
    def policy_input_dim(self) -> int:
        obs = self.spaces.obs + self.unseen
        return obs + self.options.skill_dim * (1 + obs)

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        here, there = batch.obs[:, self._plane], batch.next_obs[:, self._plane]
        speed: Tensor = torch.linalg.vector_norm(there - here, dim=1)
        cost = 0.5 * self.options.control_cost * batch.action.square().sum(dim=1)
        information = self.options.information_weight * self._share(there, batch.skill).log()
        return (self.options.speed_weight * speed - cost + information).unsqueeze(1)

    def _share(self, position: Tensor, skill: Tensor) -> Tensor:
        """(B,): n(z, cell) / n(cell), by comparing every pair of the batch."""
        cell = (position * self.options.cells_per_unit).floor()
        together = (cell[:, None] == cell[None]).all(dim=2)
        same_skill = skill @ skill.T > 0.5
        return (together & same_skill).sum(dim=1) / together.sum(dim=1)

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        return {"skill/share_of_cell": self._share(batch.next_obs[:, self._plane], batch.skill).mean()}
