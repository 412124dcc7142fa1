"""The model: servers, jobs (see :mod:`skedge.core.model.job_fields`) and the physics of a scenario (``docs/model.md``).

Sizes are MB (10^6 bytes), rates Mbit/s, times microseconds (:mod:`skedge.core.model.time`) except where a name ends in
``_s`` (seconds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skedge.core.errors import ScenarioError

from .fields import Maybe, Number, Rule, cast_fields, flag, instance_of, mapping, one_of, short_repr, text
from .job_fields import Floats, Ints, Job, Kind, job_table
from .sharing import Sharing
from .size import MOST_MB, UNLIMITED, whole_bytes
from .time import HOUR, LONGEST_S, SECOND, seconds

__all__ = (
    "PS", "WORKER", "Bools", "Cluster", "Floats", "Ints", "Job", "Kind", "Physics", "Placement", "Server",
    "check_transfer_cost", "job_table",
)  # fmt: skip

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
    `gpus` is the number of GPUs that a live run may compute on; no policy counts them. `upload` says which of a job's
    two ranges of upload delays holds for an edge server: ``cloud`` for one that is as far away as the cloud.
    """

    id: str
    kind: Literal["edge", "cloud"] = "edge"
    capacity: Mapping[str, float] = field(default_factory=dict)
    storage_mb: float | None = None
    site: str | None = None
    gpus: float = 0.0
    upload: Literal["edge", "cloud"] = "edge"

    def __post_init__(self) -> None:
        """Check and cast the fields.

        Raises
        ------
        ScenarioError
            Names the field, its value and the values allowed.
        """
        cast_fields(self, _SERVER, f"server {short_repr(self.id)}")

    @property
    def far(self) -> bool:
        """Whether uploads to it take as long as those to the cloud, which it is or is beside."""
        return "cloud" in (self.kind, self.upload)


def _amount(resource: str) -> Rule:
    return _SLOTS if _is_slot(resource) else _AMOUNT


MOST_SERVERS = 100_000
"""Maximum number of servers."""

MOST_SLOTS = 1_000_000
"""Maximum number of worker slots, and of PS slots, of all servers together: each has books and a queue."""

_SLOTS = Number("a whole number from 0 to 100000", 0, 100_000, whole=True)
_AMOUNT = Number("a number from 0 to 1e+15", 0, 1e15)
_SERVER: dict[str, Rule] = {
    "id": text,
    "kind": one_of("edge", "cloud"),
    "capacity": mapping(_amount),
    "storage_mb": Maybe(Number(f"None (no limit) or a number from 0 to {MOST_MB:g}", 0, MOST_MB)),
    "site": Maybe(text),
    "gpus": Number("a number from 0 to 1000", 0, 1000),
    "upload": one_of("edge", "cloud"),
}


class Cluster:
    """All servers, and their slots as arrays.

    A *lane* is one worker slot of an edge server; a *PS slot* is one parameter-server slot of an edge server. Both are
    numbered in the order of (server, type as listed in the server's capacity, slot).

    Parameters
    ----------
    servers
        The servers, 1 or more, with unique ids; at most one is the cloud.
    transfer_cost
        Cost per MB from the row's server to the column's, shape ``(servers, servers)``; None: transfers are free.
    asymmetric
        Whether the costs of the two directions may differ.
    sharing
        Rules for tenants and priority classes; None: there are none.

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
    ps_places, ps_numbers
        Server of each place of a PS, and its number there: a place is a PS slot, and the last one (index -1) the cloud;
        on servers with resources a server. The number is -1 in the cloud and on servers with resources.
    storage_bytes
        U_s [bytes], shape ``(servers,)``; :data:`~skedge.core.model.size.UNLIMITED` for no limit.
    resources
        Names of the resources, in order of first appearance; empty if servers have slots.
    amounts
        Capacity of each resource, C_h^r, shape ``(servers, resources)``.
    transfer_cost
        Cost per MB from the row's server to the column's [q^{rr'}], shape ``(servers, servers)``. None: transfers are
        free. A cluster with transfer costs is a cluster of *sites* (Okita): each job gives the location of its data.
    site_cost
        The same for the code of sites; without rows if transfers are free.
    asymmetric
        True if cost[a, b] may differ from cost[b, a].
    sharing
        How tenants and priority classes share the workers of servers with slots; None: there are none.

    Raises
    ------
    ScenarioError
        If the servers or the costs are not valid.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        transfer_cost: Floats | None = None,
        *,
        asymmetric: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        self.servers = tuple(instance_of(Server)(f"cluster.servers[{i}]", s) for i, s in enumerate(servers))
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
        # not a set: resources are numbered in the order of first appearance
        self.resources = tuple(dict.fromkeys(r for s in self.servers for r in s.capacity if not _is_slot(r)))
        self.amounts: Floats = np.array(
            [[s.capacity.get(r, 0) for r in self.resources] for s in self.servers], np.float64
        )
        self.asymmetric = flag("cluster.asymmetric", asymmetric)
        self.transfer_cost: Floats | None = None
        self.kind: Kind = "slots"
        # one place more than PS slots: CLOUD is -1, the index of the last one
        self.ps_places: Ints = np.append(self.ps_server, -1 if self.cloud is None else self.cloud)
        self.ps_numbers: Ints = np.append(self.ps_slot, -1)
        if self.resources:
            self.kind, self.ps_places = "resources", np.arange(len(self.servers))
            self.ps_numbers = np.full(len(self.servers), -1)
        self.sharing = sharing
        self.site_cost: Floats = np.zeros((0, 0))
        if transfer_cost is not None:
            self._become_sites(_table(transfer_cost))

    def _become_sites(self, cost: Floats) -> None:
        if self.kind == "slots":
            raise ScenarioError("cluster.transfer_cost: requires servers with resources, not slots")
        check_transfer_cost(cost, self.server_ids, asymmetric=self.asymmetric)
        self.kind, self.transfer_cost, self.site_cost = "sites", cost, cost

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


def _table(rows: Any) -> Floats:
    try:
        return np.asarray(rows, np.float64)
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
    # the loops of this function raise in their first round; NaN fails here, as it is not finite
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
    if len(servers) > MOST_SERVERS:
        raise ScenarioError(f"cluster.servers: there are {len(servers):,}; there may be {MOST_SERVERS:,}")
    ids: set[str] = set()
    for i, s in enumerate(servers):
        place = f"cluster.servers[{i}] ({s.id})"
        if s.id in ids:
            raise ScenarioError(f"{place}: id {s.id!r} is used twice; ids must be unique")
        ids.add(s.id)
        if s.kind == "cloud" and s.capacity:
            raise ScenarioError(f"{place}.capacity: the cloud has every type without limit; it must be left out")
    if sum(s.kind == "cloud" for s in servers) > 1:
        raise ScenarioError("cluster.servers: more than one server has kind cloud; the model has one cloud")
    _check_one_kind(servers)
    for prefix, role in ((WORKER, "workers"), (PS, "PSs")):
        slots = sum(int(n) for s in servers for name, n in s.capacity.items() if name.startswith(prefix))
        if slots > MOST_SLOTS:
            raise ScenarioError(f"cluster.servers: have {slots:,} {role} together; they may have {MOST_SLOTS:,}")


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
        # by server, type as listed and slot: records and decisions refer to lanes and PS slots by this order
        listed = [k for k in kinds for _ in range(int(s.capacity[prefix + types[k]]))] if s.kind == "edge" else []
        rows.extend((i, k, slot) for slot, k in enumerate(listed))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


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
    mtbf, mttr
        Mean time between the return of an edge server and its next failure, and mean time to its repair [µs], both
        exponential and in whole steps, at least one. ``mtbf`` None: no server fails in a simulation.
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
    mtbf: int | None = None
    mttr: int = HOUR

    def __post_init__(self) -> None:
        """Check and cast the fields; round the overhead up to whole steps.

        Raises
        ------
        ScenarioError
            Naming the field, its value and what would be right.
        """
        cast_fields(self, _PHYSICS, "physics")
        if self.horizon is not None and (self.horizon < 1 or self.horizon % self.slot):
            raise ScenarioError(
                f"physics.horizon: {seconds(self.horizon):g} s; it must be a whole number of slots of "
                f"{seconds(self.slot):g} s, 1 or more"
            )
        # frozen, so past the dataclass; -(-a // b) is a / b rounded up, in whole numbers
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
    "estimate_error": Number("a number from 0 to 1000", 0, 1000),
    "speedup": Number("a number from 1e-09 to 1e+09", 1e-9, 1e9),
    "horizon": Maybe(Number(f"None or a whole number of µs from 1 to {_LONGEST}", 1, _LONGEST, whole=True)),
    "mtbf": Maybe(Number(f"None or a whole number of µs from 1 to {_LONGEST}", 1, _LONGEST, whole=True)),
    "mttr": Number(f"a whole number of µs from 1 to {_LONGEST}", 1, _LONGEST, whole=True),
}
