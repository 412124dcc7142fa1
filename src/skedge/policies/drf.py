"""DRF: dominant resource fairness (Ghodsi et al., NSDI'11) over typed slots, as She et al. run it.

**Problem.** Share the edge among the jobs in the system so that the least dominant share is as large as it can be, then
the next, and so on (max-min). A job uses workers of one type and one PS; its dominant share is w_j over the workers of
that type. It may have up to D_j workers, one for each chunk.

**Rule.** At every arrival and completion the counts are filled from zero (:mod:`skedge.policies.fairness`): by (share,
arrival, id), one worker at a time. A job that shrinks keeps the workers of least (delay, server); one that grows gets
the further ones by :mod:`skedge.policies.placement`. It is no gang: a new worker trains when its data are there, the
others go on.

**Guarantee.** Max-min fair up to one worker, and Pareto efficient: no worker of a type is free while a job of that type
could use it. Strategy-proofness and sharing incentives of the paper need divisible tasks and users that ask for one
bundle; with D_j as a limit they are not claimed.

================== =====================================================================
paper              here
================== =====================================================================
R, C               workers by type, ``cluster.workers`` summed; inf for PSs: no share
D_i                one worker of the job's type; with the first one PS
U_i                ``counts``
s_i                w_j / workers of the type
================== =====================================================================

**Deviations.** D1: a job that does not fit drops out and the others go on (a public re-implementation stops there; the
paper lets the user drop out). D2: the PS is no share: each job has one, so it ranks nobody; where there is no cloud, a
job for which none is left gets nothing. D3: She et al. are silent on whether counts are fixed; here they are dynamic,
and new workers pay the upload. D4: the cloud is excluded, being without limit; it takes only what can never run on the
edge. D5: k_j is ignored.

**Complexity.** O(W (T + log J)) per event for W workers of T types, plus a placement per job that grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from skedge.core.events import Allocate, Event, Order, Suspend
from skedge.core.gangs import Placement
from skedge.core.model import Ints
from skedge.core.policy import View
from skedge.core.time import NEVER

from .edge import EdgePolicy
from .fairness import ONCE, progressive_filling
from .placement import place


class Drf(EdgePolicy):
    """Dominant resource fairness over typed slots."""

    name: ClassVar[str] = "drf"
    compares: ClassVar[str] = "w_j over the workers of its type, filled from zero, least first"

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """One worker will do; at most one for each chunk."""
        return 1, int(view.column("chunks")[job])

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Fill from zero; first those who shrink, then those who grow."""
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
        used = place(room, np.where(room > 0, delays, NEVER), more, server, count) if more else 0
        for s, k in zip(server[:used].tolist(), count[:used].tolist(), strict=True):
            where[s] = where.get(s, 0) + k
        return tuple(sorted(where.items()))


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
