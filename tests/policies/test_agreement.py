"""A few instances of every reference program; ``benchmarks/agreement.py`` runs hundreds of each."""

from __future__ import annotations

import pytest

from reference.agreement import ROWS, Row, agrees

SAMPLE = 3
"""Instances of each, on seeds of their own; the tests of each policy have many more."""


QUICK = [row for row in ROWS if row.most is None]
"""Exhaustive references are slow, and have samples in the tests of the optimum."""


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.policy}: {row.mode}")
def test_the_product_agrees_with_the_reference_program(row: Row) -> None:
    seeds = range(10_000, 10_000 + 10 * SAMPLE)
    decided = 0
    for seed in seeds:
        decided += agrees(row, seed)
        if decided == SAMPLE:
            return
    pytest.fail(f"only {decided} of {len(seeds)} instances decide anything")
