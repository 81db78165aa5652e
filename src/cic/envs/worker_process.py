"""The process of `cic.envs.workers`: it executes one request after the other until its standard input is closed."""

from __future__ import annotations

import os
import pickle
import signal
from typing import IO, Any

from cic.core.errors import UserError
from cic.core.imports import import_first

_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals to the whole process group: the main process decides when workers end."""


def serve() -> None:
    """Make the environments of the first message, then answer requests."""
    for name in _IGNORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    requests, results = _private_pipes()
    env: Any = None
    while True:
        try:
            message = pickle.load(requests)
        except EOFError:
            break
        try:
            if env is None:
                env, result = _make(*message)
            else:
                result = _call(env, *message)
            reply: tuple[bool, Any] = (True, result)
        except UserError as error:
            reply = (False, str(error))
        except Exception as error:  # a bug, which the main process reports
            reply = (False, f"a worker process failed with {type(error).__name__}: {error}")
        pickle.dump(reply, results, pickle.HIGHEST_PROTOCOL)
        results.flush()
    if env is not None:
        env.close()


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the main process. What an environment prints goes to the standard error instead."""
    requests, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests, results


def _make(
    imports: list[str], factory: bytes, name: str, count: int, first: int, seed: int, timeout: float
) -> tuple[Any, dict[str, Any]]:
    from cic.envs.gym import GymEnv

    import_first(imports)
    try:
        unpacked = pickle.loads(factory).fn
    except Exception as error:  # a module that cannot be imported here
        raise UserError(f'"{name}" cannot be made in a worker process: {type(error).__name__}: {error}') from error
    env = GymEnv(name, unpacked, count, seed + first, timeout, first)
    about = {"layout": env.layout.to_json(), "sizes": tuple(env.spaces)}
    return env, about | {"episode_length": env.episode_length, "exact_state": env.exact_state}


def _call(env: Any, method: str, *arguments: Any) -> Any:
    if method == "step":
        return env.step(*arguments)[:4]
    if method == "reset":
        seeds, mask = arguments
        return env.reset(seed=seeds, options={"reset_mask": mask})[0]
    return getattr(env, method)(*arguments)
