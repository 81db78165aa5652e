"""Load the agent, the skill and the environment of a run folder, which may be untrusted.

Loading an agent makes no environment. An environment is made only if its name cannot cause code to be imported.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from typing import Any

import numpy as np

from cic import envs
from cic.core.action_spaces import choices, size
from cic.core.errors import UserError
from cic.core.imports import naming_imports
from cic.core.named_quantities import Quantities
from cic.core.observations import parts_of
from cic.core.spaces import Layout, leaves
from cic.core.types import Array, Spaces
from cic.envs.base import VectorEnv
from cic.envs.timeout import can_limit
from cic.learning import prompts
from cic.learning.agent import Agent, build_agent
from cic.runs.folder import ReplayUnusable, Run
from cic.runs.storage import load_weights
from cic.runs.untrusted import Arrays, plain, read_object
from cic.training.checkpoint_checks import weights_limit
from cic.training.library import checked
from cic.training.offline_settings import OfflineConfig
from cic.training.preflight import check_device, check_memory, check_numbers
from cic.training.settings import CONFIGS, LoopConfig, config_from_dict

CLASSES: dict[str, type[LoopConfig[Any]]] = CONFIGS | {"offline": OfflineConfig}
"""The config class of each kind of run."""
TRUST = "CIC_TRUST"
"""An environment variable; the value 1 has the effect of `trust=True`."""


def config_of(run: Run) -> Any:
    """The settings of a run, from its config.json."""
    with naming_imports(run.about.get("imports"), run.path):
        return config_from_dict(CLASSES[run.kind], run.config)


def make_agent(config: Any, spaces: Spaces | None = None) -> Agent:
    """Build the agent of a config, with initial weights."""
    return build_agent(
        spaces or _spaces(config.environment),
        config.objective,
        config.options,
        config.learner,
        config.learning,
        encoding=config.encoding,
        seed=config.seed,
        device=config.device,
        normalise_obs=config.normalise_obs,
    )


def _spaces(name: str) -> Spaces:
    known = _built_in_spaces(name)
    if known is not None:
        return known
    env = envs.make(name)
    try:
        return env.spaces
    finally:
        env.close()


def _built_in_spaces(name: str) -> Spaces | None:
    domain, _ = envs.split_name(name)
    known = envs.domains().get(domain)
    return None if known is None or "?" in name else Spaces(known.obs, known.action)


def load_agent(run: Run, config: Any, at: int | None) -> tuple[Agent, int]:
    """Load an agent from the config, the sizes and the weights in its run folder; return it and its step."""
    spaces = run.spaces or _built_in_spaces(config.environment)
    if spaces is None:
        raise UserError(
            f"{run.path / 'config.json'} does not state the sizes of observations and actions: choose another run"
        )
    layout = _layout(run, spaces)
    if layout is not None:
        spaces = spaces._replace(parts=parts_of(layout.observation, str(run.path / "config.json")))
    check_numbers(config)
    check_memory(config, spaces, trains=False)
    agent = make_agent(_on_this_machine(config), spaces)
    weights, step = run.weights(at, weights_limit(agent))
    load_weights(agent, weights, run.path)
    agent.layout = layout
    if not spaces.images:
        agent.quantities = agent.quantities or _built_in_quantities(config.environment)
    agent.load_library = functools.cache(lambda: _library(run, agent))
    return agent, step


def _built_in_quantities(name: str) -> Quantities:
    """The named quantities of a built-in domain. Other environments would have to be made for theirs."""
    try:
        known = envs.domains().get(envs.split_name(name)[0])
    except UserError:  # an environment of the user's that is not registered here, which acting does not need
        return ()
    return () if known is None else known.quantities


def _library(run: Run, agent: Agent) -> prompts.SkillPaths:
    """What the skills of the pre-training do; empty if the run has no library."""
    inherited = run.inherited() if run.kind == "finetune" else None
    arrays = run.library() if run.kind == "pretrain" else {} if inherited is None else inherited.library
    found = checked(arrays, agent.objective.skills.dim, agent.spaces.obs)
    return prompts.no_paths(agent.objective) if found is None else prompts.SkillPaths(found.skills, found.paths)


def _layout(run: Run, spaces: Spaces) -> Layout | None:
    """The environment's own spaces; None for a run of an earlier version, which did not store them."""
    if (stored := run.about.get("layout")) is None:
        return None
    layout = Layout.from_json(stored, str(run.path / "config.json"))
    sizes = Spaces(sum(leaf.size for leaf in leaves(layout.observation)), size(layout.action), choices(layout.action))
    if sizes != spaces:
        given, wanted = (tuple(size for size in one if size != ()) for one in (sizes, spaces))
        raise UserError(f"{run.path / 'config.json'}: the layout has sizes {given}, not {wanted}")
    return layout


def _on_this_machine(config: Any) -> Any:
    """The config, with the CPU instead of a device that this machine does not have."""
    try:
        check_device(config.device)
    except UserError as error:
        warnings.warn(f"{error}; using the CPU", stacklevel=2)
        return dataclasses.replace(config, device="cpu")
    return config


def check_source(run: Run, config: Any, trust: bool) -> None:
    """Refuse to make an environment that would import code, if a run folder names it and the user did not."""
    name = config.environment
    danger = envs.would_run(name)
    if danger and not (trust or os.environ.get(TRUST) == "1"):
        raise UserError(
            f'the environment "{plain(name)}" of {run.path} {plain(danger)}: if you know who made the run, '
            f"allow that with `trust` (or {TRUST}=1)"
        )


def read_replay(run: Run, config: Any) -> Arrays:
    """The arrays of the newest intact replay of a run, for `Replay.load`."""
    with naming_imports(run.about.get("imports"), run.path):
        arrays, tasks = run.replay(), envs.tasks(config.environment)
    if arrays["task_rewards"].shape[2] != len(tasks):
        raise ReplayUnusable(
            f"the replay of {run.path} does not fit its config.json (it has rewards of "
            f"{arrays['task_rewards'].shape[2]} tasks, {plain(config.environment)} has {len(tasks)})"
        )
    return arrays


def chosen_skill(run: Run, dim: int) -> Array | None:
    """The skill that a finetuning has chosen; None if it has not chosen yet, or has no skills.

    It is in result.json, trials.json and the checkpoint, of which any may be lost.
    """
    if run.kind != "finetune":
        return None
    found = [read_object(run.path / name) for name in ("result.json", "trials.json")]
    named = [document.get("skill") for document in found if not isinstance(document, str)]
    skill = next((one for one in (*named, run.config.get("skill")) if one is not None), None)
    if skill is None and len(named) < len(found):
        skill = run.chosen_skill()
    if skill is None:
        return None
    numbers = np.array(skill, np.float32) if _are_numbers(skill) else np.zeros(0, np.float32)
    if numbers.shape != (dim,) or not np.isfinite(numbers).all():
        raise UserError(f"the skill in {run.path} is not {dim} finite numbers: it was not written by cic")
    return numbers


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(one) in (int, float) and abs(one) < 1e30 for one in value)


def open_env(
    run: Run, *, num_envs: int, seed: int, trust: bool = False, limited: bool = False, pictures: bool = False
) -> VectorEnv:
    """Make the environment of a run, unless it would import code and `trust` is False.

    With `limited`, the run's `env_timeout` applies where that is possible. `pictures` is that of `cic.envs.make`.
    """
    config = config_of(run)
    check_source(run, config, trust)
    with naming_imports(run.about.get("imports"), run.path):
        timeout = config.env_timeout if limited and can_limit() else 0.0
        return envs.make(config.environment, num_envs=num_envs, seed=seed, timeout=timeout, pictures=pictures)
