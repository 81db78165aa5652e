"""Torch's global generator, which initialisations of layers use, with a seed and for one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator for the code inside, and restore it afterwards.

    Trainings in other threads of this process wait, so that each draws the same weights as if it were alone.
    """
    with _LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
