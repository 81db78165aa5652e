"""Tables: the right numbers in every format."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from make_runs import finetune

from cic.core import paper_scores
from cic.core.errors import UserError
from cic.core.paper_scores import TITLES, experts
from cic.report import ReportOptions, groups, score_tables, scores
from cic.report.page import table_html
from cic.report.tables import Best, Table, latex, number, to_csv, to_latex, to_markdown
from cic.runs import records
from tests.helpers import steady

PLAIN = ReportOptions(reps=50)


def built(folder: Path, options: ReportOptions = PLAIN) -> tuple[groups.Study, scores.Scores, list[str]]:
    said: list[str] = []
    study = groups.study(records.read([folder])[0], said, options.mix)
    return study, scores.compute(study, options, said), said


def texts(table: Table) -> list[list[str]]:
    return [list(row) for row in table.rows]


# ---- formats -------------------------------------------------------------------------------------------------------


TABLE = Table(
    "odd",
    "Odd & ends",
    "A_caption with 5% <b>",
    ("Domain", "Task", "P(A > B)"),
    [["Walker", "a_b", Best("1 ± 2")], ["", "x|y", "–"], ["Jaco", "c", "−3"]],
    heads=2,
    records=[{"name": "a,b", "value": 0.1}, {"name": 'quo"te', "value": float("nan")}],
)


def test_csv_is_data() -> None:
    read = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert read == [{"name": "a,b", "value": "0.1"}, {"name": 'quo"te', "value": ""}]


def test_markdown() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[:2] == ["| Domain | Task | P(A > B) |", "| --- | --- | ---: |"]
    assert lines[2] == "| Walker | a_b | **1 ± 2** |"
    assert lines[3] == "|  | x\\|y | – |"


@steady
@given(st.text(st.sampled_from("<>&|\\`[]()!*=+-@'\"\r\n\t ax1"), max_size=12))
def test_hostile_text_is_neutralised(text: str) -> None:
    """No tag and no link in Markdown, no formula in CSV; the cells stay cells, and their text can be read back."""
    table = Table("t", "T", text, ("A", "B"), [[text, "end"]], records=[{"a": text, "b": 1.5}])
    lines = to_markdown(table).split("\n")
    assert len(lines) == 6
    assert "<" not in "".join(lines)
    assert not re.search(r"(?<!\\)(\\\\)*\]\(", "".join(lines))
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[2])) == 3
    (record,) = csv.DictReader(io.StringIO(to_csv(table), newline=""))
    assert record["a"].removeprefix("'") == " ".join(text.splitlines()).removeprefix("'")
    assert not record["a"].startswith(("=", "@", "\t", "\r"))
    if record["a"].startswith(("+", "-")):
        float(record["a"])
    assert record["b"] == "1.5"


def test_a_script_and_a_formula() -> None:
    table = Table("t", "T", "<b>", ("A",), [["<script>alert(1)</script>"]], records=[{"run": "=cmd|' /C calc'!A0"}])
    assert "<" not in to_markdown(table)
    assert "&lt;script>alert(1)&lt;/script>" in to_markdown(table)
    assert to_csv(table).splitlines()[1].startswith("'=cmd")


def test_latex_is_booktabs_and_escaped() -> None:
    text = to_latex(TABLE)
    for rule in (r"\toprule", r"\bottomrule", r"\begin{tabular}{llc}"):
        assert text.count(rule) == 1
    assert text.count(r"\midrule") == 2  # under the head and between the domains
    assert r"Walker & a\_b & \textbf{1 $\pm$ 2} \\" in text
    assert r"\caption{A\_caption with 5\% \textless{}b\textgreater{}}" in text
    assert text.count("{") == text.count("}")
    assert text.isascii()


def test_latex_of_every_special_character() -> None:
    assert latex("50% & $x_1 #2 {a} ~ ^ \\") == (
        r"50\% \& \$x\_1 \#2 \{a\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )


def test_html_is_escaped_and_labelled() -> None:
    root = ET.fromstring(f"<div>{table_html(TABLE)}</div>")
    table = root.find(".//table")
    assert table is not None
    assert [cell.text for cell in table.findall(".//thead//th")] == ["Domain", "Task", "P(A > B)"]
    assert table.find(".//strong").text == "1 ± 2"  # type: ignore[union-attr]
    described = root.find(f".//*[@id='{table.get('aria-describedby')}']")
    assert described is not None
    assert described.text == "A_caption with 5% <b>"


def test_numbers() -> None:
    assert number(-0.123) == "−0.12"
    assert number(-0.001) == "0.00"
    assert number(float("nan")) == "–"
    assert number(1234.5, 0) == "1234"


# ---- raw scores ----------------------------------------------------------------------------------------------------


def test_raw_scores_in_the_papers_layout(tmp_path: Path) -> None:
    for seed, score in enumerate((100.0, 110.0, 150.0)):
        finetune(tmp_path, "walker-run", "cic", seed, score)
        finetune(tmp_path, "walker-run", "ddpg", seed, score / 2)
        finetune(tmp_path, "jaco-reach_top_left", "cic", seed, score)
    finetune(tmp_path, "jaco-reach_top_left", "ddpg", 0, 5.0)
    study, _, _ = built(tmp_path)
    table = score_tables.raw_table(study, PLAIN)
    assert table.columns == ("Domain", "Task", "Expert", "DDPG", "CIC")
    stderr = np.std([100, 110, 150], ddof=1) / np.sqrt(3)
    assert texts(table) == [
        ["Walker", "Run", "796", f"60 ± {stderr / 2:.0f}", f"120 ± {stderr:.0f}"],
        ["Jaco", "Reach top left", "191", "5.00 (1)", f"120 ± {stderr:.0f}"],
    ]
    assert all(isinstance(row[4], Best) and not isinstance(row[3], Best) for row in table.rows)
    record = next(r for r in table.records if r["method"] == "CIC" and r["task"] == "run")
    assert record["mean"] == pytest.approx(120)
    assert record["stderr"] == pytest.approx(stderr)
    assert record["normalised"] == pytest.approx(120 / 796)
    assert record["runs"] == 3


def test_a_task_without_an_expert_is_shown_raw(tmp_path: Path) -> None:
    for method in ("cic", "ddpg"):
        for seed in range(2):
            finetune(tmp_path, "mine-hop", method, seed, 42.0)
            finetune(tmp_path, "walker-run", method, seed, 400.0)
    study, computed, said = built(tmp_path)
    assert ["Mine", "Hop", "–", "42 ± 0", "42 ± 0"] in texts(score_tables.raw_table(study, PLAIN))
    assert computed.tasks == ("walker-run",)
    assert any("no expert score is known for mine-hop" in notice for notice in said)


def test_only_unknown_tasks_make_no_statistics(tmp_path: Path) -> None:
    finetune(tmp_path, "mine-hop", "cic", 0, 42.0)
    _, computed, _ = built(tmp_path)
    assert computed.rows == []


# ---- coverage ------------------------------------------------------------------------------------------------------


def test_a_task_that_a_method_lacks_is_left_out_and_reported(tmp_path: Path) -> None:
    for seed in range(2):
        finetune(tmp_path, "walker-run", "cic", seed)
        finetune(tmp_path, "walker-run", "aps", seed)
        finetune(tmp_path, "walker-flip", "cic", seed)
    _, computed, said = built(tmp_path)
    assert computed.tasks == ("walker-run",)
    assert any(notice.startswith("walker-flip is excluded from the aggregate") and "APS" in notice for notice in said)


def test_no_common_task_falls_back_and_is_reported(tmp_path: Path) -> None:
    finetune(tmp_path, "walker-run", "cic")
    finetune(tmp_path, "walker-flip", "aps")
    _, computed, said = built(tmp_path)
    assert len(computed.aggregates) == 2
    assert any("no task is common" in notice for notice in said)


def test_holes_are_named(tmp_path: Path) -> None:
    for seed in range(3):
        finetune(tmp_path, "walker-run", "cic", seed)
    finetune(tmp_path, "walker-flip", "cic", 0)
    finetune(tmp_path, "walker-flip", "cic", 1, float("nan"))
    _, computed, _ = built(tmp_path)
    text = scores.coverage(computed)
    assert "CIC: 3 runs per task, fewer for walker-flip (1)" in text
    assert "Tasks with a single run add no spread" in text
    assert "fewer than 5 runs per task are too narrow" in text


def test_a_full_grid_of_enough_runs_needs_no_warning(tmp_path: Path) -> None:
    for seed in range(5):
        finetune(tmp_path, "walker-run", "cic", seed)
    _, computed, _ = built(tmp_path)
    assert scores.coverage(computed) == "Over 1 task: walker-run. All rows have 5 runs in every task."


# ---- the paper's rows ----------------------------------------------------------------------------------------------


def test_paper_rows_stand_beside_own_runs(tmp_path: Path) -> None:
    for seed in range(2):
        finetune(tmp_path, "walker-run", "cic", seed, 398.0)
    options = ReportOptions(reps=50, paper=("cic", "aps"))
    study, computed, _ = built(tmp_path, options)
    table = score_tables.raw_table(study, options)
    assert table.columns[3:] == ("CIC", "CIC (paper)", "APS (paper)")
    assert texts(table) == [["Walker", "Run", "796", "398 ± 0", "486 ± 25 (10)", "134 ± 16 (10)"]]
    statistics = score_tables.aggregate_table(computed, options)
    assert [row[0] for row in statistics.rows] == ["CIC", "CIC (paper)", "APS (paper)"]
    assert statistics.rows[1][3] == f"{486 / 796:.2f}"  # over the same task as one's own
    assert not any(
        isinstance(cell, Best) for row in statistics.rows for cell in row
    )  # a single own method is no contest
    assert {record["source"] for record in statistics.records} == {"runs", "paper"}


def test_the_papers_order_is_reported_per_domain(tmp_path: Path) -> None:
    published = {method: paper_scores.returns()[method]["walker-run"].mean for method in ("cic", "aps", "diayn", "rnd")}
    reverse = dict(
        zip(sorted(published, key=published.__getitem__), sorted(published.values(), reverse=True), strict=True)
    )
    for method in published:
        for seed in range(3):
            finetune(tmp_path, "walker-run", method, seed, published[method] + seed)
            finetune(tmp_path, "jaco-reach_top_left", method, seed, reverse[method] / 10 + seed)
    _, computed, _ = built(tmp_path)
    table = score_tables.order_table(computed, PLAIN)
    walker, jaco = texts(table)
    assert walker[:2] == ["Walker", "1.00 [1.00, 1.00]"]
    jaco_paper = [paper_scores.returns()[method]["jaco-reach_top_left"].mean for method in published]
    expected = scipy.stats.spearmanr([reverse[method] for method in published], jaco_paper).statistic
    assert jaco[0] == "Jaco"
    assert jaco[1].startswith(f"{number(expected, 2)} [")
    best = max(published, key=published.__getitem__)
    told = {(record["domain"], record["method"]): record for record in table.records}
    assert len(told) == 8
    assert walker[2].startswith(TITLES[best])
    for method, score in published.items():
        record = told["walker", TITLES[method]]
        assert record["place"] == record["paper_place"] == 1 + sum(other > score for other in published.values())
        assert record["mean"] == pytest.approx((score + 1) / experts()["walker-run"])


def test_two_methods_have_no_order(tmp_path: Path) -> None:
    for method in ("cic", "aps"):
        finetune(tmp_path, "walker-run", method, 0, 100.0)
    assert not score_tables.order_table(built(tmp_path)[1], PLAIN).rows


def test_paper_rows_alone_are_its_published_statistics(tmp_path: Path) -> None:
    options = ReportOptions(reps=50, paper=("all",))
    _, computed, _ = built_empty(options)
    for method, row in paper_scores.statistics().items():
        found = computed.aggregates[scores.paper_label(method)]
        assert {name: estimate.value for name, estimate in found.items()} == dict(row)
    assert computed.tasks == tuple(experts())


def built_empty(options: ReportOptions) -> tuple[groups.Study, scores.Scores, list[str]]:
    study = groups.study([], [])
    said: list[str] = []
    return study, scores.compute(study, options, said), said


def test_reward_variants(tmp_path: Path) -> None:
    for reward, share in (("entropy", 0.5), ("similarity", 0.25)):
        for task in ("walker-run", "quadruped-run"):
            finetune(
                tmp_path, task, "cic", 0, share * experts()[task], name=f"{reward}-{task}", options={"reward": reward}
            )
    study, _, _ = built(tmp_path)
    table = score_tables.variants_table(study)
    assert table.columns == ("Domain", "Discriminator", "Similarity", "Uncertainty", "Entropy")
    assert texts(table)[:2] == [
        ["Walker (paper)", "0.80", "0.79", "0.78", "0.82"],
        ["Walker", "–", "0.25", "–", "0.50"],
    ]
    assert texts(table)[-1] == ["Mean", "–", "0.25", "–", "0.50"]


def test_unknown_paper_rows_are_reported() -> None:
    with pytest.raises(UserError, match='did you mean "cic"'):
        scores.paper_rows(("cicc",))
