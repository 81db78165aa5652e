"""Skills without rewards, and how to use them.

import cic

skills = cic.pretrain("walker", "cic", steps=100_000)
tuned = cic.finetune(skills.path, "run")
agent = cic.load(tuned.path)
action = agent.act(obs)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from cic import envs
    from cic.api import evaluate, finetune, load, pretrain, resume
    from cic.envs import register_env
    from cic.export import export_policy
    from cic.learning.objectives import Objective, SkillSpace, register

__all__ = [
    "Objective",
    "SkillSpace",
    "envs",
    "evaluate",
    "export_policy",
    "finetune",
    "load",
    "pretrain",
    "register",
    "register_env",
    "resume",
]

_HOMES = dict.fromkeys(("Objective", "SkillSpace", "register"), "cic.learning.objectives")
_HOMES |= {"export_policy": "cic.export", "register_env": "cic.envs"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: `import cic` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'cic' has no attribute '{name}'")
    if name == "envs":
        return import_module("cic.envs")
    return getattr(import_module(_HOMES.get(name, "cic.api")), name)


def __dir__() -> list[str]:
    """The public API and nothing else."""
    return [*__all__, "__version__"]
