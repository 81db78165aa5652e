"""Agents on a device that is not the CPU: no tensor stays behind, and the numbers are those of the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cic.learning.learners.base import learners_for
from cic.learning.objectives import objectives


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """By `"objective learner"`, from a process of its own: a torch device cannot be unregistered."""
    program = Path(__file__).with_name("other_device.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("learner", learners_for(()))
@pytest.mark.parametrize("objective", [name for name, _ in objectives()])
def test_every_pair_trains_and_acts_on_another_device(objective: str, learner: str, errors: dict[str, str]) -> None:
    assert errors[f"{objective} {learner}"] == ""


@pytest.mark.parametrize("learner", learners_for(()))
def test_a_network_that_is_not_moved_is_found(learner: str, errors: dict[str, str]) -> None:
    assert "mixes devices" in errors[f"forgotten {learner}"]
