"""Repetition of a simulated run from its folder, to check that it gives the same record."""

from __future__ import annotations

from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.record.schedule import Schedule
from skedge.run import Run, run


def difference(kept: Run) -> str | None:
    """Run the policy again; returns a description of the first difference, or None if the record is the same.

    Raises
    ------
    InputError
        If the run is live: its decisions are repeated from its journal, not by a simulation.
    PolicyError
        If its policy is unknown here or does not fit the scenario.
    """
    if kept.live:
        raise InputError(
            "--replay runs the policy again in a simulation; this run was live: what its policy decided stands in its "
            "journal, and is decided again when the run is resumed"
        )
    again = run(kept.scenario, kept.policy).schedule
    names = ["decisions", *(name for name in Schedule.names() if name != "decisions")]
    for name in names:
        found = _first_row(getattr(kept.schedule, name), getattr(again, name))
        if found is not None:
            row, is_, right = found
            what = "decision" if name == "decisions" else f"row of {name}"
            return f"{what} {row} is {is_}; the policy, run again, gives {right}"
    return None


def _first_row(is_: pl.DataFrame, right: pl.DataFrame) -> tuple[int, Any, Any] | None:
    """Number and contents of the first row in which two tables differ; None if they are equal."""
    is_, right = _plain(is_, right.columns), _plain(right, right.columns)
    n = min(len(is_), len(right))
    differ = [~is_[name][:n].eq_missing(right[name][:n]) for name in right.columns] if n else []
    rows = [int(column.arg_true()[0]) for column in differ if column.any()]
    if not rows and len(is_) == len(right):
        return None
    row = min(rows, default=n)
    both = [table.row(row, named=True) if row < len(table) else "not there" for table in (is_, right)]
    return row, both[0], both[1]


def _plain(table: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The columns with names as text, so that tables of different types can be compared."""
    text = [name for name, kind in table.schema.items() if kind in (pl.Categorical, pl.Enum)]
    return table.select(columns).with_columns(pl.col(text).cast(pl.String))
