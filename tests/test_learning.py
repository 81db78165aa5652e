"""Does it learn? Training on point_mass with the demo's settings, fewer steps, three seeds; about two minutes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import cic

SEEDS = (0, 1, 2)
TASKS = ("point_mass-reach_top_left", "point_mass-reach_bottom_right")

_spec = importlib.util.spec_from_file_location("demo", Path(__file__).parent.parent / "examples" / "demo.py")
assert _spec
assert _spec.loader
demo = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(demo)

PRETRAIN = {**demo.PRETRAIN, "steps": 10_000}

pytestmark = [pytest.mark.learning, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("learning")
    return [cic.pretrain("point_mass", out=root / str(s), seed=s, quiet=True, **PRETRAIN).path for s in SEEDS]


def test_pretraining_covers_twice_what_random_actions_cover(pretrained: list[Path], tmp_path: Path) -> None:
    random_settings = {**PRETRAIN, "warmup": PRETRAIN["steps"]}  # the warm-up acts uniformly and never updates
    random = [cic.pretrain("point_mass", out=tmp_path / str(s), seed=s, quiet=True, **random_settings) for s in SEEDS]
    explored = [json.loads((path / "result.json").read_text())["coverage/cells"] for path in pretrained]
    by_chance = [finished.result["coverage/cells"] for finished in random]
    assert np.mean(explored) >= 2 * np.mean(by_chance), (explored, by_chance)


def test_skills_are_told_apart(pretrained: list[Path]) -> None:
    for path in pretrained:
        last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["skill/accuracy"] >= 10 * last["skill/chance"]
        assert last["embedding/effective_rank"] > 2  # no collapse


def test_finetuning_beats_scratch_with_the_same_small_budget(pretrained: list[Path], tmp_path: Path) -> None:
    tuned, scratch = [], []
    for seed, path in zip(SEEDS, pretrained, strict=True):
        for task in TASKS:
            out, shared = tmp_path / f"{seed}-{task}", {"seed": seed, "quiet": True, **demo.BUDGET}
            skilled = cic.finetune(path, task, out=out / "skilled", **shared, **demo.SEARCH)
            plain = cic.finetune(None, task, out=out / "scratch", **shared)
            tuned.append(skilled.result["return"])
            scratch.append(plain.result["return"])
    assert np.mean(tuned) > 1.2 * np.mean(scratch), (tuned, scratch)
