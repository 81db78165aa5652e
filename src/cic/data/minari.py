"""Read Minari datasets: `minari:ID` of a dataset in Minari's own folder, or the folder of a dataset.

An episode has T + 1 observations and T of everything else. Datasets that `cic export` wrote also have skill, physics
and the reward of every task as infos (T + 1 rows, row 0 of the reset), under `skill`, `physics` and `reward_<task>`.
Observations that are dictionaries or tuples are flattened as in environments (`cic.core.spaces`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from cic.core.action_spaces import is_normalised, supported
from cic.core.errors import UserError
from cic.core.spaces import Leaf, flatten_any, leaves
from cic.data.exorl import REWARD
from cic.learning.replay import Episode

PREFIX = "minari:"


def is_minari(folder: Path) -> bool:
    """Whether this is the folder of a Minari dataset."""
    return (folder / "data" / "metadata.json").is_file()


def open_minari(source: str | Path) -> Any:
    """Open `minari:ID` or the folder of a dataset; returns Minari's dataset. Nothing is downloaded."""
    minari = import_minari()
    text = str(source)
    try:
        if text.startswith(PREFIX):
            return minari.load_dataset(text.removeprefix(PREFIX), download=False)
        if not is_minari(Path(text)):
            raise UserError(f"{text} is not the folder of a Minari dataset: it has no data/metadata.json")
        return minari.MinariDataset(Path(text) / "data")
    except FileNotFoundError:
        known = ", ".join(sorted(minari.list_local_datasets())) or "none"
        name = text.removeprefix(PREFIX)
        raise UserError(
            f'there is no Minari dataset "{name}" on this machine (there are: {known}): '
            f"download it with `minari download {name}`"
        ) from None
    except (OSError, ValueError, KeyError, AssertionError) as error:
        raise UserError(f"{text} cannot be read as a Minari dataset: {error}") from None


def read_minari(source: str | Path, steps: int | None = None) -> Iterator[Episode]:
    """Yield the episodes of a dataset, ours or another's with continuous actions, until they have `steps` steps."""
    dataset = open_minari(source)
    observed = leaves(dataset.observation_space, f"{source}: the observation space")
    acted = supported(dataset.action_space, str(source))
    if not isinstance(acted, Box):
        raise UserError(f"{source} has actions of {type(acted).__name__}: only continuous actions (Box) can be learned")
    found = 0
    try:
        for episode in dataset.iterate_episodes():
            yield _episode(episode, observed, acted, str(source))
            found += len(episode.rewards)
            if steps is not None and found >= steps:
                return
    except (OSError, KeyError) as error:
        raise UserError(f"{source} cannot be read as a Minari dataset: {error}") from None


def environment_of(source: str | Path) -> str | None:
    """The name of the environment in a dataset's metadata, as `cic.envs.make` takes it; datasets of `cic export` have
    the domain in their id."""
    spec = open_minari(source).spec
    if spec.env_spec is not None:
        return f"gymnasium:{spec.env_spec.id}"
    namespace, _, rest = str(spec.dataset_id).partition("/")
    return rest.partition("/")[0] if namespace == "cic" else None


def _episode(episode: Any, observed: list[Leaf], acted: Box, where: str) -> Episode:
    infos = episode.infos or {}
    count = len(episode.rewards)
    rewards = {name.removeprefix(REWARD): values[1:] for name, values in infos.items() if name.startswith(REWARD)}
    return Episode(
        observation=flatten_any(observed, episode.observations, where)[0],
        action=_unit(np.asarray(episode.actions).reshape(count, -1), acted),
        reward=np.asarray(episode.rewards, np.float32),
        task_rewards=rewards,
        terminated=bool(episode.terminations[-1]),
        skill=infos["skill"][1:] if "skill" in infos else np.zeros((count, 0), np.float32),
        physics=infos.get("physics"),
    )


def _unit(actions: Any, space: Box) -> Any:
    """Actions scaled to [-1, 1]."""
    if is_normalised(space):
        return np.asarray(actions, np.float32)
    low, high = space.low.ravel(), space.high.ravel()
    return ((actions - low) * (2 / (high - low)) - 1).astype(np.float32)


def import_minari() -> Any:
    """Return the package, which is an optional dependency."""
    try:
        import h5py  # noqa: F401  Minari needs it and fails late without it
        import minari
    except ImportError:
        raise UserError("Minari's format needs its package: pip install 'cic[export]'") from None
    return minari
