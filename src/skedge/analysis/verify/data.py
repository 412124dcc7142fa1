"""Rules on data: M16 (uploads) and M17 (storage)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Array, Columns, dispatched_jobs, end_times, next_outage
from skedge.analysis.row_groups import Groups, in_groups
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.size import UNLIMITED, megabytes
from skedge.core.model.ties import NOISE
from skedge.platform.jit import compiled, unlocked

from .matching import surplus
from .rules import Findings


def check_uploads(c: Columns, findings: Findings, slack: int) -> None:
    """M16: each upload has the delay and the bytes of its chunks, and exactly the dispatched chunks are uploaded."""
    t, scenario = c.uploads, c.scenario
    took = t["end"] - t["start"]
    delay = upload_delays(scenario.delays, t["job"], t["to_server"])
    slow = np.abs(took - delay) > slack
    findings.add_rows(
        "M16", slow, t["job"], t["start"], "an upload takes {} µs; the upload delay is {} µs", took, delay
    )
    mb = t["chunks"] * scenario.jobs.chunk_mb[t["job"]]
    # negated, so that no number (NaN) is wrong too
    heavy = ~(np.abs(t["mb"] - mb) <= NOISE * mb)
    findings.add_rows("M16", heavy, t["job"], t["start"], "an upload has {} MB; its chunks have {} MB", t["mb"], mb)
    early = t["start"] < scenario.jobs.arrival[t["job"]] - slack
    findings.add_rows("M16", early, t["job"], t["start"], "an upload starts before the job arrives")
    _dispatched_uploads(c, findings, slack)


def _dispatched_uploads(c: Columns, findings: Findings, slack: int) -> None:
    """Compare the uploads of dispatched jobs with the dispatches: each chunk is uploaded once, from its dispatch on."""
    d, u = c.dispatches, c.uploads
    if not len(d):
        return
    repeated_jobs = np.unique(d["job"][d.has("verb", "redispatch")])
    _repeated_uploads(c, findings, repeated_jobs)
    single = dispatched_jobs(c)
    # some of their chunks are uploaded to a server more than once
    single[repeated_jobs] = False
    dispatches = _counts_by_job(d["job"], d["server"], d["time"], np.ones(len(d), np.int8), single)
    uploads = _counts_by_job(u["job"], u["to_server"], u["start"], u["chunks"], single)
    servers, wrong = np.zeros((len(c.scenario.cluster.servers), 4), np.int64), np.zeros((findings.limit, 5), np.int64)
    count = _mismatches(dispatches, uploads, slack, servers, wrong)
    # by job, in whichever order the sweep met the servers
    for job, server, n_chunks, brought, time in sorted(wrong[:count].tolist()):
        text = f"{n_chunks} chunks are dispatched to server {server} at {time} µs"
        findings.add("M16", int(job), int(time), f"{text}; one upload from then brings {brought}")


def _repeated_uploads(c: Columns, findings: Findings, jobs: Ints) -> None:
    """Compare the two for jobs with re-dispatched chunks: a server may receive some of them twice."""
    if not len(jobs):
        return
    d, u = c.dispatches, c.uploads
    dispatch_rows, upload_rows = np.flatnonzero(np.isin(d["job"], jobs)), np.flatnonzero(np.isin(u["job"], jobs))
    required = pl.DataFrame({name: d[name][dispatch_rows] for name in ("job", "time", "server")}).with_columns(n=1)
    columns = {"job": "job", "time": "start", "server": "to_server", "n": "chunks"}
    uploads = pl.DataFrame({name: u[column][upload_rows] for name, column in columns.items()})
    for job, time, server, n in surplus(required, uploads).head(findings.limit).iter_rows():
        text = f"{n} more chunks are dispatched to server {server} at {time} µs than its uploads from then bring"
        findings.add("M16", job, time, text)


class _ChunkCounts(NamedTuple):
    """Chunks sent or uploaded, in rows by job, those of job j from ``first[j]`` on: server, time and number."""

    first: Ints
    server: Ints
    time: Ints
    n: Ints


def _counts_by_job(job: Array, server: Array, time: Array, n: Array, selected_jobs: Bools) -> _ChunkCounts:
    """The rows of `selected_jobs` jobs."""
    rows = Groups(np.where(selected_jobs[job], job, np.int32(-1)), time, len(selected_jobs))
    return _ChunkCounts(rows.first, rows.take(server), rows.take(time), rows.take(n))


@unlocked
def _mismatches(dispatches: _ChunkCounts, uploads: _ChunkCounts, slack: int, servers: Ints, mismatches: Ints) -> int:
    """Fill `mismatches` with (job, server, chunks sent, chunks uploaded from then, time); returns their number.

    All chunks that a job sends to one server are sent at the same time. An upload at another time, or in several parts,
    is not that of the dispatch, and counts as -1. Columns of `servers` are 0: chunks sent, parts uploaded, chunks
    uploaded, time.
    """
    n = 0
    for job in range(len(dispatches.first) - 1):
        first, end = dispatches.first[job], dispatches.first[job + 1]
        for i in range(first, end):
            servers[dispatches.server[i], 0] += dispatches.n[i]
            servers[dispatches.server[i], 3] = dispatches.time[i]
        begin, last = uploads.first[job], uploads.first[job + 1]
        for i in range(begin, last):
            counts = servers[uploads.server[i]]
            counts[1] += 1
            off_time = counts[0] > 0 and abs(uploads.time[i] - counts[3]) > slack
            counts[2] = -1 if off_time or counts[1] > 1 else uploads.n[i]
            if counts[0] == 0:
                counts[3] = uploads.time[i]
        # each server that either table names is compared once, as its counts are 0 afterwards
        for i in range(begin, last + end - first):
            server = uploads.server[i] if i < last else dispatches.server[first + i - last]
            counts = servers[server]
            if counts[0] != counts[2] and n < len(mismatches):
                for i_field, value in enumerate((job, server, counts[0], counts[2], counts[3])):
                    mismatches[n, i_field] = value
                n += 1
            counts[:] = 0
    return n


def check_storage(c: Columns, findings: Findings) -> None:
    """M17: chunks are stored from dispatch until their job ends, and fit the server's storage (ERRATA J19)."""
    limit = c.scenario.cluster.storage_bytes
    limited = limit != UNLIMITED
    if not limited.any():
        return
    d = c.dispatches
    end = np.maximum(end_times(c)[d["job"]], d["time"])
    # a server that goes out of service loses its data
    end = np.minimum(end, next_outage(c, d["server"], d["time"]))
    # servers without a limit are in no group
    place = np.where(limited[d["server"]], d["server"], -1).astype(np.int32)
    arrivals, first = in_groups(place, d["time"], len(limit))
    departures, _ = in_groups(place, end, len(limit))
    size = c.scenario.jobs.chunk_bytes[d["job"]]
    full, loads = _storage_excess((arrivals, departures, first), d["time"], end, size, limit, findings.limit)
    for row, stored in zip(full, loads, strict=True):
        server, time = int(d["server"][row]), int(d["time"][row])
        stored_mb, limit_mb = megabytes(stored), megabytes(limit[server])
        text = f"server {server} stores {stored_mb:.15g} MB at {time} µs; its storage is {limit_mb:.15g} MB"
        findings.add("M17", int(d["job"][row]), time, text)


@compiled
def _storage_excess(
    by_server: tuple[Ints, Ints, Ints], start: Ints, end: Ints, size: Ints, limit: Ints, room: int
) -> tuple[Ints, Ints]:
    """Rows that make a server hold more than its `limit` [bytes], and what it then holds; departures precede arrivals.

    `by_server`: rows of each server by `start` and by `end`, and the start of each server among them.
    """
    arrivals, departures, first = by_server
    full, amount, n = np.empty(room, np.int64), np.empty(room, np.int64), 0
    for server in range(len(limit)):
        load, k = 0, first[server]
        for i in arrivals[first[server] : first[server + 1]]:
            # what leaves at this time makes room for what arrives
            while k < first[server + 1] and end[departures[k]] <= start[i]:
                load -= size[departures[k]]
                k += 1
            load += size[i]
            if load > limit[server] and n < room:
                full[n], amount[n] = i, load
                n += 1
    return full[:n], amount[:n]
