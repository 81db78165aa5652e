"""`python -m tests.faults --minutes 10 --seed 0`: inject faults that are drawn at random.

Each injection has the next seed: `--count 1 --seed 1234` repeats one that failed. `--only forged` restricts the kinds.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

from .campaign import Campaign
from .injections import COSTLY, KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--count", type=int, help="stop after so many injections")
    parser.add_argument("--seed", type=int, default=0, help="of the first injection")
    parser.add_argument("--only", default="", help="inject only faults whose name contains this text")
    parser.add_argument(
        "--home", type=Path, help="where run folders are made; by default the system's temporary folder"
    )
    given = parser.parse_args()
    if given.count is None and given.minutes == float("inf"):
        parser.error("one of --minutes and --count is required")
    kinds = [kind for kind in KINDS if given.only in kind and (given.only or kind not in COSTLY)]
    if not kinds:
        parser.error(f"--only must be part of a name: {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory(dir=given.home, prefix="faults-") as home:
        seeds = itertools.islice(itertools.count(given.seed), given.count)
        table = Campaign(Path(home), kinds).run(seeds, given.minutes)
        print(table)
        for seed, kind, name, wrong in table.failures:
            print(f"\nseed {seed}: {kind}: {name}\n{wrong}")
        return int(bool(table.failures))


sys.exit(main())
