"""Sliders, behaviours and prompts of the explorer, without a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from open_page import OpenPage, wait_until

import cic
from cic.core.errors import UserError
from cic.core.formula_reward import FormulaReward
from cic.explore import AgentPool, ExploreOptions, Explorer
from cic.explore.background_finetuning import BackgroundFinetuning
from cic.explore.steering import completions


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("steer") / "run"
    small = {"steps": 500, "update_every": 8, "library": 4, "library_starts": 2, "library_steps": 30}
    return cic.pretrain("point_mass", "steer", scale="smoke", out=out, quiet=True, **small).path


@pytest.fixture(scope="module")
def explorer(run: Path) -> Iterator[Explorer]:
    options = ExploreOptions(count=4, steps=10, finetune_steps=300)
    with Explorer(AgentPool([str(run), "point_mass"], options), "127.0.0.1", 18380) as running:
        yield running


@pytest.fixture
def page(explorer: Explorer) -> Iterator[OpenPage]:
    wait_until(lambda: not explorer.viewers)
    opened = OpenPage(explorer.port)
    wait_until(lambda: explorer.viewers and explorer.viewers[0].maps and "record clip" in opened.labels)
    yield opened
    opened.close()
    wait_until(lambda: not explorer.viewers)


def shown(page: OpenPage, text: str) -> bool:
    return any(text in content for content in page.texts.values())


def test_sliders_weigh_the_quantities(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    page.set("prompt", "x")  # all weights but the first are 0
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, [1, 0, 0], atol=1e-4))
    time.sleep(0.5)  # the sliders follow
    page.set("y (m)", -1.0)
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, [0.5**0.5, -(0.5**0.5), 0], atol=1e-2))
    steps = viewer.panel.simulation.steps
    page.set("away (m²)", 1.0)
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, np.array([1, -1, 1]) / 3**0.5, atol=1e-2))
    assert viewer.panel.simulation.steps >= steps, "sliders do not restart the episode"


def test_a_prompt_is_followed_and_plotted(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    page.set("prompt", "y - x")
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, [-(0.5**0.5), 0.5**0.5, 0], atol=1e-4))
    wait_until(lambda: shown(page, "skill found by: linear"))
    simulation = viewer.panel.simulation
    wait_until(lambda: "prompt" in simulation.traces and len(simulation.traces["prompt"]))
    x, y, reward = (simulation.traces[name][-1] for name in ("quantity/x", "quantity/y", "prompt"))
    assert reward == pytest.approx(y - x, abs=0.05)  # the traces grow while they are read
    page.set("prompt", "x * y")
    wait_until(lambda: shown(page, "skill found by: library"))
    wait_until(lambda: viewer.recent == ["x * y", "y - x"])
    wait_until(lambda: shown(page, ">y - x</button>"))


def test_a_wrong_name_gets_suggestions_and_changes_nothing(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    before = viewer.panel.simulation.skill
    page.set("prompt", "2 * awa")
    wait_until(lambda: shown(page, "position 5: unknown name &#34;awa&#34;; did you mean away?"))
    wait_until(lambda: shown(page, ">2 * away</button>"))
    assert np.array_equal(viewer.panel.simulation.skill, before)
    assert viewer.panel.prompt == ""


def test_a_reward_that_is_not_finite_everywhere_leaves_gaps(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    simulation = viewer.panel.simulation
    page.set("prompt", "x")
    wait_until(lambda: viewer.panel.prompt == "x")
    viewer.do(lambda: setattr(simulation, "reward", FormulaReward("sqrt(-1 - abs(x))", simulation.quantities, 4)))
    wait_until(lambda: len(simulation.traces.get("prompt", ())) and np.isnan(simulation.traces["prompt"][-1]))
    steps = simulation.steps
    wait_until(lambda: simulation.steps > steps)


def test_a_behaviour_is_a_prompt(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    page.set("behaviour", "bottom left")
    wait_until(lambda: viewer.panel.prompt == "-x - y")
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, [-(0.5**0.5), -(0.5**0.5), 0], atol=1e-4))


def test_an_agent_without_sliders_follows_prompts(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    viewer.do(lambda: viewer.show("point_mass"))
    wait_until(lambda: viewer.panel.agent.name == "point_mass" and "point_mass" in viewer.maps)
    page.set_until("prompt", "x + y", lambda: viewer.panel.prompt == "x + y")
    assert not np.array_equal(viewer.panel.simulation.skill, viewer.panel.agent.first_skill(0))


def test_completions() -> None:
    names = ["speed", "spin", "upright", "sqrt("]
    assert completions("2 * sp", names) == ["2 * speed", "2 * spin"]
    assert completions("s", names) == ["speed", "spin", "sqrt("]
    assert completions("speed", names) == []
    assert completions("speed * ", names) == []
    assert completions("", names) == []


def test_only_a_pre_training_is_finetuned(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    page.set("finetune on this prompt", True)
    wait_until(lambda: "type a prompt first" in page.notes)
    assert viewer.pool._tuning is None


@pytest.mark.slow
def test_a_finetuning_runs_in_the_background(
    explorer: Explorer, page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (viewer,) = explorer.viewers
    page.set("prompt", "x")
    wait_until(lambda: viewer.panel.prompt == "x")
    page.set("finetune on this prompt", True)
    wait_until(lambda: shown(page, "training in runs/prompt-point_mass-x-"))
    frames = page.frames
    with pytest.raises(UserError, match="is running already"):
        viewer.pool.finetune(viewer.panel.agent, "y", viewer.panel.simulation.skill)
    wait_until(lambda: len(viewer.pool.names) == 3, seconds=120)
    assert page.frames > frames, "the body moves meanwhile"
    tuned = cic.load(viewer.pool.names[2])
    assert tuned.skill is not None
    np.testing.assert_allclose(tuned.skill, [1, 0, 0], atol=1e-4)
    wait_until(lambda: viewer.controls is not None and any("can now be chosen" in note for note in page.notes))
    viewer.do(lambda: viewer.compare(viewer.pool.names[2]))
    wait_until(lambda: len(viewer.panels) == 2)


@pytest.mark.slow
def test_a_finetuning_that_fails_reports_the_reason(tmp_path: Path) -> None:
    tuning = BackgroundFinetuning(str(tmp_path), "walker => speed", [1.0], 300, tmp_path / "out")
    wait_until(lambda: not tuning.running, seconds=60)
    share, problem = tuning.progress()
    assert share == 1
    assert problem is not None
    assert "config.json is missing" in problem
    tuning.stop()
