"""Independent NumPy versions of what the library computes in torch, and small things that tests share."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import settings

from cic.core.types import Batch, Spaces
from cic.learning.objectives import Objective, get_objective

Doubles = npt.NDArray[np.float64]
Weights = dict[str, Doubles]

steady = settings(derandomize=True, database=None, deadline=None)
"""Hypothesis with the same examples every time."""


def doubles(tensor: torch.Tensor) -> Doubles:
    return tensor.detach().double().numpy().copy()


def weights_of(module: torch.nn.Module) -> Weights:
    return {name: doubles(value) for name, value in module.state_dict().items()}


# ---- networks --------------------------------------------------------------------------------------------------


def linear(w: Weights, name: str, x: Doubles) -> Doubles:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def relu_mlp(w: Weights, name: str, x: Doubles) -> Doubles:
    """Linear layers at 0, 2, 4, … with ReLU between them."""
    layers = sorted(int(key.split(".")[-2]) for key in w if key.startswith(f"{name}.") and key.endswith(".weight"))
    for layer in layers:
        x = linear(w, f"{name}.{layer}", x)
        if layer != layers[-1]:
            x = np.maximum(x, 0)
    return x


def trunk(w: Weights, name: str, x: Doubles) -> Doubles:
    """Linear → LayerNorm → tanh."""
    x = linear(w, f"{name}.0", x)
    centred = x - x.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return np.tanh(normal * w[f"{name}.1.weight"] + w[f"{name}.1.bias"])


def actor(w: Weights, name: str, x: Doubles) -> Doubles:
    """What the network says, before any squashing."""
    return relu_mlp(w, f"{name}.head", trunk(w, f"{name}.trunk", x))


def critic(w: Weights, name: str, x: Doubles, action: Doubles) -> Doubles:
    """(2, B, out), head by head."""
    hidden = trunk(w, f"{name}.trunk", np.concatenate([x, action], axis=1))
    halves = np.split(np.maximum(linear(w, f"{name}.hidden", hidden), 0), 2, axis=1)
    return np.stack([linear(w, f"{name}.heads.{head}", half) for head, half in enumerate(halves)])


# ---- learning --------------------------------------------------------------------------------------------------


def gradient(
    loss: Callable[[Weights], float], weights: Weights, prefix: tuple[str, ...], step: float = 1e-6
) -> Weights:
    """Central differences with respect to every weight whose name starts with one of `prefix`."""
    result = {}
    for name in [n for n in weights if n.startswith(prefix)]:
        slope = np.zeros_like(weights[name])
        for index in np.ndindex(slope.shape):
            kept = weights[name][index]
            weights[name][index] = kept + step
            above = loss(weights)
            weights[name][index] = kept - step
            below = loss(weights)
            weights[name][index] = kept
            slope[index] = (above - below) / (2 * step)
        result[name] = slope
    return result


class NumpyAdam:
    """Kingma & Ba 2015, Algorithm 1, with torch's default constants."""

    def __init__(self, lr: float) -> None:
        self.lr, self.count = lr, 0
        self.first: Weights = {}
        self.second: Weights = {}

    def step(self, weights: Weights, slopes: Weights) -> None:
        self.count += 1
        for name, slope in slopes.items():
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * slope
            self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * slope**2
            mean = self.first[name] / (1 - 0.9**self.count)
            square = self.second[name] / (1 - 0.999**self.count)
            weights[name] -= self.lr * mean / (np.sqrt(square) + 1e-8)


class Welford:
    """The released running statistic: mean 0, variance 1, count 1e-4 at the start, unbiased batch variances."""

    def __init__(self) -> None:
        self.mean, self.var, self.count = 0.0, 1.0, 1e-4

    def add(self, values: Doubles) -> None:
        n, total = values.size, self.count + values.size
        delta = values.mean() - self.mean
        squares = self.var * self.count + values.var(ddof=1) * n + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.var, self.count = squares / total, total


def distances(points: Doubles, others: Doubles) -> Doubles:
    """(N, M), by two loops."""
    return np.array([[np.sqrt(sum((a - b) ** 2 for a, b in zip(p, o, strict=True))) for o in others] for p in points])


# ---- CIC -------------------------------------------------------------------------------------------------------


def unit(x: Doubles) -> Doubles:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def transition_embedding(w: Weights, batch: Batch, member: str = "discriminator") -> Doubles:
    pair = [relu_mlp(w, "state", doubles(batch.obs)), relu_mlp(w, "state", doubles(batch.next_obs))]
    return relu_mlp(w, f"{member}.prediction", np.concatenate(pair, axis=1))


def cosines(w: Weights, batch: Batch, projection: bool = True, member: str = "discriminator") -> Doubles:
    """[i, j]: of skill i's query and transition j's key."""
    skill = doubles(batch.skill)
    query = unit(relu_mlp(w, f"{member}.skill", skill) if projection else skill)
    key = unit(transition_embedding(w, batch, member))
    return np.array([[float(q @ k) for k in key] for q in query])


def released_loss(similarity: Doubles, temperature: float = 0.5) -> float:
    losses = []
    for i, row in enumerate(similarity):
        rest = sum(math.exp(value / temperature) for value in row) - math.exp(1 / temperature)
        losses.append(-math.log(math.exp(row[i] / temperature) / (max(rest, 1e-6) + 1e-6)))
    return sum(losses) / len(losses)


def infonce_loss(similarity: Doubles, temperature: float = 0.5) -> float:
    losses = []
    for i, row in enumerate(similarity):
        total = sum(math.exp(value / temperature) for value in row)
        losses.append(-math.log(math.exp(row[i] / temperature) / total))
    return sum(losses) / len(losses)


def released_reward(points: Doubles, k: int, statistic: Welford, normaliser: str) -> Doubles:
    nearest = np.sort(distances(points, points), axis=1)[:, :k]  # the point itself is the first
    statistic.add(nearest)
    scale = {"variance": statistic.var, "std": math.sqrt(statistic.var), "mean": statistic.mean, "none": 1.0}
    rewards = []
    for row in nearest:
        terms = [max(value / scale[normaliser] - 0.0005, 0) for value in row]
        rewards.append([math.log(1 + sum(terms) / len(terms))])
    return np.array(rewards)


def paper_reward(points: Doubles, k: int) -> Doubles:
    nearest = np.sort(distances(points, points), axis=1)[:, 1 : k + 1]
    return np.array([[sum(math.log(value) for value in row) / len(row)] for row in nearest])


def log_density_ratio(similarity: Doubles, temperature: float = 0.5) -> Doubles:
    """f(τ_i, z_i) − log 1/N Σ_j exp f(τ_j, z_i)."""
    rewards = []
    for i, row in enumerate(similarity):
        mean = sum(math.exp(value / temperature) for value in row) / len(row)
        rewards.append([row[i] / temperature - math.log(mean)])
    return np.array(rewards)


def ensemble_disagreement(similarities: list[Doubles], temperature: float = 0.5) -> Doubles:
    """Entropy of the mean of q(z|τ_j) minus the mean entropy."""

    def entropy(p: list[float]) -> float:
        return -sum(value * math.log(value) for value in p)

    rewards = []
    for j in range(len(similarities[0])):
        posteriors = []
        for similarity in similarities:
            weights = [math.exp(value / temperature) for value in similarity[:, j]]
            posteriors.append([weight / sum(weights) for weight in weights])
        mean = [sum(column) / len(column) for column in zip(*posteriors, strict=True)]
        rewards.append([entropy(mean) - sum(entropy(p) for p in posteriors) / len(posteriors)])
    return np.array(rewards)


# ---- objects ---------------------------------------------------------------------------------------------------


def build_objective(
    name: str, obs: int = 3, action: int = 2, hidden: int = 8, seed: int = 0, **options: Any
) -> Objective:
    cls = get_objective(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(Spaces(obs, action), hidden, cls.Options(**options))


def random_batch(size: int, obs: int, action: int, skill: int, seed: int = 0, spread: float = 1.0) -> Batch:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> npt.NDArray[np.float32]:
        return (spread * rng.standard_normal(shape)).astype(np.float32)

    here = normal(size, obs)
    arrays = (
        here,
        np.tanh(normal(size, action)),
        normal(size, 1),
        np.where(rng.random((size, 1)) < 0.2, 0, 0.99**3).astype(np.float32),
        here + 0.5 * normal(size, obs),
        rng.random((size, skill), dtype=np.float32),
    )
    return Batch(*(torch.from_numpy(array) for array in arrays), extras=needed_extras(torch.from_numpy(here), seed))


def needed_extras(here: torch.Tensor, seed: int = 0) -> dict[str, torch.Tensor]:
    """Everything that an objective may ask of the replay, made up: paths of 11 observations, every fourth over."""
    noise = torch.Generator().manual_seed(seed)
    size, obs = here.shape
    path = here[:, None] + 0.3 * torch.randn(size, 11, obs, generator=noise, device="cpu").cumsum(dim=1)
    goal, anywhere = (torch.randn(size, obs, generator=noise, device="cpu") for _ in range(2))
    over = (torch.arange(size, device="cpu") % 4 == 0).float()[:, None]
    return {"first_obs": path[:, 0], "skill_end": over, "path": path, "goal": goal, "random_goal": anywhere}


def documented_fields(options: type) -> set[str]:
    """Fields whose next statement is a string, which is where `--help` looks."""
    if not dataclasses.fields(options):
        return set()
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
