"""Slots of Okita's model: jobs that are not complete, what is decided for each in a slot, what it has cost so far.

A scheduler decides slot by slot (:meth:`SiteScheduler.decide`); the books are kept here. Slots count from 0, slot t is
[t, t + 1); a job whose last busy slot is t_i is complete at the END time t_i + 1 and pays f(t_i + 1 - a).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from skedge.core.errors import ScenarioError, StateError
from skedge.core.model import Floats, Ints

from .dta import Transfer
from .osf import Plan
from .pa import SLACK, Placement
from .sites import SiteJob, Sites, check_job

Verb = Literal["keep", "migrate", "delay", "run"]
"""``keep`` the tentative plan, ``migrate`` to what is left, ``delay``; ``run`` where there are no tentative plans."""


@dataclass(frozen=True, eq=False)
class Conflict:
    """The tentative plan does not fit what the jobs before left: to migrate or to delay.

    Attributes
    ----------
    occupant, release
        i', an occupant of an overdrawn site, and its l*, after which it is thought to leave.
    migrated
        The plan of the same N and l in what is left; None if there is none.
    migrate_cost, delay_cost
        cost1 and cost2, both with what the job has paid so far; cost1 is None without a plan.
    delays
        Whether cost1 > cost2, decided by their difference, or there is no plan.
    """

    occupant: int
    release: int
    migrated: Plan | None
    migrate_cost: float | None
    delay_cost: float
    delays: bool


@dataclass(frozen=True, eq=False)
class Decision:
    """What one job does in one slot, and why.

    Attributes
    ----------
    left
        M_i^r before the slot, chunks where they lie, shape ``(sites,)``.
    placement
        y and s of the slot; None if the job is delayed.
    transfer
        What is trained and what moves; None if the job is delayed.
    priority, tentative, conflict
        O_i(t), the plan of the job alone, and what came of a conflict; only of Okita.
    """

    job: int
    verb: Verb
    left: Ints
    placement: Placement | None = None
    transfer: Transfer | None = None
    priority: float | None = None
    tentative: Plan | None = None
    conflict: Conflict | None = None


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


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    status
        ``done``, or ``never``: nothing that the empty system can hold would complete it.
    last
        t_i, its last busy slot; None if it never runs.
    latency, parameters, data
        f_i(t_i + 1 - a_i) and the two parts of B_i; 0 if it never runs.
    log_latency
        Natural logarithm of the latency cost, which does not stop where floats do (O24).
    """

    job: int
    status: Literal["done", "never"]
    last: int | None = None
    latency: float = 0.0
    parameters: float = 0.0
    data: float = 0.0
    log_latency: float = -np.inf

    @property
    def bandwidth(self) -> float:
        """B_i, Eq. (1)."""
        return self.parameters + self.data

    @property
    def total(self) -> float:
        """The job's part of the objective (2)."""
        return self.latency + self.bandwidth


@dataclass(eq=False)
class SiteScheduler:
    """The books of a scheduler; it derives from this and says what every job does in a slot.

    Attributes
    ----------
    active
        Jobs that are not complete, by id.
    outcomes
        Those that are, and those that can never run.
    """

    sites: Sites
    active: dict[int, Progress] = field(default_factory=dict, init=False)
    outcomes: dict[int, Outcome] = field(default_factory=dict, init=False)

    def decide(self, slot: int) -> list[Decision]:
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
        if job.id in self.active or job.id in self.outcomes:
            raise ScenarioError(f"job {job.id}: id = {job.id} is taken; every job must have its own")
        self.active[job.id] = Progress(job, job.chunks)

    def step(self, slot: int) -> list[Decision]:
        """Decide slot `slot` and book it; slots must be stepped through one after the other.

        Raises
        ------
        StateError
            If the decisions take more than there is (a bug of the scheduler).
        """
        decisions = self.decide(slot)
        self._check_capacity(decisions, slot)
        for decision in decisions:
            self._book(decision, slot)
        return decisions

    def give_up(self, job: int) -> None:
        """Report a job as one that can never run."""
        del self.active[job]
        self.outcomes[job] = Outcome(job, "never")

    def interrupted(self, job: int) -> None:
        """A job has lost its workers, because a site of theirs is out of service."""

    def pay(self, decision: Decision) -> None:
        """Book what a job that stands somewhere pays for bandwidth in the slot."""
        if decision.placement is not None and decision.transfer is not None:
            at = self.active[decision.job]
            at.parameters += decision.placement.cost
            at.data += at.job.chunk_mb * decision.transfer.cost_per_mb

    def _book(self, decision: Decision, slot: int) -> None:
        if decision.placement is None or decision.transfer is None:
            return
        self.pay(decision)
        at, moved = self.active[decision.job], decision.transfer
        at.left = after(at.left, moved)
        if not at.left.any():
            response, f = slot + 1 - at.job.arrival, at.job.latency
            self.outcomes[at.job.id] = Outcome(
                at.job.id, "done", slot, f(response), at.parameters, at.data, f.log(response)
            )  # fmt: skip
            del self.active[at.job.id]

    def _check_capacity(self, decisions: list[Decision], slot: int) -> None:
        free = self.sites.capacity.copy()
        for decision in decisions:
            if decision.placement is not None:
                free -= decision.placement.demand(self.active[decision.job].job)
        for r, k in np.argwhere(free < -3 * SLACK * self.sites.capacity):
            raise StateError(f"slot {slot}: site {r} gives {-free[r, k]:.6g} of resource {k} more than it has")


def after(left: Ints, moved: Transfer) -> Ints:
    """Chunks by site after a slot: M less what left or was trained, plus what came."""
    rest = left - moved.trained
    np.subtract.at(rest, moved.moves[:, 0], moved.moves[:, 2])
    np.add.at(rest, moved.moves[:, 1], moved.moves[:, 2])
    return rest


def bandwidth_cost(sites: Sites, job: SiteJob, decisions: Iterable[Decision]) -> float:
    """B_i recomputed by Eq. (1) from the job's decisions, not from what was booked."""
    exchanged = moved = 0.0
    for decision in decisions:
        if decision.placement is not None and decision.transfer is not None:
            exchanged += float(sites.cost[:, decision.placement.ps] @ decision.placement.workers)
            at = decision.transfer.moves
            moved += float(sites.cost[at[:, 0], at[:, 1]] @ at[:, 2])
    return job.exchange_mb * exchanged + job.chunk_mb * moved


def run(scheduler: SiteScheduler, jobs: Iterable[SiteJob], cap: int = 100_000) -> Iterator[tuple[int, list[Decision]]]:
    """Decide slot after slot until all `jobs` are complete: (slot, decisions), empty slots left out.

    Raises
    ------
    ScenarioError
        If slot `cap` is reached.
    """
    waiting = sorted(jobs, key=lambda job: (job.arrival, job.id), reverse=True)
    slot = 0
    while waiting or scheduler.active:
        if not scheduler.active:
            slot = max(slot, waiting[-1].arrival)
        if slot >= cap:
            raise ScenarioError(f"{len(scheduler.active)} jobs are not complete after {cap} slots; give more")
        while waiting and waiting[-1].arrival <= slot:
            scheduler.arrive(waiting.pop())
        decisions = scheduler.step(slot)
        if decisions:
            yield slot, decisions
        slot += 1


def free_after(sites: Sites, jobs: dict[int, SiteJob], decisions: Iterable[Decision]) -> Floats:
    """What is left of a slot after these decisions, shape ``(sites, resources)``; never below 0."""
    free = sites.capacity.copy()
    for decision in decisions:
        if decision.placement is not None:
            free -= decision.placement.demand(jobs[decision.job])
    return np.maximum(free, 0.0)
