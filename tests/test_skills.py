"""What each skill does: the table, the drawings and, where they can be, filmstrips and films."""

from __future__ import annotations

import csv
import json
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic
from cic import cli
from cic.core.errors import UserError
from cic.learning.objectives import SkillSpace
from cic.report.pictures import recording, skill_choice
from cic.report.skills import CANDIDATES, compare, comparison_table

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "quiet": True}
TASKS = ["reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("skills") / "run"
    return cic.pretrain("gridworld", out=path, skill_dim=4, steps=60, **SMALL).path


def shown(run: Path, out: Path, **look: Any) -> Any:
    return cic.skills(run, out=out, **{"video": False, "compare": 0, "starts": 1, **look})


def choose_skills(space: SkillSpace, count: int, how: Any, seed: int) -> tuple[Any, list[str]]:
    found = skill_choice.choose(space, count, how, seed)
    return found.skills, found.names


# ---- which -----------------------------------------------------------------------------------------------------


def test_a_grid_is_of_constant_vectors() -> None:
    skills, names = choose_skills(SkillSpace("box", 3), 5, "grid", 0)
    assert skills.dtype == np.float32
    np.testing.assert_allclose(skills, np.repeat([[0], [0.25], [0.5], [0.75], [1]], 3, axis=1))
    assert names == ["0", "0.25", "0.5", "0.75", "1"]
    assert choose_skills(SkillSpace("cube", 2), 3, "grid", 0)[1] == ["-1", "0", "1"]


@pytest.mark.parametrize("kind", ["box", "sphere", "normal", "cube"])
def test_random_skills_are_drawn_as_in_pretraining(kind: Any) -> None:
    space = SkillSpace(kind, 3)
    skills, names = choose_skills(space, 5, "random", 7)
    assert (skills == space.sample(5, np.random.default_rng(7))).all()
    assert len(set(names)) == 5


def test_of_onehot_skills_every_one_that_is_drawn_is_shown_by_its_place() -> None:
    skills, names = choose_skills(SkillSpace("onehot", 6), 2, "grid", 0)
    assert (skills == np.eye(6)).all()
    assert names == list("012345")
    assert choose_skills(SkillSpace("onehot", 6, active=2), 2, "random", 0)[1] == ["0", "1"]


def test_skills_of_a_sphere_are_named_by_their_direction() -> None:
    skills, names = choose_skills(SkillSpace("sphere", 2, radius=3.0), 4, "grid", 0)
    assert names == ["0°", "90°", "180°", "270°"]
    np.testing.assert_allclose(skills, 3.0 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]), atol=1e-6)
    skills, names = choose_skills(SkillSpace("sphere", 3), 9, "grid", 0)
    assert names == ["+1", "−1", "+2", "−2", "+3", "−3"], "no more than there are"
    assert (skills == np.repeat(np.eye(3), 2, axis=0) * np.tile([[1], [-1]], (3, 1))).all()


@pytest.mark.parametrize(("kind", "dim"), [("box", 4), ("cube", 4), ("sphere", 2), ("sphere", 5), ("onehot", 4)])
def test_every_named_skill_is_one_that_the_agent_knows_and_is_called_the_same_alone(kind: Any, dim: int) -> None:
    space = SkillSpace(kind, dim)
    found = skill_choice.choose(space, 5, "grid", 0)
    for skill, name in zip(found.skills, found.names, strict=True):
        np.testing.assert_allclose(space.check(skill.tolist()), skill)
        assert skill_choice.single(space, skill).names == [name]


# ---- what ------------------------------------------------------------------------------------------------------


def test_rows_say_what_each_skills_episode_was(run: Path, tmp_path: Path) -> None:
    found = shown(run, tmp_path, count=4)
    assert found.header == ["skill", *TASKS, "path (cells)", "cells"]
    *rows, together = found.rows
    assert [row[0] for row in rows] == ["0", "0.333", "0.667", "1"]
    visited = set()
    for row, path in zip(rows, found.paths, strict=True):
        assert path.shape == (51, 2)
        assert row[-2] == pytest.approx(np.abs(np.diff(path, axis=0)).sum()), "moves are along an axis"
        assert row[-1] == len({tuple(cell) for cell in path})
        visited |= {tuple(cell) for cell in path}
        assert row[1] == ((path[1:, 0] == 0) & (path[1:, 1] == 9)).sum(), "steps in the top left corner"
    assert together == ["together", *["-"] * 5, len(visited)]
    assert found.notes[0].startswith(f"Visited: {len(visited)}.0% of 100 cells of x -1 to 1 × y -1 to 1")


def test_all_skills_start_in_the_same_state(run: Path, tmp_path: Path) -> None:
    starts = []
    for seed in range(3):
        paths = shown(run, tmp_path, count=4, seed=seed).paths
        starts.append({tuple(path[0]) for path in paths})
    assert [len(own) for own in starts] == [1, 1, 1]
    assert len(set.union(*starts)) > 1, "the seed decides which"


def test_the_table_and_the_pictures_are_written(run: Path, tmp_path: Path) -> None:
    found = shown(run, tmp_path / "new" / "folder", count=3, starts=2)
    assert [path.name for path in found.files] == ["skills.csv", "skills.png"]
    with open(found.files[0]) as file:
        rows = list(csv.reader(file))
    assert rows[0] == [*found.header, "vector"]
    assert [[row[0], *map(float, row[1:-1])] for row in rows[1:-1]] == found.rows[:-1]
    for picture in found.files[1:]:
        data = picture.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert min(struct.unpack(">II", data[16:24])) > 400


def test_a_vector_of_the_table_gives_the_same_episode_again(run: Path, tmp_path: Path) -> None:
    found = shown(run, tmp_path, count=3, choose="random")
    with open(found.files[0]) as file:
        vector = [float(word) for word in list(csv.reader(file))[2][-1].split()]
    alone = shown(run, tmp_path, skill=tuple(vector))
    assert len(alone.rows) == 2, "itself, and all together"
    assert alone.rows[0][1:] == found.rows[1][1:]


def test_different_skills_are_the_random_ones_that_are_far_apart(run: Path, tmp_path: Path) -> None:
    some = shown(run, tmp_path, count=4, choose="different")
    every = {row[0]: path for row, path in zip(*every_random(run, tmp_path), strict=True)}
    chosen = [row[0] for row in some.rows[:-1]]
    assert len(set(chosen)) == 4
    for name, path in zip(chosen, some.paths, strict=True):
        np.testing.assert_array_equal(path, every[name])

    def spread(paths: list[Any]) -> float:
        middle = [path[len(path) // 2 :].mean(axis=0) for path in paths]
        return float(np.mean([np.linalg.norm(a - b) for a in middle for b in middle]))

    assert spread(some.paths) > spread(list(every.values())[:4])


def every_random(run: Path, folder: Path) -> tuple[list[Any], list[Any]]:
    found = shown(run, folder, count=CANDIDATES, choose="random")
    return found.rows[:-1], found.paths


def test_by_default_pictures_go_into_the_run(run: Path) -> None:
    assert cic.skills(run, count=2, video=False, compare=0).files[0] == run / "pictures" / "skills.csv"


def test_on_the_ant_cells_of_one_metre_are_counted_for_each_skill_and_together(tmp_path: Path) -> None:
    path = cic.pretrain("ant", "metra", out=tmp_path / "run", steps=60, **SMALL).path
    result = json.loads((path / "result.json").read_text())
    assert result["coverage/skill_cells"] >= 1, "of 48 skills, for the report"
    assert "coverage/skill_cells" in (path / "metrics.jsonl").read_text().splitlines()[-1]
    found = shown(path, tmp_path, count=3)
    assert found.header[-1] == "1×1"
    *each, together = found.rows
    assert [row[0] for row in each] == ["0°", "120°", "240°"]
    assert together[0] == "together"
    assert max(row[-1] for row in each) <= together[-1] <= sum(row[-1] for row in each)


@pytest.fixture(scope="module")
def others(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("others")
    budget = {**SMALL, "steps": 100, "eval_every": 100, "eval_episodes": 1}
    return {
        "without skills": cic.pretrain("gridworld", "rnd", out=folder / "rnd", steps=60, **SMALL).path,
        "finetuned": cic.finetune(run, TASKS[0], out=folder / "tuned", **budget).path,
        "from scratch": cic.finetune(None, f"gridworld-{TASKS[0]}", out=folder / "scratch", **budget).path,
    }


@pytest.mark.parametrize("kind", ["without skills", "finetuned", "from scratch"])
def test_a_run_without_a_choice_of_skills_shows_its_policy_from_several_starts(
    others: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    found = cic.skills(others[kind], out=tmp_path, starts=4, video=False)
    tasks = TASKS if kind == "without skills" else TASKS[:1]
    assert found.header == ["start", *tasks, "path (cells)", "cells"]
    assert [row[0] for row in found.rows] == ["1", "2", "3", "4", "together"]
    assert found.diagnosis is None
    assert len({tuple(path[0]) for path in found.paths}) > 1
    evaluated = cic.evaluate(others[kind], episodes=4, seed=0).returns
    own = evaluated.get(TASKS[0]) or evaluated[f"gridworld-{TASKS[0]}"]
    assert [row[1] for row in found.rows[:-1]] == own


def test_a_finetuned_run_can_show_its_skills_too(others: dict[str, Path], tmp_path: Path) -> None:
    assert [row[0] for row in shown(others["finetuned"], tmp_path, count=2, choose="grid").rows[:2]] == ["0", "1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "0"], "count must be at least 1"),
        (["--count", "100k"], "count must be at least 1 and at most 500, not 100,000"),
        (["--seconds", "0"], "seconds must be above 0"),
        (["--columns", "99"], "columns must be at least 1 and at most 25"),
        (["--skill", "7"], r"skills lie in [0, 1]: 7"),
        (["--skill", "1", "0"], "--skill has 2 numbers"),
        (["--choose", "best"], "--choose: unknown value"),
    ],
)
def test_mistakes_are_one_message(run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["skills", str(run), "--no-video", "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_skills_of_an_agent_that_has_none_are_refused(others: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="no skills"):
        cic.skills(others["without skills"], choose="random", video=False)
    with pytest.raises(UserError, match="no skills"):
        cic.skills(others["without skills"], skill=(0.5,), video=False)


# ---- how much a skill matters, and which is best ---------------------------------------------------------------


def test_the_comparison_is_of_random_skills_over_whole_episodes(run: Path) -> None:
    found = compare(run, count=6, starts=2)
    assert (found.skills, found.starts) == (6, 2)
    header, rows = comparison_table(found)
    assert header[-1] == "best of 6"
    assert [row[0] for row in rows] == ["behaviour", *found.best]
    agent = cic.load(run)
    skills = agent.objective.skills.sample(6, np.random.default_rng(0))
    expected = [
        np.mean([cic.evaluate(run, skill=skill, episodes=1, seed=seed).returns["reach_top_left"] for seed in (0, 1)])
        for skill in skills
    ]
    assert found.best["reach_top_left"] == pytest.approx(max(expected))
    assert found.typical["reach_top_left"] == pytest.approx(np.mean(expected))
    np.testing.assert_allclose(found.returns["reach_top_left"].mean(axis=1), expected)


# ---- films -----------------------------------------------------------------------------------------------------


def test_without_a_renderer_films_are_skipped_with_a_warning_and_plots_are_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise UserError("rendering needs OpenGL")

    monkeypatch.setattr(recording.Recording, "frame", fail)
    with pytest.warns(UserWarning, match="no films or filmstrips: rendering needs OpenGL"):
        found = cic.skills(run, count=2, out=tmp_path, compare=0)
    assert [path.name for path in found.files] == ["skills.csv", "skills.png"]


def test_filmstrips_and_films_show_every_skill(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gridworld draws itself without OpenGL."""
    pytest.importorskip("imageio_ffmpeg")
    made: list[Any] = []
    monkeypatch.setattr(recording, "write_film", lambda frames, rate, out: made.append((list(frames), rate, out)))
    found = cic.skills(run, count=5, columns=4, seconds=2, starts=1, compare=4, out=tmp_path)
    names = ["skills.csv", "skills.png", "filmstrip.png", "skills.mp4"]
    assert [path.name for path in found.files] == names
    ((frames, rate, _),) = made
    assert rate == recording.FRAME_RATE
    assert len(frames) == 2 * recording.FRAME_RATE + 1
    tile = (150 + 2 * 3 + 18, 200 + 2 * 3)
    assert {frame.shape for frame in frames} == {(2 * (tile[0] + 6) + 6, 4 * (tile[1] + 6) + 6, 3)}
    width, height = struct.unpack(">II", found.files[2].read_bytes()[16:24])
    assert (width, height) == (8 * 200 + 120, 5 * 150 + 70)


def test_the_report_holds_what_skills_and_film_made(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    from cic.report import ReportOptions, report
    from cic.report.film import film

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cic.skills(run, count=2, seconds=0.5, compare=3)
        film(run, seconds=0.5, skill=(0.5,))
    page = report([run], tmp_path / "report", ReportOptions(reps=10, figures=())).page.read_text()
    media = page[page.index('id="media"') :]
    assert media.count("<video") == 2
    assert media.count("data:video/mp4;base64,") == 2
    assert media.count("data:image/png;base64,") == 2
    for said in ("one row per skill", "running return"):
        assert said in media
