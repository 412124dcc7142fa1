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
from skedge.optimum.solvers import Found, cp_solve, cp_tools

from .model import ChunkModel, ChunkPlan

_MOST = 20_000
"""Most intervals of a model."""


def solve_intervals(model: ChunkModel, start: ChunkPlan, seconds: float) -> Found[ChunkPlan]:
    """Solve from `start` on, for at most `seconds`.

    Raises
    ------
    InputError
        If OR-Tools is not installed.
    """
    size = sum(len(releases) for releases in model.releases) * len(model.jobs)
    if size > _MOST:
        return Found(None, None, f"left out (more than {_MOST} intervals)")
    cp = cp_tools()
    m = cp.CpModel()
    until = model.horizon(start)
    done = [m.new_int_var(int(c), until, "") for c in model.earliest]
    away = [m.new_bool_var("") if c >= 0 else m.new_constant(0) for c in model.away]
    count = [[m.new_int_var(0, int(d), "") for _ in model.lanes] for d in model.chunks]
    for j, d in enumerate(model.chunks):
        m.add(sum(count[j]) + int(d) * away[j] == int(d))
        m.add(done[j] >= int(model.away[j])).only_enforce_if(away[j])
        m.add(done[j] >= int(model.first[j])).only_enforce_if(~away[j])
    for lane in range(len(model.lanes)):
        _lane(m, model, lane, [row[lane] for row in count], done, until)
    _in_order(m, model, count)
    # redundant: the known bound spares the solver its proof
    m.add(sum(done) >= model.least)
    for j, row in enumerate(count):
        m.add_hint(done[j], int(start.done[j]))
        for lane, n in enumerate(row):
            m.add_hint(n, int(start.count[j, lane]))
    m.minimize(sum(done))

    def read(value: Any) -> ChunkPlan:
        found = np.array([[value(n) for n in row] for row in count], np.int64)
        return model.settled(ChunkPlan(found.reshape(start.count.shape), np.array([value(c) for c in done], np.int64)))

    return cp_solve(m, seconds, read)


def _lane(m: Any, model: ChunkModel, lane: int, count: list[Any], done: list[Any], until: int) -> None:
    """The intervals of one lane, none of which overlap; those of a job last as long as its chunks there."""
    edges: Ints = np.append(model.releases[lane], until)
    intervals = []
    for j, n in enumerate(count):
        sizes = []
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if begin < model.ready[j, lane] or end <= begin:
                continue
            there, size = m.new_bool_var(""), m.new_int_var(0, end - begin, "")
            first, last = m.new_int_var(begin, end, ""), m.new_int_var(begin, end, "")
            intervals.append(m.new_optional_interval_var(first, size, last, there, ""))
            m.add(size == 0).only_enforce_if(~there)
            m.add(done[j] >= last).only_enforce_if(there)
            sizes.append(size)
        m.add(sum(sizes) == int(model.each[j]) * n)
    m.add_no_overlap(intervals)


def _in_order(m: Any, model: ChunkModel, count: list[list[Any]]) -> None:
    """Break symmetry: of identical lanes, an earlier one has no less load."""
    each = model.each.tolist()
    for group in model.alike:
        for a, b in pairwise(group):
            m.add(sum(p * (row[a] - row[b]) for p, row in zip(each, count, strict=True)) >= 0)
