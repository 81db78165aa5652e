"""One update of every objective with every learner on a device that is not the CPU, in a machine without a GPU.

Run as a program, it prints a JSON object: `"objective learner"` → an error message, or "" without an error. It
registers a second torch device, so it must not share a process with other tests. Tensors of that device hold a CPU
tensor and compute with it. As on a GPU, an operator that mixes both devices fails, except for copies and for scalars of
the CPU.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import torch
from helpers import random_batch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from cic.core.types import Batch, Spaces
from cic.learning.agent import Agent, build_agent
from cic.learning.learners import get_learner
from cic.learning.learners.base import learners_for
from cic.learning.objectives import NoOptions, Objective, get_objective, objectives, register
from cic.learning.validate import check_objective

SPACES, BATCH = Spaces(obs=5, action=3), 8
_COPIES = {"aten::copy_", "aten::_to_copy"}

_setup_privateuseone_for_python_backend("other")  # type: ignore[no-untyped-call]
OTHER = torch.device("other", 0)


class OtherTensor(Tensor):
    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> OtherTensor:
        made: OtherTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=OTHER,
        )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(func, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """Inside, tensors can be created on the other device and moved to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(func, args, kwargs or {})


def execute(func: Any, args: Any, kwargs: Any) -> Any:
    leaves, structure = _pytree.tree_flatten((args, kwargs))
    others = [leaf for leaf in leaves if isinstance(leaf, OtherTensor)]
    copies = func.name() in _COPIES
    if others and not copies:
        mixed = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() and leaf.device != OTHER]
        if mixed:
            raise RuntimeError(f"{func.name()} mixes devices")
    raw_args, raw_kwargs = _pytree.tree_unflatten([_raw(leaf) for leaf in leaves], structure)
    result = func(*raw_args, **raw_kwargs)
    if torch.Tag.inplace_view in func.tags and others:  # the wrapper must get the new shape as well
        with no_dispatch():
            func(*args, **kwargs)
        return args[0]
    if func.name() == "aten::copy_":
        return args[0]
    target = kwargs.get("device")
    if not (others if target is None else torch.device(target).type == "other"):
        return result
    known = {id(other.raw): other for other in others}  # operators that work in place return their argument
    return _pytree.tree_map_only(
        Tensor, lambda raw: known.get(id(raw)) if id(raw) in known else OtherTensor(raw), result
    )


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, torch.device) and leaf.type == "other":
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, OtherTensor) else leaf


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return OtherTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _raw(target).copy_(_raw(source))
    return target


def _lstm_cell(x: Tensor, state: Any, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> tuple[Tensor, Tensor]:
    """As on the CPU; on other devices torch has one fused operator, which the CPU lacks."""
    gate_in, forget, cell, gate_out = (x @ w_x.T + b_x + state[0] @ w_h.T + b_h).chunk(4, dim=1)
    memory = forget.sigmoid() * state[1] + gate_in.sigmoid() * cell.tanh()
    return gate_out.sigmoid() * memory.tanh(), memory


class Generator(torch.Generator):
    """A generator of the CPU that reports the device for which it was asked."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made: Generator = super().__new__(cls)
        made._device = torch.device(device)  # type: ignore[attr-defined]
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device  # type: ignore[attr-defined, no-any-return]


# ---- what is tested --------------------------------------------------------------------------------------------


@register("forgotten")
class Forgotten(Objective):
    """Keeps a network where `.to(device)` does not find it: this test must detect it."""

    Options = NoOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hidden = [nn.Linear(SPACES.obs, 1)]

    def reward(self, batch: Batch) -> Tensor:
        reward: Tensor = self._hidden[0](batch.obs).detach()
        return reward


def agent_of(objective: str, learner: str, device: str) -> Agent:
    cls = get_objective(objective)
    options = cls.Options(**cls.scales.get("smoke", {}))
    config = get_learner(learner).Config(hidden=8, batch=BATCH, lr=1e-3)
    return build_agent(SPACES, objective, options, learner, config, device=device)


def batch_of(agent: Agent) -> Batch:
    rng, needs = np.random.default_rng(0), agent.objective.needs
    skill = torch.from_numpy(agent.objective.skills.sample(BATCH, rng))
    batch = random_batch(BATCH, SPACES.obs, SPACES.action, 0)._replace(skill=skill)
    names = ["first_obs"] * needs.skill_start + ["goal", "random_goal"] * bool(needs.goals)
    extras = {name: torch.from_numpy(rng.standard_normal((BATCH, SPACES.obs), np.float32)) for name in names}
    if needs.skill_start:
        extras["skill_end"] = torch.zeros(BATCH, 1)
    if needs.path:
        extras["path"] = torch.from_numpy(rng.standard_normal((BATCH, needs.path, SPACES.obs), np.float32))
    return batch.with_extras(**extras)


def exercise(objective: str, learner: str, device: str) -> dict[str, float]:
    """Everything that a run does with an agent; returns the metrics."""
    agent = agent_of(objective, learner, device)
    intrinsic = objective != "ddpg"
    if intrinsic:
        check_objective(agent.objective, objective, agent.device)
    batch = batch_of(agent).to(agent.device)
    batches, metrics = [batch] * agent.objective.needs.batches, {}
    for _ in range(2):
        metrics |= agent.update(*batches, intrinsic=intrinsic)
    metrics |= agent.update(batch, intrinsic=False, actor=False)
    if intrinsic:
        metrics |= agent.objective.diagnose(batch)
        agent.objective.confidence(batch)
    skill = agent.objective.infer_skill(batch.next_obs, batch.reward)
    assert skill is None or skill.device.type == device
    agent.objective.goal_skill(batch.obs, batch.next_obs)
    skills = agent.objective.skills.sample(2, np.random.default_rng(0))
    action = agent.act(np.ones((2, SPACES.obs), np.float32), skills, explore=True)
    state = agent.optimiser_state()
    agent.restore_optimisers(state)
    wrong = {name for name, value in agent.state_dict().items() if value.device.type != device and value.dim()}
    wrong |= {name for name, value in state.items() if value.device.type != device and name != "generator"}
    assert not wrong, f"these are on another device: {sorted(wrong)}"
    return {name: float(value) for name, value in metrics.items()} | {"action": float(action.sum())}


def error_of(objective: str, learner: str) -> str:
    expected = exercise(objective, learner, "cpu")
    try:
        with OtherDevice():
            found = exercise(objective, learner, "other")
        np.testing.assert_allclose([found[name] for name in expected], list(expected.values()), rtol=1e-4, atol=1e-5)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    torch.Generator = Generator  # type: ignore[misc]
    torch._VF.lstm_cell = _lstm_cell  # type: ignore[attr-defined]
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    learner = sys.argv[1]
    assert learner in learners_for(())
    pairs = [(objective, learner) for objective, _ in objectives()]
    json.dump({" ".join(pair): error_of(*pair) for pair in pairs}, sys.stdout)


if __name__ == "__main__":
    main()
