"""`cic export`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cic.commandline.flags import POSITIONAL


@dataclass(frozen=True)
class ExportArguments:
    run: Path = field(metadata=POSITIONAL)
    """Folder of a pre-training or a finetuning."""
    format: Literal["exorl", "minari", "onnx", "torch"] = "exorl"
    """Data: exorl (one npz file per episode) or minari. Policy: onnx, or torch (torch.export)."""
    out: Path | None = None
    """Folder to write to; by default export/ in the run's folder."""
    task: str | None = None
    """Data: the task whose reward is written; by default the reward of the run's environment."""
    at: int | None = None
    """Policy: use the weights of this step's milestone or checkpoint."""


def run(given: ExportArguments) -> None:
    if given.format == "exorl" or given.format == "minari":
        _export_data(given, given.format)
    else:
        _export_policy(given, given.format)


def _export_data(given: ExportArguments, format: Literal["exorl", "minari"]) -> None:
    from cic.export import export_data

    found = export_data(given.run, given.out, format, task=given.task)
    if not found.physics:
        print("cic: note: without the simulator's state, which only --keep-physics keeps", file=sys.stderr)
    if found.left_out:
        print(f"cic: note: {found.left_out:,} steps of incomplete episodes are left out", file=sys.stderr)
    print(f"{found.folder}: {found.episodes} episodes, {found.steps:,} steps")


def _export_policy(given: ExportArguments, format: Literal["onnx", "torch"]) -> None:
    from cic.export import export_policy

    path, inputs = export_policy(given.run, given.out and given.out / "policy", format, at=given.at)
    print(f"{path}: {' and '.join(inputs)} to action")
