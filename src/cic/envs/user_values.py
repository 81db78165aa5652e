"""Checks of what an environment of the user's returns: each mistake gives one message instead of a later error."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError
from cic.core.spaces import Leaf, flatten, kind
from cic.core.types import Array

LARGEST = 1e9
"""The largest observation and reward: its fourth power, which losses and Adam compute, still is a float32."""
_TOO_LARGE = f"larger than {LARGEST:g}, beyond which float32 cannot learn: rescale it in the environment"

_NOT_OWN = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
"""Folders whose code is not the user's: cic, the standard library and installed packages."""


class StepValues(NamedTuple):
    """What `step` returned, without `info`."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool


def build(name: str, factory: Callable[[], Any], existing: list[Any]) -> gymnasium.Env[Any, Any]:
    """Make one environment. `existing` are those that the factory made before."""
    try:
        env = factory()
    except (Exception, SystemExit) as error:
        raise UserError(f'making "{name}" failed with {description(error)}') from error
    if not isinstance(env, gymnasium.Env) and hasattr(env, "action_spec") and hasattr(env, "observation_spec"):
        from cic.envs.dm_env import DmEnv

        env = DmEnv(env)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f'the factory of "{name}" must return a gymnasium.Env or a dm_env.Environment, not {type(env)}')
    if any(env is one for one in existing):
        raise UserError(f'the factory of "{name}" returned the same object twice: it must make a new environment')
    for attribute in ("observation_space", "action_space"):
        if getattr(env, attribute, None) is None:
            raise UserError(f"{name}: the environment has no {attribute}: set it in its constructor")
    return env


def description(error: BaseException) -> str:
    """The type and the message of an exception on one line, and the file and line that raised it."""
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    place = _own_line(error)
    return f"{message} ({place})" if place else message


def _own_line(error: BaseException) -> str:
    """`file:line` of the last call in the user's code: outside of cic and of installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", *_NOT_OWN))]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def reset_value(result: Any, where: str) -> Any:
    """The observation that `reset` returned."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise UserError(f"{where}: reset() must return (obs, info), not {kind(result)}")
    return result[0]


def step_values(result: Any, where: str) -> StepValues:
    """The checked return value of `step`."""
    if not isinstance(result, tuple) or len(result) != 5:
        wanted = "(obs, reward, terminated, truncated, info)"
        raise UserError(f"{where}: step() must return {wanted}, not {kind(result)}")
    obs, reward, terminated, truncated, _ = result
    number = _scalar(reward, "iuf")
    if number is None:
        raise UserError(f"{where}: the reward must be one number, not {kind(reward)}{_advice(reward)}")
    ends = _scalar(terminated, "bi"), _scalar(truncated, "bi")
    for end, value in zip(ends, (terminated, truncated), strict=True):
        if end is None:
            raise UserError(f"{where}: terminated and truncated must be True or False, not {kind(value)}")
    return StepValues(obs, float(number), bool(ends[0]), bool(ends[1]))


def _scalar(value: Any, kinds: str) -> Any:
    """The value as a NumPy scalar of one of these kinds of types; None if it is something else."""
    try:
        array = np.asarray(value)
    except Exception:  # a tensor that requires gradients, a ragged list
        return None
    return array[()] if array.ndim == 0 and array.dtype.kind in kinds else None


def _advice(reward: Any) -> str:
    return ": use reward.item()" if hasattr(reward, "requires_grad") else ""


def observation_row(leaves: list[Leaf], obs: Any, where: str, index: int, step: int, name: str) -> Array:
    """An observation as a finite float32 vector."""
    row = flatten(leaves, obs, where)
    if not np.isfinite(row).all():
        raise UserError(f"{name}: the observation of environment {index} is not finite at step {step}")
    if np.abs(row).max() > LARGEST:
        entry = int(np.argmax(np.abs(row)))
        raise UserError(f"{where}: entry {entry} of the observation is {row[entry]:g}, {_TOO_LARGE}")
    return row


def check_rewards(reward: Array, name: str, where: Callable[[int], str], first: int) -> None:
    """Refuse rewards (N,) that are not finite or too large."""
    finite = np.isfinite(reward)
    if not finite.all():
        raise UserError(f"{name}: the reward of environment {first + int(np.argmin(finite))} is not finite")
    if np.abs(reward).max() > LARGEST:
        index = int(np.argmax(np.abs(reward)))
        raise UserError(f"{where(index)}: the reward is {reward[index]:g}, {_TOO_LARGE}")


def state_arrays(state: Any) -> dict[str, npt.NDArray[Any]]:
    """What `get_state` returned as arrays."""
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise TypeError(f"it must return a dict of arrays, not {kind(state)}")
    arrays = {key: np.array(value) for key, value in state.items()}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"the entry {key!r} must be an array of numbers, not {kind(state[key])}")
    return arrays
