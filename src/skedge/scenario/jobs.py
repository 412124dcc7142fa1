"""The jobs of a scenario file: given one by one, read from a table, or made from a trace or a generator.

Rows omitted by a reader and values changed by a maker are counted in the scenario's `source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from numpy.random import Generator, default_rng

from skedge.core.errors import ScenarioError, TraceError
from skedge.core.model.job_fields import EXTRA_SCHEMA, JOB_SCHEMA, Job, job_table
from skedge.core.model.latency import KINDS, LatencyCost
from skedge.core.model.value import Sigmoid
from skedge.traces.csv_lines import check_rows
from skedge.traces.formats import read_trace
from skedge.traces.frame import GPU, Trace, stretched
from skedge.traces.makers.site_jobs import SiteRanges, site_jobs
from skedge.traces.makers.synthetic import at_slots, philly_like
from skedge.traces.makers.value_jobs import ValueRanges, value_jobs
from skedge.traces.makers.workload import PaperRanges, TraceJobs, TraceShares, divisible_jobs, paper_jobs, rigid_jobs
from skedge.traces.readers.mapping import TraceMapping

from .load import work_s
from .mapping_file import read_mapping
from .schema import JobForm, LatencyForm, ScenarioForm, SyntheticForm, TraceForm, WorkloadForm

_TRACE_STREAM, _JOBS_STREAM = 1, 2
"""Random streams of a seed; :mod:`skedge.scenario.cluster_draw` has the others."""

_FixedDelays = dict[str, Mapping[str, float]]


def workload_jobs(
    form: ScenarioForm, worker_types: tuple[str, ...], ps_types: tuple[str, ...], sites: list[str], base: Path
) -> tuple[pl.DataFrame, _FixedDelays, dict[str, Any]]:
    """Make or read the jobs of a scenario file.

    Parameters
    ----------
    form
        The scenario file.
    worker_types, ps_types
        Types that an edge server has, to draw a job's from; may be empty if jobs are not made from a trace.
    sites
        Names of the servers, where they are known before they are drawn; empty otherwise.
    base
        Folder for relative paths in the file.

    Returns
    -------
    tuple
        The jobs table, the upload delays fixed in advance [s] by job and server, and the origin of the jobs.

    Raises
    ------
    ScenarioError, TraceError
        If a table or a trace cannot be read, or the jobs cannot be made for such a cluster.
    """
    w = form.workload
    if w.jobs is not None:
        return *job_table([job_of(j) for j in w.jobs]), form.source
    if w.table is not None:
        return read_jobs_table(base / w.table), dict(w.upload), form.source
    # the jobs of PD-ORS and Okita ask for resources, which have no types
    if w.making not in ("pdors", "okita") and not (worker_types and ps_types):
        raise ScenarioError(
            "cluster.servers: no edge server has workers and PSs; jobs made from a trace need a type each"
        )
    if w.making == "okita" and not sites:
        raise ScenarioError("workload.make: okita: takes servers that are named, or drawn with resources or shapes")
    # a stream for each, so that other options of `make` leave a synthetic trace as it is
    trace = _trace(w, default_rng([form.seed, _TRACE_STREAM]), base, form.slot)
    rows = trace.frame if w.trace is None else _part(w.trace, trace.frame)
    build = _jobs_from_trace(form, rows, default_rng([form.seed, _JOBS_STREAM]), (worker_types, ps_types), sites)
    return build.table, {}, _source(w, trace, rows, build)


def _jobs_from_trace(
    form: ScenarioForm,
    rows: pl.DataFrame,
    rng: Generator,
    types: tuple[tuple[str, ...], tuple[str, ...]],
    sites: list[str],
) -> TraceJobs:
    """The jobs made from `rows` as the file's `make` specifies."""
    options = form.workload.options()
    match form.workload.making:
        case "pdors":
            return TraceJobs(value_jobs(rows, rng, slot_s=form.slot, ranges=ValueRanges(**options)), {})
        case "okita":
            return TraceJobs(site_jobs(rows, rng, sites, slot_s=form.slot, ranges=SiteRanges(**options)), {})
        case "paper":
            return paper_jobs(rows, rng, *types, slot_s=form.slot, ranges=PaperRanges(**options))
        case "divisible":
            return divisible_jobs(rows, rng, *types, shares=TraceShares(**options))
        case _:
            return rigid_jobs(rows, rng, *types, shares=TraceShares(**options))


def _source(form: WorkloadForm, trace: Trace, rows: pl.DataFrame, build: TraceJobs) -> dict[str, Any]:
    """The origin of the jobs: rows read, omitted and changed, and GPU-hours of the trace and of the jobs made."""
    origin: dict[str, Any] = {"synthetic": trace.source}
    if form.trace is not None:
        origin = {"trace": Path(form.trace.path).name, "format": form.trace.format or "mapped", "rows": trace.rows}
        origin |= {"merged": trace.merged} if trace.merged else {}
        origin |= {"skipped": trace.skipped, "outside skip and first": len(trace.frame) - len(rows)}
        origin |= {"note": trace.note} if trace.note else {}
        origin |= {} if trace.unit == GPU else {"unit": trace.unit.name}
    changed = {reason: n for reason, n in (trace.changed | build.changed).items() if n}
    source = origin | {"make": form.making, "jobs": len(rows), "changed": changed}
    if form.making in ("rigid", "divisible"):
        # the other makers draw the work, which then has nothing to do with the trace's
        gpu_s = float((rows["gpus"] * rows["duration_s"]).sum())
        hours = {"trace": round(gpu_s / 3600, 3), "jobs": round(work_s(build.table) / 3600, 3)}
        source[f"{trace.unit.key}_hours"] = hours
    return source


def job_of(form: JobForm) -> Job:
    """The job that a form describes."""
    fields = form.model_dump(exclude={"train", "utility", "latency"}, exclude_none=True)
    utility = None if form.utility is None else Sigmoid(**form.utility.model_dump())
    return Job(upload_s=fields.pop("upload"), utility=utility, latency=_latency(form.latency), **fields)


def _latency(form: LatencyForm | None) -> LatencyCost | None:
    return None if form is None else KINDS[form.kind](**form.model_dump(exclude={"kind"}, exclude_none=True))


def _trace(form: WorkloadForm, rng: Generator, base: Path, slot_s: float) -> Trace:
    if form.trace is not None:
        t = form.trace
        return read_trace(base / t.path, _format(t, base), t.statuses, t.fractional)
    assert form.synthetic is not None  # noqa: S101  the form has exactly one source
    return Trace(_synthetic(form.synthetic, rng, slot_s), form.synthetic.arrivals)


def _format(form: TraceForm, base: Path) -> str | TraceMapping:
    if isinstance(form.map, str):
        return read_mapping(base / form.map)
    return form.map or str(form.format)


def _synthetic(form: SyntheticForm, rng: Generator, slot_s: float) -> pl.DataFrame:
    if form.arrivals == "philly-like":
        return philly_like(form.jobs, rng, span_s=form.span)
    slots = round((form.span or 0.0) / slot_s)
    if slots < 1:
        raise ScenarioError(f"workload.synthetic.span: {form.span:g} s: it must be a slot or more")
    return at_slots(form.jobs, rng, slot_s=slot_s, slots=slots, kind=form.arrivals)


def _part(form: TraceForm, frame: pl.DataFrame) -> pl.DataFrame:
    """The part of the trace selected by `form`, with times from its first submission, stretched to its span."""
    part = frame.slice(form.skip, form.first)
    if not len(part):
        raise ScenarioError(f"workload.trace.skip: {form.skip}: leaves no job; the trace has {len(frame)}")
    # rows are in order of submission, so the first one is the earliest
    part = part.with_columns(pl.col("submit_s") - pl.col("submit_s").first())
    return part if form.span is None else stretched(part, form.span)


def _csv(path: Path) -> pl.DataFrame:
    """A jobs table, read with the schema's types, so that an id of digits stays text."""
    check_rows(path)
    texts = {name: kind for name, kind in EXTRA_SCHEMA.items() if kind is str}
    return pl.read_csv(path, schema_overrides=JOB_SCHEMA | texts, glob=False)


def read_jobs_table(path: Path) -> pl.DataFrame:
    """Read a jobs table, Parquet or CSV.

    Raises
    ------
    ScenarioError
        Names the file and the error.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise ScenarioError(f"workload.table: {str(path)!r}: must end in .parquet or .csv")
    try:
        table = pl.read_parquet(path, glob=False) if path.suffix == ".parquet" else _csv(path)
    except (OSError, pl.exceptions.PolarsError, TraceError) as error:
        raise ScenarioError(f"workload.table: {path}: cannot be read: {str(error).splitlines()[0]}") from error
    missing = [c for c in JOB_SCHEMA if c not in table.columns]
    if missing or not len(table):
        problem = f"column {missing[0]!r} is missing" if missing else "has no row"
        raise ScenarioError(f"workload.table: {path}: {problem}; a jobs table has the columns {', '.join(JOB_SCHEMA)}")
    return table
