"""The cost of a plan, extrapolated from the speed of short runs on this machine.

One run of each method and domain is timed, without compilation. Long runs are compiled and take somewhat less time.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic.api import finetune, pretrain
from cic.sweep.specs import RunSpec
from cic.training.settings import FinetuneSettings, LoopConfig, PretrainConfig

_UPDATES = 24


@dataclass(frozen=True)
class Cost:
    """The cost of a plan."""

    specs: Sequence[RunSpec]
    seconds: dict[str, float]
    """By folder."""

    def text(self) -> str:
        counts = {kind: sum(spec.kind == kind for spec in self.specs) for kind in ("pretrain", "finetune")}
        core = sum(self.seconds[spec.folder] * spec.needs.cpus for spec in self.specs) / 3600
        gpu = sum(self.seconds[spec.folder] * spec.needs.gpus for spec in self.specs) / 3600
        hours = f"{_hours(core)} core-hours" + (f", {_hours(gpu)} GPU-hours" if gpu else "")
        runs = f"{len(self.specs)} runs: {counts['pretrain']} pre-trainings, {counts['finetune']} finetunings"
        return f"{runs}\nabout {hours}"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def estimate(specs: Sequence[RunSpec], configs: dict[str, LoopConfig[Any]]) -> Cost:
    """Estimate the cost of runs from the speed of one run of each method and domain.

    Args:
        specs: The runs.
        configs: Their complete configs, by name.
    """
    measured: dict[tuple[str, str], float] = {}
    seconds = {}
    for spec in specs:
        key = spec.method, spec.domain
        if key not in measured:
            measured[key] = seconds_per_step(configs[spec.name])
        seconds[spec.folder] = measured[key] * spec.steps
    return Cost(specs, seconds)


def seconds_per_step(config: LoopConfig[Any]) -> float:
    """Time the training steps of a short run in a temporary folder."""
    warm = max(64, 4 * config.num_envs)
    steps = warm + _UPDATES * min(config.update_every, config.steps)
    short: dict[str, Any] = {"steps": steps, "warmup": warm, "compile": "off", "wandb": False, "replay": 2 * steps}
    short |= {"log_every": max(config.num_envs, (steps - warm) // 4), "checkpoint_every": steps}
    with tempfile.TemporaryDirectory(prefix="cic-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a run learns nothing
        path = Path(scratch, "run")
        if isinstance(config, FinetuneSettings):
            search = dataclasses.replace(config.selection, search="fixed")
            short |= {"eval_every": steps, "eval_episodes": 1, "selection": search, "skill": None}
            finetune(None, dataclasses.replace(config, **short), out=path, quiet=True)
        else:
            assert isinstance(config, PretrainConfig)
            pretrain(dataclasses.replace(config, milestones=(), library=0, **short), out=path, quiet=True)
        lines = [json.loads(line) for line in (path / "timing.jsonl").read_text().splitlines()]
    times = [(line["step"], line["time/unix"]) for line in lines if line["step"] > warm]
    (first, begin), (last, end) = times[0], times[-2]  # the last line follows the evaluation
    return float((end - begin) / (last - first))
