"""Whether independent reference programs agree with the product on random instances, by policy and mode.

    python benchmarks/agreement.py [--instances 500] [--only aonline] [--first 0]

Prints per row of `tests/reference/agreement.py`: instances that decide something, how many agree, the CPU time, and the
seeds of those that do not agree with what differs. Exit code 1 if there are any. Rows whose reference tries everything
stop at a number of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.agreement import ROWS, Row, agrees


def compared(row: Row, instances: int, first: int) -> tuple[int, dict[int, str]]:
    """How many instances decided, and by seed what differs."""
    decided, differ = 0, {}
    wanted = min(instances, row.most or instances)
    for seed in count(first):
        try:
            decided += agrees(row, seed)
        except Exception as error:  # whatever is raised is a disagreement, and the table goes on
            decided += 1
            differ[seed] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if decided == wanted or seed - first > 20 * wanted:
            return decided, differ
    raise AssertionError


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", default="", help="part of the policy's name")
    asked = parser.parse_args()
    print(f"{'policy':10} {'mode':44} {'instances':>9} {'agree':>6} {'CPU s':>7}")
    wrong = 0
    for row in ROWS:
        if asked.only not in row.policy:
            continue
        began = time.process_time()
        decided, differ = compared(row, asked.instances, asked.first)
        spent = time.process_time() - began
        print(f"{row.policy:10} {row.mode:44} {decided:9} {decided - len(differ):6} {spent:7.1f}", flush=True)
        for seed, what in differ.items():
            print(f"    seed {seed}: {what}")
        wrong += len(differ)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
