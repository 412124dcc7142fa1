"""Accuracy over how unlike a job's chunks are: undisturbed, preempted, with a bounded lag, and on one lane.

    python benchmarks/heterogeneity.py [--seeds 10] [--sorted 0,0.25,0.5,0.75,1] [--epochs 10] [--figure FILE.svg]

No Ray is needed: the situations and their rounds are those of ``tests/live/test_heterogeneity.py``. A row for each
situation and share of samples that are sorted by label (the others are anywhere), samples not shuffled, and one with
the samples shuffled over the chunks where all are sorted: mean accuracy, its 95 % interval over the seeds, and the
mean difference to *undisturbed*, seed by seed. `--figure` draws them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "live"))

import test_heterogeneity as by

from skedge.analysis.intervals import Estimate, bounded, estimate
from skedge.core.model import Floats
from skedge.studies.figure import Figure, Line, svg


def shown(found: Estimate) -> str:
    """A mean with its interval."""
    return f"{found.mean:.3f}" + ("" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]")


def row(name: str, what: str, found: Floats, alone: Floats) -> Estimate:
    """Print one situation; returns its mean accuracy."""
    of = bounded(found)
    print(f"{name:12}  {what:15}  {shown(of):22}  {shown(estimate(found - alone)):>24}", flush=True)
    return of


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sorted", default="0,0.25,0.5,0.75,1")
    parser.add_argument("--epochs", type=int, default=by.EPOCHS)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    by.EPOCHS, shares = given.epochs, [float(share) for share in given.sorted.split(",")]
    lines = {name: list[Estimate]() for name in by.SITUATIONS}
    print(f"{'':12}  {'':15}  {'accuracy':22}  {'less undisturbed':>24}")
    for shuffle, share in [*((False, share) for share in shares), (True, 1.0)]:
        alone: Floats | None = None
        for name in by.SITUATIONS:
            accuracies = by.trained(by.in_situation(name), shuffle=shuffle, mixed=1 - share, seeds=given.seeds)
            found = np.array(accuracies)
            alone = found if alone is None else alone
            mean = row(name, "shuffled" if shuffle else f"{100 * share:g} % sorted", found, alone)
            if not shuffle:
                lines[name].append(mean)
    if given.figure:
        drawn = tuple(Line(name, tuple(100 * s for s in shares), tuple(of)) for name, of in lines.items())
        title = "Accuracy by how unlike the chunks are, samples not shuffled over them"
        figure = Figure(title, "samples sorted by label [%]", "accuracy", drawn, limits=(0.0, 1.0))
        given.figure.write_text(svg(figure) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
