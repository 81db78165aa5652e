"""How much of a quadruped's pre-training was spent upright or on the back, and what its embedding knew of the skill.

python results/beyond-released/lying.py NAME=RUN …   # of finished pre-trainings, with their replay; into lying.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from safetensors.numpy import load_file

UPRIGHT = 47  # of the observation: torso_upright, behind 44 of the joints and 3 of the velocity


def lying(run: Path) -> dict[str, float]:
    checkpoint = max((run / "checkpoints").iterdir())
    upright = load_file(checkpoint / "replay.safetensors")["obs"][:, :, UPRIGHT]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "skill/accuracy" in line]
    most = logged[len(logged) // 4 :]
    return {
        "upright": round(float((upright > 0.8).mean()), 2),
        "back": round(float((upright < -0.5).mean()), 2),
        "accuracy": round(sum(line["skill/accuracy"] for line in most) / len(most), 2),
        "rank": round(sum(line["embedding/effective_rank"] for line in most) / len(most), 1),
    }


if __name__ == "__main__":
    for name, run in (given.split("=") for given in sys.argv[1:]):
        with Path(__file__).with_name("lying.jsonl").open("a") as file:
            file.write(json.dumps({"run": name, **lying(Path(run))}) + "\n")
