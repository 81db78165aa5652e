"""From the table of all that a domain looks at to the arrays that `step` returns.

With a single copy every microsecond between two calls into MuJoCo shows: hopper's physics takes 35 of them. Hence the
rewards of one copy are computed with floats instead of arrays of length one, fixed views of the table are kept, and
the arrays to return are cut from blocks that are made ahead.
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

AHEAD = 64  # steps for which the arrays of one copy are made at once


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
            pages.extend(_blank_pages(domain, 1, AHEAD))
        page, columns = pages.pop()
        page[0][:] = obs
        values = rewards(*measured.tolist())
        pack(columns, 0, 0.0 if chosen is None else values[chosen], *values)  # type: ignore[arg-type]
        return page

    return read


def _read_many(domain: Domain, table: Floats) -> Callable[[], Page]:
    obs, measured = table[:, : domain.info.obs], table[:, domain.info.obs :].T

    def read() -> Page:
        [(page, columns)] = _blank_pages(domain, len(table), 1)
        page[0][:] = obs
        for column, reward in zip(columns[1:], domain.rewards(*measured), strict=True):
            column[:] = reward
        if domain.task:
            columns[0] = page[4][domain.task]
        return page

    return read


def _blank_pages(domain: Domain, num_envs: int, count: int) -> list[tuple[Page, Array]]:
    """Arrays for `count` steps, cut from common blocks, each with (1 + tasks, N) that underlies all its rewards."""
    tasks = domain.info.tasks
    obs = np.empty((count, num_envs, domain.info.obs), np.float32)
    ends = np.zeros((2, count, num_envs), np.bool_)
    columns = np.zeros((count, 1 + len(tasks), num_envs), np.float32)
    rewards = [dict(zip(tasks, rows[1:], strict=True)) for rows in columns]
    return list(zip(zip(obs, columns[:, 0], *ends, rewards, strict=True), columns, strict=True))
