"""Importing this module makes `gymnasium.make("cic/walker-run-v0")` and `gymnasium.make_vec` work.

Gymnasium has no plugins (since 1.0), and `import cic` does not import it, which would cost a quarter of a second. From
anywhere, Gymnasium imports it by itself: `gymnasium.make("cic.envs.gymnasium_ids:cic/walker-run-v0")`.
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
