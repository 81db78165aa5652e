"""Which search finds a good skill for little? Regret and rank correlation of every search, without any finetuning.

python results/adaptation/searches.py pretrain runs/searches/point_mass-cic-0 …    # named domain-method-seed
python results/adaptation/searches.py try runs/searches/point_mass-cic-0 … --out results/adaptation/searches.csv.gz
python results/adaptation/searches_table.py results/adaptation/searches.csv.gz

Written for the code at commit 1c94153: it uses internals of the skill searches.

All searches of a pre-training, for every task and budget, run side by side, each in its own copy of the environment,
with the noise of finetuning. The regret is the return of the best of 256 skills less that of the chosen one, both the
mean of three episodes from the same starts. The correlation (Spearman's) is that of what the search scored with true
returns: over the skills that it tried, or, for the library, over all skills of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from searches_table import BUDGETS, read, write

import cic
from cic import envs
from cic.core.types import Array
from cic.learning.agent import Agent
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.training.evaluation import rollout
from cic.training.finetuning import resolve
from cic.training.library import STATES, Library, checked, predicted_scores
from cic.training.searches import Problem, Search, make_search, searches
from cic.training.searches.base import Seen
from cic.training.selection import SearchConfig

SKILLS, STARTS = 256, 3
EPISODE = {"walker": 500, "quadruped": 200}
"""Steps of the episodes that say a skill's true return; whole ones elsewhere."""
SMALL = {"hidden": 64, "batch": 128, "lr": 1e-3, "log_every": 5_000, "checkpoint_every": 100_000, "skill_every": 100}
COPIES = {"num_envs": 8, "update_every": 8, "library": 96, "library_starts": 5}
PRETRAIN: dict[str, dict[str, Any]] = {
    "point_mass": {**SMALL, **COPIES, "steps": 336_000, "warmup": 1_000, "library_steps": 500},
    "walker": {**SMALL, **COPIES, "library": 40, "steps": 146_000, "library_steps": 250},
    "quadruped": {**SMALL, **COPIES, "library": 40, "steps": 110_000, "library_steps": 250},
}
CIC = {"normaliser": "std", "skill_dim": 16}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "cic": ("cic", CIC),
    "discriminator": ("cic", {**CIC, "reward": "discriminator"}),
    "diayn": ("diayn", {}),
    "aps": ("aps", {}),
}
TRIAL: dict[str, dict[str, Any]] = {"library": {"trial_steps": 150, "finalists": 3}}
TAIL = "library (replay)"
"""The same search with the last skills of the training itself as its library."""


def pretrain(path: Path) -> None:
    domain, method, seed = path.name.split("-")
    objective, options = METHODS[method]
    if not (path / "result.json").exists():
        settings = PRETRAIN[domain] | options
        cic.pretrain(domain, objective, out=path, seed=int(seed), milestones=(), quiet=True, **settings)


class Searcher:
    """One search in one copy of the environment."""

    def __init__(self, name: str, budget: int, task: str, agent: Agent, library: Library | None, seed: int) -> None:
        self.name, self.budget, self.task, self.agent, self.library = name, budget, task, agent, library
        self.obs: list[Array] = []
        self.reward: list[float] = []
        name = name.removesuffix(" (replay)")
        config = SearchConfig(**TRIAL.get(name, {}))
        inside = Problem(agent.objective.skills, config, budget, seed, 1, library, self.seen, self.inferred)
        self.search: Search = make_search(inside, name)

    def seen(self, steps: int) -> Seen:
        return np.array(self.obs[: steps - 1], np.float32), np.array(self.reward[: steps - 1], np.float32)

    def inferred(self) -> Array | None:
        states = torch.from_numpy(np.array(self.obs, np.float32))
        skill = self.agent.objective.infer_skill(states, torch.tensor(self.reward)[:, None])
        return None if skill is None else np.asarray(skill.detach().numpy(), np.float32)

    def observe(self, obs: Array, reward: float) -> bool:
        """Should an episode begin?"""
        tried = len(self.search.trials)
        self.obs.append(obs.copy())
        self.reward.append(reward)
        self.search.observe(np.array([reward], np.float32))
        return len(self.search.trials) > tried and self.search.fresh


def tail(run: Run, agent: Agent, count: int = 128) -> Library:
    """What a pre-training without a library of its own leaves: its last skills, each as long as it acted."""
    loaded, length = run.load_checkpoint(), agent.objective.skills.every or 200
    assert loaded is not None
    records = loaded[1]["replay"]
    copies, slots = records["obs"].shape[:2]
    replay = Replay(
        agent.spaces, agent.objective.skills.dim, copies * slots, copies, tasks=records["task_rewards"].shape[-1]
    )
    replay.restore(records)
    own = [(skill, path) for skill, path in replay.skill_paths() if len(path) == length + 1][:count]
    places = np.linspace(0, length, STATES).round().astype(np.int64)
    return Library(np.stack([skill for skill, _ in own]), np.stack([path[places] for _, path in own]))


def returns(agent: Agent, domain: str, skills: Array, seed: int) -> dict[str, npt.NDArray[np.float64]]:
    """(skills,) per task: the mean over the starts, under the mean action."""
    env = envs.make(domain, num_envs=len(skills) * STARTS, seed=seed)
    seeds = [seed + start for _ in skills for start in range(STARTS)]
    seen = rollout(agent, env, np.repeat(skills, STARTS, axis=0), seed=seeds, limit=EPISODE.get(domain, 1_000))
    env.close()
    return {task: seen.returns[task].reshape(-1, STARTS).mean(axis=1) for task in env.tasks}


def search(jobs: list[Searcher], agent: Agent, domain: str, seed: int) -> None:
    """All of them to their end, each in its own copy of the environment."""
    env = envs.make(domain, num_envs=len(jobs), seed=seed)
    obs, _ = env.reset(seed=[20_000 + index for index in range(len(jobs))])
    while any(job.search.searching for job in jobs):
        skills = np.stack([job.search.current for job in jobs])
        obs, _, ended, cut, info = env.step(agent.act(obs, skills, explore=True))
        done, begins = ended | cut, np.zeros(len(jobs), np.bool_)
        for place, job in enumerate(jobs):
            if job.search.searching:
                begins[place] = job.observe(obs[place], float(info["rewards"][job.task][place]))
        for start in {job.search.start for job in jobs}:  # from the same starts, as in a finetuning
            cut = np.array([again and job.search.start == start for again, job in zip(begins, jobs, strict=True)])
            if cut.any():
                obs, _ = env.reset(seed=[30_000 + start] * len(jobs), options={"reset_mask": cut})
        if (done & ~begins).any():
            obs, _ = env.reset(options={"reset_mask": done & ~begins})
    env.close()


def attempt(path: Path) -> list[dict[str, Any]]:
    """All searches of one pre-training."""
    run, agent = Run(path), cic.load(path)
    domain, _, seed = path.name.split("-")
    space = agent.objective.skills
    library = checked(run.library(), space.dim, agent.spaces.obs)
    assert library is not None
    every = (
        np.eye(space.dim, dtype=np.float32)
        if space.kind == "onehot"
        else space.sample(SKILLS, np.random.default_rng(7))
    )
    truth = returns(agent, domain, every, seed=10_000)
    libraries = {"library": library}
    if domain != "quadruped":  # for time
        libraries[TAIL] = tail(run, agent)
    known = {name: returns(agent, domain, each.candidates, seed=10_000) for name, each in libraries.items()}
    names = [name for name, cls in searches().items() if space.kind in cls.fits]
    if resolve("auto", agent.objective) != "regress":
        names.remove("regress")
    jobs = [
        Searcher(name, budget, task, agent, libraries.get(name), int(seed))
        for name in [*names, *(libraries.keys() & {TAIL})]
        for budget in (BUDGETS if name != TAIL or domain == "point_mass" else BUDGETS[1:2])
        for task in truth
    ]
    for budget in BUDGETS:
        search([job for job in jobs if job.budget == budget], agent, domain, int(seed))
    reached = returns(agent, domain, np.stack([job.search.current for job in jobs]), seed=10_000)
    tried = [np.stack([trial.skill for trial in job.search.trials] or [job.search.current]) for job in jobs]
    distinct, where = np.unique(np.concatenate(tried), axis=0, return_inverse=True)
    paid = returns(agent, domain, distinct, seed=10_000)
    rows, at = [], 0
    for place, job in enumerate(jobs):
        here = paid[job.task][where.reshape(-1)[at : at + len(tried[place])]]
        at += len(tried[place])
        scores = np.array(job.search.scores())
        if job.library is not None:
            scores, here = predicted_scores(job.library, *job.seen(len(job.obs))), known[job.name][job.task]
        rows.append({
            "run": path.name, "search": job.name, "budget": job.budget, "task": job.task,
            "best": float(truth[job.task].max()), "typical": float(truth[job.task].mean()),
            "best_of_library": float(known[job.name][job.task].max()) if job.name in known else None,
            "return": float(reached[job.task][place]), "correlation": spearman(scores, here),
        })  # fmt: skip
    return rows


def spearman(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float | None:
    from scipy.stats import spearmanr

    if len(a) != len(b) or len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0 or not np.isfinite(a).all():
        return None
    return float(spearmanr(a, b).statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    making, trying = (verbs.add_parser(name) for name in ("pretrain", "try"))
    for each in (making, trying):
        each.add_argument("runs", type=Path, nargs="+")
    trying.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "pretrain":
        for path in given.runs:
            pretrain(path)
    else:
        for path in given.runs:
            rows = read(given.out)
            if path.name not in {row["run"] for row in rows}:
                write(given.out, rows + attempt(path))


if __name__ == "__main__":
    main()
