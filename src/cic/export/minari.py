"""Write Minari's format, which `cic.data.minari` describes and reads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from cic.core.errors import UserError
from cic.data.exorl import REWARD
from cic.data.minari import import_minari
from cic.export.episodes import Experience
from cic.learning.replay import Episode

_ROOT = "MINARI_DATASETS_PATH"


def write_minari(experience: Experience, out: Path | str, task: str | None = None) -> Path:
    """Write the dataset and return its folder below `out`. The reward is `task`'s, by default the environment's."""
    minari = import_minari()
    from minari.data_collector import EpisodeBuffer

    first, domain = experience.episodes[0], experience.environment.replace(":", "_").replace("/", "_")
    if task is not None and task not in first.task_rewards:
        known = ", ".join(first.task_rewards) or "none"
        raise UserError(f'the replay has no rewards of "{task}"; its tasks are: {known}')
    name = f"cic/{domain}/{experience.method}-v0"
    folder = Path(out) / name
    if folder.exists():
        raise UserError(f"{folder} contains a dataset already: choose another `out`")
    with _below(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends authors and links, which are the user's to add
        minari.create_dataset_from_buffers(
            dataset_id=name,
            buffer=[EpisodeBuffer(id=index, **_fields(e, task)) for index, e in enumerate(experience.episodes)],
            observation_space=Box(-np.inf, np.inf, first.observation.shape[1:], np.float32),
            action_space=Box(-1.0, 1.0, first.action.shape[1:], np.float32),
            algorithm_name=experience.method,
            description=f"Experience of {experience.method} in {experience.environment}, collected by cic.",
        )
    return folder


def _fields(episode: Episode, task: str | None) -> dict[str, Any]:
    ends = np.zeros((2, len(episode)), np.bool_)
    ends[0 if episode.terminated else 1, -1] = True
    infos: dict[str, npt.NDArray[Any]] = {
        f"{REWARD}{name}": np.concatenate([[np.float32(0)], reward]) for name, reward in episode.task_rewards.items()
    }
    if episode.skill.shape[1]:
        infos["skill"] = np.concatenate([episode.skill[:1], episode.skill])
    if episode.physics is not None:
        infos["physics"] = episode.physics
    return {
        "observations": episode.observation,
        "actions": episode.action,
        "rewards": episode.reward if task is None else episode.task_rewards[task],
        "terminations": ends[0],
        "truncations": ends[1],
        "infos": infos,
    }


@contextmanager
def _below(out: Path | str) -> Iterator[None]:
    """Minari keeps its datasets in one place, which this variable names."""
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = str(Path(out).resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ROOT]
        else:
            os.environ[_ROOT] = before
