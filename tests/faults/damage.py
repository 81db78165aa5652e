"""Files that were harmed after they were written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .cases import Case, Rng
from .folders import newest


def harm(path: Path, rng: Rng) -> None:
    """Cut off, flip a byte, fill with zeros, empty, append to or delete."""
    content = bytearray(path.read_bytes())
    how = rng.choice(["cut", "flip", "zero", "empty", "append", "delete"])
    if how == "delete":
        path.unlink()
        return
    if how == "flip" and content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    cut = content[: int(rng.integers(max(len(content), 1)))]
    harmed = {"cut": cut, "flip": content, "zero": bytes(len(content)), "empty": b"", "append": content + b"\0" * 9}
    path.write_bytes(bytes(harmed[str(how)]))


def damaged_checkpoint(case: Case) -> str:
    """Any harm to any file of the newest checkpoint: the one before it leads to the same end."""
    shutil.copytree(case.scenario.reference, case.path)
    (case.path / "result.json").unlink()
    harm(case.rng.choice(sorted(newest(case.path).iterdir())), case.rng)
    return case.to_the_end()


def damaged_small_file(case: Case) -> str:
    """Any harm to metrics, status, result, trials or inherited weights: a checkpoint knows better."""
    names = ["metrics.jsonl", "timing.jsonl", "status.json", "result.json", "trials.json"]
    if finished := case.rng.random() < 0.5:
        shutil.copytree(case.scenario.reference, case.path)
    else:
        case.stop()
    present = [name for name in names if (case.path / name).exists()]
    chosen = str(case.rng.choice(present))
    before = (case.path / chosen).read_bytes()
    harm(case.path / chosen, case.rng)
    if finished and chosen not in ("result.json", "status.json"):
        (case.path / "result.json").unlink()
    wrong = case.to_the_end()
    if wrong and chosen == "result.json" and _still_an_object(case.path / chosen):
        # A flipped digit inside JSON that is still valid cannot be told from a result.
        (case.path / chosen).write_bytes(before)
        return case.difference()
    return wrong


def _still_an_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False
