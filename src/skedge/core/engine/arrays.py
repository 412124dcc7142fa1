"""The arrays of a run, and the calls of compiled functions that take all of them by one handle."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from skedge.core.errors import StateError
from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.scenario import Scenario
from skedge.platform.jit import is_interpreted
from skedge.platform.signals import uninterruptible

from .ledger import (
    ADMITTED,
    ARRIVED,
    CHANGES,
    DECISIONS,
    DEPARTED,
    DISPATCHED,
    NO_VALUE,
    NOW,
    PS_ROWS,
    RUNS,
    STATUS,
    TRAININGS,
    UPLOADS,
    WAITING,
    RecordRows,
    job_rows,
    make_case,
    make_ledger,
    no_rows,
    note_decision,
    trimmed,
    with_jobs,
    with_room,
)
from .orders import (
    FIRST_ARRIVED,
    MEASURED,
    N_FINISHED,
    N_INTERRUPTED,
    N_LEFT,
    N_LOST,
    N_ORDERS,
    UNTIL,
    make_facts,
    make_orders,
)
from .step import FULL, room_for_event

if TYPE_CHECKING:
    from skedge.core.events import Event

_note_decision: Any = note_decision.py_func  # type: ignore[attr-defined]


class EngineArrays:
    """The arrays of one run, and the handle by which compiled functions get all of them at once.

    Attributes
    ----------
    case, ledger
        The arrays. Those by job are made anew when jobs are added; no other array that a caller may keep moves.
    facts, orders
        What a compiled decision reads, and what it writes.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.case, self.ledger = make_case(scenario)._replace(simulated=0), make_ledger(scenario)
        self._placement = np.zeros((len(scenario.cluster.servers) + 1, 2), np.int64)
        self._make_room_for_orders(len(scenario.jobs))
        self._handle: Any = None
        self._calls: Any = None
        self._forms = dict[str | Callable[..., object], Callable[..., Any]]()

    def _make_room_for_orders(self, n_jobs: int) -> None:
        # workers of all servers, also of those that are out of service now
        n_workers = int(self.case.slots.sum())
        self.facts, self.orders = make_facts(n_jobs, len(self.ledger.in_service)), make_orders(n_jobs, n_workers)

    def leave_slots(self) -> None:
        """Workers and PSs are no slots: who keeps the resources checks and counts them."""
        self.case = self.case._replace(on_slots=0)
        self._refresh()

    def __getstate__(self) -> dict[str, Any]:
        """Without the handle, which is made again when it is needed."""
        return {**vars(self), "_handle": None, "_calls": None, "_forms": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with none of the record's rows, which grow without end: forecasts are made on copies."""
        engine = memo[id(self)] = type(self).__new__(type(self))
        counters = self.ledger.counters.copy()
        counters[[DECISIONS, PS_ROWS, UPLOADS, RUNS]] = 0
        ledger = self.ledger._replace(rows=no_rows(), counters=counters)
        # what never changes is shared; one memo, as kernel and books have arrays of the ledger, too
        memo.update({id(array): array for array in (*self.case, *self.case.delays) if isinstance(array, np.ndarray)})
        for array in (*self.facts, *self.orders):
            memo[id(array)] = array.copy()
        vars(engine).update(deepcopy({**self.__getstate__(), "ledger": ledger}, memo))
        return engine

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        known, ledger = len(self.ledger.jobs), self.ledger
        self.case = self.case._replace(delays=scenario.delays)
        self.ledger = ledger._replace(
            jobs=np.concatenate([ledger.jobs, job_rows(scenario, known)]),
            announced=np.concatenate([ledger.announced, scenario.announced_work[known:]]),
            work=np.concatenate([ledger.work, scenario.true_work[known:]]),
            data=with_jobs(ledger.data, len(scenario.jobs)),
        )
        if len(scenario.jobs) > len(self.facts.left):
            # doubled, so that growth costs O(1) for each job
            self._make_room_for_orders(2 * len(scenario.jobs))
        self._refresh()

    # -- calls of compiled functions -----------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a function of :mod:`.handle` with the handle; arrays grow if it answers with minus the room it needs.

        Raises
        ------
        StateError
            If there still is too little, which is an error of this package.
        """
        answer = int(self._call_form(name, *arguments) or 0)
        if answer < 0:
            self._grow(-answer)
            answer = int(self._call_form(name, *arguments))
        if answer < 0:
            raise StateError(f"{name}: the arrays of the engine have no room for {-answer} rows")
        return answer

    def _call_form(self, function: str | Callable[..., Any], *arguments: Any) -> Any:
        """Call `function`, or that of :mod:`.handle` of this name, with the handle; arguments keep their types."""
        form = self._forms.get(function)
        if form is None:
            if self._handle is None:
                self._make_handle()
            compiled: Any = getattr(self._calls, function) if isinstance(function, str) else function
            form = self._forms[function] = compiled.form(self._handle, *arguments)
        with uninterruptible:
            return form(self._handle, *arguments)

    def _make_handle(self) -> None:
        from . import handle as calls  # noqa: PLC0415 - it imports numba

        # arrays may have other types from now on: changes of service are None until the first are known
        self._calls, self._forms = calls, {}
        if is_interpreted():
            self._handle = SimpleNamespace(**dict(zip(calls.FIELDS, self._arrays(), strict=True)))
        else:
            self._handle = calls.make_handle(*self._arrays())

    def _arrays(self) -> tuple[Any, ...]:
        return self.case, self.ledger, self._placement, self.facts, self.orders

    def _refresh(self) -> None:
        """Have the handle know arrays that have been replaced or have moved."""
        if self._handle is not None:
            self._make_handle()

    def _grow(self, room: int) -> None:
        """Make room for this number of rows in every array, and for others after them."""
        self.ledger = with_room(self.ledger, room + 256)
        self._refresh()

    def _set_placement(self, placement: Placement) -> int:
        """Write a placement, by server, where compiled functions read it; returns its number of servers."""
        n, rows = len(placement), self._placement
        if n == 1:
            rows[0, 0], rows[0, 1] = placement[0]
        elif n > 1:
            rows[:n] = sorted(placement)
        rows[n:, 1] = 0
        return n

    # -- decisions that are compiled -----------------------------------------------------------------------------

    def decided(self, decide: Callable[..., object], state: tuple[Any, ...], event: Event) -> Ints:
        """The orders of a compiled decision on `event`, as rows of :mod:`.orders`.

        Parameters
        ----------
        decide
            Takes the handle and the state of the policy.
        state
            The state of the policy: a named tuple of arrays, of the same types in the whole run.
        event
            What has happened.
        """
        self._set_facts(event)
        return self.ordered(decide, state)

    def ordered(self, decide: Callable[..., object], *arguments: Any) -> Ints:
        """The rows that a compiled function writes, given the handle and these arguments, of the same types always.

        They stay until the next decision.
        """
        orders = self.orders
        orders.counters.fill(0)
        self._call_form(decide, *arguments)
        return orders.rows[: orders.counters[N_ORDERS]]

    def _set_facts(self, event: Event) -> None:
        facts, left = self.facts, event.left
        lost = [server for server, reason in event.servers if reason] if event.servers else []
        for array, values in ((facts.left, left), (facts.interrupted, event.interrupted), (facts.lost, lost)):
            if values:
                array[: len(values)] = values
        first_arrived = int(self.ledger.counters[ARRIVED]) - len(event.arrived)
        counters = facts.counters
        counters[N_FINISHED], counters[N_LEFT] = len(event.finished), len(left)
        counters[N_INTERRUPTED], counters[N_LOST] = len(event.interrupted), len(lost)
        counters[FIRST_ARRIVED], counters[MEASURED] = first_arrived, len(event.measured) > 0

    def advance(self, loop: Callable[..., int], state: tuple[Any, ...], events: int, until: int) -> int:
        """Run events of a compiled loop.

        Parameters
        ----------
        loop
            Takes the handle, the state of the policy, and a number of events.
        state
            The state of the policy: a named tuple of arrays, of the same types in the whole run.
        events
            Most events, at least 1.
        until
            When the loop stops, as something happens then that is not the engine's [µs].

        Returns
        -------
        OVER, OUTSIDE, BROKEN or PAUSED (:mod:`.step`).
        """
        self.facts.counters[UNTIL] = until
        self.orders.counters[:] = 0
        while (outcome := int(self._call_form(loop, state, events))) == FULL:
            # rows of what arrives are counted for all jobs: they may arrive together
            self.ledger = with_room(self.ledger, room_for_event(self.case, self.ledger, len(self.ledger.jobs)))
            self._refresh()
        return outcome

    @property
    def now(self) -> int:
        """The present [µs]."""
        return int(self.ledger.counters[NOW])

    def set_now(self, time: int) -> None:
        """The present is `time` [µs]."""
        self.ledger.counters[NOW] = time

    @property
    def trainings(self) -> int:
        """Number of allocations that have trained something and were stopped."""
        return int(self.ledger.counters[TRAININGS])

    @property
    def n_in_system(self) -> int:
        """Number of jobs that have arrived and not left."""
        return int(self.ledger.counters[ARRIVED] - self.ledger.counters[DEPARTED])

    @property
    def all_left(self) -> bool:
        """Whether all jobs have left, those to come included."""
        return bool(self.ledger.counters[DEPARTED] == len(self.ledger.jobs))

    def in_system(self) -> Ints:
        """Jobs that have arrived and not left, ascending."""
        status = self.ledger.jobs[: self.ledger.counters[ARRIVED], STATUS]
        return np.flatnonzero((status == WAITING) | (status == DISPATCHED))

    # -- the rows of the record ----------------------------------------------------------------------------------

    def add_decision(self, job: int, verb: int, server: int, workers: int, reason: int, value: float | None) -> None:
        """Add a decision, at the present; -1 for no server and no workers.

        Parameters
        ----------
        job
            The job decided on.
        verb
            Its number in ``events.VERBS``.
        server, workers
            Where, and how many; -1 for none.
        reason, value
            Number of the reason, and the value; None for none.
        """
        if self.ledger.counters[DECISIONS] == len(self.ledger.rows.decisions):
            self._grow(1)
        _note_decision(self.ledger, job, verb, server, workers, reason, NO_VALUE if value is None else value)

    def add_ps(self, *row: int) -> None:
        """Add a row (job, slot, PSs, start, end)."""
        n = self.ledger.counters[PS_ROWS]
        if n == len(self.ledger.rows.ps):
            self._grow(1)
        self.ledger.rows.ps[n] = row
        self.ledger.counters[PS_ROWS] += 1

    def rows(self) -> RecordRows:
        """The rows so far."""
        return trimmed(self.ledger)

    def admit(self, job: int) -> None:
        """Note the present as the first time that `job` is given something, unless there was an earlier one."""
        if self.ledger.jobs[job, ADMITTED] < 0:
            self.ledger.jobs[job, ADMITTED] = self.ledger.counters[NOW]

    @property
    def admitted(self) -> Ints:
        """First allocation or dispatch of each job [µs], -1 if there was none."""
        return self.ledger.jobs[:, ADMITTED]

    # -- changes of service that are known ------------------------------------------------------------------------

    @property
    def changes_left(self) -> int:
        """Number of known changes of service to come."""
        changes = self.ledger.changes
        return 0 if changes is None else len(changes) - int(self.ledger.counters[CHANGES])

    def set_changes(self, changes: Ints | None) -> None:
        """Servers leave and return as in these rows of ``ledger.changes`` next, after those that have happened."""
        self.ledger = self.ledger._replace(changes=changes)
        self.ledger.counters[CHANGES] = 0
        self._refresh()
