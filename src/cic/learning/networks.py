"""Actor, critic and MLPs."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.types import Batch, Metrics


def mlp(*sizes: int) -> nn.Sequential:
    """`mlp(24, 256, 256, 64)`: Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class _Tanh(torch.autograd.Function):
    """tanh x = 2 σ(2x) − 1, to within 2e-7: three times as fast as torch's on a CPU, which saves 3 % of an update."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = (x + x).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, out)  # type: ignore[no-any-return]


class Tanh(nn.Tanh):
    def forward(self, x: Tensor) -> Tensor:
        return _Tanh.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def trunk(fan_in: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(fan_in, width), nn.LayerNorm(width), Tanh())


def orthogonal_init(module: nn.Module) -> None:
    """Orthogonal weights and zero biases for every Linear below; apply with `module.apply(orthogonal_init)`."""
    if isinstance(module, nn.Linear):
        nn.init.orthogonal_(module.weight)
        nn.init.zeros_(module.bias)


class Actor(nn.Module):
    """A trunk and one hidden layer. Learners apply the tanh to its output."""

    def __init__(self, input_dim: int, out: int, hidden: int) -> None:
        super().__init__()
        self.trunk = trunk(input_dim, hidden)
        self.head = mlp(hidden, hidden, out)
        self.apply(orthogonal_init)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.trunk(x))
        return out


def expected(table: Tensor, action: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Select from a table (…, B, choices, out) with one-hot actions or probabilities (B, choices): (…, B, out)."""
    return (table * action.unsqueeze(-1)).sum(dim=-2) / len(choices)


class Critic(nn.Module):
    """Two Q heads `H → H → out` on a shared trunk, and their loss.

    One Linear(H, 2H) holds the hidden layers of both heads, each initialised separately. This gives the same numbers
    with half the calls; an update at `laptop` scale takes 4 % less time.

    With discrete actions (`choices`), the heads have an output for every choice, and one-hot actions select from them.
    An action of several choices has the mean of their outputs (Seyde et al. 2023). The outputs are linear in the
    action, so probabilities in its place give the expectation under a policy.
    """

    choices: tuple[int, ...] = ()

    def __init__(
        self, input_dim: int, action_dim: int, hidden: int, out: int = 1, choices: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.choices, self.out = choices, out
        self.trunk = trunk(input_dim if choices else input_dim + action_dim, hidden)
        self.hidden = nn.Linear(hidden, 2 * hidden)
        # The weights of the last layers are only drawn below, so that seeds give the weights of version 0.1.
        width = out * action_dim if choices else out
        last = [nn.utils.skip_init(nn.Linear, hidden, width) for _ in range(2)]  # type: ignore[no-untyped-call]
        self.heads = nn.ModuleList(last)
        orthogonal_init(self.trunk[0])
        nn.init.zeros_(self.hidden.bias)
        for weight, head in zip(self.hidden.weight.chunk(2), self.heads, strict=True):
            nn.init.orthogonal_(weight)
            orthogonal_init(head)

    def features(self, x: Tensor, action: Tensor) -> Tensor:
        """The outputs (2, B, out) of both heads."""
        if self.choices:
            return expected(self.table(x), action, self.choices)
        return self._heads(torch.cat([x, action], dim=-1))

    def _heads(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.hidden(self.trunk(inputs)))  # (B, 2H)
        return torch.stack([head(half) for head, half in zip(self.heads, hidden.chunk(2, dim=-1), strict=True)])

    def table(self, x: Tensor) -> Tensor:
        """The outputs (2, B, choices, out) for every choice of a discrete action."""
        outputs = self._heads(x)
        return outputs.reshape(*outputs.shape[:-1], -1, self.out)

    def values(self, x: Tensor) -> Tensor:
        """Both Q-values (2, B, choices) of every choice of a discrete action."""
        return self.table(x).squeeze(-1)

    def forward(self, x: Tensor, action: Tensor, skill: Tensor) -> Tensor:
        """Both Q-values (2, B, 1); the actor maximises their minimum. This critic does not use `skill`."""
        return self.features(x, action)

    def td_loss(
        self, target: Critic, batch: Batch, next_action: Tensor, bonus: Tensor | float
    ) -> tuple[Tensor, Metrics]:
        """Return the sum of both heads' mean squared errors against r + γ (min Q'(s', a') + bonus), and metrics.

        Override it for a critic with another loss, for example one that predicts features.

        Args:
            target: The target network.
            batch: `obs` and `next_obs` are inputs of actor and critic.
            next_action: a'.
            bonus: Added to the value of the next state, for example SAC's entropy.
        """
        with torch.no_grad():
            next_q = target(batch.next_obs, next_action, batch.skill).amin(dim=0)  # (B, 1)
            goal = torch.addcmul(batch.reward, batch.discount, next_q + bonus)
        q = self(batch.obs, batch.action, batch.skill)  # (2, B, 1)
        loss = (q - goal).square().mean(dim=(1, 2)).sum()
        return loss, {"critic/loss": loss.detach(), "critic/q": q.detach().mean(), "critic/target": goal.mean()}


# ---- ensembles of forward models -------------------------------------------------------------------------------


def ensemble_layers(members: int, fan_in: int, fan_out: int) -> tuple[nn.Parameter, nn.Parameter]:
    """The weights and biases of one Linear per member, each drawn as PyTorch draws a Linear's: U(±1/√fan_in)."""
    bound = fan_in**-0.5
    weight = torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)
    bias = torch.empty(members, 1, fan_out).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(bias)


def ensemble_predictions(batch: Batch, first: tuple[Tensor, Tensor], last: tuple[Tensor, Tensor]) -> Tensor:
    """(members, B, obs): the next observations that forward models with one hidden layer predict."""
    (weight_in, bias_in), (weight_out, bias_out) = first, last
    inputs = torch.cat([batch.obs, batch.action], dim=1).expand(len(bias_in), -1, -1)
    hidden = F.relu(torch.baddbmm(bias_in, inputs, weight_in), inplace=True)  # (members, B, H)
    return torch.baddbmm(bias_out, hidden, weight_out)


def ensemble_variance(predictions: Tensor) -> Tensor:
    """(B, 1): the unbiased variance over the members (members, B, obs), a mean over dimensions."""
    deviations = predictions - predictions.mean(dim=0)  # torch.var over a leading dimension is 40 times slower
    return deviations.square_().sum(dim=0).mean(dim=1, keepdim=True) / (len(predictions) - 1)
