"""Every built-in method has a page under the fixed headings, and the page tells the truth about its options."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from objective_setup import build, make_batch, prepared

from cic.learning.objectives import get_objective, objectives

PAGES = Path(__file__).parents[2] / "docs" / "explanation" / "methods"
HEADINGS = [
    "What it is",
    "Command",
    "Options",
    "Logged metrics",
    "Differences from the paper and from URLB",
    "Results",
]
# DDPG is the backbone of all of them and has no page of its own.
NAMES = [name for name, cls in objectives() if cls.__module__.startswith("cic.learning.objectives.") and name != "ddpg"]


@pytest.mark.parametrize("name", NAMES)
def test_page(name):
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {get_objective(name).title}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert f"--objective {name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_page_names_options_defaults_and_metrics(name):
    text = (PAGES / f"{name}.md").read_text()
    for field in dataclasses.fields(get_objective(name).Options):
        flag = field.name.replace("_", "-")
        assert re.search(rf"`--(no-)?{flag}`", text), flag
        stated = re.search(rf"^\| `--{flag}` \| `([^`]*)` \|", text, re.MULTILINE)
        if stated:
            assert stated[1] == str(field.default), flag

    objective = build(name)
    batch = prepared(objective, make_batch(objective.skills))
    metrics = objective.diagnose(batch)
    if objective.parameter_groups(1e-3):
        metrics |= objective.loss(batch)[1]
    for key in metrics:
        assert f"`{key}`" in text, key
