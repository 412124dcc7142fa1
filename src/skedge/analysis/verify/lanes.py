"""Rules on the service discipline of lanes: M4, M21, M22, and M11 on lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Array, Columns, failure_times, next_outage
from skedge.analysis.sweeps import LaneQueue, LaneRuns, LaneService, in_groups, lane_service, read_only
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER

from .chunks import Chunks
from .lag import Lags
from .rules import MOST_WORK_ERROR, Findings

Mask = NDArray[np.bool_]
Announced = tuple[Ints, Ints, Ints]


class OnLanes(NamedTuple):
    """The dispatched chunks and their runs, as the rules on lanes take them.

    Attributes
    ----------
    c
        The tables; of dispatches and runs of chunks it has at least those that concern the lanes.
    lanes
        First lane that is checked, and the one after the last.
    ready, done, gone
        By dispatch row: arrival at the server [µs]; end of the last run of its chunk, and when the chunk is finished or
        gone [µs], NEVER if there is none.
    first, counts
        By dispatch row: first dispatch row of its chunk; whether it takes part: a second one that M6 has found wrong
        does not.
    row, of
        By chunk run: the dispatch row that it belongs to, and the first one of its chunk; -1 for none.
    strays
        Whether a chunk runs, or is dispatched again, on another lane than that of its dispatch (M6).
    given
        What :attr:`announced` is where `c` has no jobs.
    """

    c: Columns
    lanes: tuple[int, int]
    ready: Ints
    done: Ints
    gone: Ints
    first: Array
    counts: Mask
    row: Array
    of: Array
    strays: bool
    given: Announced | None = None

    @property
    def announced(self) -> Announced:
        """Of the job of each dispatch row: p at zeta = 0 [µs], D_j, and arrival [µs]."""
        if self.given is not None:
            return self.given
        job, scenario = self.c.dispatches["job"], self.c.scenario
        return scenario.chunk_time[job, 0], scenario.jobs.chunks[job], scenario.jobs.arrival[job]


def on_lanes(k: Chunks) -> OnLanes:
    """All lanes."""
    last, first = k.last[k.sent], k.row[k.sent]
    done = np.where(last >= 0, last, NEVER)
    counts, gone = k.again | k.leads, done
    job, failed = k.c.dispatches["job"], failure_times(k.c)
    if k.again.any() or (failed < NEVER).any():
        # when the chunk of each dispatch row leaves untrained, as its server or its job fails
        least = (1 - MOST_WORK_ERROR) * k.c.scenario.jobs.minibatches[job]
        untrained = (failed[job] < NEVER) & (k.work[k.sent] < least)
        lost = next_outage(k.c, k.c.dispatches["server"], k.c.dispatches["time"])
        leaves = np.minimum(np.where(untrained, np.minimum(failed[job], lost), NEVER), k.left)
        counts &= leaves > k.ready  # nor does a chunk that has left its server before its data were there
        gone = np.minimum(np.where(untrained, NEVER, done), leaves)
    of = k.row[k.run] if len(k.moved) else k.run_row
    sent_to, lane = k.c.dispatches["lane"], k.c.chunks["lane"]
    strays = len(sent_to) > 0 and bool(
        ((k.run_row >= 0) & (sent_to[k.run_row] != lane)).any() or (sent_to[first] != sent_to).any()
    )
    lanes = (0, k.c.scenario.cluster.lanes)
    return OnLanes(k.c, lanes, k.ready, done, gone, first, counts, k.run_row, of, strays)


def chosen(k: OnLanes, rows: Ints, runs: Ints) -> OnLanes:
    """These dispatch rows and chunk runs, in this order; they are numbered anew, -1 for others."""
    place = np.full(len(k.c.dispatches) + 1, -1, np.int32)  # the last one stands for none
    place[rows] = np.arange(len(rows), dtype=np.int32)
    c = replace(k.c, dispatches=k.c.dispatches.take(rows), chunks=k.c.chunks.take(runs))
    ready, done, gone, counts = (read_only(of.take(rows)) for of in (k.ready, k.done, k.gone, k.counts))
    first, row = read_only(place[k.first.take(rows)]), read_only(place[k.row.take(runs)])
    of = row if k.of is k.row else read_only(place[k.of.take(runs)])
    given = None if k.given is None else (k.given[0].take(rows), k.given[1].take(rows), k.given[2].take(rows))
    return OnLanes(c, k.lanes, ready, done, gone, first, counts, row, of, k.strays, given)


class ByLane(NamedTuple):
    """The dispatched chunks and their runs by lane.

    Attributes
    ----------
    k
        Those on its lanes come first: by lane, and there dispatches by decision and runs by start.
    number
        Number of each dispatch row in the order in which they were made.
    sent, ran
        First dispatch row and first chunk run of each lane, shape ``(lanes + 1,)``.
    """

    k: OnLanes
    number: Ints
    sent: Ints
    ran: Ints


def by_lane(k: OnLanes, lanes: tuple[int, int] | None = None, some: tuple[Ints, Ints] | None = None) -> ByLane:
    """The rows by lane: all of `k`, or `some` dispatch rows and chunk runs, those that concern a range of `lanes`."""
    d, t = k.c.dispatches, k.c.chunks
    lanes = lanes or k.lanes
    rows, sent = _by_lane(lanes, d["lane"], d["time"], None if some is None else some[0])
    runs, ran = _by_lane(lanes, t["lane"], t["start"], None if some is None else some[1])
    return ByLane(chosen(k, rows, runs)._replace(lanes=lanes), rows, sent, ran)


def _by_lane(lanes: tuple[int, int], lane: Array, time: Ints, some: Ints | None) -> tuple[Ints, Ints]:
    """All rows, or `some`, by lane and time, those elsewhere last; and the first one of each lane."""
    first, end = lanes
    if some is not None:
        lane, time = lane.take(some), time.take(some)
    here = (lane >= first) & (lane < end)
    rows, starts = in_groups(np.where(here, lane - np.int32(first), np.int32(end - first)), time, end - first + 1)
    return rows if some is None else some.take(rows), starts[:-1]


def _displaced(k: OnLanes, found: Findings, slack: int, rows: Ints, runs: LaneRuns, served: LaneService) -> None:
    """M11: where a chunk is preempted, one of better rank takes the lane, unless the server or the job is lost then.

    `rows` are the rows of the runs.
    """
    t, late = k.c.chunks, k.c.late
    mine = np.flatnonzero(t["preempted"].take(rows) & (served.gap > slack))
    if late.any():
        after = t["job"][rows[np.minimum(mine + 1, len(rows) - 1)]]
        mine = mine[served.gap[mine] > slack + late[after]]
    run, end = rows[mine], runs.end[mine]
    lost = next_outage(k.c, t["server"][run], t["start"][run]) <= end + slack
    lost |= failure_times(k.c)[t["job"][run]] <= end + slack
    say = "is preempted on lane {}, but no chunk of better rank starts there then"
    found.rows("M11", ~lost, t["job"][run], end, lambda i: say.format(t["lane"][run[i]]))


class _Queue(NamedTuple):
    """The chunks that wait for lanes: one for each interval in which a dispatched chunk may run there.

    Attributes
    ----------
    chunks
        When they may run, and in which order. Their group is those of a job dispatched together, which take turns.
    row
        Dispatch row of each.
    of_run
        The number here of each chunk run's, -1 for none.
    """

    chunks: LaneQueue
    row: Ints
    of_run: Ints


def _queue(b: ByLane, lags: Lags | None, slack: int) -> _Queue:
    k, d = b.k, b.k.c.dispatches
    rows = np.flatnonzero(k.counts & (d["lane"] >= 0))  # those elsewhere, too: their chunks may run here (M6)
    place = np.full(len(d) + 1, -1, np.int64)  # the last one stands for none
    place[rows] = np.arange(len(rows))
    sent, ready, gone, rank = (of.take(rows) for of in (d["time"], k.ready, k.gone, d["rank"]))
    group = b.number.take(rows)
    if lags is not None and lags.turns.any():
        of = np.stack([d[name].take(rows) for name in ("lane", "job", "time")])
        other = np.append(True, ~(lags.turns[of[1, 1:]] & (of[:, 1:] == of[:, :-1]).all(axis=0)))[: len(rows)]
        group = group[other][np.cumsum(other) - 1]
    chunks = LaneQueue(np.searchsorted(rows, b.sent), sent, ready, gone, rank, group)
    q = _Queue(chunks, rows, place[k.row])
    return q if lags is None or not lags.holds else _apart(k, lags, slack, q)


def _apart(k: OnLanes, lags: Lags, slack: int, q: _Queue) -> _Queue:
    """The queue with an entry for each interval in which a chunk is not too far ahead."""
    d, chunks = k.c.dispatches, q.chunks
    number = k.c.first_chunk[d["job"][q.row]] + d["chunk"][q.row]
    parts = [lags.split(*of) for of in zip(number.tolist(), chunks.ready.tolist(), chunks.gone.tolist(), strict=True)]
    counts = np.array([len(part) for part in parts], np.int64)
    first, times = np.cumsum(counts) - counts, np.array([time for part in parts for time in part]).reshape(-1, 2)
    of_run = q.of_run.copy()
    for i in np.flatnonzero(of_run >= 0):
        begins = [begin for begin, _ in parts[q.of_run[i]]]
        part = np.searchsorted(begins, k.c.chunks["start"][i] + slack, side="right") - 1
        of_run[i] = first[q.of_run[i]] + max(int(part), 0)
    spread = np.repeat(np.arange(len(counts)), counts)
    of_lane = np.append(first, len(spread))[chunks.first]
    sent, rank, group = chunks.sent[spread], chunks.rank[spread], chunks.group[spread]
    apart = LaneQueue(of_lane, sent, times[:, 0].copy(), times[:, 1].copy(), rank, group)
    return _Queue(apart, q.row[spread], of_run)


def check_lanes(b: ByLane, lags: Lags | None, found: Findings, slack: int, *, preemptive: bool) -> None:
    """Check M4, M11, M21 and M22 by following each lane with the queue of its chunks.

    `lags`: None if no job bounds the lag of its chunks.
    """
    c, d, t, row = b.k.c, b.k.c.dispatches, b.k.c.chunks, b.k.row
    q = _queue(b, lags, slack)
    rows = np.flatnonzero(q.of_run[: b.ran[-1]] >= 0)
    runs = LaneRuns(np.searchsorted(rows, b.ran), t["start"].take(rows), t["end"].take(rows), q.of_run.take(rows))
    served = lane_service(runs, q.chunks, preemptive=preemptive, slack=slack, room=found.limit)
    _displaced(b.k, found, slack, rows, runs, served)
    for time, run, _ in _of_rows(served.twice, rows):
        found.add("M4", int(t["job"][run]), int(time), f"lane {t['lane'][run]} runs two chunks at {time} µs")
    for time, run, better in _of_rows(served.worse, rows):
        waits, ready = q.row[better], q.chunks.ready[better]
        late = c.late[d["job"][waits]]
        if late > 0 and time <= ready + slack + late:
            continue  # live, the upload arrived later than announced
        text = (
            f"lane {t['lane'][run]} runs chunk {t['chunk'][run]} of rank {d['rank'][row[run]]} while chunk "
            f"{d['chunk'][waits]} of job {found.ids[int(d['job'][waits])]!r}, rank {d['rank'][waits]}, waits"
        )
        found.add("M21", int(t["job"][run]), int(time), text)
    for time, run, waits in _of_rows(served.idle, rows):
        one = q.row[waits]
        if min(t["start"][run], q.chunks.gone[waits]) - time <= slack + c.late[d["job"][one]]:
            continue  # it did not wait to the end, or arrived later than announced
        text = f"lane {t['lane'][run]} idles from {time} to {t['start'][run]} µs; chunk {d['chunk'][one]} waits for it"
        found.add("M22", int(d["job"][one]), int(time), text)


def _of_rows(table: Ints, rows: Ints) -> Ints:
    """A table of :func:`~skedge.analysis.sweeps.lane_service` with the rows of its runs."""
    return np.column_stack([table[:, 0], rows[table[:, 1]], table[:, 2]])
