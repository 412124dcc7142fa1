"""Which runs take the compiled path, and the record made of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from skedge.core.engine.allocations import REJECT
from skedge.core.engine.ledger import (
    ADMITTED,
    DEMAND,
    DONE,
    NOW,
    TYPE,
    Case,
    RecordRows,
    make_case,
    make_ledger,
    trimmed,
    with_room,
)
from skedge.core.engine.step import FULL, OVER, room_for_event
from skedge.core.errors import SkedgeError
from skedge.core.events import Event
from skedge.core.kernel.plans import Plans
from skedge.core.model.cluster import Ints
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows
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
from .loop import advance
from .rows import set_reasons
from .state import ACTIVE, COMPLETED, DRF, FIFO, PREEMPTIVE, SRTF, TIRESIAS, PolicyState, make_choice
from .taking import make_taking

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
    case, ledger = make_case(scenario), make_ledger(scenario)
    choice = make_taking(scenario, which) if which in _EACH else _choice(scenario, policy)
    advance_run = kernel_of(policy)
    while (why := advance_run(case, ledger, choice, EVENTS)) != OVER:
        if why == FULL:
            # rows of what arrives are counted for all jobs: they may arrive together
            ledger = with_room(ledger, room_for_event(case, ledger, len(ledger.jobs)))
        elif progress is not None:
            finished = choice.lists[COMPLETED, reported : ledger.counters[DONE]].tolist()
            reported += len(finished)
            progress(Event(int(ledger.counters[NOW]), finished=tuple(finished)))
    if choice.counters[ACTIVE] > 0:
        raise SkedgeError(f"policy {policy.name!r} left {choice.counters[ACTIVE]} jobs unanswered in the compiled loop")
    rows, jobs = trimmed(ledger), ledger.jobs
    del ledger, choice
    return _record(scenario, case, rows, jobs, which)


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


def _record(scenario: Scenario, case: Case, rows: RecordRows, jobs: Ints, policy: int) -> Schedule:
    """The tables, made of the rows as :class:`~skedge.core.record.record.Record` and the world's log make them."""
    source = CollectedRows(jobs[:, ADMITTED].copy(), rows)
    record = Record(scenario, Plans(), source)
    runs = RunLog(scenario, source).table()
    _set_reasons(case, rows.decisions, jobs, policy, record)
    return record.schedule(runs)


def _set_reasons(case: Case, rows: Ints, jobs: Ints, policy: int, record: Record) -> None:
    """Give the decisions the record's numbers of reasons; each rejection has its own."""
    fixed = {RANK: _RANKS[policy], PREEMPTED: "preempted", MOVED: "moved", NEVER_FITS_EDGE: "never_fits_edge"}

    def text(key: int, row: list[int]) -> str:
        if key < len(fixed):
            return fixed[key]
        job = row[1]
        record.rejected[job] = _why(case, jobs[job], row[-1])
        return record.rejected[job]

    own = np.where(rows[:, 2] == REJECT, len(fixed) + rows[:, 1], rows[:, 5])
    set_reasons(rows, own, record.decisions.reasons, text)


def _why(case: Case, row: Ints, reason: int) -> str:
    """The reason of a rejection of the job with this row."""
    if reason == NO_PS_THERE:
        return NO_PS_ON_EDGE
    return too_few(int(row[DEMAND]), int(case.slots[row[TYPE]]) if row[TYPE] >= 0 else 0)
