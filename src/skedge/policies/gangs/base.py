"""Base of gang policies: from an order of the jobs to those that run, and to orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from skedge.core.engine.data import lose, with_space
from skedge.core.engine.ledger import no_data
from skedge.core.events import Allocate, Event, Order, Reject, Suspend, WakeAt, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics, Placement
from skedge.core.model.time import NEVER
from skedge.core.policy import Params, View

from .edge import EdgePolicy
from .placement import Changes, Gang, Rule, carry, make_scratch, select
from .sharing import FreeSlots, SharingLayer

if TYPE_CHECKING:
    from numpy.random import Generator


class GangParams(Params):
    """Parameters of every gang baseline.

    Attributes
    ----------
    allow_cloud
        False: the cloud takes only what can never fit on the edge (k_j above all workers of its type). True: it also
        takes, at once and for good, a job that does not fit now.
    sticky
        True: a preempted job resumes only in its last place, where its data are.
    placement
        ``keep_running``: a job that is placed takes workers that no running job holds, where those are enough, also
        if it has run before on workers that another job holds now. ``literal``: all jobs are placed anew in the order
        of the scan, so that a job ranked first takes another's workers even where free ones would do; the other is
        moved and pays for its upload and its restoring, without any queue too.
    """

    allow_cloud: bool = False
    sticky: bool = False
    placement: Literal["keep_running", "literal"] = "keep_running"


class GangPolicy(EdgePolicy):
    """Base of SRTF, Tiresias-L and FIFO: turns a selection of jobs into orders."""

    name: ClassVar[str] = ""
    Parameters: ClassVar[type[Params]] = GangParams
    stop_at_first = False

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        empty, no_placements = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
        self.gang, self.stored = Gang(empty, empty, empty, no_placements, no_placements, empty, empty), no_data()
        self.known = 0
        self.holders: Ints = empty
        self.rule = Rule(
            stop_at_first=int(self.stop_at_first),
            sticky=int(self.params.sticky),
            keep_running=int(self.params.placement == "keep_running"),
            kept=int(physics.data == "kept"),
        )
        self.layer = None if cluster.sharing is None else SharingLayer(cluster.sharing, cluster)
        types = len(cluster.worker_types), max(1, len(cluster.ps_types))
        self.scratch = make_scratch(len(cluster.servers), *types, cluster.lanes)

    def admit(self, event: Event, view: View) -> Iterator[Order]:
        """As in the base; jobs that lost their workers with a server count as not started."""
        for job in event.left:
            self.gang.running[job] = 0
        for job in event.interrupted:
            self.holders = self.holders[self.holders != job]
            self.gang.running[job] = self.gang.used[job] = 0
        for server, reason in event.servers:
            if reason:
                lose(self.stored, server)
        self._make_room(view)
        if self.layer is not None:
            self.layer.admit(event.interrupted, view)
        yield from super().admit(event, view)

    def _make_room(self, view: View) -> None:
        if view.arrived == self.known:
            return
        g, jobs, width = self.gang, len(self.gang.used), self.gang.servers.shape[1]
        workers = view.jobs.workers[self.known :]
        if view.arrived > jobs:
            # doubled, so that growth costs O(1) for each job
            jobs = max(2 * jobs, view.arrived, 64)
        # a gang of k workers is on at most k servers
        width = max(width, min(int(workers.max()), len(self.cluster.servers)))
        if (jobs, width) != g.servers.shape:
            self.gang = g = Gang(
                _longer(g.workers, jobs), _longer(g.kind, jobs), _longer(g.ps_kind, jobs),
                _grown(g.servers, jobs, width), _grown(g.counts, jobs, width),
                _longer(g.used, jobs), _longer(g.running, jobs),
            )  # fmt: skip
        self.stored = with_space(self.stored, jobs, 0)
        rows = slice(self.known, view.arrived)
        g.workers[rows], g.kind[rows] = workers, view.jobs.worker_type[rows]
        g.ps_kind[rows] = np.maximum(view.jobs.ps_type[rows], 0)
        self.known = view.arrived

    def _never_fits(self, job: int, view: View) -> Order | None:
        order = super()._never_fits(job, view)
        quota = None if self.layer is None else self.layer.quota_of(job, view)
        k = int(view.jobs.workers[job])
        if order is not None or quota is None or k <= quota:
            return order
        if self.cluster.cloud is not None:
            return self._to_cloud(job, k, "never_fits_edge")
        return Reject(job, f"never_fits: it asks for {k} workers; the quota of its tenant is {quota}")

    # -- selection -----------------------------------------------------------------------------------------------

    def choose(self, order: Ints, view: View, *, free: Ints | None = None) -> Ints:
        """Give each job of `order` its demand if that is left, of all edge workers or of `free`; returns verdicts."""
        self.scratch.free[:] = view.capacity if free is None else free
        left = self._ps_left(view, free is not None)
        self.scratch.ps_left[: len(left)] = left
        verdict = np.empty(len(order), np.int64)
        select(order, self.gang, self.stored, self.rule, self.scratch, view.delays(), verdict)
        return verdict

    def share_out(self, order: Ints, view: View, *, free: Ints | None = None) -> tuple[Ints, Ints]:
        """As :meth:`choose`, but by the tenants and classes of the cluster, if it has them.

        Returns the order in which the jobs were tried, and their verdicts.
        """
        if self.layer is None:
            return order, self.choose(order, view, free=free)
        holders = order[:0] if free is None else self.active[self.gang.running[self.active] > 0]
        workers = (view.capacity if free is None else free).sum(axis=0)
        slots = FreeSlots(workers, self._ps_left(view, free is not None))
        excluded = order[:0]
        while True:
            jobs = order[~np.isin(order, excluded)]
            jobs, n_tried = self.layer.arrange(jobs, self.gang, view, holders, slots, stop_at_first=self.stop_at_first)
            verdict = self.choose(jobs, view, free=free)
            # a job that waits for its last place displaces none: arrange the others again without it
            stuck = jobs[:n_tried][verdict[:n_tried] == 0]
            if self.stop_at_first or not len(stuck):
                break
            excluded = np.concatenate([excluded, stuck])
        verdict[n_tried:] = 0
        return np.concatenate([jobs, excluded]), np.concatenate([verdict, np.zeros_like(excluded)])

    def note(self, order: Ints, verdict: Ints) -> Changes:
        """The changes that follow from the verdicts on `order`, all jobs in the system; updates the books too."""
        changes = self.apply_verdict(order, verdict, self.holders)
        self.holders = changes.runs
        return changes

    def apply_verdict(self, order: Ints, verdict: Ints, holders: Ints) -> Changes:
        """Compare verdicts with the jobs that ran, and note where jobs and their data are now."""
        self.stored = with_space(self.stored, len(self.gang.used), int(np.maximum(verdict, 0).sum()))
        return carry(order, verdict, holders, self.gang, self.stored, self.scratch)

    def note_shares(self, changes: Changes, view: View) -> Iterator[WakeAt]:
        """Tell the layer of tenants, if there is one, what has changed; ask to be woken when it next decides anew."""
        if self.layer is None:
            return
        self.layer.note(changes, view.now)
        if self.layer.wake_at <= view.now:
            self.layer.wake_at = NEVER
        due = self.layer.next_change(self.active, self.gang, view)
        if due < self.layer.wake_at:
            self.layer.wake_at = due
            yield WakeAt(due)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """As in the base, with the job's tenant and class."""
        base_terms = super().terms(job, view)
        return {**base_terms, **self._shared(job, view), "in_system": base_terms["in_system"]}

    def _row(self, job: int, view: View) -> dict[str, Any]:
        return {**super()._row(job, view), **self._shared(job, view)}

    def _shared(self, job: int, view: View) -> dict[str, Any]:
        """Tenant and class of `job`, if the cluster has them."""
        if self.layer is None:
            return {}
        tenant = self.layer.sharing.names[view.jobs.tenant[job]]
        return {"tenant": tenant, "class": self.layer.class_of(job, view, running=bool(self.gang.running[job]))}

    def carry_out(self, changes: Changes, view: View, reason: str) -> Iterator[Order]:
        """Orders that carry out `changes`: first all suspensions, then all placements."""
        moves, ps_job = changes.moves.tolist(), view.ps_job
        # a job that is moved runs on, so it keeps its PS: it is placed before those that choose one
        kept_ps = [view.ps_of(job) for job in moves]
        for job in changes.stops.tolist():
            yield Suspend(job, "preempted")
        for job in moves:
            yield Suspend(job, "moved")
        for job, ps in zip(moves, kept_ps, strict=True):
            placement = self._where(job)
            yield Allocate(
                job, placement, ps_in(self._ps_for(job, placement, view, ps_job) if ps is None else ps), reason
            )
        for job in changes.begins.tolist():
            placement = self._where(job)
            yield Allocate(job, placement, ps_in(self._ps_for(job, placement, view, ps_job)), reason)
        if self.params.allow_cloud and self._has_cloud(view):
            yield from self._spill(view)

    def _spill(self, view: View) -> Iterator[Order]:
        """What has never run and waits goes to the cloud, for good."""
        waits = (self.gang.running[self.active] == 0) & (self.gang.used[self.active] == 0)
        for job in self.active[waits].tolist():
            self.active = self.active[self.active != job]
            yield self._to_cloud(job, int(view.jobs.workers[job]), "no_room_on_edge")

    def _where(self, job: int) -> Placement:
        gang, n = self.gang, int(self.gang.used[job])
        if n == 1:
            return ((int(gang.servers[job, 0]), int(gang.counts[job, 0])),)
        return tuple(sorted(zip(gang.servers[job, :n].tolist(), gang.counts[job, :n].tolist(), strict=True)))


def _grown(table: Ints, rows: int, width: int) -> Ints:
    out = np.zeros((max(rows, table.shape[0]), max(width, table.shape[1])), np.int64)
    out[: table.shape[0], : table.shape[1]] = table
    return out


def _longer(column: Ints, rows: int) -> Ints:
    out = np.zeros(rows, np.int64)
    out[: len(column)] = column
    return out
