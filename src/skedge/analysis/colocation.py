"""Zeta of dispatched jobs over time: whether a job is wholly in the cloud, where communication is free (M10)."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Bools, Floats, Ints

from .columns import Array, Columns
from .row_groups import counts


class Colocation:
    """Zeta by job: 1 while the last dispatch of all its chunks was to the cloud, else 0.

    It changes only when chunks are dispatched again.

    Attributes
    ----------
    last
        By job: zeta after its last dispatch; 0 for jobs that are not dispatched.
    """

    def __init__(self, c: Columns) -> None:
        d, count = c.dispatches, len(c.scenario.jobs)
        total, edge = counts(d["job"], count), counts(d["job"][d["lane"] >= 0], count)
        self.last: Ints = ((total > 0) & (edge == 0)).astype(np.int64)
        jobs = np.unique(d["job"][d.has("verb", "redispatch")]).tolist()
        self._changes = {job: _changes(c, job) for job in jobs}
        for job, (_, colocated) in self._changes.items():
            self.last[job] = colocated[-1]

    def at(self, job: Array, time: Array) -> Ints:
        """Zeta of each job at each time [µs]; before its first dispatch, the value after it."""
        colocated = self.last[job]
        for changed_job, (times, values) in self._changes.items():
            rows = np.flatnonzero(job == changed_job)
            colocated[rows] = values[np.maximum(np.searchsorted(times, time[rows], side="right") - 1, 0)]
        return colocated

    def always(self, job: Array, start: Array, end: Array, value: Array | int) -> Bools:
        """Whether zeta of each job is `value` from each start to each end [µs].

        Parameters
        ----------
        job
            Job of each row, shape ``(rows,)``.
        start, end
            Times of each row [µs].
        value
            0 or 1, of each row or of all.
        """
        values = np.broadcast_to(value, job.shape)
        same: Bools = self.last[job] == values
        for changed_job, (times, colocated) in self._changes.items():
            rows = np.flatnonzero(job == changed_job)
            first, last = (np.maximum(np.searchsorted(times, time[rows], side="right") - 1, 0) for time in (start, end))
            # periods with zeta = 1 before each change
            n_ones = np.concatenate([[0], np.cumsum(colocated)])
            same[rows] = n_ones[last + 1] - n_ones[first] == values[rows] * (last + 1 - first)
        return same

    def changed_jobs(self) -> list[int]:
        """Jobs whose zeta changes."""
        return [job for job, (_, colocated) in self._changes.items() if colocated.min() < colocated.max()]

    def converted_time(self, job: int, start: int, end: int, durations: Ints) -> float:
        """Time from `start` to `end`, converted to time at the last zeta [µs].

        Parameters
        ----------
        job
            A job whose chunks are dispatched again.
        start, end
            Times [µs].
        durations
            p of the job by zeta [µs], shape ``(2,)``.
        """
        times, colocated = self._changes[job]
        edges = np.clip([start, *times[1:], end], start, end)
        factor: Floats = durations[self.last[job]] / durations[colocated]
        return float(np.diff(edges) @ factor)


def _changes(c: Columns, job: int) -> tuple[Ints, Ints]:
    """Times of the dispatches of a job [µs], ascending, and zeta from each on."""
    d = c.dispatches
    rows = np.flatnonzero(d["job"] == job)
    times, lanes = np.unique(d["time"][rows]), np.zeros(int(c.scenario.jobs.chunks[job]), np.int64)
    colocated = np.zeros(len(times), np.int64)
    for i, time in enumerate(times):
        now = rows[d["time"][rows] == time]
        lanes[d["chunk"][now]] = d["lane"][now]
        # chunks that were not dispatched yet are on lane 0 here: not in the cloud
        colocated[i] = (lanes < 0).all()
    return times, colocated
