"""The kernel absorbs facts, asks the policy, and checks and applies its orders. Only the kernel writes cluster state.

The cycle of one event:

1. absorb the facts into the books (an impossible fact is an error of the world);
2. ask the policy;
3. check each order against the rules of ``docs/model.md``; a violation raises :class:`OrderError` with the rule's name;
4. apply the order to the books;
5. append the event and its orders to the journal.

:func:`~skedge.core.drive.drive` then passes the orders to the world.

The kernel's knowledge of the lanes is a *belief*: announced durations, corrected by facts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from skedge.core.books.books import books_for
from skedge.core.books.gangs import Gangs
from skedge.core.books.shares import in_order, rows_of
from skedge.core.lanes.lanes import (
    NO_LINKS,
    Lanes,
    believe_finished,
    believe_gone,
    believe_lost,
    believe_slower,
    bring_to,
    dispatch_groups,
    empty_lanes,
    read_only,
    with_room,
)

from .errors import OrderError, StateError
from .events import (
    CLOUD,
    Allocate,
    AssignPS,
    Dispatch,
    Event,
    Order,
    Postpone,
    Price,
    Reject,
    Reserve,
    Suspend,
    Transfer,
    Upload,
    WakeAt,
    ps_in,
)
from .job_fields import JobColumns
from .model import Ints, Placement
from .network import Delays, upload_delay, upload_row
from .plans import Plans
from .policy import Policy, View
from .record import Record
from .scenario import Scenario
from .time import NEVER

WAITING, DISPATCHED, FINISHED, REJECTED = range(4)
"""States of a job that has arrived; a failed job counts as finished."""


LONGEST_IDLE = 1_000_000
"""Maximum number of consecutive wake-ups without an order while nothing else happens."""


class Journal(Protocol):
    """Where events and their orders are written, in order."""

    def append(self, event: Event, orders: list[Order]) -> None:
        """Write one event and the orders that answered it."""


class Kernel:
    """State of the cluster as known to the scheduler.

    Attributes
    ----------
    belief
        State of the lanes: as announced, corrected by facts.
    gangs
        Allocations and their announced remaining work.
    chunk_time
        Time to train a chunk by job and zeta [µs]: as announced, corrected by facts.
    in_service
        Whether each server is in service, shape ``(servers,)``.
    plans
        The reservations of the jobs.
    books
        Workers and PSs held by each job, data stored, and at sites the chunks left to train.
    sent, lost
        Lane of each chunk of the dispatched jobs; chunks whose server is out of service, which wait for a re-dispatch.
    record
        The tables of the run that the kernel makes: decisions, PSs, plans.
    """

    def __init__(self, scenario: Scenario, policy: Policy, journal: Journal | None = None) -> None:
        self.scenario, self.policy, self.journal = scenario, policy, journal
        cluster, jobs, physics = scenario.cluster, scenario.jobs, scenario.physics
        self.now, self.arrived, self.dispatches, self.idle = 0, 0, 0, 0
        self.standing = np.full(len(jobs), -1, np.int64)
        self._columns: JobColumns | None = None
        self.chunk_time, self.factor = scenario.chunk_time, dict[int, float]()
        preemptive, overhead = policy.lanes.preemptive, physics.checkpoint_overhead
        self.belief: Lanes = empty_lanes(cluster.lanes, preemptive=preemptive, overhead=overhead)
        kept = physics.data == "kept"
        self.gangs = Gangs(scenario.announced_work, scenario.delays, physics.step, physics.checkpoint_overhead, kept)
        self.servers = len(cluster.servers)
        self.in_service = np.ones(self.servers, np.bool_)
        self.books = books_for(scenario, self.in_service)
        self.running: set[int] = set()
        self.sent: dict[int, Ints] = {}
        self.lost: dict[int, set[int]] = {}
        self.plans = Plans()
        self.record = Record(scenario, self.plans)
        self.view = View(self)
        self._appliers: dict[type, Any] = {
            Dispatch: self._dispatch,
            Allocate: self._allocate,
            Suspend: self._suspend,
            AssignPS: self._assign_ps,
            Upload: self._upload,
            Transfer: self._transfer,
            Reserve: self._reserve,
            Postpone: self._postpone,
            Price: self._price,
            Reject: self._reject,
            WakeAt: self._wake_at,
        }
        policy.start(cluster, physics, scenario.rng("policy"))

    # -- the cycle -----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Order]:
        """The policy's orders for `event`, checked, applied to the books and journalled.

        Raises
        ------
        StateError
            If a fact is impossible, which is an error of the world.
        OrderError
            If an order breaks a rule. The run cannot continue: the orders before it are already applied to the books.
        """
        event = self._absorb(event)  # 1
        orders: list[Order] = []
        for order in self.policy.decide(event, self.view) or ():  # 2: the policy sees the effect of each order
            self._apply(order)  # 3 and 4
            orders.append(order)
        self._check_answer(event, orders)
        if self.journal is not None:
            self.journal.append(event, orders)  # 5
        return orders

    def _check_answer(self, event: Event, orders: list[Order]) -> None:
        """Check the conditions on all orders of one event together."""
        self._check_ps(event)
        self._check_idle(event, orders)

    def _check_idle(self, event: Event, orders: list[Order]) -> None:
        """Reject a policy that keeps waking without ordering anything: the run would not end."""
        idle = event.only_woke and all(isinstance(order, WakeAt) for order in orders)
        self.idle = self.idle + 1 if idle else 0
        if self.idle > LONGEST_IDLE:
            what = f"policy {self.policy.name!r} was woken {self.idle} times in a row, and ordered nothing"
            raise OrderError("M1", f"{what}: it must order something, or wait for something to happen")

    def _absorb(self, event: Event) -> Event:
        if event.time < self.now:
            raise StateError(f"a fact of {event.time} µs came after {self.now} µs")
        self.now = event.time
        chunks = event.chunks
        wrong = believe_finished(self.belief, chunks.time, chunks.lane, chunks.job) if len(chunks.time) else -1
        if wrong >= 0:
            raise StateError(f"lane {chunks.lane[wrong]} cannot have finished a chunk of job {chunks.job[wrong]}")
        for job, done in event.trained:
            self.books.trained(job, done)
        for job in event.finished:
            self._finish(job)
        for job, reason in event.failed:
            if self.standing[job] == DISPATCHED:
                believe_gone(self.belief, job, self.now)
            self._finish(job)
            self.record.fail(self.now, job, reason)
        for job in event.arrived:
            if job != self.arrived:
                raise StateError(f"job {job} arrived before job {self.arrived}")
            self.standing[job] = WAITING
            self.arrived += 1
        for job in event.paused:
            self.running.discard(job)
            self._release_ps(job)
        self.running.update(event.started)
        for job, factor in event.measured:
            self._measure(job, factor)
        if event.servers or event.lost:
            event = self._servers_changed(event)
        return self._with_broken_plans(event)

    def extend(self, scenario: Scenario) -> None:
        """Add jobs submitted during the run: `scenario` lists them after the present jobs."""
        self.standing = np.append(self.standing, np.full(len(scenario.jobs) - len(self.scenario.jobs), -1))
        self.chunk_time = np.concatenate([self.chunk_time, scenario.chunk_time[len(self.chunk_time) :]])
        self.scenario, self._columns = scenario, None
        self.books.extend(scenario)
        self.gangs.extend(scenario.announced_work, scenario.delays)
        self.record.extend(scenario)

    def _measure(self, job: int, factor: float) -> None:
        """Correct the announced speed of a job; ranks are frozen at dispatch, so the order on lanes does not change."""
        if self.standing[job] not in (WAITING, DISPATCHED):
            return
        present = self.factor.get(job, 1.0)
        self.factor[job] = factor
        self.chunk_time = self.chunk_time.copy()
        self.chunk_time[job] = np.maximum(1, (self.scenario.chunk_time[job] * factor).astype(np.int64))
        believe_slower(self.belief, job, factor / present, self.now)
        self.gangs.stretch(job, factor / present, self.now)

    def _servers_changed(self, event: Event) -> Event:
        """Take servers out of service or back into it; the event returned lists the jobs affected."""
        for server, why in event.servers:
            self._serve(server, why)
        interrupted, without_ps = [], []
        for server, why in event.servers:
            if why:
                interrupted += self._interrupt(server, why)
                without_ps += self._without_ps(server)
        for server, why in event.servers:
            self.books.serve(server, back=not why)
        for job, chunks in event.lost:
            self._lose(job, chunks)
        return replace(event, interrupted=tuple(sorted(interrupted)), without_ps=tuple(sorted(without_ps)))

    def _serve(self, server: int, why: str) -> None:
        cluster, back = self.scenario.cluster, not why
        if self.in_service[server] == back:
            raise StateError(f"server {cluster.label(server)!r} is already {'in' if back else 'out of'} service")
        self.in_service[server] = back
        self.record.server(self.now, server, why)
        if not back:
            self.gangs.forget(server)
            self.books.storage.lose(server)

    def _interrupt(self, server: int, why: str) -> list[int]:
        """Suspend the gangs with workers or their PS on `server`; returns these jobs."""
        hit = [job for job, where in self.gangs.placed.items() if self._stands_on(job, where, server)]
        for job in hit:
            self.books.release(job)
            self._release_ps(job)
            self.gangs.suspend(job, self.now)
            self.running.discard(job)
            self.record.decide(self.now, job, "suspend", why, server)
        return hit

    def _stands_on(self, job: int, where: Placement, server: int) -> bool:
        return server in self.books.ps_servers(job) or any(server == other for other, _ in where)

    def _without_ps(self, server: int) -> list[int]:
        """Release the PSs on `server`; returns the jobs that had them."""
        hit = [job for job in self.books.ps_of if server in self.books.ps_servers(job)]
        for job in hit:
            self._release_ps(job)
        return hit

    def _lose(self, job: int, chunks: tuple[int, ...]) -> None:
        there = dict[int, bool]()  # chunks that take turns are counted by the lane's work: fewer may be left
        for lane in self.sent[job][list(chunks)].tolist():
            there[lane] = lane == CLOUD or believe_lost(self.belief, lane, job, self.now) or there.get(lane, False)
        if not all(there.values()):
            raise StateError(f"a chunk of job {job} is reported lost, but it is on no lane")
        self.lost.setdefault(job, set()).update(chunks)

    def _finish(self, job: int) -> None:
        if self.standing[job] not in (WAITING, DISPATCHED):
            raise StateError(f"job {job} finished, but it is not in the system")
        self.standing[job] = FINISHED
        if job in self.gangs.placed:
            self.books.release(job)
        self.gangs.finish(job)
        self.running.discard(job)
        self.sent.pop(job, None)
        self.lost.pop(job, None)
        self._release_ps(job)
        self.books.storage.forget(job)

    def _with_broken_plans(self, event: Event) -> Event:
        broken = [job for job in self.plans.ended(self.now) if self.standing[job] == WAITING]
        for job in broken:
            self.plans.breaks(job, self.now)
        return replace(event, broken=tuple(broken)) if broken else event

    def _check_ps(self, event: Event) -> None:
        if not self.in_service.all():
            return  # all PSs may be out of service
        for job in event.started:
            if job in self.running and job not in self.books.ps_of:
                raise OrderError("M12", f"job {self.scenario.jobs.ids[job]!r} runs at {self.now} µs and has no PS")

    # -- orders --------------------------------------------------------------------------------------------------

    def _apply(self, order: Order) -> None:
        apply = self._appliers.get(type(order))
        if apply is None:
            raise OrderError("M1", f"{order!r} is not an order")
        apply(order)

    def _in_system(self, job: int) -> None:
        if not 0 <= job < self.arrived:
            raise OrderError("M2", f"job {job} has not arrived by {self.now} µs")
        if self.standing[job] in (FINISHED, REJECTED):
            raise OrderError("M2", f"job {self.scenario.jobs.ids[job]!r} has left the system")

    def _dispatch(self, order: Dispatch) -> None:
        job, jobs, cluster = order.job, self.scenario.jobs, self.scenario.cluster
        self._in_system(job)
        name, lane = jobs.ids[job], order.lane
        chunks = range(jobs.chunks[job]) if order.chunks is None else order.chunks
        if order.chunks is not None and not set(order.chunks) <= self.lost.get(job, set()):
            raise OrderError("M6", f"job {name!r}: chunks {order.chunks} are not all lost: no migration")
        if order.chunks is None and (self.standing[job] == DISPATCHED or job in self.gangs.data):
            raise OrderError("M6", f"job {name!r} is dispatched or allocated already: no migration")
        if not len(lane) == len(order.alpha) == len(order.postponed) == len(chunks):
            raise OrderError("M6", f"job {name!r} has {len(chunks)} chunks to place; the dispatch places {len(lane)}")
        edge = lane[lane != CLOUD]
        if len(edge) < len(lane) and cluster.cloud is None:
            raise OrderError("M3", f"job {name!r} is sent to the cloud, and there is none")
        if len(edge) and (edge.min() < 0 or edge.max() >= cluster.lanes):
            raise OrderError("M3", f"job {name!r} is sent to a lane that does not exist")
        if (cluster.lane_type[edge] != jobs.worker_type[job]).any():
            raise OrderError("M3", f"job {name!r} is sent to a lane of another worker type")
        out = cluster.lane_server[edge[~self.in_service[cluster.lane_server[edge]]]].tolist()
        if len(edge) < len(lane) and cluster.cloud is not None and not self.in_service[cluster.cloud]:
            out.append(cluster.cloud)
        if out:
            raise OrderError("M25", f"job {name!r} is sent to {cluster.label(out[0])!r}, which is out of service")
        self.books.storage.store(job, edge)
        self.belief = with_room(self.belief)
        dispatch_groups(
            self.belief, job, self.dispatches, order.rank, int(self.chunk_time[job, 0]),
            int(jobs.chunks[job]), lane, cluster.lane_server, self.scenario.delays, self.now, NO_LINKS,
        )  # fmt: skip
        self.standing[job] = DISPATCHED
        if order.chunks is None:
            self.sent[job] = lane
        else:
            self.sent[job] = self.sent[job].copy()
            self.sent[job][list(chunks)] = lane
            self.lost[job] -= set(chunks)
        self.dispatches += 1
        self.record.dispatch(self.now, order)

    def _allocate(self, order: Allocate) -> None:
        job = order.job
        self._in_system(job)
        if self.standing[job] == DISPATCHED:
            raise OrderError("M6", f"job {self.scenario.jobs.ids[job]!r} is dispatched: it cannot be allocated")
        if isinstance(order.ps, int | np.integer):
            text = "an allocation has (place, PSs) pairs, such as ps_in(slot)"
            raise OrderError("M12", f"job {self.scenario.jobs.ids[job]!r} is given {order.ps!r} as PS; {text}")
        if job in self.gangs.started and (job in self.gangs.parts) == order.gang:
            raise OrderError(
                "M24", f"job {self.scenario.jobs.ids[job]!r} is a gang in some allocations and not in others"
            )
        if job in self.gangs.placed:
            self.books.release(job)
            self._release_ps(job)
            self.gangs.suspend(job, self.now)
        self.books.take(job, order)
        self.record.take_ps(job, self.now)
        before = self.books.place(self.gangs, order, self.now)
        self.running.add(job)
        self.record.allocate(self.now, order, before, self.books.decided_ps(order))

    def _suspend(self, order: Suspend) -> None:
        self._in_system(order.job)
        if order.job not in self.gangs.placed:
            raise OrderError("M24", f"job {self.scenario.jobs.ids[order.job]!r} holds no workers: nothing to suspend")
        self.books.release(order.job)
        self._release_ps(order.job)
        self.gangs.suspend(order.job, self.now)
        self.running.discard(order.job)
        self.record.decide(self.now, order.job, "suspend", order.reason)

    def _assign_ps(self, order: AssignPS) -> None:
        self._in_system(order.job)
        self.books.check_assign(order.job)
        if order.job not in self.running or order.job in self.books.ps_of:
            raise OrderError("M12", f"job {self.scenario.jobs.ids[order.job]!r} does not run, or has a PS already")
        cloud = self.scenario.cluster.cloud
        if order.ps != CLOUD and self.wholly_in_cloud(order.job) and self.in_service[cloud]:
            raise OrderError(
                "M15", f"job {self.scenario.jobs.ids[order.job]!r} is wholly in the cloud, so its PS must be there"
            )
        self.books.take_ps(order.job, ps_in(order.ps))
        self.record.take_ps(order.job, self.now)

    def _release_ps(self, job: int) -> None:
        ps = self.books.release_ps(job)
        if ps is not None:
            self.record.release_ps(job, ps, self.now)

    def _transfer(self, order: Transfer) -> None:
        self._in_system(order.job)
        self.books.transfer(order, self.now)
        self.record.transfer(self.now, order)

    def _upload(self, order: Upload) -> None:
        self._in_system(order.job)
        self.books.check_upload(order.job)
        if self.standing[order.job] == DISPATCHED or order.job in self.gangs.placed:
            raise OrderError(
                "M6",
                f"job {self.scenario.jobs.ids[order.job]!r} is running, so its data are already where it needs them",
            )
        if not in_order(rows_of(order.where), np.ones_like(self.in_service)):
            self.books.check_servers(order.job, order.where)
        rule, most = self.books.most_workers(order.job)
        workers = rows_of(order.where)[:, 1]
        if not 1 <= workers.min() <= workers.max() <= most:
            name = self.scenario.jobs.ids[order.job]
            raise OrderError(
                rule, f"job {name!r}: data for {order.where!r}; on each server it can have 1 to {most} workers"
            )
        self.record.upload(self.now, order, self.gangs.upload(order.job, order.where, self.now))

    def _reserve(self, order: Reserve) -> None:
        self._in_system(order.job)
        if not self.now <= order.start < order.end:
            raise OrderError("M19", f"job {self.scenario.jobs.ids[order.job]!r}: a plan must lie in the future")
        if min(order.workers, order.ps) < 0 or order.workers + order.ps == 0:
            raise OrderError("M1", f"job {self.scenario.jobs.ids[order.job]!r}: a plan must hold a worker or a PS")
        self.plans.reserve(order, self.now)
        self.record.reserve(self.now, order)

    def _postpone(self, order: Postpone) -> None:
        self._in_system(order.job)
        if self.standing[order.job] == DISPATCHED or order.job in self.gangs.placed:
            raise OrderError("M18", f"job {self.scenario.jobs.ids[order.job]!r} has started and cannot be postponed")
        self.record.decide(self.now, order.job, "postpone", order.reason, value=order.value)

    def _price(self, order: Price) -> None:
        self._in_system(order.job)
        for piece in order.pieces:
            if not 0 <= piece.server < self.servers or not self.now <= piece.start < piece.end:
                raise OrderError("M1", f"{piece!r}: a price must name an existing server and a future interval")
            if not 0 <= piece.price < np.inf:
                raise OrderError("M1", f"{piece!r}: a price must be finite and at least 0")
        self.record.price(self.now, order)

    def _reject(self, order: Reject) -> None:
        self._in_system(order.job)
        begun = order.job in self.gangs.started or order.job in self.gangs.data
        if self.standing[order.job] == DISPATCHED or begun:
            raise OrderError("M18", f"job {self.scenario.jobs.ids[order.job]!r} has started and cannot be rejected")
        self.standing[order.job] = REJECTED
        self.record.reject(self.now, order)

    def _wake_at(self, order: WakeAt) -> None:
        if not isinstance(order.time, int | np.integer) or not self.now < order.time < NEVER:
            what = f"it must be a whole number above {self.now}, which is now"
            raise OrderError("M1", f"cannot wake at {order.time} µs: {what}")

    # -- what the view shows -------------------------------------------------------------------------------------

    def believed(self, lanes: Ints) -> Lanes:
        """The belief, read-only, with `lanes` updated to the present."""
        bring_to(self.belief, lanes, self.now)
        return read_only(self.belief)

    def columns(self) -> JobColumns:
        """The columns of the jobs that have arrived, read-only."""
        if self._columns is None or len(self._columns.arrival) != self.arrived:
            self._columns = self.scenario.jobs.first(self.arrived)
        return self._columns

    def active(self) -> Ints:
        """Jobs in the system, ascending."""
        standing = self.standing[: self.arrived]
        return np.flatnonzero((standing == WAITING) | (standing == DISPATCHED))

    def is_running(self, job: int) -> bool:
        """Whether `job` holds workers or has a chunk in service."""
        return job in self.running

    def wholly_in_cloud(self, job: int) -> bool:
        """Whether the last dispatch of every chunk was to the cloud: zeta of a dispatched job (M10)."""
        return job in self.sent and bool((self.sent[job] == CLOUD).all())

    def upload_delay(self, job: int, server: int) -> int:
        """Upload delay of a chunk of `job` to `server` [µs]."""
        return int(upload_delay(self.scenario.delays, job, server))

    def upload_delays(self, job: int) -> Ints:
        """Upload delay of a chunk of `job` to each server [µs]."""
        return upload_row(self.scenario.delays, job)

    def past_delays(self) -> Delays:
        """Upload delays of the jobs that have arrived."""
        d, n = self.scenario.delays, self.arrived
        return d._replace(lo=d.lo[:n], hi=d.hi[:n], key=d.key[:n], given=d.given[:n])

    # -- self-check ----------------------------------------------------------------------------------------------

    def validate_state(self) -> None:
        """Recompute what the books keep in two forms, and compare.

        Raises
        ------
        StateError
            If the free workers, PS slots or storage are inconsistent with the holdings.
        """
        self.books.validate()

    def unanswered(self) -> Ints:
        """Jobs that are still in the system; none at the end of a run."""
        return self.active()
