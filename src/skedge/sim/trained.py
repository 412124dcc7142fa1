"""Measured progress of the jobs, put into the state that a forecast starts from.

A kernel believes in progress at the announced speed, corrected by measurements from then on; a live run knows the
mini-batches that were trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from skedge.core.engine.lanes import COUNT, EACH, JOB, LEFT, UNKNOWN, bring_to
from skedge.core.engine.ledger import DISPATCHED
from skedge.core.events import CLOUD
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Floats


def believe_trained(kernel: Kernel, shares: Mapping[int, Floats], now: int) -> None:
    """Correct what is left of jobs in the system.

    Parameters
    ----------
    kernel
        Whose belief is corrected.
    shares
        Of each chunk the share that is trained, in [0, 1], by job.
    now
        The time at which they were read [µs].
    """
    lanes = kernel.belief
    bring_to(lanes, np.arange(len(lanes.clock)), now)
    for job, share in shares.items():
        if kernel.status[job] == DISPATCHED:
            _on_lanes(kernel, job, share)
        elif kernel.engine.holds(job) and not kernel.books.work:
            work = int(kernel.engine.total_work(np.array([job]))[0])
            kernel.engine.set_left(job, round(work * float(1 - share.mean())), now)


def _on_lanes(kernel: Kernel, job: int, share: Floats) -> None:
    """Correct the chunk in service of a job on each of its lanes; those on their way have not begun."""
    lanes, lane_of = kernel.belief, kernel.sent[job]
    for lane in np.unique(lane_of[lane_of != CLOUD]).tolist():
        rows = lanes.rows[lane, : lanes.waiting[lane]]
        own_rows = np.flatnonzero(rows[:, JOB] == job)
        if len(own_rows) != 1:  # chunks that were sent again are groups of their own: which is which is not known
            continue
        row, left = rows[own_rows[0]], float((1 - share[lane_of == lane]).sum())
        chunk_time = int(row[EACH])
        # LEFT 0 would be a completed chunk, which only a fact may report
        row[LEFT] = max(1, round((left - (row[COUNT] - 1)) * chunk_time))
        lanes.n_intervals[lane] = UNKNOWN
