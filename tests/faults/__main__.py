"""`python -m tests.faults --minutes 10 --seed 0`: a campaign; `--fuzz 10000`: forged configs and states instead.

Seeds go up from the given one, an injection each: `--count 1 --seed 1234` repeats one that failed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

from .campaign import Campaign
from .fuzz import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--count", type=int, help="stop after so many injections")
    parser.add_argument("--seed", type=int, default=0, help="of the first injection")
    parser.add_argument("--fuzz", type=int, help="forge so many configs and states, with right checksums")
    parser.add_argument(
        "--home", type=Path, help="where run folders are made; by default the system's temporary folder"
    )
    given = parser.parse_args()
    if given.count is None and given.fuzz is None and given.minutes == float("inf"):
        parser.error("say --minutes, --count or --fuzz")
    with tempfile.TemporaryDirectory(dir=given.home, prefix="faults-") as home:
        if given.fuzz is not None:
            report = fuzz(Path(home), given.fuzz, given.seed)
            print(report)
            return int(bool(report.failures))
        seeds = itertools.islice(itertools.count(given.seed), given.count)
        table = Campaign(Path(home)).run(seeds, given.minutes)
        print(table)
        for seed, kind, name, wrong in table.failures:
            print(f"\nseed {seed}: {kind}: {name}\n{wrong}")
        return int(bool(table.failures))


sys.exit(main())
