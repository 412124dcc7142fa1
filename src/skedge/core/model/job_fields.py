"""The fields of a job, one row each, and the columns made of them.

A row is a field of :class:`Job`: its name, type and default, and with them, in its metadata, its unit, its check, the
kinds of cluster to which it applies, and a line that describes it. Made of the rows: the form of a job in a scenario
file (:mod:`skedge.scenario.schema`) and with it the JSON schema, the columns of a jobs table and their checks
(:mod:`skedge.core.model.job_checks`), the columns that policies see (:class:`JobColumns`), and the table in
``docs/scenarios.md`` (``docs/tools/fields.py``). To add a field, add a row (ADR 22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from skedge.core.errors import UnknownColumnError

from .fields import Maybe, Number, Pair, Rule, ValuesOf, cast_fields, instance_of, short_repr, text
from .latency import KINDS, LatencyCost, latency_columns, parameter_names
from .time import LONGEST_S
from .value import Sigmoid
from .wording import did_you_mean

if TYPE_CHECKING:
    import polars as pl

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Kind = Literal["slots", "resources", "sites"]
"""What servers offer: typed slots; amounts of resources; or resources at sites, with transfer costs between sites."""

DEFAULT_TENANT = "default"
"""The tenant of a job that names none."""

EVERY: tuple[Kind, ...] = ("slots", "resources", "sites")
_AMOUNTS: tuple[Kind, ...] = ("resources", "sites")


@dataclass(frozen=True, slots=True)
class Row:
    """Description of a field of a job, beside its name, type and default.

    Attributes
    ----------
    about
        A line for readers of scenario files; paper symbols in brackets.
    check
        Checks and casts a value.
    unit
        Empty for numbers without a unit.
    kinds
        The kinds of cluster to which the field applies; elsewhere an optional column must be left out.
    table
        Whether a jobs table has its columns always, only if some job differs from the default (*optional*), or never.
    """

    about: str
    check: Rule
    unit: str = ""
    kinds: tuple[Kind, ...] = EVERY
    table: Literal["always", "optional", "never"] = "optional"


def _row(about: str, check: Rule, unit: str = "", **options: Any) -> dict[str, Row]:
    return {"row": Row(about, check, unit, **options)}


def _always(about: str, check: Rule, unit: str = "", **options: Any) -> dict[str, Row]:
    return {"row": Row(about, check, unit, table="always", **options)}


_COUNT = Number("a whole number, at least 1 and below 2**53", 1, 2**53, whole=True)
_CLASS = Number("a whole number from 0 to 1e+06", 0, 1e6, whole=True)
_CHUNKS = Number("a whole number of chunks, 0 or more", 0, 2**53, whole=True)
_UP_TO = Number(f"a number from 0 to {LONGEST_S:g}", 0, LONGEST_S)
_SPAN = Number(f"a number above 0, at most {LONGEST_S:g}", 0, LONGEST_S, above=True)
_ABOVE_0 = Number("a number from 1e-09 to 1e+15", 1e-9, 1e15)
_AMOUNT = Number("a number from 0 to 1e+15", 0, 1e15)
_LATENCY = instance_of(*KINDS.values())
_RATE = Number("a number above 0, or inf", 0, above=True, endless=True)


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as announced on arrival (JSAC'22 Sec. III-A); each field is a row (see the module).

    Each mini-batch costs 2 q / b seconds of communication unless the job's workers and its PS are co-located. The
    upload delay of a pair (job, server) is drawn from the job's range by a seeded hash of the pair
    (:mod:`skedge.core.model.network`).
    """

    id: str = field(metadata=_always("name, unique", text))
    arrival_s: float = field(metadata=_always("arrival [r_j]", _UP_TO, "s"))
    epochs: int = field(metadata=_always("epochs [E_j]", _COUNT))
    chunks: int = field(metadata=_always("data chunks [D_j]; may be left out where `data` gives them", _COUNT))
    minibatches: int = field(metadata=_always("mini-batches of a chunk in an epoch [B_j]", _COUNT))
    minibatch_s: float = field(metadata=_always("training of a mini-batch on a worker [m_j]", _UP_TO, "s"))
    ps_update_s: float = field(default=0.0, metadata=_always("update on the PS for a mini-batch [G_j]", _UP_TO, "s"))
    gradient_mb: float = field(default=0.0, metadata=_always("gradients, and parameters [q_j]", _UP_TO, "MB"))
    bandwidth_mbps: float = field(
        default=1000.0, metadata=_always("rate between a worker and a PS [b_j]", _ABOVE_0, "Mbit/s")
    )
    worker_type: str = field(default="gpu", metadata=_always("type of its workers", text, kinds=("slots",)))
    ps_type: str = field(default="cpu", metadata=_always("type of its PS", text, kinds=("slots",)))
    workers: int = field(default=1, metadata=_always("workers that a gang policy allocates [k_j]", _COUNT))
    chunk_mb: float = field(default=0.0, metadata=_always("size of a chunk, moved and stored [u_j]", _UP_TO, "MB"))
    upload_edge_s: tuple[float, float] = field(
        default=(0.0, 0.0),
        metadata=_always("range of the upload delay to edge servers", Pair(_UP_TO), "s", kinds=("slots", "resources")),
    )
    upload_cloud_s: tuple[float, float] = field(
        default=(0.0, 0.0),
        metadata=_always("range of the upload delay to the cloud", Pair(_UP_TO), "s", kinds=("slots",)),
    )
    upload_s: Mapping[str, float] = field(
        default_factory=dict,
        metadata=_row(
            "upload delays by server, in place of a draw",
            ValuesOf(_UP_TO),
            "s",
            kinds=("slots", "resources"),
            table="never",
        ),
    )
    worker_needs: Mapping[str, float] = field(
        default_factory=dict,
        metadata=_row("demand of a worker by resource [alpha_i^r]", ValuesOf(_AMOUNT), kinds=_AMOUNTS),
    )
    ps_needs: Mapping[str, float] = field(
        default_factory=dict, metadata=_row("demand of a PS by resource [beta_i^r]", ValuesOf(_AMOUNT), kinds=_AMOUNTS)
    )
    batch: int = field(
        default=1, metadata=_row("global batch size [F_i]; with resources also the maximum of workers", _COUNT)
    )
    ratio: float = field(default=1.0, metadata=_row("workers per PS [gamma_i]", _ABOVE_0))
    internal_mbps: float = field(
        default=np.inf, metadata=_row("rate between a co-located worker and PS [b_i^(i)]; inf: free", _RATE, "Mbit/s")
    )
    utility: Sigmoid | None = field(
        default=None, metadata=_row("value of the job by its training time in slots", Maybe(instance_of(Sigmoid)))
    )
    data: Mapping[str, int] = field(
        default_factory=dict,
        metadata=_row("chunks by the site that stores them [D_i^r]", ValuesOf(_CHUNKS), kinds=("sites",)),
    )
    exchange_mb: float = field(
        default=0.0,
        metadata=_row(
            "exchanged by a worker with a PS at another site in a slot [pi_i]", _AMOUNT, "MB", kinds=("sites",)
        ),
    )
    latency: LatencyCost | None = field(
        default=None,
        metadata=_row("cost of the response time in slots [f_i]; required", Maybe(_LATENCY), kinds=("sites",)),
    )
    tenant: str = field(
        default=DEFAULT_TENANT, metadata=_row("whose it is, of `cluster.sharing`", text, kinds=("slots",))
    )
    priority: int = field(
        default=0, metadata=_row("its class in `cluster.sharing`; higher goes first", _CLASS, kinds=("slots",))
    )
    max_lag: int | None = field(
        default=None,
        metadata=_row("most epochs by which a chunk may lead the job's slowest (M39)", Maybe(_COUNT), kinds=("slots",)),
    )
    max_wait_s: float | None = field(
        default=None,
        metadata=_row("it fails if it has not begun to run so long after its arrival (M43)", Maybe(_SPAN), "s"),
    )
    max_run_time_s: float | None = field(
        default=None,
        metadata=_row("it fails once it has held workers for so long in all (M43)", Maybe(_SPAN), "s"),
    )
    user: str | None = field(default=None, metadata=_row("who submitted it; only policies read it", Maybe(text)))
    gpu_type: str | None = field(
        default=None, metadata=_row("GPU that it asked for, a label; only policies read it", Maybe(text))
    )

    def __post_init__(self) -> None:
        """Check and cast the fields.

        Raises
        ------
        ScenarioError
            Names the field, its value and the values allowed.
        """
        cast_fields(self, _CHECKS, f"job {short_repr(self.id)}")


@dataclass(frozen=True, slots=True)
class JobField:
    """A row with its name, type and default; `default` is MISSING if the field must be given."""

    name: str
    type: Any
    default: Any
    row: Row

    @property
    def columns(self) -> dict[str, type]:
        """Its columns in a jobs table and their types; none of a field by name, which has one for each name."""
        if self.row.table == "never" or isinstance(self.row.check, ValuesOf):
            return {}
        if self.name == "utility":
            return {f"utility_{f.name}": float for f in fields(Sigmoid)}
        if self.name == "latency":
            return {"latency": str} | {f"latency_{name}": float for kind in KINDS for name in parameter_names(kind)}
        if isinstance(self.row.check, Pair):
            return dict.fromkeys(_ends(self.name), float)
        # of `int | None` the int: what is missing is null
        return {self.name: next(kind for kind in (str, int, float) if kind in (self.type, *_parts(self.type)))}

    def holds(self, column: str) -> bool:
        """Whether `column` of a jobs table belongs to this field."""
        return column in self.columns or (isinstance(self.row.check, ValuesOf) and column.startswith(self.name + "."))

    def cells(self, job: Job) -> dict[str, Any]:
        """The values of `job` by column; none where an optional field has its default."""
        value = getattr(job, self.name)
        if self.row.table == "never" or value is None or (self.row.table == "optional" and value == self.default):
            return {}
        match value:
            case Mapping():
                return {f"{self.name}.{key}": item for key, item in value.items()}
            case tuple():
                return dict(zip(_ends(self.name), value, strict=True))
            case Sigmoid():
                return {f"utility_{f.name}": getattr(value, f.name) for f in fields(Sigmoid)}
            case str() | int() | float():
                return {self.name: value}
            case _:
                return latency_columns(value)


def _ends(name: str) -> tuple[str, str]:
    """Columns of a range in seconds: ``upload_edge_s`` is split into ``upload_edge_lo_s`` and ``upload_edge_hi_s``."""
    return f"{name[:-2]}_lo_s", f"{name[:-2]}_hi_s"


def _parts(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", ())


def _default(f: Any) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


_HINTS = get_type_hints(Job)
JOB_FIELDS = tuple(JobField(f.name, _HINTS[f.name], _default(f), f.metadata["row"]) for f in fields(Job))
"""All fields, in order."""
_CHECKS = {f.name: f.row.check for f in JOB_FIELDS}

JOB_SCHEMA: dict[str, Any] = {c: kind for f in JOB_FIELDS if f.row.table == "always" for c, kind in f.columns.items()}
"""Columns that every jobs table has, and their types. Numbers have 64 bits."""

EXTRA_SCHEMA: dict[str, Any] = {
    c: kind for f in JOB_FIELDS if f.row.table == "optional" for c, kind in f.columns.items()
}
"""Optional columns of a jobs table; a missing column or a null value means the default of :class:`Job`."""

WORKER_NEEDS, PS_NEEDS = "worker_needs.", "ps_needs."
"""Prefixes of the columns, one per resource, with the demand of a worker and of a PS; missing or null means 0."""

DATA = "data."
"""Prefix of the columns, one per site, with the number of a job's chunks stored there; missing or null means 0."""


def job_table(jobs: Sequence[Job]) -> tuple[pl.DataFrame, dict[str, Mapping[str, float]]]:
    """A jobs table, and the upload delays fixed in advance, by job id.

    Its columns are :data:`JOB_SCHEMA`, and those of the optional fields that differ from the default in at least one
    job.
    """
    import polars as pl  # noqa: PLC0415 - every policy imports this module, and polars takes longer than all of them

    rows = [{name: cell for f in JOB_FIELDS for name, cell in f.cells(job).items()} for job in jobs]
    named = dict.fromkeys(name for row in rows for name in row if name not in JOB_SCHEMA)
    # worker_needs.gpu and the like: a column for each name in a mapping, which no schema can list
    by_name = {name: int if name.startswith(DATA) else float for name in named if "." in name}
    extra = {name: kind for name, kind in EXTRA_SCHEMA.items() if name in named}
    return pl.DataFrame(rows, schema=JOB_SCHEMA | extra | by_name), {j.id: j.upload_s for j in jobs if j.upload_s}


@dataclass(frozen=True, eq=False)
class JobColumns:
    """The announced jobs as columns, by (arrival, id), the order that decides ties.

    Attributes
    ----------
    arrival
        [µs] r_j.
    chunks, minibatches
        D_j, and E_j B_j: mini-batches of one chunk over all epochs.
    workers
        Workers that a gang policy allocates [k_j], at most the maximum.
    worker_type, ps_type
        Indices into the cluster's types; -1 if the edge has no slots of that kind at all (a cloud alone).
    tenant
        Number in the order of the cluster's :attr:`~skedge.core.model.sharing.Sharing.names`; 0 without tenants.
    priority
        Its class.
    user, gpu_type
        Numbers of the job's labels, by first appearance, so that a number tells nothing of later jobs; their texts are
        those of :meth:`~skedge.core.policy.View.user` and :meth:`~skedge.core.policy.View.gpu_type`.
    minibatch_s, ps_update_s, gradient_mb, bandwidth_mbps, internal_mbps, batch, ratio, exchange_mb, chunk_mb
        As announced: see :class:`Job`.
    chunk_bytes
        `chunk_mb` in whole bytes, which decide whether chunks fit.
    worker_needs, ps_needs
        Demand of a worker and of a PS for each resource, shape ``(jobs, resources)``.
    data
        Chunks by site, D_i^r, shape ``(jobs, servers)``; without columns if the cluster has no sites.
    """

    arrival: Ints
    chunks: Ints
    minibatches: Ints
    workers: Ints
    worker_type: Ints
    ps_type: Ints
    tenant: Ints
    priority: Ints
    user: Ints
    gpu_type: Ints
    minibatch_s: Floats
    ps_update_s: Floats
    gradient_mb: Floats
    bandwidth_mbps: Floats
    internal_mbps: Floats
    batch: Ints
    ratio: Floats
    exchange_mb: Floats
    chunk_mb: Floats
    chunk_bytes: Ints
    worker_needs: Floats
    ps_needs: Floats
    data: Ints

    def first(self, count: int) -> JobColumns:
        """The first `count` jobs; the arrays are read-only, and made when first accessed."""
        # past __init__, which takes all arrays: __getattr__ makes each one when a policy reads it
        columns = object.__new__(JobColumns)
        vars(columns).update(_of=self, _count=count)
        return columns

    if not TYPE_CHECKING:  # a type checker reports an unknown name itself

        def __getattr__(self, name: str) -> NDArray[Any]:
            """A column of the first jobs; refuse an unknown name, the message lists the columns."""
            if name in JobColumns.__dataclass_fields__ and "_of" in vars(self):
                column = getattr(self._of, name)[: self._count]
                # a slice of the kernel's own array, which no policy may change
                column.flags.writeable = False
                vars(self)[name] = column
                return column
            columns = [f.name for f in fields(JobColumns)]
            hint = did_you_mean(name, columns)
            raise UnknownColumnError(f"jobs.{name}: is not a column{hint}; there are {', '.join(columns)}")
