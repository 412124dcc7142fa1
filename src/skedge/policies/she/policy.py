"""A_online of She et al.: Alg. 1, batches in doubling intervals, and the frame of Alg. 2, A_maxsche."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skedge.core.engine.ledger import longer
from skedge.core.errors import PolicyError
from skedge.core.events import (
    Allocate,
    Event,
    Order,
    Piece,
    Postpone,
    Price,
    Reject,
    Reserve,
    Upload,
    WakeAt,
    ps_in,
)
from skedge.core.model.cluster import PS, WORKER, Cluster, Floats, Ints, Physics, Placement
from skedge.core.model.time import NEVER, SECOND
from skedge.core.policy import BasePolicy, Guarantees, Params, View

from .alg2 import (
    CHUNKS,
    COUNT,
    FIRST,
    OUTCOMES,
    PLAN_END,
    PRICES,
    PS_KIND,
    PS_SLOT,
    REASONS,
    RELEASE,
    SLOTS,
    SPREAD,
    BatchCase,
    BatchConditions,
    BatchState,
    book,
    choose,
    empty_state,
    job_request,
    with_room,
)
from .deployment import TIES, PlanComparison, best_plan, cost_d, cost_d_literal
from .explain import DeploymentSearch, compare_plans
from .parameters import BatchParams
from .prices import LoadProfile, empty_profile, from_zero

if TYPE_CHECKING:
    from numpy.random import Generator


_ANY_TIME = np.iinfo(np.int64).max
"""An upload that ends before this is in time."""


def no_server_has(kind: str) -> str:
    """The reason of a rejection: no server has a worker, or a PS, of a job's type."""
    return f"never_fits: no server has a {kind} of its type"


def start_of_interval(policy: str, tau: int, slot: int, n_waiting: int) -> int:
    """The start of an interval [µs], checked against the range of the clock.

    Parameters
    ----------
    policy
        Name of the policy, for the message.
    tau
        Number of the slot with which the interval begins, tau_i.
    slot
        Length of a slot [µs].
    n_waiting
        Jobs that wait for it, for the message.

    Raises
    ------
    PolicyError
        If the clock cannot count that far.
    """
    time = tau * slot
    if time >= NEVER:
        raise PolicyError(
            f"{policy}: {n_waiting} jobs still wait for slot {tau}, which is later than the clock "
            "can count; a batch takes only jobs that can start together, and every interval doubles: "
            "more servers, a cloud or fewer jobs are needed"
        )
    return time


class Batch(BasePolicy):
    """A_online of She et al."""

    name: ClassVar[str] = "batch"
    Parameters: ClassVar[type[Params]] = BatchParams
    aware_of_uploads: ClassVar[bool] = True

    @property
    def copies(self) -> bool:
        """Whether data go to every server from the arrival on (D6)."""
        return True

    @property
    def guarantees(self) -> Guarantees:
        """No job is preempted; the parameters of the batches' prices; data are brought ahead only as copies."""
        p = self.params
        prices = {"T": p.T, "F1": p.F1, "F2": p.F2, "normed": p.price_norm == "2TSU"}
        return Guarantees(
            uploads=None if self.copies else "with_allocations",
            preempts="never",
            batches={**prices, "cloud_capacity": p.cloud_capacity},
        )

    @property
    def may_use_cloud(self) -> bool:
        """Unless it has no capacity."""
        return bool(self.params.cloud_capacity != 0)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        p, servers = self.params, len(cluster.servers)
        self.tau, self.wake_tau = 1, 0
        # intervals that double while failures recur would keep jobs that lost a server waiting ever longer (D10)
        self.longest = NEVER if physics.mtbf is None else max(1, -(-physics.mttr // physics.slot))
        self.waiting: dict[int, list[dict[str, Any]]] = {}
        """Jobs that wait, with their outcomes in earlier batches."""
        self.held: set[int] = set()
        self.placements: dict[tuple[int, int], Placement] = {}
        normed = p.price_norm == "2TSU"
        self.worker_curve = from_zero(p.F1, 2 * p.T * servers * max(len(cluster.worker_types), 1), normed=normed)
        self.ps_curve = from_zero(p.F2, 2 * p.T * servers * max(len(cluster.ps_types), 1), normed=normed)
        self.worker_capacity, self.ps_capacity = self._capacity(cluster.workers), self._capacity(cluster.ps)
        self.resources = [[WORKER + name for name in cluster.worker_types], [PS + name for name in cluster.ps_types]]
        self.cost_d: DeploymentSearch = cost_d_literal if p.literal_cost_d else cost_d
        self.case = BatchCase(
            PlanComparison(int(p.literal_cost_d), TIES.index(p.tie)),
            # ties go to the edge, then to the lower number (H7)
            np.array(sorted(range(servers), key=lambda s: (s == cluster.cloud, s)), np.int64),
            np.array(cluster.ps_server, np.int64),
            np.array(cluster.ps_type, np.int64),
            (self.worker_capacity.shape[1], self.ps_capacity.shape[1]),
            physics.slot,
            -1 if cluster.cloud is None else cluster.cloud,
            int(physics.colocation == "one_server"),
            int(self.copies),
        )
        self.state = empty_state(cluster, *self._empty_profiles())

    def _capacity(self, slots: Ints) -> Floats:
        """Slots by server and type; a type that only the cloud has, -1, is the last."""
        # index -1 of a type that no edge server has addresses this extra column, which only the cloud fills
        table: Floats = np.column_stack([slots, np.zeros(len(slots), np.int64)]).astype(np.float64)
        if self.cluster.cloud is not None:
            table[self.cluster.cloud] = np.inf if (limit := self.params.cloud_capacity) is None else limit
        return table

    def _empty_profiles(self) -> tuple[LoadProfile, LoadProfile]:
        """Profiles of workers and PSs without load."""
        workers = empty_profile(self.worker_capacity.ravel(), self.worker_curve)
        return workers, empty_profile(self.ps_capacity.ravel(), self.ps_curve)

    # -- Alg. 1 --------------------------------------------------------------------------------------------------

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Collect the jobs of the next batch; at tau_i decide on them."""
        for job in event.left:
            self.waiting.pop(job, None)
            self.held.discard(job)
        if event.servers:
            self.placements.clear()
        for job in event.broken:
            if job in self.held:  # not after an interruption: it waits for another plan
                yield from self._extend(job, view.now)
        for job in (*event.interrupted, *event.arrived):
            yield from self._admit(job, view, release=view.now if job in self.held else int(view.jobs.arrival[job]))
        slots = view.now // self.physics.slot
        if slots >= self.tau:
            # tau_i = 2^(i-1): after an idle time the last one that has passed, not each of those between
            due = self.last_due(slots)
            yield from self._maxsche(due, view)
            self.tau = due + min(due, self.longest)
        # one wake-up for each tau_i, however many jobs arrive before it
        if self.waiting and self.wake_tau < self.tau:
            self.wake_tau = self.tau
            yield self._wake()

    def last_due(self, slots: int) -> int:
        """The last tau_i that has passed in slot `slots` >= 1: 2^(i-1), and from some i on every `longest` slots."""
        first = 1 << self.longest.bit_length()
        if slots < first:
            return 1 << (slots.bit_length() - 1)
        return first + (slots - first) // self.longest * self.longest

    def _wake(self) -> WakeAt:
        """Request a wake-up at tau_i; as each batch starts at tau_i and intervals double, time can run out."""
        return WakeAt(start_of_interval(self.name, self.tau, self.physics.slot, len(self.waiting)))

    def _admit(self, job: int, view: View, release: int) -> Iterator[Order]:
        """Reject a job that no server could train; if data go everywhere, upload them to every server that could."""
        self.held.discard(job)
        columns = view.jobs
        kind, ps_kind, chunks = int(columns.worker_type[job]), int(columns.ps_type[job]), int(columns.chunks[job])
        for name, capacity in (("worker", self.worker_capacity[:, kind]), ("PS", self.ps_capacity[:, ps_kind])):
            if not capacity.any():
                yield Reject(job, no_server_has(name))
                return
        self.waiting[job] = []
        self.state = self.state._replace(jobs=longer(self.state.jobs, job + 1))
        # a type that only the cloud has, -1, is the last column of the profiles
        widths = self.case.widths
        self.state.jobs[job, : PS_KIND + 1] = release, view.now, chunks, kind % widths[0], ps_kind % widths[1]
        if self.copies and (placement := self._placement_of_copies(kind, chunks, view)):
            yield Upload(job, placement, copies=True)

    def _placement_of_copies(self, kind: int, chunks: int, view: View) -> Placement:
        """All servers that can hold workers of a type, with D_j workers each: the same for equal jobs."""
        if (kind, chunks) not in self.placements:
            servers = np.flatnonzero((self.worker_capacity[:, kind] > 0) & view.in_service)
            self.placements[kind, chunks] = tuple((s, chunks) for s in servers.tolist())
        return self.placements[kind, chunks]

    # -- Alg. 2 --------------------------------------------------------------------------------------------------

    def open_batch(self, tau: int, waiting: Ints, held: Ints, conditions: BatchConditions) -> Ints:
        """Begin the batch of tau_i = `tau`: J_i, the jobs that A_maxsche decides on, in order.

        Parameters
        ----------
        tau
            In slots.
        waiting, held
            Jobs that wait, and those that hold workers.
        conditions
            Those of the batch; its `interval` and `due` are set here.
        """
        limit, jobs = tau * self.physics.slot, self.state.jobs
        # a_j < tau_i, strictly; a job that arrives at tau_i itself is for the next batch (H16)
        batch = np.sort(waiting[jobs[waiting, RELEASE] < limit])
        if not len(batch):
            return batch
        due = limit + (not self.params.strict_upload) if self.aware_of_uploads else _ANY_TIME
        # equal to tau where no server fails; with D10 tau is no power of two, and the last one below it bounds the plan
        self.conditions = conditions._replace(interval=1 << (tau.bit_length() - 1), due=due)
        # prices begin anew with each batch, and whoever still trains is booked first
        workers, ps = self._empty_profiles()
        self.state = self.state._replace(workers=workers, ps=ps)
        self._book(held, conditions.now, priced=False)
        if self.params.order == "arrival":
            return batch
        training = -(-conditions.work[batch, 1] // jobs[batch, CHUNKS])
        return batch[training.argsort(kind="stable")]

    def each(self, jobs: Ints, step: Callable[[BatchState, Ints], int]) -> None:
        """Call `step` until all `jobs` are done, with larger arrays whenever one is full."""
        while len(jobs):
            self.state = with_room(self.state, len(self.case.servers))
            jobs = jobs[step(self.state, jobs) :]

    def _book(self, jobs: Ints, now: int, *, priced: bool) -> None:
        self.each(jobs, lambda state, jobs: book(self.case, state, jobs, now, priced))

    def _maxsche(self, tau: int, view: View) -> Iterator[Order]:
        """A_maxsche on J_i, job by job."""
        waiting, held = np.array([*self.waiting], np.int64), np.array([*self.held], np.int64)
        conditions = BatchConditions(0, 0, view.now, view.delays(), np.array(view.work), np.array(view.in_service))
        for job in self.open_batch(tau, waiting, held, conditions).tolist():
            self.state = with_room(self.state, len(self.case.servers))
            self.state.counters[[OUTCOMES, PRICES]] = 0
            self.state.ps_job[:] = view.ps_job
            reason, eta = choose(self.case, self.state, job, self.conditions), float(self.state.values[0])
            if reason <= SPREAD:
                yield from self._accept(job, REASONS[reason], eta, view.now)
            else:
                yield self._postpone(job, tau, REASONS[reason], None if math.isnan(eta) else eta)

    def _accept(self, job: int, reason: str, eta: float, now: int) -> Iterator[Order]:
        """The orders of the plan of a job, and the prices that it changes."""
        yield from self._reservations(job, now, reason)
        placement = tuple((server, workers) for _, server, workers, *_ in self._plan(job) if workers)
        yield Allocate(job, placement, ps_in(int(self.state.jobs[job, PS_SLOT])), reason, value=eta)
        del self.waiting[job]
        self.held.add(job)
        # only now: `terms` is asked before an order is carried out, and shows the prices that were compared
        self._book(np.array([job]), now, priced=True)
        pieces = tuple(piece for _, _, piece in self.priced_pieces())
        if pieces:
            yield Price(job, pieces)

    def _postpone(self, job: int, tau: int, reason: str, eta: float | None) -> Postpone:
        """The order with the reason why a job waits for the next batch."""
        tau_s = tau * self.physics.slot / SECOND
        self.waiting[job].append({"tau_s": tau_s, "postponed": reason, "eta": 0.0 if eta is None else eta})
        return Postpone(job, reason, eta)

    def priced_pieces(self) -> Iterator[tuple[int, int, Piece]]:
        """The rows of prices: the time, the job that changed them, and the price."""
        n, state = self.state.counters[PRICES], self.state
        for row, price in zip(state.prices[:n].tolist(), state.price[:n].tolist(), strict=True):
            time, job, server, is_ps, kind, start, end = row
            yield time, job, Piece(server, self.resources[is_ps][kind], start, end, price)

    # -- what is held --------------------------------------------------------------------------------------------

    def _plan(self, job: int) -> list[list[int]]:
        """The rows of the plan of a job."""
        first, count = self.state.jobs[job, [FIRST, COUNT]].tolist()
        rows: list[list[int]] = self.state.plans[first : first + count].tolist()
        return rows

    def _reservations(self, job: int, now: int, reason: str) -> Iterator[Reserve]:
        """The plan of `job`, a row per server."""
        end = int(self.state.jobs[job, PLAN_END])
        for _, server, workers, ps, *_ in self._plan(job):
            yield Reserve(job, server, workers, now, end, reason, ps)

    def _extend(self, job: int, now: int) -> Iterator[Order]:
        """Extend the plan of a job that has outlived it, by its originally planned length (D8)."""
        columns = self.state.jobs[job]
        columns[PLAN_END] = now + columns[SLOTS] * self.physics.slot
        yield from self._reservations(job, now, "extended")

    # -- why -----------------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> dict[str, Any]:  # noqa: ARG002 - the profiles are the policy's own
        """What was compared: the best plan of each D_u on one server and spread, the prices, earlier batches."""
        if job not in self.waiting:
            return {"compares": "its types with those that servers have"}
        state = self.state
        request, servers = job_request(self.case, state, job, self.conditions)
        y = np.zeros(len(servers), np.int64)
        plan = best_plan(request, state.workers, state.ps, self.case.rule, y)
        names = [self.cluster.label(s) for s in servers.tolist()]
        comparison = compare_plans(request, plan, y, state.workers, state.ps, self.cost_d, names)
        return {**comparison, "earlier_batches": self.waiting[job]}
