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
    out = given.out or given.run / "export"
    if given.format in ("onnx", "torch"):
        _export_policy(given, out)
    else:
        _export_data(given, out)


def _export_data(given: ExportArguments, out: Path) -> None:
    from cic.export import episodes_of, write_exorl, write_minari
    from cic.runs.folder import Run

    found = episodes_of(Run(given.run))
    task = given.task.rpartition("-")[2] if given.task else None
    folder = write_exorl(found, out, task) if given.format == "exorl" else write_minari(found, out, task)
    if found.episodes[0].physics is None:
        print("cic: note: without the simulator's state, which only --keep-physics keeps", file=sys.stderr)
    if found.left_out:
        print(f"cic: note: {found.left_out:,} steps of incomplete episodes are left out", file=sys.stderr)
    print(f"{folder}: {len(found.episodes)} episodes, {sum(map(len, found.episodes)):,} steps")


def _export_policy(given: ExportArguments, out: Path) -> None:
    from cic.export.policy import export_policy

    path, inputs = export_policy(given.run, out / "policy", "onnx" if given.format == "onnx" else "torch", at=given.at)
    print(f"{path}: {' and '.join(inputs)} to action")
