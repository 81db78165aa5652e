"""The policy alone, for a robot or a browser: the environment's own observations in, its own mean actions out."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor, nn

from cic.api import load
from cic.core.action_spaces import ActionSpace, choices, is_normalised
from cic.core.errors import UserError
from cic.core.spaces import Layout, Leaf, entry_names, space_to_json
from cic.core.spaces import leaves as leaves_of
from cic.export.episodes import output_folder
from cic.learning.agent import Agent
from cic.learning.encoders import Encoder

Format = Literal["onnx", "torch"]
ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}
INTERFACE = "interface.json"
"""The extra file of a torch export with the names, order, shapes, types and bounds of inputs and output."""


class Policy(nn.Module):
    """The environment's own observation → its own action, by a skill that is given (N, dim) or built in.

    Each leaf of the observation space is an input (N, …) with the shape and type of the leaf. Without a layout, which
    runs of earlier versions lack, the input is the flat observation and the action lies in (-1, 1).
    """

    skill: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        layout = agent.layout
        agent = copy.deepcopy(agent).cpu().eval().requires_grad_(False)
        self.encoder: Encoder = agent.encoder
        self.objective, self.learner = agent.objective, agent.learner
        self._generator = agent.generator
        chosen = torch.zeros(0) if agent.skill is None else torch.tensor(agent.skill)
        self.register_buffer("skill", chosen)
        self.fixed = len(chosen) == agent.objective.skills.dim
        self.spaces = None if layout is None else [leaf.space for leaf in leaves_of(layout.observation)]
        self.action: ActionSpace | None = None if layout is None else layout.action
        if isinstance(self.action, Box):
            self.register_buffer("low", torch.from_numpy(self.action.low.astype(np.float32)))
            self.register_buffer("high", torch.from_numpy(self.action.high.astype(np.float32)))

    def forward(self, *inputs: Tensor) -> Tensor:
        leaves, rows = inputs if self.fixed else inputs[:-1], inputs[0].shape[0]
        skill = self.skill.expand(rows, -1) if self.fixed else inputs[-1]
        if self.spaces is None:
            obs = leaves[0]
        else:
            obs = torch.cat(
                [_numbers(leaf, space, rows) for leaf, space in zip(leaves, self.spaces, strict=True)], dim=1
            )
        action = self.learner.act(self.objective.policy_input(self.encoder(obs), skill), False, self._generator)
        if self.action is None:
            return action
        if isinstance(self.action, Box):
            return self._scaled(action.reshape(rows, *self.action.shape), self.action)
        return _indices(action, self.action)

    def _scaled(self, action: Tensor, space: Box) -> Tensor:
        """`cic.core.action_spaces.scale_action` in torch, and in float32."""
        action = action.clamp(-1.0, 1.0)
        if not is_normalised(space):
            action = self.low + (action + 1.0) / 2.0 * (self.high - self.low)
        return action.to(_torch_type(space))


def _numbers(part: Tensor, space: ActionSpace, rows: int) -> Tensor:
    """`Leaf.numbers` in torch: one-hot vectors of discrete spaces, else the numbers of the part."""
    if isinstance(space, Box):
        return part.reshape(rows, -1).float()
    start = 0 if isinstance(space, MultiBinary) else torch.as_tensor(space.start).reshape(-1)
    chosen = part.reshape(rows, -1).long() - start
    groups = [F.one_hot(chosen[:, index], count) for index, count in enumerate(choices(space))]
    return torch.cat(groups, dim=1).float()


def _indices(action: Tensor, space: Discrete | MultiDiscrete | MultiBinary) -> Tensor:
    """`cic.core.action_spaces.own_action` in torch, for one-hot actions (N, action)."""
    groups = torch.split_with_sizes(action, list(choices(space)), dim=-1)
    shape: tuple[int, ...] = () if isinstance(space, Discrete) else tuple(space.shape)
    chosen = torch.stack([group.argmax(dim=-1) for group in groups], dim=-1).reshape(action.shape[0], *shape)
    start = 0 if isinstance(space, MultiBinary) else torch.as_tensor(space.start)
    return (chosen + start).to(_torch_type(space))


def _torch_type(space: ActionSpace) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, space.dtype)).dtype


def _first_value(space: ActionSpace) -> Any:
    """Zeros of a Box or MultiBinary, and the first choice of a discrete space."""
    values = np.zeros(space.shape or (), space.dtype)
    return values + space.start.astype(space.dtype) if isinstance(space, Discrete | MultiDiscrete) else values


def _inputs(agent: Agent, policy: Policy) -> dict[str, Tensor]:
    """Two rows of each input by name."""
    inputs = {"obs": torch.zeros(2, agent.spaces.obs)}
    if agent.layout is not None:
        found = leaves_of(agent.layout.observation)
        inputs = {
            input_name(leaf): torch.from_numpy(np.stack([np.asarray(_first_value(leaf.space))] * 2)) for leaf in found
        }
    if not policy.fixed:
        inputs["skill"] = torch.from_numpy(agent.objective.skills.sample(2, np.random.default_rng(0)))
    return inputs


def input_name(leaf: Leaf) -> str:
    """`obs` for a Box, and the key for a leaf of a Dict, unless another input or output has this name."""
    return f"obs.{leaf.name}" if leaf.name in ("obs", "skill", "action") else leaf.name or "obs"


def interface(agent: Agent, policy: Policy) -> dict[str, Any]:
    """Names, order, shapes, types and bounds of the inputs and the output, as JSON."""
    if agent.layout is None:
        whole = Box(-np.inf, np.inf, (agent.spaces.obs,))
        layout = Layout(whole, Box(-1.0, 1.0, (agent.spaces.action,)))
    else:
        layout = agent.layout
    inputs = [{"name": input_name(leaf), **space_to_json(leaf.space)} for leaf in leaves_of(layout.observation)]
    if not policy.fixed:
        inputs.append({"name": "skill", "type": "Box", "shape": [agent.objective.skills.dim], "dtype": "float32"})
    return {
        "inputs": inputs,
        "outputs": [{"name": "action", **space_to_json(layout.action)}],
        "entries": entry_names(layout.observation),
    }


def export_policy(
    run: Path | str, out: Path | str | None = None, format: Format = "torch", *, at: int | None = None
) -> tuple[Path, list[str]]:
    """Export the policy of a run: the environment's own observations in, its own mean actions out.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        out: The file without its ending; by default `export/policy` in the run's folder.
        format: `"torch"` (load it with `torch.export.load(file).module()`) or `"onnx"` (runs in ONNX Runtime; needs the
            extra `export`).
        at: Use the weights of this step's milestone or checkpoint.

    Returns:
        The file, and the names of the inputs: `"obs"` or the keys of a Dict observation, and `"skill"` if the run has
        not selected a skill.

    Example:
        ```python
        file, inputs = cic.export_policy("walker", "policy")
        ```
    """
    path = (output_folder(run, None) / "policy" if out is None else Path(out)).with_suffix(ENDINGS[format])
    agent = load(run, at=at)
    policy = Policy(agent)
    if path.exists():
        raise UserError(f"{path} exists already: choose another `out`")
    inputs, described = _inputs(agent, policy), interface(agent, policy)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".part-{path.name}")
    if format == "onnx":
        _write_onnx(policy, inputs, described, unfinished)
    else:
        rows = torch.export.Dim("rows")
        shapes = (tuple({0: rows} for _ in inputs),)
        program = torch.export.export(policy, tuple(inputs.values()), dynamic_shapes=shapes)
        torch.export.save(program, unfinished, extra_files={INTERFACE: json.dumps(described)})
    return unfinished.replace(path), list(inputs)


def _write_onnx(policy: Policy, inputs: dict[str, Tensor], described: dict[str, Any], path: Path) -> None:
    try:
        import onnx
    except ImportError:
        raise UserError("ONNX needs its package: pip install 'cic[export]'") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, which is about to be another by default
        torch.onnx.export(
            policy,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=["action"],
            dynamic_axes={name: {0: "rows"} for name in (*inputs, "action")},
            dynamo=False,  # the other one needs onnxscript
        )
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in described.items()})
    onnx.save(model, path)
