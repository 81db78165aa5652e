"""The whole report over a small benchmark: files, a valid page, and the right numbers on it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pages
import pytest
from make_runs import benchmark, finetune, media, pretrain

from cic.core.errors import UserError
from cic.core.paper_scores import experts
from cic.report import ReportOptions, ReportResult, build, report, sections

FAST = ReportOptions(reps=20, figures=())
FIGURES = {"aggregate", "sample_efficiency", "finetuning", "profile", "improvement", "zero_shot", "diagnostics"}
FIGURES |= {"selection"}
SCORES: dict[tuple[str, str], list[float]] = {}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportResult, ET.Element]:
    """Three methods on three tasks of two domains, three seeds."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    for index, method in enumerate(("ddpg", "cic", "my<$method>&")):
        for task in ("walker-run", "walker-flip", "jaco-reach_top_left"):
            scores = (experts()[task] * rng.uniform(0.2 + 0.2 * index, 0.5 + 0.2 * index, size=3)).tolist()
            SCORES[method, task] = scores
            for seed, score in enumerate(scores):
                finetune(folder / "runs", task, method, seed, score, name=f"{task}-{index}-{seed}")
        if method != "ddpg":
            for seed in range(2):
                pretrain(folder / "runs", "walker", method, seed, name=f"pretrain-{index}-{seed}")
    media(folder / "runs" / "walker-run-1-0")
    result = report([folder / "runs"], folder / "out", ReportOptions(paper=("cic", "variants"), reps=200))
    return result, pages.parse(result.page)


def test_nothing_to_complain_about(made: tuple[ReportResult, ET.Element]) -> None:
    result, _ = made
    assert result.notices == ()
    assert result.runs == 31


def test_the_page_is_valid(made: tuple[ReportResult, ET.Element]) -> None:
    assert pages.problems(made[1]) == []


def test_the_page_stands_alone(made: tuple[ReportResult, ET.Element]) -> None:
    """No script, and nothing that a browser would fetch."""
    result, root = made
    assert root.find(".//script") is None
    for node in root.iter():
        for name in ("src", "href", "srcset", "poster", "data"):
            assert node.get(name, "#").startswith(("data:", "#")), node.attrib
    css = root.findtext("head/style") or ""
    assert "@import" not in css
    assert all(url.startswith("data:") for url in re.findall(r"url\(([^)]*)", css))
    assert result.page.stat().st_size < 2e6


def test_every_section_is_there(made: tuple[ReportResult, ET.Element]) -> None:
    _, root = made
    linked = [link.get("href") for link in root.findall(".//nav//a")]
    assert linked == [
        *("#aggregate", "#scores", "#curves", "#profile", "#improvement", "#pretraining", "#selection"),
        *("#media", "#runs"),
    ]
    assert {node.get("id", "").removeprefix("figure-") for node in root.iter("figure") if node.get("id")} == FIGURES
    assert len(root.findall(".//video")) == 1
    config = "".join(node.text or "" for node in root.iter("pre"))
    assert config.count('"task": "walker-run"') == 9


def test_figures_are_on_paper_too(made: tuple[ReportResult, ET.Element]) -> None:
    result, _ = made
    assert {path.stem for path in result.figures} == FIGURES
    for path in result.figures:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert data.startswith(b"\x89PNG")
            width = int.from_bytes(data[16:20], "big")
            assert width >= 900  # 3 inches at 300 dots
        else:
            assert data.startswith(b"%PDF")
            assert b"/Type3" not in data  # fonts that conferences refuse
            assert b"/FontFile2" in data  # and fonts are inside


def test_the_same_runs_give_the_same_report(made: tuple[ReportResult, ET.Element], tmp_path: Path) -> None:
    result, root = made
    runs = result.page.parent.parent / "runs"
    again = report([runs], tmp_path, ReportOptions(paper=("cic", "variants"), reps=200, figures=()))
    for old, new in zip(result.tables, again.tables, strict=True):
        assert old.read_bytes() == new.read_bytes(), new.name
    images = [[node.get("src") for node in page.iter("img")] for page in (root, pages.parse(again.page))]
    assert images[0] == images[1]
    assert all(b"CreationDate" not in path.read_bytes() for path in result.figures)


# ---- numbers, read back from the page --------------------------------------------------------------------------------


def label(method: str) -> str:
    return {"ddpg": "DDPG", "cic": "CIC"}.get(method, method)


def test_raw_scores_on_the_page(made: tuple[ReportResult, ET.Element]) -> None:
    rows = pages.table(made[1], "raw_scores")
    assert [row["Task"] for row in rows] == ["Flip", "Run", "Reach top left"]
    assert [row["Domain"] for row in rows] == ["Walker", "", "Jaco"]
    for row, task in zip(rows, ("walker-flip", "walker-run", "jaco-reach_top_left"), strict=True):
        assert float(row["Expert"]) == experts()[task]
        for method in ("ddpg", "cic", "my<$method>&"):
            scores = SCORES[method, task]
            stderr = np.std(scores, ddof=1) / np.sqrt(3)
            assert row[label(method)] == f"{np.mean(scores):.0f} ± {stderr:.0f}"
    assert rows[0]["CIC (paper)"] == "631 ± 34 (10)"


def test_statistics_on_the_page(made: tuple[ReportResult, ET.Element]) -> None:
    rows = {row["Method"]: row for row in pages.table(made[1], "aggregate")}
    assert list(rows) == ["DDPG", "CIC", "CIC (paper)", "my<$method>&"]
    for method in ("ddpg", "cic", "my<$method>&"):
        matrix = np.array([np.array(SCORES[method, t]) / experts()[t] for t in experts() if (method, t) in SCORES])
        row, flat = rows[label(method)], np.sort(matrix.ravel())
        expected = {
            "Median ↑": np.median(matrix.mean(axis=1)),
            "IQM ↑": flat[2:7].mean(),  # the middle of nine
            "Mean ↑": matrix.mean(),
            "Optimality gap ↓": 1 - np.minimum(matrix, 1).mean(),
        }
        for name, value in expected.items():
            middle, low, high = map(float, re.findall(r"[\d.]+", row[name]))
            assert middle == pytest.approx(value, abs=0.0051), (method, name)
            assert low <= middle <= high
        assert row["Runs"] == "9"


def test_improvement_on_the_page(made: tuple[ReportResult, ET.Element]) -> None:
    rows = {row["Y"]: row["P(CIC > Y)"] for row in pages.table(made[1], "improvement")}
    for method in ("ddpg", "my<$method>&"):
        tasks = [task for name, task in SCORES if name == method]
        wins = np.mean([np.mean([[x > y for y in SCORES[method, t]] for x in SCORES["cic", t]]) for t in tasks])
        assert rows[label(method)].startswith(f"{wins:.2f} [")


def test_tables_agree_in_every_format(made: tuple[ReportResult, ET.Element]) -> None:
    result, root = made
    folder = result.page.parent / "tables"
    assert {path.suffix for path in result.tables} == {".csv", ".md", ".tex"}
    with (folder / "aggregate.csv").open() as file:
        values = {(row["method"], row["statistic"]): float(row["value"]) for row in csv.DictReader(file)}
    for row in pages.table(root, "aggregate"):
        assert row["IQM ↑"].startswith(f"{values[row['Method'], 'iqm']:.2f}")
    markdown = (folder / "raw_scores.md").read_text()
    latex = (folder / "raw_scores.tex").read_text()
    for row in pages.table(root, "raw_scores"):
        assert row["CIC"] in markdown
        assert row["CIC"].replace("±", r"$\pm$") in latex


def test_the_curves_are_data(made: tuple[ReportResult, ET.Element]) -> None:
    with (made[0].page.parent / "tables" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["method", "task", "seed", "step", "metric", "value"]
    ends = [r for r in rows if (r["method"], r["task"], r["metric"]) == ("CIC", "walker-run", "eval/return")]
    last = {int(row["seed"]): float(row["value"]) for row in ends if row["step"] == "100000"}
    assert [last[seed] for seed in range(3)] == pytest.approx(SCORES["cic", "walker-run"])
    assert {row["task"] for row in rows if row["metric"] == "reward/intrinsic"} == {"walker"}


def test_config_differences_on_the_page(made: tuple[ReportResult, ET.Element]) -> None:
    rows = pages.table(made[1], "config_differences")
    assert {"Key": "finetune: pretrain_steps", "Value": "0", "Methods (runs)": "DDPG (9)"} in rows


def test_runs_on_the_page(made: tuple[ReportResult, ET.Element]) -> None:
    rows = {row["Run"]: row for row in pages.table(made[1], "runs")}
    assert len(rows) == 31
    assert rows["walker-run-1-2"]["Return"] == f"{SCORES['cic', 'walker-run'][2]:.1f}"


# ---- options ---------------------------------------------------------------------------------------------------------


def test_the_papers_rows_alone(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    result = report([tmp_path / "none"], tmp_path / "out", ReportOptions(paper=("all", "variants"), figures=()))
    root = pages.parse(result.page)
    assert pages.problems(root) == []
    rows = {row["Method"]: row for row in pages.table(root, "aggregate")}
    assert rows["CIC (paper)"]["IQM ↑"] == "0.77"
    assert len(pages.table(root, "raw_scores")) == 12


def test_pictures_and_films_of_the_skills_are_shown(tmp_path: Path) -> None:
    """Where `cic skills` writes them."""
    run = pretrain(tmp_path / "runs")
    (run / "pictures").mkdir()
    for name in ("skills.png", "strip.webp", "loop.gif", "skills.mp4", "skills.csv"):
        (run / "pictures" / name).write_bytes(b"any")
    root = pages.parse(report([tmp_path / "runs"], tmp_path / "out", FAST).page)
    shown = root.findall(".//section[@id='media']//img") + root.findall(".//section[@id='media']//video")
    kinds = [node.get("src", "").partition(";")[0] for node in shown]
    assert kinds == ["data:image/png", "data:image/webp", "data:image/gif", "data:video/mp4"]


@pytest.mark.slow
def test_a_report_made_again_leaves_no_figure_of_the_last_one(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    for seed in range(2):
        finetune(runs / "tuned", seed=seed)
    pretrain(runs)
    first = report([runs], out, ReportOptions(reps=10, figures=("png",)))
    (out / "figures" / "mine.png").write_bytes(b"a user's")
    (tmp_path / "precious.png").write_bytes(b"outside")
    listing = json.loads((out / "made.json").read_text())
    listing["files"] += ["../precious.png", "figures/../../precious.png", 3]
    (out / "made.json").write_text(json.dumps(listing))
    shutil.rmtree(runs / "tuned")
    again = report([runs], out, ReportOptions(reps=10, figures=("png",)))
    gone = {path for path in [*first.figures, *first.tables] if not path.exists()}
    made = {*again.figures, *again.tables}
    assert {*first.figures, *first.tables} - made == gone
    assert gone
    assert all(path.exists() for path in made)
    assert (out / "figures" / "mine.png").exists()
    assert (tmp_path / "precious.png").exists()


def test_media_beyond_the_size_limit_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media(finetune(tmp_path / "runs"))
    monkeypatch.setattr(sections, "_MEDIA_BYTES", 50)
    result = report([tmp_path / "runs"], tmp_path / "out", FAST)
    assert any("1 of 2 pictures and films" in notice for notice in result.notices)


def test_the_reference_can_be_chosen(tmp_path: Path) -> None:
    for method in ("cic", "aps", "icm"):
        for seed in range(2):
            finetune(tmp_path / "runs", method=method, seed=seed)
    result = report([tmp_path / "runs"], tmp_path / "out", ReportOptions(reps=10, figures=(), reference="aps"))
    assert [row["Y"] for row in pages.table(pages.parse(result.page), "improvement")] == ["CIC", "ICM"]
    result = report([tmp_path / "runs"], tmp_path / "out", ReportOptions(reps=10, figures=(), reference="rnd"))
    assert any("no finished runs of rnd" in notice for notice in result.notices)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    finetune(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the report"):
        report([tmp_path / "runs"], tmp_path / "file" / "out")


def test_a_missing_extra_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finetune(tmp_path)
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs matplotlib: pip install 'cic\[report\]'"):
        report([tmp_path], tmp_path / "out")


def test_pretraining_alone(tmp_path: Path) -> None:
    pretrain(tmp_path / "runs")
    result = report([tmp_path / "runs"], tmp_path / "out", ReportOptions(figures=()))
    root = pages.parse(result.page)
    assert pages.problems(root) == []
    assert [link.get("href") for link in root.findall(".//nav//a")] == ["#pretraining", "#runs"]


@pytest.mark.parametrize("bad", [{"reps": 0}, {"confidence": 2.0}])
def test_bad_options_are_reported(bad: dict[str, float]) -> None:
    with pytest.raises(UserError):
        ReportOptions(**bad)  # type: ignore[arg-type]


@pytest.mark.slow
def test_two_hundred_runs_fit_in_a_gigabyte(tmp_path: Path) -> None:
    """In a separate process, whose peak memory is measured."""
    assert benchmark(tmp_path / "runs") >= 200
    code = (
        "import resource, sys; from pathlib import Path; from cic.report import report;"
        "result = report([Path(sys.argv[1])], Path(sys.argv[2]));"
        "print(result.runs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "runs", tmp_path / "out"], capture_output=True, text=True, check=True
    )
    runs, gigabytes = map(float, out.stdout.split())
    assert runs >= 200
    assert gigabytes < 1
