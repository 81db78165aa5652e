"""The phases by the names that run folders and commands use."""

from __future__ import annotations

from typing import Any

from cic.runs.folder import Run
from cic.training.finetuning import Finetuning
from cic.training.phase import Phase
from cic.training.pretraining import Pretraining
from cic.training.settings import config_from_dict

PHASES: dict[str, type[Phase]] = {"pretrain": Pretraining, "finetune": Finetuning}


def phase_of(run: Run) -> type[Phase]:
    return PHASES[run.kind]


def config_of(run: Run) -> Any:
    """The settings of a run, from its config.json."""
    return config_from_dict(phase_of(run).Config, run.config)
