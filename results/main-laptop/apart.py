"""Weights and data separately: finetunings from initial weights with relabelled replay of a pre-training.

python results/main-laptop/apart.py OUT BARE DATA TASK …   # into OUT; each finished one adds a line to apart.jsonl

Written for the code at commit 1c94153: it uses internals of training.

BARE is a pre-training without skills, of which only the config is used; DATA is any pre-training of the same domain.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cic
from cic import api
from cic.core.paper_scores import experts
from cic.learning.agent import Agent
from cic.runs.folder import Run
from cic.training.loading import load_agent, make_agent
from cic.training.phases import config_of, phase_of
from cic.training.relabelled_replay import experienced

LOG = Path(__file__).with_name("apart.jsonl")


def finetune(out: Path, bare: Path, data: Path, task: str) -> None:
    seen = Run(data).load_checkpoint()
    assert seen is not None, f"{data} has kept no steps"

    def fresh(run: Run, config: Any) -> tuple[Agent, int]:
        trained, step = load_agent(run, config, None)
        return make_agent(phase_of(run), config, trained.spaces), step

    api._final_agent = fresh
    api._steps_of = lambda run, at, asked: experienced(seen[1]["replay"])
    objective, seed = config_of(Run(data)).objective, config_of(Run(data)).seed
    folder = out / f"fresh-{objective}-{task}-s{seed}"
    done = (
        cic.resume(folder, quiet=True)
        if folder.exists()
        else cic.finetune(bare, task, out=folder, seed=seed, quiet=True)
    )
    row = {"weights": "fresh", "data": objective, "seed": seed, "task": done.result["task"]}
    score = done.result["return"] / experts()[done.result["task"]]
    with LOG.open("a") as file:
        file.write(json.dumps({**row, "score": round(score, 3)}) + "\n")


if __name__ == "__main__":
    out, bare, data, *tasks = sys.argv[1:]
    for task in tasks:
        finetune(Path(out), Path(bare), Path(data), task)
