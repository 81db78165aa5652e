"""Successor features: a critic that predicts future features, and the regression of a skill from rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from cic.core.types import Batch, Metrics
from cic.learning.networks import Critic


class SuccessorCritic(Critic):
    """Heads that predict successor features ψ (Barreto et al. 2017); the value of a skill is its product with them.

    With features (B, D) as reward, ψ learns each of them: y = φ + γ ψ'_j(s', a'), where j is the target head with the
    smaller value for the skill; the learner's bonus is not used. With the reward (B, 1) of a task, the product learns
    as in any critic.
    """

    def forward(self, x: Tensor, action: Tensor, skill: Tensor) -> Tensor:
        return (self.features(x, action) * skill).sum(dim=-1, keepdim=True)  # (2, B, 1)

    def values(self, x: Tensor) -> Tensor:
        return (self.table(x) * x[:, None, -self.out :]).sum(dim=-1)  # `x` ends with the skill

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
    """Return the unit vector (dim,) whose product with the features (N, dim) is nearest to the rewards (N, 1).

    The solution uses double precision and the pseudo-inverse, because features may not span their space. `ridge`,
    relative to the features' mean square, damps directions in which they hardly differ. Rewards without information
    (all zero, as before a sparse task is first solved) give None: a zero skill has no value to learn.
    """
    x, y = features.double(), reward.double()
    if ridge:
        solution = torch.linalg.solve(x.T @ x + ridge_of(x.T @ x, ridge), x.T @ y).squeeze(1)
    else:
        solution = (torch.linalg.pinv(x) @ y).squeeze(1)
    length = torch.linalg.vector_norm(solution)
    return (solution / length).to(features.dtype) if length > 1e-6 else None


def ridge_of(squares: Tensor, ridge: float) -> Tensor:
    """Return the matrix to add to second moments (D, D): `ridge` times their mean eigenvalue, on the diagonal."""
    count = len(squares)
    return (ridge * squares.trace() / count + 1e-12) * torch.eye(count, dtype=squares.dtype, device=squares.device)
