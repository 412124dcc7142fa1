"""She et al.'s problem (2) for CP-SAT: an interval for every job, whose height on a server is its workers there.

====================== =======================================================================
variable               is
====================== =======================================================================
b[j, k]                1 iff job j is trained in mode k (:class:`.model.Mode`)
o[j]                   1 iff it is in the cloud
y[j, s]                its workers on server s; present there iff y > 0
t[j, s]                1 iff all of it, PS included, is on server s (xi = 1)
z[j, s]                1 iff its PS is on server s
h, c[j]                its start and its completion
====================== =======================================================================

Workers of a type and PSs of a type on a server are a cumulative constraint each, and so are all workers of a type
together, which is redundant. Exact also in continuous time, where a unit is a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skedge.core.events import CLOUD
from skedge.optimum.solvers import SolverResult, cp_solve, cp_tools

from .model import GangJob, GangModel, GangPlan, mode_of

_MAX_INTERVALS = 20_000
"""Most intervals of a model."""


def solve_gang_intervals(model: GangModel, start: GangPlan, min_sum: int, seconds: float) -> SolverResult[GangPlan]:
    """The best plan found within `seconds`, and the bound proved on the sum of the completions [units].

    Parameters
    ----------
    model, start
        The problem, and a feasible plan: it limits the horizon, and is a hint.
    min_sum
        A bound on the sum of the completions [units].
    seconds
        Limit of wall time [s].

    Raises
    ------
    InputError
        If OR-Tools is not installed.
    """
    until = model.horizon(start)
    if sum(len(job.with_deadline(int(until[j])).servers) for j, job in enumerate(model.jobs)) > _MAX_INTERVALS:
        return SolverResult(None, None, f"left out (more than {_MAX_INTERVALS} intervals)")
    return _Intervals(model, start).solve(min_sum, seconds)


@dataclass(frozen=True)
class _Variables:
    """The variables of a job: 1 iff it is in the cloud, b, h, the end on the edge, its length, its workers, and c.

    y, t and z are by server (see the table above).
    """

    cloud: Any
    mode: list[Any]
    begin: Any
    end: Any
    size: Any
    n: Any
    completion: Any
    y: dict[int, Any] = field(default_factory=dict)
    t: dict[int, Any] = field(default_factory=dict)
    z: dict[int, Any] = field(default_factory=dict)


class _Intervals:
    def __init__(self, model: GangModel, start: GangPlan) -> None:
        self.model, self.start_plan = model, start
        self.m = cp_tools().CpModel()
        self.on_workers: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        self.on_ps: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        until = model.horizon(start)
        self.variables = [
            self._add_job(j, job.with_deadline(int(until[j])), int(until[j])) for j, job in enumerate(model.jobs)
        ]

    def solve(self, min_sum: int, seconds: float) -> SolverResult[GangPlan]:
        """Solve, and read the plan and the bound on the sum of the completions."""
        for rows, room in ((self.on_workers, self.model.workers), (self.on_ps, self.model.ps)):
            for (server, kind), entries in rows.items():
                # -1 stands for all servers together: the redundant row
                limit = room[:, kind].sum() if server < 0 else room[server, kind]
                self.m.add_cumulative([i for i, _ in entries], [n for _, n in entries], int(limit))
        total = sum(v.completion for v in self.variables)
        # redundant: the known bound spares the solver its proof
        self.m.add(total >= min_sum)
        self.m.minimize(total)
        return cp_solve(self.m, seconds, self._plan)

    def _add_job(self, j: int, job: GangJob, until: int) -> _Variables:
        """The variables of a job, its constraints, and bounds known for it."""
        m = self.m
        first = int(job.release[job.servers].min()) if job.modes else 0
        in_cloud = m.new_bool_var("") if job.cloud_completion >= 0 else m.new_constant(0)
        mode = [m.new_bool_var("") for _ in job.modes]
        # so the sums below are the mode's time and its workers, or 0 in the cloud
        m.add_exactly_one([in_cloud, *mode])
        size = m.new_int_var(0, max((k.time for k in job.modes), default=0), "")
        begin, end = m.new_int_var(first, max(until, first), ""), m.new_int_var(first, max(until, first), "")
        n = m.new_int_var(0, max((k.workers for k in job.modes), default=0), "")
        m.add(size == sum(k.time * b for k, b in zip(job.modes, mode, strict=True)))
        m.add(n == sum(k.workers * b for k, b in zip(job.modes, mode, strict=True)))
        completion = m.new_int_var(0, max(until, job.cloud_completion), "")
        m.add(completion == end).only_enforce_if(~in_cloud)
        m.add(completion == job.cloud_completion).only_enforce_if(in_cloud)
        v = _Variables(in_cloud, mode, begin, end, size, n, completion)
        interval = m.new_optional_interval_var(begin, size, end, ~in_cloud, "")
        # redundant: server -1 stands for all of them together
        if job.modes:
            self.on_workers.setdefault((-1, job.kind), []).append((interval, n))
        self._add_workers(job, v)
        self._add_colocation(job, v)
        self._add_ps(job, v)
        self._hint(j, job, v)
        return v

    def _add_workers(self, job: GangJob, v: _Variables) -> None:
        m, y = self.m, v.y
        for s in job.servers.tolist():
            y[s] = m.new_int_var(0, min(int(self.model.workers[s, job.kind]), job.max_workers), "")
            # CP-SAT wants a literal for the presence of an interval, tied to y > 0 both ways
            present = m.new_bool_var("")
            m.add(y[s] >= 1).only_enforce_if(present)
            m.add(y[s] == 0).only_enforce_if(~present)
            m.add(v.begin >= int(job.release[s])).only_enforce_if(present)
            interval = m.new_optional_interval_var(v.begin, v.size, v.end, present, "")
            self.on_workers.setdefault((s, job.kind), []).append((interval, y[s]))
        m.add(sum(y.values()) == v.n)

    def _add_colocation(self, job: GangJob, v: _Variables) -> None:
        """t: if the mode is together, exactly one server, which has all workers."""
        m = self.m
        colocated_modes = [b for k, b in zip(job.modes, v.mode, strict=True) if k.colocated]
        for s in np.intersect1d(job.servers, self.model.ps_servers(job)).tolist() if colocated_modes else ():
            v.t[s] = m.new_bool_var("")
            m.add(v.y[s] == v.n).only_enforce_if(v.t[s])
        m.add(sum(v.t.values()) == sum(colocated_modes))

    def _add_ps(self, job: GangJob, v: _Variables) -> None:
        """z: with a cloud, on an edge server only if all are together there; else on exactly one server."""
        m, cloud = self.m, self.model.cloud is not None
        for s in self.model.ps_servers(job).tolist():
            if cloud and s not in v.t:
                continue
            # with a cloud the PS is on an edge server only if all is there, so t says it already
            z = v.z[s] = v.t[s] if cloud else m.new_bool_var("")
            if s in v.t:
                m.add_implication(v.t[s], z)
            interval = m.new_optional_interval_var(v.begin, v.size, v.end, z, "")
            self.on_ps.setdefault((s, job.ps_kind), []).append((interval, 1))
        if not cloud:
            m.add_exactly_one(list(v.z.values()))

    def _hint(self, j: int, job: GangJob, v: _Variables) -> None:
        """Hint the known plan of the job to the solver."""
        m, plan = self.m, self.start_plan
        m.add_hint(v.completion, int(plan.completion[j]))
        if job.cloud_completion >= 0:
            m.add_hint(v.cloud, bool(plan.in_cloud[j]))
        for s, y in v.y.items():
            m.add_hint(y, int(plan.workers[j, s]))
        # a plan says nothing of the start and the servers of a job in the cloud
        if plan.in_cloud[j]:
            return
        m.add_hint(v.begin, int(plan.start[j]))
        m.add_hint(v.end, int(plan.completion[j]))
        chosen = mode_of(job, int(plan.workers[j].sum()), colocated=bool(plan.colocated[j]))
        for k, b in zip(job.modes, v.mode, strict=True):
            m.add_hint(b, k == chosen)
        for s, t in v.t.items():
            m.add_hint(t, chosen.colocated and plan.workers[j, s] > 0)
        for s, z in v.z.items():
            # with a cloud z is t, which has its hint
            if z is not v.t.get(s):
                m.add_hint(z, s == plan.ps[j])

    def _plan(self, value: Any) -> GangPlan:
        workers = np.zeros((len(self.variables), len(self.model.workers)), np.int64)
        ps = np.full(len(self.variables), CLOUD)
        colocated = np.zeros(len(self.variables), bool)
        for j, v in enumerate(self.variables):
            for s, y in v.y.items():
                workers[j, s] = value(y)
            for s, z in v.z.items():
                if value(z):
                    ps[j] = s
            colocated[j] = any(value(t) for t in v.t.values())
        start = np.array([value(v.begin) for v in self.variables], np.int64)
        completion = np.array([value(v.completion) for v in self.variables], np.int64)
        return GangPlan(start, completion, workers, ps, colocated)
