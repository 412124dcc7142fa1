"""The events of a run, one after the other, compiled."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .decide import decide
from .gangs import drop, finish, tidy
from .state import (
    AGENDA,
    ARRIVAL,
    ARRIVED,
    COMPLETED,
    DONE,
    FINISHED,
    NOW,
    STALE,
    VERSION,
    GangBooks,
    GangCase,
    PolicyState,
    has_room,
    room,
)

OVER, FULL, PAUSED = range(3)
"""Why :func:`advance` returns: the run is over, the arrays need room, or it has done its events."""


@lean
def advance(case: GangCase, books: GangBooks, choice: PolicyState, events: int) -> int:
    """Go on for at most this number of events; stops before one for which an array may lack room."""
    at, done = books.at, choice.lists[FINISHED]
    for _ in range(events):
        now = at[NOW] = next_time(books.jobs, books.agenda, at)
        if now == NEVER:
            return OVER
        arrivals = arrivals_at(books.jobs, at)
        if not has_room(books, choice.stored, room(case.slots, at, arrivals)):
            return FULL
        woke = happening(books.agenda, at, books.jobs, choice.lists[FINISHED], choice.at)
        finished, first = choice.at[FINISHED], at[ARRIVED]
        at[ARRIVED] += arrivals
        if woke or finished > 0 or arrivals > 0:
            for i in range(finished):
                finish(case, books, done[i], now)
                choice.lists[COMPLETED, at[DONE]] = done[i]
                at[DONE] += 1
            decide(case, books, choice, now, first, at[ARRIVED])
            choice.at[FINISHED] = 0
            tidy(books.agenda, at, books.jobs)
    return PAUSED


@lean
def next_time(jobs: Ints, agenda: Ints, at: Ints) -> int:
    """The time of the next arrival or entry of the agenda; NEVER at the end."""
    now = NEVER
    if at[ARRIVED] < len(jobs):
        now = jobs[at[ARRIVED], ARRIVAL]
    return min(now, agenda[0, 0]) if at[AGENDA] > 0 else now


@lean
def arrivals_at(jobs: Ints, at: Ints) -> int:
    """The number of jobs that arrive now."""
    last = at[ARRIVED]
    while last < len(jobs) and jobs[last, ARRIVAL] <= at[NOW]:
        last += 1
    return last - at[ARRIVED]


@lean
def happening(agenda: Ints, at: Ints, jobs: Ints, done: Ints, lengths: Ints) -> bool:
    """Take what happens now from the agenda: the jobs that complete, in order; returns whether there is a wake-up."""
    woke = False
    while at[AGENDA] > 0 and agenda[0, 0] <= at[NOW]:
        job, version, k = agenda[0, 1], agenda[0, 2], lengths[FINISHED]
        drop(agenda, at)
        if job < 0:
            woke = True
        elif version != jobs[job, VERSION]:
            at[STALE] -= 1
        else:
            while k > 0 and done[k - 1] > job:
                done[k] = done[k - 1]
                k -= 1
            done[k] = job
            lengths[FINISHED] += 1
    return woke
