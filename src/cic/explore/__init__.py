"""A page in the browser that shows an agent live and lets the user choose its skills. Needs the extra `explore`."""

from __future__ import annotations

from cic.core.callable_package import make_callable
from cic.explore.agent_pool import AgentPool, ExploreOptions
from cic.explore.loaded_agent import available_agents
from cic.explore.server import Explorer, explore

__all__ = ["AgentPool", "ExploreOptions", "Explorer", "available_agents", "explore"]

make_callable(__name__, "cic.explore.server", "explore")
