"""Learning from images: an update beside its convolutions and matrix products alone, the parts of a pre-training, and
the memory of a replay."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.floor import Recorder, _operand, interleave, make_floor
from cic import __version__, envs
from cic.core.config import to_dict
from cic.learning.replay import Replay
from cic.runs.folder import Run
from cic.training.loading import make_agent
from cic.training.loop import Loop
from cic.training.pretraining import pretrain
from cic.training.settings import override, pretrain_defaults

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
DOMAIN, STEPS, FRAMES = "point_mass", 2_400, 100_000
NAME = f"{DOMAIN}?pixels=48&frame_stack=3&action_repeat=2"


class ImageRecorder(Recorder):
    """Notes convolutions too, with sizes and strides of their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in CONVOLUTIONS:
            layout = tuple((tuple(arg.shape), arg.stride()) if isinstance(arg, Tensor) else arg for arg in args)
            self.convolutions.append((func, layout))
        return super().__torch_dispatch__(func, types, args, kwargs)


def make_image_floor(call: Callable[[], Any]) -> Callable[[], None]:
    """A function that repeats the convolutions and matrix products of a call and does nothing else."""
    with ImageRecorder() as recorder, torch.autograd.set_multithreading_enabled(False):
        call()
    products = make_floor(recorder.products)
    tensors = (0, 1, 2)  # input, weight and bias; gradient, input and weight
    convolutions = [
        (func, tuple(_operand(*arg) if at in tensors and arg else arg for at, arg in enumerate(args)))
        for func, args in recorder.convolutions
    ]

    @torch.no_grad()
    def run() -> None:
        products()
        for func, args in convolutions:
            func(*args)

    return run


class Timed:
    """Calls of a method, and the seconds that they took."""

    def __init__(self, owner: Any, method: str) -> None:
        self.seconds, self._call = 0.0, getattr(owner, method)
        setattr(owner, method, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._call(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - begin


def pretraining() -> tuple[dict[str, float], dict[str, float]]:
    """Shares of the time of a pre-training at scale laptop, and seconds of an update and of its floor."""
    settings = {"steps": STEPS, "warmup": 400, "checkpoint_every": 10**9, "log_every": 10**6, "library": 0}
    config = override(pretrain_defaults(DOMAIN, pixels=True), settings)
    env = envs.make(NAME, num_envs=config.num_envs, seed=0)
    agent = make_agent(config, env.spaces)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.plan(Path(folder) / "run", "pretrain", to_dict(config))
        loop: Loop[Any] = Loop(run, config, env, agent, pretrain, quiet=True)
        run.create({"version": __version__})
        update, rendering = agent.update, Timed(env, "_image")
        parts = {
            "environment": Timed(env, "step"),
            "updates": Timed(agent, "update"),
            "sampling": Timed(loop.batches, "sample"),
        }
        storing = Timed(loop.replay, "add")
        begin = time.perf_counter()
        loop.train()
        total = time.perf_counter() - begin
        seconds = {name: part.seconds for name, part in parts.items()} | {"storing": storing.seconds}
        seconds |= {"rendering": rendering.seconds, "physics": seconds.pop("environment") - rendering.seconds}
        batch = loop.replay.sample(config.learning.batch, np.random.default_rng(0))
    calls = {"update": lambda: update(batch, intrinsic=True)}
    floor = make_image_floor(calls["update"])
    return {name: value / total for name, value in seconds.items()}, interleave({**calls, "floor": floor})


def replay_memory() -> float:
    """Bytes that a replay of stacked images allocates, divided by the bytes of its images."""
    env = envs.make(NAME)
    replay = Replay(env.spaces, 64, capacity=FRAMES)
    env.close()
    stored = sum(value.nbytes for value in vars(replay).values() if isinstance(value, np.ndarray))
    return stored / (FRAMES * 48 * 48 * 3)


def main() -> None:
    shares, seconds = pretraining()
    print(f"\nPre-training of {DOMAIN} from 48 × 48 pixels at scale laptop, shares of its time")
    for name, share in shares.items():
        print(f"{name:12}{share:8.1%}")
    images = shares["rendering"] + shares["storing"] + shares["sampling"]
    print(f"{'rendering, storing and sampling':32}{images:8.1%}")
    print("\nAn update (batch 64, 48 × 48, three images), milliseconds")
    update, floor = 1e3 * seconds["update"], 1e3 * seconds["floor"]
    print(f"update {update:.1f}, its convolutions and matrix products {floor:.1f}, ratio {update / floor:.2f}")
    print(f"\nMemory of a replay of {FRAMES:,} images: {replay_memory():.3f} of the bytes of the images")


if __name__ == "__main__":
    main()
