"""ExORL's format (Yarats et al. 2022): an npz per episode, `<domain>/<method>/buffer/episode_<index>_<T>.npz`.

Each array has T + 1 rows. Row 0 is the reset: zero action, reward 0, discount 1. Row t is what led to observation t.
`physics` is the simulator's state, from which ExORL's own loader relabels rewards. Beyond the convention, `skill` is
the skill that acted and `reward_<task>` the reward of each task of the domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.export.episodes import Experience
from cic.learning.replay import Episode

_REWARD = "reward_"


def write_exorl(experience: Experience, out: Path | str, task: str | None = None) -> Path:
    """Write the episodes and return their folder. `reward` is that of `task`; by default the environment's."""
    domain = experience.environment.partition("-")[0].replace(":", "_").replace("/", "_")
    folder = Path(out) / domain / experience.method / "buffer"
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} holds episodes already: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    for index, episode in enumerate(experience.episodes):
        arrays: Any = _arrays(episode, task)  # numpy's stubs take names for its own arguments
        np.savez_compressed(folder / f"episode_{index:06d}_{len(episode)}.npz", **arrays)
    return folder


def _arrays(episode: Episode, task: str | None) -> dict[str, npt.NDArray[Any]]:
    if task is not None and task not in episode.task_rewards:
        known = ", ".join(episode.task_rewards) or "none"
        raise UserError(f'the replay has no rewards of "{task}"; its tasks are: {known}')
    discount = np.ones((len(episode) + 1, 1), np.float32)
    discount[-1] = 0.0 if episode.terminated else 1.0
    arrays: dict[str, npt.NDArray[Any]] = {
        "observation": episode.observation,
        "action": _after_reset(episode.action),
        "reward": _after_reset((episode.reward if task is None else episode.task_rewards[task])[:, None]),
        "discount": discount,
    }
    arrays |= {f"{_REWARD}{name}": _after_reset(reward[:, None]) for name, reward in episode.task_rewards.items()}
    if episode.skill.shape[1]:
        arrays["skill"] = np.concatenate([episode.skill[:1], episode.skill])
    if episode.physics is not None:
        arrays["physics"] = episode.physics
    return arrays


def _after_reset(steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A row of zeros before the steps."""
    return np.concatenate([np.zeros_like(steps[:1]), steps])


def read_exorl(folder: Path | str) -> Iterator[Episode]:
    """Episodes of a folder in ExORL's format, ours or another's, in order of their names."""
    files = sorted(Path(folder).glob("*.npz"))
    if not files:
        raise UserError(f"{folder} holds no .npz episodes: give the folder named buffer")
    for file in files:
        parts = file.stem.split("_")
        if len(parts) != 3 or not parts[2].isdigit():
            raise UserError(f"{file.name} is not named <word>_<index>_<length>.npz")
        with np.load(file, allow_pickle=False) as arrays:
            yield _read(dict(arrays), int(parts[2]), file)


def _read(arrays: dict[str, npt.NDArray[Any]], length: int, file: Path) -> Episode:
    missing = [name for name in ("observation", "action", "reward", "discount") if name not in arrays]
    if missing:
        raise UserError(f"{file} lacks {', '.join(missing)}")
    short = [name for name, values in arrays.items() if len(values) != length + 1]
    if short:
        raise UserError(f"{file} should have {length + 1} rows of {short[0]}, not {len(arrays[short[0]])}")
    steps = {name: values[1:] for name, values in arrays.items()}
    rewards = {name.removeprefix(_REWARD): values[:, 0] for name, values in steps.items() if name.startswith(_REWARD)}
    return Episode(
        observation=arrays["observation"],
        action=steps["action"],
        reward=steps["reward"][:, 0],
        task_rewards=rewards,
        terminated=bool(steps["discount"][-1, 0] == 0),
        skill=steps.get("skill", np.zeros((length, 0), np.float32)),
        physics=arrays.get("physics"),
    )
