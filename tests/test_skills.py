"""What each skill does: table, picture and, where it can be, a video."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cic
from cic.core.errors import UserError
from cic.learning.objectives import SkillSpace
from cic.report import skills as module
from cic.report.skills import choose_skills, compare, comparison_table, describe
from cic.training.evaluation import BINS

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 16, "batch": 16, "warmup": 40, "quiet": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("skills") / "run"
    return cic.pretrain("gridworld", out=path, skill_dim=4, steps=60, **SMALL).path


# ---- which -----------------------------------------------------------------------------------------------------


def test_a_grid_is_of_constant_vectors() -> None:
    skills, names = choose_skills(SkillSpace("box", 3), 5, "grid", 0)
    assert skills.dtype == np.float32
    np.testing.assert_allclose(skills, np.repeat([[0], [0.25], [0.5], [0.75], [1]], 3, axis=1))
    assert names == ["0.00", "0.25", "0.50", "0.75", "1.00"]


@pytest.mark.parametrize(("kind", "choose"), [("box", "random"), ("sphere", "grid"), ("sphere", "random")])
def test_random_skills_are_drawn_as_in_pretraining(kind: Any, choose: Any) -> None:
    space = SkillSpace(kind, 3)
    skills, names = choose_skills(space, 5, choose, 7)
    assert (skills == space.sample(5, np.random.default_rng(7))).all()
    assert len(names) == 5


def test_of_onehot_skills_every_one_is_shown() -> None:
    skills, names = choose_skills(SkillSpace("onehot", 6), 2, "grid", 0)
    assert (skills == np.eye(6)).all()
    assert names == list("012345")


def test_an_agent_without_skills_has_none_to_show() -> None:
    with pytest.raises(UserError, match="no skills"):
        choose_skills(SkillSpace(), 3, "grid", 0)


# ---- what ------------------------------------------------------------------------------------------------------


def test_rows_say_what_each_skills_episode_was(run: Path, tmp_path: Path) -> None:
    found = describe(run, count=4, out=tmp_path, video=False)
    tasks = ["reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"]
    assert found.header == ["skill", *tasks, "path length", "cells"]
    assert [row[0] for row in found.rows] == ["0.00", "0.33", "0.67", "1.00"]
    for row, path in zip(found.rows, found.paths, strict=True):
        assert path.shape == (51, 2)
        steps = np.sqrt((np.diff(path, axis=0) ** 2).sum(axis=1))
        assert row[-2] == pytest.approx(steps.sum())
        assert row[-1] == len({tuple(cell) for cell in np.clip(path * BINS, 0, BINS - 1).astype(int)})
        cells = np.rint(path[1:] * 9)
        assert row[1] == ((cells[:, 0] == 0) & (cells[:, 1] == 9)).sum(), "steps in the top left corner"


def test_all_skills_start_in_the_same_state(run: Path, tmp_path: Path) -> None:
    starts = []
    for seed in range(3):
        paths = describe(run, count=4, seed=seed, out=tmp_path, video=False).paths
        starts.append({tuple(path[0]) for path in paths})
    assert [len(own) for own in starts] == [1, 1, 1]
    assert len(set.union(*starts)) > 1, "the seed decides which"


def test_the_table_and_the_picture_are_written(run: Path, tmp_path: Path) -> None:
    found = describe(run, count=3, out=tmp_path / "new" / "folder", video=False)
    assert [path.name for path in found.files] == ["skills.csv", "skills.png"]
    with open(found.files[0]) as file:
        rows = list(csv.reader(file))
    assert rows[0] == found.header
    assert [[row[0], *map(float, row[1:])] for row in rows[1:]] == found.rows
    picture = found.files[1].read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 600
    assert height > 600


def test_one_skill_can_be_drawn(run: Path, tmp_path: Path) -> None:
    assert len(describe(run, count=1, out=tmp_path, video=False).rows) == 1


def test_by_default_pictures_go_into_the_run(run: Path) -> None:
    assert describe(run, count=2, video=False).files[0] == run / "pictures" / "skills.csv"


def test_where_nothing_can_be_rendered_a_warning_takes_the_videos_place(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise UserError("rendering needs OpenGL")

    monkeypatch.setattr(module, "_frames", fail)
    with pytest.warns(UserWarning, match="no video: rendering needs OpenGL"):
        found = describe(run, count=2, out=tmp_path)
    assert [path.name for path in found.files] == ["skills.csv", "skills.png"]


def test_a_video_shows_the_skills_side_by_side(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gridworld draws itself without OpenGL."""
    pytest.importorskip("imageio_ffmpeg")
    shapes: list[Any] = []
    frames = module._frames

    def watch(*arguments: Any) -> Any:
        result = frames(*arguments)
        shapes.extend(frame.shape for frame in result)
        return result

    monkeypatch.setattr(module, "_frames", watch)
    found = describe(run, count=5, out=tmp_path)
    assert [path.name for path in found.files] == ["skills.csv", "skills.png", "skills.mp4"]
    assert found.files[2].stat().st_size > 1000
    assert set(shapes) == {(320, 480, 3)}, "five tiles of 160 in a grid of three columns"


def test_on_the_ant_cells_of_one_metre_are_counted_for_each_skill_and_together(tmp_path: Path) -> None:
    path = cic.pretrain("ant", "metra", out=tmp_path / "run", steps=60, **SMALL).path
    result = json.loads((path / "result.json").read_text())
    assert result["coverage/skill_cells"] >= 1, "of 48 skills, for the report"
    assert "coverage/skill_cells" in (path / "metrics.jsonl").read_text().splitlines()[-1]
    found = describe(path, count=3, video=False)
    assert found.header[-1] == "1×1"
    *each, together = found.rows
    assert len(each) == 3
    assert together[0] == "together"
    assert max(row[-1] for row in each) <= together[-1] <= sum(row[-1] for row in each)


# ---- how much a skill matters ----------------------------------------------------------------------------------


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
