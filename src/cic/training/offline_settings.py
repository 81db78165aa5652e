"""The settings of offline training, and the presets that fill them.

An offline run has no environment: its steps are updates. `laptop` learns in minutes on one core, `exorl` has the
settings of the ExORL benchmark (Yarats et al. 2022), `smoke` is seconds, for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal

from cic.core.config import require
from cic.core.errors import UserError, unknown
from cic.learning.learners import get_learner
from cic.learning.objectives import NoOptions, get_objective, objectives
from cic.training.settings import L, LoopConfig, O

Preset = Literal["smoke", "laptop", "exorl"]
TASK_REWARD = "ddpg"
"""The objective that learns from task rewards."""


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(LoopConfig[L], Generic[O, L]):
    """Learn a task, or a zero-shot agent, from stored data."""

    data: str
    """A run folder, a folder of ExORL episodes (*.npz), minari:ID, or several of these joined with +."""
    task: str | None = None
    """The task to learn, such as walker-run; by default the reward in the data."""
    reward_formula: str = ""
    """Learn this reward instead of a task's: a formula of the domain's named quantities at the next state, such as
    "speed * upright"."""
    domain: str = ""
    """The domain of the data, if neither the data nor the task state it."""
    objective: str = TASK_REWARD
    """ddpg learns from the task's reward; fb, hilp and steer learn skills for many rewards (zero-shot)."""
    learner: str = "td3"
    """The RL algorithm: td3, td3bc, cql, iql, bc, ddpg or sac for a task; ddpg, td3 or sac for fb and hilp."""
    preset: Preset = "laptop"
    """The set of default settings: smoke (seconds), laptop (minutes on one core) or exorl (the benchmark's)."""
    steps: int = 100_000
    """Updates in total. There are no environment steps."""
    data_steps: int | None = None
    """Use the first episodes of the data with this many steps; by default all."""
    eval_every: int = 10_000
    """Updates between evaluations in the environment; 0 for none."""
    eval_episodes: int = 10
    """Episodes per evaluation and task, with the mean action."""
    states: int = 10_000
    """States of the data from whose rewards the skill of each task is inferred in evaluations (fb, hilp)."""
    warmup: int = 0
    update_every: int = 1
    options: O
    """The options of the method."""
    offline: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = {"num_envs": 1, "warmup": 0, "update_every": 1, "keep_physics": False, "pixels": False}
        for name, value in fixed.items():
            require(getattr(self, name) == value, f"{name} must be {value} in offline training: it has no environment")
        require(
            self.data_steps is None or self.data_steps >= 1, f"data_steps must be at least 1, not {self.data_steps}"
        )
        require(self.eval_every >= 0, f"eval_every must not be negative, not {self.eval_every}")
        require(self.eval_episodes >= 1, f"eval_episodes must be at least 1, not {self.eval_episodes}")
        require(self.states >= 1, f"states must be at least 1, not {self.states}")
        alone = not self.reward_formula or (self.task is None and not self.intrinsic)
        require(alone, "reward_formula must be the only source of the reward: omit the task and the objective")

    @property
    def intrinsic(self) -> bool:
        return self.objective != TASK_REWARD

    @property
    def environment(self) -> str:
        return self.task or self.domain

    @property
    def method_title(self) -> str:
        if self.intrinsic:
            return f"{super().method_title} offline"
        return f"{get_learner(self.learner).title or self.learner} offline"


NOT_SETTINGS = ("scale", "num_envs", "warmup", "update_every", "keep_physics", "replay", "env_timeout", "workers")
"""Fields of every run that have one value in offline training."""

_EXORL: dict[str, Any] = {"hidden": 1024, "batch": 1024, "lr": 1e-4, "gamma": 0.99, "tau": 0.01, "nstep": 1}
_LAPTOP: dict[str, Any] = {"hidden": 128, "batch": 256, "lr": 1e-3, "nstep": 3}
_SMOKE: dict[str, Any] = {"hidden": 16, "batch": 16, "lr": 1e-3, "nstep": 1}
_ZERO_SHOT: dict[str, dict[str, Any]] = {
    "smoke": {"gamma": 0.98},
    "laptop": {"gamma": 0.98, "lr": 5e-4, "nstep": 1},
    "exorl": {"gamma": 0.98},
}
"""Preset → settings of methods that learn skills for every reward. HILP and later releases of FB have this discount."""

PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "scale": "smoke",
        "learning": _SMOKE,
        "steps": 60,
        "eval_every": 40,
        "eval_episodes": 2,
        "states": 50,
        "log_every": 20,
        "checkpoint_every": 20,
    },
    "laptop": {
        "scale": "laptop",
        "learning": _LAPTOP,
        "steps": 100_000,
        "eval_every": 20_000,
        "eval_episodes": 5,
    },
    "exorl": {
        "scale": "paper",
        "learning": _EXORL,
        "steps": 500_000,
        "data_steps": 1_000_000,
        "threads": 2,
    },
}
LEARNERS: dict[str, dict[str, dict[str, Any]]] = {
    "exorl": {"td3": {"actor_every": 1, "actor_value": "min", "noise_clip": 0.3}},
    "laptop": {"td3": {"actor_every": 1, "actor_value": "min", "noise_clip": 0.3}},
}
"""Preset → learner → settings that differ from the learner's own defaults."""


OPTIONS: dict[str, dict[str, Any]] = {"steer": {"exploration": 0.0}}
"""Objective → options that differ without an environment: there is nothing to explore."""


def offline_defaults(
    data: str,
    task: str | None = None,
    *,
    learner: str | None = None,
    objective: str | None = None,
    preset: str = "laptop",
) -> OfflineConfig[Any, Any]:
    """Return the default config of a preset; by default TD3 for a task, and DDPG for a method with skills."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    name = objective or TASK_REWARD
    method, zero_shot = get_objective(name), name != TASK_REWARD
    if zero_shot and not method.redraws_skills:
        fitting = ", ".join(known for known, cls in objectives() if cls.redraws_skills)
        raise UserError(f"{name} needs an environment: its skills must act. Methods for stored data: {fitting}")
    chosen = learner or ("ddpg" if zero_shot else "td3")
    cls = get_learner(chosen)
    if zero_shot and cls.offline:
        raise UserError(f"{chosen} learns one task: choose ddpg, td3 or sac for {name}")
    settings = PRESETS[preset]
    learning = (
        settings["learning"] | LEARNERS.get(preset, {}).get(chosen, {}) | (_ZERO_SHOT[preset] if zero_shot else {})
    )
    chosen_options = method.scales.get(settings["scale"], {}) | OPTIONS.get(name, {})
    options = method.Options(**chosen_options) if zero_shot else NoOptions()
    return OfflineConfig(
        data=data,
        task=task,
        objective=name,
        preset=preset,  # type: ignore[arg-type]
        learner=chosen,
        options=options,
        **settings | {"learning": cls.Config(**learning)},
    )
