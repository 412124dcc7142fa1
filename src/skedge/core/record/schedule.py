"""The record of a run: what ran where and when, as tables.

The meaning of rows and columns is in :mod:`skedge.core.record.record_fields`.

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

from skedge.core.model.cluster import Ints

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
a fact that is recorded here. A ``dispatch`` has a row per chunk; ``allocate``, ``allocate_each``, ``upload`` and, on
servers with resources, ``assign_ps`` have a row per server.
"""

COPIES, SHARES = "copies", "shares"
"""Reasons of an ``upload``: a server receives all chunks, or those of its share of the workers."""

SUPPLIES = ("allocate", "allocate_each", "upload")
"""Decisions that bring data to servers, each for `workers` workers."""


STATES = ("finished", "rejected", "failed", "cancelled")
"""The final states of a job."""


def schema(servers: list[str]) -> dict[str, Columns]:
    """Columns and types of each table, for a cluster with these server names; their meaning: ``docs/run-folder.md``."""
    # an Enum sorts in the order of the cluster, as the numbers of the servers do, and not by name
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
        """Values derived from the tables, by name: a cache, not part of the record."""
        return {}

    def __getstate__(self) -> Mapping[str, pl.DataFrame]:
        """Pickle the tables alone."""
        return self.tables()


def server_column(servers: Ints | NDArray[np.int32], ids: list[str]) -> pl.Series:
    """Server numbers as names; -1 becomes null."""
    # a null index gathers a null
    return pl.Series(ids, dtype=pl.Enum(ids)).gather(or_null(servers))


def or_null(numbers: Ints | NDArray[np.int32]) -> pl.Series:
    """Numbers as a column; -1, or whatever is below 0, becomes null."""
    column = pl.Series(numbers, dtype=pl.Int64)
    missing = numbers < 0
    return column.set(pl.Series(missing), None) if missing.any() else column
