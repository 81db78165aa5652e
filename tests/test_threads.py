"""Several trainings at once in one process give the same results as one after the other."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cic
from cic.learning.objectives import base
from cic.learning.objectives.rnd import RND
from cic.learning.seeding import seeded


class SlowlyBuilt(RND):
    """Gives other threads time to draw numbers while it is built."""

    def __init__(self, *arguments: Any) -> None:
        time.sleep(0.05)
        super().__init__(*arguments)
        time.sleep(0.05)
        self.extra = nn.Linear(3, 3)


def train(folder: Path, seed: int) -> str:
    settings: dict[str, Any] = {"steps": 120, "warmup": 40, "hidden": 8, "batch": 8, "replay": 200, "log_every": 20}
    run = cic.pretrain("gridworld", "slowly_built", scale="smoke", out=folder, seed=seed, quiet=True, **settings)
    files = [run.path / "metrics.jsonl", *sorted((run.path / "checkpoints").glob("*/agent.safetensors"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def test_concurrent_pretrainings_are_bit_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base._REGISTRY, "slowly_built", SlowlyBuilt)
    alone = [train(tmp_path / f"alone-{seed}", seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda seed: train(tmp_path / f"together-{seed}", seed), range(3)))
    assert together == alone
    assert len(set(alone)) == 3


def test_the_global_generator_is_restored() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded(1):
        torch.rand(7)
    assert torch.equal(torch.rand(2), expected)
