"""The complete episodes of a run's replay.

Episodes whose start was overwritten or that have not ended are omitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cic import envs
from cic.core.errors import UserError
from cic.learning.replay import Episode, Replay
from cic.runs.folder import Run
from cic.training.loading import config_of


@dataclass(frozen=True)
class Experience:
    """All complete episodes of a run, environment after environment, oldest first."""

    environment: str
    method: str
    episodes: list[Episode]
    left_out: int
    """Steps of episodes that are not complete."""


def episodes_of(run: Run | Path | str) -> Experience:
    """Read the episodes of the run's newest checkpoint."""
    opened = run if isinstance(run, Run) else Run(run)
    replay = Replay.load(opened.replay())
    config = config_of(opened)
    env = envs.make(config.environment)
    try:
        name, tasks = env.name, env.tasks
    finally:
        env.close()
    found = list(replay.episodes(tasks))
    if not found:
        raise UserError(f"{opened.path} holds no complete episode: train for longer, or with a larger --replay")
    steps = len(replay) - int(replay.episode_end.sum())
    return Experience(name, str(config.objective), found, steps - sum(map(len, found)))
