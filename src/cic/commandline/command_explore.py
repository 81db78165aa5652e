"""`cic explore`."""

from __future__ import annotations

import threading
import webbrowser
from dataclasses import dataclass, field, replace
from pathlib import Path

from cic.commandline.flags import POSITIONAL
from cic.core.errors import UserError

DEFAULT = "quadruped"
LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ExploreArguments:
    runs: tuple[Path, ...] = field(default=(), metadata=POSITIONAL)
    """Run folders, or bundled agents: quadruped, walker, point_mass. The first is shown; by default quadruped."""
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
    """Address to listen on; 0.0.0.0 lets everybody in who can reach this machine."""
    port: int = 8080
    """Port to listen on. If it is in use, the next free one is taken."""
    viewers: int = 16
    """Maximum number of open pages, each with its own environment."""
    open: bool = True
    """Open the page in a browser."""
    trust: bool = False
    """Allow the environment in the run's config.json to import a Python module."""


def run(given: ExploreArguments) -> None:
    for name, least in (("count", 2), ("steps", 10), ("viewers", 1)):
        if getattr(given, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(given, name)}")
    if not 0 <= given.seed < 2**31:
        raise UserError(f"seed must lie in [0, 2³¹), not {given.seed}")
    from cic.explore import AgentPool, ExploreOptions, Explorer, available_agents

    shared = {name: getattr(given, name) for name in ("seed", "count", "steps", "at", "trust", "viewers")}
    pool = AgentPool(available_agents([str(run) for run in given.runs] or [DEFAULT]), ExploreOptions(**shared))
    agent = pool.agent(pool.names[0])
    for run in given.runs[1:]:
        pool.agent(str(run))  # report a folder that cannot be loaded now, not when it is chosen
    if given.skill is not None:
        pool.options = replace(pool.options, skill=agent.space.check(given.skill))
    with Explorer(pool, given.host, given.port) as explorer:
        if given.port and explorer.port != given.port:
            print(f"port {given.port} is in use; took {explorer.port}")
        address = f"http://{'localhost' if given.host == '0.0.0.0' else given.host}:{explorer.port}"
        print(f"{agent.title} in {agent.environment}: {address} (Ctrl-C ends)", flush=True)
        if given.host not in LOCAL:
            print("everybody who can reach this machine can open the page", flush=True)
        if given.open:
            webbrowser.open(address)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("closed")
