"""Set Dorm and Optimus against the plain programs of tests/reference on random instances; exit code 1 if one disagrees.

python benchmarks/machine_agreement.py [--instances 300] [--first 0]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from builders.machine_agreement import dorm_disagreement, optimus_disagreement


def main() -> None:
    """Print what disagrees, and how many instances agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    seeds, judged, wrong = range(asked.first, asked.first + asked.instances), 0, 0
    for seed in seeds:
        of_dorm, partitions = dorm_disagreement(seed)
        judged += partitions
        for policy, said in (("optimus", optimus_disagreement(seed)), ("dorm", of_dorm)):
            if said:
                wrong += 1
                print(f"{policy}, instance {seed}: {said}")
    print(f"{len(seeds)} instances each, {judged} partitions of dorm: {wrong} disagree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
