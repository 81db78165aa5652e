"""Which runs may be averaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_runs import finetune, pretrain, write_json

from cic.report import groups, warnings
from cic.runs import records
from tests.helpers import steady


def grouped(folder: Path, mix: bool = False) -> tuple[dict[str, int], list[str]]:
    said: list[str] = []
    runs = warnings.without_duplicates(records.read([folder])[0], said)
    study = groups.study(runs, said, mix)
    warnings.same_seeds(study.groups, said)
    warnings.states(runs, said)
    warnings.budgets(study.finetune, said)
    return {group.label: len(group.runs) for group in study.finetune}, said


def test_seeds_and_tasks_are_one_row_in_the_papers_order(tmp_path: Path) -> None:
    for method in ("zzz", "aps", "cic", "ddpg", "aaa"):
        for seed in range(2):
            finetune(tmp_path, "walker-run", method, seed)
            finetune(tmp_path, "walker-flip", method, seed)
    rows, said = grouped(tmp_path)
    assert list(rows) == ["DDPG", "CIC", "APS", "aaa", "zzz"]
    assert set(rows.values()) == {4}
    assert said == []


@pytest.mark.parametrize(
    ("change", "label", "key"),
    [
        ({"scale": "paper"}, "CIC (paper scale)", "scale"),
        ({"steps": 50_000}, "CIC (50k steps)", "steps"),
        ({"pretrain_steps": 2_000_000}, "CIC (2M pre-trained)", "pretrain_steps"),
        ({"options": {"reward": "similarity"}}, "CIC (reward=similarity)", "options.reward"),
        ({"critic": "all"}, "CIC (critic=all)", "critic"),
        ({"something_new": 3}, "CIC (something_new=3)", "something_new"),
        ({"learning": {"hidden": 512, "batch": 256, "lr": 1e-3}}, "CIC (hidden=512)", "learning.hidden"),
    ],
)
def test_what_is_not_averaged(tmp_path: Path, change: dict[str, object], label: str, key: str) -> None:
    for seed in range(3):
        finetune(tmp_path, seed=seed)
        finetune(tmp_path, seed=seed, name=f"other-{seed}", **change)  # type: ignore[arg-type]
    rows, said = grouped(tmp_path)
    assert len(rows) == 2
    assert rows[label] == 3
    reason = next(notice for notice in said if "not averaged" in notice)
    assert key in reason
    assert "`mix`" in reason


def test_mix_averages_and_reports_it(tmp_path: Path) -> None:
    finetune(tmp_path, seed=0)
    finetune(tmp_path, seed=1, scale="paper")
    rows, said = grouped(tmp_path, mix=True)
    assert rows == {"CIC": 2}
    assert any("scale" in notice and "because of `mix`" in notice for notice in said)


def test_a_setting_that_depends_on_the_domain_does_not_split(tmp_path: Path) -> None:
    for seed in range(2):
        finetune(tmp_path, "walker-run", seed=seed, options={"clip": 1.0})
        finetune(tmp_path, "jaco-reach_top_left", seed=seed, options={"clip": 2.0})
    assert grouped(tmp_path)[0] == {"CIC": 4}


def test_labels_name_as_few_keys_as_tell_rows_apart(tmp_path: Path) -> None:
    """The paper's scale comes with its budget and its networks: one word is enough."""
    for dim in (8, 16):
        finetune(tmp_path, name=f"a{dim}", options={"dim": dim})
    finetune(tmp_path, name="b", options={"dim": 16}, scale="paper", pretrain_steps=2_000_000)
    assert list(grouped(tmp_path)[0]) == [
        "CIC (laptop scale, dim=8)",
        "CIC (laptop scale, dim=16)",
        "CIC (paper scale, dim=16)",
    ]


def test_twins_count_once_and_are_reported(tmp_path: Path) -> None:
    finetune(tmp_path, seed=0, name="first")
    finetune(tmp_path, seed=0, name="again")
    finetune(tmp_path, seed=0, name="stopped", state="failed")
    finetune(tmp_path, seed=1)
    rows, said = grouped(tmp_path)
    assert rows == {"CIC": 2}
    twins = next(notice for notice in said if notice.startswith("same seed"))
    assert "first" in twins
    assert "again" in twins
    assert "seed 0" in twins
    assert "only stopped counts" not in twins


def test_same_seed_from_other_checkpoints_counts_and_is_reported(tmp_path: Path) -> None:
    finetune(tmp_path, seed=0, name="first", pretrain_seed=0)
    finetune(tmp_path, seed=0, name="second", pretrain_seed=1)
    rows, said = grouped(tmp_path)
    assert rows == {"CIC": 2}
    assert any(notice.startswith("same seed") and "all of them count" in notice for notice in said)


def test_unfinished_runs_are_named(tmp_path: Path) -> None:
    for state in ("running", "failed", "interrupted"):
        finetune(tmp_path, name=f"a-{state}", seed=1, state=state, warmup=len(state))
    said = " ".join(grouped(tmp_path)[1])
    assert "in progress, unless killed" in said
    assert "a-running (last written 2024-05-01T12:00:00+00:00)" in said
    for state in ("running", "failed", "interrupted"):
        assert f"a-{state}" in said


def test_methods_with_other_budgets_are_pointed_out(tmp_path: Path) -> None:
    finetune(tmp_path, method="cic")
    finetune(tmp_path, method="aps", scale="paper", steps=200_000)
    finetune(tmp_path, method="ddpg")  # from scratch: no pre-training to be unequal to
    said = grouped(tmp_path)[1]
    assert any("differ in scale" in notice and "paper: APS" in notice for notice in said)
    assert any("differ in steps" in notice for notice in said)
    assert not any("pretrain_steps" in notice for notice in said)


# ---- budgets -------------------------------------------------------------------------------------------------------


def main_rows(folder: Path) -> tuple[set[str], list[str]]:
    """The rows of the aggregate statistics, and the notices."""
    study = groups.study(records.read([folder])[0], said := [])
    return {group.label for group in study.main}, said


def test_a_stray_run_of_another_budget_is_not_in_the_statistics(tmp_path: Path) -> None:
    for seed in range(2):
        for method in ("cic", "ddpg"):
            finetune(tmp_path, method=method, seed=seed)
    finetune(tmp_path, method="ddpg", seed=0, name="stray", steps=50_000)
    rows, said = main_rows(tmp_path)
    assert rows == {"DDPG (100k steps)", "CIC"}
    assert any(notice.startswith("DDPG (50k steps): another scale or number of steps") for notice in said)
    assert set(grouped(tmp_path)[0]) == {"DDPG (50k steps)", "DDPG (100k steps)", "CIC"}


def test_scratch_stands_beside_the_pretrained_runs_of_its_steps(tmp_path: Path) -> None:
    for steps, runs in ((100_000, 2), (50_000, 1)):
        for method in ("cic", "ddpg"):
            for seed in range(runs):
                finetune(tmp_path / str(steps), method=method, seed=seed, steps=steps)
    finetune(tmp_path, seed=0, name="longer", pretrain_steps=2_000_000)
    assert main_rows(tmp_path)[0] == {"DDPG (100k steps)", "CIC (100k steps, 100k pre-trained)"}


BUDGETS = st.tuples(
    st.sampled_from(["ddpg", "cic", "aps"]),
    st.sampled_from(["laptop", "paper"]),
    st.sampled_from([100, 200]),
    st.sampled_from([0, 1000, 2000]),
    st.sampled_from(["finished", "running"]),
)


@steady
@given(st.lists(BUDGETS, min_size=1, max_size=12))
def test_every_run_is_in_one_row_and_the_statistics_have_one_budget(
    drawn: list[tuple[str, str, int, int, str]],
) -> None:
    runs = []
    for seed, (method, scale, steps, pretrained, state) in enumerate(drawn):
        config = {"objective": method, "task": "walker-run", "seed": seed, "scale": scale, "steps": steps}
        result = {"return": 1.0} if state == "finished" else None
        config["pretrain_steps"] = pretrained
        runs.append(
            records.RunRecord(Path(str(seed)), str(seed), "finetune", config, method, state=state, result=result)
        )
    study = groups.study(runs, [])
    placed = [run.name for group in study.finetune for run in group.runs]
    assert sorted(placed) == sorted(run.name for run in runs)
    assert len({group.label for group in study.finetune}) == len(study.finetune)
    members = [run for group in study.main for run in group.runs]
    if any(run.finished for run in runs):
        assert len({(run.scale, run.steps) for run in members}) == 1
    if any(run.finished and run.pretrain_steps for run in members):
        assert len({run.pretrain_steps for run in members} - {0}) == 1


def test_two_methods_of_one_title_are_distinguished(tmp_path: Path) -> None:
    for method in ("cic", "mine"):
        run = finetune(tmp_path, method=method)
        header = json.loads((run / "config.json").read_text())
        write_json(run / "config.json", header | {"title": "CIC"})
    assert set(grouped(tmp_path)[0]) == {"CIC [cic]", "CIC [mine]"}


def test_pretraining_is_grouped_too(tmp_path: Path) -> None:
    pretrain(tmp_path, seed=0)
    pretrain(tmp_path, seed=1)
    pretrain(tmp_path, seed=0, name="long", steps=200_000)
    study = groups.study(records.read([tmp_path])[0], said := [])
    assert [(group.label, len(group.runs)) for group in study.pretrain] == [
        ("CIC (100k steps)", 2),
        ("CIC (200k steps)", 1),
    ]
    assert "steps" in said[0]
