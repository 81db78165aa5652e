"""Run the named benchmarks, or all: every file here that can be run by itself is one, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def names() -> list[str]:
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return [file.stem for file in files if 'if __name__ == "__main__":' in file.read_text(encoding="utf-8")]


def main(chosen: list[str]) -> int:
    if {"-h", "--help"} & set(chosen):
        print(f"usage: python -m benchmarks [NAME …]\n\nNAME is one of {', '.join(names())}; without any, all run.")
        return 0
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    codes = []
    for name in chosen or names():
        print(f"\n── {name} ──", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
