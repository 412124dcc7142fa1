"""Rules M2, M11, M14 and M18 on decisions: recorded orders and what was done agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import (
    AllocationRows,
    Columns,
    Table,
    allocation_rows,
    among,
    failure_times,
    gang_intervals,
    gang_rows,
    once,
    ps_rows,
)
from skedge.analysis.row_groups import in_groups, in_order, plain
from skedge.core.events import VERBS
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .matching import Events, events, nearest
from .rules import Findings

_PLACES = ("dispatch", "redispatch", "allocate", "allocate_each")

ALLOCATE, ALLOCATE_ELASTIC, SUSPEND, UPLOAD, ASSIGN_PS = (
    VERBS.index(verb) for verb in ("allocate", "allocate_each", "suspend", "upload", "assign_ps")
)
_ON_WORKERS = (ALLOCATE, ALLOCATE_ELASTIC, SUSPEND)
_ON_PS = (ASSIGN_PS, SUSPEND)


class GangOrders(NamedTuple):
    """Decisions on gangs, their data and their PSs: one row per server, by job and then in the order made.

    Attributes
    ----------
    job, time, verb, server, n
        As in the table of decisions: the verb by its number, `n` workers or PSs.
    order
        Number of the order that the row belongs to; an order lists its servers in ascending order, each once, which
        shows where the next order begins.
    """

    job: Ints
    time: Ints
    verb: Ints
    server: Ints
    n: Ints
    order: Ints

    def select(self, chosen: Bools) -> GangOrders:
        """Some of the rows."""
        rows = np.flatnonzero(chosen)
        return self if len(rows) == len(chosen) else self.take(rows)

    def take(self, rows: Ints) -> GangOrders:
        """The rows with these numbers."""
        return GangOrders(*(column.take(rows) for column in self))

    def with_verbs(self, *verbs: int) -> GangOrders:
        """The rows with these verbs."""
        chosen = np.zeros(len(VERBS), bool)
        chosen[list(verbs)] = True
        return self.select(chosen[self.verb])

    def leads(self) -> GangOrders:
        """The first row of each order."""
        return self.select(np.diff(self.order, prepend=-1) > 0)


class AllocationStarts(NamedTuple):
    """Workers or PSs that a job holds on a server from a time on; `places` is the number of its servers then."""

    begin: Events
    n: Ints
    places: Ints


@once
def gang_order_rows(c: Columns) -> GangOrders:
    """The decisions on gangs, their data and their PSs."""
    d = c.decisions
    concerned = d.has("verb", "allocate", "allocate_each", "suspend", "upload", "assign_ps")
    # the order made is the order of the rows, also where their times do not ascend
    rows, _ = in_groups(np.where(concerned, d["job"], np.int32(-1)), np.arange(len(d)), len(c.scenario.jobs))
    job, time, verb, server, n = (
        plain(d[name][rows], np.int64) for name in ("job", "time", "verb", "server", "workers")
    )
    continues = (job[1:] == job[:-1]) & (time[1:] == time[:-1]) & (verb[1:] == verb[:-1]) & (server[1:] > server[:-1])
    order = np.append(0, np.cumsum(~continues))[: len(rows)]
    return GangOrders(job, time, verb, server, n, order)


def check_orders(c: Columns, findings: Findings, slack: int) -> None:
    """M2: a job is admitted by its first order, and orders on gangs match the starts and ends of their runs."""
    _admissions(c, findings)
    orders, intervals = gang_order_rows(c), gang_intervals(c)
    if not (len(c.gangs) or len(orders.job)):
        return
    on_workers = orders.with_verbs(*_ON_WORKERS)
    _allocations(findings, slack, on_workers, worker_holdings(c), "workers")
    _repetitions(findings, orders)
    first_rows = on_workers.leads()
    _early_ends(c, findings, slack, intervals, first_rows)
    _suspensions(findings, slack, intervals, first_rows)
    _ps_spans(c, findings, slack, intervals)
    _postponements(c, findings, slack)


def check_ps_orders(c: Columns, findings: Findings, slack: int) -> None:
    """M2: PSs on servers with resources are held from an order that allocates them to an order that releases them."""
    orders = gang_order_rows(c)
    if len(c.gangs) or len(orders.job):
        held = _holdings(c.ps, allocation_rows(c.ps, len(c.scenario.jobs)), "count")
        _allocations(findings, slack, orders.with_verbs(*_ON_PS), held, "PSs")


def check_order(t: Table, findings: Findings) -> None:
    """M2: the decisions `t` are in time order."""
    # equal times are in order: several decisions may be made at an instant
    out_of_order = np.concatenate([[False], t["time"][1:] < t["time"][:-1]]) if len(t["time"]) else np.zeros(0, bool)
    findings.add_rows(
        "M2", out_of_order, t["job"], t["time"], "decided at {} µs, but listed after a later decision", t["time"]
    )


def _admissions(c: Columns, findings: Findings) -> None:
    """M2: a job is admitted when it is first dispatched or allocated."""
    d, t = c.decisions, c.jobs
    rows = np.flatnonzero(d.has("verb", *_PLACES))
    first = np.full(len(c.scenario.jobs), NEVER, np.int64)
    np.minimum.at(first, d["job"][rows], d["time"][rows])
    expected = np.where(first == NEVER, -1, first)[t["job"]]
    # -1 on both sides: never admitted, and right so
    template = "is admitted at {} µs; its first dispatch or allocation is at {} µs (-1: none)"
    findings.add_rows("M2", t["admitted"] != expected, t["job"], t["arrival"], template, t["admitted"], expected)


@once
def worker_holdings(c: Columns) -> AllocationStarts:
    """The workers of gangs and elastic allocations."""
    return _holdings(c.gangs, gang_rows(c), "workers")


def _holdings(t: Table, a: AllocationRows, count: str) -> AllocationStarts:
    """What is held on each server of each allocation; `count` is the column of how much."""
    n = t[count][a.rows].astype(np.int64)
    n = np.add.reduceat(n, a.first_on_server) if len(n) else n
    allocation = np.searchsorted(a.first, a.first_on_server, side="right") - 1
    begin = events(*(t[name][a.rows[a.first_on_server]] for name in ("job", "start", "server")))
    return AllocationStarts(begin, n, np.bincount(allocation)[allocation])


def _final_orders(orders: GangOrders) -> GangOrders:
    """The rows of the last order on each job at each instant, if it allocates; they are by job and time."""
    job, time = orders.job, orders.time
    if ((job[1:] == job[:-1]) & (time[1:] < time[:-1])).any():
        orders = orders.take(np.lexsort((time, job)))
        job, time = orders.job, orders.time
    ends = np.flatnonzero(np.append((job[1:] != job[:-1]) | (time[1:] != time[:-1]), True)[: len(job)])
    last = np.repeat(orders.order[ends], np.diff(ends, prepend=-1))
    return orders.select((orders.order == last) & (orders.verb != SUSPEND))


def _allocations(findings: Findings, slack: int, orders: GangOrders, holdings: AllocationStarts, noun: str) -> None:
    """M2: exactly what an order allocates is held, unless another order of the same instant replaces it.

    `orders` allocate workers or PSs, or suspend; `holdings` are the holdings of these.
    """
    final = _final_orders(orders)
    parts = np.bincount(final.order)[final.order]
    ordered = events(final.job, final.time, final.server)
    match, order = nearest(ordered, holdings.begin, slack), nearest(holdings.begin, ordered, slack)
    n, places = (np.append(column, 0)[match] for column in (holdings.n, holdings.places))  # 0 where nothing is held
    say_other = "is given {} {} on server {}; it then holds {} there"
    findings.add_rows(
        "M2", n != final.n, final.job, final.time,
        lambda i: say_other.format(final.n[i], noun, final.server[i], n[i]), order=final.order,
    )  # fmt: skip
    say_places = "is given {1} on {0} servers; it then holds {1} on {2}"
    findings.add_rows(
        "M2", (match >= 0) & (places != parts), final.job, final.time,
        lambda i: say_places.format(parts[i], noun, places[i]), order=final.time,
    )  # fmt: skip
    say_none = "holds {} {} on server {}; no order allocates them"
    begin = holdings.begin
    findings.add_rows(
        "M2", order < 0, begin.job, begin.time,
        lambda i: say_none.format(holdings.n[i], noun, begin.server[i]), order=begin.time,
    )  # fmt: skip


def _repetitions(findings: Findings, orders: GangOrders) -> None:
    """M2: no two consecutive orders of one instant are the same."""
    for verbs in (_ON_WORKERS, _ON_PS, (UPLOAD,)):
        if not any((orders.verb == verb).any() for verb in verbs if verb != SUSPEND):
            continue
        of_kind = orders.with_verbs(*verbs)
        first = np.flatnonzero(np.diff(of_kind.order, prepend=-1))
        job, time, verb = (column[first] for column in (of_kind.job, of_kind.time, of_kind.verb))
        alike = (job[1:] == job[:-1]) & (time[1:] == time[:-1]) & (verb[1:] == verb[:-1]) & (verb[1:] != SUSPEND)
        if not alike.any():
            continue
        size = np.diff(first, append=len(of_kind.order))
        partner = np.arange(len(of_kind.order)) - np.repeat(size, size)  # if the order before has as many rows
        equal = (of_kind.server == of_kind.server[partner]) & (of_kind.n == of_kind.n[partner])
        alike &= (size[1:] == size[:-1]) & np.logical_and.reduceat(equal, first)[1:]
        findings.add_rows(
            "M2", alike, job[1:], time[1:],
            lambda i, verb=verb: f"the same order, {VERBS[verb[i + 1]]}, is given twice at the same time",  # type: ignore[misc]
        )  # fmt: skip


def _ps_spans(c: Columns, findings: Findings, slack: int, intervals: pl.DataFrame) -> None:
    """M14: the PSs of a gang are held exactly as long as the allocation that they serve."""
    t, (rows, _) = c.ps, ps_rows(c)
    job, start, end = (t[name][rows] for name in ("job", "start", "end"))
    allocation = nearest(events(job, start), events(*(intervals[name].to_numpy() for name in ("job", "start"))), slack)
    until = np.append(intervals["end"].to_numpy(), -1)[allocation]
    wrong = among(c, c.gangs["job"])[job] & ((allocation < 0) | (np.abs(until - end) > slack))
    say = "holds a PS until {} µs, and the workers that began with it until {} µs"
    findings.add_rows(
        "M14", wrong, job, start, lambda i: say.format(end[i], until[i] if allocation[i] >= 0 else None), order=start
    )


def _postponements(c: Columns, findings: Findings, slack: int) -> None:
    """M2: a job that is postponed holds no workers at that time."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "postpone"))
    if not len(rows):
        return
    job, time = d["job"][rows], d["time"][rows]
    holds = holds_workers(c, job, time, slack)
    findings.add_rows("M2", holds, job, time, "is postponed while it holds workers", order=time)


def holds_workers(c: Columns, job: Ints, time: Ints, slack: int) -> Bools:
    """Whether each job holds workers at each time, both before and after it.

    Parameters
    ----------
    c
        Columns of the record.
    job, time
        Jobs and times [µs], shape ``(rows,)``.
    slack
        Tolerance [µs], >= 0.
    """
    begun = gang_intervals(c).select(pl.col("job").cast(pl.Int64), "end", since=pl.col("start") + slack + 1)
    queries = pl.DataFrame({"job": job, "time": time}).cast(pl.Int64).with_row_index("row").sort("time")
    matched = queries.join_asof(begun.sort("since"), left_on="time", right_on="since", by="job", check_sortedness=False)
    return (matched.sort("row")["end"].fill_null(-1) - slack).to_numpy() > time


def _early_ends(
    c: Columns, findings: Findings, slack: int, intervals: pl.DataFrame, first_rows: GangOrders
) -> None:  # fmt: skip
    """M11: an allocation that ends before its job is ended by an order: the job is suspended or allocated again."""
    preempted = np.flatnonzero(intervals["preempted"].to_numpy())
    job, end = (intervals[name].to_numpy()[preempted] for name in ("job", "end"))
    unordered = nearest(events(job, end), events(first_rows.job, first_rows.time), slack) < 0
    wrong = unordered & (np.abs(failure_times(c)[job] - end) > slack)
    text = "loses its workers; no decision at that time takes them"
    findings.add_rows("M11", wrong, job, end, text, order=end)


def _suspensions(findings: Findings, slack: int, intervals: pl.DataFrame, first_rows: GangOrders) -> None:
    """M2: a suspended job held workers until then, by a run or by an order of the same instant."""
    job, time, suspends = first_rows.job, first_rows.time, first_rows.verb == SUSPEND
    rows, allocations = np.flatnonzero(suspends), np.flatnonzero(~suspends)
    # live, a job suspended in its last mini-batch is complete nevertheless
    end_rows = np.flatnonzero(intervals["preempted"].to_numpy() | (slack > 0))
    suspensions, ends = events(job[rows], time[rows]), (intervals[name].to_numpy()[end_rows] for name in ("job", "end"))
    wrong = nearest(suspensions, events(*ends), slack) < 0
    wrong &= nearest(suspensions, events(job[allocations], time[allocations]), slack) < 0
    text = "is suspended, but held no workers until then"
    findings.add_rows("M2", wrong, job[rows], time[rows], text, order=time[rows])
    repeated = np.zeros(len(job), bool)
    repeated[1:] = suspends[1:] & suspends[:-1] & (job[1:] == job[:-1])
    text_again = "is suspended twice without holding workers in between"
    findings.add_rows("M2", repeated, job, time, text_again)


def check_suspensions(c: Columns, findings: Findings, promised: str, *, slots: bool) -> None:
    """M11: in a simulation, a job is suspended only for another job (``for_others``), or never (``never``).

    For gangs on slots that do not continue at that instant: another job of their worker type or PS type then begins.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    promised
        The policy's promise ``preempts``: ``never`` or ``for_others``; any other is not checked.
    slots
        Whether the cluster has slots; ``for_others`` is checked only there.
    """
    if promised not in ("never", "for_others") or (promised == "for_others" and not slots):
        return
    d, t, jobs = c.decisions, c.gangs, c.scenario.jobs
    rows = np.flatnonzero(d.has("verb", "suspend") & (d["server"] < 0))
    has_successor = np.zeros(len(rows), bool)
    if promised == "for_others":
        rows, starts = rows[in_order(d["time"][rows])], in_order(t["start"])
        time, start = (plain(times, np.int64) for times in (d["time"][rows], t["start"][starts]))
        for kind in (jobs.worker_type, jobs.ps_type):  # the same job among them has its own types
            latest = np.full(int(kind.max(initial=0)) + 2, -1, np.int64)  # the last one is of jobs without a type
            kinds, start_kinds = (plain(kind[job], np.int64) for job in (d["job"][rows], t["job"][starts]))
            _begins_then(time, start, kinds, start_kinds, latest, has_successor)
    text = "is suspended, and no other job is given workers or a PS that it can have held"
    findings.add_rows("M11", ~has_successor, d["job"][rows], d["time"][rows], text, order=rows)


@lean
def _begins_then(time: Ints, start: Ints, kind: Ints, start_kind: Ints, latest: Ints, starts_then: Bools) -> None:
    """Mark each row of a `kind` at whose time one of that kind starts; both in order of time."""
    k = 0
    for i in range(len(time)):
        while k < len(start) and start[k] <= time[i]:
            latest[start_kind[k]] = start[k]
            k += 1
        starts_then[i] |= latest[kind[i]] == time[i]
