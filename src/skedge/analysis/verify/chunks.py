"""Rules on dispatched chunks (M3, M5 to M8, M10, M20) and on the service discipline of lanes (M4, M21, M22)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Array, Columns, failure_times, next_outage, ready_times
from skedge.analysis.sweeps import Groups, LaneRuns, bounds, in_groups, lane_service, totals
from skedge.analysis.zeta import Zeta
from skedge.core.model import Floats, Ints
from skedge.core.time import NEVER

from .lag import Lags
from .rules import MOST_WORK_ERROR, Findings, Say

Mask = NDArray[np.bool_]

BLOCK = 2**20
"""Runs of the lanes that are followed at a time."""


class Chunks:
    """The dispatched chunks, each with its decision and its runs.

    Chunks are numbered through all jobs: chunk d of job j has number ``first_chunk[j] + d``.

    Attributes
    ----------
    run, sent
        Number of the chunk of each chunk run and of each dispatch row.
    row
        First dispatch row of each chunk; -1 for none.
    run_row
        Dispatch row that each chunk run belongs to: a chunk is dispatched again if its server goes out of service.
    again, left
        By dispatch row: whether it is a re-dispatch, and when the chunk left because its server went out of service;
        NEVER if it did not.
    ready
        Arrival of the chunk of each dispatch row at its server [µs].
    zeta
        1 while a job is wholly in the cloud.
    first, last, runs, work
        First start, last end, number of runs and mini-batches of each chunk.
    """

    def __init__(self, c: Columns) -> None:
        self.c, self.count = c, int(c.first_chunk[-1])
        first: Array = c.first_chunk.astype(np.int32 if self.count < 2**31 else np.int64)
        self.run: Array = first[c.chunks["job"]] + c.chunks["chunk"]
        self.sent: Array = first[c.dispatches["job"]] + c.dispatches["chunk"]
        self.row = np.full(self.count, -1, np.int32)
        self.row[self.sent[::-1]] = np.arange(len(self.sent), dtype=np.int32)[::-1]
        self.ready = ready_times(c)
        self.zeta = Zeta(c)
        self.first, self.last, self.runs = bounds(self.run, c.chunks["start"], c.chunks["end"], self.count)
        self.work: Floats = np.bincount(self.run, c.chunks["work"], self.count).astype(np.float64)
        self.run_row = self.row[self.run]
        self.again = (c.dispatches.frame["verb"] == "redispatch").to_numpy()
        self.left = np.broadcast_to(np.int64(NEVER), len(self.sent))
        if self.again.any():
            self.left = self.left.copy()
        self.moved = np.unique(self.sent[self.again])
        for chunk in self.moved:
            self._follow(chunk)

    def _follow(self, chunk: int) -> None:
        """For a re-dispatched chunk: find when it left each server, and which runs belong to which dispatch."""
        rows, runs = np.flatnonzero(self.sent == chunk), np.flatnonzero(self.run == chunk)
        d, times = self.c.dispatches, self.c.dispatches["time"][rows]
        self.left[rows[:-1]] = next_outage(self.c, d["server"][rows[:-1]], times[:-1])
        place = np.searchsorted(times, self.c.chunks["start"][runs], side="right") - 1
        self.run_row[runs] = rows[np.maximum(place, 0)]

    def together(self) -> Ints:
        """For each chunk: the first of the chunks of its job last dispatched together with it to its lane."""
        d, last = self.c.dispatches, np.full(self.count, -1, np.int64)
        np.maximum.at(last, self.sent, np.arange(len(self.sent)))
        job, chunk = self.job(np.arange(self.count)), np.arange(self.count)
        if not len(d):
            return chunk
        lane = np.where((last >= 0) & (d["lane"][last] >= 0), d["lane"][last], -1 - chunk)
        key = np.stack([job, lane, d["time"][last]], axis=1)
        _, first, of = np.unique(key, axis=0, return_index=True, return_inverse=True)
        return first[of.ravel()]

    def job(self, chunks: Ints) -> Ints:
        """Job of each of these chunks."""
        return np.searchsorted(self.c.first_chunk, chunks, side="right").astype(np.int64) - 1


def check_chunks(k: Chunks, lags: Lags, found: Findings, slack: int, *, haprf: bool) -> None:
    """Check M3, M5, M6, M7, M8, M10, M20, and M22 in the cloud."""
    _types(k, found)
    _one_worker(k, found, slack)
    _no_migration(k, found)
    _moved_for_a_reason(k, found)
    _not_early(k, found, slack)
    _work(k, found, slack)
    _colocated(k, found, slack)
    _cloud_starts(k, lags, found, slack)
    if haprf:
        _ranks(k, found)


def _types(k: Chunks, found: Findings) -> None:
    cluster, jobs = k.c.scenario.cluster, k.c.scenario.jobs
    for t, time in ((k.c.dispatches, "time"), (k.c.chunks, "start")):
        if cluster.lanes:
            kind = np.where(t["lane"] >= 0, cluster.lane_type[t["lane"]], jobs.worker_type[t["job"]])
            found.rows("M3", kind != jobs.worker_type[t["job"]], t["job"], t[time], _other_type(k.c, t["lane"]))


def _other_type(c: Columns, lane: Ints) -> Say:
    cluster = c.scenario.cluster
    return lambda i: f"lane {lane[i]} has type {cluster.worker_types[cluster.lane_type[lane[i]]]!r}, not the job's"


def _one_worker(k: Chunks, found: Findings, slack: int) -> None:
    """M5: no two runs of a chunk overlap, so a job has at most D_j workers."""
    t = k.c.chunks
    often, _ = in_groups(np.where(k.runs[k.run] > 1, k.run, -1), t["start"], k.count)
    same = k.run[often[1:]] == k.run[often[:-1]]
    early = same & (t["start"][often[1:]] < t["end"][often[:-1]] - slack)
    rows = often[1:]
    found.rows(
        "M5", early, t["job"][rows], t["start"][rows],
        lambda i: f"chunk {t['chunk'][rows[i]]} runs on two workers at {t['start'][rows[i]]} µs",
    )  # fmt: skip


def _no_migration(k: Chunks, found: Findings) -> None:
    """M6: a dispatched job's chunks are each dispatched once; a chunk runs on the lane it was dispatched to."""
    d, t, jobs = k.c.dispatches, k.c.chunks, k.c.scenario.jobs
    times = np.bincount(k.sent, minlength=k.count)
    again = (times[k.sent] > 1) & (k.row[k.sent] != np.arange(len(k.sent))) & ~k.again
    found.rows("M6", again, d["job"], d["time"], lambda i: f"chunk {d['chunk'][i]} is dispatched a second time")
    sent = np.bincount(d["job"], minlength=len(jobs)) > 0
    missing = np.flatnonzero(np.repeat(sent, jobs.chunks) & (times == 0))[: found.limit]
    for chunk, job in zip(missing, k.job(missing), strict=True):
        number = chunk - k.c.first_chunk[job]
        found.add("M6", int(job), int(jobs.arrival[job]), f"chunk {number} is never dispatched; others of the job are")
    row = k.run_row
    stray = row < 0
    if len(d):
        stray = stray | (t["lane"] != d["lane"][row]) | (t["server"] != d["server"][row])
    found.rows("M6", stray, t["job"], t["start"], lambda i: _stray(k, i))
    mixed = np.isin(k.c.gangs["job"], np.flatnonzero(sent))
    found.rows(
        "M6", mixed, k.c.gangs["job"], k.c.gangs["start"], lambda _: "is dispatched and also holds workers as a gang"
    )


def _stray(k: Chunks, i: int) -> str:
    t, d, row = k.c.chunks, k.c.dispatches, k.run_row[i]
    here = f"chunk {t['chunk'][i]} runs on server {t['server'][i]}, lane {t['lane'][i]} (-1: cloud)"
    return f"{here}; " + (
        f"it was dispatched to server {d['server'][row]}, lane {d['lane'][row]}"
        if row >= 0
        else "it was never dispatched"
    )


def _moved_for_a_reason(k: Chunks, found: Findings) -> None:
    """M6: a chunk is dispatched again only after the server that it was on has gone out of service."""
    d = k.c.dispatches
    first = k.again & (k.row[k.sent] == np.arange(len(k.sent)))
    say = "chunk {} is redispatched, but was not dispatched before"
    found.rows("M6", first, d["job"], d["time"], lambda i: say.format(d["chunk"][i]))
    for chunk in k.moved:
        rows = np.flatnonzero(k.sent == chunk)
        for before, row in pairwise(rows):
            if k.left[before] > d["time"][row]:
                text = f"chunk {d['chunk'][row]} is redispatched, but its server was in service"
                found.add("M6", int(d["job"][row]), int(d["time"][row]), text)


def check_outages(c: Columns, found: Findings, slack: int) -> None:
    """M25: no run, and no service of a PS, starts on a server that is out of service."""
    o = c.outages
    for t in (c.runs, c.ps):
        for server, start, end in zip(o["server"], o["start"], o["end"], strict=True):
            until = NEVER if end < 0 else end
            inside = (t["server"] == server) & (t["start"] > start + slack) & (t["start"] < until - slack)
            say = f"starts on {c.scenario.cluster.label(int(server))!r}, which is out of service from {start} µs on"
            found.rows("M25", inside, t["job"], t["start"], lambda _, say=say: say)  # type: ignore[misc]


def _run_ready(k: Chunks) -> Ints:
    """Arrival of the chunk of each chunk run [µs]; 0 if it was never dispatched."""
    row = k.run_row
    return np.where(row >= 0, k.ready[row], 0) if len(k.ready) else np.zeros(len(row), np.int64)


def _not_early(k: Chunks, found: Findings, slack: int) -> None:
    t, ready = k.c.chunks, _run_ready(k)
    early = t["start"] < ready - slack
    say = "chunk {} starts at {} µs; its data arrive at {} µs"
    found.rows("M7", early, t["job"], t["start"], lambda i: say.format(t["chunk"][i], t["start"][i], ready[i]))


def _work(k: Chunks, found: Findings, slack: int) -> None:
    """M8: the runs of a dispatched chunk last p_j(zeta) and one checkpoint overhead for each preemption."""
    t, physics, scenario = k.c.chunks, k.c.scenario.physics, k.c.scenario
    done, displaced = totals(k.run, t["start"], t["end"], t["preempted"], k.count)
    for job in k.zeta.changed():
        _convert(k, job, done)
    each = scenario.true_chunk_time[np.arange(len(scenario.jobs)), k.zeta.last]
    need = np.repeat(each, scenario.jobs.chunks) + physics.checkpoint_overhead * displaced
    failed = np.repeat(failure_times(k.c) < NEVER, scenario.jobs.chunks)
    over, late = done - need, np.repeat(k.c.late, scenario.jobs.chunks)
    if slack:  # live, the sum over chunks that take turns is exact, but their shares are only as exact as message times
        together = k.together()
        over = (np.bincount(together, over, k.count) / np.bincount(together, minlength=k.count).clip(1))[together]
    wrong = np.flatnonzero((k.row >= 0) & ~failed & ((over < -slack) | (over > slack + late)))[: found.limit]
    for chunk, job in zip(wrong, k.job(wrong), strict=True):
        number = chunk - k.c.first_chunk[job]
        text = f"chunk {number} is trained for {done[chunk]} µs; it needs {need[chunk]} µs"
        found.add("M8", int(job), int(k.last[chunk]), text)


def _convert(k: Chunks, job: int, done: Ints) -> None:
    """If zeta of a job changes, convert the time `done` on its chunks to the last zeta, without overheads."""
    t, overhead = k.c.chunks, k.c.scenario.physics.checkpoint_overhead
    rows = np.flatnonzero(t["job"] == job)
    each, total = k.c.scenario.true_chunk_time[job], dict[int, float]()
    for row in rows[np.argsort(t["start"][rows], kind="stable")]:
        chunk, start, end = int(k.run[row]), int(t["start"][row]), int(t["end"][row])
        # every run but the first begins with the restore, which zeta does not change
        restart = min(overhead, end - start) if chunk in total else 0
        spent = restart + k.zeta.converted(job, start + restart, end, each)
        total[chunk] = total.get(chunk, 0.0) + spent
    for chunk, spent in total.items():
        done[chunk] = round(spent)


def minibatches(c: Columns, found: Findings) -> None:
    """M8: the mini-batches of a finished job's runs, and of any job in the jobs table, are E_j D_j B_j."""
    t, jobs = c.jobs, c.scenario.jobs
    need = (jobs.chunks * jobs.minibatches).astype(np.float64)
    done = np.bincount(c.runs["job"], weights=c.runs["work"], minlength=len(jobs))
    finished = (t.frame["state"] == "finished").fill_null(value=False).to_numpy() & (t["completion"] >= 0)
    job = t["job"]
    for what, got, of in (("its runs do", done[job], finished), ("the jobs table says", t["work"], True)):
        wrong = of & ~(np.abs(got - need[job]) <= MOST_WORK_ERROR * need[job])
        found.rows("M8", wrong, job, t["completion"], _batches(what, got, need[job]))


def _batches(what: str, got: NDArray[Any], need: Floats) -> Say:
    return lambda i: f"{what} {got[i]:g} mini-batches; E D B is {need[i]:g}"


def _colocated(k: Chunks, found: Findings, slack: int) -> None:
    """M10: `colocated` of a run is zeta of its job at its start."""
    t = k.c.chunks
    other = np.where(t["colocated"], 0, 1)
    wrong = k.zeta.always(t["job"], t["start"] - slack, t["start"] + slack, other)
    say = "colocated is {}; the job is {}wholly in the cloud"
    found.rows(
        "M10", wrong, t["job"], t["start"],
        lambda i: say.format(bool(t["colocated"][i]), "" if other[i] else "not "),
    )  # fmt: skip


def _cloud_starts(k: Chunks, lags: Lags, found: Findings, slack: int) -> None:
    """M22 in the cloud: a chunk starts when it arrives or may continue, and is not interrupted."""
    t = k.c.chunks
    ready, parts = _run_ready(k), np.ones(k.count, np.int64)
    for chunk in lags.holds:
        runs = np.flatnonzero((k.run == chunk) & (t["lane"] < 0))
        runs = runs[np.argsort(t["start"][runs], kind="stable")]
        begins = [begin for begin, _ in lags.split(chunk, int(ready[runs].min(initial=NEVER)), NEVER)]
        parts[chunk] = len(begins)
        ready[runs[: len(begins)]] = begins[: len(runs)]
    often = (k.runs[k.run] > parts[k.run]) & ~np.isin(k.run, k.moved)
    late = (t["lane"] < 0) & ((t["start"] > ready + slack + k.c.late[t["job"]]) | often)
    say = "cloud chunk {} arrives at {} µs and starts at {} µs, in {} runs; it must start on arrival, in one run"
    found.rows(
        "M22", late, t["job"], t["start"],
        lambda i: say.format(t["chunk"][i], ready[i], t["start"][i], k.runs[k.run[i]]),
    )  # fmt: skip


def _ranks(k: Chunks, found: Findings) -> None:
    """M20: rank = D_j p_j with the announced p_j at zeta = 0, so that the largest gamma = 1/(D p) runs first."""
    d, scenario = k.c.dispatches, k.c.scenario
    right = (scenario.jobs.chunks * scenario.chunk_time[:, 0])[d["job"]]
    wrong = d["rank"] != right
    found.rows("M20", wrong, d["job"], d["time"], lambda i: f"rank is {d['rank'][i]}; D p is {right[i]}")


def _displaced(k: Chunks, found: Findings, slack: int, rows: Ints, runs: LaneRuns, group: Ints) -> None:
    """M11: where a chunk is preempted, one of better rank takes the lane, unless the server or the job is lost then.

    `rows` are the rows of the runs by lane; `group` is that of each place.
    """
    t = k.c.chunks
    mine = np.flatnonzero(t["preempted"][rows])
    run, after = rows[mine], np.minimum(mine + 1, len(rows) - 1)
    end, next_run = runs.end[mine], rows[after]
    taken = (t["lane"][next_run] == t["lane"][run]) & (group[runs.place[after]] < group[runs.place[mine]])
    taken &= runs.start[after] <= end + slack + k.c.late[t["job"][next_run]]
    lost = next_outage(k.c, t["server"][run], t["start"][run]) <= end + slack
    lost |= failure_times(k.c)[t["job"][run]] <= end + slack
    say = "is preempted on lane {}, but no chunk of better rank starts there then"
    found.rows("M11", ~taken & ~lost, t["job"][run], end, lambda i: say.format(t["lane"][run[i]]))


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


def _queue(k: Chunks, lags: Lags, slack: int) -> _Queue:
    c, d = k.c, k.c.dispatches
    # a second dispatch that M6 has found wrong takes no part
    counts = k.again | (k.row[k.sent] == np.arange(len(k.sent)))
    counts &= k.left > k.ready  # nor does a chunk whose server went out of service before its data were there
    on_lanes = Groups(np.where(counts, d["lane"], -1), d["rank"], c.scenario.cluster.lanes)
    order, ready, gone = on_lanes.rows, on_lanes.take(k.ready), on_lanes.take(_gone(k))
    place_of_row = np.full(len(d), -1, np.int64)
    place_of_row[order] = np.arange(len(order))
    place = np.where(k.run_row >= 0, place_of_row[k.run_row], -1) if len(d) else np.full(len(k.run), -1, np.int64)
    group = np.arange(len(order))
    if lags.turns.any():
        of = np.stack([on_lanes.take(d[name]) for name in ("lane", "job", "time")])
        group[1:][lags.turns[of[1, 1:]] & (of[:, 1:] == of[:, :-1]).all(axis=0)] = 0
        # each place takes the number of the first of its group: the others are 0 so far
        group = np.maximum.accumulate(group)
    if not lags.holds:
        return _Queue(order, d["lane"][order], ready, gone, group, place)
    return _apart(k, lags, slack, _Queue(order, d["lane"][order], ready, gone, group, place))


def _gone(k: Chunks) -> Ints:
    """When the chunk of each dispatch row is finished or gone [µs]; NEVER if it is not."""
    job, last = k.c.dispatches["job"], k.last[k.sent]
    gone, failed = np.where(last >= 0, last, NEVER), failure_times(k.c)[job]
    untrained = (failed < NEVER) & (k.work[k.sent] < k.c.scenario.jobs.minibatches[job])
    return np.minimum(np.where(untrained, failed, gone), k.left)


def _apart(k: Chunks, lags: Lags, slack: int, q: _Queue) -> _Queue:
    """The queue with a place for each interval in which a chunk is not too far ahead."""
    given = zip(k.sent[q.order].tolist(), q.ready.tolist(), q.gone.tolist(), strict=True)
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


def check_lanes(k: Chunks, lags: Lags, found: Findings, slack: int, *, preemptive: bool) -> None:
    """Check M4, M11, M21 and M22 by following each lane with the queue of its chunks, some lanes at a time."""
    q = _queue(k, lags, slack)
    for first, end in _blocks(k.c.chunks["lane"], k.c.scenario.cluster.lanes):
        _check_block(k, q, first, end, found, slack, preemptive=preemptive)


def _blocks(lane: Array, lanes: int) -> Iterator[tuple[int, int]]:
    """Ranges of lanes with about :data:`BLOCK` runs each; at most 16, as each looks through all runs."""
    so_far = np.cumsum(np.bincount(lane[lane >= 0], minlength=lanes))
    parts = min(1 + len(lane) // BLOCK, 16)
    inner = np.searchsorted(so_far, len(lane) * np.arange(1, parts) // parts)
    return pairwise(np.unique([0, *inner, lanes]).tolist())


def _check_block(
    k: Chunks, q: _Queue, first: int, end: int, found: Findings, slack: int, *, preemptive: bool
) -> None:  # fmt: skip
    """:func:`check_lanes` for the lanes from `first` to before `end`."""
    c, d, t, row = k.c, k.c.dispatches, k.c.chunks, k.run_row
    order, ready, gone = q.order, q.ready, q.gone
    mine = np.flatnonzero((q.place >= 0) & (t["lane"] >= first) & (t["lane"] < end))
    of, starts = in_groups(t["lane"][mine] - first, t["start"][mine], end - first)
    rows = mine[of]
    runs = LaneRuns(starts, t["start"][rows], t["end"][rows], q.place[rows])
    a, b = np.searchsorted(q.lane, (first, end))
    coming = in_groups(q.lane[a:b] - first, ready[a:b], end - first)
    # from places within the block to places of the queue
    coming[0][:] += a
    _displaced(k, found, slack, rows, runs, q.group)
    twice, worse, idle = lane_service(
        runs, coming, q.group, ready, gone, preemptive=preemptive, slack=slack, room=found.limit
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
            f"{d['chunk'][waits]} of job {c.scenario.jobs.ids[d['job'][waits]]!r}, rank {d['rank'][waits]}, waits"
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
