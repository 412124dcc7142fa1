"""DRF on typed slots: workers given and taken one by one, one PS per job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skedge.core.events import Allocate, Event, Order, Suspend, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics, Placement
from skedge.core.model.time import NEVER
from skedge.core.policy import Params, View
from skedge.policies.gangs.edge import EdgePolicy
from skedge.policies.gangs.placement import forgive, place

from .progressive_filling import level_filling

if TYPE_CHECKING:
    from numpy.random import Generator


class DrfOnSlots(EdgePolicy):
    """Dominant resource fairness on typed slots, as She et al. run it."""

    compares: ClassVar[str] = "w_j over the workers of its type, filled from zero, least first"

    def __init__(self, params: Params, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        self.params = params
        self.start(cluster, physics, rng)

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """At least one worker; at most one for each chunk."""
        return 1, int(view.jobs.chunks[job])

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Fill from zero; first take workers from shrinking jobs, then give them to growing jobs."""
        yield from self.admit(event, view)
        jobs = self.active
        counts, present = self.counts(jobs, view), view.workers[jobs]
        # shrinking jobs come first, as their workers are what the growing ones take
        for job, n in _rows(jobs, counts, counts < present):
            yield self._shrink(job, n, view)
        for job, n in _rows(jobs, counts, counts > present):
            yield self._grow(job, n, view)

    def counts(self, jobs: Ints, view: View) -> Ints:
        """Workers of each of `jobs` under DRF."""
        # the appended 0 gives type 0 an entry on a cluster without PS slots
        ps_left, ps_kind = np.append(self._ps_left(view, running_stay=False), 0), view.jobs.ps_type
        kind, most = view.jobs.worker_type, view.jobs.chunks
        return level_filling(jobs, kind, ps_kind, most, view.capacity.sum(axis=0), ps_left)

    def _shrink(self, job: int, n: int, view: View) -> Order:
        ps = view.ps_of(job)
        if n == 0 or ps is None:
            return Suspend(job, "preempted")
        where = _nearest(dict(view.placement(job)), n, view.upload_delays(job))
        return Allocate(job, tuple(sorted(where.items())), ps_in(ps), "fair_share", gang=False)

    def _grow(self, job: int, n: int, view: View) -> Order:
        where, ps = self._where(job, n, view), view.ps_of(job)
        if ps is None:
            ps = self._ps_for(job, where, view, view.ps_job)
        return Allocate(job, where, ps_in(ps), "fair_share", gang=False)

    def _where(self, job: int, n: int, view: View) -> Placement:
        """`n` workers: those it has, or where its data are if it has none, and further ones."""
        room, where = view.free_workers[:, view.jobs.worker_type[job]].copy(), dict(view.placement(job))
        delays = view.upload_delays(job)
        # a job that was suspended resumes where its data are, as far as there is room: that needs no upload
        if not where:
            where = _nearest({s: min(k, int(room[s])) for s, k in view.data(job)}, n, delays)
            for s, k in where.items():
                room[s] -= k
        more = n - sum(where.values())
        server, count = np.zeros((2, n), np.int64)
        delays = self._delays(job, where, more, room, delays, view)
        used = place(room, delays, more, server, count) if more else 0
        for s, k in zip(server[:used].tolist(), count[:used].tolist(), strict=True):
            where[s] = where.get(s, 0) + k
        return tuple(sorted(where.items()))

    def _delays(self, job: int, where: dict[int, int], more: int, room: Ints, delays: Ints, view: View) -> Ints:
        """Delays that :func:`~skedge.policies.gangs.placement.place` compares for `more` workers besides `where`."""
        compared = np.where(room > 0, delays, NEVER)
        if self.physics.data == "kept":
            there = np.zeros(len(room), np.int64)
            for s, k in view.data(job):
                # data beyond the job's workers there: a worker that uses them need not wait for an upload
                there[s] = k - where.get(s, 0)
            forgive(room, there, more, compared)
        return compared


def _nearest(where: dict[int, int], n: int, delays: Ints) -> dict[int, int]:
    """`n` of these workers by (delay, server), or all of them."""
    kept = dict[int, int]()
    for server in sorted(where, key=lambda s: (delays[s], s)):
        k = min(where[server], n - sum(kept.values()))
        if k > 0:
            kept[server] = k
    return kept


def _rows(jobs: Ints, counts: Ints, which: Any) -> list[tuple[int, int]]:
    return list(zip(jobs[which].tolist(), counts[which].tolist(), strict=True))
