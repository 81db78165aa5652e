"""SMM, state marginal matching (Lee et al. 2019): each skill visits states that are unlikely under a density model.

    loss   = mean squared error of a VAE on (s, z) + β · KL + cross-entropy of a classifier of z from s
    reward = ‖(s, z) − VAE(s, z)‖² + log n ± cross-entropy(z | s)

The VAE's squared error approximates −log ρ_z(s); the target density p*(s) is uniform and omitted. With the
cross-entropy as −log d(z | s), the paper's mixture objective −log ρ_z(s) + log d(z | s) − log p(z) *subtracts* it, so
that skills become predictable; URLB's code, which produced the published table, adds it: `skill_term` selects the sign.

Deviations from the paper, all of them URLB's: no historical averaging, p(z) stays uniform, and both models have their
own learning rates and train on replayed batches. One deviation from URLB: the reward is computed after the models'
step, with fresh noise in the VAE, as for every other method; URLB reuses the errors from before the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, SkillSpace, register

LEAST_KL = 0.05  # nats per transition, below which the code of the VAE is the same for all


class VAE(nn.Module):
    """A Gaussian code with diagonal variance between two small MLPs."""

    def __init__(self, dim: int, width: int, code: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*mlp(dim, width, width), nn.ReLU(inplace=True))
        self.mean = nn.Linear(width, code)
        self.log_var = nn.Linear(width, code)
        self.decoder = mlp(code, width, width, dim)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction of `x` from a code sampled with `noise`, and the mean and log variance of the code."""
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        return self.decoder(torch.addcmul(mean, noise, (0.5 * log_var).exp())), mean, log_var


@dataclass(frozen=True)
class SMMOptions:
    skill_dim: int = 4
    """Number of skills; each is kept for a whole episode."""
    skill_term: Literal["urlb", "paper"] = "urlb"
    """Sign of the classifier's cross-entropy in the reward: `urlb` adds it, `paper` subtracts it."""
    vae_beta: float = 0.5
    """Weight of the VAE's KL term."""
    vae_hidden: int = 150
    """Width of the VAE's layers."""
    vae_code: int = 128
    """Dimension of the VAE's code."""
    vae_lr: float = 1e-2
    """Learning rate of the VAE, instead of the run's."""
    classifier_lr: float = 1e-3
    """Learning rate of the skill classifier, instead of the run's."""

    def __post_init__(self) -> None:
        for name in ("skill_dim", "vae_hidden", "vae_code"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("vae_beta", "vae_lr", "classifier_lr"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, is {getattr(self, name)}")


@register("smm")
class SMM(Objective):
    """A density model of states and skills, and a skill classifier (Lee et al. 2019)."""

    Options = SMMOptions
    title = "SMM"
    trains_encoder = False  # the density of constant features is largest
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}, "paper": {"skill_term": "paper"}}
    options: SMMOptions

    def __init__(self, spaces: Spaces, hidden: int, options: SMMOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.vae = VAE(spaces.obs + options.skill_dim, options.vae_hidden, options.vae_code)
        self.classifier = mlp(spaces.obs, hidden, hidden, options.skill_dim)
        self.apply(orthogonal_init)

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("onehot", self.options.skill_dim)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [
            {"params": list(self.vae.parameters()), "lr": self.options.vae_lr},
            {"params": list(self.classifier.parameters()), "lr": self.options.classifier_lr},
        ]

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        shape, device = (len(batch.obs), self.options.vae_code), batch.obs.device
        in_loss, in_reward = (torch.randn(shape, generator=generator, device=device) for _ in range(2))
        return batch.with_extras(loss_noise=in_loss, reward_noise=in_reward)

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        joint = torch.cat([batch.obs, batch.skill], dim=1)
        rebuilt, mean, log_var = self.vae(joint, batch.extras["loss_noise"])
        squared_error = F.mse_loss(rebuilt, joint)
        divergence = 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum(dim=1).mean()
        cross_entropy = self._cross_entropy(batch).mean()
        loss = squared_error + self.options.vae_beta * divergence + cross_entropy
        return loss, {
            "representation/loss": loss.detach(),
            "density/squared_error": squared_error.detach(),
            "density/kl": divergence.detach(),
            "skill/cross_entropy": cross_entropy.detach(),
        }

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        joint = torch.cat([batch.obs, batch.skill], dim=1)
        novelty = (self.vae(joint, batch.extras["reward_noise"])[0] - joint).square_().sum(dim=1)
        sign = 1 if self.options.skill_term == "urlb" else -1
        reward: Tensor = novelty + math.log(self.options.skill_dim) + sign * self._cross_entropy(batch)
        return reward.unsqueeze(1)

    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """Detect a code of the VAE that does not depend on its input: the reward is the distance from the mean."""
        if numbers.get("density/kl", math.inf) >= LEAST_KL:
            return {}
        message = (
            f"SMM's VAE contains no information (KL {numbers['density/kl']:.1e}): it returns the mean observation, so "
            "the reward is the squared distance from it, not the novelty of a state; use vae_beta=0.005"
        )
        return {"VAE without information": message}

    @torch.no_grad()
    def confidence(self, batch: Batch) -> Tensor:
        return (-self._cross_entropy(batch)).exp()[:, None]

    def _cross_entropy(self, batch: Batch) -> Tensor:
        """(B,): −log d(z | s)"""
        return F.cross_entropy(self.classifier(batch.obs), batch.skill.argmax(dim=1), reduction="none")
