"""Progressive filling of demands on arrays by the product, and random demands."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from reference.drf import PooledJobs
from skedge.policies.drf.progressive_filling import ONE_PS, progressive_filling


def filled(jobs: PooledJobs, left: list[int], total: list[int] | None = None) -> list[int]:
    worker, ps, per_ps, most = zip(*jobs, strict=True)
    room = np.array(left, float)
    whole = room.copy() if total is None else np.array(total, float)
    limits = np.array(per_ps, float), np.array(most, np.int64)
    demands = np.array(worker, float), np.array(ps, float)
    workers, servers = progressive_filling(*demands, *limits, room[None, :], whole)
    assert servers[:, 0].tolist() == [-(-n // each) for n, each in zip(workers[:, 0].tolist(), per_ps, strict=True)]
    return workers[:, 0].tolist()


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
