"""`cic explore`."""

from __future__ import annotations

import threading
import webbrowser
from dataclasses import dataclass, field, fields
from pathlib import Path

from cic.commandline.flags import POSITIONAL

DEFAULT = "steer_walker"
LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ExploreArguments:
    runs: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    """Run folders, or bundled agents: steer_walker, quadruped, walker, point_mass. The first is shown; by default
    steer_walker, which has a slider per quantity."""
    skill: tuple[float, ...] | None = None
    """Start with this skill: a number per dimension, one number for all dimensions, or the index of a one-hot skill."""
    seed: int = 0
    """Seed of the initial state and of the skills on the map."""
    at: int | None = None
    """Use the weights of this step's milestone or checkpoint (of the first run)."""
    count: int = 64
    """Number of skills on the map."""
    steps: int = 200
    """Steps per skill, whose final positions make the map."""
    host: str = "127.0.0.1"
    """Address to listen on. With 0.0.0.0, everybody who can reach this machine can open the page."""
    port: int = 8080
    """Port to listen on. If it is in use, the next free one is taken."""
    viewers: int = 16
    """Maximum number of open pages, each with its own environment."""
    finetune_steps: int = 30_000
    """Steps of a finetuning on a prompt that a page may start, one at a time; 0 disables it."""
    open: bool = True
    """Open the page in a browser."""
    trust: bool = False
    """Allow the environment in the run's config.json to import a Python module."""


def run(given: ExploreArguments) -> None:
    from cic.explore import explore

    options = {field.name: getattr(given, field.name) for field in fields(given) if field.name not in ("runs", "open")}
    with explore(given.runs or DEFAULT, **options) as explorer:
        if given.port and explorer.port != given.port:
            print(f"port {given.port} is in use; took {explorer.port}")
        agent = explorer.agent
        print(f"{agent.title} in {agent.environment}: {explorer.url} (Ctrl-C ends)", flush=True)
        if given.host not in LOCAL:
            print("everybody who can reach this machine can open the page", flush=True)
        if given.open:
            webbrowser.open(explorer.url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("closed")
