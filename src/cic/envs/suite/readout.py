"""From the copies' `MjData` to the arrays that `step` returns.

Everything that a domain looks at goes into a table with a row per copy. With a single copy every microsecond between
two calls into MuJoCo shows: hopper's physics takes 40 of them. Hence the rewards of one copy are computed with floats
instead of arrays of length one, fixed views of the table are kept, and the arrays to return are cut from blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.envs.suite.domain import Domain, Floats
from cic.envs.suite.window import Window

Array = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Page = tuple[Array, Array, Bools, Bools, dict[str, Array]]
"""What a step returns: observations, reward (zero), terminated and truncated (False), the rewards of all tasks."""

AHEAD = 64  # steps for which arrays are made at once


class Readout:
    """Reads all copies of one domain. Every page is handed out once, so callers may keep it."""

    def __init__(self, domain: Domain, copies: list[Any]) -> None:
        self.windows = [Window((*domain.observed(data), *domain.measured(data))) for data in copies]
        self.table = np.empty((len(copies), len(self.windows[0].index)))
        self._read = (_read_one if len(copies) == 1 else _read_many)(domain, self.table)

    def refresh(self) -> None:
        """Fill the table for all copies. While stepping, the threads do this, each for its copies."""
        for row, window in zip(self.table, self.windows, strict=True):
            window.read(row)

    def __call__(self) -> Page:
        """Observations and the rewards of all tasks, from the table."""
        return self._read()


def _read_one(domain: Domain, table: Floats) -> Callable[[], Page]:
    """With one copy the rewards are computed from floats, and everything fixed is looked up here, once."""
    obs64, measured = table[:, : domain.info.obs], table[0, domain.info.obs :]
    squash, squashed = domain.squash, obs64[:, domain.squash_from :]
    rewards = domain.rewards
    pack = struct.Struct(f"{len(domain.info.tasks)}f").pack_into
    pages: list[tuple[Page, Array]] = []

    def read() -> Page:
        if not pages:
            pages.extend(_blank_pages(domain, 1, AHEAD))
        page, columns = pages.pop()
        if squash is not None:
            squash(squashed, squashed)
        page[0][:] = obs64
        pack(columns, 0, *rewards(*measured.tolist()))  # type: ignore[arg-type]
        return page

    return read


def _read_many(domain: Domain, table: Floats) -> Callable[[], Page]:
    """With many copies the rewards are computed from arrays."""
    obs64, measured = table[:, : domain.info.obs], table[:, domain.info.obs :].T
    squashed = obs64[:, domain.squash_from :]

    def read() -> Page:
        [(page, columns)] = _blank_pages(domain, len(table), 1)
        if domain.squash is not None:
            domain.squash(squashed, squashed)
        page[0][:] = obs64
        for column, reward in zip(columns, domain.rewards(*measured), strict=True):
            column[:] = reward
        return page

    return read


def _blank_pages(domain: Domain, num_envs: int, count: int) -> list[tuple[Page, Array]]:
    """Arrays for `count` steps, cut from common blocks, each with the array that underlies its rewards."""
    tasks = domain.info.tasks
    obs = np.empty((count, num_envs, domain.info.obs), np.float32)
    reward = np.zeros((count, num_envs), np.float32)
    ends = np.zeros((2, count, num_envs), np.bool_)
    columns = np.empty((count, len(tasks), num_envs), np.float32)
    rewards = [dict(zip(tasks, rows, strict=True)) for rows in columns]
    return list(zip(zip(obs, reward, *ends, rewards, strict=True), columns, strict=True))
