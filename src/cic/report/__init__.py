"""Run folders → tables, figures and one HTML page; two groups of runs → their difference."""

from cic.report.build import report
from cic.report.comparison import compare
from cic.report.options import CompareOptions, ReportOptions, ReportResult
from cic.report.watching import watch

__all__ = ["CompareOptions", "ReportOptions", "ReportResult", "compare", "report", "watch"]
