"""Whatever is wrong with some runs, the others still get their report, and the reader is told."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pages
import pytest
from make_runs import finetune, pretrain, write_json

from cic.core.errors import UserError
from cic.report import ReportOptions, ReportResult, report
from cic.report.figures import curve_plots

FAST = ReportOptions(reps=20, figures=())


def make(folder: Path, options: ReportOptions = FAST) -> tuple[ReportResult, dict[str, dict[str, str]], str]:
    """The report, its aggregate table by method, and all notices as the page shows them."""
    result = report([folder], folder.parent / "out", options)
    root = pages.parse(result.page)
    assert pages.problems(root) == []
    shown = " ".join("".join(node.itertext()) for node in root.findall(".//section[@class='notices']//li"))
    for notice in result.notices:
        assert notice.rstrip(".") in shown
        assert "could not be created" not in notice
    rows = pages.table(root, "aggregate") if root.find(".//table[@id='table-aggregate']") is not None else []
    return result, {row["Method"]: row for row in rows}, shown


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two good runs of two methods, beside which bad ones are put."""
    for method in ("cic", "aps"):
        for seed in range(2):
            finetune(tmp_path / "runs", method=method, seed=seed, score=398.0)
    return tmp_path / "runs"


def test_an_empty_folder_alone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_among_others(runs: Path) -> None:
    empty = runs.parent / "empty"
    empty.mkdir()
    result = report([runs, empty], runs.parent / "out", FAST)
    assert result.runs == 4
    assert any("empty holds no run folder" in notice for notice in result.notices)


@pytest.mark.parametrize("state", ["running", "failed", "interrupted"])
def test_unfinished_runs_are_in_the_curves_not_in_the_scores(runs: Path, state: str) -> None:
    finetune(runs, seed=7, score=10_000.0, state=state)
    pretrain(runs, seed=7, state=state)
    _, rows, shown = make(runs)
    assert rows["CIC"]["Mean ↑"].startswith("0.50")
    assert rows["CIC"]["Runs"] == "2"
    assert "walker-run-cic-7" in shown


def test_a_run_that_has_only_started(runs: Path) -> None:
    folder = finetune(runs, seed=7, state="running")
    (folder / "metrics.jsonl").unlink()
    (folder / "trials.json").unlink()
    (pretrain(runs, seed=7, state="running") / "metrics.jsonl").write_text("")
    _, rows, _ = make(runs)
    assert rows["CIC"]["Runs"] == "2"


def test_only_unfinished_runs(tmp_path: Path) -> None:
    finetune(tmp_path / "runs", state="running")
    _, rows, _ = make(tmp_path / "runs")
    assert rows == {}


def test_nan_returns_are_left_out_and_reported(runs: Path) -> None:
    finetune(runs, seed=7, score=float("nan"))
    _, rows, shown = make(runs)
    assert rows["CIC"]["Mean ↑"].startswith("0.50")
    assert "walker-run-cic-7" in shown
    assert "scores of CIC are too high" in shown


def test_nan_everywhere(tmp_path: Path) -> None:
    folder = finetune(tmp_path / "runs", score=float("nan"))
    lines = [json.dumps({"step": step, "eval/return": float("nan")}) for step in range(1, 5)]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    write_json(folder / "trials.json", {"chosen": 0, "trials": [{"skill": [float("nan")], "return": float("nan")}]})
    make(tmp_path / "runs")


def test_mixed_scales_get_their_own_rows_with_the_reason(runs: Path) -> None:
    finetune(runs, seed=0, name="big", scale="paper", score=796.0)
    result, rows, shown = make(runs)
    assert set(rows) == {"CIC (laptop scale)", "APS"}
    assert rows["CIC (laptop scale)"]["Mean ↑"].startswith("0.50")
    (raw,) = pages.table(pages.parse(result.page), "raw_scores")
    assert raw["CIC (paper scale)"] == "796 (1)"
    assert "CIC (paper scale): another scale or number of steps than most runs" in shown
    assert "`mix` averages them" in shown
    _, rows, shown = make(runs, ReportOptions(reps=20, figures=(), mix=True))
    assert rows["CIC"]["Mean ↑"].startswith("0.67")
    assert "because of `mix`" in shown


def test_a_stray_budget_takes_no_task_from_the_statistics(runs: Path) -> None:
    """One longer run of one task used to reduce the aggregates to that task, and to win in bold."""
    for method in ("cic", "aps"):
        for seed in range(2):
            finetune(runs, "walker-flip", method, seed, score=399.5)
    finetune(runs, method="ddpg", seed=5, steps=500_000, score=790.0)
    result, rows, _ = make(runs)
    assert set(rows) == {"CIC", "APS"}
    assert rows["CIC"]["Runs"] == "4"
    root = pages.parse(result.page)
    assert pages.table(root, "raw_scores")[1]["DDPG"] == "790 (1)"
    assert pages.table(root, "runs")[0]["Steps"] == "500k of 500k"


def test_planned_runs_of_a_sweep_that_are_missing_are_listed(runs: Path) -> None:
    """A method of which every run failed before its first checkpoint must not disappear from the report."""
    job = {"name": "mine-s0", "kind": "pretrain", "method": "mine", "config": {"domain": "walker", "seed": 3}}
    write_json(runs / "sweep" / "jobs-0.json", [job | {"folder": "bad"}, job | {"folder": "late"}, job, 3])
    write_json(runs / "bad" / "status.json", {"state": "failed", "message": "no such module"})
    result, _, shown = make(runs)
    assert "bad of the sweep has no result (failed before it started: no such module)" in shown
    assert "late of the sweep has no result (not started)" in shown
    table = {row["Run"]: row for row in pages.table(pages.parse(result.page), "runs")}
    assert table["bad"]["State"] == "failed: no such module"
    assert (table["late"]["State"], table["late"]["Method"], table["late"]["Seed"]) == ("missing", "mine", "3")
    (runs / "sweep" / "jobs-0.json").write_text("[{")
    assert "of the sweep" not in make(runs)[2]


def test_unknown_tasks_are_shown_raw(runs: Path) -> None:
    for method in ("cic", "aps"):
        for seed in range(2):
            finetune(runs, "my_robot-dance", method, seed, 12.0)
    result, rows, shown = make(runs)
    assert rows["CIC"]["Runs"] == "2"
    assert "no expert score is known for my_robot-dance" in shown
    raw = pages.table(pages.parse(result.page), "raw_scores")
    assert raw[-1] | {"Domain": "My robot", "Task": "Dance", "Expert": "–", "CIC": "12 ± 0"} == raw[-1]


def test_the_same_seed_twice_is_reported_and_counts_once(runs: Path) -> None:
    finetune(runs, seed=0, name="copy", score=0.0)
    _, rows, shown = make(runs)
    assert rows["CIC"]["Runs"] == "2"
    assert "same seed" in shown
    assert "copy" in shown


@pytest.mark.parametrize("file", ["config.json", "status.json", "result.json", "metrics.jsonl", "trials.json"])
@pytest.mark.parametrize("damage", ["cut", pytest.param("folder", marks=pytest.mark.slow)])
def test_unreadable_files(runs: Path, file: str, damage: str) -> None:
    path = finetune(runs, seed=7, score=398.0) / file
    text = path.read_text()
    path.unlink()
    if damage == "cut":
        path.write_text(text[: len(text) // 2])
    else:
        path.mkdir()
    _, rows, shown = make(runs)
    assert rows["CIC"]["Mean ↑"].startswith("0.50")
    if (damage, file) != ("cut", "metrics.jsonl"):  # a cut line is a run being written
        assert "walker-run-cic-7" in shown


@pytest.mark.parametrize("damage", ["empty", "gone"])
def test_lost_metrics_are_named(runs: Path, damage: str) -> None:
    path = finetune(runs, seed=7) / "metrics.jsonl"
    path.unlink()
    if damage == "empty":
        path.touch()
    assert "walker-run-cic-7: metrics.jsonl is" in make(runs)[2]


def test_a_run_without_a_status_that_has_its_result_reached_its_end(runs: Path) -> None:
    (finetune(runs, seed=7, steps=100_000, score=398.0) / "status.json").unlink()
    result, rows, _ = make(runs)
    assert rows["CIC"]["Runs"] == "3"
    table = {row["Run"]: row for row in pages.table(pages.parse(result.page), "runs")}
    assert (table["walker-run-cic-7"]["State"], table["walker-run-cic-7"]["Steps"]) == ("finished", "100k of 100k")


def test_a_picture_that_is_a_pipe_does_not_hang(runs: Path) -> None:
    folder = finetune(runs, seed=7) / "pictures"
    folder.mkdir()
    os.mkfifo(folder / "a.png")
    assert "a.png is not a regular file" in make(runs)[2]


@pytest.mark.parametrize("name", ["pictures", "pictures/a.png"])
def test_a_linked_picture_is_not_embedded(runs: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.png").write_bytes(b"a private picture")
    linked = finetune(runs, seed=7) / name
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(tmp_path / "private" / ("a.png" if name.endswith(".png") else "."))
    result, _, shown = make(runs)
    assert f"{linked.name} is a link" in shown
    assert base64.b64encode(b"a private picture").decode() not in result.page.read_text()


HOSTILE = (
    "\ud800",
    "\x1b[2J",
    "<script>alert(1)</script>",
    "=cmd|'/C x'!A0",
    "a" * 5000,
    "$\\\\input{x}$",
    "%s{}",
    "\n\n# x",
)


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.slow] * (place > 2)) for place, text in enumerate(HOSTILE)]
)
def test_hostile_text_is_shown_not_obeyed(runs: Path, text: str) -> None:
    folder = finetune(runs, method=text, seed=7, score=398.0, name="stranger", options={text: text})
    write_json(folder / "status.json", {"state": text, "step": 10, "message": text})
    header = json.loads((folder / "config.json").read_text())
    header |= {"title": text, "command": text, "versions": {text: text}}
    write_json(folder / "config.json", header)
    pretrain(runs, text, text, name="stranger-too", state="failed")
    result, rows, shown = make(runs)
    assert len(rows) == 3
    assert "\x1b" not in shown + "".join(result.notices)
    for path in result.tables:
        assert "<script" not in path.read_text(encoding="utf-8") or path.suffix == ".csv"


def test_a_config_nested_too_deeply_is_named(runs: Path) -> None:
    folder = finetune(runs, seed=7)
    deep = "[" * 300 + "]" * 300
    text = (folder / "config.json").read_text().replace('"options": {}', f'"options": {{"x": {deep}}}')
    (folder / "config.json").write_text(text)
    assert "walker-run-cic-7: config.json is nested too deeply" in make(runs)[2]


def test_a_file_that_is_no_picture(runs: Path) -> None:
    (finetune(runs, seed=7) / "pictures" / "a.png").mkdir(parents=True)
    _, _, shown = make(runs)
    assert "a.png cannot be read" in shown


def test_odd_types_in_a_config(runs: Path) -> None:
    folder = finetune(runs, seed=7, score=398.0)
    document = json.loads((folder / "config.json").read_text())
    document["config"] |= {"seed": "seven", "steps": None, "scale": 3, "agent": "none", "options": None}
    write_json(folder / "config.json", document)
    result, _, _ = make(runs)
    assert result.runs == 5


def test_a_section_that_fails_costs_that_section(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("odd data")

    monkeypatch.setattr(curve_plots, "finetuning", fail)
    result = report([runs], runs.parent / "out", FAST)
    root = pages.parse(result.page)
    assert any("learning curves could not be created (ZeroDivisionError: odd data)" in n for n in result.notices)
    assert pages.table(root, "raw_scores")
    assert root.find(".//figure[@id='figure-profile']") is not None


def test_environments_of_other_libraries(runs: Path) -> None:
    """Their id has a dash and a colon, and they have no named tasks."""
    finetune(runs, "gymnasium:Hopper-v5", "cic", 0, 900.0, name="hopper")
    pretrain(runs, "gymnasium:Hopper-v5", "cic", 0, name="hopper-pretrain")
    result, _, shown = make(runs)
    assert "no expert score is known for gymnasium:Hopper-v5" in shown
    raw = pages.table(pages.parse(result.page), "raw_scores")
    assert raw[-1] | {"Domain": "gymnasium:Hopper-v5", "Task": "gymnasium:Hopper-v5", "CIC": "900 (1)"} == raw[-1]
