"""The events of a run, one after the other, compiled."""

from __future__ import annotations

from skedge.core.engine.agenda import tidy
from skedge.core.engine.ledger import ARRIVED, Case, Ledger
from skedge.core.engine.step import EVENT, FULL, OVER, step
from skedge.platform.jit import lean

from .decide import decide
from .state import COMPLETED, FINISHED, PolicyState

PAUSED = 4
"""Why :func:`advance` returns, if not at the end of the run or as the arrays need room: it has done its events."""


@lean
def advance(case: Case, ledger: Ledger, choice: PolicyState, events: int) -> int:
    """Continue for at most this number of events; stops before one for which an array may lack room.

    Parameters
    ----------
    case, ledger, choice
        The arrays of the run and of the policy.
    events
        At least 1.

    Returns
    -------
    OVER, FULL or PAUSED.
    """
    finished, completed = choice.lists[FINISHED], choice.lists[COMPLETED]
    for _ in range(events):
        outcome, n_finished, first = step(case, ledger, finished, completed)
        if outcome in (OVER, FULL):
            return outcome
        if outcome == EVENT:
            choice.counters[FINISHED] = n_finished
            decide(case, ledger, choice, first, ledger.counters[ARRIVED])
            tidy(ledger)
    return PAUSED
