"""The events of a run of Preemptive or DRF, one after the other, compiled; as :mod:`.loop`."""

from __future__ import annotations

from skedge.core.engine.agenda import tidy
from skedge.core.engine.ledger import ARRIVED, Case, Ledger
from skedge.core.engine.step import EVENT, FULL, OVER, step
from skedge.platform.jit import compiled

from .decide import admit, leave
from .drf import fill
from .loop import PAUSED
from .preemptive import take_in_turn
from .state import ACTIVE, COMPLETED, DRF, FINISHED
from .taking import Taking


@compiled
def advance_taking(case: Case, ledger: Ledger, taking: Taking, events: int) -> int:
    """Continue for at most this number of events; parameters and result as of :func:`.loop.advance`.

    Parameters
    ----------
    case, ledger, taking
        The arrays of the run and of the policy.
    events
        At least 1.
    """
    finished, completed = taking.lists[FINISHED], taking.lists[COMPLETED]
    for _ in range(events):
        outcome, n_finished, first = step(case, ledger, finished, completed)
        if outcome in (OVER, FULL):
            return outcome
        if outcome == EVENT:
            taking.counters[FINISHED] = n_finished
            _decide(case, ledger, taking, first, ledger.counters[ARRIVED])
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
