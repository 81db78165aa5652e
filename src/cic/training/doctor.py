"""`cic doctor`: whether a run learned anything, by comparison with random actions, and a remedy for each problem.

The agent acts in a fresh environment, with random skills or with the skill that finetuning chose, and without noise;
random actions act for as many steps from the same initial states. The checks of `training.validity` are applied to the
transitions of the agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from cic import envs
from cic.core.types import Array, Batch, Needs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.contents import metrics
from cic.runs.folder import Run
from cic.runs.records import read_run
from cic.runs.untrusted import plain
from cic.training import validity
from cic.training.evaluation import Coverage, states_of
from cic.training.loading import check_source, chosen_skill, config_of, load_agent
from cic.training.skill_variance import explained

SKILLS, STARTS, STEPS = 12, 3, 200
SAMPLES = 1_024
RANDOM = "random actions"


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    check: str
    value: str
    reference: str
    """The same number of random actions, or the limit."""
    verdict: str
    """`ok`, `weak` (worth knowing, no failure) or `bad`."""
    advice: str = ""
    """What to do if it is not ok."""


@dataclass(frozen=True)
class Checkup:
    """The answer to "did it learn anything?"."""

    run: str
    step: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return all(finding.verdict != "bad" for finding in self.findings)

    @property
    def summary(self) -> str:
        """One sentence."""
        bad, weak = (sum(one.verdict == verdict for one in self.findings) for verdict in ("bad", "weak"))
        if bad:
            return f"Not sound: {bad} of {len(self.findings)} checks failed."
        return f"Sound: all {len(self.findings)} checks passed" + (f", {weak} of them weakly." if weak else ".")


@dataclass(frozen=True)
class _Played:
    """Steps of one policy in all environments."""

    replay: Replay
    paths: Array
    """(environments, steps + 1, obs); an episode that ends is followed by the next."""
    returns: float
    """Mean sum of rewards per environment."""


def doctor(
    run: Path | str, *, at: int | None = None, steps: int = STEPS, seed: int = 0, trust: bool = False
) -> Checkup:
    """Check whether a run learned anything, in comparison with random actions.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        at: Use the weights of this step's milestone or checkpoint; by default the last ones.
        steps: Steps of each of the 36 episodes: 12 skills from 3 initial states.
        seed: Seed of skills and initial states.
        trust: Allow the environment in the run's config.json to import a Python module.

    Returns:
        The findings; `sound` is False if one of them is bad.

    Example:
        ```python
        found = cic.doctor("point_mass", steps=50)
        print(found.summary)
        ```
    """
    opened = Run(run)
    config = config_of(opened)
    check_source(opened, config, trust)
    agent, step = load_agent(opened, config, at)
    skills = _skills(agent, opened, seed)
    env = envs.make(config.environment, num_envs=SKILLS * STARTS, seed=seed)
    try:
        needs = agent.objective.needs if config.intrinsic else Needs()
        played = [_play(policy, agent, config, env, skills, needs, steps, seed) for policy in (agent, None)]
        coverage = [_cells(env, one) for one in played]
    finally:
        env.close()
    numbers, random_reward = _numbers(agent, config, played, needs, seed)
    numbers = {name: value for name, value in numbers.items() if name not in _LOGGED} | _logged(opened, at)
    findings = [] if config.intrinsic else [_return(*played)]
    findings += _exploration(agent, played, coverage, numbers, random_reward) if config.intrinsic else []
    findings += _validity(agent, config, numbers) + _recorded(opened)
    return Checkup(str(run), step, tuple(findings))


# ---- acting ------------------------------------------------------------------------------------------------------


def _skills(agent: Agent, run: Run, seed: int) -> Array:
    """(environments, dim): each random skill from every initial state, or the chosen skill."""
    space = agent.objective.skills
    chosen = chosen_skill(run, space.dim)
    if chosen is not None:
        return np.tile(chosen, (SKILLS * STARTS, 1))
    return np.repeat(space.sample(SKILLS, np.random.default_rng(seed)), STARTS, axis=0)


def _play(
    policy: Agent | None, agent: Agent, config: Any, env: VectorEnv, skills: Array, needs: Needs, steps: int, seed: int
) -> _Played:
    rng = np.random.default_rng(seed)
    learning, count = config.learning, len(skills)
    nstep = needs.nstep or learning.nstep
    replay = Replay(agent.spaces, skills.shape[1], 2 * count * (steps + nstep), count, nstep, learning.gamma)
    obs, _ = env.reset(seed=[seed + start for _ in range(SKILLS) for start in range(STARTS)])
    paths, total = [states_of(env, obs).copy()], 0.0
    for _ in range(steps):
        action = agent.spaces.random_actions(count, rng) if policy is None else policy.act(obs, skills)
        later, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, skills, action, reward, terminated)
        total += float(reward.sum())
        obs = later
        paths.append(states_of(env, obs).copy())
        if (done := terminated | truncated).any():
            replay.finish(obs, done)
            obs, _ = env.reset(options={"reset_mask": done})
    return _Played(replay, np.stack(paths, axis=1), total / count)


def _cells(env: VectorEnv, played: _Played) -> int:
    grid = Coverage(env.coverage, played.paths.shape[-1])
    grid.add(played.paths.reshape(-1, played.paths.shape[-1]))
    return grid.cells


def _numbers(
    agent: Agent, config: Any, played: list[_Played], needs: Needs, seed: int
) -> tuple[dict[str, float], float]:
    """The metrics of the agent's transitions, and the mean intrinsic reward of random actions."""
    rng = np.random.default_rng(seed)
    batch, random = (_sample(agent, one.replay, rng, needs, config.intrinsic) for one in played)
    numbers = {name: float(value) for name, value in agent.diagnose(batch, intrinsic=config.intrinsic).items()}
    reward = _reward_of(agent, batch) if config.intrinsic else batch.reward
    numbers["reward/intrinsic" if config.intrinsic else "reward/task"] = float(reward.mean())
    numbers["reward/std"] = float(reward.std(dim=0).mean())
    with torch.no_grad():
        given = agent.policy_batch(batch)
        numbers["critic/q"] = float(agent.learner.critic(given.obs, given.action, given.skill).mean())
    return numbers, float(_reward_of(agent, random).mean()) if config.intrinsic else math.nan


def _sample(agent: Agent, replay: Replay, rng: np.random.Generator, needs: Needs, intrinsic: bool) -> Batch:
    batch = replay.sample(SAMPLES, rng, needs).to(agent.device)
    return agent._prepare(batch) if intrinsic else batch


def _logged(run: Run, at: int | None) -> dict[str, float]:
    """The last values of the metrics that only training can measure; none for weights of an earlier step."""
    record = read_run(run.path)
    if at is not None or isinstance(record, str):
        return {}
    found = metrics(record, _LOGGED)[0]
    return {name: float(series.values[-1]) for name, series in found.items() if len(series.values)}


@torch.no_grad()
def _reward_of(agent: Agent, batch: Batch) -> Any:
    return agent.objective.reward(agent.encode(batch, detached=True))


# ---- findings ----------------------------------------------------------------------------------------------------


def _exploration(
    agent: Agent, played: list[_Played], cells: list[int], numbers: dict[str, float], random_reward: float
) -> list[Finding]:
    """Coverage, intrinsic reward and the effect of skills, each next to random actions."""
    covers = "ok" if cells[0] > 1.1 * cells[1] else "weak" if cells[0] > 0.5 * cells[1] else "bad"
    longer = "" if covers == "ok" else "pre-train longer, or use another method"
    found = [
        Finding("cells visited", f"{cells[0]:,}", f"{RANDOM}: {cells[1]:,}", covers, longer),
        Finding("intrinsic reward", f"{numbers['reward/intrinsic']:.3g}", f"{RANDOM}: {random_reward:.3g}", "ok"),
    ]
    if agent.objective.skills.kind != "none":
        shares = [_share_of_behaviour(one) for one in played]
        differ = shares[0] > max(0.1, shares[1])
        short = "" if differ else "keep the skill search short, or use DIAYN or METRA"
        value, reference = f"{shares[0]:.0%}", f"{RANDOM}: {shares[1]:.0%}"
        found.append(Finding("behaviour due to the skill", value, reference, "ok" if differ else "weak", short))
    return found


def _share_of_behaviour(played: _Played) -> float:
    """Share of the variance of the mean standardised observation that the skill explains."""
    spread = played.paths.reshape(-1, played.paths.shape[-1]).std(axis=0)
    means = played.paths.mean(axis=1, dtype=np.float64) / np.where(spread > 1e-6, spread, 1.0)
    return explained(means.reshape(SKILLS, STARTS, -1))


def _return(agent: _Played, random: _Played) -> Finding:
    verdict = "ok" if agent.returns > random.returns else "bad"
    advice = "" if verdict == "ok" else "finetune longer, or from another pre-training"
    return Finding("reward per episode", f"{agent.returns:.4g}", f"{RANDOM}: {random.returns:.4g}", verdict, advice)


class _Row(NamedTuple):
    metric: str
    title: str
    form: str
    reference: str
    signs: tuple[str, ...]
    """The validity checks that read this metric."""


def _row(metric: str, title: str, form: str, reference: str, *signs: str) -> _Row:
    return _Row(metric, title, form, reference, signs)


_ROWS = (
    _row("reward/std", "deviation of the reward", "{:.2g}", "", "no reward", "constant reward"),
    _row("embedding/effective_rank", "rank of the embedding", "{:.1f}", f"≥ {validity.RANK:g}", "collapsed embedding"),
    _row("contrast/cosine", "cosine of skills and transitions", "{:.2f}", "> -0.99", "contrastive collapse"),
    _row("skill/information", "skill recognised", "{:.0%}", f"≥ {validity.INFORMATION:.0%}", "skills at chance"),
    _row("density/kl", "KL of the VAE", "{:.2g}", "≥ 0.05", "VAE without information"),
    _row("action/skill_share", "actions due to the skill", "{:.2g}", "≥ 0.0001", "skills without effect"),
    _row("action/saturation", "actions at their bounds", "{:.0%}", f"≤ {validity.SATURATED:.0%}", "saturated actions"),
    _row("critic/q", "Q-value", "{:.3g}", "", "diverging Q"),
    _row("obs/largest", "largest entry of observations", "{:.3g}", "≤ 1000", "unscaled observations"),
)
_LOGGED = ("skill/information", "skill/accuracy", "skill/chance", "contrast/cosine", "density/kl")
"""Metrics of the last log line. They depend on the skills of the training, which a few fresh skills do not replace."""


def _validity(agent: Agent, config: Any, numbers: dict[str, float]) -> list[Finding]:
    """The checks of training, applied to the agent as it is now."""
    nstep = (agent.objective.needs.nstep if config.intrinsic else None) or config.learning.nstep
    peak, discount = validity.reward_size(numbers), config.learning.gamma**nstep
    signs = validity.general(numbers, peak, discount)
    limits = {"critic/q": f"≤ {validity.DIVERGED * peak / max(1 - discount, 1e-6):.3g}"}
    signs |= validity.observation_scale(numbers)
    if config.intrinsic:
        signs |= agent.objective.problems(numbers)
    exempt = validity.exempt_checks(agent)
    found = []
    for row in _ROWS:
        if row.metric not in numbers or (row.metric == "reward/std" and not config.intrinsic):
            continue
        bad = [signs[name] for name in row.signs if name in signs and name not in exempt]
        advice = bad[0].rpartition("; ")[2] if bad else ""
        value = row.form.format(numbers[row.metric])
        reference = limits.get(row.metric, row.reference)
        found.append(Finding(row.title, value, reference, "bad" if bad else "ok", advice))
    return found


def _recorded(run: Run) -> list[Finding]:
    """Problems that training reported and that no row above shows."""
    problems = (run.result() or {}).get("problems")
    shown = {name for row in _ROWS for name in row.signs}
    names = [plain(name) for name in problems if name not in shown] if isinstance(problems, dict) else []
    return [Finding("reported in training", name, "", "bad", "see problems in result.json") for name in names]
