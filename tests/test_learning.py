"""Does it learn? The demo with fewer steps of pre-training: one seed in seconds, and all of it on three seeds when slow
tests run (two and a half minutes on two cores)."""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic
from cic.api import Finished

SEEDS = (0, 1, 2)

_spec = importlib.util.spec_from_file_location("demo", Path(__file__).parent.parent / "examples" / "demo.py")
assert _spec
assert _spec.loader
demo = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(demo)

LEARNING = 10_000  # steps
PRETRAIN = {**demo.PRETRAIN, "steps": LEARNING + math.prod(demo.LIBRARY.values())}
SHORT = {**demo.PRETRAIN, "library": 0, "seed": 1, "steps": 4_000, "log_every": 2_000, "quiet": True}

pytestmark = [pytest.mark.learning, pytest.mark.timeout(900)]


def test_a_short_pretraining_already_explores_and_distinguishes_its_skills(tmp_path: Path) -> None:
    """Seeds 0, 1 and 2 have 43, 110 and 104 cells, by chance 22, 20 and 19; this is one that explores early."""
    learned = cic.pretrain("point_mass", out=tmp_path / "learned", **SHORT)
    by_chance = cic.pretrain("point_mass", out=tmp_path / "chance", **{**SHORT, "warmup": SHORT["steps"]})
    assert learned.result["coverage/cells"] >= 2 * by_chance.result["coverage/cells"]
    last = json.loads((learned.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["skill/accuracy"] >= 10 * last["skill/chance"]
    assert last["embedding/effective_rank"] > 1.5


# ---- three seeds -----------------------------------------------------------------------------------------------


Job = tuple[Callable[..., Finished], tuple[Any, ...], dict[str, Any]]


def finish(jobs: list[Job]) -> list[Finished]:
    """Runs side by side, one per core; they do not notice."""
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, len(jobs))) as pool:
        pending = [pool.apply_async(verb, args, {"quiet": True, **settings}) for verb, args, settings in jobs]
        return [job.get() for job in pending]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("learning")
    jobs: list[Job] = [(cic.pretrain, ("point_mass",), {"out": root / f"{s}", "seed": s, **PRETRAIN}) for s in SEEDS]
    return [finished.path for finished in finish(jobs)]


@pytest.mark.slow
def test_pretraining_covers_twice_what_random_actions_cover(tmp_path: Path) -> None:
    learning = {**PRETRAIN, "library": 0, "steps": LEARNING}
    warmups = {"learned": learning["warmup"], "chance": LEARNING}  # the warm-up acts uniformly and never updates
    jobs: list[Job] = [
        (cic.pretrain, ("point_mass",), {**learning, "out": tmp_path / f"{name}-{s}", "seed": s, "warmup": warmup})
        for name, warmup in warmups.items()
        for s in SEEDS
    ]
    cells = np.array([finished.result["coverage/cells"] for finished in finish(jobs)]).reshape(2, -1)
    explored, by_chance = cells.mean(axis=1)
    assert explored >= 2 * by_chance, cells.tolist()


@pytest.mark.slow
def test_skills_are_distinguished(pretrained: list[Path]) -> None:
    for path in pretrained:
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if "skill/accuracy" in line][-1]  # the library's steps have no updates
        assert last["skill/accuracy"] >= 10 * last["skill/chance"]
        assert last["embedding/effective_rank"] > 2  # no collapse


@pytest.mark.slow
def test_finetuning_beats_scratch_with_the_same_small_budget(pretrained: list[Path], tmp_path: Path) -> None:
    jobs: list[Job] = []
    for seed, path in zip(SEEDS, pretrained, strict=True):
        for corner in demo.CORNERS:
            task, shared = f"point_mass-reach_{corner}", {"seed": seed, **demo.BUDGET}
            jobs.append(
                (cic.finetune, (path, task), {"out": tmp_path / f"{seed}-{corner}-cic", **shared, **demo.SEARCH})
            )
            jobs.append((cic.finetune, (None, task), {"out": tmp_path / f"{seed}-{corner}-scratch", **shared}))
    returns = np.array([finished.result["return"] for finished in finish(jobs)]).reshape(-1, 2)
    tuned, scratch = returns.mean(axis=0)
    assert tuned > 1.2 * scratch, returns.round().tolist()
