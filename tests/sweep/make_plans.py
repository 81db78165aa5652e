"""Plans and specs for tests of sweeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cic.sweep.grid import RunGrid
from cic.sweep.plan import Entry, Plan, Resources
from cic.sweep.specs import RunSpec

TINY = ("hidden=16", "batch=24", "steps=120", "warmup=40", "checkpoint_every=40", "milestones=[]", "skill_dim=4")
TINY_AFTER = ("finetune.steps=80", "finetune.warmup=40", "finetune.checkpoint_every=40", "finetune.eval_every=80")


LAPTOP = ("library=2", "library_starts=2", "library_steps=5", "finetune.prior_data=0.5")
"""What laptop scale has and smoke scale lacks: a library of skills, and relabelled pre-training data."""


def tiny_plan(
    seeds: int = 1,
    tasks: str = "gridworld-reach_top_left",
    more: tuple[str, ...] = (),
    objectives: tuple[str, ...] = ("cic",),
) -> Plan:
    """Runs of a quarter of a second."""
    settings = tuple(text for text in TINY if objectives == ("cic",) or not text.startswith("skill_dim"))
    grid = RunGrid(objectives, ("gridworld",), tuple(range(seeds)), "smoke", (tasks,))
    return dataclasses.replace(grid, settings=(*settings, *TINY_AFTER, *more)).plan()


def make_spec(name: str, after: tuple[str, ...] = (), steps: int = 100, **changes: Any) -> RunSpec:
    fields: dict[str, Any] = {"kind": "pretrain", "config": {}, "source": None, "outside": False, "method": "cic"}
    fields |= {"domain": "walker", "needs": Resources()} | changes
    return RunSpec(name=name, folder=name, after=after, steps=steps, **fields)


def dags(most: int = 12) -> st.SearchStrategy[list[tuple[str, tuple[str, ...]]]]:
    """Names, each with some of the names before it as dependencies."""

    @st.composite
    def draw(pick: Any) -> list[tuple[str, tuple[str, ...]]]:
        count = pick(st.integers(1, most))
        made = []
        for index in range(count):
            before = pick(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
            made.append((f"r{index}", tuple(f"r{other}" for other in sorted(before))))
        return made

    return draw()


def entries(dag: list[tuple[str, tuple[str, ...]]]) -> list[Entry]:
    return [Entry(name, "pretrain", {"domain": "walker", "seed": int(name[1:])}, after) for name, after in dag]


def result_files(folder: Path) -> dict[str, bytes]:
    """Files that are bit-exact however often the run was interrupted: metrics, result, trials, last checkpoint."""
    last = sorted(path for path in (folder / "checkpoints").iterdir() if path.name.isdigit())[-1]
    files = [folder / name for name in ("metrics.jsonl", "result.json", "trials.json")]
    files += [last / name for name in ("agent.safetensors", "optimisers.safetensors", "replay.safetensors")]
    return {path.name: path.read_bytes() for path in files if path.exists()}


def all_result_files(root: Path) -> dict[str, dict[str, bytes]]:
    """The same for each run of a sweep."""
    return {path.name: result_files(path) for path in sorted(root.iterdir()) if (path / "config.json").exists()}
