"""Rule M16 for gangs: their uploads are exactly those that allocations and ordered uploads need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import polars as pl

from .columns import Columns, gang_orders
from .rules import Findings

Held = dict[int, int]
"""By server: the workers whose data are there."""

_Upload = tuple[int, int, int, int]
"""(job, server, start [µs], chunks)."""

COPIES = "copies"
"""The reason of an upload that brings all chunks to each server."""


def check_supplies(c: Columns, found: Findings) -> None:
    """Follow the data of each job that is not dispatched, order by order, and compare the uploads that follow."""
    if c.scenario.cluster.transfer_cost is not None:
        return  # M31
    sent = np.zeros(len(c.scenario.jobs), bool)
    sent[c.dispatches["job"]] = True
    u = c.uploads
    rows = np.flatnonzero(~sent[u["job"]])
    brought = Counter(zip(*(u[name][rows].tolist() for name in ("job", "to_server", "start", "chunks")), strict=True))
    needed = Counter(_needed(c))
    for job, server, start, chunks in sorted((brought - needed).keys())[: found.limit]:
        found.add("M16", job, start, f"{chunks} chunks are brought to server {server}; no order needs them")
    for job, server, start, chunks in sorted((needed - brought).keys())[: found.limit]:
        found.add("M16", job, start, f"an order needs {chunks} chunks on server {server}; they are not brought")


def _needed(c: Columns) -> Iterator[_Upload]:
    """The uploads that follow from the orders on gangs, job by job."""
    chunks, lost = c.scenario.jobs.chunks.tolist(), _losses(c)
    kept = getattr(c.scenario.physics, "data", "last_place") == "kept"
    orders = gang_orders(c).filter(~pl.col("verb").is_in(["suspend", "assign_ps"])).with_columns(
        copies=(pl.col("reason") == COPIES) & (pl.col("verb") == "upload")
    )  # fmt: skip
    table = orders.select("job", "order", "time", "verb", "copies", "server", "workers").rows()
    for job, of_job in groupby(table, itemgetter(0)):
        there: Held = {}
        before = -1
        for (time, verb, copies), rows in groupby(of_job, itemgetter(2, 3, 4)):
            for _, one in groupby(rows, itemgetter(1)):
                where = [(row[5], row[6]) for row in one]
                for server, when in lost:
                    if before < when <= time:
                        there.pop(server, None)
                before = time
                held = {} if verb == "upload" and not kept else there
                yield from _brought(job, time, chunks[job], where, held, copies=copies)
                there = {**there, **_most(there, where)} if kept else dict(where)


def _most(there: Held, where: list[tuple[int, int]]) -> Held:
    return {server: max(n, there.get(server, 0)) for server, n in where}


def _brought(
    job: int, time: int, chunks: int, where: list[tuple[int, int]], there: Held, *, copies: bool
) -> Iterator[_Upload]:
    """A job's chunks are spread evenly over its workers; those of workers new on a server are brought there."""
    given, total = 0, sum(n for _, n in where)
    for server, n in where:
        held = min(n, there.get(server, 0))
        first, last = chunks * (given + held) // total, chunks * (given + n) // total
        given += n
        if copies:
            yield job, server, time, chunks
        elif last > first:
            yield job, server, time, last - first


def _losses(c: Columns) -> list[tuple[int, int]]:
    """(server, when it went out of service [µs]): what lay there is lost."""
    return list(zip(c.outages["server"].tolist(), c.outages["start"].tolist(), strict=True))
