"""`cic sweep`, and the small sweeps behind `cic pretrain --seeds` and `cic finetune RUN… --task DOMAIN`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.commandline.arguments import arguments
from cic.sweep.command import SweepOptions


@dataclass(frozen=True)
class SweepArgs:
    options: SweepOptions
    file: Path | None = None
    """A plan in JSON; or make one with --objectives and --domains."""


def sweep(args: list[str]) -> int:
    given = arguments(SweepArgs, args, "sweep", positional=["file"])
    if given is None:
        return 0
    from cic.sweep.command import sweep

    return sweep(given.file, given.options)


def pretrain_seeds(config: Any, seeds: str, out: Path | None, quiet: bool) -> int:
    from cic.sweep.command import run_small
    from cic.sweep.grid import of_config, parse_seeds

    return run_small(of_config(config, parse_seeds(seeds)), out, quiet)


def is_sweep(runs: Sequence[Path], task: str, seeds: str | None) -> bool:
    """Several pre-trainings, several seeds, or a domain that stands for all its tasks."""
    from cic import envs

    domain, name = envs.split_name(task)
    return bool(runs) and (len(runs) > 1 or seeds is not None or (name is None and domain in envs.domains()))


def finetune_many(
    runs: Sequence[Path], settings: dict[str, Any], seeds: str | None, at: int | None, out: Path | None, quiet: bool
) -> int:
    from cic.sweep.command import finetunings, run_small
    from cic.sweep.grid import parse_seeds

    task, seed = settings.pop("task"), settings.pop("seed", None)
    chosen = parse_seeds(seeds) if seeds else None if seed is None else (seed,)
    return run_small(finetunings(runs, task, chosen, settings, at), out, quiet)
