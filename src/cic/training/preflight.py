"""Checks before anything is built: numbers that no machine can handle, memory and device.

They apply to the settings of the user and to the config.json of an untrusted run folder.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch

from cic.core.config import require
from cic.core.errors import UserError
from cic.core.memory import available_memory
from cic.core.types import Spaces
from cic.envs.base import MAX_NUM_ENVS
from cic.learning.encoders import CHANNELS as ENCODER_CHANNELS
from cic.learning.learners import get_learner
from cic.learning.objectives import get_objective
from cic.learning.seeding import seeded

_COUNT = 10**12
_LARGEST = {
    "num_envs": MAX_NUM_ENVS,
    "eval_episodes": MAX_NUM_ENVS,
    "threads": 1_024,
    "workers": 1_024,
    "hidden": 65_536,
    "batch": 1_048_576,
    "nstep": 10_000,
    "ensemble": 1_000,
    "sinkhorn_iterations": 1_000,
}
_LARGEST_OPTION = 65_536
_KNOWN_DEVICES = ("cpu", "cuda", "mps", "xpu")
_SURELY_FITS = 100_000_000
"""A number of weights that every machine can hold."""
_SPARE = 1 << 30
"""Bytes for torch, MuJoCo and other libraries."""


def check_numbers(config: Any) -> None:
    """Refuse whole numbers of a config that are too large. The configs themselves refuse those that are too small."""
    _check_fields(config, _COUNT)
    _check_fields(config.learning, _COUNT)
    _check_fields(config.options if hasattr(config, "options") else None, _LARGEST_OPTION)
    _check_fields(getattr(config, "selection", None), _COUNT)
    require(all(step <= _COUNT for step in getattr(config, "milestones", ())), f"milestones must not exceed {_COUNT:,}")


def _check_fields(part: Any, most: int) -> None:
    if part is None:
        return
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        bound = _LARGEST.get(field.name, _COUNT if field.name.endswith("_every") else most)
        if isinstance(value, int):
            require(value <= bound, f"{field.name} must be at most {bound:,}, not {value:,}")


def check_memory(config: Any, spaces: Spaces, tasks: int = 0, *, trains: bool = True) -> None:
    """Refuse a config that does not fit into the free memory. An agent that only acts needs its weights alone."""
    images = len(spaces.images)
    features = spaces._replace(obs=spaces.numbers + images * config.encoding.image_features, parts=())
    weights, width = _weights(config, features)
    convolved = sum(ENCODER_CHANNELS * part.image[1] * part.image[2] // 4 for part in spaces.images)  # of one layer
    weights += convolved * config.encoding.image_features
    needs = {"the networks": 4 * weights}
    if trains:
        batch, steps = config.learning.batch, min(config.replay, 2 * config.steps)
        needs["the networks"] += 3 * 4 * weights  # gradients and Adam's moments
        needs[f"a batch of {batch:,}"] = 4 * batch * (3 * width + 2 * batch)  # activations; distances between all pairs
        needs[f"a batch of {batch:,}"] += 4 * batch * (16 * convolved + 3 * (spaces.obs - spaces.numbers))
        record = 4 * (spaces.numbers + spaces.action + tasks + 1) + spaces.frame_bytes + 11
        needs[f"a replay of {config.replay:,} steps"] = steps * record
    free, total = available_memory(), sum(needs.values())
    if free is not None and total > max(free - _SPARE, free // 2):
        parts = ", ".join(f"{name} {_size(count)}" for name, count in needs.items())
        raise UserError(
            f"this would need about {_size(total)} of memory ({parts}), but {_size(free)} are free: "
            "lower `hidden`, `batch` or `replay`"
        )


def _weights(config: Any, spaces: Spaces) -> tuple[int, int]:
    """The number of weights, and the sum of the widths of all layers."""
    sizes = [
        spaces.obs,
        spaces.action,
        config.learning.hidden,
        *(v for v in vars(config.options).values() if isinstance(v, int)),
    ]
    layers = 40 + 8 * getattr(config.options, "ensemble", 1)
    if layers * max(sizes) ** 2 < _SURELY_FITS:
        return layers * max(sizes) ** 2, layers * max(sizes)
    return _counted_weights(config, spaces)


def _counted_weights(config: Any, spaces: Spaces) -> tuple[int, int]:
    """Count the weights of networks on the meta device, which takes torch half a second."""
    with torch.device("meta"), seeded(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objective = get_objective(config.objective)(spaces, config.learning.hidden, config.options)
        learner = get_learner(config.learner).build(
            config.learning, objective.policy_input_dim, spaces.action, objective.make_critic
        )
    tensors = [value for part in (objective, learner) for value in part.state_dict().values()]
    return sum(value.numel() for value in tensors), sum(value.shape[0] for value in tensors if value.dim() == 2)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    if device.partition(":")[0] not in _KNOWN_DEVICES:
        raise UserError(f'the device "{device}" cannot be used here: choose cpu or cuda')
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f'the device "{device}" cannot be used here: {str(error).splitlines()[0]}') from None
