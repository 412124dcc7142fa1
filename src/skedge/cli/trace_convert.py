"""``skedge trace convert``: make a scenario from a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from skedge.core.errors import TraceError
from skedge.core.model.kinds import kind_of
from skedge.runs.new_folder import new_folder
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.scenario.load import offered_load
from skedge.scenario.save import save_scenario

from .console import out, print_json, source_text
from .options import JsonOption, with_groups
from .trace import Source


class Make(StrEnum):
    """Ways to make jobs from a trace."""

    rigid = "rigid"
    divisible = "divisible"
    paper = "paper"
    pdors = "pdors"


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
            # the number of machines follows from the load unless it is given
            size = {"load": self.load} if self.servers is None else {"servers": self.servers}
            draw = {**size, **self._machines(), "worker_types": self.worker_types, "cloud": _parse_cloud(self.cloud)}
            data["cluster"] = {"draw": draw}
            uploads = {name: getattr(self, name) for name in ("edge_mbps", "cloud_mbps", "upload_share")}
            data["workload"] = {
                "trace": trace,
                "make": self.make.value,
                "chunks": _parse_chunks(self.chunks),
                **uploads,
            }
            data["workload"] |= {"elastic": True} if self.elastic else {}
        if self.checkpoint_overhead is not None:
            data["physics"] = data.get("physics", {}) | {"checkpoint_overhead": self.checkpoint_overhead}
        return data

    def _machines(self) -> dict[str, Any]:
        """Shapes of the machines, as the fields of a draw."""
        if self.gpus_per_server is not None:
            return {"gpus_per_server": self.gpus_per_server}
        # absolute, as the scenario file may be in another folder
        return {"machines": self.machines if self.machines == "philly-like" else str(Path(self.machines).resolve())}

    def _like_s4(self, trace: dict[str, Any]) -> dict[str, Any]:
        """Fields of s4 with the trace's submissions, scaled so that the last one is at the start of the last slot."""
        # the shipped scenario is the only place that has its numbers
        fields = yaml.safe_load(shipped("s4").read_text(encoding="utf-8"))
        draw = fields["cluster"]["draw"]
        return {
            "slot": fields["slot"],
            "physics": fields["physics"] | {"horizon": f"{self.slots}h"},
            "cluster": {"draw": draw if self.servers is None else draw | {"servers": self.servers}},
            # the last arrival is at the start of the last slot
            "workload": {"trace": trace | {"span": f"{self.slots - 1}h"}, "make": "pdors"}
            | ({"mix": "classes"} if self.classes else {}),
        }


@with_groups
def convert(
    context: typer.Context,
    source: Source,
    conversion: Conversion,
    as_json: JsonOption = False,
) -> None:
    """Make a scenario from a trace, for `skedge run FOLDER/scenario.yaml`."""
    _check_options_apply(context, conversion.make)
    scenario = scenario_from_dict(conversion.scenario(source), "trace convert", Path())
    with new_folder(conversion.folder) as temp_folder:
        save_scenario(scenario, temp_folder)
    cluster = scenario.cluster
    count, unit = kind_of(cluster).size(cluster)
    size = {unit: count}
    summary = {"scenario": str(conversion.folder / "scenario.yaml"), "jobs": len(scenario.jobs), **size}
    load = offered_load(scenario)
    if load is not None:
        summary |= {"load": asdict(load)}
    if as_json:
        print_json({**summary, "source": scenario.source})
        return
    counts = ", ".join(f"{summary[key]} {key}" for key in ("jobs", *size))
    out.print(f"{summary['scenario']}: {counts}", soft_wrap=True)
    out.print(source_text(scenario.source), soft_wrap=True)
    if load is not None:
        out.print(load.text, soft_wrap=True)


_MADE_OF_WORK, _ON_SLOTS = (Make.rigid, Make.divisible), (Make.rigid, Make.divisible, Make.paper)
_MAKES_OF_OPTION = {
    "chunks": (Make.divisible,),
    "elastic": (Make.rigid,),
    "slots": (Make.pdors,),
    "classes": (Make.pdors,),
    **dict.fromkeys(("load", "machines", "gpus_per_server", "worker_types", "cloud"), _ON_SLOTS),
    **dict.fromkeys(("edge_mbps", "cloud_mbps", "upload_share"), _MADE_OF_WORK),
}
"""Options of ``trace convert`` that only some values of --make use."""


_EXCLUSIVE_OPTIONS = (
    ("load", "servers", "the number of machines"),
    ("machines", "gpus_per_server", "the GPUs of a machine"),
    ("edge_mbps", "upload_share", "the upload delays"),
    ("cloud_mbps", "upload_share", "the upload delays"),
)
"""Pairs of options of which only one can be given, and what each determines."""


def _check_options_apply(context: typer.Context, make: Make) -> None:
    """Refuse an option that was given and would do nothing."""
    # a default was not asked for, so it cannot contradict
    given_names = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    for name in given_names:
        option, value = f"--{name.replace('_', '-')}", context.params[name]
        option_text = (option if value else f"--no-{name}") if isinstance(value, bool) else f"{option} {value}"
        if name in _MAKES_OF_OPTION and make not in _MAKES_OF_OPTION[name]:
            used = " or ".join(choice.value for choice in _MAKES_OF_OPTION[name])
            raise TraceError(f"{option_text}: goes with --make {used}, not with --make {make.value}")
    if "cloud_mbps" in given_names and context.params["cloud"] is None:
        raise TraceError("--cloud-mbps: goes with --cloud, which is missing; without it there is no cloud")
    for first, second, quantity in _EXCLUSIVE_OPTIONS:
        if first in given_names and second in given_names:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in (first, second))
            raise TraceError(f"{options}: each determines {quantity}; give one of them")


def _parse_chunks(text: str | None) -> list[int] | None:
    """The range given by ``N`` or ``LOW-HIGH``."""
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not (low.isdigit() and (high or low).isdigit()):
        raise TraceError(f"--chunks {text!r}: it must be a number, or a range like 27-115")
    return [int(low), int(high or low)]


def _parse_cloud(text: str | None) -> bool | int:
    """The cloud of a draw: none, without limit (True), or its number of workers of each type."""
    if text is None or text == "unlimited":
        return text is not None
    if not text.isdigit() or int(text) < 1:
        raise TraceError(f"--cloud {text!r}: it must be a number of workers of each type, at least 1, or unlimited")
    return int(text)
