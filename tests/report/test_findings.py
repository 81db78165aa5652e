"""The sentences that a report opens with, and the headline of the results that the project publishes."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest
from make_runs import finetune, pretrain

from cic.report import ReportOptions, findings, groups, report, scores
from cic.runs import records

FAST = ReportOptions(reps=200, figures=())
WALKER = Path(__file__).parents[2] / "results" / "walker-laptop"


def made(folder: Path, options: ReportOptions = FAST) -> str:
    """The findings alone, without the time that figures take."""
    runs, _ = records.read([folder / "runs"])
    study = groups.study(runs, [], options.mix)
    return " ".join(findings.findings(study, scores.compute(study, options, []), options))


def test_the_published_headline(tmp_path: Path) -> None:
    """README: 0.56 against 0.45 on four tasks, probability of improvement 0.81."""
    result = report([WALKER], tmp_path, ReportOptions(figures=()))
    text = " ".join(result.findings)
    assert "After 30k steps of finetuning, CIC reaches 0.56 [0.53, 0.59]" in text
    assert "on 4 tasks, the best of 2 rows; next is DDPG (30k steps) with 0.45 [0.39, 0.5" in text
    assert "better than DDPG (30k steps) on 4 of 4 tasks" in text
    assert "intervals from 4 runs per task are too narrow" in text
    assert "probability 0.81 [0.6" in text
    rows = {row["Method"]: row for row in pages.table(pages.parse(result.page), "aggregate")}
    assert set(rows) == {"DDPG (30k steps)", "CIC"}
    assert rows["CIC"]["Mean ↑"] == "0.56 [0.53, 0.59]"
    assert not any("0 of" in row["Steps"] for row in pages.table(pages.parse(result.page), "runs"))


def test_the_page_opens_with_them_and_notes_come_after(tmp_path: Path) -> None:
    for method in ("cic", "aps"):
        for seed in range(2):
            finetune(tmp_path / "runs", method=method, seed=seed)
    finetune(tmp_path / "runs", seed=7, state="failed")
    result = report([tmp_path / "runs"], tmp_path / "out", FAST)
    text = result.page.read_text()
    places = [
        text.index(part) for part in ("<h1>", result.findings[0].split("[")[0], 'class="notices"', 'id="aggregate"')
    ]
    assert places == sorted(places)
    assert result.findings[-1] == "1 unfinished run excluded."


def test_the_best_of_several_and_what_may_be_chance(tmp_path: Path) -> None:
    for method, share in (("cic", 0.5), ("aps", 0.6), ("icm", 0.1)):
        for seed, wobble in enumerate((-80, 0, 80)):
            finetune(tmp_path / "runs", "walker-run", method, seed, 796 * share + wobble)
    text = made(tmp_path)
    assert "APS reaches 0.60" in text
    assert "the best of 3 rows; next is CIC with 0.50" in text
    assert "contains zero: the difference may be due to chance" in text
    for seed in range(3):
        finetune(tmp_path / "runs", "walker-run", "aps", seed, 790.0 + seed)
    assert "], is above zero" in made(tmp_path)


def test_single_runs_claim_nothing(tmp_path: Path) -> None:
    finetune(tmp_path / "runs", method="cic", score=398.0)
    finetune(tmp_path / "runs", method="aps", score=199.0)
    text = made(tmp_path)
    assert "CIC reaches 0.50 (1 run)" in text
    assert "With single runs, the difference may be due to chance" in text
    assert "[" not in text


def test_one_method_beside_the_paper(tmp_path: Path) -> None:
    finetune(tmp_path / "runs", "walker-run", "cic", score=398.0)
    text = made(tmp_path, ReportOptions(reps=20, figures=(), paper=("cic",)))
    assert text.startswith("After 100k steps of finetuning, CIC reaches 0.50")


def test_tasks_without_experts_are_shown_raw(tmp_path: Path) -> None:
    for method, score in (("cic", 12.0), ("aps", 40.0)):
        finetune(tmp_path / "runs", "mine-hop", method, score=score)
    assert "Mean return on mine-hop after finetuning: APS 40, CIC 12." in made(tmp_path)


@pytest.mark.parametrize("kind", [finetune, pretrain])
def test_nothing_finished_is_reported(tmp_path: Path, kind: object) -> None:
    kind(tmp_path / "runs", state="running")  # type: ignore[operator]
    assert made(tmp_path).startswith("No run has finished yet")
