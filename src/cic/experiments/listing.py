"""`cic reproduce --list`: what there is, and what it costs at each scale on this machine.

A step's time has two parts that are measured apart: stepping the environment, for each domain, and an update, for each
scale and phase. In pre-training it is CIC's, and other methods are taken to cost as much; `--dry-run` times every one
of them. What was measured is kept in the user's cache folder, for this version and machine.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cic import __version__, envs
from cic.experiments.base import SCALES, Experiment, Setup
from cic.experiments.registry import experiments
from cic.runs.storage import write_json
from cic.runs.untrusted_json import number, read_object
from cic.sweep.cost import Measured, measure
from cic.sweep.display import duration
from cic.sweep.plan import Plan
from cic.sweep.resolve import resolve_configs
from cic.training.settings import PretrainConfig, finetune_defaults, pretrain_defaults

_SECONDS = 0.3
_DOMAIN, _TASK = "walker", "walker-stand"


def table() -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    times = Times()
    rows = []
    for experiment in experiments().values():
        costs = [duration(seconds(experiment, scale, times)) for scale in SCALES]
        rows.append([experiment.name, *costs, experiment.question])
    return ["name", *SCALES, "question"], rows


def seconds(experiment: Experiment, scale: str, times: Times) -> float:
    """Of all its runs, one after another."""
    plan = Plan(tuple(run.entry for run in experiment.runs(Setup(scale))))
    total = 0.0
    for config in resolve_configs(plan).values():
        name = getattr(config, "domain", None) or envs.split_name(getattr(config, "task", ""))[0]
        plain = times.step(str(name))
        phase = "pretrain" if isinstance(config, PretrainConfig) else "finetune"
        found = Measured(plain, plain + times.update(scale, phase) / config.update_every, 0, 0, 0.0)
        total += found.seconds(config)
    return total


class Times:
    """Seconds per environment step and per update, measured once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or _cache()
        kept = read_object(self.path)
        self.known = {} if isinstance(kept, str) else {key: number(value) for key, value in kept.items()}

    def step(self, domain: str) -> float:
        return self._get(f"step {domain}", lambda: _step_time(domain))

    def update(self, scale: str, phase: str) -> float:
        def timed() -> float:
            pretraining = phase == "pretrain"
            config = pretrain_defaults(_DOMAIN, "cic", scale) if pretraining else finetune_defaults(_TASK, scale)
            found = measure(config)
            return max(0.0, found.learning - found.plain) * int(config.update_every)

        return self._get(f"update {scale} {phase}", timed)

    def _get(self, key: str, timed: Callable[[], float]) -> float:
        if key not in self.known:
            print(f"cic: timing {key} on this machine", file=sys.stderr, flush=True)
            self.known[key] = timed()
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, self.known)
            except OSError:  # a home that cannot be written: measured again next time
                pass
        return self.known[key]


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "cic" / f"times-{__version__}-{platform.node()}.json"


def _step_time(domain: str) -> float:
    env = envs.make(domain, num_envs=1, seed=0)
    try:
        env.reset(seed=0)
        action = np.zeros((1, env.single_action_space.shape[0]), np.float32)  # type: ignore[index]
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < _SECONDS:
            _, _, terminated, truncated, _ = env.step(action)
            count += 1
            if (done := terminated | truncated).any():
                env.reset(options={"reset_mask": done})
        return (time.perf_counter() - begin) / count
    finally:
        env.close()
