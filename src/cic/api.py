"""Train, resume, load and evaluate runs: the functions behind the commands that train, and `cic evaluate`."""

from __future__ import annotations

import dataclasses
import re
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic import __version__, envs
from cic.core.config import require, to_dict
from cic.core.errors import UserError, unknown
from cic.core.imports import imported, naming_imports
from cic.core.types import Array
from cic.data import Dataset, open_dataset
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import NoOptions, get_objective
from cic.learning.validate import check_objective
from cic.runs.folder import Inheritance, ReplayUnusable, Run
from cic.runs.provenance import provenance
from cic.runs.untrusted import Arrays, plain
from cic.training.checkpoint_checks import weights_limit
from cic.training.evaluation import rollout
from cic.training.finetuning import finetune as finetune_script
from cic.training.loading import check_source, chosen_skill, config_of, load_agent, make_agent, open_env, read_replay
from cic.training.loop import Loop
from cic.training.offline import describe, labelled_states, make_replay, reopen, resolved, stand_in
from cic.training.offline import offline as offline_script
from cic.training.offline_settings import OfflineConfig, offline_defaults
from cic.training.preflight import check_device, check_memory, check_numbers
from cic.training.pretraining import pretrain as pretrain_script
from cic.training.relabelled_replay import SHARE, latest_steps
from cic.training.script import Script
from cic.training.settings import (
    FinetuneConfig,
    FinetuneSettings,
    LoopConfig,
    PretrainConfig,
    finetune_defaults,
    inherited,
    override,
    pretrain_defaults,
)
from cic.training.zero_shot import (
    Labelled,
    Reached,
    fresh_states,
    infer_skill,
    reach_goals,
    replayed_states,
    require_inference,
)

PROMPT_FILE = "prompt.json"
"""In the folder of a prompt: the prompt and its answer."""
SCRIPTS: dict[str, Callable[[Loop[Any]], Script]] = {"pretrain": pretrain_script, "finetune": finetune_script}
"""The training script of each kind of run."""


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    path: Path
    """The run folder."""
    result: dict[str, Any]
    """The content of result.json."""


def pretrain(
    domain: str | PretrainConfig[Any, Any] | None = None,
    objective: str = "cic",
    *,
    start: Path | str | None = None,
    scale: str = "laptop",
    preset: str | None = None,
    learner: str | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Discover skills in a domain, without rewards.

    Args:
        domain: A built-in domain (`"walker"`), `"gymnasium:ID"`, a name given to `register_env`, or a complete config.
        objective: The method; `cic.objectives()` lists them.
        start: Start from the weights of this pre-training, with its settings except those that are given. Objective,
            scale, preset and learner are those of the run. Replay buffer, optimisers and the number of steps start
            afresh.
        scale: The set of default settings: `"smoke"` (seconds), `"laptop"` (minutes) or `"paper"`.
        preset: A named set of the method's options.
        learner: The RL algorithm: `"ddpg"`, `"td3"` or `"sac"`, and for discrete actions `"dqn"` or `"sac_discrete"`;
            by default that of the method.
        out: Folder of the run. By default a new folder under `runs/` is created.
        quiet: Show no progress.
        **settings: Fields of `PretrainConfig`, of the learner's config and of the method's options by name.

    Returns:
        The run folder and its result.

    Raises:
        UserError: A setting is invalid. No folder is created then.

    Example:
        ```python
        run = cic.pretrain("gridworld", "cic", scale="smoke", steps=2_000, out="runs/skills", quiet=True)
        print(run.path, run.result["coverage/fraction"])
        ```
    """
    inherited, origin = None, ""
    if start is not None:
        config, inherited, origin = _started(start, domain, settings)
    elif domain is None:
        raise UserError("give a domain, or `start` with the run to start from")
    elif isinstance(domain, PretrainConfig):
        config = domain
    else:
        pixels = bool(settings.get("pixels", False))
        config = override(pretrain_defaults(domain, objective, scale, preset, learner, pixels), settings)
    name, task = envs.split_name(config.domain)
    if task is not None:
        raise UserError(f'pre-training is reward-free: give the domain "{name}", not the task "{config.domain}"')
    if config.objective == "ddpg":
        raise UserError(
            "ddpg has no intrinsic reward to pre-train with: finetune from scratch to a task of "
            f'"{name}", or choose another objective'
        )
    _check(config)
    path = _new_folder(out, f"pretrain-{config.objective}-{config.domain}-s{config.seed}")
    return _start(path, "pretrain", config, inherited, quiet, origin)


def _started(
    start: Path | str, domain: Any, settings: dict[str, Any]
) -> tuple[PretrainConfig[Any, Any], Inheritance, str]:
    """Return the settings of a pre-training that starts from another, the weights, and where they come from."""
    run = Run(start)
    if run.kind != "pretrain":
        raise UserError(f"{start} is a finetuning run: give the folder of a pre-training")
    before = config_of(run)
    config = domain if isinstance(domain, PretrainConfig) else override(before, settings)
    if isinstance(domain, str):
        config = dataclasses.replace(config, domain=domain)
    elif domain is None:
        check_source(run, config, trust=False)
    agent, step = load_agent(run, before, None)
    fresh, weights = make_agent(config, agent.spaces).state_dict(), agent.state_dict()
    for name in {**weights, **fresh}:
        if name not in fresh or name not in weights or fresh[name].shape != weights[name].shape:
            raise UserError(
                f"the weights of {start} do not fit the new settings ({name}): keep sizes such as `hidden`, and "
                "settings that add networks such as `auxiliary`"
            )
    return config, Inheritance(weights, {}), f"starts from {start} at step {step:,}"


def finetune(
    run: Path | str | None,
    task: str | FinetuneSettings[Any],
    *,
    at: int | None = None,
    scale: str | None = None,
    learner: str | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Adapt a pre-trained run to a task, or learn the task from scratch.

    Args:
        run: Folder of a pre-training or of a prompt, or a bundled agent (`"walker"`). With None, the task is learned
            from scratch.
        task: A task (`"walker-run"`, or `"run"` in the run's domain), a formula of named quantities as the reward
            (`"walker => speed * upright"`), `"prompt"` for the reward of a prompt's folder, or complete settings.
        at: Use the weights of this step's milestone or checkpoint. Required if the pre-training is not finished.
        scale: The set of default settings. By default the scale and the learner's settings of the pre-training.
        learner: The RL algorithm; by default that of the pre-training.
        out: Folder of the run. By default a new folder under `runs/` is created.
        quiet: Show no progress.
        **settings: Fields of `FinetuneSettings`, `SearchConfig` and of the learner's config by name.

    Returns:
        The run folder and its result; `result["return"]` is the mean return of the last evaluation.

    Raises:
        UserError: A setting is invalid. No folder is created then.

    Example:
        ```python
        tuned = cic.finetune("runs/skills", "reach_top_left", steps=2_000, out="runs/tuned", quiet=True)
        print(tuned.result["return"], tuned.result["skill"])
        ```
    """
    given = (
        task
        if isinstance(task, FinetuneSettings)
        else override(starting_point(run, task, scale, learner, bool(settings.get("pixels", False))), settings)
    )
    given = dataclasses.replace(given, task=whole_task(run, given.task))
    domain, name = envs.split_name(given.task)
    if name is None and domain in envs.domains():
        tasks = ", ".join(f"{domain}-{known}" for known in envs.domains()[domain].tasks)
        raise UserError(f'"{given.task}" is a domain without a reward: choose a task, one of {tasks}')
    _check(given)
    source = _source(run, at, domain, given) if run is not None else None
    if given.prior_data is None:
        given = dataclasses.replace(given, prior_data=SHARE if source and source.inheritance.steps else 0.0)
    config = _finetune_config(given, source, str(run))
    path = _new_folder(out, f"finetune-{config.objective}-{config.task}-s{config.seed}")
    origin = f"starts from {run} at step {source.step:,}" if source else ""
    if source and source.inheritance.steps:
        origin += f" and uses {len(source.inheritance.steps['obs']):,} states of its replay buffer"
    return _start(path, "finetune", config, source.inheritance if source else None, quiet, origin)


def offline(
    data: Path | str | OfflineConfig[Any, Any],
    task: str | None = None,
    *,
    learner: str | None = None,
    objective: str | None = None,
    preset: str = "laptop",
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Learn a task, or skills for every reward, from stored data without an environment.

    Args:
        data: A run folder, a folder of ExORL episodes, `"minari:ID"`, several of these joined with `+`, or a complete
            config.
        task: The task whose reward is learned (`"walker-run"`, or `"run"` in the domain of the data); by default the
            reward in the data.
        learner: `"td3"` (default), `"td3bc"`, `"cql"`, `"iql"` or `"bc"`; also `"ddpg"` and `"sac"`.
        objective: `"fb"`, `"hilp"` or `"steer"` learn skills for many rewards instead of one task.
        preset: The set of default settings: `"smoke"`, `"laptop"` (minutes on one core) or `"exorl"` (the settings of
            the ExORL benchmark).
        out: Folder of the run. By default a new folder under `runs/` is created.
        quiet: Show no progress.
        **settings: Fields of `OfflineConfig`, of the learner's config and of the method's options by name.

    Returns:
        The run folder and its result; `result["return"]` is the mean return of the last evaluation.

    Raises:
        UserError: A setting is invalid or the data cannot be read. No folder is created then.

    Example:
        ```python
        collected = cic.pretrain("gridworld", "rnd", scale="smoke", quiet=True)
        learned = cic.offline(collected.path, "reach_top_left", preset="smoke", out="runs/offline", quiet=True)
        print(learned.result["return"])
        ```
    """
    if isinstance(data, OfflineConfig):
        config = data
    else:
        start = offline_defaults(str(data), task, learner=learner, objective=objective, preset=preset)
        config = override(start, settings)
    _check(config)
    opened = open_dataset(config.data, config.data_steps)
    config = resolved(config, opened)
    method = config.objective if config.intrinsic else config.learner
    path = _new_folder(out, f"offline-{method}-{config.environment or 'data'}-s{config.seed}")
    origin = f"learns from {opened.steps:,} steps of {len(opened.episodes):,} episodes in {config.data}"
    return _start(path, "offline", config, None, quiet, origin, opened)


def starting_point(
    run: Path | str | None, task: str, scale: str | None, learner: str | None = None, pixels: bool = False
) -> FinetuneSettings[Any]:
    """Return the default settings of a finetuning: those of the scale, or of the pre-training."""
    if run is None:
        return finetune_defaults(task, scale or "laptop", learner, pixels)
    opened = Run(run)
    start = continuing(config_of(opened), task, scale, learner)
    own = is_prompt(opened) and task == "prompt"
    return dataclasses.replace(start, skill=config_of(opened).skill) if own else start


def continuing(
    before: LoopConfig[Any], task: str, scale: str | None = None, learner: str | None = None
) -> FinetuneSettings[Any]:
    """Return the default settings of a finetuning that continues a pre-training with the config `before`."""
    start = finetune_defaults(task, scale or before.scale, learner or before.learner, before.pixels)
    kept = {name: getattr(before, name) for name in (*_OBSERVATION, "normalise_obs")}
    start = dataclasses.replace(start, **kept)
    if scale is None and start.learner == before.learner:
        return dataclasses.replace(start, learning=inherited(before, start.learning))
    return start


_OBSERVATION = ("pixels", "image_size", "frame_stack", "action_repeat", "encoding")
"""The settings of the observation, which a finetuning shares with its pre-training."""


def whole_task(run: Path | str | None, task: str) -> str:
    """Return the full name of a task: `"run"` → `"walker-run"`, in the domain of the pre-training.

    The task of an environment that is not built in has the name of the environment. `"prompt"` is the reward of the
    folder of a prompt.
    """
    if run is None:
        return task
    opened = Run(run)
    if is_prompt(opened):
        domain = envs.domain_of(config_of(opened).task)
        if task == "prompt":  # the folder names the environment, not the user
            check_source(opened, config_of(opened), trust=False)
            task = config_of(opened).task
    else:
        domain = str(opened.config.get("domain"))
    known = envs.domains().get(domain)
    if known is not None and task in known.tasks:
        return f"{domain}-{task}"
    try:
        with naming_imports(opened.about.get("imports"), run):
            envs.split_name(task)
    except UserError as error:
        if task == domain or opened.kind != "pretrain" or not str(error).startswith("unknown"):
            raise
        raise unknown(f"task of {run}", task.removeprefix(f"{domain}-"), known.tasks if known else [domain]) from None
    return task


@dataclass(frozen=True)
class _Source:
    """The parts of a pre-training that a finetuning uses."""

    agent: Agent
    inheritance: Inheritance
    config: PretrainConfig[Any, Any] | FinetuneConfig[Any, Any]
    step: int
    problems: tuple[str, ...] = ()
    """Validity checks that it failed."""


def _source(path: Path | str, at: int | None, domain: str, given: FinetuneSettings[Any]) -> _Source:
    run = Run(path)
    config = config_of(run)
    if not config.intrinsic and not is_prompt(run):
        raise UserError(f"{path} learned the task {config.environment}: give the folder of a pre-training")
    trained_in = envs.domain_of(config.environment)
    if trained_in not in (domain, given.task):
        raise UserError(
            f'{path} was pre-trained in "{trained_in}", which has no task "{given.task}": '
            f'choose a task of "{trained_in}"'
        )
    if config.learner != given.learner:
        raise UserError(
            f"{path} was pre-trained with {config.learner}: omit `learner`, or pre-train with {given.learner}"
        )
    if config.normalise_obs != given.normalise_obs:
        raise UserError(f"{path} has `normalise_obs={config.normalise_obs}`: omit `normalise_obs`")
    if config.learning.hidden != given.learning.hidden:
        raise UserError(
            f"{path} has networks of width {config.learning.hidden}, not {given.learning.hidden}: "
            f"set `hidden={config.learning.hidden}` or `scale={config.scale}`"
        )
    for name, before, now in _changed_observation(config, given):
        raise UserError(f"{path} was pre-trained with `{name}={before}`, not {now}: omit `{name}`, or pre-train again")
    if run.kind == "finetune":
        return _prompt_source(run, config, given)
    agent, step = _final_agent(run, config) if at is None else load_agent(run, config, at)
    if agent.spaces.images and given.prior_data:
        raise UserError("prior_data is not available for images, whose rewards cannot be predicted: omit `prior_data`")
    library = run.library() if at is None else {}  # it belongs to the weights at the end
    steps = (
        _steps_of(run, at, asked=given.prior_data is not None)
        if given.prior_data != 0 and not agent.spaces.images
        else None
    )
    found = (run.result() or {}).get("problems")
    problems = tuple(plain(name) for name in found) if isinstance(found, dict) else ()
    return _Source(agent, Inheritance(agent.state_dict(), library, steps), config, step, problems)


def _changed_observation(config: LoopConfig[Any], given: LoopConfig[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the settings of the observation that differ: name and both values."""
    for name in _OBSERVATION:
        before, now = getattr(config, name), getattr(given, name)
        nested = dataclasses.is_dataclass(before)
        old, new = (to_dict(one) if nested else {name: one} for one in (before, now))
        yield from ((one, value, new[one]) for one, value in old.items() if value != new[one])


def is_prompt(run: Run) -> bool:
    """Whether a run is the answer to a prompt: a pre-trained agent with a skill, not trained further.

    It follows from the config, because `PROMPT_FILE` is missing after an interruption.
    """
    return run.kind == "finetune" and run.config.get("steps") == 1 and envs.REWARD in str(run.config.get("task"))


def _prompt_source(run: Run, config: FinetuneConfig[Any, Any], given: FinetuneSettings[Any]) -> _Source:
    """The pre-trained agent in the folder of a prompt, which has no replay."""
    if given.prior_data:
        raise UserError(f"{run.path} has no replay buffer: set `prior_data=0`, or finetune the pre-training itself")
    agent, _ = load_agent(run, config, None)
    inherited = run.inherited(weights_limit(agent))
    if inherited is None:
        raise UserError(f"{run.path} does not contain the pre-trained weights: give the folder of the pre-training")
    return _Source(agent, Inheritance(inherited.weights, inherited.library, None), config, config.pretrain_steps)


def _steps_of(run: Run, at: int | None, asked: bool) -> Arrays | None:
    """Return the steps in the replay buffer of a pre-training; None if it was not kept and not `asked` for."""
    if not asked and (at is not None or not run.checkpoints()):
        return None
    if at is not None:
        raise UserError("the replay buffer also has the steps after `at`: omit `at` or `prior_data`")
    try:
        return latest_steps(read_replay(run, config_of(run)))
    except ReplayUnusable as error:
        if asked:
            raise UserError(f"{error}: set `prior_data=0` to finetune without pre-training data") from None
        warnings.warn(f"{error}; finetuning without pre-training data", stacklevel=4)
        return None


def _final_agent(run: Run, config: Any) -> tuple[Agent, int]:
    step = _final_step(run)
    try:
        return load_agent(run, config, step)
    except UserError as error:
        held = ", ".join(map(str, run.steps_held()))
        raise UserError(f"{error}: choose other weights with `at` (available: {held})") from None


def _final_step(run: Run) -> int:
    """Return the last step of a finished run. For an unfinished run, the user must choose the weights."""
    result = run.result()
    if result is not None:
        step = result.get("step")
        return step if isinstance(step, int) else run.steps_held()[-1]
    reached = run.reached()
    held = ", ".join(map(str, run.steps_held())) or "none yet"
    raise UserError(
        f"{run.path} is not finished (step {reached:,} of {run.config['steps']:,}): resume it first, or choose "
        f"weights with `at` (available: {held})"
    )


def _finetune_config(given: FinetuneSettings[Any], source: _Source | None, path: str) -> FinetuneConfig[Any, Any]:
    shared = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    if source is None:
        if given.skill is not None:
            raise UserError("`skill` needs a pre-trained run: an agent from scratch has no skills")
        origin: dict[str, Any] = {"objective": "ddpg", "pretrained": None, "pretrain_steps": 0, "pretrain_seed": None}
        return FinetuneConfig(**shared, **origin, options=NoOptions())
    if given.skill is not None:
        shared["skill"] = tuple(source.agent.objective.skills.check(given.skill).tolist())
    return FinetuneConfig(
        **shared,
        objective=source.config.objective,
        pretrained=path,
        pretrain_steps=source.step,
        pretrain_seed=getattr(source.config, "pretrain_seed", source.config.seed),
        pretrain_problems=source.problems,
        options=source.config.options,
    )


def resume(
    run: Path | str,
    *,
    steps: int | None = None,
    quiet: bool = False,
    device: str | None = None,
    trust: bool = False,
) -> Finished:
    """Resume a stopped run from its last checkpoint, with the same result as if it had never stopped.

    Args:
        run: The run folder.
        steps: Make the run longer, also if it is finished: the result is that of a run planned with this many steps.
        quiet: Show no progress.
        device: Resume on another device. The result is then not bit-exact.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        The run folder and its result.

    Example:
        ```python
        longer = cic.resume("runs/skills", steps=3_000, quiet=True)
        ```
    """
    opened = Run(run)
    opened.require_current_format()
    if steps is not None:
        opened.extend(steps, config_of(opened).ending)
    elif (result := opened.result()) is not None:
        return _already_finished(opened, result)
    config = config_of(opened)
    if device is not None:
        config = dataclasses.replace(config, device=device)
    try:
        check_device(config.device)
    except UserError as error:
        raise UserError(f"{error}. Resume on another machine, or here with `device=cpu`") from None
    check_source(opened, config, trust)
    data = reopen(opened, config) if opened.kind == "offline" else None
    with naming_imports(opened.about.get("imports"), run):
        agent, env = _parts(config, data)
    inherited = None if data is not None else _inherited(opened, config, agent)
    return Finished(opened.path, _loop(opened, config, env, agent, inherited, quiet, data).train())


def _inherited(run: Run, config: Any, agent: Agent) -> Inheritance | None:
    """Return the inherited data of a finetuning. It may be damaged if the checkpoints have all that is still needed."""
    try:
        return run.inherited(weights_limit(agent))
    except UserError:
        if run.checkpoints() and (config.intrinsic or not (config.check_steps or config.prior_data)):
            return None
        raise


def _already_finished(run: Run, result: dict[str, Any]) -> Finished:
    """Write the status of a run that was killed between its result and its last status."""
    if run.says_finished:
        raise UserError(f"{run.path} is finished already: set `steps` to make it longer")
    run.lock()
    try:
        step = result.get("step")
        run.write_status("finished", step if isinstance(step, int) else 0)
    finally:
        run.unlock()
    return Finished(run.path, result)


def load(run: Path | str, *, at: int | None = None) -> Agent:
    """Load the agent of a run. No environment is made.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent: `"walker"`, `"quadruped"` or `"point_mass"`.
            Every function that takes a run accepts these names; an existing path takes precedence.
        at: Use the weights of this step's milestone or checkpoint; by default the last ones.

    Returns:
        The agent: `agent.act(obs, skill)` returns actions. A finetuned agent uses its selected skill by default.

    Example:
        ```python
        import numpy as np

        agent = cic.load("walker")
        skill = agent.objective.skills.sample(1, np.random.default_rng(0))[0]
        action = agent.act(np.zeros(24, np.float32), skill)
        ```
    """
    opened = Run(run)
    agent, step = load_agent(opened, config_of(opened), at)
    if at is None and not opened.finished:
        warnings.warn(f"{run} is not finished: using its weights of step {step:,}", stacklevel=2)
    agent.skill = chosen_skill(opened, agent.objective.skills.dim)
    return agent


@dataclass(frozen=True)
class Evaluation:
    """Returns of a run's agent."""

    skill: list[float] | None
    """The skill that was used; None if each episode used its own."""
    returns: dict[str, list[float]]
    """One number per episode for each task."""


def evaluate(
    run: Path | str,
    *,
    episodes: int = 10,
    skill: Array | Sequence[float] | None = None,
    seed: int = 0,
    at: int | None = None,
    trust: bool = False,
) -> Evaluation:
    """Measure the returns of a run's agent: on its task, or for a pre-trained agent on every task of its domain.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        episodes: Number of parallel episodes, with the mean action.
        skill: Use this skill: a number per dimension, one number for all dimensions, or the index of a one-hot skill.
            By default the run's selected skill; a pre-trained agent uses a random skill in each episode (zero-shot).
        seed: Seed of the initial states and the random skills.
        at: Use the weights of this step's milestone or checkpoint.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        The skill, and one return per episode for each task.

    Example:
        ```python
        found = cic.evaluate("runs/tuned", episodes=3)
        print(found.returns)
        ```
    """
    opened = Run(run)
    agent = load(run, at=at)
    used = agent.skill if skill is None else agent.objective.skills.check(np.ravel(skill).tolist())
    env = open_env(opened, num_envs=episodes, seed=seed, trust=trust, limited=True)
    try:
        drawn = agent.objective.skills.sample(episodes, np.random.default_rng(seed)) if used is None else used
        limits = _evaluation_limits(config_of(opened))
        measured = rollout(agent, env, drawn, seed=seed, **limits).returns
    finally:
        env.close()
    rewards = measured.pop("reward")
    if env.task is not None or not env.tasks:
        measured = {env.name: rewards}
    return Evaluation(None if used is None else used.tolist(), {task: r.tolist() for task, r in measured.items()})


def _evaluation_limits(config: Any) -> dict[str, Any]:
    """The limits of a finetuning's own evaluations; none for other runs."""
    if not isinstance(config, FinetuneConfig):
        return {}
    return {"longest": config.eval_steps, "seconds": config.eval_timeout}


def infer(
    run: Path | str,
    states: int,
    *,
    episodes: int = 10,
    seed: int = 0,
    at: int | None = None,
    trust: bool = False,
) -> Evaluation:
    """Infer the skill of each task of the domain from labelled states, and measure its returns (zero-shot).

    The states are drawn from the run's replay buffer or, for an offline run, from its data; without a replay buffer,
    random skills collect new states.

    Args:
        run: Folder of a pre-training or an offline run whose method infers skills from rewards (for example FB).
        states: Number of states that are labelled with the task's reward.
        episodes: Number of parallel episodes per task, with the mean action.
        seed: Seed of the states and the initial states.
        at: Use the weights of this step's milestone or checkpoint.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        One return per episode for each task.

    Example:
        ```python
        run = cic.pretrain("walker", "fb", scale="smoke", out="runs/fb", quiet=True)
        print(cic.infer(run.path, states=200, episodes=3).returns)
        ```
    """
    opened = Run(run)
    agent, env = _pretrained(opened, at, episodes, seed, trust)
    try:
        require_inference(agent, states, get_objective(config_of(opened).objective).title)
        labelled = _labelled(opened, env.tasks, states, seed) or fresh_states(agent, env, states, seed)
        returns = {}
        for task in env.tasks:
            skill = infer_skill(agent, labelled, task)
            returns[task] = rollout(agent, env, skill, seed=seed).returns[task].tolist()
    finally:
        env.close()
    return Evaluation(None, returns)


def _labelled(run: Run, tasks: tuple[str, ...], count: int, seed: int) -> Labelled | None:
    """Return states of the run's replay buffer or of its data; None if it has no usable ones."""
    try:
        if run.kind == "offline":
            config = config_of(run)
            return labelled_states(config, reopen(run, config), count, seed)
        return replayed_states(read_replay(run, config_of(run)), tasks, count, seed) if run.checkpoints() else None
    except ReplayUnusable as error:
        warnings.warn(f"{error}; labelling new states instead", stacklevel=3)
        return None


def reach(run: Path | str, goals: int, *, seed: int = 0, at: int | None = None, trust: bool = False) -> Reached:
    """Steer a pre-trained agent to random goal positions in the plane of its domain, one episode per goal.

    Args:
        run: Folder of a pre-training whose method infers skills from goals (for example METRA or HILP).
        goals: Number of goals.
        seed: Seed of the goals and the initial states.
        at: Use the weights of this step's milestone or checkpoint.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        The goals, the smallest and the last distance to each, and the radius within which a goal counts as reached.

    Example:
        ```python
        run = cic.pretrain("gridworld", "metra", scale="smoke", out="runs/metra", quiet=True)
        found = cic.reach(run.path, goals=4)
        print((found.nearest <= found.radius).mean())
        ```
    """
    if goals < 1:
        raise UserError(f"goals must be at least 1, not {goals}")
    agent, env = _pretrained(Run(run), at, goals, seed, trust)
    try:
        return reach_goals(agent, env, seed)
    finally:
        env.close()


def _pretrained(run: Run, at: int | None, num_envs: int, seed: int, trust: bool) -> tuple[Agent, VectorEnv]:
    """Return the agent and parallel environments of its domain."""
    config = config_of(run)
    if not config.intrinsic:
        raise UserError(f"{run.path} learned the task {config.environment}: give the folder of a pre-training")
    agent, _ = load_agent(run, config, at)
    return agent, open_env(run, num_envs=num_envs, seed=seed, trust=trust, limited=True)


# ---- creating runs ----------------------------------------------------------------------------------------------


def _start(
    path: Path,
    kind: str,
    config: Any,
    inherited: Inheritance | None,
    quiet: bool,
    origin: str = "",
    data: Dataset | None = None,
) -> Finished:
    """Create and train a run. Its parts are made first, so that invalid settings leave no folder behind."""
    agent, env = _parts(config, data)
    run = Run.plan(path, kind, to_dict(config), agent.spaces)
    loop = _loop(run, config, env, agent, inherited, quiet, data)
    about = {"version": __version__, "title": config.method_title, "imports": imported(), **provenance(config.device)}
    if data is not None:
        about["data"] = describe(config, data)
    about["layout"] = env.layout.to_json()
    run.create(about, inherited)
    if origin and not quiet:
        print(f"{config.title}  {origin}", file=sys.stderr)
    return Finished(path, loop.train())


def _parts(config: Any, data: Dataset | None = None) -> tuple[Agent, VectorEnv]:
    """Make the agent and the environments, after a check that they fit into memory."""
    check_numbers(config)
    torch.set_num_threads(config.threads)  # before the first weights: threads decide the last bits of their QR
    env: VectorEnv
    if data is not None:
        env = stand_in(config, data)
    else:
        env = envs.make(
            config.environment,
            num_envs=config.num_envs,
            seed=config.seed,
            timeout=config.env_timeout,
            workers=config.workers,
        )
    try:
        check_memory(config, env.spaces, len(env.tasks))
        agent = make_agent(config, env.spaces)
        if config.intrinsic:
            check_objective(agent.objective, config.objective, agent.device)
            require(
                getattr(config.options, "plane", ()) is not None,
                f"{config.objective} counts visits in a plane, and {config.domain} has no default: set `plane` to two "
                "indices of the observation, for example 0 and 1",
            )
        return agent, env
    except BaseException:
        env.close()
        raise


def _loop(
    run: Run,
    config: Any,
    env: VectorEnv,
    agent: Agent,
    inherited: Inheritance | None,
    quiet: bool,
    data: Dataset | None = None,
) -> Loop[Any]:
    if data is not None:
        labelled = labelled_states(config, data, config.states, config.seed) if config.intrinsic else None
        script = partial(offline_script, labelled=labelled)
        return Loop(run, config, env, agent, script, stored=make_replay(config, data, agent), quiet=quiet)
    try:
        return Loop(run, config, env, agent, SCRIPTS[run.kind], inherited=inherited, quiet=quiet)
    except MemoryError:  # the whole replay buffer is allocated, even if the run is shorter
        env.close()
        raise UserError(
            f"a replay buffer of {config.replay:,} steps does not fit into memory, and this run has {config.steps:,}: "
            "lower `replay`"
        ) from None


def _new_folder(out: Path | str | None, name: str) -> Path:
    if out is not None:
        return Path(out)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    plain = re.sub(r"[^\w.-]+", "_", name)[:100]  # the formula of a prompt has characters that Windows refuses
    return Path("runs") / f"{plain}-{stamp}-{secrets.token_hex(2)}"


def _check(config: LoopConfig[Any]) -> None:
    """Check what this machine can do, before anything is created."""
    check_device(config.device)
    if config.steps <= config.warmup:
        warnings.warn(
            f"nothing will be learned: {config.steps:,} steps are no more than the warm-up of {config.warmup:,}",
            stacklevel=3,
        )
    if config.wandb and find_spec("wandb") is None:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'")
