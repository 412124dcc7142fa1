"""The events of a run of Preemptive or DRF, one after the other, compiled; as :mod:`.loop`."""

from __future__ import annotations

from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled

from .decide import admit, leave
from .drf import fill
from .each import SIZE, finish_each
from .gangs import finish, tidy
from .loop import FULL, OVER, PAUSED, arrivals_at, happening, next_time
from .preemptive import take_in_turn
from .state import ACTIVE, ARRIVED, COMPLETED, DONE, DRF, FINISHED, NOW, GangBooks, GangCase, has_room, room
from .taking import Taking


@compiled
def advance_taking(case: GangCase, books: GangBooks, taking: Taking, events: int) -> int:
    """Go on for at most this number of events; as :func:`.loop.advance`."""
    at, done, crews = books.at, taking.lists[FINISHED], taking.crews
    for _ in range(events):
        now = at[NOW] = next_time(books.jobs, books.agenda, at)
        if now == NEVER:
            return OVER
        arrivals = arrivals_at(books.jobs, at)
        more = room(case.slots, at, arrivals)
        if not has_room(books, taking.stored, more) or len(crews.rows) - crews.size[0] < more:
            return FULL
        happening(books.agenda, at, books.jobs, done, taking.at)
        finished, first = taking.at[FINISHED], at[ARRIVED]
        at[ARRIVED] += arrivals
        if finished > 0 or arrivals > 0:
            for i in range(finished):
                if crews.of[done[i], SIZE] > 0:
                    finish_each(case, books, crews, done[i], now)
                else:
                    finish(case, books, done[i], now)
                taking.lists[COMPLETED, at[DONE]] = done[i]
                at[DONE] += 1
            _decide(case, books, taking, now, first, at[ARRIVED])
            taking.at[FINISHED] = 0
            tidy(books.agenda, at, books.jobs)
    return PAUSED


@compiled
def _decide(case: GangCase, books: GangBooks, taking: Taking, now: int, first: int, last: int) -> None:
    """Decide when the jobs of the list FINISHED have completed, and `first` to ``last - 1`` have arrived."""
    lists, at, held = taking.lists, taking.at, taking.held
    leave(held.running, lists, at)
    for i in range(at[FINISHED]):
        held.stale[lists[FINISHED, i]] = 1
    for job in range(first, last):
        if admit(case, books, taking.stored, job, now):
            lists[ACTIVE, at[ACTIVE]] = job
            at[ACTIVE] += 1
    if taking.policy == DRF:
        fill(case, books, taking, now)
    else:
        take_in_turn(case, books, taking, now)
