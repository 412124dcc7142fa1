"""Rules on the service discipline of lanes: M4, M21, M22, and M11 on lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Array, Columns, failure_times, next_outage
from skedge.analysis.sweeps import Groups, LaneRuns, in_groups, lane_service
from skedge.core.model import Ints
from skedge.core.time import NEVER

from .chunks import Chunks
from .lag import Lags
from .rules import Findings

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
        untrained = (failed[job] < NEVER) & (k.work[k.sent] < k.c.scenario.jobs.minibatches[job])
        leaves = np.minimum(np.where(untrained, failed[job], NEVER), k.left)
        counts &= leaves > k.ready  # nor does a chunk that has left its server before its data were there
        gone = np.minimum(np.where(untrained, NEVER, done), leaves)
    of = k.row[k.run] if len(k.moved) else k.run_row
    sent_to, lane = k.c.dispatches["lane"], k.c.chunks["lane"]
    strays = len(sent_to) > 0 and bool(
        ((k.run_row >= 0) & (sent_to[k.run_row] != lane)).any() or (sent_to[first] != sent_to).any()
    )
    lanes = (0, k.c.scenario.cluster.lanes)
    return OnLanes(k.c, lanes, k.ready, done, gone, first, counts, k.run_row, of, strays)


def _displaced(k: OnLanes, found: Findings, slack: int, rows: Ints, runs: LaneRuns, group: Ints) -> None:
    """M11: where a chunk is preempted, one of better rank takes the lane, unless the server or the job is lost then.

    `rows` are the rows of the runs by lane; `group` is that of each place.
    """
    t, late = k.c.chunks, k.c.late
    last = np.zeros(len(rows) + 1, bool)
    last[runs.first[1:] - 1] = True  # where no run is, this is the last place of all
    mine = np.flatnonzero(t["preempted"][rows])
    after = np.minimum(mine + 1, len(rows) - 1)
    soon = runs.end[mine] + slack
    if late.any():
        soon += late[t["job"][rows[after]]]
    taken = ~last[mine] & (group[runs.place[after]] < group[runs.place[mine]]) & (runs.start[after] <= soon)
    mine = mine[~taken]
    run, end = rows[mine], runs.end[mine]
    lost = next_outage(k.c, t["server"][run], t["start"][run]) <= end + slack
    lost |= failure_times(k.c)[t["job"][run]] <= end + slack
    say = "is preempted on lane {}, but no chunk of better rank starts there then"
    found.rows("M11", ~lost, t["job"][run], end, lambda i: say.format(t["lane"][run[i]]))


class _Queue(NamedTuple):
    """The chunks that wait for lanes, by rank: one entry for each interval in which a chunk may run there.

    Attributes
    ----------
    order, lane
        Dispatch row of each place, by lane, there the best rank first; and that lane.
    ready, gone
        When the chunk of each place arrives or may continue, and when it is finished, too far ahead or gone [µs].
    group
        First place of the chunks that it takes turns with: those of its job dispatched together with it.
    place
        Place of each chunk run; -1 for none.
    """

    order: Ints
    lane: Array
    ready: Ints
    gone: Ints
    group: Ints
    place: Ints


def _queue(k: OnLanes, lags: Lags | None, slack: int) -> _Queue:
    d = k.c.dispatches
    on_lanes = Groups(np.where(k.counts, d["lane"], -1), d["rank"], k.c.scenario.cluster.lanes)
    order, ready, gone = on_lanes.rows, on_lanes.take(k.ready), on_lanes.take(k.gone)
    place_of_row = np.full(len(d), -1, np.int64)
    place_of_row[order] = np.arange(len(order))
    place = np.where(k.row >= 0, place_of_row[k.row], -1) if len(d) else np.full(len(k.row), -1, np.int64)
    group = np.arange(len(order))
    if lags is not None and lags.turns.any():
        of = np.stack([on_lanes.take(d[name]) for name in ("lane", "job", "time")])
        group[1:][lags.turns[of[1, 1:]] & (of[:, 1:] == of[:, :-1]).all(axis=0)] = 0
        # each place takes the number of the first of its group: the others are 0 so far
        group = np.maximum.accumulate(group)
    if lags is None or not lags.holds:
        return _Queue(order, d["lane"][order], ready, gone, group, place)
    return _apart(k, lags, slack, _Queue(order, d["lane"][order], ready, gone, group, place))


def _apart(k: OnLanes, lags: Lags, slack: int, q: _Queue) -> _Queue:
    """The queue with a place for each interval in which a chunk is not too far ahead."""
    given = zip(lags.k.sent[q.order].tolist(), q.ready.tolist(), q.gone.tolist(), strict=True)
    parts = [lags.split(*of) for of in given]
    counts = np.array([len(part) for part in parts], np.int64)
    first, times = np.cumsum(counts) - counts, np.array([time for part in parts for time in part]).reshape(-1, 2)
    place = q.place.copy()
    for i in np.flatnonzero(place >= 0):
        begins = [begin for begin, _ in parts[q.place[i]]]
        part = np.searchsorted(begins, k.c.chunks["start"][i] + slack, side="right") - 1
        place[i] = first[q.place[i]] + max(int(part), 0)
    spread = np.repeat(np.arange(len(counts)), counts)
    return _Queue(
        q.order[spread], q.lane[spread], times[:, 0].copy(), times[:, 1].copy(), first[q.group[spread]], place
    )


def check_lanes(k: OnLanes, lags: Lags | None, found: Findings, slack: int, *, preemptive: bool) -> None:
    """Check M4, M11, M21 and M22 by following each lane with the queue of its chunks.

    `lags`: None if no job bounds the lag of its chunks.
    """
    c, d, t, row, (first, end) = k.c, k.c.dispatches, k.c.chunks, k.row, k.lanes
    q = _queue(k, lags, slack)
    order, ready, gone = q.order, q.ready, q.gone
    here = (q.place >= 0) & (t["lane"] >= first) & (t["lane"] < end)
    rows, starts = in_groups(np.where(here, t["lane"], -1), t["start"], end)
    runs = LaneRuns(starts[first:], t["start"][rows], t["end"][rows], q.place[rows])
    coming, comes = in_groups(np.where(q.lane < end, q.lane, -1), ready, end)
    _displaced(k, found, slack, rows, runs, q.group)
    twice, worse, idle = lane_service(
        runs, (coming, comes[first:]), q.group, ready, gone, preemptive=preemptive, slack=slack, room=found.limit
    )  # fmt: skip
    for time, run, _ in _of_rows(twice, rows):
        found.add("M4", int(t["job"][run]), int(time), f"lane {t['lane'][run]} runs two chunks at {time} µs")
    for time, run, better in _of_rows(worse, rows):
        waits = order[better]
        late = c.late[d["job"][waits]]
        if late > 0 and time <= ready[better] + slack + late:
            continue  # live, the upload arrived later than announced
        text = (
            f"lane {t['lane'][run]} runs chunk {t['chunk'][run]} of rank {d['rank'][row[run]]} while chunk "
            f"{d['chunk'][waits]} of job {found.ids[int(d['job'][waits])]!r}, rank {d['rank'][waits]}, waits"
        )
        found.add("M21", int(t["job"][run]), int(time), text)
    for time, run, waits in _of_rows(idle, rows):
        one = order[waits]
        if min(t["start"][run], gone[waits]) - time <= slack + c.late[d["job"][one]]:
            continue  # it did not wait to the end, or arrived later than announced
        text = f"lane {t['lane'][run]} idles from {time} to {t['start'][run]} µs; chunk {d['chunk'][one]} waits for it"
        found.add("M22", int(d["job"][one]), int(time), text)


def _of_rows(table: Ints, rows: Ints) -> Ints:
    """A table of :func:`~skedge.analysis.sweeps.lane_service` with the rows of its runs."""
    return np.column_stack([table[:, 0], rows[table[:, 1]], table[:, 2]])
