"""The headline numbers of `results/` follow from the tables that are committed there."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cic import cli
from cic.core.paper_scores import experts
from cic.experiments import reproduction
from cic.runs import records
from cic.runs.contents import metrics
from cic.runs.records import RunRecord

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
STUDIES = sorted(path.parent for path in RESULTS.rglob("curves.csv.gz"))


def study(name: str) -> list[RunRecord]:
    runs, problems = records.read([RESULTS / name])
    assert not problems
    return runs


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, RESULTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def last(run: RunRecord, metric: str) -> float:
    return float(metrics(run, (metric,))[0][metric].values[-1])


def drawn(folder: str, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `cic reproduce EXPERIMENT --draw` prints of a copy."""
    monkeypatch.setattr(reproduction, "FIGURES", ())
    out = tmp_path / "out"
    out.mkdir()
    for path in (RESULTS / folder).glob("*.*"):
        shutil.copy(path, out)
    (out / experiment).mkdir()
    shutil.copy(RESULTS / folder / experiment / "setup.json", out / experiment)
    assert cli.main(["reproduce", experiment, "--draw", "--out", str(out)]) == 0
    for name in ("data.csv", f"{experiment}.csv", "raw_scores.csv"):
        if (RESULTS / folder / experiment / name).exists():
            assert (out / experiment / name).read_bytes() == (RESULTS / folder / experiment / name).read_bytes()
    return str(json.loads((out / experiment / "summary.json").read_text())["result"])


def test_there_are_tables_and_no_run_folders() -> None:
    """Without what results/.gitignore names."""
    files = [path for path in RESULTS.rglob("*") if path.is_file() and "runs" not in path.parts]
    files = [path for path in files if path.suffix not in (".pdf", ".html", ".tex")]
    assert len(STUDIES) == 16
    assert [path for path in files if path.name in ("config.json", "metrics.jsonl")] == []
    assert [path for path in files if path.stat().st_size > 1_000_000] == []


@pytest.mark.parametrize(
    ("name", "sound", "collapsed"),
    [
        ("adaptation", 10, 0),
        ("beyond-released", 20, 0),
        ("cic-loss", 20, 3),
        ("experiments", 6, 39),
        ("main-laptop", 6, 0),
        ("main-paper-protocol", 1, 0),
        ("methods", 8, 0),
        ("point-mass", 12, 0),
        ("quadruped-representation", 1, 0),
        ("walker-defaults", 12, 0),
        ("walker-laptop", 5, 0),
    ],
)
def test_which_cic_pretrainings_are_sound(name: str, sound: int, collapsed: int) -> None:
    found = []
    for path in STUDIES:
        if path.relative_to(RESULTS).parts[0] == name:
            with (path / "runs.csv").open(newline="") as file:
                found += [row["sound"] for row in csv.DictReader(file)]
    assert (found.count("true"), found.count("false")) == (sound, collapsed)


@pytest.mark.parametrize(
    ("folder", "experiment", "text"),
    [
        ("main-laptop", "main", "Disagreement 0.87, RND 0.84, APT 0.77, CIC 0.67, DIAYN 0.66"),
        (
            "beyond-released",
            "beyond",
            "released 0.57, released, relabelled replay 0.78 (0.21 [0.15, 0.28] above) and distinct",
        ),
        ("beyond-released/sphere", "beyond", "released 0.60, released, relabelled replay 0.65"),
        ("experiments", "gridworld", "DIAYN, 4 skills visit 35 ± 3 and settle in 5.7 ± 0.3"),
        ("experiments", "gym-vs-dmc", "Gymnasium Hopper DIAYN 323 ± 10, ICM 856 ± 143 and Fixed 940 ± 84"),
        ("experiments", "flow", "directions span 35 ± 27 of 360 degrees"),
    ],
)
def test_experiments_are_drawn_from_tables(
    folder: str, experiment: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text in drawn(folder, experiment, tmp_path, monkeypatch)


def test_invalid_experiments_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn("experiments", "dimension", tmp_path, monkeypatch)
    summary = json.loads((tmp_path / "out" / "dimension" / "summary.json").read_text())
    assert any("0 of 24 checked runs are sound" in notice for notice in summary["notices"])
    assert "0 of 24 checked runs are sound" in (tmp_path / "out" / "dimension" / "page.html").read_text()


def test_main_paper_protocol() -> None:
    """Mean normalised scores on walker: Disagreement 0.60, CIC 0.53, SMM 0.15."""
    runs = [run for run in study("main-paper-protocol") if run.kind == "finetune" and "/" not in run.name]
    for method, expected in {"disagreement": 0.60, "cic": 0.53, "smm": 0.15, "ddpg": 0.52}.items():
        shares = [run.score / experts()[run.task] for run in runs if run.method == method]
        assert len(shares) == 4
        assert np.mean(shares) == pytest.approx(expected, abs=0.005)


def test_walker_defaults() -> None:
    """CIC ends at 0.80 of the expert's return."""
    table = script("walker-defaults/table.py")
    runs = [run for run in study("walker-defaults") if run.name.startswith("450k/")]
    shares = table.normalised(table.curves(runs), "cic")
    np.testing.assert_allclose(shares, [0.27, 0.47, 0.60, 0.69, 0.75, 0.80], atol=0.005)


def test_adaptation() -> None:
    """817 finetuned, 752 by the skill alone, 362 from scratch; 3 of 40 below scratch."""
    rows = script("adaptation/study.py").returns(RESULTS / "adaptation")
    alone, tuned, scratch = (np.array([row[column] for row in rows]) for column in (2, 3, 5))
    assert [round(values.mean()) for values in (alone, tuned, scratch)] == [752, 817, 362]
    assert ((tuned < scratch).sum(), len(rows)) == (3, 40)


def test_learners() -> None:
    runs = study("learners")
    means = [np.mean([r.score for r in runs if r.config["learner"] == name]) for name in ("ddpg", "td3", "sac")]
    assert [round(mean) for mean in means] == [762, 694, 430]


def test_offline() -> None:
    """774 after 30,000 updates without an environment step, seed 100."""
    (run,) = study("offline")
    assert (run.method, run.seed, run.step, round(run.score)) == ("offline-td3", 100, 30_000, 774)
    assert round(last(run, "eval/return")) == 774


def test_spaces() -> None:
    """Discrete actions and pixels learn and explore: 0.85 of the return of states, 1.4 times the cells of random."""
    runs = {run.name: run for run in study("spaces")}
    assert len(runs) == 42
    assert [name for name, run in runs.items() if run.sound is False] == ["point_mass-states-finetuned-2"]

    def mean(name: str) -> int:
        return round(np.mean([runs[f"{name}-{seed}"].score for seed in range(3)]))

    cartpole = [mean(f"cartpole-{name}") for name in ("scratch", "cic-finetuned", "diayn-finetuned")]
    assert cartpole == [455, 467, 500]
    assert [mean(f"point_mass-{name}-finetuned") for name in ("pixels", "states")] == [718, 845]
    assert [mean(f"walker-pixels-{name}") for name in ("none", "curl")] == [213, 211]
    rows = [json.loads(line) for line in (RESULTS / "spaces" / "coverage.jsonl").read_text().splitlines()]
    cells = {
        method: np.mean([r["cells"] for r in rows if (r["part"], r["method"]) == ("grid", method) and r["seed"] < 3])
        for method in ("random actions", "cic", "diayn")
    }
    assert cells["cic"] / cells["random actions"] == pytest.approx(2.4, abs=0.05)
    assert cells["diayn"] / cells["random actions"] == pytest.approx(1.3, abs=0.05)

    def visited(method: str, grid: int) -> float:
        found = [row["cells"] for row in rows if (row["method"], row.get("grid")) == (method, grid)]
        assert len(found) == 3
        return float(np.mean(found))

    early = "cic, pixels, 6,000 actions after the random ones"
    for grid, whole, first in ((20, 1.4, 2.9), (40, 1.6, 3.0), (80, 1.6, 2.6)):
        ratios = [
            visited("cic, pixels", grid) / visited("random actions", grid),
            visited(early, grid) / visited("6,000 random actions", grid),
        ]
        assert ratios == pytest.approx([whole, first], abs=0.05)


def test_methods() -> None:
    """Cells of walker: Disagreement 1.84 times as many as random actions, CIC 1.69 times."""
    cells = {run.name: last(run, "coverage/cells") for run in study("methods")}
    both = {name: cells[f"walker-{name}-0"] + cells[f"walker-{name}-1"] for name in ("random", "disagreement", "cic")}
    assert both["disagreement"] / both["random"] == pytest.approx(1.84, abs=0.005)
    assert both["cic"] / both["random"] == pytest.approx(1.69, abs=0.005)


def test_point_mass() -> None:
    """582 finetuned against 326 from scratch, seeds 0 to 2."""
    runs = [run for run in study("point-mass") if run.name.startswith("learning/") and run.kind == "finetune"]
    tuned, scratch = ([run.score for run in runs if (run.method == "cic") == wanted] for wanted in (True, False))
    assert (len(tuned), len(scratch)) == (12, 12)
    assert (round(np.mean(tuned)), round(np.mean(scratch))) == (582, 326)


def test_quadruped_representation() -> None:
    assert {run.name: last(run, "coverage/cells") for run in study("quadruped-representation")} == {
        "with": 838,
        "without": 778,
    }


def test_laptop_scale() -> None:
    """The chosen pre-training ends at 0.77 on walker and 0.81 on quadruped."""
    rows = [json.loads(line) for line in (RESULTS / "laptop-scale" / "log.jsonl").read_text().splitlines()]
    for domain, expected in {"walker": 0.77, "quadruped": 0.81}.items():
        mine = [r for r in rows if (r["domain"], r["pretrain"], r["finetune"]) == (domain, "laptop-data", "prior")]
        ends = [row["curve"]["30000"] / experts()[f"{domain}-{row['task']}"] for row in mine]
        assert np.mean(ends) == pytest.approx(expected, abs=0.005)


def test_beyond_the_paper() -> None:
    """48 skills of METRA cover 250 cells of point_mass, of DIAYN 185, of CIC 156."""
    with (RESULTS / "beyond-the-paper" / "data" / "point_mass-48-skills.csv").open(newline="") as file:
        assert [list(row.values()) for row in csv.DictReader(file)] == [
            ["metra", "250"],
            ["diayn", "185"],
            ["cic", "156"],
        ]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/choose-method.md"])
def test_tables_of_scores_in_the_documentation(page: str) -> None:
    """All methods and domains of the study are in the table, with their mean and, if given, the range of the seeds."""
    runs = [run for run in study("main-laptop") if run.kind == "finetune" and "/" not in run.name]
    scores: dict[tuple[str, str, int], list[float]] = {}
    for run in runs:
        key = (run.method, run.task.partition("-")[0], run.config["seed"])
        scores.setdefault(key, []).append(run.score / experts()[run.task])
    text = (ROOT / page).read_text(encoding="utf-8")
    header, table = re.search(
        r"^(\|[^\n]*\| walker \|[^\n]*)\n\|[-:|]+\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE
    ).groups()
    _, *domains = [cell.strip() for cell in header.strip("|").split("|")]
    assert set(domains) == {domain for _, domain, _ in scores}
    found = {}
    for line in table.splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found["ddpg" if "scratch" in name else re.search(r"`(\w+)`", name)[1]] = cells
    assert found.keys() == {run.method for run in runs}
    for method, cells in found.items():
        for domain, cell in zip(domains, cells, strict=True):
            seeds = [np.mean(values) for key, values in scores.items() if key[:2] == (method, domain)]
            mean, spread = f"{np.mean(seeds):.2f}", f"({min(seeds):.2f}–{max(seeds):.2f})"
            assert cell in (mean, f"{mean} {spread}"), (method, domain)


def test_the_steering_page_has_the_measured_numbers() -> None:
    rows = [json.loads(line) for line in (RESULTS / "steering" / "measured.jsonl").read_text().splitlines()]
    found = {row["run"]: row for row in rows}
    page = (RESULTS / "steering" / "README.md").read_text()
    walker = found["steer_walker"]["found"]
    for task in ("stand", "walk", "run", "flip"):
        assert re.search(rf"\| {task} \(.*?\) \| {walker[task]:.0f} \|", page)
    assert f"| forward | {walker['most speed']:.1f} m/s |" in page
    assert f"| backward | {-walker['least speed']:.1f} m/s |" in page
    assert f"| {found['steer_walker']['explained']['behaviour']:.2f} | 0.8 |" in page
    for run in ("quadruped-100", "q-s05", "q-s05-b1", "q-new-450"):
        row = found[run]["found"]
        moved = [abs(row[f"{end} {name}"]) for name in ("speed", "sideways") for end in ("most", "least")]
        shown = f"| {moved[0]:.1f}, {moved[1]:.1f} m/s | {moved[2]:.1f}, {moved[3]:.1f} m/s "
        assert f"{shown}| {row['stand']:.0f} | {row['walk']:.0f} |" in page


def test_the_comparison_page_has_the_returns_of_the_tables() -> None:
    page = (RESULTS / "comparison" / "README.md").read_text()
    with (RESULTS / "comparison" / "runs.csv").open(newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    for method in ("cic", "disagreement"):
        found = [
            next(row for name, row in rows.items() if name.startswith(f"finetune-{method}-jaco-{corner}-s0"))
            for corner in ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right")
        ]
        shown = " | ".join(
            f"{float(row['result.return']):.1f}" + ("" if row["sound"] == "true" else " (not sound)") for row in found
        )
        assert f"| {shown} |" in page
    trials = [float(rows[f"reach_top_left-{name}"]["result.return"]) for name in ("default", "lr3e-4", "noprior")]
    assert "{:.1f}, {:.1f} and {:.1f}".format(*trials) in page
