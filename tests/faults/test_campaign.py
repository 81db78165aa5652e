"""The fault campaign: a fixed part of it, and that it detects failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .cases import Case, Scenario, sentence
from .damage import harm
from .folders import forge_state, newest, pretrain, stopped
from .injections import KINDS
from .mutations import mutate
from .processes import FINE, MISTAKE, TRACEBACK, End

ROOT = Path(__file__).parents[2]


def tool(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`python -m tests.faults`, in a process that forks as it likes; `before` is what to do first."""
    code = f"import runpy, sys; sys.argv[1:] = {list(arguments)!r}; {before}\n"
    code += "runpy.run_module('tests.faults', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_faults_of_every_kind_are_survived() -> None:
    done = tool("--count", str(4 * len(KINDS)), "--seed", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| all | {4 * len(KINDS)} | {4 * len(KINDS)} | 0 |" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_forged_folders_are_survived() -> None:
    done = tool("--count", "60", "--seed", "20000", "--only", "forged with")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| forged with right checksums | 60 | 60 | 0 |" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_commands_survive_folders_of_others() -> None:
    done = tool("--count", "90", "--seed", "20000", "--only", "command on")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 90 | 90 | 0 |" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_compiled_run_survives() -> None:
    done = tool("--count", "2", "--seed", "20000", "--only", "compiled")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_campaign_detects_missing_checksums() -> None:
    """Without checksums, some damaged runs end with other bytes."""
    blind = (
        "from cic.runs import jsonl_log, storage; storage.checksum = lambda *_: ''; storage._read_sum = lambda *_: ''"
    )
    done = tool("--count", "90", "--seed", "0", before=blind)
    assert done.returncode == 1
    assert "damaged newest checkpoint: " in done.stdout


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("campaign") / "run")


def test_changed_byte_is_a_difference(reference: Path, tmp_path: Path) -> None:
    case = Case(Scenario("one", reference, lambda path: None, 1), tmp_path, np.random.default_rng(0))
    stopped(reference, case.path)
    assert "other files" in case.difference()
    (case.path / "result.json").write_bytes((reference / "result.json").read_bytes())
    forge_state(newest(case.path), lambda state: state.update(updates=0))
    assert case.difference()


def test_traceback_and_control_characters_are_failures() -> None:
    assert sentence(End(FINE, "", 0.0), FINE) == ""
    assert sentence(End(MISTAKE, "cic: no", 0.0), FINE, MISTAKE) == ""
    assert sentence(End(TRACEBACK, "Traceback", 0.0), FINE, MISTAKE)
    assert sentence(End(MISTAKE, "cic: \x1b[2J", 0.0), MISTAKE)
    assert sentence(End(MISTAKE, "Traceback (most recent call last)", 0.0), MISTAKE)


@given(seed=st.integers(0, 10**6))
def test_mutation_is_json_and_repeatable(seed: int) -> None:
    def mutated() -> str:
        document: dict[str, Any] = {"config": {"a": 1, "b": [1.5, {"c": None}], "d": {}}, "format": 2}
        mutate(document, np.random.default_rng(seed))
        return json.dumps(document)

    assert mutated() == mutated()
    assert isinstance(json.loads(mutated()), dict)


@given(seed=st.integers(0, 10**6))
def test_harm_changes_the_file(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("harm") / "file"
    path.write_bytes(b"some content")
    harm(path, np.random.default_rng(seed))
    assert not path.exists() or path.read_bytes() != b"some content"
