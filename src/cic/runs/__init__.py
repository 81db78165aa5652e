"""The run folder: atomic checkpoints, reading, locking. `cic.runs("runs")` lists runs, see `records.runs`."""

from cic.core.callable_package import make_callable

make_callable(__name__, "cic.runs.records", "runs")
