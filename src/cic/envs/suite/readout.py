"""From the table of all that a domain looks at to the arrays that `step` returns.

With a single copy every microsecond between two calls into MuJoCo shows: hopper's physics takes 35 of them, and after
that the caches have forgotten numpy and Python. Hence the rewards of few copies are computed with floats instead of
short arrays, and the arrays to return are cut from blocks that are made ahead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import chain, starmap

import numpy as np
import numpy.typing as npt

from cic.envs.suite.domain import Array, Domain, Floats

Bools = npt.NDArray[np.bool_]
Page = tuple[Array, Array, Bools, Bools, dict[str, dict[str, Array]]]
"""What a step returns: observations, reward, terminated and truncated (False), the rewards of all tasks."""

FEW = 32  # copies whose rewards are computed with floats
AHEAD = 64  # steps for which arrays are made at once if there are few copies; who keeps one array keeps the block


def reader(domain: Domain, table: Floats) -> Callable[[], Page]:
    """A function that reads the table as it then is. Every page is handed out once, so callers may keep it."""
    return (_read_one if len(table) == 1 else _read_many)(domain, table)


def _read_one(domain: Domain, table: Floats) -> Callable[[], Page]:
    obs, tasks, rewards = domain.info.obs, domain.info.tasks, domain.rewards
    chosen = tasks.index(domain.task) if domain.task else None
    row, write = table[0], struct.Struct(f"{obs + 1 + len(tasks)}f").pack_into
    pages: list[tuple[Page, Array]] = []

    def read() -> Page:
        if not pages:
            pages.extend(_blank_pages(domain, 1))
        page, floats = pages.pop()
        values = row.tolist()
        paid = rewards(*values[obs:])
        values[obs:] = 0.0 if chosen is None else paid[chosen], *paid
        write(floats, 0, *values)  # type: ignore[arg-type]
        return page

    return read


def _read_many(domain: Domain, table: Floats) -> Callable[[], Page]:
    n, tasks, rewards = len(table), domain.info.tasks, domain.rewards
    chosen = tasks.index(domain.task) if domain.task else None
    obs, measured = table[:, : domain.info.obs], table[:, domain.info.obs :]
    write, zeros = struct.Struct(f"{(1 + len(tasks)) * n}f").pack_into, np.zeros(n)
    pages: list[tuple[Page, Array]] = []

    def read() -> Page:
        if not pages:
            pages.extend(_blank_pages(domain, n))
        page, floats = pages.pop()
        page[0][:] = obs
        if n <= FEW:
            paid = (*zip(*starmap(rewards, measured.tolist()), strict=True),)
            reward = zeros if chosen is None else paid[chosen]
            write(floats, 4 * obs.size, *reward, *chain.from_iterable(paid))  # type: ignore[arg-type]
        else:
            paid = rewards(*measured.T)
            floats[obs.size :] = np.concatenate([zeros if chosen is None else paid[chosen], *paid])
        return page

    return read


def _blank_pages(domain: Domain, copies: int) -> Iterator[tuple[Page, Array]]:
    """Pages for a few steps, each with the floats that underlie it: observations, reward, the rewards of every task."""
    count, obs, tasks = AHEAD if copies <= FEW else 1, domain.info.obs, domain.info.tasks
    floats = np.zeros((count, copies * (obs + 1 + len(tasks))), np.float32)
    ends = np.zeros((2, count, copies), np.bool_)
    seen, paid = np.split(floats, [copies * obs], axis=1)
    reward, *columns = paid.reshape(count, -1, copies).swapaxes(0, 1)
    info = [{"rewards": dict(zip(tasks, rewards, strict=True))} for rewards in zip(*columns, strict=True)]
    return zip(zip(seen.reshape(count, copies, obs), reward, *ends, info, strict=True), floats, strict=True)
