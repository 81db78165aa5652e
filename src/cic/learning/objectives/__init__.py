"""One file per method."""

from cic.learning.objectives import (  # noqa: F401  registers
    aps,
    apt,
    becl,
    cic,
    csf,
    dads,
    diayn,
    disagreement,
    fb,
    fixed,
    hilp,
    icm,
    lsd,
    metra,
    proto,
    rnd,
    smm,
    ssn4hrl,
    steer,
    task_reward,
    valor,
    vic,
    visr,
)
from cic.learning.objectives.base import NoOptions, Objective, SkillSpace, get_objective, objectives, register

__all__ = ["NoOptions", "Objective", "SkillSpace", "get_objective", "objectives", "register"]
