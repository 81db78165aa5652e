"""Every method in every domain of the benchmark, by the commands that a user types."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cic import cli
from cic.learning.objectives import objectives

TASKS = {"walker": "walker-flip", "quadruped": "quadruped-jump", "jaco": "jaco-reach_bottom_right"}
METHODS = sorted(name for name, _ in objectives() if name != "ddpg")


@pytest.mark.parametrize("domain", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_pretrain_finetune_evaluate(
    method: str, domain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    start = ["pretrain", "--objective", method, "--domain", domain, "--scale", "smoke", "--out", str(before)]
    assert cli.main([*start, "--quiet"]) == 0
    assert cli.main(["finetune", str(before), "--task", TASKS[domain], "--out", str(after), "--quiet"]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", str(after), "--episodes", "1"]) == 0
    assert TASKS[domain] in capsys.readouterr().out
    result = json.loads((after / "result.json").read_text())
    assert result["step"] == 300
    assert 0 <= result["return"] <= 1_000
    for folder, updates in ((before, 150), (after, 100)):
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["update"] == updates
        assert all(math.isfinite(value) for value in last.values())


def test_scratch(tmp_path: Path) -> None:
    start = ["finetune", "--scratch", "--task", "walker-flip", "--scale", "smoke", "--out", str(tmp_path / "a")]
    assert cli.main([*start, "--quiet"]) == 0
    assert cli.main(["evaluate", str(tmp_path / "a"), "--episodes", "1"]) == 0
