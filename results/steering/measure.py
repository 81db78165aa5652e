"""measure.py RUN … [--out FILE]: command agents of the objective steer and measure the returns, without finetuning.

Every combination of the weights −1, 0 and 1 of an agent's quantities (at most 80 skills) plays a whole episode from
three initial states. For each task of the domain and each extreme of a quantity, the best skill of these is played
again from ten other initial states; the means over those ten are reported. One line of JSON per run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cic
from cic.envs import catalogue
from cic.report.skills import compare
from cic.training.evaluation import rollout

CHOOSING, REPORTING = 3, 10
MOST = 80


def commands(dim: int) -> np.ndarray[Any, Any]:
    """Unit vectors of weights −1, 0 and 1; with more than four quantities, those with at most two weights."""
    found = [np.array(one, np.float32) for one in itertools.product((-1, 0, 1), repeat=dim) if any(one)]
    if len(found) > MOST:
        found = [one for one in found if np.abs(one).sum() <= 2][:MOST]
    return np.stack([one / np.linalg.norm(one) for one in found])


def play(agent: Any, domain: str, skills: Any, starts: int, first_seed: int) -> dict[str, Any]:
    """Means over initial states, per skill: returns of tasks, and values of quantities in the second half."""
    env = cic.envs.make(domain, num_envs=len(skills))
    rounds: dict[str, list[Any]] = {}
    for start in range(starts):
        done = rollout(agent, env, skills, seed=[first_seed + start] * len(skills), keep=True)
        for task in env.tasks:
            rounds.setdefault(task, []).append(done.returns[task])
        half = [torch.from_numpy(path[len(path) // 2 :]) for path in done.observations]
        values = np.stack([agent.objective.values(path).mean(dim=0).numpy() for path in half])
        for index, quantity in enumerate(agent.objective.quantities):
            rounds.setdefault(f"quantity {quantity.name}", []).append(values[:, index])
    env.close()
    return {name: np.mean(values, axis=0) for name, values in rounds.items()}


def measure(run: Path, explained: int = 24) -> dict[str, Any]:
    start = time.process_time()
    agent = cic.load(run)
    config = json.loads((run / "config.json").read_text())["config"]
    domain = config["domain"]
    skills = commands(len(agent.objective.quantities))
    first = play(agent, domain, skills, CHOOSING, 10_000)
    goals = {name: (name, 1) for name in first if not name.startswith("quantity")}
    for quantity in agent.objective.quantities:
        name = f"quantity {quantity.name}"
        goals |= {f"most {quantity.name}": (name, 1), f"least {quantity.name}": (name, -1)}
    best = {goal: int(np.argmax(sign * first[name])) for goal, (name, sign) in goals.items()}
    again = play(agent, domain, skills[list(best.values())], REPORTING, 20_000)
    found = {goal: float(again[name][row]) for row, (goal, (name, _)) in enumerate(goals.items())}
    experts = catalogue.DOMAINS[domain].experts
    shares = compare(run, count=explained, starts=3, seed=0).shares
    return {
        "run": run.name,
        "domain": domain,
        "seed": config["seed"],
        "steps": config["steps"],
        "update_every": config["update_every"],
        "options": {key: value for key, value in config["options"].items() if key != "quantities"},
        "found": {goal: round(value, 3) for goal, value in found.items()},
        "skills": {goal: [round(float(x), 3) for x in skills[row]] for goal, row in best.items()},
        "normalised": {task: round(found[task] / top, 3) for task, top in experts.items() if top and task in found},
        "explained": {name: round(share.value, 3) for name, share in shares.items()},
        "measuring_cpu_seconds": round(time.process_time() - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="also append the lines to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for run in given.runs:
        line = json.dumps(measure(run))
        print(line, flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
