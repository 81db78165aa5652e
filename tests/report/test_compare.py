"""`cic compare`."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from make_runs import finetune, pretrain
from rich.console import Console

from cic.core.errors import UserError
from cic.report import CompareOptions, compare
from tests.helpers import steady

FAST = CompareOptions(reps=300)


def shown(a: Path, b: Path, options: CompareOptions = FAST) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(compare([a], [b], options))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(name))
    return re.split(r" {2,}", line.strip())


def make(folder: Path, method: str, scores: list[float], task: str = "walker-run") -> None:
    for seed, score in enumerate(scores):
        finetune(folder, task, method, seed, score)


def test_difference_and_probability(tmp_path: Path) -> None:
    ours, theirs = [400.0, 420.0, 440.0, 460.0], [300.0, 430.0]
    make(tmp_path / "a", "cic", ours)
    make(tmp_path / "b", "aps", theirs)
    text = shown(tmp_path / "a", tmp_path / "b")
    cells = row(text, "walker-run")
    assert cells[1] == "430 ± 13 (4)"
    assert cells[2] == "365 ± 65 (2)"
    assert cells[3].startswith("+65 [")
    low, high = (float(part.replace("−", "-")) for part in cells[3].split("[")[1].rstrip("]").split(", "))
    assert low < 65 < high
    wins = np.mean([[x > y for y in theirs] for x in ours])
    assert cells[4].startswith(f"{wins:.2f} [")
    assert row(text, "Mean   ")[3].startswith(f"+{65 / 796:.2f} [")
    assert row(text, "Optimality gap")[3].startswith(f"−{65 / 796:.2f} [")


def test_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [410.0, 420.0])
    make(tmp_path / "b", "aps", [300.0, 430.0])
    console = Console(file=io.StringIO(), width=80)
    console.print(compare([tmp_path / "a"], [tmp_path / "b"], FAST))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert sum(line.startswith("IQM") for line in lines) == 1
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert all(line.count("[") == line.count("]") for line in lines)  # no interval is broken


METHOD = st.text(st.sampled_from("abcXYZ_-1"), min_size=1, max_size=30)


@settings(steady, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(("Disagreement_x", "Disagreement_y"), [1.0, 2.0])
@given(st.tuples(METHOD, METHOD), st.lists(st.floats(-900, 900), min_size=2, max_size=3))
def test_headers_stay_apart_at_80_columns(tmp_path: Path, methods: tuple[str, str], scores: list[float]) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    for side, method in zip("ab", methods, strict=True):
        make(folder / side, method, scores, "quadruped-jump")
    console = Console(file=io.StringIO(), width=80)
    console.print(compare([folder / "a"], [folder / "b"], CompareOptions(reps=10)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    headers = row(text, "Task")
    assert len(headers) == 5
    assert headers[3] == "difference, 95%"
    assert "…" not in text


def test_a_single_run_has_no_interval(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [410.0, 420.0])
    make(tmp_path / "b", "aps", [300.0])
    text = shown(tmp_path / "a", tmp_path / "b")
    assert "[" not in text
    assert "Nothing can be concluded" not in text


def test_single_runs_on_both_sides_conclude_nothing(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [410.0])
    make(tmp_path / "b", "aps", [300.0])
    assert "Nothing can be concluded from one run per side" in " ".join(shown(tmp_path / "a", tmp_path / "b").split())


def test_tasks_of_one_side_are_left_out_and_reported(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [1.0, 2.0])
    make(tmp_path / "a", "cic", [1.0, 2.0], "walker-flip")
    make(tmp_path / "b", "aps", [1.0, 2.0])
    text = shown(tmp_path / "a", tmp_path / "b")
    assert "only one group has it: walker-flip" in " ".join(text.split())


def test_a_task_without_expert_is_compared_raw(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [1.0, 2.0], "mine-hop")
    make(tmp_path / "b", "aps", [3.0, 4.0], "mine-hop")
    text = shown(tmp_path / "a", tmp_path / "b")
    assert row(text, "mine-hop")[3].startswith("−2.00 [")
    assert "IQM" not in text


def test_the_same_method_twice_is_distinguished(tmp_path: Path) -> None:
    for side, reward in (("a", "entropy"), ("b", "similarity")):
        finetune(tmp_path / side, seed=0, options={"reward": reward})
    text = shown(tmp_path / "a", tmp_path / "b")
    assert re.search(r"A: CIC *\nB: CIC *\n", text)
    assert row(text, "Task")[1:3] == ["A", "B"]


def test_other_budgets_are_reported(tmp_path: Path) -> None:
    finetune(tmp_path / "a", scale="paper")
    finetune(tmp_path / "b", method="aps")
    assert "differ in scale" in shown(tmp_path / "a", tmp_path / "b")


def test_a_group_of_several_methods_is_refused_unless_asked(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [1.0])
    make(tmp_path / "a", "icm", [1.0])
    make(tmp_path / "b", "aps", [1.0])
    with pytest.raises(UserError, match=r"ICM.*`mix`"):
        shown(tmp_path / "a", tmp_path / "b")
    assert "because of `mix`" in shown(tmp_path / "a", tmp_path / "b", CompareOptions(reps=50, mix=True))


def test_a_group_of_several_budgets_is_refused(tmp_path: Path) -> None:
    finetune(tmp_path / "a", seed=0)
    finetune(tmp_path / "a", seed=1, steps=50_000)
    make(tmp_path / "b", "aps", [1.0])
    with pytest.raises(UserError, match="50k steps"):
        shown(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("state", ["running", "failed"])
def test_nothing_finished_is_reported(tmp_path: Path, state: str) -> None:
    finetune(tmp_path / "a", state=state)
    pretrain(tmp_path / "a")
    make(tmp_path / "b", "aps", [1.0])
    with pytest.raises(UserError, match="no finished finetuning run"):
        shown(tmp_path / "a", tmp_path / "b")


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [1.0])
    with pytest.raises(UserError, match="both groups"):
        shown(tmp_path / "a", tmp_path / "a")


def test_no_common_task_is_reported(tmp_path: Path) -> None:
    make(tmp_path / "a", "cic", [1.0])
    make(tmp_path / "b", "aps", [1.0], "walker-flip")
    with pytest.raises(UserError, match="no common task"):
        shown(tmp_path / "a", tmp_path / "b")
