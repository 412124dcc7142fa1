"""What worlds tell policies (facts) and what policies answer (orders).

Both are batches: one :class:`Event` holds everything that happened at one instant, one :class:`Dispatch` all chunks of
a job. Jobs, servers, lanes and PS slots are numbers: see :class:`~skedge.core.scenario.Jobs` and
:class:`~skedge.core.model.Cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .model import Floats, Ints, Placement

CLOUD = -1
"""The cloud, where a lane or a PS slot is meant."""

CANCELLED = "cancelled"
"""How the reason of a job that was cancelled begins; that of one that has failed does not."""

OUT_OF_SERVICE = 2**62
"""Stands for the job of a PS slot whose server is out of service: no job has this number."""


def pairs(counts: Ints) -> Placement:
    """(server, count) pairs, as orders have them, from `counts` by server; servers with none are left out."""
    return tuple((server, int(counts[server])) for server in np.flatnonzero(counts).tolist())


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """Chunks' worth of work done on lanes since the last event, in order of time: equal-length columns.

    Where the chunks of a job take turns on a lane, the first completion is when they have trained as much as one chunk.
    """

    time: Ints = field(default_factory=_none)
    lane: Ints = field(default_factory=_none)
    job: Ints = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened at one instant; the order of the fields is the order of simultaneous facts.

    Attributes
    ----------
    time
        [µs].
    finished
        Jobs that have completed.
    failed
        (job, reason) of jobs that cannot be trained, or were cancelled: facts of a live world.
    broken
        Jobs whose reservation no longer holds: past its end and unfinished (the fact *plan broken*).
    servers
        (server, why) of servers that have gone out of service, or come back into it (why is empty): the fact *node
        changed* of a live world.
    measured
        (job, factor): its mini-batches take so many times the announced time; the fact *speed measured* of a live run.
    lost
        (job, chunks) of dispatched chunks whose server is out of service: they wait to be dispatched again.
    interrupted
        Jobs whose workers were taken from them because a server of theirs, or of their PS, is out of service.
    without_ps
        Jobs that have a chunk in service and whose PS is on a server that is out of service.
    arrived
        Jobs that have arrived, in order.
    woke
        A time asked for by ``WakeAt`` or ``Reserve`` has come.
    started, paused
        Jobs of which the first chunk is now in service, or the last one no longer is: told when everything else of
        the instant has settled.
    trained
        (job, (site, chunks) pairs): chunks that its workers at sites have trained in the slot that ends now.
    chunks
        Chunk completions for the kernel; policies see jobs.
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
    chunks: LaneFacts = field(default_factory=LaneFacts)

    @property
    def left(self) -> tuple[int, ...]:
        """Jobs that have left the system: finished, failed or cancelled."""
        return self.finished + tuple(job for job, _ in self.failed) if self.failed else self.finished

    @property
    def only_woke(self) -> bool:
        """Whether a time that was asked for has come, and nothing else has happened."""
        if not self.woke:
            return False
        facts = (
            self.finished, self.failed, self.broken, self.servers, self.measured, self.lost, self.interrupted,
            self.without_ps, self.arrived, self.started, self.paused, self.trained, self.chunks.time.tolist(),
        )  # fmt: skip
        return not any(facts)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Give each chunk of a job to a lane, or to a worker of its own in the cloud, for good.

    Attributes
    ----------
    lane
        Lane of every chunk, shape ``(D_j,)``; CLOUD for the cloud. Of every chunk of `chunks` in a re-dispatch.
    rank
        The lanes' order: smaller first, equal ranks in order of dispatch. D_j p for highest average processing rate
        first.
    alpha
        The dual value alpha_jd of every chunk [s], shape ``(D_j,)``.
    postponed
        Number of chunks that complete later because of each chunk, shape ``(D_j,)``.
    chunks
        A *re-dispatch* of these chunks alone, whose server went out of service; None: all chunks, for the first time.
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
    """Give a job these workers and this PS slot from now on; replaces what it has.

    Attributes
    ----------
    ps
        A PS slot, or CLOUD; on servers with resources, which have no slots, (server, PSs) pairs by server.
    gang
        True: all workers begin together, when the slowest upload has ended. False: each begins when its own data are
        there, and the workers that the job has go on. All allocations of a job are of one kind.
    value
        What the policy found the placement worth (a price-based policy: eta_j), None if it does not say.
    """

    job: int
    where: Placement
    ps: int | Placement
    reason: str = ""
    gang: bool = True
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Take a job's workers and its PS away; its data stay."""

    job: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AssignPS:
    """Let a PS slot (or CLOUD) serve a job that has begun to run; it is free again when the job pauses."""

    job: int
    ps: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """Bring a job's data to these servers now, before it is allocated there; allocation implies it otherwise.

    A server gets the chunks of its share of the workers or, with `copies`, all chunks, as long as it is not known which
    servers will train the job; so many workers at most can then begin there without another upload.
    """

    job: int
    where: Placement
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Move chunks of a job, not trained yet, from a site to another: at once, at what the cluster's transfer_cost says.

    `value` is what the policy books for it, None if it does not say.
    """

    job: int
    source: int
    target: int
    chunks: int
    reason: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """State a plan: these workers and PSs of one server from `start` to `end` [µs]. It binds nobody and is recorded.

    What a job reserves at one instant is one plan; a later one takes its place. `value` is what the policy found the
    plan worth, None if it does not say.
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
    """Say that a job was considered and has to wait, why, and what its best plan was worth (None: it had none)."""

    job: int
    reason: str
    value: float | None = None


class Piece(NamedTuple):
    """The price of a unit of `resource` on `server` from `start` to `end` [µs], per slot; slots are resources too."""

    server: int
    resource: str
    start: int
    end: int
    price: float


@dataclass(frozen=True, slots=True)
class Price:
    """Say which prices the decision on a job has changed; for the record alone."""

    job: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """Turn a job away, for good."""

    job: int
    reason: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask for an event at `time` [µs], later than now."""

    time: int


Order = Dispatch | Allocate | Suspend | AssignPS | Upload | Transfer | Reserve | Postpone | Price | Reject | WakeAt
