"""Images, Dict observations and pixels: spaces, replay, encoders, CURL, gradients, and whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from agent_setup import restored, same
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from helpers import doubles, weights_of
from image_envs import KINDS, SIDE, ImageGrid

import cic
from cic import cli
from cic.core.errors import UserError
from cic.core.observations import parts_of
from cic.core.spaces import entry_names, flatten, flatten_any, leaves, space_from_json, space_to_json, usable
from cic.core.types import Batch, Needs, Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.curl import CURL
from cic.learning.encoders import EncoderConfig, Identity, PartEncoder, make_encoder, shift_images
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective, objectives
from cic.learning.replay import Replay
from cic.runs.folder import Run

Bytes = npt.NDArray[np.uint8]
SMALL = Box(0, 255, (3, 6, 5, 2), np.uint8)
"""Three images of 6 × 5 pixels and two channels."""


def spaces_of(space: Any, action: int = 2, choices: tuple[int, ...] = ()) -> Spaces:
    return Spaces(sum(leaf.size for leaf in leaves(space)), action, choices, parts_of(space))


# ---- observation spaces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((48, 40, 3), (3, 48, 40)),
        ((3, 48, 40), (3, 48, 40)),
        ((48, 40), (1, 48, 40)),
        ((4, 84, 84), (4, 84, 84)),
        ((3, 48, 40, 3), (9, 48, 40)),
    ],
)
def test_uint8_boxes_are_images(shape: tuple[int, ...], image: tuple[int, ...]) -> None:
    (part,) = parts_of(Box(0, 255, shape, np.uint8))
    assert part.image == image
    assert part.size == np.prod(shape)


@pytest.mark.parametrize("space", [Box(-1, 1, (5,)), Box(0, 255, (128,), np.uint8), Box(-1, 1, (3, 3)), Discrete(3)])
def test_other_spaces_are_vectors(space: Any) -> None:
    assert parts_of(space) == ()
    assert isinstance(make_encoder(spaces_of(space), EncoderConfig()), Identity)


def test_a_float_image_is_refused_with_a_remedy() -> None:
    message = (
        r"'camera' has shape \(64, 64, 3\) and type float32: an image must be uint8 .*TransformObservation.*Flatten"
    )
    with pytest.raises(UserError, match=message):
        parts_of(Dict({"camera": Box(0, 1, (64, 64, 3), np.float32)}), "env")


def test_keys_that_cannot_be_used_are_ignored_or_refused() -> None:
    kept, ignored = usable(Dict({"x": Box(0, 1, (2,)), "text": Text(4)}), "env")
    assert (list(kept.spaces), ignored) == (["x"], ["text (Text)"])
    with pytest.raises(UserError, match=r"env: no key of the Dict observation can be used: text \(Text\); add a key"):
        usable(Dict({"text": Text(4)}), "env")
    with pytest.raises(UserError, match=r"observations must be Box, Discrete, .* not Text"):
        leaves(Text(3), "env")


def test_discrete_observations_are_one_hot() -> None:
    space = Tuple([Discrete(3, start=1), MultiDiscrete([2, 3]), MultiBinary(2), Box(0, 9, (1,))])
    found = leaves(space)
    obs = (np.int64(2), np.array([1, 0]), np.array([1, 0], np.int8), np.array([7.0], np.float32))
    expected = [0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 7]
    assert flatten(found, obs, "env").tolist() == expected
    batch = tuple(np.stack([part, part]) for part in obs)
    rows, batched = flatten_any(found, batch, "env")
    assert batched
    assert rows.tolist() == [expected, expected]
    assert len(entry_names(space)) == len(expected)
    assert space_from_json(json.loads(json.dumps(space_to_json(space))), "config.json") == space
    with pytest.raises(UserError, match="env: the observation of '0' is 4, which is not in its space Discrete"):
        flatten(found, (np.int64(4), *obs[1:]), "env")


# ---- replay ----------------------------------------------------------------------------------------------------


def stacked(images: list[Bytes], at: int, frames: int) -> Bytes:
    return np.concatenate([images[max(at - back, 0)].ravel() for back in reversed(range(frames))])


def test_stacks_share_images_and_are_sampled_as_they_were_stored() -> None:
    """A ring that is overwritten several times, against complete observations kept beside it."""
    rng = np.random.default_rng(0)
    space = Dict({"camera": SMALL, "speed": Box(-9, 9, (2,), np.float32)})
    spaces = spaces_of(space)
    replay = Replay(spaces, 0, capacity=22, num_envs=2, nstep=2)
    none, known = np.zeros((2, 0), np.float32), {}
    for _ in range(12):
        length = int(rng.integers(1, 9))
        images = [
            [rng.integers(256, size=SMALL.shape[1:], dtype=np.uint8) for _ in range(length + 1)] for _ in range(2)
        ]
        speeds = rng.standard_normal((length + 1, 2, 2)).astype(np.float32)
        rows = [
            np.stack([np.concatenate([stacked(images[env], at, 3), speeds[at, env]]) for env in range(2)])
            for at in range(length + 1)
        ]
        for at in range(length):
            for env in range(2):
                known[speeds[at, env, 0].item()] = rows[at][env]
            replay.add(rows[at].astype(np.float32), none, np.zeros((2, 2)), np.zeros(2), np.zeros(2, np.bool_))
        for env in range(2):
            known[speeds[length, env, 0].item()] = rows[length][env]
        replay.finish(rows[length].astype(np.float32), np.ones(2, np.bool_))
        if replay.ready():
            batch = replay.sample(40, rng, Needs(goals=0.5))
            for seen in (batch.obs, batch.next_obs):
                for row in seen.numpy():
                    np.testing.assert_array_equal(row, known[row[-2].item()])
    again = Replay(spaces, 0, capacity=22, num_envs=2, nstep=2)
    again.restore(replay.state())
    first, second = (one.sample(30, np.random.default_rng(1)) for one in (replay, again))
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], second[:-1], strict=True))
    assert first.obs.dtype == torch.float32
    assert Replay(spaces_of(SMALL), 0, 9).sample is not None
    assert Replay(spaces_of(SMALL), 0, 9).observations(np.array([0])).dtype == np.uint8


def test_memory_of_images_is_that_of_their_bytes() -> None:
    space = Box(0, 255, (3, 48, 48, 3), np.uint8)
    replay = Replay(spaces_of(space), 0, capacity=2_000)
    total = sum(getattr(replay, name).nbytes for name in replay._record_names)
    assert total < 1.1 * 2_000 * 48 * 48 * 3


def test_stacks_that_do_not_overlap_are_refused() -> None:
    replay = Replay(spaces_of(SMALL), 0, 20)
    rows = np.random.default_rng(0).integers(256, size=(2, 1, int(np.prod(SMALL.shape)))).astype(np.float32)
    with pytest.raises(UserError, match="3 images of the observation are not those of the last steps: use gymnasium"):
        replay.add(rows[0], np.zeros((1, 0)), np.zeros((1, 2)), np.zeros(1), np.zeros(1, np.bool_))


def test_a_replay_of_images_that_does_not_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"need about .* GB of memory .*a replay of 900,000,000 steps .* GB.*replay"):
        cic.pretrain(
            "point_mass", pixels=True, scale="smoke", replay=900_000_000, steps=900_000_000, out=tmp_path / "a"
        )


# ---- encoders --------------------------------------------------------------------------------------------------


def numpy_convolution(x: npt.NDArray[Any], weight: npt.NDArray[Any], bias: npt.NDArray[Any], stride: int) -> Any:
    """(C, H, W) → ReLU of a convolution without padding."""
    size = weight.shape[-1]
    height, width = ((side - size) // stride + 1 for side in x.shape[1:])
    out = np.zeros((len(weight), height, width))
    for row in range(height):
        for column in range(width):
            patch = x[:, row * stride : row * stride + size, column * stride : column * stride + size]
            out[:, row, column] = (weight * patch).sum(axis=(1, 2, 3)) + bias
    return np.maximum(out, 0)


@pytest.mark.parametrize("shape", [(20, 21, 2), (2, 20, 21), (2, 20, 20, 1), (6, 5, 2)])
def test_the_image_encoder_is_that_of_numpy(shape: tuple[int, ...]) -> None:
    spaces = spaces_of(Box(0, 255, shape, np.uint8))
    torch.manual_seed(0)
    encoder = make_encoder(spaces, EncoderConfig(image_features=4))
    assert isinstance(encoder, PartEncoder)
    rng = np.random.default_rng(0)
    image = rng.integers(256, size=shape, dtype=np.uint8)
    x = image.astype(np.float64) / 255 - 0.5
    if len(shape) == 4:
        x = np.concatenate([frame.transpose(2, 0, 1) for frame in x])
    elif shape[-1] == 2:
        x = x.transpose(2, 0, 1)
    w = weights_of(encoder.images["part0"])
    strides = (2, 1, 1, 1) if min(x.shape[1:]) >= 20 else (1, 1)
    for index, stride in enumerate(strides):
        name = f"convolutions.{2 * index}"
        x = numpy_convolution(x, w[f"{name}.weight"], w[f"{name}.bias"], stride)
    hidden = w["projection.0.weight"] @ x.ravel() + w["projection.0.bias"]
    normal = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-5)
    expected = np.tanh(normal * w["projection.1.weight"] + w["projection.1.bias"])
    for dtype in (torch.uint8, torch.float32):
        found = encoder(torch.from_numpy(image.reshape(1, -1)).to(dtype))[0]
        np.testing.assert_allclose(doubles(found), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(7, 6, 3), (3, 7, 6), (2, 7, 6, 3)])
def test_shifts_are_crops_of_the_padded_image(shape: tuple[int, ...]) -> None:
    (part,) = parts_of(Box(0, 255, shape, np.uint8))
    images = np.random.default_rng(0).integers(256, size=(9, *shape), dtype=np.uint8)
    shifted = shift_images(torch.from_numpy(images.reshape(9, -1)), part, 2, torch.Generator().manual_seed(0))
    rows, columns = (shape.index(7) + 1, shape.index(6) + 1)
    offsets = set()
    for before, after in zip(images, shifted.numpy().reshape(images.shape), strict=True):
        pads = [(2, 2) if axis + 1 in (rows, columns) else (0, 0) for axis in range(len(shape))]
        padded = np.pad(before, pads, mode="edge")
        found = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if np.array_equal(padded.take(range(y, y + 7), rows - 1).take(range(x, x + 6), columns - 1), after)
        ]
        assert found
        offsets.add(found[0])
    assert len(offsets) > 3


DICT = Dict({"camera": Box(0, 255, (6, 6, 3), np.uint8), "speed": Box(-9, 9, (2,)), "turn": Discrete(3)})


def random_pixels(spaces: Spaces, skill: torch.Tensor, size: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)

    def obs(*rows: int) -> torch.Tensor:
        values = rng.standard_normal((*rows, spaces.obs)).astype(np.float32)
        for part in spaces.images:
            values[..., part.start : part.stop] = rng.integers(256, size=(*rows, part.size))
        return torch.from_numpy(values)

    action = torch.from_numpy(spaces.random_actions(size, rng))
    extras = {"first_obs": obs(size), "path": obs(size, 11), "goal": obs(size), "random_goal": obs(size)}
    extras["skill_end"] = torch.from_numpy((rng.random((size, 1)) < 0.3).astype(np.float32))
    reward = torch.from_numpy(rng.standard_normal((size, 1)).astype(np.float32))
    return Batch(obs(size), action, reward, torch.full((size, 1), 0.97), obs(size), skill, extras)


def image_agent(objective: str, learner: str = "ddpg", space: Any = DICT, seed: int = 0, **encoding: Any) -> Agent:
    cls = get_objective(objective)
    discrete = get_learner(learner).discrete
    spaces = spaces_of(space, 5, (3, 2) if discrete else ())
    config = get_learner(learner).Config(hidden=8, batch=6, lr=1e-3)
    options = cls.Options(**cls.scales.get("smoke", {}))
    settings = EncoderConfig(**{"image_features": 4, "shift": 1} | encoding)
    return build_agent(spaces, objective, options, learner, config, encoding=settings, seed=seed)


def batches(agent: Agent, count: int) -> list[Batch]:
    found = []
    for seed in range(count):
        skill = torch.from_numpy(agent.objective.skills.sample(6, np.random.default_rng(seed)))
        found.append(random_pixels(agent.spaces, skill, 6, seed))
    return found


STATES_ONLY = ("ssn4hrl", "steer")
NAMES = [name for name, cls in objectives() if cls.__module__.startswith("cic.") and name not in STATES_ONLY]


@pytest.mark.parametrize("learner", ["ddpg", "dqn"])
@pytest.mark.parametrize("objective", NAMES)
def test_every_method_trains_from_images_and_continues_bit_exactly(objective: str, learner: str) -> None:
    agent, other = image_agent(objective, learner), image_agent(objective, learner, seed=1)
    before = [value.clone() for value in agent.encoder.parameters()]
    todo = batches(agent, 3)
    for batch in todo[:2]:
        metrics = agent.update(batch, intrinsic=True)
        assert all(bool(value.isfinite()) for value in metrics.values()), metrics
    assert any(not torch.equal(a, b) for a, b in zip(before, agent.encoder.parameters(), strict=True))
    restored(agent, other)
    for one in (agent, other):
        one.update(todo[2], intrinsic=True)
        one.update(todo[0], intrinsic=False)
    assert same(agent, other)
    assert agent.act(todo[0].obs.numpy(), todo[0].skill.numpy()).shape == (6, 5)


@pytest.mark.parametrize("objective", STATES_ONLY)
def test_methods_that_use_entries_of_the_observation_need_keys_without_images(objective: str) -> None:
    with pytest.raises(
        UserError, match=f'objective "{objective}" uses entries of the observation, which contains images'
    ):
        image_agent(objective)
    agent = image_agent(objective, objective_keys=("speed",))
    assert agent.objective.spaces.obs == 2


# ---- what trains the encoder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "gradients", "losses"),
    [
        ("cic", "corrected", {"objective", "critic"}),
        ("cic", "released", set()),
        ("diayn", "released", {"objective"}),
        ("rnd", "corrected", {"critic"}),
        ("rnd", "released", {"objective"}),
        ("disagreement", "corrected", {"critic"}),
        ("ddpg", "corrected", {"critic"}),
        ("ddpg", "released", {"critic"}),
    ],
)
def test_the_losses_that_train_the_encoder(objective: str, gradients: Any, losses: set[str]) -> None:
    agent = image_agent(objective, encoder_gradients=gradients)
    assert agent.encoder.learns_from == losses
    before = [value.clone() for value in agent.encoder.parameters()]
    agent.update(batches(agent, 1)[0], intrinsic=False)
    moved = any(not torch.equal(a, b) for a, b in zip(before, agent.encoder.parameters(), strict=True))
    assert moved == ("critic" in losses)


def test_the_forward_model_of_icm_does_not_train_the_encoder() -> None:
    agent = image_agent("icm")
    batch = agent.encode(batches(agent, 1)[0], detached=False)
    error = agent.objective._forward_error(batch).mean()
    found = torch.autograd.grad(error, list(agent.encoder.parameters()), allow_unused=True)
    assert all(gradient is None for gradient in found)


def test_objective_keys_select_what_the_objective_sees() -> None:
    agent = image_agent("diayn", objective_keys=("turn", "speed"))
    batch = batches(agent, 1)[0]
    seen = agent.encode(batch, detached=True)
    torch.testing.assert_close(seen.obs, batch.obs[:, 6 * 6 * 3 :])
    torch.testing.assert_close(agent.features(batch.obs.numpy()), seen.obs)
    assert agent.learner.actor.trunk[0].in_features == 4 + 2 + 3 + agent.objective.skills.dim
    with pytest.raises(
        UserError, match='unknown key of the observation in objective_keys "sped"; did you mean "speed"'
    ):
        image_agent("diayn", objective_keys=("sped",))
    with pytest.raises(UserError, match='objective "fb" uses the whole input of the policy: omit objective_keys'):
        image_agent("fb", objective_keys=("speed",))
    with pytest.raises(UserError, match="objective_keys selects keys of a Dict observation"):
        make_encoder(Spaces(3, 2), EncoderConfig(objective_keys=("x",)))
    with pytest.raises(UserError, match="auxiliary=curl trains an image encoder"):
        make_encoder(Spaces(3, 2), EncoderConfig(auxiliary="curl"))


def test_inputs_of_the_policy_are_features_and_the_skill() -> None:
    agent = image_agent("diayn", objective_keys=("speed",))
    batch = batches(agent, 1)[0]
    given = agent.policy_batch(batch)
    expected = torch.cat([agent.encoder(batch.next_obs), batch.skill], dim=1)
    torch.testing.assert_close(given.next_obs, expected)
    cls = get_objective("diayn")
    config = get_learner("ddpg").Config(hidden=8, batch=6)
    plain = build_agent(Spaces(3, 2), "diayn", cls.Options(), "ddpg", config, normalise_obs=True)
    obs = torch.arange(18.0).reshape(6, 3)
    plain.observe(obs.numpy())
    state = batch._replace(obs=obs, next_obs=obs, action=torch.zeros(6, 2), skill=torch.eye(16)[:6], extras={})
    torch.testing.assert_close(plain.policy_batch(state).obs[:, :3], (obs - obs.mean(0)) / obs.std(0, correction=0))


# ---- CURL ------------------------------------------------------------------------------------------------------


def test_the_loss_of_curl_is_that_of_numpy() -> None:
    torch.manual_seed(0)
    encoder = make_encoder(spaces_of(SMALL), EncoderConfig(image_features=5))
    assert isinstance(encoder, PartEncoder)
    curl = CURL(encoder)
    with torch.no_grad():
        for value in curl.key.parameters():
            value += 0.1 * torch.randn_like(value)
    pixels = [torch.randint(256, (7, int(np.prod(SMALL.shape))), dtype=torch.uint8) for _ in range(2)]
    query, key = doubles(encoder(pixels[0])), doubles(curl.key(pixels[1]))
    weight, losses = doubles(curl.weight), []
    for row in range(7):
        logits = np.array([query[row] @ weight @ key[column] for column in range(7)])
        logits -= logits.max()
        losses.append(-np.log(np.exp(logits[row]) / np.exp(logits).sum()))
    loss, _ = curl.loss(encoder, *pixels)
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-4)
    loss.backward()
    assert all(value.grad is None for value in curl.key.parameters())
    assert all(value.grad is not None for value in encoder.parameters())
    before = [doubles(value) for value in curl.key.parameters()]
    curl.follow(encoder)
    for old, new, source in zip(before, curl.key.parameters(), encoder.parameters(), strict=True):
        np.testing.assert_allclose(doubles(new), 0.95 * old + 0.05 * doubles(source), atol=1e-6)


def test_curl_trains_the_encoder_and_continues_bit_exactly() -> None:
    agent, other = (image_agent("cic", auxiliary="curl", encoder_gradients="released", seed=seed) for seed in (0, 1))
    assert agent.encoder.learns_from == {"auxiliary"}
    before = [value.clone() for value in agent.encoder.parameters()]
    todo = batches(agent, 2)
    assert {"auxiliary/loss", "auxiliary/accuracy"} <= agent.update(todo[0], intrinsic=True).keys()
    assert any(not torch.equal(a, b) for a, b in zip(before, agent.encoder.parameters(), strict=True))
    restored(agent, other)
    for one in (agent, other):
        one.update(todo[1], intrinsic=True)
    assert same(agent, other)
    third = image_agent("cic", auxiliary="curl", seed=2)
    third.inherit(agent.state_dict(), "trunk")
    assert all(
        torch.equal(a, b) for a, b in zip(third.auxiliary.parameters(), agent.auxiliary.parameters(), strict=True)
    )


# ---- whole runs ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _environments() -> None:
    for kind in KINDS:
        cic.register_env(f"grid_{kind}", lambda kind=kind: ImageGrid(kind))


def own_actions(file: Path, names: list[str], inputs: dict[str, Any], format: str) -> Any:
    if format == "torch":
        return torch.export.load(file).module()(*(torch.from_numpy(inputs[name]) for name in names)).numpy()
    runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    return runtime.InferenceSession(file).run(None, inputs)[0]


@pytest.mark.parametrize("kind", ["image", pytest.param("dict", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*keys of the observation are ignored")
def test_a_run_with_images_resumes_bit_exactly_and_is_exported(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"scale": "smoke", "checkpoint_every": 100, "milestones": (), "quiet": True, "batch": 8}
    whole = cic.pretrain(f"grid_{kind}", "icm", steps=160, out=tmp_path / "whole", **settings)
    part = cic.pretrain(f"grid_{kind}", "icm", steps=120, out=tmp_path / "part", **settings)
    cic.resume(part.path, steps=160, quiet=True)
    assert (part.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()
    agent = cic.load(whole.path)
    env = ImageGrid(kind)
    obs, _ = env.reset(seed=0)
    action, _ = agent.predict(obs)
    assert env.action_space.contains(action)
    file, names = cic.export_policy(whole.path, tmp_path / "policy")
    inputs = {"obs": obs[None]} if kind == "image" else {key: np.asarray(obs[key])[None] for key in names}
    assert own_actions(file, names, inputs, "torch").tolist() == [action]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*keys of the observation are ignored")
def test_every_kind_of_observation_is_pretrained_finetuned_and_exported(kind: str, tmp_path: Path) -> None:
    run = cic.pretrain(f"grid_{kind}", "diayn", scale="smoke", steps=160, out=tmp_path / "run", quiet=True)
    tuned = cic.finetune(run.path, f"grid_{kind}", steps=150, out=tmp_path / "tuned", quiet=True)
    assert np.isfinite(tuned.result["return"])
    obs, _ = ImageGrid(kind).reset(seed=0)
    expected = [cic.load(tuned.path).predict(obs)[0]]
    for format in ("torch", "onnx"):
        if format == "onnx":
            pytest.importorskip("onnx", reason="the extra `export` is not installed")
        file, names = cic.export_policy(tuned.path, tmp_path / format, format)
        inputs = {key: np.asarray(obs[key] if kind == "dict" else obs)[None] for key in names}
        assert own_actions(file, names, inputs, format).tolist() == expected


@pytest.mark.filterwarnings("ignore:.*keys of the observation are ignored")
def test_ignored_keys_are_reported_and_prior_data_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"grid_dict: these keys of the observation are ignored: mission \(Text\)"):
        cic.envs.make("grid_dict").close()
    settings: dict[str, Any] = {"scale": "smoke", "steps": 110, "quiet": True}
    run = cic.pretrain("grid_dict", "diayn", objective_keys=("speed",), out=tmp_path / "run", **settings)
    assert cic.load(run.path).objective.spaces.obs == 2
    assert cic.doctor(run.path, steps=4).findings
    with pytest.raises(UserError, match="contains images, which only the run itself can use"):
        Run(run.path).replay()
    with pytest.raises(UserError, match="prior_data is not available for images"):
        cic.finetune(run.path, "grid_dict", prior_data=0.5, out=tmp_path / "tuned")
    with pytest.raises(UserError, match=r"was pre-trained with `image_features=\d+`, not 7: omit `image_features`, or"):
        cic.finetune(run.path, "grid_dict", image_features=7, out=tmp_path / "tuned")


# ---- pixels of the built-in domains ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _opengl() -> None:
    env = cic.envs.make("point_mass?pixels=20")
    try:
        env.reset(seed=0)
    except UserError as error:
        pytest.skip(str(error))
    finally:
        env.close()


@pytest.mark.usefixtures("_opengl")
def test_pixels_are_stacks_of_the_last_images_and_actions_are_repeated() -> None:
    env, plain = cic.envs.make("walker-run?pixels=24&frame_stack=2&action_repeat=3"), cic.envs.make("walker-run")
    obs, _ = env.reset(seed=3)
    plain.reset(seed=3)
    images = obs.reshape(2, 24, 24, 3)
    np.testing.assert_array_equal(images[0], images[1])
    assert env.spaces.parts[0].image == (6, 24, 24)
    assert env.episode_length == 334
    action = np.full((1, 6), 0.5, np.float32)
    step = env.step(action)
    rewards = [plain.step(action) for _ in range(3)]
    assert step.reward[0] == pytest.approx(sum(one.reward[0] for one in rewards), rel=1e-5)
    assert step.info["rewards"]["walk"][0] == pytest.approx(sum(one.info["rewards"]["walk"][0] for one in rewards))
    np.testing.assert_array_equal(env.states(), rewards[-1].obs)
    now = step.obs.reshape(2, 24, 24, 3)
    np.testing.assert_array_equal(now[0], images[1])
    assert (now[1] != images[1]).any()
    saved = env.state()
    later = env.step(action).obs
    env.restore(saved)
    np.testing.assert_array_equal(env.step(action).obs, later)
    env.close()
    plain.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gridworld?pixels=48", "gridworld cannot be rendered: choose walker, quadruped, jaco or point_mass"),
        ("walker?pixels=4", r"image_size must lie in \[20, 512\], not 4"),
        ("walker?size=48", "the arguments of a built-in environment are whole numbers"),
        ("walker?pixels=48.5", "the arguments of a built-in environment are whole numbers"),
    ],
)
def test_impossible_pixels_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cic.envs.make(name)


def test_pixels_without_opengl_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(UserError, match=r"rendering needs OpenGL \(.*unset MUJOCO_GL\).*apt install"):
        cic.pretrain("point_mass", "diayn", pixels=True, scale="smoke", out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("_opengl")
def test_pixels_resume_bit_exactly(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"scale": "smoke", "pixels": True, "image_size": 20, "checkpoint_every": 60}
    settings |= {"milestones": (), "quiet": True, "warmup": 40, "auxiliary": "curl", "num_envs": 2}
    whole = cic.pretrain("point_mass", "cic", steps=120, out=tmp_path / "whole", **settings)
    part = cic.pretrain("point_mass", "cic", steps=80, out=tmp_path / "part", **settings)
    cic.resume(part.path, steps=120, quiet=True)
    assert (part.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()
    assert "cells of x" in whole.result["coverage/of"]
    config = json.loads((whole.path / "config.json").read_text())
    assert config["layout"]["observation"]["shape"] == [3, 20, 20, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("_opengl")
def test_pixels_are_finetuned(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"scale": "smoke", "image_size": 20, "quiet": True}
    run = cic.pretrain("point_mass", "diayn", pixels=True, out=tmp_path / "run", **settings)
    tuned = cic.finetune(run.path, "reach_top_left", out=tmp_path / "tuned", steps=120, quiet=True)
    assert np.isfinite(tuned.result["return"])
    scratch = cic.finetune(None, "point_mass-reach_top_left", pixels=True, out=tmp_path / "scratch", **settings)
    assert cic.load(scratch.path).encoder.learns_from == {"critic"}


def test_scales_of_pixels_are_those_of_urlb() -> None:
    from cic.training.settings import finetune_defaults, pretrain_defaults

    paper = pretrain_defaults("walker", "cic", "paper", pixels=True)
    assert (paper.image_size, paper.frame_stack, paper.action_repeat, paper.learning.batch) == (84, 3, 2, 256)
    assert paper.steps * paper.action_repeat == 2_000_000
    tuned = finetune_defaults("walker-run", "paper", pixels=True)
    assert (tuned.steps * tuned.action_repeat, tuned.learning.batch) == (100_000, 256)
    assert paper.environment == "walker?pixels=84&frame_stack=3&action_repeat=2"


def test_the_preset_released_has_the_gradients_of_the_released_code() -> None:
    from cic.api import continuing
    from cic.training.settings import override, pretrain_defaults

    released = pretrain_defaults("walker", "cic", preset="released", pixels=True)
    assert released.encoding.encoder_gradients == "released"
    assert continuing(released, "walker-run").encoding.encoder_gradients == "released"
    assert override(released, {"encoder_gradients": "corrected"}).encoding.encoder_gradients == "corrected"
    for preset, pixels in ((None, True), ("released", False)):
        config = pretrain_defaults("walker", "diayn", preset=preset, pixels=pixels)
        assert (config.preset, config.encoding.encoder_gradients) == ("released", "corrected")


# ---- OpenGL ----------------------------------------------------------------------------------------------------


def test_the_first_platform_that_works_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from cic.envs import rendering

    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(rendering, "_forget_opengl", lambda: None)
    tried: list[str] = []

    def context(platform: str) -> str:
        tried.append(platform)
        if platform != works:
            raise OSError(f"no {platform}")
        return platform

    monkeypatch.setattr(rendering, "_context", context)
    for works, expected in (("egl", ["egl"]), ("osmesa", ["egl", "osmesa"])):
        tried.clear()
        assert rendering._working_context.__wrapped__() == works
        assert tried == expected
    works = "none"
    with pytest.raises(RuntimeError, match="egl: no egl; osmesa: no osmesa"):
        rendering._working_context.__wrapped__()
    monkeypatch.setenv("DISPLAY", ":0")
    works = "glfw"
    assert rendering._working_context.__wrapped__() == "glfw"
    assert "libegl1" in rendering._NO_OPENGL
    assert "libosmesa6" in rendering._NO_OPENGL


def test_the_grid_is_as_described() -> None:
    env = gymnasium.wrappers.TimeLimit(ImageGrid("image"), 5)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (SIDE, SIDE, 3)
    assert env.observation_space.contains(obs)


def test_the_settings_of_the_encoder_are_flags_of_a_finetuning_from_scratch(tmp_path: Path) -> None:
    words = [
        "finetune",
        "--scratch",
        "--task",
        "point_mass-easy",
        "--pixels",
        "--auxiliary",
        "curl",
        "--scale",
        "smoke",
    ]
    assert cli.main([*words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert Run(tmp_path / "run").config["encoding"]["auxiliary"] == "curl"
