"""Keep what `cic reproduce` left, without weights: what the figures are drawn from, the figures and their data.

`minutes.csv` says how long each run took on its core, beside whatever else ran, pauses left out (minutes.py sums up).

python results/experiments/keep.py reproduction results/experiments
cic reproduce all --draw --out results/experiments      # the figures and the page again, from what was kept
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image

OF_A_RUN = ("config.json", "metrics.jsonl", "result.json", "trials.json")
OF_AN_EXPERIMENT = (".png", ".csv", ".md", ".json", ".html")
PAUSE = 60  # seconds between two records of a run that was stopped and resumed


def keep(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "reproduce.json", target)
    minutes: dict[str, float] = {}
    for setup in sorted(source.glob("*/setup.json")):
        if not (setup.parent / "summary.json").exists():  # begun, not drawn
            continue
        folder = target / setup.parent.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in setup.parent.iterdir():
            if file.suffix in OF_AN_EXPERIMENT:
                shutil.copy(file, folder)
        for picture in folder.glob("*_strips.png"):  # photographs: 256 colours are a quarter of the bytes
            Image.open(picture).convert("RGB").quantize(256).save(picture, optimize=True)
        for run in json.loads(setup.read_text())["runs"]:
            keep_run(source / "runs" / run["name"], target / "runs" / run["name"])
            if (taken := minutes_of(source / "runs" / run["name"])) is not None:
                minutes[run["name"]] = taken
    with (target / "minutes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("run", "minutes"), *sorted(minutes.items())])


def minutes_of(run: Path) -> float | None:
    """None for a run that is not finished."""
    if not (run / "result.json").exists() or not (run / "timing.jsonl").exists():
        return None
    times = [json.loads(line)["time/unix"] for line in (run / "timing.jsonl").read_text().splitlines()]
    passed = np.diff(times)
    return round(float(passed[passed < PAUSE].sum()) / 60, 2)


def keep_run(source: Path, target: Path) -> None:
    if not (source / "config.json").exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    for name in OF_A_RUN:
        if (source / name).exists():
            shutil.copy(source / name, target)
    if (source / "measured").exists():
        shutil.copytree(source / "measured", target / "measured", dirs_exist_ok=True)
    header = json.loads((target / "config.json").read_text())  # where it was says nothing elsewhere
    if header["config"].get("pretrained"):
        header["config"]["pretrained"] = Path(header["config"]["pretrained"]).name
    if header.get("command"):
        header["command"] = re.sub(r" --out \S+", "", header["command"])
    (target / "config.json").write_text(json.dumps(header, indent=1) + "\n")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
