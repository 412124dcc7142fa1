"""Dorm and Optimus against programs of their own; ``benchmarks/machine_agreement.py`` takes any number of instances."""

from __future__ import annotations

import pytest

from builders.machine_agreement import dorm_disagreement, optimus_disagreement


@pytest.mark.parametrize("seed", range(24))
def test_a_run_of_optimus_is_the_plain_one_slot_by_slot(seed: int) -> None:
    """Counts, places and the work that is left, which make the next counts; both kinds of tasks, both ends."""
    assert optimus_disagreement(seed) == ""


@pytest.mark.parametrize("seed", range(16))
def test_every_partition_of_dorm_is_the_best_of_all(seed: int) -> None:
    """At each arrival and completion of a run, within both bounds, with no PS too many; by trying every partition."""
    wrong, judged = dorm_disagreement(seed)
    assert wrong == ""
    assert judged > 3
