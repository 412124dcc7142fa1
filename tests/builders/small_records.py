"""Small scenarios and hand-made records of them, for the tests of the verifier and of the metrics.

Three servers: ``s0`` with two gpu workers (lanes 0, 1) and a cpu PS, ``s1`` with a gpu and a tpu worker (lanes 2, 3), a
cpu and a mem PS, and the cloud. Every mini-batch takes 1 s and, where zeta = 0, 2 s more for communication:
2 * 8 * 125 MB / 1000 Mbit/s. Chunks have 10 MB.

=== ======= ====== ============ ============ ============ ======================
job arrival chunks mini-batches p at zeta=0  p at zeta=1  delay s0, s1, cloud
=== ======= ====== ============ ============ ============ ======================
a   0 s     2      4            12 s         4 s          1, 2, 5 s
b   3 s     1      2            6 s          2 s          1, 1, 5 s
c   4 s     2      3            9 s          3 s          1, 1, 5 s
d   10 s    1      1            3 s          1 s          1, 1, 5 s
=== ======= ====== ============ ============ ============ ======================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.record.schedule import Schedule, schema

S = 1_000_000
SERVERS = ["s0", "s1", "cloud"]
TIMES = {"start", "compute_from", "end", "time", "arrival", "admitted", "first_start", "completion", "jct"}
TIMES |= {"from", "to", "made_at", "broken_at"}

DISPATCH = {"lanes": {"preemptive": True, "rank": "haprf"}}
LIVE = {**DISPATCH, "world": "ray", "trained": {"a": [4, 4], "b": [2], "c": [3, 3]}}
"""As of a live run, whose servers may be lost; the last checkpoints hold everything."""
GANG = {"lanes": {"preemptive": True, "rank": "custom"}}


def scenario(physics: Physics | None = None, storage_mb: float | None = 30.0) -> Scenario:
    cluster = Cluster(
        [
            Server("s0", capacity={"worker:gpu": 2, "ps:cpu": 1}, storage_mb=storage_mb),
            Server("s1", capacity={"worker:gpu": 1, "worker:tpu": 1, "ps:cpu": 1, "ps:mem": 1}),
            Server("cloud", kind="cloud"),
        ]
    )
    rows = [("a", 0, 2, 4, 2), ("b", 3, 1, 2, 1), ("c", 4, 2, 3, 1), ("d", 10, 1, 1, 1)]
    jobs = [
        Job(
            id=name, arrival_s=arrival, epochs=1, chunks=chunks, minibatches=minibatches, minibatch_s=1.0,
            gradient_mb=125.0, bandwidth_mbps=1000.0, workers=chunks, chunk_mb=10.0,
            upload_s={"s0": 1.0, "s1": s1, "cloud": 5.0},
        )
        for name, arrival, chunks, minibatches, s1 in rows
    ]  # fmt: skip
    frame, given = job_table(jobs)
    return Scenario(cluster, Jobs(frame, cluster, given), physics or Physics())


def table(name: str, columns: str, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """A table of the record: `rows` give these columns, times in seconds; what is left out is null."""
    types = schema(SERVERS)[name]
    given = columns.split()
    full = [{c: dict(zip(given, row, strict=True)).get(c) for c in types} for row in rows]
    for row in full:
        row |= {c: round(time * S) for c in TIMES & set(row) if (time := row[c]) is not None}
    return pl.DataFrame(full, schema={c: pl.String() if c == "reason" else t for c, t in types.items()}).cast(types)


def _jobs(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    given = "job id arrival admitted first_start completion jct work state reason"
    rejected = (3, "d", 10, None, None, None, None, 1.0, "rejected", "no room")
    return table("jobs", given, [*rows, rejected])


def dispatched() -> Schedule:
    """A valid record of a dispatching policy.

    a sends a chunk to lane 0 and one to lane 1; both reach s0 at 1. b is sent to lane 0, is there at 4, has the smaller
    D p (6 s against 24 s) and displaces a's chunk, which goes on from 10 to 19. c is wholly in the cloud: 9 to 12.
    """
    runs = [
        (0, 0, "s0", 0, 1, 1, 1, 4, 1.0, False, True),
        (0, 1, "s0", 1, 1, 1, 1, 13, 4.0, False, False),
        (1, 0, "s0", 0, 1, 4, 4, 10, 2.0, False, False),
        (2, 0, "cloud", None, 1, 9, 9, 12, 3.0, True, False),
        (2, 1, "cloud", None, 1, 9, 9, 12, 3.0, True, False),
        (0, 0, "s0", 0, 1, 10, 10, 19, 3.0, False, False),
    ]
    decisions = [
        (0, 0, "dispatch", 0, 0, "s0", 24 * S, 0, 6.5, None),
        (0, 0, "dispatch", 1, 1, "s0", 24 * S, 0, 6.5, None),
        (3, 1, "dispatch", 0, 0, "s0", 6 * S, 1, 10.0, None),
        (4, 2, "dispatch", 0, None, "cloud", 18 * S, 0, 4.0, None),
        (4, 2, "dispatch", 1, None, "cloud", 18 * S, 0, 4.0, None),
        (10, 3, "reject", None, None, None, None, None, None, "no room"),
    ]
    ps = [(0, "s0", 0, 1, 1, 19), (1, "s1", 0, 1, 4, 10), (2, "cloud", None, 1, 9, 12)]
    uploads = [(0, "s0", 2, 20.0, 0, 1), (1, "s0", 1, 10.0, 3, 4), (2, "cloud", 2, 20.0, 4, 9)]
    jobs = [
        (0, "a", 0, 0, 1, 19, 19, 8.0, "finished", None),
        (1, "b", 3, 3, 4, 10, 7, 2.0, "finished", None),
        (2, "c", 4, 4, 9, 12, 8, 6.0, "finished", None),
    ]
    return Schedule(
        runs=table("runs", " ".join(schema(SERVERS)["runs"]), runs),
        ps=table("ps", "job server slot count start end", ps),
        uploads=table("uploads", "job to_server chunks mb start end", uploads),
        plans=table("plans", "job", []),
        prices=table("prices", "job", []),
        decisions=table("decisions", "time job verb chunk lane server rank postponed value reason", decisions),
        jobs=_jobs(jobs),
        outages=table("outages", "server start end reason", []),
    )


def gangs() -> Schedule:
    """A valid record of a gang policy.

    a holds both workers of s0 from 0, computes from 1, is suspended from 7 to 9 with half of its 24 worker-seconds
    done, and ends at 15. b has the gpu of s1 from 3 and computes from 4 to 10. c is in the cloud with its PS: two
    workers from 4, 3 s of work each from 9.
    """
    runs = [
        (0, None, "s0", None, 2, 0, 1, 7, 4.0, False, True),
        (1, None, "s1", None, 1, 3, 4, 10, 2.0, False, False),
        (2, None, "cloud", None, 2, 4, 9, 12, 6.0, True, False),
        (0, None, "s0", None, 2, 9, 9, 15, 4.0, False, False),
    ]
    decisions = [
        (0, 0, "allocate", "s0", 2, None),
        (3, 1, "reserve", "s1", None, None),
        (3, 1, "allocate", "s1", 1, None),
        (4, 2, "allocate", "cloud", 2, None),
        (7, 0, "suspend", None, None, None),
        (9, 0, "allocate", "s0", 2, None),
        (10, 3, "reject", None, None, "no room"),
    ]
    ps = [(0, "s0", 0, 1, 0, 7), (1, "s1", 0, 1, 3, 10), (2, "cloud", None, 1, 4, 12), (0, "s0", 0, 1, 9, 15)]
    uploads = [(0, "s0", 2, 20.0, 0, 1), (1, "s1", 1, 10.0, 3, 4), (2, "cloud", 2, 20.0, 4, 9)]
    jobs = [
        (0, "a", 0, 0, 0, 15, 15, 8.0, "finished", None),
        (1, "b", 3, 3, 3, 10, 7, 2.0, "finished", None),
        (2, "c", 4, 4, 4, 12, 8, 6.0, "finished", None),
    ]
    return Schedule(
        runs=table("runs", " ".join(schema(SERVERS)["runs"]), runs),
        ps=table("ps", "job server slot count start end", ps),
        uploads=table("uploads", "job to_server chunks mb start end", uploads),
        plans=table("plans", "job server workers ps from to made_at", [(1, "s1", 1, 1, 3, 10, 3)]),
        prices=table("prices", "job", []),
        decisions=table("decisions", "time job verb server workers reason", decisions),
        jobs=_jobs(jobs),
        outages=table("outages", "server start end reason", []),
    )


Change = Callable[[Schedule], Schedule]


def edit(table: str, row: int, **values: Any) -> Change:
    """Change these values in one row; times in seconds."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        rows = frame.with_columns(pl.col(c).cast(pl.String) for c in ("reason",) if c in frame.columns).to_dicts()
        rows[row] |= {c: round(v * S) if c in TIMES and v is not None else v for c, v in values.items()}
        types = {c: pl.String() if c == "reason" else t for c, t in frame.schema.items()}
        return replace(s, **{table: pl.DataFrame(rows, schema=types).cast(frame.schema)})

    return change


def drop(table: str, row: int) -> Change:
    return lambda s: replace(
        s, **{table: getattr(s, table).with_row_index().filter(pl.col("index") != row).drop("index")}
    )


def again(table: str, row: int, **values: Any) -> Change:
    """Append a copy of a row, changed."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        longer = replace(s, **{table: pl.concat([frame, frame[row]])})
        return edit(table, len(frame), **values)(longer)

    return change


def add(table: str, **values: Any) -> Change:
    """Append a row; times in seconds."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        row = {c: round(v * S) if c in TIMES and v is not None else v for c, v in values.items()}
        return replace(s, **{table: pl.concat([frame, pl.DataFrame([row], schema=frame.schema)])})

    return change


def both(*changes: Change) -> Change:
    def change(s: Schedule) -> Schedule:
        for one in changes:
            s = one(s)
        return s

    return change
