"""The base class of objectives: the loss of a representation, the intrinsic reward, the skills; and the registry.

An objective is an `nn.Module`. Running statistics, queues and EMA networks are *buffers*, so that checkpoints contain
them. Random numbers are inputs: `prepare` draws them with the agent's generator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cic.core.config import require
from cic.core.errors import UserError, unknown
from cic.core.imports import HINT
from cic.core.setting_names import require_free_names
from cic.core.types import Array, Batch, Bools, Metrics, Needs, Spaces
from cic.learning.networks import Critic

SkillKind = Literal["sphere", "normal", "cube", "onehot"]
"""The kinds of skills that some methods let the user choose from."""


@dataclass(frozen=True)
class SkillSpace:
    """The set of skills, their distribution, and how long a skill is kept."""

    kind: Literal["none", "box", "cube", "normal", "sphere", "onehot"] = "none"
    dim: int = 0
    every: int | None = None
    """Steps between draws in pre-training; None keeps a skill for the whole episode."""
    radius: float = 1.0
    """Radius of the sphere."""
    active: int | None = None
    """Only this many first one-hot skills are drawn; None draws all."""

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """(count, dim): uniform in [0,1]^dim or [-1,1]^dim, normal, on the sphere, or over the corners."""
        if self.kind == "box":
            return rng.random((count, self.dim), dtype=np.float32)
        if self.kind == "cube":
            return 2 * rng.random((count, self.dim), dtype=np.float32) - 1
        if self.kind in ("normal", "sphere"):
            normal = rng.standard_normal((count, self.dim), dtype=np.float32)
            if self.kind == "normal":
                return normal
            return np.asarray(self.radius * normal / np.linalg.norm(normal, axis=1, keepdims=True), np.float32)
        if self.kind == "onehot":
            return np.eye(self.dim, dtype=np.float32)[rng.integers(self.active or self.dim, size=count)]
        return np.zeros((count, 0), dtype=np.float32)

    def check(self, given: Sequence[float]) -> Array:
        """Convert numbers from the user to a skill (dim,), or raise a `UserError`.

        A single number is used for all dimensions of a box, and as the index of a one-hot skill.
        """
        if self.kind == "none":
            raise UserError("this agent has no skills: drop --skill")
        skill = np.array(given, np.float32)
        if not np.isfinite(skill).all():
            raise UserError(f"--skill must be finite numbers, not {' '.join(map(str, given))}")
        if self.kind == "onehot" and len(given) == 1 and self.dim > 1:
            return self._corner(given[0])
        if self.kind == "box" and len(given) == 1:
            skill = np.repeat(skill, self.dim)
        if len(skill) != self.dim:
            raise UserError(f"--skill has {len(given)} numbers, but this agent's skills have dimension {self.dim}")
        if self.kind == "box" and not ((skill >= 0) & (skill <= 1)).all():
            raise UserError(f"this agent's skills lie in [0, 1]: {_first(skill, (skill < 0) | (skill > 1))} does not")
        if self.kind == "onehot" and sorted(skill.tolist()) != [0.0] * (self.dim - 1) + [1.0]:
            raise UserError(f"this agent's skills are one 1 and else 0: give its place, 0 to {self.dim - 1}")
        if self.kind == "cube" and not (np.abs(skill) <= 1).all():
            raise UserError(f"this agent's skills lie in [-1, 1]: {_first(skill, np.abs(skill) > 1)} does not")
        length = float(np.linalg.norm(skill))
        if self.kind == "sphere" and abs(length - self.radius) > 1e-3 * self.radius:
            raise UserError(f"this agent's skills have length {self.radius:.4g}, not {length:.4g}: scale it")
        return skill

    def _corner(self, place: float) -> Array:
        if place != int(place) or not 0 <= place < self.dim:
            raise UserError(f"this agent has the skills 0 to {self.dim - 1}: there is no skill {place:g}")
        corner: Array = np.eye(self.dim, dtype=np.float32)[int(place)]
        return corner

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample the same distribution inside an update: (count, dim) on the generator's device."""
        device = generator.device
        if self.kind == "box":
            return torch.rand(count, self.dim, generator=generator, device=device)
        if self.kind == "cube":
            return 2 * torch.rand(count, self.dim, generator=generator, device=device) - 1
        if self.kind in ("normal", "sphere"):
            normal = torch.randn(count, self.dim, generator=generator, device=device)
            return normal if self.kind == "normal" else self.radius * F.normalize(normal, dim=1)
        if self.kind == "onehot":
            corner = torch.randint(self.active or self.dim, (count,), generator=generator, device=device)
            return F.one_hot(corner, self.dim).float()
        return torch.zeros(count, 0, device=device)

    def directions(self, skill: Tensor) -> Tensor:
        """Skills as directions of a latent space: one-hot skills are centred, (z − 1/n) · n / (n − 1)."""
        if self.kind != "onehot":
            return skill
        return (skill - 1 / self.dim) * (self.dim / (self.dim - 1))

    def towards(self, step: Tensor) -> Tensor:
        """The skill nearest to each direction (N, dim): on the sphere, or one-hot."""
        if self.kind == "onehot":
            return F.one_hot(step.argmax(dim=1), self.dim).to(step.dtype)
        return self.radius * F.normalize(step, dim=1)


METRA_SAC: dict[str, Any] = {
    "learner": "sac",
    "learning": {"batch": 256, "nstep": 1, "tau": 0.005, "alpha": 0.01, "target_entropy": -0.5},
    "run": {"update_every": 32, "warmup": 10_000},
}
"""SAC with the settings of METRA's repository (METRA, LSD, DADS) and of CSF's (CSF, VISR)."""


def require_kind(kind: str, dim: int, fitting: tuple[str, ...], method: str) -> None:
    """Raise a `UserError` for skills that a method cannot use."""
    require(kind in fitting, f"{method} cannot use {kind} skills: choose {' or '.join(fitting)}")
    least = 2 if kind == "onehot" else 1
    require(dim >= least, f"skill_dim must be at least {least} for {kind} skills, not {dim}")


def _first(skill: Array, wrong: Bools) -> str:
    return f"{skill[wrong][0]:g}"


@dataclass(frozen=True)
class NoOptions:
    """The options of a method that has none."""


class Objective(nn.Module):
    """One method. A subclass implements `loss` and `reward`, and defines a frozen dataclass `Options`."""

    Options: ClassVar[type] = NoOptions
    title: ClassVar[str] = ""
    """The name in tables and figures."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}}
    """Named sets of options; the first is the default."""
    recommended: ClassVar[dict[str, dict[str, Any]]] = {}
    """Preset → recommended settings of the run: `learner`, `learning` (the learner's settings, which a scale overrides)
    and `run` (used by the scale `paper` only, such as `update_every`)."""
    scales: ClassVar[dict[str, dict[str, Any]]] = {}
    """Scale → options whose default depends on it, usually through the batch size."""
    progress: float = 1.0
    """Finished share of the pre-training, for schedules. The training loop sets it before each update."""

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__()
        self.spaces = spaces
        self.hidden = hidden
        self.options = options

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace()

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss of the representation and cheap scalars to log."""
        raise NotImplementedError

    def reward(self, batch: Batch) -> Tensor:
        """Return the reward (B, 1) without gradient, computed with the representation after its step.

        A method with its own critic (`make_critic`) may return features (B, D) that this critic learns from.
        """
        raise NotImplementedError

    # ---- what few methods override ---------------------------------------------------------------------------

    @property
    def needs(self) -> Needs:
        """What a batch must contain besides n-step transitions."""
        return Needs()

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Return the batch for `loss` and `reward`. Called once per update, without gradient.

        This is the place for random numbers (with `self.skills.draw`, as extras), for relabelling skills and for
        targets that loss and reward share.
        """
        return batch

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the groups of the optimiser; override it for several learning rates."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [{"params": parameters, "lr": lr}] if parameters else []

    def after_step(self) -> None:
        """Called after the optimiser's step, for example to update EMA networks."""

    def diagnose(self, batch: Batch) -> Metrics:
        """Return metrics that are too expensive for each update; called for each log line."""
        return {}

    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """Return problems that the metrics of a log line show: the name of each, and a message with the remedy.

        Args:
            numbers: The metrics of `loss` and `diagnose` by name, and those of the learner.
        """
        return {}

    def confidence(self, batch: Batch) -> Tensor | None:
        """Return the probability (B, 1) that a discriminator gives to the skill of each transition.

        The alternatives are all one-hot skills or the skills of the batch. None for methods without a discriminator.
        """
        return None

    def policy_input(self, obs: Tensor, skill: Tensor) -> Tensor:
        """The input of actor and critic: by default observation and skill, concatenated."""
        return torch.cat([obs, skill], dim=-1) if skill.shape[-1] else obs

    @property
    def policy_input_dim(self) -> int:
        return self.spaces.obs + self.skills.dim

    def make_critic(self) -> Critic:
        """Create the critic, which the learner owns. Override it for another output or loss (`Critic.td_loss`)."""
        return Critic(self.policy_input_dim, self.spaces.action, self.hidden)

    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        """Infer a skill (dim,) from one-step rewards (N, 1) of a task.

        None for methods that cannot, and if the rewards contain no information.
        """
        return None

    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor | None:
        """Return the skills (N, dim) that lead from observations (N, obs) to goals; None for methods that cannot."""
        return None


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Objective]] = {}
_ENTRY_POINTS = "cic.objectives"
T = TypeVar("T", bound=type[Objective])


def register(name: str) -> Callable[[T], T]:
    """Class decorator: `@register("surprise")` adds the objective to `cic pretrain --objective surprise`."""
    if not isinstance(name, str):
        raise UserError('an objective is registered by its name: @cic.register("name")')

    def add(cls: T) -> T:
        if not (inspect.isclass(cls) and issubclass(cls, Objective)):
            raise UserError(f'objective "{name}" must be a subclass of cic.Objective')
        if not is_dataclass(cls.Options) or not cls.Options.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise UserError(f'the Options of objective "{name}" must be a frozen dataclass')
        require_free_names(f'objective "{name}"', cls.Options)
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise UserError(f'objective "{name}" is registered already, by {_REGISTRY[name].__module__}')
        cls.title = cls.title or name
        _REGISTRY[name] = cls
        return cls

    return add


def _load_plugins() -> None:
    for entry in entry_points(group=_ENTRY_POINTS):
        if entry.name not in _REGISTRY:
            try:
                register(entry.name)(entry.load())
            except Exception as error:
                message = f'the installed objective "{entry.name}" ({entry.value}) fails to load: {error}'
                raise UserError(message) from error


def objectives() -> Iterator[tuple[str, type[Objective]]]:
    """Every method by name, including those of installed plug-ins."""
    _load_plugins()
    return iter(sorted(_REGISTRY.items()))


def get_objective(name: str) -> type[Objective]:
    if name not in _REGISTRY:
        _load_plugins()
    if name not in _REGISTRY:
        raise UserError(f"{unknown('objective', name, _REGISTRY)} {HINT}")
    return _REGISTRY[name]
