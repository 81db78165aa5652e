"""Reading run folders: whole, moved, being written, damaged."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_runs import finetune, pretrain, write_json

from cic.core.errors import UserError
from cic.core.paper_scores import TITLES
from cic.report import groups, warnings
from cic.runs import contents, records
from tests.helpers import steady


def one(path: Path) -> records.RunRecord:
    run = records.read_run(path)
    assert isinstance(run, records.RunRecord), run
    return run


def test_a_finished_run(tmp_path: Path) -> None:
    run = one(finetune(tmp_path, "walker-run", "cic", 3, 512.5))
    assert (run.kind, run.method, run.task, run.domain, run.seed) == ("finetune", "cic", "walker-run", "walker", 3)
    assert run.finished
    assert run.score == 512.5
    assert (run.scale, run.steps, run.pretrain_steps) == ("laptop", 100_000, 100_000)


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    made = finetune(tmp_path / "here", score=100.0)
    moved = shutil.move(made, tmp_path / "elsewhere")
    assert one(Path(moved)).score == 100.0


def test_runs_are_found_below_and_once(tmp_path: Path) -> None:
    finetune(tmp_path / "a" / "deep", seed=0)
    pretrain(tmp_path / "b", seed=1)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    runs, problems = records.read([tmp_path, tmp_path / "a", tmp_path / "b" / "pretrain-walker-cic-1"])
    assert [run.kind for run in runs] == ["finetune", "pretrain"]
    assert problems == []


def test_checkpoints_are_not_runs(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    write_json(run / "checkpoints" / "000001000" / "config.json", {"anything": 1})
    runs, problems = records.read([tmp_path])
    assert len(runs) == 1
    assert problems == []


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        records.read([tmp_path / "nowhere"])


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    runs, problems = records.read([tmp_path])
    assert runs == []
    assert "no run folder" in problems[0]


# ---- damaged -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", "{}", '{"format": 1, "kind": "pretrain"}'),
        '{"format": 1, "kind": "other", "config": {}}',
        '{"format": 99, "kind": "pretrain", "config": {}}',
        '{"format": 1, "kind": "finetune", "config": {"seed": 0}}',
    ],
)
def test_a_bad_config_costs_one_run(tmp_path: Path, content: str) -> None:
    finetune(tmp_path, seed=0)
    (finetune(tmp_path, seed=1, name="bad") / "config.json").write_text(content)
    runs, problems = records.read([tmp_path])
    assert len(runs) == 1
    assert len(problems) == 1
    assert problems[0].startswith("bad: config.json")


@pytest.mark.parametrize("file", ["config.json", "status.json", "result.json", "metrics.jsonl", "trials.json"])
def test_an_unreadable_file_is_no_crash(tmp_path: Path, file: str) -> None:
    """A folder where a file should be cannot be read even by root."""
    run = finetune(tmp_path)
    (run / file).unlink()
    (run / file).mkdir()
    runs, problems = records.read([tmp_path])
    for each in runs:
        problems += [contents.metrics(each)[1], contents.selection(each)[1]]
    assert any("cannot be read" in problem for problem in problems)


def test_binary_rubbish_is_no_crash(tmp_path: Path) -> None:
    for file in ("config.json", "status.json", "result.json", "metrics.jsonl", "trials.json"):
        run = finetune(tmp_path, name=file.replace(".", "-"))
        (run / file).write_bytes(bytes(range(256)) * 4)
    runs, problems = records.read([tmp_path])
    assert len(runs) == 4
    assert len(problems) == 3  # metrics and trials are read later
    broken = next(run for run in runs if run.name == "metrics-jsonl")
    series, problem = contents.metrics(broken)
    assert series == {}
    assert "broken line" in problem


def test_finished_without_a_result_has_no_score(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    (run / "result.json").unlink()
    found = one(run)
    assert not found.finished
    assert math.isnan(found.score)
    assert "no result.json" in found.problems[0]


@pytest.mark.parametrize("text", ["NaN", "null", '"many"', "true", "Infinity", "1e308", "1" + 400 * "0"])
def test_a_return_that_is_no_number(tmp_path: Path, text: str) -> None:
    run = finetune(tmp_path)
    (run / "result.json").write_text(f'{{"return": {text}}}')
    assert not math.isfinite(one(run).score)


@pytest.mark.parametrize("state", ["running", "failed", "interrupted", None])
def test_the_result_decides_whatever_the_status_is(tmp_path: Path, state: str | None) -> None:
    """A run may be killed between its result and its last status."""
    run = finetune(tmp_path, state=state or "running", steps=50_000)
    assert math.isnan(one(run).score)
    write_json(run / "result.json", {"return": 5.0, "step": 50_000})
    if state is None:
        (run / "status.json").unlink()
    found = one(run)
    assert (found.state, found.finished, found.score, found.step) == ("finished", True, 5.0, 50_000)
    assert found.problems == ()


def test_a_run_without_a_status_is_starting_for_a_while(tmp_path: Path) -> None:
    run = finetune(tmp_path, state="running")
    (run / "status.json").unlink()
    assert one(run).state == "starting"
    assert one(run).going_on
    hours_ago = time.time() - 7200
    os.utime(run / "config.json", (hours_ago, hours_ago))
    assert one(run).state == "unknown"
    assert not one(run).going_on


# ---- layouts -------------------------------------------------------------------------------------------------------


def test_format_2_reads_without_its_removed_settings(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    current = one(run)
    header = json.loads((run / "config.json").read_text())
    old = {"pull": 0.0, "pull_updates": 1000, "critic_rank": 0.0, "second_proposal": False}
    write_json(run / "config.json", header | {"format": 2, "config": header["config"] | old})
    assert one(run).config == current.config
    assert one(run).score == current.score


@pytest.mark.parametrize("layout", [1, 4, None, "3", [3]])
def test_other_formats_are_left_out(tmp_path: Path, layout: Any) -> None:
    run = finetune(tmp_path)
    header = json.loads((run / "config.json").read_text())
    write_json(run / "config.json", header | {"format": layout})
    problem = records.read_run(run)
    assert isinstance(problem, str)
    assert f"has format {layout!r}, this version reads 2 and 3; left out" in problem


def test_the_run_states_the_title_of_its_method(tmp_path: Path) -> None:
    run = finetune(tmp_path, method="surprise")
    assert one(run).title == "surprise"
    header = json.loads((run / "config.json").read_text())
    write_json(run / "config.json", header | {"title": "Surprise!"})
    assert one(run).title == "Surprise!"
    for odd in (3, "", "x" * 1000, None):
        write_json(run / "config.json", header | {"title": odd})
        assert one(run).title == "surprise"


def test_titles_are_those_of_the_objectives() -> None:
    from cic.learning.objectives import get_objective

    assert {name: get_objective(name).title for name in TITLES} == TITLES


# ---- files that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["config.json", "status.json", "result.json", "metrics.jsonl", "trials.json"])
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path, file: str) -> None:
    run = finetune(tmp_path)
    (run / file).unlink()
    os.mkfifo(run / file)
    runs, problems = records.read([tmp_path])
    assert runs == []
    assert f"{file} is not a regular file" in problems[0]


@pytest.mark.parametrize("file", ["config.json", "result.json", "pictures"])
def test_a_run_with_a_link_is_left_out(tmp_path: Path, file: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = finetune(tmp_path / "runs")
    (run / file).unlink(missing_ok=True)
    (run / file).symlink_to(tmp_path / "elsewhere")
    runs, problems = records.read([tmp_path / "runs"])
    assert runs == []
    assert f"{file} is a link" in problems[0]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to / would make `cic runs` read the whole machine."""
    finetune(tmp_path / "elsewhere")
    finetune(tmp_path / "runs", seed=1)
    (tmp_path / "runs" / "link").symlink_to(tmp_path)
    (tmp_path / "shortcut").symlink_to(tmp_path / "runs")
    runs, problems = records.read([tmp_path / "shortcut"])  # the user's own
    assert [run.seed for run in runs] == [1]
    assert problems == []


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    for file in ("result.json", "metrics.jsonl"):
        with (run / file).open("r+b") as handle:
            handle.truncate(10**12)  # sparse: it takes no room on the disk
    found = one(run)
    assert "larger than" in found.problems[0]
    assert "larger than" in contents.metrics(found)[1]


@pytest.mark.parametrize("state", ["finished", "running"])
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_lost_metrics_are_named(tmp_path: Path, state: str, damage: str) -> None:
    run = finetune(tmp_path, state=state, log_every=1000)
    (run / "metrics.jsonl").unlink()
    if damage == "empty":
        (run / "metrics.jsonl").touch()
    assert f"metrics.jsonl is {damage}" in contents.metrics(one(run))[1]
    write_json(run / "status.json", {"state": "running", "step": 900})  # nothing was logged yet
    (run / "result.json").unlink(missing_ok=True)
    assert contents.metrics(one(run)) == ({}, "")


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", '{"trials": 3}', '{"trials": [1]}'])
def test_damaged_trials_are_named(tmp_path: Path, content: str) -> None:
    run = finetune(tmp_path)
    (run / "trials.json").write_text(content)
    found, problem = contents.selection(one(run))
    assert found is None
    assert "trials.json" in problem
    (run / "trials.json").unlink()
    assert contents.selection(one(run)) == (None, "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "objective",
    "seed",
    "task",
    "domain",
    "scale",
    "steps",
    "pretrain_steps",
    "agent",
    "learning",
    "options",
    "pretrained",
]


@settings(steady, max_examples=60)
@given(
    config=st.dictionaries(st.sampled_from(KEYS), JSON),
    status=st.dictionaries(st.sampled_from(["state", "step", "message", "updated"]), JSON),
    result=st.dictionaries(st.just("return"), JSON),
    rows=st.lists(st.dictionaries(st.sampled_from(["step", "eval/return", "x"]), JSON) | JSON, max_size=4),
    trials=st.dictionaries(st.sampled_from(["method", "chosen", "trials"]), JSON),
    layout=st.sampled_from(records.FORMATS),
    header=st.dictionaries(st.sampled_from(["title", "versions", "command", "version"]), JSON),
)
def test_any_json_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory,
    config: Any,
    status: Any,
    result: Any,
    rows: Any,
    trials: Any,
    layout: int,
    header: Any,
) -> None:
    """Values of every type in every place, up to the grouping of runs."""
    folder = tmp_path_factory.mktemp("any")
    for kind in ("pretrain", "finetune"):
        base = {"objective": "cic", "seed": 0, "task": "walker-run", "domain": "walker"}
        document = {"format": layout, "kind": kind, "config": base | config, **header}
        write_json(folder / kind / "config.json", document)
        write_json(folder / kind / "status.json", status)
        write_json(folder / kind / "result.json", result)
        write_json(folder / kind / "trials.json", trials)
        (folder / kind / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs, _ = records.read([folder])
    assert len(runs) == 2
    said: list[str] = []
    kept = warnings.without_duplicates(runs, said)
    study = groups.study(kept, said)
    warnings.same_seeds(study.groups, said)
    warnings.states(kept, said)
    warnings.budgets(study.finetune, said)
    for run in kept:
        contents.metrics(run)
        contents.selection(run)


# ---- metrics -------------------------------------------------------------------------------------------------------


def test_a_cut_off_last_line_is_normal(tmp_path: Path) -> None:
    run = finetune(tmp_path, points=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4000, "eval/ret')
    series, problem = contents.metrics(one(run))
    assert problem == ""
    assert len(series["eval/return"].steps) == 3


def test_a_broken_line_in_the_middle_is_reported(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = "\0\0\0"
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    series, problem = contents.metrics(one(run))
    assert len(series["eval/return"].steps) == 9
    assert "1 broken line" in problem


def test_metrics_are_sorted_and_a_step_counts_once(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    rows = [{"step": 20, "eval/return": 2.0}, {"step": 10, "eval/return": 1.0}, {"step": 20, "eval/return": 3.0}]
    rows += [{"step": 30, "eval/return": None}, {"step": None, "eval/return": 9.0}, {"step": 40, "note": "text"}]  # type: ignore[dict-item, list-item]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    series, _ = contents.metrics(one(run))
    assert series["eval/return"].steps.tolist() == [10, 20, 30]
    assert series["eval/return"].values[:2].tolist() == [1, 3]
    assert "note" not in series


def test_only_wanted_metrics_are_kept(tmp_path: Path) -> None:
    run = one(pretrain(tmp_path, points=5))
    series, _ = contents.metrics(run, ("zero_shot/",))
    assert set(series) == {"zero_shot/flip", "zero_shot/run", "zero_shot/stand", "zero_shot/walk"}


def test_trials(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    found, problem = contents.selection(one(run))
    assert problem == ""
    assert found is not None
    assert len(found.trials) == 40
    assert found.chosen == max(range(40), key=lambda index: found.trials[index].score)
    write_json(run / "trials.json", {"method": "regress", "chosen": None, "trials": [{"skill": None, "return": None}]})
    found, _ = contents.selection(one(run))
    assert found is not None
    assert found.chosen is None
