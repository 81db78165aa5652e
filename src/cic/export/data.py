"""Export the episodes of a run as a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cic.export.episodes import episodes_of, output_folder
from cic.export.exorl import write_exorl
from cic.export.minari import write_minari


@dataclass(frozen=True)
class DataExport:
    """A written dataset."""

    folder: Path
    episodes: int
    steps: int
    left_out: int
    """Steps of incomplete episodes, which are not in the dataset."""
    physics: bool
    """Whether the dataset has the state of the simulator, which a run keeps with `keep_physics`."""


def export_data(
    run: Path | str,
    out: Path | str | None = None,
    format: Literal["exorl", "minari"] = "exorl",
    *,
    task: str | None = None,
) -> DataExport:
    """Export the replay buffer of a run as a dataset of episodes.

    Args:
        run: Folder of a pre-training or a finetuning.
        out: Folder to write to; by default `export/` in the run's folder.
        format: `"exorl"` (one npz file per episode) or `"minari"` (needs the extra `export`).
        task: The task whose reward is written, such as `"walker-run"` or `"run"`; by default the reward of the run's
            environment.

    Returns:
        The folder and the size of the dataset.

    Example:
        ```python
        data = cic.export_data("runs/skills", "dataset", task="reach_top_left")
        print(data.folder, data.episodes, data.steps)
        ```
    """
    folder, name = output_folder(run, out), task.rpartition("-")[2] if task else None
    found = episodes_of(run)
    written = write_exorl(found, folder, name) if format == "exorl" else write_minari(found, folder, name)
    steps = sum(map(len, found.episodes))
    physics = found.episodes[0].physics is not None
    return DataExport(written, len(found.episodes), steps, found.left_out, physics)
