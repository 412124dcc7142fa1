"""Why a job waits: a stable token with its numbers, from the kernel's books."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .core.engine.lanes import ARRIVE, JOB, RANK, SEQ
from .core.events import CLOUD, OUT_OF_SERVICE
from .core.kernel.kernel import Kernel
from .core.kernel.state import DISPATCHED, REJECTED, WAITING
from .core.model.cluster import Ints
from .core.model.job_fields import Kind
from .core.model.sharing import Sharing
from .core.model.size import megabytes
from .core.model.time import SECOND

TOKENS = {
    "running": "it runs",
    "stalled": "it runs, but no mini-batch has come for long; its process was started again",
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
class Why:
    """Why a job is not running, or that it is.

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
        on = f" on {', '.join(self.on)}" if self.on else ""
        numbers = f": needs {self.need:g} {self.resource}{on}, {self.free:g} free" if self.need is not None else ""
        whom = f", {self.blocker} is before it" if self.blocker else ""
        until = f", until {self.until_s:.1f} s" if self.until_s is not None else ""
        late = f", {self.late_s:.1f} s later than announced" if self.late_s is not None else ""
        return TOKENS[self.token] + numbers + whom + until + late


def why(kernel: Kernel, job: int, now: int | None = None, behind: int = 0) -> Why:
    """Why `job`, which has arrived, is not running, or that it is running.

    `now` is the present [µs]; None: the time of the kernel's last event, which in a live run lies in the past. `behind`
    is how long its data are overdue [µs], which the kernel does not see.
    """
    now = kernel.now if now is None else now
    status = int(kernel.status[job])
    if status == REJECTED:
        return Why("never_fits" if kernel.record.rejected[job].startswith("never_fits") else "rejected")
    if status not in (WAITING, DISPATCHED):
        state = kernel.record.state(job)
        return Why("completed" if state == "finished" else state)
    if job in kernel.gangs.placed:
        begins = kernel.books.begins(kernel.gangs, job)
        if behind > 0 or begins > now:
            return _coming(begins, behind)
    if kernel.is_running(job):
        return Why("running") if job in kernel.books.ps_of else _without_ps(kernel, job)
    if status == DISPATCHED:
        return _on_lanes(kernel, job, now) if behind <= 0 else _coming(None, behind)
    dispatched = kernel.dispatches or job in kernel.lost
    return (_without_lanes if dispatched else _GANGS[kernel.scenario.cluster.kind])(kernel, job)


def _on_lanes(kernel: Kernel, job: int, now: int) -> Why:
    """Why a dispatched job has no chunk in service."""
    lanes = np.unique(kernel.sent[job])
    queues = {lane: _here(kernel, lane, now) for lane in lanes[lanes != CLOUD].tolist()}
    waits = [queue for queue in queues.values() if _has(queue, job)]
    if waits:
        first = [int(queue[np.lexsort((queue[:, SEQ], queue[:, RANK]))[0], JOB]) for queue in waits]
        blocker = next((_name(kernel, other) for other in first if other != job), None)
        servers = kernel.scenario.cluster.lane_server[[lane for lane, queue in queues.items() if _has(queue, job)]]
        on = tuple(kernel.scenario.cluster.label(server) for server in np.unique(servers).tolist())
        return Why("lane_busy", _worker(kernel, job), len(waits), 0, blocker, on=on)
    coming = [kernel.belief.transit[lane, : kernel.belief.coming[lane]] for lane in queues]
    comes = [int(time) for rows in coming for time in rows[rows[:, JOB] == job, ARRIVE]]
    if kernel.lost.get(job) and not comes:
        return _out(kernel, job, len(kernel.lost[job]))
    return _coming(min(comes, default=None), 0)


def _coming(until: int | None, behind: int) -> Why:
    """Its data are being uploaded: until a time [µs] if known, or overdue by `behind` [µs]."""
    if behind > 0:
        return Why("uploading", late_s=behind / SECOND)
    return Why("uploading", until_s=None if until is None else until / SECOND)


def _has(queue: Ints, job: int) -> bool:
    return bool((queue[:, JOB] == job).any())


def _here(kernel: Kernel, lane: int, now: int) -> Ints:
    """Rows of the uncompleted groups that have reached a lane."""
    b = kernel.belief
    coming = b.transit[lane, : b.coming[lane]]
    rows: Ints = np.concatenate([b.rows[lane, : b.waiting[lane]], coming[coming[:, ARRIVE] <= now]])
    return rows


def _without_lanes(kernel: Kernel, job: int) -> Why:
    """Why a dispatching policy has not dispatched a job: no storage, or no server in service."""
    kind = int(kernel.scenario.jobs.worker_type[job])
    if kernel.books.slots.capacity[:, kind].sum() == 0:
        return _out(kernel, job, int(kernel.scenario.jobs.chunks[job]))
    servers = np.flatnonzero(kernel.books.slots.capacity[:, kind] > 0)
    need = float(kernel.scenario.jobs.chunk_mb[job] * kernel.scenario.jobs.chunks[job])
    return Why("no_storage", "storage MB", need, float(megabytes(kernel.books.storage.free[servers]).sum()))


def _on_resources(kernel: Kernel, job: int) -> Why:
    """Why a job waits on servers with resources: for its plan, or for free resources for a worker."""
    if _planned(kernel, job):
        return Why("reserved", until_s=kernel.plans.start(job) / SECOND)
    need, free = kernel.scenario.jobs.worker_needs[job], kernel.view.free.max(axis=0)
    short = np.flatnonzero(need > free)
    if len(short):
        r = int(short[0])
        return Why("no_room", kernel.scenario.cluster.resources[r], float(need[r]), float(free[r]))
    return Why("behind")


def _on_slots(kernel: Kernel, job: int) -> Why:
    """Why a gang waits on slots."""
    jobs, cluster = kernel.scenario.jobs, kernel.scenario.cluster
    need, kind = int(jobs.workers[job]), int(jobs.worker_type[job])
    if kind < 0 or need > cluster.workers[:, kind].sum() or need > kernel.books.slots.capacity[:, kind].sum():
        return _out(kernel, job, need)
    if cluster.sharing is not None:
        left = _quota_left(kernel, cluster.sharing, job)
        if left is not None and left < need:
            return Why("quota", _worker(kernel, job), need, left)
    free = int(kernel.books.slots.free[:, kind].sum())
    if free < need:
        return Why("no_workers", _worker(kernel, job), need, free, _holder(kernel, job, kind))
    slots = kernel.books.slots.ps_job[cluster.ps_type == jobs.ps_type[job]]
    if cluster.cloud is None and not (slots < 0).any():
        return _without_ps(kernel, job)
    if _planned(kernel, job):
        return Why("reserved", until_s=kernel.plans.start(job) / SECOND)
    before = [int(other) for other in kernel.active() if other != job and not kernel.is_running(int(other))]
    return Why("behind", blocker=_name(kernel, before[0]) if before else None)


def _quota_left(kernel: Kernel, sharing: Sharing, job: int) -> int | None:
    """Workers of the job's type that its tenant may still be given; None if it may have all."""
    jobs, cluster, placed = kernel.scenario.jobs, kernel.scenario.cluster, kernel.gangs.placed
    tenant, kind = int(jobs.tenant[job]), int(jobs.worker_type[job])
    workers_there = cluster.workers.sum(axis=0)
    limit = int(sharing.limits(workers_there)[tenant, kind])
    if limit == workers_there[kind]:
        return None
    held = sum(
        workers
        for other, where in placed.items()
        if jobs.tenant[other] == tenant and jobs.worker_type[other] == kind
        for server, workers in where
        if server != cluster.cloud
    )
    return limit - held


_GANGS: dict[Kind, Callable[[Kernel, int], Why]] = {
    "slots": _on_slots,
    "resources": _on_resources,
    "sites": _on_resources,
}


def _planned(kernel: Kernel, job: int) -> bool:
    """Whether `job` has a valid plan."""
    rows = kernel.plans.newest.get(job, [])
    return bool(rows) and all(row.broken_at is None and kernel.in_service[row.server] for row in rows)


def _without_ps(kernel: Kernel, job: int) -> Why:
    """No PS is free for `job`, possibly because servers are out of service."""
    cluster, kind = kernel.scenario.cluster, int(kernel.scenario.jobs.ps_type[job])
    slots = kernel.books.slots.ps_job[cluster.ps_type == kind]
    token = "server_out" if (slots == OUT_OF_SERVICE).any() else "no_ps"
    return Why(token, f"ps:{cluster.ps_types[kind]}" if kind >= 0 else "ps", 1, 0, _served(kernel, slots))


def _out(kernel: Kernel, job: int, need: int) -> Why:
    kind = int(kernel.scenario.jobs.worker_type[job])
    free = int(kernel.books.slots.free[:, kind].sum()) if kind >= 0 else 0
    return Why("server_out", _worker(kernel, job), need, free)


def _worker(kernel: Kernel, job: int) -> str:
    kind = int(kernel.scenario.jobs.worker_type[job])
    return f"worker:{kernel.scenario.cluster.worker_types[kind]}" if kind >= 0 else "worker"


def _holder(kernel: Kernel, job: int, kind: int) -> str | None:
    """Id of the job that holds the most workers of this type."""
    types = kernel.scenario.jobs.worker_type
    held = [(int(kernel.gangs.workers[other]), -other) for other in kernel.gangs.placed if types[other] == kind]
    return _name(kernel, -max(held)[1]) if held and -max(held)[1] != job else None


def _served(kernel: Kernel, slots: Ints) -> str | None:
    known = [int(job) for job in slots if 0 <= job < kernel.arrived]
    return _name(kernel, known[0]) if known else None


def _name(kernel: Kernel, job: int) -> str:
    return kernel.scenario.jobs.ids[job]
