"""One file per search."""

from cic.training.searches import (  # noqa: F401  registers
    cem,
    cma,
    each,
    fixed,
    grid,
    halving,
    library,
    random,
    regress,
    surrogate,
)
from cic.training.searches.base import Problem, Search, Trial, make_search, register_search, searches

__all__ = ["Problem", "Search", "Trial", "make_search", "register_search", "searches"]
