"""Save and restore the state of Gymnasium environments as arrays.

The state is exact if every layer is known: one of Gymnasium's MuJoCo environments, wrappers without a state, time
limits, and layers with the methods `get_state() -> dict[str, array]` and `set_state(dict)`. For all others only the
random generator and the time limits are saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import wrappers

from cic.envs import random_state
from cic.envs.user_values import state_arrays

Arrays = dict[str, npt.NDArray[Any]]

STATELESS_WRAPPERS = (
    *(wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.ClipAction, wrappers.RescaleAction),
    *(wrappers.ClipReward, wrappers.DtypeObservation, wrappers.FilterObservation, wrappers.FlattenObservation),
    *(wrappers.RescaleObservation, wrappers.ReshapeObservation, wrappers.RepeatAction),
    wrappers.RecordEpisodeStatistics,  # it only writes to `info`, which is not used
)
"""Wrappers without a state. `TransformObservation` and similar ones are missing: they call the user's function."""


def mujoco_physics(env: gymnasium.Env[Any, Any]) -> tuple[Any, Any] | None:
    """The model and data of one of Gymnasium's MuJoCo environments."""
    from gymnasium.envs.mujoco import MujocoEnv

    inner = env.unwrapped
    return (inner.model, inner.data) if isinstance(inner, MujocoEnv) else None


def is_exact(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether `load` continues bit-exactly."""
    return all(_is_known(layer) for layer in _layers(env))


def save(env: gymnasium.Env[Any, Any]) -> Arrays:
    """The known state of the environment."""
    state: Arrays = {"elapsed": np.array([limit._elapsed_steps or 0 for limit in _time_limits(env)], np.int64)}
    generator = env.unwrapped._np_random
    if generator is not None and isinstance(generator.bit_generator, np.random.PCG64):
        state["generator"] = random_state.pack_generator(generator)
    physics = mujoco_physics(env)
    if physics is not None:
        state.update(_save_physics(*physics))
    for depth, layer in enumerate(_layers(env)):
        if _offers_state(layer):
            state.update({f"own{depth}/{key}": value for key, value in state_arrays(layer.get_state()).items()})
    return state


def load(env: gymnasium.Env[Any, Any], state: Arrays) -> None:
    """Restore the state that `save` returned."""
    env.reset()  # a new environment refuses to step before its first reset
    for limit, elapsed in zip(_time_limits(env), state["elapsed"], strict=True):
        limit._elapsed_steps = int(elapsed)
    if "generator" in state:
        env.unwrapped._np_random = random_state.unpack_generator(state["generator"])
    physics = mujoco_physics(env)
    if physics is not None:
        _load_physics(*physics, state)
    for depth, layer in enumerate(_layers(env)):
        if _offers_state(layer):
            prefix = f"own{depth}/"
            layer.set_state({key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)})


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers from the outermost inwards, then the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _is_known(layer: Any) -> bool:
    if _offers_state(layer):
        return True
    if isinstance(layer, gymnasium.Wrapper):
        return type(layer) in (*STATELESS_WRAPPERS, wrappers.TimeLimit)  # a subclass may have more state
    # A subclass of the user's may have more state than the physics.
    return mujoco_physics(layer) is not None and type(layer).__module__.startswith("gymnasium.envs.mujoco.")


def _offers_state(layer: Any) -> bool:
    return callable(getattr(layer, "get_state", None)) and callable(getattr(layer, "set_state", None))


def _time_limits(env: Any) -> list[Any]:
    return [layer for layer in _layers(env) if isinstance(layer, wrappers.TimeLimit)]


def _derived_fields(data: Any) -> Arrays:
    """The arrays of `MjData` with fixed sizes: a reward may compare one with its value before the step."""
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
