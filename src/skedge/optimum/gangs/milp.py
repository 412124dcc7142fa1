"""She et al.'s problem (2) for HiGHS: a time-indexed integer program.

====================== =======================================================================
variable               is
====================== =======================================================================
x[j, k, t]             1 iff job j begins in unit t in mode k, spread
w[j, k, t, s]          (whole number) its workers on server s then
p[j, k, t, s]          1 iff its PS is on server s then; only where there is no cloud
x[j, k, t, s]          1 iff it begins in unit t in mode k with all on server s (xi = 1)
o[j]                   1 iff it is in the cloud
====================== =======================================================================

Rows: each job starts once; the workers of a mode are placed, at most as many as the server has, and so is the PS; in
every unit the workers and the PSs of a server are enough for what runs. Redundant: the sum of the c_j is at least the
known bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from skedge.core.events import CLOUD
from skedge.core.model.cluster import Floats
from skedge.optimum.solvers import Found, Rows, milp

from .model import GangJob, GangModel, GangPlan, Mode, mode_of

_MOST = 60_000
"""Most variables."""


def solve_gangs_time_indexed(model: GangModel, start: GangPlan, least: int, seconds: float) -> Found[GangPlan]:
    """Solve from `start` on; `least` is a bound on the sum of the completions [units].

    Raises
    ------
    InputError
        If highspy is not installed.
    """
    until = model.horizon(start)
    size = sum(_size(model, job.done_by(int(until[j])), int(until[j])) for j, job in enumerate(model.jobs))
    if size > _MOST:
        return Found(None, None, f"left out (more than {_MOST} variables)")
    return _TimeIndexed(model, start).solve(least, seconds)


def _size(model: GangModel, job: GangJob, until: int) -> int:
    """An upper bound on the variables of a job."""
    if not job.modes:
        return 1
    first = int(job.ready[job.servers].min())
    wide = 1 + len(job.servers) + (len(model.with_ps(job)) if model.cloud is None else 0)
    return 1 + sum(max(0, until - mode.time + 1 - first) * wide for mode in job.modes)


@dataclass(frozen=True)
class _Begin:
    """A start of job j in unit `at` in a mode: columns of x and, by server, of its workers and its PS."""

    job: int
    mode: Mode
    at: int
    x: int
    server: int | None = None
    workers: dict[int, int] = field(default_factory=dict)
    ps: dict[int, int] = field(default_factory=dict)


class _TimeIndexed:
    def __init__(self, model: GangModel, start: GangPlan) -> None:
        self.model, self.known = model, start
        self.cost, self.upper, self.rows = list[float](), list[float](), Rows.none()
        self.load: dict[tuple[str, int, int, int], list[tuple[int, float]]] = {}
        until = model.horizon(start)
        self.away, self.begins = list[int](), list[_Begin]()
        for j, job in enumerate(model.jobs):
            self.away.append(self._column(float(max(job.away, 0)), float(job.away >= 0)))
            mine = list(self._begins(j, job.done_by(int(until[j])), int(until[j])))
            self.rows.add([(self.away[j], 1.0), *((begin.x, 1.0) for begin in mine)], 1, 1)
            self.begins += mine
        for (what, s, kind, _), terms in self.load.items():
            self.rows.add(terms, -np.inf, float((model.workers if what == "worker" else model.ps)[s, kind]))

    def _column(self, cost: float, upper: float) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def _begins(self, j: int, job: GangJob, until: int) -> Iterator[_Begin]:
        for mode in job.modes:
            if mode.together:
                for s in self.model.places(job, mode).tolist():
                    for t in range(int(job.ready[s]), until - mode.time + 1):
                        yield self._on_one(j, job, mode, t, s)
            else:
                for t in range(int(job.ready[job.servers].min()), until - mode.time + 1):
                    there = [s for s in job.servers.tolist() if job.ready[s] <= t]
                    if self.model.workers[there, job.kind].sum() >= mode.workers:
                        yield self._spread(j, job, mode, t, there)

    def _on_one(self, j: int, job: GangJob, mode: Mode, t: int, s: int) -> _Begin:
        x = self._column(float(t + mode.time), 1.0)
        self._hold("worker", s, job.kind, t, mode, x, float(mode.workers))
        self._hold("ps", s, job.ps_kind, t, mode, x, 1.0)
        return _Begin(j, mode, t, x, s)

    def _spread(self, j: int, job: GangJob, mode: Mode, t: int, servers: list[int]) -> _Begin:
        x = self._column(float(t + mode.time), 1.0)
        begin = _Begin(j, mode, t, x)
        for s in servers:
            most = float(min(self.model.workers[s, job.kind], mode.workers))
            w = begin.workers[s] = self._column(0.0, most)
            # w <= most x: workers only in the unit and the mode that are chosen
            self.rows.add([(w, 1.0), (x, -most)], -np.inf, 0)
            self._hold("worker", s, job.kind, t, mode, w, 1.0)
        self.rows.add([*((w, 1.0) for w in begin.workers.values()), (x, -float(mode.workers))], 0, 0)
        if self.model.cloud is None:
            for s in self.model.with_ps(job).tolist():
                p = begin.ps[s] = self._column(0.0, 1.0)
                self._hold("ps", s, job.ps_kind, t, mode, p, 1.0)
            self.rows.add([*((p, 1.0) for p in begin.ps.values()), (x, -1.0)], 0, 0)
        return begin

    def _hold(self, what: str, server: int, kind: int, t: int, mode: Mode, column: int, amount: float) -> None:
        for unit in range(t, t + mode.time):
            self.load.setdefault((what, server, kind, unit), []).append((column, amount))

    def solve(self, least: int, seconds: float) -> Found[GangPlan]:
        """Solve, and read the plan and the bound on the sum of the completions."""
        cost, upper = np.array(self.cost), np.array(self.upper)
        self.rows.add([(int(i), float(cost[i])) for i in np.flatnonzero(cost)], least - 1e-6, np.inf)
        found = milp(cost, upper, np.ones(len(cost), bool), self.rows, self._point(), seconds, gap=0.5)
        plan = None if found.solution is None else self._plan(found.solution)
        # the sum of completions is an integer, so a bound may be rounded up (1e-3: the solver's tolerance)
        bound = None if found.bound is None else float(np.ceil(found.bound - 1e-3))
        return Found(plan, bound, found.message)

    def _point(self) -> Floats:
        """The values of the variables for the known plan."""
        x, known = np.zeros(len(self.cost)), self.known
        chosen = {}
        for j in np.flatnonzero(~known.away).tolist():
            together = bool(known.together[j])
            mode = mode_of(self.model.jobs[j], int(known.workers[j].sum()), together=together)
            server = int(np.argmax(known.workers[j])) if together else None
            chosen[j] = mode, int(known.start[j]), server
        for j in np.flatnonzero(known.away).tolist():
            x[self.away[j]] = 1.0
        for begin in self.begins:
            if chosen.get(begin.job) == (begin.mode, begin.at, begin.server):
                x[begin.x] = 1.0
                for s, w in begin.workers.items():
                    x[w] = known.workers[begin.job, s]
                for s, p in begin.ps.items():
                    x[p] = known.ps[begin.job] == s
        return x

    def _plan(self, x: Floats) -> GangPlan:
        count = len(self.model.jobs)
        start, done, ps = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, CLOUD)
        workers, together = np.zeros((count, len(self.model.workers)), np.int64), np.zeros(count, bool)
        for j, job in enumerate(self.model.jobs):
            done[j] = job.away
        for begin in self.begins:
            # binaries come back within the solver's tolerance of 0 or 1
            if x[begin.x] < 0.5:
                continue
            j, server = begin.job, begin.server
            start[j], done[j] = begin.at, begin.at + begin.mode.time
            if server is not None:
                workers[j, server], ps[j], together[j] = begin.mode.workers, server, True
            for s, w in begin.workers.items():
                workers[j, s] = round(x[w])
            for s, p in begin.ps.items():
                ps[j] = s if x[p] > 0.5 else ps[j]
        return GangPlan(start, done, workers, ps, together)
