"""What the gang baselines share: all-or-nothing demands, one PS per job, the cloud for what never fits on the edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from skedge.core.events import CLOUD, OUT_OF_SERVICE, Allocate, Event, Order, Reject, Suspend
from skedge.core.gangs import Placement
from skedge.core.model import Cluster, Ints, Physics
from skedge.core.policy import Basis, Params, View
from skedge.core.time import SECOND

from .placement import Changes, Gang, Rule, carry, make_bench, select

_PLENTY = 2**40


class GangParams(Params):
    """Parameters of every gang baseline.

    Attributes
    ----------
    allow_cloud
        False: the cloud takes only what can never fit on the edge (k_j above all workers of its type). True: it also
        takes, at once and for good, a job that does not fit now.
    sticky
        True: a preempted job resumes only where its data are.
    placement
        ``literal``: a job ranked before others takes their workers even where free ones would do; ``keep_running``:
        it takes free ones first.
    """

    allow_cloud: bool = False
    sticky: bool = False
    placement: Literal["literal", "keep_running"] = "literal"


class GangPolicy(Basis):
    """Base of SRTF, Tiresias-L and FIFO: keeps the jobs on the edge and turns a selection into orders."""

    name: ClassVar[str] = ""
    Parameters: ClassVar[type[Params]] = GangParams
    stop_at_first = False

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.slots = cluster.workers.sum(axis=0)
        self.ps_slots = [np.flatnonzero(cluster.ps_type == k) for k in range(len(cluster.ps_types))]
        self.ps_on: dict[tuple[int, int], list[int]] = {}
        for slot, key in enumerate(zip(cluster.ps_server.tolist(), cluster.ps_type.tolist(), strict=True)):
            self.ps_on.setdefault(key, []).append(slot)
        self.active: Ints = np.empty(0, np.int64)
        none, nowhere = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
        self.gang = Gang(none, none, none, nowhere, nowhere, none, none)
        self.known = 0
        self.held: Ints = none
        self.stranded: list[int] = []
        self.rule = Rule(int(self.stop_at_first), int(self.params.sticky), int(self.params.placement == "keep_running"))
        self.bench = make_bench(len(cluster.servers), len(cluster.worker_types), cluster.lanes)

    # -- arrivals and departures ---------------------------------------------------------------------------------

    def admit(self, event: Event, view: View) -> Iterator[Order]:
        """Take in arrivals, let finished jobs go; what can never fit on the edge goes to the cloud or is rejected.

        Jobs that lost their workers with a server stand as if they had not begun; those that can go only to the cloud
        wait while it is out of service.
        """
        for job in event.left:
            self.active = self.active[self.active != job]
            self.gang.running[job] = 0
        for job in event.interrupted:
            self.held = self.held[self.held != job]
            self.gang.running[job] = self.gang.used[job] = 0
        stranded = [job for job in (*self.stranded, *event.interrupted) if job not in event.left]
        self._make_room(view)
        self.stranded = []
        for job in (*(job for job in stranded if job not in self.active), *event.arrived):
            order = self._never_fits(job, view)
            if order is None:
                self.active = np.insert(self.active, np.searchsorted(self.active, job), job)
            elif isinstance(order, Allocate) and not self._has_cloud(view):
                self.stranded.append(job)
            else:
                yield order

    def _never_fits(self, job: int, view: View) -> Order | None:
        kind, k = int(view.column("worker_type")[job]), int(view.column("workers")[job])
        slots = int(self.slots[kind]) if kind >= 0 else 0
        ps_kind = int(view.column("ps_type")[job])
        if self.cluster.cloud is not None:
            return None if k <= slots else self._to_cloud(job, k, "never_fits_edge")
        if k > slots:
            return Reject(job, f"never_fits: it asks for {k} workers; the edge has {slots} of its type, and no cloud")
        if ps_kind < 0 or len(self.ps_slots[ps_kind]) == 0:
            return Reject(job, "never_fits: no server has a PS of its type, and there is no cloud")
        return None

    def _has_cloud(self, view: View) -> bool:
        """Whether there is a cloud, and it is in service."""
        return self.cluster.cloud is not None and bool(view.in_service[self.cluster.cloud])

    def _to_cloud(self, job: int, k: int, reason: str) -> Allocate:
        assert self.cluster.cloud is not None  # noqa: S101 - the callers have looked
        return Allocate(job, ((self.cluster.cloud, k),), CLOUD, reason)

    def _make_room(self, view: View) -> None:
        if view.arrived == self.known:
            return
        g, jobs, width = self.gang, len(self.gang.used), self.gang.servers.shape[1]
        new = view.column("workers")[self.known :]
        if view.arrived > jobs:
            jobs = max(2 * jobs, view.arrived, 64)
        width = max(width, min(int(new.max()), len(self.cluster.servers)))
        if (jobs, width) != g.servers.shape:
            self.gang = g = Gang(
                _longer(g.workers, jobs), _longer(g.kind, jobs), _longer(g.ps_kind, jobs),
                _grown(g.servers, jobs, width), _grown(g.counts, jobs, width),
                _longer(g.used, jobs), _longer(g.running, jobs),
            )  # fmt: skip
        now = slice(self.known, view.arrived)
        g.workers[now], g.kind[now] = new, view.column("worker_type")[now]
        g.ps_kind[now] = np.maximum(view.column("ps_type")[now], 0)
        self.known = view.arrived

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """What the policy saw of `job`: its demand, what is free, and the jobs in the system with what they hold."""
        kind = int(view.column("worker_type")[job])
        others = view.active[view.active != job]
        return {
            "compares": "its whole demand against what is free; the jobs in the system stand by id",
            "needs_workers": int(view.column("workers")[job]),
            "workers_of_its_type": int(self.slots[kind]) if kind >= 0 else 0,
            "free_workers_of_its_type": int(view.free_workers[:, kind].sum()) if kind >= 0 else 0,
            "remaining_s": float(view.remaining(np.array([job]))[0] / view.column("workers")[job]) / SECOND,
            **self.standing(job),
            "in_system": [
                {
                    "job": view.job_id(other),
                    "workers": int(view.workers[other]),
                    "needs": int(view.column("workers")[other]),
                    "remaining_s": float(view.remaining(np.array([other]))[0] / view.column("workers")[other]) / SECOND,
                }
                for other in others.tolist()
            ],
        }

    def standing(self, job: int) -> dict[str, Any]:  # noqa: ARG002 - for policies that rank by more
        """What else ranks `job` under this policy."""
        return {}

    # -- selection -----------------------------------------------------------------------------------------------

    def choose(self, order: Ints, view: View, *, free: Ints | None = None) -> Ints:
        """Give each job of `order` its demand if that is left, of all edge workers or of `free`; returns verdicts."""
        self.bench.free[:] = view.capacity if free is None else free
        verdict = np.empty(len(order), np.int64)
        select(order, self.gang, self.rule, self.bench, self._ps_left(view, free is not None), view.delays(), verdict)
        return verdict

    def note(self, order: Ints, verdict: Ints) -> Changes:
        """What the verdicts on `order`, all jobs in the system, change; from now on it is so in the policy's books."""
        changes = carry(order, verdict, self.held, self.gang, self.bench)
        self.held = changes.runs
        return changes

    def _ps_left(self, view: View, running_stay: bool) -> Ints:
        """PS slots to give out by type: all, or the free ones where running jobs are not up for selection."""
        if self._has_cloud(view):
            return np.full(max(1, len(self.ps_slots)), _PLENTY)
        given = view.ps_job
        taken = given >= 0 if running_stay else given == OUT_OF_SERVICE
        return np.array([np.count_nonzero(~taken[s]) for s in self.ps_slots], np.int64)

    def carry_out(self, changes: Changes, view: View, reason: str) -> Iterator[Order]:
        """Orders that turn what runs into what was chosen: first all suspensions, then all placements."""
        moves, ps_job = changes.moves.tolist(), view.ps_job
        # a job that is moved runs on, so it keeps its PS: it is placed before those that choose one
        kept_ps = [view.ps_of(job) for job in moves]
        for job in changes.stops.tolist():
            yield Suspend(job, "preempted")
        for job in moves:
            yield Suspend(job, "moved")
        for job, ps in zip(moves, kept_ps, strict=True):
            where = self._where(job)
            yield Allocate(job, where, self._ps_for(job, where, view, ps_job) if ps is None else ps, reason)
        for job in changes.begins.tolist():
            where = self._where(job)
            yield Allocate(job, where, self._ps_for(job, where, view, ps_job), reason)
        if self.params.allow_cloud and self._has_cloud(view):
            yield from self._spill(view)

    def _spill(self, view: View) -> Iterator[Order]:
        """What has never run and waits goes to the cloud, for good."""
        waits = (self.gang.running[self.active] == 0) & (self.gang.used[self.active] == 0)
        for job in self.active[waits].tolist():
            self.active = self.active[self.active != job]
            yield self._to_cloud(job, int(view.column("workers")[job]), "no_room_on_edge")

    def _where(self, job: int) -> Placement:
        gang, n = self.gang, int(self.gang.used[job])
        if n == 1:
            return ((int(gang.servers[job, 0]), int(gang.counts[job, 0])),)
        return tuple(sorted(zip(gang.servers[job, :n].tolist(), gang.counts[job, :n].tolist(), strict=True)))

    def _ps_for(self, job: int, where: Placement, view: View, ps_job: Ints) -> int:
        """A free qualified PS: on a server of the placement, else of lowest number, else in the cloud."""
        kind = int(view.column("ps_type")[job])
        if kind < 0:
            return CLOUD
        for server, _ in where:
            for slot in self.ps_on.get((server, kind), ()):
                if ps_job[slot] < 0:
                    return slot
        slots = self.ps_slots[kind]
        free = slots[ps_job[slots] < 0]
        return int(free[0]) if len(free) else CLOUD


def _grown(table: Ints, rows: int, width: int) -> Ints:
    out = np.zeros((max(rows, table.shape[0]), max(width, table.shape[1])), np.int64)
    out[: table.shape[0], : table.shape[1]] = table
    return out


def _longer(column: Ints, rows: int) -> Ints:
    out = np.zeros(rows, np.int64)
    out[: len(column)] = column
    return out
