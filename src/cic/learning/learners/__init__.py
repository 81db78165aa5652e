"""One file per algorithm."""

from cic.learning.learners import ddpg, dqn, sac, sac_discrete, td3  # noqa: F401  registers
from cic.learning.learners.base import Learner, LearnerConfig, get_learner, learners, register_learner

__all__ = ["Learner", "LearnerConfig", "get_learner", "learners", "register_learner"]
