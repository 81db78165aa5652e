"""One file per experiment, in the order of the paper."""

from cic.experiments.paper import (  # noqa: F401  registers
    adaptation,  # isort: skip
    curves,  # isort: skip
    dimension,  # isort: skip
    flow,  # isort: skip
    gridworld,  # isort: skip
    gym_vs_dmc,  # isort: skip
    main,  # isort: skip
    projection,  # isort: skip
    representation,  # isort: skip
    rewards,  # isort: skip
    skills,  # isort: skip
    static,  # isort: skip
    sweep,  # isort: skip
)
