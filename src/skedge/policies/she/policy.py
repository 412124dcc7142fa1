"""A_online of She et al.: Alg. 1, batches in doubling intervals, and the frame of Alg. 2, A_maxsche."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

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
    Deployment,
    DeploymentRequest,
    PlanComparison,
    QualifiedServers,
    best_plan,
    cost_c,
    cost_d,
    cost_d_literal,
    slots_needed,
)
from .explain import DeploymentSearch, compare_plans
from .parameters import BatchParams
from .prices import LoadProfile, empty_profile, from_zero, price_steps, take, with_room

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True, slots=True)
class Holdings:
    """What an accepted job holds: workers by server, server of the PS, until the planned end [µs], for d_j slots."""

    placement: Placement
    ps_server: int
    end: int
    slots: int

    def slots_left(self, now: int, slot: int) -> int:
        """Slots of `slot` [µs] from `now` to the planned end, at least 1."""
        return max(1, -(-(self.end - now) // slot))

    def reservations(self, job: int, now: int, reason: str) -> Iterator[Reserve]:
        """The plan that `job` holds, a row per server."""
        workers_on = dict(self.placement)
        for server in sorted({*workers_on, self.ps_server}):
            yield Reserve(job, server, workers_on.get(server, 0), now, self.end, reason, int(server == self.ps_server))


@dataclass(slots=True)
class WaitingJob:
    """A waiting job: release [µs], where the upload test starts; start of its uploads; results in earlier batches."""

    release: int
    upload_start: int
    earlier_batches: list[dict[str, Any]]


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
        self.tau, self.wake_tau = 1, 0
        # intervals that double while failures recur would keep jobs that lost a server waiting ever longer (D10)
        self.longest = NEVER if physics.mtbf is None else max(1, -(-physics.mttr // physics.slot))
        self.waiting: dict[int, WaitingJob] = {}
        self.holdings: dict[int, Holdings] = {}
        # ties go to the edge, then to the lower number (H7), so servers are always listed in this order
        self.server_order = np.array(sorted(range(servers), key=lambda s: (s == cluster.cloud, s)), np.int64)
        normed = p.price_norm == "2TSU"
        self.worker_curve = from_zero(p.F1, 2 * p.T * servers * max(len(cluster.worker_types), 1), normed=normed)
        self.ps_curve = from_zero(p.F2, 2 * p.T * servers * max(len(cluster.ps_types), 1), normed=normed)
        self.worker_capacity, self.ps_capacity = self._capacity(cluster.workers), self._capacity(cluster.ps)
        self.ps_on: dict[tuple[int, int], list[int]] = {}
        for slot, key in enumerate(zip(cluster.ps_server.tolist(), cluster.ps_type.tolist(), strict=True)):
            self.ps_on.setdefault(key, []).append(slot)
        self.cost_d: DeploymentSearch = cost_d_literal if p.literal_cost_d else cost_d
        self.rule = PlanComparison(int(p.literal_cost_d), int(self.least_cost))
        self.qualified: dict[tuple[int, int], QualifiedServers] = {}
        self.copies: dict[tuple[int, int], Placement] = {}
        self.reset_profiles()

    def _capacity(self, slots: Ints) -> Floats:
        """Slots by server and type; a type that only the cloud has, -1, is the last."""
        # index -1 of a type that no edge server has addresses this extra column, which only the cloud fills
        table: Floats = np.column_stack([slots, np.zeros(len(slots), np.int64)]).astype(np.float64)
        if self.cluster.cloud is not None:
            table[self.cluster.cloud] = np.inf if (limit := self.params.cloud_capacity) is None else limit
        return table

    def reset_profiles(self) -> None:
        """Begin with empty profiles, as each batch does."""
        self.workers: LoadProfile = empty_profile(self.worker_capacity.ravel(), self.worker_curve)
        self.ps: LoadProfile = empty_profile(self.ps_capacity.ravel(), self.ps_curve)

    # -- Alg. 1 --------------------------------------------------------------------------------------------------

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Collect the jobs of the next batch; at tau_i decide on them."""
        for job in event.left:
            self.waiting.pop(job, None)
            self.holdings.pop(job, None)
        if event.servers:
            self.copies.clear()
        for job in event.broken:
            if job in self.holdings:  # not after an interruption: it waits for another plan
                yield from self._extend(job, view)
        for job in (*event.interrupted, *event.arrived):
            yield from self._admit(job, view, release=view.now if job in self.holdings else int(view.jobs.arrival[job]))
        slots = view.now // self.physics.slot
        if slots >= self.tau:
            # tau_i = 2^(i-1): after an idle time the last one that has passed, not each of those between
            due = self._last_due(slots)
            yield from self._maxsche(due, view)
            self.tau = due + min(due, self.longest)
        # one wake-up for each tau_i, however many jobs arrive before it
        if self.waiting and self.wake_tau < self.tau:
            self.wake_tau = self.tau
            yield self._wake()

    def _last_due(self, slots: int) -> int:
        """The last tau_i that has passed in slot `slots` >= 1: 2^(i-1), and from some i on every `longest` slots."""
        first = 1 << self.longest.bit_length()
        if slots < first:
            return 1 << (slots.bit_length() - 1)
        return first + (slots - first) // self.longest * self.longest

    def _wake(self) -> WakeAt:
        """Request a wake-up at tau_i; as each batch starts at tau_i and intervals double, time can run out."""
        return WakeAt(start_of_interval(self.name, self.tau, self.physics.slot, len(self.waiting)))

    def _admit(self, job: int, view: View, release: int) -> Iterator[Order]:
        """Upload the data of a job to every server that could train it, or reject it."""
        self.holdings.pop(job, None)
        has_worker, has_ps, *_ = self._qualified(job, view)
        for kind, servers in (("worker", has_worker), ("PS", has_ps)):
            if not servers.any():
                yield Reject(job, no_server_has(kind))
                return
        self.waiting[job] = WaitingJob(release, view.now, [])
        placement = self._copies(job, has_worker, view)
        if placement:
            yield Upload(job, placement, copies=True)

    def _copies(self, job: int, has_worker: Bools, view: View) -> Placement:
        """All servers that can hold workers of the job, with D_j workers each: the same for equal jobs."""
        key = int(view.jobs.worker_type[job]), int(view.jobs.chunks[job])
        if key not in self.copies:
            self.copies[key] = tuple((s, key[1]) for s in np.flatnonzero(has_worker & view.in_service).tolist())
        return self.copies[key]

    def _qualified(self, job: int, view: View) -> QualifiedServers:
        """The servers for jobs of this one's types."""
        key = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        if key not in self.qualified:
            self.qualified[key] = self.qualified_servers(*key)
        return self.qualified[key]

    def qualified_servers(self, kind: int, ps_kind: int) -> QualifiedServers:
        """The servers for jobs of a type of worker and a type of PS; -1: a type that only the cloud has."""
        width, ps_width = self.worker_capacity.shape[1], self.ps_capacity.shape[1]
        has_worker, has_ps = self.worker_capacity[:, kind] > 0, self.ps_capacity[:, ps_kind] > 0
        servers = self.server_order[(has_worker | has_ps)[self.server_order]]
        colocated = (servers == self.cluster.cloud) | (self.physics.colocation == "one_server")
        worker_rows, ps_rows = servers * width + kind % width, servers * ps_width + ps_kind % ps_width
        return QualifiedServers(has_worker, has_ps, servers, worker_rows, ps_rows, colocated.astype(np.int64))

    # -- Alg. 2 --------------------------------------------------------------------------------------------------

    def _maxsche(self, tau: int, view: View) -> Iterator[Order]:
        """A_maxsche on J_i = the jobs with a_j < tau_i that wait (H16)."""
        # J_i: a_j < tau_i, strictly; a job that arrives at tau_i itself is for the next batch (H16)
        batch = [job for job, record in self.waiting.items() if record.release < tau * self.physics.slot]
        if not batch:
            return
        # prices begin anew with each batch, and whoever still trains is booked first
        self.reset_profiles()
        for job, holdings in self.holdings.items():
            self._take(job, holdings, view)
        for job in sorted(batch, key=lambda job: (self._shortest(job, view), job)):
            request, servers = self._request(job, tau, view)
            plan = best_plan(request, self.workers, self.ps, self.rule, np.zeros(len(servers), np.int64))
            # `terms` explains the job whose order is being carried out, before the next job changes the prices
            self.last_decision = job, request, servers, plan
            # Alg. 2 line 15: eta = 1 - cost must be positive
            if plan.kind != NO_PLAN and plan.cost < 1:
                yield from self._accept(job, request, servers, plan, view)
            else:
                yield self._postpone(job, tau, request, plan)

    def _shortest(self, job: int, view: View) -> int:
        """The key that orders the jobs of a batch, before their number (H20)."""
        return -(-int(view.work[job, 1]) // int(view.jobs.chunks[job])) if self.params.order == "shortest" else 0

    def _request(self, job: int, tau: int, view: View) -> tuple[DeploymentRequest, list[int]]:
        """The job and the servers that it may use, in the order of ties."""
        qualified, usable = self._qualified(job, view), view.in_service
        if self.aware_of_uploads:
            data_ready = self.waiting[job].release + view.upload_delays(job)
            tau_us = tau * self.physics.slot
            usable = usable & (data_ready < tau_us if self.params.strict_upload else data_ready <= tau_us)
        selected = usable[qualified.servers]
        max_workers, slot = int(view.jobs.chunks[job]), self.physics.slot
        # equal to tau where no server fails; with D10 tau is no power of two, and the last one below it bounds the plan
        interval = 1 << (tau.bit_length() - 1)
        request = DeploymentRequest(
            view.work[job],
            max_workers,
            slot,
            interval,
            qualified.worker_rows[selected],
            qualified.ps_rows[selected],
            qualified.colocated[selected],
        )
        return request, qualified.servers[selected].tolist()

    def _accept(
        self, job: int, request: DeploymentRequest, servers: list[int], plan: Deployment, view: View
    ) -> Iterator[Order]:
        """Alg. 2, lines 15-18: deploy the job by its plan; f, g and prices rise."""
        y = self._workers_of(request, plan)
        placement = tuple(sorted((servers[i], int(y[i])) for i in np.flatnonzero(y)))
        ps_server, slots = servers[plan.ps], plan.slots
        holdings = Holdings(placement, ps_server, self._end(job, placement, slots, view), slots)
        reason, eta = "one_server" if plan.kind == COST_C else "spread", 1 - plan.cost
        yield from holdings.reservations(job, view.now, reason)
        yield Allocate(job, placement, ps_in(self.free_ps(job, ps_server, view)), reason, value=eta)
        del self.waiting[job]
        self.holdings[job] = holdings
        self._take(job, holdings, view)
        # after the job is booked: the record has the prices that the next job finds
        priced = tuple(self._changed_prices(job, holdings, view))
        if priced:
            yield Price(job, priced)

    def _workers_of(self, request: DeploymentRequest, plan: Deployment) -> Ints:
        """Workers of a plan by place in `request`, y_jsu."""
        y = np.zeros(len(request.colocated), np.int64)
        deploy = cost_c if plan.kind == COST_C else self.cost_d
        deploy(request, plan.workers, self.workers, self.ps, y)
        return y

    def _end(self, job: int, placement: Placement, slots: int, view: View) -> int:
        """c_j [µs]: the start, or when the last data come, and d_j slots."""
        delays, upload_start = view.upload_delays(job), self.waiting[job].upload_start
        data_ready = max(upload_start + int(delays[s]) for s, _ in placement)
        # copies are uploaded from the arrival on, so mostly all is there at tau_i already
        return max(view.now, data_ready) + slots * self.physics.slot

    def _postpone(self, job: int, tau: int, request: DeploymentRequest, plan: Deployment) -> Postpone:
        """The order with the reason why a job waits for the next batch."""
        reason, eta = "too_dear", None
        if plan.kind != NO_PLAN:
            eta = 1 - plan.cost
        elif not len(request.colocated):
            reason = "not_uploaded"
        elif slots_needed(request, int(request.colocated.max()), request.max_workers) > request.interval:
            reason = "too_long"
        else:
            reason = "no_room"
        tau_s = tau * self.physics.slot / SECOND
        self.waiting[job].earlier_batches.append(
            {"tau_s": tau_s, "postponed": reason, "eta": 0.0 if eta is None else eta}
        )
        return Postpone(job, reason, eta)

    # -- what is held --------------------------------------------------------------------------------------------

    def _extend(self, job: int, view: View) -> Iterator[Order]:
        """Extend the plan of a job that has outlived it, by its originally planned length (D8)."""
        holdings = self.holdings[job]
        self.holdings[job] = replace(holdings, end=view.now + holdings.slots * self.physics.slot)
        yield from self.holdings[job].reservations(job, view.now, "extended")

    def _rows(self, job: int, holdings: Holdings, view: View) -> tuple[list[tuple[int, int, int]], int]:
        """(server, workers, row in the profile of workers) of a job, and its row in that of PSs."""
        width, ps_width = self.worker_capacity.shape[1], self.ps_capacity.shape[1]
        kind, ps_kind = int(view.jobs.worker_type[job]) % width, int(view.jobs.ps_type[job]) % ps_width
        return [(s, n, s * width + kind) for s, n in holdings.placement], holdings.ps_server * ps_width + ps_kind

    def _take(self, job: int, holdings: Holdings, view: View) -> None:
        """Book a job's holdings from now to its planned end, where the capacity is limited."""
        rows, ps_row = self._rows(job, holdings, view)
        slots = holdings.slots_left(view.now, self.physics.slot)
        for _, n, row in rows:
            if self.workers.capacity[row] < np.inf:
                self.workers = with_room(self.workers)
                take(self.workers, row, n, 0, slots)
        if self.ps.capacity[ps_row] < np.inf:
            self.ps = with_room(self.ps)
            take(self.ps, ps_row, 1, 0, slots)

    def _changed_prices(self, job: int, holdings: Holdings, view: View) -> Iterator[Piece]:
        """The prices that a job has just changed."""
        rows, ps_row = self._rows(job, holdings, view)
        slots, slot, now = holdings.slots_left(view.now, self.physics.slot), self.physics.slot, view.now
        kind, ps_kind = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        changed = [(s, WORKER, self.cluster.worker_types, kind, self.workers, row) for s, _, row in rows]
        changed.append((holdings.ps_server, PS, self.cluster.ps_types, ps_kind, self.ps, ps_row))
        for server, prefix, types, type_index, profile, row in changed:
            if type_index >= 0:
                for a, b, price in price_steps(profile, row, 0, slots):
                    yield Piece(server, prefix + types[type_index], now + a * slot, now + b * slot, price)

    def free_ps(self, job: int, server: int, view: View) -> int:
        """The first free PS slot of the job's type on `server`; by its profile there is one."""
        if server == self.cluster.cloud:
            return CLOUD
        ps_job = view.ps_job
        return next(slot for slot in self.ps_on[server, int(view.jobs.ps_type[job])] if ps_job[slot] < 0)

    # -- why -----------------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> dict[str, Any]:  # noqa: ARG002 - the profiles are the policy's own
        """What was compared: the best plan of each D_u on one server and spread, the prices, earlier batches."""
        if job not in self.waiting:
            return {"compares": "its types with those that servers have"}
        _, request, servers, plan = self.last_decision
        names = [self.cluster.label(s) for s in servers]
        comparison = compare_plans(
            request, plan, self._workers_of(request, plan), self.workers, self.ps, self.cost_d, names
        )
        return {**comparison, "earlier_batches": self.waiting[job].earlier_batches}
