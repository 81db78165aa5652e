"""An agent has three parts: an encoder, an objective and a learner.

`Agent.update` is the whole algorithm: a gradient step of the representation, the intrinsic reward with the updated
representation, then the learner's update. The learner does not depend on the source of the reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cic.core.action_spaces import own_action
from cic.core.errors import UserError
from cic.core.named_quantities import Quantities
from cic.core.spaces import Layout, flatten_any, leaves
from cic.core.types import OBSERVED, Array, Batch, Metrics, Spaces
from cic.learning.compilation import Compiled
from cic.learning.curl import CURL
from cic.learning.diagnosis import state_of_policy, state_of_representation
from cic.learning.encoders import Encoder, EncoderConfig, Identity, Normaliser, PartEncoder, make_encoder
from cic.learning.learners import Learner, LearnerConfig, get_learner
from cic.learning.learners.base import Keep, learners_for
from cic.learning.objectives import Objective, get_objective
from cic.learning.objectives.steer import Steer
from cic.learning.optim import Adam, GradientStep
from cic.learning.prompts import Answer, Prompt, SkillPaths, answer, no_paths
from cic.learning.seeding import seeded


class Agent(nn.Module):
    """Acts with a skill and learns from batches. `build_agent` creates one from the names of its parts."""

    def __init__(
        self,
        spaces: Spaces,
        encoder: Encoder,
        objective: Objective,
        learner: Learner,
        *,
        auxiliary: CURL | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.spaces, self.device = spaces, torch.device(device)
        self.auxiliary = auxiliary
        self.encoder, self.objective, self.learner = encoder, objective, learner
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.skill: Array | None = None
        """The skill that `act` uses if none is given: the one that finetuning chose."""
        self.layout: Layout | None = None
        """The environment's own spaces, which `predict` uses; None if they are unknown."""
        self.quantities: Quantities = objective.quantities if isinstance(objective, Steer) else ()
        """The quantities that prompts may name."""
        self.load_library: Callable[[], SkillPaths] = lambda: no_paths(objective)
        """Reads what the skills do, from the run folder."""
        self._skill_dim = objective.skills.dim
        self.to(self.device)
        self._create_optimisers()

    # ---- acting ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def act(
        self, obs: Array, skill: Array | None = None, *, explore: bool = False, actor: nn.Module | None = None
    ) -> Array:
        """Return actions (N, action) for (N, obs) and (N, skill), or one action for one observation.

        Args:
            obs: Observations.
            skill: One skill per observation, or one for all; by default `self.skill`.
            explore: Add exploration noise.
            actor: Another actor network to use instead of the learner's.
        """
        seen, by = self._tensors(obs, self.skill if skill is None else skill)
        x = self.objective.policy_input(self.encoder(seen), by)
        action = self.learner.act(x, explore, self.generator) if actor is None else self.learner.mean_action(x, actor)
        result: Array = action.cpu().numpy()
        return result if np.ndim(obs) == 2 else result[0]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[npt.NDArray[Any], Any]:
        """Return the environment's own action for its own observation, with the signature of Stable-Baselines3.

        Unlike `act`, it accepts Dict and Tuple observations, scales the action to the bounds of the action space and
        returns the indices of discrete actions. An agent that was not loaded from a run folder of this version acts as
        `act` does.

        Args:
            observation: One observation, or a batch, whose arrays have one more axis.
            state: Returned unchanged.
            episode_start: Not used.
            deterministic: Use the mean action, without exploration noise.
        """
        if self.layout is None:
            return self.act(observation, explore=not deterministic), state
        flat, batched = flatten_any(leaves(self.layout.observation), observation, "predict")
        if not np.isfinite(flat).all():
            raise UserError("predict: the observation contains NaN or infinite values")
        action = own_action(self.layout.action, self.act(flat, explore=not deterministic))
        return (action if batched else action[0]), state

    def prompt(self, wanted: Prompt) -> Array:
        """Choose the skill that maximises a reward, use it in `act` from now on, and return it.

        Args:
            wanted: A formula of named quantities (`"speed * upright"`), a function of observations (N, obs) that
                returns rewards (N,), or an observation to reach.
        """
        self.skill = self.answer(wanted).skill
        return self.skill

    def answer(self, wanted: Prompt) -> Answer:
        """Find the skill for a prompt, and how it was found; the agent does not change."""
        return answer(self.objective, wanted, self.quantities, self.load_library())

    def _tensors(self, obs: Array, skill: Array | None) -> tuple[Tensor, Tensor]:
        obs = np.ascontiguousarray(obs, np.float32)
        if skill is None and self._skill_dim:
            raise UserError(
                "this agent has no chosen skill: set `agent.skill`, for example to "
                "`agent.objective.skills.sample(1, numpy.random.default_rng(0))[0]`"
            )
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

    @torch.no_grad()
    def features(self, obs: npt.NDArray[Any], rows: int = 256) -> Tensor:
        """Return the features (N, dim) of observations (N, obs) that the objective uses, on the agent's device.

        Images are encoded `rows` at a time.
        """
        if not self.spaces.images:
            tensor = torch.from_numpy(np.ascontiguousarray(obs, np.float32)).to(self.device)
            return self._columns(self.encoder(tensor))
        blocks = np.array_split(obs, max(-(-len(obs) // rows), 1))
        return self._columns(torch.cat([self.encoder(torch.from_numpy(block).to(self.device)) for block in blocks]))

    # ---- learning ----------------------------------------------------------------------------------------------

    def update(self, *batches: Batch, intrinsic: bool, actor: bool = True) -> Metrics:
        """Take one update and return its metrics as tensors, because reading a value would wait for the device.

        Args:
            batches: `objective.needs.batches` batches; the representation learns from each, the policy from the last.
            intrinsic: Train the representation and the learner on the objective's reward. Otherwise train the learner
                alone on the reward of the batch.
            actor: Also update the actor.
        """
        shifted = [self._augmented(batch) for batch in batches]
        metrics = self._update_auxiliary(shifted[-1].obs, batches[-1].obs)
        batch = shifted[-1]
        if intrinsic:
            for batch in shifted:
                batch = self._prepare(batch)
                metrics |= self._update_representation(batch)
        batch = self._features(batch, extras=intrinsic)
        if intrinsic:
            batch = batch._replace(reward=self.objective.reward(self._seen(batch, detached=True)))
        metrics |= self.learner.update(self._policy_inputs(batch), self.generator, actor=actor)
        metrics["reward/intrinsic" if intrinsic else "reward/task"] = batch.reward.mean()
        metrics["reward/std"] = batch.reward.std(dim=0).mean()
        return metrics

    def observe(self, obs: Array) -> None:
        """Add observations (N, obs) to the statistics that normalise them, if the agent has any."""
        if isinstance(self.encoder, Normaliser):
            self.encoder.observe(torch.from_numpy(obs).to(self.device))

    def _augmented(self, batch: Batch) -> Batch:
        if isinstance(self.encoder, Identity):
            return batch
        obs, next_obs = (self.encoder.augment(seen, self.generator) for seen in (batch.obs, batch.next_obs))
        return batch._replace(obs=obs, next_obs=next_obs)

    def _update_auxiliary(self, anchor: Tensor, obs: Tensor) -> Metrics:
        if self.auxiliary is None or self._auxiliary_step is None:
            return {}
        assert isinstance(self.encoder, PartEncoder)
        metrics = self._auxiliary_step(anchor, self.encoder.augment(obs, self.generator))
        self.auxiliary.follow(self.encoder)
        return metrics

    def _prepare(self, batch: Batch) -> Batch:
        """Let the objective sample and compute what its loss and reward share, from features."""
        if isinstance(self.encoder, Identity):
            return self.objective.prepare(batch, self.generator)
        if type(self.objective).prepare is Objective.prepare:
            return batch
        prepared = self.objective.prepare(self.encode(batch, detached=True), self.generator)
        raw = {name: batch.extras[name] for name in OBSERVED if name in batch.extras}
        return prepared._replace(obs=batch.obs, next_obs=batch.next_obs).with_extras(**raw)

    def _update_representation(self, batch: Batch) -> Metrics:
        if self._objective_step is None:
            return {}
        metrics = self._objective_step(self.encode(batch, detached=not self._trains_encoder("objective")))
        self.objective.after_step()
        return metrics

    def encode(self, batch: Batch, *, detached: bool) -> Batch:
        """Replace the observations of a batch by the features that the objective uses."""
        if isinstance(self.encoder, Identity):
            return batch
        with torch.set_grad_enabled(not detached):
            seen = {name: self.encoder(batch.extras[name]) for name in OBSERVED if name in batch.extras}
            batch = batch._replace(obs=self.encoder(batch.obs), next_obs=self.encoder(batch.next_obs))
            return self._seen(batch.with_extras(**seen), detached=detached)

    def _features(self, batch: Batch, *, extras: bool) -> Batch:
        """Replace observations by all features: `obs` with gradient if the critic trains the encoder."""
        if isinstance(self.encoder, Identity):
            return batch
        with torch.no_grad():
            names = [name for name in OBSERVED if extras and name in batch.extras]
            seen = {name: self.encoder(batch.extras[name]) for name in names}
            next_obs = self.encoder(batch.next_obs)
        with torch.set_grad_enabled(self._trains_encoder("critic")):
            obs = self.encoder(batch.obs)
        return batch._replace(obs=obs, next_obs=next_obs).with_extras(**seen)

    def _seen(self, batch: Batch, *, detached: bool) -> Batch:
        """Select the features that the objective uses."""
        if isinstance(self.encoder, Identity):
            return batch
        extras = {name: self._columns(batch.extras[name]) for name in OBSERVED if name in batch.extras}
        obs = self._columns(batch.obs)
        obs = obs.detach() if detached else obs
        return batch._replace(obs=obs, next_obs=self._columns(batch.next_obs)).with_extras(**extras)

    def _columns(self, features: Tensor) -> Tensor:
        return features if self.encoder.seen is None else features[..., self.encoder.seen]

    @torch.no_grad()
    def diagnose(self, batch: Batch, *, intrinsic: bool) -> Metrics:
        """Return metrics that are too expensive for every update: those that show whether all parts work."""
        metrics = state_of_policy(self, batch, skills=intrinsic)
        if intrinsic:
            seen = self.encode(batch, detached=True)
            metrics |= state_of_representation(self.objective, seen) | self.objective.diagnose(seen)
        return metrics

    def policy_batch(self, batch: Batch) -> Batch:
        """Replace the observations of a batch by the input of actor and critic."""
        return self._policy_inputs(self._features(batch, extras=False))

    def _policy_inputs(self, batch: Batch) -> Batch:
        """Replace features by the input of actor and critic."""
        obs = self.objective.policy_input(batch.obs, batch.skill)
        return batch._replace(obs=obs, next_obs=self.objective.policy_input(batch.next_obs, batch.skill))

    # ---- optimisers --------------------------------------------------------------------------------------------

    def _trains_encoder(self, loss: str) -> bool:
        return loss in self.encoder.learns_from

    def _create_optimisers(self) -> None:
        """Create the optimisers of the objective and the encoder; the learner has its own."""
        lr = self.learner.config.lr
        groups = self.objective.parameter_groups(lr)
        self._encoder_optimiser: Adam | None = None
        if self.encoder.learns_from:
            self._encoder_optimiser = encoder = Adam([{"params": list(self.encoder.parameters()), "lr": lr}])
            self.learner.encoder_optimiser = encoder if self._trains_encoder("critic") else None
        more = [self._encoder_optimiser] if self._encoder_optimiser and self._trains_encoder("objective") else []
        self._objective_step = GradientStep(self.objective.loss, Adam(groups), *more) if groups else None
        self._auxiliary_step: GradientStep | None = None
        if self.auxiliary is not None and self._encoder_optimiser and isinstance(self.encoder, PartEncoder):
            loss, own = (
                partial(self.auxiliary.loss, self.encoder),
                Adam([{"params": [self.auxiliary.weight], "lr": lr}]),
            )
            self._auxiliary_step = GradientStep(loss, own, self._encoder_optimiser)

    def gradient_steps(self) -> dict[str, GradientStep]:
        """The gradient steps of objective and learner by the name of their loss."""
        steps = {"objective": self._objective_step, "auxiliary": self._auxiliary_step}
        return {name: step for name, step in steps.items() if step is not None} | self.learner.steps

    def compile_losses(self) -> None:
        """Compute gradients with `torch.compile` from now on: equal to within rounding, and faster.

        A loss that trains the encoder is not compiled: the graph of the features lies outside of it.
        """
        siblings: list[Compiled] = []
        for name, step in self.gradient_steps().items():
            if not self._trains_encoder(name):
                step.compile(self.device, siblings)

    # ---- pre-trained weights ---------------------------------------------------------------------------------

    @torch.no_grad()
    def inherit(self, weights: dict[str, Tensor], critic: Keep) -> None:
        """Load encoder, objective and actor of a pre-trained agent, and the given part of its critic."""
        for part, module in (("encoder.", self.encoder), ("objective.", self.objective)):
            module.load_state_dict(_below(part, weights))
        if self.auxiliary is not None:
            self.auxiliary.load_state_dict(_below("auxiliary.", weights))
        self.learner.inherit(_below("learner.", weights), critic)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def _optimisers(self) -> dict[str, Adam]:
        own = {} if self._encoder_optimiser is None else {"encoder": self._encoder_optimiser}
        return own | {name: step.optimisers[0] for name, step in self.gradient_steps().items()}

    def optimiser_state(self) -> dict[str, Tensor]:
        """Return the generator's state, and the optimisers' as `"<loss>.<index of the weight>.<name>"`."""
        flat = {"generator": self.generator.get_state()}
        for name, optimiser in self._optimisers().items():
            flat |= {f"{name}.{slot}": value for slot, value in optimiser.state().items()}
        return flat

    def restore_optimisers(self, flat: dict[str, Tensor]) -> None:
        """Restore what `optimiser_state` returned."""
        self.generator.set_state(flat["generator"].cpu())
        optimisers = self._optimisers()
        if unknown := {name.partition(".")[0] for name in flat} - optimisers.keys() - {"generator"}:
            raise ValueError(f"there are no optimisers {sorted(unknown)}, only {sorted(optimisers)}")
        for name, optimiser in optimisers.items():
            optimiser.restore(_below(f"{name}.", flat))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _require_fitting_learner(learner: str, spaces: Spaces) -> None:
    if (fitting := learners_for(spaces.choices)) and get_learner(learner).discrete != bool(spaces.choices):
        online = [name for name in fitting if not get_learner(name).offline]
        kind = f"discrete ({' × '.join(map(str, spaces.choices))} choices)" if spaces.choices else "continuous"
        raise UserError(f'learner "{learner}" cannot be used, because the actions are {kind}: choose {_any_of(online)}')


def _any_of(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _require_fitting_objective(method: Objective, name: str, spaces: Spaces, encoding: EncoderConfig) -> None:
    if method.unseen and method.whole_input:
        raise UserError(f'objective "{name}" uses the whole input of the policy: omit objective_keys')
    images = [
        part.name for part in spaces.images if not encoding.objective_keys or part.name in encoding.objective_keys
    ]
    if images and method.uses_units:
        raise UserError(
            f'objective "{name}" uses entries of the observation, which contains images: choose another objective, '
            "or select keys without images with objective_keys"
        )


def _losses_of_encoder(method: Objective, encoding: EncoderConfig) -> frozenset[str]:
    """The losses that train an image encoder, see `EncoderConfig.encoder_gradients`."""
    has_loss = bool(method.parameter_groups(1.0))
    more = {"auxiliary"} if encoding.auxiliary != "none" else set()
    if encoding.encoder_gradients == "released" and has_loss:
        return frozenset({"objective"} & method.released_encoder_losses | more)
    return frozenset({"critic"} | ({"objective"} if has_loss and method.trains_encoder else set()) | more)


def build_agent(
    spaces: Spaces,
    objective: str,
    options: Any,
    learner: str,
    config: LearnerConfig,
    *,
    encoding: EncoderConfig = EncoderConfig(),  # noqa: B008  frozen
    seed: int = 0,
    device: str = "cpu",
    normalise_obs: bool = False,
) -> Agent:
    """Create an agent. Its weights are drawn with `seed`."""
    if normalise_obs and get_objective(objective).uses_units:
        raise UserError(f"{objective} uses entries of the observation in their own units: omit `normalise_obs`")
    if normalise_obs and (spaces.images or encoding.objective_keys):
        raise UserError(
            "normalise_obs is for vectors without objective_keys, and images are scaled: omit `normalise_obs`"
        )
    if shared := {f.name for f in fields(options)} & {f.name for f in fields(config)}:
        raise UserError(
            f'objective "{objective}" and learner "{learner}" both have an option "{min(shared)}": rename one of them'
        )
    _require_fitting_learner(learner, spaces)
    with seeded(seed):  # initialisation uses torch's global generator
        encoder = make_encoder(spaces, encoding)
        seen = encoder.dim if encoder.seen is None else len(encoder.seen)
        method = get_objective(objective)(spaces._replace(obs=seen, parts=()), config.hidden, options)
        method.unseen = encoder.dim - seen
        _require_fitting_objective(method, objective, spaces, encoding)
        actor_critic = get_learner(learner).build(config, method.policy_input_dim, spaces.action, method.make_critic)
        curl = CURL(encoder) if encoding.auxiliary == "curl" and isinstance(encoder, PartEncoder) else None
    if isinstance(encoder, PartEncoder):
        encoder.learns_from = _losses_of_encoder(method, encoding) if spaces.images else frozenset()
    if normalise_obs:
        encoder = Normaliser(spaces.obs)
    return Agent(spaces, encoder, method, actor_critic, auxiliary=curl, seed=seed, device=device)
