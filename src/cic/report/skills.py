"""What each skill does: returns, path length and coverage, as a table, a picture and a video."""

from __future__ import annotations

import csv
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cic import envs
from cic.api import load
from cic.core.errors import UserError
from cic.core.types import Array
from cic.envs.base import MOST_COPIES
from cic.learning.agent import Agent
from cic.learning.objectives import SkillSpace
from cic.runs.folder import Run
from cic.runs.links import refuse_links
from cic.training.diagnosis import Diagnosis, diagnose
from cic.training.evaluation import Coverage, plane_cells, rollout
from cic.training.opening import check_source, open_env
from cic.training.phases import config_of, phase_of


@dataclass(frozen=True)
class Description:
    """One row per skill."""

    header: list[str]
    rows: list[list[Any]]
    paths: list[npt.NDArray[np.float64]]
    """Each skill's way through the coverage features, (T + 1, 2 or 3) in [0, 1]."""
    files: list[Path]


def choose_skills(
    space: SkillSpace, count: int, choose: Literal["grid", "random"], seed: int
) -> tuple[Array, list[str]]:
    """Skills to look at, and their names."""
    if space.kind == "none":
        raise UserError("this agent has no skills: use `cic evaluate` to see its returns")
    if space.kind == "onehot":
        return np.eye(space.dim, dtype=np.float32), [str(i) for i in range(space.dim)]
    if space.kind == "box" and choose == "grid":
        values = np.linspace(0, 1, count, dtype=np.float32)
        return np.repeat(values[:, None], space.dim, axis=1), [f"{value:.2f}" for value in values]
    return space.sample(count, np.random.default_rng(seed)), [f"random {i}" for i in range(count)]


def describe(
    run: Path | str,
    *,
    count: int = 11,
    choose: Literal["grid", "random"] = "grid",
    seed: int = 0,
    at: int | None = None,
    out: Path | str | None = None,
    video: bool = True,
    trust: bool = False,
) -> Description:
    """One episode per skill under the mean action, all from the same initial state. `trust` as in `cic.evaluate`."""
    if count > MOST_COPIES:
        raise UserError(f"count must be at most {MOST_COPIES:,}, not {count:,}")
    opened = Run(run)
    agent = load(run, at=at)
    skills, names = choose_skills(agent.objective.skills, count, choose, seed)
    env = open_env(opened, num_envs=len(skills), seed=seed, trust=trust)
    try:
        seen = rollout(agent, env, skills, seed=[seed] * len(skills), keep=True)
        coverage = Coverage(env.coverage, agent.spaces.obs)
        tasks = env.tasks or ("reward",)
    finally:
        env.close()
    rows, paths = [], []
    for index, name in enumerate(names):
        path = coverage.features(seen.observations[index])
        cells = Coverage(env.coverage, agent.spaces.obs)
        cells.add(seen.observations[index])
        length = float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())
        rows.append([name, *(float(seen.returns[task][index]) for task in tasks), length, cells.cells])
        paths.append(path)
    header = ["skill", *tasks, "path length", "cells"]
    info = envs.domains().get(env.domain)
    if info is not None and info.cell is not None:
        header.append(f"{info.cell:g}×{info.cell:g}")
        for row, seen_by_skill in zip(rows, seen.observations, strict=True):
            row.append(plane_cells([seen_by_skill], info.plane, info.cell))
        together = plane_cells(seen.observations, info.plane, info.cell)
        rows.append(["together", *([""] * (len(header) - 2)), together])
    if out is None:
        refuse_links(opened.path)
    folder = Path(out) if out is not None else opened.path / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    files = [_write_csv(folder / "skills.csv", header, rows), draw_paths(paths, names, folder / "skills.png", env.name)]
    if video and (film := _film(agent, env.name, skills, seed, folder / "skills.mp4")):
        files.append(film)
    return Description(header, rows, paths, files)


def compare(
    run: Path | str,
    *,
    count: int = 24,
    starts: int = 3,
    seed: int = 0,
    at: int | None = None,
    trust: bool = False,
) -> Diagnosis:
    """How much a skill matters: whole episodes of random skills (of one-hot skills: all) from several starts."""
    opened, agent = Run(run), load(run, at=at)
    check_source(opened, config_of(opened), trust)
    skills, _ = choose_skills(agent.objective.skills, count, "random", seed)
    return diagnose(agent, phase_of(opened).environment(config_of(opened)), skills, starts=starts, seed=seed)


def comparison_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    """Header and rows: what the skill explains of each task's return and of the behaviour, and the best without
    finetuning."""
    header = ["of the variance in", "a skill explains", "90 % interval", "mean skill", f"best of {found.skills}"]
    rows = [
        [
            name,
            f"{share.value:.0%}",
            f"{share.low:.0%} to {share.high:.0%}",
            f"{found.typical[name]:.0f}" if name in found.typical else "",
            f"{found.best[name]:.0f}" if name in found.best else "",
        ]
        for name, share in found.shares.items()
    ]
    return header, rows


def _write_csv(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def draw_paths(paths: list[npt.NDArray[np.float64]], names: list[str], out: Path, title: str) -> Path:
    """Trajectories in the plane of the first two coverage features, a colour per skill."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing needs matplotlib: pip install 'cic[report]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.95, len(paths)))
    for path, colour in zip(paths, colours, strict=True):
        axes.plot(path[:, 0], path[:, 1], color=colour, lw=1, alpha=0.75)
        axes.plot(*path[-1, :2], "o", color=colour, ms=4)
    axes.plot(*paths[0][0, :2], "k+", ms=9, mew=1.5)
    axes.set(title=f"{title}: {len(paths)} skills", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="first coverage feature", ylabel="second coverage feature")
    scale = matplotlib.cm.ScalarMappable(cmap=matplotlib.colors.ListedColormap(colours))
    bar = figure.colorbar(scale, ax=axes, ticks=[0.5 / len(paths), 1 - 0.5 / len(paths)], label="skill")
    bar.ax.set_yticklabels([names[0], names[-1]])
    figure.savefig(out, dpi=160)
    plt.close(figure)
    return out


def _film(agent: Agent, env_name: str, skills: Array, seed: int, out: Path) -> Path | None:
    """A grid of at most nine skills, 200 steps; nothing where rendering is not possible."""
    try:
        import imageio
    except ImportError:
        warnings.warn("no video: it needs imageio (pip install 'cic[video]')", stacklevel=2)
        return None
    shown = skills[np.linspace(0, len(skills) - 1, min(len(skills), 9)).astype(int)]
    env = envs.make(env_name, num_envs=len(shown), seed=seed)
    try:
        frames = _frames(agent, env, shown, seed)
    except UserError as error:
        warnings.warn(f"no video: {error}", stacklevel=2)
        return None
    finally:
        env.close()
    imageio.mimwrite(out, frames, fps=15, macro_block_size=1, quality=7)
    return out


def _frames(agent: Agent, env: Any, skills: Array, seed: int) -> list[npt.NDArray[np.uint8]]:
    columns = int(np.ceil(np.sqrt(len(skills))))
    obs, _ = env.reset(seed=[seed] * len(skills))
    frames = []
    for step in range(200):
        if step % 4 == 0:
            tiles = [env.render(index, width=160, height=160) for index in range(len(skills))]
            tiles += [np.zeros_like(tiles[0])] * (-len(tiles) % columns)
            rows = [np.concatenate(tiles[i : i + columns], axis=1) for i in range(0, len(tiles), columns)]
            frames.append(np.concatenate(rows, axis=0))
        obs, _, terminated, truncated, _ = env.step(agent.act(obs, skills))
        if (done := terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": done})
    return frames
