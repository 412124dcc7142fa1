"""DRF: dominant resource fairness (Ghodsi et al., NSDI'11), on typed slots and on servers with resources.

**Problem.** Share the servers among the jobs in the system so that the least dominant share, a job's largest part of
any resource, is as large as it can be, then the next, and so on (max-min).

**Rule.** At every arrival and completion the counts are filled from zero (:mod:`.progressive_filling`): by (share,
arrival, id), one worker at a time.

*Typed slots*, as She et al. run it: a job uses workers of one type and one PS; its dominant share is w_j over the
workers of that type. It may have up to D_j workers, one for each chunk. A job that shrinks keeps the workers of least
(delay, server); one that grows gets the further ones by :mod:`skedge.policies.gangs.placement`. It is no gang: a new
worker trains when its data are there, the others go on. A job that had none resumes where its data are, those of least
(delay, server), before it gets others.

*Servers with resources*, as PD-ORS runs it: a worker takes alpha_i, and with it comes a PS, beta_i, whenever
ceil(w / gamma_i) grows. Up to F_i workers. Workers and PSs go to the servers round robin, each to the next one that has
room, from the first server on at every event.

**Guarantee.** Max-min fair up to one worker, and Pareto efficient: nothing is free that a job could use (but for F_i).
Strategy-proofness and sharing incentives of the paper need divisible tasks and users that ask for one bundle; with a
limit of workers they are not claimed.

================== ===================================== ===================================
paper              on typed slots                        on servers with resources
================== ===================================== ===================================
R, C               workers by type; inf for PSs          resources, summed over the servers
D_i                one worker; with the first one PS     one worker; every gamma-th with a PS
U_i                ``counts``                            workers and PSs by server
s_i                w_j / workers of the type             max_r (alpha w + beta s) / C
================== ===================================== ===================================

**Deviations.** D1: a job that does not fit drops out and the others go on (a public re-implementation stops there; the
paper lets the user drop out). *Typed slots*: D2: the PS is no share: each job has one, so it ranks nobody; where there
is no cloud, a job for which none is left gets nothing. D3: She et al. are silent on whether counts are fixed; here they
are dynamic, and new workers pay the upload. D4: the cloud is excluded, being without limit; it takes only what can
never run on the edge. D5: k_j is ignored. *Resources*: D6: PD-ORS is silent on when counts change; here at every event,
from scratch, and a job whose place changes is moved. It never looks at the horizon: what is not done by then runs on.

**Complexity.** O(W (T + log J)) per event for W workers of T types, plus a placement per job that grows; O(W (H R + log
J)) on H servers with R resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skedge.core.events import Allocate, Event, Order, Suspend
from skedge.core.model import Cluster, Ints, Physics, Placement
from skedge.core.policy import View
from skedge.core.time import NEVER
from skedge.policies.common.resource_jobs import Tenants
from skedge.policies.fifo.at_sites import SiteDrf
from skedge.policies.gangs.edge import EdgePolicy
from skedge.policies.gangs.placement import forgive, place
from skedge.policies.okita.driver import SiteDriver, sites_of

from .progressive_filling import ONCE, progressive_filling

if TYPE_CHECKING:
    from numpy.random import Generator


class Drf(EdgePolicy):
    """Dominant resource fairness."""

    name: ClassVar[str] = "drf"
    needs: ClassVar[frozenset[str]] = frozenset({"typed slots, resources or sites"})
    compares: ClassVar[str] = "w_j over the workers of its type, filled from zero, least first"

    @property
    def promises(self) -> dict[str, Any]:
        """As of the base; on servers with resources PSs by the ratio."""
        return {**super().promises, "ps": "ratio"}

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """One worker will do; at most one for each chunk."""
        return 1, int(view.column("chunks")[job])

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.tenants = Tenants(cluster)
        self.at_sites = None if cluster.transfer_cost is None else SiteDriver(SiteDrf(sites_of(cluster)), physics)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Fill from zero."""
        if self.at_sites is not None:
            return self.at_sites.decide(event, view)
        return self._on_resources(event, view) if self.cluster.resources else self._on_slots(event, view)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """What the policy saw of `job`."""
        if self.at_sites is not None:
            return self.at_sites.terms(job, view)
        return self.tenants.terms(job, view) if self.cluster.resources else super().terms(job, view)

    # -- servers with resources ----------------------------------------------------------------------------------

    def _on_resources(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.tenants.admit(event, view)
        demands = self.tenants.demands(self.tenants.active, view)
        filled = progressive_filling(*demands, view.amounts.copy(), self.tenants.total)
        yield from self.tenants.settle(*filled, view, "fair_share")

    # -- typed slots ---------------------------------------------------------------------------------------------

    def _on_slots(self, event: Event, view: View) -> Iterator[Order]:
        """First those who shrink, then those who grow."""
        yield from self.admit(event, view)
        jobs = self.active
        counts, present = self.counts(jobs, view), view.workers[jobs]
        for job, n in _rows(jobs, counts, counts < present):
            yield self._shrink(job, n, view)
        for job, n in _rows(jobs, counts, counts > present):
            yield self._grow(job, n, view)

    def counts(self, jobs: Ints, view: View) -> Ints:
        """Workers of each of `jobs` under DRF."""
        kinds, ps_left = len(self.slots), self._ps_left(view, running_stay=False)
        worker = np.zeros((len(jobs), kinds + len(ps_left)))
        ps, rows = worker.copy(), np.arange(len(jobs))
        worker[rows, view.column("worker_type")[jobs]] = 1.0
        ps[rows, kinds + np.maximum(view.column("ps_type")[jobs], 0)] = 1.0
        left = np.concatenate([view.capacity.sum(axis=0), ps_left]).astype(np.float64)
        total = np.concatenate([np.maximum(self.slots, 1), np.full(len(ps_left), np.inf)])
        most = view.column("chunks")[jobs]
        workers, _ = progressive_filling(worker, ps, np.full(len(jobs), ONCE), most, left[None, :], total)
        return workers[:, 0]

    def _shrink(self, job: int, n: int, view: View) -> Order:
        ps = view.ps_of(job)
        if n == 0 or ps is None:
            return Suspend(job, "preempted")
        where = _nearest(dict(view.placement(job)), n, view.upload_delays(job))
        return Allocate(job, tuple(sorted(where.items())), ps, "fair_share", gang=False)

    def _grow(self, job: int, n: int, view: View) -> Order:
        where, ps = self._where(job, n, view), view.ps_of(job)
        if ps is None:
            ps = self._ps_for(job, where, view, view.ps_job)
        return Allocate(job, where, ps, "fair_share", gang=False)

    def _where(self, job: int, n: int, view: View) -> Placement:
        """`n` workers: those it has, or where its data are if it has none, and further ones."""
        room, where = view.free_workers[:, view.column("worker_type")[job]].copy(), dict(view.placement(job))
        delays = view.upload_delays(job)
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
        """Delays that :func:`.placement.place` compares for `more` workers besides `where`."""
        compared = np.where(room > 0, delays, NEVER)
        if self.physics.data == "kept":
            there = np.zeros(len(room), np.int64)
            for s, k in view.data(job):
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
