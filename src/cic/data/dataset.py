"""A dataset: episodes from a run folder, an ExORL folder, a Minari dataset, or several of these (`A+B`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cic import envs
from cic.core.errors import UserError
from cic.core.imports import naming_imports
from cic.core.types import Array, Bools, Spaces
from cic.data import exorl, minari, relabel
from cic.learning.replay import Episode, Replay
from cic.runs.folder import Run


@dataclass(frozen=True)
class Dataset:
    """Episodes of one environment."""

    source: str
    """Where they come from, as it was given to `open_dataset`."""
    environment: str | None
    """The environment or domain that they were collected in, if the source states it."""
    episodes: list[Episode]

    @property
    def spaces(self) -> Spaces:
        """The sizes of observations and actions."""
        first = self.episodes[0]
        return Spaces(first.observation.shape[1], first.action.shape[1])

    @property
    def steps(self) -> int:
        return sum(map(len, self.episodes))

    @property
    def has_physics(self) -> bool:
        return all(episode.physics is not None for episode in self.episodes)

    def digest(self) -> str:
        """A checksum of observations and actions, by which a resumed run detects other data."""
        found = hashlib.sha256()
        for episode in self.episodes:
            found.update(np.ascontiguousarray(episode.observation).data)
            found.update(np.ascontiguousarray(episode.action).data)
        return found.hexdigest()

    def rewards(self, task: str | None = None) -> Array:
        """Return the rewards (steps,) of a task, such as `"walker-run"`, or those of the source itself.

        Stored rewards of the task are used if every episode has them. Otherwise they are recomputed from the simulator
        states.
        """
        if task is None:
            return np.concatenate([episode.reward for episode in self.episodes])
        domain, name = envs.split_name(task)
        if name is not None and all(name in episode.task_rewards for episode in self.episodes):
            return np.concatenate([episode.task_rewards[name] for episode in self.episodes])
        if task == self.environment:
            return self.rewards()
        if not self.has_physics:
            known = ", ".join(self.stored_tasks()) or "none"
            raise UserError(
                f'{self.source} has neither rewards of "{task}" (it has those of: {known}) nor simulator states to '
                "compute them from: choose another task, or collect data with `keep_physics`"
            )
        return relabel.task_rewards(domain, self.episodes)[str(name)]

    def all_rewards(self, domain: str) -> dict[str, Array]:
        """Return the rewards (steps,) of every task of the domain that is stored or can be recomputed."""
        known = envs.domains().get(domain)
        stored = self.stored_tasks()
        if known is None or all(task in stored for task in known.tasks) or not self.has_physics:
            return {task: self.rewards(f"{domain}-{task}") for task in stored}
        return relabel.task_rewards(domain, self.episodes)

    def stored_tasks(self) -> list[str]:
        """The tasks whose rewards every episode has."""
        common = set.intersection(*(set(episode.task_rewards) for episode in self.episodes))
        return [task for task in self.episodes[0].task_rewards if task in common]

    def replay(self, reward: Array, nstep: int, gamma: float, skills: Array | None = None) -> Replay:
        """Return the steps as a replay to sample from, with these rewards (steps,).

        Each record has one of the `skills` (K, dim) in turn, whichever policy acted.
        """
        lengths = np.array([len(episode) for episode in self.episodes])
        ends = np.cumsum(lengths + 1) - 1  # the record of each episode's final observation
        episode_end: Bools = np.zeros(int(ends[-1]) + 1, np.bool_)
        episode_end[ends] = True
        terminated: Bools = np.zeros_like(episode_end)
        terminated[ends - 1] = [episode.terminated for episode in self.episodes]
        obs = np.concatenate([episode.observation for episode in self.episodes], dtype=np.float32)
        action = np.zeros((len(obs), self.spaces.action), np.float32)
        action[~episode_end] = np.concatenate([episode.action for episode in self.episodes])
        skill_dim = 0 if skills is None else skills.shape[1]
        replay = Replay.from_steps(obs, action, terminated, episode_end, skill_dim, nstep, gamma)
        if skills is not None:
            replay.skills, replay.skill_id[:] = skills, np.arange(len(replay.skill_id)) % len(skills)
        replay.reward[: len(obs)][~episode_end] = reward
        if not replay.ready():
            raise UserError(f"every episode of {self.source} is shorter than {nstep} steps: set `nstep=1`")
        return replay


def open_dataset(source: str | Path, steps: int | None = None) -> Dataset:
    """Read a dataset.

    Args:
        source: A run folder, a folder of ExORL episodes (`<domain>/<method>/buffer`), `"minari:ID"` or the folder of a
            Minari dataset. Several sources are joined with `+`.
        steps: Read whole episodes until there are this many steps, of a mixture from each part in equal shares.

    Returns:
        The episodes, in the order in which they are stored.

    Raises:
        UserError: A source does not exist, is damaged or has another format; or the parts of a mixture do not fit.

    Example:
        ```python
        run = cic.pretrain("gridworld", "rnd", scale="smoke", out="runs/rnd", quiet=True)
        data = cic.data.open_dataset("runs/rnd")
        print(data.environment, data.steps, data.rewards("gridworld-reach_top_left").sum())
        ```
    """
    text = str(source)
    names = [text] if Path(text).exists() else [part for part in text.split("+") if part]
    share = None if steps is None else -(-steps // max(len(names), 1))
    parts = [_open(name, share) for name in names]
    if not parts:
        raise UserError("the name of the dataset is empty: give a run folder, an ExORL folder or minari:ID")
    _require_same(parts)
    return Dataset(text, _common_environment(parts), [episode for part in parts for episode in part.episodes])


def _open(name: str, steps: int | None) -> Dataset:
    if name.startswith(minari.PREFIX) or minari.is_minari(Path(name)):
        episodes = list(minari.read_minari(name, steps))
        environment = minari.environment_of(name)
    elif (Path(name) / "config.json").is_file():
        environment, found = _of_run(Run(name))
        episodes = list(_first(found, steps))
    elif Path(name).is_dir():
        episodes = list(exorl.read_exorl(name, steps))
        domain = exorl.domain_of(Path(name))
        environment = domain if domain in envs.domains() else None
    else:
        raise UserError(
            f"{name} is no dataset: give a run folder, a folder of ExORL episodes (*.npz), or minari:ID of a Minari "
            "dataset"
        )
    if not any(map(len, episodes)):
        raise UserError(f"{name} contains no complete episode: train for longer, or with a larger `replay`")
    _require_equal_widths(name, episodes)
    return Dataset(name, environment, episodes)


def _of_run(run: Run) -> tuple[str, Iterator[Episode]]:
    """The environment of a run and the complete episodes in its replay."""
    environment = str(run.config.get("domain") or run.config.get("task"))
    with naming_imports(run.about.get("imports"), run.path):
        tasks, replay = envs.tasks(environment), Replay.load(run.replay())
    return environment, replay.episodes(tasks if len(tasks) == replay.task_rewards.shape[1] else ())


def _first(episodes: Iterable[Episode], steps: int | None) -> Iterator[Episode]:
    found = 0
    for episode in episodes:
        yield episode
        found += len(episode)
        if steps is not None and found >= steps:
            return


def _require_equal_widths(name: str, episodes: Sequence[Episode]) -> None:
    widths = {(episode.observation.shape[1:], episode.action.shape[1:]) for episode in episodes}
    if len(widths) > 1:
        raise UserError(f"the episodes of {name} have observations or actions of different sizes: {sorted(widths)}")


def _require_same(parts: Sequence[Dataset]) -> None:
    """The parts of a mixture must come from one domain."""
    first = parts[0]
    for other in parts[1:]:
        if other.spaces != first.spaces:
            raise UserError(
                f"{first.source} has observations and actions of sizes {first.spaces[:2]}, {other.source} of "
                f"{other.spaces[:2]}: only data of one environment can be mixed"
            )
        domains = {_domain(part.environment) for part in (first, other) if part.environment is not None}
        if len(domains) > 1:
            raise UserError(f"{first.source} and {other.source} are of different environments: {sorted(domains)}")


def _common_environment(parts: Sequence[Dataset]) -> str | None:
    """The environment of all parts: a task if all were collected with its reward, else the domain."""
    known = {part.environment for part in parts if part.environment is not None}
    if len(known) > 1:
        known = {_domain(environment) for environment in known}
    return next(iter(known), None)


def _domain(environment: str) -> str:
    return environment if ":" in environment else environment.partition("-")[0]
