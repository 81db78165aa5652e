"""Plans and jobs for tests of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cic.sweep.grid import Grid
from cic.sweep.jobs import Job
from cic.sweep.plan import Entry, Needs, Plan

TINY = ("hidden=16", "batch=16", "steps=120", "warmup=40", "checkpoint_every=40", "milestones=[]", "skill_dim=4")
TINY_AFTER = ("finetune.steps=80", "finetune.warmup=40", "finetune.checkpoint_every=40", "finetune.eval_every=80")


def tiny_plan(seeds: int = 1, tasks: str = "gridworld-reach_top_left", more: tuple[str, ...] = ()) -> Plan:
    """Runs of a quarter of a second."""
    settings = (*TINY, *TINY_AFTER, *more)
    return Grid(("cic",), ("gridworld",), tuple(range(seeds)), "smoke", (tasks,), settings=settings).plan()


def make_job(name: str, after: tuple[str, ...] = (), steps: int = 100, **changes: Any) -> Job:
    fields: dict[str, Any] = {"kind": "pretrain", "config": {}, "source": None, "outside": False, "method": "cic"}
    fields |= {"domain": "walker", "needs": Needs()} | changes
    return Job(name=name, folder=name, after=after, steps=steps, **fields)


def dags(most: int = 12) -> st.SearchStrategy[list[tuple[str, tuple[str, ...]]]]:
    """Names, each with some of the names before it."""

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


def outcome_files(folder: Path) -> dict[str, bytes]:
    """What a run must give to the bit, however often it was moved: its metrics, result, trials and last weights."""
    last = sorted(path for path in (folder / "checkpoints").iterdir() if path.name.isdigit())[-1]
    files = [folder / name for name in ("metrics.jsonl", "result.json", "trials.json")]
    files += [last / name for name in ("agent.safetensors", "optimisers.safetensors", "replay.safetensors")]
    return {path.name: path.read_bytes() for path in files if path.exists()}


def outcomes(root: Path) -> dict[str, dict[str, bytes]]:
    """By run."""
    return {path.name: outcome_files(path) for path in sorted(root.iterdir()) if (path / "config.json").exists()}
