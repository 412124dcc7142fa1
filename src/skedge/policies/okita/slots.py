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
    """The placement and the transfers of one job in one slot.

    Attributes
    ----------
    left
        M_i^r before the slot, chunks where they lie, shape ``(sites,)``.
    placement
        y and s of the slot; None if the job is delayed.
    transfer
        d and g of the slot; None if the job is delayed.
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
    parameter_cost, data_cost
        Bandwidth cost paid so far, the two terms of Eq. (1).
    """

    job: SiteJob
    left: Ints
    parameter_cost: float = 0.0
    data_cost: float = 0.0

    @property
    def bandwidth(self) -> float:
        """bcost_i*."""
        return self.parameter_cost + self.data_cost


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
        """Decide for every active job, in the scheduler's own order.

        Parameters
        ----------
        slot
            t, from 0.
        """
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
        """Take note that a job has lost its workers, because a site of theirs is out of service."""

    def pay(self, decision: Decision) -> None:
        """Add the bandwidth cost of the slot to a job that runs (line 24)."""
        if decision.placement is not None and decision.transfer is not None:
            progress = self.active[decision.job]
            progress.parameter_cost += decision.placement.cost
            progress.data_cost += progress.job.chunk_mb * decision.transfer.cost_per_mb


def free_after(sites: Sites, jobs: dict[int, SiteJob], decisions: Iterable[Decision]) -> Floats:
    """Av_r^k after these decisions of a slot, shape ``(sites, resources)``; never below 0."""
    free = sites.capacity.copy()
    for decision in decisions:
        if decision.placement is not None:
            free -= decision.placement.demand(jobs[decision.job])
    return np.maximum(free, 0.0)


NEVER_FITS = "never_fits: a worker and its PS have no room on the sites, even on empty ones"


class SiteDriver:
    """Drives a scheduler slot by slot, and makes orders of its decisions.

    Parameters
    ----------
    scheduler
        Made for all sites.
    physics
        For the length of a slot [µs].

    Attributes
    ----------
    decisions
        The decisions of the last slot, in the order in which they were made.
    jobs
        The announced jobs that are in the system, by row.
    all_sites, current_sites
        The sites, and the sites as they are now: those out of service have no capacity.
    postponed
        Jobs that wait and whose postponement has been ordered.
    slot
        The last slot that was decided.
    """

    def __init__(self, scheduler: SiteScheduler, physics: Physics) -> None:
        self.scheduler, self.physics = scheduler, physics
        self.all_sites = self.current_sites = scheduler.sites
        self.decisions: Sequence[Decision] = ()
        self.jobs: dict[int, SiteJob] = {}
        self.postponed: set[int] = set()
        self.slot = self.wake_at = -1

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Take in arrivals and departures; at the beginning of a slot decide for all active jobs."""
        active, slot = self.scheduler.active, self.physics.slot
        if event.servers:
            sites = self.all_sites
            self.current_sites = sites if view.in_service.all() else replace(sites, capacity=view.amounts.copy())
        for job in event.left:
            self._forget(job)
        for job in event.interrupted:
            self.scheduler.interrupted(job)
        for job in event.arrived:
            self.jobs[job] = new_job = site_job(job, view, self.physics)
            self.scheduler.arrive(new_job)
        # decisions are made at slot boundaries alone, once each: an arrival within a slot waits for the next one
        if view.now % slot == 0 and view.now // slot > self.slot:
            self.slot = view.now // slot
            for progress in active.values():
                left = view.chunks_left(progress.job.id)
                # the same array as long as nothing was trained: Okita's tables are kept for it
                progress.left = progress.left if (progress.left == left).all() else left.copy()
            # only decisions see sites out of service; arrivals are judged by all sites, which come back
            self.scheduler.sites = self.current_sites
            self.decisions = self.scheduler.decide(self.slot)
            self.scheduler.sites = self.all_sites
            yield from self._orders(view)
        for job in [job for job in self.jobs if job not in active]:
            self._forget(job)
            yield Reject(job, NEVER_FITS)
        # an arrival within a slot must not add a second wake-up for its end
        if active and self.wake_at <= view.now:
            self.wake_at = (view.now // slot + 1) * slot
            yield WakeAt(self.wake_at)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The decision for `job` in the last slot, and the other active jobs."""
        ids = view.cluster.server_ids
        decision = next((decision for decision in self.decisions if decision.job == job), None)
        peers = [{"job": view.job_id(peer), "workers": int(view.workers[peer])} for peer in self.jobs if peer != job]
        table: dict[str, Any] = {"compares": "the jobs in the system, in the order of arrival", "in_system": peers}
        if decision is not None and decision.placement is not None and decision.transfer is not None:
            workers, _ = allocation_pairs(decision)
            table |= {
                "sites": [{"site": ids[site], "workers": n} for site, n in workers],
                "ps": ids[decision.placement.ps],
                "exchange_per_slot": decision.placement.cost,
                "moved": decision.transfer.table(ids),
            }
        return table

    def _forget(self, job: int) -> None:
        self.scheduler.active.pop(job, None)
        self.jobs.pop(job, None)
        self.postponed.discard(job)

    def _orders(self, view: View) -> Iterator[Order]:
        """Orders of the slot: suspensions, which free what allocations take, then allocations, then transfers."""
        placed = {decision.job: decision for decision in self.decisions if self._in_service(decision, view)}
        for decision in self.decisions:
            allocation = view.placement(decision.job)
            if allocation and (
                decision.job not in placed
                or (allocation, view.ps_placement(decision.job)) != allocation_pairs(placed[decision.job])
            ):
                yield Suspend(decision.job, "moved" if decision.job in placed else _delay_reason(decision))
            elif not allocation and decision.job not in placed and decision.job not in self.postponed:
                yield Postpone(decision.job, _delay_reason(decision))
                self.postponed.add(decision.job)
        for job, decision in placed.items():
            self.scheduler.pay(decision)
            self.postponed.discard(job)
            if not view.placement(job):
                assert decision.placement is not None  # noqa: S101 - it stands somewhere
                yield Allocate(job, *allocation_pairs(decision), decision.verb, value=decision.placement.cost)
        for decision in placed.values():
            # after all suspensions and allocations: a job's data follow its workers
            yield from self._transfers(decision)

    def _in_service(self, decision: Decision, view: View) -> bool:
        if decision.placement is None:
            return False
        workers, ps = allocation_pairs(decision)
        return all(view.in_service[site] for site, _ in (*workers, *ps))

    def _transfers(self, decision: Decision) -> Iterator[Order]:
        assert decision.transfer is not None  # noqa: S101 - every job that stands somewhere has its data seen to
        mb, cost = self.jobs[decision.job].chunk_mb, self.all_sites.cost
        for source, target, chunks in decision.transfer.moves.tolist():
            yield Transfer(decision.job, source, target, chunks, "data", mb * chunks * float(cost[source, target]))


def _delay_reason(decision: Decision) -> str:
    """The reason on record for a job without placement: it is delayed, or one of its sites is out of service."""
    return decision.verb if decision.placement is None else "out_of_service"


def sites_of(cluster: Cluster) -> Sites:
    """The cluster as the schedulers see it."""
    return Sites(cluster.amounts, cluster.site_cost, cluster.asymmetric)


def site_job(job: int, view: View, physics: Physics) -> SiteJob:
    """A job as it is announced; its arrival is the first slot that begins at or after now.

    Raises
    ------
    ScenarioError
        If the job has no latency cost.
    """
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
        # O11: below one chunk a slot, rounding down would leave every site without work for ever
        rate=max(rate, 1.0),
        chunk_mb=float(jobs.chunk_mb[job]),
        exchange_mb=float(jobs.exchange_mb[job]),
        data=tuple(jobs.data[job].tolist()),
        worker=tuple(jobs.worker_needs[job].tolist()),
        ps=tuple(jobs.ps_needs[job].tolist()),
        latency=latency,
    )


def allocation_pairs(decision: Decision) -> tuple[Placement, Placement]:
    """Workers and PS of a placed job, as (site, count) pairs."""
    assert decision.placement is not None  # noqa: S101 - it stands somewhere
    return pairs(decision.placement.workers), ((decision.placement.ps, 1),)
