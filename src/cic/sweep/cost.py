"""What a plan will cost: steps are timed on this machine, now, and the scheduler is simulated with those times.

Runs of one shape (method, domain, learner, sizes) share a measurement. It is a short run from scratch with a small
warm-up and without compilation, so long runs, which are compiled, cost somewhat less than is said here.
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
from cic.sweep.jobs import Job
from cic.sweep.simulation import critical_path, simulate
from cic.sweep.table import duration
from cic.training.relabelled_replay import LATEST
from cic.training.settings import FinetuneSettings, LoopConfig, PretrainConfig

WORKERS = (1, 8, 64, 512)
_UPDATES = (8, 200)
"""Timed updates: few, and more where they are quick."""
_QUICK_SECONDS = 1.0
_SAME_SHAPE = {
    "seed",
    "steps",
    "warmup",
    "milestones",
    "log_every",
    "checkpoint_every",
    "replay",
    "wandb",
    "scale",
    "skill",
}


@dataclass(frozen=True)
class Measured:
    """Of one shape of run."""

    plain: float
    """Seconds per step before the updates begin."""
    learning: float
    """Seconds per step with its share of updates."""
    weights: int
    """Bytes of an agent's weights in a milestone."""
    checkpoint: int
    """Bytes of a checkpoint without its replay."""
    replay: float
    """Bytes per step in it."""

    def seconds(self, config: LoopConfig[Any]) -> float:
        idle = min(config.warmup + _ending(config), config.steps)  # steps that bring no update
        return idle * self.plain + (config.steps - idle) * self.learning + _evaluation_steps(config) * self.plain

    def bytes(self, config: LoopConfig[Any], prior: int) -> float:
        """On disk at the end: two checkpoints, and the milestones or what was inherited, so many steps of it."""
        kept = self.replay * min(config.steps, config.replay)
        others = len([step for step in getattr(config, "milestones", (0,)) if step <= config.steps])
        return 2 * (self.checkpoint + kept) + others * self.weights + self.replay * prior


@dataclass(frozen=True)
class Cost:
    """Of a whole plan."""

    jobs: Sequence[Job]
    seconds: dict[str, float]
    """By folder."""
    disk: float

    def text(self) -> str:
        """A few lines and a small table."""
        counts = {kind: sum(job.kind == kind for job in self.jobs) for kind in ("pretrain", "finetune")}
        take: Callable[[Job], float] = lambda job: self.seconds[job.folder]  # noqa: E731
        gpu = sum(take(job) * job.needs.gpus for job in self.jobs) / 3600
        core = sum(take(job) * job.needs.cpus for job in self.jobs) / 3600
        path = critical_path(self.jobs, take)
        lines = [
            f"{len(self.jobs)} runs: {counts['pretrain']} pre-trainings, {counts['finetune']} finetunings",
            f"{_hours(core)} core-hours"
            + (f", {_hours(gpu)} GPU-hours" if gpu else "")
            + f", {self.disk / 1e9:,.2f} GB of disk",
            f"critical path {duration(sum(map(take, path)))}: {' → '.join(job.name for job in path)}",
            "",
            f"{'workers':>8} {'time':>10} {'idle':>6}",
        ]
        for workers in WORKERS:
            found = simulate(self.jobs, take, workers)
            lines.append(f"{workers:>8} {duration(found.seconds):>10} {found.idle:>6.0%}")
        return "\n".join(lines)


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def estimate(
    jobs: Sequence[Job], configs: dict[str, LoopConfig[Any]], say: Callable[[str], None] = lambda text: None
) -> Cost:
    """Measure each shape of run once. `configs` are the complete ones, by folder."""
    shapes: dict[str, Measured] = {}
    seconds, disk = {}, 0.0
    for job in jobs:
        config = configs[job.folder]
        shape = _shape(config)
        if shape not in shapes:
            say(f"timing {job.kind} of {job.method} in {job.domain}")
            shapes[shape] = measure(config)
        seconds[job.folder] = shapes[shape].seconds(config)
        disk += shapes[shape].bytes(config, _prior_steps(config, configs.get(job.source or "")))
    return Cost(jobs, seconds, disk)


def _shape(config: LoopConfig[Any]) -> str:
    """What decides a step's time. Tasks of a domain share it, and finetunings of all methods do."""
    content = {name: value for name, value in to_dict(config).items() if name not in _SAME_SHAPE}
    if isinstance(config, FinetuneSettings):
        content["task"] = envs.split_name(config.task)[0]
    return json.dumps(content, sort_keys=True)


def measure(config: LoopConfig[Any]) -> Measured:
    """A short run in a folder that is thrown away; a longer one where that was over at once."""
    few, many = _UPDATES
    found, took = _timed(config, few)
    return found if took > _QUICK_SECONDS else _timed(config, many)[0]


def _timed(config: LoopConfig[Any], updates: int) -> tuple[Measured, float]:
    batch, copies = config.learning.batch, config.num_envs
    warm = max(64, 4 * copies)
    steps = warm + updates * config.update_every
    quarter = max(copies, min((steps - warm) // 4, warm // 2))  # at least two lines before the updates begin
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
    late = [pair for pair in times if pair[0] > warm][:-1] or times[-2:]  # the last line comes after the evaluation
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
    """Steps at the end in which nothing is learned: a library is made, or it is checked what was learned."""
    if isinstance(config, PretrainConfig):
        return config.library_skills * config.library_starts * config.library_steps
    return config.check_steps if isinstance(config, FinetuneSettings) else 0


def _prior_steps(config: LoopConfig[Any], before: LoopConfig[Any] | None) -> int:
    """Steps of its pre-training that a finetuning copies."""
    if not isinstance(config, FinetuneSettings) or before is None or config.prior_data == 0:
        return 0
    return min(LATEST, before.steps, before.replay)


def _evaluation_steps(config: LoopConfig[Any]) -> float:
    """Steps of a finetuning's evaluations, which are not counted among its own."""
    if not isinstance(config, FinetuneSettings):
        return 0.0
    known = envs.domains().get(envs.split_name(config.task)[0])
    length = known.episode_length if known else 1000
    return float(length * config.eval_episodes * max(1, config.steps // config.eval_every))
