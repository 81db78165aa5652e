"""The page in a real browser. WebGL is drawn by the CPU here, so frames are few; those that are sent are counted."""

from __future__ import annotations

import base64
import gc
import io
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser, browser
from open_page import OpenPage, wait_until
from PIL import Image

from cic.explore import AgentPool, ExploreOptions, Explorer
from cic.explore.skill_map import best_skills

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"),
]
WEBGL = "--use-angle=swiftshader --enable-unsafe-swiftshader --ignore-gpu-blocklist --disable-features=BackForwardCache"


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with Explorer(
        AgentPool(["walker", "point_mass"], ExploreOptions(count=24, steps=60)), "127.0.0.1", 18180
    ) as running:
        yield running


@pytest.fixture
def tab(explorer: Explorer) -> Iterator[Browser]:
    wait_until(lambda: not explorer.viewers)
    with browser(WEBGL) as opened:
        opened.open(f"http://127.0.0.1:{explorer.port}", 1280, 800)
        opened.wait_for("document.querySelectorAll('.cic-skill').length === 24")
        yield opened


def complaints(tab: Browser) -> list[str]:
    found = [
        str(event["args"][0].get("value")) for event in tab.of("Runtime.consoleAPICalled") if event["type"] == "error"
    ]
    found += [str(event["exceptionDetails"]) for event in tab.of("Runtime.exceptionThrown")]
    return found + [str(e["entry"]["text"]) for e in tab.of("Log.entryAdded") if e["entry"]["level"] == "error"]


def hosts(tab: Browser) -> set[str]:
    urls = [event["request"]["url"] for event in tab.of("Network.requestWillBeSent")]
    urls += [event["url"] for event in tab.of("Network.webSocketCreated")]
    return {url.split("/")[2] for url in urls if not url.startswith(("data:", "blob:"))}


def middle(tab: Browser, selector: str, share: float = 0.5) -> tuple[float, float]:
    tab.evaluate(f"{selector}.scrollIntoView({{block: 'center'}})")
    x, y, width, height = tab.evaluate(
        f"(() => {{ const b = {selector}.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"
    )
    return x + share * width, y + height / 2


def labelled(label: str, inside: str) -> str:
    """The element `inside` the control with this label."""
    return (
        f"(() => {{ let e = [...document.querySelectorAll('label')].find(l => l.textContent === '{label}'); "
        f"while (!e.querySelector('{inside}')) e = e.parentElement; return e.querySelector('{inside}'); }})()"
    )


def scene(tab: Browser) -> np.ndarray:
    """What stands between the panels, (height, width, 3)."""
    clip = {"x": 340, "y": 200, "width": 540, "height": 580, "scale": 1}
    data = tab.send("Page.captureScreenshot", clip=clip)["data"]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), np.float64)


def body(tab: Browser) -> int:
    """Pixels of the body: it alone is brown, all else is grey."""
    picture = scene(tab)
    return int((picture[..., 0] - picture[..., 2] > 20).sum())


def test_it_opens_moves_and_talks_to_nobody_else(explorer: Explorer, tab: Browser) -> None:
    first = scene(tab)
    wait_until(lambda: body(tab) > 500, seconds=60)
    steps = explorer.viewers[0].panel.simulation.steps
    time.sleep(1.0)
    assert np.abs(scene(tab) - first).max() > 50
    assert explorer.viewers[0].panel.simulation.steps > steps + 10
    said = tab.evaluate("document.querySelector('.cic-status').innerText")
    assert said.startswith("walker · CIC")
    assert complaints(tab) == []
    assert hosts(tab) == {f"127.0.0.1:{explorer.port}"}


def test_buttons_run_a_typical_skill_of_a_behaviour_and_the_best_of_a_task(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    drawn = viewer.maps["walker"]
    for kind, index in (("cic-group", drawn.groups[-1].typical), ("cic-best", best_skills(drawn)["flip"])):
        tab.click(*middle(tab, f"[...document.querySelectorAll('.{kind}')].at(-1)"))
        wait_until(lambda: np.array_equal(viewer.panel.simulation.skill, drawn.skills[index]))  # noqa: B023


def test_a_click_on_the_map_runs_that_skill(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    wait_until(lambda: viewer.panel.simulation.steps > 0)
    viewer.paused = True
    for place in (5, 11, 5):
        tab.click(*middle(tab, f"document.querySelector('.cic-skill[data-skill=\"{place}\"]')"))
        wait_until(lambda: np.array_equal(viewer.panel.simulation.skill, viewer.maps["walker"].skills[place]))  # noqa: B023
        wait_until(lambda: viewer.panel.simulation.steps == 0)  # the episode restarts
    tab.wait_for(labelled("skill", "input") + ".value === '#5'")
    assert complaints(tab) == []


def test_a_slider_changes_the_skill(explorer: Explorer, tab: Browser) -> None:
    (viewer,) = explorer.viewers
    tab.click(*middle(tab, labelled("all entries", ".mantine-Slider-root"), 0.75))
    wait_until(lambda: len(set(viewer.panel.simulation.skill.tolist())) == 1)
    assert viewer.panel.simulation.skill[0] == pytest.approx(0.75, abs=0.03)
    tab.wait_for("document.querySelector('.cic-command').innerText.includes('--skill 0.7')")
    assert complaints(tab) == []


def test_plots_grow(explorer: Explorer, tab: Browser) -> None:
    drawn = "[...document.querySelectorAll('.uplot canvas')].map(c => c.toDataURL())"
    wait_until(lambda: "intrinsic" in explorer.viewers[0].panel.simulation.traces)
    time.sleep(1.0)
    before = tab.evaluate(drawn)
    time.sleep(2.0)
    after = tab.evaluate(drawn)
    assert len(before) == len(after) == 3
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_side_by_side_and_another_agent(explorer: Explorer, tab: Browser, tmp_path: Path) -> None:
    (viewer,) = explorer.viewers
    viewer.do(lambda: viewer.compare("walker"))
    wait_until(lambda: len(viewer.panels) == 2)
    time.sleep(2)
    tab.screenshot(tmp_path / "two.png", whole=False)
    wait_until(lambda: body(tab) > 500, seconds=60)
    viewer.do(lambda: viewer.show("point_mass"))
    wait_until(lambda: viewer.panels[0].agent.name == "point_mass")
    tab.wait_for("document.querySelector('.cic-status').innerText.startsWith('point_mass')")
    time.sleep(2)
    tab.screenshot(tmp_path / "other.png", whole=False)
    wait_until(lambda: body(tab) > 20, seconds=60)  # a small ball
    assert complaints(tab) == []


def test_a_page_that_lost_its_connection_shows_everything_again(explorer: Explorer, tab: Browser) -> None:
    (before,) = explorer.viewers
    explorer._server._websock_server.disconnect_all_clients()
    wait_until(lambda: explorer.viewers and explorer.viewers[0] is not before and explorer.viewers[0].maps, seconds=30)
    tab.wait_for("document.querySelectorAll('.cic-skill').length === 24")
    time.sleep(2)
    wait_until(lambda: body(tab) > 500, seconds=60)


def test_a_clip_is_what_the_browser_drew(explorer: Explorer, tab: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    (viewer,) = explorer.viewers
    sent: list[tuple[str, bytes]] = []
    monkeypatch.setattr(viewer.client, "send_file_download", lambda name, content, **_: sent.append((name, content)))
    viewer.do(lambda: viewer.record(0.2, lambda _: None))
    wait_until(lambda: sent, seconds=120)
    name, content = sent[0]
    assert name == "walker-0.mp4"
    import imageio.v2 as imageio

    frames = [frame for frame in imageio.get_reader(io.BytesIO(content), format="mp4")]  # noqa: C416  it has no length
    assert len(frames) == 5
    assert frames[0].shape == (480, 640, 3)
    assert frames[0].std() > 5


def test_without_webgl_the_page_is_reported(explorer: Explorer) -> None:
    with browser("--disable-3d-apis") as tab:
        tab.open(f"http://127.0.0.1:{explorer.port}")
        said = tab.wait_for("document.body.innerText.includes('WebGL') && document.body.innerText")
    assert "WebGL is unavailable" in said


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_closed_page_frees_its_environment(explorer: Explorer, how: str) -> None:
    wait_until(lambda: not explorer.viewers)
    with browser(WEBGL) as tab:
        tab.open(f"http://127.0.0.1:{explorer.port}")
        wait_until(lambda: explorer.viewers and explorer.viewers[0].panels, seconds=30)
        env = explorer.viewers[0].panel.simulation.env
        if how == "killed":
            os.kill(tab.process.pid, signal.SIGKILL)
        else:
            tab.send("Page.navigate", url="about:blank")
        wait_until(lambda: env.closed and not explorer.viewers, seconds=10)


def test_eight_viewers_for_a_minute(explorer: Explorer, capsys: pytest.CaptureFixture[str]) -> None:
    wait_until(lambda: not explorer.viewers)
    pages = [OpenPage(explorer.port) for _ in range(8)]
    wait_until(lambda: len(explorer.viewers) == 8 and all(v.maps for v in explorer.viewers), seconds=60)
    rates: list[float] = []
    memory: list[float] = []
    for second in range(60):
        time.sleep(1)
        if second % 10 == 9:
            gc.collect()
            memory.append(_resident())
            rates += [viewer.rate for viewer in explorer.viewers]
    with capsys.disabled():
        print(f"frames/s {min(rates):.0f} to {max(rates):.0f}; MB resident {[round(m) for m in memory]}")
    assert len(explorer.viewers) == 8  # none has died
    assert memory[-1] < memory[0] + 30
    for page in pages:
        page.close()
    wait_until(lambda: not explorer.viewers)
    assert "Traceback" not in capsys.readouterr().err


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
