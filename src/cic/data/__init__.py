"""Stored experience as training data: the replay of a run, ExORL folders, Minari datasets, and mixtures of them.

from cic.data import open_dataset
"""

from cic.data.dataset import Dataset, open_dataset
from cic.data.relabel import drift, formula_reward

__all__ = ["Dataset", "drift", "formula_reward", "open_dataset"]
