"""Reading of trace files, with errors that name the file, the line, the column and the value."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from skedge.core.errors import TraceError
from skedge.core.files import no_device

STAMP = "%Y-%m-%d %H:%M:%S"
"""Philly's format of times: without a time zone, to the second."""

_LARGEST = 2.0**53
"""Largest number accepted: above it a float cannot represent all whole numbers."""


def read_bytes(path: Path) -> bytes:
    """Read `path`, and decompress it if its name ends in ``.gz``.

    Raises
    ------
    TraceError
        If the file is missing or cannot be read, or its compressed data are truncated.
    """
    try:
        content = no_device(path).read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: is not a whole gzip file ({error})") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error


def read_table(path: Path, needed: Sequence[str]) -> pl.DataFrame:
    """Read a CSV file with a header as stripped text columns, plus `_line`: the line in the file.

    Blank lines are kept, so that line numbers are right; :func:`filled` removes them.

    Raises
    ------
    TraceError
        If the file cannot be read as CSV or lacks one of the columns `needed`.
    """
    try:
        table = pl.read_csv(read_bytes(path), infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0]}") from error
    names = [c.strip() for c in table.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TraceError(f"{path}: line 1: column {twice!r} is there twice")
    table = table.rename(dict(zip(table.columns, names, strict=True)))
    table = table.with_columns(pl.all().str.strip_chars().fill_null(""))
    check_columns(table, path, needed)
    return table.select(pl.exclude("_line")).with_row_index("_line", offset=2)


def check_columns(table: pl.DataFrame, path: Path, needed: Sequence[str]) -> None:
    """Require the columns `needed`.

    Raises
    ------
    TraceError
        Names the first missing column, and the columns of the file.
    """
    missing = [c for c in needed if c not in table.columns]
    if missing:
        have = ", ".join(c for c in table.columns if c and c != "_line")
        raise TraceError(f"{path}: line 1: column {missing[0]!r} is missing; the file has {have}")


def filled(table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """`table` of :func:`read_table` without its blank lines, and their number."""
    return left_out(table, {"blank line": pl.all_horizontal(pl.exclude("_line").fill_null("") == "")})


def left_out(table: pl.DataFrame, reasons: Mapping[str, pl.Expr]) -> tuple[pl.DataFrame, dict[str, int]]:
    """`table` without the rows to which one of `reasons` applies, and their number by the first reason that applies."""
    counts: dict[str, int] = {}
    for reason, out in reasons.items():
        kept = table.filter(~out.fill_null(value=False))
        counts[reason] = len(table) - len(kept)
        table = kept
    return table, counts


def numbers(
    table: pl.DataFrame,
    path: Path,
    column: str,
    low: float = 0.0,
    *,
    whole: bool = False,
    high: float | None = None,
    missing: float | None = None,
) -> pl.Series:
    """`column` as numbers >= `low` and, if given, <= `high`; whole numbers if `whole`.

    Empty values become `missing`, if given.

    Raises
    ------
    TraceError
        Names the first line whose value is missing, not a number, NaN, infinite, out of range, or not whole.
    """
    value = pl.col(column).cast(pl.Float64, strict=False)
    if missing is not None:
        value = pl.when(pl.col(column) == "").then(pl.lit(missing)).otherwise(value)
    most = _LARGEST if high is None else high
    good = value.is_finite() & value.is_between(low, most) & ((value == value.round()) | (not whole))
    right = "" if low == -float("inf") else f" >= {low:g}" if high is None else f" from {low:g} to {high:g}"
    _refuse(table, good.is_null() | ~good, path, column, f"a {'whole ' if whole else ''}number{right}")
    return table.select(value.cast(pl.Int64) if whole else value).to_series()


def stamps(table: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """`column`, times in Philly's format, in seconds since 1970.

    Raises
    ------
    TraceError
        Names the first line whose value is not such a time.
    """
    value = pl.col(column).str.to_datetime(STAMP, strict=False)
    _refuse(table, value.is_null(), path, column, "a time like 2017-10-07 01:11:39")
    return table.select(value.dt.epoch("s").cast(pl.Float64)).to_series()


def words(table: pl.DataFrame, path: Path, column: str, meaning: dict[str, str]) -> pl.Series:
    """`column` translated by `meaning`.

    Raises
    ------
    TraceError
        Names the first line whose value is not in `meaning`.
    """
    _refuse(table, ~pl.col(column).is_in(list(meaning)), path, column, f"one of {', '.join(meaning)}")
    return table[column].replace_strict(meaning, return_dtype=pl.String)


def _refuse(table: pl.DataFrame, wrong: pl.Expr, path: Path, column: str, right: str) -> None:
    bad = table.filter(wrong).head(1)
    if len(bad):
        line, value = bad["_line"][0], bad[column][0]
        raise TraceError(f"{path}: line {line}, column {column}: {value!r}; it must be {right}")
