"""Line numbers of the rows of a CSV file, and the first row with too few or too many values.

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
    """The line in which each row of a CSV begins, from 1; the header is a row, and so is a blank line.

    Parameters
    ----------
    content
        The CSV in UTF-8.
    path
        Its name in errors.
    separator
        One ASCII character.
    columns
        Number of values that each row must have, >= 1.

    Returns
    -------
    numpy.ndarray
        Shape ``(rows,)``.

    Raises
    ------
    TraceError
        Names the first line that has not `columns` values and is not blank.
    """
    ends, separators, lines = _ends(content, ord(separator))
    begins = np.append(0, ends[:-1] + 1)
    # n values have n - 1 separators between them; blank rows are odd too, and pass below
    odd = np.flatnonzero(np.diff(separators, prepend=0) != columns - 1)
    if any(content[begins[row] : ends[row]].strip() for row in odd):
        _refuse_ragged(content, path, separator, columns)
    # a row begins in the line after the end of the row before: line feeds within quotes count as lines, not as rows
    return np.append(1, lines[:-1] + 1)


def _ends(content: bytes, separator: int) -> tuple[Ints, Ints, Ints]:
    """The end of each row, and how many separators and line ends the file has up to it; none of them in quotes."""
    ends, separators, lines = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    # carried from block to block: quotes so far (odd: the block begins inside quotes), separators and lines
    quotes = before = line = 0
    for first in range(0, len(content), _BLOCK):
        block = np.frombuffer(content, np.uint8, min(_BLOCK, len(content) - first), first)
        quote, newline, split = (np.flatnonzero(block == code) for code in (ord('"'), ord("\n"), separator))
        # an even number of quotes before it; a quote within a value is doubled, which keeps the number even
        outside = (np.searchsorted(quote, newline) + quotes) % 2 == 0
        split = split[(np.searchsorted(quote, split) + quotes) % 2 == 0]
        ends.append(newline[outside] + first)
        separators.append(np.searchsorted(split, newline[outside]) + before)
        lines.append(np.flatnonzero(outside) + 1 + line)
        quotes, before, line = quotes + len(quote), before + len(split), line + len(newline)
    # the last row need not end in a line feed
    if content and not content.endswith(b"\n"):
        for column, total in ((ends, len(content)), (separators, before), (lines, line + 1)):
            column.append(np.array([total]))
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
    # not split at separators by hand, as a quoted name may hold one
    head = io.StringIO(content[:_BLOCK].decode("utf-8", errors="replace"), newline="")
    return next(csv.reader(head, delimiter=separator), [])


def _refuse_ragged(content: bytes, path: Path, separator: str, columns: int) -> None:
    """Refuse the first ragged row, as a reader of CSV finds it: a quote inside a value is an ordinary character."""
    rows = csv.reader(io.StringIO(content.decode("utf-8", errors="replace"), newline=""), delimiter=separator)
    line = 1
    try:
        # Python's reader is slow: it is only asked where the count has found a ragged row
        for row in rows:
            if len(row) != columns and any(value.strip() for value in row):
                values = f"{len(row)} value{'s' if len(row) > 1 else ''}"
                raise TraceError(f"{path}: line {line}: has {values}; the file has {columns} columns")
            line = rows.line_num + 1
    except csv.Error as error:
        raise TraceError(f"{path}: line {line}: cannot be read as CSV: {error}") from error
