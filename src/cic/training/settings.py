"""The settings of runs: frozen dataclasses whose field docstrings are the help texts, and the defaults of each scale.

A scale is data, not code: `smoke` is seconds, for tests; `laptop` learns in minutes on one core; `paper` is every
number of the paper's table.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from cic import envs
from cic.core.config import checked, from_dict, require
from cic.core.errors import UserError, unknown
from cic.learning.compilation import Mode
from cic.learning.encoders import EncoderConfig
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
    auto is library if the pre-training recorded its skills from several initial states, else paper."""
    search_steps: int | None = None
    """Steps of the search; by default as many as the warm-up. If the search is longer than that, the updates that
    become due during it run after the skill is chosen, and train only the critic."""
    trial_steps: int = 100
    """Steps of each trial; halving starts with half of them."""
    trial_skip: int = 0
    """Steps at the start of each trial that are excluded from its score, because they depend on the previous trial."""
    finalists: int = 2
    """Number of skills that the library search tries after its ranking of the library."""
    search_value: float = 0.5
    """The value of every dimension of the skill with the search `fixed`."""

    def __post_init__(self) -> None:
        steps = self.search_steps
        require(steps is None or steps >= 0, f"search_steps must not be negative, not {steps}")
        require(self.trial_skip >= 0, f"trial_skip must not be negative, not {self.trial_skip}")
        require(self.finalists >= 1, f"finalists must be at least 1, not {self.finalists}")
        require(self.trial_steps >= 1, f"trial_steps must be at least 1, not {self.trial_steps}")


@dataclass(frozen=True, kw_only=True)
class LoopConfig(Generic[L]):
    """Settings that pre-training and finetuning share."""

    scale: Scale = "laptop"
    """The set of default settings: smoke (seconds), laptop (minutes on one core) or paper (the paper's settings)."""
    seed: int = 0
    """Seed of the run. The same seed gives bit-exact results on the same machine."""
    steps: int = 100_000
    """Environment steps in total, over all parallel environments."""
    warmup: int = 4_000
    """Steps before the first update: uniform actions, or the search for a skill."""
    update_every: int = 2
    """Environment steps per update."""
    num_envs: int = 1
    """Number of parallel environments."""
    workers: int = 0
    """Processes that step the parallel environments of your own simulator, at most num_envs. With 0, this process steps
    them one after the other. The results are the same."""
    normalise_obs: bool = False
    """Divide each entry of the observation by its running standard deviation, after subtracting its mean. Recommended
    for entries of very different or very large or small size. The statistics are part of the agent; a finetuning keeps
    those of its pre-training."""
    replay: int = 1_000_000
    """Capacity of the replay buffer in steps."""
    log_every: int = 1_000
    """Steps between two lines in metrics.jsonl."""
    checkpoint_every: int = 25_000
    """Steps between checkpoints. A run that is killed loses at most this many steps."""
    device: str = "cpu"
    """Device of the networks: cpu, or cuda (not tested by the project)."""
    threads: int = 1
    """Threads of PyTorch."""
    compile: Mode = "auto"
    """Compile the updates (20 s, needs g++): on, off, or auto, which is on from 10,000 updates."""
    env_timeout: float = 0.0
    """Maximum seconds per call of your own environment (make, reset, step, close), in training and in evaluations; a
    longer call ends the run. 0 means no limit."""
    wandb: bool = False
    """Also log to Weights & Biases (needs `pip install cic[wandb]`; WANDB_MODE=offline needs no network)."""
    wandb_project: str = "cic"
    """Project in Weights & Biases."""
    wandb_entity: str = ""
    """User or team in Weights & Biases; by default the user who is logged in."""
    wandb_group: str = ""
    """Group of runs in Weights & Biases."""
    wandb_tags: tuple[str, ...] = ()
    """Tags in Weights & Biases."""
    keep_physics: bool = False
    """Store the simulator's state of each step in the replay buffer, for `cic export`."""
    learner: str = "ddpg"
    """The RL algorithm that maximises the reward: ddpg (as in URLB), td3 or sac; for discrete actions dqn or
    sac_discrete."""
    learning: L
    """The settings of the learner."""
    pixels: bool = False
    """Observe rendered images instead of states (walker, quadruped, jaco, point_mass), as URLB's pixel benchmark."""
    image_size: int = 84
    """With pixels: width and height of the images."""
    frame_stack: int = 3
    """With pixels: images of the last steps that make one observation."""
    action_repeat: int = 2
    """With pixels: simulator steps per action. Steps count actions."""
    encoding: EncoderConfig = field(default_factory=EncoderConfig)
    """How images and Dict observations are encoded."""
    offline: ClassVar[bool] = False
    """Whether the run learns from stored data without an environment, so that its steps are updates."""

    @property
    def intrinsic(self) -> bool:
        """Whether the reward comes from the objective or from the task."""
        raise NotImplementedError

    @property
    def environment(self) -> str:
        """The name of the environment."""
        raise NotImplementedError

    def _observed(self, name: str) -> str:
        """The name of the environment with the arguments of its observation."""
        if not self.pixels:
            return name
        require(envs.REWARD not in name, f'the reward of "{name}" is a formula of the state: omit `pixels`')
        return f"{name}?pixels={self.image_size}&frame_stack={self.frame_stack}&action_repeat={self.action_repeat}"

    @property
    def method_title(self) -> str:
        """The name of the method in tables and figures."""
        return get_objective(self.objective).title  # type: ignore[attr-defined]

    @property
    def title(self) -> str:
        """The run's name on the progress bar."""
        return f"{self.method_title} {self.environment}"

    @property
    def ending(self) -> int:
        """The step at which the final phase of the run starts. An extended run continues before it."""
        return self.steps

    def __post_init__(self) -> None:
        for name in ("steps", "update_every", "num_envs", "replay", "log_every", "checkpoint_every", "threads"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(0 <= self.seed < 2**31, f"seed must lie in [0, 2³¹), not {self.seed}")
        require(self.warmup >= 0, f"warmup must not be negative, not {self.warmup}")
        require(0 <= self.workers <= self.num_envs, f"workers must lie in [0, num_envs], not at {self.workers}")
        require(0 <= self.env_timeout <= 1e6, f"env_timeout must lie in [0, 10⁶] seconds, not {self.env_timeout}")
        require(self.num_envs <= 10_000, f"num_envs must be at most 10,000, not {self.num_envs:,}")
        require(
            self.steps >= self.num_envs,
            f"steps must be at least num_envs ({self.num_envs}), not {self.steps}",
        )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(LoopConfig[L], Generic[O, L]):
    """Discover skills in a domain without its rewards."""

    domain: str
    """walker, quadruped, jaco, point_mass, hopper, gridworld, ant, half_cheetah, gymnasium:ID or your own."""
    objective: str = "cic"
    """The method: `cic objectives` lists them."""
    preset: str = "released"
    """A named set of the method's options; CIC has default, released, paper, explore and distinct. With `pixels`,
    released also sets `encoder_gradients`."""
    milestones: tuple[int, ...] = (100_000, 500_000, 1_000_000, 2_000_000)
    """Steps at which the weights are saved permanently."""
    diagnosed: int = 12
    """Number of skills that are played at every milestone (100 steps from three initial states) to log how much the
    behaviour depends on the skill; 0 for none."""
    library: int | None = None
    """Number of skills that are played at the end of the run, without noise and updates, and recorded for the skill
    search of a finetuning. By default 40, or fewer so that they take at most a fifth of the steps. With 0, the last
    skills of the training are recorded instead."""
    library_starts: int = 5
    """Number of initial states of each of these skills. With a single one, a skill that stays in place looks the
    same as one that reaches the target."""
    library_steps: int = 250
    """Steps from each of these initial states."""
    options: O
    """The options of the method."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.diagnosed >= 0, f"diagnosed must not be negative, not {self.diagnosed}")
        require(self.library is None or self.library >= 0, f"library must not be negative, not {self.library}")
        require(self.library_starts >= 1, f"library_starts must be at least 1, not {self.library_starts}")
        require(self.library_steps >= 1, f"library_steps must be at least 1, not {self.library_steps}")
        taken = self.library_skills * self.library_starts * self.library_steps
        require(taken < self.steps, f"the library takes {taken} steps and the run {self.steps}: lower `library`")

    @property
    def intrinsic(self) -> bool:
        return True

    @property
    def environment(self) -> str:
        return self._observed(self.domain)

    @property
    def ending(self) -> int:
        """The step at which the recording of the library starts; the environments play one skill each at a time."""
        rounds = -(-self.library_skills // self.num_envs) * self.library_starts
        last = -(-self.steps // self.num_envs) * self.num_envs
        return last - rounds * self.library_steps * self.num_envs

    @property
    def library_skills(self) -> int:
        """Number of skills that are played at the end."""
        if self.library is not None:
            return self.library
        return min(40, self.steps // (5 * self.library_starts * self.library_steps))


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(LoopConfig[L], Generic[L]):
    """Adapt a pre-trained agent to a task, or learn the task from scratch with the same budget."""

    task: str
    """walker-run, quadruped-jump, jaco-reach_top_left, …: `cic envs` lists them."""
    critic: Keep = "trunk"
    """The part of the pre-trained critic that is kept: its trunk (released code), all of it (paper) or none."""
    skill: tuple[float, ...] | None = None
    """Use this skill instead of searching for one; one number stands for all dimensions."""
    eval_every: int = 10_000
    """Steps between evaluations."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the mean action."""
    eval_steps: int = 10_000
    """Steps after which an evaluation episode is stopped, with a warning, in an environment without a time limit."""
    eval_timeout: float = 0.0
    """Maximum seconds per evaluation; then its episodes are stopped, with a warning. Their returns then depend on the
    speed of the machine. 0 means no limit."""
    critic_updates: int | None = None
    """Updates of the critic alone before the first update of the actor; by default those that became due during the
    search."""
    prior_data: float | None = None
    """Fraction of each batch that is pre-training replay, relabelled with task rewards that a regression on the
    finetuning data predicts. The rewards must be a function of the observation. By default 0.5, or 0 if the
    pre-training kept no replay buffer."""
    check_steps: int = 0
    """Number of steps at the end in which the pre-trained policy with the chosen skill and the finetuned policy are
    compared from the same three initial states, without noise; the better one is kept. With 0, the finetuned policy is
    always kept, as in the paper."""
    selection: SearchConfig = field(default_factory=SearchConfig)
    """The settings of the skill search."""

    def __post_init__(self) -> None:
        super().__post_init__()
        updates = self.critic_updates
        require(updates is None or updates >= 0, f"critic_updates must not be negative, not {updates}")
        require(
            self.prior_data is None or 0 <= self.prior_data < 1,
            f"prior_data must lie in [0, 1), not {self.prior_data}",
        )
        require(
            0 <= self.check_steps < self.steps,
            f"check_steps must be less than steps ({self.steps}), not {self.check_steps}",
        )
        counts = (self.eval_every, self.eval_episodes, self.eval_steps)
        require(min(counts) >= 1, f"eval_every, eval_episodes and eval_steps must be at least 1, not {counts}")
        require(0 <= self.eval_timeout <= 1e6, f"eval_timeout must lie in [0, 10⁶] seconds, not {self.eval_timeout}")

    @property
    def intrinsic(self) -> bool:
        return False

    @property
    def environment(self) -> str:
        return self._observed(self.task)

    @property
    def ending(self) -> int:
        return self.steps - self.check_steps


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(FinetuneSettings[L], Generic[O, L]):
    """The settings of a finetuning, and the origin of its agent."""

    objective: str
    pretrained: str | None
    """The folder of the pre-training as it was given. It is only a record: the weights are in this run's folder."""
    pretrain_steps: int
    pretrain_seed: int | None
    pretrain_problems: tuple[str, ...] = ()
    """Validity checks that the pre-training failed."""
    options: O


CONFIGS: dict[str, type[LoopConfig[Any]]] = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
"""The config class of each kind of run."""

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


_NO_LIBRARY = {"library": 0, "diagnosed": 0}
PIXELS: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "pretrain": {"image_size": 32, "learning": {"batch": 8}, "steps": 160, "update_every": 8, **_NO_LIBRARY},
        "finetune": {"image_size": 32, "learning": {"batch": 8}, "steps": 160, "update_every": 8},
    },
    "laptop": {
        "pretrain": {
            "image_size": 48,
            "learning": {"batch": 64, "lr": 3e-4},  # with 1e-3 the embedding collapses (results/spaces)
            "steps": 60_000,
            "num_envs": 4,
            "update_every": 8,
            "replay": 60_000,
            "milestones": (30_000,),
            **_NO_LIBRARY,
        },
        "finetune": {"image_size": 48, "learning": {"batch": 64, "lr": 3e-4}, "update_every": 2, "prior_data": 0.0},
    },
    "paper": {
        "pretrain": {"learning": {"batch": 256}, "steps": 1_000_000, "milestones": (250_000, 500_000, 1_000_000)},
        "finetune": {"learning": {"batch": 256}, "steps": 50_000},
    },
}
"""What differs from the scale with pixels. Steps count actions, of which each takes two frames of URLB's budgets."""


def _scale(
    scale: str, kind: str, learner: str, recommended: dict[str, Any] | None = None, pixels: bool = False
) -> dict[str, Any]:
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if get_learner(learner).offline:
        raise UserError(f"{learner} learns from stored data only: use it with `cic offline`")
    own = recommended or {}
    settings = {"scale": scale, "learner": learner, **SCALES[scale][kind]}
    if scale == "paper":
        settings |= own.get("run", {})
    learning = own.get("learning", {}) | settings["learning"]
    if pixels:
        learning |= PIXELS[scale][kind]["learning"]
        settings |= {"pixels": True, **PIXELS[scale][kind]}
    return settings | {"learning": get_learner(learner).Config(**learning)}


def _domain_options(domain: str, options: Any) -> dict[str, Any]:
    """Return the defaults of the options `plane` and `quantities`, for methods that have them, from the domain."""
    names = {one.name for one in dataclasses.fields(options)}
    known = envs.domains().get(domain)
    found: dict[str, Any] = {"plane": known.plane} if "plane" in names and known is not None and known.plane else {}
    return found | ({"quantities": envs.named_quantities(domain)} if "quantities" in names else {})


def pretrain_defaults(
    domain: str,
    objective: str = "cic",
    scale: str = "laptop",
    preset: str | None = None,
    learner: str | None = None,
    pixels: bool = False,
) -> Any:
    """Return the default config of a method at a scale; by default with the learner of the preset."""
    cls = get_objective(objective)
    encoding = EncoderConfig(encoder_gradients="released" if pixels and preset == "released" else "corrected")
    preset = preset or next(iter(cls.presets))
    if preset not in cls.presets:
        raise unknown(f"preset of {objective}", preset, cls.presets)
    options = cls.Options(**_domain_options(domain, cls.Options) | cls.scales.get(scale, {}) | cls.presets[preset])
    recommended = cls.recommended.get(preset, {})
    wanted = recommended.get("learner", "ddpg")
    chosen = learner or fitting_learner(domain, wanted)
    shared = _scale(scale, "pretrain", chosen, _recommended_for(chosen, wanted, recommended, chosen == learner), pixels)
    return PretrainConfig(
        domain=domain, objective=objective, preset=preset, options=options, encoding=encoding, **shared
    )


_DISCRETE = {"ddpg": "dqn", "td3": "dqn", "sac": "sac_discrete"}
"""The learner for discrete actions in place of one for continuous actions."""


def fitting_learner(environment: str, wanted: str = "ddpg") -> str:
    """Return the default learner: `wanted`, or the one in its place if the environment's actions are discrete."""
    return _DISCRETE.get(wanted, "dqn") if envs.has_discrete_actions(environment) else wanted


def _recommended_for(chosen: str, wanted: str, recommended: dict[str, Any], given: bool) -> dict[str, Any] | None:
    """Return the recommended settings: all for their learner; for the one in its place those that every learner has."""
    if chosen == wanted:
        return recommended
    if given:
        return None
    shared = {field.name for field in dataclasses.fields(LearnerConfig)}
    learning = {name: value for name, value in recommended.get("learning", {}).items() if name in shared}
    return recommended | {"learning": learning}


def inherited(before: LoopConfig[Any], start: LearnerConfig) -> LearnerConfig:
    """Return the learner's settings of a finetuning: those of its scale, with the changes of the pre-training."""
    usual = get_learner(before.learner).Config(**SCALES[before.scale]["pretrain"]["learning"])
    names = [field.name for field in dataclasses.fields(before.learning)]
    kept = {name: getattr(before.learning, name) for name in names}
    return dataclasses.replace(start, **{name: kept[name] for name in names if kept[name] != getattr(usual, name)})


def finetune_defaults(
    task: str, scale: str = "laptop", learner: str | None = None, pixels: bool = False
) -> FinetuneSettings[Any]:
    return FinetuneSettings(task=task, **_scale(scale, "finetune", learner or fitting_learner(task), None, pixels))


def override(config: C, changes: dict[str, Any]) -> C:
    """Return the config with other values of fields, its own or those of the learner, the search or the method."""
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
        if name in nested and not isinstance(value, type(nested[name])):
            raise UserError(f"{name} is a group of settings, not {value!r}: give each setting by its own name")
        if owner is None:
            updates[name] = value
        else:
            inner.setdefault(owner, {})[name] = value
    updates = checked(type(config), updates)
    for name, values in inner.items():
        updates[name] = dataclasses.replace(parts[name], **checked(type(parts[name]), values))
    return dataclasses.replace(config, **updates)  # type: ignore[type-var]


def config_from_dict(cls: type, data: dict[str, Any]) -> Any:
    """Make the dataclass from a run's config.json. Objective and learner determine the types of their settings."""
    parts = {
        "options": get_objective(str(data.get("objective"))).Options,
        "learning": get_learner(str(data.get("learner"))).Config,
    }
    return from_dict(cls, data, open_types=parts)
