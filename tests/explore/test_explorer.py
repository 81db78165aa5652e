"""The server and its viewers, without a browser."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from open_page import OpenPage, wait_until

from cic.core.errors import UserError
from cic.explore import AgentPool, ExploreOptions, Explorer
from cic.explore.server import free_port


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    pool = AgentPool(["point_mass", "walker"], ExploreOptions(count=8, steps=20, viewers=3))
    with Explorer(pool, "127.0.0.1", 18080) as running:
        yield running


@pytest.fixture
def page(explorer: Explorer) -> Iterator[OpenPage]:
    wait_until(lambda: not explorer.viewers)
    opened = OpenPage(explorer.port)
    wait_until(lambda: explorer.viewers and explorer.viewers[0].maps and "record clip" in opened.labels)
    yield opened
    opened.close()
    wait_until(lambda: not explorer.viewers)


def skill_of(explorer: Explorer, panel: int = 0) -> np.ndarray:
    return explorer.viewers[0].panels[panel].simulation.skill


def test_the_body_moves_and_leaving_frees_it(explorer: Explorer) -> None:
    page = OpenPage(explorer.port)
    wait_until(lambda: page.frames > 30)
    (viewer,) = explorer.viewers
    env = viewer.panels[0].simulation.env
    assert viewer.panels[0].simulation.steps > 0
    assert page.seen["BatchedMeshesMessage"] >= 2
    page.vanish()
    wait_until(lambda: env.closed, seconds=10)
    wait_until(lambda: not explorer.viewers)


def test_every_way_to_a_skill(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    space = viewer.panel.agent.space
    page.set("skill", "#3")
    wait_until(lambda: np.array_equal(skill_of(explorer), viewer.maps["point_mass"].skills[3]))
    page.set("all entries", 0.25)
    wait_until(lambda: np.array_equal(skill_of(explorer), np.full(space.dim, 0.25, np.float32)))
    page.set("dimension", 2)
    page.set("its value", 0.75)
    wait_until(lambda: skill_of(explorer)[2] == 0.75)
    assert skill_of(explorer)[1] == 0.25
    page.set("skill", "0.5")
    wait_until(lambda: np.array_equal(skill_of(explorer), np.full(space.dim, 0.5, np.float32)))
    page.set("random skill", True)
    wait_until(lambda: len(set(skill_of(explorer).tolist())) == space.dim)
    before = skill_of(explorer)
    for text in ("#99", "0.5 oh", "7", "trial 1", "#²"):
        page.set("skill", text)
        wait_until(lambda: any("cic-message" in said for said in page.texts.values()))
        page.set("skill", "")
        wait_until(lambda: not any("cic-message" in said for said in page.texts.values()))
    np.testing.assert_array_equal(skill_of(explorer), before)


def test_between_two_pinned_skills(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    for text, place in (("0.2", "first"), ("0.6", "second")):
        page.set("skill", text)
        page.set("pin this as", place)
    wait_until(lambda: viewer.pins[1] is not None)
    page.set("between", 0.5)
    wait_until(lambda: np.allclose(skill_of(explorer), 0.4))


def test_the_command_shows_the_same(explorer: Explorer, page: OpenPage) -> None:
    page.set("skill", "0.5")
    wait_until(lambda: any("--skill 0.5 --seed 0" in text for text in page.texts.values()))
    page.set("episode", "other start")
    page.set("skill", "#1")
    wait_until(lambda: any("--seed 1" in text for text in page.texts.values()))
    (command,) = (re.findall(r'data-command="(.*?)"', text) for text in page.texts.values() if "cic-command" in text)
    words = command[0].split()
    assert words[:3] == ["cic", "explore", "point_mass"]
    numbers = [float(word) for word in words[words.index("--skill") + 1 : words.index("--seed")]]
    np.testing.assert_array_equal(np.float32(numbers), skill_of(explorer))
    assert explorer.viewers[0].panel.simulation.seed == 1


def test_pause_speed_push_reset(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    page.set("pause", True)
    wait_until(lambda: viewer.paused)
    steps = viewer.panel.simulation.steps
    page.set("push", "+x")
    page.set("speed", 0.5)
    wait_until(lambda: viewer.speed == 0.5)
    assert viewer.panel.simulation.steps == steps
    velocity = viewer.panel.simulation.env.physics()[0, 2]
    page.set("push", "+x")
    wait_until(lambda: viewer.panel.simulation.env.physics()[0, 2] > velocity + 0.1)
    page.set("episode", "reset")
    wait_until(lambda: viewer.panel.simulation.steps == 0)
    page.set("pause", False)
    wait_until(lambda: viewer.panel.simulation.steps > 3)


def test_what_physics_cannot_continue_is_reset(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    before = page.labels["agent"]
    page.set("agent", "walker")
    wait_until(lambda: page.labels["agent"] != before)
    simulation = viewer.panel.simulation
    wait_until(lambda: simulation.steps > 20)
    viewer.do(lambda: simulation.push(np.array([1e12, 0.0, 1e12])))
    wait_until(lambda: simulation.steps < 10)
    wait_until(lambda: simulation.steps > 20)
    assert viewer.panel.simulation is simulation
    assert any("unstable" in text for text in page.notes)


def test_side_by_side_with_itself_and_with_another(explorer: Explorer, page: OpenPage) -> None:
    (viewer,) = explorer.viewers
    for name in ("point_mass", "walker"):
        before = page.labels["beside"]
        page.set("beside", name)
        wait_until(lambda: page.labels["beside"] != before)  # noqa: B023
        assert [panel.agent.name for panel in viewer.panels] == ["point_mass", name]
        wait_until(lambda: viewer.panels[1].simulation.steps > 2)
    before = page.labels["skill"]
    page.set("controls", "right")
    wait_until(lambda: page.labels["skill"] != before)
    page.set("skill", "0.5")
    wait_until(lambda: np.allclose(skill_of(explorer, 1), 0.5))
    assert not np.allclose(skill_of(explorer, 0), 0.5)
    envs = [panel.simulation.env for panel in viewer.panels]
    page.set_until("beside", "none", lambda: envs[1].closed)
    assert not envs[0].closed
    page.set_until("agent", "walker", lambda: viewer.panels[0].agent.name == "walker" and envs[0].closed)


def test_each_viewer_has_its_own_and_there_is_an_end_to_them(explorer: Explorer, page: OpenPage) -> None:
    others = [OpenPage(explorer.port) for _ in range(2)]
    wait_until(lambda: len(explorer.viewers) == 3)
    wait_until(lambda: all(viewer.panels for viewer in explorer.viewers))
    assert len({id(viewer.panels[0].simulation.env) for viewer in explorer.viewers}) == 3
    page.set("skill", "0.9")
    wait_until(lambda: np.allclose(skill_of(explorer), 0.9))
    assert not any(np.allclose(viewer.panels[0].simulation.skill, 0.9) for viewer in explorer.viewers[1:])
    surplus = OpenPage(explorer.port)
    wait_until(lambda: any("3 pages are open" in str(text) for text in surplus.markdown))
    assert len(explorer.viewers) == 3
    for other in (*others, surplus):
        other.close()
    wait_until(lambda: len(explorer.viewers) == 1)


def test_no_file_but_the_page_can_be_reached(explorer: Explorer) -> None:
    paths = (
        "/../../../../../../../../etc/passwd",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/package.json",
        "/..%5c..%5cpackage.json",
    )
    for path in (*paths, "/config.json", "/src/App.tsx"):
        connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 404, path
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=5)
    connection.request("GET", "/")
    page = connection.getresponse().read().decode()
    connection.close()
    assert "<html" in page
    assert not re.findall(r'(?:src|href)="https?://', page)


def test_nobody_opens_a_tunnel(explorer: Explorer, page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    import viser._viser

    def refuse(*_: object) -> None:
        raise AssertionError("a tunnel to the world")

    monkeypatch.setattr(viser._viser, "ViserTunnel", refuse)
    assert explorer._server.request_share_url() is None
    page.ask_for_a_tunnel()
    page.set("skill", "0.3")  # it comes after, so the request has been heard
    wait_until(lambda: np.allclose(skill_of(explorer), 0.3))
    assert explorer._server._share_tunnel is None


def test_it_listens_here_alone(explorer: Explorer) -> None:
    assert explorer._server.get_host() == "127.0.0.1"
    with socket.socket() as probe:
        probe.settimeout(1)
        assert probe.connect_ex(("127.0.0.1", explorer.port)) == 0


def test_a_port_in_use_gives_way_to_the_next() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port) <= port + 20
    for host, wanted, said in (("256.0.0.1", 8080, "cannot listen"), ("127.0.0.1", 70000, "between 0 and 65535")):
        with pytest.raises(UserError, match=said):
            free_port(host, wanted)
