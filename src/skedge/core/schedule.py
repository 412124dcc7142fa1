"""The record of a run: what ran where and when, as tables (``docs/model.md``, section 6).

Times are integer microseconds. ``job`` is a row number of the ``jobs`` table, ``server`` the server's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .model import Ints

Columns = pl.Schema
"""Names and types of a table's columns."""

VERBS = (
    "dispatch",
    "allocate",
    "allocate_each",
    "suspend",
    "assign_ps",
    "reserve",
    "redispatch",
    "postpone",
    "reject",
    "fail",
    "transfer",
    "upload",
)
"""The kinds of decisions.

``allocate_each`` allocates to a job that is not a gang, ``upload`` brings data ahead of an allocation, and ``fail`` is
a fact that is recorded here.
"""

COPIES, SHARES = "copies", "shares"
"""Reasons of an ``upload``: a server receives all chunks, or those of its share of the workers."""

SUPPLIES = ("allocate", "allocate_each", "upload")
"""Decisions that bring data to servers, each for `workers` workers."""


STATES = ("finished", "rejected", "failed", "cancelled")
"""The final states of a job."""


def schema(servers: list[str]) -> dict[str, Columns]:
    """Columns and types of each table, for a cluster with these server names.

    runs
        One row per uninterrupted run: of one chunk on one lane (or on a cloud worker of its own: `lane` null), or of
        a gang on one server (`chunk` and `lane` null; if the job is not a gang, one row for the workers that begin
        together). The workers are held from ``start`` and train from ``compute_from``; `work` is in mini-batches;
        `preempted` is true if the run ended before the chunk or job was finished.
    ps
        One row per interval in which a job holds a PS slot; `slot` is the number of the slot on its server, null in
        the cloud. On servers with resources: `count` PSs on a server, `slot` null.
    uploads
        Chunks brought to a server; if `from_site` is not null they were moved from that site, instantly.
    plans
        Reservations, one row per server; `broken_at` is when the work was found to depart from the plan.
    decisions
        All orders. ``dispatch`` has one row per chunk: `value` is alpha [s], `rank` the order on the lane (smaller
        first), `postponed` the number of chunks that it delays. For other verbs `chunk` and `lane` are null.
        ``allocate``, ``allocate_each`` and ``upload`` have one row per server, with the number of `workers` allocated
        or supplied with data; on servers with resources ``assign_ps`` has one row per server with the number of PSs in
        `workers`. The reason of an ``upload`` is ``copies`` if the server receives all chunks, ``shares`` if it
        receives those of its workers. For ``allocate``, ``reserve``, ``postpone`` and ``reject``, `value` is the value
        of the job's best plan according to the policy (batch schedulers: 1 - cost, of which eta is the positive part;
        PD-ORS and OASiS: lambda, utility less cost), null if it gives none.
    prices
        From `made_at` on, a unit of `resource` costs `price` per slot on this server between `from` and `to`, as a
        result of the decision on `job`. Slots that no row covers keep their initial price (M29). Empty without prices.
    jobs
        One row per job; `state` is one of STATES, `reason` is why it was rejected or failed, `work` is in mini-batches.
    outages
        Intervals in which a server was out of service (lost or cordoned), `end` null if it still is; empty in a
        simulation.
    """
    server, i64, i32 = pl.Enum(servers), pl.Int64(), pl.Int32()
    text, flag, real = pl.String(), pl.Boolean(), pl.Float64()
    return {
        "runs": pl.Schema({
            "job": i32, "chunk": i32, "server": server, "lane": i32, "workers": i32,
            "start": i64, "compute_from": i64, "end": i64, "work": real, "colocated": flag, "preempted": flag,
        }),
        "ps": pl.Schema({"job": i32, "server": server, "slot": i32, "count": i32, "start": i64, "end": i64}),
        "uploads": pl.Schema({
            "job": i32, "from_site": text, "to_server": server, "chunks": i32, "mb": real, "start": i64, "end": i64,
        }),
        "plans": pl.Schema({
            "job": i32, "server": server, "workers": i32, "ps": i32,
            "from": i64, "to": i64, "made_at": i64, "broken_at": i64,
        }),
        "prices": pl.Schema({
            "made_at": i64, "job": i32, "server": server, "resource": text, "from": i64, "to": i64, "price": real,
        }),
        "decisions": pl.Schema({
            "time": i64, "job": i32, "verb": pl.Enum(list(VERBS)), "chunk": i32, "lane": i32, "server": server,
            "workers": i32, "rank": i64, "postponed": i32, "value": real, "reason": pl.Categorical(),
        }),
        "jobs": pl.Schema({
            "job": i32, "id": text, "arrival": i64, "admitted": i64, "first_start": i64, "completion": i64,
            "jct": i64, "work": real, "value": real, "state": pl.Enum(list(STATES)), "reason": text,
        }),
        "outages": pl.Schema({"server": server, "start": i64, "end": i64, "reason": text}),
    }  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """The tables of one run (:func:`schema`)."""

    runs: pl.DataFrame
    ps: pl.DataFrame
    uploads: pl.DataFrame
    plans: pl.DataFrame
    prices: pl.DataFrame
    decisions: pl.DataFrame
    jobs: pl.DataFrame
    outages: pl.DataFrame

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(f.name for f in fields(Schedule))

    def tables(self) -> Mapping[str, pl.DataFrame]:
        """The tables by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What has been derived from the tables, by name; it is not part of the record."""
        return {}

    def __getstate__(self) -> Mapping[str, pl.DataFrame]:
        """Pickle the tables alone."""
        return self.tables()


def server_column(servers: Ints | NDArray[np.int32], ids: list[str]) -> pl.Series:
    """Server numbers as names; -1 becomes null."""
    names = pl.Series(ids, dtype=pl.Enum(ids))
    return names.gather(pl.Series(servers, dtype=pl.Int64).replace(-1, None))
