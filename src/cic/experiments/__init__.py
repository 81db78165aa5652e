"""Every table and figure of the paper as one command: a plan, measurements and a figure each (`cic reproduce`).

`cic.experiments()` returns the experiments by name, see `all_experiments.experiments`.
"""

from cic.core.callable_package import make_callable

make_callable(__name__, "cic.experiments.all_experiments", "experiments")
