"""Every built-in method has a page with the fixed headings, and its settings and metrics are those of the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from objective_setup import build, make_batch, prepared

from cic.commandline.flags import flags_of
from cic.learning.objectives import get_objective, objectives

PAGES = Path(__file__).parents[2] / "docs" / "explanation" / "methods"
HEADINGS = ["Idea", "Equations", "Settings", "Deviations from the paper and the released code", "Results here"]
INVALID = ("representation", "projection", "dimension", "adaptation", "sweep", "static")
"""Experiments in results/experiments that its README marks as invalid."""
# DDPG is the backbone of all of them and has no page of its own.
NAMES = [name for name, cls in objectives() if cls.__module__.startswith("cic.learning.objectives.") and name != "ddpg"]


@pytest.mark.parametrize("name", NAMES)
def test_page_has_title_headings_and_command(name):
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {get_objective(name).title}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert f"--objective {name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_page_names_options_defaults_and_metrics(name):
    text = (PAGES / f"{name}.md").read_text()
    flags = {flag.name for flag in flags_of(get_objective(name).Options)}
    for field in dataclasses.fields(get_objective(name).Options):
        if field.name not in flags:
            assert field.name in text
            continue
        flag = field.name.replace("_", "-")
        stated = re.search(rf"^\| `--{flag}` \| `([^`]*)` \|", text, re.MULTILINE)
        assert stated, flag
        assert stated[1] == str(field.default), flag
    for preset in get_objective(name).presets:
        assert f"`{preset}`" in text, preset

    objective = build(name)
    batch = prepared(objective, make_batch(objective.skills))
    metrics = objective.diagnose(batch)
    if objective.parameter_groups(1e-3):
        metrics |= objective.loss(batch)[1]
    for key in metrics:
        assert f"`{key}`" in text, key


@pytest.mark.parametrize("name", NAMES)
def test_results_are_linked_and_none_is_marked_invalid(name):
    results = (PAGES / f"{name}.md").read_text().partition("## Results here")[2]
    assert "results/" in results or "None yet" in results
    for experiment in re.findall(r"results/experiments/README\.md\)[^`]*`([\w-]+)`", results):
        assert experiment not in INVALID
    assert results.count("results/experiments/") == len(re.findall(r"results/experiments/README\.md\)[^`]*`", results))
