"""The trace formats by name: readers, and mappings that ship as files."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path

import yaml

from skedge.core.errors import TraceError
from skedge.traces.readers.batsim import read_batsim
from skedge.traces.readers.google import read_google_events, read_google_jobs
from skedge.traces.readers.mapped import read_mapped
from skedge.traces.readers.mapping import TraceMapping
from skedge.traces.readers.philly import read_philly, read_philly_csv, read_philly_log
from skedge.traces.readers.swf import read_swf

from .frame import Fractional, Trace

Reader = Callable[[Path, Collection[str], Fractional], Trace]

READERS: Mapping[str, Reader] = {
    "batsim": read_batsim,
    "google-events": read_google_events,
    "google-jobs": read_google_jobs,
    "philly": read_philly,
    "philly-csv": read_philly_csv,
    "philly-log": read_philly_log,
    "swf": read_swf,
}
"""Readers of the formats that are not described by a mapping."""

MAPPINGS: Mapping[str, Path] = {
    path.stem: path for path in sorted(Path(str(importlib.resources.files("skedge"))).glob("mappings/*.yaml"))
}
"""Files of the mappings that ship."""

FORMATS = sorted([*READERS, *MAPPINGS])
"""All formats, by their names in scenario files and on the command line."""


def read_trace(
    path: Path | str,
    form: str | TraceMapping,
    statuses: Collection[str] = ("passed",),
    fractional: Fractional = "skip",
) -> Trace:
    """Read a trace file.

    Parameters
    ----------
    path
        The file; for some formats a folder.
    form
        The format: one of :data:`FORMATS`, or a mapping.
    statuses
        Final states of the jobs to take, of :data:`~skedge.traces.frame.STATUSES`.
    fractional
        Treatment of jobs that request a fraction of a GPU: ``skip`` omits them, ``ceil`` rounds up.

    Raises
    ------
    TraceError
        If the format is unknown, or the file does not have it.
    """
    return _reader(form)(Path(path), statuses, fractional)


def _reader(form: str | TraceMapping) -> Reader:
    if isinstance(form, str) and form in READERS:
        return READERS[form]
    mapping = shipped_mapping(form) if isinstance(form, str) else form
    return lambda path, statuses, fractional: read_mapped(path, mapping, statuses, fractional)


@cache
def shipped_mapping(name: str) -> TraceMapping:
    """A mapping that ships.

    Raises
    ------
    TraceError
        If there is none of this name.
    """
    if name not in MAPPINGS:
        raise TraceError(f"format {name!r} is unknown; there are {', '.join(FORMATS)}")
    return TraceMapping(**yaml.safe_load(MAPPINGS[name].read_text(encoding="utf-8")))
