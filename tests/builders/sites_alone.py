"""Site schedulers run by themselves, without kernel and world, on books of their own.

Slots count from 0, slot t is [t, t + 1); a job whose last busy slot is t_i is complete at the END time t_i + 1 and pays
f(t_i + 1 - a).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from skedge.core.errors import ScenarioError, StateError
from skedge.core.model.cluster import Ints
from skedge.core.model.ties import SLACK
from skedge.policies.okita.dta import Transfers
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.policies.okita.slots import Decision, SiteScheduler


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    status
        ``done``, or ``never``: nothing that the empty system can hold would complete it.
    last
        t_i, its last busy slot; None if it never runs.
    latency, parameter_cost, data_cost
        f_i(t_i + 1 - a_i) and the two parts of B_i; 0 if it never runs.
    log_latency
        Natural logarithm of the latency cost, which does not stop where floats do (O24).
    """

    job: int
    status: Literal["done", "never"]
    last: int | None = None
    latency: float = 0.0
    parameter_cost: float = 0.0
    data_cost: float = 0.0
    log_latency: float = -np.inf

    @property
    def bandwidth(self) -> float:
        """B_i, Eq. (1)."""
        return self.parameter_cost + self.data_cost

    @property
    def total(self) -> float:
        """The job's part of the objective (2)."""
        return self.latency + self.bandwidth


class Alone:
    """A site scheduler with books of its own.

    Attributes
    ----------
    outcomes
        Of the jobs that are complete, and of those that can never run.
    """

    def __init__(self, scheduler: SiteScheduler) -> None:
        self.scheduler = scheduler
        self.outcomes: dict[int, Outcome] = {}

    def arrive(self, job: SiteJob) -> None:
        """Give the scheduler a job; it may give it up at once."""
        if job.id in self.outcomes:
            raise ScenarioError(f"job {job.id}: id = {job.id} is taken; every job must have its own")
        self.scheduler.arrive(job)
        if job.id not in self.scheduler.active:
            self.outcomes[job.id] = Outcome(job.id, "never")

    def step(self, slot: int) -> Sequence[Decision]:
        """Decide slot `slot` and book it; slots must be stepped through one after the other.

        Raises
        ------
        StateError
            If the decisions take more than there is (a bug of the scheduler).
        """
        decisions = self.scheduler.decide(slot)
        self._check_capacity(decisions, slot)
        for decision in decisions:
            self._book(decision, slot)
        return decisions

    def run(self, jobs: Iterable[SiteJob], cap: int = 100_000) -> Iterator[tuple[int, Sequence[Decision]]]:
        """Decide slot after slot until all `jobs` are complete: (slot, decisions), empty slots left out.

        Raises
        ------
        ScenarioError
            If slot `cap` is reached.
        """
        waiting = sorted(jobs, key=lambda job: (job.arrival, job.id), reverse=True)
        slot, active = 0, self.scheduler.active
        while waiting or active:
            if not active:
                slot = max(slot, waiting[-1].arrival)
            if slot >= cap:
                raise ScenarioError(f"{len(active)} jobs are not complete after {cap} slots; give more")
            while waiting and waiting[-1].arrival <= slot:
                self.arrive(waiting.pop())
            decisions = self.step(slot)
            if decisions:
                yield slot, decisions
            slot += 1

    def _book(self, decision: Decision, slot: int) -> None:
        if decision.placement is None or decision.transfer is None:
            return
        self.scheduler.pay(decision)
        progress, transfers = self.scheduler.active[decision.job], decision.transfer
        progress.left = after(progress.left, transfers)
        if not progress.left.any():
            response, f = slot + 1 - progress.job.arrival, progress.job.latency
            self.outcomes[progress.job.id] = Outcome(
                progress.job.id, "done", slot, f(response), progress.parameter_cost, progress.data_cost,
                f.log(response),
            )  # fmt: skip
            del self.scheduler.active[progress.job.id]

    def _check_capacity(self, decisions: Sequence[Decision], slot: int) -> None:
        sites = self.scheduler.sites
        free = sites.capacity.copy()
        for decision in decisions:
            if decision.placement is not None:
                free -= decision.placement.demand(self.scheduler.active[decision.job].job)
        for r, k in np.argwhere(free < -3 * SLACK * sites.capacity):
            raise StateError(f"slot {slot}: site {r} gives {-free[r, k]:.6g} of resource {k} more than it has")


def run(
    scheduler: SiteScheduler, jobs: Iterable[SiteJob], cap: int = 100_000
) -> Iterator[tuple[int, Sequence[Decision]]]:
    """As :meth:`Alone.run`, where the outcomes are of no interest."""
    return Alone(scheduler).run(jobs, cap)


def after(left: Ints, transfers: Transfers) -> Ints:
    """Chunks by site after a slot: M less what left or was trained, plus what came."""
    left_after = left - transfers.trained
    np.subtract.at(left_after, transfers.moves[:, 0], transfers.moves[:, 2])
    np.add.at(left_after, transfers.moves[:, 1], transfers.moves[:, 2])
    return left_after


def bandwidth_cost(sites: Sites, job: SiteJob, decisions: Iterable[Decision]) -> float:
    """B_i recomputed by Eq. (1) from the job's decisions, not from what was booked."""
    exchange_cost = moved_cost = 0.0
    for decision in decisions:
        if decision.placement is not None and decision.transfer is not None:
            exchange_cost += float(sites.cost[:, decision.placement.ps] @ decision.placement.workers)
            moves = decision.transfer.moves
            moved_cost += float(sites.cost[moves[:, 0], moves[:, 1]] @ moves[:, 2])
    return job.exchange_mb * exchange_cost + job.chunk_mb * moved_cost
