"""Saving and restoring environments that are not ours, as arrays.

Exact for Gymnasium's MuJoCo environments, and for environments that offer `get_state() -> dict[str, array]` and
`set_state(dict)` themselves. Of all others only the random generator and the time limit's counter are known.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import TimeLimit

from cic.envs import random_state

Arrays = dict[str, npt.NDArray[Any]]


def mujoco_physics(env: gymnasium.Env[Any, Any]) -> tuple[Any, Any] | None:
    """The model and data of one of Gymnasium's MuJoCo environments."""
    from gymnasium.envs.mujoco import MujocoEnv

    inner = env.unwrapped
    return (inner.model, inner.data) if isinstance(inner, MujocoEnv) else None


def is_exact(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether `load` continues bit for bit."""
    return mujoco_physics(env) is not None or _offers_state(env.unwrapped)


def save(env: gymnasium.Env[Any, Any]) -> Arrays:
    """What is known of the environment's future."""
    state: Arrays = {"elapsed": np.array([_time_limit(env)._elapsed_steps or 0 if _time_limit(env) else 0], np.int64)}
    generator = env.unwrapped._np_random
    if generator is not None and isinstance(generator.bit_generator, np.random.PCG64):
        state["generator"] = random_state.pack_generator(generator)
    physics = mujoco_physics(env)
    if physics is not None:
        state.update(_save_physics(*physics))
    elif _offers_state(env.unwrapped):
        state.update({f"own/{key}": np.asarray(value) for key, value in env.unwrapped.get_state().items()})  # type: ignore[attr-defined]
    return state


def load(env: gymnasium.Env[Any, Any], state: Arrays) -> None:
    """Put the environment where `save` found the other one."""
    env.reset()  # a fresh one refuses to step, whatever its state
    limit = _time_limit(env)
    if limit is not None:
        limit._elapsed_steps = int(state["elapsed"][0])
    if "generator" in state:
        env.unwrapped._np_random = random_state.unpack_generator(state["generator"])
    physics = mujoco_physics(env)
    if physics is not None:
        _load_physics(*physics, state)
    elif _offers_state(env.unwrapped):
        own = {key.removeprefix("own/"): value for key, value in state.items() if key.startswith("own/")}
        env.unwrapped.set_state(own)  # type: ignore[attr-defined]


def _offers_state(env: Any) -> bool:
    return callable(getattr(env, "get_state", None)) and callable(getattr(env, "set_state", None))


def _time_limit(env: Any) -> Any:
    """The wrapper that counts towards the time limit."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def _derived_fields(data: Any) -> Arrays:
    """The arrays of `MjData` whose sizes are fixed: rewards may compare one with its value before the step."""
    fields = {name: getattr(data, name) for name in dir(data) if not name.startswith(("_", "efc_", "iefc_", "contact"))}
    return {
        name: value for name, value in fields.items() if isinstance(value, np.ndarray) and value.dtype == np.float64
    }


def _save_physics(model: Any, data: Any) -> Arrays:
    import mujoco

    spec = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    state = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, state, spec)
    return {"physics": state, **{f"data/{name}": value.copy() for name, value in _derived_fields(data).items()}}


def _load_physics(model: Any, data: Any, state: Arrays) -> None:
    import mujoco

    mujoco.mj_setState(model, data, state["physics"], int(mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_forward(model, data)
    for name, field in _derived_fields(data).items():
        saved = state.get(f"data/{name}")
        if saved is not None and saved.shape == field.shape:  # arrays in the arena may have other sizes by now
            field[:] = saved
