"""``skedge trace``: describe a trace, and make a scenario from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.bar import Bar
from rich.table import Table
from typer.core import TyperGroup

from skedge.core.errors import TraceError
from skedge.report.histograms import Histogram, histograms
from skedge.report.trace_page import trace_page
from skedge.report.write import write_report
from skedge.scenario.mapping_file import mapping_of, read_mapping
from skedge.traces.describe import describe, rows
from skedge.traces.formats import FORMATS, read_trace
from skedge.traces.frame import Trace
from skedge.traces.readers.mapping import TraceMapping
from skedge.traces.unmapped import unmapped_error

from .console import out, print_json, print_table
from .lazy import LazyCommand, command_group
from .options import JsonOption, with_groups


class _TraceGroup(TyperGroup):
    """The group with ``convert``, whose module is imported only for it: reading a trace needs no scenario."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        about = "Make a scenario from a trace, for `skedge run FOLDER/scenario.yaml`."
        self.commands["convert"] = LazyCommand("convert", "trace_convert:convert", about)


trace = command_group("Describe real traces, and make scenarios from them.", cls=_TraceGroup)


Format = StrEnum("Format", {name: name for name in FORMATS})  # type: ignore[misc]


class Fractional(StrEnum):
    """Treatment of jobs that request a fraction of a GPU."""

    skip = "skip"
    ceil = "ceil"


def _column(about: str) -> Any:
    return typer.Option(help=about, rich_help_panel="Columns")


@dataclass(frozen=True)
class Source:
    """A trace file, and how it is read: a format by name, a mapping file, or columns."""

    path: Annotated[Path, typer.Argument(help="The trace file; may be compressed (.gz).")]
    form: Annotated[Format | None, typer.Option("--format", help="Format of the file.")] = None
    mapping: Annotated[Path | None, typer.Option("--map", help="Instead: file that maps its columns (YAML).")] = None
    arrival: Annotated[str | None, _column("Instead of both: the column of the submission time.")] = None
    interarrival: Annotated[
        str | None, _column("Instead of --arrival: column of the time since the row before's submission.")
    ] = None
    duration: Annotated[str | None, _column("Column of the running time [s].")] = None
    start: Annotated[str | None, _column("Instead of --duration: column of the time when the job started.")] = None
    end: Annotated[str | None, _column("Column of the time when it ended.")] = None
    gpus: Annotated[str | None, _column("Column of the GPUs, or a product such as 'percent / 100'.")] = None
    id: Annotated[str | None, _column("Column of the job's name.")] = None
    user: Annotated[str | None, _column("Column of the user.")] = None
    group: Annotated[str | None, _column("Column of the virtual cluster or class; default: the user.")] = None
    gpu_type: Annotated[str | None, _column("Column of the GPU that the job asked for.")] = None
    tenant: Annotated[str | None, _column("Column of the tenant.")] = None
    priority: Annotated[str | None, _column("Column of the priority class, higher goes first.")] = None
    data_mb: Annotated[str | None, _column("Column of the size of the job's data [MB], or a product.")] = None
    unit: Annotated[str | None, _column("What --gpus counts, such as CPU; default GPU.")] = None
    status: Annotated[str | None, _column("Column of the final state.")] = None
    time: Annotated[str | None, _column("Unit or format of times: s, ms, us, ns, min, h, d, iso, or %d/%m/%Y.")] = None
    statuses: Annotated[
        str, typer.Option(help="Jobs to take by status: passed, failed, killed, separated by commas.")
    ] = "passed"
    fractional: Annotated[
        Fractional, typer.Option(help="Jobs that request a fraction of a GPU: skip, or round up to whole GPUs (ceil).")
    ] = Fractional.skip

    def format_or_mapping(self) -> str | TraceMapping:
        """The format's name, or the mapping.

        Raises
        ------
        TraceError
            If several of the three are given, or none, or the mapping is wrong.
        """
        columns = {name: getattr(self, name) for name in _COLUMNS if getattr(self, name) is not None}
        # exactly one way of reading, as another one would be ignored
        sources = [self.form is not None, self.mapping is not None, bool(columns)]
        if sum(sources) > 1:
            raise TraceError("--format, --map and options of columns: give one of them")
        if self.form is not None:
            return self.form.value
        if self.mapping is not None:
            return read_mapping(self.mapping)
        if not columns:
            raise unmapped_error(self.path)
        return mapping_of(columns, "options of columns")

    def trace(self) -> Trace:
        """The trace."""
        return read_trace(self.path, self.format_or_mapping(), _parse_statuses(self.statuses), self.fractional.value)

    def fields(self) -> dict[str, Any]:
        """The trace as a scenario file has it."""
        reading = self.format_or_mapping()
        form = {"format": reading} if isinstance(reading, str) else {"map": reading.model_dump(exclude_defaults=True)}
        statuses = list(_parse_statuses(self.statuses))
        # absolute, as the scenario file may be in another folder
        return {"path": str(self.path.resolve()), **form, "statuses": statuses, "fractional": self.fractional.value}


_COLUMNS = (
    *("arrival", "interarrival", "duration", "start", "end", "gpus", "id", "user", "group", "gpu_type", "tenant"),
    *("priority", "data_mb", "status", "time", "unit"),
)
"""Fields of a :class:`Source` that are those of a mapping."""


@trace.command("describe")
@with_groups
def describe_command(
    source: Source,
    cluster_gpus: Annotated[int | None, typer.Option(help="GPUs of a cluster, for the offered load.", min=1)] = None,
    html: Annotated[Path | None, typer.Option(help="Also draw a page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a trace: arrivals, sizes, durations, load, users; as a table, as pictures."""
    trace = source.trace()
    figures = describe(trace, cluster_gpus)
    pictures = histograms(trace.frame, trace.unit.several)
    if html is not None:
        write_report(html, trace_page(source.path.name, rows(figures), pictures))
    if as_json:
        print_json(figures)
        return
    print_table(("figure", "value"), rows(figures), title=str(source.path.name))
    for picture in pictures:
        out.print(_bars(picture))


def _bars(picture: Histogram) -> Table:
    """The histogram as bars of characters."""
    table = Table(title=picture.title, box=None, show_header=False)
    # the longest bar has the full width
    max_count = max(picture.counts)
    for label, count in zip(picture.labels, picture.counts, strict=True):
        table.add_row(label, Bar(max_count, 0, count, width=_BAR), f"{count:,}")
    return table


_BAR = 40
"""Width of the longest bar [characters]."""


def _parse_statuses(text: str) -> tuple[str, ...]:
    statuses = tuple(part.strip() for part in text.split(",") if part.strip())
    wrong = [status for status in statuses if status not in ("passed", "failed", "killed")]
    if wrong or not statuses:
        raise TraceError(f"--statuses {text!r}: each must be passed, failed or killed")
    return statuses
