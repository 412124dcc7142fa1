"""Which runs take the compiled path, and the record made of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from skedge.core.errors import SkedgeError
from skedge.core.events import Event
from skedge.core.kernel.plans import Plans
from skedge.core.model.cluster import Ints
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.core.record.record import Record
from skedge.core.record.schedule import Schedule
from skedge.platform.jit import CompiledFunction
from skedge.policies.drf.policy import Drf
from skedge.policies.fifo.policy import Fifo
from skedge.policies.gangs.edge import NO_PS_ON_EDGE, too_few
from skedge.policies.gangs.placement import Rule
from skedge.policies.gangs.preemptive import Preemptive
from skedge.policies.gangs.srtf import Srtf
from skedge.policies.gangs.tiresias import Tiresias, attained
from skedge.sim.runs import RunLog

from .decide import MOVED, NEVER_FITS_EDGE, NO_PS_THERE, PREEMPTED, RANK
from .each_loop import advance_taking
from .gangs import REJECT
from .loop import FULL, OVER, advance
from .rows import buffer_of, set_reasons
from .state import (
    ACTIVE,
    ADMITTED,
    COMPLETED,
    DECISIONS,
    DONE,
    DRF,
    FIFO,
    KIND,
    NOW,
    PREEMPTIVE,
    PS_ROWS,
    RUNS,
    SRTF,
    TIRESIAS,
    UPLOADS,
    WORKERS,
    GangBooks,
    GangCase,
    PolicyState,
    choice_with_room,
    make_books,
    make_case,
    make_choice,
    room,
    width_of,
    with_room,
)
from .taking import ask_for_one, make_taking, taking_with_room

EVENTS = 20_000
"""Events between two reports of progress."""

_RANKS = (
    "first_in_first_out",
    "shortest_remaining_time",
    "least_attained_service",
    "shortest_completion",
    "fair_share",
)
_POLICIES: dict[type, int] = {Fifo: FIFO, Srtf: SRTF, Tiresias: TIRESIAS, Preemptive: PREEMPTIVE, Drf: DRF}
_EACH = (PREEMPTIVE, DRF)
"""Policies whose workers begin one by one."""


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy` on `scenario`."""
    which: int | None = _POLICIES.get(type(policy))
    if (
        which is None
        or "typed slots" not in kind_of(scenario.cluster).offers(scenario)
        or scenario.physics.data != "kept"
    ):
        return False
    params: Any = policy.params
    return which in _EACH or (not params.allow_cloud and (which != FIFO or params.rule == "strict"))


def kernel_of(policy: Policy) -> CompiledFunction:
    """The compiled loop that :func:`simulate` calls for `policy`."""
    return cast("CompiledFunction", advance_taking if _POLICIES[type(policy)] in _EACH else advance)


def simulate(scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None = None) -> Schedule:
    """The record of `policy` on `scenario`.

    Parameters
    ----------
    progress
        Called now and then with the present and the jobs that have completed since the last call.
    """
    reported, which = 0, _POLICIES[type(policy)]
    case, books, choice = _start(scenario, policy, which)
    go_on, with_space = kernel_of(policy), taking_with_room if which in _EACH else choice_with_room
    while (why := go_on(case, books, choice, EVENTS)) != OVER:
        if why == FULL:
            # rows of what arrives are counted for all jobs: they may arrive together
            more = room(case.slots, books.at, len(books.jobs))
            books, choice = with_room(books, more), with_space(choice, more)
        elif progress is not None:
            done = choice.lists[COMPLETED, reported : books.at[DONE]].tolist()
            reported += len(done)
            progress(Event(int(books.at[NOW]), finished=tuple(done)))
    if choice.at[ACTIVE] > 0:
        raise SkedgeError(f"policy {policy.name!r} left {choice.at[ACTIVE]} jobs unanswered in the compiled loop")
    arrays = books._asdict()
    del books, choice
    return _record(scenario, case, arrays, which)


def _start(scenario: Scenario, policy: Policy, which: int) -> tuple[GangCase, GangBooks, Any]:
    """The arrays before the first event."""
    case = make_case(scenario)
    if which in _EACH:
        books = make_books(scenario, 1)
        ask_for_one(case, books)
        return case, books, make_taking(scenario, which)
    return case, make_books(scenario, width_of(scenario)), _choice(scenario, policy)


def _choice(scenario: Scenario, policy: Policy) -> PolicyState:
    which, params = _POLICIES[type(policy)], cast("Any", policy.params)
    rule = Rule(
        stop_at_first=int(which == FIFO and not params.backfill),
        sticky=int(params.sticky),
        keep_running=int(params.placement == "keep_running"),
        kept=1,
    )
    limit_s, knob = (params.limit_s, params.knob) if which == TIRESIAS else (0.0, np.inf)
    return make_choice(scenario, which, rule, attained(limit_s), knob)


def _record(scenario: Scenario, case: GangCase, arrays: dict[str, Ints], policy: int) -> Schedule:
    """The tables, made of the rows as :class:`~skedge.core.record.record.Record` and the world's log make them.

    The largest of the `arrays` of the books goes as soon as its table is made, so that both are not there for long.
    """
    record, log, at, jobs = Record(scenario, Plans()), RunLog(scenario), arrays["at"], arrays["jobs"]
    log.gang_rows = buffer_of(arrays.pop("runs")[: at[RUNS]])
    runs = log.table()
    del log
    decisions = _with_reasons(case, arrays["decisions"][: at[DECISIONS]], jobs, policy, record)
    record.decisions.rows, record.decisions.values = buffer_of(decisions), buffer_of(np.full(len(decisions), np.nan))
    record.ps, record.gang_uploads = buffer_of(arrays["ps"][: at[PS_ROWS]]), buffer_of(arrays["uploads"][: at[UPLOADS]])
    started = np.flatnonzero(jobs[:, ADMITTED] >= 0)
    record.admitted = dict(zip(started.tolist(), jobs[started, ADMITTED].tolist(), strict=True))
    return record.schedule(runs)


def _with_reasons(case: GangCase, rows: Ints, jobs: Ints, policy: int, record: Record) -> Ints:
    """The decisions with the record's numbers of reasons; each rejection has its own."""
    fixed = {RANK: _RANKS[policy], PREEMPTED: "preempted", MOVED: "moved", NEVER_FITS_EDGE: "never_fits_edge"}

    def text(key: int, row: list[int]) -> str:
        if key < len(fixed):
            return fixed[key]
        job = row[1]
        record.rejected[job] = _why(case, jobs[job], row[-1])
        return record.rejected[job]

    own = np.where(rows[:, 2] == REJECT, len(fixed) + rows[:, 1], rows[:, 5])
    set_reasons(rows, own, record.decisions.reasons, text)
    return rows


def _why(case: GangCase, row: Ints, reason: int) -> str:
    """The reason of a rejection of the job with this row."""
    if reason == NO_PS_THERE:
        return NO_PS_ON_EDGE
    return too_few(int(row[WORKERS]), int(case.slots[row[KIND]]) if row[KIND] >= 0 else 0)
