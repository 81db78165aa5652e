"""One file per method."""

from cic.objectives.base import NoOptions, Objective, SkillSpace, get_objective, objectives, register

__all__ = ["NoOptions", "Objective", "SkillSpace", "get_objective", "objectives", "register"]
