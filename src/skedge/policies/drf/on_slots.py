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
        kind, max_workers = view.jobs.worker_type, view.jobs.chunks
        return level_filling(jobs, kind, ps_kind, max_workers, view.capacity.sum(axis=0), ps_left)

    def _shrink(self, job: int, n: int, view: View) -> Order:
        ps = view.ps_of(job)
        if n == 0 or ps is None:
            return Suspend(job, "preempted")
        placement = _nearest(dict(view.placement(job)), n, view.upload_delays(job))
        return Allocate(job, tuple(sorted(placement.items())), ps_in(ps), "fair_share", gang=False)

    def _grow(self, job: int, n: int, view: View) -> Order:
        placement, ps = self._where(job, n, view), view.ps_of(job)
        if ps is None:
            ps = self._ps_for(job, placement, view, view.ps_job)
        return Allocate(job, placement, ps_in(ps), "fair_share", gang=False)

    def _where(self, job: int, n: int, view: View) -> Placement:
        """A placement of `n` workers: those it has, or where its data are if it has none, and further ones."""
        room, workers_on = view.free_workers[:, view.jobs.worker_type[job]].copy(), dict(view.placement(job))
        delays = view.upload_delays(job)
        # a job that was suspended resumes where its data are, as far as there is room: that needs no upload
        if not workers_on:
            workers_on = _nearest({s: min(k, int(room[s])) for s, k in view.data(job)}, n, delays)
            for s, k in workers_on.items():
                room[s] -= k
        n_new = n - sum(workers_on.values())
        server, count = np.zeros((2, n), np.int64)
        delays = self._delays(job, workers_on, n_new, room, delays, view)
        n_servers = place(room, delays, n_new, server, count) if n_new else 0
        for s, k in zip(server[:n_servers].tolist(), count[:n_servers].tolist(), strict=True):
            workers_on[s] = workers_on.get(s, 0) + k
        return tuple(sorted(workers_on.items()))

    def _delays(self, job: int, workers_on: dict[int, int], n_new: int, room: Ints, delays: Ints, view: View) -> Ints:
        """Delays by which `n_new` workers are placed beside those of `workers_on`; NEVER where there is no room."""
        compared = np.where(room > 0, delays, NEVER)
        if self.physics.data == "kept":
            spare_data = np.zeros(len(room), np.int64)
            for s, k in view.data(job):
                # data beyond the job's workers there: a worker that uses them need not wait for an upload
                spare_data[s] = k - workers_on.get(s, 0)
            forgive(room, spare_data, n_new, compared)
        return compared


def _nearest(workers_on: dict[int, int], n: int, delays: Ints) -> dict[int, int]:
    """The first `n` of these workers by (delay, server), or all of them."""
    nearest = dict[int, int]()
    for server in sorted(workers_on, key=lambda s: (delays[s], s)):
        k = min(workers_on[server], n - sum(nearest.values()))
        if k > 0:
            nearest[server] = k
    return nearest


def _rows(jobs: Ints, counts: Ints, mask: Any) -> list[tuple[int, int]]:
    return list(zip(jobs[mask].tolist(), counts[mask].tolist(), strict=True))
