"""`cic envs`."""

from __future__ import annotations

from cic.commandline.shared import NoArguments
from cic.commandline.text_tables import print_table


def run(given: NoArguments) -> None:
    from cic import envs

    rows = []
    for name, domain in envs.domains().items():
        for task in domain.tasks:
            expert = domain.experts.get(task)
            numbers = (domain.obs, domain.action, domain.episode_length)
            rows.append([f"{name}-{task}", *map(str, numbers), "-" if expert is None else f"{expert:g}"])
    print_table(["task", "obs", "action", "steps", "expert"], rows)
    print("A domain alone (walker) is reward-free. gymnasium:ID takes any Gymnasium environment with Box actions.")
