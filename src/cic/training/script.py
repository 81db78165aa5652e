"""A run is a script: a generator that yields instructions in order and receives their outcomes.

    def finetune(loop):
        found = yield Stage("search", search_skill(loop))          # each trial is a segment
        yield Segment("critic", until_update=1_000, train="critic")
        yield Segment("train", until=30_000, skill=found["skill"])
        return {"skill": found["skill"]}

The loop executes one instruction at a time. Resuming is exact because a script's only inputs are the outcomes: a
checkpoint stores those of the finished instructions, and resuming runs the script again and sends it the stored
outcomes up to the instruction that was being executed. Three rules follow for scripts:

- The code before the first `yield` runs before a checkpoint is restored. It may set up parts (inherit weights).
- The code between two yields runs again when the run is resumed. It must depend only on settings and outcomes.
- Whatever has an effect or reads what training changes (weights, the replay) is a `Call`, and is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import nn

from cic.core.types import Array
from cic.training.checkpoint_checks import need


@dataclass(frozen=True, eq=False)
class Segment:
    """Environment steps, or updates without the environment, that all follow the same rules.

    Its outcome is `{"steps": ..., "reward": ...}`: the environment steps taken, and the sum of the environment's
    rewards after the first `skip` of them.
    """

    name: str
    until: int | None = None
    """The segment ends when the run has taken this many environment steps."""
    until_update: int | None = None
    """The segment makes updates only, until the run has made this many."""
    act: Literal["uniform", "explore", "mean"] = "explore"
    """Uniform random actions, the policy with exploration noise, or its mean action."""
    actor: nn.Module | None = None
    """With `mean`: another actor network than the agent's."""
    skill: Array | None = None
    """One skill for all environments (dim,) or one each (num_envs, dim); None draws random skills, redrawn at each
    episode's start and as often as the objective's skill space defines."""
    train: Literal["none", "critic", "all"] = "all"
    """What the updates that become due train. With `none` they are made later."""
    reset: bool = False
    """Start with a new episode in every environment."""
    reset_seed: int | None = None
    """The seed of that reset; None continues the environments' own random numbers."""
    skip: int = 0
    """First steps whose rewards are not part of the outcome."""
    ending: bool = False
    """Belongs to the end of the run. There are no checkpoints here: a run that is extended continues before it."""


@dataclass(frozen=True, eq=False)
class Call:
    """A function that is called once; what it returns, as JSON, is the outcome."""

    name: str
    function: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """A script inside a script. Once it is over, only its return value is remembered."""

    name: str
    script: Script


Instruction: TypeAlias = Segment | Call | Stage
Script: TypeAlias = "Generator[Instruction, Any, Any]"


class Cursor:
    """Where a script is: its current instruction, and the outcomes that led there."""

    def __init__(self, script: Script) -> None:
        self._scripts: list[Script] = []  # the run's own and, inside it, the one of the current stage
        self._outcomes: list[list[list[Any]]] = []  # of each of these: [name, outcome]
        self._waiting: list[Instruction] = []  # the stages around the current instruction
        self.current: Instruction | None = None
        self.result: Any = None
        self._start(script)

    def enter(self) -> None:
        """Start the script of the current stage."""
        stage = self.current
        need(isinstance(stage, Stage), "there is no stage here")
        assert isinstance(stage, Stage)
        self._waiting.append(stage)
        self._start(stage.script)

    def finish(self, outcome: Any) -> None:
        """Record the outcome of the current instruction and advance to the next."""
        assert self.current is not None
        self._outcomes[-1].append([self.current.name, outcome])
        self._step(lambda: self._scripts[-1].send(outcome))

    def _start(self, script: Script) -> None:
        self._scripts.append(script)
        self._outcomes.append([])
        self._step(lambda: next(script))

    def _step(self, advance: Callable[[], Instruction]) -> None:
        try:
            self.current = advance()
        except StopIteration as end:
            self._scripts.pop()
            if not self._scripts:
                self.current, self.result = None, end.value
                return
            self._outcomes.pop()
            self.current = self._waiting.pop()
            self.finish(end.value)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def state(self) -> list[list[list[Any]]]:
        """The outcomes of the script and, if a stage is being executed, of the stage's script."""
        return [list(outcomes) for outcomes in self._outcomes]

    def restore(self, state: Any) -> None:
        """Send the recorded outcomes to a script that has just been started."""
        need(isinstance(state, list) and len(state) >= 1, "the outcomes must be lists")
        for depth, outcomes in enumerate(state):
            need(isinstance(outcomes, list), "the outcomes must be lists")
            if depth:
                self.enter()
            for recorded in outcomes:
                need(isinstance(recorded, list) and len(recorded) == 2, "an outcome must be a name and a value")
                expected = "the end" if self.current is None else self.current.name
                need(recorded[0] == expected, f"its script is at {recorded[0]!r}, expected {expected!r}")
                self.finish(recorded[1])
