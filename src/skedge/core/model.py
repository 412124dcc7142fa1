"""The model: servers, jobs, the physics of a scenario (``docs/model.md``, section 1).

Sizes are MB (10^6 bytes), rates Mbit/s, times microseconds (:mod:`skedge.core.time`) except where a name ends in
``_s`` (seconds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import ScenarioError
from .fields import Number, Rule, flag, made_of, mapping, one_of, optional, pair, settle, shown, text
from .latency import KINDS, LatencyCost, latency_columns
from .size import MOST_MB, UNLIMITED, whole_bytes
from .time import HOUR, LONGEST_S, SECOND, seconds
from .value import Sigmoid

if TYPE_CHECKING:
    import polars as pl

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Placement = tuple[tuple[int, int], ...]
"""(server, workers) pairs, by server."""

WORKER = "worker:"
"""Prefix of the resource name of a worker type's slots."""
PS = "ps:"
"""Prefix of the resource name of a parameter-server type's slots."""


@dataclass(frozen=True, slots=True)
class Server:
    """An edge server or the cloud.

    `capacity` maps a resource to its amount. In the edge-cloud model the resources are ``worker:<type>`` and
    ``ps:<type>`` and the amounts are slots. Otherwise resources have any names (``gpu``, ``memory``) and amounts >= 0;
    each worker and each PS takes what its job specifies. The two kinds are not mixed in one cluster. The cloud has
    every type without limit, so its `capacity` is empty. `storage_mb` is U_s of JSAC'22 Sec. VI; None means no limit.
    """

    id: str
    kind: Literal["edge", "cloud"] = "edge"
    capacity: Mapping[str, float] = field(default_factory=dict)
    storage_mb: float | None = None
    site: str | None = None

    def __post_init__(self) -> None:
        """Check and cast the fields.

        Raises
        ------
        ScenarioError
            Names the field, its value and the values allowed.
        """
        settle(self, _SERVER, f"server {shown(self.id)}")


def _amount(resource: str) -> Rule:
    return _SLOTS if _is_slot(resource) else _AMOUNT


_SLOTS = Number("a whole number from 0 to 100000", 0, 100_000, whole=True)
_AMOUNT = Number("a number from 0 to 1e+15", 0, 1e15)
_SERVER: dict[str, Rule] = {
    "id": text,
    "kind": one_of("edge", "cloud"),
    "capacity": mapping(_amount),
    "storage_mb": optional(Number(f"None (no limit) or a number from 0 to {MOST_MB:g}", 0, MOST_MB)),
    "site": optional(text),
}


Kind = Literal["slots", "resources", "sites"]
"""What servers offer: typed slots; amounts of resources; or resources at sites, with transfer costs between sites."""


class Cluster:
    """All servers, and their slots as arrays.

    A *lane* is one worker slot of an edge server; a *PS slot* is one parameter-server slot of an edge server. Both are
    numbered in the order of (server, type as listed in the server's capacity, slot).

    Attributes
    ----------
    servers
        In the order given, which decides ties.
    kind
        Which of the three cluster models this is. Code that depends on the kind of cluster chooses by this field, once.
    cloud
        Index of the cloud, or None.
    worker_types, ps_types
        Names, in order of first appearance; elsewhere a type is referred to by its index.
    lane_server, lane_type, ps_server, ps_type
        Server and type of each lane and each PS slot, shapes ``(lanes,)`` and ``(ps slots,)``.
    lane_slot, ps_slot
        Number of each slot on its server, from 0.
    workers, ps
        Slots by server and type, shape ``(servers, types)``.
    storage_bytes
        U_s [bytes], shape ``(servers,)``; :data:`~skedge.core.size.UNLIMITED` for no limit.
    resources
        Names of the resources, in order of first appearance; empty if servers have slots.
    amounts
        Capacity of each resource, C_h^r, shape ``(servers, resources)``.
    transfer_cost
        Cost per MB from the row's server to the column's [q^{rr'}], shape ``(servers, servers)``. None: transfers are
        free. A cluster with transfer costs is a cluster of *sites* (Okita): each job gives the location of its data.
    asymmetric
        True if cost[a, b] may differ from cost[b, a].

    Raises
    ------
    ScenarioError
        If the servers or the costs are not valid.
    """

    def __init__(
        self, servers: Sequence[Server], transfer_cost: Floats | None = None, *, asymmetric: bool = False
    ) -> None:
        self.servers = tuple(made_of(Server)(f"cluster.servers[{i}]", s) for i, s in enumerate(servers))
        _check_servers(self.servers)
        clouds = [i for i, s in enumerate(self.servers) if s.kind == "cloud"]
        self.cloud: int | None = clouds[0] if clouds else None
        self.worker_types = _types(self.servers, WORKER)
        self.ps_types = _types(self.servers, PS)
        self.workers = _slots(self.servers, WORKER, self.worker_types)
        self.ps = _slots(self.servers, PS, self.ps_types)
        self.lane_server, self.lane_type, self.lane_slot = _enumerate(self.servers, WORKER, self.worker_types)
        self.ps_server, self.ps_type, self.ps_slot = _enumerate(self.servers, PS, self.ps_types)
        self.storage_bytes = _storage(self.servers)
        self.resources = tuple(dict.fromkeys(r for s in self.servers for r in s.capacity if not _is_slot(r)))
        self.amounts: Floats = np.array(
            [[s.capacity.get(r, 0) for r in self.resources] for s in self.servers], np.float64
        )
        self.asymmetric = flag("cluster.asymmetric", asymmetric)
        self.transfer_cost: Floats | None = None if transfer_cost is None else _costs(transfer_cost)
        if self.transfer_cost is not None:
            self._check_sites(self.transfer_cost)
        self.kind: Kind = "sites" if self.transfer_cost is not None else "resources" if self.resources else "slots"

    def _check_sites(self, cost: Floats) -> None:
        if not self.resources:
            raise ScenarioError("cluster.transfer_cost: requires servers with resources, not slots")
        check_transfer_cost(cost, self.server_ids, asymmetric=self.asymmetric)

    @cached_property
    def server_ids(self) -> list[str]:
        """Names of the servers, in order."""
        return [s.id for s in self.servers]

    @property
    def lanes(self) -> int:
        """Number of lanes: worker slots of edge servers."""
        return len(self.lane_server)

    def lanes_of(self, worker_type: int) -> Ints:
        """Lanes of one worker type, ascending."""
        return np.flatnonzero(self.lane_type == worker_type)

    def label(self, server: int) -> str:
        """Name of `server`."""
        return self.servers[server].id


def _costs(given: Any) -> Floats:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ScenarioError(f"cluster.transfer_cost: {error}; it must be a table of numbers") from error


def check_transfer_cost(cost: Floats, labels: Sequence[str], *, asymmetric: bool) -> None:
    """Check costs per MB between sites: finite, >= 0, 0 from a site to itself, symmetric unless declared asymmetric.

    Raises
    ------
    ScenarioError
        Names the sites and the value.
    """
    sites = len(labels)
    if cost.shape != (sites, sites):
        raise ScenarioError(
            f"cluster.transfer_cost: has shape {cost.shape}; {sites} servers take {sites} rows of {sites}"
        )
    for a, b in np.argwhere(~(np.isfinite(cost) & (cost >= 0))):
        raise ScenarioError(_pair_cost(cost, labels, a, b) + "; it must be 0 or more, and finite")
    for a in np.flatnonzero(np.diag(cost)):
        raise ScenarioError(_pair_cost(cost, labels, a, a) + "; a MB that stays must cost 0")
    if asymmetric:
        return
    for a, b in np.argwhere(cost != cost.T):
        raise ScenarioError(
            f"{_pair_cost(cost, labels, a, b)} and {cost[b, a]:g} back; they must be equal, or the cluster declared "
            "asymmetric"
        )


def _pair_cost(cost: Floats, labels: Sequence[str], a: Any, b: Any) -> str:
    return f"cluster.transfer_cost: from {labels[a]!r} to {labels[b]!r} it is {cost[a, b]:g}"


def _check_servers(servers: Sequence[Server]) -> None:
    if not servers:
        raise ScenarioError("cluster.servers: is empty; at least one server is needed")
    seen: set[str] = set()
    for i, s in enumerate(servers):
        where = f"cluster.servers[{i}] ({s.id})"
        if s.id in seen:
            raise ScenarioError(f"{where}: id {s.id!r} is used twice; ids must be unique")
        seen.add(s.id)
        if s.kind == "cloud" and s.capacity:
            raise ScenarioError(f"{where}.capacity: the cloud has every type without limit; it must be left out")
    if sum(s.kind == "cloud" for s in servers) > 1:
        raise ScenarioError("cluster.servers: more than one server has kind cloud; the model has one cloud")
    _check_one_kind(servers)


def _is_slot(resource: str) -> bool:
    return resource.startswith((WORKER, PS))


def _check_one_kind(servers: Sequence[Server]) -> None:
    """Reject a cluster that mixes slots with other resources, or other resources with a cloud."""
    kinds = {_is_slot(r): f"{r!r} ({s.id})" for s in servers for r in s.capacity}
    if len(kinds) > 1:
        raise ScenarioError(
            f"cluster.servers: slots such as {kinds[True]} and resources such as {kinds[False]} are mixed; a cluster "
            "has one kind"
        )
    clouds = [s.id for s in servers if s.kind == "cloud"]
    if False in kinds and clouds:
        raise ScenarioError(
            f"cluster.servers ({clouds[0]}): a cloud does not go with resources such as {kinds[False]}; give a server "
            "with as much of each as it may use"
        )


def _storage(servers: Sequence[Server]) -> Ints:
    limit = whole_bytes(np.array([s.storage_mb or 0.0 for s in servers], np.float64))
    return np.where([s.storage_mb is None for s in servers], UNLIMITED, limit)


def _types(servers: Sequence[Server], prefix: str) -> tuple[str, ...]:
    names = (r.removeprefix(prefix) for s in servers if s.kind == "edge" for r in s.capacity if r.startswith(prefix))
    return tuple(dict.fromkeys(names))


def _slots(servers: Sequence[Server], prefix: str, types: tuple[str, ...]) -> Ints:
    counts = np.zeros((len(servers), len(types)), np.int64)
    for i, s in enumerate(servers):
        if s.kind == "edge":
            counts[i] = [s.capacity.get(prefix + t, 0) for t in types]
    return counts


def _enumerate(servers: Sequence[Server], prefix: str, types: tuple[str, ...]) -> tuple[Ints, Ints, Ints]:
    rows: list[tuple[int, int, int]] = []
    for i, s in enumerate(servers):
        kinds = [types.index(r.removeprefix(prefix)) for r in s.capacity if r.startswith(prefix)]
        listed = [k for k in kinds for _ in range(int(s.capacity[prefix + types[k]]))] if s.kind == "edge" else []
        rows.extend((i, k, slot) for slot, k in enumerate(listed))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as announced on arrival (JSAC'22 Sec. III-A; paper symbols in brackets).

    Attributes
    ----------
    id
        Name, unique.
    arrival_s
        [r_j] seconds, >= 0.
    epochs, chunks, minibatches
        [E_j], [D_j], [B_j]: epochs, data chunks, mini-batches per chunk; each >= 1.
    minibatch_s, ps_update_s
        [m_j], [G_j] seconds per mini-batch on a worker and per update on the PS; >= 0, their sum > 0.
    gradient_mb, bandwidth_mbps
        [q_j] MB of gradients (and of parameters), [b_j] Mbit/s reserved; each mini-batch costs 2 q / b seconds unless
        the job's workers and its PS are co-located.
    worker_type, ps_type
        Types requested: v_jsw = 1 iff the worker's type is `worker_type`; o_jsp likewise.
    workers
        [k_j] workers that a gang policy allocates, 1..chunks.
    chunk_mb
        [u_j] size of a chunk, which counts for data moved and for storage.
    upload_edge_s, upload_cloud_s
        Range of the upload delay per chunk to an edge server and to the cloud [Delta_js]; the delay of a pair (job,
        server) is drawn from it by a seeded hash of the pair (:mod:`skedge.core.network`).
    upload_s
        Delays given individually, by server id; they take precedence.
    worker_needs, ps_needs
        [alpha_i^r, beta_i^r] demand of a worker and of a PS for each resource; for servers with resources, not slots.
    batch
        [F_i] global batch size in mini-batches; on servers with resources also the maximum number of workers.
    ratio
        [gamma_i] workers per PS, > 0; with `batch` it scales communication: 2 q gamma / (b F) per mini-batch.
    internal_mbps
        [b_i^(i)] rate between a co-located worker and PS, Mbit/s; inf: communication is free there.
    utility
        Value of the job as a function of its training time; None if not specified.
    data
        [D_i^r] chunks by id of the site that stores them, in total `chunks`; for clusters of sites (Okita).
    exchange_mb
        [pi_i] MB of parameters that a worker exchanges with a PS at another site in a slot, >= 0.
    latency
        [f_i] cost of the response time; for clusters of sites.
    max_lag
        Maximum lead of a dispatched chunk over the job's slowest chunk [epochs] (rule M39); None: no limit.
    """

    id: str
    arrival_s: float
    epochs: int
    chunks: int
    minibatches: int
    minibatch_s: float
    ps_update_s: float = 0.0
    gradient_mb: float = 0.0
    bandwidth_mbps: float = 1000.0
    worker_type: str = "gpu"
    ps_type: str = "cpu"
    workers: int = 1
    chunk_mb: float = 0.0
    upload_edge_s: tuple[float, float] = (0.0, 0.0)
    upload_cloud_s: tuple[float, float] = (0.0, 0.0)
    upload_s: Mapping[str, float] = field(default_factory=dict)
    worker_needs: Mapping[str, float] = field(default_factory=dict)
    ps_needs: Mapping[str, float] = field(default_factory=dict)
    batch: int = 1
    ratio: float = 1.0
    internal_mbps: float = np.inf
    utility: Sigmoid | None = None
    data: Mapping[str, int] = field(default_factory=dict)
    exchange_mb: float = 0.0
    latency: LatencyCost | None = None
    max_lag: int | None = None

    def __post_init__(self) -> None:
        """Check and cast the fields.

        Raises
        ------
        ScenarioError
            Names the field, its value and the values allowed.
        """
        settle(self, _JOB, f"job {shown(self.id)}")


_COUNT = Number("a whole number, at least 1 and below 2**53", 1, 2**53, whole=True)
_NOT_NEGATIVE = Number(f"a number from 0 to {LONGEST_S:g}", 0, LONGEST_S)
_NEEDS = Number("a number, 0 or more", 0)
_JOB: dict[str, Rule] = {
    "id": text,
    **dict.fromkeys(("epochs", "chunks", "minibatches", "workers", "batch"), _COUNT),
    **dict.fromkeys(("arrival_s", "minibatch_s", "ps_update_s", "gradient_mb", "chunk_mb"), _NOT_NEGATIVE),
    **dict.fromkeys(("bandwidth_mbps", "ratio"), Number("a number from 1e-09 to 1e+15", 1e-9, 1e15)),
    **dict.fromkeys(("worker_type", "ps_type"), text),
    **dict.fromkeys(("upload_edge_s", "upload_cloud_s"), pair(_NOT_NEGATIVE)),
    **dict.fromkeys(("worker_needs", "ps_needs"), mapping(lambda _: _NEEDS)),
    "upload_s": mapping(lambda _: _NOT_NEGATIVE),
    "internal_mbps": Number("a number above 0, or inf", 0, above=True, endless=True),
    "utility": optional(made_of(Sigmoid)),
    "data": mapping(lambda _: Number("a whole number of chunks, 0 or more", 0, 2**53, whole=True)),
    "exchange_mb": _NEEDS,
    "latency": optional(made_of(*KINDS.values())),
    "max_lag": optional(_COUNT),
}


JOB_SCHEMA: dict[str, Any] = {
    "id": str,
    "arrival_s": float,
    "epochs": int,
    "chunks": int,
    "minibatches": int,
    "minibatch_s": float,
    "ps_update_s": float,
    "gradient_mb": float,
    "bandwidth_mbps": float,
    "worker_type": str,
    "ps_type": str,
    "workers": int,
    "chunk_mb": float,
    "upload_edge_lo_s": float,
    "upload_edge_hi_s": float,
    "upload_cloud_lo_s": float,
    "upload_cloud_hi_s": float,
}
"""Columns of a jobs table: the fields of :class:`Job`, ranges split into lo and hi. Numbers have 64 bits."""

EXTRA_SCHEMA: dict[str, Any] = {
    "batch": int,
    "ratio": float,
    "internal_mbps": float,
    "utility_height": float,
    "utility_steepness": float,
    "utility_target": float,
    "exchange_mb": float,
    "latency": str,
    "latency_tau": float,
    "latency_rate": float,
    "latency_base": float,
    "latency_early": float,
    "latency_late": float,
    "latency_deadline": float,
    "max_lag": int,
}
"""Optional columns of a jobs table; a missing column or a null value means the default of :class:`Job`."""

WORKER_NEEDS, PS_NEEDS = "worker_needs.", "ps_needs."
"""Prefixes of the columns, one per resource, with the demand of a worker and of a PS; missing or null means 0."""

DATA = "data."
"""Prefix of the columns, one per site, with the number of a job's chunks stored there; missing or null means 0."""


def job_table(jobs: Sequence[Job]) -> tuple[pl.DataFrame, dict[str, Mapping[str, float]]]:
    """A jobs table, and the upload delays given individually, by job id.

    Its columns are :data:`JOB_SCHEMA`, and those of :data:`EXTRA_SCHEMA` and of needs that differ from the default in
    at least one job.
    """
    import polars as pl  # noqa: PLC0415 - every policy imports this module, and polars takes longer than all of them

    rows, extra = [], dict[str, Any]()
    for job in jobs:
        row = {f.name: getattr(job, f.name) for f in fields(Job) if f.name in JOB_SCHEMA}
        row["upload_edge_lo_s"], row["upload_edge_hi_s"] = job.upload_edge_s
        row["upload_cloud_lo_s"], row["upload_cloud_hi_s"] = job.upload_cloud_s
        more = _extra_fields(job)
        extra |= {name: EXTRA_SCHEMA.get(name, float) for name in more}
        rows.append(row | more)
    extra |= {name: int for name in extra if name.startswith(DATA)}
    schema = JOB_SCHEMA | {name: extra[name] for name in (*EXTRA_SCHEMA, *extra) if name in extra}
    return pl.DataFrame(rows, schema=schema), {j.id: j.upload_s for j in jobs if j.upload_s}


def _extra_fields(job: Job) -> dict[str, Any]:
    """The columns in which `job` differs from the default."""
    defaults = {"batch": 1, "ratio": 1.0, "internal_mbps": np.inf, "exchange_mb": 0.0}
    row: dict[str, Any] = {
        name: getattr(job, name) for name, default in defaults.items() if getattr(job, name) != default
    }
    if job.utility is not None:
        row |= {f"utility_{f.name}": getattr(job.utility, f.name) for f in fields(Sigmoid)}
    for prefix, needs in ((WORKER_NEEDS, job.worker_needs), (PS_NEEDS, job.ps_needs)):
        row |= {prefix + resource: float(amount) for resource, amount in needs.items()}
    if job.max_lag is not None:
        row["max_lag"] = job.max_lag
    if job.latency is not None:
        row |= latency_columns(job.latency)
    return row | {DATA + site: chunks for site, chunks in job.data.items()}


@dataclass(frozen=True, slots=True)
class Physics:
    """The physics of the world, which no policy can change.

    Attributes
    ----------
    slot
        Length of the papers' slot [µs].
    slotted
        True: decisions at slot boundaries, chunk and gang durations and upload delays in whole slots.
    colocation
        Where communication between workers and PS is free (zeta = 1). ``cloud``: only if the whole job, PS included, is
        in the cloud (JSAC'22's algorithm); ``one_server``: also on a single edge server (She et al.).
    charge_upload
        False: uploads take no time (She et al., Fig. 7-8).
    data
        Where the data of an allocated job stay (M7). ``kept``: on every server that received them, until the job ends
        or the server is lost; ``last_place``: only on the servers of the job's last placement.
    checkpoint_overhead
        Added to the remaining work of a chunk, or to the restart of a gang, at each preemption [µs]; whole slots when
        slotted.
    estimate_error
        e >= 0: the true duration of a job is the announced duration times a factor drawn log-uniformly from
        [1/(1+e), 1+e]; 0: true = announced.
    speedup
        1 + epsilon of speed augmentation (JSAC'22 Def. 1): multiplies n_jsw, and scales neither delays nor parameters.
    horizon
        T [µs], whole slots: the window of prices, plans and utilities; the run continues beyond it. None: no horizon.
    """

    slot: int = HOUR
    slotted: bool = False
    colocation: Literal["cloud", "one_server"] = "cloud"
    charge_upload: bool = True
    data: Literal["kept", "last_place"] = "kept"
    checkpoint_overhead: int = 0
    estimate_error: float = 0.0
    speedup: float = 1.0
    horizon: int | None = None

    def __post_init__(self) -> None:
        """Check and cast the fields; round the overhead up to whole steps.

        Raises
        ------
        ScenarioError
            Naming the field, its value and what would be right.
        """
        settle(self, _PHYSICS, "physics")
        if self.horizon is not None and (self.horizon < 1 or self.horizon % self.slot):
            raise ScenarioError(
                f"physics.horizon: {seconds(self.horizon):g} s; it must be a whole number of slots of "
                f"{seconds(self.slot):g} s, 1 or more"
            )
        object.__setattr__(self, "checkpoint_overhead", -(-self.checkpoint_overhead // self.step) * self.step)

    @property
    def slots(self) -> int | None:
        """T in slots; None without a horizon."""
        return None if self.horizon is None else self.horizon // self.slot

    @property
    def step(self) -> int:
        """Granularity of time [µs]: the slot if slotted, else 1."""
        return self.slot if self.slotted else 1


_LONGEST = int(LONGEST_S) * SECOND
_PHYSICS: dict[str, Rule] = {
    "slot": Number(f"a whole number of µs from 1 to {_LONGEST}", 1, _LONGEST, whole=True),
    "slotted": flag,
    "colocation": one_of("cloud", "one_server"),
    "charge_upload": flag,
    "data": one_of("kept", "last_place"),
    "checkpoint_overhead": Number(f"a whole number of µs from 0 to {_LONGEST}", 0, _LONGEST, whole=True),
    "estimate_error": Number("a number from 0 to 1e+09", 0, 1e9),
    "speedup": Number("a number from 1e-09 to 1e+09", 1e-9, 1e9),
    "horizon": optional(Number(f"None or a whole number of µs from 1 to {_LONGEST}", 1, _LONGEST, whole=True)),
}
