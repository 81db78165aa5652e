"""`cic report --watch`."""

from __future__ import annotations

import os
from pathlib import Path

import pages
import pytest
from make_runs import finetune

from cic.core.errors import UserError
from cic.report import ReportOptions, ReportResult
from cic.report.build import watch

OPTIONS = ReportOptions(reps=10, figures=(), watch=True, interval=7.0)


def test_reports_again_when_a_run_moves_on_and_ends_with_the_last(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    finetune(runs, seed=0, state="running", trials=False)
    made: list[ReportResult] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        reload = pages.parse(out / "report.html").find(".//meta[@http-equiv='refresh']")
        assert reload is not None
        assert reload.get("content") == "7"
        if len(slept) == 2:  # at the first look nothing has changed
            finetune(runs, seed=0, score=398.0, trials=False)

    result = watch([runs], out, OPTIONS, made.append, sleep)
    assert slept == [7.0, 7.0]
    assert len(made) == 2
    assert result.running == 0
    root = pages.parse(result.page)
    assert root.find(".//meta[@http-equiv='refresh']") is None
    assert pages.table(root, "raw_scores")[0]["CIC"] == "398"
    assert not list(out.glob("*.part"))


def test_waits_for_the_first_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        finetune(runs, trials=False)

    assert watch([runs], tmp_path / "out", OPTIONS, sleep=sleep).runs == 1
    assert len(slept) == 1


def test_a_run_that_is_just_starting_is_waited_for(tmp_path: Path) -> None:
    """Its config is there, its first status not yet."""
    runs = tmp_path / "runs"
    (finetune(runs, state="running", trials=False) / "status.json").unlink()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        finetune(runs, score=398.0, trials=False)

    assert watch([runs], tmp_path / "out", OPTIONS, sleep=sleep).running == 0
    assert len(slept) == 1


def test_a_run_that_never_started_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    run = finetune(tmp_path / "runs", state="running", trials=False)
    (run / "status.json").unlink()
    made: list[ReportResult] = []

    def sleep(seconds: float) -> None:
        assert len(made) == 1
        os.utime(run / "config.json", (1e9, 1e9))

    assert watch([tmp_path / "runs"], tmp_path / "out", OPTIONS, made.append, sleep).running == 0
    assert [result.running for result in made] == [1, 0]


def test_a_folder_that_does_not_exist_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        watch([tmp_path / "nowhere"], tmp_path / "out", OPTIONS)
