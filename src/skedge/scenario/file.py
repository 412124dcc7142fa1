"""Scenario files: YAML to :class:`~skedge.core.model.scenario.Scenario`; :mod:`skedge.scenario.save` is the inverse.

The form of a file is :mod:`skedge.scenario.schema`. Everything that is drawn (trace, jobs, cluster) depends on the seed
alone, each through a random stream of its own: more jobs do not change a cluster with a fixed number of servers, and
more servers do not change the ones before them.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError

from skedge.core.errors import InputError, ScenarioError, TraceError
from skedge.core.model.cluster import PS, WORKER, Cluster, Physics, Server, job_table
from skedge.core.model.jobs_file import JobsFile
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import ticks
from skedge.core.model.wording import did_you_mean, first_names
from skedge.traces.makers.workload import RESTORE_S

from .cluster_draw import draw_cluster, drawn_types
from .jobs import job_of, read_jobs_table, workload_jobs
from .load import busy_workers, latest_s, work_s
from .problems import problems
from .rigid import drop_oversized_jobs
from .schema import (
    RESOURCES,
    ClusterFileForm,
    DrawForm,
    Form,
    JobForm,
    ScenarioForm,
    ServerForm,
    TrainForm,
    json_schema,
)
from .script import spec_in
from .site_draw import transfer_costs
from .trace_tenants import share_between_tenants
from .yaml import read_yaml

__all__ = [
    "Source",
    "check_chunks",
    "default_scenario",
    "is_large",
    "job_from_spec",
    "job_of",
    "json_schema",
    "load_cluster_file",
    "load_jobs",
    "load_scenario",
    "read_spec",
    "scenario_from_dict",
    "scenario_of",
    "server_from",
    "server_of",
    "shipped",
    "trainings",
]


CHUNKS_IN_PARTS = 10_000_000
"""Chunks from which on the jobs of a scenario file stay in their table, if they can be read from there in parts."""

Source = str | Path | Scenario | Callable[[int], Scenario]
"""A scenario file, the name of a shipped one (``demo``, ``s1``), a scenario, or a function from seed to scenario."""


def load_scenario(path: Path | str, seed: int | None = None) -> Scenario:
    """Load a scenario file.

    The jobs of a large one stay in their file and are read part by part if they are in a Parquet table in order of
    arrival and id, and the cluster is not drawn by their load.

    Parameters
    ----------
    path
        The YAML file; paths in it are relative to its folder.
    seed
        Replaces the file's seed, >= 0.

    Raises
    ------
    ScenarioError
        If the file cannot be read or is wrong: all problems at once, one per line, as ``file: field: value: what
        would be right``; for invalid YAML, with the line.
    TraceError
        If a trace or a machine list that it names is wrong.
    """
    path = Path(path)
    return scenario_from_dict(read_yaml(path), str(path), path.parent, seed)


def load_jobs(path: Path | str, cluster: Cluster) -> Jobs:
    """Load the jobs of a scenario file or of a jobs table (.parquet, .csv), for another cluster.

    Raises
    ------
    ScenarioError, TraceError
        As :func:`load_scenario`; also if the jobs do not fit `cluster`.
    """
    path = Path(path)
    if path.suffix in (".yaml", ".yml"):
        # delays fixed for single servers are not taken along: they name servers of the file's own cluster
        return Jobs(load_scenario(path).jobs.frame, cluster)
    try:
        return Jobs(read_jobs_table(path), cluster)
    except ScenarioError as error:
        # here the table is the input itself, not a field of a scenario file
        raise ScenarioError(str(error).replace("workload.table", str(path))) from error


def load_cluster_file(path: Path | str, seed: int | None = None) -> Scenario:
    """Load a cluster file: a scenario file of which only name, seed, slot, physics and cluster are used.

    The workload may be missing. If present it must have the right form; it is read only if the cluster is drawn by its
    load.

    Parameters
    ----------
    path, seed
        As for :func:`load_scenario`.

    Returns
    -------
    Scenario
        Without jobs.

    Raises
    ------
    ScenarioError, TraceError
        As :func:`load_scenario`; also if the cluster is drawn by a load and there is no workload.
    """
    path = Path(path)
    form = _form(read_yaml(path), str(path), seed, ClusterFileForm)
    with _source_in_errors(path):
        cluster = _cluster(form, path.parent)
        return Scenario(cluster, Jobs(job_table([])[0], cluster), _physics(form), form.seed, form.name)


@lru_cache(maxsize=2)  # runs of a comparison that one process makes share their scenario
def default_scenario(kind: str = "demo", seed: int | None = None) -> Scenario:
    """Load a shipped scenario: ``demo`` (Philly-like, queues build up), or the setting of a paper's simulation.

    The settings are ``s1`` (JSAC'22), ``s2`` (She et al.), ``s3`` (Okita) and ``s4`` (PD-ORS).

    Raises
    ------
    ScenarioError
        If there is no scenario of this name.
    """
    return load_scenario(shipped(kind), seed)


def scenario_form(path: Path) -> ScenarioForm:
    """The form of a scenario file, checked; no job is made.

    Raises
    ------
    ScenarioError
        As :func:`load_scenario`.
    """
    return _form(read_yaml(path), str(path), None, ScenarioForm)


def scenario_of(source: Source, seed: int | None = None) -> Scenario:
    """The scenario of a file, a shipped name or a function, at `seed`."""
    if isinstance(source, Scenario):
        if seed not in (None, source.seed):
            raise InputError(
                f"a scenario in memory has its one seed, {source.seed}; give a file, or a function of the seed"
            )
        return source
    if callable(source):
        return source(0 if seed is None else seed)
    # a shipped name, unless something in the current folder has that name
    if isinstance(source, str) and not source.endswith((".yaml", ".yml")) and not Path(source).exists():
        return default_scenario(source, seed)
    return load_scenario(source, seed)


@contextmanager
def _source_in_errors(source: Path | str) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except (ScenarioError, TraceError) as error:
        raise type(error)(f"{source}: {error}") from error


def shipped(kind: str) -> Path:
    """Path of a shipped scenario.

    Raises
    ------
    ScenarioError
        If there is no scenario of this name.
    """
    folder = Path(str(importlib.resources.files("skedge"))) / "scenarios"
    kinds = sorted(path.stem for path in folder.glob("*.yaml"))
    if kind not in kinds:
        raise ScenarioError(
            f"scenario {kind!r} is not shipped{did_you_mean(kind, kinds)}; there are {', '.join(kinds)}"
        )
    return folder / f"{kind}.yaml"


def scenario_from_dict(data: object, source: str, base: Path, seed: int | None = None) -> Scenario:
    """Build the scenario that `data`, the content of a scenario file, describes.

    Parameters
    ----------
    data
        A mapping in the form of a scenario file.
    source
        Its name in errors.
    base
        Folder for relative paths in it.
    seed
        Replaces the seed in `data`, >= 0.

    Raises
    ------
    ScenarioError, TraceError
        As :func:`load_scenario`.
    """
    form = _form(data, source, seed, ScenarioForm)
    with _source_in_errors(source):
        return _scenario(form, base)


def trainings(path: Path | str) -> dict[str, TrainForm]:
    """The `train` section of each job of a scenario file, by job id.

    Raises
    ------
    ScenarioError
        If the file is wrong, or one of its jobs does not specify what it trains.
    """
    form = _form(read_yaml(Path(path)), str(path), None, ScenarioForm)
    forms = {}
    for job in form.workload.jobs or ():
        if job.train is None:
            raise ScenarioError(
                f"{path}: workload.jobs ({job.id}).train: is missing; a live job must say what it trains"
            )
        forms[job.id] = job.train
    if not forms:
        raise ScenarioError(f"{path}: workload.jobs: is missing; a live run needs its jobs one by one, with `train`")
    return forms


def job_from_spec(data: object, source: str) -> JobForm:
    """The job described by a job spec: the fields of a job in a scenario file, with these differences.

    It has `name` instead of `id`, no arrival (it arrives on submission), a mapping `resources` with workers,
    worker_type and ps_type, and must specify what it trains.

    Raises
    ------
    ScenarioError
        If it is wrong: all problems at once, one per line.
    """
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{source}: holds no mapping of fields; a job spec has at least name, train and epochs")
    fields = {key: value for key, value in data.items() if key not in ("name", "resources")}
    resources = data.get("resources", {})
    wrong = [f"{source}: {key}: is not a field of a job spec" for key in ("id", "arrival_s") if key in data]
    if not isinstance(resources, Mapping):
        wrong.append(f"{source}: resources: {resources!r}: it must be a mapping of {', '.join(RESOURCES)}")
        resources = {}
    wrong += [
        f"{source}: resources.{key}: is not a field; there are {', '.join(RESOURCES)}"
        for key in resources
        if key not in RESOURCES
    ]
    wrong += [f"{source}: {key}: is missing; it is needed" for key in ("name", "train") if data.get(key) is None]
    if wrong:
        raise ScenarioError("\n".join(wrong))
    check_name(str(data["name"]), f"{source}: name")
    # checked as the only job of a scenario file, so that a spec and a file cannot drift apart; the error's field names
    # are then turned into those of a spec
    job = {**fields, **resources, "id": data["name"], "arrival_s": 0}
    scenario = {"cluster": {"servers": [{"id": "any"}]}, "workload": {"jobs": [job]}}
    try:
        jobs = _form(scenario, source, None, ScenarioForm).workload.jobs
    except ScenarioError as error:
        message = str(error).replace("workload.jobs[0].id", "name").replace(_SPEC_PREFIX, "")
        raise ScenarioError(message.replace("there are id, arrival_s,", "there are name, resources,")) from error
    assert jobs is not None  # noqa: S101  it was just given
    return jobs[0]


def check_name(name: str, field: str) -> None:
    """Check that the name of a job for a live run can be the name of a folder.

    Raises
    ------
    ScenarioError
        If it cannot.
    """
    # no separator of paths; no '.' in front, as in `..`, and no '-', which a command would take for an option
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        raise ScenarioError(
            f"{field}: {name!r}: a job that is trained has a name of at most 100 letters, digits, '_', '.' and '-', "
            "which begins with none of the last two"
        )


def check_chunks(jobs: Jobs) -> None:
    """Check that jobs for a live run have a chunk for each worker that they may have.

    Raises
    ------
    ScenarioError
        Names the first job that does not; cannot occur on slots.
    """
    short = np.flatnonzero(jobs.chunks < jobs.most_workers)
    if len(short):
        job = int(short[0])
        raise ScenarioError(
            f"job {jobs.ids[job]!r}: chunks = {jobs.chunks[job]}; a job that is trained has a chunk for each of its "
            f"workers, so it must be at least its batch, {jobs.batch[job]}"
        )


_SPEC_PREFIX = "workload.jobs[0]."


def read_spec(path: Path | str) -> dict[str, Any]:
    """Read and check the fields of a job spec: of a YAML file, or of a Python script that states them.

    Raises
    ------
    ScenarioError
        As :func:`job_from_spec`; also if the file cannot be read.
    """
    data = spec_in(Path(path)) if Path(path).suffix == ".py" else read_yaml(Path(path))
    job_from_spec(data, str(path))
    return dict(data)  # type: ignore[call-overload]


def _form(data: object, source: str, seed: int | None, kind: type[Form]) -> Form:
    if not isinstance(data, Mapping):
        needed = " and ".join(name for name, field in kind.model_fields.items() if field.is_required())
        raise ScenarioError(f"{source}: holds no mapping of fields; there must be at least {needed}")
    given_seed = {} if seed is None else {"seed": seed}
    try:
        return kind.model_validate({**data, **given_seed})
    except ValidationError as error:
        raise ScenarioError("\n".join(f"{source}: {line}" for line in problems(error, kind))) from error


def _scenario(form: ScenarioForm, base: Path) -> Scenario:
    return _scenario_in_file(form, base) or _scenario_in_memory(form, base)


def _scenario_in_file(form: ScenarioForm, base: Path) -> Scenario | None:
    """The scenario whose jobs stay in their table; None if it is to be read as a whole, which also names its errors."""
    table, drawn = form.workload.table, form.cluster.draw
    # a CSV cannot be read from the middle, and a cluster drawn by load needs the work of all jobs first
    if table is None or not table.endswith(".parquet") or (drawn is not None and drawn.load is not None):
        return None
    try:
        # streamed: a table that is too large for memory is not loaded only to find out that it is
        if not is_large(_chunks_in(base / table)):
            return None
        physics = _physics(form)
        file = JobsFile(base / table, form.workload.upload, physics.step)
        cluster = _cluster(form, base)
        without = Scenario(cluster, Jobs(job_table([])[0], cluster), physics, form.seed, form.name, form.source)
    # the ordinary path reads the file again and reports what is wrong
    except (OSError, pl.exceptions.PolarsError, ScenarioError):
        return None
    scenario = without.in_file(file)
    _check_parts(scenario, file)
    return scenario


def is_large(chunks: int) -> bool:
    """Whether the jobs of a scenario with as many chunks stay in their table."""
    return chunks >= CHUNKS_IN_PARTS


def _chunks_in(table: Path) -> int:
    """Chunks of all jobs in a table."""
    chunks = pl.scan_parquet(table, glob=False).select(pl.col("chunks").cast(pl.Int64).sum())
    return int(chunks.collect(engine="streaming").item())


def _check_parts(scenario: Scenario, file: JobsFile) -> None:
    """Check all jobs as they are checked in memory; totals are limited part by part."""
    # an id may be of any part, so it is unknown only once all parts have been read
    unknown = set(file.fixed_delays)
    for _, part in scenario.parts():
        _check_fixed_delays(part)
        unknown -= set(part.jobs.fixed_delays)
    if unknown:
        raise ScenarioError(f"workload.upload: {min(unknown)!r}: is not the id of a job")
    file.check_ids()


def _scenario_in_memory(form: ScenarioForm, base: Path) -> Scenario:
    if form.cluster.servers is not None:
        cluster = _with_costs(form, [server_of(s) for s in form.cluster.servers], base)
        frame, delays, source = workload_jobs(form, cluster.worker_types, cluster.ps_types, cluster.server_ids, base)
    else:
        draw = _draw(form)
        # jobs need the types, and servers drawn by load need the jobs: so types, jobs, servers, in this order
        worker_types, ps_types = drawn_types(draw, form.seed)
        frame, delays, source = workload_jobs(form, worker_types, ps_types, draw.machine_names or [], base)
        servers = draw_cluster(draw, form.seed, base, _lanes(draw, frame))
        cluster = _with_costs(form, servers, base)
    if form.workload.from_trace:
        cluster, frame, source = share_between_tenants(cluster, frame, source)
    frame, source = drop_oversized_jobs(form.workload, frame, source, cluster)
    scenario = Scenario(cluster, Jobs(frame, cluster, delays), _physics(form), form.seed, form.name, source)
    _check_fixed_delays(scenario)
    return scenario


def _lanes(draw: DrawForm, jobs: pl.DataFrame) -> float:
    """The worker slots on which the jobs are the offered load that is asked for; 0 if none is."""
    if draw.load is None:
        return 0.0
    if latest_s(jobs) == 0:
        raise ScenarioError("cluster.draw.load: needs jobs that arrive over a span; give servers instead")
    workers = busy_workers(jobs) if draw.load_over == "busy" else work_s(jobs) / latest_s(jobs)
    return workers / draw.load


def _cluster(form: ClusterFileForm, base: Path) -> Cluster:
    """The cluster of a scenario with the same file."""
    if form.cluster.servers is not None:
        return _with_costs(form, [server_of(s) for s in form.cluster.servers], base)
    draw = _draw(form)
    if draw.load is None:
        return _with_costs(form, draw_cluster(draw, form.seed, base), base)
    if form.workload is None:
        raise ScenarioError(
            f"cluster.draw.load: {draw.load:g}: there is no workload to be a load of; give cluster.draw.servers"
        )
    # the load is that of the jobs, so they are made here, only to be counted
    return _scenario(ScenarioForm(**dict(form)), base).cluster


def _with_costs(form: ClusterFileForm, servers: list[Server], base: Path) -> Cluster:
    """The cluster, with transfer costs between its servers if the file gives them."""
    transfer, asymmetric = form.cluster.transfer_cost, form.cluster.asymmetric
    sharing = None if form.cluster.sharing is None else form.cluster.sharing.rules()
    if transfer is not None:
        costs = transfer_costs(transfer, servers, form.seed, base)
        return Cluster(servers, costs, asymmetric=asymmetric, sharing=sharing)
    if asymmetric:
        raise ScenarioError("cluster.asymmetric: goes with transfer_cost, which is missing")
    return Cluster(servers, sharing=sharing)


def _draw(form: ClusterFileForm) -> DrawForm:
    assert form.cluster.draw is not None  # noqa: S101  the form has exactly one of servers and draw
    return form.cluster.draw


def server_of(form: ServerForm) -> Server:
    """The server that a form describes."""
    slots = {WORKER + name: n for name, n in form.workers.items()} | {PS + name: n for name, n in form.ps.items()}
    return Server(form.id, form.kind, slots | form.resources, form.storage_mb, form.site, form.gpus, form.upload)


def server_from(data: object, source: str) -> Server:
    """The server described by the fields of one in a cluster file.

    Raises
    ------
    ScenarioError
        If it is wrong: all problems at once, one per line.
    """
    return server_of(_form(data, source, None, ServerForm))


def _physics(form: ClusterFileForm) -> Physics:
    durations = {"checkpoint_overhead": _overhead(form), **form.physics.model_dump(include={"horizon", "mtbf", "mttr"})}
    in_ticks = {name: None if seconds is None else ticks(seconds) for name, seconds in durations.items()}
    # a slot of a nanosecond or less would round to 0, by which times are divided
    return Physics(**{**form.physics.model_dump(), **in_ticks, "slot": max(ticks(form.slot), 1)})


def _overhead(form: ClusterFileForm) -> float:
    """Checkpoint overhead [s]: as given, or the default for the way jobs are made."""
    rigid = form.workload is not None and form.workload.making == "rigid"
    overhead = form.physics.checkpoint_overhead
    return (RESTORE_S if rigid else 0.0) if overhead is None else overhead


def _check_fixed_delays(scenario: Scenario) -> None:
    jobs = scenario.jobs
    unknown = [name for name in jobs.fixed_delays if name not in jobs.index]
    if unknown:
        raise ScenarioError(f"workload.upload: {unknown[0]!r}: is not the id of a job")
    servers = set(scenario.cluster.server_ids)
    for job, delays in jobs.fixed_delays.items():
        for server in delays:
            if server not in servers:
                hint, ids = did_you_mean(server, servers), first_names(scenario.cluster.server_ids)
                raise ScenarioError(f"job {job!r}: upload: there is no server {server!r}{hint}; there are {ids}")
    _check_delays_complete(scenario)


def _check_delays_complete(scenario: Scenario) -> None:
    """Check that a job with individual delays has one for each server, or a range for the rest."""
    delays, jobs = scenario.delays, scenario.jobs
    for job, by_server in jobs.fixed_delays.items():
        for s, server in enumerate(scenario.cluster.servers):
            if (
                # an upper end of 0 is the default of a job without a range; if uploads are not charged all delays are 0
                server.id not in by_server
                and delays.hi[jobs.index[job], delays.cloud[s]] == 0
                and scenario.physics.charge_upload
            ):
                field = "upload_cloud_s" if server.far else "upload_edge_s"
                raise ScenarioError(f"job {job!r}: upload has no delay for {server.id!r}; name it, or give {field}")
