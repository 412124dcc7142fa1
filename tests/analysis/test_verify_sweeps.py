"""Sweeps over intervals by group, against plain definitions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skedge.analysis.sweeps import merged, overlapping


def intervals(rng: np.random.Generator, *, in_order: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups, starts and ends of some intervals."""
    n = int(rng.integers(0, 12))
    group, start = rng.integers(0, 3, n), rng.integers(0, 20, n)
    start = np.sort(start) if in_order else start
    return group, start, start + rng.integers(1, 8, n)


def test_a_row_overlaps_if_an_earlier_one_of_its_group_has_not_ended() -> None:
    rng = np.random.default_rng(1)
    for case in range(200):
        group, start, end = intervals(rng, in_order=case % 2 == 0)
        order = np.argsort(start, kind="stable").tolist()
        late = [
            i
            for k, i in enumerate(order)
            if any(group[j] == group[i] and start[i] < end[j] - 1 for j in order[:k])
        ]  # fmt: skip
        assert overlapping(group, start, end, 3, 1).tolist() == late


def test_a_row_within_a_long_one_overlaps_also_after_a_short_one() -> None:
    group, start, end = np.zeros(3, np.int64), np.array([0, 1, 5]), np.array([10, 2, 6])
    assert overlapping(group, start, end, 1, 0).tolist() == [1, 2]


def test_merged_intervals_cover_the_same_times_and_do_not_touch() -> None:
    rng = np.random.default_rng(2)
    for case in range(200):
        group, start, end = intervals(rng, in_order=case % 2 == 0)
        of, begins, ends = merged(group, start, end, 3)
        for g in range(3):
            inside = {t for i in np.flatnonzero(group == g) for t in range(start[i], end[i])}
            mine = list(zip(begins[of == g].tolist(), ends[of == g].tolist(), strict=True))
            assert {t for a, b in mine for t in range(a, b)} == inside
            assert all(b < c for (_, b), (c, _) in pairwise(mine))
        assert (np.diff(of) >= 0).all()
