"""Compiled updates give the numbers of the plain ones; where nothing compiles, a line says so and the run goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_agent import batches, make_agent

import cic
from cic.api import build
from cic.learning import compilation
from cic.learning.compilation import LONG_RUN, Compiled, wanted
from cic.runs.folder import Run
from cic.training.loop import Interrupted

needs_compiler = pytest.mark.skipif(compilation.missing() is not None, reason=str(compilation.missing()))


@pytest.mark.parametrize(
    ("mode", "updates", "expected"),
    [("off", 10**6, False), ("auto", LONG_RUN - 1, False), ("auto", LONG_RUN, True), ("on", 1, True)],
)
def test_when_to_compile(monkeypatch: pytest.MonkeyPatch, mode: str, updates: int, expected: bool) -> None:
    monkeypatch.setattr(compilation, "missing", lambda: None)
    assert wanted(mode, updates) is expected


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match=r"^no C\+\+ compiler \(no-such-compiler\)"):
        assert not wanted(mode, LONG_RUN)


def test_without_headers_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_compiled_updates_equal_plain_ones() -> None:
    plain, compiled = make_agent(), make_agent()
    compiled.compile_gradients()
    for batch in batches(plain, 10):
        expected, metrics = plain.update(batch), compiled.update(batch)
        assert metrics.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(float(metrics[name]), float(value), rtol=1e-4, atol=1e-6, err_msg=name)
    for (name, one), (_, other) in zip(plain.named_parameters(), compiled.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), name
    assert all(isinstance(f, Compiled) and f._call is not f._plain for f in compiled._gradients.values())


@needs_compiler
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_compiled_run_resumes_to_the_bit(tmp_path: Path) -> None:
    settings = {"scale": "smoke", "compile": "on", "steps": 300, "checkpoint_every": 10_000, "quiet": True}
    whole = cic.pretrain("gridworld", out=tmp_path / "whole", **settings)
    shutil.copytree(whole.path, tmp_path / "stopped")
    for name in ("checkpoints", "result.json", "metrics.jsonl"):
        target = tmp_path / "stopped" / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    loop = build(Run(tmp_path / "stopped"), quiet=True)
    loop.at_boundary = lambda: setattr(loop, "_stop", "SIGINT" if loop.step >= 200 else None)  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match="step 200"):
        loop.train()
    again = cic.resume(tmp_path / "stopped", quiet=True)
    one, other = (Run(run.path).load_checkpoint() for run in (whole, again))
    assert one is not None
    assert other is not None
    for name, value in one[0]["agent"].items():
        assert torch.equal(value, other[0]["agent"][name]), name
    assert (whole.path / "metrics.jsonl").read_bytes() == (again.path / "metrics.jsonl").read_bytes()
