"""Check that a checkpoint fits the run that resumes from it.

Checksums prove that a checkpoint did not change, not that cic wrote it: the folder may be untrusted. Everything that
later serves as a length, an index or a count is therefore checked before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cic.core.errors import UserError
from cic.learning.replay import Replay
from cic.runs.replay_arrays import require_replay
from cic.runs.untrusted import Misfit, require_arrays

Arrays = Mapping[str, npt.NDArray[Any]]
_HEADER = 1 << 20  # bytes of a safetensors file beside its numbers
_STATE = 512 << 20  # of parts whose sizes only they know


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Turn any failure while a checkpoint is restored into one `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        kind = "" if isinstance(error, Misfit) else f"{type(error).__name__}: "
        raise UserError(
            f"the checkpoint {folder} does not fit its config.json ({kind}{text}): use the version that made it"
        ) from error


def need(condition: bool, message: str) -> None:
    """Raise `Misfit` unless `condition` holds."""
    if not condition:
        raise Misfit(message)


def whole(state: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number of the state, which must be in its range."""
    value = state.get(name)
    need(type(value) is int and low <= value <= high, f"{name} must be a whole number from {low} to {high}")
    return int(value)  # type: ignore[arg-type]


def require_like(given: Arrays, own: Arrays) -> None:
    """Require the same names, types and shapes."""
    need(given.keys() == own.keys(), f"there are {sorted(given)}, expected {sorted(own)}")
    for name, value in own.items():
        same = (given[name].dtype, given[name].shape) == (value.dtype, value.shape)
        need(same, f"{name} is {given[name].dtype} {given[name].shape}, expected {value.dtype} {value.shape}")


def require_finite(numbers: Any, name: str) -> None:
    """Require a list of finite numbers."""
    good = isinstance(numbers, list) and all(type(value) in (int, float) for value in numbers)
    need(good and bool(np.isfinite(np.array(numbers, np.float64)).all()), f"{name} must be a list of finite numbers")


def segment_outcome(value: Any) -> dict[str, Any] | None:
    """Check what the current segment has collected so far; None between two segments."""
    if value is None:
        return None
    need(isinstance(value, dict) and value.keys() == {"steps", "reward"}, "outcome must have steps and reward")
    whole(value, "steps", 0, 10**12)
    need(type(value["reward"]) is float, "the outcome's reward must be a number")
    return dict(value)


def texts(value: Any, name: str) -> dict[str, str]:
    """Check a mapping from strings to strings."""
    good = isinstance(value, dict) and all(type(text) is str for pair in value.items() for text in pair)
    need(good, f"{name} must be an object whose values are strings")
    return dict(value)


def require_own_replay(given: Arrays, replay: Replay) -> None:
    """Require the layout of the run's own replay."""
    dim, tasks, physics = replay.skills.shape[1], replay.task_rewards.shape[1], replay.physics.shape[1]
    sizes = {"obs": replay.obs.shape[1], "action": replay.action.shape[1], "tasks": tasks, "physics": physics}
    if replay.spaces.images:
        own = {"frames": "uint8 envs filled pixels", "history": "uint8 envs filled"}
        known = {"envs": replay.num_envs, "filled": given["reward"].shape[1], "pixels": replay.frames.shape[1]}
        require_arrays({name: given[name] for name in own}, own, **known)
        most = max(part.frames for part in replay.spaces.images)
        need(bool((given["history"] < most).all()), "the replay's history is longer than a stack of images")
        given = {name: array for name, array in given.items() if name not in own}
    require_replay(given, replay.slots, envs=replay.num_envs, dim=dim, **sizes)


def size_limits(agent: Any, replay: Replay, loop: Arrays) -> dict[str, int]:
    """The bytes that each file of a checkpoint may have."""
    weights = _bytes(agent.state_dict())
    records = sum(getattr(replay, name).nbytes for name in replay._record_names)
    skills = 8 * (len(replay.obs) + 64) * max(replay.skills.shape[1], 1)
    return {
        "agent": weights + _HEADER,
        "optimisers": 3 * weights + _HEADER,
        "replay": records + skills + 64 * replay.num_envs * (replay.skills.shape[1] + 1) + _HEADER,
        "env": _STATE,
        "loop": sum(value.nbytes for value in loop.values()) + _HEADER,
        "batches": _STATE,
        "coverage": _STATE,
    }


def weights_limit(agent: torch.nn.Module) -> int:
    """The bytes that a file with the weights of this agent may have."""
    return _bytes(agent.state_dict()) + _HEADER


def _bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in tensors.values())
