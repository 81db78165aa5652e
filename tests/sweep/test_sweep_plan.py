"""Plans: JSON and back, error messages, folders that follow from configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from make_plans import dags, entries, tiny_plan

from cic.api import continuing
from cic.core.errors import UserError
from cic.sweep.grid import RunGrid, differences, of_config, parse_seeds, parse_setting
from cic.sweep.plan import FORMAT, Entry, Plan, Resources, plan_from_text, read_plan
from cic.sweep.resolve import resolve, resolve_configs
from cic.training.settings import finetune_defaults, override, pretrain_defaults

RESOURCES = st.none() | st.builds(Resources, st.floats(0, 64), st.floats(0, 1) | st.integers(2, 8), st.floats(0, 512))


@steady
@given(dags(), st.randoms(use_true_random=False), RESOURCES)
def test_a_plan_survives_json_and_sorts_dependencies_first(dag: Any, random: Any, needs: Any) -> None:
    made = [Entry(e.name, e.kind, e.config, e.after, None, needs) for e in entries(dag)]
    random.shuffle(made)
    plan = Plan(tuple(made))
    assert plan_from_text(plan.to_text()) == plan
    place = {entry.name: index for index, entry in enumerate(plan.runs)}
    assert set(place) == {entry.name for entry in made}
    assert all(place[other] < place[entry.name] for entry in plan.runs for other in entry.after)


@steady
@given(dags(), st.data())
def test_circular_dependencies_are_named(dag: Any, data: Any) -> None:
    made = entries(dag)
    first, last = sorted([data.draw(st.integers(0, len(made) - 1)), data.draw(st.integers(0, len(made) - 1))])
    made[last] = Entry(made[last].name, "pretrain", {}, (made[first].name,))
    made[first] = Entry(made[first].name, "pretrain", {}, (made[last].name,))
    with pytest.raises(UserError, match=f"circular.*{made[first].name}"):
        Plan(tuple(made))


def text_with(**changes: Any) -> str:
    run = {"name": "a", "kind": "pretrain", "config": {"domain": "walker"}}
    return json.dumps({"format": FORMAT, "version": "0.2.0", "runs": [run | changes]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "is not a plan"),
        ('{"format": 1}', "is not a plan"),
        ('{"format": 99, "version": "9.1", "runs": []}', r"another version of cic \(9.1, plan format 99"),
        ('{"format": 1, "runs": [], "rusn": []}', 'unknown field of .* "rusn"; did you mean "runs"'),
        (text_with(konfig={}), 'unknown field of run 1 .* "konfig"; did you mean "config"'),
        (text_with(kind="train"), 'kind "train"'),
        (text_with(config=3), "must be an object"),
        (text_with(name=""), "name must be printable"),
        (text_with(after=["b"]), 'depends on a run that the plan lacks: unknown run "b"'),
        (text_with(after=["a"]), "circular"),
        (text_with(after="a"), "must be a list"),
        (text_with(needs={"gpus": 1.5}), "fraction of one GPU"),
        (text_with(needs={"cpus": -1}), "cpus of a run's needs"),
        (text_with(needs={"disk": 1}), 'unknown field .* "disk"'),
        ('{"format": 1, "imports": "own.py", "runs": []}', "imports of the plan must be a list"),
    ],
)
def test_an_error_in_a_plan_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        plan_from_text(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "lacks domain"),
        ({"domain": "walkr"}, 'unknown environment "walkr"'),
        ({"domain": "walker-run"}, "reward-free"),
        ({"domain": "walker", "objective": "cci"}, '"cci"'),
        ({"domain": "walker", "stesp": 3}, 'unknown setting "stesp"; did you mean "steps"'),
        ({"domain": "walker", "steps": "many"}, "steps must be int"),
        ({"domain": "walker", "steps": 0}, "steps must be at least 1"),
        ({"domain": 3}, "domain must be a string"),
        ({"domain": "walker", "pixels": "yes"}, "pixels must be true or false, not 'yes'"),
    ],
)
def test_an_error_in_a_config_names_its_run(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f'run "mine" of the plan: .*{message}'):
        resolve(Plan((Entry("mine", "pretrain", config),)))


def test_a_finetuning_continues_one_matching_pre_training() -> None:
    first = Entry("p", "pretrain", {"domain": "walker", "scale": "smoke", "lr": 0.5})
    config = resolve_configs(Plan((first, Entry("f", "finetune", {"task": "walker-run"}, ("p",)))))["f"]
    assert (config.scale, config.learning.lr) == ("smoke", 0.5)  # as the pre-training it continues
    with pytest.raises(UserError, match='pre-training is in "walker"'):
        resolve(Plan((first, Entry("f", "finetune", {"task": "hopper-hop"}, ("p",)))))
    second = Entry("q", "pretrain", {"domain": "walker"})
    with pytest.raises(
        UserError, match="a finetuning starts from one pre-training, not from several: name one in `after`"
    ):
        resolve(Plan((first, second, Entry("f", "finetune", {"task": "walker-run"}, ("p", "q")))))
    with pytest.raises(UserError, match="does not exist"):
        resolve(Plan((Entry("f", "finetune", {"task": "walker-run"}, pretrained="/nowhere"),)))


def test_pixels_have_their_own_defaults() -> None:
    first = Entry("p", "pretrain", {"domain": "walker", "pixels": True})
    second = Entry("f", "finetune", {"task": "walker-run", "pixels": True}, ("p",))
    scratch = Entry("s", "finetune", {"task": "walker-run", "pixels": True})
    configs = resolve_configs(Plan((first, second, scratch)))
    assert configs["p"] == pretrain_defaults("walker", pixels=True)
    assert configs["f"] == continuing(configs["p"], "walker-run")
    assert configs["s"] == finetune_defaults("walker-run", pixels=True)


def test_a_folder_follows_from_the_config_alone() -> None:
    folder = resolve(Plan((Entry("a", "pretrain", {"domain": "walker", "seed": 3}),)))[0].folder
    spelt_out = {"seed": 3, "domain": "walker", "objective": "cic", "lr": 1e-3, "scale": "laptop"}
    other = resolve(Plan((Entry("z", "pretrain", spelt_out),)))[0].folder
    assert folder == other
    assert folder.startswith("pretrain-cic-walker-s3-")
    changed = resolve(Plan((Entry("a", "pretrain", {"domain": "walker", "seed": 3, "lr": 2e-3}),)))[0].folder
    assert changed != folder
    with pytest.raises(UserError, match='"a" and "z" are the same run'):
        resolve(Plan((Entry("a", "pretrain", {"domain": "walker", "seed": 3}), Entry("z", "pretrain", spelt_out))))


def test_a_finetuning_of_another_pre_training_is_another_run() -> None:
    plan = tiny_plan(seeds=1, more=("lr=0.1,0.2", "finetune.lr=0.3", "finetune.seed=5"))
    folders = [spec.folder for spec in resolve(plan) if spec.kind == "finetune"]
    assert len(set(folders)) == 2


def test_a_grid_contains_every_combination() -> None:
    grid = RunGrid(("cic", "apt"), ("walker", "hopper"), (0, 1), "smoke", ("walker", "hopper-hop"), True, ("lr=1,2",))
    plan = grid.plan()
    pretrainings = [entry for entry in plan.runs if entry.kind == "pretrain"]
    assert len(pretrainings) == 2 * 2 * 2 * 2
    finetunings = [entry for entry in plan.runs if entry.after]
    assert len(finetunings) == 8 * 4 + 8 * 1  # walker has four tasks; of hopper one was asked for
    assert len([entry for entry in plan.runs if entry.name.startswith("scratch")]) == 5 * 2
    assert len({spec.folder for spec in resolve(plan)}) == len(plan.runs)
    with pytest.raises(UserError, match="has the domain of hopper-hop: add it"):
        RunGrid(("cic",), ("walker",), tasks=("hopper-hop",)).plan()


@steady
@given(st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True))
def test_seeds_are_numbers_and_ranges(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)
    assert parse_seeds(f"{min(seeds)}-{max(seeds)}") == tuple(range(min(seeds), max(seeds) + 1))


@pytest.mark.parametrize("text", ["", "a", "-1", "3-", "4-2", "0--2", "1.5", "0-99999999", "1,,2"])
def test_invalid_seeds(text: str) -> None:
    with pytest.raises(UserError, match="seeds"):
        parse_seeds(text)


def test_settings_are_numbers_lists_or_strings() -> None:
    assert parse_setting("lr=1e-3,3e-4") == ("lr", [1e-3, 3e-4])
    assert parse_setting("milestones=[1,2],[3]") == ("milestones", [[1, 2], [3]])
    assert parse_setting("search=grid,cem") == ("search", ["grid", "cem"])
    for text in ("lr", "=3", "lr="):
        with pytest.raises(UserError, match="NAME=VALUE"):
            parse_setting(text)


@steady
@given(
    st.sampled_from(["cic", "apt", "proto", "sac"]),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "steps": st.integers(1, 99),
            "lr": st.floats(1e-5, 1),
            "nstep": st.integers(1, 5),
            "batch": st.sampled_from([8, 32]),
            "encoder_gradients": st.sampled_from(["corrected", "released"]),
        },
    ),
)
def test_a_config_is_rebuilt_from_its_differences(name: str, pixels: bool, changes: dict[str, Any]) -> None:
    objective, learner = ("cic", "sac") if name == "sac" else (name, "ddpg")
    default = pretrain_defaults("walker", objective, "smoke", None, learner, pixels)
    config = override(default, changes)
    assert override(default, differences(config, default)) == config
    (rebuilt,) = resolve_configs(of_config(config, [config.seed])).values()
    assert rebuilt == config


def test_a_plan_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not a text file"):
        read_plan(tmp_path / "bytes")
    with pytest.raises(UserError, match="cannot be written"):
        tiny_plan().write(tmp_path / "bytes" / "plan.json")


def test_a_plan_records_imports(own_code: Path) -> None:
    """A plan that names the user's files resolves in a process that has not imported them."""
    text = tiny_plan().to_text()
    assert "imports" not in json.loads(text)
    plan = plan_from_text(json.dumps(json.loads(text) | {"imports": [str(own_code)]}).replace('"cic"', '"constant"'))
    with pytest.raises(UserError, match="unknown setting"):  # the method is known, and has no skill_dim
        resolve(plan)
    assert plan.imports == (str(own_code),)
    made = tiny_plan(objectives=("constant",))
    assert made.imports == (str(own_code),)
    assert plan_from_text(made.to_text()) == made


def test_old_names_still_work(tmp_path: Path) -> None:
    import cic.sweep.grid
    import cic.sweep.run

    with pytest.warns(DeprecationWarning, match="RunGrid"):
        assert cic.sweep.grid.Grid is RunGrid
    with pytest.warns(DeprecationWarning, match=r"Means is deprecated: use cic.sweep"):
        means = cic.sweep.run.Means(slots=1, quiet=True)
    with pytest.warns(DeprecationWarning, match="run_plan is deprecated"):
        assert len(cic.sweep.run.run_plan(tiny_plan(), str(tmp_path), means).done) == 2
    with pytest.raises(AttributeError):
        cic.sweep.run.nothing  # noqa: B018
