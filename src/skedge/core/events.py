"""Facts, which worlds report to policies, and orders, which policies return.

One :class:`Event` holds everything that happened at one instant, one :class:`Dispatch` all chunks of a job. Jobs,
servers, lanes and PS slots are numbers: see :class:`~skedge.core.model.scenario.Jobs` and
:class:`~skedge.core.model.cluster.Cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .model.cluster import Floats, Ints, Placement

CLOUD = -1
"""Stands for the cloud in place of a lane or a PS slot."""

CANCELLED = "cancelled"
"""Prefix of the reason of a cancelled job; reasons of failed jobs do not begin with it."""

VERBS = (
    "dispatch",
    "allocate",
    "allocate_each",
    "suspend",
    "assign_ps",
    "reserve",
    "redispatch",
    "postpone",
    "reject",
    "fail",
    "transfer",
    "upload",
)
"""The kinds of decisions.

``allocate_each`` allocates to a job that is not a gang, ``upload`` brings data ahead of an allocation, and ``fail`` is
a fact that is recorded here. A ``dispatch`` has a row per chunk; ``allocate``, ``allocate_each``, ``upload`` and, on
servers with resources, ``assign_ps`` have a row per server.
"""

FAILED = "server_failed"
"""Why a server is out of service in a simulation."""

OUT_OF_SERVICE = 2**62
"""In place of the job of a PS slot whose server is out of service; no job has this number."""


def pairs(counts: Ints) -> Placement:
    """(server, count) pairs, the form that orders use, from `counts` by server; servers with 0 are omitted."""
    servers = counts.nonzero()[0]
    return tuple(zip(servers.tolist(), counts[servers].tolist(), strict=True))


def ps_in(slot: int) -> Placement:
    """The PS in this slot, or in the CLOUD, as an allocation has it."""
    return ((slot, 1),)


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """Chunk completions on lanes since the last event, in time order: columns of equal length.

    If the chunks of a job take turns on a lane, a completion is reported each time they have together trained the
    equivalent of one chunk.
    """

    time: Ints = field(default_factory=_none)
    lane: Ints = field(default_factory=_none)
    job: Ints = field(default_factory=_none)


NO_FACTS = LaneFacts()
"""No chunk is complete."""


class Event(NamedTuple):
    """What happened at one instant: everything before it is complete before a policy is asked.

    Attributes
    ----------
    time
        [µs].
    finished
        Jobs that have completed.
    failed
        (job, reason) of jobs that have reached a limit of their time (M43); in live runs also of jobs that cannot be
        trained, or were cancelled.
    broken
        Jobs that are unfinished at the end of their reservation (the fact *plan broken*).
    servers
        (server, reason) of servers that have left service, or have returned to it (empty reason): the fact *node
        changed*; live runs, and simulations with ``physics.mtbf``.
    measured
        (job, factor): a mini-batch takes `factor` times the announced time; the fact *speed measured*; live runs only.
    lost
        (job, chunks) of dispatched chunks whose server is out of service; they wait for a re-dispatch.
    interrupted
        Jobs that have lost their workers because one of their servers, or that of their PS, is out of service.
    without_ps
        Jobs with a chunk in service that have lost their PS because its server is out of service.
    arrived
        Jobs that have arrived, in order.
    woke
        True if a time requested by ``WakeAt`` or ``Reserve`` has come.
    started, paused
        Jobs that started or stopped having a chunk in service; reported once everything else of the instant has
        settled.
    trained
        (job, (site, chunks) pairs): chunks trained by its workers at sites in the slot that ends now.
    settling
        True if another event follows at this instant, with `started` and `paused`: servers have failed, and only that
        one says which jobs still have a chunk in service.
    chunks
        Chunk completions, for the kernel; policies receive facts about jobs.
    """

    time: int
    finished: tuple[int, ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    broken: tuple[int, ...] = ()
    servers: tuple[tuple[int, str], ...] = ()
    measured: tuple[tuple[int, float], ...] = ()
    lost: tuple[tuple[int, tuple[int, ...]], ...] = ()
    interrupted: tuple[int, ...] = ()
    without_ps: tuple[int, ...] = ()
    arrived: tuple[int, ...] = ()
    woke: bool = False
    started: tuple[int, ...] = ()
    paused: tuple[int, ...] = ()
    trained: tuple[tuple[int, Placement], ...] = ()
    settling: bool = False
    chunks: LaneFacts = NO_FACTS

    @property
    def left(self) -> tuple[int, ...]:
        """Jobs that have left the system: finished, failed or cancelled."""
        return self.finished + tuple(job for job, _ in self.failed) if self.failed else self.finished

    @property
    def only_woke(self) -> bool:
        """Whether a requested time has come and nothing else has happened."""
        if not self.woke:
            return False
        facts = (
            self.finished, self.failed, self.broken, self.servers, self.measured, self.lost, self.interrupted,
            self.without_ps, self.arrived, self.started, self.paused, self.trained, self.chunks.time.tolist(),
        )  # fmt: skip
        return not any(facts)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Assign each chunk of a job irrevocably to a lane, or to a worker of its own in the cloud.

    Attributes
    ----------
    lane
        Lane of each chunk, shape ``(D_j,)``; CLOUD for the cloud. In a re-dispatch: of each chunk in `chunks`.
    rank
        Order on the lanes: smaller first, equal ranks in order of dispatch. D_j p gives the highest average processing
        rate first.
    alpha
        Dual value alpha_jd of each chunk [s], shape ``(D_j,)``.
    postponed
        Number of chunks that each chunk delays, shape ``(D_j,)``.
    chunks
        In a *re-dispatch*, the chunks to dispatch again because their server went out of service; None: all chunks, for
        the first time.
    """

    job: int
    lane: Ints
    rank: int
    alpha: Floats
    postponed: Ints
    reason: str = ""
    chunks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate these workers and PSs to a job from now on; replaces its present allocation.

    Attributes
    ----------
    ps
        (place, PSs) pairs. On servers with slots one PS, in a slot or the CLOUD: :func:`ps_in`. On servers with
        resources the places are servers, in order.
    gang
        True: all workers begin together, when the slowest upload has ended. False: each begins when its own data
        arrive, and the job's present workers continue. All allocations of a job must agree on this.
    value
        Value of the placement computed by the policy (price-based policies: eta_j); None if there is none.
    """

    job: int
    where: Placement
    ps: Placement
    reason: str = ""
    gang: bool = True
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Release a job's workers and its PS; its data stay."""

    job: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AssignPS:
    """Assign a PS slot (or CLOUD) to a job that has started running; it is released when the job pauses."""

    job: int
    ps: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """Upload a job's data to these servers ahead of its allocation there, which otherwise implies the upload (ADR 5).

    A server receives the chunks of its share of the workers or, with `copies`, all chunks, for when the servers that
    will train the job are not known yet. Up to the given number of workers can then begin there without another upload.
    """

    job: int
    where: Placement
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Move untrained chunks of a job from one site to another, instantly, at the cluster's `transfer_cost`.

    `value` is the cost that the policy accounts for it; None if there is none.
    """

    job: int
    source: int
    target: int
    chunks: int
    reason: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """Record a plan: these workers and PSs of one server from `start` to `end` [µs]. Plans are not binding.

    All reservations of a job at one instant form one plan; a later plan replaces it. `value` is the value of the plan
    computed by the policy; None if there is none.
    """

    job: int
    server: int
    workers: int
    start: int
    end: int
    reason: str = ""
    ps: int = 1
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Postpone:
    """Record that a job was considered and must wait, the reason, and the value of its best plan (None: no plan)."""

    job: int
    reason: str
    value: float | None = None


class Piece(NamedTuple):
    """Price per slot of one unit of `resource` on `server` from `start` to `end` [µs]; slots are resources too."""

    server: int
    resource: str
    start: int
    end: int
    price: float


@dataclass(frozen=True, slots=True)
class Price:
    """Record the prices that the decision on a job has changed; has no other effect."""

    job: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a job permanently."""

    job: int
    reason: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Request an event at `time` [µs], later than now."""

    time: int


@dataclass(frozen=True, slots=True)
class EndAt:
    """Have a job fail at `time` [µs] unless it has left by then: an order of the kernel itself, for its world.

    It takes the place of an earlier one of the same job; NEVER: there is no such time any more.
    """

    job: int
    time: int
    reason: str


Decision = Dispatch | Allocate | Suspend | AssignPS | Upload | Transfer | Reserve | Postpone | Price | Reject | WakeAt
"""The orders of policies."""

Order = Decision | EndAt
"""All orders; a policy's can be several at once, an :class:`OrderBatch`."""


@dataclass(frozen=True, slots=True, eq=False)
class OrderBatch:
    """Several orders as rows of numbers: iterated over it gives them one by one.

    A policy that yields or returns the batch itself has them checked and applied together, which costs less and means
    the same. :func:`batch_of` makes one of allocations and suspensions.

    Attributes
    ----------
    rows
        A row for each order: the number of its verb in :data:`VERBS`, the job, the PS slot or CLOUD, a number of its
        reason from 0 to 255, and in which rows of `places` its placement is: the first, and how many. Shape
        ``(orders, 6)``.
    places
        (server, workers) rows; those of an order are ascending by server. Shape ``(any, 2)``.
    order_of
        Returns the order that a row, given as a list, stands for; raises IndexError if it stands for none.
    wording
        What the numbers of reasons mean: in two batches with the same one they mean the same to allocations and
        suspensions, whatever the job.
    """

    rows: Ints
    places: Ints
    order_of: Callable[[list[int]], Order]
    wording: Hashable

    def __len__(self) -> int:
        """The number of orders."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Order]:
        """The orders one by one."""
        return map(self.order_of, self.rows.tolist())


def batch_of(rows: Ints, places: Ints, reasons: tuple[str, ...]) -> OrderBatch:
    """Allocations and suspensions as a batch.

    Parameters
    ----------
    rows, places
        As :class:`OrderBatch` has them, or what NumPy makes such a table of; both may be empty.
    reasons
        The reasons by their numbers.
    """
    rows, places = _table(rows, 6), _table(places, 2)

    def order_of(row: list[int]) -> Order:
        number, job, ps, reason, first, size = row
        verb = VERBS[number] if number >= 0 else ""
        if verb == "suspend":
            return Suspend(job, reasons[reason])
        pairs = places[first : first + size].tolist() if first >= 0 else []
        placement = tuple((server, workers) for server, workers in pairs)
        if verb not in {"allocate", "allocate_each"} or len(placement) != size:
            raise IndexError(row)
        return Allocate(job, placement, ps_in(ps), reasons[reason], gang=verb == "allocate")

    return OrderBatch(rows, places, order_of, reasons)


def _table(numbers: Ints, columns: int) -> Ints:
    """Whole numbers as a table of int64; others as they are, which is refused when the batch is carried out."""
    table = np.asarray(numbers)
    if not table.size:
        return np.zeros((0, columns), np.int64)
    return np.ascontiguousarray(table, np.int64) if np.issubdtype(table.dtype, np.integer) else table


def single_orders(orders: Iterable[Order | OrderBatch]) -> Iterator[Order]:
    """The orders one by one, those of batches too."""
    for order in orders:
        if isinstance(order, OrderBatch):
            yield from order
        else:
            yield order
