"""``skedge trace``: describe a trace, and make a scenario from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.bar import Bar
from rich.table import Table

from skedge.core.errors import TraceError
from skedge.core.model.kinds import kind_of
from skedge.report.build import write_report
from skedge.report.histograms import Histogram, histograms
from skedge.report.trace_page import trace_page
from skedge.run import new_folder
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.scenario.load import offered_load
from skedge.scenario.mapping_file import mapping_of, read_mapping
from skedge.scenario.save import save_scenario
from skedge.traces.describe import describe, rows
from skedge.traces.formats import FORMATS, read_trace
from skedge.traces.frame import Trace
from skedge.traces.readers.mapping import TraceMapping
from skedge.traces.unmapped import unmapped_error

from .console import out, print_json, source_text
from .options import with_groups

trace_app = typer.Typer(
    help="Describe real traces, and make scenarios from them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

Format = StrEnum("Format", {name: name for name in FORMATS})  # type: ignore[misc]


class Make(StrEnum):
    """How jobs are made from a trace."""

    rigid = "rigid"
    divisible = "divisible"
    paper = "paper"
    pdors = "pdors"


class Fractional(StrEnum):
    """How jobs that request a fraction of a GPU are handled."""

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

    def how(self) -> str | TraceMapping:
        """The format's name, or the mapping."""
        given = {name: getattr(self, name) for name in _COLUMNS if getattr(self, name) is not None}
        ways = [self.form is not None, self.mapping is not None, bool(given)]
        if sum(ways) > 1:
            raise TraceError("--format, --map and options of columns: give one of them")
        if self.form is not None:
            return self.form.value
        if self.mapping is not None:
            return read_mapping(self.mapping)
        if not given:
            raise unmapped_error(self.path)
        return mapping_of(given, "options of columns")

    def trace(self) -> Trace:
        """The trace."""
        return read_trace(self.path, self.how(), _statuses(self.statuses), self.fractional.value)

    def fields(self) -> dict[str, Any]:
        """The trace as a scenario file has it."""
        how = self.how()
        form = {"format": how} if isinstance(how, str) else {"map": how.model_dump(exclude_defaults=True)}
        statuses = list(_statuses(self.statuses))
        return {"path": str(self.path.resolve()), **form, "statuses": statuses, "fractional": self.fractional.value}


_COLUMNS = (
    *("arrival", "interarrival", "duration", "start", "end", "gpus", "id", "user", "group", "gpu_type", "tenant"),
    *("priority", "data_mb", "status", "time", "unit"),
)
"""Fields of a :class:`Source` that are those of a mapping."""


@trace_app.command("describe")
@with_groups
def describe_command(
    source: Source,
    cluster_gpus: Annotated[int | None, typer.Option(help="GPUs of a cluster, for the offered load.", min=1)] = None,
    html: Annotated[Path | None, typer.Option(help="Also draw a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    table = Table("figure", "value", title=str(source.path.name))
    for name, value in rows(figures):
        table.add_row(name, value)
    out.print(table)
    for picture in pictures:
        out.print(_bars(picture))


def _bars(picture: Histogram) -> Table:
    """The histogram as bars of characters."""
    table = Table(title=picture.title, box=None, show_header=False)
    most = max(picture.counts)
    for label, count in zip(picture.labels, picture.counts, strict=True):
        table.add_row(label, Bar(most, 0, count, width=_BAR), f"{count:,}")
    return table


_BAR = 40
"""Width of the longest bar [characters]."""


@dataclass(frozen=True)
class Conversion:
    """The scenario to make from a trace."""

    folder: Annotated[Path, typer.Option("--out", help="New folder for scenario.yaml and jobs.parquet.")]
    make: Annotated[
        Make,
        typer.Option(
            help="rigid: a job trains on the GPUs that it requested, for its duration; divisible: the same work in "
            "chunks that any number of workers share; paper: JSAC'22 Sec. V; pdors: s4 with the trace's arrivals."
        ),
    ] = Make.rigid
    chunks: Annotated[
        str | None, typer.Option(help="divisible: chunks per job, N or LOW-HIGH; default 27, 60 or 115 (Table II).")
    ] = None
    checkpoint_overhead: Annotated[
        str | None,
        typer.Option(help="Time to restore displaced work, such as 30s; default 30s if rigid, else 0s."),
    ] = None
    skip: Annotated[int, typer.Option(help="Number of jobs to skip at the start.", min=0)] = 0
    first: Annotated[int | None, typer.Option(help="Number of jobs to take after that; default all.", min=1)] = None
    load: Annotated[
        float,
        typer.Option(help="GPUs wanted over GPUs there in the middle 80 % of arrivals; sets the machines.", min=0.01),
    ] = 0.9
    servers: Annotated[int | None, typer.Option(help="Number of machines, instead of --load.", min=1)] = None
    machines: Annotated[str, typer.Option(help="philly-like, or the path of a list of machines.")] = "philly-like"
    gpus_per_server: Annotated[int | None, typer.Option(help="Instead: GPUs of every machine.", min=1)] = None
    worker_types: Annotated[int, typer.Option(help="Number of worker types.", min=1)] = 1
    cloud: Annotated[
        str | None,
        typer.Option(help="Workers of each type in a cloud, or unlimited (it costs nothing); default: no cloud."),
    ] = None
    edge_mbps: Annotated[
        float | None, typer.Option(help="Rate of uploads to an edge server [Mbit/s]; default 1000.", min=1e-3)
    ] = None
    cloud_mbps: Annotated[
        float | None, typer.Option(help="Rate of uploads to the cloud [Mbit/s]; default a 15th of 1000.", min=1e-3)
    ] = None
    upload_share: Annotated[
        float | None,
        typer.Option(help="Instead: upload of a chunk as a share of its job's duration, whatever its size.", min=0.0),
    ] = None
    elastic: Annotated[
        bool, typer.Option("--elastic", help="rigid, without an unlimited cloud: keep jobs larger than the cluster.")
    ] = False
    slots: Annotated[
        int, typer.Option(help="pdors: horizon [slots of 1 h]; the last job arrives in the last slot.", min=2)
    ] = 80
    classes: Annotated[bool, typer.Option(help="pdors: utilities follow Google's scheduling classes.")] = False
    seed: Annotated[int, typer.Option(help="Seed of all random draws.", min=0)] = 0

    def scenario(self, source: Source) -> dict[str, Any]:
        """The scenario as the fields of a scenario file."""
        trace = source.fields() | {"skip": self.skip} | ({} if self.first is None else {"first": self.first})
        data: dict[str, Any] = {"name": source.path.name.split(".")[0], "seed": self.seed}
        if self.make is Make.pdors:
            data |= self._like_s4(trace)
        else:
            wanted = {"load": self.load} if self.servers is None else {"servers": self.servers}
            drawn = {**wanted, **self._machines(), "worker_types": self.worker_types, "cloud": _cloud(self.cloud)}
            data["cluster"] = {"draw": drawn}
            uploads = {name: getattr(self, name) for name in ("edge_mbps", "cloud_mbps", "upload_share")}
            data["workload"] = {"trace": trace, "make": self.make.value, "chunks": _chunks(self.chunks), **uploads}
            data["workload"] |= {"elastic": True} if self.elastic else {}
        if self.checkpoint_overhead is not None:
            data["physics"] = data.get("physics", {}) | {"checkpoint_overhead": self.checkpoint_overhead}
        return data

    def _machines(self) -> dict[str, Any]:
        """Shapes of the machines, as the fields of a draw."""
        if self.gpus_per_server is not None:
            return {"gpus_per_server": self.gpus_per_server}
        return {"machines": self.machines if self.machines == "philly-like" else str(Path(self.machines).resolve())}

    def _like_s4(self, trace: dict[str, Any]) -> dict[str, Any]:
        """Fields of s4 with the trace's submissions, scaled so that the last one is at the start of the last slot."""
        fields = yaml.safe_load(shipped("s4").read_text(encoding="utf-8"))
        draw = fields["cluster"]["draw"]
        return {
            "slot": fields["slot"],
            "physics": fields["physics"] | {"horizon": f"{self.slots}h"},
            "cluster": {"draw": draw if self.servers is None else draw | {"servers": self.servers}},
            "workload": {"trace": trace | {"span": f"{self.slots - 1}h"}, "make": "pdors"}
            | ({"mix": "classes"} if self.classes else {}),
        }


@trace_app.command("convert")
@with_groups
def convert_command(
    context: typer.Context,
    source: Source,
    wanted: Conversion,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a scenario from a trace, for `skedge run FOLDER/scenario.yaml`."""
    _check_used(context, wanted.make)
    scenario = scenario_from_dict(wanted.scenario(source), "trace convert", Path())
    with new_folder(wanted.folder) as aside:
        save_scenario(scenario, aside)
    cluster = scenario.cluster
    count, unit = kind_of(cluster).size(cluster)
    size = {unit: count}
    found = {"scenario": str(wanted.folder / "scenario.yaml"), "jobs": len(scenario.jobs), **size}
    load = offered_load(scenario)
    if load is not None:
        found |= {"load": asdict(load)}
    if as_json:
        print_json({**found, "source": scenario.source})
        return
    counts = ", ".join(f"{found[what]} {what}" for what in ("jobs", *size))
    out.print(f"{found['scenario']}: {counts}", soft_wrap=True)
    out.print(source_text(scenario.source), soft_wrap=True)
    if load is not None:
        out.print(load.text, soft_wrap=True)


_MADE_OF_WORK, _ON_SLOTS = (Make.rigid, Make.divisible), (Make.rigid, Make.divisible, Make.paper)
_OTHERS = {
    "chunks": (Make.divisible,),
    "elastic": (Make.rigid,),
    "slots": (Make.pdors,),
    "classes": (Make.pdors,),
    **dict.fromkeys(("load", "machines", "gpus_per_server", "worker_types", "cloud"), _ON_SLOTS),
    **dict.fromkeys(("edge_mbps", "cloud_mbps", "upload_share"), _MADE_OF_WORK),
}
"""Options of ``trace convert`` that only some values of --make use."""


_RIVALS = (
    ("load", "servers", "the number of machines"),
    ("machines", "gpus_per_server", "the GPUs of a machine"),
    ("edge_mbps", "upload_share", "the upload delays"),
    ("cloud_mbps", "upload_share", "the upload delays"),
)
"""Pairs of options of which only one can be given, and what each determines."""


def _check_used(context: typer.Context, make: Make) -> None:
    """Refuse an option that was given and would do nothing."""
    given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    for name in given:
        option, value = f"--{name.replace('_', '-')}", context.params[name]
        typed = (option if value else f"--no-{name}") if isinstance(value, bool) else f"{option} {value}"
        if name in _OTHERS and make not in _OTHERS[name]:
            used = " or ".join(one.value for one in _OTHERS[name])
            raise TraceError(f"{typed}: goes with --make {used}, not with --make {make.value}")
    if "cloud_mbps" in given and context.params["cloud"] is None:
        raise TraceError("--cloud-mbps: goes with --cloud, which is missing; without it there is no cloud")
    for first, second, what in _RIVALS:
        if first in given and second in given:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in (first, second))
            raise TraceError(f"{options}: each determines {what}; give one of them")


def _chunks(text: str | None) -> list[int] | None:
    """The range given by ``N`` or ``LOW-HIGH``."""
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not (low.isdigit() and (high or low).isdigit()):
        raise TraceError(f"--chunks {text!r}: it must be a number, or a range like 27-115")
    return [int(low), int(high or low)]


def _cloud(text: str | None) -> bool | int:
    """The cloud of a draw: none, without limit (True), or its number of workers of each type."""
    if text is None or text == "unlimited":
        return text is not None
    if not text.isdigit() or int(text) < 1:
        raise TraceError(f"--cloud {text!r}: it must be a number of workers of each type, at least 1, or unlimited")
    return int(text)


def _statuses(text: str) -> tuple[str, ...]:
    taken = tuple(part.strip() for part in text.split(",") if part.strip())
    wrong = [status for status in taken if status not in ("passed", "failed", "killed")]
    if wrong or not taken:
        raise TraceError(f"--statuses {text!r}: each must be passed, failed or killed")
    return taken
