"""One file per experiment. `NAMES` is their order, that of the paper."""

from importlib import import_module

NAMES = (
    "main",
    "curves",
    "rewards",
    "representation",
    "projection",
    "dimension",
    "adaptation",
    "sweep",
    "gym_vs_dmc",
    "gridworld",
    "flow",
    "static",
    "skills",
)

for _name in NAMES:
    import_module(f"{__name__}.{_name}")  # registers
