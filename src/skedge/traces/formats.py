"""The trace formats by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from skedge.core.errors import TraceError
from skedge.traces.readers.google import read_google_events, read_google_jobs
from skedge.traces.readers.philly import read_philly_csv, read_philly_log
from skedge.traces.readers.swf import read_swf

from .frame import Fractional, Trace

READERS: Mapping[str, Callable[[Path, Collection[str], Fractional], Trace]] = {
    "google-events": read_google_events,
    "google-jobs": read_google_jobs,
    "philly-csv": read_philly_csv,
    "philly-log": read_philly_log,
    "swf": read_swf,
}
"""Reader of each format that a scenario file or the command line can name."""


def read_trace(
    path: Path | str, form: str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read a trace file of the format named `form`, one of :data:`READERS`; jobs of `statuses` only.

    Jobs that ask for a fraction of a GPU are left out, or with `fractional` ``ceil`` given the next whole number.

    Raises
    ------
    TraceError
        For an unknown format, or a file that is not of it.
    """
    if form not in READERS:
        raise TraceError(f"format {form!r} is unknown; there are {', '.join(READERS)}")
    return READERS[form](Path(path), statuses, fractional)
