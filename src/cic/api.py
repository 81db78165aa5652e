"""The library's verbs: pretrain, finetune, evaluate, load, resume. The command line calls these."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cic import __version__, envs
from cic.core.config import to_dict
from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.objectives import NoOptions, get_objective
from cic.runs.folder import Run
from cic.runs.provenance import provenance
from cic.runs.storage import Tensors
from cic.training.evaluation import rollout
from cic.training.limits import check_device, check_memory, check_numbers
from cic.training.loop import Loop
from cic.training.opening import check_source, chosen_skill, load_agent, make_agent, open_env
from cic.training.phase import Phase
from cic.training.phases import PHASES, config_of, phase_of
from cic.training.restoring import weights_limit
from cic.training.settings import (
    FinetuneConfig,
    FinetuneSettings,
    LoopConfig,
    PretrainConfig,
    finetune_defaults,
    override,
    pretrain_defaults,
)


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
    learner: str = "ddpg",
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

    Without `scale`, that of the pre-training and its learner's settings.
    """
    given = (
        task if isinstance(task, FinetuneSettings) else override(starting_point(run, task, scale, learner), settings)
    )
    domain, name = envs.split_name(given.task)
    if name is None and domain in envs.domains():
        tasks = ", ".join(f"{domain}-{known}" for known in envs.domains()[domain].tasks)
        raise UserError(f'"{given.task}" is a domain without a reward: choose a task, one of {tasks}')
    _check(given)
    source = _source(run, at, domain, given) if run is not None else None
    config = _finetune_config(given, source, str(run))
    path = _new_folder(out, f"finetune-{config.objective}-{config.task}-s{config.seed}")
    return _start(path, "finetune", config, source.weights if source else None, quiet)


def starting_point(
    run: Path | str | None, task: str, scale: str | None, learner: str | None = None
) -> FinetuneSettings[Any]:
    """A finetuning's settings before the user's own: those of the scale, or of the pre-training that it continues."""
    if run is None:
        return finetune_defaults(task, scale or "laptop", learner or "ddpg")
    before = config_of(Run(run))
    start = finetune_defaults(task, scale or before.scale, learner or before.learner)
    if scale is None and start.learner == before.learner:
        return dataclasses.replace(start, learning=before.learning)
    return start


@dataclass(frozen=True)
class _Source:
    """A pre-training, as a finetuning needs it."""

    agent: Agent
    weights: Tensors
    config: PretrainConfig[Any, Any]
    step: int


def _source(path: Path | str, at: int | None, domain: str, given: FinetuneSettings[Any]) -> _Source:
    run = Run(path)
    if not phase_of(run).intrinsic:
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
    agent, step = load_agent(run, config, at)
    return _Source(agent, agent.state_dict(), config, step)


def _whole_skill(given: Sequence[float], agent: Agent) -> tuple[float, ...]:
    """The skill as it was given; one number stands for all dimensions."""
    dim = agent.objective.skills.dim
    if dim == 0:
        raise UserError("this agent has no skills: drop --skill")
    if len(given) not in (1, dim):
        raise UserError(f"--skill has {len(given)} numbers, but this agent's skills have dimension {dim}")
    if not np.isfinite(given).all():
        raise UserError(f"--skill must be finite numbers, not {' '.join(map(str, given))}")
    return tuple(given) if len(given) == dim else tuple(given) * dim


def _finetune_config(given: FinetuneSettings[Any], source: _Source | None, path: str) -> FinetuneConfig[Any, Any]:
    shared = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    if source is None:
        if given.skill is not None:
            raise UserError("--skill needs a pre-trained run: an agent from scratch has no skills")
        origin: dict[str, Any] = {"objective": "ddpg", "pretrained": None, "pretrain_steps": 0, "pretrain_seed": None}
        return FinetuneConfig(**shared, **origin, options=NoOptions())
    if given.skill is not None:
        shared["skill"] = _whole_skill(given.skill, source.agent)
    return FinetuneConfig(
        **shared,
        objective=source.config.objective,
        pretrained=path,
        pretrain_steps=source.step,
        pretrain_seed=source.config.seed,
        options=source.config.options,
    )


def resume(run: Path | str, *, quiet: bool = False, device: str | None = None, trust: bool = False) -> Finished:
    """Continue a stopped run to its end, as if it had never stopped.

    On another `device` than the run's it goes on, but not to the bit. `trust` as in `evaluate`.
    """
    opened = Run(run)
    if (result := opened.result()) is not None:
        return _already_finished(opened, result)
    config = config_of(opened)
    if device is not None:
        config = dataclasses.replace(config, device=device)
    try:
        check_device(config.device)
    except UserError as error:
        raise UserError(f"{error}. Continue elsewhere, or here with --device cpu") from None
    check_source(opened, config, trust)
    phase = phase_of(opened)
    agent, env = _parts(phase, config)
    if getattr(config, "pretrained", None) is not None and not opened.checkpoints():  # they have all that it learned
        agent.inherit(opened.inherited(weights_limit(agent)), config.critic)
    return Finished(opened.path, _loop(opened, config, env, agent, phase(config), quiet).train())


def _already_finished(run: Run, result: dict[str, Any]) -> Finished:
    """Nothing is left to do but the status of a run that was killed between its result and its last status."""
    if run.says_finished:
        raise UserError(f"{run.path} is finished already")
    run.lock()
    try:
        step = result.get("step")
        run.write_status("finished", step if isinstance(step, int) else 0)
    finally:
        run.unlock()
    return Finished(run.path, result)


def load(run: Path | str, *, at: int | None = None) -> Agent:
    """The agent of a run, ready to `act(obs, skill)`; `at` picks a milestone's step.

    A finetuned agent acts by the skill that it chose unless it is given another. No environment is made.
    """
    opened = Run(run)
    agent, _ = load_agent(opened, config_of(opened), at)
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
        skill = np.array(_whole_skill(np.ravel(skill).tolist(), agent), np.float32)
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


# ---- making ----------------------------------------------------------------------------------------


def _start(path: Path, kind: str, config: Any, inherited: Tensors | None, quiet: bool) -> Finished:
    """A new run. Its parts are made first, so that a mistake in the settings leaves no folder behind."""
    phase = PHASES[kind]
    agent, env = _parts(phase, config)
    if inherited is not None:
        agent.inherit(inherited, config.critic)
    run = Run.plan(path, kind, to_dict(config), agent.spaces)
    loop = _loop(run, config, env, agent, phase(config), quiet)
    title = get_objective(config.objective).title
    run.create({"version": __version__, "title": title, **provenance(config.device)}, inherited)
    return Finished(path, loop.train())


def _parts(phase: type[Phase], config: Any) -> tuple[Agent, VectorEnv]:
    """What a loop is made of, if there is room for it."""
    check_numbers(config)
    env = envs.make(phase.environment(config), num_envs=config.num_envs, seed=config.seed, timeout=config.env_timeout)
    try:
        check_memory(config, env.spaces, len(env.tasks))
        return make_agent(phase, config, env.spaces), env
    except BaseException:
        env.close()
        raise


def _loop(run: Run, config: Any, env: VectorEnv, agent: Agent, phase: Phase, quiet: bool) -> Loop:
    try:
        return Loop(run, config, env, agent, phase, quiet)
    except MemoryError:  # a replay that the run would never fill is still asked for
        env.close()
        raise UserError(f"a replay of {config.replay:,} steps does not fit into memory: lower --replay") from None


def _new_folder(out: Path | str | None, name: str) -> Path:
    if out is not None:
        return Path(out)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name.replace(':', '_').replace('/', '_')}-{stamp}-{secrets.token_hex(2)}"


def _check(config: LoopConfig[Any]) -> None:
    """What this machine cannot do, before anything is made."""
    check_device(config.device)
    if config.wandb and find_spec("wandb") is None:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'")
