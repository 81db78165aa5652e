"""The agents and their skill maps, which all viewers share. Each is loaded or computed once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cic import envs
from cic.core.config import require
from cic.core.errors import UserError
from cic.core.types import Array
from cic.explore.background_finetuning import BackgroundFinetuning
from cic.explore.live_metrics import LiveMetrics
from cic.explore.loaded_agent import LoadedAgent, load_agent
from cic.explore.skill_map import SkillMap, make_map


@dataclass(frozen=True)
class ExploreOptions:
    """Options of the explorer."""

    skill: Array | None = None
    """First skill of the first agent; by default its own or a random one."""
    seed: int = 0
    """Seed of the initial state and of the skills on the map."""
    count: int = 64
    """Number of skills on the map."""
    steps: int = 200
    """Steps per skill, whose final positions make the map."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint (of the first run)."""
    trust: bool = False
    """Allow the environment in the run's config.json to import a Python module."""
    viewers: int = 16
    """Maximum number of open pages, each with its own environment."""
    finetune_steps: int = 30_000
    """Steps of a finetuning on a prompt that a page may start, one at a time; 0 disables it."""

    def __post_init__(self) -> None:
        for name, least in (("count", 2), ("steps", 10), ("viewers", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}")
        require(0 <= self.finetune_steps <= 10**9, f"finetune_steps must not be negative, not {self.finetune_steps}")
        require(0 <= self.seed < 2**31, f"seed must lie in [0, 2³¹), not {self.seed}")


@dataclass
class AgentPool:
    """Agents by name, loaded on first use."""

    names: list[str]
    options: ExploreOptions
    _agents: dict[str, LoadedAgent] = field(default_factory=dict)
    _maps: dict[str, SkillMap] = field(default_factory=dict)
    _agents_lock: threading.Lock = field(default_factory=threading.Lock)
    _maps_lock: threading.Lock = field(default_factory=threading.Lock)
    _closing: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _tuning: BackgroundFinetuning | None = None

    def agent(self, name: str) -> LoadedAgent:
        if name not in self.names:
            raise KeyError(name)  # a page offers only these names
        with self._agents_lock:
            if name not in self._agents:
                at = self.options.at if name == self.names[0] else None
                self._agents[name] = load_agent(name, at=at, trust=self.options.trust)
            return self._agents[name]

    def skill_map(self, name: str) -> SkillMap:
        """Return the map; the first call takes seconds, and concurrent calls wait for it."""
        agent, options = self.agent(name), self.options
        with self._maps_lock:
            if name not in self._maps:
                self._maps[name] = make_map(
                    agent, count=options.count, steps=options.steps, seed=options.seed, stop=self._closing.is_set
                )
            return self._maps[name]

    def fetch_map(self, name: str, on_map: Callable[[SkillMap], None], on_error: Callable[[str], None]) -> None:
        """Compute the map in a separate thread, so that bodies keep moving."""

        def work() -> None:
            try:
                on_map(self.skill_map(name))
            except Exception as error:  # the page works without the map
                if not self._closing.is_set():
                    on_error(f"no map: {error}")

        thread = threading.Thread(target=work, daemon=True)
        self._threads = [*(known for known in self._threads if known.is_alive()), thread]
        thread.start()

    def finetune(self, agent: LoadedAgent, prompt: str, skill: Array) -> BackgroundFinetuning:
        """Start a finetuning on a prompted reward, unless one is running."""
        if self._tuning is not None and self._tuning.running:
            raise UserError(f"a finetuning is running already, in {self._tuning.out}: wait until it is finished")
        if agent.run.kind != "pretrain":
            raise UserError(f"{agent.name} is a finetuned agent: show its pre-training to finetune on a prompt")
        domain = envs.domain_of(agent.environment)
        task, stamp = f"{domain}{envs.REWARD}{prompt}", datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"prompt-{re.sub(r'[^A-Za-z0-9.-]+', '_', f'{domain}-{prompt}')[:60]}-{stamp}"
        self._tuning = BackgroundFinetuning(agent.name, task, skill.tolist(), self.options.finetune_steps, out)
        return self._tuning

    def close(self) -> None:
        """Stop all simulations: physics must not outlive the interpreter."""
        self._closing.set()
        if self._tuning is not None:
            self._tuning.stop()
        for thread in self._threads:
            thread.join(10.0)

    def live_metrics(self, name: str) -> LiveMetrics:
        """Return new metrics for one viewer, with a copy of the objective."""
        return LiveMetrics(self.agent(name), self.skill_map(name).reference)
