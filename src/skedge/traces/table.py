"""Reading of trace files, with errors that name the file, the line, the column and the value."""

from __future__ import annotations

import codecs
import difflib
import gzip
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from skedge.core.errors import TraceError
from skedge.platform.files import no_device

from .csv_lines import first_row, line_numbers

STAMP = "%Y-%m-%d %H:%M:%S"
"""Philly's format of times: without a time zone, to the second."""

_LARGEST = 2.0**53
"""Largest number accepted: above it a float cannot represent all whole numbers."""

_PACKED = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\x1f\x9d": "compressed by compress",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
"""Formats that are not read here, by the first bytes of a file."""


def read_bytes(path: Path) -> bytes:
    """The content of `path`: decompressed if it is a gzip file, whatever its name; without a byte order mark.

    Raises
    ------
    TraceError
        If the file is missing or cannot be read, its compressed data are truncated, or it is in another format.
    """
    try:
        content = no_device(path).read_bytes()
        # while, not if: servers compress what has been compressed before
        while content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: is not a whole gzip file ({error})") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    kind = next((label for magic, label in _PACKED.items() if content.startswith(magic)), None)
    if kind is not None:
        raise TraceError(f"{path}: is {kind}; it must be text in UTF-8, which may be compressed by gzip")
    return content.removeprefix(codecs.BOM_UTF8)


class Csv:
    """A CSV file whose header has been read.

    Attributes
    ----------
    path
        The file.
    names
        Its columns, in order; the empty name may occur several times.
    blank_lines_above
        Number of blank lines above the first one that is not.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None, separator: str = ",") -> None:
        """Read the file and its header; `columns` names the columns of a file without one.

        Raises
        ------
        TraceError
            If the file is not CSV, a name occurs twice, or there are not as many columns as names.
        """
        self.path, self.separator, self.header = path, separator, columns is None
        content = _with_line_feeds(read_bytes(path))
        self.content = content.lstrip(b"\r\n")
        self.blank_lines_above = content.count(b"\n", 0, len(content) - len(self.content))
        names = [name.strip() for name in first_row(self.content, separator)]
        if not any(names):
            raise TraceError(f"{path}: cannot be read as CSV: it is empty")
        if columns is not None and len(names) != len(columns):
            listed = ", ".join(columns)
            raise TraceError(f"{path}: has {len(names)} columns; the mapping names {len(columns)}: {listed}")
        self.names = list(columns or names)
        twice = next((name for name in self.names if name and self.names.count(name) > 1), None)
        if twice is not None:
            raise TraceError(f"{path}: line {self.blank_lines_above + 1}: column {twice!r} is there twice")

    def read(self, only: Collection[str] | None = None) -> pl.DataFrame:
        """The columns `only` (None: all that have a name) as stripped text, and `_line`: the line in the file.

        Blank lines are kept, so that line numbers are right; :func:`drop_blank_lines` removes them.

        Raises
        ------
        TraceError
            If the file is not CSV, or has a row with too few or too many values.
        """
        lines = line_numbers(self.content, self.path, self.separator, len(self.names))
        indices = [i for i, name in enumerate(self.names) if (bool(name) if only is None else name in only)] or [0]
        # by index: empty names may occur several times, and polars renames them
        table = _csv(self.path, self.content, has_header=self.header, separator=self.separator, columns=indices)
        table = table.rename(dict(zip(table.columns, (self.names[i] for i in indices), strict=True)))
        table = table.with_columns(pl.all().str.strip_chars().fill_null("")).select(pl.exclude("_line"))
        rows = lines[1:] if self.header else lines
        first = 2 if self.header else 1
        # where the two readers disagree on the rows, as about a stray quote, rows are counted as lines
        numbered = rows if len(rows) == len(table) else np.arange(first, first + len(table))
        return table.insert_column(0, pl.Series("_line", numbered + self.blank_lines_above, dtype=pl.Int64))


def _with_line_feeds(content: bytes) -> bytes:
    """`content` with line feeds if its lines end in carriage returns alone, as on old Macs."""
    return content.replace(b"\r", b"\n") if b"\r" in content and b"\n" not in content else content


def read_table(path: Path, needed: Sequence[str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a CSV file, comma-separated: all its columns, as :meth:`Csv.read` gives them.

    Parameters
    ----------
    path
        The file.
    needed
        Columns that must be there.
    columns
        Names of the columns of a file without a header.

    Raises
    ------
    TraceError
        If the file cannot be read as CSV or lacks one of the columns `needed`.
    """
    table = Csv(path, columns)
    check_columns(table.names, path, needed)
    return table.read()


def _csv(path: Path, content: bytes, **options: Any) -> pl.DataFrame:
    try:
        return pl.read_csv(content, infer_schema=False, **options)
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{path}: {_not_utf8(content) or _without_advice(error)}") from error


def _not_utf8(content: bytes) -> str | None:
    """The problem, if the content is not UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"line {line}: byte {content[error.start]:#04x}: is not UTF-8, the encoding that it must have"
    return None


def _without_advice(error: Exception) -> str:
    return f"cannot be read as CSV: {str(error).splitlines()[0]}"


def check_columns(columns: Sequence[str], path: Path, needed: Sequence[str]) -> None:
    """Require the columns `needed`.

    Raises
    ------
    TraceError
        Names the first missing column, the nearest one, and the columns of the file.
    """
    missing = next((c for c in needed if c not in columns), None)
    if missing is not None:
        have = [c if c.isprintable() or "\t" in c else repr(c) for c in columns if c and c != "_line"]
        close = difflib.get_close_matches(missing.lower(), [c.lower() for c in have], 1, cutoff=0.4)
        hint = next((f" (did you mean {c!r}?)" for c in have if c.lower() in close), "")
        # a single column whose name holds a separator: the file has another one than the mapping says
        split = next((mark for mark in ";|\t," if len(have) == 1 and mark in have[0]), None)
        tip = "" if split is None else f" (`separator` of a mapping says what stands between columns, as {split!r} may)"
        raise TraceError(f"{path}: line 1: column {missing!r} is missing{hint}; the file has {', '.join(have)}{tip}")


def drop_blank_lines(table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """`table` of :func:`read_table` without its blank lines, and their number."""
    return drop_rows(table, {"blank line": pl.all_horizontal(pl.exclude("_line").fill_null("") == "")})


def drop_rows(table: pl.DataFrame, reasons: Mapping[str, pl.Expr]) -> tuple[pl.DataFrame, dict[str, int]]:
    """`table` without the rows to which one of `reasons` applies, and their number by the first reason that applies."""
    counts: dict[str, int] = {}
    for reason, out in reasons.items():
        rest = table.filter(~out.fill_null(value=False))
        counts[reason] = len(table) - len(rest)
        table = rest
    return table, counts


def numbers(
    table: pl.DataFrame,
    path: Path,
    column: str,
    low: float = 0.0,
    *,
    integer: bool = False,
    high: float | None = None,
    unknown: pl.Expr | None = None,
) -> pl.Series:
    """`column` as numbers.

    Parameters
    ----------
    table
        Rows as text, and `_line`: the line of each in the file.
    path
        The file, for errors.
    column
        One of the columns of `table`.
    low, high
        Smallest and largest number allowed; `high` None: 2**53.
    integer
        Whether fractions are refused; the result is whole numbers then.
    unknown
        True for a value that is not known, which is null in the result; None: all are known.

    Raises
    ------
    TraceError
        Names the first line whose value is missing, not a number, NaN, infinite, out of range, or not whole.
    """
    known = pl.lit(value=True) if unknown is None else ~unknown
    value = pl.when(known).then(pl.col(column).cast(pl.Float64, strict=False))
    limit = _LARGEST if high is None else high
    # text that is no number is null after the cast, which fails here too
    good = value.is_finite() & value.is_between(low, limit) & ((value == value.round()) | (not integer))
    right = "" if low == -float("inf") else f" >= {low:g}" if high is None else f" from {low:g} to {high:g}"
    refuse(table, known & (good.is_null() | ~good), path, column, f"a {'whole ' if integer else ''}number{right}")
    return table.select(value.cast(pl.Int64) if integer else value).to_series()


def is_blank(column: str) -> pl.Expr:
    """Whether a value of `column` is empty."""
    return pl.col(column) == ""


def stamps(table: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """`column`, times in Philly's format, in seconds since 1970.

    Raises
    ------
    TraceError
        Names the first line whose value is not such a time.
    """
    value = pl.col(column).str.to_datetime(STAMP, strict=False)
    refuse(table, value.is_null(), path, column, "a time like 2017-10-07 01:11:39")
    return table.select(value.dt.epoch("s").cast(pl.Float64)).to_series()


def words(table: pl.DataFrame, path: Path, column: str, meaning: dict[str, str]) -> pl.Series:
    """`column` translated by `meaning`.

    Parameters
    ----------
    table, path, column
        As for :func:`numbers`.
    meaning
        The result for each value that is allowed.

    Raises
    ------
    TraceError
        Names the first line whose value is not in `meaning`.
    """
    refuse(table, ~pl.col(column).is_in(list(meaning)), path, column, f"one of {', '.join(meaning)}")
    return table[column].replace_strict(meaning, return_dtype=pl.String)


def refuse(table: pl.DataFrame, wrong: pl.Expr, path: Path, column: str, right: str) -> None:
    """Refuse the first row with a wrong value, if there is one.

    Parameters
    ----------
    table
        Its column `_line` has the lines in the file.
    wrong
        True for a row to refuse; null counts as false.
    path, column
        Names in the error.
    right
        What the value must be, after "it must be".

    Raises
    ------
    TraceError
        Names file, line, column and value.
    """
    bad = table.filter(wrong).head(1)
    if len(bad):
        line, value = bad["_line"][0], bad[column][0]
        raise TraceError(f"{path}: line {line}, column {column}: {value!r}; it must be {right}")
