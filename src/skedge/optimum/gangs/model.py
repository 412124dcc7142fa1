"""She et al.'s problem (2) in integers, shared by the exact models, their bounds and the plans that they produce.

**The problem.** Minimise sum_j (c_j - a_j) over all schedules that give each job, once and for good, a gang: 1 to D_j
workers of its type on any servers and one PS of its type, all from its start to its completion (2a) to (2h). Nothing
is computed on a server before a_j + Delta_js (2i). Two constraints are read more widely than they are printed, so that
the bounds hold for every record with one gang per job: the PS may be on a server without the job's data, and a gang
that is allocated earlier and waits for its data (BatchSche, FIFO) counts from when it computes, as it could have been
allocated then.

**Dominated choices are left out.** A gang with n workers takes d(n) = E D M / (p n), rounded up to slots (H9); of the
numbers of workers that take equally long only the least is kept, as fewer workers block no other job. Of the schedules
that use workers of the cloud only one is kept per job: D_j workers and the PS there, from when its data are there. Any
other gang that uses the cloud starts no earlier, with no more workers at no higher speed; so it completes no earlier,
and also takes workers of the edge. With a cloud, the PS of a spread gang is there (xi = 0 either way). A job that is
slower with xi = 1 than with xi = 0 may not run as planned; the bounds hold for it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skedge.core.events import CLOUD
from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, whole_slots
from skedge.recorded_run import Run


@dataclass(frozen=True)
class Mode:
    """A way to train a job: together on one server (xi = 1) or spread, with `workers` workers, for `time` [units]."""

    colocated: bool
    workers: int
    time: int


@dataclass(frozen=True)
class GangJob:
    """A job.

    Attributes
    ----------
    kind, ps_kind
        u_j and v_j, columns of :attr:`GangModel.workers` and :attr:`GangModel.ps`.
    max_workers
        D_j.
    release
        When its data can be on each server [units], shape ``(servers,)``.
    servers
        Those of the edge that have workers for it.
    modes
        Its modes on the edge; empty if it cannot run there.
    cloud_completion
        When it is done if it is in the cloud [units]; -1 without a cloud.
    """

    kind: int
    ps_kind: int
    max_workers: int
    release: Ints
    servers: Ints
    modes: tuple[Mode, ...]
    cloud_completion: int

    def with_deadline(self, deadline: int) -> GangJob:
        """The job with only those servers and modes that can complete it by `deadline` [units] on the edge."""
        min_time = min((mode.time for mode in self.modes), default=0)
        # a server whose data come too late for even the shortest mode is never used
        servers = self.servers[self.release[self.servers] + min_time <= deadline]
        first = int(self.release[servers].min()) if len(servers) else deadline
        modes = tuple(mode for mode in self.modes if first + mode.time <= deadline)
        return replace(self, servers=servers, modes=modes)


@dataclass(frozen=True)
class GangPlan:
    """The plan of all jobs; a job without workers on the edge is in the cloud.

    Attributes
    ----------
    start, completion
        Start and completion [units], shape ``(jobs,)``.
    workers
        y_js, shape ``(jobs, servers)``.
    ps
        Server of the PS of every job; CLOUD for the cloud.
    colocated
        Whether each job is all on one server (xi = 1).
    """

    start: Ints
    completion: Ints
    workers: Ints
    ps: Ints
    colocated: np.ndarray

    @property
    def in_cloud(self) -> np.ndarray:
        """Whether each job is in the cloud."""
        return self.workers.sum(axis=1) == 0


@dataclass(frozen=True)
class GangModel:
    """The problem.

    Attributes
    ----------
    unit
        Unit of time [µs]: a slot, or 1 in continuous time.
    jobs
        In the scenario's order.
    workers, ps
        W_su and P_sv of the edge, shape ``(servers, types)``.
    cloud
        Number of the cloud, or None.
    arrival_sum
        Sum of the a_j [µs].
    """

    unit: int
    jobs: tuple[GangJob, ...]
    workers: Ints
    ps: Ints
    cloud: int | None
    arrival_sum: int

    def total(self, plan: GangPlan) -> int:
        """Sum of c_j - a_j [µs]."""
        return int(plan.completion.sum()) * self.unit - self.arrival_sum

    def ps_servers(self, job: GangJob) -> Ints:
        """Servers of the edge that have PSs for a job."""
        return np.flatnonzero(self.ps[:, job.ps_kind] > 0) if job.ps_kind >= 0 else np.empty(0, np.int64)

    def colocation_servers(self, job: GangJob, mode: Mode) -> Ints:
        """Servers that can hold a job alone, in a mode that is together."""
        servers = np.intersect1d(job.servers, self.ps_servers(job))
        return servers[self.workers[servers, job.kind] >= mode.workers]

    @cached_property
    def edge_earliest(self) -> Ints:
        """Earliest completion of every job alone on the edge [units]; NEVER if it cannot run there."""
        return np.array([self._edge_earliest(job) for job in self.jobs], np.int64)

    def _edge_earliest(self, job: GangJob) -> int:
        best = NEVER
        # a spread gang of n workers starts when enough servers have the data: those where they arrive first
        order = job.servers[np.argsort(job.release[job.servers], kind="stable")]
        worker_sums = np.cumsum(self.workers[order, job.kind]) if len(order) else order
        for mode in job.modes:
            if mode.colocated:
                first = int(job.release[self.colocation_servers(job, mode)].min())
            else:
                first = int(job.release[order[np.searchsorted(worker_sums, mode.workers)]])
            best = min(best, first + mode.time)
        return best

    @cached_property
    def cloud_completions(self) -> Ints:
        """Completion of every job in the cloud [units]; NEVER without a cloud."""
        return np.array([NEVER if job.cloud_completion < 0 else job.cloud_completion for job in self.jobs], np.int64)

    @cached_property
    def earliest(self) -> Ints:
        """Earliest completion of every job, alone [units]; NEVER if it can never run."""
        return np.minimum(self.edge_earliest, self.cloud_completions)

    def horizon(self, plan: GangPlan) -> Ints:
        """Latest completion of every job in some optimal schedule [units], given a feasible `plan`.

        While nothing runs and all data are there, later work can be moved forward, so that all is done at the latest
        when the last data are there and all jobs have then run one after the other. A job that completes later than the
        sum of `plan` less the other jobs' earliest completions makes the sum larger than that of `plan`. And a job that
        would complete later than in the cloud can go there.
        """
        last = max((int(job.release[job.servers].max()) for job in self.jobs if job.modes), default=0)
        longest = sum(max((mode.time for mode in job.modes), default=0) for job in self.jobs)
        slack = int(plan.completion.sum() - self.earliest.sum())
        latest = np.minimum(np.minimum(last + longest, self.earliest + slack), self.cloud_completions)
        # so that `plan` itself is within the horizon: solvers start from it
        return np.maximum(latest, plan.completion)


def gang_model(scenario: Scenario) -> GangModel:
    """The problem of a scenario whose servers have slots."""
    cluster, jobs = scenario.cluster, scenario.jobs
    edge = np.array([s != cluster.cloud for s in range(len(cluster.servers))])
    workers, ps = cluster.workers * edge[:, None], cluster.ps * edge[:, None]
    unit = scenario.physics.step
    slot_arrival = whole_slots(jobs.arrival, unit)
    colocated = scenario.physics.colocation == "one_server"
    gang_jobs = []
    for j in range(len(jobs)):
        release = (int(slot_arrival[j]) + upload_row(scenario.delays, j)) // unit
        kind, ps_kind, max_workers = int(jobs.worker_type[j]), int(jobs.ps_type[j]), int(jobs.chunks[j])
        work = scenario.true_work[j]
        server_workers = workers[:, kind] if kind >= 0 else np.zeros(len(edge), np.int64)
        servers = np.flatnonzero(server_workers)
        server_ps = ps[:, ps_kind] if ps_kind >= 0 else np.zeros(len(edge), np.int64)
        # a spread gang needs its PS somewhere: in the cloud, or on a server of the edge
        max_spread = int(server_workers.sum()) if cluster.cloud is not None or server_ps.any() else 0
        # xi = 1 needs a server that has both the workers and a PS
        max_colocated = int(server_workers[server_ps > 0].max(initial=0)) if colocated else 0
        modes = (
            *_modes(int(work[0]), min(max_workers, max_spread), unit, colocated=False),
            *_modes(int(work[1]), min(max_workers, max_colocated), unit, colocated=True),
        )
        cloud_completion = -1
        if cluster.cloud is not None:
            # in the cloud a job has all its D_j workers, at the better of its two rates
            cloud_completion = int(release[cluster.cloud]) + _time(int(work.min()), max_workers, unit)
        gang_jobs.append(GangJob(kind, ps_kind, max_workers, release, servers, modes, cloud_completion))
    return GangModel(unit, tuple(gang_jobs), workers, ps, cluster.cloud, int(jobs.arrival.sum()))


def _time(work: int, workers: int, unit: int) -> int:
    """d_j = E D M / (p D_u), rounded up to µs and then to units."""
    exact = -(-work // workers)
    return -(-exact // unit)


def _modes(work: int, max_workers: int, unit: int, *, colocated: bool) -> tuple[Mode, ...]:
    """The numbers of workers from 1 to `max_workers`; of those that take equally long, only the least."""
    modes = list[Mode]()
    for n in range(1, max_workers + 1):
        time = _time(work, n, unit)
        # more workers that take as long only block other jobs
        if not modes or time < modes[-1].time:
            modes.append(Mode(colocated, n, time))
    return tuple(modes)


def plan_of(model: GangModel, scenario: Scenario, result: Run) -> GangPlan:
    """The plan of a run with one gang per job, without workers that make no job faster.

    A job that would complete no later with all its workers in the cloud is placed there.
    """
    count, servers = len(model.jobs), len(model.workers)
    start, completion = np.zeros(count, np.int64), np.zeros(count, np.int64)
    workers, ps = np.zeros((count, servers), np.int64), np.full(count, CLOUD)
    server_index = {name: i for i, name in enumerate(scenario.cluster.server_ids)}
    colocated = np.zeros(count, bool)
    columns = ("job", "server", "workers", "compute_from", "end", "colocated")
    for job, server, n, begin, end, is_colocated in result.schedule.runs.select(columns).iter_rows():
        workers[job, server_index[server]], colocated[job] = n, is_colocated
        start[job], completion[job] = begin // model.unit, end // model.unit
    for job, server in result.schedule.ps.select("job", "server").iter_rows():
        ps[job] = CLOUD if server_index[server] == model.cloud else server_index[server]
    for j, job in enumerate(model.jobs):
        if model.cloud is not None and (workers[j, model.cloud] or job.cloud_completion <= completion[j]):
            workers[j], ps[j], completion[j], colocated[j] = 0, CLOUD, job.cloud_completion, False
            continue
        if model.cloud is not None and not colocated[j]:
            ps[j] = CLOUD
        # workers beyond the mode's make the job no faster, as times are rounded to slots: the plan gives them back
        mode = mode_of(job, int(workers[j].sum()), colocated=bool(colocated[j]))
        workers[j] = _first_workers(workers[j], mode.workers)
    return GangPlan(start, completion, workers, ps, colocated)


def mode_of(job: GangJob, workers: int, *, colocated: bool) -> Mode:
    """The mode that takes as long as `workers` workers do."""
    fitting = (mode for mode in job.modes if mode.colocated == colocated and mode.workers <= workers)
    return max(fitting, key=lambda mode: mode.workers)


def _first_workers(workers: Ints, n: int) -> Ints:
    """`n` of the workers, of the first servers."""
    prefix_sums = np.minimum(np.cumsum(workers), n)
    return np.diff(prefix_sums, prepend=0)


@dataclass(frozen=True)
class PlannedGang:
    """A planned gang: from `start` [µs] on the workers `placement`; the server of its PS, or CLOUD."""

    start: int
    placement: Placement
    ps: int


def gangs_of(model: GangModel, plan: GangPlan) -> dict[int, PlannedGang]:
    """The gangs of a plan by job."""
    gangs = {}
    for j, job in enumerate(model.jobs):
        placement = tuple((int(s), int(plan.workers[j, s])) for s in np.flatnonzero(plan.workers[j]))
        start = int(plan.start[j])
        # a plan has no workers in the cloud: there a job has all its D_j, from when its data are there
        if not placement and model.cloud is not None:
            placement, start = ((model.cloud, job.max_workers),), int(job.release[model.cloud])
        gangs[j] = PlannedGang(start * model.unit, placement, int(plan.ps[j]))
    return gangs
