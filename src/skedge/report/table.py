"""The comparison table: titles, units, sort keys and the best value of each column."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .encode import finite_or_none

Cell = str | float | int | None | Mapping[str, float | None]
"""A text, a number, nothing, or ``{mean, low, high}``; with ``censored`` the number is a bound from below."""

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class ReportTable:
    """A table with one row per policy, its first column the row's name.

    Attributes
    ----------
    columns
        Keys of metrics (``jct_mean_s``), which get a title and a unit, or titles that are shown unchanged.
    rows
        Cells, one per column.
    best
        By column, the rows to mark: those whose value is significantly the best of its kind.
    note
        Text on the intervals, shown below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    best: Mapping[str, Collection[int]] = field(default_factory=dict)
    note: str = ""


_TITLES: dict[str, tuple[str, Better | None]] = {
    "policy": ("policy", None),
    "jobs": ("jobs", None),
    "finished": ("finished", "higher"),
    "rejected": ("rejected", "lower"),
    "finished_after_horizon": ("finished after T", "lower"),
    "jct_mean_s": ("JCT mean", "lower"),
    "jct_p50_s": ("JCT median", "lower"),
    "jct_p90_s": ("JCT p90", "lower"),
    "jct_p99_s": ("JCT p99", "lower"),
    "slowdown_mean": ("slowdown mean", "lower"),
    "makespan_s": ("makespan", "lower"),
    "preemptions": ("preemptions", "lower"),
    "migrations": ("migrations", "lower"),
    "postponed_chunks": ("postponed chunks", "lower"),
    "utilisation_mean": ("utilisation mean", "higher"),
    "uploaded_mb": ("uploaded", "lower"),
    "upload_jct_share": ("uploads, of JCT", "lower"),
    "cloud_share": ("cloud share", None),
    "jct_rate": ("JCT rate", "lower"),
    "bound_ratio": ("to the bound", "lower"),
    "difference_jct_mean_s": ("JCT mean less the reference's", "lower"),
    "difference_utility_total": ("total utility less the reference's", "higher"),
    "difference_cost_total": ("total cost less the reference's", "lower"),
    "utility_total": ("total utility", "higher"),
    "cost_total": ("total cost", "lower"),
    "cost_latency": ("latency cost", "lower"),
    "cost_bandwidth": ("bandwidth cost", "lower"),
    "cost_exchange": ("exchange", "lower"),
    "cost_transfers": ("transfers", "lower"),
    "moved_mb": ("moved", "lower"),
    "acceptance_share": ("accepted", "higher"),
    "training_time_p50_s": ("training time median", "lower"),
}
_SHARES = ("utilisation_mean", "cloud_share", "acceptance_share", "upload_jct_share")
_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZE_UNITS = ((1e6, "TB"), (1e3, "GB"), (1.0, "MB"))


def metrics_table(metrics: Sequence[tuple[str, Mapping[str, float | int | None]]]) -> ReportTable:
    """Make the table of the runs' own metrics, for a report without a comparison; `metrics` are (label, metrics)."""
    keys = list(dict.fromkeys(key for _, m in metrics for key in m))
    return ReportTable(["policy", *keys], [[label, *(m.get(key) for key in keys)] for label, m in metrics])


def table_view(table: ReportTable) -> dict[str, Any]:
    """`table` in the form for the page: every cell with its text, its interval, its exact value and its mark."""
    columns, cells = [], []
    for i, key in enumerate(table.columns):
        column = [row[i] if i < len(row) else None for row in table.rows]
        title, better = _TITLES.get(key, (key, None))
        factor, unit = unit_of(key, [v for v in map(_value, column) if v is not None])
        columns.append({"title": title, "unit": unit, "better": better})
        # All numbers of a column, and its intervals, with the same decimals: they are compared by eye.
        digits = _digits([v / factor for cell in column for v in _numbers(cell)])
        best = table.best.get(key, ())
        cells.append([_cell_view(c, factor, digits, marked=j in best) for j, c in enumerate(column)])
    return {"columns": columns, "rows": [list(row) for row in zip(*cells, strict=True)], "note": table.note}


def _value(cell: Cell) -> float | None:
    if isinstance(cell, str) or cell is None:
        return None
    number = cell.get("mean") if isinstance(cell, Mapping) else cell
    return None if number is None else finite_or_none(float(number))


def _numbers(cell: Cell) -> list[float]:
    """Mean and ends of the interval of a cell, as far as it has them."""
    parts = [cell.get(part) for part in ("mean", "low", "high")] if isinstance(cell, Mapping) else [_value(cell)]
    return [v for v in map(finite_or_none, parts) if v is not None]


def unit_of(key: str, values: Sequence[float]) -> tuple[float, str]:
    """Divisor and name of the unit in which a column reads best."""
    if key in _SHARES:
        return 0.01, "%"
    # The median decides: one huge value must not turn all others into 0.00 d.
    units = _TIME_UNITS if key.endswith("_s") else _SIZE_UNITS if key.endswith("_mb") else ((1.0, ""),)
    middle = float(np.median(np.abs(values))) if len(values) else 0.0
    # From 2 of a unit on: 90 s reads better than 1.5 min, and 130 s worse than 2.17 min.
    return next(((f, name) for f, name in units if middle >= 2 * f), units[-1])


def _cell_view(cell: Cell, factor: float, digits: int, *, marked: bool) -> dict[str, Any]:
    value = _value(cell)
    if value is None:
        return {"text": cell if isinstance(cell, str) else "–", "sort": _number(cell)}
    prefix = "≥ " if isinstance(cell, Mapping) and cell.get("censored") else ""
    view: dict[str, Any] = {"text": prefix + _text(value / factor, digits), "sort": value, "exact": f"{value:.15g}"}
    if marked:
        view["best"] = True
    low, high = (finite_or_none(cell.get(k)) for k in ("low", "high")) if isinstance(cell, Mapping) else (None, None)
    if low is not None and high is not None:
        view["interval"] = f"{_text(low / factor, digits)} … {_text(high / factor, digits)}"
        view["exact"] += f" [{low:.15g}, {high:.15g}]"
    return view


def _number(cell: Cell) -> float | str | None:
    """The sort key of a text cell: its number if it is one."""
    if not isinstance(cell, str):
        return None
    try:
        # A text such as "1,234" is sorted as the number that it shows.
        return finite_or_none(float(cell.replace(",", "").strip()))
    except ValueError:
        return cell


def _digits(values: Sequence[float]) -> int:
    """Decimals that give the median of a column four significant digits; none if all values are integers."""
    middle = float(np.median(np.abs(values))) if len(values) else 0.0
    if middle == 0 or all(v == int(v) for v in values):
        return 0
    # Four digits: the first is at 10^floor(log10), so three less that exponent stand after the point.
    return min(max(3 - math.floor(math.log10(middle)), 0), 9)


def _text(value: float, digits: int) -> str:
    """Write `value` in groups of three; one too small for the column's decimals with its own."""
    # Otherwise it would read 0.000, which it is not.
    if value and abs(value) < 10**-digits:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"
