"""Successor features: a critic that says what features are to come, and the skill that a reward is in their terms."""

from __future__ import annotations

import torch
from torch import Tensor

from cic.core.types import Batch, Metrics
from cic.learning.networks import Critic


class SuccessorCritic(Critic):
    """Heads that say successor features ψ (Barreto et al. 2017); the value of a skill is its product with them.

    Paid in features (B, D), ψ learns each of them: y = φ + γ ψ'_j(s', a'), j the target head that values the skill
    least, without the learner's bonus. Paid by a task (B, 1), the product learns alone, as any critic does.
    """

    def forward(self, x: Tensor, action: Tensor, skill: Tensor) -> Tensor:
        return (self.features(x, action) * skill).sum(dim=-1, keepdim=True)  # (2, B, 1)

    def td_loss(
        self, target: Critic, batch: Batch, next_action: Tensor, bonus: Tensor | float
    ) -> tuple[Tensor, Metrics]:
        if batch.reward.shape[1] == 1:
            return super().td_loss(target, batch, next_action, bonus)
        with torch.no_grad():
            coming = target.features(batch.next_obs, next_action)  # (2, B, D)
            first, second = (coming * batch.skill).sum(dim=-1, keepdim=True)
            goal = batch.reward + batch.discount * torch.where(first <= second, coming[0], coming[1])
        features = self.features(batch.obs, batch.action)
        loss = (features - goal).square().mean(dim=(1, 2)).sum()
        q = (features.detach() * batch.skill).sum(dim=-1).mean()
        wanted = (goal * batch.skill).sum(dim=-1).mean()
        return loss, {"critic/loss": loss.detach(), "critic/q": q, "critic/target": wanted}


def least_squares(features: Tensor, reward: Tensor, ridge: float = 0.0) -> Tensor | None:
    """(dim,): the direction whose product with the features (N, dim) is nearest to the rewards (N, 1), of length 1.

    In double precision and by the pseudo-inverse, for features that do not span their space. `ridge`, in units of the
    features' mean square, holds back directions in which they hardly differ. Rewards that say nothing (all zero, as
    before a sparse task is first solved) give none: a zero skill has no value to learn.
    """
    x, y = features.double(), reward.double()
    if ridge:
        solution = torch.linalg.solve(x.T @ x + ridge_of(x.T @ x, ridge), x.T @ y).squeeze(1)
    else:
        solution = (torch.linalg.pinv(x) @ y).squeeze(1)
    length = torch.linalg.vector_norm(solution)
    return (solution / length).to(features.dtype) if length > 1e-6 else None


def ridge_of(squares: Tensor, ridge: float) -> Tensor:
    """What is added to a matrix of second moments (D, D): `ridge` times its mean eigenvalue, on the diagonal."""
    count = len(squares)
    return (ridge * squares.trace() / count + 1e-12) * torch.eye(count, dtype=squares.dtype, device=squares.device)
