"""Equal tables: what a sound record of a simulation shows at once, before rows are matched within a tolerance."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_holdings, gang_intervals, gang_orders, once, ps_rows
from skedge.core.model.cluster import Ints

from .followed import followed


def same_rows(these: tuple[Ints, ...], those: tuple[Ints, ...]) -> bool:
    """Whether two tables of whole numbers, given by columns, have the same rows, in any order, each once.

    False also where the columns span too much to tell quickly.
    """
    if len(these[0]) != len(those[0]):
        return False
    if not len(these[0]):
        return True
    code, other = _codes(these, those)
    return len(code) > 0 and bool((code == other).all() and (code[1:] != code[:-1]).all())


def _codes(these: tuple[Ints, ...], those: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Each row of the two tables as one number, sorted; empty if 63 bits do not hold it."""
    code, other, size = np.zeros(len(these[0]), np.int64), np.zeros(len(those[0]), np.int64), 1
    for left, right in zip(these, those, strict=True):
        least, most = min(int(left.min()), int(right.min())), max(int(left.max()), int(right.max()))
        if most - least >= len(left):  # by rank
            values = np.unique(left)
            ranks = values.searchsorted(right)
            if ranks.max() >= len(values) or (values[ranks] != right).any():
                return code[:0], other[:0]
            left, right, least, most = values.searchsorted(left), ranks, 0, len(values) - 1  # noqa: PLW2901 - see above
        width = most - least + 1
        size *= width
        if size >= 2**63:
            return code[:0], other[:0]
        code, other = code * width + (left - least), other * width + (right - least)
    return np.sort(code), np.sort(other)


@once
def carried_out_exactly(c: Columns) -> bool:
    """Whether what the decisions allocate is what the gangs hold from then on, by server and to the microsecond.

    Of several decisions on a job at one instant the last one counts.
    """
    if followed(c).orders:
        return True
    held = gang_holdings(c)
    ordered = _ordered(c)
    names = ("start", "job", "server", "n")
    return ordered is not None and same_rows(ordered, tuple(held[name].to_numpy() for name in names))


def _ordered(c: Columns) -> tuple[Ints, ...] | None:
    """(time, job, server, workers) of the last order on each job at each instant, if it allocates.

    None if the decisions on a job are not in order of time.
    """
    orders = gang_orders(c).filter(pl.col("verb").is_in(["allocate", "allocate_each", "suspend"]))
    time, job, order = (orders[name].to_numpy() for name in ("time", "job", "order"))
    same_job = job[1:] == job[:-1]
    if (same_job & (time[1:] < time[:-1])).any():
        return None
    ends = np.flatnonzero(np.append(~same_job | (time[1:] != time[:-1]), True)[: len(job)])
    last = np.repeat(order[ends], np.diff(ends, prepend=-1))
    rows = np.flatnonzero((order == last) & (orders["verb"] != "suspend").to_numpy())
    return time[rows], job[rows], orders["server"].to_numpy()[rows], orders["workers"].to_numpy()[rows]


@once
def served_exactly(c: Columns) -> bool:
    """Whether the PSs of a record without lanes are held one each, exactly as long as the allocations of gangs."""
    of, (rows, _) = gang_intervals(c), ps_rows(c)
    return len(c.chunks) == 0 and all(
        np.array_equal(c.ps[name][rows], of[name].to_numpy()) for name in ("job", "start", "end")
    )
