"""One file per search."""

from cic.training.searches import (  # noqa: F401  registers
    cem,
    cma,
    each,
    grid_search,
    halving,
    library_search,
    no_search,
    random,
    regress,
)
from cic.training.searches.base import Candidate, Problem, Search, Trial, make_search, register_search, searches

__all__ = ["Candidate", "Problem", "Search", "Trial", "make_search", "register_search", "searches"]
