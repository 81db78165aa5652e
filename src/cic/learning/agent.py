"""DDPG around one objective (Lillicrap et al. 2016, with the settings of URLB).

`update` is the whole algorithm: representation step, intrinsic reward with the updated representation, critic, actor,
target. The learner never knows where the reward came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.errors import UserError
from cic.core.types import Array, Batch, Metrics, Spaces
from cic.learning.compilation import Compiled
from cic.learning.networks import Actor
from cic.learning.objectives import Objective, get_objective
from cic.learning.optimiser import Adam, Gradients

_EDGE = 1 - 1e-6  # actions stay inside (-1, 1), where tanh's inverse exists


@dataclass(frozen=True)
class AgentConfig:
    hidden: int = 1024
    """Width H of every hidden layer."""
    batch: int = 1024
    """Transitions per update."""
    lr: float = 1e-4
    """Adam's learning rate."""
    gamma: float = 0.99
    """Discount."""
    nstep: int = 3
    """Steps of the n-step return; objectives see (s_t, s_{t+n})."""
    tau: float = 0.01
    """Share of the critic that the target takes over per update."""
    noise: float = 0.2
    """Standard deviation of the exploration noise."""
    noise_clip: float = 0.3
    """Bound of that noise inside updates."""

    def __post_init__(self) -> None:
        require(self.hidden >= 1, f"hidden must be at least 1, not {self.hidden}")
        require(self.batch >= 2, f"batch must be at least 2, not {self.batch}")
        require(self.lr > 0, f"lr must be positive, not {self.lr}")
        require(0 <= self.gamma <= 1, f"gamma must lie in [0, 1], not {self.gamma}")
        require(self.nstep >= 1, f"nstep must be at least 1, not {self.nstep}")
        require(0 < self.tau <= 1, f"tau must lie in (0, 1], not {self.tau}")
        require(self.noise >= 0 and self.noise_clip >= 0, "noise and noise_clip must not be negative")


class Agent(nn.Module):
    """Actor, critic and target around an objective; `learn_objective` is off while finetuning."""

    def __init__(
        self,
        spaces: Spaces,
        objective: str,
        options: Any,
        config: AgentConfig,
        *,
        seed: int = 0,
        device: str = "cpu",
        learn_objective: bool = True,
    ) -> None:
        super().__init__()
        self.spaces, self.config, self.device = spaces, config, torch.device(device)
        self.learn_objective = learn_objective
        self.generator = torch.Generator(self.device).manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # initialisation draws from torch's global generator
            torch.manual_seed(seed)
            self.objective: Objective = get_objective(objective)(spaces, config.hidden, options, self.generator)
            self.actor = Actor(self.objective.policy_input_dim, spaces.action, config.hidden)
            self.critic = self.objective.make_critic()
            self.target = self.objective.make_critic()
        self.target.load_state_dict(self.critic.state_dict())
        self.target.requires_grad_(False)
        self.to(self.device)
        self._skill_dim = self.objective.skill.dim
        self._target_weights: list[Tensor] = list(self.target.parameters())
        self._critic_weights: list[Tensor] = list(self.critic.parameters())
        self._gradients: dict[str, Callable[..., tuple[Gradients, Metrics]]] = {
            "objective": self._objective_gradients,
            "critic": self._critic_gradients,
            "actor": self._actor_gradients,
        }

    @cached_property
    def optimisers(self) -> dict[str, Adam]:
        """Made when first needed: an agent that only acts goes without."""
        lr = self.config.lr
        optimisers = {
            "actor": Adam([{"params": self.actor.parameters(), "lr": lr}]),
            "critic": Adam([{"params": self.critic.parameters(), "lr": lr}]),
        }
        groups = self.objective.parameter_groups(lr) if self.learn_objective else []
        if groups:
            optimisers["objective"] = Adam(groups)
        return optimisers

    # ---- acting ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def act(self, obs: Array, skill: Array | None = None, *, explore: bool = False) -> Array:
        """(N, action) for (N, obs) and (N, skill), or one action for one observation."""
        action = self.actor(self.objective.policy_input(*self._inputs(obs, skill)))
        if explore and self.config.noise:
            action.add_(self._normal(action.shape), alpha=self.config.noise)
        result: Array = action.clamp_(-_EDGE, _EDGE).cpu().numpy()
        return result if np.ndim(obs) == 2 else result[0]

    def _inputs(self, obs: Array, skill: Array | None) -> tuple[Tensor, Tensor]:
        obs = np.ascontiguousarray(obs, np.float32)
        skill = np.zeros(0, np.float32) if skill is None else np.ascontiguousarray(skill, np.float32)
        rows = obs.shape[0] if obs.ndim == 2 else 1
        if obs.shape[-1] != self.spaces.obs:
            raise UserError(f"this agent observes {self.spaces.obs} numbers, not {obs.shape[-1]}")
        if skill.shape[-1] != self._skill_dim:
            raise UserError(f"this agent's skills have dimension {self._skill_dim}, not {skill.shape[-1]}")
        if skill.ndim == 2 and skill.shape[0] not in (1, rows):
            raise UserError(f"{rows} observations need one skill or as many, not {skill.shape[0]}")
        if skill.ndim == 1 or skill.shape[0] != rows:
            skill = np.broadcast_to(skill, (rows, skill.shape[-1])).copy()
        obs_tensor, skill_tensor = torch.from_numpy(obs.reshape(rows, -1)), torch.from_numpy(skill)
        return obs_tensor.to(self.device), skill_tensor.to(self.device)

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device)

    def _update_noise(self, shape: torch.Size) -> Tensor:
        clip = self.config.noise_clip
        return (self.config.noise * self._normal(shape)).clamp_(-clip, clip)

    # ---- learning ----------------------------------------------------------------------------------------------

    def update(self, batch: Batch, *, actor: bool = True) -> Metrics:
        """One gradient step of everything, or of all but the actor. Metrics are tensors: reading them is what waits."""
        metrics: Metrics = {}
        if self.learn_objective:
            if "objective" in self.optimisers:
                metrics |= self._descend("objective", batch)
                self.objective.after_step()
            batch = batch._replace(reward=self.objective.reward(batch))
        obs = self.objective.policy_input(batch.obs, batch.skill)
        next_obs = self.objective.policy_input(batch.next_obs, batch.skill)
        metrics |= self._descend("critic", batch, obs, next_obs, self._update_noise(batch.action.shape))
        if actor:
            metrics |= self._descend("actor", obs, batch.skill, self._update_noise(batch.action.shape))
        self._update_target()
        metrics["reward/intrinsic" if self.learn_objective else "reward/task"] = batch.reward.mean()
        return metrics

    def _descend(self, name: str, *inputs: Any) -> Metrics:
        """One optimiser step of a part of the agent."""
        gradients, metrics = self._gradients[name](*inputs)
        self.optimisers[name].step(gradients)
        return metrics

    def compile_gradients(self) -> None:
        """From now on by `torch.compile`: the same numbers to within rounding, sooner."""
        siblings: list[Compiled] = []
        for name in self.optimisers:  # which makes them here: their making is not to be traced
            self._gradients[name] = Compiled(self._gradients[name], self.device, siblings)

    # The three functions below are pure: what is random comes in, gradients go out. So they can be compiled.

    def _objective_gradients(self, batch: Batch) -> tuple[Gradients, Metrics]:
        loss, metrics = self.objective.loss(batch)
        return self.optimisers["objective"].gradients(loss), metrics

    def _critic_gradients(
        self, batch: Batch, obs: Tensor, next_obs: Tensor, noise: Tensor
    ) -> tuple[Gradients, Metrics]:
        with torch.no_grad():
            next_action = _noisy(self.actor(next_obs), noise)
            next_q = self.target(next_obs, next_action, batch.skill).amin(dim=0)  # (B, 1)
            goal = torch.addcmul(batch.reward, batch.discount, next_q)
        q = self.critic(obs, batch.action, batch.skill)  # (2, B, 1)
        loss = (q - goal).square().mean(dim=(1, 2)).sum()
        metrics = {"critic/loss": loss.detach(), "critic/q": q.detach().mean(), "critic/target": goal.mean()}
        return self.optimisers["critic"].gradients(loss), metrics

    def _actor_gradients(self, obs: Tensor, skill: Tensor, noise: Tensor) -> tuple[Gradients, Metrics]:
        """They pass through the critic; none are made for its weights."""
        action = _noisy(self.actor(obs), noise)
        loss = -self.critic(obs, action, skill).amin(dim=0).mean()
        return self.optimisers["actor"].gradients(loss), {"actor/loss": loss.detach()}

    @torch.no_grad()
    def _update_target(self) -> None:
        torch._foreach_lerp_(self._target_weights, self._critic_weights, self.config.tau)

    # ---- weights from elsewhere --------------------------------------------------------------------------------

    @torch.no_grad()
    def inherit(self, other: Agent, critic: Literal["trunk", "all", "none"]) -> None:
        """Take over a pre-trained agent's objective, actor and as much of its critic as asked; the target follows."""
        self.objective.load_state_dict(other.objective.state_dict())
        self.actor.load_state_dict(other.actor.state_dict())
        if critic == "all":
            self.critic.load_state_dict(other.critic.state_dict())
        elif critic == "trunk":
            self.critic.trunk.load_state_dict(other.critic.trunk.state_dict())
        self.target.load_state_dict(self.critic.state_dict())

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def optimiser_state(self) -> dict[str, Tensor]:
        """Adam's moments and counters as flat names, and the generator."""
        flat = {"generator": self.generator.get_state()}
        for name, optimiser in self.optimisers.items():
            flat |= {f"{name}.{slot}": value for slot, value in optimiser.state().items()}
        return flat

    def load_optimiser_state(self, flat: dict[str, Tensor]) -> None:
        self.generator.set_state(flat["generator"].cpu())
        for name, optimiser in self.optimisers.items():
            mine = {key.removeprefix(f"{name}."): value for key, value in flat.items() if key.startswith(f"{name}.")}
            optimiser.restore(mine)


def _noisy(mean: Tensor, noise: Tensor) -> Tensor:
    """The update's action: a clamp that lets gradients straight through."""
    action = mean + noise
    return action + (action.clamp(-_EDGE, _EDGE) - action).detach()
