"""The floor under an update: the time of its matrix products alone, each at its real shape and layout, as recorded
from the update itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_FIRST_OPERAND = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
_FIRST_OPERAND |= {aten.linear.default: 0}  # which comes as such in inference mode alone
Product = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


class Recorder(TorchDispatchMode):
    """Notes sizes and strides of the operands of every matrix product, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FIRST_OPERAND:
            first = _FIRST_OPERAND[func]
            left, right = args[first], args[first + 1]
            right = right.T if func is aten.linear.default else right
            self.products.append(((tuple(left.shape), left.stride()), (tuple(right.shape), right.stride())))
        return func(*args, **(kwargs or {}))


def record(call: Callable[[], Any]) -> list[Product]:
    """The matrix products of one call. Backward runs on this thread so that it is seen too."""
    with Recorder() as recorder, torch.autograd.set_multithreading_enabled(False):
        call()
    return recorder.products


def flops(products: list[Product]) -> int:
    total = 0
    for (left, _), (right, _) in products:
        batch = left[0] if len(left) == 3 else 1
        total += 2 * batch * left[-2] * left[-1] * right[-1]
    return total


def _operand(shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Random numbers in this layout; an expanded dimension (stride 0) stays one."""
    kept = tuple(1 if step == 0 else size for size, step in zip(shape, stride, strict=True))
    return torch.empty_strided(kept, stride).normal_().expand(shape)


def make_floor(products: list[Product]) -> Callable[[], None]:
    """A function that does these products and nothing else, into memory that is there already."""
    made: list[tuple[Callable[..., Tensor], Tensor, Tensor, Tensor]] = []
    for (left, left_stride), (right, right_stride) in products:
        a, b = _operand(left, left_stride), _operand(right, right_stride)
        multiply = torch.bmm if len(left) == 3 else torch.mm
        made.append((multiply, a, b, multiply(a, b)))

    def run() -> None:
        for multiply, a, b, out in made:
            multiply(a, b, out=out)

    return run


def interleave(calls: dict[str, Callable[[], Any]], seconds: float = 10.0, least: int = 5) -> dict[str, float]:
    """Seconds per call of each, measured in turn so that noise hits all alike; the fastest third's mean."""
    for call in calls.values():
        call(), call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: sum(sorted(ts)[: max(len(ts) // 3, 1)]) / max(len(ts) // 3, 1) for name, ts in times.items()}
