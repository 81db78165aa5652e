"""ProtoRL, prototypical representations (Yarats et al. 2021; SwAV, Caron et al. 2020): visit states far from others.

    loss   = cross-entropy of softmax(C · p(s) / T) against Sinkhorn(C · q(s') / T)
    reward = distance from q(s') to its third nearest candidate in a queue

C are unit prototypes, p the predictor and projector, q only the predictor: its EMA copy in the loss, the predictor
itself in the reward; all embeddings are unit vectors. Each prototype draws one candidate per batch with the softmax of
its scores, and the queue keeps the latest ones.

Deviations from the paper, all of them URLB's: states instead of augmented images with an encoder; prototypes
are learned through the online scores from the start; the queue starts at zero vectors, at distance 1 from everything.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.types import Batch, Metrics, Spaces
from cic.learning.networks import mlp, orthogonal_init
from cic.learning.objectives.base import Objective, register
from cic.learning.particles import knn_distances


@torch.no_grad()
def sinkhorn(scores: Tensor, iterations: int) -> Tensor:
    """(B, K) soft assignments: every row sums to 1 and every column approximately to B / K."""
    kernel = (scores - scores.max()).exp_()
    tiny, share = torch.finfo(kernel.dtype).tiny, kernel.shape[0] / kernel.shape[1]
    rows = kernel.new_ones(len(kernel))
    for _ in range(iterations):  # only the two scalings are iterated, the matrix is read and not written
        columns = share / (rows @ kernel).clamp_min_(tiny)
        rows = (kernel @ columns).clamp_min_(tiny).reciprocal_()
    return kernel.mul_(columns).mul_(rows[:, None])


@dataclass(frozen=True)
class ProtoOptions:
    prediction_dim: int = 128
    """Width of embeddings and prototypes."""
    projection_dim: int = 512
    """Hidden width of the projector."""
    prototypes: int = 512
    """Number of clusters."""
    temperature: float = 0.1
    """Divides the scores of the clusters."""
    sinkhorn_iterations: int = 3
    """Rounds of balancing the targets over the clusters."""
    target_rate: float = 0.05
    """Fraction by which the target predictor moves towards the online one at each update."""
    queue_size: int = 2048
    """Capacity of the queue of candidates."""
    knn: int = 3
    """The reward is the distance to the knn-th nearest candidate."""

    def __post_init__(self) -> None:
        for name in ("prediction_dim", "projection_dim", "prototypes", "sinkhorn_iterations", "knn"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(self.temperature > 0, f"temperature must be positive, not {self.temperature}")
        require(0 < self.target_rate <= 1, f"target_rate must lie in (0, 1], not {self.target_rate}")
        require(self.queue_size >= self.prototypes, "queue_size must hold a candidate of each of the prototypes")
        require(self.queue_size >= self.knn, "queue_size must be at least knn")


@register("proto")
class Proto(Objective):
    """Prototypes as representation, particle entropy as reward (Yarats et al. 2021)."""

    Options = ProtoOptions
    title = "ProtoRL"
    scales: ClassVar[dict[str, dict[str, Any]]] = {  # half as many prototypes as transitions, as at the paper's size
        "smoke": {"prototypes": 16, "queue_size": 64},
        "laptop": {"prototypes": 128, "queue_size": 512},
    }
    options: ProtoOptions
    queue: Tensor
    cursor: Tensor

    def __init__(self, spaces: Spaces, hidden: int, options: ProtoOptions) -> None:
        super().__init__(spaces, hidden, options)
        width = options.prediction_dim
        self.predictor = nn.Linear(spaces.obs, width)
        self.projector = mlp(width, options.projection_dim, width)
        self.apply(orthogonal_init)
        self.target_predictor = copy.deepcopy(self.predictor).requires_grad_(False)
        self.prototypes = nn.Parameter(F.normalize(nn.init.orthogonal_(torch.empty(options.prototypes, width)), dim=1))
        self.register_buffer("queue", torch.zeros(options.queue_size, width))
        self.register_buffer("cursor", torch.zeros(1, dtype=torch.int64))

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        levels = torch.rand(self.options.prototypes, 1, generator=generator, device=batch.obs.device)
        return batch.with_extras(levels=levels)

    def embed(self, obs: Tensor) -> Tensor:
        embedded: Tensor = self.predictor(obs)
        return embedded

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        temperature, prototypes = self.options.temperature, self.prototypes.T
        online = F.normalize(self.projector(self.predictor(batch.obs)), dim=1) / temperature
        with torch.no_grad():
            target = F.normalize(self.target_predictor(batch.next_obs), dim=1) / temperature
            assignment = sinkhorn(target @ prototypes, self.options.sinkhorn_iterations)  # (B, K)
        loss = F.cross_entropy(online @ prototypes, assignment)
        return loss, {"representation/loss": loss.detach()}

    @torch.no_grad()
    def after_step(self) -> None:
        self.prototypes.copy_(F.normalize(self.prototypes, dim=1))
        for target, online in zip(self.target_predictor.parameters(), self.predictor.parameters(), strict=True):
            target.lerp_(online, self.options.target_rate)

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        embedding = F.normalize(self.predictor(batch.next_obs), dim=1)
        self._enqueue(embedding, batch.extras["levels"])
        return knn_distances(embedding, self.queue, self.options.knn).amax(dim=1, keepdim=True)

    def _enqueue(self, embedding: Tensor, levels: Tensor) -> None:
        """Let each prototype replace the oldest candidate by an embedding of the batch; `levels` are uniform."""
        # Softmax over the batch, drawn from by inverting its distribution function: a level between 0 and the sum needs
        # no normalisation, and torch.multinomial would draw a number per (prototype, state).
        cumulative = (self.prototypes @ embedding.T).exp_().cumsum(dim=1)  # (K, B); scores are cosines, exp is safe
        drawn = torch.searchsorted(cumulative, levels * cumulative[:, -1:]).squeeze(1)  # (K,)
        slots = self.cursor + torch.arange(len(drawn), device=drawn.device)
        self.queue.index_copy_(0, slots % len(self.queue), embedding[drawn])
        self.cursor.copy_((self.cursor + len(drawn)) % len(self.queue))
