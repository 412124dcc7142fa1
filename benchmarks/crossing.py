"""Whether servers that fail go with every policy and every other feature, on random instances by cell.

    python benchmarks/crossing.py [--instances 500] [--feature cloud] [--policy aonline] [--first 0]

Prints per cell of `tests/builders/crossing.py`: instances, how many are right, the CPU time, and the seeds of the
others with what is wrong. Exit code 1 if there are any. Cells that the product refuses are left out; the tests name
them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.crossing import CELLS, REFUSED, fault, instances


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--feature", default="", help="part of the feature's name")
    parser.add_argument("--policy", default="", help="part of the policy's name")
    asked = parser.parse_args()
    print(f"{'feature':10} {'policy':26} {'instances':>9} {'right':>6} {'CPU s':>7}")
    wrong = 0
    for feature, policy in [cell for cell in CELLS if cell not in REFUSED]:
        if asked.feature not in feature or asked.policy not in policy:
            continue
        began = time.process_time()
        faults = {(seed, of): fault(feature, of, seed) for seed, of in instances(policy, asked.first, asked.instances)}
        faults = {at: what for at, what in faults.items() if what}
        spent = time.process_time() - began
        right = asked.instances - len(faults)
        print(f"{feature:10} {policy:26} {asked.instances:9} {right:6} {spent:7.1f}", flush=True)
        for (seed, of), what in faults.items():
            print(f"    {of}, seed {seed}: {what[:300]}")
        wrong += len(faults)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
