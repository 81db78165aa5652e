"""`cic doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from cic.commandline.shared import AgentArguments
from cic.commandline.text_tables import print_table


@dataclass(frozen=True)
class DoctorArguments(AgentArguments):
    steps: int = 200
    """Steps of each of the 36 episodes: 12 skills from 3 initial states."""
    seed: int = 0
    """Seed of skills and initial states."""


def run(given: DoctorArguments) -> int:
    from cic.training.doctor import doctor

    found = doctor(given.run, at=given.at, steps=given.steps, seed=given.seed, trust=given.trust)
    print_table(
        ["check", "value", "compare with", "verdict"],
        [[one.check, one.value, one.reference, one.verdict] for one in found.findings],
    )
    print(f"\n{found.run}, step {found.step:,}. {found.summary}")
    for one in found.findings:
        if one.advice:
            print(f"- {one.check}: {one.advice}")
    return 0 if found.sound else 1
