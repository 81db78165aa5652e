"""Task rewards in the pre-training data, and their correlation with the finetuned scores.

python results/main-laptop/seen.py RUN …          # of finished pre-trainings, with their replay; added to seen.jsonl
python results/main-laptop/seen.py --table DOMAIN  # beside the finetuned scores of the runs that are here
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from scipy.stats import spearmanr

from cic.core.paper_scores import experts
from cic.envs.catalogue import DOMAINS
from cic.runs import records

HERE = Path(__file__).parent
WINDOW = 50  # steps


def seen(run: Path) -> dict[str, object]:
    """The tasks' mean rewards, those of the best hundredth of all windows, how often the body got up in an episode, and
    the share of actions at their bounds."""
    config = json.loads((run / "config.json").read_text())["config"]
    replay = load_file(max((run / "checkpoints").iterdir()) / "replay.safetensors")
    paid = replay["task_rewards"]  # (copies, records, tasks)
    copies, records, tasks = paid.shape
    whole = records // WINDOW
    windows = paid[:, : whole * WINDOW].reshape(copies * whole, WINDOW, tasks).mean(axis=1)
    best = np.sort(windows, axis=0)[-(len(windows) // 100) :].mean(axis=0)
    names = DOMAINS[config["domain"]].tasks

    def by_task(rewards: np.ndarray) -> dict[str, float]:
        return {name: round(float(reward), 3) for name, reward in zip(names, rewards, strict=True)}

    return {
        "objective": config["objective"],
        "domain": config["domain"],
        "seed": config["seed"],
        "mean": by_task(paid.mean(axis=(0, 1))),
        "best": by_task(best),
        "rises": round(rises(paid[..., names.index("stand")], replay["skill_id"] < 0), 3),
        "at_bounds": round(float((np.abs(replay["action"]) > 0.99).mean()), 3),
    }


def rises(stand: np.ndarray, ends: np.ndarray) -> float:
    """From a reward of less than 0.1 for standing to more than 0.9, times per episode."""
    posture = np.where(ends, 0, (stand > 0.9).astype(int) - (stand < 0.1))
    count = 0
    for copy, last in zip(posture, ends, strict=True):
        known = copy[last | (copy != 0)]  # the end of an episode is 0, so that no pair spans two
        count += int(((known[:-1] == -1) & (known[1:] == 1)).sum())
    return count / int(ends.sum())


def scores(domain: str) -> dict[tuple[str, int], dict[str, float]]:
    """(objective, seed) → task → the finetuned return, of the expert's."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for run in records.read_study(HERE):
        assert isinstance(run, records.RunRecord), run
        if run.kind == "finetune" and run.domain == domain and "/" not in run.name:  # not those of more-seeds/
            found[run.method, run.seed][run.task.partition("-")[2]] = run.score / experts()[run.task]
    return found


def table(domain: str) -> None:
    reached = scores(domain)
    lines = [json.loads(line) for line in (HERE / "seen.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["domain"] == domain and (line["objective"], line["seed"]) in reached]
    rows = defaultdict(list)
    for line in lines:
        of_mine = reached[line["objective"], line["seed"]]
        rows[line["objective"]].append(
            (
                np.mean(list(of_mine.values())),
                *(np.mean(list(line[of].values())) for of in ("mean", "best")),
                line["rises"],
                line["at_bounds"],
            )
        )
    columns = ("mean reward seen", "best windows'", "times got up", "actions at their bounds")
    print(f"| objective | finetuned | {' | '.join(columns)} |\n" + "|---" * 6 + "|")
    for objective, values in sorted(rows.items(), key=lambda row: -np.mean(row[1], axis=0)[0]):
        print(f"| {objective} | " + " | ".join(f"{value:.2f}" for value in np.mean(values, axis=0)) + " |")
    points = np.array([point for values in rows.values() for point in values])
    for column, name in enumerate(columns, 1):
        rho, p = spearmanr(points[:, 0], points[:, column])
        print(f"rho of the score with the {name}: {rho:.2f} (p {p:.3f}, {len(points)} pre-trainings)")


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(sys.argv[2])
    else:
        with (HERE / "seen.jsonl").open("a") as file:
            for given in sys.argv[1:]:
                file.write(json.dumps(seen(Path(given))) + "\n")
