"""A study's tables hold what the report needs of its run folders."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_runs import finetune, pretrain, write_json

from cic import cli
from cic.report import learning_curves
from cic.report.collapse import degenerate_loss, is_sound, marked, soundness, unsound_notices
from cic.report.groups import study
from cic.report.study_data import write_study
from cic.runs import contents, records, study_tables
from cic.runs.contents import Series
from cic.runs.records import RunRecord


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for seed in (0, 1):
        pretrain(folder, seed=seed)
        for task in ("walker-run", "walker-stand"):
            run = finetune(folder, task, "cic", seed, 300.0 + seed)
            trials = [{"skill": [value, value], "return": value * 10} for value in (0.25, 0.5)]
            write_json(run / "trials.json", {"chosen": 1, "trials": trials})
    return folder


def tables(runs: Path, points: int | None = None) -> Path:
    folder = runs.parent / "tables"
    write_study(folder, records.read([runs])[0], points=points)
    return folder


def test_records_curves_and_trials_survive(runs: Path) -> None:
    before, after = records.read([runs])[0], records.read([tables(runs)])[0]
    assert [run.name for run in after] == [run.name for run in before]
    for old, new in zip(before, after, strict=True):
        assert (new.kind, new.title, new.state, new.step) == (old.kind, old.title, old.state, old.step)
        before_training = {"pretrained": Path(old.config["pretrained"]).name} if old.task else {}
        assert records.flatten(new.config) == records.flatten(old.config) | before_training
        assert new.score == old.score or math.isnan(old.score)
        curves, read = contents.metrics(old)[0], contents.metrics(new)[0]
        assert read.keys() == curves.keys() - {"update"}
        for metric, series in read.items():
            np.testing.assert_array_equal(series.steps, curves[metric].steps)
            np.testing.assert_allclose(series.values, curves[metric].values, rtol=1e-5)
        tried, kept = contents.selection(old)[0], contents.selection(new)[0]
        assert (tried is None) == (kept is None)
        if tried and kept:
            assert kept.chosen == tried.chosen
            assert [(t.skill[0], t.score) for t in kept.trials] == [(t.skill[0], t.score) for t in tried.trials]


def test_long_curves_are_averaged_as_figures_do(runs: Path) -> None:
    (run,) = records.read([next(runs.glob("pretrain-*-0"))])[0]
    lines = [json.dumps({"step": step, "zero_shot/run": step / 7}) for step in range(1, 447)]
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    before = learning_curves.load([run], [])[run.path]["zero_shot/run"]
    after = {r.name: r for r in records.read([tables(runs, points=60)])[0]}[run.path.name]
    kept = contents.metrics(after)[0]["zero_shot/run"]
    assert len(kept.steps) == 60
    np.testing.assert_allclose(kept.values, before.values, rtol=1e-5)


def test_a_report_of_the_tables_has_the_numbers_of_the_runs(runs: Path, tmp_path: Path) -> None:
    words = ["--figures", "png", "--reps", "50"]
    assert cli.main(["report", str(runs), "--out", str(tmp_path / "a"), "--data", str(tmp_path / "t"), *words]) == 0
    shutil.rmtree(runs)
    assert cli.main(["report", str(tmp_path / "t"), "--out", str(tmp_path / "b"), *words]) == 0
    for name in ("aggregate.csv", "raw_scores.csv", "runs.csv"):
        assert (tmp_path / "b" / "tables" / name).read_bytes() == (tmp_path / "a" / "tables" / name).read_bytes()
    assert {p.name for p in (tmp_path / "b" / "figures").iterdir()} == {
        p.name for p in (tmp_path / "a" / "figures").iterdir()
    }


def test_a_reports_own_tables_are_not_a_study(runs: Path, tmp_path: Path) -> None:
    assert cli.main(["report", str(runs), "--out", str(runs / "report"), "--figures", "png", "--reps", "50"]) == 0
    assert len(records.read([runs])[0]) == 6


def test_run_folders_take_precedence_over_tables_beside_them(runs: Path) -> None:
    write_study(runs, records.read([runs])[0])
    assert all(run.tables is None for run in records.read([runs])[0])


def test_paths_of_the_machine_are_not_kept(runs: Path) -> None:
    path = next(runs.glob("walker-run-*"))
    header = json.loads((path / "config.json").read_text())
    header["config"]["pretrained"] = "/home/someone/runs/before"
    header["command"] = "cic finetune before --out /home/someone/runs/after --seed 1"
    write_json(path / "config.json", header)
    text = (tables(runs) / "runs.csv").read_text()
    assert "/home" not in text
    assert "cic finetune before --seed 1" in text


@pytest.mark.parametrize("content", [b"", b"run\n", b"\xff\xfe,,\n1,2", b"run,kind\nx,pretrain\n"])
def test_damaged_tables_are_reported(runs: Path, content: bytes) -> None:
    folder = tables(runs)
    (folder / "runs.csv").write_bytes(content)
    found, problems = records.read([folder])
    assert found == []
    assert problems or len(content.splitlines()) < 2
    (folder / "curves.csv.gz").write_bytes(content)
    assert study_tables.read_curves(folder) == {}


def test_damaged_curves_leave_the_scores(runs: Path) -> None:
    folder = tables(runs)
    text = "run,metric,step,value\nx,y\nx,y,1,abc\nx,y,2,0.5\n"
    (folder / "curves.csv.gz").write_bytes(gzip.compress(text.encode()))
    found, problems = records.read([folder])
    assert (len(found), problems) == (6, [])
    steps, values = study_tables.read_curves(folder)["x"]["y"]
    assert steps == [1, 2]
    assert math.isnan(values[0])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=5
    )
)
def test_cells_keep_every_value(value: object) -> None:
    text = study_tables.to_cell(value)
    assert text
    assert study_tables.from_cell(text) == value


def test_the_same_runs_give_the_same_bytes(runs: Path) -> None:
    folder = tables(runs)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.name: path.read_bytes() for path in tables(runs).iterdir()} == first
    with (folder / "runs.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6


# ---- collapse ---------------------------------------------------------------------------------------------------


def record(**options: object) -> RunRecord:
    config = {"options": {"loss": "released", "temperature": 0.5} | options, "learning": {"batch": 128}}
    return RunRecord(Path(), "run", "pretrain", {"objective": "cic", **config}, "CIC")


def curves(accuracy: float, loss: float) -> dict[str, Series]:
    steps = np.arange(1.0, 101.0)
    late = np.where(steps > 50, 1.0, 0.0)
    return {
        "skill/accuracy": Series(steps, late * accuracy + (1 - late) * 0.9),
        "skill/chance": Series(steps, np.full(100, 1 / 128)),
        "representation/loss": Series(steps, np.full(100, loss)),
    }


def test_the_degenerate_loss_is_that_of_opposite_cosines() -> None:
    """log Σ_j e^(−1/T) minus the positive's e^(1/T), as the released code, plus 1/T."""
    expected = math.log(128 * math.exp(-2) - math.exp(2)) + 2
    assert degenerate_loss(128, 0.5) == pytest.approx(expected)
    assert expected == pytest.approx(4.296, abs=1e-3)
    assert math.isnan(degenerate_loss(32, 0.5))


@pytest.mark.parametrize(
    ("accuracy", "loss", "sound"),
    [(0.1, 4.4, True), (0.02, 4.4, False), (1 / 128, 4.296, False), (0.1, 4.296, False), (math.nan, 4.4, None)],
)
def test_soundness(accuracy: float, loss: float, sound: bool | None) -> None:
    assert is_sound(record(), curves(accuracy, loss)) is sound


def run_record(name: str, kind: str = "pretrain", problems: object = None, **config: object) -> RunRecord:
    result = None if problems is None else {"problems": problems}
    return RunRecord(Path(name), name, kind, {"objective": "rnd", **config}, "RND", result=result)


def test_a_run_that_failed_a_check_is_not_sound_and_neither_are_its_finetunings() -> None:
    runs = [
        run_record("good", problems={}),
        run_record("bad", problems={"no reward": "the reward is zero"}),
        run_record("older"),
        run_record("told", "finetune", {}, pretrain_problems=["no reward"], pretrained="elsewhere"),
        run_record("linked", "finetune", pretrained="runs/bad"),
        run_record("tuned", "finetune", {}, pretrained="runs/good"),
    ]
    sound = soundness(runs)
    assert sound == {"good": True, "bad": False, "older": None, "told": False, "linked": False, "tuned": True}
    (notice,) = unsound_notices(runs, sound)
    assert notice.startswith("2 of 5 checked runs are sound")
    assert "no reward (2)" in notice
    assert marked("RND", ["good", "bad", "older"], sound) == "RND (1 of 3 unsound)"
    assert marked("RND", ["good"], sound) == "RND"
    assert [group.label for group in study(runs[:2], []).pretrain] == ["RND (1 of 2 unsound)"]


def test_what_trains_no_representation_cannot_collapse() -> None:
    assert is_sound(record(representation=False), curves(0.0, 4.296)) is None
    assert is_sound(record(), {}) is None
