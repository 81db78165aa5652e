"""One file per method."""

from cic.learning.objectives import aps, apt, cic, ddpg, diayn, disagreement, fixed, icm, proto, rnd, smm  # noqa: F401  registers
from cic.learning.objectives.base import NoOptions, Objective, SkillSpace, get_objective, objectives, register

__all__ = ["NoOptions", "Objective", "SkillSpace", "get_objective", "objectives", "register"]
