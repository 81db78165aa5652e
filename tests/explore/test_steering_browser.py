"""Sliders and prompts in a real browser: move a slider, type a prompt, and see behaviour and plots change."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from browser import CHROMIUM, Browser, browser
from open_page import wait_until
from test_explorer_browser import WEBGL, complaints, labelled, middle

import cic
from cic.explore import AgentPool, ExploreOptions, Explorer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"),
]
PLOTS = "[...document.querySelectorAll('.uplot')].slice(0, 5).map(p => p.querySelector('canvas').toDataURL())"


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    small = {"steps": 700, "update_every": 8, "library": 4, "library_starts": 2, "library_steps": 30}
    out = tmp_path_factory.mktemp("steer") / "run"
    run = cic.pretrain("walker", "steer", scale="smoke", out=out, quiet=True, **small)  # type: ignore[arg-type]
    with Explorer(AgentPool([str(run.path)], ExploreOptions(count=4, steps=10)), "127.0.0.1", 18480) as running:
        yield running


@pytest.fixture
def tab(explorer: Explorer) -> Iterator[Browser]:
    wait_until(lambda: not explorer.viewers)
    with browser(WEBGL) as opened:
        opened.open(f"http://127.0.0.1:{explorer.port}", 1100, 800)
        opened.wait_for("[...document.querySelectorAll('label')].some(l => l.textContent === 'prompt')", 60)
        wait_until(lambda: explorer.viewers and explorer.viewers[0].maps, seconds=60)
        yield opened


def type_prompt(tab: Browser, text: str) -> None:
    field = labelled("prompt", "input")
    tab.evaluate(f"{field}.focus(); {field}.select()")
    tab.send("Input.insertText", text=text)


def test_a_slider_moves_while_the_body_runs(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    simulation = viewer.panel.simulation
    before, steps = simulation.skill.copy(), simulation.steps
    tab.click(*middle(tab, labelled("speed (m/s)", ".mantine-Slider-root"), 0.97))
    wait_until(lambda: not np.array_equal(simulation.skill, before))
    assert simulation.skill[0] > max(before[0], 0.4)
    wait_until(lambda: simulation.steps > steps)
    tab.click(*middle(tab, labelled("speed (m/s)", ".mantine-Slider-root"), 0.03))
    wait_until(lambda: simulation.skill[0] < -0.4)
    assert complaints(tab) == []


def test_a_prompt_changes_behaviour_and_plots(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    simulation = viewer.panel.simulation
    tab.wait_for("document.body.innerText.includes('prompted reward')")
    tab.wait_for("document.querySelectorAll('.uplot').length >= 5")  # the reward and four quantities
    time.sleep(1.0)
    plots = tab.evaluate(PLOTS)
    type_prompt(tab, "height - 2 * speed")
    wanted = np.array([-6.0, 0, 0.6, 0]) / np.hypot(6, 0.6)
    wait_until(lambda: np.allclose(simulation.skill, wanted, atol=1e-3))
    tab.wait_for("document.body.innerText.includes('skill found by: linear')")
    wait_until(lambda: len(simulation.traces.get("prompt", ())) > 20)
    time.sleep(1.0)
    after = tab.evaluate(PLOTS)
    assert all(one != other for one, other in zip(plots, after, strict=True))
    type_prompt(tab, "upright")
    wait_until(lambda: np.allclose(simulation.skill, [0, 1, 0, 0], atol=1e-3))
    recent = "[...document.querySelectorAll('.cic-recent')].find(b => b.innerText === 'height - 2 * speed')"
    tab.wait_for(f"Boolean({recent})")
    tab.click(*middle(tab, recent))
    wait_until(lambda: np.allclose(simulation.skill, wanted, atol=1e-3))
    assert complaints(tab) == []


def test_a_wrong_name_shows_suggestions(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    before = viewer.panel.simulation.skill.copy()
    type_prompt(tab, "2 * heigt")
    shown = tab.wait_for("document.querySelector('.cic-message')?.innerText")
    assert shown == '"2 * heigt", position 5: unknown name "heigt"; did you mean height or upright?'
    assert np.array_equal(viewer.panel.simulation.skill, before)
    type_prompt(tab, "2 * hei")
    complete = "[...document.querySelectorAll('.cic-complete')].find(b => b.innerText === '2 * height')"
    tab.wait_for(f"Boolean({complete})")
    tab.click(*middle(tab, complete))
    wait_until(lambda: np.allclose(viewer.panel.simulation.skill, [0, 0, 1, 0], atol=1e-3))
    tab.wait_for(labelled("prompt", "input") + ".value === '2 * height'")


def test_a_behaviour_button_is_a_prompt(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    button = "[...document.querySelectorAll('button')].find(b => b.innerText === 'flip')"
    tab.click(*middle(tab, button))
    wait_until(lambda: viewer.panel.prompt == "spin / 5 + height / 2")
    tab.wait_for(labelled("prompt", "input") + ".value === 'spin / 5 + height / 2'")
