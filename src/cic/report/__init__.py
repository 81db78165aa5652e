"""Reports on run folders: statistics, tables, figures and one HTML page; comparison of two groups of runs."""

from cic.core.callable_package import make_callable
from cic.report.build import report
from cic.report.comparison import compare
from cic.report.options import CompareOptions, ReportOptions, ReportResult

__all__ = ["CompareOptions", "ReportOptions", "ReportResult", "compare", "report"]

make_callable(__name__, "cic.report.build", "report")
