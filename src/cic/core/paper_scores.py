"""The tables of the paper (Laskin et al. 2022), as data of the package. Importing this module does not import numpy.

`TITLES` are the names of the built-in methods in tables and figures. A test compares them with `Objective.title`; a
report does not read that attribute, because importing torch takes too long.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

TITLES = {
    "ddpg": "DDPG",
    "cic": "CIC",
    "icm": "ICM",
    "disagreement": "Disagreement",
    "rnd": "RND",
    "apt": "APT",
    "proto": "ProtoRL",
    "smm": "SMM",
    "diayn": "DIAYN",
    "aps": "APS",
    "fixed": "Fixed",
    "dads": "DADS",
    "visr": "VISR",
    "vic": "VIC",
    "valor": "VALOR",
    "ssn4hrl": "SSN4HRL",
    "metra": "METRA",
    "lsd": "LSD",
    "csf": "CSF",
    "becl": "BeCL",
    "fb": "FB",
    "hilp": "HILP",
    "steer": "Steer",
}
"""Name → title, in the order of the paper's table of raw scores, which all tables use. After `fixed` come methods
that the paper does not evaluate and later methods."""


def table(name: str) -> list[dict[str, str]]:
    """One of `cic/data/*.csv`, a dict per row."""
    text = files("cic").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def method_called(title: str) -> str:
    """The name of the method that the paper calls `title`."""
    return next(name for name, known in TITLES.items() if known == title)


@lru_cache(maxsize=1)
def experts() -> Mapping[str, float]:
    """Task ("walker-run") → return of the expert (DDPG, 2M steps of the task reward); its normalised score is 1."""
    return {f"{row['domain']}-{row['task']}": float(row["expert"]) for row in table("scores")}


class PaperScore(NamedTuple):
    mean: float
    stderr: float


@lru_cache(maxsize=1)
def returns() -> Mapping[str, Mapping[str, PaperScore]]:
    """Method → task → return after finetuning, 10 seeds ("Raw Numerical Results")."""
    rows: dict[str, dict[str, PaperScore]] = {}
    for row in table("scores"):
        task = f"{row['domain']}-{row['task']}"
        rows.setdefault(method_called(row["method"]), {})[task] = PaperScore(float(row["mean"]), float(row["stderr"]))
    return rows


@lru_cache(maxsize=1)
def statistics() -> Mapping[str, Mapping[str, float]]:
    """Method → statistic → value over 12 tasks × 10 seeds; without DDPG from scratch."""
    return {method_called(title): values for title, values in _columns("statistics", "statistic").items()}


@lru_cache(maxsize=1)
def reward_variants() -> Mapping[str, Mapping[str, float]]:
    """Variant of CIC's reward → domain (or "mean") → normalised score, 3 seeds × 4 tasks per domain."""
    return _columns("reward_variants", "domain")


def _columns(name: str, index: str) -> dict[str, dict[str, float]]:
    """Column → value of `index` → number."""
    columns: dict[str, dict[str, float]] = {}
    for row in table(name):
        key = row.pop(index)
        for column, value in row.items():
            columns.setdefault(column, {})[key] = float(value)
    return columns
