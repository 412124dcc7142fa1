"""PD-ORS and OASiS as policies: offers on arrival, plans carried out slot by slot, prices on record.

A job that is admitted has its whole plan reserved at once, and its workers and PSs are changed at the slot boundaries
of the plan. A subclass gives the prices and the cost of a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.events import Allocate, Event, Order, Piece, Price, Reject, Reserve, Suspend
from skedge.core.model.cluster import Cluster, Floats, Ints, Physics, Placement
from skedge.core.model.speed import max_units, servers_for
from skedge.core.model.ties import SLACK
from skedge.core.policy import BasePolicy, Guarantees, Need, Params, View

from .admission import Admission, AdmissionAnswer, Plan, SlotPlan
from .explain import as_tables
from .job import TrainingJob, announced
from .prices import Prices, PrimalDualParams, frozen_prices

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.model.scenario import Scenario


class Allocation(NamedTuple):
    """Workers and PSs of a job: (server, count) pairs, by server."""

    workers: Placement
    ps: Placement

    def by_server(self) -> dict[int, tuple[int, int]]:
        """(workers, PSs) on every server that has some, by server."""
        workers, ps = dict(self.workers), dict(self.ps)
        return {server: (workers.get(server, 0), ps.get(server, 0)) for server in sorted({*workers, *ps})}


@dataclass
class AdmittedJob:
    """An admitted job.

    Attributes
    ----------
    ratio, needs
        gamma, and the demands of a worker and of a PS.
    plan
        Its allocation by slot; empty once it has outlived the plan.
    allocation
        Its allocation now; None while it is suspended.
    last_allocation
        Its last allocation, with which it continues should it outlive its plan.
    overdue, reserved_until
        True if it has outlived its plan (D12), and the end of its reservation since then [µs].
    """

    ratio: float
    needs: tuple[Floats, Floats]
    plan: dict[int, Allocation] = field(default_factory=dict)
    allocation: Allocation | None = None
    last_allocation: Allocation | None = None
    overdue: bool = False
    reserved_until: int = 0

    def outlive_plan(self) -> None:
        """Continue by D12: one that could not begin in its slots, with the last allocation of its plan."""
        if self.last_allocation is None and self.plan:
            self.last_allocation = self.plan[max(self.plan)]
        self.overdue, self.plan = True, {}


class PrimalDual(BasePolicy):
    """Base of PD-ORS and OASiS on servers with resources."""

    needs: ClassVar[frozenset[Need]] = frozenset({"resources", "a utility of every job", "a horizon"})
    Parameters: ClassVar[type[Params]] = PrimalDualParams
    groups: ClassVar[int] = 1

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; on servers with resources every job that runs has a plan."""
        return Guarantees(uploads="with_allocations", plans=True)

    def calibrate(self, jobs: Sequence[TrainingJob], capacity: Floats, horizon: int) -> Prices:
        """The constants of the price functions."""
        raise NotImplementedError

    def admission(self, capacity: Floats, horizon: int, prices: Prices) -> Admission:
        """The admission algorithm for a cluster and a horizon [slots]."""
        raise NotImplementedError

    @property
    def history(self) -> str:
        """The file of `price_source`; empty for ``trace``."""
        return str(self.params.history)

    # -- constants -----------------------------------------------------------------------------------------------

    def calibrated(self, scenario: Scenario) -> Self:
        """A copy of the policy with its constants set, to :meth:`constants` where they were not."""
        if self.params.low is not None:
            return self
        return type(self)(**{**self.params.model_dump(), **self.constants(scenario)})

    def constants(self, scenario: Scenario) -> dict[str, tuple[float, ...]]:
        """L, U and mu from the jobs of `scenario`, as parameters.

        Raises
        ------
        PolicyError
            If no job arrives within the horizon.
        ScenarioError
            As :func:`.prices.calibrate`.
        """
        horizon, physics = scenario.physics.slots or 0, scenario.physics
        training_jobs, jobs = [], scenario.jobs
        for job, utility in enumerate(jobs.utility):
            arrival = -(-int(jobs.arrival[job]) // physics.slot)
            if arrival < horizon and utility is not None:
                training_jobs.append(announced(job, arrival, jobs, utility, physics, self.params.job_levels))
        if not training_jobs:
            raise PolicyError(
                f"{self.name}: no job with a utility arrives before the horizon, to take prices from; give "
                f"{self.name}:price_source=file:<a scenario file or jobs table>"
            )
        try:
            prices = self.calibrate(training_jobs, scenario.cluster.amounts, horizon)
        except ScenarioError as error:
            numbered = ", ".join(f"{i}: {name}" for i, name in enumerate(scenario.cluster.resources))
            raise ScenarioError(f"{self.name}: {error} (resources are {numbered})") from error
        return {
            "low": tuple(prices.low[: self.groups].tolist()),
            "high": tuple(prices.high[: self.groups].ravel().tolist()),
            "mu": prices.mu,
        }

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.horizon = physics.slots or 0
        self.scheduler = self.admission(
            cluster.amounts, self.horizon, frozen_prices(self.name, self.params, cluster, self.groups)
        )
        self.jobs: dict[int, AdmittedJob] = {}
        self.last_offer: tuple[int, TrainingJob, AdmissionAnswer] | None = None
        self.offer_rng_state = rng.bit_generator.state

    # -- events --------------------------------------------------------------------------------------------------

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Offer each arrival, then adjust the holdings of every job to its plan for this slot."""
        for job in event.left:
            self.jobs.pop(job, None)
        for job in event.interrupted:
            self.jobs[job].allocation = None
        # work has outlived its plan, or a server of it is out of service: the rest continues by D12
        for job in (*event.broken, *event.interrupted):
            self.jobs[job].outlive_plan()
        for job in event.arrived:
            yield from self._offer(job, view)
        yield from self._carry_out(view)

    def _offer(self, job: int, view: View) -> Iterator[Order]:
        """Alg. 1."""
        slot, utility = self.physics.slot, view.utility(job)
        # D11: seen within a slot, a job can begin with the next one
        arrival = -(-view.now // slot)
        if utility is None:
            yield Reject(job, "no_utility: it does not say what it is worth")
            return
        if arrival >= self.horizon:
            yield Reject(
                job, f"too_late: it arrives in slot {arrival}; the last before the horizon is {self.horizon - 1}"
            )
            return
        training_job = announced(job, arrival, view.jobs, utility, self.physics, self.params.job_levels)
        # a copy: the offer below changes the prices in place
        before = self.scheduler.loads.price[arrival:].copy()
        self.offer_rng_state = self.rng.bit_generator.state
        answer = self.scheduler.offer(training_job)
        self.last_offer, plan = (job, training_job, answer), answer.plan
        value = None if plan is None else plan.payoff
        # step 4 of Alg. 1, for good: a job is offered once
        if plan is None or not answer.admitted:
            yield Reject(job, answer.reason, value)
            return
        self.jobs[job] = AdmittedJob(
            training_job.ratio,
            training_job.demands,
            {slot_plan.slot: allocation_of(slot_plan) for slot_plan in plan.slots},
        )
        for server, workers, ps, start, end in reservations(self.jobs[job].plan):
            yield Reserve(job, server, workers, start * slot, end * slot, answer.reason, ps, value)
        yield Price(job, tuple(self._changes(plan, before, arrival)))

    def _changes(self, plan: Plan, before: Floats, first: int) -> Iterator[Any]:
        """The prices that the plan has changed; `before` begins with slot `first`."""
        for slot_plan in plan.slots:
            rows = np.array(slot_plan.machines)
            now = self.scheduler.loads.price[slot_plan.slot, rows]
            yield from changed_prices(
                self.cluster, slot_plan.slot, self.physics.slot, rows, before[slot_plan.slot - first, rows], now
            )

    # -- plans carried out ---------------------------------------------------------------------------------------

    def _carry_out(self, view: View) -> Iterator[Order]:
        """Orders of the slot: suspensions, then planned allocations, then jobs that have outlived their plan (D12)."""
        now = view.now // self.physics.slot
        planned = {job: admitted.plan.get(now) for job, admitted in self.jobs.items() if not admitted.overdue}
        changed = [job for job, allocation in planned.items() if allocation != self.jobs[job].allocation]
        for job in changed:
            yield from self._stop(job)
        for job in changed:
            allocation = planned[job]
            if allocation is not None:
                yield from self._begin(job, allocation, view)
        for job in [job for job, admitted in self.jobs.items() if admitted.overdue]:
            yield from self._continue_overdue(job, view)

    def _stop(self, job: int) -> Iterator[Order]:
        admitted = self.jobs[job]
        if admitted.allocation is not None:
            admitted.allocation = None
            yield Suspend(job, "as planned" if not admitted.overdue else "a planned job needs its room")

    def _begin(self, job: int, allocation: Allocation, view: View) -> Iterator[Order]:
        """Allocate to a job by its plan; late jobs make room, the last admitted first."""
        admitted = self.jobs[job]
        overdue = [peer_id for peer_id, peer in self.jobs.items() if peer.overdue and peer.allocation is not None]
        while overdue and not is_free(view.free, admitted.needs, allocation):
            # jobs are in the order of admission, so pop() takes the one admitted last
            yield from self._stop(overdue.pop())
        if is_free(view.free, admitted.needs, allocation):
            yield from self._allocate(job, allocation, "as planned")
        else:  # a server of its plan is out of service
            admitted.overdue, admitted.last_allocation, admitted.plan = True, allocation, {}

    def _continue_overdue(self, job: int, view: View) -> Iterator[Order]:
        """Let a job that has outlived its plan continue to the end of this slot, where there is room (D12)."""
        admitted, slot = self.jobs[job], self.physics.slot
        end = (view.now // slot + 1) * slot
        if admitted.allocation is None and admitted.last_allocation is not None:
            fits_last = is_free(view.free, admitted.needs, admitted.last_allocation)
            allocation = (
                admitted.last_allocation
                if fits_last
                else fallback_allocation(view.free, admitted.needs, admitted.last_allocation, admitted.ratio)
            )
            if allocation is None:
                return  # room comes with an event: a job is complete, a plan changes, a server is back
            yield from self._allocate(job, allocation, "extended")
            admitted.reserved_until = view.now
        if admitted.allocation is not None and admitted.reserved_until <= view.now:
            admitted.reserved_until = end
            for server, (workers, ps) in admitted.allocation.by_server().items():
                yield Reserve(job, server, workers, view.now, end, "extended", ps)

    def _allocate(self, job: int, allocation: Allocation, reason: str) -> Iterator[Order]:
        admitted = self.jobs[job]
        admitted.allocation = admitted.last_allocation = allocation
        yield Allocate(job, allocation.workers, allocation.ps, reason)

    # -- why -----------------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:  # noqa: ARG002 - the books are the policy's own
        """Utility against cost by completion, the best schedule, its dearest charges, what would have admitted it."""
        if self.last_offer is None or self.last_offer[0] != job:
            return {"compares": "its arrival with the horizon"}
        _, training_job, answer = self.last_offer
        return as_tables(training_job, answer, self.cluster, self._would_admit)

    def _would_admit(self, changed: TrainingJob) -> bool:
        """True if the job that was offered last would have been admitted as `changed`, with the same draws."""
        state = self.rng.bit_generator.state
        # the draws of the offer itself: else another answer could come of other roundings
        self.rng.bit_generator.state = self.offer_rng_state
        try:
            return self.scheduler.answer(changed).admitted
        finally:
            self.rng.bit_generator.state = state


def allocation_of(slot_plan: SlotPlan) -> Allocation:
    """The placement that a plan has for a slot."""
    placements = (
        tuple((h, n) for h, n in zip(slot_plan.machines, counts, strict=True) if n)
        for counts in (slot_plan.workers, slot_plan.ps)
    )
    return Allocation(*placements)


def reservations(plan: Mapping[int, Allocation]) -> list[tuple[int, int, int, int, int]]:
    """(server, workers, PSs, first slot, end): a row for each run of slots in which a server holds as many."""
    rows, open_ = [], dict[int, tuple[int, int, int, int]]()
    for slot in sorted(plan):
        allocation = plan[slot].by_server()
        for server in list(open_):
            workers, ps, _, end = open_[server]
            # a gap, or other counts: the row ends, as a reservation holds one number of workers and PSs
            if end < slot or allocation.get(server) != (workers, ps):
                rows.append((server, *open_.pop(server)))
        for server, counts in allocation.items():
            open_[server] = (*counts, open_[server][2] if server in open_ else slot, slot + 1)
    rows += [(server, *row) for server, row in open_.items()]
    return sorted(rows, key=lambda row: (row[3], row[0]))


def changed_prices(
    cluster: Cluster, slot: int, slot_us: int, rows: Ints, before: Floats, now: Floats
) -> Iterator[Piece]:
    """The prices of a slot that have changed, by server and resource.

    Parameters
    ----------
    cluster
        For the names of the resources.
    slot, slot_us
        The slot, and its length [µs].
    rows
        Servers, shape ``(rows,)``.
    before, now
        Prices, shape ``(rows, resources)``.
    """
    for i, r in zip(*np.nonzero(now != before), strict=True):
        yield Piece(int(rows[i]), cluster.resources[r], slot * slot_us, (slot + 1) * slot_us, float(now[i, r]))


def is_free(free: Floats, needs: tuple[Floats, Floats], allocation: Allocation) -> bool:
    """True if `free`, shape ``(servers, resources)``, holds the allocation."""
    for server, counts in allocation.by_server().items():
        load = counts[0] * needs[0] + counts[1] * needs[1]
        if (load > free[server] * (1 + SLACK) + SLACK * SLACK).any():
            return False
    return True


def fallback_allocation(
    free: Floats, needs: tuple[Floats, Floats], last: Allocation, ratio: float
) -> Allocation | None:
    """An allocation of as many workers as `last` has, or fewer, with their PSs, by first fit (D12).

    Parameters
    ----------
    free
        Shape ``(servers, resources)``.
    needs, ratio
        Demands of a worker and of a PS, shape ``(resources,)`` each, and gamma.
    last
        The allocation that is wanted.

    Returns
    -------
    None if there is no room for even one worker and its PS.
    """
    # a late job may run on with fewer workers: some progress is better than none
    for workers in range(sum(n for _, n in last.workers), 0, -1):
        left, placed = free.copy(), list[Placement]()
        for need, count in zip(needs, (workers, servers_for(workers, ratio)), strict=True):
            placed.append(_first_fit(left, need, count))
        if all(placed):
            return Allocation(*placed)
    return None


def _first_fit(left: Floats, need: Floats, count: int) -> Placement:
    """Machines for `count` pieces, taken from `left`; empty if there is no room for all."""
    room = max_units(left, need)
    # first fit in one expression: what is still missing after the machines before, at most the room
    placed = np.minimum(room, np.maximum(count - (np.cumsum(room) - room), 0))
    if placed.sum() < count:
        return ()
    left -= np.outer(placed, need)
    return tuple((int(server), int(placed[server])) for server in np.flatnonzero(placed))
