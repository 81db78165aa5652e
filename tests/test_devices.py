"""Agents on a device that is not the CPU: no tensor stays behind, and the numbers are those of the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cic.learning.learners.base import learners_for
from cic.learning.objectives import objectives

LEARNERS = [pytest.param(name, marks=[pytest.mark.slow] * (name != "ddpg")) for name in learners_for(())]


@cache
def errors(learner: str) -> dict[str, str]:
    """By `"objective learner"`, from a process of its own: a torch device cannot be unregistered."""
    program = [sys.executable, str(Path(__file__).with_name("other_device.py")), learner]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("objective", [name for name, _ in objectives()])
def test_every_pair_trains_and_acts_on_another_device(objective: str, learner: str) -> None:
    assert errors(learner)[f"{objective} {learner}"] == ""


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_network_that_is_not_moved_is_found(learner: str) -> None:
    assert "mixes devices" in errors(learner)[f"forgotten {learner}"]
