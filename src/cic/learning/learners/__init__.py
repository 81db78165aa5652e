"""One file per algorithm."""

from cic.learning.learners import bc, cql, ddpg, dqn, iql, sac, sac_discrete, td3, td3bc  # noqa: F401  registers
from cic.learning.learners.base import Learner, LearnerConfig, get_learner, learners, register_learner

__all__ = ["Learner", "LearnerConfig", "get_learner", "learners", "register_learner"]
