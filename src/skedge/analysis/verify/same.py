"""Equal tables: what a sound record of a simulation shows at once, before rows are matched within a tolerance."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_orders, once
from skedge.core.model import Ints


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
    """Whether the allocations of the decisions are the starts of the gangs' runs, row by row and to the microsecond."""
    d, t = c.decisions, c.gangs
    rows = np.flatnonzero(d.frame["verb"].is_in(["allocate", "allocate_each"]).to_numpy())
    ordered = tuple(d[name][rows] for name in ("time", "job", "server", "workers"))
    held = tuple(t[name] for name in ("start", "job", "server", "workers"))
    places = t["start"], t["job"], t["server"]
    return same_rows(ordered, held) and same_rows(places, places) and _one_at_a_time(c)


def _one_at_a_time(c: Columns) -> bool:
    """Whether of the orders on a job at one instant only one allocates, and no suspension follows it."""
    orders = gang_orders(c).filter(pl.col("verb").is_in(["allocate", "allocate_each", "suspend"]))
    again = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("job", "time"))
    same = pl.col("order") == pl.col("order").shift()
    resumed = (pl.col("verb").shift() == "suspend") & (pl.col("verb") != "suspend")
    return bool(orders.select((~again | same | resumed).slice(1).all()).item())
