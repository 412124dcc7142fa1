"""Base class of edge-first policies: job tracking, cloud fallback, PS choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skedge.core.events import CLOUD, OUT_OF_SERVICE, Allocate, Event, Order, Reject, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics, Placement
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, Guarantees, View

if TYPE_CHECKING:
    from numpy.random import Generator


NO_PS_ON_EDGE = "never_fits: no server has a PS of its type, and there is no cloud"
"""Reason of a rejection."""


def too_few(k: int, slots: int) -> str:
    """Reason of a rejection: the edge has fewer workers of its type than the job asks for."""
    return f"never_fits: it asks for {k} workers; the edge has {slots} of its type, and no cloud"


class EdgePolicy(BasePolicy):
    """Base of the gang baselines and of those that give and take single workers.

    Attributes
    ----------
    active
        Jobs in the system that the edge can hold, ascending unless the policy keeps another order.
    compares
        What decides whether a job runs, for ``skedge explain``.
    """

    name: ClassVar[str] = ""
    compares: ClassVar[str] = "its whole demand against what is free"

    @property
    def may_use_cloud(self) -> bool:
        """With the parameter `allow_cloud`."""
        return bool(getattr(self.params, "allow_cloud", False))

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; a suspended job makes room for another."""
        return Guarantees(uploads="with_allocations", preempts="for_others")

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.slots = cluster.workers.sum(axis=0)
        self.ps_slots = [np.flatnonzero(cluster.ps_type == k) for k in range(len(cluster.ps_types))]
        self.ps_on: dict[tuple[int, int], list[int]] = {}
        for slot, key in enumerate(zip(cluster.ps_server.tolist(), cluster.ps_type.tolist(), strict=True)):
            self.ps_on.setdefault(key, []).append(slot)
        self.active: Ints = np.empty(0, np.int64)
        self.stranded: list[int] = []

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """Workers with which `job` runs: at least, and where there is no limit, as in the cloud."""
        k = int(view.jobs.workers[job])
        # a gang runs with its whole demand or not at all
        return k, k

    # -- arrivals and departures ---------------------------------------------------------------------------------

    def admit(self, event: Event, view: View) -> Iterator[Order]:
        """Take in arrivals, let finished jobs go; what can never fit on the edge goes to the cloud or is rejected.

        Jobs that can go only to the cloud wait while it is out of service.
        """
        for job in event.left:
            self.active = self.active[self.active != job]
        stranded = [job for job in (*self.stranded, *event.interrupted) if job not in event.left]
        self.stranded = []
        for job in (*(job for job in stranded if job not in self.active), *event.arrived):
            order = self._never_fits(job, view)
            if order is None:
                # ascending: a job that comes back from a lost server takes its old place
                index = int(self.active.searchsorted(job))
                self.active = np.concatenate((self.active[:index], (job,), self.active[index:]))
            elif isinstance(order, Allocate) and not self._has_cloud(view):
                self.stranded.append(job)
            else:
                yield order

    def _never_fits(self, job: int, view: View) -> Order | None:
        kind, (k, max_workers) = int(view.jobs.worker_type[job]), self.demand(job, view)
        slots = int(self.slots[kind]) if kind >= 0 else 0
        ps_kind = int(view.jobs.ps_type[job])
        if self.cluster.cloud is not None:
            return None if k <= slots else self._to_cloud(job, max_workers, "never_fits_edge")
        if k > slots:
            return Reject(job, too_few(k, slots))
        if ps_kind < 0 or len(self.ps_slots[ps_kind]) == 0:
            return Reject(job, NO_PS_ON_EDGE)
        return None

    def _has_cloud(self, view: View) -> bool:
        """Whether there is a cloud, and it is in service."""
        return self.cluster.cloud is not None and bool(view.in_service[self.cluster.cloud])

    def _to_cloud(self, job: int, k: int, reason: str) -> Allocate:
        assert self.cluster.cloud is not None  # noqa: S101 - the callers have looked
        return Allocate(job, ((self.cluster.cloud, k),), ps_in(CLOUD), reason)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`: its demand, the free workers, and the holdings of the jobs in the system."""
        kind, (_, demand) = int(view.jobs.worker_type[job]), self.demand(job, view)
        rivals = view.active[view.active != job]
        return {
            "compares": f"{self.compares}; the jobs in the system by id",
            "needs_workers": demand,
            "workers_of_its_type": int(self.slots[kind]) if kind >= 0 else 0,
            "free_workers_of_its_type": int(view.free_workers[:, kind].sum()) if kind >= 0 else 0,
            "remaining_s": float(view.remaining(np.array([job]))[0] / demand) / SECOND,
            **self.rank_terms(job),
            "in_system": [self._row(rival, view) for rival in rivals.tolist()],
        }

    def _row(self, job: int, view: View) -> dict[str, Any]:
        _, demand = self.demand(job, view)
        return {
            "job": view.job_id(job),
            "workers": int(view.workers[job]),
            "needs": demand,
            "remaining_s": float(view.remaining(np.array([job]))[0] / demand) / SECOND,
        }

    def rank_terms(self, job: int) -> dict[str, Any]:  # noqa: ARG002 - for policies that rank by more
        """What else ranks `job` under this policy."""
        return {}

    def _ps_for(self, job: int, placement: Placement, view: View, ps_job: Ints) -> int:
        """A free qualified PS: on a server of the placement, else of lowest number, else in the cloud."""
        kind = int(view.jobs.ps_type[job])
        if kind < 0:
            return CLOUD
        # beside workers first: there a PS makes zeta = 1 possible
        for server, _ in placement:
            for slot in self.ps_on.get((server, kind), ()):
                if ps_job[slot] < 0:
                    return slot
        slots = self.ps_slots[kind]
        free = slots[ps_job[slots] < 0]
        return int(free[0]) if len(free) else CLOUD

    def _ps_left(self, view: View, running_stay: bool) -> Ints:
        """PS slots to give out by type: all, or the free ones where running jobs are not up for selection."""
        if self._has_cloud(view):
            return np.full(max(1, len(self.ps_slots)), UNLIMITED)
        ps_job = view.ps_job
        unavailable = ps_job >= 0 if running_stay else ps_job == OUT_OF_SERVICE
        return np.array([np.count_nonzero(~unavailable[s]) for s in self.ps_slots], np.int64)
