"""Repetition of a simulated run from its folder, to check that it gives the same record."""

from __future__ import annotations

from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run
from skedge.simulate import run


def difference(recorded: Run) -> str | None:
    """Run the policy again; returns a description of the first difference, or None if the record is the same.

    Raises
    ------
    InputError
        If the run is live: its decisions are repeated from its journal, not by a simulation.
    PolicyError
        If its policy is unknown here or does not fit the scenario.
    """
    if recorded.live:
        raise InputError(
            "--replay runs the policy again in a simulation; this run was live: what its policy decided stands in its "
            "journal, and is decided again when the run is resumed"
        )
    repeated = run(recorded.scenario, recorded.policy).schedule
    # Decisions first: where they differ the other tables follow.
    names = ["decisions", *(name for name in Schedule.names() if name != "decisions")]
    for name in names:
        differing = _first_difference(getattr(recorded.schedule, name), getattr(repeated, name))
        if differing is not None:
            row, actual, expected = differing
            row_text = "decision" if name == "decisions" else f"row of {name}"
            return f"{row_text} {row} is {actual}; the policy, run again, gives {expected}"
    return None


def _first_difference(actual: pl.DataFrame, expected: pl.DataFrame) -> tuple[int, Any, Any] | None:
    """Number and contents of the first row in which two tables differ; None if they are equal."""
    actual, expected = _with_text_names(actual, expected.columns), _with_text_names(expected, expected.columns)
    n = min(len(actual), len(expected))
    # "missing" too: null equals null here, and nothing else.
    differ = [~actual[name][:n].eq_missing(expected[name][:n]) for name in expected.columns] if n else []
    rows = [int(column.arg_true()[0]) for column in differ if column.any()]
    if not rows and len(actual) == len(expected):
        return None
    row = min(rows, default=n)
    contents = [table.row(row, named=True) if row < len(table) else "not there" for table in (actual, expected)]
    return row, contents[0], contents[1]


def _with_text_names(table: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The columns with names as text, so that tables of different types can be compared."""
    text = [name for name, kind in table.schema.items() if kind in (pl.Categorical, pl.Enum)]
    return table.select(columns).with_columns(pl.col(text).cast(pl.String))
