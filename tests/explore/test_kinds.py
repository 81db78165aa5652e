"""Every kind of run on the page: one-hot and sphere skills, no skills, finetuned, Gymnasium's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from open_page import OpenPage, wait_until

import cic
from cic.explore import AgentPool, ExploreOptions, Explorer
from cic.explore.explorer_page import command_html, message_html, short_skill, status_html, trials_html
from cic.explore.loaded_agent import load_agent
from cic.learning.objectives import SkillSpace

SHORT = {"scale": "smoke", "steps": 250, "checkpoint_every": 250, "quiet": True}
TUNED = {"steps": 250, "warmup": 100, "batch": 32, "replay": 1000, "eval_episodes": 1, "trial_steps": 25, "quiet": True}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("kinds")
    made: dict[str, Path] = {}
    for name in ("diayn", "metra", "rnd"):
        made[name] = cic.pretrain("point_mass", name, out=folder / name, **SHORT).path
    made["tuned"] = cic.finetune("point_mass", "reach_top_left", out=folder / "tuned", **TUNED).path
    made["gym"] = cic.pretrain("gymnasium:Hopper-v5", "cic", out=folder / "gym", **SHORT).path
    return {name: str(path) for name, path in made.items()}


@pytest.mark.parametrize("name", ["diayn", "metra", "rnd", "tuned", "gym"])
def test_it_moves_and_can_be_steered(runs: dict[str, str], name: str) -> None:
    pool = AgentPool([runs[name]], ExploreOptions(count=5, steps=15))
    with Explorer(pool, "127.0.0.1", 18280) as explorer:
        page = OpenPage(explorer.port)
        wait_until(lambda: explorer.viewers and explorer.viewers[0].maps and "record clip" in page.labels, seconds=30)
        (viewer,) = explorer.viewers
        simulation, space = viewer.panel.simulation, viewer.panel.agent.space
        wait_until(lambda: page.frames > 5 and simulation.steps > 2)
        assert ("skill" in page.labels) == (space.kind != "none")
        if name == "diayn":
            page.set("number", 3)
            wait_until(lambda: simulation.skill.argmax() == 3)
            page.set("skill", "5")
            wait_until(lambda: simulation.skill.argmax() == 5)
            assert "all entries" not in page.labels
        elif name == "metra":
            page.set("its value", 0.5)
            wait_until(lambda: abs(simulation.skill[0] - 0.5) < 1e-6)
            assert np.linalg.norm(simulation.skill) == pytest.approx(space.radius, rel=1e-5)
        elif name == "tuned":
            np.testing.assert_array_equal(simulation.skill, viewer.panel.agent.agent.skill)
            trials = viewer.panel.agent.trials
            assert trials is not None
            page.set("skill", "trial 2")
            wait_until(lambda: np.allclose(simulation.skill, trials.trials[2].skill))
        wait_until(lambda: f"task/{simulation.tasks[0]}" in simulation.traces)
        if name == "gym":
            assert simulation.tasks == ("reward",)
            page.set("push", "+x")
        page.close()
        wait_until(lambda: not explorer.viewers)


def test_the_table_of_trials_has_them_all_and_marks_the_chosen_one(runs: dict[str, str]) -> None:
    trials = load_agent(runs["tuned"]).trials
    assert trials is not None
    table = trials_html(trials)
    assert table.count("cic-trial") == len(trials.trials)
    assert table.count("selected") == 1
    chosen = trials.trials[trials.chosen]  # type: ignore[index]
    row = next(row for row in table.split("<tr") if "selected" in row)
    assert short_skill(chosen.skill) in row
    assert f"{chosen.score:.4g}" in row
    assert max(trial.score for trial in trials.trials) == chosen.score


def test_skills_in_few_letters() -> None:
    assert short_skill((0.5, 0.5)) == "all 0.5"
    assert short_skill((0.0, 1.0, 0.0)) == "one-hot 1"
    assert short_skill(()) == "the policy"
    assert short_skill(np.arange(6, dtype=np.float32)) == "0.00 1.00 2.00 3.00 … (6)"


def test_html_escapes_names_from_the_run_folder() -> None:
    hostile = "<script>alert('x')</script>\"&"
    agent = SimpleNamespace(environment=hostile, title=hostile, space=SkillSpace("box", 2))
    parts = [
        status_html(agent, np.zeros(2, np.float32), 3, {hostile: 1.0}, 60.0),  # type: ignore[arg-type]
        command_html(f"cic explore {hostile}"),
        message_html(hostile),
    ]
    for part in parts:
        assert "<script" not in part
        assert "&lt;script&gt;" in part
