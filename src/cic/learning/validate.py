"""Checks of an objective before training. Most of these mistakes would otherwise train without an error.

The check uses a copy of the objective and its own random numbers, so it does not change a run.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cic.core.errors import UserError
from cic.core.types import Batch, Needs, Spaces
from cic.learning.objectives import Objective
from cic.learning.seeding import seeded

T = TypeVar("T")
ROWS = 16


def check_objective(objective: Objective, name: str, device: torch.device) -> None:
    """Raise a `UserError` that names the file if `loss`, `reward`, `prepare` or the skills are not as required.

    The check runs on the device on which the objective is trained.
    """
    _Check(copy.deepcopy(objective), name, device).run()


class _Check:
    def __init__(self, objective: Objective, name: str, device: torch.device) -> None:
        self.objective, self.name, self.device = objective, name, device
        self.file = _source_file(type(objective))

    def run(self) -> None:
        with seeded(0):
            batch = self._call("skills", lambda: _batch(self.objective, ROWS)).to(self.device)
            generator = torch.Generator(self.device).manual_seed(0)
            with torch.no_grad():
                batch = self._call("prepare", lambda: self.objective.prepare(batch, generator))
            self._require(isinstance(batch, Batch), "prepare(batch, generator) must return a Batch")
            self._policy_input(batch)
            if self.objective.parameter_groups(1e-4):
                self._loss(batch)
            self._reward(batch)

    def _policy_input(self, batch: Batch) -> None:
        obs = torch.cat([batch.obs, batch.obs.new_zeros(ROWS, self.objective.unseen)], dim=1)
        seen = self._call("policy_input", lambda: self.objective.policy_input(obs, batch.skill))
        wanted = (ROWS, self.objective.policy_input_dim)
        self._require(
            tuple(seen.shape) == wanted, f"policy_input(obs, skill) has shape {tuple(seen.shape)}, must have {wanted}"
        )

    def _loss(self, batch: Batch) -> None:
        found = self._call("loss", lambda: self.objective.loss(batch))
        pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)
        self._require(pair, "loss(batch) must return a tensor and a dict of metrics")
        loss, metrics = found
        scalar = isinstance(loss, Tensor) and loss.ndim == 0
        self._require(scalar, f"the loss must be a scalar tensor, not {_kind(loss)}")
        self._require(loss.requires_grad, "the loss does not depend on the method's parameters")
        self._require(bool(torch.isfinite(loss)), f"the loss is {loss.item()} on a batch of normal noise")
        for key, value in metrics.items():
            one = isinstance(value, Tensor) and value.numel() == 1
            self._require(one, f"the metric {key!r} must be a scalar tensor, not {_kind(value)}")

    def _reward(self, batch: Batch) -> None:
        reward = self._call("reward", lambda: self.objective.reward(batch))
        plain = type(self.objective).make_critic is Objective.make_critic
        good = isinstance(reward, Tensor) and reward.ndim == 2 and len(reward) == ROWS
        good = good and (reward.shape[1] == 1 or not plain)
        hint = "; keepdim=True keeps the last axis" if isinstance(reward, Tensor) and reward.ndim == 1 else ""
        self._require(good, f"reward(batch) must have shape (B, 1), not {_kind(reward)}{hint}")
        if not bool(torch.isfinite(reward).all()):
            bad = "NaN" if bool(reward.isnan().any()) else "infinite"
            self._require(False, f"the reward is {bad} on a batch of normal noise")

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except NotImplementedError as error:
            if getattr(type(self.objective), method) is getattr(Objective, method):
                what = "has parameters to learn, so it needs" if method == "loss" else "needs"
                raise self._error(f"it {what} a method {method}(batch)") from error
            raise self._failed(method, error) from error
        except Exception as error:  # the code of a plug-in can raise anything
            raise self._failed(method, error) from error

    def _failed(self, method: str, error: Exception) -> UserError:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == self.file]
        where = f" (line {lines[-1]})" if lines else ""
        return self._error(f"its {method} fails{where}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise self._error(message)

    def _error(self, message: str) -> UserError:
        return UserError(f'{self.file.name}, objective "{self.name}": {message}')


def _source_file(cls: type) -> Path:
    """The file that defines a class; the name of the module if there is none, as in a notebook."""
    try:
        return Path(inspect.getsourcefile(cls) or cls.__module__)
    except (OSError, TypeError):
        return Path(cls.__module__)


def _kind(value: Any) -> str:
    return f"{tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _batch(objective: Objective, rows: int) -> Batch:
    """A batch of normal noise with the extras that the objective needs."""
    spaces: Spaces = objective.spaces
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    skill = torch.from_numpy(objective.skills.sample(rows, rng))
    obs, needs = normal(rows, spaces.obs), objective.needs
    plain = Batch(
        obs=obs,
        action=torch.from_numpy(spaces.random_actions(rows, rng))
        if spaces.choices
        else normal(rows, spaces.action).tanh(),
        reward=normal(rows, 1),
        discount=torch.full((rows, 1), 0.97),
        next_obs=obs + normal(rows, spaces.obs),
        skill=skill,
    )
    return plain.with_extras(**_extras(needs, spaces, rows, normal))


def _extras(needs: Needs, spaces: Spaces, rows: int, normal: Callable[..., Tensor]) -> dict[str, Tensor]:
    extras: dict[str, Tensor] = {}
    if needs.skill_start:
        extras |= {"first_obs": normal(rows, spaces.obs), "skill_end": (normal(rows, 1) > 0).float()}
    if needs.path:
        extras["path"] = normal(rows, needs.path, spaces.obs)
    if needs.goals:
        extras |= {"goal": normal(rows, spaces.obs), "random_goal": normal(rows, spaces.obs)}
    return extras
