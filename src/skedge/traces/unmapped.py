"""The error for a trace of unknown format: the head of the file, and the command that would map it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from skedge.core.errors import TraceError
from skedge.traces.formats import FORMATS, MAPPINGS, shipped_mapping
from skedge.traces.table import read_bytes

_HEAD = 3
_WIDTH = 160
_OPTIONS = {
    "arrival": "submit|arriv|creat|queued",
    "duration": "duration|run_?time|elapsed|run",
    "gpus": "gpu",
    "id": "^id$|job_?id|job_?name|name",
    "user": "user|group|vc|tenant",
    "status": "status|state|phase",
}
"""Options of ``skedge trace`` that map columns, and what a fitting column is called."""

_BEGINNINGS = {"[": "philly-log", "{": "batsim", ";": "swf"}
"""Formats that are no tables, by their first character."""


def unmapped_error(path: Path) -> TraceError:
    """The error: what the file begins with, and the command that would read it, as far as its columns tell."""
    lines = read_bytes(path).decode("utf-8-sig", errors="replace").splitlines()[:_HEAD]
    head = "\n".join("  " + line[:_WIDTH] for line in lines)
    return TraceError(
        f"{path}: its format is not given; give --format ({', '.join(FORMATS)}), --map FILE, or the columns, such as\n"
        f"  skedge trace describe {shlex.quote(str(path))} {_options(lines[0] if lines else '')}\n"
        f"The file begins with\n{head or '  nothing: it is empty'}"
    )


def _options(header: str) -> str:
    """The options that fit a header; COLUMN where none of its columns does."""
    separator = "|" if "|" in header else ","
    columns = [name.strip().strip('"') for name in header.split(separator)]
    # a mapping fits if the file has every column that it would use
    shipped = [
        name for name in MAPPINGS if set(shipped_mapping(name).for_columns(columns).used_columns()) <= set(columns)
    ]
    if shipped or header[:1] in _BEGINNINGS:
        return f"--format {' or '.join(shipped or [_BEGINNINGS[header[:1]]])}"
    matches = {option: _fitting(pattern, columns) for option, pattern in _OPTIONS.items()}
    needed = ("arrival", "duration", "gpus")
    # some traces have the time since the row before instead of the time itself
    if not matches["arrival"] and (gaps := _fitting("inter_?arrival|interval|gap", columns)):
        matches |= {"interarrival": gaps}
        needed = ("interarrival", "duration", "gpus")
    options = {option: column or "COLUMN" for option, column in matches.items() if column or option in needed}
    return " ".join(f"--{option} {shlex.quote(column)}" for option, column in options.items())


def _fitting(pattern: str, columns: Sequence[str]) -> str | None:
    return next((name for name in columns if re.search(pattern, name, re.IGNORECASE)), None)
