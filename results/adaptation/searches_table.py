"""Regret and rank correlation of every search, from what `searches.py` measured.

python results/adaptation/searches_table.py results/adaptation/searches.csv.gz > results/adaptation/searches.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from cic.runs import study_tables

BUDGETS = (1_000, 2_000, 4_000)


def read(data: Path) -> list[dict[str, Any]]:
    found = study_tables.read_rows(data) if data.exists() else []
    assert not isinstance(found, str), found
    texts = ("run", "search", "task")
    return [{k: v if k in texts else float(v) if v else None for k, v in row.items()} for row in found]


def write(data: Path, rows: list[dict[str, Any]]) -> None:
    cells = [["" if value is None else value for value in row.values()] for row in rows]
    study_tables.write_rows(data, list(rows[0]), cells)


def table(data: Path) -> None:
    rows = read(data)
    groups: dict[tuple[str, str], dict[tuple[str, int], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        domain, method, _ = row["run"].split("-")
        groups[domain, method][row["search"], row["budget"]].append(row)
    for (domain, method), cells in groups.items():
        some = next(iter(cells.values()))
        best, typical = (np.mean([row[name] for row in some]) for name in ("best", "typical"))
        runs = len({row["run"] for row in some})
        print(f"\n{domain}, {method}: {runs} pre-trainings; best skill {best:.0f}, typical {typical:.0f}\n")
        print("| search | " + " | ".join(f"regret at {budget:,}" for budget in BUDGETS) + " | rank correlation |")
        print("|---|" + "---:|" * (len(BUDGETS) + 1))
        for name in sorted({search for search, _ in cells}):
            regrets, correlations = [], []
            for budget in BUDGETS:
                found = cells[name, budget]
                if not found:  # the tail of the replay, elsewhere than on point_mass
                    regrets.append("")
                    correlations.append("")
                    continue
                by_run: dict[str, list[float]] = defaultdict(list)
                for row in found:
                    by_run[row["run"]].append(row["best"] - row["return"])
                means = [np.mean(values) for values in by_run.values()]
                regrets.append(
                    f"{np.mean(means):.0f} ± {np.std(means, ddof=1) / len(means) ** 0.5 if runs > 1 else 0:.0f}"
                )
                known = [row["correlation"] for row in found if row["correlation"] is not None]
                correlations.append(f"{np.mean(known):.2f}" if known else "–")
            print(f"| {name} | " + " | ".join(regrets) + " | " + " / ".join(correlations) + " |")


if __name__ == "__main__":
    table(Path(sys.argv[1]))
