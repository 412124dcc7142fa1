"""Rows of two tables that belong together: those of one job and place at one time, or nearest in time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.row_groups import Small, plain
from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean, unlocked


class Events(NamedTuple):
    """Rows of a table: their jobs, their times [µs] and, if only rows of one server match, their servers."""

    job: Ints
    time: Ints
    server: Ints


def events(job: Ints | Small, time: Ints, server: Ints | Small | None = None) -> Events:
    """The rows as compiled sweeps take them; without `server`, rows of all servers match."""
    numbers = plain(job, np.int64)
    return Events(numbers, plain(time, np.int64), numbers if server is None else plain(server, np.int64))


def nearest(rows: Events, partners: Events, slack: int) -> Ints:
    """For each row the one of `partners` that is nearest in time, at most `slack` µs away; -1 if there is none.

    Of two that are equally near it is the later one, and of several at one time the last.
    """
    order, partner_order = _time_order(rows), _time_order(partners)
    match = np.full(len(rows.job), -1, np.int64)
    _nearest(_take(rows, order), _take(partners, partner_order), slack, match)
    if partner_order is not None:
        match = np.where(match >= 0, partner_order[match], -1)
    if order is not None:
        match[order] = match.copy()
    return match


def surplus(rows: pl.DataFrame, partners: pl.DataFrame) -> pl.DataFrame:
    """Where rows that are equal but for `n` have another sum of it than their `partners`; `n` is then the difference.

    In order of the other columns.
    """
    keys = [name for name in rows.columns if name != "n"]
    rows, partners = (table.cast(pl.Int64).sort(keys) for table in (rows, partners))
    # the usual record needs no sums, which take ten times as long
    if rows.equals(partners):
        return rows.clear()
    signed = pl.concat([rows, partners.with_columns(-pl.col("n"))])
    return signed.group_by(keys).agg(pl.col("n").sum()).filter(pl.col("n") != 0).sort(keys)


def _take(rows: Events, order: Ints | None) -> Events:
    return rows if order is None else Events(*(column[order] for column in rows))


def _time_order(rows: Events) -> Ints | None:
    """The order of the rows by job and time; None if they are in order, as in every sound record."""
    return None if _in_order(rows.job, rows.time) else np.lexsort((rows.time, rows.job))


@lean
def _in_order(job: Ints, time: Ints) -> bool:
    i = 1
    while i < len(job) and (job[i] > job[i - 1] or (job[i] == job[i - 1] and time[i] >= time[i - 1])):
        i += 1
    return i >= len(job)


@unlocked
def _nearest(rows: Events, partners: Events, slack: int, match: Ints) -> None:
    """:func:`nearest` for rows in order, into the last one."""
    first = 0
    for i in range(len(rows.job)):
        job, time, gap = rows.job[i], rows.time[i], slack
        # times ascend, so what is too early for this row is too early for all further rows of its job
        while first < len(partners.job) and (
            partners.job[first] < job or (partners.job[first] == job and partners.time[first] < time - slack)
        ):
            first += 1
        k = first
        while k < len(partners.job) and partners.job[k] == job and partners.time[k] <= time + slack:
            if partners.server[k] == rows.server[i] and abs(partners.time[k] - time) <= gap:
                match[i], gap = k, abs(partners.time[k] - time)
            k += 1
