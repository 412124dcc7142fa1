"""Alg. 1 of Okita: tentative plans in the order of a priority; a conflict is settled by migrating or delaying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from skedge.core.model.cluster import Bools, Floats, Ints
from skedge.core.model.ties import GRAIN, SLACK, better

from .dta import transfer
from .osf import Search, TentativePlan, every_plan, least, osf, window_length
from .pa import Weights, rooms
from .sites import SiteJob, SitePlacement, Sites, room
from .slots import Decision, Progress, SiteScheduler, Verb


class OkitaParams(Weights):
    """Parameters of Okita; those of PA in :class:`.pa.Weights`.

    Attributes
    ----------
    alpha1, alpha2
        Of the wait and of the data left, in Eq. (4); the paper does not say which it used (O28).
    conflict
        Whose bandwidth cost cost2 takes: ``printed``, that of the migrated plan, so a job waits only where there is no
        such plan; ``cheaper``, that of the tentative plan (D1).
    fit
        Where N* workers do not fit, migrate with as many as do (the variant in the package's header).
    release, late_last
        D3, D5.
    search
        ``bounded``: :class:`.osf.Search`; ``every``: :func:`.osf.every_plan`, as printed.
    """

    alpha1: float = Field(1.0, ge=0)
    alpha2: float = Field(1.0, ge=0)
    conflict: Literal["printed", "cheaper"] = "printed"
    fit: bool = False
    release: Literal["earliest", "latest"] = "earliest"
    late_last: bool = False
    search: Literal["bounded", "every"] = "bounded"


@dataclass(frozen=True, eq=False)
class Conflict:
    """The tentative plan does not fit what the jobs before left: to migrate or to delay.

    Attributes
    ----------
    occupant, release
        i', an occupant of an overdrawn site, and its l*, after which it is thought to leave.
    migrated
        The plan of the same N and l in what is left, or with `fit` of as many workers as fit; None if there is none.
    migrate_cost, delay_cost
        cost1 and cost2, both with what the job has paid so far; None where infinite: without a plan cost1 is, and as
        printed cost2 is too.
    delays
        Whether cost1 > cost2, decided by their difference, or there is no plan.
    """

    occupant: int
    release: int
    migrated: TentativePlan | None
    migrate_cost: float | None
    delay_cost: float | None
    delays: bool

    @property
    def chosen(self) -> TentativePlan | None:
        """The plan to carry out; None if the job is delayed."""
        return None if self.delays else self.migrated


@dataclass(frozen=True, eq=False)
class OkitaDecision(Decision):
    """What Okita decides for a job, and why.

    Attributes
    ----------
    priority, tentative
        O_i(t), and the plan of the job alone.
    conflict
        What came of a conflict; None if the tentative plan fits.
    """

    priority: float | None = None
    tentative: TentativePlan | None = None
    conflict: Conflict | None = None


class Okita(SiteScheduler):
    """Okita on some sites."""

    def __init__(self, sites: Sites, params: OkitaParams | None = None) -> None:
        super().__init__(sites)
        self.params = params or OkitaParams()
        self._searches: dict[int, tuple[Sites, Ints, Search]] = {}

    def arrive(self, job: SiteJob) -> None:
        """As :meth:`.slots.SiteScheduler.arrive`; a job that has no plan on empty sites is given up (O26)."""
        super().arrive(job)
        if rooms(self.sites, job, job.chunks, self.sites.capacity, self.params).most == 0:
            self.give_up(job.id)

    def decide(self, slot: int) -> list[OkitaDecision]:
        """Alg. 1 lines 4-24 for one slot."""
        plans = self._tentative(slot)
        active = list(self.active.values())
        priority = priorities(active, slot, self.params)
        # priorities that differ by rounding alone are ties, decided by arrival and number
        rank = (-np.rint(priority * GRAIN)).tolist()
        order = sorted(range(len(active)), key=lambda i: (rank[i], active[i].job.arrival, active[i].job.id))
        free, present = self.sites.capacity.copy(), Occupants(len(self.sites), self.params.release)
        decisions = list[OkitaDecision]()
        for i in order:
            at = active[i]
            plan = plans[at.job.id]
            if plan is None:
                decisions.append(OkitaDecision(at.job.id, "delay", at.left, priority=float(priority[i])))
                continue
            # Alg. 1 line 14: the tentative plan was made at full capacities, so it may not fit what is left
            over = overdrawn(free, plan.placement.demand(at.job))
            conflict = self._conflict(at, plan, slot, free, present.first(over)) if over.any() else None
            chosen = plan if conflict is None else conflict.chosen
            if chosen is not None:
                # a demand may exceed what is free by the slack of `overdrawn`
                free = np.maximum(free - chosen.placement.demand(at.job), 0.0)
                present.add(at.job.id, chosen.slots, chosen.placement)
            decisions.append(self._decision(at, chosen, float(priority[i]), plan, conflict))
        return decisions

    def _tentative(self, slot: int) -> dict[int, TentativePlan | None]:
        """Alg. 1 lines 4-10; None for a job that has no plan while sites are out of service."""
        plans = {job: self._best(at, slot - at.job.arrival) for job, at in self.active.items()}
        self._searches = {job: made for job, made in self._searches.items() if job in self.active}
        return plans

    def _best(self, at: Progress, waited: int) -> TentativePlan | None:
        if self.params.search == "every":
            return least(at.job, every_plan(self.sites, at.job, at.left, self.params), waited)
        known = self._searches.get(at.job.id)
        # tables hold for these sites and chunks; `left` is replaced, never changed, when chunks are trained
        if known is None or known[0] is not self.sites or known[1] is not at.left:
            known = self.sites, at.left, Search(self.sites, at.job, at.left, self.params)
            self._searches[at.job.id] = known
        return known[2].best(waited)

    def _conflict(
        self, at: Progress, plan: TentativePlan, slot: int, free: Floats, occupant: tuple[int, int]
    ) -> Conflict:  # fmt: skip
        """Alg. 1 lines 15-18, with D1 to D3."""
        job, (_, release), waited = at.job, occupant, slot - at.job.arrival
        migrated = self._migrated(at, plan, free)
        later = migrated if self.params.conflict == "printed" else plan
        delay = None if later is None else at.bandwidth + later.bandwidth + job.latency(waited + later.slots + release)
        if migrated is None or later is None:
            return Conflict(*occupant, None, None, delay, delays=True)
        end = waited + migrated.slots
        migrate = at.bandwidth + migrated.bandwidth + job.latency(end)
        # the difference of two latency costs, computed as one: exponentials cancel before they overflow
        rise = float(job.latency.rise(end, np.array(waited + later.slots + release)))
        delays = better(later.bandwidth + rise, migrated.bandwidth)
        return Conflict(*occupant, migrated, migrate, delay, delays=delays)

    def _migrated(self, at: Progress, plan: TentativePlan, free: Floats) -> TentativePlan | None:
        """Alg. 1 line 15: N* workers, or with `fit` as many as there is room for, in what is left."""
        job, count = at.job, plan.workers
        if room(free, job.demands[0]).sum() < (1 if self.params.fit else count):
            return None  # there is no room wherever the PS is
        there = rooms(self.sites, job, at.left, free, self.params)
        if self.params.fit:
            count = min(count, there.most)
        if count == 0:
            return None
        return osf(self.sites, job, at.left, there, count, window_length(float(at.left.sum()), job.rate, count))

    def _decision(
        self, at: Progress, chosen: TentativePlan | None, *why: *tuple[float, TentativePlan, Conflict | None]
    ) -> OkitaDecision:
        """Alg. 1 lines 18-24."""
        if chosen is None:
            return OkitaDecision(at.job.id, "delay", at.left, None, None, *why)
        moved = transfer(self.sites, at.left, chosen.placement.workers, at.job.rate)
        verb: Verb = "keep" if why[-1] is None else "migrate"
        return OkitaDecision(at.job.id, verb, at.left, chosen.placement, moved, *why)


class Occupants:
    """The jobs that occupy each site in this slot, and the slots after which they are expected to leave."""

    def __init__(self, sites: int, release: Literal["earliest", "latest"]) -> None:
        self.sign, self.placed = 1 if release == "earliest" else -1, list[int]()
        self.turn, self.slots = np.full(sites, -1), np.full(sites, np.iinfo(np.int64).max)

    def add(self, job: int, slots: int, placement: SitePlacement) -> None:
        """A job of l* = `slots` is placed."""
        used = placement.workers > 0
        used[placement.ps] = True
        # strictly: of equal l* the job that was placed first stays i'
        used &= self.sign * slots < self.slots
        self.turn[used], self.slots[used] = len(self.placed), self.sign * slots
        self.placed.append(job)

    def first(self, over: Bools) -> tuple[int, int]:
        """The i' and l_{i'}* among those at the sites `over`; of equal ones the one that was placed first."""
        slots, turn = min(zip(self.slots[over].tolist(), self.turn[over].tolist(), strict=True))
        return self.placed[turn], self.sign * slots


def overdrawn(free: Floats, demand: Floats) -> Bools:
    """Sites, shape ``(sites,)``, that have less than is asked of some resource; more slack than PA has."""
    return np.asarray((demand > free * (1 + 2 * SLACK)).any(axis=1))


def priorities(active: Sequence[Progress], slot: int, params: OkitaParams) -> Floats:
    """O_i(t), Eq. (4), shape ``(jobs,)``, of jobs that are not complete; D5."""
    waits = np.array([at.job.latency.waiting(slot - at.job.arrival) for at in active])
    remaining = np.array([at.left.sum() / at.job.chunks.sum() for at in active])
    deadline = np.array([at.job.latency.family == "deadline" for at in active], bool)
    first = np.zeros(len(active))
    # D5: deadlines and latencies have different units, so each kind is scaled by its own largest
    for kind in (deadline, ~deadline):
        largest = np.abs(waits[kind]).max(initial=0.0)
        first[kind] = waits[kind] / largest if largest > 0 else 0.0
    past = deadline & (waits >= 0)
    first[deadline] = np.minimum(first[deadline], 0.0)
    if params.late_last:
        first[past] = -1.0
    return params.alpha1 * first - params.alpha2 * remaining
