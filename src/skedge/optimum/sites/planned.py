"""Carries out plans at sites as a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import ClassVar

from numpy.random import Generator

from skedge.core.events import Order, Transfer
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import Need, View
from skedge.optimum.planned import PlannedPlacements
from skedge.optimum.utility.milp import Slots

from .milp import SitePlan
from .terms import cheapest_paths


class PlannedSites(PlannedPlacements):
    """Gives every job the workers, the PS and the data planned for each slot.

    **It costs no more than planned.** A site may hold more chunks than were planned to be trained there, so more may be
    trained. By induction over the slots no site ever has more chunks left than planned: the chunks moved away are those
    planned or all that are there, and those that stay are trained up to the workers' capacity, which is no less than
    planned. So no chunk is moved that was not planned to move, and no job ends later.

    **Ways without circles.** Where ways cost nothing, a plan of least cost may exchange chunks between sites, and M31
    forbids that: chunks would return to a site that they left at this instant. Chunks of a job are alike, so what goes
    round in a circle stays where it is (:func:`without_cycles`).

    Parameters
    ----------
    plans
        By job.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"sites"})
    unplanned: ClassVar[str] = "not planned"

    def __init__(self, plans: Mapping[int, SitePlan] | None = None) -> None:
        self.plans = dict(plans or {})
        super().__init__({job: _placements(plan) for job, plan in self.plans.items()})
        self.slot = -1

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.cost, (_, self.next_site) = cluster.site_cost, cheapest_paths(cluster.site_cost)

    def _change(self, slot: int, view: View) -> Iterator[Order]:
        """At the start of a slot, and once: change placements, then move the data that are trained in it."""
        if view.now % self.physics.slot or slot <= self.slot:
            return
        self.slot = slot
        yield from super()._change(slot, view)
        for job in self.arrived_jobs:
            if slot in self.plan[job]:
                yield from self._moves(job, self.plans[job].moves[slot], view)

    def _moves(self, job: int, moves: Sequence[tuple[int, int, int]], view: View) -> Iterator[Order]:
        mb = float(view.jobs.chunk_mb[job])
        for source, target, planned in without_cycles(moves, self.next_site):
            chunks = min(planned, int(view.chunks_left(job)[source]))
            if chunks:
                yield Transfer(job, source, target, chunks, "planned", chunks * mb * float(self.cost[source, target]))


def without_cycles(moves: Sequence[tuple[int, int, int]], next_site: Ints) -> list[tuple[int, int, int]]:
    """Return moves along the cheapest ways that leave every site with the same chunks, what comes to a site first.

    Parameters
    ----------
    moves
        (from, to, chunks), in any order; from and to may be equal.
    next_site
        The second site on the way between two sites, shape ``(sites, sites)``.
    """
    flow = Counter[tuple[int, int]]()
    for site, target, chunks in moves:
        while site != target:
            next_hop = int(next_site[site, target])
            flow[site, next_hop] += chunks
            site = next_hop  # noqa: PLW2901 - along the way
    while True:
        before: dict[int, list[int]] = {}
        for source, target in flow:
            before.setdefault(target, []).append(source)
        try:
            order = {site: i for i, site in enumerate(TopologicalSorter(before).static_order())}
        except CycleError as error:
            cycle = list(pairwise(error.args[1]))
            flow -= Counter(dict.fromkeys(cycle, min(flow[way] for way in cycle)))
        else:
            return [(*way, flow[way]) for way in sorted(flow, key=lambda way: order[way[0]])]


def _placements(plan: SitePlan) -> Slots:
    """The placements of a plan by slot: workers by site, and the PS."""
    return {
        slot: (tuple((r, n) for r, n in enumerate(workers.tolist()) if n), ((plan.ps[slot], 1),))
        for slot, workers in plan.workers.items()
    }
