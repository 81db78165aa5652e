"""Names → environments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cic.envs.catalogue import DOMAINS, split_name
from cic.errors import UserError

if TYPE_CHECKING:
    from cic.envs.base import VectorEnv

_FACTORIES: dict[str, Callable[[], Any]] = {}


def make(name: str, num_envs: int = 1, seed: int = 0, threads: int | None = None) -> VectorEnv:
    """`num_envs` copies of an environment, copy i seeded with `seed + i`, on `threads` threads (default: all cores)."""
    domain, task = split_name(name)
    module = importlib.import_module(DOMAINS[domain].module)
    env: VectorEnv = module.create(name.removeprefix("cic/").removesuffix("-v0"), task, num_envs, seed, threads)
    return env


def register_env(name: str, factory: Callable[[], Any]) -> None:
    """Make `cic.envs.make(name)` build the user's own environment: `factory` takes nothing, gives a `gymnasium.Env`."""
    if not callable(factory):
        raise UserError(f'register_env("{name}", …) needs a function without arguments that makes the environment')
    _FACTORIES[name] = factory
