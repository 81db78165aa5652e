"""Unsupervised skill discovery: pre-train agents without rewards, then finetune them to tasks.

Example:
    ```python
    import cic

    skills = cic.pretrain("walker", "cic", steps=100_000)
    tuned = cic.finetune(skills.path, "run")
    agent = cic.load(tuned.path)
    ```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cic.gymnasium_hook import register_with_gymnasium

__version__ = "0.3.0"

if TYPE_CHECKING:
    from cic import data, envs
    from cic.api import evaluate, finetune, infer, load, offline, pretrain, reach, resume
    from cic.core.errors import UserError
    from cic.core.named_quantities import NamedQuantity
    from cic.envs import register_env
    from cic.experiments.all_experiments import experiments
    from cic.experiments.reproduction import reproduce, reproduce_plan
    from cic.explore.server import explore
    from cic.export.data import export_data
    from cic.export.policy import export_policy
    from cic.learning.objectives import Objective, SkillSpace, objectives, register
    from cic.prompting import prompt
    from cic.report.build import report
    from cic.report.comparison import compare
    from cic.report.film import film
    from cic.report.skills import skills
    from cic.runs.records import runs
    from cic.sweep.command import sweep, sweep_cost, sweep_plan, sweep_status
    from cic.training.doctor import doctor
    from cic.training.env_check import check_env

_MODULES = {
    "cic.api": ("evaluate", "finetune", "infer", "load", "offline", "pretrain", "reach", "resume"),
    "cic.core.errors": ("UserError",),
    "cic.core.named_quantities": ("NamedQuantity",),
    "cic.envs": ("register_env",),
    "cic.experiments.reproduction": ("reproduce", "reproduce_plan"),
    "cic.export": ("export_data", "export_policy"),
    "cic.learning.objectives": ("Objective", "SkillSpace", "objectives", "register"),
    "cic.prompting": ("prompt",),
    "cic.report": ("compare",),
    "cic.report.film": ("film",),
    "cic.report.skills": ("skills",),
    "cic.training.doctor": ("doctor",),
    "cic.sweep.command": ("sweep_cost", "sweep_plan", "sweep_status"),
    "cic.training.env_check": ("check_env",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES = ("data", "envs", "experiments", "explore", "report", "runs", "sweep")
"""Packages in the API. All but `data` and `envs` can be called: `cic.report(…)`, see `cic.core.callable_package`."""

__all__ = [
    "NamedQuantity",
    "Objective",
    "SkillSpace",
    "UserError",
    "check_env",
    "compare",
    "data",
    "doctor",
    "envs",
    "evaluate",
    "experiments",
    "explore",
    "export_data",
    "export_policy",
    "film",
    "finetune",
    "infer",
    "load",
    "objectives",
    "offline",
    "pretrain",
    "prompt",
    "reach",
    "register",
    "register_env",
    "report",
    "reproduce",
    "reproduce_plan",
    "resume",
    "runs",
    "skills",
    "sweep",
    "sweep_cost",
    "sweep_plan",
    "sweep_status",
]


register_with_gymnasium()


def __getattr__(name: str) -> Any:
    """Import a part of the API on first use, so that `import cic` is fast."""
    if name in _PACKAGES:
        return import_module(f"cic.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cic' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public API."""
    return [*__all__, "__version__"]
