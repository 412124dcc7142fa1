"""The two sums of Lemma 4 of JSAC'22, computed independently: alpha from the decisions, beta from the lanes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Columns
from skedge.analysis.sweeps import bounds, in_groups
from skedge.core.jit import lean
from skedge.core.model import Ints
from skedge.core.time import SECOND


def sum_alpha_s(c: Columns) -> float | None:
    """Sum of alpha_jd = min Q over all dispatched chunks [s], as recorded by the policy; None if it recorded none.

    A planned schedule has no alpha; its values are NaN.
    """
    value = c.dispatches.frame["value"].fill_nan(None)
    return None if value.len() == value.null_count() else float(value.sum())


def sum_beta_s(c: Columns) -> float | None:
    """Sum over all lanes of the integral of beta_sw(t) over time [s]; None if nothing is dispatched.

    beta_sw(t) is the sum of 1/D_j over the chunks that are dispatched to the lane and not completed at t. The cloud's
    private workers count (ERRATA J25), as one lane. A chunk counts from its release r_j to the end of its last run;
    chunks that never run are omitted.
    """
    d, jobs = c.dispatches, c.scenario.jobs
    d = d.only((d.frame["verb"] == "dispatch").to_numpy())
    if not len(d):
        return None
    first = c.first_chunk
    run = first[c.chunks["job"]] + c.chunks["chunk"]
    _, last, _ = bounds(run, c.chunks["start"], c.chunks["end"], int(first[-1]))
    done = last[first[d["job"]] + d["chunk"]]
    lanes = c.scenario.cluster.lanes
    lane = np.where(done < 0, -1, np.where(d["lane"] < 0, lanes, d["lane"])).astype(np.int32)
    release = jobs.arrival[d["job"]]
    coming, begin = in_groups(lane, release, lanes + 1)
    going, _ = in_groups(lane, done, lanes + 1)
    weight = 1 / jobs.chunks[d["job"]]
    return float(_integral(coming, going, begin, release, done, weight)) / SECOND


@lean
def _integral(coming: Ints, going: Ints, first: Ints, start: Ints, end: Ints, weight: NDArray[np.float64]) -> float:
    """Integral over time of the weight on each lane, summed over lanes: the area under the lanes' step functions.

    `coming` and `going` are the rows of each lane by `start` and by `end`; those of lane l begin at ``first[l]``.
    """
    area = 0.0
    for lane in range(len(first) - 1):
        present, at, k = 0.0, 0, first[lane]
        for m in range(first[lane], first[lane + 1]):
            leaves = end[going[m]]
            while k < first[lane + 1] and start[coming[k]] <= leaves:
                area += present * (start[coming[k]] - at)
                at = start[coming[k]]
                present += weight[coming[k]]
                k += 1
            area += present * (leaves - at)
            at = leaves
            present -= weight[going[m]]
    return area
