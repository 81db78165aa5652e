"""The update as one would write it from the paper: what ours is compared with, in time and in numbers.

Gradients for everything that has weights, s' embedded for queries and for keys, a (B, B, D) difference for the
distances, one optimiser step after another, a loop over the target's parameters, `.item()` for each metric. CIC with
its released options and DDPG only.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.types import Batch
from cic.learning.agent import Agent


class TwoHeads(nn.Module):
    """The critic with a trunk and two heads by name, taken from a `cic` critic."""

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(critic.trunk)
        self.q1, self.q2 = (_head(critic, index) for index in range(2))

    def forward(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(torch.cat([x, action], dim=-1))
        return self.q1(h), self.q2(h)


def _head(critic: nn.Module, index: int) -> nn.Sequential:
    """One of the heads whose hidden layers stand side by side in `cic`."""
    width = critic.hidden.in_features
    first = nn.Linear(width, width)
    first.load_state_dict({name: value.chunk(2)[index] for name, value in critic.hidden.state_dict().items()})
    return nn.Sequential(first, nn.ReLU(), copy.deepcopy(critic.heads[index]))


class Textbook:
    """A CIC agent updated the plain way, starting from the weights and the random generator of `agent`."""

    def __init__(self, agent: Agent) -> None:
        self.config = agent.learner.config
        objective = agent.objective
        self.state_net = copy.deepcopy(objective.state)
        self.skill_net = copy.deepcopy(objective.discriminator.skill)
        self.pred_net = copy.deepcopy(objective.discriminator.prediction)
        self.actor = nn.Sequential(copy.deepcopy(agent.learner.actor), nn.Tanh())
        self.critic, self.target = TwoHeads(agent.learner.critic), TwoHeads(agent.learner.target)
        self.generator = torch.Generator().manual_seed(0)
        self.generator.set_state(agent.generator.get_state())
        self.mean, self.var, self.count = 0.0, 1.0, 1e-4
        nets = nn.ModuleList([self.state_net, self.skill_net, self.pred_net])
        self.cic_opt = torch.optim.Adam(nets.parameters(), lr=self.config.lr)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=self.config.lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=self.config.lr)

    def update(self, batch: Batch) -> dict[str, float]:
        metrics = self.update_cic(batch)
        reward = self.intrinsic_reward(batch)
        metrics["reward"] = reward.mean().item()
        x = torch.cat([batch.obs, batch.skill], dim=-1)
        next_x = torch.cat([batch.next_obs, batch.skill], dim=-1)
        metrics |= self.update_critic(x, batch.action, reward, batch.discount, next_x)
        metrics |= self.update_actor(x)
        with torch.no_grad():
            for target, source in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                target.data.copy_(self.config.tau * source.data + (1 - self.config.tau) * target.data)
        return metrics

    def update_cic(self, batch: Batch) -> dict[str, float]:
        query = F.normalize(self.skill_net(batch.skill), dim=1)
        key = torch.cat([self.state_net(batch.obs), self.state_net(batch.next_obs)], dim=1)
        key = F.normalize(self.pred_net(key), dim=1)
        temperature = 0.5
        sim = torch.exp(query @ key.T / temperature)
        negatives = torch.clamp(sim.sum(dim=1) - math.e ** (1 / temperature), min=1e-6)
        positives = torch.exp((query * key).sum(dim=1) / temperature)
        loss = -torch.log(positives / (negatives + 1e-6)).mean()
        self.cic_opt.zero_grad()
        loss.backward()
        self.cic_opt.step()
        return {"cic_loss": loss.item()}

    @torch.no_grad()
    def intrinsic_reward(self, batch: Batch) -> Tensor:
        source, target = self.state_net(batch.next_obs), self.state_net(batch.next_obs)
        distances = (source[:, None, :] - target[None, :, :]).norm(dim=-1)
        nearest, _ = distances.topk(16, dim=1, largest=False)
        n, mean, var = nearest.numel(), nearest.mean().item(), nearest.var().item()
        total, delta = self.count + n, mean - self.mean
        spread = self.var * self.count + var * n + delta**2 * self.count * n / total
        self.mean, self.var, self.count = self.mean + delta * n / total, spread / total, total
        return torch.log(1 + torch.clamp(nearest / self.var - 0.0005, min=0).mean(dim=1, keepdim=True))

    def noisy(self, mean: Tensor) -> Tensor:
        noise = torch.randn(mean.shape, generator=self.generator) * self.config.noise
        action = mean + torch.clamp(noise, -self.config.noise_clip, self.config.noise_clip)
        clamped = torch.clamp(action, -1 + 1e-6, 1 - 1e-6)
        return action - action.detach() + clamped.detach()

    def update_critic(
        self, x: Tensor, action: Tensor, reward: Tensor, discount: Tensor, next_x: Tensor
    ) -> dict[str, float]:
        with torch.no_grad():
            q1, q2 = self.target(next_x, self.noisy(self.actor(next_x)))
            goal = reward + discount * torch.min(q1, q2)
        q1, q2 = self.critic(x, action)
        loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        return {"critic_loss": loss.item(), "q1": q1.mean().item(), "q2": q2.mean().item()}

    def update_actor(self, x: Tensor) -> dict[str, float]:
        q1, q2 = self.critic(x, self.noisy(self.actor(x)))
        loss = -torch.min(q1, q2).mean()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()
        return {"actor_loss": loss.item()}
