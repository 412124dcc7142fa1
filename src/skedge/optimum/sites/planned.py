"""Carries out plans at sites as a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from numpy.random import Generator

from skedge.core.events import Allocate, Event, Order, Reject, Suspend, Transfer, WakeAt
from skedge.core.model import Cluster, Physics, Placement
from skedge.core.policy import Basis, Need, View
from skedge.optimum.types import PLANNED

from .milp import SitePlan
from .terms import ways


class PlannedSites(Basis):
    """Gives every job the workers, the PS and the data planned for each slot.

    **It costs no more than planned.** A site may hold more chunks than were planned to be trained there, so more may be
    trained. By induction over the slots no site ever has more chunks left than planned: the chunks moved away are those
    planned or all that are there, and those that stay are trained up to the workers' capacity, which is no less than
    planned. So no chunk is moved that was not planned to move, and no job ends later.

    Parameters
    ----------
    plans
        By job.
    """

    name: ClassVar[str] = PLANNED
    needs: ClassVar[frozenset[Need]] = frozenset({"sites"})

    def __init__(self, plans: Mapping[int, SitePlan] | None = None) -> None:
        super().__init__()
        self.plans = dict(plans or {})
        self.running: dict[int, tuple[Placement, Placement]] = {}
        self.here: list[int] = []
        self.slot = -1

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.cost, (_, self.over) = cluster.site_cost, ways(cluster.site_cost)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """At the start of a slot, suspend all jobs whose placement changes, then allocate, then move data."""
        for job in event.left:
            self.running.pop(job, None)
            self.plans.pop(job, None)
        for job in event.arrived:
            if job in self.plans:
                self.here.append(job)
            else:
                yield Reject(job, "not planned")
        slot = view.now // self.physics.slot
        self.here = [job for job in self.here if job in self.plans]
        if view.now % self.physics.slot == 0 and slot > self.slot:
            self.slot = slot
            yield from self._slot(slot, view)
        later = [t for job in self.here for t in (*self.plans[job].ps, self.plans[job].last + 1) if t > slot]
        if later:
            yield WakeAt(min(later) * self.physics.slot)

    def _slot(self, slot: int, view: View) -> Iterator[Order]:
        due = {job: _placed(self.plans[job], slot) for job in self.here if slot in self.plans[job].ps}
        for job in [job for job, at in self.running.items() if due.get(job) != at]:
            del self.running[job]
            yield Suspend(job, "planned")
        for job, at in due.items():
            if job not in self.running:
                self.running[job] = at
                yield Allocate(job, *at, "planned")
        for job in due:
            for source, target, chunks in self.plans[job].moves[slot]:
                yield from self._move(job, source, target, min(chunks, int(view.chunks_left(job)[source])), view)

    def _move(self, job: int, source: int, target: int, chunks: int, view: View) -> Iterator[Order]:
        mb = chunks * float(view.jobs.chunk_mb[job])
        while chunks and source != target:
            to = int(self.over[source, target])
            yield Transfer(job, source, to, chunks, "planned", mb * float(self.cost[source, to]))
            source = to


def _placed(plan: SitePlan, slot: int) -> tuple[Placement, Placement]:
    workers = plan.workers[slot]
    return tuple((r, int(n)) for r, n in enumerate(workers.tolist()) if n), ((plan.ps[slot], 1),)
