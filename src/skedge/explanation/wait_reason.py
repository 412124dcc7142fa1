"""Why a job waits: a stable token with its numbers, from the kernel's books."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skedge.core.engine.lanes import ARRIVE, JOB, RANK, SEQ
from skedge.core.engine.ledger import DISPATCHED, REJECTED, WAITING
from skedge.core.events import CLOUD, OUT_OF_SERVICE
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints
from skedge.core.model.job_fields import Kind
from skedge.core.model.sharing import Sharing
from skedge.core.model.size import megabytes
from skedge.core.model.time import SECOND

TOKENS = {
    "running": "it runs",
    "stalled": "it runs, but no mini-batch has come for long; its process was started again",
    "storage_away": "it runs, but its checkpoints cannot be written or read now; it goes on when they can be",
    "uploading": "its data are on their way",
    "lane_busy": "chunks of better rank hold its lanes",
    "no_workers": "fewer workers of its type are free than it needs",
    "no_ps": "no parameter server of its type is free",
    "no_storage": "no qualified server has room for its chunks",
    "server_out": "what it needs is on servers that are out of service",
    "reserved": "its workers are reserved from a later time on",
    "quota": "its tenant's jobs hold as many workers as its quota lets them",
    "behind": "jobs that the policy ranks before it go first",
    "no_room": "no server has enough of a resource free for one of its workers",
    "never_fits": "the cluster can never run it",
    "rejected": "the policy has turned it away",
    "completed": "all its chunks are trained",
    "failed": "it cannot be trained",
    "cancelled": "it was cancelled",
}
"""The tokens, and what each means."""


@dataclass(frozen=True)
class WaitReason:
    """The reason why a job is not running, or that it is.

    Attributes
    ----------
    token
        One of :data:`TOKENS`.
    resource, need, free
        The resource that it lacks, the amount needed and the amount free.
    blocker
        Id of the job that holds the resource or goes first.
    until_s
        When the wait ends, if known [s].
    on
        Servers that the job is bound to, if any: it waits there even if other servers are free.
    late_s
        Delay so far compared with what was announced [s].
    """

    token: str
    resource: str | None = None
    need: float | None = None
    free: float | None = None
    blocker: str | None = None
    until_s: float | None = None
    on: tuple[str, ...] = ()
    late_s: float | None = None

    def __str__(self) -> str:
        """One sentence."""
        server_text = f" on {', '.join(self.on)}" if self.on else ""
        numbers = (
            f": needs {self.need:g} {self.resource}{server_text}, {self.free:g} free" if self.need is not None else ""
        )
        blocker_text = f", {self.blocker} is before it" if self.blocker else ""
        until_text = f", until {self.until_s:.1f} s" if self.until_s is not None else ""
        delay_text = f", {self.late_s:.1f} s later than announced" if self.late_s is not None else ""
        return TOKENS[self.token] + numbers + blocker_text + until_text + delay_text


def wait_reason(kernel: Kernel, job: int, now: int | None = None, overdue: int = 0) -> WaitReason:
    """The reason why `job`, which has arrived, is not running, or that it is running.

    Parameters
    ----------
    kernel
        The state of the run; it is not changed.
    job
        Number of the job.
    now
        The present [µs]; None: the time of the kernel's last event, which in a live run lies in the past.
    overdue
        How long its data are overdue [µs], which the kernel does not see; 0 if they are not.
    """
    now = kernel.now if now is None else now
    status = int(kernel.status[job])
    if status == REJECTED:
        return WaitReason("never_fits" if kernel.record.rejected[job].startswith("never_fits") else "rejected")
    if status not in (WAITING, DISPATCHED):
        # it has left: what is on record is the reason
        state = kernel.record.state(job)
        return WaitReason("completed" if state == "finished" else state)
    if kernel.engine.holds(job):
        # a placed gang starts when its last upload has arrived
        start = kernel.books.begins(job)
        if overdue > 0 or start > now:
            return _uploading(start, overdue)
    if kernel.is_running(job):
        return WaitReason("running") if kernel.books.has_ps(job) else _without_ps(kernel, job)
    if status == DISPATCHED:
        return _on_lanes(kernel, job, now) if overdue <= 0 else _uploading(None, overdue)
    # a policy dispatches chunks if it ever has; lost chunks are those of a dispatched job
    dispatched = kernel.dispatches or job in kernel.lost
    return (_without_lanes if dispatched else _GANG_REASONS[kernel.scenario.cluster.kind])(kernel, job)


def _on_lanes(kernel: Kernel, job: int, now: int) -> WaitReason:
    """Why a dispatched job has no chunk in service."""
    lanes = np.unique(kernel.sent[job])
    queues = {lane: _rows_at_lane(kernel, lane, now) for lane in lanes[lanes != CLOUD].tolist()}
    queues_of_job = [queue for queue in queues.values() if _has_job(queue, job)]
    if queues_of_job:
        # lexsort: the last key is the primary one; equal ranks go in order of arrival
        first = [int(queue[np.lexsort((queue[:, SEQ], queue[:, RANK]))[0], JOB]) for queue in queues_of_job]
        blocker = next((_name(kernel, rival) for rival in first if rival != job), None)
        servers = kernel.scenario.cluster.lane_server[[lane for lane, queue in queues.items() if _has_job(queue, job)]]
        on = tuple(kernel.scenario.cluster.label(server) for server in np.unique(servers).tolist())
        return WaitReason("lane_busy", _worker(kernel, job), len(queues_of_job), 0, blocker, on=on)
    coming = [kernel.belief.transit[lane, : kernel.belief.coming[lane]] for lane in queues]
    arrivals = [int(time) for rows in coming for time in rows[rows[:, JOB] == job, ARRIVE]]
    # no chunk is on its way, and some were lost
    if kernel.lost.get(job) and not arrivals:
        return _server_out(kernel, job, len(kernel.lost[job]))
    return _uploading(min(arrivals, default=None), 0)


def _uploading(until: int | None, overdue: int) -> WaitReason:
    """Its data are being uploaded: until a time [µs] if known, or overdue by `overdue` [µs]."""
    if overdue > 0:
        return WaitReason("uploading", late_s=overdue / SECOND)
    return WaitReason("uploading", until_s=None if until is None else until / SECOND)


def _has_job(queue: Ints, job: int) -> bool:
    return bool((queue[:, JOB] == job).any())


def _rows_at_lane(kernel: Kernel, lane: int, now: int) -> Ints:
    """Rows of the uncompleted groups that have reached a lane."""
    b = kernel.belief
    coming = b.transit[lane, : b.coming[lane]]
    # events come late in a live run, so rows in transit that should have arrived are counted as waiting
    rows: Ints = np.concatenate([b.rows[lane, : b.waiting[lane]], coming[coming[:, ARRIVE] <= now]])
    return rows


def _without_lanes(kernel: Kernel, job: int) -> WaitReason:
    """Why a dispatching policy has not dispatched a job: no storage, or no server in service."""
    kind = int(kernel.scenario.jobs.worker_type[job])
    # capacity counts the servers in service alone
    if kernel.engine.ledger.capacity[:, kind].sum() == 0:
        return _server_out(kernel, job, int(kernel.scenario.jobs.chunks[job]))
    servers = np.flatnonzero(kernel.engine.ledger.capacity[:, kind] > 0)
    need = float(kernel.scenario.jobs.chunk_mb[job] * kernel.scenario.jobs.chunks[job])
    return WaitReason("no_storage", "storage MB", need, float(megabytes(kernel.books.storage.free[servers]).sum()))


def _on_resources(kernel: Kernel, job: int) -> WaitReason:
    """Why a job waits on servers with resources: for its plan, or for free resources for a worker."""
    if _planned(kernel, job):
        return WaitReason("reserved", until_s=kernel.plans.start(job) / SECOND)
    # each resource by itself: a worker may still fit on no single server, which is `behind`
    need, free = kernel.scenario.jobs.worker_needs[job], kernel.view.free.max(axis=0)
    short = np.flatnonzero(need > free)
    if len(short):
        r = int(short[0])
        return WaitReason("no_room", kernel.scenario.cluster.resources[r], float(need[r]), float(free[r]))
    return WaitReason("behind")


def _on_slots(kernel: Kernel, job: int) -> WaitReason:
    """Why a gang waits on slots."""
    jobs, cluster = kernel.scenario.jobs, kernel.scenario.cluster
    need, kind = int(jobs.workers[job]), int(jobs.worker_type[job])
    # kind -1: no server has workers of the type
    if kind < 0 or need > cluster.workers[:, kind].sum() or need > kernel.engine.ledger.capacity[:, kind].sum():
        return _server_out(kernel, job, need)
    # the quota first: free workers that it withholds are no reason
    if cluster.sharing is not None:
        left = _quota_left(kernel, cluster.sharing, job)
        if left is not None and left < need:
            return WaitReason("quota", _worker(kernel, job), need, left)
    free = int(kernel.engine.ledger.free[:, kind].sum())
    if free < need:
        return WaitReason("no_workers", _worker(kernel, job), need, free, _holder(kernel, job, kind))
    # job of each PS slot; -1 if it is free; OUT_OF_SERVICE, a great number, if its server is out
    slots = kernel.engine.ledger.ps_job[cluster.ps_type == jobs.ps_type[job]]
    # the cloud has PSs without limit
    if cluster.cloud is None and not (slots < 0).any():
        return _without_ps(kernel, job)
    if _planned(kernel, job):
        return WaitReason("reserved", until_s=kernel.plans.start(job) / SECOND)
    waiting_jobs = [int(rival) for rival in kernel.active() if rival != job and not kernel.is_running(int(rival))]
    return WaitReason("behind", blocker=_name(kernel, waiting_jobs[0]) if waiting_jobs else None)


def _quota_left(kernel: Kernel, sharing: Sharing, job: int) -> int | None:
    """Workers of the job's type that its tenant may still be given; None if it may have all."""
    jobs, cluster, engine = kernel.scenario.jobs, kernel.scenario.cluster, kernel.engine
    tenant, kind = int(jobs.tenant[job]), int(jobs.worker_type[job])
    cluster_workers = cluster.workers.sum(axis=0)
    limit = int(sharing.limits(cluster_workers)[tenant, kind])
    # a quota of all workers is none
    if limit == cluster_workers[kind]:
        return None
    n_held = sum(
        workers
        for rival in engine.holders()
        if jobs.tenant[rival] == tenant and jobs.worker_type[rival] == kind
        for server, workers in engine.placement(rival)
        # quotas are of the edge alone
        if server != cluster.cloud
    )
    return limit - n_held


_GANG_REASONS: dict[Kind, Callable[[Kernel, int], WaitReason]] = {
    "slots": _on_slots,
    "resources": _on_resources,
    "sites": _on_resources,
}


def _planned(kernel: Kernel, job: int) -> bool:
    """Whether `job` has a valid plan."""
    rows = kernel.plans.newest.get(job, [])
    # the newest plan, unless a server of it has failed since
    return bool(rows) and all(row.broken_at is None and kernel.in_service[row.server] for row in rows)


def _without_ps(kernel: Kernel, job: int) -> WaitReason:
    """No PS is free for `job`, possibly because servers are out of service."""
    cluster, kind = kernel.scenario.cluster, int(kernel.scenario.jobs.ps_type[job])
    slots = kernel.engine.ledger.ps_job[cluster.ps_type == kind]
    token = "server_out" if (slots == OUT_OF_SERVICE).any() else "no_ps"
    return WaitReason(token, f"ps:{cluster.ps_types[kind]}" if kind >= 0 else "ps", 1, 0, _first_served(kernel, slots))


def _server_out(kernel: Kernel, job: int, need: int) -> WaitReason:
    kind = int(kernel.scenario.jobs.worker_type[job])
    free = int(kernel.engine.ledger.free[:, kind].sum()) if kind >= 0 else 0
    return WaitReason("server_out", _worker(kernel, job), need, free)


def _worker(kernel: Kernel, job: int) -> str:
    kind = int(kernel.scenario.jobs.worker_type[job])
    return f"worker:{kernel.scenario.cluster.worker_types[kind]}" if kind >= 0 else "worker"


def _holder(kernel: Kernel, job: int, kind: int) -> str | None:
    """Id of the job that holds the most workers of this type."""
    types = kernel.scenario.jobs.worker_type
    holdings = [
        (int(kernel.engine.workers_held[rival]), -rival) for rival in kernel.engine.holders() if types[rival] == kind
    ]
    # numbers are negated so that of equal holdings the earlier job is named
    return _name(kernel, -max(holdings)[1]) if holdings and -max(holdings)[1] != job else None


def _first_served(kernel: Kernel, slots: Ints) -> str | None:
    jobs = [int(job) for job in slots if 0 <= job < kernel.arrived]
    return _name(kernel, jobs[0]) if jobs else None


def _name(kernel: Kernel, job: int) -> str:
    return kernel.scenario.jobs.ids[job]
