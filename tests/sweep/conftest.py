"""Fixtures of the sweep tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cic.core import imports
from cic.envs import registry
from cic.learning.objectives import base

OWN_CODE = """
import os, time
import gymnasium, torch
import cic

@cic.register("constant")
class Constant(cic.Objective):
    "A constant reward."
    title = "Constant"
    def reward(self, batch):
        return torch.ones_like(batch.reward)

@cic.register("fails")
class Fails(Constant):
    title = "Fails"
    def reward(self, batch):
        if len(batch.reward) == 24:  # in the training, not in the check before it
            print("line before the error")
            raise RuntimeError("this one always fails")
        return super().reward(batch)

@cic.register("crashes")
class Crashes(Constant):
    title = "Crashes"
    def reward(self, batch):
        if len(batch.reward) == 24:
            os._exit(9)
        return super().reward(batch)

@cic.register("notes")
class Notes(Constant):
    title = "Notes"
    def reward(self, batch):
        with open("NOTES" + str(os.getpid()), "a") as file:
            print(os.environ.get("CUDA_VISIBLE_DEVICES"), time.time(), file=file)
        time.sleep(0.05)
        return super().reward(batch)

cic.register_env("mine", lambda: gymnasium.make("Pendulum-v1"))
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with methods and an environment of the user. What it registers is removed after the test."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.setattr(registry, "_OWN", {})
    monkeypatch.setattr(imports, "_IMPORTED", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "code" / "own_code.py"
    path.parent.mkdir()
    path.write_text(OWN_CODE.replace("NOTES", str(path.parent / "notes-")))
    yield path
    sys.modules.pop("own_code", None)
