"""The chunk problem of one worker type for HiGHS: a time-indexed integer program.

====================== =======================================================================
variable               1 iff
====================== =======================================================================
y[j, l, t]             worker l trains a chunk of job j in unit t
n[j, l]                (whole number) chunks of j on l
o[j]                   j is in the cloud
z[j, t]                j, on the edge, is not done before unit t; so c_j is ready_j + sum_t z
====================== =======================================================================

Rows: all chunks are somewhere; a worker trains one job at a time, for each of its chunks p_j; y <= z; z falls.
Redundant rows that tighten the relaxation: c_j is at least the mean of the times at which j is trained plus half of
D_j p_j / min(D_j, m); and the sum of the c_j is at least the known bound.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.optimum.solvers import Rows, SolverResult, milp

from .model import ChunkModel, ChunkPlan

_MAX_VARIABLES = 60_000
"""Most variables y."""


def solve_time_indexed(model: ChunkModel, start: ChunkPlan, seconds: float) -> SolverResult[ChunkPlan]:
    """The best plan found within `seconds` from `start` on, and the bound proved on the sum of the completions [units].

    Raises
    ------
    InputError
        If highspy is not installed.
    """
    until = model.horizon(start)
    size = int(np.maximum(until - model.release, 0).sum())
    if size > _MAX_VARIABLES:
        return SolverResult(None, None, f"left out (more than {_MAX_VARIABLES} variables)")
    return _TimeIndexed(model, until).solve(start, seconds)


class _TimeIndexed:
    def __init__(self, model: ChunkModel, until: int) -> None:
        self.model = model
        n_jobs, n_lanes = len(model.jobs), len(model.lanes)
        self.release = np.minimum(model.release, until)
        self.first_unit = self.release.min(axis=1)
        # offsets of the blocks of variables: y by job and lane, then n, o, and z by job
        self.y = np.cumsum(np.concatenate([[0], (until - self.release).ravel()])).astype(np.int64)
        self.n = int(self.y[-1])
        self.o = self.n + n_jobs * n_lanes
        self.z = self.o + n_jobs + np.cumsum(np.concatenate([[0], until - self.first_unit]))
        self.size = int(self.z[-1])

    def y_at(self, j: int, lane: int, t: int) -> int:
        """Number of y[j, lane, t]."""
        return int(self.y[j * len(self.model.lanes) + lane]) + t - int(self.release[j, lane])

    def z_at(self, j: int, t: int) -> int:
        """Number of z[j, t]."""
        return int(self.z[j]) + t - int(self.first_unit[j])

    def y_range(self, j: int, lane: int) -> range:
        """Numbers of y[j, lane, .]."""
        i = j * len(self.model.lanes) + lane
        return range(int(self.y[i]), int(self.y[i + 1]))

    def solve(self, start: ChunkPlan, seconds: float) -> SolverResult[ChunkPlan]:
        """Solve, and read the plan and the bound on the sum of the completions."""
        model, jobs = self.model, len(self.model.jobs)
        cost = np.zeros(self.size)
        cost[self.z[0] :] = 1.0
        cost[self.o : self.o + jobs] = model.cloud_completion - self.first_unit
        upper = np.ones(self.size)
        upper[self.n : self.o] = np.repeat(model.chunks, len(model.lanes))
        upper[self.o : self.o + jobs] = model.cloud_completion >= 0
        integer = np.ones(self.size, bool)
        integer[self.z[0] :] = False
        rows = Rows()
        for j in range(jobs):
            self._add_job_rows(rows, j)
        self._add_lane_rows(rows)
        # z counts from the first time at which a job can be trained; what is before it is a constant
        constant = int(self.first_unit.sum())
        rows.add([(int(i), float(cost[i])) for i in np.flatnonzero(cost)], model.min_sum - constant - 1e-6, np.inf)
        result = milp(cost, upper, integer, rows, self._point(start), seconds, gap=0.5)
        return result.map(self._plan, lambda bound: float(np.ceil(bound + constant - 1e-3)))

    def _add_job_rows(self, rows: Rows, j: int) -> None:
        model, lanes, d = self.model, len(self.model.lanes), float(self.model.chunks[j])
        z = range(int(self.z[j]), int(self.z[j + 1]))
        rows.add([(self.n + j * lanes + lane, 1.0) for lane in range(lanes)] + [(self.o + j, d)], d, d)
        for lane in range(lanes):
            y = self.y_range(j, lane)
            rows.add([(i, 1.0) for i in y] + [(self.n + j * lanes + lane, -float(model.chunk_time[j]))], 0, 0)
            # y of a lane begins when the lane's data are there, z with the earliest lane
            offset = int(self.release[j, lane] - self.first_unit[j])
            for i, z_index in zip(y, z[offset:], strict=True):
                rows.add([(z_index, 1.0), (i, -1.0)], 0, np.inf)
        # a job that is not done before t + 1 is not done before t either
        for earlier, later in pairwise(z):
            rows.add([(earlier, 1.0), (later, -1.0)], 0, np.inf)
        # c_j is at least the earliest completion on the edge, or o_j = 1
        least, work = float(model.edge_earliest[j] - self.first_unit[j]), d * float(model.chunk_time[j])
        rows.add([(i, 1.0) for i in z] + [(self.o + j, least)], least, np.inf)
        # redundant: the completion is at least the mean time of training plus half the least length
        half = work / float(model.max_workers[j]) / 2
        mean = [
            (i, -(k + 0.5 + float(self.release[j, lane] - self.first_unit[j])) / work)
            for lane in range(lanes)
            for k, i in enumerate(self.y_range(j, lane))
        ]
        rows.add([(i, 1.0) for i in z] + [(self.o + j, half), *mean], half, np.inf)

    def _add_lane_rows(self, rows: Rows) -> None:
        model, jobs = self.model, range(len(self.model.jobs))
        until = int(self.first_unit[0] + self.z[1] - self.z[0])
        # one chunk at a time on a worker
        for lane in range(len(model.lanes)):
            for t in range(int(self.release[:, lane].min()), until):
                rows.add([(self.y_at(j, lane, t), 1.0) for j in jobs if t >= self.release[j, lane]], -np.inf, 1)
        for group in model.lane_groups:
            # break symmetry: of identical lanes, an earlier one has no less load
            for a, b in pairwise(group):
                load = [(j, lane, sign) for j in jobs for lane, sign in ((a, 1.0), (b, -1.0))]
                terms = [(self.n + j * len(model.lanes) + lane, s * float(model.chunk_time[j])) for j, lane, s in load]
                rows.add(terms, 0, np.inf)

    def _point(self, plan: ChunkPlan) -> Floats:
        """The values of the variables under `plan`."""
        x, model = np.zeros(self.size), self.model
        x[self.n : self.o] = plan.count.ravel()
        x[self.o : self.o + len(model.jobs)] = plan.in_cloud
        for lane, pieces in enumerate(model.lane_schedules(plan)):
            for job, begin, end in pieces:
                x[self.y_at(job, lane, begin) : self.y_at(job, lane, end)] = 1.0
        for j in np.flatnonzero(~plan.in_cloud):
            x[int(self.z[j]) : self.z_at(int(j), int(plan.completion[j]))] = 1.0
        return x

    def _plan(self, x: Floats) -> ChunkPlan:
        model, shape = self.model, (len(self.model.jobs), len(self.model.lanes))
        count = np.rint(x[self.n : self.o]).astype(np.int64).reshape(shape)
        completion: Ints = np.where(count.sum(axis=1) == 0, model.cloud_completion, 0)
        for j, lane in zip(*np.nonzero(count), strict=True):
            # the last unit in which j is trained on the lane
            busy = np.flatnonzero(x[self.y_range(int(j), int(lane))] > 0.5)
            completion[j] = max(completion[j], int(self.release[j, lane]) + int(busy[-1]) + 1)
        return model.canonical(ChunkPlan(count, completion))
