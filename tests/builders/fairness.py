"""Progressive filling of demands on arrays, by the product and in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from skedge.policies.drf.progressive_filling import ONE_PS, progressive_filling

Demands = list[tuple[tuple[int, ...], tuple[int, ...], int, int]]
"""Of each job: what a worker takes, what a PS takes, workers per PS, most workers."""


def filled(jobs: Demands, left: list[int], total: list[int] | None = None) -> list[int]:
    worker, ps, per_ps, most = zip(*jobs, strict=True)
    room = np.array(left, float)
    whole = room.copy() if total is None else np.array(total, float)
    limits = np.array(per_ps, float), np.array(most, np.int64)
    demands = np.array(worker, float), np.array(ps, float)
    workers, servers = progressive_filling(*demands, *limits, room[None, :], whole)
    assert servers[:, 0].tolist() == [-(-n // each) for n, each in zip(workers[:, 0].tolist(), per_ps, strict=True)]
    return workers[:, 0].tolist()


def used(of: tuple[Any, ...], count: int) -> list[int]:
    """What so many workers take, PSs included."""
    worker, ps, per_ps, _ = of
    return [count * w + -(-count // per_ps) * p for w, p in zip(worker, ps, strict=True)]


def share(of: tuple[Any, ...], count: int, total: list[int]) -> Fraction:
    return max(Fraction(u, t) for u, t in zip(used(of, count), total, strict=True))


def fits(jobs: Demands, counts: list[int], left: list[int]) -> bool:
    sums = [sum(part) for part in zip(*(used(of, n) for of, n in zip(jobs, counts, strict=True)), strict=True)]
    return all(s <= room for s, room in zip(sums, left, strict=True))


def plainly_filled(jobs: Demands, left: list[int], total: list[int]) -> list[int]:
    """Word for word: the least share first; one whose task does not fit drops out; exact fractions."""
    counts, out = [0] * len(jobs), {j for j, of in enumerate(jobs) if of[3] == 0}
    while len(out) < len(jobs):
        j = min((j for j in range(len(jobs)) if j not in out), key=lambda j: (share(jobs[j], counts[j], total), j))
        more = [n + (i == j) for i, n in enumerate(counts)]
        if not fits(jobs, more, left):
            out.add(j)
            continue
        counts = more
        if counts[j] == jobs[j][3]:
            out.add(j)
    return counts


demands = st.integers(1, 3).flatmap(
    lambda kinds: st.tuples(
        st.lists(
            st.tuples(
                st.tuples(*[st.integers(0, 4)] * kinds).filter(any),
                st.tuples(*[st.integers(0, 2)] * kinds),
                st.sampled_from([1, 2, 3, int(ONE_PS)]),
                st.integers(0, 6),
            ),
            min_size=1,
            max_size=5,
        ),
        st.lists(st.integers(0, 25), min_size=kinds, max_size=kinds),
        st.lists(st.integers(1, 30), min_size=kinds, max_size=kinds),
    )
)
