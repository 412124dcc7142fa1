"""The form of a scenario file (YAML): its fields and their ranges."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)

from skedge.core.model import fields
from skedge.core.model.cluster import MOST_SERVERS
from skedge.core.model.fields import Maybe, Pair, Rule, ValuesOf
from skedge.core.model.job_fields import JOB_FIELDS, JobField
from skedge.core.model.latency import KINDS
from skedge.core.model.sharing import Sharing, Tenant
from skedge.traces.formats import FORMATS
from skedge.traces.makers.site_jobs import SiteRanges
from skedge.traces.makers.value_jobs import ValueRanges
from skedge.traces.makers.workload import PaperRanges, TraceShares
from skedge.traces.readers.mapping import TraceMapping

from .values import (
    Address,
    Amount,
    Count,
    CountRange,
    Duration,
    Durations,
    Mix,
    Name,
    NeedRange,
    Number,
    NumberRange,
    PositiveRange,
    Requirement,
    Slots,
    Span,
    no_bool,
)

Form = TypeVar("Form", bound=BaseModel)


class _Form(BaseModel):
    # YAML reads `id: 7` as a number, and JSON has neither inf nor nan
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)


class PhysicsForm(_Form):
    """Physics of the world: see :class:`skedge.core.model.cluster.Physics`."""

    slotted: bool = False
    colocation: Literal["cloud", "one_server"] = "cloud"
    charge_upload: bool = True
    data: Literal["kept", "last_place"] = "kept"
    checkpoint_overhead: Duration | None = Field(None, description="default: 30 s with make: rigid, else 0")
    estimate_error: Number = Field(0.0, ge=0)
    speedup: Number = Field(1.0, gt=0)
    horizon: Span | None = Field(None, description="window of prices, plans and utilities; whole slots")
    mtbf: Span | None = Field(
        None, description="mean time between failures of an edge server, which lose no work; default: none fails"
    )
    mttr: Span = Field(3600.0, description="with mtbf: mean time to the repair of a server")

    @model_validator(mode="after")
    def _repairs_follow_failures(self) -> PhysicsForm:
        # mttr has a default, so only a value that was given can be out of place
        if self.mtbf is None and "mttr" in self.model_fields_set:
            raise ValueError(f"mttr {self.mttr:g} s does not go without mtbf, the mean time between failures")
        return self


class ServerForm(_Form):
    """An edge server with slots by type or amounts of resources, or the cloud."""

    id: Name
    kind: Literal["edge", "cloud"] = "edge"
    workers: dict[str, Slots] = {}
    ps: dict[str, Slots] = {}
    resources: dict[Name, Amount] = Field({}, description="amounts by name, instead of workers and ps")
    storage_mb: Number | None = Field(None, ge=0)
    site: str | None = None
    gpus: Number = Field(
        0.0,
        ge=0,
        le=1000,
        description="GPUs for live runs with --device, whole or a part of one; no policy counts them",
    )
    upload: Literal["edge", "cloud"] = Field(
        "edge", description="whose upload delays hold: cloud for an edge server that is as far away as the cloud"
    )

    @model_validator(mode="after")
    def _gpus_are_whole_or_part_of_one(self) -> ServerForm:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus: {self.gpus:g}: must be a whole number, or below 1 for a part of a GPU")
        return self

    @model_validator(mode="after")
    def _cloud_has_all(self) -> ServerForm:
        if self.kind == "cloud" and (self.workers or self.ps):
            raise ValueError("workers and ps do not go with kind: cloud, which has every type without limit")
        if self.kind == "cloud" and self.resources:
            raise ValueError("resources do not go with kind: cloud, which has no limit")
        if self.resources and (self.workers or self.ps):
            raise ValueError("resources do not go with workers and ps; a cluster has slots or resources")
        # by these prefixes the model knows slots among the resources of a server
        slots = [name for name in self.resources if name.startswith(("worker:", "ps:"))]
        if slots:
            raise ValueError(f"resources.{slots[0]}: is the name of a slot; give it under workers or ps")
        return self


class DrawForm(_Form):
    """A cluster drawn from a machine list, one worker slot per GPU; or a number of machines with equal resources."""

    servers: Annotated[int, Field(ge=1, le=MOST_SERVERS), BeforeValidator(no_bool)] | None = Field(
        None, description="number of machines"
    )
    load: Number | None = Field(None, gt=0, description="instead: just enough machines for this offered load")
    load_over: Literal["busy", "span"] = Field(
        "busy", description="load: GPUs wanted in the middle 80 % of arrivals, or all work over the span of arrivals"
    )
    machines: str = Field("philly-like", description="philly-like, or the path of a machine list")
    gpus_per_server: Slots | None = Field(None, ge=1, description="instead of machines: each machine has so many GPUs")
    worker_types: CountRange = Field((1, 1), description="number of worker types; drawn if a range")
    ps_types: CountRange = (1, 1)
    ps_per_worker: CountRange = Field((1, 4), description="PS slots per GPU, drawn per machine")
    cloud: bool | Annotated[Slots, Field(ge=1)] = Field(
        True, description="a cloud without limit; false: none; a number: a far server of so many workers of each type"
    )
    storage_mb: Number | None = Field(None, ge=0, description="storage of each edge server; default: no limit")
    resources: dict[Name, Amount] | None = Field(
        None, min_length=1, description="with servers: resources of each machine, instead of slots"
    )
    shapes: Literal["ec2", "ec2-largest"] | None = Field(
        None, description="with servers: resources of random Amazon P2, P3 or G3 instances; or of the largest of each"
    )
    instances: Slots = Field(1, ge=1, description="with shapes: instances that a site has")

    @model_validator(mode="after")
    def _one_size(self) -> DrawForm:
        _exactly_one(self, "servers", "load")
        if self.gpus_per_server is not None and "machines" in self.model_fields_set:
            raise ValueError("gpus_per_server does not go with machines, a list that has each machine's GPUs")
        if "load_over" in self.model_fields_set and self.load is None:
            raise ValueError("load_over goes with load, which is missing")
        if "instances" in self.model_fields_set and self.shapes is None:
            raise ValueError("instances goes with shapes, which is missing")
        for name, reason in (("resources", "of which all machines have the same"), ("shapes", "which say all")):
            extra = sorted(self.model_fields_set - {"servers", "instances", name})
            if getattr(self, name) is not None and extra:
                raise ValueError(f"{extra[0]} does not go with {name}, {reason}")
        return self

    @property
    def machine_names(self) -> list[str] | None:
        """Names of the machines, if known before the draw."""
        return None if self.resources is None and self.shapes is None else [f"m{i}" for i in range(self.servers or 0)]


class CostDrawForm(_Form):
    """Random cost per MB between sites: uniform, or in proportion to distances or round trips in a file."""

    range: NumberRange = Field(description="cost per MB, [lowest, highest]")
    by: str | None = Field(
        None, description="path: .csv with LATITUDE and LONGITUDE, or a square matrix of round trips as text or .gz"
    )


Costs = Annotated[list[list[Annotated[float, BeforeValidator(no_bool)]]], Field(min_length=1)]


COSTS = "rows", "drawn", "file"
"""The forms of transfer_cost."""


def _form_of_costs(value: object) -> str:
    return COSTS[0] if isinstance(value, list) else COSTS[2] if isinstance(value, str) else COSTS[1]


class TenantForm(_Form):
    """A tenant: its weight beside others', and the largest share of the workers that its jobs hold together."""

    weight: Number = Field(1.0, gt=0, le=1e6)
    quota: Number = Field(1.0, gt=0, le=1, description="share of the edge workers of each type")
    max_wait: Duration | None = Field(None, gt=0, description="limit of its jobs, as max_wait_s of a job")
    max_run_time: Duration | None = Field(None, gt=0, description="limit of its jobs, as max_run_time_s of a job")


class SharingForm(_Form):
    """How tenants and priority classes share the workers; see :class:`skedge.core.model.sharing.Sharing`."""

    tenants: dict[Name, TenantForm] = {}
    min_runtime: Duration = Field(0.0, description="a job keeps its workers for so long, whoever waits")
    most_preemptions: Annotated[int, Field(ge=0, le=10**9), BeforeValidator(no_bool)] | None = Field(
        None, description="a job preempted so often runs to the end; default: no bound"
    )
    ageing: Duration | None = Field(
        None, gt=0, description="a job that waits for so long rises by a class, again and again; default: never"
    )

    def rules(self) -> Sharing:
        """The rules."""
        tenants = {
            name: Tenant(tenant.weight, tenant.quota, tenant.max_wait, tenant.max_run_time)
            for name, tenant in self.tenants.items()
        }
        return Sharing(tenants, self.min_runtime, self.most_preemptions, self.ageing)


class ClusterForm(_Form):
    """The servers, listed or drawn; with transfer_cost they are sites between which data move (Okita)."""

    servers: list[ServerForm] | None = None
    draw: DrawForm | None = None
    transfer_cost: (
        Annotated[
            Annotated[Costs, Tag("rows")] | Annotated[CostDrawForm, Tag("drawn")] | Annotated[str, Tag("file")],
            Discriminator(_form_of_costs),
        ]
        | None
    ) = Field(None, description="cost per MB from the row's server to the column's: rows, a .csv, or drawn")
    asymmetric: bool = Field(False, description="true if the two directions of transfer_cost may differ")
    sharing: SharingForm | None = Field(None, description="tenants and priority classes; with slots")

    @model_validator(mode="after")
    def _one_source(self) -> ClusterForm:
        return _exactly_one(self, "servers", "draw")


class SyntheticForm(_Form):
    """Random arrivals, drawn by the function of this name in :mod:`skedge.traces.makers.synthetic`."""

    jobs: Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(no_bool)]
    span: Span | None = None
    arrivals: Literal["philly-like", "alternating", "uniform"] = Field(
        "philly-like",
        description="uniform, alternating: at slots of the span; alternating: twice as many at even slots as at odd",
    )

    @model_validator(mode="after")
    def _has_slots(self) -> SyntheticForm:
        if self.arrivals != "philly-like" and self.span is None:
            raise ValueError(f"arrivals: {self.arrivals} needs a span")
        return self


class TraceForm(_Form):
    """A trace file."""

    path: str
    format: Literal[*FORMATS] | None = None  # type: ignore[valid-type]
    map: TraceMapping | str | None = Field(None, description="instead of format: a mapping, or the path of its file")
    statuses: list[Literal["passed", "failed", "killed"]] = Field(["passed"], min_length=1)
    skip: Count = Field(0, ge=0, description="number of jobs to skip at the start")
    first: Count | None = Field(None, ge=1, description="number of jobs to take after that; default: all")
    fractional: Literal["skip", "ceil"] = Field("skip", description="fractions of a GPU: skip the job, or round up")
    span: Span | None = Field(None, description="stretch or compress the submissions to this span")

    @model_validator(mode="after")
    def _one_form(self) -> TraceForm:
        return _exactly_one(self, "format", "map")


class TrainForm(_Form):
    """Training in a live run: `factory` (``package.module:function``) is called with `args`.

    `shuffle`: whether the job's samples are shuffled over its chunks, by `seed`; set it to false if their order
    matters. `lr_by_batch`: number of samples per round for which the optimizer's learning rate is meant; in a round of
    n samples it is multiplied by n / `lr_by_batch`. `local_steps`: mini-batches that a worker trains by itself in a
    round, an epoch's at most, before the mean of all workers' parameters is taken (local SGD); 1 is synchronous SGD.
    `code`: a Python file or a folder with the factory's module, which is sent to all processes of the job; by default
    the module must be installed. `pip`: packages that it imports and that are not installed on the servers, as pip
    takes them (``einops==0.8.0``). `connect`: addresses ``HOST:PORT`` that it connects to; a service that confines jobs
    gives them no other network.
    """

    factory: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    args: dict[str, str | int | float | bool] = {}
    seed: Count = Field(0, ge=0)
    shuffle: bool = True
    code: Annotated[str, Field(min_length=1)] | None = None
    pip: Annotated[list[Requirement], Field(max_length=100)] = []
    connect: Annotated[list[Address], Field(max_length=100)] = []
    lr_by_batch: Count | None = Field(None, ge=1, description="samples per round for which the learning rate is meant")
    local_steps: Count = Field(1, ge=1, description="mini-batches that a worker trains by itself in a round")


class UtilityForm(_Form):
    """Utility of a job: height / (1 + exp(steepness (slots - target))); :class:`skedge.core.model.value.Sigmoid`."""

    height: Number = Field(gt=0, description="theta1")
    steepness: Number = Field(0.0, description="theta2 [1/slot], 0 or more")
    target: Number = Field(0.0, description="theta3 [slots]")

    @model_validator(mode="after")
    def _falls(self) -> UtilityForm:
        if self.steepness < 0:
            raise ValueError(f"steepness {self.steepness:g}: the utility increases with time; it must be 0 or more")
        if self.steepness and "target" not in self.model_fields_set:
            raise ValueError(f"steepness {self.steepness:g} without target; it must have the slots at which it falls")
        return self


class LatencyForm(_Form):
    """Cost of a job's response time in slots; see :mod:`skedge.core.model.latency`."""

    kind: Literal["exponential", "linear", "piecewise"]
    tau: Number | None = Field(None, gt=0, description="exponential: cost at time 0; linear: cost per slot")
    rate: Number | None = Field(None, gt=0, description="exponential: growth per slot; default: 0.25")
    base: Number | None = Field(None, ge=0, description="linear: cost at time 0; default: 0")
    early: Number | None = Field(None, ge=0, description="piecewise: cost before the deadline")
    late: Number | None = Field(None, ge=0, description="piecewise: cost from the deadline on")
    deadline: Number | None = Field(None, gt=0, description="piecewise [slots]")

    @model_validator(mode="after")
    def _of_its_kind(self) -> LatencyForm:
        parameters = {f.name: f.default for f in dataclasses.fields(KINDS[self.kind])}
        for name in sorted(self.model_fields_set - {"kind", *parameters}):
            raise ValueError(f"{name} does not go with kind: {self.kind}, which takes {', '.join(parameters)}")
        for name, default in parameters.items():
            if default is dataclasses.MISSING and getattr(self, name) is None:
                raise ValueError(f"{name} is missing; kind: {self.kind} takes {', '.join(parameters)}")
        if self.early is not None and self.late is not None and self.late < self.early:
            raise ValueError(f"late {self.late:g} is below early {self.early:g}: the cost would fall with time")
        return self


def _form_of(rule: Rule, unit: str) -> Any:
    """The type in a form of what `rule` accepts."""
    match rule:
        case Pair():
            return Durations
        case ValuesOf():
            return dict[Name, _form_of(rule.rule, unit)]  # type: ignore[misc]
        case Maybe():
            return _form_of(rule.rule, unit) | None
        case fields.Number():
            if unit == "s":
                return Duration
            # JSON schema has two keywords for a lower bound, exclusiveMinimum and minimum
            above, least = (rule.low, None) if rule.above else (None, rule.low)
            bounds: Any = Field(gt=above, ge=least, le=None if rule.high == math.inf else rule.high)
            return Annotated[int if rule.whole else float, bounds, BeforeValidator(no_bool)]
    return Name


def _job_field(f: JobField) -> tuple[Any, Any]:
    """Type and default of a field of a job in a file; None stands for inf, which JSON does not have."""
    form = {"utility": UtilityForm | None, "latency": LatencyForm | None}.get(f.name) or _form_of(
        f.row.check, f.row.unit
    )
    about = f"{f.row.about} ({f.row.unit})" if f.row.unit else f.row.about
    if f.default is dataclasses.MISSING:
        return form, Field(description=about)
    if f.default == math.inf:
        return form | None, Field(None, description=about)
    return form, Field(f.default, description=about)


_IN_FILES = {"upload_s": "upload"}
"""Fields with another name in files."""
_made: dict[str, Any] = {_IN_FILES.get(f.name, f.name): _job_field(f) for f in JOB_FIELDS}
_JobFields: Any = create_model("_JobFields", __base__=_Form, **_made)


class JobForm(_JobFields):
    """A job: :class:`skedge.core.model.job_fields.Job`; `upload` is its `upload_s`, `train` is only for live runs."""

    if TYPE_CHECKING:  # the fields are made of the rows, so a type checker does not know their names

        def __getattr__(self, name: str) -> Any:
            """A field of a job."""

    chunks: Count = Field(0, ge=1, description="data chunks; may be left out where data gives them by site")
    train: TrainForm | None = None

    @model_validator(mode="after")
    def _has_chunks(self) -> JobForm:
        total = sum(self.data.values())
        if not self.data and self.chunks == 0:
            raise ValueError("chunks is missing; it is needed, or data by site")
        if self.data and total < 1:
            raise ValueError("data: there is no chunk at any site; there must be something to train")
        # 0 is the default of chunks, which may be left out
        if self.data and self.chunks not in (0, total):
            raise ValueError(f"chunks {self.chunks}: data has {total} over its sites; leave chunks out")
        self.chunks = self.chunks or total
        return self


Making = Literal["rigid", "divisible", "paper", "pdors", "okita"]


class WorkloadForm(_Form):
    """The source of the jobs, exactly one, and how jobs are made from a trace."""

    synthetic: SyntheticForm | None = None
    trace: TraceForm | None = None
    jobs: list[JobForm] | None = Field(None, min_length=1)
    table: str | None = Field(None, description="path of a jobs table, .parquet or .csv")
    upload: dict[str, dict[str, Duration]] = Field({}, description="with table: upload delays by job and server")
    make: Making | None = Field(None, description="with synthetic and trace; default: rigid")
    elastic: bool | None = Field(
        None, description="with make: rigid and no cloud: keep jobs larger than the cluster, which gang policies reject"
    )
    epochs: CountRange | None = None
    chunks: CountRange | None = Field(None, description="default: the rows of JSAC'22's Table II")
    minibatches: CountRange | None = Field(None, description="with make: paper and chunks")
    gang_share: Number | None = Field(None, gt=0, description="k_j as a share of D_j; default: the trace's GPUs")
    gradient_mb: PositiveRange | None = None
    chunk_mb: NumberRange | None = None
    minibatch_h: PositiveRange | None = None
    ps_update_ms: NumberRange | None = None
    bandwidth_mbps: PositiveRange | None = None
    upload_edge_slots: NumberRange | None = None
    upload_cloud_slots: NumberRange | None = None
    communication_share: Number | None = Field(None, ge=0, lt=1)
    ps_update_share: Number | None = Field(None, ge=0, lt=1)
    data_mb: list[Annotated[Number, Field(gt=0)]] | None = Field(
        None, min_length=1, description="sizes of a job's data, one drawn; default: Table II's three data sets"
    )
    edge_mbps: Number | None = Field(None, gt=0, description="rate of uploads to an edge server [Mbit/s]")
    cloud_mbps: Number | None = Field(None, gt=0, description="rate of uploads to the cloud [Mbit/s]")
    upload_share: Number | None = Field(
        None, ge=0, description="instead: upload delay relative to the job's duration, whatever its data"
    )
    upload_spread: NumberRange | None = None
    cloud_factor: Number | None = Field(None, ge=0, description="with upload_share: the cloud's delay over the edge's")
    samples: CountRange | None = None
    sample_slots: PositiveRange | None = None
    ratio: CountRange | None = None
    batch: CountRange | None = None
    internal_factor: Number | None = Field(None, ge=1)
    worker_needs: dict[Name, NeedRange] | None = None
    ps_needs: dict[Name, NeedRange] | None = None
    height: PositiveRange | None = None
    target: NumberRange | None = None
    site_chunks: CountRange | None = None
    job_chunks: list[Annotated[int, Field(ge=1), BeforeValidator(no_bool)]] | None = Field(
        None, min_length=1, description="instead of site_chunks: numbers of a job's chunks, one drawn, spread evenly"
    )
    slot_chunks: PositiveRange | None = None
    exchange_mb: NumberRange | None = None
    latency: Literal["exponential", "linear", "piecewise"] | None = None
    tau: PositiveRange | None = None
    rate: PositiveRange | None = None
    base: NumberRange | None = None
    early: NumberRange | None = None
    late: NumberRange | None = None
    deadline: PositiveRange | None = None
    mix: Mix | None = Field(
        None, description="shares of time-insensitive, -sensitive and -critical jobs; classes: by scheduling class"
    )

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadForm:
        _exactly_one(self, "synthetic", "trace", "jobs", "table")
        if self.upload and self.table is None:
            raise ValueError("upload goes with table; a job of jobs has its own upload")
        if self.elastic is not None and self.making != "rigid":
            raise ValueError("elastic goes with make: rigid, whose jobs ask for all their GPUs at once")
        options = _OPTIONS[self.making] if self.from_trace else {}
        for name in ["make", *dict.fromkeys(name for group in _OPTIONS.values() for name in group)]:
            if getattr(self, name) is not None and name not in options and not (name == "make" and self.from_trace):
                with_what = f"make: {self.making}" if self.from_trace else "jobs and table, which are complete"
                raise ValueError(f"{name} does not go with {with_what}")
        return self

    @model_validator(mode="after")
    def _uploads_follow_sizes_or_durations(self) -> WorkloadForm:
        for name in _BY_SIZE:
            if getattr(self, name) is not None and self.upload_share is not None:
                raise ValueError(f"{name} does not go with upload_share, by which uploads do not depend on sizes")
        if self.data_mb is not None and self.chunk_mb is not None:
            raise ValueError("data_mb and chunk_mb: each determines the size of a chunk; give one of them")
        if self.site_chunks is not None and self.job_chunks is not None:
            raise ValueError("site_chunks and job_chunks: each determines the data of a job; give one of them")
        if self.cloud_factor is not None and self.upload_share is None:
            raise ValueError("cloud_factor goes with upload_share; without it give cloud_mbps")
        return self

    @property
    def from_trace(self) -> bool:
        """Whether jobs are made from a trace."""
        return self.synthetic is not None or self.trace is not None

    @property
    def making(self) -> Making | Literal[""]:
        """Method by which jobs are made from a trace; empty if they are not."""
        return (self.make or "rigid") if self.from_trace else ""

    def options(self) -> dict[str, Any]:
        """The options that the file sets for `make`, by their names in the code."""
        names = _OPTIONS[self.making]
        return {names[name]: getattr(self, name) for name in names if getattr(self, name) is not None}


_BY_SIZE = ("data_mb", "edge_mbps", "cloud_mbps")
"""Fields of a workload by which uploads follow sizes."""

_SHARES = {"communication": "communication_share", "ps_update": "ps_update_share", "upload": "upload_share"}
"""Fields of :class:`TraceShares` with another name in files."""


def _options_of(ranges: type[Any]) -> dict[str, str]:
    """Fields of a workload that set the fields of `ranges`, and the names of these."""
    return {_SHARES.get(f.name, f.name): f.name for f in dataclasses.fields(ranges)}


_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "rigid": {name: field for name, field in _options_of(TraceShares).items() if name != "chunks"},
    "divisible": _options_of(TraceShares),
    "paper": _options_of(PaperRanges),
    "pdors": _options_of(ValueRanges),
    "okita": _options_of(SiteRanges),
}
"""Fields for each value of ``make``, and their names in the class that its maker of jobs takes."""


class ClusterFileForm(_Form):
    """A cluster file: a scenario file whose workload may be missing."""

    name: str = "scenario"
    seed: Annotated[int, BeforeValidator(no_bool)] = Field(0, ge=0)
    slot: Span = 3600.0
    physics: PhysicsForm = Field(default_factory=PhysicsForm)
    cluster: ClusterForm
    workload: WorkloadForm | None = None


class ScenarioForm(ClusterFileForm):
    """A scenario file."""

    workload: WorkloadForm
    source: dict[str, Any] = Field({}, description="written by skedge: origin of the jobs, rows omitted and changed")

    @model_validator(mode="after")
    def _source_is_read(self) -> ScenarioForm:
        if self.source and self.workload.from_trace:
            raise ValueError("source goes with jobs and table; of jobs that are made it is written by skedge")
        return self


def _exactly_one(form: Form, *names: str) -> Form:
    present = [name for name in names if getattr(form, name) is not None]
    if len(present) != 1:
        have = " and ".join(present) or "none"
        raise ValueError(f"it must have exactly one of {', '.join(names)}; it has {have}")
    return form


_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

RESOURCES = ("workers", "worker_type", "ps_type")
"""Fields of a job that a job spec has under ``resources``."""


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, shipped as ``scenario.schema.json``."""
    return {**_DIALECT, **ScenarioForm.model_json_schema()}


def job_json_schema() -> dict[str, Any]:
    """The JSON schema of a job spec (:func:`skedge.scenario.file.job_from_spec`), shipped as ``job.schema.json``."""
    form = JobForm.model_json_schema()
    of_job = form["properties"]
    resources = {"type": "object", "additionalProperties": False, "properties": {r: of_job[r] for r in RESOURCES}}
    own = {"name": of_job["id"] | {"title": "Name"}, "resources": resources, "train": {"$ref": "#/$defs/TrainForm"}}
    shared = {name: of_job[name] for name in of_job if name not in ("id", "arrival_s")}
    required = ["name", "train", *(name for name in form["required"] if name not in ("id", "arrival_s"))]
    about = {"title": "Job spec", "description": "What `skedge submit` sends: a job and what it trains."}
    return {**_DIALECT, **form, **about, "properties": shared | own, "required": required}


SCHEMAS = {"scenario.schema.json": json_schema, "job.schema.json": job_json_schema}
"""Function that makes each shipped schema, by file name."""
