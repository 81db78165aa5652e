"""Finetuning: search for a skill, learn the task with it, and keep the better of the two.

The budget, to the step: the search; learning, in which the updates that came due in the search teach the critic alone
first, so that it knows the policy before it moves it; and at last, if asked for, a check, in which the chosen skill
alone and the tuned policy act without noise, from the same starts. The better one is kept: what is returned is not
worse than the skill, as far as the budget can tell.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.types import Array, Batch, Bools
from cic.envs.base import VectorEnv
from cic.learning.objectives import Objective, get_objective
from cic.training.checkpoint_checks import require_like, require_trials, whole
from cic.training.evaluation import evaluate_task
from cic.training.library import Library, checked
from cic.training.phase import Arrays, Phase
from cic.training.relabelled_replay import Prior
from cic.training.searches import Problem, make_search
from cic.training.searches.base import Seen
from cic.training.settings import FinetuneConfig

if TYPE_CHECKING:
    from cic.training.loop import Loop


CHECK = 1_000  # and on: starts that no trial of a search has had
STARTS = 3  # of a check
ASKED_EVERY, ASKED, FOLLOWING = 50, 512, 50  # updates; stored steps, and the rewards behind each, that a rank is of


class Finetuning(Phase):
    """One skill for all copies; the task pays."""

    Config = FinetuneConfig
    intrinsic = False
    config: FinetuneConfig[Any, Any]

    @staticmethod
    def environment(config: FinetuneConfig[Any, Any]) -> str:
        return config.task

    @staticmethod
    def ending(config: FinetuneConfig[Any, Any]) -> int:
        return config.steps - config.check_steps

    @property
    def title(self) -> str:
        return f"{get_objective(self.config.objective).title} {self.config.task}"

    def start(self, loop: Loop) -> None:
        super().start(loop)
        config, objective = self.config, loop.agent.objective
        if self.inherited is not None:
            loop.agent.inherit(self.inherited.weights, config.critic)
            self.skill_actor = copy.deepcopy(loop.agent.learner.actor).requires_grad_(False)  # as it was pre-trained
        dim, obs = objective.skills.dim, loop.agent.spaces.obs
        library = checked(self.inherited.library, dim, obs) if self.inherited else None
        budget = config.warmup if config.selection.search_steps is None else config.selection.search_steps
        space, copies = objective.skills, config.num_envs
        problem = Problem(space, config.selection, budget, config.seed, copies, library, self._seen, self._inferred)
        name = "fixed" if config.skill is not None else resolve(config.selection.search, objective, library)
        self.search = make_search(problem, name)
        self._first_update = max(config.warmup, budget) if self.search.searching else config.warmup
        if config.skill is not None:
            self.search.chosen = np.array(config.skill, np.float32)
        self.checked = np.zeros(
            (STARTS, 2, 2)
        )  # per start: reward and steps of the skill alone, and of the tuned policy
        self.prior: Prior | None = None
        if config.prior_data and self.inherited is not None:
            own = loop.replay
            self.prior = Prior(self.inherited.steps or {}, loop.agent.spaces, dim, own.nstep, own.gamma)
        self._cuts, self._start = False, 0
        self._opened: int | None = None  # updates after which the actor began to move

    # ---- acting ------------------------------------------------------------------------------------------------

    def skills(self) -> tuple[Array, Bools]:
        copies = self.config.num_envs
        return np.tile(self.search.current, (copies, 1)), np.zeros(copies, np.bool_)

    def uniform(self) -> bool:
        return self.loop.step < self.config.warmup and self.search.name == "fixed"

    def act(self, obs: Array, skill: Array) -> Array:
        part, agent = self._part_of_check(self.loop.step), self.loop.agent
        if part is not None:
            return agent.act(obs, skill, actor=self.skill_actor if part % 2 == 0 else None)
        action = agent.act(obs, skill, explore=True)
        if not self.config.second_proposal or self.inherited is None or self._opened is None:
            return action
        own = agent.act(obs, skill, actor=self.skill_actor)
        preferred = agent.value(obs, own, skill) > agent.value(obs, action, skill)
        return np.where(preferred[:, None], own, action)

    def _part_of_check(self, step: int) -> int | None:
        """The skill alone (even) and the tuned policy (odd) from one start after another; None before, and without."""
        left, length = self.config.steps - step, self.config.check_steps
        if not length or left > length or self.inherited is None:
            return None
        return min(2 * STARTS * (length - left) // length, 2 * STARTS - 1)

    def _counts_in_check(self, step: int) -> bool:
        """The second half of each part: where a policy gets to, not how far off it began."""
        left, length = self.config.steps - step, self.config.check_steps
        return 4 * STARTS * (length - left) // length % 2 == 1

    def after_step(self, reward: Array, done: Bools) -> None:
        part, coming = (self._part_of_check(step) for step in (self.loop.step, self.loop.step + len(reward)))
        if part is not None and self._counts_in_check(self.loop.step):
            self.checked[part // 2, part % 2] += float(reward.sum(dtype=np.float64)), len(reward)
        self._cuts, self._start = coming != part, CHECK + (coming or 0) // 2
        if self.search.searching:
            tried = len(self.search.trials)
            self.search.observe(reward)
            if len(self.search.trials) > tried and self.search.fresh:
                self._cuts, self._start = True, self.search.start
            if not self.search.searching:
                self.loop.run.write_trials(self.search.table())

    def cuts(self) -> bool:
        """Trials that must not depend on the one before begin with an episode, and so do the parts of the check."""
        return self._cuts

    def start_seed(self) -> int:
        """From the same starts, or the luckier one would win."""
        return int(np.random.SeedSequence([self.config.seed, self._start]).generate_state(1)[0] >> 1)

    # ---- learning ----------------------------------------------------------------------------------------------

    @property
    def first_update(self) -> int:
        return self._first_update

    def learns(self) -> bool:
        """Not while it is checked what was learned."""
        return self._part_of_check(self.loop.step) is None

    def moves_actor(self) -> bool:
        if self._opened is None and (self.loop.updates >= self._critic_updates or self._ranks()):
            self._opened = self.loop.updates
        return self._opened is not None

    @property
    def _critic_updates(self) -> int:
        asked = self.config.critic_updates
        return self.loop.earned(self.first_update) if asked is None else asked

    def _ranks(self) -> bool:
        """Asked now and then: do the critic's values of stored steps rank them as what followed does?"""
        updates, least = self.loop.updates, self.config.critic_rank
        if not least or not updates or updates % ASKED_EVERY:
            return False
        rng = np.random.default_rng([self.config.seed, updates])
        obs, action, followed = self.loop.replay.followed(ASKED, FOLLOWING, rng)
        return rank_correlation(self.loop.agent.value(obs, action, self.search.current), followed) > least

    def sample(self, size: int) -> Batch:
        """Some of it from what pre-training saw, with the rewards that are known of it by now."""
        if self.prior is None or not self.config.prior_data:
            return super().sample(size)
        if self.prior.due(len(self.loop.replay)):
            obs, reward = self.loop.replay.recent(self.loop.step + self.config.num_envs)
            self.prior.label(obs, reward[:, 0], self.config.seed)
        borrowed = round(self.config.prior_data * size)
        return _joined(super().sample(size - borrowed), self.prior.sample(borrowed, self.loop.rng))

    def relabel(self, batch: Batch) -> Batch:
        """Every step teaches the chosen skill, whichever candidate took it: it is that skill's Q that is wanted."""
        chosen = torch.from_numpy(self.search.current).to(batch.skill.device)
        batch = batch._replace(skill=chosen.expand_as(batch.skill))
        moved = 0 if self._opened is None else self.loop.updates - self._opened
        pull = self.config.pull * (1 - moved / self.config.pull_updates)
        if pull <= 0 or self.inherited is None:
            return batch
        agent = self.loop.agent
        with torch.no_grad():
            x = agent.objective.policy_input(agent.encoder(batch.obs), batch.skill)
            anchor = agent.learner.mean_action(x, self.skill_actor)
        return batch.with_extras(anchor=anchor, pull=torch.tensor(pull, device=agent.device))

    # ---- what the search asks for ------------------------------------------------------------------------------

    def _seen(self, steps: int) -> Seen:
        """Observations and rewards of the first `steps` steps but the last, which is not complete as it is taken."""
        copies = self.config.num_envs
        obs, reward = self.loop.replay.recent(self.loop.step + copies)
        first = np.arange(len(obs)) % (len(obs) // copies) < steps // copies - 1  # copies lie one behind the other
        return obs[first], reward[first, 0]

    def _inferred(self) -> Array | None:
        """A skill that the method regresses from rewards, if it can."""
        agent = self.loop.agent
        seen = self.loop.replay.recent(self.loop.step + self.config.num_envs)
        skill = agent.objective.infer_skill(*(torch.from_numpy(array).to(agent.device) for array in seen))
        if skill is None or not bool(torch.isfinite(skill).all()):
            return None
        return np.asarray(skill.detach().cpu().numpy(), np.float32)

    # ---- measuring ---------------------------------------------------------------------------------------------

    def tasks(self, env: VectorEnv) -> tuple[str, ...]:
        return (env.task or "reward",)

    def return_key(self, task: str) -> str:
        return "train/return"

    def at_boundary(self) -> None:
        if self.loop.crossed(self.config.eval_every) and self.loop.step < self.config.steps:
            self._evaluate()

    def _evaluate(self) -> list[float]:
        loop = self.loop
        loop.require_finite_update()
        seed = int(np.random.SeedSequence([self.config.seed, loop.step]).generate_state(1)[0] >> 1)
        returns = evaluate_task(
            loop.agent,
            self.config.task,
            self.search.current,
            episodes=self.config.eval_episodes,
            seed=seed,
            timeout=self.config.env_timeout,
        )
        numbers = {"eval/return": float(returns.mean()), "eval/std": float(returns.std())}
        loop.require_finite(numbers)
        loop.write_metrics(numbers)
        loop.reporter.note(loop.step, eval=numbers["eval/return"])
        return [float(value) for value in returns]

    def result(self) -> dict[str, Any]:
        kept = self._keep_the_better()
        returns = self._evaluate()
        skill = self.search.current.tolist()
        told = {"task": self.config.task, "return": float(np.mean(returns)), "returns": returns, "skill": skill}
        return told | kept

    def _keep_the_better(self) -> dict[str, Any]:
        reward, steps = self.checked[..., 0], self.checked[..., 1]
        if not steps.all():
            return {"kept": "tuned"}
        alone, tuned = (reward / steps).T
        kept = "tuned" if tuned.mean() > alone.mean() else "skill"
        if kept == "skill":
            self.loop.agent.learner.actor.load_state_dict(self.skill_actor.state_dict())
        return {"kept": kept, "checked": {"skill": alone.tolist(), "tuned": tuned.tolist(), "steps": int(steps.sum())}}

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"checked": self.checked} | (self.prior.state() if self.prior else {})
        return arrays, self.search.state() | {"opened": self._opened}

    def restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        require_like(arrays, self.state()[0])
        require_trials(state, self.search.problem.budget + 2, self.loop.agent.objective.skills.dim)
        self.checked = np.array(arrays["checked"])
        if self.prior is not None:
            self.prior.restore(arrays)
        self._opened = None if state.get("opened") is None else whole(state, "opened", 0, self.loop.updates)
        self.search.restore(state)
        if not self.search.searching and self.search.trials:
            self.loop.run.write_trials(self.search.table())


def _joined(a: Batch, b: Batch) -> Batch:
    """The rows of both; batches of this phase have no extras."""
    obs, action, reward, discount, next_obs, skill = (torch.cat(rows) for rows in zip(a[:-1], b[:-1], strict=True))
    return Batch(obs, action, reward, discount, next_obs, skill)


def rank_correlation(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Spearman's, of two rows of numbers; 0 where one of them is all the same or there are fewer than three."""
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    first, second = (np.argsort(np.argsort(row)) for row in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def resolve(search: str, objective: Objective, library: Library | None = None) -> str:
    """What `auto` and `paper` mean: a library that shows its skills from several starts, else what the paper does."""
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
