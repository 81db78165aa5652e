"""Offline training: updates on stored data, without an environment. Every update is a step of the run.

With a task's reward, the policy is evaluated on the task. A method with skills for every reward is evaluated zero-shot:
the skill of each task is inferred from labelled states of the data.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.core.errors import UserError
from cic.core.spaces import Layout
from cic.core.types import Array, Spaces
from cic.data import Dataset, drift, formula_reward, open_dataset
from cic.envs.base import State, StepArrays, VectorEnv
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.runs.untrusted import plain
from cic.training.evaluation import evaluate_task, rollout
from cic.training.offline_settings import OfflineConfig
from cic.training.script import Call, Script, Segment
from cic.training.zero_shot import Labelled, infer_skill

if TYPE_CHECKING:
    from cic.training.loop import Loop

    Offline = Loop[OfflineConfig[Any, Any]]

DRIFT_SAMPLES = 256
LARGEST_DRIFT = 1e-3
"""Deviation of repeated steps that is reported; rounding gives about 1e-12."""
RANDOM_SKILLS = 1021
"""Skills that the steps of the data are labelled with, in turn: a prime, so that no episode length divides it."""


def offline(loop: Offline, labelled: Labelled | None = None) -> Script:
    """Update on the data, interrupted by evaluations. `labelled` are the states from which skills are inferred."""
    config = loop.config
    if config.normalise_obs:
        loop.agent.observe(loop.replay.obs[: len(loop.replay)])
    for update in range(config.eval_every, config.steps, config.eval_every) if config.eval_every else ():
        yield Segment("train", until_update=update)
        yield Call("evaluate", lambda: _evaluate(loop, labelled))
    yield Segment("train", until_update=config.steps)
    if config.steps % config.log_every:
        yield Call("log", loop.log)
    return _about(config) | (_evaluate(loop, labelled) if config.eval_every else {})


def _about(config: OfflineConfig[Any, Any]) -> dict[str, Any]:
    if config.intrinsic:
        return {"domain": config.domain, "objective": config.objective}
    if config.reward_formula:
        return {"domain": config.domain, "reward": config.reward_formula}
    return {"task": config.environment}


def _evaluate(loop: Offline, labelled: Labelled | None) -> dict[str, Any]:
    """Log the mean returns, and return them as part of a result."""
    config = loop.config
    loop.require_finite_update()
    seed = int(np.random.SeedSequence([config.seed, loop.step]).generate_state(1)[0] >> 1)
    if labelled is not None:
        returns = inferred_returns(loop.agent, config.domain, labelled, config.eval_episodes, seed)
        numbers = {f"inferred/{task}": float(np.mean(values)) for task, values in returns.items()}
        result: dict[str, Any] = {"returns": returns}
        shown = {task: numbers[f"inferred/{task}"] for task in returns}
    else:
        found = _returns(loop.agent, config, seed)
        numbers = {"eval/return": float(found.mean()), "eval/std": float(found.std())}
        result = {"return": numbers["eval/return"], "returns": found.tolist()}
        shown = {"eval": numbers["eval/return"]}
    loop.require_finite(numbers)
    loop.write_metrics(numbers)
    loop.reporter.note(loop.step, **shown)
    return result


def _returns(agent: Agent, config: OfflineConfig[Any, Any], seed: int) -> npt.NDArray[np.float64]:
    """The returns of one episode per environment, by the reward of the task or of the formula."""
    nothing = np.zeros(0, np.float32)
    if not config.reward_formula:
        return evaluate_task(agent, config.environment, nothing, episodes=config.eval_episodes, seed=seed)
    env = envs.make(config.domain, num_envs=config.eval_episodes, seed=seed)
    try:
        seen = rollout(agent, env, nothing, seed=seed, keep=True).observations
    finally:
        env.close()
    return np.array([formula_reward(config.domain, config.reward_formula, obs[1:]).sum() for obs in seen], np.float64)


def inferred_returns(agent: Agent, domain: str, labelled: Labelled, episodes: int, seed: int) -> dict[str, list[float]]:
    """Infer the skill of each task from labelled states and return the returns of its episodes.

    Tasks whose reward is the same at all states are left out.
    """
    skills = {task: infer_skill(agent, labelled, task) for task, reward in labelled.rewards.items() if np.ptp(reward)}
    if not skills:
        return {}
    env = envs.make(domain, num_envs=episodes * len(skills), seed=seed)
    try:
        found = rollout(agent, env, np.repeat(np.stack(list(skills.values())), episodes, axis=0), seed=seed).returns
    finally:
        env.close()
    rows = {task: slice(index * episodes, (index + 1) * episodes) for index, task in enumerate(skills)}
    return {task: found[task][rows[task]].tolist() for task in skills}


# ---- the data --------------------------------------------------------------------------------------------------


def resolved(config: OfflineConfig[Any, Any], data: Dataset) -> OfflineConfig[Any, Any]:
    """Return the config with the full name of the task and the domain, after a check that the data fit them."""
    data = _without_imports(data, config)
    domain = config.domain or _domain(data.environment or "")
    task = config.task
    known = envs.domains().get(domain)
    if task is not None and known is not None and task in known.tasks:
        task = f"{domain}-{task}"
    if config.reward_formula:
        formula_reward(domain, config.reward_formula, data.episodes[0].observation[:1])
    elif task is None and not config.intrinsic:
        task = data.environment
        if task is not None and task in envs.domains():
            tasks = ", ".join(f"{task}-{name}" for name in envs.domains()[task].tasks)
            raise UserError(f"{data.source} was collected without a reward: choose `task`, one of {tasks}")
    if task is not None:
        envs.split_name(task)
        domain = _domain(task)
    if config.intrinsic and domain not in envs.domains():
        raise UserError(
            f'{config.objective} needs a built-in domain, and {data.source} is of "{domain or "unknown"}": '
            f"set `domain`, one of {', '.join(envs.domains())}"
        )
    options = config.options
    if getattr(options, "quantities", None) == ():
        options = replace(options, quantities=envs.named_quantities(domain))
    found = replace(config, task=None if config.intrinsic else task, domain=domain, options=options)
    _check_environment(found, data)
    return found


def _without_imports(data: Dataset, config: OfflineConfig[Any, Any]) -> Dataset:
    """Ignore an environment that would import code, if only the data name it: they may be untrusted."""
    name = data.environment
    if name is None or name in (config.task, config.domain) or (danger := envs.would_run(name)) is None:
        return data
    warnings.warn(
        f'the environment "{plain(name)}" of {data.source} {plain(danger)} and is not used: set `task` to allow that',
        stacklevel=2,
    )
    return replace(data, environment=None)


def _domain(environment: str) -> str:
    return environment if ":" in environment else environment.partition("-")[0]


def _check_environment(config: OfflineConfig[Any, Any], data: Dataset) -> None:
    """The environment of the evaluations must exist and have the sizes of the data."""
    if not config.eval_every:
        return
    hint = "set `eval_every=0` to train without evaluations"
    if not config.environment:
        raise UserError(f"{data.source} does not state its environment: set `task`, or {hint}")
    try:
        env = envs.make(config.environment)
    except UserError as error:
        raise UserError(f"{error}; {hint}") from None
    env.close()
    if env.spaces.choices:
        raise UserError(f"{config.environment} has discrete actions: offline training needs continuous ones")
    if env.spaces != data.spaces:
        raise UserError(
            f"{data.source} has observations and actions of sizes {data.spaces[:2]}, {config.environment} of "
            f"{env.spaces[:2]}: choose a task of the environment in which the data were collected"
        )


def make_replay(config: OfflineConfig[Any, Any], data: Dataset, agent: Agent) -> Replay:
    """Return the data as the replay of the run, with the rewards of its task."""
    needs = agent.objective.needs
    nstep = needs.nstep if config.intrinsic and needs.nstep else config.learning.nstep
    if config.intrinsic:
        reward = np.zeros(data.steps, np.float32)
    elif config.reward_formula:
        seen = np.concatenate([episode.observation[1:] for episode in data.episodes])
        reward = formula_reward(config.domain, config.reward_formula, seen)
    else:
        reward = data.rewards(None if config.task == data.environment else config.task)
    skills = agent.objective.skills.sample(RANDOM_SKILLS, np.random.default_rng(config.seed))
    return data.replay(reward, nstep, config.learning.gamma, skills)


def labelled_states(config: OfflineConfig[Any, Any], data: Dataset, count: int, seed: int) -> Labelled:
    """Return `count` random states of the data with the rewards of every task of the domain."""
    rewards = data.all_rewards(config.domain)
    if not rewards:
        raise UserError(
            f"{data.source} has neither task rewards nor simulator states, so no skill can be inferred from it: "
            "collect data with `keep_physics`"
        )
    next_obs = np.concatenate([episode.observation[1:] for episode in data.episodes])
    chosen = np.random.default_rng(seed).permutation(len(next_obs))[:count]
    return Labelled(next_obs[chosen], {task: reward[chosen, None] for task, reward in rewards.items()})


def describe(config: OfflineConfig[Any, Any], data: Dataset) -> dict[str, Any]:
    """What a run records about its data: the size, a checksum, and the largest deviation when steps are repeated."""
    about: dict[str, Any] = {"steps": data.steps, "episodes": len(data.episodes), "digest": data.digest()}
    if data.has_physics and config.domain in envs.domains():
        about["drift"] = found = drift(config.domain, data.episodes, DRIFT_SAMPLES)
        if found > LARGEST_DRIFT:
            warnings.warn(
                f"{data.source} does not fit this version of the simulator: repeated steps deviate by up to "
                f"{found:.2g}, so the policy will meet other dynamics than those in the data",
                stacklevel=4,
            )
    return about


def reopen(run: Run, config: OfflineConfig[Any, Any]) -> Dataset:
    """Open the data of a run, and check that they are those it started with."""
    try:
        data = open_dataset(config.data, config.data_steps)
    except UserError as error:
        raise UserError(f"the data of {run.path} cannot be read: {error}") from None
    recorded = run.about.get("data")
    if not isinstance(recorded, dict) or recorded.get("digest") != data.digest():
        raise UserError(f"{config.data} changed after {run.path} started from it: restore the data, or start a new run")
    return data


def stand_in(config: OfflineConfig[Any, Any], data: Dataset) -> NoEnvironment:
    """Return what takes the place of the run's environment, with the spaces of the one in which it is evaluated."""
    layout = None
    if config.eval_every:
        env = envs.make(config.environment)
        layout = env.layout
        env.close()
    return NoEnvironment(config.environment, data.spaces, layout)


class NoEnvironment(VectorEnv):
    """Stands in for the environment of the loop, which an offline run never steps."""

    def __init__(self, name: str, spaces: Spaces, layout: Layout | None = None) -> None:
        super().__init__(name or "data", spaces.obs, spaces.action, 1)
        self._layout = layout
        self.domain, self.task, self.tasks, self.episode_length, self.coverage = self.name, None, (), None, None

    @property
    def layout(self) -> Layout:
        """The spaces of the environment that the policy is for, if it is known."""
        return self._layout or super().layout

    def step(self, actions: Array) -> StepArrays:
        self._refuse()

    def render(self, index: int = 0, width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:  # type: ignore[override]
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(f"{self.name}: a run on stored data has no environment")

    def _reseed(self, index: int, seed: int) -> None:
        pass

    def _begin(self, index: int) -> None:
        pass

    def _observe(self) -> Array:
        return np.zeros((1, self.spaces.obs), np.float32)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass
