"""Finetuning: search for a skill, learn the task with it, and keep the better of skill and finetuned policy.

The budget covers everything: the search; learning, which starts with the updates that became due in the search and
trains only the critic with them; and, if requested, a comparison at the end, in which the chosen skill and the
finetuned policy act without noise from the same initial states.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from cic.core.types import Array, Batch
from cic.learning.objectives import Objective
from cic.runs.untrusted import Arrays
from cic.training.checkpoint_checks import need, require_finite, require_like
from cic.training.evaluation import evaluate_task
from cic.training.library import Library, checked
from cic.training.relabelled_replay import RelabelledReplay
from cic.training.script import Call, Script, Segment, Stage
from cic.training.searches import Problem, Search, Trial, make_search
from cic.training.searches.base import Labelled
from cic.training.settings import FinetuneConfig

if TYPE_CHECKING:
    from cic.training.loop import Loop

    Finetuning = Loop[FinetuneConfig[Any, Any]]

COMPARISON_STARTS = 3
COMPARISON_SEED = 1_000  # first seed; no trial of a search uses these initial states


def finetune(loop: Finetuning) -> Script:
    """Search, train the critic, train everything, compare."""
    config = loop.config
    skill_actor = _inherit(loop)
    library = _inherited_library(loop)
    search = _make_search(loop, library)
    loop.batches = batches = TaskBatches(loop)
    train_from = max(config.warmup, search.problem.budget) if search.searches else config.warmup
    train_until = config.ending if skill_actor is not None else config.steps

    found = yield Stage("search", search_skill(loop, search))
    if search.searches:
        loop.run.write_trials(found)
    skill = batches.skill = _skill(found, loop.agent.objective.skills.dim)
    yield Segment(
        "collect",
        until=min(train_from, train_until),
        act="explore" if search.searches else "uniform",
        skill=skill,
        train="none",
    )
    due = loop.updates_due(train_from)
    critic_updates = due if config.critic_updates is None else config.critic_updates
    yield Segment("critic", until_update=min(critic_updates, due), train="critic")
    actor_from = config.warmup + critic_updates * config.update_every + 1 if critic_updates > due else train_from
    actor_from = min(actor_from, train_until)
    yield from _train(loop, Segment("critic", until=actor_from, skill=skill, train="critic"), train_from)
    yield from _train(loop, Segment("train", until=train_until, skill=skill), actor_from)
    if train_until < config.steps:
        kept = yield from compare(loop, skill, skill_actor, train_until)
    else:
        kept = {"kept": "tuned"}
        train: Literal["critic", "all"] = "critic" if actor_from == train_until else "all"
        yield Segment("last updates", until_update=loop.updates_due(loop.total_steps), train=train)
    yield Call("log", loop.log)

    if kept["kept"] == "skill" and skill_actor is not None:
        loop.agent.learner.actor.load_state_dict(skill_actor.state_dict())
    returns = _evaluate(loop, skill)
    return (
        {"task": config.task, "return": float(np.mean(returns)), "returns": returns, "skill": skill.tolist()}
        | kept
        | batches.metrics()
    )


# ---- pre-trained parts ----------------------------------------------------------------------------------------


def _inherit(loop: Finetuning) -> nn.Module | None:
    """Take over the pre-trained weights; return the actor as it was pre-trained."""
    if loop.inherited is None:
        return None
    loop.agent.inherit(loop.inherited.weights, loop.config.critic)
    return copy.deepcopy(loop.agent.learner.actor).requires_grad_(False)


def _inherited_library(loop: Finetuning) -> Library | None:
    if loop.inherited is None:
        return None
    return checked(loop.inherited.library, loop.agent.objective.skills.dim, loop.agent.spaces.obs)


class TaskBatches:
    """Batches that train one skill on the task's reward: from the run's own replay and, for a share of each batch,
    from the pre-training replay with predicted rewards. Every transition is relabelled with the one skill."""

    def __init__(self, loop: Finetuning) -> None:
        self.loop, self.config = loop, loop.config
        self.skill: Array = np.zeros(loop.agent.objective.skills.dim, np.float32)
        self.share = float(loop.config.prior_data or 0.0)
        self.prior: RelabelledReplay | None = None
        if self.share and loop.inherited is not None:
            own = loop.replay
            steps = loop.inherited.steps or {}
            self.prior = RelabelledReplay(steps, loop.agent.spaces, len(self.skill), own.nstep, own.gamma)

    def sample(self, size: int) -> Batch:
        batch = self._sample(size)
        skill = torch.from_numpy(self.skill)
        return batch._replace(skill=skill.expand(len(batch.obs), -1))

    def _sample(self, size: int) -> Batch:
        replay, rng = self.loop.replay, self.loop.rng
        if self.prior is None:
            return replay.sample(size, rng)
        if self.prior.due(len(replay)):
            self._label(self.prior)
        borrowed = round(self.share * size) if self.prior.usable else 0
        if not borrowed:
            return replay.sample(size, rng)
        return _concatenated(replay.sample(size - borrowed, rng), self.prior.sample(borrowed, rng))

    def _label(self, prior: RelabelledReplay) -> None:
        """Predict the rewards of the pre-training data, log how well, and warn if they cannot be used."""
        loop, before = self.loop, prior.usable
        obs, action, next_obs, reward = loop.replay.recent_steps(loop.step + self.config.num_envs)
        latest = loop.replay.recent_steps(1 + loop.step // (3 * self.config.num_envs))[3]
        reason = prior.label(obs, action, next_obs, reward[:, 0], self.config.seed, latest)
        loop.write_metrics(self.metrics())
        if before and reason:
            warnings.warn(
                f"{reason}; the finetuning continues without pre-training data (step {loop.step:,})", stacklevel=2
            )

    def metrics(self) -> dict[str, float]:
        """How well rewards are predicted, and the share of pre-training data in each batch."""
        if self.prior is None:
            return {}
        return {"prior/r2": self.prior.r2, "prior/share": self.share if self.prior.usable else 0.0}

    def state(self) -> Arrays:
        return self.prior.state() if self.prior else {}

    def restore(self, state: Arrays) -> None:
        require_like(state, self.state())
        if self.prior is not None:
            self.prior.restore(state)


def _concatenated(a: Batch, b: Batch) -> Batch:
    """The rows of both; these batches have no extras."""
    obs, action, reward, discount, next_obs, skill = (torch.cat(rows) for rows in zip(a[:-1], b[:-1], strict=True))
    return Batch(obs, action, reward, discount, next_obs, skill)


# ---- the search ------------------------------------------------------------------------------------------------


def search_skill(loop: Finetuning, search: Search) -> Script:
    """Try the candidates of a search inside its budget; returns the trials and the chosen skill."""
    seed = loop.config.seed
    for candidate in search.within_budget():
        reset_seed = None if candidate.start is None else _start_seed(seed, candidate.start)
        outcome = yield Segment(
            "trial",
            until=min(search.spent + candidate.steps, search.problem.budget),
            skill=candidate.skill,
            train="none",
            reset=candidate.start is not None and bool(search.trials),
            reset_seed=reset_seed,
            skip=candidate.skip or 0,
        )
        search.trials.append(Trial(candidate, int(outcome["steps"]), float(outcome["reward"])))
    return search.table(search.choose())


def _make_search(loop: Finetuning, library: Library | None) -> Search:
    config = loop.config
    objective = loop.agent.objective
    budget = config.warmup if config.selection.search_steps is None else config.selection.search_steps
    problem = Problem(
        objective.skills,
        config.selection,
        min(budget, config.steps),
        config.seed,
        config.num_envs,
        library,
        lambda steps: _labelled(loop, steps),
        lambda: _inferred_skill(loop),
    )
    if config.skill is not None:
        return make_search(problem, "fixed", np.array(config.skill, np.float32))
    return make_search(problem, resolve(config.selection.search, objective, library))


def resolve(search: str, objective: Objective, library: Library | None = None) -> str:
    """Resolve `auto` and `paper`: library search if the library has several initial states, else the paper's."""
    space = objective.skills
    if search == "auto" and library is not None and len(library.candidates) < len(library.skills):
        return "library"
    if search not in ("auto", "paper"):
        return search
    if space.kind == "none":
        return "fixed"
    if type(objective).infer_skill is not Objective.infer_skill:
        return "regress"
    if space.kind == "onehot":
        return "each"
    return "grid" if space.kind == "box" else "random"


def _labelled(loop: Finetuning, steps: int) -> Labelled:
    """Observations and rewards of the first `steps` steps except the last, whose next observation is not stored yet."""
    num_envs = loop.config.num_envs
    obs, reward = loop.replay.recent(loop.step + num_envs)
    first = np.arange(len(obs)) % (len(obs) // num_envs) < steps // num_envs - 1  # environment after environment
    return obs[first], reward[first, 0]


def _inferred_skill(loop: Finetuning) -> Array | None:
    """The skill that the objective infers from rewards; None if it cannot."""
    agent = loop.agent
    obs, reward = loop.replay.recent(loop.step + loop.config.num_envs)
    skill = agent.objective.infer_skill(agent.features(obs), torch.from_numpy(reward).to(agent.device))
    if skill is None or not bool(torch.isfinite(skill).all()):
        return None
    return np.asarray(skill.detach().cpu().numpy(), np.float32)


def _skill(found: Any, dim: int) -> Array:
    need(isinstance(found, dict), "the outcome of the search must be an object")
    require_finite(found.get("skill"), "the chosen skill")
    need(len(found["skill"]) == dim, f"the chosen skill must have {dim} numbers")
    return np.array(found["skill"], np.float32)


def _train(loop: Finetuning, segment: Segment, start: int) -> Script:
    """The segment from `start` on, interrupted by evaluations."""
    every, skill = loop.config.eval_every, segment.skill
    assert segment.until is not None
    assert skill is not None
    for step in range((start // every + 1) * every, segment.until, every):
        yield replace(segment, until=step)
        yield Call("evaluate", lambda: _evaluate(loop, skill))
    yield segment


# ---- evaluating and comparing ----------------------------------------------------------------------------------


def compare(loop: Finetuning, skill: Array, skill_actor: nn.Module | None, start: int) -> Script:
    """Compare the pre-trained policy with the chosen skill and the finetuned policy; return which one to keep.

    Both start from the same initial states. Only rewards in the second half of the steps count.
    """
    config, parts = loop.config, 2 * COMPARISON_STARTS
    length = (config.steps - start) // (parts * config.num_envs) * config.num_envs
    means: dict[str, list[float]] = {"skill": [], "tuned": []}
    counted = 0
    for part in range(parts):
        own_actor = part % 2 == 1
        outcome = yield Segment(
            "compare",
            until=config.steps if part == parts - 1 else start + (part + 1) * length,
            act="mean",
            actor=None if own_actor else skill_actor,
            skill=skill,
            train="none",
            reset=True,
            reset_seed=_start_seed(config.seed, COMPARISON_SEED + part // 2),
            skip=length // 2,
            ending=True,
        )
        steps = max(int(outcome["steps"]) - length // 2, 1)
        means["tuned" if own_actor else "skill"].append(float(outcome["reward"]) / steps)
        counted += steps
    if not length:
        return {"kept": "tuned"}
    kept = "tuned" if np.mean(means["tuned"]) > np.mean(means["skill"]) else "skill"
    return {"kept": kept, "checked": means | {"steps": counted}}


def _evaluate(loop: Finetuning, skill: Array) -> list[float]:
    config = loop.config
    loop.require_finite_update()
    seed = int(np.random.SeedSequence([config.seed, loop.step]).generate_state(1)[0] >> 1)
    returns = evaluate_task(
        loop.agent,
        config.environment,
        skill,
        episodes=config.eval_episodes,
        seed=seed,
        timeout=config.env_timeout,
        workers=config.workers,
        longest=config.eval_steps,
        seconds=config.eval_timeout,
    )
    numbers = {"eval/return": float(returns.mean()), "eval/std": float(returns.std())}
    loop.require_finite(numbers)
    loop.write_metrics(numbers)
    loop.reporter.note(loop.step, eval=numbers["eval/return"])
    return [float(value) for value in returns]


def _start_seed(seed: int, start: int) -> int:
    """The seed of a reset that is the same for everything that is compared."""
    return int(np.random.SeedSequence([seed, start]).generate_state(1)[0] >> 1)
