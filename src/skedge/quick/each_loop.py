"""The events of a run of Preemptive or DRF, one after the other, compiled; as :mod:`.loop`."""

from __future__ import annotations

from skedge.core.engine.agenda import tidy
from skedge.core.engine.allocations import finish
from skedge.core.engine.ledger import ARRIVED, DONE, NOW, Case, Ledger, has_room
from skedge.core.engine.step import n_arrivals, next_time, room_for_event, take_due
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled

from .decide import admit, leave
from .drf import fill
from .loop import FULL, OVER, PAUSED
from .preemptive import take_in_turn
from .state import ACTIVE, COMPLETED, DRF, FINISHED
from .taking import Taking


@compiled
def advance_taking(case: Case, ledger: Ledger, taking: Taking, events: int) -> int:
    """Go on for at most this number of events; as :func:`.loop.advance`."""
    counters, finished = ledger.counters, taking.lists[FINISHED]
    for _ in range(events):
        counters[NOW] = next_time(ledger)
        if counters[NOW] == NEVER:
            return OVER
        arrivals = n_arrivals(ledger)
        if not has_room(ledger, room_for_event(case, ledger, arrivals)):
            return FULL
        n_finished, woke = take_due(ledger, finished)
        first = counters[ARRIVED]
        counters[ARRIVED] += arrivals
        if woke or n_finished > 0 or arrivals > 0:
            for i in range(n_finished):
                finish(case, ledger, finished[i])
                taking.lists[COMPLETED, counters[DONE]] = finished[i]
                counters[DONE] += 1
            taking.counters[FINISHED] = n_finished
            _decide(case, ledger, taking, first, counters[ARRIVED])
            tidy(ledger)
    return PAUSED


@compiled
def _decide(case: Case, ledger: Ledger, taking: Taking, first: int, last: int) -> None:
    """Decide when the jobs of the list FINISHED have completed, and `first` to ``last - 1`` have arrived."""
    lists, counters, held = taking.lists, taking.counters, taking.held
    leave(held.running, lists, counters)
    for i in range(counters[FINISHED]):
        held.stale[lists[FINISHED, i]] = 1
    for job in range(first, last):
        if admit(case, ledger, job, taking.demand[job]):
            lists[ACTIVE, counters[ACTIVE]] = job
            counters[ACTIVE] += 1
    if taking.policy == DRF:
        fill(case, ledger, taking)
    else:
        take_in_turn(case, ledger, taking)
