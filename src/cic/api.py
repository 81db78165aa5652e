"""The library's verbs: pretrain, finetune, evaluate, load, resume. The command line calls these."""

from __future__ import annotations

import dataclasses
import secrets
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic import __version__, envs
from cic.core.config import require, to_dict
from cic.core.errors import UserError
from cic.core.imports import imported
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import NoOptions, get_objective
from cic.learning.validate import check_objective
from cic.runs.folder import Inheritance, ReplayUnusable, Run
from cic.runs.provenance import provenance
from cic.runs.storage import Arrays
from cic.training.checkpoint_checks import fitting, weights_limit
from cic.training.evaluation import rollout
from cic.training.finetuning import finetune as finetune_script
from cic.training.loading import check_source, chosen_skill, config_of, load_agent, make_agent, open_env
from cic.training.loop import Loop
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
from cic.training.zero_shot import Reached, fresh_states, infer_skill, reach_goals, replayed_states, require_inference

SCRIPTS: dict[str, Callable[[Loop[Any]], Script]] = {"pretrain": pretrain_script, "finetune": finetune_script}
"""What each kind of run does."""


@dataclass(frozen=True)
class Finished:
    """A run that ended: its folder and what result.json holds."""

    path: Path
    result: dict[str, Any]


def pretrain(
    domain: str | PretrainConfig[Any, Any],
    objective: str = "cic",
    *,
    scale: str = "laptop",
    preset: str | None = None,
    learner: str | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Discover skills: `cic.pretrain("walker", "cic", steps=200_000, temperature=0.3)`."""
    if isinstance(domain, PretrainConfig):
        config = domain
    else:
        config = override(pretrain_defaults(domain, objective, scale, preset, learner), settings)
    name, task = envs.split_name(config.domain)
    if task is not None:
        raise UserError(f'pre-training is reward-free: give the domain "{name}", not the task "{config.domain}"')
    if config.objective == "ddpg":
        raise UserError(
            "ddpg has no reward of its own to pre-train with: learn a task by "
            f"`cic finetune --scratch --task {name}-…`, or choose another objective"
        )
    _check(config)
    path = _new_folder(out, f"pretrain-{config.objective}-{config.domain}-s{config.seed}")
    return _start(path, "pretrain", config, None, quiet)


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
    """Adapt a run's skills to a task; with `run=None`, learn the task from scratch with the same budget.

    Without `scale`, that of the pre-training and its learner's settings. In the run's domain, "run" is short for
    "walker-run". A pre-training that is not finished must be asked for by a step of its weights (`at`).
    """
    given = (
        task if isinstance(task, FinetuneSettings) else override(starting_point(run, task, scale, learner), settings)
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
        origin += f" and learns from the {len(source.inheritance.steps['obs']):,} states that it saw"
    return _start(path, "finetune", config, source.inheritance if source else None, quiet, origin)


def starting_point(
    run: Path | str | None, task: str, scale: str | None, learner: str | None = None
) -> FinetuneSettings[Any]:
    """A finetuning's settings before the user's own: those of the scale, or of the pre-training that it continues."""
    if run is None:
        return finetune_defaults(task, scale or "laptop", learner or "ddpg")
    return continuing(config_of(Run(run)), task, scale, learner)


def continuing(
    before: LoopConfig[Any], task: str, scale: str | None = None, learner: str | None = None
) -> FinetuneSettings[Any]:
    """The settings of a finetuning that continues a pre-training with the config `before`."""
    start = finetune_defaults(task, scale or before.scale, learner or before.learner)
    if scale is None and start.learner == before.learner:
        return dataclasses.replace(start, learning=inherited(before, start.learning))
    return start


def whole_task(run: Path | str | None, task: str) -> str:
    """A task's own name ("run") is understood in the domain of the pre-training."""
    if run is None:
        return task
    known = envs.domains().get(str(Run(run).config.get("domain")))
    return f"{known.name}-{task}" if known is not None and task in known.tasks else task


@dataclass(frozen=True)
class _Source:
    """A pre-training, as a finetuning needs it."""

    agent: Agent
    inheritance: Inheritance
    config: PretrainConfig[Any, Any]
    step: int


def _source(path: Path | str, at: int | None, domain: str, given: FinetuneSettings[Any]) -> _Source:
    run = Run(path)
    if run.kind != "pretrain":
        raise UserError(f"{path} is a finetuning run: give the folder of a pre-training")
    config = config_of(run)
    if config.domain != domain and config.domain != given.task:
        raise UserError(f'{path} was pre-trained in "{config.domain}", which has no task "{given.task}"')
    if config.learner != given.learner:
        raise UserError(
            f"{path} was pre-trained with {config.learner}: drop --learner, or pre-train with {given.learner}"
        )
    if config.learning.hidden != given.learning.hidden:
        raise UserError(
            f"{path} has networks of width {config.learning.hidden}, the finetuning asks for {given.learning.hidden}: "
            f"add --hidden {config.learning.hidden} or --scale {config.scale}"
        )
    agent, step = _final_agent(run, config) if at is None else load_agent(run, config, at)
    library = run.library() if at is None else {}  # it belongs to the weights at the end
    steps = _steps_of(run, at, asked=given.prior_data is not None) if given.prior_data != 0 else None
    return _Source(agent, Inheritance(agent.state_dict(), library, steps), config, step)


def _steps_of(run: Run, at: int | None, asked: bool) -> Arrays | None:
    """What a pre-training saw, for a finetuning that learns from it; None if it has not kept it, unless `asked`."""
    if not asked and (at is not None or not run.checkpoints()):
        return None
    if at is not None:
        raise UserError("the steps before --at are not kept apart from those after it: drop --at or --prior-data")
    try:
        replay = run.replay()
    except ReplayUnusable as error:
        if asked:
            raise UserError(f"{error}: add --prior-data 0 to finetune without pre-training data") from None
        warnings.warn(f"{error}; finetuning without pre-training data", stacklevel=4)
        return None
    with fitting(run.path):
        return latest_steps(replay)


def _final_agent(run: Run, config: Any) -> tuple[Agent, int]:
    step = _final_step(run)
    try:
        return load_agent(run, config, step)
    except UserError as error:
        held = ", ".join(map(str, run.steps_held()))
        raise UserError(f"{error}: choose other weights with --at (there are: {held})") from None


def _final_step(run: Run) -> int:
    """Where a finished run ended; one that is not finished has weights that somebody must choose."""
    result = run.result()
    if result is not None:
        step = result.get("step")
        return step if isinstance(step, int) else run.steps_held()[-1]
    reached = run.reached()
    held = ", ".join(map(str, run.steps_held())) or "none yet"
    raise UserError(
        f"{run.path} is not finished (step {reached:,} of {run.config['steps']:,}): continue it with "
        f"`cic {run.kind} --resume {run.path}`, or choose weights with --at (there are: {held})"
    )


def _finetune_config(given: FinetuneSettings[Any], source: _Source | None, path: str) -> FinetuneConfig[Any, Any]:
    shared = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    if source is None:
        if given.skill is not None:
            raise UserError("--skill needs a pre-trained run: an agent from scratch has no skills")
        origin: dict[str, Any] = {"objective": "ddpg", "pretrained": None, "pretrain_steps": 0, "pretrain_seed": None}
        return FinetuneConfig(**shared, **origin, options=NoOptions())
    if given.skill is not None:
        shared["skill"] = tuple(source.agent.objective.skills.check(given.skill).tolist())
    return FinetuneConfig(
        **shared,
        objective=source.config.objective,
        pretrained=path,
        pretrain_steps=source.step,
        pretrain_seed=source.config.seed,
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
    """Continue a stopped run to its end, as if it had never stopped.

    With `steps`, to another end, also if it is finished: as if it had been meant to be that long from the start. A
    finished run goes back to its last checkpoint before the end, where it had not yet made up its final numbers.
    On another `device` than the run's it goes on, but not to the bit. `trust` as in `evaluate`.
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
        raise UserError(f"{error}. Continue elsewhere, or here with --device cpu") from None
    check_source(opened, config, trust)
    agent, env = _parts(config)
    inherited = _inherited(opened, config, agent)
    return Finished(opened.path, _loop(opened, config, env, agent, inherited, quiet).train())


def _inherited(run: Run, config: Any, agent: Agent) -> Inheritance | None:
    """What a finetuning started from. Where its checkpoints have all that is still needed of it, it may be damaged."""
    try:
        return run.inherited(weights_limit(agent))
    except UserError:
        if run.checkpoints() and not (config.check_steps or config.prior_data):
            return None
        raise


def _already_finished(run: Run, result: dict[str, Any]) -> Finished:
    """Nothing is left to do but the status of a run that was killed between its result and its last status."""
    if run.says_finished:
        raise UserError(f"{run.path} is finished already: give it more --steps to go on")
    run.lock()
    try:
        step = result.get("step")
        run.write_status("finished", step if isinstance(step, int) else 0)
    finally:
        run.unlock()
    return Finished(run.path, result)


def load(run: Path | str, *, at: int | None = None) -> Agent:
    """The agent of a run, ready to `act(obs, skill)`; `at` picks a milestone's step.

    walker, quadruped and point_mass ship with the package: wherever a run is asked for, such a name does as well.

    A finetuned agent acts by the skill that it chose unless it is given another. No environment is made.
    """
    opened = Run(run)
    agent, step = load_agent(opened, config_of(opened), at)
    if at is None and not opened.finished:
        warnings.warn(f"{run} is not finished: these are its weights of step {step:,}", stacklevel=2)
    agent.skill = chosen_skill(opened, agent.objective.skills.dim)
    return agent


@dataclass(frozen=True)
class Evaluation:
    """Returns of a run's agent: per task, one number per episode."""

    skill: list[float] | None
    returns: dict[str, list[float]]


def evaluate(
    run: Path | str,
    *,
    episodes: int = 10,
    skill: Array | None = None,
    seed: int = 0,
    at: int | None = None,
    trust: bool = False,
) -> Evaluation:
    """A finetuned run on its task under its skill; a pre-trained one on every task of its domain.

    Without `skill`, each episode of a pre-trained agent follows a skill of its own, drawn at random (zero-shot). The
    run's environment is made only if that executes nothing of whoever made the run, or with `trust`.
    """
    opened = Run(run)
    agent = load(run, at=at)
    if skill is not None:
        skill = agent.objective.skills.check(np.ravel(skill).tolist())
    used = agent.skill if skill is None else skill
    env = open_env(opened, num_envs=episodes, seed=seed, trust=trust)
    try:
        drawn = agent.objective.skills.sample(episodes, np.random.default_rng(seed)) if used is None else used
        measured = rollout(agent, env, drawn, seed=seed).returns
    finally:
        env.close()
    paid = measured.pop("reward")
    if env.task is not None or not env.tasks:
        measured = {env.name: paid}
    return Evaluation(None if used is None else used.tolist(), {task: r.tolist() for task, r in measured.items()})


def infer(run: Path | str, states: int, *, episodes: int = 10, seed: int = 0, at: int | None = None) -> Evaluation:
    """A pre-trained run on every task of its domain, under the skill that `states` labelled states name: zero-shot.

    They are drawn from its replay, or fresh where that is gone.
    """
    opened = Run(run)
    agent, env = _pretrained(opened, at, episodes, seed)
    try:
        require_inference(agent, states, get_objective(config_of(opened).objective).title)
        try:
            replay = opened.replay() if opened.checkpoints() else None
        except ReplayUnusable as error:
            warnings.warn(f"{error}; labelling fresh states instead", stacklevel=2)
            replay = None
        labelled = None if replay is None else replayed_states(replay, env.tasks, states, seed)
        if labelled is None:
            labelled = fresh_states(agent, env, states, seed)
        returns = {}
        for task in env.tasks:
            skill = infer_skill(agent, labelled, task)
            returns[task] = rollout(agent, env, skill, seed=seed).returns[task].tolist()
    finally:
        env.close()
    return Evaluation(None, returns)


def reach(run: Path | str, goals: int, *, seed: int = 0, at: int | None = None) -> Reached:
    """A pre-trained run steered to `goals` random places of its domain's plane, an episode each."""
    if goals < 1:
        raise UserError(f"--goals needs at least 1 goal, not {goals}")
    agent, env = _pretrained(Run(run), at, goals, seed)
    try:
        return reach_goals(agent, env, seed)
    finally:
        env.close()


def _pretrained(run: Run, at: int | None, num_envs: int, seed: int) -> tuple[Agent, VectorEnv]:
    """Its agent and as many copies of its domain."""
    config = config_of(run)
    if run.kind != "pretrain":
        raise UserError(f"{run.path} is a finetuning run: give the folder of a pre-training")
    agent, _ = load_agent(run, config, at)
    return agent, open_env(run, num_envs=num_envs, seed=seed)


# ---- making ----------------------------------------------------------------------------------------------------


def _start(
    path: Path, kind: str, config: Any, inherited: Inheritance | None, quiet: bool, origin: str = ""
) -> Finished:
    """A new run. Its parts are made first, so that a mistake in the settings leaves no folder behind."""
    agent, env = _parts(config)
    run = Run.plan(path, kind, to_dict(config), agent.spaces)
    loop = _loop(run, config, env, agent, inherited, quiet)
    title = get_objective(config.objective).title
    about = {"version": __version__, "title": title, "imports": imported(), **provenance(config.device)}
    run.create(about, inherited)
    if origin and not quiet:
        print(f"{config.title}  {origin}", file=sys.stderr)
    return Finished(path, loop.train())


def _parts(config: Any) -> tuple[Agent, VectorEnv]:
    """What a loop is made of, if there is room for it."""
    check_numbers(config)
    torch.set_num_threads(config.threads)  # before the first weights: threads decide the last bits of their QR
    env = envs.make(config.environment, num_envs=config.num_envs, seed=config.seed, timeout=config.env_timeout)
    try:
        check_memory(config, env.spaces, len(env.tasks))
        agent = make_agent(config, env.spaces)
        if config.intrinsic:
            check_objective(agent.objective, config.objective, agent.device)
            require(
                getattr(config.options, "plane", ()) is not None,
                f"{config.objective} counts over a plane, and {config.domain} names none: say which entries of its "
                "observation are one, for example --plane 0 1",
            )
        return agent, env
    except BaseException:
        env.close()
        raise


def _loop(run: Run, config: Any, env: VectorEnv, agent: Agent, inherited: Inheritance | None, quiet: bool) -> Loop[Any]:
    try:
        return Loop(run, config, env, agent, SCRIPTS[run.kind], inherited=inherited, quiet=quiet)
    except MemoryError:  # a replay that the run would never fill is still asked for
        env.close()
        raise UserError(
            f"a replay of {config.replay:,} steps does not fit into memory, and this run has {config.steps:,}: "
            "lower --replay"
        ) from None


def _new_folder(out: Path | str | None, name: str) -> Path:
    if out is not None:
        return Path(out)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name.replace(':', '_').replace('/', '_')}-{stamp}-{secrets.token_hex(2)}"


def _check(config: LoopConfig[Any]) -> None:
    """What this machine cannot do, before anything is made."""
    check_device(config.device)
    if config.steps <= config.warmup:
        warnings.warn(
            f"nothing will be learned: {config.steps:,} steps are no more than the warm-up of {config.warmup:,}",
            stacklevel=3,
        )
    if config.wandb and find_spec("wandb") is None:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'")
