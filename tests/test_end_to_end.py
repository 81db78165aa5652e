"""Every method in one domain and every domain with one method, by the commands that a user types.

Methods and domains do not know each other (import-linter sees to it), so their product is not needed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cic import cli
from cic.core.types import Spaces
from cic.learning.objectives import Objective, get_objective, objectives

TASKS = {
    "walker": "walker-flip",
    "quadruped": "quadruped-jump",
    "jaco": "jaco-reach_bottom_right",
    "point_mass": "point_mass-reach_top_left",
    "hopper": "hopper-hop",
    "gridworld": "gridworld-reach_top_left",
    "gymnasium:Pendulum-v1": "gymnasium:Pendulum-v1",
}
METHODS = sorted(name for name, _ in objectives() if name != "ddpg")
OFTEN = ("aps", "cic", "diayn", "fb")
"""Methods that search, regress and infer a skill: in `make test`. The contract tests train all."""
WHOLE = [pytest.param(method, "gridworld", marks=[pytest.mark.slow] * (method not in OFTEN)) for method in METHODS] + [
    ("cic", domain) for domain in TASKS if domain != "gridworld"
]
SHORT = ["--steps", "120", "--warmup", "60", "--update-every", "4", "--quiet"]


@pytest.mark.parametrize(("method", "domain"), WHOLE)
def test_pretrain_finetune_evaluate(
    method: str, domain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, task = tmp_path / "before", tmp_path / "after", TASKS[domain]
    start = ["pretrain", "--objective", method, "--domain", domain, "--scale", "smoke", "--out", str(before)]
    assert cli.main([*start, *SHORT]) == 0
    evaluations = ["--eval-every", "120", "--eval-episodes", "1"]
    assert cli.main(["finetune", str(before), "--task", task, "--out", str(after), *evaluations, *SHORT]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", str(after), "--episodes", "1"]) == 0
    assert task in capsys.readouterr().out
    result = json.loads((after / "result.json").read_text())
    kind = get_objective(method)(Spaces(2, 2), 2, get_objective(method).Options()).skills.kind
    if kind != "none":
        trials = json.loads((after / "trials.json").read_text())
        infers = get_objective(method).infer_skill is not Objective.infer_skill
        natural = {"box": "grid", "onehot": "each"}.get(kind, "random")
        # The last one-hot skills of the training may have acted from several starts: a library.
        assert trials["search"] in (["regress"] if infers else [natural, "library"] if kind == "onehot" else [natural])
        assert trials["skill"] == result["skill"]
    assert result["step"] == 120
    low, high = (-2_000, 0) if domain.startswith("gymnasium") else (0, 1_000)
    assert low <= result["return"] <= high
    for folder in (before, after):
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["update"] == 15
        assert all(math.isfinite(value) for value in last.values())


def test_scratch(tmp_path: Path) -> None:
    start = ["finetune", "--scratch", "--task", "walker-flip", "--scale", "smoke", "--out", str(tmp_path / "a")]
    assert cli.main([*start, "--eval-every", "120", "--eval-episodes", "1", *SHORT]) == 0
    assert cli.main(["evaluate", str(tmp_path / "a"), "--episodes", "1"]) == 0
