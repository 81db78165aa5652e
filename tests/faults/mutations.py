"""JSON as a stranger might write it: any place may hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        2**31,
        2**32,
        2**63,
        2**64,
        10**13,
        10**30,
        10**400,
        -(10**13),
        65_536,
        70_000,
    ),
    *(0.0, -0.5, 0.5, 1e-300, 1e9, 1e300, float("nan"), float("inf"), float("-inf")),
    *("", "x", "cpu", "cuda", "meta", "../../x", "/etc/passwd", "\x00", "\x1b[2J", "a" * 10_000, "gymnasium:os:x-v0"),
    *(
        "[/red]",
        "[bold",
        "<b>",
        "walker",
        "gridworld-reach_top_left",
        "gymnasium:Pendulum-v1",
        "rnd",
        "ddpg",
        "sac",
        "td3",
    ),
    *("[/red]", "[bold", "<b>"),
    *([], [1], [[]], ["x"], [0.5] * 4, [None], list(range(1000)), {}, {"a": 1}, {"__class__": "x"}),
]


def mutate(document: Any, rng: np.random.Generator) -> None:
    """Change one to three places of an object: put something odd there, remove, double, or add."""
    for _ in range(int(rng.integers(1, 4))):
        holder, key = _place(document, rng)
        how = rng.choice(["odd", "odd", "odd", "scale", "remove", "add", "swap"])
        if key is None or how == "add":
            _add(holder, rng)
        elif how == "remove":
            del holder[key]
        elif how == "scale" and type(holder[key]) in (int, float):
            holder[key] = holder[key] * int(rng.choice([-1, 2, 10, 1000, 10**6, 10**12]))
        elif how == "swap":
            other, place = _place(document, rng)
            holder[key] = _copied(other if place is None else other[place])
        else:
            holder[key] = _copied(ODD[rng.integers(len(ODD))])


def _copied(value: Any) -> Any:
    """So that no document holds itself."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in list(value.items())[:50]}
    return [_copied(item) for item in value[:2000]] if isinstance(value, list) else value


def _place(document: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A random object or list inside, and a key or index of it; None if it is empty."""
    holder = document
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return holder, None
        key = keys[rng.integers(len(keys))]
        inside = holder[key]
        if not isinstance(inside, dict | list) or not inside or rng.random() < 0.2:
            return holder, key
        holder = inside


def _add(holder: Any, rng: np.random.Generator) -> None:
    value = _copied(ODD[rng.integers(len(ODD))])
    if isinstance(holder, dict):
        holder[str(rng.choice(["extra", "step", "device", "seed", "__proto__"]))] = value
    else:
        holder.append(value)
