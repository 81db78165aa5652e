from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cic.core.named_quantities import NamedQuantity
from cic.envs import catalogue
from cic.explore import explorer_page
from cic.explore.cluster_names import mean_signals, name_of
from cic.explore.live_simulation import LiveSimulation
from cic.explore.loaded_agent import load_agent
from cic.explore.skill_map import (
    CLUSTER,
    LENGTH,
    SkillMap,
    best_skills,
    clusters,
    default_measure,
    groups,
    make_map,
    principal,
)


@pytest.fixture(scope="module")
def drawn() -> SkillMap:
    return make_map(load_agent("point_mass"), count=12, steps=60, seed=3)


def test_the_plane_is_that_of_the_largest_variance() -> None:
    """Against an eigendecomposition of the covariance."""
    features = np.random.default_rng(0).standard_normal((40, 6)) * [5, 3, 1, 1, 1, 1]
    axes, share = principal(features)
    values = np.linalg.eigvalsh(np.cov(features.T))[::-1]
    np.testing.assert_allclose(axes.var(axis=0, ddof=1)[:2], values[:2])
    assert share == pytest.approx(values[:2].sum() / values.sum())
    alone, nothing = principal(np.ones((1, 3)))
    assert alone.shape == (1, 2)
    assert nothing == 0


def test_clusters_are_those_that_are_there() -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[0, 0], [9, 0], [0, 9]])
    truth = rng.integers(0, 3, 60)
    found = clusters(centres[truth] + rng.standard_normal((60, 2)), 3)
    assert {frozenset(np.flatnonzero(found == k)) for k in range(3)} == {
        frozenset(np.flatnonzero(truth == k)) for k in range(3)
    }
    assert clusters(centres[:2].astype(float), 5).tolist() in ([0, 1], [1, 0])  # fewer points than clusters


def test_a_point_has_the_numbers_of_its_skill(drawn: SkillMap) -> None:
    """Returns and way of one skill, by the simulation that a page shows."""
    agent = load_agent("point_mass")
    simulation = LiveSimulation(agent, drawn.skills[7], seed=3)
    track = [simulation.poses.positions[-1]]
    for step in range(60):
        simulation.step()
        if step % 5 == 4:
            track.append(simulation.poses.positions[-1])  # the ball is the model's last geom
    for task, value in simulation.returns.items():
        assert drawn.measures[f"return: {task}"][7] == pytest.approx(value, rel=1e-4, abs=1e-6)
    length = sum(float(np.linalg.norm(b - a)) for a, b in pairwise(track))
    assert drawn.measures[LENGTH][7] == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(drawn.reference.observations[7, -1], simulation._obs[0], atol=1e-5)
    simulation.close()


def test_alike_is_near(drawn: SkillMap) -> None:
    """On point_mass behaviour is where the ball ends: far apart there is far apart on the map."""
    ends = drawn.reference.observations[:, 30:, :2].mean(axis=1)
    pairs = [(a, b) for a in range(12) for b in range(a)]
    there = [float(np.linalg.norm(ends[a] - ends[b])) for a, b in pairs]
    here = [float(np.linalg.norm(drawn.places[a] - drawn.places[b])) for a, b in pairs]
    assert np.corrcoef(there, here)[0, 1] > 0.7
    assert drawn.places.min() == 0
    assert drawn.places.max() == 1


def test_the_page_shows_every_skill_and_rings_the_one_that_acts(drawn: SkillMap) -> None:
    for measure in drawn.measures:
        html = explorer_page.map_html(drawn, measure, drawn.skills[4])
        assert html.count("cic-skill") == 12
        assert html.count('r="10"') == 1
        assert html.index('r="10"') < html.index('data-skill="4"') < html.index('r="10"') + 200
    assert explorer_page.map_html(drawn, CLUSTER, None).count('r="10"') == 0
    assert default_measure(drawn) in drawn.measures


@pytest.mark.parametrize(
    ("speed", "upright", "height", "name"),
    [
        (2.5, 1.0, 1.2, "fast forward, upright"),
        (0.9, 0.9, 0.7, "forward, upright"),
        (-2.5, 0.0, 0.7, "fast backward"),
        (0.0, 0.9, 0.7, "upright, still"),
        (0.0, -0.9, 0.1, "low, on its back, still"),
        (0.5, 0.1, 0.7, "other"),
    ],
)
def test_names_of_behaviours_come_from_quantities(speed: float, upright: float, height: float, name: str) -> None:
    """A walker with constant values: the first half of the steps does not count."""
    quantities = catalogue.DOMAINS["walker"].quantities
    paths = np.zeros((1, 10, 24), np.float32)
    paths[:, 5:, [16, 0, 14]] = speed, upright, height
    signals, sizes = mean_signals(quantities, paths)
    assert signals[0] == pytest.approx([np.tanh(speed / 3), upright, np.clip((height - 0.7) / 0.6, -1, 1), 0], abs=1e-6)
    assert name_of(quantities, signals[0], sizes[0]) == name


def test_quantities_of_the_user_have_names_without_words_of_their_own() -> None:
    quantities = (NamedQuantity("charge", "obs[0]", scale=1.0), NamedQuantity("heat", "obs[1]"))
    paths = np.zeros((2, 4, 2), np.float32)
    paths[0] = 3.0, 5.0
    signals, sizes = mean_signals(quantities, paths)  # heat has no scale: relative to both paths
    assert [name_of(quantities, *row) for row in zip(signals, sizes, strict=True)] == [
        "high charge, high heat",
        "low heat",
    ]


def test_groups_with_one_name_are_one_group(drawn: SkillMap) -> None:
    assert len({group.name for group in drawn.groups}) == len(drawn.groups)
    assert sum(group.size for group in drawn.groups) == 12
    for place, group in enumerate(drawn.groups):
        assert drawn.measures[CLUSTER][group.typical] == place
    labels, found = groups(np.arange(6.0)[:, None], (), np.zeros((6, 2, 1), np.float32))
    assert [group.name for group in found] == [f"cluster {k + 1}" for k in range(len(set(labels.tolist())))]


def test_the_page_has_a_button_for_each_behaviour_and_the_best_skill_of_each_task(drawn: SkillMap) -> None:
    html = explorer_page.map_html(drawn, LENGTH, None)
    assert html.count("cic-group") == len(drawn.groups)
    best = best_skills(drawn)
    assert html.count("cic-best") == len(best) > 0
    for task, index in best.items():
        assert f"(&#39;#{index}&#39;)" in html or f"('#{index}')" in html
        assert drawn.measures[f"return: {task}"][index] == drawn.measures[f"return: {task}"].max()


def test_colours_tell_low_from_high_even_without_hue() -> None:
    colours = explorer_page.gradient(np.linspace(0, 1, 9))
    light = [int(c[1:3], 16) * 0.3 + int(c[3:5], 16) * 0.59 + int(c[5:7], 16) * 0.11 for c in colours]
    assert all(a < b for a, b in pairwise(light))
    assert len(set(explorer_page.gradient(np.ones(3)))) == 1
