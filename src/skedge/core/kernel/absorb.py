"""Facts absorbed: an event of the world changes what the scheduler knows. Step 1 of :meth:`.kernel.Kernel.handle`."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.lanes import believe_failed, believe_finished, believe_lost, believe_slower
from skedge.core.engine.ledger import DISPATCHED, WAITING
from skedge.core.errors import StateError
from skedge.core.events import CLOUD, NO_FACTS, Event, LaneFacts

from .state import State


def absorb(state: State, event: Event) -> Event:
    """Write the facts of `event` into `state`; the event returned lists the jobs affected as well.

    Raises
    ------
    StateError
        If a fact is impossible.
    """
    if event.time < state.now:
        raise StateError(f"a fact of {event.time} µs came after {state.now} µs")
    state.now = event.time
    state.engine.set_now(event.time)
    if event.chunks is not NO_FACTS:
        _chunks_finished(state, event.chunks)
    # what was trained before who completed: a completion is checked against the chunks that are left
    for job, chunks_trained in event.trained:
        state.books.trained(job, chunks_trained)
    if event.finished or event.arrived:
        _take_in(state, event)
    for job, reason in event.failed:
        if state.status[job] == DISPATCHED:
            believe_failed(state.belief, job, state.now)
        _fail(state, job)
        state.record.fail(job, reason)
    # a job whose last chunk in service was displaced returns its PS before the orders of this event take PSs
    for job in event.paused:
        state.served.discard(job)
        state.release_ps(job)
    state.served.update(event.started)
    for job, factor in event.measured:
        _measure(state, job, factor)
    if event.servers or event.lost:
        event = _servers_changed(state, event)
    return _with_broken_plans(state, event) if state.plans.rows else event


def _chunks_finished(state: State, chunks: LaneFacts) -> None:
    """Take the chunks that were completed off the lanes."""
    impossible = believe_finished(state.belief, chunks.time, chunks.lane, chunks.job) if len(chunks.time) else -1
    if impossible >= 0:
        raise StateError(f"lane {chunks.lane[impossible]} cannot have finished a chunk of job {chunks.job[impossible]}")


def _take_in(state: State, event: Event) -> None:
    """Take in completions and arrivals: what jobs hold in slots, and their states, are in the engine."""
    if event.arrived and event.arrived != tuple(range(state.arrived, state.arrived + len(event.arrived))):
        raise StateError(f"jobs {event.arrived} arrived before job {state.arrived}")
    for job in event.finished:
        state.books.finish(job)
    stranger = state.engine.absorb(event.finished, len(event.arrived))
    if stranger >= 0:
        raise StateError(f"job {stranger} finished, but it is not in the system")
    if state.dispatches:
        for job in event.finished:
            _forget(state, job)


def _forget(state: State, job: int) -> None:
    """Forget the chunks of a job that has left."""
    state.served.discard(job)
    state.sent.pop(job, None)
    state.lost.pop(job, None)
    state.books.storage.forget(job)


def _measure(state: State, job: int, factor: float) -> None:
    """Correct the announced speed of a job; ranks are frozen at dispatch, so the order on lanes does not change."""
    if state.status[job] not in (WAITING, DISPATCHED):
        return
    present = state.factor.get(job, 1.0)
    state.factor[job] = factor
    # a view that a policy or a forecast has kept must not change
    state.chunk_time = state.chunk_time.copy()
    state.chunk_time[job] = np.maximum(1, (state.scenario.chunk_time[job] * factor).astype(np.int64))
    believe_slower(state.belief, job, factor / present, state.now)
    state.engine.stretch(job, factor / present, state.now)


def _servers_changed(state: State, event: Event) -> Event:
    """Take servers out of service or back into it; the event returned lists the jobs affected."""
    _check_servers(state, event)
    changes = np.array([(event.time, server, bool(reason)) for server, reason in event.servers], np.int64)
    interrupted, without_ps = state.engine.change_servers(changes.reshape(-1, 3), state.books.ps_elsewhere())
    for job in interrupted:
        state.books.release(job)
    for server, reason in event.servers:
        state.books.serve(server, back=not reason)
        state.record.server(state.now, server, reason)
    state.record.suspended({server: reason for server, reason in event.servers if reason}, len(interrupted))
    for job, chunks in event.lost:
        _lose(state, job, chunks)
    return event._replace(interrupted=tuple(interrupted), without_ps=tuple(without_ps))


def _check_servers(state: State, event: Event) -> None:
    """Check that each server that leaves is in service, and each that returns is not."""
    in_service = state.in_service.copy()
    for server, reason in event.servers:
        if in_service[server] != bool(reason):
            label, where = state.scenario.cluster.label(server), "out of" if reason else "in"
            raise StateError(f"server {label!r} is already {where} service")
        in_service[server] = not reason


def _lose(state: State, job: int, chunks: tuple[int, ...]) -> None:
    found_on = dict[int, bool]()  # chunks that take turns are counted by the lane's work: fewer may be left
    for lane in state.sent[job][list(chunks)].tolist():
        # of chunks that take turns on a lane the first takes them all off the belief; the others find none left
        found_on[lane] = lane == CLOUD or believe_lost(state.belief, lane, job, state.now) or found_on.get(lane, False)
    if not all(found_on.values()):
        raise StateError(f"a chunk of job {job} is reported lost, but it is on no lane")
    state.lost.setdefault(job, set()).update(chunks)


def _fail(state: State, job: int) -> None:
    if state.status[job] not in (WAITING, DISPATCHED):
        raise StateError(f"job {job} failed, but it is not in the system")
    if state.engine.holds(job):
        state.books.release(job)
        state.engine.stop(job)
    state.engine.absorb((job,), 0)
    _forget(state, job)
    state.release_ps(job)


def _with_broken_plans(state: State, event: Event) -> Event:
    broken = [job for job in state.plans.take_ended(state.now) if state.status[job] == WAITING]
    for job in broken:
        state.plans.mark_broken(job, state.now)
    return event._replace(broken=tuple(broken)) if broken else event
