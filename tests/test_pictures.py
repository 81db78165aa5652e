"""Quantities, coverage, directions, panels and films: against numbers that are known or computed otherwise."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import cic
from cic import cli, envs
from cic.core.errors import UserError
from cic.envs import quantities, registry
from cic.envs.catalogue import DOMAINS, Quantity
from cic.report.film import film
from cic.report.pictures import frames, recording, trajectory_plots
from cic.report.pictures.trajectory_plots import directions
from cic.training.evaluation import Coverage, rollout

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "quiet": True}


# ---- quantities and coverage -----------------------------------------------------------------------------------


def test_an_angle_is_computed_from_its_cosine_and_sine() -> None:
    degrees = np.array([-170.0, -90.0, 0.0, 30.0, 179.0])
    obs = np.stack([np.zeros(5), np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)
    np.testing.assert_allclose(quantities.values(Quantity("angle", "°", (1, 2)), obs), degrees)
    with pytest.raises(ValueError, match="physics"):
        quantities.values(Quantity("x", "m", (0,), physics=True), obs)


def test_a_walker_that_turns_over_at_all_heights_and_speeds_covers_everything() -> None:
    """Of cosine × sine × height, which was counted before, nothing can cover more than 0.17."""
    angles, heights, speeds = np.meshgrid(
        np.radians(np.arange(-171, 180, 18)), np.arange(0.04, 1.6, 0.08), np.arange(-2.85, 3, 0.3)
    )
    obs = np.zeros((angles.size, 24), np.float32)
    obs[:, 0], obs[:, 1] = np.cos(angles).ravel(), np.sin(angles).ravel()
    obs[:, 14], obs[:, 16] = heights.ravel(), speeds.ravel()
    coverage = Coverage(DOMAINS["walker"].coverage, 24)
    coverage.add(obs[: len(obs) // 2])
    assert coverage.fraction == pytest.approx(0.5)
    coverage.add(obs)
    assert coverage.fraction == 1
    assert coverage.of == "8,000 cells of torso angle -180 to 180 ° × height 0 to 1.6 m × speed -3 to 3 m/s"


def test_the_gridworlds_coverage_is_of_its_hundred_cells() -> None:
    coverage = Coverage(DOMAINS["gridworld"].coverage, 2)
    places = np.arange(10) * 2 / 9 - 1
    for count, x in enumerate(places, 1):
        coverage.add(np.array([[x, y] for y in places], np.float32))
        assert coverage.fraction == pytest.approx(count / 10)


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_draws_quantities_that_move_and_are_the_physics_own(domain: str) -> None:
    env = envs.make(domain, num_envs=1, seed=0)
    obs, physics = [env.reset(seed=0)[0]], [env.physics()]
    actions = np.random.default_rng(0)
    for _ in range(40):
        obs.append(env.step(actions.uniform(-1, 1, env.action_space.shape).astype(np.float32))[0])
        physics.append(env.physics())
    panels = trajectory_plots.panels(env, [np.concatenate(obs)], [np.concatenate(physics)])
    assert panels
    for panel in panels:
        ((x, y),) = panel.lines
        assert len(x) == len(y) == 41
        assert np.ptp(y) > 0, panel.y
    env.close()


def test_the_walkers_distance_is_the_integral_of_its_speed() -> None:
    """Two quantities of its picture, found in different places, agree; and both with the reward's own measure."""
    env = envs.make("walker", num_envs=1, seed=3)
    env.reset(seed=3)
    rows = [env.physics()[0]]
    for _ in range(60):
        env.step(np.full((1, 6), 0.4, np.float32))
        rows.append(env.physics()[0])
    distance, _, turned, speed = (view.y for view in env.drawing)
    states = np.stack(rows)
    obs = np.zeros((61, 24))
    moved = quantities.values(distance, obs, states)
    speeds = quantities.values(speed, obs, states)
    steps = env.step_seconds * (speeds[1:] + speeds[:-1]) / 2
    assert env.step_seconds == pytest.approx(0.025)
    assert moved[-1] - moved[0] == pytest.approx(steps.sum(), abs=0.05)
    spin = states[:, 11]  # of the hinge, in radians a second
    turns = env.step_seconds * ((spin[1:] + spin[:-1]) / 2).sum() / (2 * math.pi)
    shown = quantities.values(turned, obs, states)
    assert shown[-1] - shown[0] == pytest.approx(turns, abs=0.05)
    env.close()


# ---- directions ------------------------------------------------------------------------------------------------


def test_directions_are_the_principal_axes_of_the_skills_means() -> None:
    rng = np.random.default_rng(0)
    means = rng.standard_normal((8, 5)) * [3, 0.2, 1, 0.1, 0]
    paths = [(mean + 0.01 * rng.standard_normal((30, 5))).astype(np.float32) for mean in means]
    found = directions(paths, list("abcde"))
    every = np.concatenate(paths).astype(np.float64)
    scaled = np.stack([path.mean(axis=0, dtype=np.float64) for path in paths]) / every.std(axis=0)
    values, axes = np.linalg.eigh(np.cov(scaled.T))
    for one, place in zip(found, (-1, -2), strict=True):
        assert abs(one.weights @ axes[:, place]) == pytest.approx(1, abs=1e-6)
        assert one.share == pytest.approx(values[place] / values.sum(), abs=1e-6)
        projected = np.stack([one.values(path).mean() for path in paths])
        assert projected.var(ddof=1) == pytest.approx(values[place], rel=1e-3)


def test_a_direction_names_the_entries_that_make_it_up() -> None:
    line = np.linspace(-1, 1, 50)
    both = np.stack([line, np.zeros(50), -line], axis=1).astype(np.float32)
    first, second = directions([both, both], ["hip", "knee", "foot"])
    assert first.share == pytest.approx(1)
    assert sorted(first.label.replace("−0.71 ", "-").replace("+0.71 ", "+").split()) in (
        ["+foot", "-hip"],
        ["+hip", "-foot"],
    )
    assert "hip" not in first.label.replace("hip", "", 1)
    assert len(second.weights) == 3


class Dictionary(gymnasium.Env[Any, Any]):
    """An environment of somebody's own, with named parts, that can show itself."""

    observation_space = gymnasium.spaces.Dict(
        {"arm": gymnasium.spaces.Box(-9, 9, (2,)), "ball": gymnasium.spaces.Box(-9, 9, (1,))}
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.count, self.place = 0, 0.0

    def _seen(self) -> Any:
        return {"arm": np.array([self.place, self.count / 20], np.float32), "ball": np.zeros(1, np.float32)}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.count, self.place = 0, 0.0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        self.place += float(action[0])
        return self._seen(), 1.0, False, self.count >= 20, {}

    def render(self) -> Any:
        return np.full((30, 60, 3), 10 * self.count, np.uint8)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(registry, "_OWN", {"mine": Dictionary})
    return cic.pretrain("mine", out=tmp_path / "own", skill_dim=4, steps=60, **SMALL).path


def test_an_own_environment_is_drawn_along_named_directions_and_filmed_by_its_own_renderer(
    own: Path, tmp_path: Path
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    env = envs.make("mine")
    assert env.entry_names() == ["arm[0]", "arm[1]", "ball[0]"]
    env.close()
    found = cic.skills(own, out=tmp_path / "out", count=4, compare=0, starts=1, seconds=0.5)
    assert found.header == ["skill", "reward", "path", "cells"]
    assert [row[1] for row in found.rows[:-1]] == [20.0] * 4
    names = ["skills.csv", "skills.png", "filmstrip.png", "skills.mp4"]
    assert [path.name for path in found.files] == names
    made = film(own, out=tmp_path / "film.gif", width=64, height=64)
    assert (made.steps, made.returns) == (20, {"reward": 20.0})


def test_pictures_of_an_own_environment_are_of_the_episode_and_not_of_the_next(own: Path) -> None:
    agent, env = cic.load(own), envs.make("mine", num_envs=1)
    played = recording.record(agent, env, np.zeros((1, 4), np.float32), [0], (60, 30), range(0, 31, 7))
    shown = [int(played.frame(0, [step], plain=True)[0, 0, 0]) // 10 for step in (0, 7, 14, 20, 30)]
    assert shown == [0, 7, 14, 14, 14], "step 21 would be the first of another episode"
    blended = played.frame(0, [7, 14], plain=True)
    assert 70 < blended[0, 0, 0] < 140
    env.close()


# ---- films -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cic.pretrain("gridworld", out=tmp_path_factory.mktemp("film") / "run", skill_dim=4, steps=60, **SMALL).path


def test_a_strip_shows_ghosts_of_the_moments_before_each_frame() -> None:
    env = envs.make("gridworld")
    count, apart = env.ghosts[0], round(env.ghosts[1] * recording.FRAME_RATE)
    moments = recording.strip_steps(env, 40, 5)
    assert len(moments) == 5
    assert moments[-1] == [40 - ghost * apart for ghost in range(count, -1, -1)]
    assert moments[0][-1] == count * apart
    states = [np.array([place, 2.0]) for place in range(4)]
    ghostly, plain = env.draw(states, 100, 100), env.draw(states[-1:], 100, 100)
    changed = {int(column) // 10 for column in np.flatnonzero((ghostly != plain).any(axis=(0, 2)))}
    assert changed == {0, 1, 2}, "the cells of the earlier moments, and not the last one's"
    env.close()


def test_what_is_filmed_is_what_is_measured(grid: Path) -> None:
    agent, env = cic.load(grid), envs.make("gridworld", num_envs=3, seed=1)
    skills = np.random.default_rng(0).random((3, 4), dtype=np.float32)
    played = recording.record(agent, env, skills, [1, 1, 2], (50, 50), range(51))
    measured = rollout(agent, env, skills, seed=[1, 1, 2])
    for copy in range(3):
        for task in env.tasks:
            assert played.running_return(copy, task, 50) == measured.returns[task][copy]
        np.testing.assert_array_equal(
            played.frame(copy, [50], plain=True), env.draw([played.episodes.physics[copy][50]], 50, 50)
        )
    env.close()


def test_a_film_runs_as_fast_as_the_world() -> None:
    for name, seconds in (("walker", 0.025), ("jaco", 0.04), ("ant", 0.05)):
        env = envs.make(name)
        assert env.step_seconds == pytest.approx(seconds)
        steps = recording.seconds_to_steps(env, 4.0)
        assert steps * env.step_seconds == pytest.approx(4.0)
        frames, rate = recording.frame_steps(env, steps)
        assert (frames[1] - frames[0]) * env.step_seconds * rate == pytest.approx(1)
        assert 10 <= rate <= 25
        assert recording.seconds_to_steps(env, 1e6) == env.episode_length
        env.close()


@pytest.mark.parametrize("ending", [".gif", ".webp", ".mp4"])
def test_a_film_of_a_run_is_written_in_the_format_of_its_name(grid: Path, tmp_path: Path, ending: str) -> None:
    if ending == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    out = tmp_path / "new" / f"film{ending}"
    made = film(grid, out=out, seconds=1, skill=(0.5,), width=100, height=64)
    assert made.file == out
    assert set(made.returns) == set(DOMAINS["gridworld"].tasks)
    assert made.steps == recording.FRAME_RATE
    start = out.read_bytes()[:16]
    assert start.startswith(b"GIF8") or start[8:12] == b"WEBP" or start[4:8] == b"ftyp"


def test_the_running_return_is_below_the_picture() -> None:
    picture = np.zeros((64, 200, 3), np.uint8)
    early, late = (frames.with_returns(picture, "mine", "1 s", {"reward": value}) for value in (2.0, 9.0))
    assert early.shape == late.shape == (64 + 48, 200, 3)
    assert (early[:64] == picture).all()
    changed = np.flatnonzero((early != late).any(axis=(1, 2)))
    assert 64 + 24 <= changed.min() <= changed.max() < 64 + 48, "the line of the return, and nothing else"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "film.avi"], "a film must end in .mp4, .gif or .webp, not film.avi"),
        (["--task", "fly"], 'unknown task of gridworld "fly"'),
        (["--width", "9"], "width and height must be between 64 and 1,920"),
        (["--seconds", "-1"], "seconds must be above 0"),
        (["--skill", "0.1", "0.2"], "--skill has 2 numbers"),
    ],
)
def test_misplayeds_are_said_in_a_sentence(
    grid: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["film", str(grid), "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_film_command_reports_progress_from_its_start(grid: Path, tmp_path: Path) -> None:
    code = "import sys, cic.cli; sys.exit(cic.cli.main())"
    words = ["film", str(grid), "--seconds", "0.2", "--out", str(tmp_path / "a.gif")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("cic film: starting")


def test_without_opengl_gymnasiums_own_renderer_is_not_even_started(monkeypatch: pytest.MonkeyPatch) -> None:
    env = envs.make("gymnasium:InvertedPendulum-v5", pictures=True)
    env.reset(seed=0)
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(UserError, match=r"rendering needs OpenGL .*apt install"):
        env.render()
    env.close()


# ---- with OpenGL -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opengl() -> None:
    try:
        envs.make("point_mass").draw([np.zeros(4)], 32, 32)
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("opengl")
def test_ghosts_of_a_body_are_drawn_where_it_was_and_paler() -> None:
    env = envs.make("point_mass")
    here, there = np.array([0.2, 0.2, 0, 0]), np.array([-0.2, -0.2, 0, 0])
    alone, gone, both = (env.draw(states, 120, 120).astype(int) for states in ([here], [there], [there, here]))
    empty_there = np.abs(both - alone).sum(axis=2)
    solid_there = np.abs(gone - alone).sum(axis=2)
    lower_left, upper_right = np.s_[60:, :60], np.s_[:60, 60:]
    assert empty_there[lower_left].max() > 20, "something is where it was"
    assert empty_there[lower_left].sum() < 0.7 * solid_there[lower_left].sum(), "but paler than the body itself"
    assert empty_there[upper_right].max() <= 3, "where it is now nothing changed"
    env.close()


@pytest.mark.usefixtures("opengl")
def test_a_gymnasium_environment_is_drawn_by_its_own_renderer_with_its_arguments() -> None:
    name = "gymnasium:InvertedPendulum-v5?width=96&height=72"
    env = envs.make(name, pictures=True)
    env.reset(seed=0)
    assert env.render().shape == (72, 96, 3)
    env.close()
    plain = envs.make("gymnasium:InvertedPendulum-v5")
    plain.reset(seed=0)
    assert plain.render(width=64, height=48).shape == (48, 64, 3), "without, MuJoCo's renderer does"
    plain.close()
