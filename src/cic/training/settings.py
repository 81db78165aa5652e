"""What a run is told: frozen dataclasses whose field docstrings are the `--help`, and the scales that fill them.

A scale is data, not code: `smoke` is seconds, for tests; `laptop` learns in minutes on one core; `paper` is every
number of the paper's table.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from cic import envs
from cic.core.config import checked, from_dict, require
from cic.core.errors import unknown
from cic.learning.compilation import Mode
from cic.learning.learners import get_learner
from cic.learning.learners.base import Keep, LearnerConfig
from cic.learning.objectives import get_objective

O = TypeVar("O")  # noqa: E741  an objective's Options
L = TypeVar("L")  # a learner's Config
C = TypeVar("C")
Scale = Literal["smoke", "laptop", "paper"]


@dataclass(frozen=True)
class SearchConfig:
    """The search for a skill at the beginning of a finetuning."""

    search: str = "auto"
    """How the skill is found: grid, random, cem, cma, halving, library, each (one-hot skills), regress (methods that
    infer it), fixed (no search, as in the released code); paper is the paper's choice for the method (grid for CIC);
    auto is library if the pre-training has one that shows its skills from several starts, else paper."""
    search_steps: int | None = None
    """Steps of the search; by default as many as the warm-up. Updates that become due in the search beyond the warm-up
    are made when the skill is chosen, and train only the critic."""
    trial_steps: int = 100
    """Steps of each trial; halving starts with half of them."""
    trial_skip: int = 0
    """First steps of each trial that do not count, so that a candidate is scored by where it gets to and not by where
    the trial before it stopped."""
    finalists: int = 2
    """Skills of the library that are tried one after another in the later part of the library search."""
    search_value: float = 0.5
    """The constant of every coordinate for `fixed`."""

    def __post_init__(self) -> None:
        steps = self.search_steps
        require(steps is None or steps >= 0, f"search_steps must not be negative, not {steps}")
        require(self.trial_skip >= 0, f"trial_skip must not be negative, not {self.trial_skip}")
        require(self.finalists >= 1, f"finalists must be at least 1, not {self.finalists}")
        require(self.trial_steps >= 1, f"trial_steps must be at least 1, not {self.trial_steps}")


@dataclass(frozen=True, kw_only=True)
class LoopConfig(Generic[L]):
    """What pre-training and finetuning share."""

    scale: Scale = "laptop"
    """Where the defaults come from: smoke (seconds), laptop (minutes, one core), paper (the paper's numbers)."""
    seed: int = 0
    """The same seed gives the same bits on the same machine."""
    steps: int = 100_000
    """Environment steps, over all copies."""
    warmup: int = 4_000
    """Steps before the first update: uniform actions, or the search for a skill."""
    update_every: int = 2
    """Environment steps per update."""
    num_envs: int = 1
    """Copies of the environment, stepped together."""
    replay: int = 1_000_000
    """Steps that the replay holds."""
    log_every: int = 1_000
    """Steps between lines of metrics."""
    checkpoint_every: int = 25_000
    """Steps between checkpoints; a stopped run loses no more than these."""
    device: str = "cpu"
    """Where the networks live: cpu, or cuda (not tested here)."""
    threads: int = 1
    """Threads of a matrix product."""
    compile: Mode = "auto"
    """Compile the updates (20 s, needs g++): on, off, or auto, which is on from 10,000 updates."""
    env_timeout: float = 0.0
    """Seconds after which an environment of yours that does not come back from a step ends the run; 0 is never."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the extra `wandb`; WANDB_MODE=offline needs no network)."""
    wandb_project: str = "cic"
    """Project in Weights & Biases."""
    wandb_entity: str = ""
    """User or team in Weights & Biases; by default the one who is logged in."""
    wandb_group: str = ""
    """Group of runs in Weights & Biases."""
    wandb_tags: tuple[str, ...] = ()
    """Tags in Weights & Biases."""
    keep_physics: bool = False
    """Keep the simulator's state of each step in the replay, for `cic export`."""
    learner: str = "ddpg"
    """The RL algorithm that maximises the reward: ddpg (as in URLB), td3 or sac."""
    learning: L
    """The learner's own settings."""
    intrinsic: ClassVar[bool]
    """Whether the objective gives the reward, or the task."""

    @property
    def environment(self) -> str:
        """The name of the environment in which the run happens."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The run's name on the progress bar."""
        return f"{get_objective(self.objective).title} {self.environment}"  # type: ignore[attr-defined]

    @property
    def ending(self) -> int:
        """The step at which the part starts that only the end of a run has. An extended run continues before it."""
        return self.steps

    def __post_init__(self) -> None:
        for name in ("steps", "update_every", "num_envs", "replay", "log_every", "checkpoint_every", "threads"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(0 <= self.seed < 2**31, f"seed must lie in [0, 2³¹), not {self.seed}")
        require(self.warmup >= 0, f"warmup must not be negative, not {self.warmup}")
        require(0 <= self.env_timeout <= 1e6, f"env_timeout must lie in [0, 10⁶] seconds, not {self.env_timeout}")
        require(self.num_envs <= 10_000, f"num_envs must be at most 10,000, not {self.num_envs:,}")
        require(
            self.steps >= self.num_envs,
            f"{self.num_envs} copies take {self.num_envs} steps at once: steps must be at least that, not {self.steps}",
        )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(LoopConfig[L], Generic[O, L]):
    """Discover skills in a domain without its rewards."""

    domain: str
    """walker, quadruped, jaco, point_mass, hopper, gridworld, ant, half_cheetah, gymnasium:ID or your own."""
    objective: str = "cic"
    """The method: `cic objectives` lists them."""
    preset: str = "released"
    """A named set of the method's options; CIC has released, paper and distinct."""
    milestones: tuple[int, ...] = (100_000, 500_000, 1_000_000, 2_000_000)
    """Steps whose weights are kept for good."""
    diagnosed: int = 12
    """Skills that act for a hundred steps from three starts each at every milestone, in an environment of their own, to
    log how much a skill matters; 0 for none."""
    library: int | None = None
    """Skills that act at the end, without noise or updates, so that a finetuning knows what they do: by default 40, or
    as many as a fifth of the run has room for; 0 takes the last skills of the training itself, whose policy is older.
    """
    library_starts: int = 5
    """Episodes that each of those skills begins: from one alone, a skill that stays looks like one that goes there."""
    library_steps: int = 250
    """Steps of each of those episodes."""
    options: O
    """The method's own options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.diagnosed >= 0, f"diagnosed must not be negative, not {self.diagnosed}")
        require(self.library is None or self.library >= 0, f"library must not be negative, not {self.library}")
        require(self.library_starts >= 1, f"library_starts must be at least 1, not {self.library_starts}")
        require(self.library_steps >= 1, f"library_steps must be at least 1, not {self.library_steps}")
        taken = self.library_skills * self.library_starts * self.library_steps
        require(taken < self.steps, f"the library takes {taken} steps, the run has {self.steps}: make it smaller")

    intrinsic = True

    @property
    def environment(self) -> str:
        return self.domain

    @property
    def ending(self) -> int:
        """Where the library starts: the environments take their skills in rounds, together."""
        rounds = -(-self.library_skills // self.num_envs) * self.library_starts
        last = -(-self.steps // self.num_envs) * self.num_envs
        return last - rounds * self.library_steps * self.num_envs

    @property
    def library_skills(self) -> int:
        """How many skills act at the end."""
        if self.library is not None:
            return self.library
        return min(40, self.steps // (5 * self.library_starts * self.library_steps))


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(LoopConfig[L], Generic[L]):
    """Adapt a pre-trained agent to a task; with `--scratch`, learn the task from nothing with the same budget."""

    task: str
    """walker-run, quadruped-jump, jaco-reach_top_left, …: `cic envs` lists them."""
    critic: Keep = "trunk"
    """What is taken over of the pre-trained critic: its trunk as in the released code, all of it as in the paper."""
    skill: tuple[float, ...] | None = None
    """Use this skill and search for none; one number stands for all dimensions."""
    eval_every: int = 10_000
    """Steps between evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation, under the mean action."""
    critic_updates: int | None = None
    """Updates that teach the critic alone before the actor moves; by default those that came due in the search."""
    prior_data: float | None = None
    """Share of each batch that comes from what pre-training saw, with rewards by a regression on those that the task
    paid so far; they must follow from the observation. By default half, where the pre-training has kept it."""
    check_steps: int = 0
    """Last steps of the budget, in which the chosen skill alone and the tuned policy act in turn, without noise, from
    the same three starts: the better one is kept. 0 keeps the tuned policy unseen, as the paper does."""
    selection: SearchConfig = field(default_factory=SearchConfig)
    """The search for a skill at the beginning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        updates = self.critic_updates
        require(updates is None or updates >= 0, f"critic_updates must not be negative, not {updates}")
        require(
            self.prior_data is None or 0 <= self.prior_data < 1,
            f"prior_data must lie in [0, 1), not at {self.prior_data}",
        )
        require(0 <= self.check_steps < self.steps, f"check_steps must lie below steps, not at {self.check_steps}")
        require(self.eval_every >= 1 and self.eval_episodes >= 1, "eval_every and eval_episodes must be at least 1")

    intrinsic = False

    @property
    def environment(self) -> str:
        return self.task

    @property
    def ending(self) -> int:
        return self.steps - self.check_steps


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(FinetuneSettings[L], Generic[O, L]):
    """The settings and where the agent comes from."""

    objective: str
    pretrained: str | None
    """The pre-trained run's folder as it was given; kept for the record, the weights are in this run."""
    pretrain_steps: int
    pretrain_seed: int | None
    options: O


CONFIGS: dict[str, type[LoopConfig[Any]]] = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
"""The settings of each kind of run, by the names that run folders and commands use."""

_SMOKE: dict[str, Any] = {
    "learning": {"hidden": 32, "batch": 32, "lr": 1e-3},
    "warmup": 100,
    "replay": 10_000,
    "log_every": 100,
    "checkpoint_every": 200,
}
_LAPTOP: dict[str, Any] = {"hidden": 128, "lr": 1e-3}
_PAPER: dict[str, Any] = {"learning": {}, "threads": 2}

SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "pretrain": {**_SMOKE, "steps": 400, "milestones": (200,), "diagnosed": 0, "library": 0},
        "finetune": {
            **_SMOKE,
            "steps": 300,
            "eval_every": 150,
            "eval_episodes": 2,
            "prior_data": 0.0,
            "selection": SearchConfig(trial_steps=20),
        },
    },
    "laptop": {
        "pretrain": {
            "learning": {**_LAPTOP, "batch": 256},
            "steps": 450_000,
            "num_envs": 8,
            "update_every": 16,
            "milestones": (200_000, 400_000),
        },
        "finetune": {
            "learning": {**_LAPTOP, "batch": 128},
            "steps": 30_000,
            "warmup": 1_000,
            "update_every": 1,
            "eval_every": 5_000,
            "checkpoint_every": 10_000,
        },
    },
    "paper": {
        "pretrain": {**_PAPER, "steps": 2_000_000, "checkpoint_every": 100_000, "library": 0},
        "finetune": {**_PAPER, "steps": 100_000, "prior_data": 0.0},
    },
}


def _scale(scale: str, kind: str, learner: str, recommended: dict[str, Any] | None = None) -> dict[str, Any]:
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    own = recommended or {}
    settings = {"scale": scale, "learner": learner, **SCALES[scale][kind]}
    if scale == "paper":
        settings |= own.get("run", {})
    learning = own.get("learning", {}) | settings["learning"]
    return settings | {"learning": get_learner(learner).Config(**learning)}


def _plane(domain: str, options: Any) -> dict[str, Any]:
    """Where a body is, for the methods that count over it: as the domain says, if it does."""
    known = envs.domains().get(domain)
    asked = any(one.name == "plane" for one in dataclasses.fields(options))
    return {"plane": known.plane} if asked and known is not None and known.plane else {}


def pretrain_defaults(
    domain: str, objective: str = "cic", scale: str = "laptop", preset: str | None = None, learner: str | None = None
) -> Any:
    """A method's config at a scale, before the user's own settings. Without `learner`, the preset's own."""
    cls = get_objective(objective)
    preset = preset or next(iter(cls.presets))
    if preset not in cls.presets:
        raise unknown(f"preset of {objective}", preset, cls.presets)
    options = cls.Options(**_plane(domain, cls.Options) | cls.scales.get(scale, {}) | cls.presets[preset])
    recommended = cls.recommended.get(preset, {})
    wanted = recommended.get("learner", "ddpg")
    chosen = learner or wanted
    shared = _scale(scale, "pretrain", chosen, recommended if chosen == wanted else None)
    return PretrainConfig(domain=domain, objective=objective, preset=preset, options=options, **shared)


def inherited(before: LoopConfig[Any], start: LearnerConfig) -> LearnerConfig:
    """A finetuning's settings of the learner: those of its scale, but for what the pre-training had changed."""
    usual = get_learner(before.learner).Config(**SCALES[before.scale]["pretrain"]["learning"])
    names = [field.name for field in dataclasses.fields(before.learning)]
    kept = {name: getattr(before.learning, name) for name in names}
    return dataclasses.replace(start, **{name: kept[name] for name in names if kept[name] != getattr(usual, name)})


def finetune_defaults(task: str, scale: str = "laptop", learner: str = "ddpg") -> FinetuneSettings[Any]:
    return FinetuneSettings(task=task, **_scale(scale, "finetune", learner))


def override(config: C, changes: dict[str, Any]) -> C:
    """`override(config, {"steps": 10, "lr": 1e-3, "temperature": 0.1})`: a field of the config or of a part of it."""
    parts = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}  # type: ignore[arg-type]
    nested = {name: part for name, part in parts.items() if dataclasses.is_dataclass(part)}
    known: dict[str, str | None] = {f.name: name for name, part in nested.items() for f in dataclasses.fields(part)}
    known |= dict.fromkeys(parts)
    updates: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if name not in known:
            raise unknown("setting", name, known)
        owner = known[name]
        if owner is None:
            updates[name] = value
        else:
            inner.setdefault(owner, {})[name] = value
    updates = checked(type(config), updates)
    for name, values in inner.items():
        updates[name] = dataclasses.replace(parts[name], **checked(type(parts[name]), values))
    return dataclasses.replace(config, **updates)  # type: ignore[type-var]


def config_from_dict(cls: type, data: dict[str, Any]) -> Any:
    """A run's config.json back to its dataclass. Objective and learner say what their own settings are."""
    parts = {
        "options": get_objective(str(data.get("objective"))).Options,
        "learning": get_learner(str(data.get("learner"))).Config,
    }
    return from_dict(cls, data, open_types=parts)
