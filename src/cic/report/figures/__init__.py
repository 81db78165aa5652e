"""Figures of scores and learning curves."""

from cic.report.figures.plot import Panel, Plot, key, save, svgs

__all__ = ["Panel", "Plot", "key", "save", "svgs"]
