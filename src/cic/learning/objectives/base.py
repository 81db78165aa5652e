"""What every method must say: how it learns its representation, how it rewards, which skills it has.

An objective is an `nn.Module`. Running statistics, queues and EMA copies are *buffers*, so a checkpoint that
carries the module carries them. What is random comes in: `prepare` draws it, from the agent's generator.
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
"""What a method lets the user choose from."""


@dataclass(frozen=True)
class SkillSpace:
    """Where skills live, how they are drawn and how long one is kept."""

    kind: Literal["none", "box", "cube", "normal", "sphere", "onehot"] = "none"
    dim: int = 0
    every: int | None = None
    """Steps between draws in pre-training; None keeps a skill for the whole episode."""
    radius: float = 1.0
    """Of the sphere."""
    active: int | None = None
    """How many of the one-hot skills are drawn, the first ones; None is all of them."""

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
        """A skill (dim,) from what somebody wrote down, or a sentence that says why it is none.

        One number stands for all dimensions of a box, and for the place of a one-hot skill.
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
        """The same prior inside an update: (count, dim) from the agent's generator, on its device."""
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
        """Skills as directions of a latent space: one-hot ones are centred, (z − 1/n) · n / (n − 1), others stay."""
        if self.kind != "onehot":
            return skill
        return (skill - 1 / self.dim) * (self.dim / (self.dim - 1))

    def towards(self, step: Tensor) -> Tensor:
        """The skill nearest to each direction (N, dim): on the sphere, or the best corner."""
        if self.kind == "onehot":
            return F.one_hot(step.argmax(dim=1), self.dim).to(step.dtype)
        return self.radius * F.normalize(step, dim=1)


METRA_SAC: dict[str, Any] = {
    "learner": "sac",
    "learning": {"batch": 256, "nstep": 1, "tau": 0.005, "alpha": 0.01, "target_entropy": -0.5},
    "run": {"update_every": 32, "warmup": 10_000},
}
"""SAC as METRA's repository runs METRA, LSD and DADS, and CSF's runs CSF and VISR."""


def require_kind(kind: str, dim: int, fitting: tuple[str, ...], method: str) -> None:
    """Refuse skills that a method cannot use."""
    require(kind in fitting, f"{method} cannot use {kind} skills: choose {' or '.join(fitting)}")
    least = 2 if kind == "onehot" else 1
    require(dim >= least, f"skill_dim must be at least {least} for {kind} skills, not {dim}")


def _first(skill: Array, wrong: Bools) -> str:
    return f"{skill[wrong][0]:g}"


@dataclass(frozen=True)
class NoOptions:
    """A method without options of its own."""


class Objective(nn.Module):
    """One method. A subclass gives `loss` and `reward`, and a frozen dataclass `Options` if it has any."""

    Options: ClassVar[type] = NoOptions
    title: ClassVar[str] = ""
    """The name that tables and figures show."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}}
    """Named sets of options; the first is the default."""
    recommended: ClassVar[dict[str, dict[str, Any]]] = {}
    """Preset → what it says of the run: `learner`, `learning` (the learner's settings; the scale's sizes go over them)
    and `run` (at the scale `paper` alone, such as `update_every`)."""
    scales: ClassVar[dict[str, dict[str, Any]]] = {}
    """Options whose default depends on the scale, usually through its batch size."""
    progress: float = 1.0
    """How much of the pre-training is done, told before each update: what a schedule follows."""

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__()
        self.spaces = spaces
        self.hidden = hidden
        self.options = options

    @property
    def skills(self) -> SkillSpace:
        return SkillSpace()

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The representation's loss, to be minimised by one optimiser step, and cheap scalars to log."""
        raise NotImplementedError

    def reward(self, batch: Batch) -> Tensor:
        """(B, 1), without gradient, with the representation as it is after its step.

        A method with a critic of its own may pay in features (B, D): that critic knows what to do with them.
        """
        raise NotImplementedError

    # ---- what most methods leave alone -------------------------------------------------------------------------

    @property
    def needs(self) -> Needs:
        """What a batch must hold beyond plain n-step transitions."""
        return Needs()

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch as this update sees it, once, without gradient and before `loss`: noise and draws from the prior
        (`self.skills.draw`) as extras, skills relabelled, targets that loss and reward share."""
        return batch

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Adam's groups; override to give a part its own rate."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [{"params": parameters, "lr": lr}] if parameters else []

    def after_step(self) -> None:
        """Called after the optimiser's step: EMA copies, projections."""

    def diagnose(self, batch: Batch) -> Metrics:
        """Costlier measures, asked for only when a line is logged."""
        return {}

    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """Return problems that the metrics of a log line show: the name of each, and a message with the remedy.

        Args:
            numbers: The metrics of `loss` and `diagnose` by name, and those of the learner.
        """
        return {}

    def confidence(self, batch: Batch) -> Tensor | None:
        """(B, 1): how probable a method's discriminator finds the skill of each transition, among all one-hot skills or
        among those of the batch; None for methods without a discriminator."""
        return None

    def policy_input(self, obs: Tensor, skill: Tensor) -> Tensor:
        """What actor and critic see: the raw observation and skill side by side."""
        return torch.cat([obs, skill], dim=-1) if skill.shape[-1] else obs

    @property
    def policy_input_dim(self) -> int:
        return self.spaces.obs + self.skills.dim

    def make_critic(self) -> Critic:
        """Override for a critic with another output or its own rule (`Critic.td_loss`), such as successor features."""
        return Critic(self.policy_input_dim, self.spaces.action, self.hidden)

    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        """A skill (dim,) regressed from a task's one-step rewards (N, 1), for methods that can; None for the others,
        and where the rewards say nothing."""
        return None

    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor | None:
        """(N, dim): the skills that lead from observations to goals, both (N, obs), for methods that can; or None."""
        return None


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Objective]] = {}
_ENTRY_POINTS = "cic.objectives"
T = TypeVar("T", bound=type[Objective])


def register(name: str) -> Callable[[T], T]:
    """Class decorator: `@register("surprise")` makes `cic pretrain --objective surprise` work."""
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
    """Every method by name, those of installed plug-ins included."""
    _load_plugins()
    return iter(sorted(_REGISTRY.items()))


def get_objective(name: str) -> type[Objective]:
    if name not in _REGISTRY:
        _load_plugins()
    if name not in _REGISTRY:
        raise UserError(f"{unknown('objective', name, _REGISTRY)} {HINT}")
    return _REGISTRY[name]
