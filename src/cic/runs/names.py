"""The names that a run uses in its folder. All other files belong to the user: `out` may be the current folder."""

from __future__ import annotations

from pathlib import Path

LOCK = ".lock"
SWEEP_LOCK, SWEEP_LOG = ".worker.lock", "log.txt"
"""What a sweep adds to the folders of its runs."""
PARTIAL = ".cic-part"
FILES = (
    *("config.json", "status.json", "result.json", "trials.json", "prompt.json", "metrics.jsonl", "timing.jsonl"),
    *(LOCK, SWEEP_LOCK, SWEEP_LOG, "wandb"),  # a folder, in which W&B itself creates links
)
FOLDERS = ("checkpoints", "milestones", "library", "inherited", "tensorboard", "pictures", "measured")


def partial(path: Path) -> Path:
    """The name under which a file or folder is written before it is renamed to `path`."""
    return path.with_name(f".{path.name}{PARTIAL}")
