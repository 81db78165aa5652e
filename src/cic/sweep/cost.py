"""The cost of a plan, from step times measured now on this machine.

Runs that differ only in seed, length or task of a domain share a measurement: a short run from scratch with a small
warm-up and without compilation. Long runs are compiled and take somewhat less time than the estimate.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic import envs
from cic.api import finetune, pretrain
from cic.core.config import to_dict
from cic.sweep.display import duration
from cic.sweep.specs import RunSpec
from cic.training.relabelled_replay import LATEST
from cic.training.settings import FinetuneSettings, LoopConfig, PretrainConfig

_UPDATES = (8, 200)
"""Timed updates: few, and more if they are fast."""
_QUICK_SECONDS = 1.0
_IRRELEVANT = {"seed", "steps", "warmup", "milestones", "log_every", "checkpoint_every", "replay"}
_IRRELEVANT |= {"wandb", "scale", "skill"}
"""Settings that do not change the time of a step."""


@dataclass(frozen=True)
class Measured:
    """Times and sizes of a short run."""

    plain: float
    """Seconds per step without updates."""
    learning: float
    """Seconds per step with updates."""
    weights: int
    """Bytes of the weights in a milestone."""
    checkpoint: int
    """Bytes of a checkpoint without the replay buffer."""
    replay: float
    """Bytes per step in the replay buffer."""

    def seconds(self, config: LoopConfig[Any]) -> float:
        idle = min(config.warmup + _ending(config), config.steps)  # steps without updates
        return idle * self.plain + (config.steps - idle) * self.learning + _evaluation_steps(config) * self.plain

    def bytes(self, config: LoopConfig[Any], prior: int) -> float:
        """Return the disk space at the end: two checkpoints, the milestones or the inherited weights, `prior` steps."""
        kept = self.replay * min(config.steps, config.replay)
        others = len([step for step in getattr(config, "milestones", (0,)) if step <= config.steps])
        return 2 * (self.checkpoint + kept) + others * self.weights + self.replay * prior


@dataclass(frozen=True)
class Cost:
    """The cost of a plan."""

    specs: Sequence[RunSpec]
    seconds: dict[str, float]
    """By folder."""
    disk: float
    """Bytes."""

    def text(self) -> str:
        counts = {kind: sum(spec.kind == kind for spec in self.specs) for kind in ("pretrain", "finetune")}
        gpu = sum(self.seconds[spec.folder] * spec.needs.gpus for spec in self.specs) / 3600
        core = sum(self.seconds[spec.folder] * spec.needs.cpus for spec in self.specs) / 3600
        path = self.critical_path()
        longest = duration(sum(self.seconds[spec.folder] for spec in path))
        return "\n".join(
            [
                f"{len(self.specs)} runs: {counts['pretrain']} pre-trainings, {counts['finetune']} finetunings",
                f"{_hours(core)} core-hours"
                + (f", {_hours(gpu)} GPU-hours" if gpu else "")
                + f", {self.disk / 1e9:,.2f} GB of disk",
                f"critical path {longest}: {' → '.join(spec.name for spec in path)}",
            ]
        )

    def critical_path(self) -> list[RunSpec]:
        """Return the chain of runs that takes the longest; with any number of workers, the sweep takes that long."""
        longest: dict[str, tuple[float, list[RunSpec]]] = {}
        for spec in self.specs:  # dependencies come first
            seconds, before = max((longest[folder] for folder in spec.after), key=lambda one: one[0], default=(0.0, []))
            longest[spec.folder] = seconds + self.seconds[spec.folder], [*before, spec]
        return max(longest.values(), key=lambda one: one[0], default=(0.0, []))[1]


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def estimate(
    specs: Sequence[RunSpec], configs: dict[str, LoopConfig[Any]], say: Callable[[str], None] = lambda text: None
) -> Cost:
    """Estimate the cost of runs.

    Args:
        specs: The runs.
        configs: Their complete configs, by name.
        say: Receives a line per measurement.
    """
    names = {spec.folder: spec.name for spec in specs}
    measured: dict[str, Measured] = {}
    seconds, disk = {}, 0.0
    for spec in specs:
        config = configs[spec.name]
        key = _measurement_key(config)
        if key not in measured:
            say(f"timing {spec.kind} of {spec.method} in {spec.domain}")
            measured[key] = measure(config)
        seconds[spec.folder] = measured[key].seconds(config)
        source = configs.get(names.get(spec.source or "", ""))
        disk += measured[key].bytes(config, _prior_steps(config, source))
    return Cost(specs, seconds, disk)


def _measurement_key(config: LoopConfig[Any]) -> str:
    """Return the settings that decide the time of a step. Tasks of a domain share it."""
    content = {name: value for name, value in to_dict(config).items() if name not in _IRRELEVANT}
    if isinstance(config, FinetuneSettings):
        content["task"] = envs.split_name(config.task)[0]
    return json.dumps(content, sort_keys=True)


def measure(config: LoopConfig[Any]) -> Measured:
    """Time a short run in a temporary folder, and a longer one if that took less than a second."""
    few, many = _UPDATES
    found, took = _timed(config, few)
    return found if took > _QUICK_SECONDS else _timed(config, many)[0]


def _timed(config: LoopConfig[Any], updates: int) -> tuple[Measured, float]:
    batch, copies = config.learning.batch, config.num_envs
    warm = max(64, 4 * copies)
    steps = warm + updates * config.update_every
    quarter = max(copies, min((steps - warm) // 4, warm // 2))  # at least two log lines before the updates
    short: dict[str, Any] = {"steps": steps, "warmup": warm, "log_every": quarter, "compile": "off", "wandb": False}
    short |= {"checkpoint_every": steps, "replay": max(4 * steps, 2 * batch)}
    with tempfile.TemporaryDirectory(prefix="cic-") as scratch:
        path = Path(scratch, "run")
        if not isinstance(config, FinetuneSettings):
            assert isinstance(config, PretrainConfig)
            pretrain(dataclasses.replace(config, milestones=(), library=0, **short), out=path, quiet=True)
        else:
            search = dataclasses.replace(config.selection, search="fixed")
            more: dict[str, Any] = {"eval_every": steps, "eval_episodes": 1, "selection": search, "skill": None}
            finetune(None, dataclasses.replace(config, **short, **more), out=path, quiet=True)
        lines = [json.loads(line) for line in (path / "timing.jsonl").read_text().splitlines()]
        (last,) = (path / "checkpoints").iterdir()
        sizes = {file.name: file.stat().st_size for file in last.iterdir()}
    times = [(line["step"], line["time/unix"]) for line in lines]
    early = [pair for pair in times if pair[0] <= warm]
    late = [pair for pair in times if pair[0] > warm][:-1] or times[-2:]  # the last line follows the evaluation
    replay = sizes.pop("replay.safetensors")
    found = Measured(
        plain=_slope(early),
        learning=_slope(late),
        weights=sizes["agent.safetensors"],
        checkpoint=sum(sizes.values()),
        replay=replay / steps,
    )
    return found, times[-1][1] - times[0][1]


def _slope(points: list[tuple[int, float]]) -> float:
    (first, begin), (last, end) = points[0], points[-1]
    return (end - begin) / (last - first) if last > first else 0.0


def _ending(config: LoopConfig[Any]) -> int:
    """Return the number of steps at the end without updates: library collection, or the final comparison."""
    if isinstance(config, PretrainConfig):
        return config.library_skills * config.library_starts * config.library_steps
    return config.check_steps if isinstance(config, FinetuneSettings) else 0


def _prior_steps(config: LoopConfig[Any], before: LoopConfig[Any] | None) -> int:
    """Return the number of pre-training steps that a finetuning copies."""
    if not isinstance(config, FinetuneSettings) or before is None or config.prior_data == 0:
        return 0
    return min(LATEST, before.steps, before.replay)


def _evaluation_steps(config: LoopConfig[Any]) -> float:
    """Return the number of evaluation steps, which are not part of the budget."""
    if not isinstance(config, FinetuneSettings):
        return 0.0
    known = envs.domains().get(envs.split_name(config.task)[0])
    length = known.episode_length if known else 1000
    return float(length * config.eval_episodes * max(1, config.steps // config.eval_every))
