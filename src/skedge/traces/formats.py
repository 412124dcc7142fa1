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
"""Reader of each format, by its name in scenario files and on the command line."""


def read_trace(
    path: Path | str, form: str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read a trace file in the format `form`, one of :data:`READERS`; only jobs of `statuses`.

    Jobs that request a fraction of a GPU are omitted or, with `fractional` ``ceil``, rounded up to a whole number.

    Raises
    ------
    TraceError
        If the format is unknown, or the file does not have it.
    """
    if form not in READERS:
        raise TraceError(f"format {form!r} is unknown; there are {', '.join(READERS)}")
    return READERS[form](Path(path), statuses, fractional)
