"""The outcome of a study: its claim part by part, a table and a figure; and the formatting of its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from skedge.analysis.intervals import Estimate, bounded

from .figure import Figure
from .judge import Part

Cell = str | float | Estimate | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a study.

    Attributes
    ----------
    parts
        Parts of the claim, which holds if all of them do (:mod:`.judge`).
    columns, rows
        A table for readers.
    """

    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    figure: Figure


def mean_of(values: Iterable[float]) -> Estimate:
    """Mean and 95 % interval (BCa bootstrap); no interval for fewer than 5 values."""
    return bounded(np.array(list(values), float))


def mean_by_seed(rows: pl.DataFrame, column: str) -> pl.Series:
    """Mean of a column for each seed, in the order of the seeds."""
    return rows.group_by("seed").agg(pl.col(column).mean()).sort("seed")[column]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of `y` over `x`, by least squares."""
    at, rise = np.array(x, float) - np.mean(x), np.array(y, float) - y[0]  # equal values have the slope 0 exactly
    return float(at @ rise / (at @ at))


def shown(cell: Cell, digits: int = 2) -> str:
    """A cell as text: an estimate as its mean and, in brackets, its interval."""
    if not isinstance(cell, Estimate):
        return "–" if cell is None else f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)
    ends = "" if cell.low is None or cell.high is None else f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
    return f"{cell.mean:.{digits}f}{ends}"


def points(cell: Estimate) -> Estimate:
    """A share, or a difference of shares, in percentage points."""
    low, high = (None if end is None else 100 * end for end in (cell.low, cell.high))
    return Estimate(100 * cell.mean, low, high)
