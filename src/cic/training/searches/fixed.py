"""No search: a skill that is given, or the constant 0.5 with uniform actions in the warm-up, as was released."""

from __future__ import annotations

from collections.abc import Iterator

from cic.training.searches.base import Candidate, Search, register_search


@register_search
class Fixed(Search):
    name = "fixed"
    fits = ("none", "box", "cube", "normal", "sphere", "onehot")

    def propose(self) -> Iterator[Candidate]:
        return iter(())
