"""Where the rows of a CSV file begin, and which of them has too few or too many values.

polars numbers rows, not the lines of the file; it fills a short row with nulls, and ignores what a long row has beyond
the columns that are read. So the rows are counted here first.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from skedge.core.errors import TraceError
from skedge.core.model.job_fields import Ints

_BLOCK = 2**22
"""Bytes looked at together."""


def line_numbers(content: bytes, path: Path, separator: str, columns: int) -> Ints:
    """The line in which each row of `content` begins, from 1; the header is a row, and so is a blank line.

    Raises
    ------
    TraceError
        Names the first line that has not `columns` values and is not blank.
    """
    ends, separators, lines = _ends(content, ord(separator))
    begins = np.append(0, ends[:-1] + 1)
    odd = np.flatnonzero(np.diff(separators, prepend=0) != columns - 1)
    if any(content[begins[row] : ends[row]].strip() for row in odd):
        _refuse_ragged(content, path, separator, columns)
    return np.append(1, lines[:-1] + 1)


def _ends(content: bytes, separator: int) -> tuple[Ints, Ints, Ints]:
    """The end of each row, and how many separators and line ends the file has up to it; none of them in quotes."""
    ends, separators, lines = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    quotes = before = line = 0
    for first in range(0, len(content), _BLOCK):
        block = np.frombuffer(content, np.uint8, min(_BLOCK, len(content) - first), first)
        quote, newline, split = (np.flatnonzero(block == code) for code in (ord('"'), ord("\n"), separator))
        outside = (np.searchsorted(quote, newline) + quotes) % 2 == 0
        split = split[(np.searchsorted(quote, split) + quotes) % 2 == 0]
        ends.append(newline[outside] + first)
        separators.append(np.searchsorted(split, newline[outside]) + before)
        lines.append(np.flatnonzero(outside) + 1 + line)
        quotes, before, line = quotes + len(quote), before + len(split), line + len(newline)
    if content and not content.endswith(b"\n"):
        for of, total in ((ends, len(content)), (separators, before), (lines, line + 1)):
            of.append(np.array([total]))
    return np.concatenate(ends), np.concatenate(separators), np.concatenate(lines)


def check_rows(path: Path) -> None:
    """Refuse a CSV file, comma-separated with a header, of which a row has too few or too many values.

    Raises
    ------
    TraceError
        Names the line.
    OSError
        If the file cannot be read.
    """
    content = path.read_bytes()
    columns = first_row(content, ",")
    if columns:
        line_numbers(content, path, ",", len(columns))


def first_row(content: bytes, separator: str) -> list[str]:
    """The values of the first row."""
    head = io.StringIO(content[:_BLOCK].decode("utf-8", errors="replace"), newline="")
    return next(csv.reader(head, delimiter=separator), [])


def _refuse_ragged(content: bytes, path: Path, separator: str, columns: int) -> None:
    """Refuse the first ragged row, as a reader of CSV finds it: a quote inside a value is an ordinary character."""
    rows = csv.reader(io.StringIO(content.decode("utf-8", errors="replace"), newline=""), delimiter=separator)
    line = 1
    try:
        for row in rows:
            if len(row) != columns and any(value.strip() for value in row):
                values = f"{len(row)} value{'s' if len(row) > 1 else ''}"
                raise TraceError(f"{path}: line {line}: has {values}; the file has {columns} columns")
            line = rows.line_num + 1
    except csv.Error as error:
        raise TraceError(f"{path}: line {line}: cannot be read as CSV: {error}") from error
