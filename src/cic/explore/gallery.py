"""What all viewers share and none changes: the agents, and the map of each one's skills, made once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cic.core.types import Array
from cic.explore.judging import Judge
from cic.explore.loaded_agent import Subject, open_subject
from cic.explore.skill_map import SkillMap, make_map


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    skill: Array | None = None
    """Of the first agent, at the beginning; else its own or a random one."""
    seed: int = 0
    count: int = 64
    """Skills on the map."""
    steps: int = 200
    """Steps for which each of them acts."""
    at: int | None = None
    trust: bool = False
    viewers: int = 16
    """At once."""


@dataclass
class Gallery:
    """Agents by name, opened when somebody asks for them."""

    names: list[str]
    options: Options
    _subjects: dict[str, Subject] = field(default_factory=dict)
    _maps: dict[str, SkillMap] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mapping: threading.Lock = field(default_factory=threading.Lock)
    _closing: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def subject(self, name: str) -> Subject:
        if name not in self.names:
            raise KeyError(name)  # a page offers these names alone
        with self._lock:
            if name not in self._subjects:
                at = self.options.at if name == self.names[0] else None
                self._subjects[name] = open_subject(name, at=at, trust=self.options.trust)
            return self._subjects[name]

    def skill_map(self, name: str) -> SkillMap:
        """Takes seconds the first time; whoever asks meanwhile waits for it."""
        subject = self.subject(name)
        with self._mapping:
            if name not in self._maps:
                options = self.options
                self._maps[name] = make_map(
                    subject, count=options.count, steps=options.steps, seed=options.seed, stop=self._closing.is_set
                )
            return self._maps[name]

    def fetch_map(self, name: str, take: Callable[[SkillMap], None], fail: Callable[[str], None]) -> None:
        """In a thread of its own: bodies move meanwhile."""

        def work() -> None:
            try:
                take(self.skill_map(name))
            except Exception as error:  # a page goes on without it
                if not self._closing.is_set():
                    fail(f"no map: {error}")

        thread = threading.Thread(target=work, daemon=True)
        self._threads = [*(known for known in self._threads if known.is_alive()), thread]
        thread.start()

    def close(self) -> None:
        """Nothing simulates any more when this is over: physics must not outlive the interpreter."""
        self._closing.set()
        for thread in self._threads:
            thread.join(10.0)

    def judge(self, name: str) -> Judge:
        """A new one for each viewer: it works on an objective of its own."""
        return Judge(self.subject(name), self.skill_map(name).reference)
