"""The complete episodes of a run's replay.

Episodes whose start was overwritten or that have not ended are omitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cic import envs
from cic.core.errors import UserError
from cic.learning.replay import Episode, Replay
from cic.runs.bundled import locate, refuse_bundled
from cic.runs.folder import Run
from cic.runs.untrusted import check_tree
from cic.training.loading import config_of, read_replay


@dataclass(frozen=True)
class Experience:
    """All complete episodes of a run, environment after environment, oldest first."""

    environment: str
    method: str
    episodes: list[Episode]
    left_out: int
    """Steps of episodes that are not complete."""


def output_folder(run: Path | str, out: Path | str | None) -> Path:
    """Return `out`, by default `export/` in the run's folder, which must not contain links."""
    if out is not None:
        return Path(out)
    folder = locate(run) / "export"
    refuse_bundled(folder)
    check_tree(folder)
    return folder


def episodes_of(run: Run | Path | str) -> Experience:
    """Read the episodes of the run's newest checkpoint. No environment is made."""
    opened = run if isinstance(run, Run) else Run(run)
    config = config_of(opened)
    replay = Replay.load(read_replay(opened, config))
    found = list(replay.episodes(envs.tasks(config.environment)))
    if not found:
        raise UserError(f"{opened.path} contains no complete episode: train for longer, or with a larger `replay`")
    steps = len(replay) - int(replay.episode_end.sum())
    return Experience(config.environment, str(config.objective), found, steps - sum(map(len, found)))
