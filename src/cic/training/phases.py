"""The phases by the names that run folders and commands use."""

from __future__ import annotations

from typing import Any

from cic.core.errors import UserError
from cic.core.imports import imported
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
    try:
        return config_from_dict(phase_of(run).Config, run.config)
    except UserError as error:
        imports = run.about.get("imports")
        if not isinstance(imports, list) or not imports or set(imports) <= set(imported()):
            raise
        needed = " ".join(f"--import {name}" for name in imports)
        raise UserError(f"{error}; {run.path} was made with {needed}") from None
