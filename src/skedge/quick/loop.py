"""The events of a run, one after the other, compiled."""

from __future__ import annotations

import numpy as np

from skedge.core.jit import compiled
from skedge.core.time import NEVER

from .decide import decide
from .gangs import drop, finish, tidy
from .state import AGENDA, ARRIVED, DONE, FINISHED, NOW, STALE, Case, State

OVER, FULL, PAUSED = range(3)
"""Why :func:`advance` returns: the run is over, the arrays need room, or it has done its events."""


@compiled
def advance(case: Case, state: State, events: int) -> int:
    """Go on for at most this number of events; every array has room for one more (see :func:`room`)."""
    at = state.at
    for _ in range(events):
        now = at[NOW] = _next(case, state)
        if now == NEVER:
            return OVER
        if not _has_room(case, state, now):
            return FULL
        woke = _happening(case, state, now)
        first, finished = at[ARRIVED], at[FINISHED]
        at[ARRIVED] += _arrivals(case, state, now)
        if woke or finished > 0 or at[ARRIVED] > first:
            state.finished[:finished].sort()
            for job in state.finished[:finished]:
                finish(case, state, job, now)
            decide(case, state, now, finished, first, at[ARRIVED])
            at[DONE] += finished
            at[FINISHED] = 0
            tidy(state.jobs, state)
    return PAUSED


@compiled
def _next(case: Case, state: State) -> int:
    """The time of the next arrival or entry of the agenda; NEVER at the end."""
    arrived, now = state.at[ARRIVED], NEVER
    if arrived < len(case.arrival):
        now = case.arrival[arrived]
    return min(now, state.agenda[0, 0]) if state.at[AGENDA] > 0 else now


@compiled
def _arrivals(case: Case, state: State, now: int) -> int:
    """The number of jobs that arrive now."""
    first = last = state.at[ARRIVED]
    while last < len(case.arrival) and case.arrival[last] <= now:
        last += 1
    return last - first


@compiled
def _has_room(case: Case, state: State, now: int) -> bool:
    """Whether there is room for all that an event can add."""
    more, rows, count = room(case, state, now), state.rows, state.rows.count
    fits = min(len(rows.decisions) - count[0], len(rows.ps) - count[1]) >= more
    fits = fits and min(len(rows.uploads) - count[2], len(rows.runs) - count[3]) >= more
    fits = fits and min(len(state.data.server) - state.data.size[0], len(state.agenda) - state.at[AGENDA]) >= more
    return fits and len(state.stored.server) - state.stored.size[0] >= more


@compiled
def room(case: Case, state: State, now: int) -> int:
    """Upper bound on the rows and entries that an event at `now` adds to any array.

    At most as many jobs as workers stop, are moved or begin, each with a row for each of its servers, and each job that
    arrives has one.
    """
    workers = 0
    for kind in range(len(case.slots)):
        workers += case.slots[kind]
    return 3 * workers + 2 * _arrivals(case, state, now) + len(case.slots) + state.at[AGENDA] // 8 + 64


@compiled
def _happening(case: Case, state: State, now: int) -> bool:
    """Take what happens now from the agenda; whether there is a wake-up."""
    at, agenda, woke = state.at, state.agenda, False
    while at[AGENDA] > 0 and agenda[0, 0] <= now:
        job, version = agenda[0, 1], agenda[0, 2]
        drop(state)
        if job < 0:
            woke = True
        elif version == state.jobs.version[job]:
            state.finished[at[FINISHED]] = job
            at[FINISHED] += 1
        else:
            at[STALE] -= 1
    return woke
