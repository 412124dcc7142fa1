"""Rules on the service discipline of lanes: M4, M21, M22, and M11 on lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Array, Columns, failure_times, next_outage
from skedge.analysis.row_groups import in_groups, read_only
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER

from .chunks import Chunks
from .lag import Lags
from .lane_service import LaneQueue, LaneRuns, LaneService, lane_service
from .rules import WORK_TOLERANCE, Findings

Mask = NDArray[np.bool_]
JobValues = tuple[Ints, Ints, Ints]


class LaneRows(NamedTuple):
    """The dispatched chunks and their runs, as the rules on lanes take them.

    Attributes
    ----------
    c
        The tables; of dispatches and runs of chunks it has at least those that concern the lanes.
    lanes
        First lane that is checked, and the one after the last.
    arrival, last_end, leave_time
        By dispatch row: arrival at the server [µs]; end of the last run of its chunk, and when the chunk is finished or
        gone [µs], NEVER if there is none.
    first, takes_part
        By dispatch row: first dispatch row of its chunk; False for a second dispatch that violates M6, which the rules
        on lanes omit.
    run_dispatch, chunk_row
        By chunk run: the dispatch row that it belongs to, and the first dispatch row of its chunk; -1 for none.
    has_strays
        Whether a chunk runs, or is dispatched again, on another lane than that of its dispatch (M6).
    stored_values
        :attr:`job_values` where `c` has no jobs.
    """

    c: Columns
    lanes: tuple[int, int]
    arrival: Ints
    last_end: Ints
    leave_time: Ints
    first: Array
    takes_part: Mask
    run_dispatch: Array
    chunk_row: Array
    has_strays: bool
    stored_values: JobValues | None = None

    @property
    def job_values(self) -> JobValues:
        """Of the job of each dispatch row: p at zeta = 0 [µs], D_j, and arrival [µs]."""
        if self.stored_values is not None:
            return self.stored_values
        job, scenario = self.c.dispatches["job"], self.c.scenario
        return scenario.chunk_time[job, 0], scenario.jobs.chunks[job], scenario.jobs.arrival[job]


def lane_rows(k: Chunks) -> LaneRows:
    """All lanes."""
    chunk_end, first = k.last_end[k.dispatch_chunk], k.dispatch_row[k.dispatch_chunk]
    last_end = np.where(chunk_end >= 0, chunk_end, NEVER)
    takes_part, leave_time = k.is_redispatch | k.is_first, last_end
    job, failed = k.c.dispatches["job"], failure_times(k.c)
    if k.is_redispatch.any() or (failed < NEVER).any():
        # when the chunk of each dispatch row leaves untrained, as its server or its job fails
        least = (1 - WORK_TOLERANCE) * k.c.scenario.jobs.minibatches[job]
        untrained = (failed[job] < NEVER) & (k.work[k.dispatch_chunk] < least)
        lost = next_outage(k.c, k.c.dispatches["server"], k.c.dispatches["time"])
        leaves = np.minimum(np.where(untrained, np.minimum(failed[job], lost), NEVER), k.left_at)
        takes_part &= leaves > k.arrival  # nor does a chunk that has left its server before its data were there
        leave_time = np.minimum(np.where(untrained, NEVER, last_end), leaves)
    # without re-dispatches a run's dispatch is the first one of its chunk, and the array is shared
    chunk_row = k.dispatch_row[k.run_chunk] if len(k.moved_chunks) else k.run_dispatch
    sent_to, lane = k.c.dispatches["lane"], k.c.chunks["lane"]
    strays = len(sent_to) > 0 and bool(
        ((k.run_dispatch >= 0) & (sent_to[k.run_dispatch] != lane)).any() or (sent_to[first] != sent_to).any()
    )
    lanes = (0, k.c.scenario.cluster.lanes)
    return LaneRows(k.c, lanes, k.arrival, last_end, leave_time, first, takes_part, k.run_dispatch, chunk_row, strays)


def select_rows(k: LaneRows, rows: Ints, runs: Ints) -> LaneRows:
    """These dispatch rows and chunk runs, in this order; they are numbered anew, -1 for others."""
    place = np.full(len(k.c.dispatches) + 1, -1, np.int32)  # the last one stands for none
    place[rows] = np.arange(len(rows), dtype=np.int32)
    c = replace(k.c, dispatches=k.c.dispatches.take(rows), chunks=k.c.chunks.take(runs))
    arrival, last_end, leave_time, takes_part = (
        read_only(column.take(rows)) for column in (k.arrival, k.last_end, k.leave_time, k.takes_part)
    )
    first, row = read_only(place[k.first.take(rows)]), read_only(place[k.run_dispatch.take(runs)])
    column = row if k.chunk_row is k.run_dispatch else read_only(place[k.chunk_row.take(runs)])
    stored = None
    if k.stored_values is not None:
        duration, chunks, release = (values.take(rows) for values in k.stored_values)
        stored = duration, chunks, release
    return LaneRows(c, k.lanes, arrival, last_end, leave_time, first, takes_part, row, column, k.has_strays, stored)


class SortedLaneRows(NamedTuple):
    """The dispatched chunks and their runs by lane.

    Attributes
    ----------
    k
        Those on its lanes come first: by lane, and there dispatches by decision and runs by start.
    number
        Number of each dispatch row in the order in which they were made.
    first_dispatch, first_run
        First dispatch row and first chunk run of each lane, shape ``(lanes + 1,)``.
    """

    k: LaneRows
    number: Ints
    first_dispatch: Ints
    first_run: Ints


def sort_by_lane(
    k: LaneRows, lanes: tuple[int, int] | None = None, subset: tuple[Ints, Ints] | None = None
) -> SortedLaneRows:
    """The rows by lane: all of `k`, or `subset` dispatch rows and chunk runs, those that concern a range of `lanes`."""
    d, t = k.c.dispatches, k.c.chunks
    lanes = lanes or k.lanes
    rows, first_dispatch = _sort_by_lane(lanes, d["lane"], d["time"], None if subset is None else subset[0])
    runs, first_run = _sort_by_lane(lanes, t["lane"], t["start"], None if subset is None else subset[1])
    return SortedLaneRows(select_rows(k, rows, runs)._replace(lanes=lanes), rows, first_dispatch, first_run)


def _sort_by_lane(lanes: tuple[int, int], lane: Array, time: Ints, subset: Ints | None) -> tuple[Ints, Ints]:
    """All rows, or `subset`, by lane and time, those elsewhere last; and the first one of each lane."""
    first, end = lanes
    if subset is not None:
        lane, time = lane.take(subset), time.take(subset)
    in_range = (lane >= first) & (lane < end)
    rows, starts = in_groups(np.where(in_range, lane - np.int32(first), np.int32(end - first)), time, end - first + 1)
    return rows if subset is None else subset.take(rows), starts[:-1]


def _displacements(
    k: LaneRows, findings: Findings, slack: int, rows: Ints, runs: LaneRuns, served: LaneService
) -> None:
    """M11: where a chunk is preempted, one of better rank takes the lane, unless the server or the job is lost then.

    `rows` are the rows of the runs.
    """
    t, delays = k.c.chunks, k.c.late
    preempted_rows = np.flatnonzero(t["preempted"].take(rows) & (served.gap > slack))
    # live, the better chunk may have arrived later than announced
    if delays.any():
        after = t["job"][rows[np.minimum(preempted_rows + 1, len(rows) - 1)]]
        preempted_rows = preempted_rows[served.gap[preempted_rows] > slack + delays[after]]
    run, end = rows[preempted_rows], runs.end[preempted_rows]
    lost = next_outage(k.c, t["server"][run], t["start"][run]) <= end + slack
    lost |= failure_times(k.c)[t["job"][run]] <= end + slack
    template = "is preempted on lane {}, but no chunk of better rank starts there then"
    findings.add_rows("M11", ~lost, t["job"][run], end, lambda i: template.format(t["lane"][run[i]]))


class _Queue(NamedTuple):
    """The chunks that wait for lanes: one for each interval in which a dispatched chunk may run there.

    Attributes
    ----------
    chunks
        When they may run, and in which order. Their group is those of a job dispatched together, which take turns.
    row
        Dispatch row of each.
    entry_of_run
        The entry of each chunk run, -1 for none.
    """

    chunks: LaneQueue
    row: Ints
    entry_of_run: Ints


def _queue(b: SortedLaneRows, lags: Lags | None, slack: int) -> _Queue:
    k, d = b.k, b.k.c.dispatches
    rows = np.flatnonzero(k.takes_part & (d["lane"] >= 0))  # those elsewhere, too: their chunks may run here (M6)
    place = np.full(len(d) + 1, -1, np.int64)  # the last one stands for none
    place[rows] = np.arange(len(rows))
    sent_at, arrival, leave_time, rank = (
        values.take(rows) for values in (d["time"], k.arrival, k.leave_time, d["rank"])
    )
    group = b.number.take(rows)
    if lags is not None and lags.takes_turns.any():
        values = np.stack([d[name].take(rows) for name in ("lane", "job", "time")])
        starts_group = np.append(
            True, ~(lags.takes_turns[values[1, 1:]] & (values[:, 1:] == values[:, :-1]).all(axis=0))
        )[: len(rows)]
        group = group[starts_group][np.cumsum(starts_group) - 1]
    chunks = LaneQueue(np.searchsorted(rows, b.first_dispatch), sent_at, arrival, leave_time, rank, group)
    q = _Queue(chunks, rows, place[k.run_dispatch])
    return q if lags is None or not lags.holds else _split_by_lag(k, lags, slack, q)


def _split_by_lag(k: LaneRows, lags: Lags, slack: int, q: _Queue) -> _Queue:
    """The queue with an entry for each interval in which a chunk is not too far ahead."""
    d, chunks = k.c.dispatches, q.chunks
    chunk_numbers = k.c.first_chunk[d["job"][q.row]] + d["chunk"][q.row]
    parts = [
        lags.service_windows(*args)
        for args in zip(chunk_numbers.tolist(), chunks.arrival.tolist(), chunks.leave_time.tolist(), strict=True)
    ]
    counts = np.array([len(part) for part in parts], np.int64)
    first, times = np.cumsum(counts) - counts, np.array([time for part in parts for time in part]).reshape(-1, 2)
    of_run = q.entry_of_run.copy()
    for i in np.flatnonzero(of_run >= 0):
        begins = [begin for begin, _ in parts[q.entry_of_run[i]]]
        part = np.searchsorted(begins, k.c.chunks["start"][i] + slack, side="right") - 1
        of_run[i] = first[q.entry_of_run[i]] + max(int(part), 0)
    # a chunk waits for its lane once for each interval in which it is not too far ahead
    spread = np.repeat(np.arange(len(counts)), counts)
    of_lane = np.append(first, len(spread))[chunks.first]
    sent_at, rank, group = chunks.sent_at[spread], chunks.rank[spread], chunks.group[spread]
    split_queue = LaneQueue(of_lane, sent_at, times[:, 0].copy(), times[:, 1].copy(), rank, group)
    return _Queue(split_queue, q.row[spread], of_run)


def check_lanes(b: SortedLaneRows, lags: Lags | None, findings: Findings, slack: int, *, preemptive: bool) -> None:
    """Check M4, M11, M21 and M22 by following each lane with the queue of its chunks.

    Parameters
    ----------
    b
        The dispatches and chunk runs by lane.
    lags
        None if no job bounds the lag of its chunks.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    preemptive
        Whether lanes preempt chunks.
    """
    c, d, t, row = b.k.c, b.k.c.dispatches, b.k.c.chunks, b.k.run_dispatch
    q = _queue(b, lags, slack)
    rows = np.flatnonzero(q.entry_of_run[: b.first_run[-1]] >= 0)
    runs = LaneRuns(
        np.searchsorted(rows, b.first_run), t["start"].take(rows), t["end"].take(rows), q.entry_of_run.take(rows)
    )
    served = lane_service(runs, q.chunks, preemptive=preemptive, slack=slack, room=findings.limit)
    _displacements(b.k, findings, slack, rows, runs, served)
    for time, run, _ in _with_row_numbers(served.overlaps, rows):
        findings.add("M4", int(t["job"][run]), int(time), f"lane {t['lane'][run]} runs two chunks at {time} µs")
    for time, run, better in _with_row_numbers(served.inversions, rows):
        waits, arrival = q.row[better], q.chunks.arrival[better]
        delay = c.late[d["job"][waits]]
        if delay > 0 and time <= arrival + slack + delay:
            continue  # live, the upload arrived later than announced
        text = (
            f"lane {t['lane'][run]} runs chunk {t['chunk'][run]} of rank {d['rank'][row[run]]} while chunk "
            f"{d['chunk'][waits]} of job {findings.ids[int(d['job'][waits])]!r}, rank {d['rank'][waits]}, waits"
        )
        findings.add("M21", int(t["job"][run]), int(time), text)
    for time, run, waits in _with_row_numbers(served.idle, rows):
        waiter = q.row[waits]
        if min(t["start"][run], q.chunks.leave_time[waits]) - time <= slack + c.late[d["job"][waiter]]:
            continue  # it did not wait to the end, or arrived later than announced
        text = (
            f"lane {t['lane'][run]} idles from {time} to {t['start'][run]} µs; chunk {d['chunk'][waiter]} waits for it"
        )
        findings.add("M22", int(d["job"][waiter]), int(time), text)


def _with_row_numbers(table: Ints, rows: Ints) -> Ints:
    """A table of :func:`.lane_service.lane_service` with the rows of its runs."""
    return np.column_stack([table[:, 0], rows[table[:, 1]], table[:, 2]])
