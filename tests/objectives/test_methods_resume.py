"""A run of each method beyond URLB's that is stopped and resumed ends with the bits of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import make_loop, stopping_at
from safetensors.torch import load_file

import cic
from cic.core.errors import Interrupted
from cic.runs.folder import Run
from cic.training.settings import override, pretrain_defaults

METHODS = ["becl", "csf", "dads", "fb", "hilp", "lsd", "metra", "ssn4hrl", "steer", "valor", "vic", "visr"]
SMALL: dict[str, Any] = {"steps": 130, "warmup": 60, "hidden": 8, "batch": 8, "checkpoint_every": 1_000}


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_ends_with_the_same_bits(method: str, tmp_path: Path) -> None:
    changes = SMALL | ({"certainty": 0.05} if method == "valor" else {})  # so that its curriculum moves
    config = override(pretrain_defaults("gridworld", method, "smoke"), changes)
    whole = cic.pretrain(config, out=tmp_path / "whole", quiet=True)
    stopped = make_loop(tmp_path / "stopped", "pretrain", config, loop_class=stopping_at(95))
    with pytest.raises(Interrupted, match="step 95"):
        stopped.train()
    again = cic.resume(stopped.run.path, quiet=True)
    for part in ("agent", "optimisers"):
        one, other = (load_file(Run(run.path).checkpoints()[-1] / f"{part}.safetensors") for run in (whole, again))
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert torch.equal(value, other[name]), name
    assert (whole.path / "metrics.jsonl").read_bytes() == (again.path / "metrics.jsonl").read_bytes()
    if method == "valor":
        assert int(cic.load(whole.path).objective.active) > 2
