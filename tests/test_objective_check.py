"""Contracts of a user's objective are checked before training, in a sentence that names the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import make_loop, pretrain_config

import cic
from cic.core.errors import UserError
from cic.core.types import Batch, Needs, Spaces
from cic.learning.networks import mlp
from cic.learning.objectives import Objective, SkillSpace, base, get_objective, objectives
from cic.learning.validate import check_objective
from cic.training.loop import Diverged

SMALL: dict[str, Any] = {"scale": "smoke", "hidden": 8, "batch": 8, "quiet": True}


class Good(Objective):
    def __init__(self, spaces: Spaces, hidden: int, options: Any) -> None:
        super().__init__(spaces, hidden, options)
        self.model = mlp(spaces.obs, 4, 1)

    def loss(self, batch: Batch) -> Any:
        loss = self.model(batch.obs).square().mean()
        return loss, {"good/loss": loss.detach()}

    def reward(self, batch: Batch) -> Any:
        return self.model(batch.next_obs).detach()


class FlatReward(Good):
    def reward(self, batch: Batch) -> Any:
        return super().reward(batch)[:, 0]


class SquareReward(Good):
    def reward(self, batch: Batch) -> Any:
        return torch.zeros(len(batch.obs), len(batch.obs))


class NaNReward(Good):
    def reward(self, batch: Batch) -> Any:
        return super().reward(batch) * torch.nan


class InfiniteReward(Good):
    def reward(self, batch: Batch) -> Any:
        return 1 / torch.zeros_like(batch.reward)


class NoReward(Good):
    reward = Objective.reward


class NoLoss(Good):
    loss = Objective.loss


class LossAlone(Good):
    def loss(self, batch: Batch) -> Any:
        return super().loss(batch)[0]


class LossOfRows(Good):
    def loss(self, batch: Batch) -> Any:
        return self.model(batch.obs), {}


class LossOfNothing(Good):
    def loss(self, batch: Batch) -> Any:
        return torch.zeros(()), {}


class NaNLoss(Good):
    def loss(self, batch: Batch) -> Any:
        return super().loss(batch)[0] * torch.nan, {}


class NumberMetric(Good):
    def loss(self, batch: Batch) -> Any:
        return super().loss(batch)[0], {"good/loss": 1.0}


class Breaks(Good):
    def loss(self, batch: Batch) -> Any:
        return self.model(torch.cat([batch.obs, batch.action], dim=1)).mean(), {}


class ForgetsPrepare(Good):
    def prepare(self, batch: Batch, generator: torch.Generator) -> Any:
        return None


class WrongInput(Good):
    def policy_input(self, obs: Any, skill: Any) -> Any:
        return obs[:, :1]


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (FlatReward, "reward(batch) must have shape (B, 1), not (16,); keepdim=True keeps the last axis"),
        (SquareReward, "reward(batch) must have shape (B, 1), not (16, 16)"),
        (NaNReward, "the reward is NaN"),
        (InfiniteReward, "the reward is infinite"),
        (NoReward, "it needs a method reward(batch)"),
        (NoLoss, "it has parameters to learn, so it needs a method loss(batch)"),
        (LossAlone, "loss(batch) must return a tensor and a dict of metrics"),
        (LossOfRows, "the loss must be a scalar tensor, not (16, 1)"),
        (LossOfNothing, "the loss does not depend on the method's parameters"),
        (NaNLoss, "the loss is nan"),
        (NumberMetric, "the metric 'good/loss' must be a scalar tensor, not float"),
        (Breaks, "its loss fails (line "),
        (ForgetsPrepare, "prepare(batch, generator) must return a Batch"),
        (WrongInput, "policy_input(obs, skill) has shape (16, 1), must have (16, 2)"),
    ],
)
def test_what_is_wrong_is_reported_before_the_first_step(
    cls: type[Objective], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    cic.register("wrong")(cls)
    with pytest.raises(UserError) as error:
        cic.pretrain("gridworld", "wrong", out=tmp_path / "run", **SMALL)
    assert sentence in str(error.value)
    assert str(error.value).startswith('test_objective_check.py, objective "wrong": ')
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_good_one_passes_and_is_as_it_was() -> None:
    torch.manual_seed(3)
    method = Good(Spaces(2, 2), 4, None)
    before, draws = {name: value.clone() for name, value in method.state_dict().items()}, torch.get_rng_state()
    check_objective(method, "good", torch.device("cpu"))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(weight.grad is None for weight in method.parameters())


def test_objective_without_a_source_file() -> None:
    """As in a notebook or an interactive session."""
    typed = type("Typed", (Good,), {"__module__": "notebook"})
    check_objective(typed(Spaces(2, 2), 4, None), "typed", torch.device("cpu"))
    wrong = type("Wrong", (FlatReward,), {"__module__": "notebook"})
    with pytest.raises(UserError, match='notebook, objective "wrong"'):
        check_objective(wrong(Spaces(2, 2), 4, None), "wrong", torch.device("cpu"))


@pytest.mark.parametrize("name", [name for name, _ in objectives()])
def test_every_method_keeps_its_contract_and_its_state(name: str) -> None:
    """Running statistics and queues are as fresh after the check as before."""
    cls = get_objective(name)
    method = cls(Spaces(3, 2), 8, cls.Options())
    before = {key: value.clone() for key, value in method.state_dict().items()}
    check_objective(method, name, torch.device("cpu"))
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())


def test_an_objective_gets_what_it_declares() -> None:
    seen: dict[str, tuple[int, ...]] = {}

    class Wants(Good):
        needs = Needs(skill_start=True, path=5, goals=0.1)
        skills = SkillSpace("onehot", 3)

        def loss(self, batch: Batch) -> Any:
            seen.update({name: tuple(value.shape) for name, value in batch.extras.items()})
            return super().loss(batch)

    check_objective(Wants(Spaces(2, 2), 4, None), "wants", torch.device("cpu"))
    shapes = {"first_obs": (16, 2), "skill_end": (16, 1), "path": (16, 5, 2), "goal": (16, 2), "random_goal": (16, 2)}
    assert seen == shapes


def test_a_critic_of_its_own_may_be_rewarded_in_features() -> None:
    class Features(Good):
        def reward(self, batch: Batch) -> Any:
            return batch.next_obs

        def make_critic(self) -> Any:
            return super().make_critic()

    check_objective(Features(Spaces(2, 2), 4, None), "features", torch.device("cpu"))


@dataclass(frozen=True)
class Late:
    after: int = 3


def test_a_reward_that_becomes_nan_later_is_blamed_on_the_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))

    @cic.register("late")
    class LateNaN(Good):
        Options = Late
        calls = 0

        def reward(self, batch: Batch) -> Any:
            type(self).calls += 1
            return super().reward(batch) * (torch.nan if self.calls > self.options.after else 1)

    config = pretrain_config(objective="late", steps=200)
    with pytest.raises(Diverged, match=r"the reward is nan by step \d+: check LateNaN.reward\(batch\)") as error:
        make_loop(tmp_path / "run", "pretrain", config).train()
    assert "--lr" not in str(error.value)
