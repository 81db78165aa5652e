"""Compiled updates give the numbers of the plain ones; where nothing compiles, a line says so and the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import BATCH, batches, make_agent
from fakes import make_loop, stopping_at
from safetensors.torch import load_file

import cic
from cic.core.errors import Interrupted
from cic.learning import compilation
from cic.learning.agent import Agent
from cic.learning.compilation import LONG_RUN, Compiled, wanted
from cic.learning.learners.base import learners_for
from cic.learning.objectives import get_objective, objectives
from cic.runs.folder import Run
from cic.training.settings import override, pretrain_defaults

needs_compiler = pytest.mark.skipif(compilation.missing() is not None, reason=str(compilation.missing()))


@pytest.mark.parametrize(
    ("mode", "updates", "expected"),
    [("off", 10**6, False), ("auto", LONG_RUN - 1, False), ("auto", LONG_RUN, True), ("on", 1, True)],
)
def test_when_to_compile(monkeypatch: pytest.MonkeyPatch, mode: str, updates: int, expected: bool) -> None:
    monkeypatch.setattr(compilation, "missing", lambda: None)
    assert wanted(mode, updates) is expected


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_a_compiler_there_is_one_message(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match=r"^no C\+\+ compiler \(no-such-compiler\)"):
        assert not wanted(mode, LONG_RUN)


def test_without_headers_there_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "sh")
    monkeypatch.setattr(compilation.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.warns(UserWarning, match="^no Python headers"):
        assert not wanted("on", 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_does_not_compile_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: object, inputs: object) -> None:
        raise RuntimeError("no such instruction")

    siblings: list[Compiled] = []
    double, same = (Compiled(f, torch.device("cpu"), siblings) for f in (lambda x: x + x, lambda x: x))
    double._call = torch.compile(double._plain, backend=broken)
    with pytest.warns(UserWarning, match="torch.compile failed"):
        assert float(double(torch.ones(()))) == 2
    assert double._call is double._plain
    assert same._call is same._plain, "one warning is enough"


TAMED: dict[str, dict[str, Any]] = {
    "fb": {"config": {"hidden": 24}},  # a LayerNorm over two numbers has no gradient but rounding
    "hilp": {"mixed_skills": 0.0},  # the inverse covariance of four states makes much of little
}


def small(objective: str, learner: str) -> Agent:
    options = {} if objective == "cic" else get_objective(objective).scales.get("smoke", {})
    return make_agent(objective, learner, **options, **TAMED.get(objective, {}))


def assert_updates_agree(plain: Agent, compiled: Agent, functions: list[Any]) -> None:
    for index, skill in enumerate(plain.objective.skills.sample(BATCH, np.random.default_rng(i)) for i in range(10)):
        batch = batches(plain, 1, seed=index)[0]._replace(skill=torch.from_numpy(skill))
        expected, metrics = (agent.update(batch, intrinsic=True) for agent in (plain, compiled))
        assert metrics.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(float(metrics[name]), float(value), rtol=1e-4, atol=1e-6, err_msg=name)
    for function in functions:
        assert isinstance(function, Compiled)
        assert function._call is not function._plain, "it fell back"


@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_compiled_loss_equals_the_plain_one() -> None:
    """CIC's representation alone: to compile a whole update takes half a minute."""
    plain, compiled = small("cic", "ddpg"), small("cic", "ddpg")
    step = compiled.gradient_steps()["objective"]
    step.compile(compiled.device, [])
    assert_updates_agree(plain, compiled, [step.compiled])
    for (name, one), (_, other) in zip(plain.named_parameters(), compiled.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), name


class Scaled(torch.nn.Module):
    def __init__(self, weights: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 1.0 + weights))

    def total(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, None] * self.weight).sum()


@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_one_graph_never_serves_another_module() -> None:
    """Same code and inputs, other weights: what METRA's critic and CSF's are to each other."""
    for weights in (1, 3):
        module = Scaled(weights)
        compiled = Compiled(module.total, torch.device("cpu"), [])
        assert float(compiled(torch.ones(4))) == 4 * sum(range(1, weights + 1))


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("objective", "learner"),
    [*((name, "ddpg") for name, _ in objectives()), *(("fixed", name) for name in learners_for(()) if name != "ddpg")],
)
def test_compiled_updates_equal_plain_ones(objective: str, learner: str) -> None:
    plain, compiled = small(objective, learner), small(objective, learner)
    compiled.compile_losses()
    assert_updates_agree(plain, compiled, [step.compiled for step in compiled.gradient_steps().values()])
    for (name, one), (_, other) in zip(plain.named_parameters(), compiled.named_parameters(), strict=True):
        # Together: of a gradient near Adam's ε = 1e-8, as some of ProtoRL's 65,536 are, rounding decides the step.
        assert torch.linalg.norm(one - other) < 1e-4 * torch.linalg.norm(one) + 1e-5, name


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_compiled_run_resumes_bit_exactly(tmp_path: Path) -> None:
    changes = {"compile": "on", "steps": 300, "checkpoint_every": 10_000}
    config = override(pretrain_defaults("gridworld", scale="smoke"), changes)
    whole = cic.pretrain(config, out=tmp_path / "whole", quiet=True)
    stopped = make_loop(tmp_path / "stopped", "pretrain", config, loop_class=stopping_at(200))
    with pytest.raises(Interrupted, match="step 200"):
        stopped.train()
    again = cic.resume(stopped.run.path, quiet=True)
    one, other = (load_file(Run(run.path).checkpoints()[-1] / "agent.safetensors") for run in (whole, again))
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    assert (whole.path / "metrics.jsonl").read_bytes() == (again.path / "metrics.jsonl").read_bytes()
