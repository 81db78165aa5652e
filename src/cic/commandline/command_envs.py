"""`cic envs`."""

from __future__ import annotations

import sys

from cic.commandline.shared import NoArguments
from cic.commandline.text_tables import print_table
from cic.core.errors import UserError


def run(given: NoArguments) -> None:
    from cic import envs
    from cic.envs.registry import own_names

    rows = []
    for name, domain in envs.domains().items():
        for task in domain.tasks:
            expert = domain.experts.get(task)
            numbers = (domain.obs, domain.action, domain.episode_length)
            rows.append([f"{name}-{task}", *map(str, numbers), "-" if expert is None else f"{expert:g}"])
    rows += [row for name in own_names() if (row := _own_row(name))]
    print_table(["task", "obs", "action", "steps", "expert"], rows)
    if own_names():
        print("The task of an environment of your own has the name of the environment.")
    print("A domain alone (walker) is reward-free. gymnasium:ID is any Gymnasium environment.")


def _own_row(name: str) -> list[str] | None:
    """The row of an environment of the user's, which is made for that; None if this fails."""
    from cic import envs

    try:
        env = envs.make(name)
    except UserError as error:
        print(f"cic: note: {error}", file=sys.stderr)
        return None
    env.close()
    return [name, str(env.spaces.obs), str(env.spaces.action), str(env.episode_length or "-"), "-"]
