"""The outcome of a study: its claim part by part, a table and a figure; and the formatting of its numbers."""

from __future__ import annotations

import math
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
    figure
        The picture.
    caveats
        Why a claim that holds says little, if it does: hardly any job is done, or nothing that is counted happens.
    """

    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    figure: Figure
    caveats: tuple[str, ...] = ()


HARDLY_ANY = 0.25
"""Below this share of jobs that are done, a comparison of what is done says little."""


def caveats_of(rows: pl.DataFrame, metric: str) -> tuple[str, ...]:
    """What makes these runs say little, everywhere or at some points of the axis.

    Parameters
    ----------
    rows
        A row a run: policy, at, value, and done, the share of the jobs that are done.
    metric
        What `value` is.
    """
    # instances without an optimum are not run
    rows = rows.filter(pl.col("policy") != "")
    caveats = []
    for (policy,), policy_rows in rows.group_by("policy", maintain_order=True):
        is_zero = policy_rows.group_by("at", maintain_order=True).agg(zero=(pl.col("value") == 0).all())
        if is_zero["zero"].all():
            caveats.append(f"{metric} of {policy} is 0 in each of its {len(policy_rows)} runs")
        elif is_zero["zero"].any():
            zero_points = is_zero.filter("zero")["at"]
            caveats.append(f"at {', '.join(map(str, zero_points))} {metric} of {policy} is 0 in each run")
    share = _largest_share(rows)
    if share is not None and share < HARDLY_ANY:
        caveats.append(f"no policy completes more than {share:.0%} of the jobs by T in the mean")
    else:
        by_point = {at: _largest_share(point) for (at,), point in rows.group_by("at", maintain_order=True)}
        low_shares = {at: share for at, share in by_point.items() if share is not None and share < HARDLY_ANY}
        if low_shares:
            points_text = ", ".join(f"{at} ({share:.0%})" for at, share in low_shares.items())
            caveats.append(
                f"no policy completes more than {HARDLY_ANY:.0%} of the jobs by T in the mean at {points_text}"
            )
    return tuple(caveats)


def _largest_share(rows: pl.DataFrame) -> float | None:
    """The largest mean share of jobs that are done, over the policies; None where it is not known."""
    shares = rows.group_by("policy").agg(pl.col("done").mean())["done"]
    return None if shares.is_empty() or shares.null_count() else float(shares.max())  # type: ignore[arg-type]


def mean_of(values: Iterable[float]) -> Estimate:
    """Mean and 95 % interval (BCa bootstrap); no interval for fewer than 5 values."""
    return bounded(np.array(list(values), float))


def mean_by_seed(rows: pl.DataFrame, column: str) -> pl.Series:
    """Mean of a column for each seed, in the order of the seeds."""
    return rows.group_by("seed").agg(pl.col(column).mean()).sort("seed")[column]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of `y` over `x`, by least squares."""
    deviations, rises = (
        np.array(x, float) - np.mean(x),
        np.array(y, float) - y[0],
    )  # equal values have the slope 0 exactly
    return float(deviations @ rises / (deviations @ deviations))


def format_cell(cell: Cell, digits: int = 2) -> str:
    """A cell as text: an estimate as its mean and, in brackets, its interval.

    Numbers have `digits` after the point or more, so that three count; from 1,000 on they have none.
    """
    if isinstance(cell, float):
        return _format_number(cell, cell, digits)
    if not isinstance(cell, Estimate):
        return "–" if cell is None else str(cell)
    ends = [_format_number(end, cell.mean, digits) for end in (cell.low, cell.high) if end is not None]
    return _format_number(cell.mean, cell.mean, digits) + (f" [{', '.join(ends)}]" if ends else "")


def format_mean(values: Iterable[float], digits: int = 2) -> str:
    """The mean of values and its interval as text, as :func:`format_cell` has it."""
    return format_cell(mean_of(values), digits)


def format_pair(values: Iterable[float], reference: Iterable[float], digits: int = 2) -> str:
    """The means of two samples as text, "... against ..."."""
    return f"{format_mean(values, digits)} against {format_mean(reference, digits)}"


def _format_number(value: float, reference: float, digits: int) -> str:
    """A number with the digits of `reference`."""
    if abs(reference) >= 1000:
        return f"{value:,.0f}"
    # at least three significant digits of the reference, so that an interval has as many as its mean
    return f"{value:.{max(digits, 2 - math.floor(math.log10(abs(reference)))) if reference else digits}f}"


def points(cell: Estimate) -> Estimate:
    """A share, or a difference of shares, in percentage points."""
    # an estimate without an interval stays one
    low, high = (None if end is None else 100 * end for end in (cell.low, cell.high))
    return Estimate(100 * cell.mean, low, high)
