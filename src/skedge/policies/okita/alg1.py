"""Alg. 1 of Okita: tentative plans in the order of a priority; a conflict is settled by migrating or delaying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from skedge.core.model.cluster import Bools, Floats, Ints
from skedge.core.model.speed import max_units
from skedge.core.model.ties import GRAIN, SLACK, better

from .dta import transfer
from .osf import Search, TentativePlan, every_plan, least_cost_plan, osf, window_length
from .pa import Weights, site_rooms
from .sites import SiteJob, SitePlacement, Sites
from .slots import Decision, Progress, SiteScheduler, Verb


class OkitaParams(Weights):
    """Parameters of Okita; those of PA in :class:`.pa.Weights`.

    Attributes
    ----------
    alpha1, alpha2
        Weights of the wait and of the data left in Eq. (4); the paper does not say which it used (O28).
    conflict
        The plan whose bandwidth cost enters cost2: ``printed``, the migrated one, so a job waits only where there is no
        such plan; ``cheaper``, the tentative one (D1).
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
    """A tentative plan that does not fit what the jobs before left, and the choice to migrate or to delay.

    Attributes
    ----------
    occupant, release
        i', an occupant of an overdrawn site, and its l* [slots], after which it is expected to leave.
    migrated_plan
        The plan of the same N and l in what is left, or with `fit` of as many workers as fit; None if there is none.
    migrate_cost, delay_cost
        cost1 and cost2, both with what the job has paid so far; None where infinite: without a plan cost1 is, and as
        printed cost2 is too.
    delays_training
        True if cost1 > cost2, decided by their difference, or if there is no plan.
    """

    occupant: int
    release: int
    migrated_plan: TentativePlan | None
    migrate_cost: float | None
    delay_cost: float | None
    delays_training: bool

    @property
    def chosen(self) -> TentativePlan | None:
        """The plan to carry out; None if the job is delayed."""
        return None if self.delays_training else self.migrated_plan


@dataclass(frozen=True, eq=False)
class OkitaDecision(Decision):
    """A decision of Okita for one job in one slot, with its reasons.

    Attributes
    ----------
    priority, tentative
        O_i(t), and the plan of the job alone.
    conflict
        The conflict and its outcome; None if the tentative plan fits.
    """

    priority: float | None = None
    tentative: TentativePlan | None = None
    conflict: Conflict | None = None


class Okita(SiteScheduler):
    """Alg. 1 on a set of sites.

    Parameters
    ----------
    sites
        Capacities and costs; a driver may replace them while some are out of service.
    params
        See :class:`OkitaParams`; the defaults are the printed algorithm.
    """

    def __init__(self, sites: Sites, params: OkitaParams | None = None) -> None:
        super().__init__(sites)
        self.params = params or OkitaParams()
        self._searches: dict[int, tuple[Sites, Ints, Search]] = {}

    def arrive(self, job: SiteJob) -> None:
        """As :meth:`.slots.SiteScheduler.arrive`; a job that has no plan on empty sites is given up (O26)."""
        super().arrive(job)
        if site_rooms(self.sites, job, job.chunks, self.sites.capacity, self.params).max_workers == 0:
            self.give_up(job.id)

    def decide(self, slot: int) -> list[OkitaDecision]:
        """Alg. 1 lines 4-24 for one slot."""
        # lines 4-10: every job alone at full capacities, as nothing is reserved from slot to slot (D6, O15)
        plans = self._tentative(slot)
        active = list(self.active.values())
        priority = priorities(active, slot, self.params)
        # lines 11-12; priorities that differ by rounding alone are ties, decided by arrival and number (D6)
        rank = (-np.rint(priority * GRAIN)).tolist()
        order = sorted(range(len(active)), key=lambda i: (rank[i], active[i].job.arrival, active[i].job.id))
        free, occupants = self.sites.capacity.copy(), Occupants(len(self.sites), self.params.release)
        decisions = list[OkitaDecision]()
        for i in order:
            progress = active[i]
            plan = plans[progress.job.id]
            # D7 (O26): a job that fits the sites only when all are in service
            if plan is None:
                decisions.append(OkitaDecision(progress.job.id, "delay", progress.left, priority=float(priority[i])))
                continue
            # line 14: the tentative plan was made at full capacities, so it may not fit what is left (D2, O4)
            over = overdrawn(free, plan.placement.demand(progress.job))
            conflict = self._conflict(progress, plan, slot, free, occupants.first(over)) if over.any() else None
            chosen = plan if conflict is None else conflict.chosen
            if chosen is not None:
                # a demand may exceed what is free by the slack of `overdrawn`
                free = np.maximum(free - chosen.placement.demand(progress.job), 0.0)
                occupants.add(progress.job.id, chosen.slots, chosen.placement)
            decisions.append(self._decision(progress, chosen, float(priority[i]), plan, conflict))
        return decisions

    def _tentative(self, slot: int) -> dict[int, TentativePlan | None]:
        """Alg. 1 lines 4-10; None for a job that has no plan while sites are out of service."""
        plans = {job: self._best(progress, slot - progress.job.arrival) for job, progress in self.active.items()}
        self._searches = {job: search for job, search in self._searches.items() if job in self.active}
        return plans

    def _best(self, progress: Progress, waited: int) -> TentativePlan | None:
        if self.params.search == "every":
            plans = every_plan(self.sites, progress.job, progress.left, self.params)
            return least_cost_plan(progress.job, plans, waited)
        entry = self._searches.get(progress.job.id)
        # tables hold for these sites and chunks; `left` is replaced, never changed, when chunks are trained
        if entry is None or entry[0] is not self.sites or entry[1] is not progress.left:
            entry = self.sites, progress.left, Search(self.sites, progress.job, progress.left, self.params)
            self._searches[progress.job.id] = entry
        return entry[2].best(waited)

    def _conflict(
        self, progress: Progress, plan: TentativePlan, slot: int, free: Floats, occupant: tuple[int, int]
    ) -> Conflict:  # fmt: skip
        """Alg. 1 lines 15-18, with D1 to D3."""
        job, (_, release), waited = progress.job, occupant, slot - progress.job.arrival
        migrated_plan = self._migrated(progress, plan, free)
        # line 17 (D1, O2): with the migrated plan's bandwidth cost, as printed, cost2 is never below cost1
        delayed_plan = migrated_plan if self.params.conflict == "printed" else plan
        delay_cost = None
        if delayed_plan is not None:
            delay_cost = (
                progress.bandwidth + delayed_plan.bandwidth + job.latency(waited + delayed_plan.slots + release)
            )
        # D2 (O3): without room cost1 and, as printed, cost2 are infinite, so line 18 would run a job without workers
        if migrated_plan is None or delayed_plan is None:
            return Conflict(*occupant, None, None, delay_cost, delays_training=True)
        # line 16 takes f at the END of the last slot (D8, O6)
        end = waited + migrated_plan.slots
        migrate_cost = progress.bandwidth + migrated_plan.bandwidth + job.latency(end)
        # line 18 by the difference of the two costs; that of the latencies is computed as one, as each may overflow
        rise = float(job.latency.rise(end, np.array(waited + delayed_plan.slots + release)))
        delays_training = better(delayed_plan.bandwidth + rise, migrated_plan.bandwidth)
        return Conflict(*occupant, migrated_plan, migrate_cost, delay_cost, delays_training=delays_training)

    def _migrated(self, progress: Progress, plan: TentativePlan, free: Floats) -> TentativePlan | None:
        """Alg. 1 line 15: N* workers, or with `fit` as many as there is room for, in what is left."""
        job, count = progress.job, plan.workers
        if max_units(free, job.demands[0]).sum() < (1 if self.params.fit else count):
            return None  # N workers have no room even without a PS, so PA need not be asked
        rooms = site_rooms(self.sites, job, progress.left, free, self.params)
        if self.params.fit:
            count = min(count, rooms.max_workers)
        if count == 0:
            return None
        slots = window_length(float(progress.left.sum()), job.rate, count)
        return osf(self.sites, job, progress.left, rooms, count, slots)

    def _decision(
        self, progress: Progress, chosen: TentativePlan | None, *reasons: *tuple[float, TentativePlan, Conflict | None]
    ) -> OkitaDecision:
        """Alg. 1 lines 18-24."""
        # line 19: y = s = 0; nothing trains and nothing moves in this slot
        if chosen is None:
            return OkitaDecision(progress.job.id, "delay", progress.left, None, None, *reasons)
        # lines 22-23: DTA for this slot alone, not for the plan's window (O13)
        moved = transfer(self.sites, progress.left, chosen.placement.workers, progress.job.rate)
        verb: Verb = "keep" if reasons[-1] is None else "migrate"
        return OkitaDecision(progress.job.id, verb, progress.left, chosen.placement, moved, *reasons)


class Occupants:
    """For each site the job that is expected to leave first (or last) of those placed there in this slot.

    Parameters
    ----------
    sites
        Number of sites.
    release
        D3 (O5): which of several occupants is i' of line 17.
    """

    def __init__(self, sites: int, release: Literal["earliest", "latest"]) -> None:
        # the least of `sign * l` is the first to leave, or the last
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
    """Sites whose capacity `free` the `demand` exceeds in some resource (line 14), shape ``(sites,)``."""
    # twice PA's slack: a plan that fills empty sites up to that slack must not conflict with them
    return np.asarray((demand > free * (1 + 2 * SLACK)).any(axis=1))


def priorities(active: Sequence[Progress], slot: int, params: OkitaParams) -> Floats:
    """O_i(t), Eq. (4), of jobs that are not complete, shape ``(jobs,)``; the largest goes first (D5)."""
    waits = np.array([progress.job.latency.waiting(slot - progress.job.arrival) for progress in active])
    remaining = np.array([progress.left.sum() / progress.job.chunks.sum() for progress in active])
    deadline = np.array([progress.job.latency.family == "deadline" for progress in active], bool)
    first = np.zeros(len(active))
    # D5: deadlines and latencies have different units, so each kind is scaled by its own largest
    for kind in (deadline, ~deadline):
        largest = np.abs(waits[kind]).max(initial=0.0)
        first[kind] = waits[kind] / largest if largest > 0 else 0.0
    past = deadline & (waits >= 0)
    # Sec. V-C: min(., 0) for deadlines, so all jobs past theirs are equal, and highest (O20)
    first[deadline] = np.minimum(first[deadline], 0.0)
    if params.late_last:
        first[past] = -1.0
    return params.alpha1 * first - params.alpha2 * remaining
