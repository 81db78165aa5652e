"""Prompts: state a reward, get a run folder with the skill that maximises it. The function behind `cic prompt`."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cic import api, envs
from cic.core.config import require
from cic.core.errors import UserError
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.learning.prompts import Answer, Prompt, reward_of
from cic.runs.folder import Run
from cic.runs.storage import write_json
from cic.training.evaluation import rollout
from cic.training.loading import check_source, config_of

TRIAL_STEPS = 250
STARTS = 2
"""Initial states from which each candidate is tried."""


@dataclass(frozen=True)
class Prompted:
    """The answer to a prompt."""

    path: Path
    """A run folder: film, evaluate, finetune or export it like any other."""
    skill: list[float]
    how: str
    """linear (weights of the quantities), inferred (by the method), library (the best recorded skill) or tried (the
    best of several skills in the environment)."""
    reward: float
    """Mean prompted reward per step, over the evaluation episodes."""


def prompt(
    run: Path | str,
    wanted: Prompt,
    *,
    out: Path | str | None = None,
    tries: int = 16,
    episodes: int = 5,
    seed: int = 0,
    at: int | None = None,
    trust: bool = False,
) -> Prompted:
    """Find the skill of a pre-trained agent that maximises a reward, without training.

    A reward that is linear in the quantities of a Steer agent is a skill at once. APS, VISR, CSF, FB and HILP infer the
    skill. For other rewards and agents, the recorded skills are ranked by the states to which they led, and the best
    ones are tried in the environment.

    Args:
        run: Folder of a pre-training, or a bundled agent (`"walker"`).
        wanted: A formula of the named quantities (`"speed * upright"`), a function of observations (N, obs) that
            returns rewards (N,), or an observation to reach.
        out: Folder of the result, a run folder. By default a new folder under `runs/` is created.
        tries: Number of skills that are tried in the environment if the reward is not linear; with 0, none.
        episodes: Number of episodes in which the result is evaluated.
        seed: Seed of the initial states.
        at: Use the weights of this step's milestone or checkpoint.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        The run folder, the skill, how it was found and its mean reward.

    Raises:
        UserError: The formula is invalid; the message names the position.

    Example:
        ```python
        found = cic.prompt("walker", "height - abs(speed)", out="runs/still", tries=4, episodes=2)
        print(found.how, found.reward)
        ```
    """
    require(0 <= tries <= 1_000, f"tries must lie in [0, 1000], not {tries}")
    opened = Run(run)
    config = config_of(opened)
    if opened.kind != "pretrain":
        raise UserError(f"{run} is a finetuning run: give the folder of a pre-training")
    agent = api.load(run, at=at)
    found = agent.answer(wanted)
    check_source(opened, config, trust)
    if tries and len(found.candidates) > 1:
        found = tried(agent, found, wanted, config.domain, tries, seed)
    text = wanted if isinstance(wanted, str) else None
    task = f"{config.domain}{envs.REWARD}{text or 0}"
    finished = _run_folder(run, config, task, found.skill, out, episodes, seed, at)
    known = envs.domains().get(config.domain)
    if text is not None and known is not None:  # its episodes all have the same length
        reward = finished.result["return"] / known.episode_length
    else:
        reward = mean_reward(agent, wanted, config.domain, found.skill, episodes, seed)
    about = {"prompt": text, "how": found.how, "skill": found.skill.tolist(), "reward": reward}
    write_json(finished.path / api.PROMPT_FILE, about)
    return Prompted(finished.path, found.skill.tolist(), found.how, reward)


def _run_folder(
    run: Path | str, config: Any, task: str, skill: Array, out: Path | str | None, episodes: int, seed: int, at: Any
) -> api.Finished:
    """A finetuning of a single step, which trains nothing: the pre-trained policy with the skill."""
    settings = dataclasses.replace(
        api.continuing(config, task),
        skill=tuple(skill.tolist()),
        steps=1,
        warmup=1,
        num_envs=1,
        replay=1_000,
        prior_data=0.0,
        eval_episodes=episodes,
        seed=seed,
        compile="off",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="nothing will be learned")
        return api.finetune(run, settings, at=at, out=out, quiet=True)


def tried(agent: Agent, found: Answer, wanted: Prompt, domain: str, tries: int, seed: int) -> Answer:
    """The best of the first candidates and of mixtures of them, by their prompted rewards in the environment."""
    rng = np.random.default_rng(seed)
    half = found.candidates[: max(tries - tries // 2, 1)]
    skills = [half, _mixtures(agent, half[:4], tries - len(half), rng)]
    candidates = np.concatenate(skills) if len(skills[1]) else half
    scores = trial_rewards(agent, wanted, domain, candidates, seed)
    best = int(scores.argmax())
    return found if best == 0 else Answer(candidates[best], "tried", found.candidates)


def _mixtures(agent: Agent, best: Array, count: int, rng: np.random.Generator) -> Array:
    """Random directions between the best skills, for skills on a sphere; otherwise none."""
    space = agent.objective.skills
    if space.kind != "sphere" or count < 1:
        return best[:0]
    mixed = rng.dirichlet(np.ones(len(best)), count) @ best + 0.2 * space.sample(count, rng)
    return np.asarray(space.radius * mixed / np.linalg.norm(mixed, axis=1, keepdims=True), np.float32)


def trial_rewards(agent: Agent, wanted: Prompt, domain: str, skills: Array, seed: int) -> Array:
    """(K,): the mean prompted reward of each skill over the second half of its trials, from the same initial states."""
    reward = reward_of(wanted, agent.quantities, agent.objective, agent.load_library().states)
    env = envs.make(domain, num_envs=len(skills), seed=seed)
    totals = np.zeros(len(skills))
    try:
        for start in range(STARTS):
            seen = rollout(agent, env, skills, seed=[seed + start] * len(skills), keep=True, limit=TRIAL_STEPS)
            totals += [float(np.mean(reward(path[len(path) // 2 :]))) for path in seen.observations]
    finally:
        env.close()
    return np.asarray(totals / STARTS, np.float32)


def mean_reward(agent: Agent, wanted: Prompt, domain: str, skill: Array, episodes: int, seed: int) -> float:
    """The mean prompted reward per step of a skill."""
    reward = reward_of(wanted, agent.quantities, agent.objective, agent.load_library().states)
    env = envs.make(domain, num_envs=episodes, seed=seed)
    try:
        seen = rollout(agent, env, skill, seed=seed, keep=True)
    finally:
        env.close()
    return float(np.mean([np.mean(reward(path[1:])) for path in seen.observations]))
