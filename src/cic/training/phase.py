"""What a phase of training says; the loop does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from cic.core.types import Array, Batch, Bools, Needs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.runs.folder import Inheritance

if TYPE_CHECKING:
    from cic.training.loop import Loop

Arrays = dict[str, npt.NDArray[Any]]


class Phase(ABC):
    """Which skill acts, how a batch is relabelled, what is measured and what the result is.

    `start` is called once, before the first step and before a restore; everything else gets what the loop has by
    `self.loop`.
    """

    Config: ClassVar[type]
    """The dataclass of its settings."""
    intrinsic: ClassVar[bool]
    """Is the agent paid by its objective, or by the task?"""
    loop: Loop

    @staticmethod
    @abstractmethod
    def environment(config: Any) -> str:
        """The name of the environment in which it happens."""

    @staticmethod
    def ending(config: Any) -> int:
        """The step from which on a run does what only its end does. One that is made longer goes back to before it."""
        return int(config.steps)

    def __init__(self, config: Any, inherited: Inheritance | None = None) -> None:
        self.config, self.inherited = config, inherited

    @property
    @abstractmethod
    def title(self) -> str:
        """What the progress bar calls it."""

    def needs(self, agent: Agent) -> Needs:
        """What batches must hold."""
        return Needs()

    def start(self, loop: Loop) -> None:
        self.loop = loop

    @property
    @abstractmethod
    def first_update(self) -> int:
        """The step before which nothing is updated; updates that came due until then are made up for."""

    def moves_actor(self) -> bool:
        """Does the coming update teach the actor, or the critic alone?"""
        return True

    @abstractmethod
    def tasks(self, env: VectorEnv) -> tuple[str, ...]:
        """The tasks whose returns are logged."""

    def return_key(self, task: str) -> str:
        """The metric under which a task's return is logged."""
        return f"zero_shot/{task}"

    @abstractmethod
    def skills(self) -> tuple[Array, Bools]:
        """(N, dim): the skill of every copy for the coming step, and which of them begin with it."""

    @abstractmethod
    def uniform(self) -> bool:
        """Are actions drawn uniformly at this step?"""

    def act(self, obs: Array, skill: Array) -> Array:
        """The actions of the coming step where they are not uniform."""
        return self.loop.agent.act(obs, skill, explore=True)

    def learns(self) -> bool:
        """Are the updates that fall due made, and checkpoints? At the end of a phase they may not be."""
        return True

    @abstractmethod
    def after_step(self, reward: Array, done: Bools) -> None:
        """What a step brought; before the copies that are done begin anew."""

    def cuts(self) -> bool:
        """Do all copies begin anew after this step, though their episodes are not over? Asked after `after_step`."""
        return False

    def start_seed(self) -> int | None:
        """Where what is to be compared begins: the seed of such a new beginning; None goes on drawing."""
        return None

    def after_restart(self) -> None:  # noqa: B027  most have nothing to do
        """Every copy begins a new episode, because the environment could not continue where it was."""

    def sample(self, size: int) -> Batch:
        """Stored steps for an update."""
        return self.loop.replay.sample(size, self.loop.rng, self.loop.needs)

    def relabel(self, batch: Batch) -> Batch:
        """What the agent learns from a batch."""
        return batch

    def measure(self) -> dict[str, float]:
        """Numbers for a log line."""
        return {}

    def at_boundary(self) -> None:  # noqa: B027  most have nothing to do
        """After each step and its bookkeeping: evaluations, milestones."""

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """What result.json holds."""

    @abstractmethod
    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """What decides what comes next, as arrays and as JSON; asking changes nothing."""

    @abstractmethod
    def restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        """Continue from a state."""
