"""Untrusted run folders: opening one executes nothing, writes nowhere else and fails with one message."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import cic
from cic import cli, envs
from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.runs.replay_arrays import require_replay

from .folders import PRETRAIN, finetune, forge, forge_arrays, forge_state, newest, pretrain, seal, stopped

PAYLOAD = "gymnasium:untrusted_payload:Walker-v0"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("untrusted")


@pytest.fixture(scope="module")
def skills(home: Path) -> Path:
    return pretrain(home / "skills")


@pytest.fixture(scope="module")
def tuned(home: Path, skills: Path) -> Path:
    return finetune(home / "tuned", skills)


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that creates a file when it is imported."""
    sprung = tmp_path / "sprung"
    code = f"import pathlib, gymnasium\npathlib.Path({str(sprung)!r}).touch()\n"
    code += "gymnasium.register('Walker-v0', entry_point='gymnasium.envs.classic_control:PendulumEnv')\n"
    (tmp_path / "untrusted_payload.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield sprung
    sys.modules.pop("untrusted_payload", None)
    gymnasium.registry.pop("Walker-v0", None)


# ---- no code ---------------------------------------------------------------------------------------------------


def hostile(source: Path, path: Path, domain: str = PAYLOAD) -> Path:
    shutil.copytree(source, path)
    forge(path, lambda header: header["config"].__setitem__("domain", domain))
    return path


def test_loading_weights_makes_no_environment(skills: Path, tmp_path: Path, payload: Path) -> None:
    agent = cic.load(hostile(skills, tmp_path / "run"))
    assert agent.act(np.zeros(2, np.float32), np.zeros(4, np.float32)).shape == (2,)
    assert not payload.exists()


@pytest.mark.parametrize("verb", ["evaluate", "skills", "film", "doctor", "prompt", "resume", "finetune"])
def test_no_command_imports_what_a_run_names(skills: Path, tmp_path: Path, payload: Path, verb: str) -> None:
    path = hostile(stopped(skills, tmp_path / "stopped"), tmp_path / "run")
    verbs: dict[str, Callable[[], Any]] = {
        "evaluate": lambda: cic.evaluate(path, episodes=1),
        "skills": lambda: cic.skills(path, count=2, video=False),
        "film": lambda: cic.film(path),
        "doctor": lambda: cic.doctor(path),
        "prompt": lambda: cic.prompt(path, "obs[0]", out=tmp_path / "prompt"),
        "resume": lambda: cic.resume(path, quiet=True),
        "finetune": lambda: cic.finetune(path, "walker-run", quiet=True),
    }
    word = "which has no task" if verb == "finetune" else 'would import the module "untrusted_payload".*trust'
    with pytest.raises(UserError, match=word):
        verbs[verb]()
    assert not payload.exists()


def test_offline_training_imports_nothing_that_only_the_data_name(skills: Path, tmp_path: Path, payload: Path) -> None:
    path = finetune(tmp_path / "run", skills, steps=120, replay=200, eval_every=200, prior_data=0.0)
    forge(path, lambda header: header["config"].__setitem__("task", PAYLOAD))
    with (
        pytest.warns(UserWarning, match='would import the module "untrusted_payload" and is not used'),
        pytest.raises(UserError, match="does not state its environment"),
    ):
        cic.offline(path, preset="smoke", out=tmp_path / "offline", quiet=True)
    assert not payload.exists()


def test_finetuning_a_prompt_imports_nothing(tuned: Path, tmp_path: Path, payload: Path) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    forge(path, lambda header: header["config"].update(task=f"{PAYLOAD}{envs.REWARD}obs[0]", steps=1))
    with pytest.raises(UserError, match='would import the module "untrusted_payload"'):
        cic.finetune(path, "prompt", out=tmp_path / "again", quiet=True)
    assert not payload.exists()


@pytest.mark.parametrize("format", ["exorl", "torch"])
def test_export_makes_no_environment(skills: Path, tmp_path: Path, payload: Path, format: Any) -> None:
    path = hostile(skills, tmp_path / "run")
    if format == "exorl":
        with pytest.raises(UserError, match=r"does not fit its config.json \(it has rewards"):
            cic.export_data(path, tmp_path / "out")
    else:
        cic.export_policy(path, tmp_path / "out")
    assert not payload.exists()


@pytest.mark.parametrize("how", ["argument", "variable", "command"])
def test_trust_allows_the_import(
    skills: Path, tmp_path: Path, payload: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = hostile(skills, tmp_path / "run")
    if how == "variable":
        monkeypatch.setenv("CIC_TRUST", "1")
    if how == "command":
        assert cli.main(["evaluate", str(path), "--episodes", "1", "--trust"]) == 2  # Pendulum has other observations
    else:
        with pytest.raises(UserError, match="observes 2 numbers"):
            cic.evaluate(path, episodes=1, trust=how == "argument")
    assert payload.exists()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("gymnasium:a.b:C-v0", 'import the module "a.b"'),
        ("gymnasium:Hopper-v5?xml_file=/tmp/x.xml", 'argument "xml_file=/tmp/x.xml"'),
        ("gymnasium:GymV26Environment-v0?env_id=a:B-v0", 'argument "env_id=a:B-v0"'),
        ("gymnasium:Hopper-v5?healthy_z_range=(0.5, 2)&frame_skip=2", None),
        ("gymnasium:Hopper-v5", None),
        ("gymnasium:Hopper-v5?max_episode_steps=500", None),
        ("gymnasium:Hopper-v5?max_episode_steps=-1", 'argument "max_episode_steps=-1"'),
        ("gymnasium:Hopper-v5?max_episode_steps=None", 'argument "max_episode_steps=None"'),
        ("gymnasium:Hopper-v5?frame_skip=2000000000", 'argument "frame_skip=2000000000"'),
        ("gymnasium:Hopper-v5?reset_noise_scale=1e300", 'argument "reset_noise_scale=1e+300"'),
        ("gymnasium:Hopper-v5?frame_skip=" + "-" * 300 + "1", 'argument "frame_skip=------'),
        ("gymnasium:Hopper-v5?frame_skip=" + "(" * 300, 'argument "frame_skip=(((((('),
        ("walker-run", None),
        ("cic/walker-run-v0", None),
        ("unknown", None),
    ],
)
def test_what_a_name_would_run(name: str, word: str | None) -> None:
    said = envs.would_run(name)
    assert said is None if word is None else word in str(said)


@pytest.mark.parametrize("text", ["(" * 100_000, "-" * 100_000 + "1", "[" * 100_000 + "]" * 100_000])
def test_deeply_nested_arguments_are_refused(text: str) -> None:
    """Parsing them can crash Python."""
    with pytest.raises(UserError, match="at most 1000 letters"):
        envs.would_run(f"gymnasium:Hopper-v5?frame_skip={text}")


def test_registered_environment_needs_no_trust(tmp_path: Path) -> None:
    cic.register_env("registered", lambda: gymnasium.make("Pendulum-v1"))
    path = pretrain(tmp_path / "run", "rnd", "registered", steps=24)
    assert len(cic.evaluate(path, episodes=1).returns["registered"]) == 1
    envs.registry._OWN.pop("registered")
    assert cic.load(path).spaces == Spaces(3, 1), "loading needs no environment"
    with pytest.raises(UserError, match="unknown environment"):
        cic.evaluate(path, episodes=1)


def test_header_without_sizes_is_refused(skills: Path, tmp_path: Path) -> None:
    path = hostile(skills, tmp_path / "run", "gymnasium:Pendulum-v1")
    for spaces in (
        None,
        [2, 2],
        {"obs": 2},
        {"obs": 0, "action": 2},
        {"obs": 10**9, "action": 2},
        {"obs": True, "action": 2},
    ):
        forge(path, lambda header, spaces=spaces: header.__setitem__("spaces", spaces))
        with pytest.raises(UserError, match="does not state the sizes"):
            cic.load(path)


# ---- no links --------------------------------------------------------------------------------------------------

LINKED = [
    *(".lock", "metrics.jsonl", "timing.jsonl", ".metrics.jsonl.cic-part", ".status.json.cic-part", "status.json"),
    *(
        "result.json",
        ".result.json.cic-part",
        "config.json",
        "tensorboard",
        "checkpoints",
        "checkpoints/.000000024.cic-part",
    ),
]


@pytest.mark.parametrize("name", LINKED)
def test_resume_writes_through_no_link(skills: Path, tmp_path: Path, name: str) -> None:
    path, precious = stopped(skills, tmp_path / "run"), tmp_path / "precious"
    original = path / name
    if original.is_dir() or (original.exists() and name not in (".lock", "metrics.jsonl", "timing.jsonl")):
        shutil.move(original, precious)
    else:
        original.unlink(missing_ok=True)
        precious.write_text("mine")
    original.symlink_to(precious)
    before = {file: file.read_bytes() for file in (precious, *precious.rglob("*")) if file.is_file()}
    if name != "result.json":  # which says that the run is finished
        precious.chmod(0o700)
    with pytest.raises(UserError, match=r"is a link|is not the config|is damaged|cannot be read"):
        cic.resume(path, quiet=True)
    assert {file: file.read_bytes() for file in (precious, *precious.rglob("*")) if file.is_file()} == before


def test_run_folder_may_be_a_link(skills: Path, tmp_path: Path) -> None:
    stopped(skills, tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    assert cic.resume(tmp_path / "latest", quiet=True).result["step"] == PRETRAIN["steps"]


def test_pictures_are_not_written_through_a_link(skills: Path, tmp_path: Path) -> None:
    shutil.copytree(skills, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "pictures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        cic.skills(tmp_path / "run", count=2, video=False)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("format", ["exorl", "torch"])
@pytest.mark.parametrize("name", ["export", "export/gridworld", "export/policy.pt2"])
def test_export_writes_through_no_link(skills: Path, tmp_path: Path, name: str, format: Any) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).symlink_to(tmp_path / "elsewhere" / ("new" if name.endswith("pt2") else ""))
    with pytest.raises(UserError, match="is a link"):
        cic.export_data(path) if format == "exorl" else cic.export_policy(path)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["result.json", "checkpoints", "milestones/000000012/agent.safetensors", "pictures"])
def test_no_command_reads_a_link(skills: Path, tmp_path: Path, name: str) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(skills / name)
    for words in (["evaluate", str(path)], ["export", str(path)], ["explore", str(path), "--no-open"]):
        assert cli.main(words) == 2


def test_run_that_logged_to_wandb_can_be_opened(skills: Path, tmp_path: Path) -> None:
    """W&B creates links in its own folder."""
    path = shutil.copytree(skills, tmp_path / "run")
    (path / "wandb").mkdir()
    (path / "wandb" / "latest-run").symlink_to("run-1")
    assert cic.load(path).spaces == Spaces(2, 2)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", ".lock", "checkpoints/000000018/state.json"])
def test_fifo_is_refused(skills: Path, tmp_path: Path, name: str) -> None:
    path = stopped(skills, tmp_path / "run")
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(UserError, match="regular file"):
        cic.resume(path, quiet=True)


# ---- another machine -------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_missing_device_loads_on_the_cpu_and_resume_suggests_a_flag(skills: Path, tmp_path: Path) -> None:
    path = stopped(skills, tmp_path / "run")
    forge(path, lambda header: header["config"].__setitem__("device", "cuda"))
    with pytest.warns(UserWarning, match='device "cuda" cannot be used here.*using the CPU'):
        assert cic.load(path).device == torch.device("cpu")
    with pytest.raises(UserError, match="`device=cpu`"):
        cic.resume(path, quiet=True)
    assert cli.main(["pretrain", "--resume", str(path), "--device", "cpu", "--quiet"]) == 0
    assert Run(path).config["device"] == "cuda", "its settings stay what they were"


def test_generator_of_another_device_restarts(skills: Path, tmp_path: Path) -> None:
    """CUDA's generator has a state of 16 bytes, the CPU's one of 5,056: such a run goes on, but not to the bit."""
    path = stopped(skills, tmp_path / "run")
    forge_arrays(newest(path), "optimisers", lambda arrays: arrays.__setitem__("generator", np.zeros(16, np.uint8)))
    with pytest.raises(UserError, match="does not fit"):
        cic.resume(path, quiet=True)
    forge(path, lambda header: header["config"].__setitem__("device", "cuda"))
    with pytest.warns(UserWarning, match="another device.*not bit-exact"):
        assert cic.resume(path, quiet=True, device="cpu").result["step"] == PRETRAIN["steps"]


@pytest.mark.parametrize("device", ["banana", "meta", "cuda:99", ""])
def test_unknown_device_is_a_user_error(skills: Path, tmp_path: Path, device: str) -> None:
    with pytest.raises(UserError, match="cannot be used here"):
        pretrain(tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


# ---- odd contents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "skill", ["abc", [1, 2], [[1, 2, 3, 4]], [1, 2, 3, "x"], [1, 2, 3, 1e300], {"a": 1}, 7, [None] * 4]
)
@pytest.mark.parametrize("name", ["result.json", "trials.json"])
def test_odd_skill_is_refused(tuned: Path, tmp_path: Path, name: str, skill: Any) -> None:
    path = shutil.copytree(tuned, tmp_path / "run")
    if name == "trials.json":
        (path / "result.json").unlink()
    (path / name).write_text(json.dumps({"skill": skill}))
    with pytest.raises(UserError, match="is not 4 finite numbers"):
        cic.load(path)


STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no step": lambda state: state.pop("step"),
    "a step beyond the end": lambda state: state.update(step=10**13),
    "a negative step": lambda state: state.update(step=-1),
    "text for a count": lambda state: state.update(updates="7"),
    "updates beyond any machine": lambda state: state.update(updates=10**13),
    "true for a count": lambda state: state.update(updates=True),
    "a far next line": lambda state: state.update(next_log=2**70),
    "no generator": lambda state: state.pop("rng"),
    "another generator": lambda state: state["rng"].update(bit_generator="MT19937"),
    "a generator of text": lambda state: state["rng"]["state"].update(state="x"),
    "no problems": lambda state: state.pop("problems"),
    "problems of numbers": lambda state: state["problems"].update(found={"collapse": 3}),
    "no script": lambda state: state.pop("script"),
    "text for a result": lambda state: state.update(result="done"),
}


@pytest.mark.parametrize("change", STATES)
def test_odd_state_is_refused(skills: Path, tmp_path: Path, change: str) -> None:
    path = stopped(skills, tmp_path / "run")
    forge_state(newest(path), STATES[change])
    lines = (path / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="does not fit its config"):
        cic.resume(path, quiet=True)
    assert (path / "metrics.jsonl").read_bytes() == lines


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_checkpoint_without_its_logs_is_refused(skills: Path, tmp_path: Path, name: str) -> None:
    path = stopped(skills, tmp_path / "run")
    (newest(path) / name).unlink()
    seal(newest(path))
    with pytest.raises(UserError, match=r"does not fit its config\.json \(it lacks"):
        cic.resume(path, quiet=True)


OUTCOMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no list": lambda state: state.update(script=3),
    "no outcomes": lambda state: state.update(script=[]),
    "another script": lambda state: state["script"][0][0].__setitem__(0, "warmup"),
    "an outcome without a value": lambda state: state["script"][0][0].pop(),
    "a stage that is not there": lambda state: state["script"].append([]),
    "more outcomes than instructions": lambda state: state["script"][0].extend([["train", None]] * 100),
    "a skill of two numbers": lambda state: state["script"][0][0][1].update(skill=[0.5, 0.5]),
    "a skill of text": lambda state: state["script"][0][0][1].update(skill="best"),
    "no search": lambda state: state["script"][0][0].__setitem__(1, None),
    "an odd segment": lambda state: state.update(outcome={"steps": "4"}),
}


@pytest.mark.parametrize("change", OUTCOMES)
def test_odd_script_outcomes_are_refused(tuned: Path, tmp_path: Path, change: str) -> None:
    path = stopped(tuned, tmp_path / "run")
    forge_state(newest(path), OUTCOMES[change])
    with pytest.raises(UserError, match="does not fit its config"):
        cic.resume(path, quiet=True)


ARRAYS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "a replay without rewards": ("replay", lambda a: a.pop("reward")),
    "a replay of doubles": ("replay", lambda a: a.update(obs=a["obs"].astype(np.float64))),
    "a replay too long": ("replay", lambda a: a.update(obs=np.zeros((1, 41, 2), np.float32))),
    "a replay that forgot its length": ("replay", lambda a: a.update(written=np.array([10**9]))),
    "a replay older than itself": ("replay", lambda a: a.update(age=np.array([10**6]))),
    "samples of nothing": ("replay", lambda a: a.update(written=np.array([3]), age=np.array([0]))),
    "skills from the future": ("replay", lambda a: a.update(last_skill_id=np.array([10**6]))),
    "other weights": ("agent", lambda a: a.update({next(iter(a)): np.zeros((3, 3), np.float32)})),
    "moments of another shape": ("optimisers", lambda a: a.update({"actor.0.exp_avg": np.zeros(1, np.float32)})),
    "an unknown optimiser": ("optimisers", lambda a: a.update({"extra.0.exp_avg": np.zeros(1, np.float32)})),
    "a short generator": ("optimisers", lambda a: a.update(generator=np.zeros(7, np.uint8))),
    "observations of another shape": ("loop", lambda a: a.update(obs=np.zeros((2, 2), np.float32))),
    "cells of another grid": ("coverage", lambda a: a.update(visited=np.zeros(3, np.bool_))),
    "a generator outside of its words": ("env", lambda a: a["random"].__setitem__((0, 624), 10**9)),
    "two environments": ("env", lambda a: a.update(cells=np.zeros((2, 2), np.int64))),
}


@pytest.mark.parametrize("change", ARRAYS)
def test_odd_arrays_are_refused(skills: Path, tmp_path: Path, change: str) -> None:
    path = stopped(skills, tmp_path / "run")
    forge_arrays(newest(path), *ARRAYS[change])
    with pytest.raises(UserError, match=r"does not fit its config|do not fit its config|the state's 'cells' has shape"):
        cic.resume(path, quiet=True)


def _first(value: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    return lambda array: array.reshape(-1).__setitem__(0, value)


READ: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no observations": lambda a: a.pop("obs"),
    "a surplus array": lambda a: a.update(more=np.zeros(3)),
    "observations without dimensions": lambda a: a.update(obs=np.zeros((), np.float32)),
    "observations of another size": lambda a: a.update(obs=np.zeros((*a["obs"].shape[:2], 7), np.float32)),
    "actions of doubles": lambda a: a.update(action=a["action"].astype(np.float64)),
    "rewards that are not finite": lambda a: _first(np.nan)(a["reward"]),
    "observations beyond all bounds": lambda a: _first(3e38)(a["obs"]),
    "no skills": lambda a: a.update(skills=a["skills"][:0]),
    "negative lengths": lambda a: _first(-1)(a["written"]),
    "other lengths": lambda a: _first(3)(a["written"]),
    "rewards of other tasks": lambda a: a.update(task_rewards=a["task_rewards"][:, :, :1].copy()),
    "no environments": lambda a: a.update({name: value[:0] for name, value in a.items() if name != "next_skill_id"}),
}


@pytest.mark.parametrize("verb", ["export", "finetune"])
@pytest.mark.parametrize("change", READ)
def test_odd_replay_is_one_message(skills: Path, tmp_path: Path, change: str, verb: str) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    for folder in (path / "checkpoints").iterdir():
        forge_arrays(folder, "replay", READ[change])
    with pytest.raises(UserError, match=r"does not fit its config.json \((?!\w+Error)"):
        cic.export_data(path) if verb == "export" else finetune(tmp_path / "tuned", path, prior_data=0.5)
    assert not (tmp_path / "tuned").exists()


LIBRARIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no paths": lambda a: a.pop("paths"),
    "nothing": lambda a: a.update(skills=a["skills"][:0], paths=a["paths"][:0]),
    "paths without states": lambda a: a.update(paths=a["paths"][:, :0]),
    "skills of text": lambda a: a.update(skills=np.zeros(a["skills"].shape, np.uint8)),
    "skills of another size": lambda a: a.update(skills=np.zeros((len(a["skills"]), 7), np.float32)),
    "a scalar": lambda a: a.update(skills=np.zeros((), np.float32)),
    "states that are not finite": lambda a: _first(np.inf)(a["paths"]),
    "states beyond all bounds": lambda a: _first(3e38)(a["paths"]),
}


@pytest.mark.parametrize("change", LIBRARIES)
def test_odd_library_is_one_message(skills: Path, tmp_path: Path, change: str) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    forge_arrays(path / "library", "library", LIBRARIES[change])
    with pytest.raises(UserError, match="the skill library does not fit its agent"):
        finetune(tmp_path / "tuned", path, search="library", prior_data=0.0)
    assert not (tmp_path / "tuned").exists()


def test_weights_that_are_not_finite_are_refused(skills: Path, tmp_path: Path) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    for folder in (path / "checkpoints").iterdir():
        forge_arrays(folder, "agent", lambda arrays: _first(np.nan)(next(iter(arrays.values()))))
    with pytest.raises(UserError, match="contain NaN or infinity"):
        cic.load(path)


def test_layout_of_the_replay_is_known() -> None:
    state = Replay(Spaces(3, 2), 4, capacity=20, num_envs=2, tasks=5, physics=6).state()
    require_replay(state, 10, envs=2, obs=3, action=2, tasks=5, physics=6, dim=4)


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a float beyond floats": (lambda config: config["learning"].update(lr=10**400), "learning.lr must be float"),
    "environments beyond any machine": (
        lambda config: config.update(num_envs=10**7),
        "num_envs must be at most 10,000",
    ),
    "a replay beyond any machine": (lambda config: config.update(replay=10**11, steps=10**11), "of memory"),
    "threads beyond any machine": (lambda config: config.update(threads=10**10), "threads must be at most"),
    "networks beyond any machine": (lambda config: config["learning"].update(hidden=60_000), "of memory"),
    "a batch beyond any machine": (lambda config: config["learning"].update(batch=10**6), "of memory"),
    "a skill beyond any machine": (
        lambda config: config["options"].update(skill_dim=10**9),
        "skill_dim must be at most",
    ),
    "an endless seed": (lambda config: config.update(seed=10**30), "seed must lie"),
    "an unknown objective": (lambda config: config.update(objective="os.system"), "unknown objective"),
}


@pytest.mark.parametrize("change", CONFIGS)
def test_odd_config_is_refused(skills: Path, tmp_path: Path, change: str) -> None:
    path = stopped(skills, tmp_path / "run")
    forge(path, lambda header: CONFIGS[change][0](header["config"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match=CONFIGS[change][1]):
            cic.resume(path, quiet=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(format=4, version="\x1b[2Jboo"),
        lambda header: header["config"].update(learner="\x1b[2Jboo"),
        lambda header: header["config"].update(objective="\x9b2Jboo"),
        lambda header: header["config"].update(domain="\x1b]0;boo"),
    ],
)
def test_control_characters_are_replaced_in_messages(
    skills: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    path = shutil.copytree(skills, tmp_path / "run")
    forge(path, change)
    with pytest.raises(UserError) as caught:
        cic.evaluate(path, episodes=1)
    assert str(caught.value).isprintable()
    assert "boo" in str(caught.value)
