"""From the table of all that a domain looks at to the arrays that `step` returns.

With a single copy every microsecond between two calls into MuJoCo shows: hopper's physics takes 35 of them. Hence the
rewards of few copies are computed with floats instead of short arrays, fixed views of the table are kept, and the
arrays to return for one copy are cut from blocks that are made ahead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cic.envs.suite.domain import Domain, Floats

Array = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Page = tuple[Array, Array, Bools, Bools, dict[str, Array]]
"""What a step returns: observations, reward, terminated and truncated (False), the rewards of all tasks."""

AHEAD = 64  # steps for which arrays are made at once
FEW = 32  # copies whose rewards are computed with floats


def reader(domain: Domain, table: Floats) -> Callable[[], Page]:
    """A function that reads the table as it then is. Every page is handed out once, so callers may keep it."""
    return (_read_one if len(table) == 1 else _read_many)(domain, table)


def _read_one(domain: Domain, table: Floats) -> Callable[[], Page]:
    obs, measured = table[:, : domain.info.obs], table[0, domain.info.obs :]
    rewards, tasks = domain.rewards, domain.info.tasks
    chosen = tasks.index(domain.task) if domain.task else None
    pack = struct.Struct(f"{1 + len(tasks)}f").pack_into
    pages: list[tuple[Page, Array]] = []

    def read() -> Page:
        if not pages:
            pages.extend(_blank_pages(domain, AHEAD))
        page, columns = pages.pop()
        page[0][:] = obs
        values = rewards(*measured.tolist())
        pack(columns, 0, 0.0 if chosen is None else values[chosen], *values)  # type: ignore[arg-type]
        return page

    return read


def _read_many(domain: Domain, table: Floats) -> Callable[[], Page]:
    obs, measured = table[:, : domain.info.obs], table[:, domain.info.obs :]
    tasks, n = domain.info.tasks, len(table)

    def read() -> Page:
        columns = _rewards_of_few(domain, measured) if n <= FEW else np.array(domain.rewards(*measured.T), np.float32)
        rewards = dict(zip(tasks, columns, strict=True))
        reward = rewards[domain.task].copy() if domain.task else np.zeros(n, np.float32)
        terminated, truncated = np.zeros((2, n), np.bool_)
        return obs.astype(np.float32), reward, terminated, truncated, rewards

    return read


def _rewards_of_few(domain: Domain, measured: Floats) -> Array:
    """(tasks, N), copy by copy: up to some thirty copies that is faster than arrays."""
    return np.array([*zip(*(domain.rewards(*row) for row in measured.tolist()), strict=True)], np.float32)


def _blank_pages(domain: Domain, count: int) -> list[tuple[Page, Array]]:
    """Arrays for `count` steps of one copy, cut from common blocks, each with the one that underlies its rewards."""
    tasks = domain.info.tasks
    obs = np.empty((count, 1, domain.info.obs), np.float32)
    ends = np.zeros((2, count, 1), np.bool_)
    columns = np.zeros((count, 1 + len(tasks), 1), np.float32)
    rewards = [dict(zip(tasks, rows[1:], strict=True)) for rows in columns]
    return list(zip(zip(obs, columns[:, 0], *ends, rewards, strict=True), columns, strict=True))
