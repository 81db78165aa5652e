"""Compiled updates give the numbers of the plain ones; where nothing compiles, a line says so and the run goes on."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from test_agent import batches, make_agent

from cic import compilation
from cic.compilation import LONG_RUN, Compiled, wanted

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")


@pytest.mark.parametrize(
    ("mode", "updates", "expected"),
    [("off", 10**6, False), ("auto", LONG_RUN - 1, False), ("auto", LONG_RUN, True), ("on", 1, True)],
)
def test_when_to_compile(monkeypatch: pytest.MonkeyPatch, mode: str, updates: int, expected: bool) -> None:
    monkeypatch.setattr(compilation.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert wanted(mode, updates) is expected


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match=r"^no C\+\+ compiler \(no-such-compiler\)"):
        assert not wanted(mode, LONG_RUN)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_does_not_compile_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: object, inputs: object) -> None:
        raise RuntimeError("no such instruction")

    double = Compiled(lambda x: x + x, torch.device("cpu"))
    double._call = torch.compile(double._plain, backend=broken)
    with pytest.warns(UserWarning, match="torch.compile failed"):
        assert float(double(torch.ones(()))) == 2
    assert double._call is double._plain


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
