"""CURL (Laskin et al. 2020): a contrastive loss over augmented images, which trains an image encoder.

    logits_ij = q_i W k_j − max_j q_i W k_j,  q = f(one shift of the images), k = f_EMA(another shift)
    loss      = mean_i −log softmax_j(logits_ij) at j = i

The key encoder f_EMA follows the encoder f by an exponential moving average with the rate 0.05.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.types import Metrics
from cic.learning.encoders import PartEncoder

RATE = 0.05


class CURL(nn.Module):
    """The bilinear similarity and the key encoder. The loss also trains the encoder that it is given."""

    def __init__(self, encoder: PartEncoder) -> None:
        super().__init__()
        width = encoder.config.image_features * len(encoder.images)
        self.weight = nn.Parameter(torch.rand(width, width))
        self.key = copy.deepcopy(encoder).requires_grad_(False)

    def loss(self, encoder: PartEncoder, anchor: Tensor, positive: Tensor) -> tuple[Tensor, Metrics]:
        """Return the loss for two augmentations (N, obs) of the same observations."""
        query = encoder.image_features(anchor)
        with torch.no_grad():
            key = self.key.image_features(positive)
        logits = query @ self.weight @ key.T
        logits = logits - logits.amax(dim=1, keepdim=True).detach()
        labels = torch.arange(len(logits), device=logits.device)
        loss = F.cross_entropy(logits, labels)
        correct = (logits.argmax(dim=1) == labels).float().mean()
        return loss, {"auxiliary/loss": loss.detach(), "auxiliary/accuracy": correct}

    @torch.no_grad()
    def follow(self, encoder: PartEncoder) -> None:
        """Move the key encoder towards the encoder."""
        torch._foreach_lerp_(list(self.key.parameters()), list(encoder.parameters()), RATE)
