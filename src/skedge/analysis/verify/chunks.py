"""Rules on dispatched chunks: M3, M5 to M8, M10, M20, and M22 in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import (
    Array,
    Columns,
    Table,
    failure_times,
    gang_intervals,
    next_outage,
    outage_spans,
    ready_times,
)
from skedge.analysis.row_groups import bounds, counts, overlapping, sums
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.time import NEVER

from .lag import Lags
from .rules import WORK_TOLERANCE, Findings

Mask = NDArray[np.bool_]


class Chunks:
    """The dispatched chunks, each with its decision and its runs.

    Chunks are numbered through all jobs: chunk d of job j has number ``first_chunk[j] + d``.

    Attributes
    ----------
    run_chunk, dispatch_chunk
        Number of the chunk of each chunk run and of each dispatch row.
    dispatch_row, is_first
        First dispatch row of each chunk, -1 for none; whether each dispatch row is that of its chunk.
    run_dispatch
        Dispatch row that each chunk run belongs to: a chunk is dispatched again if its server goes out of service.
    is_redispatch, left_at
        By dispatch row: whether it is a re-dispatch, and when the chunk left because its server went out of service;
        NEVER if it did not.
    arrival
        Arrival of the chunk of each dispatch row at its server [µs].
    colocation
        1 while a job is wholly in the cloud.
    last_end, n_runs, work
        Last end, number of runs and mini-batches of each chunk.
    moved_chunks
        Chunks that are dispatched again.
    run_times
        How long each chunk runs [µs], and how often it is displaced.
    """

    def __init__(self, c: Columns) -> None:
        self.c, self.count = c, int(c.first_chunk[-1])
        # these arrays are as long as the tables: 32 bits halve their memory
        first: Array = c.first_chunk.astype(np.int32 if self.count < 2**31 else np.int64)
        self.run_chunk: Array = first[c.chunks["job"]] + c.chunks["chunk"]
        self.dispatch_chunk: Array = first[c.dispatches["job"]] + c.dispatches["chunk"]
        self.dispatch_row = np.full(self.count, -1, np.int32)
        rows = np.arange(len(self.dispatch_chunk), dtype=np.int32)
        # written backwards, so that the first dispatch of a chunk stays
        self.dispatch_row[self.dispatch_chunk[::-1]] = rows[::-1]
        self.is_first: Mask = self.dispatch_row[self.dispatch_chunk] == rows
        self.arrival = ready_times(c)
        self.colocation = Colocation(c)
        _, self.last_end, runs = bounds(self.run_chunk, c.chunks["start"], c.chunks["end"], self.count)
        self.n_runs: Array = runs.astype(np.int32)
        self.work = sums(self.run_chunk, c.chunks["work"], self.count)
        durations, preempted = c.chunks["end"] - c.chunks["start"], c.chunks["preempted"].astype(np.int64)
        self.run_times = tuple(sums(self.run_chunk, value, self.count) for value in (durations, preempted))
        self.run_dispatch = self.dispatch_row[self.run_chunk]
        self.is_redispatch = c.dispatches.has("verb", "redispatch")
        # takes no memory where no server goes out of service
        self.left_at = np.broadcast_to(np.int64(NEVER), len(self.dispatch_chunk))
        if self.is_redispatch.any():
            self.left_at = self.left_at.copy()
        self.moved_chunks = np.unique(self.dispatch_chunk[self.is_redispatch])
        for chunk in self.moved_chunks:
            self._follow_moves(chunk)

    def _follow_moves(self, chunk: int) -> None:
        """For a re-dispatched chunk: find when it left each server, and which runs belong to which dispatch."""
        rows, runs = np.flatnonzero(self.dispatch_chunk == chunk), np.flatnonzero(self.run_chunk == chunk)
        d, times = self.c.dispatches, self.c.dispatches["time"][rows]
        self.left_at[rows[:-1]] = next_outage(self.c, d["server"][rows[:-1]], times[:-1])
        # a run belongs to the last dispatch before it
        place = np.searchsorted(times, self.c.chunks["start"][runs], side="right") - 1
        self.run_dispatch[runs] = rows[np.maximum(place, 0)]

    def parts(self) -> Iterator[Chunks]:
        """The same, with a part of the chunk runs at a time: :meth:`~skedge.analysis.columns.Table.parts`."""
        for first, chunks in self.c.chunks.parts():
            part, end = copy(self), first + len(chunks)
            part.c = replace(self.c, chunks=chunks)
            part.run_chunk, part.run_dispatch = self.run_chunk[first:end], self.run_dispatch[first:end]
            yield part

    def group_leaders(self) -> Ints:
        """For each chunk: the first of the chunks of its job last dispatched together with it to its lane."""
        d, last = self.c.dispatches, np.full(self.count, -1, np.int64)
        np.maximum.at(last, self.dispatch_chunk, np.arange(len(self.dispatch_chunk)))
        job, chunk = self.job(np.arange(self.count)), np.arange(self.count)
        if not len(d):
            return chunk
        # in the cloud no chunk takes turns with another: each has a lane of its own there
        lane = np.where((last >= 0) & (d["lane"][last] >= 0), d["lane"][last], -1 - chunk)
        key = np.stack([job, lane, d["time"][last]], axis=1)
        _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
        return first[inverse.ravel()]

    def job(self, chunks: Ints) -> Ints:
        """Job of each of these chunks."""
        return np.searchsorted(self.c.first_chunk, chunks, side="right").astype(np.int64) - 1

    def wrong_chunks(self, wrong: Mask, most: int) -> Iterator[tuple[int, int, int]]:
        """Number of each chunk that is wrong, its job and its number there; at most `most`."""
        chunks = np.flatnonzero(wrong)[:most]
        jobs = self.job(chunks)
        yield from zip(chunks.tolist(), jobs.tolist(), (chunks - self.c.first_chunk[jobs]).tolist(), strict=True)


def check_chunks(k: Chunks, lags: Lags, findings: Findings, slack: int, *, haprf: bool) -> None:
    """Check M3, M5, M6, M7, M8, M10, M20, and M22 in the cloud.

    Parameters
    ----------
    k
        The runs of dispatched chunks.
    lags
        When chunks are too far ahead of others.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    haprf
        Whether lanes promise rank D_j p_j (M20).
    """
    for _, dispatches in k.c.dispatches.parts():
        _worker_types(k.c, dispatches, "time", findings)
    _no_overlap(k, findings, slack)
    _single_dispatch(k, findings)
    _redispatch_causes(k, findings)
    _training_time(k, findings, slack)
    _cloud_starts(k, lags, findings, slack)
    for part in k.parts():
        _worker_types(part.c, part.c.chunks, "start", findings)
        _no_migration(part, findings)
        _data_arrived(part, findings, slack)
        _colocated(part, findings, slack)
    if haprf:
        _ranks(k, findings)


def _worker_types(c: Columns, t: Table, time: str, findings: Findings) -> None:
    cluster, jobs = c.scenario.cluster, c.scenario.jobs
    if cluster.lanes:
        kind = np.where(t["lane"] >= 0, cluster.lane_type[t["lane"]], jobs.worker_type[t["job"]])
        template = "lane {} has type {!r}, not the job's"
        findings.add_rows(
            "M3", kind != jobs.worker_type[t["job"]], t["job"], t[time],
            lambda i: template.format(t["lane"][i], cluster.worker_types[kind[i]]),
        )  # fmt: skip


def _no_overlap(k: Chunks, findings: Findings, slack: int) -> None:
    """M5: no two runs of a chunk overlap, so a job has at most D_j workers."""
    t = k.c.chunks
    rows = overlapping(k.run_chunk, t["start"], t["end"], k.count, slack)[: findings.limit]
    for chunk, job, start in zip(t["chunk"][rows], t["job"][rows], t["start"][rows], strict=True):
        findings.add("M5", int(job), int(start), f"chunk {chunk} runs on two workers at {start} µs")


def _single_dispatch(k: Chunks, findings: Findings) -> None:
    """M6: a dispatched job's chunks are each dispatched once, and it holds no gang."""
    d, jobs = k.c.dispatches, k.c.scenario.jobs
    findings.add_rows(
        "M6", ~(k.is_first | k.is_redispatch), d["job"], d["time"], "chunk {} is dispatched a second time", d["chunk"]
    )
    is_dispatched = counts(d["job"], len(jobs)) > 0
    missing = np.repeat(is_dispatched, jobs.chunks) & (k.dispatch_row < 0)
    for _, job, number in k.wrong_chunks(missing, findings.limit):
        text = f"chunk {number} is never dispatched; others of the job are"
        findings.add("M6", job, int(jobs.arrival[job]), text)
    # the two ways of holding workers exclude each other
    mixed = np.isin(k.c.gangs["job"], np.flatnonzero(is_dispatched))
    findings.add_rows(
        "M6", mixed, k.c.gangs["job"], k.c.gangs["start"], "is dispatched and also holds workers as a gang"
    )


def _no_migration(k: Chunks, findings: Findings) -> None:
    """M6: a chunk runs on the lane to which it was dispatched."""
    d, t, row = k.c.dispatches, k.c.chunks, k.run_dispatch
    stray = row < 0
    if len(d):
        stray = stray | (t["lane"] != d["lane"][row]) | (t["server"] != d["server"][row])
    findings.add_rows("M6", stray, t["job"], t["start"], lambda i: _stray(k, i))


def _stray(k: Chunks, i: int) -> str:
    t, d, row = k.c.chunks, k.c.dispatches, k.run_dispatch[i]
    text = f"chunk {t['chunk'][i]} runs on server {t['server'][i]}, lane {t['lane'][i]} (-1: cloud)"
    if row < 0:
        return f"{text}; it was never dispatched"
    return f"{text}; it was dispatched to server {d['server'][row]}, lane {d['lane'][row]}"


def _redispatch_causes(k: Chunks, findings: Findings) -> None:
    """M6: a chunk is dispatched again only after the server that it was on has gone out of service."""
    d = k.c.dispatches
    template = "chunk {} is redispatched, but was not dispatched before"
    findings.add_rows("M6", k.is_redispatch & k.is_first, d["job"], d["time"], template, d["chunk"])
    for chunk in k.moved_chunks:
        rows = np.flatnonzero(k.dispatch_chunk == chunk)
        for before, row in pairwise(rows):
            if k.left_at[before] > d["time"][row]:
                text = f"chunk {d['chunk'][row]} is redispatched, but its server was in service"
                findings.add("M6", int(d["job"][row]), int(d["time"][row]), text)


def check_outages(c: Columns, findings: Findings, slack: int) -> None:
    """M25: no run, and no service of a PS, starts on a server that is out of service."""
    # live, a team that was in training leaves once it has answered, and its chunks share the time until then
    is_continued = _continues_team(c.runs) if slack else np.zeros(len(c.runs["job"]), np.bool_)
    for t, is_late in ((c.runs, is_continued), (c.ps, np.zeros(len(c.ps["job"]), np.bool_))):
        for server, start, end in outage_spans(c):
            inside = (t["server"] == server) & (t["start"] > start + slack) & (t["start"] < end - slack) & ~is_late
            template = f"starts on {c.scenario.cluster.label(server)!r}, which is out of service from {start} µs on"
            findings.add_rows("M25", inside, t["job"], t["start"], template)


def _continues_team(t: Table) -> Mask:
    """Runs that begin as another one of the same job ends on the same lane: chunks of a team, one after another."""
    starts, ends = (np.stack([t["job"], t["lane"], t[column]], axis=1) for column in ("start", "end"))
    keys, key_of_row = np.unique(np.concatenate([ends, starts]), axis=0, return_inverse=True)
    has_ended = np.zeros(len(keys), np.bool_)
    has_ended[key_of_row.ravel()[: len(ends)]] = True
    return (t["lane"] >= 0) & has_ended[key_of_row.ravel()[len(ends) :]]


def _arrival_times(k: Chunks, row: Array) -> Ints:
    """Arrival of the chunks of dispatch rows [µs]; 0 where the row is -1, which stands for none."""
    return np.where(row >= 0, k.arrival[row], 0) if len(k.arrival) else np.zeros(len(row), np.int64)


def _data_arrived(k: Chunks, findings: Findings, slack: int) -> None:
    t, arrival = k.c.chunks, _arrival_times(k, k.run_dispatch)
    early = t["start"] < arrival - slack
    template = "chunk {} starts at {} µs; its data arrive at {} µs"
    findings.add_rows("M7", early, t["job"], t["start"], template, t["chunk"], t["start"], arrival)


def _training_time(k: Chunks, findings: Findings, slack: int) -> None:
    """M8: the runs of a dispatched chunk last p_j(zeta) and one checkpoint overhead for each preemption."""
    physics, scenario = k.c.scenario.physics, k.c.scenario
    time_spent, displaced = k.run_times
    if changed := k.colocation.changed_jobs():
        time_spent = time_spent.copy()
    for job in changed:
        _convert(k, job, time_spent)
    # (2b), at the zeta that the job has at last; _convert brings time at another zeta to it
    duration = scenario.true_chunk_time[np.arange(len(scenario.jobs)), k.colocation.last]
    excess = time_spent - np.repeat(duration, scenario.jobs.chunks)
    if physics.checkpoint_overhead:
        excess -= physics.checkpoint_overhead * displaced
    if slack:  # live, the sum over chunks that take turns is exact, but their shares are only as exact as message times
        leaders = k.group_leaders()
        excess = (np.bincount(leaders, excess, k.count) / np.bincount(leaders, minlength=k.count).clip(1))[leaders]
    room = slack + k.c.late
    room[changed] += physics.step  # what is left at a change is rounded up to whole steps
    wrong = excess > np.repeat(room, scenario.jobs.chunks)
    wrong |= excess < -slack
    # chunks of a failed job may be unfinished
    wrong &= (k.dispatch_row >= 0) & ~np.repeat(failure_times(k.c) < NEVER, scenario.jobs.chunks)
    for chunk, job, number in k.wrong_chunks(wrong, findings.limit):
        need = duration[job] + physics.checkpoint_overhead * displaced[chunk]
        text = f"chunk {number} is trained for {time_spent[chunk]} µs; it needs {need} µs"
        findings.add("M8", job, int(k.last_end[chunk]), text)


def _convert(k: Chunks, job: int, time_spent: Ints) -> None:
    """If zeta of a job changes, convert the time `time_spent` on its chunks to the last zeta, without overheads."""
    t, overhead = k.c.chunks, k.c.scenario.physics.checkpoint_overhead
    rows = np.flatnonzero(t["job"] == job)
    durations, total = k.c.scenario.true_chunk_time[job], dict[int, float]()
    for row in rows[np.argsort(t["start"][rows], kind="stable")]:
        chunk, start, end = int(k.run_chunk[row]), int(t["start"][row]), int(t["end"][row])
        # every run but the first begins with the restore, which zeta does not change
        restart = min(overhead, end - start) if chunk in total else 0
        spent = restart + k.colocation.converted_time(job, start + restart, end, durations)
        total[chunk] = total.get(chunk, 0.0) + spent
    for chunk, spent in total.items():
        time_spent[chunk] = round(spent)


def check_minibatches(c: Columns, findings: Findings) -> None:
    """M8: the mini-batches of a finished job's runs, and of any job in the jobs table, are E_j D_j B_j."""
    t, jobs = c.jobs, c.scenario.jobs
    need = (jobs.chunks * jobs.minibatches).astype(np.float64)
    work = sums(c.runs["job"], c.runs["work"], len(jobs))
    finished = t.has("state", "finished") & (t["completion"] >= 0)
    job = t["job"]
    rounding = _rounding_share(c)[job] * need[job]
    sources = (("its runs do", work[job], finished, rounding), ("the jobs table says", t["work"], True, 0.0))
    for source, actual, in_scope, room in sources:
        wrong = in_scope & ~(np.abs(actual - need[job]) <= WORK_TOLERANCE * need[job] + room)
        template = f"{source} {{:g}} mini-batches; E D B is {{:g}}"
        findings.add_rows("M8", wrong, job, t["completion"], template, actual, need[job])


def _rounding_share(c: Columns) -> Floats:
    """The share of each job's work that changes of zeta may round away, a worker-µs each (as check_gangs allows)."""
    changes = np.zeros(len(c.scenario.jobs))
    job, colocated = (gang_intervals(c)[name].to_numpy() for name in ("job", "colocated"))
    if not colocated.any():
        return changes
    count, n_colocated = np.bincount(job, minlength=len(changes)), np.bincount(job[colocated], minlength=len(changes))
    mixed = (n_colocated > 0) & (n_colocated < count)
    # as in M8 on gangs, where each allocation of a job whose zeta changes may round twice
    changes[mixed] = 2 * count[mixed]
    work = c.scenario.true_work
    least: Floats = work.min(axis=1)
    return changes * np.ceil(work.max(axis=1) / least) / least


def _colocated(k: Chunks, findings: Findings, slack: int) -> None:
    """M10: `colocated` of a run is zeta of its job at its start."""
    t = k.c.chunks
    # wrong if zeta has the other value all through the tolerance, as it may change within it
    opposite = np.where(t["colocated"], 0, 1)
    wrong = k.colocation.always(t["job"], t["start"] - slack, t["start"] + slack, opposite)
    template = "colocated is {}; the job is {}wholly in the cloud"
    findings.add_rows(
        "M10", wrong, t["job"], t["start"],
        lambda i: template.format(bool(t["colocated"][i]), "" if opposite[i] else "not "),
    )  # fmt: skip


def _cloud_starts(k: Chunks, lags: Lags, findings: Findings, slack: int) -> None:
    """M22 in the cloud: a chunk starts when it arrives or may continue, and is not interrupted."""
    t, parts = k.c.chunks, dict[int, int]()
    cloud_rows = np.flatnonzero(t["lane"] < 0)
    if not len(cloud_rows):
        return
    chunks, job, start, arrival = (
        k.run_chunk[cloud_rows],
        t["job"][cloud_rows],
        t["start"][cloud_rows],
        _arrival_times(k, k.run_dispatch[cloud_rows]),
    )
    for chunk in lags.holds:
        runs = np.flatnonzero(chunks == chunk)
        runs = runs[np.argsort(start[runs], kind="stable")]
        begins = [begin for begin, _ in lags.service_windows(chunk, int(arrival[runs].min(initial=NEVER)), NEVER)]
        parts[chunk] = len(begins)
        arrival[runs[: len(begins)]] = begins[: len(runs)]
    max_runs = np.array([parts.get(chunk, 1) for chunk in chunks.tolist()]) if parts else 1
    # a cloud chunk is interrupted only by waits for slower chunks (M39), or as its server fails
    too_often = (k.n_runs[chunks] > max_runs) & ~np.isin(chunks, k.moved_chunks)
    delayed = np.flatnonzero((start > arrival + slack + k.c.late[job]) | too_often)
    template = "cloud chunk {} arrives at {} µs and starts at {} µs, in {} runs; it must start on arrival, in one run"
    for i in delayed[: findings.limit]:
        text = template.format(t["chunk"][cloud_rows[i]], arrival[i], start[i], k.n_runs[chunks[i]])
        findings.add("M22", int(job[i]), int(start[i]), text)


def _ranks(k: Chunks, findings: Findings) -> None:
    """M20: rank = D_j p_j with the announced p_j at zeta = 0, so that the largest gamma = 1/(D p) runs first."""
    d, scenario = k.c.dispatches, k.c.scenario
    expected = (scenario.jobs.chunks * scenario.chunk_time[:, 0])[d["job"]]
    wrong = d["rank"] != expected
    findings.add_rows("M20", wrong, d["job"], d["time"], "rank is {}; D p is {}", d["rank"], expected)
