"""The layout of a replay buffer in a checkpoint, as `cic.learning.replay.Replay.state` returns it; and its check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.runs.untrusted import Misfit, require_arrays

REPLAY = {
    "obs": "float32 envs filled obs",
    "action": "float32 envs filled action",
    "reward": "float32 envs filled",
    "task_rewards": "float32 envs filled tasks",
    "physics": "float64? envs filled physics",
    "terminated": "bool envs filled",
    "episode_end": "bool envs filled",
    "valid": "bool envs filled",
    "skill_started": "bool envs filled",
    "skill_id": "int64 envs filled",
    "skills": "float32 rows dim",
    "written": "int64 envs",
    "age": "int64 envs",
    "last_skill": "float32? envs dim",
    "last_skill_id": "int64 envs",
    "next_skill_id": "int64 one",
}
"""The layout of `Replay.state`, see `require_arrays`; a test compares them."""


def require_replay(given: Mapping[str, npt.NDArray[Any]], slots: int | None = None, **sizes: int) -> None:
    """Raise a `Misfit` unless the arrays have the layout of a replay, and possible lengths and indices.

    Args:
        given: What `Replay.state` returned.
        slots: The number of records of each environment; by default any.
        **sizes: The known sizes: `envs`, `obs`, `action`, `tasks`, `physics` and `dim` of skills.
    """
    require_arrays(given, REPLAY, one=1, **sizes)
    written, ids, next_id = given["written"], given["last_skill_id"], int(given["next_skill_id"][0])
    (num_envs, filled), rows = given["reward"].shape, len(given["skills"])
    held = np.minimum(written, filled if slots is None else slots)
    _need(num_envs > 0 and rows > 0, "the replay has no environment or no skill")
    _need(bool((written >= 0).all()) and filled == held.max(initial=0), "the replay's lengths contradict each other")
    _need(bool(((given["age"] >= 0) & (given["age"] <= written)).all()), "the replay's ages are impossible")
    _need(next_id >= 0 and bool(((ids >= -1) & (ids < next_id)).all()), "the replay's skills are impossible")
    beyond = np.arange(filled) >= held[:, None]
    _need(not bool((given["valid"] & beyond).any()), "the replay has samples where nothing was written")


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise Misfit(message)
