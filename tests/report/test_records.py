"""Reading run folders: whole, moved, being written, damaged."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_runs import finetune, pretrain, write_json

from cic.core.errors import UserError
from cic.report import groups, notices
from cic.runs import records


def one(path: Path) -> records.Run:
    run = records.read_run(path)
    assert isinstance(run, records.Run), run
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


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
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
        problems.append(records.metrics(each)[1])
        records.trials(each)
    assert any("cannot be read" in problem for problem in problems) or file == "trials.json"


def test_binary_rubbish_is_no_crash(tmp_path: Path) -> None:
    for file in ("config.json", "status.json", "result.json", "metrics.jsonl", "trials.json"):
        run = finetune(tmp_path, name=file.replace(".", "-"))
        (run / file).write_bytes(bytes(range(256)) * 4)
    runs, problems = records.read([tmp_path])
    assert len(runs) == 4
    assert len(problems) == 3  # metrics and trials are read later
    broken = next(run for run in runs if run.name == "metrics-jsonl")
    series, problem = records.metrics(broken)
    assert series == {}
    assert "broken line" in problem


def test_finished_without_a_result_has_no_score(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    (run / "result.json").unlink()
    found = one(run)
    assert not found.finished
    assert math.isnan(found.score)
    assert "no result.json" in found.problems[0]


@pytest.mark.parametrize("text", ["NaN", "null", '"many"', "true", "Infinity"])
def test_a_return_that_is_no_number(tmp_path: Path, text: str) -> None:
    run = finetune(tmp_path)
    (run / "result.json").write_text(f'{{"return": {text}}}')
    assert not math.isfinite(one(run).score)


@pytest.mark.parametrize("state", ["running", "failed", "interrupted"])
def test_a_run_that_did_not_finish_has_no_score(tmp_path: Path, state: str) -> None:
    run = finetune(tmp_path, state=state)
    write_json(run / "result.json", {"return": 5.0})  # left from an earlier time
    assert math.isnan(one(run).score)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["objective", "seed", "task", "domain", "scale", "steps", "pretrain_steps", "agent", "options", "pretrained"]


@settings(max_examples=60, deadline=None)
@given(
    config=st.dictionaries(st.sampled_from(KEYS), JSON),
    status=st.dictionaries(st.sampled_from(["state", "step", "message", "updated"]), JSON),
    result=st.dictionaries(st.just("return"), JSON),
    rows=st.lists(st.dictionaries(st.sampled_from(["step", "eval/return", "x"]), JSON) | JSON, max_size=4),
    trials=st.dictionaries(st.sampled_from(["method", "chosen", "trials"]), JSON),
)
def test_any_json_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory, config: Any, status: Any, result: Any, rows: Any, trials: Any
) -> None:
    """Values of every type in every place, up to the grouping of runs."""
    folder = tmp_path_factory.mktemp("any")
    for kind in ("pretrain", "finetune"):
        base = {"objective": "cic", "seed": 0, "task": "walker-run", "domain": "walker"}
        document = {"format": 1, "kind": kind, "config": base | config}
        write_json(folder / kind / "config.json", document)
        write_json(folder / kind / "status.json", status)
        write_json(folder / kind / "result.json", result)
        write_json(folder / kind / "trials.json", trials)
        (folder / kind / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs, _ = records.read([folder])
    assert len(runs) == 2
    said: list[str] = []
    kept = notices.without_twins(runs, said)
    study = groups.study(kept, False, (), said)
    notices.same_seeds(study.groups, said)
    notices.states(kept, said)
    notices.budgets(study.finetune, said)
    for run in kept:
        records.metrics(run)
        records.trials(run)


# ---- metrics -------------------------------------------------------------------------------------------------------


def test_a_cut_off_last_line_is_normal(tmp_path: Path) -> None:
    run = finetune(tmp_path, points=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4000, "eval/ret')
    series, problem = records.metrics(one(run))
    assert problem == ""
    assert len(series["eval/return"].steps) == 3


def test_a_broken_line_in_the_middle_is_said(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = "\0\0\0"
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    series, problem = records.metrics(one(run))
    assert len(series["eval/return"].steps) == 9
    assert "1 broken line" in problem


def test_metrics_are_sorted_and_a_step_counts_once(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    rows = [{"step": 20, "eval/return": 2.0}, {"step": 10, "eval/return": 1.0}, {"step": 20, "eval/return": 3.0}]
    rows += [{"step": 30, "eval/return": None}, {"step": None, "eval/return": 9.0}, {"step": 40, "note": "text"}]  # type: ignore[dict-item, list-item]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    series, _ = records.metrics(one(run))
    assert series["eval/return"].steps.tolist() == [10, 20, 30]
    assert series["eval/return"].values[:2].tolist() == [1, 3]
    assert "note" not in series


def test_only_wanted_metrics_are_kept(tmp_path: Path) -> None:
    run = one(pretrain(tmp_path, points=5))
    series, _ = records.metrics(run, ("zero_shot/",))
    assert set(series) == {"zero_shot/flip", "zero_shot/run", "zero_shot/stand", "zero_shot/walk"}


def test_trials(tmp_path: Path) -> None:
    run = finetune(tmp_path)
    found = records.trials(one(run))
    assert found is not None
    assert len(found.trials) == 40
    assert found.chosen == max(range(40), key=lambda index: found.trials[index].score)
    write_json(run / "trials.json", {"method": "regress", "chosen": None, "trials": [{"skill": None, "return": None}]})
    found = records.trials(one(run))
    assert found is not None
    assert found.chosen is None
