"""Spaces as JSON, flat observations, and policies in the units of the environment."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Tuple

import cic
from cic.core.action_spaces import scale_action
from cic.core.errors import UserError
from cic.core.spaces import Layout, entry_names, flatten, flatten_any, leaves, space_from_json
from cic.runs.folder import Run

SPEED = Box(np.array([-1, -np.inf], np.float32), np.array([1, np.inf], np.float32))
NESTED = Dict(
    OrderedDict(
        speed=SPEED,
        arm=Dict({"joints": Box(-3.0, 3.0, (2, 2), np.float64), "grip": Box(0, 255, (1,), np.uint8)}),
        last=Tuple((Box(0, 1, (), np.float32),)),
    )
)
MOTORS = Box(np.array([0, -2], np.float32), np.array([15, 2], np.float32))
SMALL: dict[str, Any] = {"scale": "smoke", "steps": 60, "warmup": 30, "hidden": 8, "batch": 8, "replay": 60}


class Drone(gymnasium.Env[Any, Any]):
    """Two motors with thrust 0 to 15 and tilt -2 to 2. It records its actions."""

    action_space = MOTORS
    taken: list[Any] = []  # noqa: RUF012

    def __init__(self, observation_space: Any = NESTED) -> None:
        self.observation_space = observation_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        return self.observation_space.sample(), float(action.sum()), False, len(self.taken) % 20 == 0, {}


@pytest.fixture(scope="module")
def drone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cic.register_env("drone", Drone)
    path = tmp_path_factory.mktemp("runs") / "drone"
    cic.pretrain("drone", "cic", skill_dim=2, out=path, quiet=True, **SMALL)
    return path


def test_the_order_of_a_flat_observation() -> None:
    assert [leaf.name for leaf in leaves(NESTED)] == ["speed", "arm.grip", "arm.joints", "last.0"]
    names = ["speed[0]", "speed[1]", "arm.grip[0]", *(f"arm.joints[{i}]" for i in range(4)), "last.0[0]"]
    assert entry_names(NESTED) == names
    arm = {"joints": np.array([[1, 2], [3, 4.0]]), "grip": np.array([9], np.uint8)}
    obs = {"arm": arm, "last": (np.float32(0.5),), "speed": [7, 8]}
    flat = flatten(leaves(NESTED), obs, "drone")
    assert flat.dtype == np.float32
    assert flat.tolist() == [7, 8, 9, 1, 2, 3, 4, 0.5]
    single, batched = flatten_any(leaves(NESTED), obs, "drone")
    assert (single.tolist(), batched) == ([flat.tolist()], False)
    rows = {"arm": {k: np.stack([v, v]) for k, v in arm.items()}, "last": (np.ones(2),), "speed": np.zeros((2, 2))}
    both, batched = flatten_any(leaves(NESTED), rows, "drone")
    assert (both.tolist(), batched) == ([[0, 0, 9, 1, 2, 3, 4, 1]] * 2, True)
    with pytest.raises(UserError, match=r"an observation of 'arm.grip' of shape \(2, 1\) instead of \(1,\)"):
        flatten_any(leaves(NESTED), rows | {"speed": np.zeros(2)}, "drone")


def test_actions_against_a_plain_computation() -> None:
    action = np.array([[-1, -1], [0, 0.5], [1, 3]], np.float32)
    expected = [
        [(a + 1) / 2 * (high - low) + low for a, low, high in zip(row, (0, -2), (15, 2), strict=True)]
        for row in np.clip(action, -1, 1).tolist()
    ]
    np.testing.assert_allclose(scale_action(MOTORS, action), expected, rtol=1e-6)
    assert scale_action(MOTORS, action[0]).shape == (2,)
    same = np.array([1e-12, -0.3, 1], np.float32)
    assert (scale_action(Box(-1, 1, (3,)), same) == same).all(), "bit-exact without scaling"


@pytest.mark.parametrize("space", [NESTED, SPEED, Box(0, 255, (3, 8, 8), np.uint8), Box(-1, 1, (0,)), Tuple((SPEED,))])
def test_spaces_as_json(space: Any) -> None:
    layout = Layout(space, MOTORS)
    text = json.dumps(layout.to_json(), allow_nan=False)
    again = Layout.from_json(json.loads(text), "config.json")
    assert again == layout
    assert [leaf.name for leaf in leaves(again.observation)] == [leaf.name for leaf in leaves(space)]
    assert len(text) < 1000


BOX = {"type": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0}


@pytest.mark.parametrize(
    "data",
    [
        *(None, 3, [], {}, {"type": "Graph"}, {"type": ["Box"]}, {"type": "Tuple"}, {"type": "Tuple", "spaces": []}),
        *({"type": "Dict", "spaces": [BOX]}, {"type": "Dict", "keys": ["a", "a"], "spaces": [BOX, BOX]}),
        *(BOX | {"shape": shape} for shape in (None, 2, [-1], [2.0], [True], [10**9, 10**9], [1] * 70, "2")),
        *(BOX | {"dtype": dtype} for dtype in (None, "object", "U5", "float128", ["float32"], "complex64")),
        *(BOX | {"low": low} for low in ("0", [0.0], [0.0, "0"], {}, float("nan"), 10**400, [[0, 0]], 2.0)),
        BOX | {"dtype": "uint8", "high": None},
        BOX | {"dtype": "uint8", "high": 300},
    ],
)  # fmt: skip
def test_untrusted_descriptions_of_spaces(data: Any) -> None:
    with pytest.raises(UserError, match=r"^config.json: layout.observation"):
        space_from_json(data, "config.json: layout.observation")


def test_spaces_that_cannot_be_described() -> None:
    deep: Any = SPEED
    for _ in range(9):
        deep = Dict(inner=deep)
    with pytest.raises(UserError, match="nested more than 8 levels deep"):
        leaves(deep)
    with pytest.raises(UserError, match="keys of a Dict observation must be strings"):
        Layout(Dict({2.5: SPEED}), MOTORS).to_json()  # type: ignore[dict-item]


def test_predict_takes_own_observations_and_gives_own_actions(drone: Path) -> None:
    agent = cic.load(drone)
    agent.skill = np.array([0.2, 0.9], np.float32)
    assert agent.layout == Layout(NESTED, MOTORS)
    seen = [NESTED.sample() for _ in range(5)]
    flat = np.stack([flatten(leaves(NESTED), one, "") for one in seen])
    expected = scale_action(MOTORS, agent.act(flat))
    actions = [agent.predict(one)[0] for one in seen]
    assert all(MOTORS.contains(action) for action in actions)
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    batch = {
        "speed": np.stack([one["speed"] for one in seen]),
        "arm": {key: np.stack([one["arm"][key] for one in seen]) for key in ("joints", "grip")},
        "last": (np.stack([one["last"][0] for one in seen]),),
    }
    np.testing.assert_array_equal(agent.predict(batch)[0], expected)
    with pytest.raises(UserError, match="predict: the observation lacks the entry 'speed' of its space"):
        agent.predict(np.zeros(8))


def test_loading_needs_no_registered_environment(drone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cic.envs.registry._OWN", {})
    agent = cic.load(drone)
    agent.skill = np.array([0.2, 0.9], np.float32)
    assert MOTORS.contains(agent.predict(NESTED.sample())[0])


def test_the_environment_receives_what_predict_returns(drone: Path) -> None:
    agent = cic.load(drone)
    agent.skill = np.array([0.2, 0.9], np.float32)
    env, own = cic.envs.make("drone"), Drone()
    obs, _ = env.reset(seed=3)
    Drone.taken.clear()
    env.step(agent.act(obs, agent.skill))
    np.testing.assert_array_equal(Drone.taken[0], agent.predict(own.reset(seed=3)[0])[0])


@pytest.fixture
def old(drone: Path, tmp_path: Path) -> Path:
    """A run folder as earlier versions made it."""
    path = tmp_path / "old"
    shutil.copytree(drone, path)
    header = json.loads((path / "config.json").read_text())
    del header["layout"]
    (path / "config.json").write_text(json.dumps(header))
    return path


def test_runs_without_a_layout_act_as_before(old: Path) -> None:
    agent = cic.load(old)
    agent.skill = np.array([0.2, 0.9], np.float32)
    obs = np.zeros(8, np.float32)
    np.testing.assert_array_equal(agent.predict(obs)[0], agent.act(obs))


@pytest.mark.slow
def test_runs_without_a_layout_are_exported_as_before(old: Path, tmp_path: Path) -> None:
    agent = cic.load(old)
    agent.skill = np.array([0.2, 0.9], np.float32)
    obs = np.zeros(8, np.float32)
    file, names = cic.export_policy(old, tmp_path / "policy")
    assert names == ["obs", "skill"]
    action = torch.export.load(file).module()(torch.zeros(3, 8), torch.from_numpy(np.tile(agent.skill, (3, 1))))
    np.testing.assert_allclose(action.numpy()[0], agent.act(obs), atol=1e-6)


def test_a_layout_that_does_not_fit(drone: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(drone, forged)
    header = json.loads((forged / "config.json").read_text())
    for layout, message in (
        (Layout(SPEED, MOTORS).to_json(), r"the layout has sizes \(2, 2\), not \(8, 2\)"),
        ([], "layout must have the keys observation and action"),
    ):
        (forged / "config.json").write_text(json.dumps(header | {"layout": layout}))
        with pytest.raises(UserError, match=message):
            cic.load(forged)


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_exported_policies_use_own_units(drone: Path, format: Any, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnx", reason="the extra `export` is not installed")
        runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    agent = cic.load(drone)
    agent.skill = np.array([0.2, 0.9], np.float32)
    file, names = cic.export_policy(drone, tmp_path / "policy", format)
    assert names == ["speed", "arm.grip", "arm.joints", "last.0", "skill"]
    seen = [NESTED.sample() for _ in range(4)]
    inputs = {
        "speed": np.stack([one["speed"] for one in seen]),
        "arm.grip": np.stack([one["arm"]["grip"] for one in seen]),
        "arm.joints": np.stack([one["arm"]["joints"] for one in seen]),
        "last.0": np.stack([one["last"][0] for one in seen]),
        "skill": np.tile(agent.skill, (4, 1)),
    }
    if format == "onnx":
        session = runtime.InferenceSession(file)
        (actions,) = session.run(None, inputs)
        properties = session.get_modelmeta().custom_metadata_map
        described = {name: json.loads(properties[name]) for name in ("inputs", "outputs", "entries")}
    else:
        extra = {"interface.json": ""}
        program = torch.export.load(file, extra_files=extra)
        actions = program.module()(*map(torch.from_numpy, inputs.values())).numpy()
        described = json.loads(extra["interface.json"])
    np.testing.assert_allclose(actions, [agent.predict(one)[0] for one in seen], atol=1e-5)
    assert [part["name"] for part in described["inputs"]] == names
    assert described["outputs"] == [
        {"name": "action", "type": "Box", "shape": [2], "dtype": "float32", "low": [0.0, -2.0], "high": [15.0, 2.0]}
    ]
    assert described["entries"] == entry_names(NESTED)


def test_the_layout_is_in_the_run_folder(drone: Path) -> None:
    assert Run(drone).about["layout"] == json.loads(json.dumps(Layout(NESTED, MOTORS).to_json()))
