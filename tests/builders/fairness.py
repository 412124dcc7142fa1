"""Progressive filling of demands on arrays by the product, and random demands."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from reference.drf import PooledJobs
from skedge.policies.drf.progressive_filling import ONE_PS, progressive_filling


def filled(jobs: PooledJobs, free_amounts: list[int], total: list[int] | None = None) -> list[int]:
    worker, ps, per_ps, max_workers = zip(*jobs, strict=True)
    free = np.array(free_amounts, float)
    total_amounts = free.copy() if total is None else np.array(total, float)
    limits = np.array(per_ps, float), np.array(max_workers, np.int64)
    demands = np.array(worker, float), np.array(ps, float)
    workers, n_ps = progressive_filling(*demands, *limits, free[None, :], total_amounts)
    assert n_ps[:, 0].tolist() == [-(-n // ratio) for n, ratio in zip(workers[:, 0].tolist(), per_ps, strict=True)]
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
