"""Sweeps over intervals by group, against plain definitions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from skedge.analysis import row_groups
from skedge.analysis.row_groups import bounds, counts, in_groups, merged, overlapping, sums
from skedge.core.model.time import NEVER


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


def test_bounds_and_sums_are_those_of_each_group() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        group, start, end = intervals(rng, in_order=False)
        flag, value = rng.random(len(group)) < 0.5, rng.random(len(group))
        first, last, count = bounds(group, start, end, 3)
        length, flagged = sums(group, end - start, 3), sums(group, flag.astype(np.int64), 3)
        total = sums(group, value, 3)
        for g in range(3):
            mine = np.flatnonzero(group == g)
            assert first[g] == min(start[mine], default=NEVER)
            assert last[g] == max(end[mine], default=-1)
            assert (count[g], flagged[g]) == (len(mine), flag[mine].sum())
            assert length[g] == (end - start)[mine].sum()
            assert total[g] == pytest.approx(value[mine].sum())


@pytest.mark.parametrize("number", [-1, 3, 10**9, 2**32])
def test_a_row_of_no_group_is_an_error_and_writes_nowhere(number: int) -> None:
    """Metrics are also made of records that were not verified."""
    group, time = np.array([0, number]), np.array([1, 2])
    for sweep in (
        lambda: bounds(group, time, time, 3),
        lambda: sums(group, time, 3),
    ):
        with pytest.raises(IndexError, match="there are 3"):
            sweep()


def test_rows_in_groups_are_of_one_type_in_any_order() -> None:
    """A kernel is compiled once."""
    for group in ([0, 0, 1], [1, 0, 1], [-1, 0, 2], [2, -1, 0]):
        rows, first = in_groups(np.array(group, np.int32), np.array([3, 5, 5]), 3)
        assert rows.tolist() == [i for g in range(3) for i in range(3) if group[i] == g]
        assert first.tolist() == [sum(0 <= g < k for g in group) for k in range(4)]
        assert not rows.flags.writeable


def test_rows_are_counted_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "_CHUNK_ROWS", 4)
    rng = np.random.default_rng(7)
    for rows in (0, 3, 4, 5, 30):
        group = rng.integers(0, 6, rows).astype(np.int32)
        assert counts(group, 8).tolist() == [group.tolist().count(k) for k in range(8)]
