"""The arrays of a run, and the calls of compiled functions that take all of them by one handle."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from skedge.core.errors import StateError
from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.scenario import Scenario
from skedge.platform.jit import is_interpreted

from .ledger import (
    ADMITTED,
    DECISIONS,
    NO_VALUE,
    NOW,
    PS_ROWS,
    RUNS,
    UPLOADS,
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

_note_decision: Any = note_decision.py_func  # type: ignore[attr-defined]


class EngineArrays:
    """The arrays of one run, and the handle by which compiled functions get all of them at once.

    Attributes
    ----------
    case, ledger
        The arrays. Those by job are made anew when jobs are added; no other array that a caller may keep moves.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.case, self.ledger = make_case(scenario)._replace(simulated=0), make_ledger(scenario)
        self._placement = np.zeros((len(scenario.cluster.servers) + 1, 2), np.int64)
        self._due = np.zeros((64, 3), np.int64)
        self._handle: Any = None
        self._calls: Any = None

    def leave_slots(self) -> None:
        """Workers and PSs are no slots: who keeps the resources checks and counts them."""
        self.case = self.case._replace(on_slots=0)
        self._refresh()

    def __getstate__(self) -> dict[str, Any]:
        """Without the handle, which is made again when it is needed."""
        return {**vars(self), "_handle": None, "_calls": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with none of the record's rows, which grow without end: forecasts are made on copies."""
        engine = memo[id(self)] = type(self).__new__(type(self))
        counters = self.ledger.counters.copy()
        counters[[DECISIONS, PS_ROWS, UPLOADS, RUNS]] = 0
        ledger = self.ledger._replace(rows=no_rows(), counters=counters)
        # what never changes is shared; one memo, as kernel and books have arrays of the ledger, too
        memo.update({id(array): array for array in (*self.case, *self.case.delays) if isinstance(array, np.ndarray)})
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
        self._refresh()

    # -- calls of compiled functions -----------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a function of :mod:`.handle` with the handle; arrays grow if it needs room.

        Raises
        ------
        StateError
            If there still is too little, which is an error of this package.
        """
        if self._handle is None:
            self._make_handle()
        call = getattr(self._calls, name)
        answer = int(call(self._handle, *arguments) or 0)
        if answer < 0:
            self._grow(-answer)
            answer = int(call(self._handle, *arguments))
        if answer < 0:
            raise StateError(f"{name}: the arrays of the engine have no room for {-answer} rows")
        return answer

    def _make_handle(self) -> None:
        from . import handle as calls  # noqa: PLC0415 - it imports numba

        self._calls, arrays = calls, (self.case, self.ledger, self._placement)
        if is_interpreted():
            self._handle = SimpleNamespace(case=self.case, ledger=self.ledger, placement=self._placement)
        else:
            self._handle = calls.make_handle(*arrays)

    def _refresh(self) -> None:
        """Have the handle know arrays that have been replaced or have moved."""
        if self._handle is not None:
            self._calls.put_back(self._handle, self.case, self.ledger, self._placement)

    def _grow(self, room: int) -> None:
        """Make room for this number of rows in every array, and for others after them."""
        self.ledger = with_room(self.ledger, room + 256)
        self._refresh()

    def _set_placement(self, placement: Placement) -> int:
        """Write a placement, by server, where compiled functions read it; returns its number of servers."""
        n, rows = len(placement), self._placement
        if n == 1:
            rows[0, 0], rows[0, 1] = placement[0]
        else:
            rows[:n] = sorted(placement)
        rows[n:, 1] = 0
        return n

    @property
    def now(self) -> int:
        """The present [µs]."""
        return int(self.ledger.counters[NOW])

    def set_now(self, time: int) -> None:
        """The present is `time` [µs]."""
        self.ledger.counters[NOW] = time

    # -- the rows of the record ----------------------------------------------------------------------------------

    def add_decision(self, job: int, verb: int, server: int, workers: int, reason: int, value: float | None) -> None:
        """Add a decision, at the present; -1 for no server and no workers.

        Parameters
        ----------
        job
            The job decided on.
        verb
            Its number in ``schedule.VERBS``.
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
