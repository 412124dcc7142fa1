"""Every field of the public dataclasses with every hostile value of the tests: what is not refused runs.

    python benchmarks/fields.py [--part N/M]

Prints how many were refused and how many ran; an exception other than a ScenarioError ends it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.fields import FIELDS, HOSTILE, KINDS, attempted


def main() -> None:
    """Try all, or the N-th of M parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="0/1")
    part, parts = map(int, parser.parse_args().part.split("/"))
    warnings.simplefilter("error")
    found, failed = Counter[str](), []
    for i, (kind, place, value) in enumerate(product(KINDS, FIELDS, HOSTILE)):
        if i % parts != part:
            continue
        try:
            said = attempted(kind, *place, value)
        except Exception as error:  # what is looked for: any error that is not of the product's own kind
            failed.append(f"{kind.__name__} {place} {value!r:.60}: {type(error).__name__}: {error}")
            continue
        found["ran" if said == "ran" else "refused"] += 1
    print(dict(found), f"{len(failed)} failed", *failed, sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
