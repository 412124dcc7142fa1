"""The two sums of Lemma 4 of JSAC'22, computed independently: alpha from the decisions, beta from the lanes."""

from __future__ import annotations

import numpy as np

from skedge.analysis.columns import Columns, once
from skedge.analysis.row_groups import bounds
from skedge.core.model.time import SECOND


@once
def sum_alpha_s(c: Columns) -> float | None:
    """Sum of alpha_jd = min Q over all dispatched chunks [s], as recorded by the policy; None if it recorded none.

    A planned schedule has no alpha; its values are NaN.
    """
    value = c.dispatches.frame["value"].fill_nan(None)
    return None if value.len() == value.null_count() else float(value.sum())


@once
def sum_beta_s(c: Columns) -> float | None:
    """Sum over all lanes of the integral of beta_sw(t) over time [s]; None if nothing is dispatched.

    beta_sw(t) is the sum of 1/D_j over the chunks that are dispatched to the lane and not completed at t; a chunk adds
    1/D_j from its release r_j to the end of its last run. The cloud's private workers count (ERRATA J25). Chunks that
    never run are omitted.
    """
    d, jobs, first = c.dispatches, c.scenario.jobs, c.first_chunk
    # A chunk that is dispatched again, after an outage, counts once: beta knows when it was released and when it is
    # done.
    is_new = d.has("verb", "dispatch")
    if not is_new.any():
        return None
    number = first[c.chunks["job"]] + c.chunks["chunk"]
    _, last_end, _ = bounds(number, c.chunks["start"], c.chunks["end"], int(first[-1]))
    job, completion = d["job"], last_end[first[d["job"]] + d["chunk"]]
    counts = is_new & (completion >= 0)
    job, completion = job[counts], completion[counts]
    # The integral of 1/D_j from r_j to the completion, chunk by chunk. In place, as there may be millions of chunks:
    # `jobs.arrival[job]` is a copy already.
    share, response = (1 / jobs.chunks)[job], jobs.arrival[job]
    share *= np.subtract(completion, response, out=response)
    return float(share.sum()) / SECOND
