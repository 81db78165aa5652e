"""The library's verbs, from a pre-training to an agent that acts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import WatchedEnv, finetune_config, make_loop, stop
from safetensors.torch import load_file

import cic
from cic import api, envs
from cic.core.errors import Interrupted, UserError
from cic.learning.objectives import base
from cic.runs.folder import Run
from cic.training.settings import pretrain_defaults

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "quiet": True}
TASK = "gridworld-reach_top_left"
TASKS = {"reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def skills(home: Path) -> Path:
    return cic.pretrain("gridworld", out=home / "skills", skill_dim=4, steps=100, milestones=(60,), **SMALL).path


@pytest.fixture(scope="module")
def tuned(home: Path, skills: Path) -> Path:
    return cic.finetune(skills, TASK, out=home / "tuned", steps=80, eval_every=80, **SMALL).path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "agent.safetensors")


# ---- every kind of skill ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cic", "diayn", "aps", "rnd"])
def test_every_kind_of_skill_goes_from_pretraining_to_an_agent_that_acts(name: str, tmp_path: Path) -> None:
    before = cic.pretrain("gridworld", name, out=tmp_path / "before", steps=60, checkpoint_every=60, **SMALL)
    assert before.result["objective"] == name
    after = cic.finetune(before.path, TASK, out=tmp_path / "after", steps=60, eval_every=60, trial_steps=10, **SMALL)
    agent = cic.load(after.path)
    dim = agent.objective.skills.dim
    assert len(after.result["skill"]) == dim
    obs, chosen = np.zeros(2, np.float32), np.array(after.result["skill"], np.float32)
    assert agent.act(obs).shape == (2,)
    assert (agent.act(obs) == agent.act(obs, chosen)).all(), "it acts by the skill that it chose"
    found = cic.evaluate(after.path, episodes=2)
    assert found.skill == after.result["skill"]
    kind = agent.objective.skills.kind
    if kind != "none":
        table = json.loads((tmp_path / "after" / "trials.json").read_text())
        expected = {"box": "grid", "onehot": "each", "sphere": "regress"}[kind]
        assert table["search"] == expected
        assert table["skill"] == after.result["skill"]
    if kind == "onehot":
        assert sorted(after.result["skill"]) == [0] * (dim - 1) + [1]
    if kind == "sphere":
        assert np.linalg.norm(after.result["skill"]) == pytest.approx(1, rel=1e-5)


# ---- pre-training and loading ----------------------------------------------------------------------------------


def test_a_pretraining_reports_its_progress_and_result(skills: Path) -> None:
    result = json.loads((skills / "result.json").read_text())
    assert (result["domain"], result["objective"], result["step"]) == ("gridworld", "cic", 100)


def test_a_ready_made_config_can_be_given(tmp_path: Path) -> None:
    config = pretrain_defaults("gridworld", "rnd", "smoke")
    config = api.override(config, {"steps": 20, "hidden": 8})
    done = cic.pretrain(config, out=tmp_path / "run", quiet=True)
    assert Run(done.path).config["objective"] == "rnd"
    assert Run(done.path).config["learning"]["hidden"] == 8


def test_a_loaded_agent_is_the_saved_one(skills: Path) -> None:
    for at, folder in ((None, "checkpoints/000000100"), (60, "milestones/000000060")):
        agent, saved = cic.load(skills, at=at), weights(skills / folder)
        state = agent.state_dict()
        assert state.keys() == saved.keys()
        assert all(torch.equal(state[name], saved[name]) for name in saved)
    obs, skill = np.zeros((3, 2), np.float32), np.full(4, 0.5, np.float32)
    assert cic.load(skills).act(obs, skill).shape == (3, 2)


def test_settings_that_do_not_exist_or_fit_make_no_folder(tmp_path: Path) -> None:
    for settings, word in [
        ({"temprature": 1.0}, "unknown setting"),
        ({"loss": "hinge"}, 'unknown loss "hinge"'),
        ({"steps": "many"}, "steps must be int, not 'many'"),
        ({"temperature": None}, "temperature must be float, not None"),
        ({"milestones": 7}, "milestones must be a list"),
        ({"replay": 2}, "too small"),
        ({"learner": "ddgp"}, 'unknown learner "ddgp"; did you mean "ddpg"'),
    ]:
        with pytest.raises(UserError, match=word):
            cic.pretrain("gridworld", out=tmp_path / "run", scale="smoke", quiet=True, **settings)
        assert not (tmp_path / "run").exists()


def test_a_mistake_leaves_the_users_own_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="too small"):
        cic.pretrain("gridworld", out=tmp_path, scale="smoke", replay=2, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"search": "each"}, "does not fit box skills"),
        ({"replay": 2}, "too small"),
        ({"skill": (1.0, 2.0)}, "2 numbers"),
    ],
)
def test_a_mistake_in_a_finetuning_leaves_no_folder_either(
    skills: Path, tmp_path: Path, settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(UserError, match=word):
        cic.finetune(skills, TASK, out=tmp_path / "run", **SMALL, **settings)
    assert not (tmp_path / "run").exists()


# ---- finetuning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("critic", ["trunk", "all", "none"])
def test_finetuning_starts_from_the_pretrained_weights(tmp_path: Path, skills: Path, critic: str) -> None:
    """A run as long as its warm-up learns nothing: it ends with what it began with."""
    path = cic.finetune(skills, TASK, out=tmp_path / "run", steps=40, critic=critic, seed=9, **SMALL).path
    source = weights(skills / "checkpoints/000000100")
    agent = cic.load(path).state_dict()
    assert {name: value.tolist() for name, value in weights(path / "inherited").items()} == {
        name: value.tolist() for name, value in source.items()
    }
    for name, value in agent.items():
        taken = torch.equal(value, source[name])
        if name.startswith(("learner.actor.", "objective.")):
            assert taken, name
        elif name.startswith("learner.critic.") and "weight" in name and value.ndim > 1:
            assert taken == (critic == "all" or (critic == "trunk" and ".trunk." in name)), name
        if name.startswith("learner.target."):
            assert torch.equal(value, agent[name.replace(".target.", ".critic.", 1)]), "the target is in step"


def test_a_finetuning_remembers_where_it_came_from(tuned: Path, skills: Path) -> None:
    config = Run(tuned).config
    assert (config["objective"], config["pretrain_steps"], config["pretrain_seed"]) == ("cic", 100, 0)
    assert config["pretrained"] == str(skills)
    assert config["options"]["skill_dim"] == 4


def test_a_finetuning_stands_alone(tuned: Path, tmp_path: Path) -> None:
    """Without the pre-training's folder it is evaluated, and continued."""
    path = Path(shutil.copytree(tuned, tmp_path / "moved"))
    header = json.loads((path / "config.json").read_text())
    assert header["config"]["pretrained"] != str(path)
    (path / "result.json").unlink()
    (path / "trials.json").unlink()
    shutil.rmtree(path / "checkpoints")
    assert cic.resume(path, quiet=True).result == json.loads((tuned / "result.json").read_text())
    assert (path / "metrics.jsonl").read_bytes() == (tuned / "metrics.jsonl").read_bytes()


def test_from_scratch_there_is_nothing_inherited_and_no_search(tmp_path: Path) -> None:
    done = cic.finetune(None, TASK, out=tmp_path / "run", steps=60, **SMALL)
    assert done.result["skill"] == []
    config = Run(done.path).config
    assert (config["objective"], config["pretrained"], config["pretrain_steps"]) == ("ddpg", None, 0)
    assert not (done.path / "inherited").exists()
    assert not (done.path / "trials.json").exists()


@pytest.mark.parametrize("learner", ["td3", "sac"])
def test_a_finetuning_keeps_the_learner_of_its_pretraining(learner: str, tmp_path: Path) -> None:
    settings = {"steps": 50, "skill_dim": 4, "tau": 0.05}
    before = cic.pretrain("gridworld", out=tmp_path / "before", learner=learner, **settings, **SMALL).path
    tiny = {"warmup": 40, "steps": 50, "eval_every": 50, "eval_episodes": 1, "trial_steps": 20, "quiet": True}
    after = cic.finetune(before, TASK, out=tmp_path / "after", **tiny).path
    assert Run(after).config["learner"] == learner
    assert Run(after).config["learning"] == Run(before).config["learning"]
    assert Run(after).config["learning"]["tau"] == 0.05, "its settings too"
    with pytest.raises(UserError, match=f"was pre-trained with {learner}: omit `learner`, or pre-train with ddpg"):
        cic.finetune(before, TASK, learner="ddpg", out=tmp_path / "other", **SMALL)


def test_a_milestone_can_be_finetuned(tmp_path: Path, skills: Path) -> None:
    path = cic.finetune(skills, TASK, at=60, out=tmp_path / "run", steps=45, **SMALL).path
    assert Run(path).config["pretrain_steps"] == 60
    inherited, milestone = weights(path / "inherited"), weights(skills / "milestones/000000060")
    assert all(torch.equal(inherited[name], milestone[name]) for name in milestone)


# ---- evaluation ------------------------------------------------------------------------------------------------


def test_a_finetuned_run_is_evaluated_on_its_task_under_its_skill(tuned: Path) -> None:
    found = cic.evaluate(tuned, episodes=3, seed=1)
    result = json.loads((tuned / "result.json").read_text())
    assert found.skill == result["skill"]
    assert {task: len(returns) for task, returns in found.returns.items()} == {TASK: 3}
    assert found == cic.evaluate(tuned, episodes=3, seed=1)


def test_a_pretrained_run_is_evaluated_on_every_task(skills: Path) -> None:
    found = cic.evaluate(skills, episodes=3)
    assert found.returns.keys() == TASKS
    assert all(len(returns) == 3 for returns in found.returns.values())
    assert found.skill is None


def test_one_number_stands_for_every_dimension(skills: Path, tuned: Path) -> None:
    for run in (skills, tuned):
        one = cic.evaluate(run, episodes=2, skill=np.array([0.5], np.float32))
        all_four = cic.evaluate(run, episodes=2, skill=np.full(4, 0.5, np.float32))
        assert one == all_four
        assert one.skill == [0.5] * 4


def stopped(path: Path, tick: int) -> Path:
    """A finetuning that the user stopped; its search takes 40 steps."""
    config = finetune_config(steps=80)
    env = WatchedEnv(envs.make(TASK), events={tick: stop()})
    with pytest.raises(Interrupted):
        make_loop(path, "finetune", config, env).train()
    return path


def test_the_skill_of_an_unfinished_finetuning_is_its_searchs(tmp_path: Path) -> None:
    searching, learning = stopped(tmp_path / "searching", 20), stopped(tmp_path / "learning", 60)
    assert cic.load(searching).skill is None
    assert cic.evaluate(searching, episodes=1).skill is None, "before the search ended: a random one"
    chosen = json.loads((learning / "trials.json").read_text())["skill"]
    assert cic.load(learning).skill.tolist() == chosen
    assert cic.evaluate(learning, episodes=1).skill == chosen


def test_a_given_skill_is_that_of_the_run_from_the_start(tmp_path: Path) -> None:
    config = finetune_config(steps=80, skill=(0.25,) * 4)
    env = WatchedEnv(envs.make(TASK), events={20: stop()})
    with pytest.raises(Interrupted):
        make_loop(tmp_path / "run", "finetune", config, env).train()
    assert cic.evaluate(tmp_path / "run", episodes=1).skill == [0.25] * 4


# ---- own methods -----------------------------------------------------------------------------------------------


def test_the_method_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "tutorials" / "own-method.md").read_text()
    (tmp_path / "surprise.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))  # the others do not hear of it
    monkeypatch.syspath_prepend(tmp_path)
    import surprise  # noqa: F401

    done = cic.pretrain(
        "gridworld", "surprise", out=tmp_path / "run", steps=60, width=8, learner="sac", log_every=10, **SMALL
    )
    lines = [json.loads(line) for line in (done.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["surprise/error"] > 0 for line in lines if "surprise/error" in line]
    assert Run(done.path).config["options"] == {"width": 8}
    monkeypatch.delitem(sys.modules, "surprise")


# ---- the package -----------------------------------------------------------------------------------------------


def test_the_public_names_are_there_and_others_are_not() -> None:
    for name in cic.__all__:
        assert getattr(cic, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cic.nonsense  # noqa: B018


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert set(dir(cic)) == {*cic.__all__, "__version__"}
    assert "pretrain" in dir(cic)
    assert not {"import_module", "annotations", "Any", "TYPE_CHECKING"} & set(dir(cic))


# ---- what would train in silence -------------------------------------------------------------------------------


def test_a_task_is_understood_in_the_domain_of_its_run(skills: Path, tmp_path: Path) -> None:
    path = cic.finetune(skills, "reach_top_left", out=tmp_path / "run", steps=45, **SMALL).path
    assert Run(path).config["task"] == TASK
    with pytest.raises(UserError, match=r'unknown task of .* "fly"; choose one of: reach'):
        cic.finetune(skills, "fly", **SMALL)
    with pytest.raises(UserError, match="unknown environment"):
        cic.finetune(None, "reach_top_left", **SMALL)


def test_a_pretraining_that_is_not_finished_must_be_asked_for_by_step(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 60, "milestones": (50,), "steps": 100, **SMALL}
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", **settings).path
    (path / "result.json").unlink()
    (path / "status.json").write_text(json.dumps({"state": "running", "step": 77}))
    with pytest.raises(UserError) as error:
        cic.finetune(path, TASK, out=tmp_path / "tuned", **SMALL)
    said = str(error.value)
    assert "is not finished (step 77 of 100)" in said
    assert "resume it first, or choose weights with `at`" in said
    assert "`at` (available: 50, 60, 100)" in said
    assert not (tmp_path / "tuned").exists()
    tuned = cic.finetune(path, TASK, at=50, out=tmp_path / "tuned", steps=45, **SMALL).path
    assert Run(tuned).config["pretrain_steps"] == 50
    with pytest.warns(UserWarning, match="is not finished: using its weights of step 100"):
        cic.load(path)


def test_a_pretraining_whose_last_weights_are_damaged_is_not_used_in_silence(tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", "rnd", out=tmp_path / "run", checkpoint_every=60, steps=100, **SMALL).path
    (path / "checkpoints" / "000000100" / "agent.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"000000100 is damaged .*choose other weights with `at` \(available: 60, 100\)"
    ):
        cic.finetune(path, TASK, out=tmp_path / "tuned", **SMALL)
    assert cic.finetune(path, TASK, at=60, out=tmp_path / "tuned", steps=45, **SMALL).result["step"] == 45


def test_ddpg_has_nothing_to_pretrain_with(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r'ddpg has no intrinsic reward .*finetune from scratch to a task of "gridworld"'
    ):
        cic.pretrain("gridworld", "ddpg", out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("steps", [39, 40])
def test_a_run_that_ends_with_its_warm_up_is_warned_of(steps: int, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=f"nothing will be learned: {steps} steps are no more than the warm-up of 40"):
        cic.pretrain("gridworld", "rnd", out=tmp_path / "run", steps=steps, **SMALL)


def test_more_copies_than_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"steps must be at least num_envs \(500\), not 400"):
        cic.pretrain("gridworld", "rnd", out=tmp_path / "run", num_envs=500, steps=400, **SMALL)


def test_smoke_scale_takes_the_loss_that_works_with_its_batch() -> None:
    assert pretrain_defaults("walker", "cic", "smoke").options.loss == "infonce"
    assert pretrain_defaults("walker", "cic", "laptop", "released").options.loss == "released"


def test_a_run_records_where_it_comes_from(skills: Path) -> None:
    header = json.loads((skills / "config.json").read_text())
    assert {"python", "torch", "mujoco", "numpy"} <= header["versions"].keys()
    assert header["version"] == cic.__version__
    assert header["machine"].partition(", ")[2].startswith("cpu: ")
    assert len(header["machine"].partition("cpu: ")[2]) > 3, "the processor's name"
    assert header["command"]
    assert "commit" in header
    assert header["imports"] == []


def test_a_one_hot_skill_is_evaluated_by_its_place(tmp_path: Path) -> None:
    path = cic.pretrain("gridworld", "diayn", out=tmp_path / "run", steps=60, **SMALL).path
    found = cic.evaluate(path, episodes=1, skill=np.array([3.0]))
    assert found.skill is not None
    assert np.argmax(found.skill) == 3
    assert sum(found.skill) == 1
    with pytest.raises(UserError, match="there is no skill 50"):
        cic.evaluate(path, episodes=1, skill=np.array([50.0]))


def test_the_first_weights_do_not_depend_on_how_many_threads_there_were(tmp_path: Path) -> None:
    """`threads` is a setting, the machine's default is not."""
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        path = cic.pretrain("walker", out=tmp_path / str(threads), steps=41, **SMALL | {"hidden": 64}).path
        found.append((path / "checkpoints" / "000000041" / "agent.safetensors").read_bytes())
    assert found[0] == found[1]
