"""The events of a run, one after the other, compiled."""

from __future__ import annotations

from skedge.core.engine.agenda import tidy
from skedge.core.engine.allocations import finish
from skedge.core.engine.ledger import ARRIVED, DONE, NOW, Case, Ledger, has_room
from skedge.core.engine.step import n_arrivals, next_time, room_for_event, take_due
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .decide import decide
from .state import COMPLETED, FINISHED, PolicyState

OVER, FULL, PAUSED = range(3)
"""Why :func:`advance` returns: the run is over, the arrays need room, or it has done its events."""


@lean
def advance(case: Case, ledger: Ledger, choice: PolicyState, events: int) -> int:
    """Go on for at most this number of events; stops before one for which an array may lack room."""
    counters, finished = ledger.counters, choice.lists[FINISHED]
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
                choice.lists[COMPLETED, counters[DONE]] = finished[i]
                counters[DONE] += 1
            choice.counters[FINISHED] = n_finished
            decide(case, ledger, choice, first, counters[ARRIVED])
            tidy(ledger)
    return PAUSED
