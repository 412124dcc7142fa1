"""Compute the hashes and the proved bounds of the suite of `skedge bench`, and write them beside it.

Run once for each version of the suite: `python benchmarks/freeze_suite.py [SIZE ...]`; other sizes stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from skedge.bench import suite

FILE = Path(suite.__file__).with_name(f"suite-{suite.VERSION}.json")


def main(sizes: tuple[str, ...]) -> None:
    """Write what :func:`skedge.bench.suite.frozen_table` computes."""
    stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for size in sizes:
        stored[size] = {}
    for task, frozen in suite.frozen_table(sizes):
        stored[task.size].setdefault(task.name, []).append(frozen)
        print(task.size, task.name, task.seed, frozen["bound"], frozen["value"], flush=True)
        FILE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or suite.SIZES)
