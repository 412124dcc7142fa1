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
from skedge.optimum.solvers import Rows, SolverResult, milp

from .model import GangJob, GangModel, GangPlan, Mode, mode_of

_MAX_VARIABLES = 60_000
"""Most variables."""


def solve_gangs_time_indexed(model: GangModel, start: GangPlan, min_sum: int, seconds: float) -> SolverResult[GangPlan]:
    """The best plan found within `seconds`, and the bound proved on the sum of the completions [units].

    Parameters
    ----------
    model, start
        The problem, and a feasible plan: it limits the horizon, and the solver starts from it.
    min_sum
        A bound on the sum of the completions [units].
    seconds
        Limit of wall time [s].

    Raises
    ------
    InputError
        If highspy is not installed.
    """
    until = model.horizon(start)
    size = sum(_size(model, job.with_deadline(int(until[j])), int(until[j])) for j, job in enumerate(model.jobs))
    if size > _MAX_VARIABLES:
        return SolverResult(None, None, f"left out (more than {_MAX_VARIABLES} variables)")
    return _TimeIndexed(model, start).solve(min_sum, seconds)


def _size(model: GangModel, job: GangJob, until: int) -> int:
    """An upper bound on the variables of a job."""
    if not job.modes:
        return 1
    # a colocated mode has one column a server, a spread one x and one a server; p only without a cloud
    first = int(job.release[job.servers].min())
    wide = 1 + len(job.servers) + (len(model.ps_servers(job)) if model.cloud is None else 0)
    return 1 + sum(max(0, until - mode.time + 1 - first) * wide for mode in job.modes)


@dataclass(frozen=True)
class _StartOption:
    """A start of job j in unit `unit` in a mode: columns of x and, by server, of its workers and its PS."""

    job: int
    mode: Mode
    unit: int
    x: int
    server: int | None = None
    workers: dict[int, int] = field(default_factory=dict)
    ps: dict[int, int] = field(default_factory=dict)


class _TimeIndexed:
    def __init__(self, model: GangModel, start: GangPlan) -> None:
        self.model, self.start_plan = model, start
        self.cost, self.upper, self.rows = list[float](), list[float](), Rows()
        self.load: dict[tuple[str, int, int, int], list[tuple[int, float]]] = {}
        until = model.horizon(start)
        self.cloud_columns, self.options = list[int](), list[_StartOption]()
        for j, job in enumerate(model.jobs):
            self.cloud_columns.append(
                self._column(float(max(job.cloud_completion, 0)), float(job.cloud_completion >= 0))
            )
            job_options = list(self._options(j, job.with_deadline(int(until[j])), int(until[j])))
            self.rows.add([(self.cloud_columns[j], 1.0), *((option.x, 1.0) for option in job_options)], 1, 1)
            self.options += job_options
        for (role, s, kind, _), terms in self.load.items():
            self.rows.add(terms, -np.inf, float((model.workers if role == "worker" else model.ps)[s, kind]))

    def _column(self, cost: float, upper: float) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def _options(self, j: int, job: GangJob, until: int) -> Iterator[_StartOption]:
        for mode in job.modes:
            if mode.colocated:
                for s in self.model.colocation_servers(job, mode).tolist():
                    for t in range(int(job.release[s]), until - mode.time + 1):
                        yield self._colocated_option(j, job, mode, t, s)
            else:
                for t in range(int(job.release[job.servers].min()), until - mode.time + 1):
                    # Eq. (2i): nothing is computed on a server before its data are there
                    servers = [s for s in job.servers.tolist() if job.release[s] <= t]
                    if self.model.workers[servers, job.kind].sum() >= mode.workers:
                        yield self._spread_option(j, job, mode, t, servers)

    def _colocated_option(self, j: int, job: GangJob, mode: Mode, t: int, s: int) -> _StartOption:
        x = self._column(float(t + mode.time), 1.0)
        self._add_load("worker", s, job.kind, t, mode, x, float(mode.workers))
        self._add_load("ps", s, job.ps_kind, t, mode, x, 1.0)
        return _StartOption(j, mode, t, x, s)

    def _spread_option(self, j: int, job: GangJob, mode: Mode, t: int, servers: list[int]) -> _StartOption:
        x = self._column(float(t + mode.time), 1.0)
        option = _StartOption(j, mode, t, x)
        for s in servers:
            max_workers = float(min(self.model.workers[s, job.kind], mode.workers))
            w = option.workers[s] = self._column(0.0, max_workers)
            # w <= most x: workers only in the unit and the mode that are chosen
            self.rows.add([(w, 1.0), (x, -max_workers)], -np.inf, 0)
            self._add_load("worker", s, job.kind, t, mode, w, 1.0)
        self.rows.add([*((w, 1.0) for w in option.workers.values()), (x, -float(mode.workers))], 0, 0)
        if self.model.cloud is None:
            for s in self.model.ps_servers(job).tolist():
                p = option.ps[s] = self._column(0.0, 1.0)
                self._add_load("ps", s, job.ps_kind, t, mode, p, 1.0)
            self.rows.add([*((p, 1.0) for p in option.ps.values()), (x, -1.0)], 0, 0)
        return option

    def _add_load(self, role: str, server: int, kind: int, t: int, mode: Mode, column: int, amount: float) -> None:
        # a gang holds its workers and its PS from its start to its completion
        for unit in range(t, t + mode.time):
            self.load.setdefault((role, server, kind, unit), []).append((column, amount))

    def solve(self, min_sum: int, seconds: float) -> SolverResult[GangPlan]:
        """Solve, and read the plan and the bound on the sum of the completions."""
        cost, upper = np.array(self.cost), np.array(self.upper)
        self.rows.add([(int(i), float(cost[i])) for i in np.flatnonzero(cost)], min_sum - 1e-6, np.inf)
        result = milp(cost, upper, np.ones(len(cost), bool), self.rows, self._point(), seconds, gap=0.5)
        # the sum of completions is an integer, so a bound may be rounded up (1e-3: the solver's tolerance)
        return result.map(self._plan, lambda bound: float(np.ceil(bound - 1e-3)))

    def _point(self) -> Floats:
        """The values of the variables for the known plan."""
        x, plan = np.zeros(len(self.cost)), self.start_plan
        # (mode, start, server if xi = 1) identifies a start option of a job
        chosen = {}
        for j in np.flatnonzero(~plan.in_cloud).tolist():
            colocated = bool(plan.colocated[j])
            mode = mode_of(self.model.jobs[j], int(plan.workers[j].sum()), colocated=colocated)
            server = int(np.argmax(plan.workers[j])) if colocated else None
            chosen[j] = mode, int(plan.start[j]), server
        for j in np.flatnonzero(plan.in_cloud).tolist():
            x[self.cloud_columns[j]] = 1.0
        for option in self.options:
            if chosen.get(option.job) == (option.mode, option.unit, option.server):
                x[option.x] = 1.0
                for s, w in option.workers.items():
                    x[w] = plan.workers[option.job, s]
                for s, p in option.ps.items():
                    x[p] = plan.ps[option.job] == s
        return x

    def _plan(self, x: Floats) -> GangPlan:
        n_jobs = len(self.model.jobs)
        start, completion, ps = np.zeros(n_jobs, np.int64), np.zeros(n_jobs, np.int64), np.full(n_jobs, CLOUD)
        workers, colocated = np.zeros((n_jobs, len(self.model.workers)), np.int64), np.zeros(n_jobs, bool)
        for j, job in enumerate(self.model.jobs):
            completion[j] = job.cloud_completion
        for option in self.options:
            # binaries come back within the solver's tolerance of 0 or 1
            if x[option.x] < 0.5:
                continue
            j, server = option.job, option.server
            start[j], completion[j] = option.unit, option.unit + option.mode.time
            if server is not None:
                workers[j, server], ps[j], colocated[j] = option.mode.workers, server, True
            for s, w in option.workers.items():
                workers[j, s] = round(x[w])
            for s, p in option.ps.items():
                ps[j] = s if x[p] > 0.5 else ps[j]
        return GangPlan(start, completion, workers, ps, colocated)
