"""Rules on dispatched chunks: M3, M5 to M8, M10, M20, and M22 in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Array, Columns, Table, failure_times, gang_intervals, next_outage, ready_times
from skedge.analysis.sweeps import bounds, counts, overlapping, sums, totals
from skedge.analysis.zeta import Zeta
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.time import NEVER

from .lag import Lags
from .rules import MOST_WORK_ERROR, Findings, Say

Mask = NDArray[np.bool_]


class Chunks:
    """The dispatched chunks, each with its decision and its runs.

    Chunks are numbered through all jobs: chunk d of job j has number ``first_chunk[j] + d``.

    Attributes
    ----------
    run, sent
        Number of the chunk of each chunk run and of each dispatch row.
    row, leads
        First dispatch row of each chunk, -1 for none; whether each dispatch row is that of its chunk.
    run_row
        Dispatch row that each chunk run belongs to: a chunk is dispatched again if its server goes out of service.
    again, left
        By dispatch row: whether it is a re-dispatch, and when the chunk left because its server went out of service;
        NEVER if it did not.
    ready
        Arrival of the chunk of each dispatch row at its server [µs].
    zeta
        1 while a job is wholly in the cloud.
    last, runs, work, times
        Last end, number of runs and mini-batches of each chunk; how long it runs [µs] and how often it is displaced.
    """

    def __init__(self, c: Columns) -> None:
        self.c, self.count = c, int(c.first_chunk[-1])
        first: Array = c.first_chunk.astype(np.int32 if self.count < 2**31 else np.int64)
        self.run: Array = first[c.chunks["job"]] + c.chunks["chunk"]
        self.sent: Array = first[c.dispatches["job"]] + c.dispatches["chunk"]
        self.row = np.full(self.count, -1, np.int32)
        rows = np.arange(len(self.sent), dtype=np.int32)
        self.row[self.sent[::-1]] = rows[::-1]
        self.leads: Mask = self.row[self.sent] == rows
        self.ready = ready_times(c)
        self.zeta = Zeta(c)
        _, self.last, runs = bounds(self.run, c.chunks["start"], c.chunks["end"], self.count)
        self.runs: Array = runs.astype(np.int32)
        self.work = sums(self.run, c.chunks["work"], self.count)
        self.times = totals(self.run, c.chunks["start"], c.chunks["end"], c.chunks["preempted"], self.count)
        self.run_row = self.row[self.run]
        self.again = c.dispatches.has("verb", "redispatch")
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

    def parts(self) -> Iterator[Chunks]:
        """The same, with a part of the chunk runs at a time: :meth:`~skedge.analysis.columns.Table.parts`."""
        for first, chunks in self.c.chunks.parts():
            part, end = copy(self), first + len(chunks)
            part.c = replace(self.c, chunks=chunks)
            part.run, part.run_row = self.run[first:end], self.run_row[first:end]
            yield part

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
    for _, sent in k.c.dispatches.parts():
        _types(k.c, sent, "time", found)
    _one_worker(k, found, slack)
    _once_each(k, found)
    _moved_for_a_reason(k, found)
    _work(k, found, slack)
    _cloud_starts(k, lags, found, slack)
    for part in k.parts():
        _types(part.c, part.c.chunks, "start", found)
        _no_migration(part, found)
        _not_early(part, found, slack)
        _colocated(part, found, slack)
    if haprf:
        _ranks(k, found)


def _types(c: Columns, t: Table, time: str, found: Findings) -> None:
    cluster, jobs = c.scenario.cluster, c.scenario.jobs
    if cluster.lanes:
        kind = np.where(t["lane"] >= 0, cluster.lane_type[t["lane"]], jobs.worker_type[t["job"]])
        found.rows("M3", kind != jobs.worker_type[t["job"]], t["job"], t[time], _other_type(c, t["lane"]))


def _other_type(c: Columns, lane: Ints) -> Say:
    cluster = c.scenario.cluster
    return lambda i: f"lane {lane[i]} has type {cluster.worker_types[cluster.lane_type[lane[i]]]!r}, not the job's"


def _one_worker(k: Chunks, found: Findings, slack: int) -> None:
    """M5: no two runs of a chunk overlap, so a job has at most D_j workers."""
    t = k.c.chunks
    rows = overlapping(k.run, t["start"], t["end"], k.count, slack)[: found.limit]
    for chunk, job, start in zip(t["chunk"][rows], t["job"][rows], t["start"][rows], strict=True):
        found.add("M5", int(job), int(start), f"chunk {chunk} runs on two workers at {start} µs")


def _once_each(k: Chunks, found: Findings) -> None:
    """M6: a dispatched job's chunks are each dispatched once, and it holds no gang."""
    d, jobs = k.c.dispatches, k.c.scenario.jobs
    found.rows(
        "M6", ~(k.leads | k.again), d["job"], d["time"], lambda i: f"chunk {d['chunk'][i]} is dispatched a second time"
    )
    sent = counts(d["job"], len(jobs)) > 0
    missing = np.flatnonzero(np.repeat(sent, jobs.chunks) & (k.row < 0))[: found.limit]
    for chunk, job in zip(missing, k.job(missing), strict=True):
        number = chunk - k.c.first_chunk[job]
        found.add("M6", int(job), int(jobs.arrival[job]), f"chunk {number} is never dispatched; others of the job are")
    mixed = np.isin(k.c.gangs["job"], np.flatnonzero(sent))
    found.rows(
        "M6", mixed, k.c.gangs["job"], k.c.gangs["start"], lambda _: "is dispatched and also holds workers as a gang"
    )


def _no_migration(k: Chunks, found: Findings) -> None:
    """M6: a chunk runs on the lane to which it was dispatched."""
    d, t, row = k.c.dispatches, k.c.chunks, k.run_row
    stray = row < 0
    if len(d):
        stray = stray | (t["lane"] != d["lane"][row]) | (t["server"] != d["server"][row])
    found.rows("M6", stray, t["job"], t["start"], lambda i: _stray(k, i))


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
    say = "chunk {} is redispatched, but was not dispatched before"
    found.rows("M6", k.again & k.leads, d["job"], d["time"], lambda i: say.format(d["chunk"][i]))
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


def _ready_at(k: Chunks, row: Array) -> Ints:
    """Arrival of the chunks of dispatch rows [µs]; 0 where the row is -1, which stands for none."""
    return np.where(row >= 0, k.ready[row], 0) if len(k.ready) else np.zeros(len(row), np.int64)


def _not_early(k: Chunks, found: Findings, slack: int) -> None:
    t, ready = k.c.chunks, _ready_at(k, k.run_row)
    early = t["start"] < ready - slack
    say = "chunk {} starts at {} µs; its data arrive at {} µs"
    found.rows("M7", early, t["job"], t["start"], lambda i: say.format(t["chunk"][i], t["start"][i], ready[i]))


def _work(k: Chunks, found: Findings, slack: int) -> None:
    """M8: the runs of a dispatched chunk last p_j(zeta) and one checkpoint overhead for each preemption."""
    physics, scenario = k.c.scenario.physics, k.c.scenario
    done, displaced = k.times
    if changed := k.zeta.changed():
        done = done.copy()
    for job in changed:
        _convert(k, job, done)
    each = scenario.true_chunk_time[np.arange(len(scenario.jobs)), k.zeta.last]
    over = done - np.repeat(each, scenario.jobs.chunks)
    if physics.checkpoint_overhead:
        over -= physics.checkpoint_overhead * displaced
    if slack:  # live, the sum over chunks that take turns is exact, but their shares are only as exact as message times
        together = k.together()
        over = (np.bincount(together, over, k.count) / np.bincount(together, minlength=k.count).clip(1))[together]
    room = slack + k.c.late
    room[changed] += physics.step  # what is left at a change is rounded up to whole steps
    wrong = over > np.repeat(room, scenario.jobs.chunks)
    wrong |= over < -slack
    wrong &= (k.row >= 0) & ~np.repeat(failure_times(k.c) < NEVER, scenario.jobs.chunks)
    chunks = np.flatnonzero(wrong)[: found.limit]
    for chunk, job in zip(chunks, k.job(chunks), strict=True):
        need = each[job] + physics.checkpoint_overhead * displaced[chunk]
        text = f"chunk {chunk - k.c.first_chunk[job]} is trained for {done[chunk]} µs; it needs {need} µs"
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
    done = sums(c.runs["job"], c.runs["work"], len(jobs))
    finished = t.has("state", "finished") & (t["completion"] >= 0)
    job = t["job"]
    rounding = _rounded_away(c)[job] * need[job]
    sums_of = (("its runs do", done[job], finished, rounding), ("the jobs table says", t["work"], True, 0.0))
    for what, got, of, room in sums_of:
        wrong = of & ~(np.abs(got - need[job]) <= MOST_WORK_ERROR * need[job] + room)
        found.rows("M8", wrong, job, t["completion"], _batches(what, got, need[job]))


def _rounded_away(c: Columns) -> Floats:
    """The share of each job's work that changes of zeta may round away, a worker-µs each (as check_gangs allows)."""
    of, work = gang_intervals(c), c.scenario.true_work
    colocated = of.group_by("job").agg(free=pl.col("colocated").sum(), all=pl.len())
    changes = np.zeros(len(c.scenario.jobs))
    mixed = colocated.filter(pl.col("free") > 0, pl.col("free") < pl.col("all"))
    changes[mixed["job"].to_numpy()] = 2 * mixed["all"].to_numpy()
    if not len(mixed):
        return changes
    least: Floats = work.min(axis=1)
    return changes * np.ceil(work.max(axis=1) / least) / least


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
    t, parts = k.c.chunks, dict[int, int]()
    away = np.flatnonzero(t["lane"] < 0)
    if not len(away):
        return
    chunks, job, start, ready = k.run[away], t["job"][away], t["start"][away], _ready_at(k, k.run_row[away])
    for chunk in lags.holds:
        runs = np.flatnonzero(chunks == chunk)
        runs = runs[np.argsort(start[runs], kind="stable")]
        begins = [begin for begin, _ in lags.split(chunk, int(ready[runs].min(initial=NEVER)), NEVER)]
        parts[chunk] = len(begins)
        ready[runs[: len(begins)]] = begins[: len(runs)]
    most = np.array([parts.get(chunk, 1) for chunk in chunks.tolist()]) if parts else 1
    often = (k.runs[chunks] > most) & ~np.isin(chunks, k.moved)
    late = np.flatnonzero((start > ready + slack + k.c.late[job]) | often)
    say = "cloud chunk {} arrives at {} µs and starts at {} µs, in {} runs; it must start on arrival, in one run"
    for i in late[: found.limit]:
        text = say.format(t["chunk"][away[i]], ready[i], start[i], k.runs[chunks[i]])
        found.add("M22", int(job[i]), int(start[i]), text)


def _ranks(k: Chunks, found: Findings) -> None:
    """M20: rank = D_j p_j with the announced p_j at zeta = 0, so that the largest gamma = 1/(D p) runs first."""
    d, scenario = k.c.dispatches, k.c.scenario
    right = (scenario.jobs.chunks * scenario.chunk_time[:, 0])[d["job"]]
    wrong = d["rank"] != right
    found.rows("M20", wrong, d["job"], d["time"], lambda i: f"rank is {d['rank'][i]}; D p is {right[i]}")
