"""Site schedulers, which decide slot by slot, and the driver that makes policies of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from skedge.core.errors import ScenarioError
from skedge.core.events import Allocate, Event, Order, Postpone, Reject, Suspend, Transfer, WakeAt, pairs
from skedge.core.model.cluster import Cluster, Floats, Ints, Physics, Placement
from skedge.core.model.job_fields import JobColumns
from skedge.core.model.latency import LatencyCost
from skedge.core.policy import View

from .dta import Transfers
from .sites import SiteJob, SitePlacement, Sites, check_job

if TYPE_CHECKING:
    from skedge.core.model.scenario import Scenario

Verb = Literal["keep", "migrate", "delay", "run"]
"""``keep`` the tentative plan, ``migrate`` to what is left, ``delay``; ``run`` where there are no tentative plans."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What one job does in one slot.

    Attributes
    ----------
    left
        M_i^r before the slot, chunks where they lie, shape ``(sites,)``.
    placement
        y and s of the slot; None if the job is delayed.
    transfer
        What is trained and what moves; None if the job is delayed.
    """

    job: int
    verb: Verb
    left: Ints
    placement: SitePlacement | None = None
    transfer: Transfers | None = None


@dataclass(eq=False)
class Progress:
    """A job that is not complete.

    Attributes
    ----------
    left
        M_i^r: chunks not yet trained where they lie, shape ``(sites,)``; replaced, never changed in place.
    parameters, data
        Bandwidth cost paid so far.
    """

    job: SiteJob
    left: Ints
    parameters: float = 0.0
    data: float = 0.0

    @property
    def bandwidth(self) -> float:
        """bcost_i*."""
        return self.parameters + self.data


@dataclass(eq=False)
class SiteScheduler:
    """Base of site schedulers; a subclass decides the placement of every job in a slot.

    Attributes
    ----------
    active
        Jobs that are not complete, by id.
    """

    sites: Sites
    active: dict[int, Progress] = field(default_factory=dict, init=False)

    def decide(self, slot: int) -> Sequence[Decision]:
        """A decision for every active job, in the order in which they were made."""
        raise NotImplementedError

    def arrive(self, job: SiteJob) -> None:
        """Take in a job, in its arrival slot or later; one that empty sites cannot hold is given up at once.

        Raises
        ------
        ScenarioError
            If it is not made for these sites, or its id is taken.
        """
        check_job(self.sites, job)
        if job.id in self.active:
            raise ScenarioError(f"job {job.id}: id = {job.id} is taken; every job must have its own")
        self.active[job.id] = Progress(job, job.chunks)

    def give_up(self, job: int) -> None:
        """Drop a job that can never run."""
        del self.active[job]

    def interrupted(self, job: int) -> None:
        """A job has lost its workers, because a site of theirs is out of service."""

    def pay(self, decision: Decision) -> None:
        """Add what a job that runs pays for bandwidth in the slot."""
        if decision.placement is not None and decision.transfer is not None:
            at = self.active[decision.job]
            at.parameters += decision.placement.cost
            at.data += at.job.chunk_mb * decision.transfer.cost_per_mb


def free_after(sites: Sites, jobs: dict[int, SiteJob], decisions: Iterable[Decision]) -> Floats:
    """What is left of a slot after these decisions, shape ``(sites, resources)``; never below 0."""
    free = sites.capacity.copy()
    for decision in decisions:
        if decision.placement is not None:
            free -= decision.placement.demand(jobs[decision.job])
    return np.maximum(free, 0.0)


NEVER_FITS = "never_fits: a worker and its PS have no room on the sites, even on empty ones"


class SiteDriver:
    """Drives a scheduler.

    Attributes
    ----------
    decided
        The decisions of the last slot, in the order in which they were made.
    jobs
        The scheduler's state of the jobs in the system.
    there
        The sites as they are now: those out of service have no capacity.
    slot
        The last slot that was decided.
    """

    def __init__(self, scheduler: SiteScheduler, physics: Physics) -> None:
        self.scheduler, self.physics = scheduler, physics
        self.full = self.there = scheduler.sites
        self.decided: Sequence[Decision] = ()
        self.jobs: dict[int, SiteJob] = {}
        self.waits: set[int] = set()
        self.slot = self.wake_at = -1

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Take in arrivals and departures; at the beginning of a slot decide for all active jobs."""
        active, slot = self.scheduler.active, self.physics.slot
        if event.servers:
            self.there = self.full if view.in_service.all() else replace(self.full, capacity=view.amounts.copy())
        for job in event.left:
            self._forget(job)
        for job in event.interrupted:
            self.scheduler.interrupted(job)
        for job in event.arrived:
            self.jobs[job] = made = site_job(job, view, self.physics)
            self.scheduler.arrive(made)
        if view.now % slot == 0 and view.now // slot > self.slot:
            self.slot = view.now // slot
            for at in active.values():
                left = view.chunks_left(at.job.id)
                # the same array as long as nothing was trained: Okita's tables are kept for it
                at.left = at.left if (at.left == left).all() else left.copy()
            # only decisions see sites out of service; arrivals are judged by all sites, which come back
            self.scheduler.sites = self.there
            self.decided = self.scheduler.decide(self.slot)
            self.scheduler.sites = self.full
            yield from self._orders(view)
        for job in [job for job in self.jobs if job not in active]:
            self._forget(job)
            yield Reject(job, NEVER_FITS)
        # an arrival within a slot must not add a second wake-up for its end
        if active and self.wake_at <= view.now:
            self.wake_at = (view.now // slot + 1) * slot
            yield WakeAt(self.wake_at)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """What was decided for `job` in the last slot, and the other active jobs."""
        ids = view.cluster.server_ids
        one = next((one for one in self.decided if one.job == job), None)
        others = [
            {"job": view.job_id(other), "workers": int(view.workers[other])} for other in self.jobs if other != job
        ]
        found: dict[str, Any] = {"compares": "the jobs in the system, in the order of arrival", "in_system": others}
        if one is not None and one.placement is not None and one.transfer is not None:
            workers, _ = where(one)
            found |= {
                "sites": [{"site": ids[site], "workers": n} for site, n in workers],
                "ps": ids[one.placement.ps],
                "exchange_per_slot": one.placement.cost,
                "moved": [
                    {"from": ids[source], "to": ids[target], "chunks": chunks}
                    for source, target, chunks in one.transfer.moves.tolist()
                ],
            }
        return found

    def _forget(self, job: int) -> None:
        self.scheduler.active.pop(job, None)
        self.jobs.pop(job, None)
        self.waits.discard(job)

    def _orders(self, view: View) -> Iterator[Order]:
        """Suspensions first, then allocations, then transfers."""
        gets = {one.job: one for one in self.decided if self._stands(one, view)}
        for one in self.decided:
            held = view.placement(one.job)
            if held and (one.job not in gets or (held, view.ps_placement(one.job)) != where(gets[one.job])):
                yield Suspend(one.job, "moved" if one.job in gets else _why_not(one))
            elif not held and one.job not in gets and one.job not in self.waits:
                yield Postpone(one.job, _why_not(one))
                self.waits.add(one.job)
        for job, one in gets.items():
            self.scheduler.pay(one)
            self.waits.discard(job)
            if not view.placement(job):
                assert one.placement is not None  # noqa: S101 - it stands somewhere
                yield Allocate(job, *where(one), one.verb, value=one.placement.cost)
        for one in gets.values():
            # after all suspensions and allocations: a job's data follow its workers
            yield from self._transfers(one)

    def _stands(self, one: Decision, view: View) -> bool:
        if one.placement is None:
            return False
        workers, ps = where(one)
        return all(view.in_service[site] for site, _ in (*workers, *ps))

    def _transfers(self, one: Decision) -> Iterator[Order]:
        assert one.transfer is not None  # noqa: S101 - every job that stands somewhere has its data seen to
        mb, cost = self.jobs[one.job].chunk_mb, self.full.cost
        for source, target, chunks in one.transfer.moves.tolist():
            yield Transfer(one.job, source, target, chunks, "data", mb * chunks * float(cost[source, target]))


def _why_not(one: Decision) -> str:
    """Why a job has no placement: it is delayed, or a site of its placement is out of service."""
    return one.verb if one.placement is None else "out_of_service"


def sites_of(cluster: Cluster) -> Sites:
    """The cluster as the schedulers see it."""
    return Sites(cluster.amounts, cluster.site_cost, cluster.asymmetric)


def site_job(job: int, view: View, physics: Physics) -> SiteJob:
    """What a job announces."""
    latency = view.latency(job)
    if latency is None:
        raise ScenarioError(f"job {view.job_id(job)!r}: latency is missing; a job at sites has a latency cost")
    # the first slot that begins at or after the arrival
    return _site_job(job, -(-view.now // physics.slot), view.jobs, view.slot_chunks[job], latency)


def site_jobs(scenario: Scenario) -> list[SiteJob]:
    """All jobs of a scenario, for constants that are taken from them before a run."""
    jobs, slot = scenario.jobs, scenario.physics.slot
    return [
        _site_job(job, -(-int(jobs.arrival[job]) // slot), jobs, scenario.slot_chunks[job], latency)
        for job, latency in enumerate(jobs.latency)
        if latency is not None
    ]


def _site_job(job: int, arrival: int, jobs: JobColumns, rate: float, latency: LatencyCost) -> SiteJob:
    return SiteJob(
        job,
        arrival,
        rate=max(rate, 1.0),
        chunk_mb=float(jobs.chunk_mb[job]),
        exchange_mb=float(jobs.exchange_mb[job]),
        data=tuple(jobs.data[job].tolist()),
        worker=tuple(jobs.worker_needs[job].tolist()),
        ps=tuple(jobs.ps_needs[job].tolist()),
        latency=latency,
    )


def where(one: Decision) -> tuple[Placement, Placement]:
    """Workers and PS of a placed job."""
    assert one.placement is not None  # noqa: S101 - it stands somewhere
    return pairs(one.placement.workers), ((one.placement.ps, 1),)
