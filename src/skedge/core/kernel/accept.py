"""Orders checked against the rules of ``docs/model.md`` and applied. Steps 3 and 4 of :meth:`.kernel.Kernel.handle`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skedge.core.engine.lanes import NO_LINKS, group_of, send_chunks, with_room
from skedge.core.engine.ledger import DISPATCHED, FINISHED, REJECTED
from skedge.core.errors import OrderError
from skedge.core.events import (
    CLOUD,
    Allocate,
    AssignPS,
    Dispatch,
    Order,
    Postpone,
    Price,
    Reject,
    Reserve,
    Suspend,
    Transfer,
    Upload,
    WakeAt,
)
from skedge.core.model.time import NEVER
from skedge.core.record.schedule import COPIES, SHARES

if TYPE_CHECKING:
    from .state import State


def accept(state: State, order: Order) -> None:
    """Check `order` and apply it to `state`.

    Raises
    ------
    OrderError
        If the order breaks a rule.
    """
    handler = _ACCEPT.get(type(order))
    if handler is None:
        raise OrderError("M1", f"{order!r} is not an order")
    handler(state, order)


def _in_system(state: State, job: int) -> None:
    if not 0 <= job < state.arrived:
        raise OrderError("M2", f"job {job} has not arrived by {state.now} µs")
    if state.status[job] in (FINISHED, REJECTED):
        raise OrderError("M2", f"job {state.name(job)!r} has left the system")


def _dispatch(state: State, order: Dispatch) -> None:
    job, jobs, cluster = order.job, state.scenario.jobs, state.scenario.cluster
    _in_system(state, job)
    name, lane = jobs.ids[job], order.lane
    chunks = range(jobs.chunks[job]) if order.chunks is None else order.chunks
    if order.chunks is not None and not set(order.chunks) <= state.lost.get(job, set()):
        raise OrderError("M6", f"job {name!r}: chunks {order.chunks} are not all lost: no migration")
    if order.chunks is None and (state.status[job] == DISPATCHED or state.engine.data(job)):
        raise OrderError("M6", f"job {name!r} is dispatched or allocated already: no migration")
    if not len(lane) == len(order.alpha) == len(order.postponed) == len(chunks):
        raise OrderError("M6", f"job {name!r} has {len(chunks)} chunks to place; the dispatch places {len(lane)}")
    edge = lane[lane != CLOUD]
    if len(edge) < len(lane) and cluster.cloud is None:
        raise OrderError("M3", f"job {name!r} is sent to the cloud, which this cluster does not have")
    if len(edge) and (edge.min() < 0 or edge.max() >= cluster.lanes):
        raise OrderError("M3", f"job {name!r} is sent to a lane that does not exist")
    if (cluster.lane_type[edge] != jobs.worker_type[job]).any():
        raise OrderError("M3", f"job {name!r} is sent to a lane of another worker type")
    out = cluster.lane_server[edge[~state.in_service[cluster.lane_server[edge]]]].tolist()
    if len(edge) < len(lane) and cluster.cloud is not None and not state.in_service[cluster.cloud]:
        out.append(cluster.cloud)
    if out:
        raise OrderError("M25", f"job {name!r} is sent to {cluster.label(out[0])!r}, which is out of service")
    # the last check, and the first change: an order that is refused leaves the state as it was
    state.books.storage.store(job, edge)
    state.belief = with_room(state.belief)
    group = group_of(job, state.dispatches, order.rank, int(state.chunk_time[job, 0]), int(jobs.chunks[job]))
    send_chunks(state.belief, group, lane, cluster.lane_server, state.scenario.delays, state.now, NO_LINKS)
    state.status[job] = DISPATCHED
    if order.chunks is None:
        state.sent[job] = lane
    else:
        # the record keeps the array of the first dispatch
        state.sent[job] = state.sent[job].copy()
        state.sent[job][list(chunks)] = lane
        state.lost[job] -= set(chunks)
    state.dispatches += 1
    state.record.dispatch(state.now, order)


def _allocate(state: State, order: Allocate) -> None:
    job = order.job
    _in_system(state, job)
    if state.status[job] == DISPATCHED:
        raise OrderError("M6", f"job {state.name(job)!r} is dispatched: it cannot be allocated")
    if isinstance(order.ps, int | np.integer):
        text = "an allocation has (place, PSs) pairs, such as ps_in(slot)"
        raise OrderError("M12", f"job {state.name(job)!r} is given {order.ps!r} as PS; {text}")
    state.books.allocate(order, state.record.reason(order.reason))


def _suspend(state: State, order: Suspend) -> None:
    _in_system(state, order.job)
    if not state.engine.holds(order.job):
        raise OrderError("M24", f"job {state.name(order.job)!r} holds no workers: nothing to suspend")
    state.books.release(order.job)
    state.engine.suspend(order.job, state.record.reason(order.reason))


def _assign_ps(state: State, order: AssignPS) -> None:
    _in_system(state, order.job)
    state.books.check_assign(order.job)
    if not state.is_running(order.job) or state.books.has_ps(order.job):
        raise OrderError("M12", f"job {state.name(order.job)!r} does not run, or has a PS already")
    cloud = state.scenario.cluster.cloud
    # with no chunk on the edge a PS there would put the wide-area network into every update
    if order.ps != CLOUD and state.wholly_in_cloud(order.job) and state.in_service[cloud]:
        raise OrderError("M15", f"job {state.name(order.job)!r} is wholly in the cloud, so its PS must be there")
    state.books.check_ps(order.job, order.ps)
    state.engine.take_ps(order.job, order.ps)


def _transfer(state: State, order: Transfer) -> None:
    _in_system(state, order.job)
    state.books.transfer(order, state.now)
    state.record.transfer(order)


def _upload(state: State, order: Upload) -> None:
    _in_system(state, order.job)
    state.books.check_upload(order.job)
    if state.status[order.job] == DISPATCHED or state.engine.holds(order.job):
        raise OrderError(
            "M6",
            f"job {state.name(order.job)!r} is running, so its data are already where it needs them",
        )
    state.books.check_servers(order.job, order.where)
    rule, max_workers = state.books.most_workers(order.job)
    if not all(1 <= n <= max_workers for _, n in order.where):
        name = state.name(order.job)
        raise OrderError(
            rule, f"job {name!r}: data for {order.where!r}; on each server it can have 1 to {max_workers} workers"
        )
    reason = state.record.reason(COPIES if order.copies else SHARES)
    state.engine.upload(order.job, order.where, reason, copies=order.copies)


def _reserve(state: State, order: Reserve) -> None:
    _in_system(state, order.job)
    if not state.now <= order.start < order.end:
        raise OrderError("M19", f"job {state.name(order.job)!r}: a plan must lie in the future")
    if min(order.workers, order.ps) < 0 or order.workers + order.ps == 0:
        raise OrderError("M1", f"job {state.name(order.job)!r}: a plan must hold a worker or a PS")
    state.plans.reserve(order, state.now)
    state.record.reserve(order)


def _postpone(state: State, order: Postpone) -> None:
    _in_system(state, order.job)
    if state.status[order.job] == DISPATCHED or state.engine.holds(order.job):
        raise OrderError("M18", f"job {state.name(order.job)!r} has started and cannot be postponed")
    state.record.decide(order.job, "postpone", order.reason, value=order.value)


def _price(state: State, order: Price) -> None:
    _in_system(state, order.job)
    for piece in order.pieces:
        if not 0 <= piece.server < len(state.in_service) or not state.now <= piece.start < piece.end:
            raise OrderError("M1", f"{piece!r}: a price must name an existing server and a future interval")
        if not 0 <= piece.price < np.inf:
            raise OrderError("M1", f"{piece!r}: a price must be finite and at least 0")
    state.record.price(state.now, order)


def _reject(state: State, order: Reject) -> None:
    _in_system(state, order.job)
    has_begun = state.engine.has_run(order.job) or state.engine.data(order.job)
    if state.status[order.job] == DISPATCHED or has_begun:
        raise OrderError("M18", f"job {state.name(order.job)!r} has started and cannot be rejected")
    state.engine.reject(order.job)
    state.record.reject(order)


def _wake_at(state: State, order: WakeAt) -> None:
    if not isinstance(order.time, int | np.integer) or not state.now < order.time < NEVER:
        text = f"it must be a whole number above {state.now}, which is now"
        raise OrderError("M1", f"cannot wake at {order.time} µs: {text}")


_ACCEPT: dict[type, Any] = {
    Dispatch: _dispatch,
    Allocate: _allocate,
    Suspend: _suspend,
    AssignPS: _assign_ps,
    Transfer: _transfer,
    Upload: _upload,
    Reserve: _reserve,
    Postpone: _postpone,
    Price: _price,
    Reject: _reject,
    WakeAt: _wake_at,
}
"""The function that checks and applies each kind of order."""
