"""Rules on data: M16 (uploads) and M17 (storage)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Array, Columns, end_times, next_outage
from skedge.analysis.sweeps import Groups, in_groups
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.size import UNLIMITED, megabytes
from skedge.core.model.ties import NOISE
from skedge.platform.jit import compiled, unlocked

from .rules import Findings


def check_uploads(c: Columns, found: Findings, slack: int) -> None:
    """M16: each upload has the delay and the bytes of its chunks, and exactly the dispatched chunks are uploaded."""
    t, scenario = c.uploads, c.scenario
    took = t["end"] - t["start"]
    delay = upload_delays(scenario.delays, t["job"], t["to_server"])
    slow = np.abs(took - delay) > slack
    found.rows(
        "M16", slow, t["job"], t["start"], lambda i: f"an upload takes {took[i]} µs; the upload delay is {delay[i]} µs"
    )
    mb = t["chunks"] * scenario.jobs.chunk_mb[t["job"]]
    heavy = ~(np.abs(t["mb"] - mb) <= NOISE * mb)
    found.rows(
        "M16", heavy, t["job"], t["start"], lambda i: f"an upload has {t['mb'][i]} MB; its chunks have {mb[i]} MB"
    )
    early = t["start"] < scenario.jobs.arrival[t["job"]] - slack
    found.rows("M16", early, t["job"], t["start"], lambda _: "an upload starts before the job arrives")
    _complete(c, found, slack)


def _complete(c: Columns, found: Findings, slack: int) -> None:
    """Compare the uploads of dispatched jobs with the dispatches: each chunk is uploaded once, from its dispatch on."""
    d, u = c.dispatches, c.uploads
    if not len(d):
        return
    again = np.unique(d["job"][d.has("verb", "redispatch")])
    _brought_again(c, found, again)
    once = np.zeros(len(c.scenario.jobs), bool)
    once[d["job"]] = True
    once[again] = False
    sent = _by_job(d["job"], d["server"], d["time"], np.ones(len(d), np.int8), once)
    uploads = _by_job(u["job"], u["to_server"], u["start"], u["chunks"], once)
    servers, wrong = np.zeros((len(c.scenario.cluster.servers), 4), np.int64), np.zeros((found.limit, 5), np.int64)
    count = _mismatches(sent, uploads, slack, servers, wrong)
    for job, server, number, brought, time in sorted(wrong[:count].tolist()):
        text = f"{number} chunks are dispatched to server {server} at {time} µs"
        found.add("M16", int(job), int(time), f"{text}; one upload from then brings {brought}")


def _brought_again(c: Columns, found: Findings, jobs: Ints) -> None:
    """Compare the two for jobs with re-dispatched chunks: a server may receive some of them twice."""
    if not len(jobs):
        return
    d, u = c.dispatches, c.uploads
    sent, brought = np.flatnonzero(np.isin(d["job"], jobs)), np.flatnonzero(np.isin(u["job"], jobs))
    needs = {"job": d["job"][sent], "server": d["server"][sent], "time": d["time"][sent], "n": np.ones(len(sent))}
    has = {name: u[at][brought] for name, at in (("job", "job"), ("server", "to_server"), ("time", "start"))}
    has["n"] = -u["chunks"][brought]
    both = pl.concat([pl.DataFrame(part).cast(pl.Int64) for part in (needs, has)])
    wrong = both.group_by("job", "server", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0).sort("job", "time")
    for job, server, time, n in wrong.head(found.limit).iter_rows():
        text = f"{n} more chunks are dispatched to server {server} at {time} µs than its uploads from then bring"
        found.add("M16", job, time, text)


class _Chunks(NamedTuple):
    """Chunks sent or uploaded, in rows by job, those of job j from ``first[j]`` on: server, time and number."""

    first: Ints
    server: Ints
    time: Ints
    n: Ints


def _by_job(job: Array, server: Array, time: Array, n: Array, these: Bools) -> _Chunks:
    """The rows of `these` jobs."""
    rows = Groups(np.where(these[job], job, np.int32(-1)), time, len(these))
    return _Chunks(rows.first, rows.take(server), rows.take(time), rows.take(n))


@unlocked
def _mismatches(sent: _Chunks, uploads: _Chunks, slack: int, servers: Ints, found: Ints) -> int:
    """Fill `found` with (job, server, chunks sent, chunks uploaded from then, time) where they differ; returns rows.

    All chunks that a job sends to one server are sent at the same time. An upload at another time, or in several parts,
    is not that of the dispatch, and counts as -1. Columns of `servers` are 0: chunks sent, parts uploaded, chunks
    uploaded, time.
    """
    n = 0
    for job in range(len(sent.first) - 1):
        first, end = sent.first[job], sent.first[job + 1]
        for i in range(first, end):
            servers[sent.server[i], 0] += sent.n[i]
            servers[sent.server[i], 3] = sent.time[i]
        begin, last = uploads.first[job], uploads.first[job + 1]
        for i in range(begin, last):
            at = servers[uploads.server[i]]
            at[1] += 1
            late = at[0] > 0 and abs(uploads.time[i] - at[3]) > slack
            at[2] = -1 if late or at[1] > 1 else uploads.n[i]
            if at[0] == 0:
                at[3] = uploads.time[i]
        for i in range(begin, last + end - first):
            server = uploads.server[i] if i < last else sent.server[first + i - last]
            at = servers[server]
            if at[0] != at[2] and n < len(found):
                found[n, 0], found[n, 1], found[n, 2], found[n, 3], found[n, 4] = job, server, at[0], at[2], at[3]
                n += 1
            at[:] = 0
    return n


def check_storage(c: Columns, found: Findings) -> None:
    """M17: chunks are stored from dispatch until their job ends, and fit the server's storage (ERRATA J19)."""
    limit = c.scenario.cluster.storage_bytes
    limited = limit != UNLIMITED
    if not limited.any():
        return
    d = c.dispatches
    end = np.maximum(end_times(c)[d["job"]], d["time"])
    end = np.minimum(end, next_outage(c, d["server"], d["time"]))
    where = np.where(limited[d["server"]], d["server"], -1).astype(np.int32)
    coming, first = in_groups(where, d["time"], len(limit))
    going, _ = in_groups(where, end, len(limit))
    size = c.scenario.jobs.chunk_bytes[d["job"]]
    full, held = _overfull((coming, going, first), d["time"], end, size, limit, found.limit)
    for row, stored in zip(full, held, strict=True):
        server, time = int(d["server"][row]), int(d["time"][row])
        has, room = megabytes(stored), megabytes(limit[server])
        text = f"server {server} stores {has:.15g} MB at {time} µs; its storage is {room:.15g} MB"
        found.add("M17", int(d["job"][row]), time, text)


@compiled
def _overfull(
    by_server: tuple[Ints, Ints, Ints], start: Ints, end: Ints, size: Ints, limit: Ints, room: int
) -> tuple[Ints, Ints]:
    """Rows that make a server hold more than its `limit` [bytes], and what it then holds; departures precede arrivals.

    `by_server`: rows of each server by `start` and by `end`, and the start of each server among them.
    """
    coming, going, first = by_server
    full, amount, n = np.empty(room, np.int64), np.empty(room, np.int64), 0
    for server in range(len(limit)):
        held, k = 0, first[server]
        for i in coming[first[server] : first[server + 1]]:
            while k < first[server + 1] and end[going[k]] <= start[i]:
                held -= size[going[k]]
                k += 1
            held += size[i]
            if held > limit[server] and n < room:
                full[n], amount[n] = i, held
                n += 1
    return full[:n], amount[:n]
