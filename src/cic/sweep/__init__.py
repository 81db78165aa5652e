"""Plans of many runs as data, and their execution with Ray on this machine or on a cluster.

`cic.sweep(objectives=…, domains=…)` calls `cic.sweep.command.sweep`.
"""

from cic.core.callable_package import make_callable

make_callable(__name__, "cic.sweep.command", "sweep")
