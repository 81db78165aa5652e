"""Synthetic run folders: what training would leave behind, without training."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from cic.core import paper_scores
from cic.core.paper_scores import experts

METHODS = ("ddpg", "cic", "icm", "disagreement", "rnd", "apt", "proto", "smm", "diayn", "aps")
TINY_VIDEO = base64.b64decode("AAAAIGZ0eXBpc29tAAACAGlzb21pc28yYXZjMW1wNDE=")  # a header is enough to embed


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def config_file(run: Path, kind: str, config: dict[str, Any]) -> None:
    header = {"format": 3, "version": "0.3.0", "kind": kind}
    header |= {"versions": {"cic": "0.3.0", "numpy": "2.0"}, "command": f"cic {kind}"}
    write_json(run / "config.json", header | {"config": {"learner": "ddpg"} | config})


def status(run: Path, state: str, step: int, message: str = "") -> None:
    updated = "2024-05-01T12:00:00+00:00"
    write_json(run / "status.json", {"state": state, "step": step, "message": message, "updated": updated})


def write_metrics(run: Path, rows: list[dict[str, float]]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def agent_config(scale: str) -> dict[str, Any]:
    return (
        {"hidden": 1024, "batch": 1024, "lr": 1e-4} if scale == "paper" else {"hidden": 256, "batch": 256, "lr": 1e-3}
    )


def finetune(
    folder: Path,
    task: str = "walker-run",
    method: str = "cic",
    seed: int = 0,
    score: float | None = None,
    *,
    name: str | None = None,
    state: str = "finished",
    scale: str = "laptop",
    steps: int = 100_000,
    pretrain_steps: int | None = None,
    points: int = 10,
    trials: bool = True,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """One finetuning run; without a `score` it scatters around the paper's."""
    rng = np.random.default_rng(zlib.crc32(f"{task} {method} {seed}".encode(errors="replace")))
    if score is None:
        row = paper_scores.returns().get(method, {}).get(task)
        mean, stderr = (row.mean, row.stderr) if row else (0.4 * experts().get(task, 500.0), 20.0)
        score = float(max(0.0, rng.normal(mean, stderr * np.sqrt(10))))
    run = folder / (name or f"{task}-{method}-{seed}")
    pretrained = None if method == "ddpg" else f"../pretrain-{task.split('-')[0]}-{method}-{seed}"
    config_file(
        run,
        "finetune",
        {"task": task, "objective": method, "pretrained": pretrained}
        | {"pretrain_steps": (0 if method == "ddpg" else 100_000) if pretrain_steps is None else pretrain_steps}
        | {"scale": scale, "seed": seed, "steps": steps, "selection": {"search": "grid", "trial_steps": 100}}
        | {"learning": agent_config(scale), "options": options or {}, **config},
    )
    reached = points if state == "finished" else max(1, points // 2)
    rows: list[dict[str, float]] = []
    for index in range(1, reached + 1):
        part = index / points
        value = score if index == points else score * (1 - np.exp(-4 * part)) * rng.normal(1.0, 0.06)
        rows.append({"step": int(steps * part), "update": int(steps * part / 2), "eval/return": float(value)})
        rows[-1] |= {"eval/std": 10.0, "critic/loss": float(rng.gamma(2.0)), "train/return": float(value * 0.9)}
    write_metrics(run, rows)
    status(run, state, int(steps * reached / points))
    if state == "finished":
        returns = (score + 5 * rng.standard_normal(10)).tolist()
        write_json(run / "result.json", {"task": task, "return": score, "returns": returns, "step": steps, "skill": []})
    if trials and method == "cic":
        grid = np.linspace(0, 1, 40)
        values = 20 * np.exp(-((grid - rng.random()) ** 2) / 0.05) + rng.normal(0, 1.5, 40)
        table = [{"skill": [v] * 8, "steps": 100, "return": float(r)} for v, r in zip(grid, values, strict=True)]
        write_json(run / "trials.json", {"method": "grid", "chosen": int(values.argmax()), "trials": table})
    return run


def pretrain(
    folder: Path,
    domain: str = "walker",
    method: str = "cic",
    seed: int = 0,
    *,
    name: str | None = None,
    state: str = "finished",
    scale: str = "laptop",
    steps: int = 100_000,
    points: int = 100,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """One pre-training run with its diagnostics."""
    rng = np.random.default_rng(zlib.crc32(f"{domain} {method} {seed}".encode(errors="replace")))
    run = folder / (name or f"pretrain-{domain}-{method}-{seed}")
    config_file(
        run,
        "pretrain",
        {"domain": domain, "objective": method, "scale": scale, "seed": seed, "steps": steps}
        | {"learning": agent_config(scale), "options": options or {}, **config},
    )
    tasks = [task.split("-", 1)[1] for task in experts() if task.startswith(f"{domain}-")]
    reached = points if state == "finished" else points // 2
    level, rows = rng.uniform(0.5, 1.5), []
    for index in range(1, reached + 1):
        part = index / points
        row = {"step": int(steps * part), "update": int(steps * part / 2)}
        row |= {f"zero_shot/{task}": float(200 * level * part * rng.normal(1, 0.2)) for task in tasks}
        row |= {
            "reward/intrinsic": float(level * np.exp(-part) + rng.normal(0, 0.05)),
            "critic/loss": float(rng.gamma(2)),
        }
        row |= {
            "coverage/fraction": float(0.6 * level * (1 - np.exp(-3 * part))),
            "coverage/cells": float(int(500 * part)),
        }
        if method in ("cic", "diayn"):
            row |= {"skill/accuracy": float(0.7 * (1 - np.exp(-5 * part))), "skill/chance": 1 / 16}
        if method == "cic":
            row |= {"embedding/effective_rank": float(10 + 20 * part)}
        rows.append(row)
    write_metrics(run, rows)
    status(run, state, int(steps * reached / points))
    if state == "finished":
        write_json(run / "result.json", {"step": steps, "coverage/fraction": 0.5})
    return run


def media(run: Path) -> None:
    """A picture of 2 × 2 grey pixels and a video that no player would show."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    png = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\x40\x80\0\xc0\xff")) + chunk(b"IEND", b"")
    for path, data in (("pictures/skills.png", b"\x89PNG\r\n\x1a\n" + png), ("pictures/skills.mp4", TINY_VIDEO)):
        (run / path).parent.mkdir(exist_ok=True)
        (run / path).write_bytes(data)


def benchmark(folder: Path, seeds: int = 5, domains: tuple[str, ...] = ("walker",)) -> int:
    """Every method on every task of the domains; returns how many runs that makes."""
    made = 0
    for method in METHODS:
        for domain in domains:
            for seed in range(seeds):
                if method != "ddpg" and seed < 2:
                    pretrain(folder, domain, method, seed)
                    made += 1
                for task in experts():
                    if task.startswith(f"{domain}-"):
                        finetune(folder, task, method, seed)
                        made += 1
    return made
