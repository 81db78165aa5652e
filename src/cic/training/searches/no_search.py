"""No search: a given skill, or the constant 0.5 with uniform actions in the warm-up, as in the released code."""

from __future__ import annotations

from collections.abc import Iterator

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class NoSearch(Search):
    name = "fixed"
    searches = False
    fits = ("none", "box", "cube", "normal", "sphere", "onehot")

    def propose(self) -> Iterator[Candidate]:
        return iter(())
