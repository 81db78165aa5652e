"""The policy alone, for a robot or a browser: observations in, mean actions out."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from cic.api import load
from cic.core.errors import UserError
from cic.learning.agent import Agent
from cic.learning.encoders import Encoder

Format = Literal["onnx", "torch"]
ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}


class Policy(nn.Module):
    """obs (N, obs) → action (N, action) in (-1, 1), by a skill that is given (N, dim) or built in."""

    skill: Tensor

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        agent = copy.deepcopy(agent).cpu().eval().requires_grad_(False)
        self.encoder: Encoder = agent.encoder
        self.objective, self.learner = agent.objective, agent.learner
        self._generator = agent.generator
        chosen = torch.zeros(0) if agent.skill is None else torch.from_numpy(agent.skill)
        self.register_buffer("skill", chosen)
        self.fixed = len(chosen) == agent.objective.skills.dim

    def forward(self, obs: Tensor, skill: Tensor | None = None) -> Tensor:
        by = self.skill.expand(obs.shape[0], -1) if skill is None else skill
        return self.learner.act(self.objective.policy_input(self.encoder(obs), by), False, self._generator)


def export_policy(
    run: Path | str, out: Path | str | None = None, format: Format = "torch", *, at: int | None = None
) -> tuple[Path, list[str]]:
    """Export the policy of a run: observations in, mean actions out.

    Args:
        run: Folder of a pre-training or a finetuning, or a bundled agent (`"walker"`).
        out: The file without its ending; by default `export/policy` in the run's folder.
        format: `"torch"` (load it with `torch.export.load(file).module()`) or `"onnx"` (runs in ONNX Runtime; needs the
            extra `export`).
        at: Use the weights of this step's milestone or checkpoint.

    Returns:
        The file, and the names of the inputs: `"obs"`, and `"skill"` if the run has not selected a skill.

    Example:
        ```python
        file, inputs = cic.export_policy("walker", "policy")
        ```
    """
    agent = load(run, at=at)
    policy = Policy(agent)
    path = (Path(run) / "export" / "policy" if out is None else Path(out)).with_suffix(ENDINGS[format])
    if path.exists():
        raise UserError(f"{path} exists already: choose another `out`")
    inputs = {"obs": torch.zeros(2, agent.spaces.obs)}
    if not policy.fixed:
        inputs["skill"] = torch.from_numpy(agent.objective.skills.sample(2, np.random.default_rng(0)))
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "onnx":
        _write_onnx(policy, inputs, path)
    else:
        rows = torch.export.Dim("rows")
        shapes = tuple({0: rows} for _ in inputs)
        torch.export.save(torch.export.export(policy, tuple(inputs.values()), dynamic_shapes=shapes), path)
    return path, list(inputs)


def _write_onnx(policy: Policy, inputs: dict[str, Tensor], path: Path) -> None:
    try:
        import onnx  # noqa: F401  the exporter needs it
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
