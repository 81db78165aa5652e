"""Contrastive Intrinsic Control (Laskin et al. 2022, arXiv:2202.00161).

Representation: noise-contrastive estimation between skills and transitions τ = (s, s') (eq. 5). Reward: a particle
estimate of the entropy of the embeddings (eq. 6), optionally plus a term D(τ, z) and the novelty of the transition.

Where the paper's text and the released code disagree, an option has both. The defaults are those of the released code,
which produced the published numbers:

- `loss="released"` subtracts the constant e^{1/T} from each row's sum instead of the row's positive;
- `particles="next_state"` embeds s' alone, not τ;
- `particle_reward="released"` counts the point itself among its k neighbours, divides distances by a running
  *variance*, subtracts 0.0005, clips at 0, averages and takes log(1 + ·). `"paper"` is the mean of log‖h − h_k‖ over
  k neighbours other than the point itself;
- the input of the policy is raw (s, z); with `encode_policy` it is the embeddings, as in Algorithm 1, as constants.
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
from cic.learning.contrastive import disagreement, log_density_ratio
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.novelty import Novelty
from cic.learning.objectives.base import Objective, SkillSpace, register
from cic.learning.particles import RunningStatistics, knn_distances

DIRECTIONS = 8  # entries of a skill that encode a direction
CHANCE_HITS = 8  # correct predictions in a batch that are explained by chance, which yields one on average
FORWARD_MODELS = 5  # whose disagreement is the novelty of a transition
MOST_ROWS = 16_384  # largest batch that is recommended


@dataclass(frozen=True)
class CICOptions:
    loss: Literal["released", "infonce"] = "released"
    """Contrastive loss: the released code's, or cross-entropy against the diagonal as in the paper."""
    particles: Literal["next_state", "transition"] = "next_state"
    """What the entropy is estimated of: the embedding of s', or of (s, s')."""
    particle_reward: Literal["released", "paper"] = "released"
    """log(1 + mean normalised distance) as in the released code, or the paper's mean log distance."""
    normaliser: Literal["variance", "std", "mean", "none"] = "variance"
    """Running statistic that divides the distances of the released particle reward."""
    reward: Literal["entropy", "discriminator", "similarity", "uncertainty", "direction"] = "entropy"
    """The term added to the entropy: nothing, log q(τ|z), cosine similarity, an ensemble's disagreement, or for half of
    the skills the cosine with the direction in their first numbers."""
    reward_weight: float = 1.0
    """Weight of the added term."""
    reward_from: float = 0.0
    """Fraction of the pre-training after which this term is added; before it, the reward is the entropy only."""
    representation: bool = True
    """Train the representation; off keeps the initial weights of the encoders."""
    entropy: bool = True
    """Reward entropy; off keeps only the added term (log q(τ|z) by default)."""
    projection: bool = True
    """Encode skills for the contrastive loss; off uses the raw skill."""
    skill_dim: int = 64
    """Dimensions of a skill."""
    embedding: int | None = None
    """Width of the embeddings; by default that of the skill, as in the released code. Without `projection`, a skill
    keeps its own width."""
    skill_every: int = 50
    """Steps for which a skill is kept in pre-training."""
    temperature: float = 0.5
    """T of the contrastive loss."""
    knn: int = 16
    """Neighbours of the particle estimate."""
    ensemble: int = 4
    """Discriminators of the uncertainty reward."""
    novelty: float = 0.0
    """Weight of the disagreement of five forward models in the reward, relative to its running mean; 0 for none."""
    encode_policy: bool = False
    """Actor and critic receive the embeddings of state and skill instead of the raw ones."""

    def __post_init__(self) -> None:
        require(self.skill_dim >= 1, f"skill_dim must be at least 1, not {self.skill_dim}")
        require(self.temperature >= 0.02, f"temperature must be at least 0.02, not {self.temperature}")
        require(0 < self.reward_weight < math.inf, f"reward_weight must be positive, not {self.reward_weight}")
        require(0 <= self.reward_from < 1, f"reward_from must lie in [0, 1), not {self.reward_from}")
        require(
            self.entropy or not self.reward_from,
            "without entropy there is no reward before reward_from: drop one of them",
        )
        require(self.knn >= 1, f"knn must be at least 1, not {self.knn}")
        require(self.skill_every >= 1, f"skill_every must be at least 1, not {self.skill_every}")
        require(self.ensemble >= 2, f"ensemble must be at least 2, not {self.ensemble}")
        require(0 <= self.novelty < math.inf, f"novelty must not be negative, not {self.novelty}")


class Discriminator(nn.Module):
    """f(τ, z): cosine of an embedded skill (query) and an embedded transition (key), over T."""

    def __init__(self, skill_dim: int, width: int, hidden: int, projection: bool) -> None:
        super().__init__()
        self.width = width if projection else skill_dim
        self.skill = mlp(skill_dim, hidden, hidden, width) if projection else nn.Identity()
        self.prediction = mlp(2 * width, hidden, hidden, self.width)

    def forward(self, transition: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        """(query, key), both of unit length; `transition` is the pair of state embeddings side by side."""
        return F.normalize(self.skill(skill), dim=1), F.normalize(self.prediction(transition), dim=1)


@register("cic")
class CIC(Objective):
    """Contrastive Intrinsic Control (Laskin et al. 2022, eq. 5 and 6)."""

    Options = CICOptions
    title = "CIC"
    released_encoder_losses = frozenset()  # it encodes without gradients
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},  # the released code's options, except for what `scales` sets
        "released": {"loss": "released"},
        "paper": {
            "loss": "infonce",
            "particles": "transition",
            "particle_reward": "paper",
            "encode_policy": True,
        },
        "explore": {"loss": "infonce", "normaliser": "std", "novelty": 1.0},  # entropy plus disagreement
        "distinct": {  # explore first; then half of the skills move in their direction
            "loss": "released",
            "normaliser": "std",
            "reward": "direction",
            "reward_weight": 4.0,
            "reward_from": 0.6,
        },
    }
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"loss": "infonce"},  # the released loss collapses with small batches (results/cic-loss)
        # With the variance, the reward decays to almost 0 within 50,000 steps.
        "laptop": {"loss": "infonce", "normaliser": "std"},
    }
    options: CICOptions

    def __init__(self, spaces: Spaces, hidden: int, options: CICOptions) -> None:
        super().__init__(spaces, hidden, options)
        self.width = options.embedding or options.skill_dim
        self.state = mlp(spaces.obs, hidden, hidden, self.width)
        count = options.ensemble if options.reward == "uncertainty" else 1
        members = [Discriminator(options.skill_dim, self.width, hidden, options.projection) for _ in range(count)]
        self.discriminator = members[0]  # the one that everything but the uncertainty reward uses
        self.others = nn.ModuleList(members[1:])
        self.pointing = (
            mlp(2 * self.width, hidden, hidden, min(DIRECTIONS, options.skill_dim))
            if options.reward == "direction"
            else None
        )
        self.statistics = RunningStatistics()
        self.apply(orthogonal_init)
        self.novelty = Novelty(spaces.obs, spaces.action, hidden, FORWARD_MODELS) if options.novelty else None

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace("box", self.options.skill_dim, self.options.skill_every)

    # ---- representation ----------------------------------------------------------------------------------------

    def _transition(self, batch: Batch) -> Tensor:
        """(B, 2·width): s and s' through the one state encoder, in one pass."""
        both = self.state(torch.cat([batch.obs, batch.next_obs]))
        return torch.cat(both.chunk(2), dim=1)

    def _similarities(self, batch: Batch) -> list[Tensor]:
        """Each discriminator's (B, B) cosines of query i and key j."""
        transition = self._transition(batch)
        pairs = (member(transition, batch.skill) for member in (self.discriminator, *self.others))
        return [query @ key.T for query, key in pairs]

    def _directions(self, batch: Batch) -> Tensor:
        """(B, B) cosines of the direction of skill i, its first numbers minus 1/2, and the direction of transition j.

        The embeddings are constants here: only the contrastive loss with the projected skill trains them.
        """
        assert self.pointing is not None
        with torch.no_grad():
            transition = self._transition(batch)
        key = self.pointing(transition)
        return F.normalize(2 * batch.skill[:, : key.shape[1]] - 1, dim=1) @ F.normalize(key, dim=1).T

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        losses = [self._contrast(similarity) for similarity in self._similarities(batch)]
        loss = torch.stack(losses).mean() if len(losses) > 1 else losses[0]
        if self.pointing is not None:
            loss = loss + self._contrast(self._directions(batch))
        metrics = {"representation/loss": loss.detach()}
        if self.novelty is not None:  # other parameters: a sum of losses trains them as two optimisers would
            error = self.novelty.error(batch)
            loss, metrics["novelty/error"] = loss + error, error.detach()
        return loss, metrics

    def _contrast(self, similarity: Tensor) -> Tensor:
        logits = similarity / self.options.temperature
        if self.options.loss == "infonce":
            return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
        rest = (logits.exp().sum(dim=1) - math.exp(1 / self.options.temperature)).clamp(min=1e-6)
        return ((rest + 1e-6).log() - logits.diagonal()).mean()

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        if self.options.representation:
            return super().parameter_groups(lr)
        return [] if self.novelty is None else [{"params": list(self.novelty.parameters()), "lr": lr}]

    # ---- reward ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        term = self.options.reward
        if not self.options.entropy and term == "entropy":
            term = "discriminator"
        reward = self._entropy(batch) if self.options.entropy else torch.zeros_like(batch.reward)
        if self.novelty is not None:
            reward = reward + self.options.novelty * self.novelty.bonus(batch)
        if term == "entropy" or self.progress < self.options.reward_from:
            return reward
        return reward + self.options.reward_weight * self._added(term, batch)

    def _added(self, term: str, batch: Batch) -> Tensor:
        if term == "direction":  # skills whose first number is below 1/2 only explore
            return self._directions(batch).diagonal()[:, None] * (2 * batch.skill[:, :1] - 1).clamp(min=0)
        similarities = self._similarities(batch)
        if term == "similarity":
            return similarities[0].diagonal()[:, None]
        logits = [similarity / self.options.temperature for similarity in similarities]
        return log_density_ratio(logits[0]) if term == "discriminator" else disagreement(torch.stack(logits))

    def _entropy(self, batch: Batch) -> Tensor:
        if self.options.particles == "next_state":
            points = self.state(batch.next_obs)
        else:
            points = self.discriminator.prediction(self._transition(batch))
        return self._particle_reward(points)

    def _particle_reward(self, points: Tensor) -> Tensor:
        k = self.options.knn
        if self.options.particle_reward == "paper":
            distances = knn_distances(points, points, min(k + 1, len(points))).sort(dim=1).values[:, 1:]
            return distances.clamp(min=1e-6).log().mean(dim=1, keepdim=True)
        distances = knn_distances(points, points, min(k, len(points)))
        if self.options.normaliser != "none":
            self.statistics.update(distances)
            scale = {"variance": self.statistics.var, "std": self.statistics.std, "mean": self.statistics.mean}
            distances = distances / scale[self.options.normaliser]
        return (distances - 0.0005).clamp(min=0).mean(dim=1, keepdim=True).log1p()

    # ---- the rest ----------------------------------------------------------------------------------------------

    @property
    def exempt(self) -> frozenset[str]:
        return frozenset() if self.options.representation else frozenset({"skills at chance"})

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.state(obs)
        return embedded

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        similarity = self._similarities(batch)[0]
        hits = similarity.argmax(dim=0) == torch.arange(len(similarity), device=similarity.device)
        return {
            "skill/accuracy": hits.float().mean(),  # of predicting the transition's skill among those of the batch
            "skill/chance": torch.tensor(1 / len(similarity)),
            "contrast/cosine": similarity.mean(),  # of all skills with all transitions; −1 is a collapse
        }

    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """Detect the collapse of the released loss: every skill opposite to every transition, all cosines −1.

        Subtracting e^{1/T} rewards a small sum over the batch, so the loss first drives all cosines to −1. From there
        it separates skills only if the directions of the embedded skills and transitions correlate by more than
        c / (B − c), with c = e^{2/T} and batches of B: 0.74 for B = 128 and T = 0.5, 0.27 for B = 256. Where 1/2 or
        more is necessary, the collapse is reported at once, otherwise if it lasts for a quarter of the pre-training.
        """
        if self.options.loss != "released" or not numbers.keys() >= {
            "contrast/cosine",
            "skill/accuracy",
            "skill/chance",
        }:
            return {}
        cosine, chance = numbers["contrast/cosine"], numbers["skill/chance"]
        if cosine > -0.99 or numbers["skill/accuracy"] > CHANCE_HITS * chance:
            return {}
        batch, constant = round(1 / chance), math.exp(2 / self.options.temperature)
        lasting = batch - constant <= 2 * constant or self.progress >= 0.25
        enough = 2 ** math.ceil(math.log2(4 * constant))
        message = (
            f"CIC's released loss has collapsed: all cosines of skills and transitions are {cosine:.3f}, with batches "
            f'of {batch} at temperature {self.options.temperature:g}; no skill is learned; use loss="infonce"'
        )
        larger = f", or batches of at least {enough}" if batch < enough <= MOST_ROWS else ""
        return {"contrastive collapse": message + larger} if lasting else {}

    @torch.no_grad()
    def confidence(self, batch: Batch) -> Tensor:
        """exp f(τ_i, z_i) / Σ_j exp f(τ_i, z_j), over the batch's skills."""
        logits = self._similarities(batch)[0] / self.options.temperature
        return logits.softmax(dim=0).diagonal()[:, None]

    @property
    def whole_input(self) -> bool:  # type: ignore[override]
        return self.options.encode_policy

    def policy_input(self, obs: Tensor, skill: Tensor) -> Tensor:
        if not self.options.encode_policy:
            return super().policy_input(obs, skill)
        with torch.no_grad():
            return torch.cat([self.state(obs), self.discriminator.skill(skill)], dim=-1)

    @property
    def policy_input_dim(self) -> int:
        return self.width + self.discriminator.width if self.options.encode_policy else super().policy_input_dim
