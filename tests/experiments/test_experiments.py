"""`cic reproduce`: plans, runs that are done once, measurements against independent ones, gaps, and wrong input."""

from __future__ import annotations

import base64
import csv
import itertools
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import mujoco
import numpy as np
import pytest
from helpers import build_objective, random_batch
from scipy.stats import trim_mean

import cic
from cic import cli
from cic.core.paper_scores import experts
from cic.envs.suite.domain import suite_file
from cic.experiments import beyond, reproduction
from cic.experiments.all_experiments import EXPERIMENTS, get_experiment, merge, plan_runs
from cic.experiments.experiment import SCALES, ExperimentSetup, tasks_of
from cic.experiments.experiment_runs import ExperimentRun, ExperimentRuns
from cic.experiments.measurements import measure, measured_file, read_measured, read_picture
from cic.experiments.output_folder import OutputFolder
from cic.experiments.paper import flow, gridworld_skills, static
from cic.experiments.zero_shot_returns import at_the_end
from cic.report.figures import svgs
from cic.runs.contents import Series
from cic.sweep import worker
from cic.sweep.plan import Entry, read_plan
from cic.sweep.specs import RunSpec

SHORT = ["--set", "steps=160", "milestones=[]"]
QUIET = ["--scale", "smoke", "--slots", "1", "--quiet"]
GRIDWORLD = ["reproduce", "gridworld", *QUIET, "--seeds", "3", *SHORT, "--out"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gridworld experiment, one seed."""
    out = tmp_path_factory.mktemp("reproduced") / "out"
    assert cli.main([*GRIDWORLD, str(out)]) == 0
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


@pytest.fixture
def _unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made for the page, but no PNG and PDF: those take most of the time."""
    monkeypatch.setattr(reproduction, "FIGURES", ())


TABLES = ("runs.csv", "curves.csv.gz", "measurements.json")


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# ---- plans -----------------------------------------------------------------------------------------------------


def test_every_file_is_an_experiment_with_a_question_and_a_claim() -> None:
    files = {path.stem for path in Path(gridworld_skills.__file__).parent.glob("[a-z]*.py")}
    modules = [type(experiment).__module__.rpartition(".") for experiment in EXPERIMENTS.values()]
    assert files == {name for package, _, name in modules if package == "cic.experiments.paper"}
    for experiment in EXPERIMENTS.values():
        for text in (experiment.title, experiment.question, experiment.claim, experiment.shows):
            assert len(text) > 10
        assert experiment.question.endswith("?")


@pytest.mark.parametrize("scale", SCALES)
def test_plans_are_complete_at_every_scale(scale: str) -> None:
    """Every config is one that cic accepts, and folders tell all runs apart."""
    parts = [plan_runs(experiment, ExperimentSetup(scale)) for experiment in EXPERIMENTS.values()]
    plan = merge(parts)
    assert len(plan.runs) < sum(map(len, parts))  # shared
    assert all(Counter(run.entry.name for run in part).most_common(1)[0][1] == 1 for part in parts)
    seeds = {entry.config["scale"] for entry in plan.runs if entry.kind == "pretrain"}
    assert seeds == {scale}


def test_the_main_experiment_is_that_of_the_paper() -> None:
    runs = plan_runs(get_experiment("main"), ExperimentSetup("paper"))
    tuned = [run for run in runs if run.entry.kind == "finetune"]
    assert {run.entry.config["task"] for run in tuned} == set(experts())
    assert len(tuned) == 10 * 12 * 10  # nine methods and DDPG
    assert len(runs) - len(tuned) == 9 * 3 * 10
    adapted = [run.entry.config for run in tuned if run.entry.after]
    assert len(adapted) == 9 * 12 * 10
    assert all((config["search"], config["prior_data"]) == ("paper", 0) for config in adapted), "and nothing else"
    assert [run.entry for run in runs] == [
        run.entry for run in plan_runs(get_experiment("curves"), ExperimentSetup("paper"))
    ]


def test_at_laptop_scale_a_finetuning_has_what_the_scale_has_unless_the_papers_protocol_is_asked_for() -> None:
    def adapted(*settings: str) -> list[dict[str, Any]]:
        runs = get_experiment("main").runs(ExperimentSetup("laptop", (0,), "walker", settings))
        return [run.entry.config for run in runs if run.entry.after]

    assert all(config.keys() == {"task", "seed"} for config in adapted())
    asked = adapted("finetune.search=paper", "finetune.prior_data=0")
    assert all((config["search"], config["prior_data"]) == ("paper", 0) for config in asked)


def test_experiments_share_the_runs_that_they_have_in_common() -> None:
    names = {
        name: {
            run.entry.name
            for run in plan_runs(get_experiment(name), ExperimentSetup("paper"))
            if run.entry.kind == "pretrain"
        }
        for name in ("representation", "projection", "dimension", "sweep", "adaptation", "main", "rewards")
    }
    plain = names["sweep"]
    assert len(plain) == 3
    assert all(plain <= others for others in names.values())


def test_what_the_user_sets_counts() -> None:
    setup = ExperimentSetup("laptop", (7,), "walker", ("steps=20000", "finetune.eval_episodes=3"))
    runs = plan_runs(get_experiment("adaptation"), setup)
    assert {run.entry.config["seed"] for run in runs} == {7}
    assert {run.entry.config.get("steps") for run in runs if run.entry.kind == "pretrain"} == {20000}
    tuned = [run.entry.config for run in runs if run.entry.kind == "finetune"]
    assert {config["eval_episodes"] for config in tuned} == {3}
    assert {config["task"] for config in tuned} == {"walker-stand", "walker-run"}
    assert {config["search"] for config in tuned} == {"grid", "random", "cem", "cma", "fixed"}


def test_several_domains_are_run_side_by_side() -> None:
    both = get_experiment("main").runs(ExperimentSetup("smoke", domain="walker, quadruped"))
    alone = [get_experiment("main").runs(ExperimentSetup("smoke", domain=domain)) for domain in ("walker", "quadruped")]
    assert both == [*alone[0], *alone[1]]


def test_a_domain_without_the_papers_tasks_has_all_of_its_own() -> None:
    assert tasks_of("quadruped", ("stand", "run")) == ("stand", "run")
    assert len(tasks_of("point_mass", ("stand",))) == 5


def test_a_plan_can_be_written_for_cic_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "flow", "--scale", "laptop", "--plan", str(tmp_path / "p.json")]) == 0
    assert len(read_plan(tmp_path / "p.json").runs) == 3
    assert "3 runs" in capsys.readouterr().out


# ---- one experiment from the command to its figure -------------------------------------------------------------


def test_figure_data_and_page_are_there(made: Path) -> None:
    folder = made / "gridworld"
    for name in ("gridworld.png", "gridworld.pdf", "gridworld_numbers.png", "data.csv", "gridworld.md", "page.html"):
        assert (folder / name).stat().st_size > 100, name
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["done"] == summary["runs"] == 4
    assert summary["command"] == "cic reproduce gridworld --scale smoke --seeds 3 --set steps=160 'milestones=[]'"
    page = (folder / "page.html").read_text()
    assert summary["claim"] in page
    assert summary["result"] in page
    assert str(made) not in page + json.dumps(summary)


def test_gridworld_counts_cells(made: Path) -> None:
    """From the paths alone, with sets and logarithms."""
    for row in rows(made / "gridworld" / "data.csv"):
        (run,) = [
            path
            for path in (made / "runs").glob("pretrain-*")
            if _variant(path) == (row["variant"].split(",")[0].lower(), int(row["skills"]))
        ]
        paths = json.loads((run / "measured" / "gridworld.json").read_text())["values"]["paths"]
        assert len(paths) == int(row["skills"])
        for path in itertools.chain(*paths):
            assert len(path) == 50
            for a, b in itertools.pairwise(path):  # a step is to a neighbour, or against a wall
                assert abs(a % 10 - b % 10) + abs(a // 10 - b // 10) <= 1
        assert int(row["visited"]) == len(set(itertools.chain(*itertools.chain(*paths))))
        late = [[cell for path in starts for cell in path[25:]] for starts in paths]
        assert int(row["settled"]) == len(set(itertools.chain(*late)))
        whole = Counter(itertools.chain(*late))
        total = sum(whole.values())
        entropy = -sum(n / total * math.log(n / total) for n in whole.values())
        inside = [-sum(n / len(c) * math.log(n / len(c)) for n in Counter(c).values()) for c in late]
        expected = (entropy - sum(inside) / len(inside)) / math.log(len(late))
        assert float(row["information"]) == pytest.approx(expected, abs=1e-9)


def _variant(path: Path) -> tuple[str, int]:
    config = json.loads((path / "config.json").read_text())["config"]
    return config["objective"], config["options"]["skill_dim"]


def test_the_starts_are_those_of_the_gridworld(made: Path) -> None:
    env = cic.envs.make("gridworld", num_envs=64, seed=0)
    env.reset(seed=0)
    assert {tuple(cell) for cell in env.physics().astype(int)} == set(gridworld_skills.STARTS)


def test_information_is_that_of_skills_that_are_distinguished() -> None:
    apart = np.array([[1, 1], [2, 2], [3, 3], [4, 4]])
    assert gridworld_skills.information(apart)[0] == pytest.approx(math.log(4))
    assert gridworld_skills.information(np.ones((4, 2), np.int64))[0] == pytest.approx(0)


@pytest.mark.usefixtures("_unsaved")
def test_what_is_done_is_not_done_again(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("was done already")

    monkeypatch.setattr(worker, "train_run", refuse)
    monkeypatch.setattr("cic.experiments.reproduction.measure", refuse)
    assert cli.main([*GRIDWORLD, str(copy)]) == 0


def test_a_figure_comes_from_the_run_folders_alone(made: Path, copy: Path) -> None:
    """Without weights, without what was drawn."""
    for path in copy.rglob("*.safetensors"):
        path.unlink()
    kept = {name: (made / "gridworld" / name).read_bytes() for name in ("data.csv", "gridworld.png", "gridworld.pdf")}
    for name in kept:
        (copy / "gridworld" / name).unlink()
    assert cli.main(["reproduce", "gridworld", "--draw", "--out", str(copy)]) == 0
    assert {name: (copy / "gridworld" / name).read_bytes() for name in kept} == kept
    assert cli.main(["reproduce", "all", "--draw", "--out", str(copy)]) == 0
    assert get_experiment("gridworld").title in (copy / "index.html").read_text()


def test_a_figure_comes_from_the_tables_alone(made: Path, copy: Path) -> None:
    """As a study is committed: tables and setup, without run folders."""
    shutil.rmtree(copy / "runs")
    kept = {name: (made / "gridworld" / name).read_bytes() for name in ("data.csv", "gridworld.png", "summary.json")}
    for name in kept:
        (copy / "gridworld" / name).unlink()
    assert cli.main(["reproduce", "gridworld", "--draw", "--out", str(copy)]) == 0
    assert {name: (copy / "gridworld" / name).read_bytes() for name in kept} == kept
    assert {path.name for path in copy.glob("[a-z]*.*")} == {"reproduce.json", *TABLES}


@pytest.mark.usefixtures("_unsaved")
def test_tables_keep_the_runs_whose_folders_are_gone(copy: Path) -> None:
    before = rows(copy / "runs.csv")
    (gone,) = copy.glob("runs/pretrain-dads-*")
    shutil.rmtree(gone)
    measured = json.loads((copy / "measurements.json").read_text())
    OutputFolder(copy).write_tables()
    assert sorted(rows(copy / "runs.csv"), key=str) == sorted(before, key=str)
    assert json.loads((copy / "measurements.json").read_text()) == measured


@pytest.mark.usefixtures("_unsaved")
def test_runs_are_found_though_a_later_version_would_name_them_otherwise(made: Path, copy: Path) -> None:
    (run,) = copy.glob("runs/pretrain-dads-*")
    run.rename(run.with_name("older"))
    setup = copy / "gridworld" / "setup.json"
    setup.write_text(setup.read_text().replace(run.name, "older"))
    assert cli.main(["reproduce", "gridworld", "--draw", "--out", str(copy)]) == 0
    assert (copy / "gridworld" / "data.csv").read_bytes() == (made / "gridworld" / "data.csv").read_bytes()


@pytest.mark.usefixtures("_unsaved")
def test_a_failed_run_is_a_gap_that_a_rerun_fills(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken,) = copy.glob("runs/pretrain-dads-*")
    shutil.rmtree(broken)
    genuine, trained = worker.train_run, []

    def fail(spec: RunSpec, path: Path, source: Path | None) -> None:
        raise RuntimeError("the disk caught fire")

    monkeypatch.setattr(worker, "train_run", fail)
    assert cli.main([*GRIDWORLD, str(copy)]) == 1
    said = capsys.readouterr()
    assert "the disk caught fire" in said.err
    assert "DADS, 4 skills visit no runs" in said.out
    summary = json.loads((copy / "gridworld" / "summary.json").read_text())
    assert (summary["done"], summary["missing"]) == (3, [broken.name])
    assert "DADS, 4 skills (0 of 1 runs)" in _svg_text(copy)

    def count(spec: RunSpec, path: Path, source: Path | None) -> None:
        trained.append(spec.folder)
        genuine(spec, path, source)

    monkeypatch.setattr(worker, "train_run", count)
    assert cli.main([*GRIDWORLD, str(copy)]) == 0
    assert trained == [broken.name]


def _svg_text(out: Path) -> str:
    """The page's pictures as text."""
    page = (out / "gridworld" / "page.html").read_text()
    return " ".join(base64.b64decode(part).decode() for part in re.findall(r"svg\+xml;base64,([\w+/=]+)", page))


# ---- measurements ----------------------------------------------------------------------------------------------


def test_a_measurement_is_made_once(tmp_path: Path) -> None:
    calls = []

    def counted(run: Path, scale: str) -> dict[str, Any]:
        calls.append(scale)
        return {"value": 1.5}

    assert measure(tmp_path, "x", "smoke", counted) == measure(tmp_path, "x", "smoke", counted) == {"value": 1.5}
    assert calls == ["smoke"]
    assert read_measured(tmp_path, "x", "paper") is None
    (tmp_path / "measured" / "x.json").write_text("{")
    assert read_measured(tmp_path, "x", "smoke") is None
    measure(tmp_path, "x", "smoke", counted)
    assert len(calls) == 2


def test_the_flow_is_that_of_mujoco(tmp_path: Path) -> None:
    """The same policy from the same places, stepped by MuJoCo itself."""
    out = tmp_path / "out"
    assert cli.main(["reproduce", "flow", *QUIET, *SHORT, "--out", str(out)]) == 0
    assert (out / "flow" / "flow.png").exists()
    (run,) = (out / "runs").glob("pretrain-*")
    found = json.loads((run / "measured" / "flow.json").read_text())["values"]
    agent, model = cic.load(run), mujoco.MjModel.from_xml_path(suite_file("point_mass.xml"))
    for value, moved in zip(found["values"], found["moved"], strict=True):
        for place in (0, 12, 24):
            data = mujoco.MjData(model)
            data.qpos[:] = found["places"][place]
            for _ in range(flow.STEPS):
                obs = np.concatenate([data.qpos, data.qvel])[None].astype(np.float32)
                data.ctrl[:] = np.clip(agent.act(obs, np.full((1, 1), value, np.float32))[0], -1, 1)
                mujoco.mj_step(model, data)
            np.testing.assert_allclose(data.qpos - found["places"][place], moved[place], atol=1e-5)


@pytest.mark.parametrize("name", [name for name in static.BODIES if name != "gridworld"])
def test_bodies_are_those_of_the_models(name: str) -> None:
    env, body = cic.envs.make(name, num_envs=1, seed=0), static.BODIES[name]
    model, suite = env._suite.model, env._suite  # type: ignore[attr-defined]
    assert body.positions == model.nq
    assert body.seconds == pytest.approx(model.opt.timestep * suite.substeps)
    first = model.joint(0)
    if first.type == mujoco.mjtJoint.mjJNT_FREE or name == "point_mass":
        assert body.ground == (0, 1)
    else:
        assert body.ground == (model.joint("rootx").qposadr[0],)
    env.close()


@pytest.mark.parametrize(("width", "learns"), [(flow.WIDTH, True), (None, False)])
def test_skills_of_one_dimension_need_wider_embeddings(width: int | None, learns: bool) -> None:
    """As wide as the skill, the normalised embeddings are signs: the loss has no gradient but rounding's."""
    objective = build_objective("cic", skill_dim=1, embedding=width)
    batch = random_batch(16, 3, 2, 1)
    objective.loss(batch)[0].backward()
    slopes = sum(float(weight.grad.abs().sum()) for weight in objective.parameters() if weight.grad is not None)
    assert (slopes > 1e-2) == learns


def test_the_numbers_of_a_flow() -> None:
    """Four skills, each in one direction: three quarters of the circle, and a quarter of the edge moves goes out."""
    side = np.linspace(-flow.EDGE, flow.EDGE, 5)
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    ways = [[0.1, 0.0], [0.0, 0.1], [-0.1, 0.0], [0.0, -0.1]]
    moved = [[way] * len(places) for way in ways]
    member = ExperimentRun(
        "CIC", Entry("a", "pretrain", {"seed": 0}), None, {"flow": {"places": places, "moved": moved}}
    )
    (span,), (inward,), (length,) = flow._numbers([member])
    assert span == pytest.approx(270)
    assert length == pytest.approx(0.1)
    assert inward == pytest.approx(0.75)


def test_beyond_is_held_against_the_released_method() -> None:
    """IQMs and their differences by SciPy's trimmed mean; every variant with its preset's skills."""
    experiment = beyond.Beyond()
    rng = np.random.default_rng(0)
    scores = {
        domain: {
            variant: {f"{domain}-{task}": list(rng.random(4) + 0.1 * place) for task in ("stand", "walk")}
            for place, variant in enumerate(experiment.variants)
        }
        for domain in ("walker", "quadruped")
    }
    shares = {variant: [0.1 * place, 0.3 * place] for place, variant in enumerate(experiment.variants)}
    table, said = experiment._compared(scores, shares)
    found = {(record["variant"], record["domain"]): record for record in table.records}

    def pooled(variant: str, domains: Sequence[str]) -> list[float]:
        return [score for domain in domains for many in scores[domain][variant].values() for score in many]

    for place, variant in enumerate(experiment.variants):
        for name, domains in (("walker", ["walker"]), ("quadruped", ["quadruped"]), ("all", list(scores))):
            own, base = (trim_mean(pooled(v, domains), 0.25) for v in (variant, "released"))
            record = found[variant, name]
            assert record["iqm"] == pytest.approx(own)
            assert record["above"] == pytest.approx(own - base, abs=1e-12)
            assert record["above_low"] <= record["above"] <= record["above_high"]
            assert record["explained"] == pytest.approx(0.2 * place)
    assert f"released {found['released', 'all']['iqm']:.2f}" in said
    assert "(48 finetunings)" in said


def test_beyond_finetunes_one_released_pretraining_in_two_ways() -> None:
    runs = plan_runs(get_experiment("beyond"), ExperimentSetup("laptop", (3,), "walker"))
    before = {run.entry.name: run for run in runs if run.entry.kind == "pretrain"}
    assert [run.variant for run in before.values()] == ["released", "distinct"]
    after = {run.variant: run.entry for run in runs if run.entry.kind == "finetune"}
    assert before[after["released"].after[0]] is before[after["released, relabelled replay"].after[0]]
    assert {variant: entry.config["prior_data"] for variant, entry in after.items()} == {
        "released": 0,
        "released, relabelled replay": 0.5,
        "distinct": 0.5,
    }


def test_the_last_quarter() -> None:
    steps = np.arange(100.0, 1100.0, 100.0)
    assert at_the_end(Series(steps, steps)) == pytest.approx((800 + 900 + 1000) / 3)
    assert math.isnan(at_the_end(None))


def test_a_label_states_how_many_runs_there_are() -> None:
    members = [
        ExperimentRun("CIC", Entry(str(seed), "pretrain", {"seed": seed, "domain": "walker"}), None) for seed in (0, 1)
    ]
    found = ExperimentRuns(ExperimentSetup(), members)
    assert found.label("CIC") == "CIC (0 of 2 runs)"
    assert found.of("CIC") == []


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_without_a_single_run_still_has_a_figure(name: str) -> None:
    """The worst gap; figures must not be in the way of the others."""
    experiment = get_experiment(name)
    members = [ExperimentRun(run.variant, run.entry, None) for run in experiment.runs(ExperimentSetup("smoke"))]
    result = experiment.result(ExperimentRuns(ExperimentSetup("smoke"), members))
    assert result.summary
    for plot in result.plots:
        assert all(image.startswith("<svg") for image in svgs(plot))


# ---- the list --------------------------------------------------------------------------------------------------


def test_the_list_names_all_and_times_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cic.envs, "make", None)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(EXPERIMENTS)
    assert lines[1].split()[1:4] == ["8", "441", "1470"]
    assert EXPERIMENTS["main"].question in lines[1]


# ---- wrong input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gridwrold"], 'unknown experiment "gridwrold"; did you mean "gridworld"?'),
        ([], "give the name of an experiment, or all"),
        (["flow", "--scale", "huge"], "--scale: unknown value"),
        (["flow", "--domain", "walker"], "flow is about point_mass: omit --domain"),
        (["sweep", "--domain", "wlaker"], 'unknown domain "wlaker"; did you mean "walker"?'),
        (["main", "--domain", "walker,jacco"], 'unknown domain "jacco"; did you mean "jaco"?'),
        (["dimension", "--domain", "walker,quadruped"], "dimension shows one domain"),
        (["static", "--domain", "jaco"], "the experiment static does not support jaco"),
        (["sweep", "--seeds", "a"], "seeds are numbers and ranges"),
        (["sweep", "--set", "steps=1,2"], "one value of each setting"),
        (["sweep", "--set", "stepz=1"], 'sweep: run "cic-quadruped-s0-CIC" of the plan: unknown setting "stepz"'),
        (["sweep", "--draw"], "holds no experiments yet"),
        (["sweep", "--slots", "0"], "slots must be at least 1"),
    ],
)
def test_mistakes_are_one_message(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("_unsaved")
def test_a_folder_of_another_scale_or_version_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "gridworld", "--scale", "laptop", "--out", str(copy)]) == 2
    assert "at scale smoke, this is" in capsys.readouterr().err
    (copy / "reproduce.json").write_text(json.dumps({"format": 1, "version": "0.1.9", "scale": "smoke"}))
    assert cli.main([*GRIDWORLD, str(copy)]) == 2
    assert "was made by cic 0.1.9 at scale smoke" in capsys.readouterr().err
    assert cli.main(["reproduce", "gridworld", "--draw", "--out", str(copy)]) == 0  # looking is allowed
    assert "made by cic 0.1.9" in capsys.readouterr().err
    (copy / "reproduce.json").write_text("{}")
    assert cli.main([*GRIDWORLD, str(copy)]) == 2
    assert "damaged or of another version" in capsys.readouterr().err


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    assert cli.main([*GRIDWORLD, str(tmp_path)]) == 2
    assert "contains something else than experiments" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_commands_that_begin_together_share_a_folder(tmp_path: Path) -> None:
    """Each makes the folder, and writes what was asked of it: all of it succeeds, and what is there is whole."""
    experiment, together = get_experiment("gridworld"), Barrier(6)

    def command(seed: int) -> None:
        setup = ExperimentSetup("smoke", (seed,))
        plan = plan_runs(experiment, setup)
        together.wait()
        for _ in range(20):
            folder = OutputFolder(tmp_path / "out")
            folder.prepare("smoke")
            folder.write_setup(experiment.name, setup, plan)
            assert folder.read_setup(experiment.name) is not None

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(command, range(6)))
    left = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*"))
    assert left == [".lock", "gridworld", "gridworld/setup.json", "reproduce.json", "runs"]


def test_drawing_what_was_not_run(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "flow", "--draw", "--out", str(copy)]) == 2
    assert "flow was not run in" in capsys.readouterr().err
    setup = copy / "gridworld" / "setup.json"
    good = setup.read_text()
    for bad in (
        "{",
        "[]",
        '{"scale": 3}',
        good.replace('"smoke"', "7"),
        good.replace("pretrain-dads", "../pretrain-dads"),
    ):
        setup.write_text(bad)
        assert cli.main(["reproduce", "gridworld", "--draw", "--out", str(copy)]) == 2
        assert "setup.json is damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("_unsaved")
def test_a_measurement_is_not_written_through_a_link(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = copy.glob("runs/pretrain-dads-*")
    shutil.rmtree(run / "measured")
    (tmp_path / "elsewhere").mkdir()
    (run / "measured").symlink_to(tmp_path / "elsewhere")
    assert cli.main([*GRIDWORLD, str(copy)]) == 1
    assert "measured is a link" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_only_files_that_a_measurement_left_are_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "measured").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"x")
    (run / "measured" / "mine.png").write_bytes(b"x")
    (run / "measured" / "link.png").symlink_to(tmp_path / "secret.png")
    assert measured_file(run / "measured", "mine.png", ".png") == run / "measured" / "mine.png"
    for name in ("../../secret.png", str(tmp_path / "secret.png"), "link.png", "none.png", "mine.mp4", 3, None):
        assert measured_file(run / "measured", name, ".png") is None
    assert "cannot be read" in read_picture(run / "measured", "mine.png")
    assert "missing" in read_picture(run / "measured", "../../secret.png")
    assert read_picture(run / "measured", "rendering needs OpenGL") == "rendering needs OpenGL"


@pytest.mark.usefixtures("_unsaved")
@pytest.mark.parametrize("values", [{}, {"paths": "x"}, {"paths": [[[1e9]]]}])
def test_odd_measurements_cost_the_figure_and_nothing_else(
    values: dict[str, Any], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = copy.glob("runs/pretrain-dads-*")
    (run / "measured" / "gridworld.json").write_text(json.dumps({"scale": "smoke", "values": values}))
    assert cli.main(["reproduce", "all", "--draw", "--out", str(copy)]) == 1
    assert "the figure could not be made" in capsys.readouterr().err
    assert "The figure could not be made." in (copy / "index.html").read_text()
