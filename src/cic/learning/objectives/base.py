"""The base class of methods: the loss of the representation, the intrinsic reward and the skill space.

An objective is an `nn.Module`. Running statistics, queues and EMA copies are *buffers*, so that checkpoints contain
them. All random numbers are drawn in `prepare`, from the agent's generator.
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
"""The kinds of skill that a method may offer as an option."""


@dataclass(frozen=True)
class SkillSpace:
    """The set of skills, their prior distribution and how long a skill is kept.

    Example:
        ```python
        import numpy as np

        space = cic.SkillSpace("sphere", dim=2)
        skills = space.sample(8, np.random.default_rng(0))
        ```
    """

    kind: Literal["none", "box", "cube", "normal", "sphere", "onehot"] = "none"
    """none, box ([0, 1]^dim), cube ([-1, 1]^dim), normal, sphere or onehot."""
    dim: int = 0
    """Number of dimensions."""
    every: int | None = None
    """Steps for which a skill is kept in pre-training; None means a whole episode."""
    radius: float = 1.0
    """Radius of the sphere."""
    active: int | None = None
    """Only this many one-hot skills, the first ones, are sampled; None means all."""
    sparse: float = 0.0
    """Share of the skills of a sphere in which each entry but the largest is zero with probability 1/2."""

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Sample skills (count, dim) from the prior: uniform, or normal for the kind `normal`."""
        if self.kind == "box":
            return rng.random((count, self.dim), dtype=np.float32)
        if self.kind == "cube":
            return 2 * rng.random((count, self.dim), dtype=np.float32) - 1
        if self.kind in ("normal", "sphere"):
            normal = rng.standard_normal((count, self.dim), dtype=np.float32)
            if self.kind == "normal":
                return normal
            if self.sparse:
                drop = (rng.random((count, 1)) < self.sparse) & (rng.random((count, self.dim)) < 0.5)
                largest = np.abs(normal) == np.abs(normal).max(axis=1, keepdims=True)
                normal = np.where(drop & ~largest, 0, normal)
            return np.asarray(self.radius * normal / np.linalg.norm(normal, axis=1, keepdims=True), np.float32)
        if self.kind == "onehot":
            return np.eye(self.dim, dtype=np.float32)[rng.integers(self.active or self.dim, size=count)]
        return np.zeros((count, 0), dtype=np.float32)

    def check(self, given: Sequence[float]) -> Array:
        """Return the skill (dim,) for the given numbers; raise a `UserError` if they are not a valid skill.

        One number stands for all dimensions of a box, and for the index of a one-hot skill.
        """
        if self.kind == "none":
            raise UserError("this agent has no skills: omit `skill`")
        skill = np.array(given, np.float32)
        if not np.isfinite(skill).all():
            raise UserError(f"skill must be finite numbers, not {' '.join(map(str, given))}")
        if self.kind == "onehot" and len(given) == 1 and self.dim > 1:
            return self._corner(given[0])
        if self.kind == "box" and len(given) == 1:
            skill = np.repeat(skill, self.dim)
        if len(skill) != self.dim:
            raise UserError(f"`skill` has {len(given)} numbers, but this agent's skills have dimension {self.dim}")
        if self.kind == "box" and not ((skill >= 0) & (skill <= 1)).all():
            raise UserError(f"this agent's skills lie in [0, 1]: {_first(skill, (skill < 0) | (skill > 1))} does not")
        if self.kind == "onehot" and sorted(skill.tolist()) != [0.0] * (self.dim - 1) + [1.0]:
            raise UserError(f"a one-hot skill has one 1 and otherwise 0: give its index, 0 to {self.dim - 1}")
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
        """Sample skills (count, dim) with a torch generator, on its device; for use in `Objective.prepare`."""
        device = generator.device
        if self.kind == "box":
            return torch.rand(count, self.dim, generator=generator, device=device)
        if self.kind == "cube":
            return 2 * torch.rand(count, self.dim, generator=generator, device=device) - 1
        if self.kind in ("normal", "sphere"):
            normal = torch.randn(count, self.dim, generator=generator, device=device)
            if self.kind == "normal":
                return normal
            if self.sparse:
                chosen = torch.rand(count, 1, generator=generator, device=device) < self.sparse
                drop = chosen & (torch.rand(count, self.dim, generator=generator, device=device) < 0.5)
                largest = normal.abs() == normal.abs().amax(dim=1, keepdim=True)
                normal = normal.masked_fill(drop & ~largest, 0)
            return self.radius * F.normalize(normal, dim=1)
        if self.kind == "onehot":
            corner = torch.randint(self.active or self.dim, (count,), generator=generator, device=device)
            return F.one_hot(corner, self.dim).float()
        return torch.zeros(count, 0, device=device)

    def directions(self, skill: Tensor) -> Tensor:
        """Return skills as directions of a latent space: one-hot skills are centred, (z − 1/n) · n / (n − 1)."""
        if self.kind != "onehot":
            return skill
        return (skill - 1 / self.dim) * (self.dim / (self.dim - 1))

    def towards(self, step: Tensor) -> Tensor:
        """Return the skill nearest to each direction (N, dim)."""
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
    """The base class of methods. A subclass defines `loss` and `reward`, and optionally a frozen dataclass `Options`.

    Example:
        ```python
        import torch


        @cic.register("constant")
        class Constant(cic.Objective):
            def loss(self, batch):
                return batch.obs.new_zeros(()), {}

            def reward(self, batch):
                return torch.ones_like(batch.reward)


        cic.pretrain("gridworld", "constant", scale="smoke", out="runs/constant", quiet=True)
        ```
    """

    Options: ClassVar[type] = NoOptions
    title: ClassVar[str] = ""
    """The name in tables and figures; by default the registered name."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"released": {}}
    """Named sets of options; the first is the default."""
    recommended: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings of the run for each preset: `learner`, `learning` (settings of the learner, unless the scale sets them)
    and `run` (other settings, only at the scale `paper`)."""
    scales: ClassVar[dict[str, dict[str, Any]]] = {}
    """Scale → options whose default depends on it, usually through the batch size."""
    uses_units: ClassVar[bool] = False
    """Whether it uses certain entries of the observation in their own units. The observation can then neither be
    normalised nor be an image."""
    trains_encoder: ClassVar[bool] = True
    """Whether its loss trains an image encoder. False if features that are constant would minimise the loss."""
    released_encoder_losses: ClassVar[frozenset[str]] = frozenset({"objective"})
    """The losses that train an image encoder in the released code."""
    whole_input: bool = False
    """Whether it needs all features that actor and critic use."""
    unseen: int = 0
    """Number of features that actor and critic use and the objective does not."""
    redraws_skills: ClassVar[bool] = False
    """Whether `prepare` redraws the skills of a batch, so that the method learns from data that others collected."""
    progress: float = 1.0
    """The fraction of the pre-training that is done, set before each update; for schedules."""

    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__()
        self.spaces = spaces
        self.hidden = hidden
        self.options = options

    @property
    def skills(self) -> SkillSpace:
        """The skill space; by default the method has no skills."""
        return SkillSpace()

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss of the representation, which one optimiser step minimises, and metrics that are cheap."""
        raise NotImplementedError

    def reward(self, batch: Batch) -> Tensor:
        """Return the intrinsic reward (B, 1), computed without gradient after the step of the representation.

        A method with its own critic may return features (B, D) for that critic instead.
        """
        raise NotImplementedError

    # ---- optional methods -------------------------------------------------------------------------

    @property
    def needs(self) -> Needs:
        """The data that a batch must contain in addition to n-step transitions."""
        return Needs()

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Return the batch for an update; called once per update, before `loss` and without gradient.

        Draw random numbers here (noise, skills from `self.skills.draw`) and add them as extras, relabel skills, or
        compute targets that `loss` and `reward` share.
        """
        return batch

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameter groups of Adam; override this for other learning rates."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [{"params": parameters, "lr": lr}] if parameters else []

    def after_step(self) -> None:
        """Update EMA copies or project weights; called after the optimiser step."""

    def diagnose(self, batch: Batch) -> Metrics:
        """Return metrics that are expensive; called only when a line is logged."""
        return {}

    def problems(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """Return problems that the metrics of a log line show: the name of each, and a message with the remedy.

        Args:
            numbers: The metrics of `loss` and `diagnose` by name, and those of the learner.
        """
        return {}

    @property
    def exempt(self) -> frozenset[str]:
        """Names of the checks of `cic.training.validity` that do not apply to this method."""
        return frozenset()

    def embed(self, obs: Tensor) -> Tensor | None:
        """Return the embedding (N, D) of observations whose rank is checked; None for methods without one."""
        return None

    def confidence(self, batch: Batch) -> Tensor | None:
        """Return the probability (B, 1) that the discriminator assigns to the skill of each transition.

        The probability is among all one-hot skills, or among the skills of the batch. None for methods without a
        discriminator.
        """
        return None

    def policy_input(self, obs: Tensor, skill: Tensor) -> Tensor:
        """Return the input of actor and critic: by default the observation and the skill, concatenated."""
        return torch.cat([obs, skill], dim=-1) if skill.shape[-1] else obs

    @property
    def policy_input_dim(self) -> int:
        """The width of `policy_input`."""
        return self.spaces.obs + self.unseen + self.skills.dim

    def make_critic(self) -> Critic:
        """Make the critic. Override this for another output or loss (`Critic.td_loss`), such as successor features."""
        return Critic(self.policy_input_dim, self.spaces.action, self.hidden, choices=self.spaces.choices)

    def infer_skill(self, next_obs: Tensor, reward: Tensor) -> Tensor | None:
        """Return the skill (dim,) for a task with these one-step rewards (N, 1), by regression.

        None if the method cannot infer skills, or if the rewards contain no information.
        """
        return None

    def goal_skill(self, obs: Tensor, goal: Tensor) -> Tensor | None:
        """Return the skills (N, dim) that lead from observations (N, obs) to goals (N, obs); None if it cannot."""
        return None


# ---- the registry ----------------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Objective]] = {}
_ENTRY_POINTS = "cic.objectives"
T = TypeVar("T", bound=type[Objective])


def register(name: str) -> Callable[[T], T]:
    """Register a method of your own under a name, as a class decorator.

    Args:
        name: The name for `cic.pretrain(domain, name)`.

    Returns:
        The decorator, which returns the class unchanged.

    Example:
        See `cic.Objective`.
    """
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
    """List the methods, including those of installed plug-ins.

    Returns:
        Pairs of a name and a class, sorted by name.

    Example:
        ```python
        for name, objective in cic.objectives():
            print(name, objective.title)
        ```
    """
    _load_plugins()
    return iter(sorted(_REGISTRY.items()))


def get_objective(name: str) -> type[Objective]:
    if name not in _REGISTRY:
        _load_plugins()
    if name not in _REGISTRY:
        raise UserError(f"{unknown('objective', name, _REGISTRY)} {HINT}")
    return _REGISTRY[name]
