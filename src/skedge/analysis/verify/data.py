"""Rules on data: M16 (uploads) and M17 (storage)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, next_outage
from skedge.analysis.sweeps import in_groups
from skedge.core.jit import compiled
from skedge.core.model import Ints
from skedge.core.network import upload_delays
from skedge.core.size import UNLIMITED, megabytes
from skedge.core.ties import NOISE
from skedge.core.time import NEVER

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
    again = np.unique(d["job"][(d.frame["verb"] == "redispatch").to_numpy()])
    _brought_again(c, found, again)
    once = ~np.isin(d["job"], again)
    sent = _Chunks(d["job"][once], d["server"][once], d["time"][once])
    of_these = np.isin(u["job"], sent.job)
    uploads = _Chunks(u["job"][of_these], u["to_server"][of_these], u["start"][of_these])
    wrong = _brought(sent, uploads, u["chunks"][of_these], len(c.scenario.cluster.servers), slack)[: found.limit]
    for job, server, sent, brought, time in wrong:
        text = f"{sent} chunks are dispatched to server {server} at {time} µs"
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
    """Chunks sent or uploaded: job, server and time of each row."""

    job: Ints
    server: Ints
    time: Ints


def _brought(sent: _Chunks, uploads: _Chunks, chunks: Ints, servers: int, slack: int) -> Ints:
    """Table of (job, server, chunks sent, chunks uploaded from then, time) for which the two numbers differ.

    All chunks that a job sends to one server are sent at the same time. An upload at another time, or in several parts,
    is not that of the dispatch, and counts as -1.
    """
    key = np.concatenate([of.job.astype(np.int64) * servers + of.server for of in (uploads, sent)])
    places, place = np.unique(key, return_inverse=True)
    ups, sends = place[: len(chunks)], place[len(chunks) :]
    number, parts = np.bincount(sends, minlength=len(places)), np.bincount(ups, minlength=len(places))
    brought, time = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    time[ups] = uploads.time
    time[sends] = sent.time
    brought[ups] = chunks
    brought[parts > 1] = -1
    brought[ups[np.abs(uploads.time - time[ups]) > slack]] = -1
    wrong = number != brought
    return np.column_stack([places // servers, places % servers, number, brought, time])[wrong]


def check_storage(c: Columns, found: Findings) -> None:
    """M17: chunks are stored from dispatch until their job is complete, and fit the server's storage (ERRATA J19)."""
    limit = c.scenario.cluster.storage_bytes
    limited = limit != UNLIMITED
    if not limited.any():
        return
    d = c.dispatches
    completion = np.full(len(c.scenario.jobs), -1, np.int64)
    completion[c.jobs["job"]] = c.jobs["completion"]
    done = completion[d["job"]]
    end = np.where(done >= 0, np.maximum(done, d["time"]), NEVER)
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
