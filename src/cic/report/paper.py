"""The paper's own numbers (Laskin et al. 2022): raw scores, statistics and reward variants, as data.

They can stand as rows beside one's own runs, always marked as the paper's. The paper gives means and standard
errors, not runs: its rows carry no interval of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from cic.core.errors import unknown
from cic.core.paper_scores import TITLES, method_called, table


class Score(NamedTuple):
    mean: float
    stderr: float


@functools.cache
def scores() -> Mapping[str, Mapping[str, Score]]:
    """Method → task → return after finetuning, 10 seeds ("Raw Numerical Results")."""
    rows: dict[str, dict[str, Score]] = {}
    for row in table("scores"):
        task = f"{row['domain']}-{row['task']}"
        rows.setdefault(method_called(row["method"]), {})[task] = Score(float(row["mean"]), float(row["stderr"]))
    return rows


@functools.cache
def statistics() -> Mapping[str, Mapping[str, float]]:
    """Method → statistic → value over 12 tasks × 10 seeds; DDPG from scratch is not among them."""
    columns: dict[str, dict[str, float]] = {}
    for row in table("statistics"):
        for title, value in row.items():
            if title != "statistic":
                columns.setdefault(method_called(title), {})[row["statistic"]] = float(value)
    return columns


@functools.cache
def reward_variants() -> Mapping[str, Mapping[str, float]]:
    """Variant of CIC's reward → domain (or "mean") → normalised score, 3 seeds × 4 tasks per domain."""
    columns: dict[str, dict[str, float]] = {}
    for row in table("reward_variants"):
        for variant, value in row.items():
            if variant != "domain":
                columns.setdefault(variant, {})[row["domain"]] = float(value)
    return columns


def label(method: str) -> str:
    """How the paper's row of a method is marked."""
    return f"{TITLES[method]} (paper)"


def select(names: tuple[str, ...]) -> tuple[list[str], bool]:
    """What `--paper` asks for: the methods to show, and whether to show the reward variants."""
    choices = [*scores(), "all", "variants"]
    for name in names:
        if name not in choices:
            raise unknown("row of the paper", name, choices)
    methods = [name for name in scores() if name in names or "all" in names]
    return methods, "variants" in names
