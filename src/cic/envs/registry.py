"""Make environments by name: the built-in ones, the user's own, and Gymnasium's."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from cic.core.errors import UserError, unknown
from cic.core.imports import HINT
from cic.envs.catalogue import DOMAINS, names

if TYPE_CHECKING:
    from cic.core.named_quantities import Quantities
    from cic.envs.base import VectorEnv
    from cic.envs.given_quantities import GivenQuantities

GYMNASIUM = "gymnasium:"
REWARD = " => "
"""Between the name of an environment and a formula that replaces its reward: `walker => speed * upright`."""
_LONGEST_NAME = 1_000
_LARGEST_EPISODE, _LARGEST_INTEGER, _LARGEST_FLOAT = 100_000, 100, 1e6
"""Limits of the arguments that an untrusted name may pass: steps of an episode, whole numbers such as `frame_skip`."""
_OWN: dict[str, Callable[[], Any]] = {}
_QUANTITIES: dict[str, GivenQuantities] = {}


def make(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    threads: int | None = None,
    timeout: float = 0.0,
    *,
    workers: int = 0,
    pictures: bool = False,
) -> VectorEnv:
    """Make `num_envs` parallel environments. Environment i has the seed `seed + i`.

    Args:
        name: A domain (`"walker"`, reward-free), a task (`"walker-run"`), a name given to `register_env`, or
            `"gymnasium:"` with an id of Gymnasium's and optional arguments: `"gymnasium:Hopper-v5?frame_skip=2"`.
            A formula of the named quantities replaces the reward: `"walker => speed * upright"`.
            A built-in name with `"?pixels=84&frame_stack=3&action_repeat=2"` has images as observations.
        num_envs: Number of parallel environments.
        seed: Seed of the first environment.
        threads: Threads of the simulator; by default all cores.
        timeout: Seconds that a call of an environment that is not built in may take; 0 means no limit.
        workers: Processes that step environments that are not built in; with 0, this process steps them one after the
            other. The results are the same.
        pictures: Make Gymnasium's environments with `render_mode="rgb_array"`, so that `render` is their own.

    Returns:
        The environments, stepped together.

    Example:
        ```python
        env = cic.envs.make("walker-run", num_envs=4)
        obs, info = env.reset(seed=0)
        env.close()
        ```
    """
    domain, task = split_name(name)
    if REWARD in name:
        return _prompted(name, make(domain, num_envs, seed, threads, timeout, pictures=pictures), str(task))
    if name in _OWN:
        return _foreign(name, _OWN[name], num_envs, seed, timeout, workers)
    if name.startswith(GYMNASIUM):
        id, arguments = _split_arguments(name)
        if pictures:
            arguments = {"render_mode": "rgb_array"} | arguments
        return _foreign(name, partial(_gymnasium_make, id, arguments), num_envs, seed, timeout, workers)
    if workers:
        raise UserError(
            f"workers={workers} is for environments of your own and of Gymnasium: {domain} is built in, and MuJoCo "
            "steps it on all cores already; omit `workers`"
        )
    create = _import_domain(DOMAINS[domain].module).create
    env: VectorEnv = create(f"{domain}-{task}" if task else domain, task, num_envs, seed, threads)
    return _with_pixels(env, name) if "?" in name else env


def _import_domain(module: str) -> ModuleType:
    """Import the module of a domain, and with it MuJoCo, which loads the OpenGL platform that `MUJOCO_GL` names."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # each platform fails with a type of its own
        if not (platform := os.environ.get("MUJOCO_GL")):
            raise
        raise UserError(
            f"MuJoCo cannot be imported with MUJOCO_GL={platform} ({type(error).__name__}: {error}): unset MUJOCO_GL, "
            "or install this platform (on Debian or Ubuntu: apt install libegl1 libgl1, or apt install libosmesa6)"
        ) from error


PIXEL_ARGUMENTS = ("pixels", "frame_stack", "action_repeat")


def _with_pixels(env: VectorEnv, name: str) -> VectorEnv:
    """The environment with images as observations, by the arguments of its name."""
    from cic.envs.pixels import PixelEnv

    _, arguments = _split_arguments(name)
    if not set(arguments) <= set(PIXEL_ARGUMENTS) or not all(type(value) is int for value in arguments.values()):
        env.close()
        raise UserError(f'"{name}": the arguments of a built-in environment are whole numbers: {PIXEL_ARGUMENTS}')
    try:
        return PixelEnv(
            env, *(arguments.get(key, usual) for key, usual in zip(PIXEL_ARGUMENTS, (84, 3, 2), strict=True))
        )
    except BaseException:
        env.close()
        raise


def has_discrete_actions(name: str) -> bool:
    """Whether an environment's actions are discrete. An environment that is not built in is made to find out."""
    name = name.partition(REWARD)[0]
    if name not in _OWN and not name.startswith(GYMNASIUM):
        return False
    env = make(name)
    try:
        return bool(env.spaces.choices)
    finally:
        env.close()


def register_env(name: str, factory: Callable[[], Any], quantities: GivenQuantities | None = None) -> None:
    """Register an environment of your own.

    Args:
        name: The name for `cic.pretrain(name)`, `cic.finetune(None, name)` and `cic.envs.make(name)`.
        factory: A function without arguments that returns a new `gymnasium.Env` or `dm_env.Environment`. It is called
            once per parallel environment.
        quantities: What the objective `steer` commands and prompts name: a name for each index of the flattened
            observation, formula (`"obs[0]"`, `"position[1] ** 2"` for an entry of a Dict), `cic.NamedQuantity`, or
            function of the environment's observation. Values of functions become entries of the observation.
            By default all entries.

    Example:
        ```python
        import gymnasium

        cic.register_env("pendulum", lambda: gymnasium.make("Pendulum-v1"), quantities={"raised": 0, "spin": 2})
        cic.pretrain("pendulum", scale="smoke", out="runs/pendulum", quiet=True)
        ```
    """
    if not isinstance(name, str) or not name or name.startswith(GYMNASIUM) or name in names():
        raise UserError(f"{name!r} cannot be the name of your own environment: it is empty or in use; choose another")
    if not callable(factory):
        raise UserError(f'register_env("{name}", …) needs a function without arguments that makes the environment')
    if quantities is not None and not isinstance(quantities, Mapping):
        raise UserError(f"the quantities of {name} must be a dict of names, not {type(quantities).__name__}")
    _OWN[name] = factory
    _QUANTITIES[name] = dict(quantities or {})


def own_names() -> list[str]:
    """The names that were given to `register_env`."""
    return sorted(_OWN)


def named_quantities(name: str) -> Quantities:
    """List the named quantities of an environment. One that is not built in is made for that.

    Args:
        name: As in `make`.

    Returns:
        The quantities, in the order of the skills of the objective `steer`.

    Example:
        ```python
        print([quantity.label for quantity in cic.envs.named_quantities("walker")])
        ```
    """
    domain, _ = split_name(name)
    if domain in DOMAINS:
        return DOMAINS[domain].quantities
    env = make(name)
    try:
        return env.quantities
    finally:
        env.close()


def split_name(name: str) -> tuple[str, str | None]:
    """`"walker-run"` or `"cic/walker-run-v0"` → `("walker", "run")`; `"walker"` → `("walker", None)`.

    The user's own and Gymnasium's environments are each a domain of their own, without named tasks. A formula counts
    as a task: `"walker => speed"` → `("walker", "speed")`.
    """
    if not isinstance(name, str):
        raise UserError(f"the name of an environment must be a string, not {name!r}")
    if REWARD in name:
        base, _, formula = name.partition(REWARD)
        return split_name(base)[0], formula
    if name in _OWN or name.startswith(GYMNASIUM):
        return name, None
    plain = name.partition("?")[0].removeprefix("cic/").removesuffix("-v0")
    domain, dash, task = plain.partition("-")
    if domain not in DOMAINS:
        raise _unknown_environment(name.removeprefix("cic/").removesuffix("-v0"))
    if dash and task not in DOMAINS[domain].tasks:
        raise unknown(f"task of {domain}", task, DOMAINS[domain].tasks)
    return domain, task if dash else None


def would_run(name: str) -> str | None:
    """What making an environment would import or pass on; None if it is harmless.

    For names that the user did not type, such as those in a run's config.json. Gymnasium imports the module before the
    colon of an id, arguments that are strings may name files or modules, and large numbers may take for ever.
    """
    name = name.partition(REWARD)[0]
    domain = name.removeprefix("cic/").partition("-")[0]
    if name in _OWN or domain in DOMAINS or not name.startswith(GYMNASIUM):
        return None
    id, arguments = _split_arguments(name)
    if ":" in id:
        return f'would import the module "{id.partition(":")[0]}"'
    words = [f"{key}={value}" for key, value in arguments.items() if not _is_harmless(key, value)]
    return f'would pass the argument "{words[0]}" to {id}' if words else None


def _is_harmless(key: str, value: Any) -> bool:
    """Whether an argument is a number of ordinary size, or a few of them, with which episodes and steps end."""
    if key == "max_episode_steps":
        return type(value) is int and 1 <= value <= _LARGEST_EPISODE
    parts = value if isinstance(value, list | tuple) else (value,)
    most = {True: _LARGEST_INTEGER, False: _LARGEST_FLOAT}
    return len(parts) <= _LARGEST_INTEGER and all(
        part is None or (isinstance(part, int | float) and abs(part) <= most[isinstance(part, int)]) for part in parts
    )


def _foreign(
    name: str, factory: Callable[[], Any], num_envs: int, seed: int, timeout: float, workers: int
) -> VectorEnv:
    from cic.envs.given_quantities import observing_functions, resolve

    given = _QUANTITIES.get(name, {})
    factory = observing_functions(factory, given)
    env: VectorEnv
    if workers:
        from cic.envs.workers import WorkerEnv

        env = WorkerEnv(name, factory, num_envs, seed, timeout, workers)
    else:
        from cic.envs.gym import GymEnv

        env = GymEnv(name, factory, num_envs, seed, timeout)
    try:
        env.quantities = resolve(name, given, env.entry_names())
    except BaseException:
        env.close()
        raise
    return env


def _prompted(name: str, env: VectorEnv, formula: str) -> VectorEnv:
    from cic.core.formula_reward import FormulaReward
    from cic.envs.prompted import PromptedEnv

    try:
        reward = FormulaReward(formula, env.quantities, env.spaces.obs)
    except BaseException:
        env.close()
        raise
    return cast("VectorEnv", PromptedEnv(env, name, reward))


def _gymnasium_make(id: str, arguments: dict[str, Any]) -> Any:
    import gymnasium

    return gymnasium.make(id, disable_env_checker=True, **arguments)


def _split_arguments(name: str) -> tuple[str, dict[str, Any]]:
    """`"gymnasium:Hopper-v5?frame_skip=2&healthy_z_range=(0.5, 2)"` → the id and the keyword arguments."""
    if len(name) > _LONGEST_NAME:
        raise UserError(f"the name of an environment must have at most {_LONGEST_NAME} letters, not {len(name)}")
    id, question, query = name.removeprefix(GYMNASIUM).partition("?")
    arguments: dict[str, Any] = {}
    for pair in query.split("&") if question else ():
        key, equals, text = pair.partition("=")
        if not key.isidentifier() or not equals or key in arguments:
            raise UserError(f'{name}: arguments are "?key=value&key=value", each key once; "{pair}" is not')
        try:
            arguments[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: nested too deeply
            arguments[key] = text  # words need no quotes: render_mode=rgb_array
    return id, arguments


def _unknown_environment(name: str) -> UserError:
    import gymnasium

    id = name.partition("?")[0]
    if id in gymnasium.registry:
        return UserError(f'unknown environment "{name}"; did you mean "{GYMNASIUM}{name}"?')
    near = difflib.get_close_matches(name, [*names(), *_OWN], n=3, cutoff=0.5)
    if near:
        options = " or ".join(f'"{option}"' for option in near)
        return UserError(f'unknown environment "{name}"; did you mean {options}?')
    domains = ", ".join([*DOMAINS, *_OWN])
    return UserError(
        f'unknown environment "{name}"; the domains are {domains}, and `cic envs` lists their tasks {HINT}'
    )
