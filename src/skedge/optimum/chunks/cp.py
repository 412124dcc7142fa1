"""The chunk problem of one worker type for CP-SAT: intervals on the workers.

Every job has a number of chunks on every worker, and one optional interval between any two consecutive releases on that
worker, as a job can be interrupted only when another becomes ready (earliest deadline first, see :mod:`.model`). So
the model has an optimal schedule among its solutions, and every solution is a schedule.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.optimum.solvers import SolverResult, cp_solve, cp_tools

from .model import ChunkModel, ChunkPlan

_MAX_INTERVALS = 20_000
"""Most intervals of a model."""


def solve_intervals(model: ChunkModel, start: ChunkPlan, seconds: float) -> SolverResult[ChunkPlan]:
    """The best plan found within `seconds` from `start` on, and the bound proved on the sum of the completions [units].

    Raises
    ------
    InputError
        If OR-Tools is not installed.
    """
    size = sum(len(releases) for releases in model.release_times) * len(model.jobs)
    if size > _MAX_INTERVALS:
        return SolverResult(None, None, f"left out (more than {_MAX_INTERVALS} intervals)")
    cp = cp_tools()
    m = cp.CpModel()
    until = model.horizon(start)
    completion = [m.new_int_var(int(c), until, "") for c in model.earliest]
    in_cloud = [m.new_bool_var("") if c >= 0 else m.new_constant(0) for c in model.cloud_completion]
    count = [[m.new_int_var(0, int(d), "") for _ in model.lanes] for d in model.chunks]
    for j, d in enumerate(model.chunks):
        # all chunks are somewhere: on lanes, or all in the cloud (a mixed job is no earlier than one wholly there)
        m.add(sum(count[j]) + int(d) * in_cloud[j] == int(d))
        m.add(completion[j] >= int(model.cloud_completion[j])).only_enforce_if(in_cloud[j])
        m.add(completion[j] >= int(model.edge_earliest[j])).only_enforce_if(~in_cloud[j])
    for lane in range(len(model.lanes)):
        _add_lane(m, model, lane, [row[lane] for row in count], completion, until)
    _break_symmetry(m, model, count)
    # redundant: the known bound spares the solver its proof
    m.add(sum(completion) >= model.min_sum)
    for j, row in enumerate(count):
        m.add_hint(completion[j], int(start.completion[j]))
        for lane, n in enumerate(row):
            m.add_hint(n, int(start.count[j, lane]))
    m.minimize(sum(completion))

    def read(value: Any) -> ChunkPlan:
        # completions are variables, perhaps later than needed: `canonical` recomputes them from their order
        counts = np.array([[value(n) for n in row] for row in count], np.int64)
        return model.canonical(
            ChunkPlan(counts.reshape(start.count.shape), np.array([value(c) for c in completion], np.int64))
        )

    return cp_solve(m, seconds, read)


def _add_lane(m: Any, model: ChunkModel, lane: int, count: list[Any], completion: list[Any], until: int) -> None:
    """The intervals of one lane, none of which overlap; those of a job last as long as its chunks there."""
    edges: Ints = np.append(model.release_times[lane], until)
    intervals = []
    for j, n in enumerate(count):
        sizes = []
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            # no chunk of j before its data are on the lane; the last release may be after the horizon
            if begin < model.release[j, lane] or end <= begin:
                continue
            present, size = m.new_bool_var(""), m.new_int_var(0, end - begin, "")
            first, last = m.new_int_var(begin, end, ""), m.new_int_var(begin, end, "")
            intervals.append(m.new_optional_interval_var(first, size, last, present, ""))
            m.add(size == 0).only_enforce_if(~present)
            m.add(completion[j] >= last).only_enforce_if(present)
            sizes.append(size)
        m.add(sum(sizes) == int(model.chunk_time[j]) * n)
    m.add_no_overlap(intervals)


def _break_symmetry(m: Any, model: ChunkModel, count: list[list[Any]]) -> None:
    """Break symmetry: of identical lanes, an earlier one has no less load."""
    chunk_time = model.chunk_time.tolist()
    for group in model.lane_groups:
        for a, b in pairwise(group):
            m.add(sum(p * (row[a] - row[b]) for p, row in zip(chunk_time, count, strict=True)) >= 0)
