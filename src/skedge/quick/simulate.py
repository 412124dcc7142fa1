"""Which runs take the compiled path, and the record made of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skedge.core.plans import Plans
from skedge.core.policy import Policy
from skedge.core.record import Record
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.core.time import SECOND
from skedge.policies.fifo.policy import Fifo
from skedge.policies.gangs.edge import NO_PS_ON_EDGE, too_few
from skedge.policies.gangs.placement import Rule
from skedge.policies.gangs.srtf import Srtf
from skedge.policies.gangs.tiresias import Tiresias
from skedge.sim.runs import RunLog

from .decide import MOVED, NEVER_FITS_EDGE, NO_PS_THERE, PREEMPTED, RANK
from .gangs import REJECT
from .loop import FULL, OVER, advance, room
from .state import DONE, FIFO, NOW, SRTF, TIRESIAS, Case, State, make_case, make_state, with_room

LEAST_JOBS = 5_000
"""Runs of fewer jobs take the other path: loading this loop costs more than it saves."""

_EVENTS = 20_000
"""Events between two reports of progress."""

_RANKS = ("first_in_first_out", "shortest_remaining_time", "least_attained_service")
_POLICIES: dict[type, int] = {Fifo: FIFO, Srtf: SRTF, Tiresias: TIRESIAS}


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy` on `scenario`."""
    which, params = _POLICIES.get(type(policy)), policy.params
    if which is None or scenario.cluster.kind != "slots" or scenario.physics.data != "kept" or params.allow_cloud:
        return False
    return which != FIFO or params.rule == "strict"


def simulate(scenario: Scenario, policy: Policy, progress: Callable[[int, int], None] | None = None) -> Schedule:
    """The record of `policy` on `scenario`.

    Parameters
    ----------
    progress
        Called now and then with the time [µs] and the number of completed jobs.
    """
    case = _case(scenario, policy)
    state = make_state(scenario)
    while (why := advance(case, state, _EVENTS)) != OVER:
        if why == FULL:
            state = with_room(state, room(case, state, int(state.at[NOW])))
        elif progress is not None:
            progress(int(state.at[NOW]), int(state.at[DONE]))
    return _record(scenario, case, state)


def _case(scenario: Scenario, policy: Policy) -> Case:
    which, params = _POLICIES[type(policy)], policy.params
    rule = Rule(
        stop_at_first=int(which == FIFO and not params.backfill),
        sticky=int(params.sticky),
        keep_running=int(params.placement == "keep_running"),
        kept=1,
    )
    limit, knob = (params.limit_s * SECOND, params.knob) if which == TIRESIAS else (0.0, np.inf)
    return make_case(scenario, which, rule, limit, knob)


def _record(scenario: Scenario, case: Case, state: State) -> Schedule:
    """The tables, made of the rows as :class:`~skedge.core.record.Record` and the world's log make them."""
    rows, (decisions, ps, uploads, runs) = state.rows, state.rows.count
    record, log = Record(scenario, Plans()), RunLog(scenario)
    record.decisions.frombytes(_with_reasons(scenario, case, rows.decisions[:decisions], record).tobytes())
    record.values.frombytes(np.full(decisions, np.nan).tobytes())
    record.ps.frombytes(rows.ps[:ps].tobytes())
    record.gang_uploads.frombytes(rows.uploads[:uploads].tobytes())
    admitted = state.jobs.admitted
    record.admitted = {int(job): int(admitted[job]) for job in np.flatnonzero(admitted >= 0)}
    log.gang_rows.frombytes(rows.runs[:runs].tobytes())
    return record.schedule(log.table())


def _with_reasons(scenario: Scenario, case: Case, rows: Any, record: Record) -> Any:
    """The decisions with the record's codes of reasons, in order of first use; rejections have reasons of their own."""
    texts: dict[int, str] = {
        RANK: _RANKS[case.policy], PREEMPTED: "preempted", MOVED: "moved", NEVER_FITS_EDGE: "never_fits_edge",
    }  # fmt: skip
    used, first, of = np.unique(np.where(rows[:, 2] == REJECT, -1 - rows[:, 1], rows[:, 5]), return_index=True, return_inverse=True)
    codes = np.empty(len(used), np.int64)
    for i in first.argsort().tolist():
        row = rows[first[i]]
        text = texts[int(row[5])] if row[2] != REJECT else _why(case, int(row[1]), int(row[5]))
        if row[2] == REJECT:
            record.rejected[int(row[1])] = text
        codes[i] = record.reasons.setdefault(text, len(record.reasons))
    rows[:, 5] = codes[of]
    return rows


def _why(case: Case, job: int, reason: int) -> str:
    """The reason of a rejection."""
    if reason == NO_PS_THERE:
        return NO_PS_ON_EDGE
    kind = int(case.kind[job])
    return too_few(int(case.workers[job]), int(case.slots[kind]) if kind >= 0 else 0)
