"""The record of a run: what ran where and when, as tables (``docs/model.md``, section 6).

Times are integer microseconds. ``job`` is a row number of the ``jobs`` table, ``server`` the server's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import polars as pl

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
"""What a decision can be.

``allocate_each`` allocates to a job that is no gang, ``upload`` brings data ahead of an allocation, ``fail`` is a fact
that stands here.
"""

COPIES, SHARES = "copies", "shares"
"""Reasons of an ``upload``: a server gets all chunks, or those of its share of the workers."""

SUPPLIES = ("allocate", "allocate_each", "upload")
"""Decisions that bring data to servers, for `workers` workers each."""


STATES = ("finished", "rejected", "failed", "cancelled")
"""How a job can leave."""


def schema(servers: list[str]) -> dict[str, Columns]:
    """Columns and types of every table, for a cluster with these server names.

    runs
        One row per uninterrupted run: of one chunk on one lane (or on a cloud worker of its own: `lane` null), or of
        a gang on one server (`chunk` and `lane` null; a row for those that begin together where it is no gang).
        ``start`` is when the workers are held, ``compute_from`` when training begins; `work` is in mini-batches;
        `preempted`: ended before the chunk or job was finished.
    ps
        One row per time in which a job holds a PS slot; `slot` is the number of the slot on its server, null in the
        cloud. On servers with resources `count` PSs of a server, in no slot.
    uploads
        Chunks brought to a server; where `from_site` is not null they were moved from that site, at once.
    plans
        Reservations, a row per server; `broken_at` is when the work was seen to depart from the plan.
    decisions
        Every order; for ``dispatch`` one row per chunk: `value` is alpha [s], `rank` the lane's order (smaller first),
        `postponed` the number of chunks that complete later because of it. For the others `chunk` and
        `lane` are null. ``allocate``, ``allocate_each`` and ``upload`` have one row per server, with the `workers` that
        it gives or brings data for; on servers with resources
        ``assign_ps`` has one with the number of PSs in `workers`.
        The reason of an ``upload`` is ``copies`` where the server gets all chunks, ``shares`` where it gets those of
        its workers. For ``allocate``, ``reserve``, ``postpone`` and ``reject`` `value` is what the policy found the
        job's best plan worth (batch schedulers: 1 - cost, of which eta is the positive part; PD-ORS and OASiS: lambda,
        utility less cost), null if it does not say.
    prices
        From `made_at` on, a unit of `resource` costs `price` per slot on this server between `from` and `to`, because
        of the decision on `job`; what no row covers costs what it cost at first (M29). Empty where there are no prices.
    jobs
        One row per job; `state` is one of STATES, `reason` says why it was rejected or failed, `work` in mini-batches.
    outages
        Times in which a server was out of service (lost, or cordoned), `end` null while it still is; empty in a
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


def server_column(servers: Ints, ids: list[str]) -> pl.Series:
    """Server numbers as names; -1 becomes null."""
    names = pl.Series(ids, dtype=pl.Enum(ids))
    return names.gather(pl.Series(servers, dtype=pl.Int64).replace(-1, None))
