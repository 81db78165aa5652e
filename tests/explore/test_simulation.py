from __future__ import annotations

from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest

import cic
from cic.core.errors import UserError
from cic.explore.live_plots import aligned
from cic.explore.live_simulation import LiveSimulation, body_size
from cic.explore.loaded_agent import LoadedAgent, load_agent
from cic.explore.panel import AgentPanel
from cic.explore.skill_map import make_map


@pytest.fixture(scope="module")
def walker() -> LoadedAgent:
    return load_agent("walker")


def test_the_same_seed_and_skill_show_the_same(walker: LoadedAgent) -> None:
    skill = walker.space.check([0.5])
    first, second = LiveSimulation(walker, skill, seed=4), LiveSimulation(walker, skill, seed=4)
    for _ in range(30):
        first.step()
        second.step()
    second.reset()
    for _ in range(30):
        second.step()
    np.testing.assert_array_equal(first.poses.positions, second.poses.positions)
    assert first.returns == second.returns
    assert len(first.traces["task/walk"]) == 30
    first.push(np.array([1.0, 0.0, 0.0]))
    first.step()
    second.step()
    assert np.abs(first.poses.positions - second.poses.positions).max() > 0.01
    first.close()
    second.close()


def test_returns_are_those_of_an_evaluation() -> None:
    """A whole episode, step by step, as `cic evaluate` says of it."""
    agent = load_agent("point_mass")
    skill = agent.space.check([0.3])
    simulation = LiveSimulation(agent, skill, seed=2)
    totals = {}
    for _ in range(1000):
        totals = dict(simulation.returns)
        simulation.step()
    expected = cic.evaluate("point_mass", episodes=1, skill=skill, seed=2).returns
    for task, (value,) in expected.items():
        assert totals[task] == pytest.approx(value, abs=1.01)  # all but the last step, after which it begins anew
    assert simulation.steps == 0
    simulation.close()


def test_two_lanes_stay_in_step(walker: LoadedAgent) -> None:
    panels = [AgentPanel(walker, walker.space.check([value]), seed=0) for value in (0.1, 0.9)]
    rng = np.random.default_rng(0)
    for _ in range(60):
        seconds = float(rng.uniform(0, 0.3))  # also more than a frame may hold
        for panel in panels:
            panel.advance(seconds)
        assert panels[0].simulation.steps == panels[1].simulation.steps
        assert panels[0].time == panels[1].time
    for panel in panels:
        panel.close()


def test_slow_motion_takes_few_steps_and_a_slow_machine_no_flood(walker: LoadedAgent) -> None:
    panel = AgentPanel(walker, walker.space.check([0.5]), seed=0)
    for _ in range(60):
        panel.advance(0.25 / 60)  # a second of wall time at a quarter of the speed: 0.25 s, ten steps of 25 ms
    assert 10 <= panel.simulation.steps <= 11
    before = panel.simulation.steps
    panel.advance(10.0)
    assert panel.simulation.steps - before <= 5
    panel.close()


def test_sizes_are_those_of_bodies_not_of_floors() -> None:
    sizes = {}
    for name in ("walker", "quadruped", "point_mass"):
        env = cic.envs.make(name, threads=1)
        sizes[name] = body_size(env.model)
        env.close()
    assert 1.0 < sizes["walker"] < 2.5
    assert 1.0 < sizes["quadruped"] < 4.0
    assert sizes["point_mass"] == 0.2


def test_lines_of_two_agents_share_their_steps() -> None:
    steps, first, second = aligned(
        [(np.array([1.0, 2, 3]), np.array([1.0, 2, 3])), (np.array([3.0, 5]), np.array([0.0, 2]))]
    )
    assert steps.tolist() == [1, 2, 3, 5]
    assert first.tolist() == [1, 2, 3, 3]
    assert second.tolist() == [0, 0, 0, 2]
    assert [len(part) for part in aligned([(np.zeros(0), np.zeros(0))])] == [1, 1]


@pytest.mark.parametrize("domain", ["gridworld", "gymnasium:CartPole-v1"])
def test_an_environment_without_a_mujoco_model_is_shown_by_its_pictures(domain: str, tmp_path: Path) -> None:
    pytest.importorskip("pygame") if domain.startswith("gymnasium") else None
    run = cic.pretrain(domain, scale="smoke", out=tmp_path / "run", quiet=True)
    agent = load_agent(str(run.path))
    panel = AgentPanel(agent, agent.first_skill(0), seed=0)
    scene = mock.Mock()
    panel.add_to_scene(scene, "scene", np.zeros(3), None)
    first = scene.add_image.call_args.args[1]
    assert first.dtype == np.uint8
    assert first.ndim == 3
    for _ in range(10):
        panel.advance(0.06)
        panel.draw(follow=True)
    shown = scene.add_image.return_value.image
    assert shown is panel.simulation.picture
    assert not np.array_equal(shown, first)
    assert not panel.on_floor
    panel.close()
    made = make_map(agent, count=8, steps=5)
    assert np.isfinite(made.places).all()


def test_an_environment_that_cannot_be_drawn_gives_one_message(tmp_path: Path) -> None:
    cic.register_env("undrawable", lambda: gymnasium.make("Pendulum-v1"))
    run = cic.pretrain("undrawable", scale="smoke", out=tmp_path / "run", quiet=True)
    agent = load_agent(str(run.path), trust=True)
    with pytest.raises(UserError, match=r"render_mode=.rgb_array"):
        AgentPanel(agent, agent.first_skill(0), seed=0)
