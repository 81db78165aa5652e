"""The library's verbs: pretrain, finetune, evaluate, load, resume. The command line calls these."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cic import __version__, envs
from cic.core.config import to_dict
from cic.core.errors import UserError
from cic.core.types import Array, Spaces
from cic.learning.agent import Agent
from cic.runs.folder import Run
from cic.runs.storage import Tensors, load_weights
from cic.training.evaluation import evaluate_task, rollout
from cic.training.loop import Loop
from cic.training.phases import Finetuning, Pretraining
from cic.training.selection import default_skill
from cic.training.settings import (
    FinetuneConfig,
    FinetuneSettings,
    LoopConfig,
    PretrainConfig,
    config_from_dict,
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
    domain: str | PretrainConfig[Any],
    objective: str = "cic",
    *,
    scale: str = "laptop",
    preset: str | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Discover skills: `cic.pretrain("walker", "cic", steps=200_000, temperature=0.3)`."""
    if isinstance(domain, PretrainConfig):
        config = domain
    else:
        config = override(pretrain_defaults(domain, objective, scale, preset), settings)
    name, task = envs.split_name(config.domain)
    if task is not None:
        raise UserError(f'pre-training is reward-free: give the domain "{name}", not the task "{config.domain}"')
    _check(config)
    path = _new_folder(out, f"pretrain-{config.objective}-{config.domain}-s{config.seed}")
    return _start(path, "pretrain", config, None, quiet)


def finetune(
    run: Path | str | None,
    task: str | FinetuneSettings,
    *,
    at: int | None = None,
    scale: str | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Finished:
    """Adapt a run's skills to a task; with `run=None`, learn the task from scratch with the same budget.

    Without `scale`, that of the pre-training and its learner's settings.
    """
    given = task if isinstance(task, FinetuneSettings) else override(starting_point(run, task, scale), settings)
    domain, name = envs.split_name(given.task)
    if name is None and domain in envs.domains():
        tasks = ", ".join(f"{domain}-{known}" for known in envs.domains()[domain].tasks)
        raise UserError(f'"{given.task}" is a domain without a reward: choose a task, one of {tasks}')
    _check(given)
    source = _source(run, at, domain, given) if run is not None else None
    config = _finetune_config(given, source, str(run))
    path = _new_folder(out, f"finetune-{config.objective}-{config.task}-s{config.seed}")
    weights = source.agent.state_dict() if source else None
    return _start(path, "finetune", config, weights, quiet)


def starting_point(run: Path | str | None, task: str, scale: str | None) -> FinetuneSettings:
    """A finetuning's settings before the user's own: those of the scale, or of the pre-training that it continues."""
    if run is None or scale is not None:
        return finetune_defaults(task, scale or "laptop")
    opened = Run(run)
    config = config_from_dict(opened.kind, opened.config)
    return dataclasses.replace(finetune_defaults(task, config.scale), agent=config.agent)


@dataclass(frozen=True)
class _Source:
    agent: Agent
    config: PretrainConfig[Any]
    step: int


def _source(path: Path | str, at: int | None, domain: str, given: FinetuneSettings) -> _Source:
    run = Run(path)
    if run.kind != "pretrain":
        raise UserError(f"{path} is a finetuning run: give the folder of a pre-training")
    config = config_from_dict(run.kind, run.config)
    if config.domain != domain and config.domain != given.task:
        raise UserError(f'{path} was pre-trained in "{config.domain}", which has no task "{given.task}"')
    if config.agent.hidden != given.agent.hidden:
        raise UserError(
            f"{path} has networks of width {config.agent.hidden}, the finetuning asks for {given.agent.hidden}: "
            f"add --hidden {config.agent.hidden} or --scale {config.scale}"
        )
    agent, step = _load_agent(run, config, at)
    return _Source(agent, config, step)


def _whole_skill(given: Sequence[float], agent: Agent) -> tuple[float, ...]:
    """The skill as it was given; one number stands for all dimensions."""
    dim = agent.objective.skill.dim
    if dim == 0:
        raise UserError("this agent has no skills: drop --skill")
    if len(given) not in (1, dim):
        raise UserError(f"--skill has {len(given)} numbers, but this agent's skills have dimension {dim}")
    if not np.isfinite(given).all():
        raise UserError(f"--skill must be finite numbers, not {' '.join(map(str, given))}")
    return tuple(given) if len(given) == dim else tuple(given) * dim


def _finetune_config(given: FinetuneSettings, source: _Source | None, path: str) -> FinetuneConfig[Any]:
    shared = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    if source is None:
        if given.skill is not None:
            raise UserError("--skill needs a pre-trained run: an agent from scratch has no skills")
        from cic.learning.objectives import NoOptions

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


def resume(run: Path | str, *, quiet: bool = False) -> Finished:
    """Continue a stopped run to its end, as if it had never stopped."""
    opened = Run(run)
    if opened.finished:
        raise UserError(f"{run} is finished already")
    return Finished(opened.path, build(opened, quiet).train())


def load(run: Path | str, *, at: int | None = None) -> Agent:
    """The agent of a run, ready to `act(obs, skill)`; `at` picks a milestone's step."""
    opened = Run(run)
    return _load_agent(opened, config_from_dict(opened.kind, opened.config), at)[0]


@dataclass(frozen=True)
class Evaluation:
    """Returns of a run's agent: per task, one number per episode."""

    skill: list[float] | None
    returns: dict[str, list[float]]


def evaluate(
    run: Path | str, *, episodes: int = 10, skill: Array | None = None, seed: int = 0, at: int | None = None
) -> Evaluation:
    """A finetuned run on its task under its skill; a pre-trained one on every task of its domain.

    Without `skill`, each episode of a pre-trained agent follows a skill of its own, drawn at random (zero-shot).
    """
    opened = Run(run)
    config = config_from_dict(opened.kind, opened.config)
    agent, _ = _load_agent(opened, config, at)
    space = agent.objective.skill
    if skill is not None:
        skill = np.array(_whole_skill(np.ravel(skill).tolist(), agent), np.float32)
    if opened.kind == "finetune":
        used = skill if skill is not None else chosen_skill(opened, agent, config)
        returns = evaluate_task(agent, config.task, used, episodes=episodes, seed=seed)
        return Evaluation(used.tolist(), {config.task: returns.tolist()})
    env = envs.make(config.domain, num_envs=episodes, seed=seed)
    try:
        used = skill if skill is not None else space.sample(episodes, np.random.default_rng(seed))
        measured = rollout(agent, env, used, seed=seed).returns
    finally:
        env.close()
    if env.tasks:
        del measured["reward"]
    return Evaluation(None if skill is None else skill.tolist(), {task: r.tolist() for task, r in measured.items()})


def chosen_skill(run: Run, agent: Agent, config: FinetuneConfig[Any]) -> Array:
    """The skill that a finetuning settled on."""
    from cic.runs.storage import read_json

    for name in ("result.json", "trials.json"):
        if (run.path / name).exists() and (skill := read_json(run.path / name).get("skill")) is not None:
            return np.array(skill, np.float32)
    if config.skill is not None:
        return np.array(config.skill, np.float32)
    return default_skill(agent.objective.skill, config.selection.value)


# ---- making and opening ----------------------------------------------------------------------------------------


def _start(path: Path, kind: Any, config: Any, inherited: Tensors | None, quiet: bool) -> Finished:
    """A new run. A mistake in its settings leaves no folder behind."""
    fresh = not path.exists()
    run = Run.create(path, kind, to_dict(config), __version__, inherited)
    try:
        loop = build(run, quiet)
    except UserError:
        (path / "config.json").unlink()
        shutil.rmtree(path if fresh else path / "inherited", ignore_errors=True)
        raise
    return Finished(path, loop.train())


def build(run: Run, quiet: bool = False) -> Loop:
    """The loop that a run folder describes, at its beginning."""
    config = config_from_dict(run.kind, run.config)
    agent = make_agent(config, learn_objective=run.kind == "pretrain")
    if run.kind == "pretrain":
        return Pretraining(run, config, agent, quiet)
    if config.pretrained is not None:
        before = make_agent(config, learn_objective=False)
        load_weights(before, run.inherited(), run.path)
        agent.inherit(before, config.critic)
    return Finetuning(run, config, agent, quiet)


def make_agent(config: Any, learn_objective: bool) -> Agent:
    name = config.domain if isinstance(config, PretrainConfig) else config.task
    return Agent(
        _spaces(name),
        config.objective,
        config.options,
        config.agent,
        seed=config.seed,
        device=config.device,
        learn_objective=learn_objective,
    )


def _spaces(name: str) -> Spaces:
    domain, _ = envs.split_name(name)
    known = envs.domains().get(domain)
    if known is not None:
        return Spaces(known.obs, known.action)
    env = envs.make(name)
    try:
        return env.spaces
    finally:
        env.close()


def _load_agent(run: Run, config: Any, at: int | None) -> tuple[Agent, int]:
    agent = make_agent(config, learn_objective=False)
    weights, step = run.weights(at)
    load_weights(agent, weights, run.path)
    return agent, step


def _new_folder(out: Path | str | None, name: str) -> Path:
    if out is not None:
        return Path(out)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name.replace(':', '_').replace('/', '_')}-{stamp}-{secrets.token_hex(2)}"


def _check(config: LoopConfig) -> None:
    """What this machine cannot do, before anything is made."""
    try:
        torch.empty(0, device=config.device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f'the device "{config.device}" cannot be used here: {str(error).splitlines()[0]}') from None
    if config.wandb and find_spec("wandb") is None:
        raise UserError("logging to Weights & Biases needs its package: pip install 'cic[wandb]'")
