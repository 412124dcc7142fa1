"""A_online of She et al.: Alg. 1, batches in doubling intervals, and the frame of Alg. 2, A_maxsche."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.errors import PolicyError
from skedge.core.events import (
    CLOUD,
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
from skedge.core.model.cluster import PS, WORKER, Bools, Cluster, Floats, Ints, Physics, Placement
from skedge.core.model.time import NEVER, SECOND
from skedge.core.policy import BasePolicy, Guarantees, Params, View

from .deployment import (
    COST_C,
    NO_PLAN,
    Ask,
    Deployment,
    PlanComparison,
    best_plan,
    cost_c,
    cost_d,
    cost_d_literal,
    slots_needed,
)
from .explain import Deploy, compared
from .prices import Book, empty_book, from_zero, pieces, take, with_room

if TYPE_CHECKING:
    from numpy.random import Generator


class PricedParams(Params):
    """Parameters of both batch schedulers.

    Attributes
    ----------
    T
        Slots of the papers' horizon; it only scales the prices.
    F1, F2
        Price per slot of a worker, and of a PS, when all of its type on a server are taken.
    price_norm
        ``2TSU``: prices from 0 to F; ``none``: as printed, 2TSU times as high.
    literal_cost_d
        True: Alg. 4 as printed.
    cloud_capacity
        Workers, and PSs, of every type in the cloud; None: without limit, so free of charge.
    order
        Order of the jobs in a batch: by ``arrival``, or by the ``shortest`` training with D_j workers on one server.
    """

    T: int = Field(300, ge=1)
    F1: float = Field(1.0, gt=0)
    F2: float = Field(1.0, gt=0)
    price_norm: Literal["2TSU", "none"] = "2TSU"
    literal_cost_d: bool = False
    cloud_capacity: int | None = Field(None, ge=0)
    order: Literal["arrival", "shortest"] = "arrival"


class BatchParams(PricedParams):
    """Parameters of A_online, besides those of :class:`PricedParams`.

    Attributes
    ----------
    strict_upload
        True: data must be on a server before tau_i, as printed; False: by tau_i.
    """

    strict_upload: bool = True


@dataclass(frozen=True, slots=True)
class Accepted:
    """The holdings of an accepted job: workers, server of the PS, planned end [µs], and number of slots."""

    where: Placement
    ps_server: int
    end: int
    slots: int


@dataclass(slots=True)
class WaitingJob:
    """A waiting job: time from which its uploads count, their start [µs], and its results in earlier batches."""

    since: int
    uploaded: int
    before: list[dict[str, Any]]


class Types(NamedTuple):
    """Which servers have a worker, and which a PS, of a job's types, and those that can have either, in order of ties.

    `rows` and `ps_rows` are their rows in the books of workers and of PSs, `xi` is 1 for those with xi = 1.
    """

    has_worker: Bools
    has_ps: Bools
    at: Ints
    rows: Ints
    ps_rows: Ints
    xi: Ints


def no_server_has(kind: str) -> str:
    """The reason of a rejection: no server has a worker, or a PS, of a job's type."""
    return f"never_fits: no server has a {kind} of its type"


class Batch(BasePolicy):
    """A_online of She et al."""

    name: ClassVar[str] = "batch"
    Parameters: ClassVar[type[Params]] = BatchParams
    aware_of_uploads: ClassVar[bool] = True
    least_cost = False

    @property
    def guarantees(self) -> Guarantees:
        """No job is preempted; the parameters of the batches' prices."""
        p = self.params
        prices = {"T": p.T, "F1": p.F1, "F2": p.F2, "normed": p.price_norm == "2TSU"}
        return Guarantees(preempts="never", batches={**prices, "cloud_capacity": p.cloud_capacity})

    @property
    def may_use_cloud(self) -> bool:
        """Unless it has no capacity."""
        return bool(self.params.cloud_capacity != 0)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        p, servers = self.params, len(cluster.servers)
        self.tau, self.asked = 1, 0
        # intervals that double while failures recur would keep jobs that lost a server waiting ever longer (D10)
        self.longest = NEVER if physics.mtbf is None else max(1, -(-physics.mttr // physics.slot))
        self.waiting: dict[int, WaitingJob] = {}
        self.held: dict[int, Accepted] = {}
        self.in_order = np.array(sorted(range(servers), key=lambda s: (s == cluster.cloud, s)), np.int64)
        types, ps_types = len(cluster.worker_types), len(cluster.ps_types)
        normed = p.price_norm == "2TSU"
        self.worker_curve = from_zero(p.F1, 2 * p.T * servers * max(types, 1), normed=normed)
        self.ps_curve = from_zero(p.F2, 2 * p.T * servers * max(ps_types, 1), normed=normed)
        self.worker_capacity, self.ps_capacity = self._capacity(cluster.workers), self._capacity(cluster.ps)
        self.ps_on: dict[tuple[int, int], list[int]] = {}
        for slot, key in enumerate(zip(cluster.ps_server.tolist(), cluster.ps_type.tolist(), strict=True)):
            self.ps_on.setdefault(key, []).append(slot)
        self.rule = PlanComparison(int(p.literal_cost_d), int(self.least_cost))
        self.types: dict[tuple[int, int], Types] = {}
        self.copies: dict[tuple[int, int], Placement] = {}
        self.open_books()

    def _capacity(self, slots: Ints) -> Floats:
        """Slots by server and type; a type that only the cloud has, -1, is the last."""
        table: Floats = np.column_stack([slots, np.zeros(len(slots), np.int64)]).astype(np.float64)
        if self.cluster.cloud is not None:
            limit = self.params.cloud_capacity
            table[self.cluster.cloud] = np.inf if limit is None else limit
        return table

    def open_books(self) -> None:
        """Begin with empty books, as each batch does."""
        self.workers: Book = empty_book(self.worker_capacity.ravel(), self.worker_curve)
        self.ps: Book = empty_book(self.ps_capacity.ravel(), self.ps_curve)

    # -- Alg. 1 --------------------------------------------------------------------------------------------------

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Collect the jobs of the next batch; at tau_i decide on them."""
        for job in event.left:
            self.waiting.pop(job, None)
            self.held.pop(job, None)
        if event.servers:
            self.copies.clear()
        for job in event.broken:
            if job in self.held:  # not after an interruption: it waits for another plan
                yield from self._extend(job, view)
        for job in (*event.interrupted, *event.arrived):
            yield from self._admit(job, view, since=view.now if job in self.held else int(view.jobs.arrival[job]))
        slots = view.now // self.physics.slot
        if slots >= self.tau:
            # tau_i = 2^(i-1): after an idle time the last one that has passed, not each of those between
            due = self._last_due(slots)
            yield from self._maxsche(due, view)
            self.tau = due + min(due, self.longest)
        if self.waiting and self.asked < self.tau:
            self.asked = self.tau
            yield self._wake()

    def _last_due(self, slots: int) -> int:
        """The last tau_i that has passed in slot `slots` >= 1: 2^(i-1), and from some i on every `longest` slots."""
        first = 1 << self.longest.bit_length()
        if slots < first:
            return 1 << (slots.bit_length() - 1)
        return first + (slots - first) // self.longest * self.longest

    def _wake(self) -> WakeAt:
        """Request a wake-up at tau_i; as each batch starts at tau_i and intervals double, time can run out."""
        return WakeAt(self.time_of(self.tau, len(self.waiting)))

    def time_of(self, tau: int, waiting: int) -> int:
        """tau_i [µs], for which this number of jobs wait.

        Raises
        ------
        PolicyError
            If the clock cannot count that far.
        """
        at = tau * self.physics.slot
        if at >= NEVER:
            raise PolicyError(
                f"{self.name}: {waiting} jobs still wait for slot {tau}, which is later than the clock "
                "can count; a batch takes only jobs that can start together, and every interval doubles: "
                "more servers, a cloud or fewer jobs are needed"
            )
        return at

    def _admit(self, job: int, view: View, since: int) -> Iterator[Order]:
        """Upload the data of a job to every server that could train it, or reject it."""
        self.held.pop(job, None)
        has_worker, has_ps, *_ = self._of_its_types(job, view)
        for kind, has in (("worker", has_worker), ("PS", has_ps)):
            if not has.any():
                yield Reject(job, no_server_has(kind))
                return
        self.waiting[job] = WaitingJob(since, view.now, [])
        where = self._copies(job, has_worker, view)
        if where:
            yield Upload(job, where, copies=True)

    def _copies(self, job: int, has_worker: Bools, view: View) -> Placement:
        """All servers that can hold workers of the job, with D_j workers each: the same for equal jobs."""
        key = int(view.jobs.worker_type[job]), int(view.jobs.chunks[job])
        if key not in self.copies:
            self.copies[key] = tuple((s, key[1]) for s in np.flatnonzero(has_worker & view.in_service).tolist())
        return self.copies[key]

    def _of_its_types(self, job: int, view: View) -> Types:
        """The servers for jobs of this one's types."""
        key = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        if key not in self.types:
            self.types[key] = self.types_of(*key)
        return self.types[key]

    def types_of(self, kind: int, ps_kind: int) -> Types:
        """The servers for jobs of a type of worker and a type of PS; -1: a type that only the cloud has."""
        width, ps_width = self.worker_capacity.shape[1], self.ps_capacity.shape[1]
        has_worker, has_ps = self.worker_capacity[:, kind] > 0, self.ps_capacity[:, ps_kind] > 0
        at = self.in_order[(has_worker | has_ps)[self.in_order]]
        xi = (at == self.cluster.cloud) | (self.physics.colocation == "one_server")
        rows, ps_rows = at * width + kind % width, at * ps_width + ps_kind % ps_width
        return Types(has_worker, has_ps, at, rows, ps_rows, xi.astype(np.int64))

    # -- Alg. 2 --------------------------------------------------------------------------------------------------

    def _maxsche(self, tau: int, view: View) -> Iterator[Order]:
        """A_maxsche on J_i = the jobs with a_j < tau_i that wait (H16)."""
        # J_i takes arrivals before tau_i only; one at tau_i itself is for the next batch (H16)
        offered = [job for job, waits in self.waiting.items() if waits.since < tau * self.physics.slot]
        if not offered:
            return
        # prices begin anew with each batch, and whoever still trains is booked first
        self.open_books()
        for job, held in self.held.items():
            self._take(job, held, view)
        for job in sorted(offered, key=lambda job: (self._shortest(job, view), job)):
            ask, servers = self._ask(job, tau, view)
            plan = best_plan(ask, self.workers, self.ps, self.rule, np.zeros(len(servers), np.int64))
            self.offer = job, ask, servers, plan
            # Alg. 2 line 15: eta = 1 - cost must be positive
            if plan.kind != NO_PLAN and plan.cost < 1:
                yield from self._accept(job, ask, servers, plan, view)
            else:
                yield self._postpone(job, tau, ask, plan)

    def _shortest(self, job: int, view: View) -> int:
        """The key that orders the jobs of a batch, before their number (H20)."""
        return -(-int(view.work[job, 1]) // int(view.jobs.chunks[job])) if self.params.order == "shortest" else 0

    def _ask(self, job: int, tau: int, view: View) -> tuple[Ask, list[int]]:
        """The job and the servers that it may use, in the order of ties."""
        of, usable = self._of_its_types(job, view), view.in_service
        if self.aware_of_uploads:
            there = self.waiting[job].since + view.upload_delays(job)
            tau_us = tau * self.physics.slot
            usable = usable & (there < tau_us if self.params.strict_upload else there <= tau_us)
        can = usable[of.at]
        most, slot = int(view.jobs.chunks[job]), self.physics.slot
        interval = 1 << (tau.bit_length() - 1)
        ask = Ask(view.work[job], most, slot, interval, of.rows[can], of.ps_rows[can], of.xi[can])
        return ask, of.at[can].tolist()

    def _accept(self, job: int, ask: Ask, servers: list[int], plan: Deployment, view: View) -> Iterator[Order]:
        """Alg. 2, lines 15-18: deploy the job by its plan; f, g and prices rise."""
        y = self._workers_of(ask, plan)
        where = tuple(sorted((servers[i], int(y[i])) for i in np.flatnonzero(y)))
        ps_server, slots = servers[plan.ps], plan.slots
        held = Accepted(where, ps_server, self._end(job, where, slots, view), slots)
        reason, eta = "one_server" if plan.kind == COST_C else "spread", 1 - plan.cost
        yield from self._plan(job, held, reason, view)
        yield Allocate(job, where, ps_in(self.free_ps(job, ps_server, view)), reason, value=eta)
        del self.waiting[job]
        self.held[job] = held
        self._take(job, held, view)
        priced = tuple(self._priced(job, held, view))
        if priced:
            yield Price(job, priced)

    def _workers_of(self, ask: Ask, plan: Deployment) -> Ints:
        """Workers of a plan by place in `ask`, y_jsu."""
        y = np.zeros(len(ask.xi), np.int64)
        deploy = cost_c if plan.kind == COST_C else self._spread()
        deploy(ask, plan.workers, self.workers, self.ps, y)
        return y

    def _spread(self) -> Deploy:
        """COST_D, exact or as printed, by the parameter ``literal_cost_d``."""
        return cost_d_literal if self.params.literal_cost_d else cost_d

    def _end(self, job: int, where: Placement, slots: int, view: View) -> int:
        """c_j [µs]: the start, or when the last data come, and d_j slots."""
        delays, begun = view.upload_delays(job), self.waiting[job].uploaded
        ready = max(begun + int(delays[s]) for s, _ in where)
        # copies are uploaded from the arrival on, so mostly all is there at tau_i already
        return max(view.now, ready) + slots * self.physics.slot

    def _postpone(self, job: int, tau: int, ask: Ask, plan: Deployment) -> Postpone:
        """The order with the reason why a job waits for the next batch."""
        reason, eta = "too_dear", None
        if plan.kind != NO_PLAN:
            eta = 1 - plan.cost
        elif not len(ask.xi):
            reason = "not_uploaded"
        elif slots_needed(ask, int(ask.xi.max()), ask.most) > ask.interval:
            reason = "too_long"
        else:
            reason = "no_room"
        tau_s = tau * self.physics.slot / SECOND
        self.waiting[job].before.append({"tau_s": tau_s, "postponed": reason, "eta": 0.0 if eta is None else eta})
        return Postpone(job, reason, eta)

    # -- what is held --------------------------------------------------------------------------------------------

    def _plan(self, job: int, held: Accepted, reason: str, view: View) -> Iterator[Reserve]:
        """The plan that a job holds, a row per server."""
        here = dict(held.where)
        for server in sorted({*here, held.ps_server}):
            ps = int(server == held.ps_server)
            yield Reserve(job, server, here.get(server, 0), view.now, held.end, reason, ps)

    def _extend(self, job: int, view: View) -> Iterator[Order]:
        """Extend the plan of a job that has outlived it, by its originally planned length (D8)."""
        held = self.held[job]
        self.held[job] = Accepted(held.where, held.ps_server, view.now + held.slots * self.physics.slot, held.slots)
        yield from self._plan(job, self.held[job], "extended", view)

    def _rows(self, job: int, held: Accepted, view: View) -> tuple[list[tuple[int, int, int]], int]:
        """(server, workers, row in the book of workers) of a job, and its row in the book of PSs."""
        width, ps_width = self.worker_capacity.shape[1], self.ps_capacity.shape[1]
        kind, ps_kind = int(view.jobs.worker_type[job]) % width, int(view.jobs.ps_type[job]) % ps_width
        return [(s, n, s * width + kind) for s, n in held.where], held.ps_server * ps_width + ps_kind

    def _slots_left(self, held: Accepted, view: View) -> int:
        return max(1, -(-(held.end - view.now) // self.physics.slot))

    def _take(self, job: int, held: Accepted, view: View) -> None:
        """Book a job's holdings from now to its planned end, where the capacity is limited."""
        rows, ps_row = self._rows(job, held, view)
        slots = self._slots_left(held, view)
        for _, n, row in rows:
            if self.workers.capacity[row] < np.inf:
                self.workers = with_room(self.workers)
                take(self.workers, row, n, 0, slots)
        if self.ps.capacity[ps_row] < np.inf:
            self.ps = with_room(self.ps)
            take(self.ps, ps_row, 1, 0, slots)

    def _priced(self, job: int, held: Accepted, view: View) -> Iterator[Piece]:
        """The prices that a job has just changed."""
        rows, ps_row = self._rows(job, held, view)
        slots, slot, now = self._slots_left(held, view), self.physics.slot, view.now
        kind, ps_kind = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        changed = [(s, WORKER, self.cluster.worker_types, kind, self.workers, row) for s, _, row in rows]
        changed.append((held.ps_server, PS, self.cluster.ps_types, ps_kind, self.ps, ps_row))
        for server, what, types, number, book, row in changed:
            if number >= 0:
                for a, b, price in pieces(book, row, 0, slots):
                    yield Piece(server, what + types[number], now + a * slot, now + b * slot, price)

    def free_ps(self, job: int, server: int, view: View) -> int:
        """The first free PS slot of the job's type on `server`; by the book there is one."""
        if server == self.cluster.cloud:
            return CLOUD
        given = view.ps_job
        return next(slot for slot in self.ps_on[server, int(view.jobs.ps_type[job])] if given[slot] < 0)

    # -- why -----------------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> dict[str, Any]:  # noqa: ARG002 - the books are the policy's own
        """What was compared: the best plan of each D_u on one server and spread, the prices, earlier batches."""
        if job not in self.waiting:
            return {"compares": "its types with those that servers have"}
        _, ask, servers, plan = self.offer
        names = [self.cluster.label(s) for s in servers]
        found = compared(ask, plan, self._workers_of(ask, plan), self.workers, self.ps, self._spread(), names)
        return {**found, "earlier_batches": self.waiting[job].before}
