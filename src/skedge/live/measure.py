"""Pre-training: a few mini-batches of every job on every server type, for the speeds that a scenario announces.

The papers take m_j, G_j, q_j and b_j of JSAC'22 Eq. (1), and Okita's rho_i, from pre-training on a small part of the
data. Here one chunk of the job is stored on a server of each type, and rounds of synchronous SGD go as they go in a
live run, by the same agents and the same parameter server. Of each round:

=================  ==================================================================================================
m                  computation of the slowest of the server's workers, timed in the worker
G                  update, timed in the parameter server
2 q / b            the rest of the round: parameters to the worker, gradients back, the calls themselves
q                  bytes of the gradients and buffers that one worker sends
rho                mini-batches that the round's time leaves room for in a slot, over B: chunks that one worker passes
                   through once, for one epoch, in a slot (Okita's constraint rho y >= E sum g)
=================  ==================================================================================================

A worker that has a machine to itself is faster than one among others, so as many workers as share the machine compute
at once. On an embedded cluster that is all of them; at an address, those of the server.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.model import Cluster
from skedge.core.scenario import Scenario
from skedge.core.speed import MBIT_PER_MB

from .agent import packed
from .engine import Engine
from .training import Program

MINIBATCHES, WARM_UP = 5, 2
"""Mini-batches that are measured, and those before them that are not: the first ones load code and data."""

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Spread:
    """Median, least and most of what was measured."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Round:
    """One round, seen by the workers of one server: parts of its time [s], and bytes that a worker sends."""

    compute_s: float
    update_s: float
    communication_s: float
    sent: int

    @property
    def seconds(self) -> float:
        """From asking the workers to the next version."""
        return self.compute_s + self.update_s + self.communication_s


@dataclass(frozen=True)
class Speed:
    """How fast a job is on a server type.

    Attributes
    ----------
    job
        Its id.
    server, ps_server
        The one that stands for its type, and where the parameter server was.
    kind, slots
        The type.
    workers
        Workers that computed at the same time.
    samples
        Of one mini-batch.
    epochs, minibatches
        E_j, and B_j: mini-batches of a chunk in one epoch.
    compute, update, communication, round
        m, G, 2 q / b and their sum [s].
    gradient_mb
        q.
    """

    job: str
    server: str
    ps_server: str
    kind: str
    slots: Mapping[str, int]
    workers: int
    samples: float
    epochs: int
    minibatches: int
    compute: Spread
    update: Spread
    communication: Spread
    round: Spread
    gradient_mb: float

    @property
    def announced(self) -> dict[str, float]:
        """The fields of a job in a scenario file that this measures, by name."""
        return {
            "minibatch_s": self.compute.median,
            "ps_update_s": self.update.median,
            "gradient_mb": self.gradient_mb,
            "bandwidth_mbps": self.bandwidth_mbps,
        }

    @property
    def minibatch_s(self) -> float:
        """Time of a mini-batch by Eq. (1), not co-located: what the announced fields add up to."""
        return self.compute.median + self.update.median + self.communication.median

    @property
    def bandwidth_mbps(self) -> float:
        """What b [Mbit/s] is for the 2 q / b of Eq. (1) to be the measured communication."""
        return 2 * MBIT_PER_MB * self.gradient_mb / self.communication.median

    @property
    def samples_per_s(self) -> float:
        """Samples that one worker trains in a second."""
        return self.samples / self.minibatch_s

    @property
    def chunk_epoch_s(self) -> float:
        """Time for one pass of one worker through a chunk."""
        return self.minibatches * self.minibatch_s

    @property
    def chunk_s(self) -> float:
        """Time to train a chunk for all epochs, p."""
        return self.epochs * self.chunk_epoch_s

    def rho(self, slot_s: float) -> float:
        """Okita's rho: chunks that one worker passes through once in a slot."""
        return slot_s / self.chunk_epoch_s


def server_types(cluster: Cluster) -> list[int]:
    """The first server of each type: of each kind with the same slots."""
    first: dict[Any, int] = {}
    for number, server in enumerate(cluster.servers):
        first.setdefault((server.kind, tuple(sorted(server.capacity.items()))), number)
    return list(first.values())


def profile(
    scenario: Scenario,
    works: Mapping[str, Program],
    engine: Engine,
    *,
    minibatches: int = MINIBATCHES,
    load: int | None = None,
    progress: Callable[[str, str], None] | None = None,
) -> list[Speed]:
    """Measure every job on every server type that has its worker type.

    Parameters
    ----------
    works
        What the jobs train (:func:`skedge.live.session.programs`); those that train the same are measured once.
    minibatches
        Mini-batches that are measured, >= 1.
    load
        Workers that compute at once, >= 1; None: as many as share a machine.
    progress
        Told (job, server) after each measurement.

    Raises
    ------
    TrainingError
        If a job cannot be trained; names it.
    """
    found: dict[Any, Speed] = {}
    speeds = []
    for job, name in enumerate(scenario.jobs.ids):
        for server in _servers_for(scenario, job):
            key = _same(works[name], scenario, job), server
            if key not in found:
                found[key] = _measured(scenario, job, works[name], engine, server, minibatches, load)
            speeds.append(replace(found[key], job=name, epochs=works[name].epochs))
            if progress is not None:
                progress(name, scenario.cluster.label(server))
    return speeds


def slowest(speeds: Iterable[Speed]) -> dict[str, Speed]:
    """Of each job the speed on its slowest server type: a scenario announces one, and a late chunk holds up its job."""
    found: dict[str, Speed] = {}
    for speed in speeds:
        if speed.job not in found or speed.minibatch_s > found[speed.job].minibatch_s:
            found[speed.job] = speed
    return found


def _same(work: Program, scenario: Scenario, job: int) -> Any:
    """What two jobs share if one measurement is enough for both; the seed makes no difference to speed."""
    chunks, kind, ps = (int(column[job]) for column in _columns(scenario))
    return work.factory, tuple(sorted(work.args.items())), work.minibatches, chunks, kind, ps


def _columns(scenario: Scenario) -> tuple[Any, Any, Any]:
    return scenario.jobs.chunks, scenario.jobs.worker_type, scenario.jobs.ps_type


def _servers_for(scenario: Scenario, job: int) -> list[int]:
    cluster, kind = scenario.cluster, int(scenario.jobs.worker_type[job])
    return [s for s in server_types(cluster) if s == cluster.cloud or (kind >= 0 and cluster.workers[s, kind] > 0)]


def _ps_for(scenario: Scenario, job: int, server: int) -> int:
    """Where the parameter server is measured: on another server if there is one, so that communication counts."""
    cluster, kind = scenario.cluster, int(scenario.jobs.ps_type[job])
    able = [s for s in range(len(cluster.servers)) if s == cluster.cloud or (kind >= 0 and cluster.ps[s, kind] > 0)]
    return next((s for s in able if s != server), server)


def _lanes(cluster: Cluster, server: int, load: int | None, *, one_machine: bool) -> list[int]:
    """Servers of the workers that compute at once, one entry each: those of `server` first."""
    own = [server] * max(int(cluster.workers[server].sum()), 1)
    others = [int(s) for s in cluster.lane_server if s != server]
    if load is not None:
        return (own + others)[:load]
    return (own + others)[: max(cluster.lanes, 1)] if one_machine else own


def _measured(
    scenario: Scenario, job: int, work: Program, engine: Engine, server: int, minibatches: int, load: int | None
) -> Speed:
    cluster, name = scenario.cluster, scenario.jobs.ids[job]
    ps_server = _ps_for(scenario, job, server)
    lanes = _lanes(cluster, server, load, one_machine=engine.emulates)
    try:
        with _Bench(name, work, engine, lanes, ps_server) as bench:
            rounds = [bench.round() for _ in range(WARM_UP + minibatches)][WARM_UP:]
    except TrainingError as error:
        raise TrainingError(f"job {name!r}: {error}") from error
    return Speed(
        job=name,
        server=cluster.label(server),
        ps_server=cluster.label(ps_server),
        kind=cluster.servers[server].kind,
        slots=dict(cluster.servers[server].capacity),
        workers=len(lanes),
        samples=bench.samples / work.minibatches,
        epochs=work.epochs,
        minibatches=work.minibatches,
        compute=Spread.of([r.compute_s for r in rounds]),
        update=Spread.of([r.update_s for r in rounds]),
        communication=Spread.of([r.communication_s for r in rounds]),
        round=Spread.of([r.seconds for r in rounds]),
        gradient_mb=rounds[0].sent / 1e6,
    )


class _Bench:
    """Workers and a parameter server that train chunk 0 of a job, in as many copies as there are workers.

    The first worker's server is the one that is measured. The job has `work.chunks` of the workers at most; the others
    compute the same beside it.
    """

    def __init__(self, job: str, work: Program, engine: Engine, lanes: Sequence[int], ps_server: int) -> None:
        self.name, self.engine, self.ps_server = f"profile of {job}", engine, ps_server
        self.agents = [engine.agents[server] for server in lanes]
        self.team = min(work.chunks, len(lanes))
        self.measured = [i for i in range(self.team) if lanes[i] == lanes[0]]
        self.work = replace(work, chunks=len(lanes), epochs=10**6)
        self.version = self.samples = 0
        self.state: Any = None
        self.ps: Any = None

    def __enter__(self) -> _Bench:
        """Bring the data, and start the parameter server."""
        content = self._content()
        try:
            stored = [a.store.remote(self.name, i, 0, content, last=True) for i, a in enumerate(self.agents)]
            _answers(stored)
            self.ps = self.engine.parameter_server(self.ps_server)
            ack, self.state = self.ps.load.options(num_returns=2).remote(self.name, self.work)
            _answers([ack])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the data; the parameter server's process is for the next job."""
        if self.ps is not None:
            self.engine.release(self.ps_server, self.ps)
        with suppress(TrainingError):  # a lost process has told its reason before
            _answers([agent.forget.remote(self.name) for agent in self.agents])  # before the next one stores the same

    def round(self) -> Round:
        """All workers compute a mini-batch, the job's ones bring it to the parameter server."""
        step, began = self.version, time.perf_counter()
        asked = [
            agent.timed_gradient.options(num_returns=2).remote(self.name, self.work, i, step, self.state)
            for i, agent in enumerate(self.agents)
        ]
        computed = [ack["seconds"] for ack in _answers([asked[i][0] for i in self.measured])]
        called = time.perf_counter() - began
        _answers([ack for ack, _ in asked])
        began = time.perf_counter()
        ack, self.state = self.ps.timed_apply.options(num_returns=2).remote(
            self.version, *(brought for _, brought in asked[: self.team])
        )
        (answer,) = _answers([ack])
        called += time.perf_counter() - began
        self.version = answer["version"]
        compute, update = max(computed), answer["seconds"]
        return Round(compute, update, max(called - compute - update, 0.0), answer["bytes"])

    def _content(self) -> bytes:
        """Chunk 0 of the job as it is uploaded."""
        training = self.work.make()
        try:
            data = training.chunk(0)
            self.samples = len(data[0])
            return packed(data)
        except Exception as error:  # the job's own code: whatever it raises is its reason to fail
            raise TrainingError(f"its data cannot be made: {type(error).__name__}: {error}") from error


def _answers(refs: list[Any]) -> list[Any]:
    """The answers to calls.

    Raises
    ------
    TrainingError
        If the job's own code fails in one, or a process is lost.
    """
    import ray  # noqa: PLC0415 - Ray is an extra

    try:
        return ray.get(refs, timeout=_PATIENCE_S)
    except ray.exceptions.RayTaskError as error:
        own = isinstance(error.cause, TrainingError)
        raise TrainingError(str(error.cause) if own else f"{type(error.cause).__name__}: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise TrainingError(f"a process of the profile is lost or late: {type(error).__name__}") from error
