"""What an update must not do: wait for the device, or take memory for what it need not keep."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from objectives.objective_setup import make_batch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cic.core.types import Spaces
from cic.learning import particles
from cic.learning.agent import build_agent
from cic.learning.learners import get_learner
from cic.learning.learners.base import learners_for
from cic.learning.objectives import get_objective, objectives

aten = torch.ops.aten
_WAITS = (aten._local_scalar_dense, aten.nonzero, aten.is_nonzero, aten.equal, aten._unique2, aten.masked_select)


class NoWaiting(TorchDispatchMode):
    """Refuses what would copy a device's numbers to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket not in _WAITS, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def topk(values: Tensor, k: int) -> Tensor:
    return values.topk(k, dim=1, largest=False, sorted=False).values


@pytest.mark.parametrize("learner", learners_for(()))
@pytest.mark.parametrize("name", [name for name, _ in objectives()])
def test_an_update_never_waits(name: str, learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = get_objective(name)
    options, config = cls.Options(**cls.scales.get("smoke", {})), get_learner(learner).Config(hidden=16, batch=32)
    agent = build_agent(Spaces(24, 3), name, options, learner, config)
    batch = make_batch(agent.objective.skills)
    monkeypatch.setattr(particles, "_smallest", topk)  # what runs on a device; the CPU has a branch of its own
    for method in ("item", "cpu", "numpy", "tolist", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(Tensor, method, lambda *_, method=method: pytest.fail(f"Tensor.{method} waits"))
    with NoWaiting(), torch.autograd.set_multithreading_enabled(False):
        for intrinsic in (True, True, False, False):  # twice each: TD3's actor moves at every second
            agent.update(batch, intrinsic=intrinsic)


def test_the_guard_sees_waiting() -> None:
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.ones(3).sum().item()


_MEMORY = """
import resource, torch
from cic.learning.agent import build_agent
from cic.learning.learners.ddpg import DDPGConfig
from cic.learning.objectives.cic import CICOptions
from cic.core.types import Batch, Spaces

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

agent = build_agent(Spaces(78, 12), "cic", CICOptions(), "ddpg", DDPGConfig())
widths = {"obs": 78, "action": 12, "reward": 1, "discount": 1, "next_obs": 78, "skill": 64}
batch = Batch(**{name: torch.rand(1024, width) for name, width in widths.items()})
torch.rand(64, 64, requires_grad=True).matmul(torch.rand(64, 64)).sum().backward()  # the libraries themselves
before = peak()
for _ in range(2):  # the second has Adam's moments from the start
    agent.update(batch, intrinsic=True)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
@pytest.mark.slow
def test_a_paper_size_update_stays_under_600_mb() -> None:
    found = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 600e6
