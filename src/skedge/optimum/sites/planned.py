"""Carries out plans at sites as a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import ClassVar

from numpy.random import Generator

from skedge.core.events import Allocate, Event, Order, Reject, Suspend, Transfer, WakeAt
from skedge.core.model.cluster import Cluster, Ints, Physics, Placement
from skedge.core.policy import BasePolicy, Need, View
from skedge.optimum.types import PLANNED

from .milp import SitePlan
from .terms import ways


class PlannedSites(BasePolicy):
    """Gives every job the workers, the PS and the data planned for each slot.

    **It costs no more than planned.** A site may hold more chunks than were planned to be trained there, so more may be
    trained. By induction over the slots no site ever has more chunks left than planned: the chunks moved away are those
    planned or all that are there, and those that stay are trained up to the workers' capacity, which is no less than
    planned. So no chunk is moved that was not planned to move, and no job ends later.

    **Ways without circles.** Where ways cost nothing, a plan of least cost may exchange chunks between sites, and M31
    forbids that: chunks would return to a site that they left at this instant. Chunks of a job are alike, so what goes
    round in a circle stays where it is (:func:`without_circles`).

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
            yield from self._moves(job, self.plans[job].moves[slot], view)

    def _moves(self, job: int, moves: Sequence[tuple[int, int, int]], view: View) -> Iterator[Order]:
        mb = float(view.jobs.chunk_mb[job])
        for source, target, planned in without_circles(moves, self.over):
            chunks = min(planned, int(view.chunks_left(job)[source]))
            if chunks:
                yield Transfer(job, source, target, chunks, "planned", chunks * mb * float(self.cost[source, target]))


def without_circles(moves: Sequence[tuple[int, int, int]], over: Ints) -> list[tuple[int, int, int]]:
    """Return moves along the cheapest ways that leave every site with the same chunks, what comes to a site first.

    Parameters
    ----------
    moves
        (from, to, chunks), in any order; from and to may be equal.
    over
        The second site on the way between two sites, shape ``(sites, sites)``.
    """
    flow = Counter[tuple[int, int]]()
    for site, target, chunks in moves:
        while site != target:
            then = int(over[site, target])
            flow[site, then] += chunks
            site = then  # noqa: PLW2901 - along the way
    while True:
        before: dict[int, list[int]] = {}
        for source, target in flow:
            before.setdefault(target, []).append(source)
        try:
            order = {site: i for i, site in enumerate(TopologicalSorter(before).static_order())}
        except CycleError as error:
            circle = list(pairwise(error.args[1]))
            flow -= Counter(dict.fromkeys(circle, min(flow[way] for way in circle)))
        else:
            return [(*way, flow[way]) for way in sorted(flow, key=lambda way: order[way[0]])]


def _placed(plan: SitePlan, slot: int) -> tuple[Placement, Placement]:
    workers = plan.workers[slot]
    return tuple((r, int(n)) for r, n in enumerate(workers.tolist()) if n), ((plan.ps[slot], 1),)
