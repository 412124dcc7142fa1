"""Accuracy of a model whose chunks are sorted by label, by how its samples and its chunks are taken.

    python benchmarks/heterogeneity.py [--seeds 2] [--epochs 10]

No Ray is needed: rounds are those of ``tests/live/test_heterogeneity.py``, all chunks *together*, or one chunk after
another as on one lane. A row for samples shuffled over the chunks or not, with an accuracy for each seed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "live"))

import test_heterogeneity as by


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=by.EPOCHS)
    given = parser.parse_args()
    by.EPOCHS, steps = given.epochs, given.epochs * by.MINIBATCHES
    orders = {
        "together": [range(by.CHUNKS)] * steps,
        "one by one": [[chunk] for chunk in range(by.CHUNKS) for _ in range(steps)],
    }
    for shuffle in (True, False):
        for name, rounds in orders.items():
            found = [by.accuracy(by.program(seed, shuffle=shuffle), rounds) for seed in range(given.seeds)]
            print(f"shuffle {str(shuffle).lower():5}  {name:10}  {'  '.join(f'{share:.3f}' for share in found)}")


if __name__ == "__main__":
    main()
