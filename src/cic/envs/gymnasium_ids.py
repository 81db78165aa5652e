"""Importing this module makes `gymnasium.make("cic/walker-run-v0")` and `gymnasium.make_vec` work.

`import cic` imports it together with Gymnasium (`cic.gymnasium_hook`). Where `cic` is not imported, Gymnasium imports
the module before the colon of an id: `gymnasium.make("cic:cic/walker-run-v0")`.
"""

from __future__ import annotations

import gymnasium

from cic.envs.catalogue import DOMAINS, names


def ids() -> list[str]:
    """All registered ids, including the reward-free domains."""
    return [f"cic/{name}-v0" for name in names()]


for _name in names():
    gymnasium.register(
        id=f"cic/{_name}-v0",
        entry_point="cic.envs.single:SingleEnv",
        vector_entry_point="cic.envs.single:make_vector",
        max_episode_steps=DOMAINS[_name.partition("-")[0]].episode_length,
        kwargs={"name": _name},
    )
