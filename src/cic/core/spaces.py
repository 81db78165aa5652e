"""Observation and action spaces: as JSON, flat observations, and actions in the environment's own units.

The parts of an observation have one fixed order. A Box is read in C order, a Dict in the order of its keys (Gymnasium
sorts the keys of a plain `dict`), a Tuple from first to last; nested spaces are read depth first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from cic.core.action_spaces import MAX_CHOICES, ActionSpace, choices, size, supported
from cic.core.errors import UserError
from cic.core.types import Array

Key = str | int
MAX_DEPTH = 8
MAX_SIZE = 1_000_000
_DTYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
}
_SIZES = {"Discrete": "n", "MultiDiscrete": "nvec", "MultiBinary": "n"}


class Leaf(NamedTuple):
    """A space without parts, and the keys that lead to it from the whole space."""

    path: tuple[Key, ...]
    space: Box | Discrete | MultiDiscrete | MultiBinary

    @property
    def name(self) -> str:
        """`"sensors.speed"` in a Dict, `""` if the whole space is this leaf."""
        return ".".join(map(str, self.path))

    @property
    def size(self) -> int:
        """Entries of the flat observation: those of a Box, and a one-hot vector per choice of a discrete space."""
        return size(self.space)

    def numbers(self, part: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        """One row (size,) or several (…, size) of an observation with the shape of the space."""
        rows = part.shape[: part.ndim - len(self.space.shape or ())]
        if isinstance(self.space, Box):
            return part.reshape(*rows, self.size)
        start = 0 if isinstance(self.space, MultiBinary) else np.ravel(self.space.start)
        chosen = part.reshape(*rows, -1).astype(np.int64) - start
        counts = choices(self.space)
        if (chosen < 0).any() or (chosen >= counts).any():
            named = f" of {self.name!r}" if self.path else ""
            raise UserError(f"{where}: the observation{named} is {part}, which is not in its space {self.space}")
        groups = [np.eye(count, dtype=np.float32)[chosen[..., index]] for index, count in enumerate(counts)]
        return np.concatenate(groups, axis=-1)


class Layout(NamedTuple):
    """The spaces of one environment, as the environment itself defines them."""

    observation: Space[Any]
    action: ActionSpace

    def to_json(self) -> dict[str, Any]:
        """The content of `layout` in config.json."""
        return {"observation": space_to_json(self.observation), "action": space_to_json(self.action)}

    @classmethod
    def from_json(cls, data: Any, where: str) -> Layout:
        """Read the return value of `to_json` from an untrusted file."""
        if not isinstance(data, dict) or data.keys() != {"observation", "action"}:
            raise UserError(f"{where}: layout must have the keys observation and action")
        observation = space_from_json(data["observation"], f"{where}: layout.observation")
        action = space_from_json(data["action"], f"{where}: layout.action")
        return cls(observation, supported(action, where))


# ---- the order of an observation ---------------------------------------------------------------------------------


def leaves(space: Any, where: str = "the observation space") -> list[Leaf]:
    """The leaves of a space in their order."""
    return _leaves(space, (), where)


def _leaves(space: Any, path: tuple[Key, ...], where: str) -> list[Leaf]:
    if isinstance(space, Box):
        if space.dtype.name not in _DTYPES:
            raise UserError(f"{where}: a Box must contain numbers of a common type, not {space.dtype.name}")
        return [Leaf(path, space)]
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        if size(space) > MAX_CHOICES:
            raise UserError(
                f"{where}: a discrete observation has {size(space):,} choices; the most are {MAX_CHOICES:,}"
            )
        return [Leaf(path, space)]
    if not isinstance(space, Dict | Tuple):
        raise UserError(
            f"{where}: observations must be Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these, "
            f"not {type(space).__name__}: convert them with gymnasium.wrappers.TransformObservation"
        )
    if len(path) >= MAX_DEPTH:
        raise UserError(f"{where}: the space is nested more than {MAX_DEPTH} levels deep: flatten it")
    return [leaf for key, part in _parts(space) for leaf in _leaves(part, (*path, key), where)]


def _parts(space: Dict | Tuple[Any]) -> list[tuple[Any, Any]]:
    return list(space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces))


def entry_names(space: Any) -> list[str]:
    """The names of the entries of a flat observation: `position[0]` in a Dict, `entry 0` in a Box."""
    return [
        f"{leaf.name}[{index}]" if leaf.path else f"entry {index}"
        for leaf in leaves(space)
        for index in range(leaf.size)
    ]


def flat_bounds(space: Any) -> tuple[Array, Array]:
    """The smallest and largest values of a flat observation."""
    found = leaves(space)
    boxes = [leaf.space if isinstance(leaf.space, Box) else Box(0, 1, (leaf.size,)) for leaf in found]
    low = np.concatenate([box.low.ravel() for box in boxes])
    high = np.concatenate([box.high.ravel() for box in boxes])
    return low.astype(np.float32), high.astype(np.float32)


def usable(space: Any, where: str) -> tuple[Any, list[str]]:
    """Return a Dict without the keys whose spaces are not supported, such as Text, and these keys."""
    if not isinstance(space, Dict):
        return space, []
    kept: OrderedDict[str, Any] = OrderedDict()
    dropped = []
    for key, part in space.spaces.items():
        if isinstance(part, Box | Discrete | MultiDiscrete | MultiBinary | Dict | Tuple):
            kept[key] = part
        else:
            dropped.append(f"{key} ({type(part).__name__})")
    if dropped and not kept:
        raise UserError(
            f"{where}: no key of the Dict observation can be used: {', '.join(dropped)}; "
            "add a key with a Box or a Discrete space"
        )
    return (Dict(kept) if dropped else space), dropped


# ---- observations ------------------------------------------------------------------------------------------------


def flatten(space_leaves: list[Leaf], obs: Any, where: str) -> Array:
    """One observation of the space with these `leaves` as a new float32 vector."""
    parts = leaf_arrays(space_leaves, obs, where)
    for leaf, part in zip(space_leaves, parts, strict=True):
        if part.shape != leaf.space.shape:
            raise _wrong_shape(leaf, part, where)
    rows = [leaf.numbers(part, where) for leaf, part in zip(space_leaves, parts, strict=True)]
    return np.concatenate(rows, dtype=np.float32, casting="unsafe")


def flatten_any(space_leaves: list[Leaf], obs: Any, where: str) -> tuple[Array, bool]:
    """One observation as (1, obs) and False, or a batch, whose leaves have one more axis, as (N, obs) and True."""
    parts = leaf_arrays(space_leaves, obs, where)
    batched = parts[0].ndim > len(space_leaves[0].space.shape or ())
    rows = parts[0].shape[:1] if batched else ()
    for leaf, part in zip(space_leaves, parts, strict=True):
        if part.shape != (*rows, *(leaf.space.shape or ())):
            raise _wrong_shape(leaf, part, where)
    count = rows[0] if batched else 1
    rows_of = [
        leaf.numbers(part, where).reshape(count, leaf.size) for leaf, part in zip(space_leaves, parts, strict=True)
    ]
    return np.concatenate(rows_of, axis=1, dtype=np.float32, casting="unsafe"), batched


def leaf_arrays(space_leaves: list[Leaf], obs: Any, where: str) -> list[npt.NDArray[Any]]:
    """The leaves of an observation as arrays of numbers, of any shape."""
    found = []
    for leaf in space_leaves:
        part = obs
        for key in leaf.path:
            try:
                part = part[key]
            except (KeyError, IndexError, TypeError):
                raise UserError(f"{where}: the observation lacks the entry {key!r} of its space") from None
        found.append(as_numbers(part, f"{where}: the observation"))
    return found


def as_numbers(value: Any, what: str) -> npt.NDArray[Any]:
    """An array of real numbers, or a `UserError`."""
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists, tensors that require gradients, objects of other libraries
        reason = " ".join(str(error).split())
        raise UserError(f"{what} must be an array of numbers, not {kind(value)} ({reason})") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} must be an array of numbers, not {kind(value)} of type {array.dtype}")
    return array


def _wrong_shape(leaf: Leaf, part: npt.NDArray[Any], where: str) -> UserError:
    named = f" of {leaf.name!r}" if leaf.path else ""
    wanted = leaf.space.shape
    return UserError(
        f"{where}: an observation{named} of shape {part.shape} instead of {wanted}, the shape of its space"
    )


def kind(value: Any) -> str:
    """A short description of a value for messages."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


# ---- JSON --------------------------------------------------------------------------------------------------------


def space_to_json(space: Any) -> dict[str, Any]:
    """A space as JSON. Bounds are one number if all are equal, and null if there is none."""
    if isinstance(space, Box):
        low, high = (_bounds_to_json(bounds) for bounds in (space.low, space.high))
        return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.name, "low": low, "high": high}
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    keys = [key for key, _ in _parts(space)]
    if not all(isinstance(key, Key) for key in keys):
        raise UserError(f"the keys of a Dict observation must be strings, not {keys!r}")
    parts = [space_to_json(part) for _, part in _parts(space)]
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": parts}
    return {"type": "Dict", "keys": keys, "spaces": parts}


def _bounds_to_json(bounds: npt.NDArray[Any]) -> Any:
    values = [value if np.isfinite(value) else None for value in bounds.ravel().tolist()]
    return values[0] if values and all(value == values[0] for value in values) else values


def space_from_json(data: Any, where: str) -> Any:
    """The space that `space_to_json` wrote, from an untrusted file."""
    kinds = {"Box": _box_from_json, "Dict": _dict_from_json, "Tuple": _tuple_from_json}
    kinds |= dict.fromkeys(_SIZES, _discrete_from_json)
    read = kinds.get(str(data.get("type"))) if isinstance(data, dict) else None
    if read is None:
        raise UserError(f"{where} is not the description of a space: it was not written by this version of cic")
    return read(data, where)


def _box_from_json(data: dict[str, Any], where: str) -> Box:
    shape, dtype = data.get("shape"), data.get("dtype")
    sizes = isinstance(shape, list) and len(shape) <= MAX_DEPTH and all(type(n) is int and n >= 0 for n in shape)
    if not sizes or str(dtype) not in _DTYPES or int(np.prod(shape, dtype=np.float64)) > MAX_SIZE:  # type: ignore[arg-type]
        raise UserError(f"{where}: {shape!r} of {dtype!r} is not the shape and the type of a Box")
    try:
        low, high = (_bounds_from_json(data.get(name), name, tuple(shape), np.dtype(dtype)) for name in ("low", "high"))  # type: ignore[arg-type]
        return Box(low, high, tuple(shape), np.dtype(dtype).type)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError, AssertionError) as error:
        raise UserError(f"{where}: the bounds of the Box are invalid ({error})") from None


def _bounds_from_json(value: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    missing = -np.inf if name == "low" else np.inf
    values = value if isinstance(value, list) else [value]
    if not all(one is None or (isinstance(one, int | float) and abs(one) <= 2.0**1023) for one in values):
        raise ValueError(f"{name} must be numbers or null")
    if dtype.kind in "bui" and None in values:
        raise ValueError(f"{name} of {dtype} must be finite")
    numbers = np.array([missing if one is None else one for one in values], dtype)
    return np.broadcast_to(numbers[0], shape) if not isinstance(value, list) else numbers.reshape(shape)


def _discrete_from_json(data: dict[str, Any], where: str) -> Any:
    kind = data["type"]
    try:
        first, start = (np.array(data.get(name, 0), np.int64) for name in (_SIZES[kind], "start"))
        if first.size > MAX_SIZE or max(np.abs(first).max(), np.abs(start).max()) > 2**31:
            raise ValueError("too large")
        if kind == "Discrete":
            return Discrete(first.item(), start=start.item())
        return MultiDiscrete(first, start=start) if kind == "MultiDiscrete" else MultiBinary(first.tolist())
    except (ValueError, TypeError, OverflowError, AssertionError) as error:
        raise UserError(f"{where}: the sizes of the {kind} space are invalid ({error})") from None


def _dict_from_json(data: dict[str, Any], where: str) -> Dict:
    keys, parts = data.get("keys"), _parts_from_json(data, where)
    if (
        not isinstance(keys, list)
        or len({str(k) for k in keys}) != len(parts)
        or not all(type(k) in (str, int) for k in keys)
    ):
        raise UserError(f"{where}: keys must be as many different names as there are spaces")
    return Dict(OrderedDict(zip(keys, parts, strict=True)))


def _tuple_from_json(data: dict[str, Any], where: str) -> Tuple[Any]:
    return Tuple(_parts_from_json(data, where))


def _parts_from_json(data: dict[str, Any], where: str) -> list[Any]:
    parts = data.get("spaces")
    if not isinstance(parts, list) or not parts:
        raise UserError(f"{where}: spaces must be a list of spaces")
    return [space_from_json(part, f"{where}.spaces[{index}]") for index, part in enumerate(parts)]
