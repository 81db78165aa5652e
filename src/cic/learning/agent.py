"""An agent is three parts: an encoder, an objective and a learner.

`update` is the whole algorithm: representation step, intrinsic reward with the updated representation, then the
learner's own update. The learner never knows where the reward came from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cic.core.errors import UserError
from cic.core.types import OBSERVED, Array, Batch, Metrics, Spaces
from cic.learning.compilation import Compiled
from cic.learning.encoders import Encoder, Identity
from cic.learning.learners import Learner, LearnerConfig, get_learner
from cic.learning.learners.base import Keep
from cic.learning.objectives import Objective, get_objective
from cic.learning.optim import Adam, Descent, Loss


class Agent(nn.Module):
    """Acts by a skill and learns from batches. The parts are given; `build_agent` makes them from their names."""

    def __init__(
        self,
        spaces: Spaces,
        encoder: Encoder,
        objective: Objective,
        learner: Learner,
        *,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.spaces, self.device = spaces, torch.device(device)
        self.encoder, self.objective, self.learner = encoder, objective, learner
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.skill: Array | None = None
        """The skill by which it acts when none is given: the one that a finetuning chose."""
        self._skill_dim = objective.skills.dim
        self._learns = bool(objective.parameter_groups(learner.config.lr))
        self._optimisers: dict[str, Adam] = {}
        self._descents: dict[str, Descent] = {}
        self._compiled: list[Compiled] | None = None
        self.to(self.device)

    # ---- acting ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def act(
        self, obs: Array, skill: Array | None = None, *, explore: bool = False, actor: nn.Module | None = None
    ) -> Array:
        """(N, action) for (N, obs) and (N, skill), or one action for one observation; by `actor` if given."""
        seen, by = self._tensors(obs, self.skill if skill is None else skill)
        x = self.objective.policy_input(self.encoder(seen), by)
        action = self.learner.act(x, explore, self.generator) if actor is None else self.learner.mean_action(x, actor)
        result: Array = action.cpu().numpy()
        return result if np.ndim(obs) == 2 else result[0]

    @torch.inference_mode()
    def value(self, obs: Array, action: Array, skill: Array) -> Array:
        """(N,): what the critic says of these actions, the smaller of its two values."""
        seen, by = self._tensors(obs, skill)
        x = self.objective.policy_input(self.encoder(seen), by)
        taken = torch.from_numpy(np.ascontiguousarray(action, np.float32)).to(self.device)
        found: Array = self.learner.critic(x, taken, by).amin(dim=0).squeeze(-1).cpu().numpy()
        return found

    def predict(
        self, observation: Array, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """`act` in the form of Stable-Baselines3, by the agent's own skill: the actions, and the state as it came."""
        return self.act(observation, explore=not deterministic), state

    def _tensors(self, obs: Array, skill: Array | None) -> tuple[Tensor, Tensor]:
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

    # ---- learning ----------------------------------------------------------------------------------------------

    def update(self, *batches: Batch, intrinsic: bool, actor: bool = True) -> Metrics:
        """One update: of the representation and the learner, paid by the objective, or of the learner alone, paid by
        the task. Metrics are tensors: reading them is what waits."""
        metrics: Metrics = {}
        if intrinsic:
            for batch in batches:
                batch = self._prepare(batch)
                metrics |= self._learn_representation(batch)
            reward = self.objective.reward(self.encode(batch, detached=True))
            batch = batch._replace(reward=reward)
        else:
            batch = batches[-1]
        metrics |= self.learner.update(self._policy_batch(batch), self._descend, self.generator, actor=actor)
        metrics["reward/intrinsic" if intrinsic else "reward/task"] = batch.reward.mean()
        return metrics

    def _prepare(self, batch: Batch) -> Batch:
        """What the objective draws and computes beforehand: from features, like all that it sees."""
        seen = self.encode(batch, detached=True)
        prepared = self.objective.prepare(seen, self.generator)
        if seen is batch:
            return prepared
        raw = {name: batch.extras[name] for name in OBSERVED if name in batch.extras}
        return prepared._replace(obs=batch.obs, next_obs=batch.next_obs).with_extras(**raw)

    def _learn_representation(self, batch: Batch) -> Metrics:
        if not self._learns:
            return {}
        metrics = self._descend("objective", self.encode(batch, detached=not self._teaches("objective")))
        self.objective.after_step()
        return metrics

    def encode(self, batch: Batch, *, detached: bool) -> Batch:
        """The batch as the objective sees it."""
        if isinstance(self.encoder, Identity):
            return batch
        with torch.set_grad_enabled(not detached):
            seen = {name: self.encoder(batch.extras[name]) for name in OBSERVED if name in batch.extras}
            batch = batch._replace(obs=self.encoder(batch.obs), next_obs=self.encoder(batch.next_obs))
        return batch.with_extras(**seen)

    def _policy_batch(self, batch: Batch) -> Batch:
        """The batch as actor and critic see it."""
        batch = self.encode(batch, detached=not self._teaches("critic"))
        obs = self.objective.policy_input(batch.obs, batch.skill)
        return batch._replace(obs=obs, next_obs=self.objective.policy_input(batch.next_obs, batch.skill))

    def _teaches(self, name: str) -> bool:
        return name in self.encoder.learns_from

    # ---- optimisers, made when first needed: an agent that only acts goes without --------------------------------

    def _descend(self, name: str, *inputs: Any) -> Metrics:
        return self.descent(name).step(*inputs)

    def descent(self, name: str) -> Descent:
        """How the objective or a part of the learner learns."""
        if name not in self._descents:
            self._descents[name] = self._make_descent(name)
        return self._descents[name]

    def _make_descent(self, name: str) -> Descent:
        loss: Loss = self.objective.loss if name == "objective" else self.learner.losses()[name][0]
        optimisers = [self._optimiser(name)]
        if self._teaches(name):
            optimisers.append(self._optimiser("encoder"))
        descent = Descent(loss, *optimisers)
        if self._compiled is not None and not self._teaches(name):  # an encoder's graph begins outside of the loss
            descent.compile(self.device, self._compiled)
        return descent

    def _optimiser(self, name: str) -> Adam:
        if name not in self._optimisers:
            self._optimisers[name] = Adam(self._groups(name))
        return self._optimisers[name]

    def _groups(self, name: str) -> list[dict[str, Any]]:
        lr = self.learner.config.lr
        if name == "objective":
            return self.objective.parameter_groups(lr)
        weights = self.encoder.parameters() if name == "encoder" else self.learner.losses()[name][1]
        return [{"params": list(weights), "lr": lr}]

    def compile_losses(self) -> None:
        """From now on gradients come by `torch.compile`: the same numbers to within rounding, sooner."""
        self._compiled = []
        self._descents.clear()

    # ---- weights from elsewhere --------------------------------------------------------------------------------

    @torch.no_grad()
    def inherit(self, weights: dict[str, Tensor], critic: Keep) -> None:
        """Take over a pre-trained agent's encoder, objective, actor and as much of its critic as asked."""
        for part, module in (("encoder.", self.encoder), ("objective.", self.objective)):
            module.load_state_dict(_below(part, weights))
        self.learner.inherit(_below("learner.", weights), critic)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def optimiser_state(self) -> dict[str, Tensor]:
        """Adam's moments and counters as flat names, and the generator."""
        flat = {"generator": self.generator.get_state()}
        for name, optimiser in self._optimisers.items():
            flat |= {f"{name}.{slot}": value for slot, value in optimiser.state().items()}
        return flat

    def restore_optimisers(self, flat: dict[str, Tensor]) -> None:
        self.generator.set_state(flat["generator"].cpu())
        for name in {key.partition(".")[0] for key in flat if "." in key}:
            self._optimiser(name).restore(_below(f"{name}.", flat))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def build_agent(
    spaces: Spaces,
    objective: str,
    options: Any,
    learner: str,
    config: LearnerConfig,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> Agent:
    """An agent on states, with weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):  # initialisation draws from torch's global generator
        torch.manual_seed(seed)
        method = get_objective(objective)(spaces, config.hidden, options)
        actor_critic = get_learner(learner).build(config, method.policy_input_dim, spaces.action, method.make_critic)
    return Agent(spaces, Identity(spaces.obs), method, actor_critic, seed=seed, device=device)
