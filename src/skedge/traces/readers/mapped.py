"""Any table of jobs as a trace: a mapping names the columns that hold what a trace needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.frame import LONGEST_TRACED_S, NO_ID, Fractional, Trace, Unit, make_trace
from skedge.traces.table import Csv, check_columns, drop_blank_lines, drop_rows, numbers, refuse

from .mapping import TraceMapping, columns_of
from .merging import CHANGES, merge_attempts, merge_parts, with_duration
from .values import NO_STATUS, SKIP, UNITS, are_numbers, as_floats, durations, exact_gpus, missing, sizes, states, times

_LATEST_S = 1e11
"""Latest instant in seconds since 1970 that is believed: the year 5138."""


def read_mapped(
    path: Path | str,
    mapping: TraceMapping,
    statuses: Collection[str] = ("passed",),
    fractional: Fractional = "skip",
) -> Trace:
    """Read a table of jobs with a header, such as a CSV file (``.gz`` too), as a trace.

    Omitted and counted, besides what every reader omits: rows that `where` does not take, rows that repeat the header,
    steps of jobs, rows without an id, jobs without a submission time or a status, and jobs whose status means ``skip``.
    Rows of one job are merged and counted.

    Parameters
    ----------
    path
        The table.
    mapping
        The columns that hold what a trace needs.
    statuses, fractional
        As for :func:`~skedge.traces.formats.read_trace`.

    Raises
    ------
    TraceError
        Names a column that is missing, with the nearest one that is there; or line, column and value.
    """
    path = Path(path)
    table, mapping = _join_tables(path, mapping)
    table, skipped = _job_rows(table, path, mapping)
    gpus = exact_gpus(table, path, mapping)
    rows = pl.DataFrame([series.alias(name) for name, series in _columns(table, path, mapping)])
    _check_users(rows, path, mapping)
    jobs = _jobs(rows.with_columns(gpus=gpus.multiples), mapping)
    about = {
        "merged": len(rows) - len(jobs),
        "unit": Unit(mapping.unit),
        "note": _note(rows, table, mapping),
    }
    jobs, unusable = drop_rows(jobs.with_columns(gpus=as_floats("gpus", gpus.parts)), _SKIPPED)
    _check_spans(jobs, path, mapping)
    refuse(jobs, pl.col("id").is_duplicated(), path, "id", _UNIQUE)
    return make_trace(jobs, path, statuses, skipped | unusable, fractional, _change_counts(jobs, statuses), **about)


_SKIPPED = {
    "status to skip": pl.col("status") == SKIP,
    "no status": pl.col("status") == NO_STATUS,
    "no submission time": pl.col("submit_s").is_null(),
}
"""Jobs to leave out, by reason."""

_UNIQUE = "unique; it is used twice (with `parts` rows of one name are one job, with `attempts` its attempts)"


def _join_tables(path: Path, mapping: TraceMapping) -> tuple[pl.DataFrame, TraceMapping]:
    """The table, joined with the other tables of the mapping, and the mapping for the columns that it has.

    Of a table alone only the columns used are read.
    """
    file = Csv(path, mapping.columns, mapping.separator)
    if not mapping.join:
        mapping = mapping.for_columns(file.names)
        check_columns(file.names, path, mapping.used_columns())
        return file.read(mapping.used_columns()), mapping
    table = file.read()
    for name, form in mapping.join.items():
        check_columns(table.columns, path, form.by)
        second_path = path.parent / form.path
        second = Csv(second_path, form.columns, mapping.separator)
        check_columns(second.names, second_path, form.by)
        rows, _ = drop_blank_lines(second.read())
        # a second row would double each job that it is joined to
        right = f"in one row only, as {', '.join(form.by)} name the rows"
        refuse(rows, pl.struct(form.by).is_duplicated(), second_path, form.by[0], right)
        rows = rows.select(pl.exclude("_line").name.prefix(f"{name}."))
        names = [f"{name}.{column}" for column in form.by]
        # left: a job without a row in the other table stays, its values are missing
        table = table.join(rows, left_on=form.by, right_on=names, how="left", maintain_order="left")
    mapping = mapping.for_columns(table.columns)
    check_columns(table.columns, path, mapping.used_columns())
    return table, mapping


def _job_rows(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows of jobs, with their submissions in `_submit`, and the number of the others by reason."""
    table, blank = drop_blank_lines(table)
    # a file put together from several repeats its header; a column that is named by a number may hold that number
    repeated = [pl.col(column) == column for column in mapping.used_columns() if not column.isdigit()]
    table, headers = drop_rows(table, {"header again": pl.all_horizontal(repeated)})
    # before any row is dropped, as intervals add up over all of them
    table = table.with_columns(_submissions(table, path, mapping).alias("_submit"))
    reasons = {
        f"other {column}": ~pl.col(column).is_in([values] if isinstance(values, str) else values)
        for column, values in mapping.where.items()
    }
    if mapping.name is not None:
        name = pl.col(mapping.name)
        reasons |= {} if mapping.steps is None else {"step of a job": name.str.contains(mapping.steps)}
        reasons |= {NO_ID: missing(mapping.name)}
    if mapping.attempts is not None:  # parts may be alike, but a job has each attempt once
        reasons |= {"row again": ~pl.struct(mapping.used_columns()).is_first_distinct()}
    table, omitted = drop_rows(table, reasons)
    return table, blank | headers | omitted


def _submissions(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> pl.Series:
    """The times of submission; of intervals, the sum so far, over all rows."""
    if mapping.arrival is not None:
        return pl.repeat(None, len(table), dtype=pl.Float64, eager=True)  # read later, of the rows that are taken
    gaps = durations(table, path, str(mapping.interarrival)) * UNITS.get(mapping.time, 1.0)
    # nothing comes before the first row, so its interval may be missing
    later = pl.int_range(pl.len()) > 0
    column = columns_of(str(mapping.interarrival))[0]
    refuse(table, pl.lit(gaps < 0) | (pl.lit(gaps.is_null()) & later), path, column, "a time of 0 or more")
    return gaps.fill_null(0).cum_sum()


def _columns(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> Iterator[tuple[str, pl.Series]]:
    """The columns of the trace but the GPUs, before rows of one job are merged."""
    yield "_line", table["_line"]
    yield "id", table["_line"].cast(pl.String) if mapping.name is None else table[mapping.name]
    arrival = mapping.arrival
    yield "submit_s", table["_submit"] if arrival is None else times(table, path, arrival, mapping.time)
    for column, source in (("start_s", mapping.start), ("end_s", mapping.end)):
        if source is not None:
            yield column, times(table, path, source, mapping.time)
    if mapping.duration is not None:
        yield "duration_s", durations(table, path, mapping.duration)
    yield "status", states(table, path, mapping)
    group = mapping.group or mapping.user
    yield "group", table[group] if group else pl.repeat("", len(table), dtype=pl.String, eager=True)
    for label in ("user", "gpu_type", "tenant"):
        if (source := getattr(mapping, label)) is not None:
            yield label, table.select(pl.when(~missing(source)).then(pl.col(source))).to_series()
    if mapping.data_mb is not None:
        yield "data_mb", sizes(table, path, mapping.data_mb)
    if mapping.priority is not None:
        unknown = missing(mapping.priority)
        yield "priority", numbers(table, path, mapping.priority, integer=True, high=_HIGHEST_CLASS, unknown=unknown)


_HIGHEST_CLASS = 10**6


def _check_users(rows: pl.DataFrame, path: Path, mapping: TraceMapping) -> None:
    """Refuse attempts of different users: numbers of jobs were used again, or are those of several clusters."""
    if mapping.attempts is None or mapping.user is None:
        return
    other_user = (pl.col("user") != pl.col("user").first().over("id")).fill_null(value=False)
    right = f"the name of one job in {mapping.attempts}; a row above has it for another user"
    refuse(rows, other_user, path, "id", right)


def _jobs(rows: pl.DataFrame, mapping: TraceMapping) -> pl.DataFrame:
    """The jobs that the rows make up."""
    if mapping.parts is not None:
        jobs = merge_parts(rows)
    else:
        jobs = with_duration(rows) if mapping.attempts is None else merge_attempts(rows)
    if mapping.components is not None:
        components = jobs.with_columns(pl.col("id").str.replace(mapping.components, ""))
        jobs = merge_parts(components.drop("start_s", "end_s", strict=False))
    return jobs.with_columns(pl.col("group").fill_null(""))


def _change_counts(jobs: pl.DataFrame, statuses: Collection[str]) -> dict[str, int]:
    """The number of jobs to take of which some row does not count, by reason."""
    selected = jobs.filter(pl.col("status").is_in(list(statuses)))
    return {reason: int(selected[reason].sum()) for reason in CHANGES if reason in jobs.columns}


def _note(rows: pl.DataFrame, table: pl.DataFrame, mapping: TraceMapping) -> str:
    """A sentence if the arrivals are numbers that may be the times between submissions."""
    column = mapping.arrival
    if column is None or len(rows) < _FEW or mapping.parts or not are_numbers(table, column, mapping.time):
        return ""
    submit = rows["submit_s"].drop_nulls()
    below = int((submit.diff() < 0).sum())
    # falling now and then, but not all the time as in a log that begins with its last job; or one interval throughout
    mixed = _OFTEN * len(submit) <= below < len(submit) - 1 or (submit.n_unique() == 1 and submit[0] > 0)
    if not mixed or (submit < 0).any():
        return ""
    return (
        f"column {column} does not increase: {below} of {len(rows)} values are below the one before; they are taken as "
        "times of submission, and sorted; if they are times between submissions, give the column as interarrival"
    )


_FEW = 3
"""Fewest rows of which the order tells something."""

_OFTEN = 0.25
"""Share of values below the one before, from which arrivals may be gaps: of gaps about half are. If all are, a log
begins with its last job."""


def _check_spans(jobs: pl.DataFrame, path: Path, mapping: TraceMapping) -> None:
    """Refuse times that no trace spans: their unit is wrong."""
    span = float(np.ptp(jobs["submit_s"].to_numpy())) if len(jobs) else 0.0
    if span > LONGEST_TRACED_S:
        units = ", ".join(UNITS)
        raise TraceError(
            f"{path}: column {mapping.arrival}: the submissions span {span:.3g} s; `time` must be their unit ({units})"
        )
    latest = float(jobs["submit_s"].abs().to_numpy().max(initial=0))
    if latest > _LATEST_S:
        units = ", ".join(UNITS)
        raise TraceError(f"{path}: column {mapping.arrival}: {latest:.4g} s; `time` must be the unit ({units})")
    longest = float(jobs["duration_s"].fill_null(0).to_numpy().max(initial=0))
    if longest > LONGEST_TRACED_S:
        column = mapping.duration or mapping.end
        raise TraceError(
            f"{path}: column {column}: a job of {longest:.3g} s; its unit must be stated, as in "
            f"`duration: {column} / 1000`"
        )
