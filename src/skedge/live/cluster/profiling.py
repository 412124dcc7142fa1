"""Pre-training: a few mini-batches of every job on every server type, to measure the speeds that a scenario announces.

The papers take m_j, G_j, q_j and b_j of JSAC'22 Eq. (1), and Okita's rho_i, from pre-training on a small part of the
data. Here one chunk of the job is stored on a server of each type, and rounds of synchronous SGD run as in a live run,
with the same agents and the same parameter server. Measured in each round:

=================  ==================================================================================================
m                  computation of the slowest of the job's workers, timed in the worker
G                  update, timed in the parameter server
2 q / b            the rest of the round: parameters to the worker, gradients back, the calls themselves
q                  bytes of the gradients and buffers that one worker sends
rho                mini-batches that the round's time leaves room for in a slot, over B: chunks that one worker passes
                   through once, for one epoch, in a slot (Okita's constraint rho y >= E sum g)
=================  ==================================================================================================

For workers on an edge server the parameter server is on another server, so that the rest of the round is the
communication of Eq. (1). For workers in the cloud it is in the cloud too, where the papers take zeta = 1: the remaining
cost is measured there as well.

A worker alone on a machine is faster than one among others, so all workers that share the machine compute at the same
time: the job has as many as it has chunks, and the scenario's other jobs train on the rest. On an embedded cluster all
lanes share the machine; on a cluster at an address, those of one server.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.model.cluster import Cluster
from skedge.core.model.scenario import Scenario
from skedge.core.model.speed import MBIT_PER_MB
from skedge.live import host
from skedge.live.worker.checkpoint import Life
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program

from .engine import Engine

MINIBATCHES, WARM_UP = 5, 2
"""Mini-batches that are measured, and unmeasured ones before them: the first mini-batches load code and data."""

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of a measurement."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Round:
    """One round: the parts of its time [s], and the bytes that one worker sends."""

    compute_s: float
    update_s: float
    communication_s: float
    sent: int

    @property
    def seconds(self) -> float:
        """Duration of the round, from the calls to the workers to the next version [s]."""
        return self.compute_s + self.update_s + self.communication_s


@dataclass(frozen=True)
class Speed:
    """The speed of a job on a server type.

    Attributes
    ----------
    job
        Id of the job.
    server, ps_server
        The server that represents its type, and the server of the parameter server.
    kind, slots
        The server type.
    workers
        Number of workers that computed at the same time.
    samples
        Samples per mini-batch.
    epochs, minibatches
        E_j, and B_j: mini-batches of a chunk in one epoch.
    compute, update, communication, round
        m, G, 2 q / b and their sum [s].
    gradient_mb
        q [MB].
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
        """The measured fields of a job in a scenario file, by name."""
        return {
            "minibatch_s": self.compute.median,
            "ps_update_s": self.update.median,
            "gradient_mb": self.gradient_mb,
            "bandwidth_mbps": self.bandwidth_mbps,
        }

    @property
    def colocated(self) -> bool:
        """Whether the parameter server was on the workers' server."""
        return self.server == self.ps_server

    @property
    def minibatch_s(self) -> float:
        """Time of a mini-batch [s]: the sum of the announced fields by Eq. (1)."""
        return self.compute.median + self.update.median + self.communication.median

    @property
    def bandwidth_mbps(self) -> float:
        """The b [Mbit/s] for which 2 q / b of Eq. (1) equals the measured communication."""
        return 2 * MBIT_PER_MB * self.gradient_mb / self.communication.median

    @property
    def samples_per_s(self) -> float:
        """Samples that one worker trains per second."""
        return self.samples / self.minibatch_s

    @property
    def chunk_epoch_s(self) -> float:
        """Time for one pass of one worker through a chunk [s]."""
        return self.minibatches * self.minibatch_s

    @property
    def chunk_s(self) -> float:
        """p: time to train a chunk for all epochs [s]."""
        return self.epochs * self.chunk_epoch_s

    def rho(self, slot_s: float) -> float:
        """Okita's rho: chunks that one worker trains for one epoch in a slot."""
        return slot_s / self.chunk_epoch_s


def server_types(cluster: Cluster) -> list[int]:
    """The first server of each type; servers of one type have the same kind and slots."""
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
    scenario
        The jobs and the servers.
    works
        What the jobs train (:func:`skedge.live.controller.session.programs`); those that train the same are
        measured once.
    engine
        The Ray cluster.
    minibatches
        Number of mini-batches measured, >= 1.
    load
        Most workers that compute at the same time, >= 1; None: all that share a machine.
    progress
        Called with (job, server) after each measurement.

    Raises
    ------
    TrainingError
        If a job cannot be trained; the message names it.
    """
    profiler = _Profiler(scenario, works, engine, load)
    by_key: dict[Any, Speed] = {}
    speeds = []
    for job, name in enumerate(scenario.jobs.ids):
        for server in profiler.servers_for(job):
            key = _same(works[name], scenario, job), server
            if key not in by_key:
                by_key[key] = profiler.measure(job, server, minibatches)
            speeds.append(replace(by_key[key], job=name, epochs=works[name].epochs))
            if progress is not None:
                progress(name, scenario.cluster.label(server))
    return speeds


def slowest(speeds: Iterable[Speed]) -> dict[str, Speed]:
    """The speed of each job on its slowest server type; a scenario announces one, and a late chunk delays its job."""
    by_job: dict[str, Speed] = {}
    for speed in speeds:
        if speed.job not in by_job or speed.minibatch_s > by_job[speed.job].minibatch_s:
            by_job[speed.job] = speed
    return by_job


def announced(speeds: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """The measured fields of each job in a scenario file: m, G and q of its slowest server type, b and internal_mbps.

    b is that of the slowest server type whose parameter server was elsewhere. ``internal_mbps`` is b of co-located
    workers [Mbit/s], for which m + G + 2 q / b equals the round measured with a co-located parameter server. It is left
    out (inf: zeta = 1 makes communication free) if m + G alone exceed that round.
    """
    by_job = {job: speed.announced for job, speed in slowest(speeds).items()}
    for job, speed in slowest(speed for speed in speeds if not speed.colocated).items():
        by_job[job]["bandwidth_mbps"] = 2 * MBIT_PER_MB * by_job[job]["gradient_mb"] / speed.communication.median
    for speed in speeds:
        fields = by_job[speed.job]
        left = speed.minibatch_s - fields["minibatch_s"] - fields["ps_update_s"]
        if speed.colocated and left > 0:
            inside = 2 * MBIT_PER_MB * fields["gradient_mb"] / left
            fields["internal_mbps"] = max(inside, fields["bandwidth_mbps"])
    return by_job


def _same(work: Program, scenario: Scenario, job: int) -> Any:
    """Key that jobs share if one measurement is enough for them; the seed does not affect speed."""
    types = int(scenario.jobs.worker_type[job]), int(scenario.jobs.ps_type[job])
    return work.factory, tuple(sorted(work.args.items())), work.minibatches, work.chunks, types


class _Profiler:
    """Measures jobs of a scenario on a running engine, under the load of the scenario's other jobs."""

    def __init__(self, scenario: Scenario, works: Mapping[str, Program], engine: Engine, load: int | None) -> None:
        self.scenario, self.cluster = scenario, scenario.cluster
        self.works, self.engine, self.load = works, engine, load

    def measure(self, job: int, server: int, minibatches: int) -> Speed:
        """Measure a few rounds of the job's workers on `server`, while workers of other jobs take the other lanes."""
        lanes = self._lanes(job, server)
        name = self.scenario.jobs.ids[job]
        chunks = self.works[name].chunks
        with ExitStack() as stack:
            team = stack.enter_context(self._team(job, lanes[:chunks]))
            for neighbour in self._neighbours(job, lanes[chunks:]):
                stack.enter_context(BackgroundLoad(stack.enter_context(neighbour)))
            rounds = [team.round() for _ in range(WARM_UP + minibatches)][WARM_UP:]
        return self._speed(job, server, team, len(lanes), rounds)

    def _speed(self, job: int, server: int, team: MeasuredTeam, workers: int, rounds: Sequence[Round]) -> Speed:
        name, label = self.scenario.jobs.ids[job], self.cluster.label
        return Speed(
            job=name,
            server=label(server),
            ps_server=label(team.ps_server),
            kind=self.cluster.servers[server].kind,
            slots={name: int(n) for name, n in self.cluster.servers[server].capacity.items()},
            workers=workers,
            samples=team.samples,
            epochs=self.works[name].epochs,
            minibatches=self.works[name].minibatches,
            compute=Spread.of([r.compute_s for r in rounds]),
            update=Spread.of([r.update_s for r in rounds]),
            communication=Spread.of([r.communication_s for r in rounds]),
            round=Spread.of([r.seconds for r in rounds]),
            gradient_mb=rounds[0].sent / 1e6,
        )

    def servers_for(self, job: int) -> list[int]:
        """One server of each type that has the job's worker type."""
        kind = int(self.scenario.jobs.worker_type[job])
        types, workers = server_types(self.cluster), self.cluster.workers
        return [s for s in types if s == self.cluster.cloud or (kind >= 0 and workers[s, kind] > 0)]

    def _lanes(self, job: int, server: int) -> list[int]:
        """The server of each worker that computes at the same time; those on `server` come first."""
        in_cloud = server == self.cluster.cloud
        own = int(self.scenario.jobs.chunks[job]) if in_cloud else int(self.cluster.workers[server].sum())
        other_lanes = [int(s) for s in self.cluster.lane_server if s != server] if self.engine.emulates else []
        return ([server] * own + other_lanes)[: self.load]

    def _neighbours(self, job: int, lanes: Sequence[int]) -> Iterator[MeasuredTeam]:
        """Teams of the jobs after `job`, in turn, until every lane is taken."""
        jobs, number = len(self.scenario.jobs), job
        while lanes:
            number += 1
            neighbour = number % jobs
            chunks = int(self.scenario.jobs.chunks[neighbour])
            yield self._team(neighbour, lanes[:chunks], f"{number}")
            lanes = lanes[chunks:]

    def _team(self, job: int, lanes: Sequence[int], mark: str = "") -> MeasuredTeam:
        name = self.scenario.jobs.ids[job]
        return MeasuredTeam(name, self.works[name], self.engine, lanes, self._ps_for(job, lanes[0]), mark)

    def _ps_for(self, job: int, server: int) -> int:
        """The parameter server's server: the cloud for workers there, else another server than theirs if possible."""
        if server == self.cluster.cloud:
            return server
        kind = int(self.scenario.jobs.ps_type[job])
        able = [s for s in range(len(self.cluster.servers)) if s == self.cluster.cloud or self._has_ps(s, kind)]
        warm = [s for s in able if self.engine.processes.idle[s]]  # starting a process takes seconds
        return next((s for s in [*warm, *able] if s != server), server)

    def _has_ps(self, server: int, kind: int) -> bool:
        return kind >= 0 and bool(self.cluster.ps[server, kind] > 0)


class MeasuredTeam:
    """Workers and a parameter server of a job; every worker trains its own copy of the job's chunk 0.

    Parameters
    ----------
    job, work
        Id of the job, and what it trains.
    engine
        The processes on Ray.
    lanes
        Server of each worker.
    ps_server
        Server of the parameter server.
    mark
        Tells this team from others of the job at the same time; empty for the one that is measured.
    """

    def __init__(
        self, job: str, work: Program, engine: Engine, lanes: Sequence[int], ps_server: int, mark: str = ""
    ) -> None:
        self.job, self.engine, self.ps_server = job, engine, ps_server
        self.name = f"profile{mark} of {job}"
        self.agents = [engine.agents[server] for server in lanes]
        self.work = replace(work, chunks=len(lanes), epochs=10**6, shuffle=False, local_steps=1)
        self.sent = sent(self.work)
        self.version = self.samples = 0
        self.state: Any = None
        self.ps: Any = None
        self.life = Life()

    def __enter__(self) -> MeasuredTeam:
        """Store the data, start the parameter server, and train one mini-batch, which loads code."""
        try:
            content = self._content()
            stored = [
                host.call(agent, "store", self.name, i, 0, content, last=True) for i, agent in enumerate(self.agents)
            ]
            self._answers(stored)
            self.ps = self.engine.processes.parameter_server(self.ps_server)
            self.life = self.engine.processes.life(0)
            ack, self.state = host.call(self.ps, "load", self.name, self.sent, self.life, returns=2)
            self._answers([ack])
            self.round()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the data, and release the parameter server's process for the next job."""
        if self.ps is not None:
            self.engine.processes.release(self.ps_server, self.ps, self.life)
        with suppress(TrainingError):  # the loss of a process was reported before
            # the next team stores the same
            self._answers([host.call(agent, "forget", self.name) for agent in self.agents])

    def round(self) -> Round:
        """Run one round: every worker computes a mini-batch, and the parameter server updates once."""
        step, start = self.version, time.perf_counter()
        calls = [
            host.call(agent, "gradient", self.name, self.sent, i, step, self.state, returns=2)
            for i, agent in enumerate(self.agents)
        ]
        answers = self._answers([ack for ack, _ in calls])
        compute, self.samples = (
            max(_compute_s(ack["stage_s"]) for ack in answers),
            max(ack["samples"] for ack in answers),
        )
        brought = [contribution for _, contribution in calls]
        ack, self.state = host.call(self.ps, "apply", self.name, self.life, self.version, *brought, returns=2)
        (answer,) = self._answers([ack])
        took = time.perf_counter() - start
        self.version, update = answer["version"], sum(answer["stage_s"].values())
        return Round(compute, update, max(took - compute - update, 0.0), answer["bytes"])

    def _content(self) -> bytes:
        """Chunk 0 of the job in the form in which it is uploaded."""
        try:
            return self.engine.job_code.contents(self.work, (0,))[0][1]
        except TrainingError as error:
            raise TrainingError(f"job {self.job!r}: {error}") from error

    def _answers(self, refs: list[Any]) -> list[Any]:
        """The answers to calls.

        Raises
        ------
        TrainingError
            If the job's own code fails in one, or a process is lost.
        """
        try:
            return host.answer(refs, _PATIENCE_S)
        except host.FailedError as error:
            kind = "" if isinstance(error.cause, TrainingError) else f"{type(error.cause).__name__}: "
            raise TrainingError(f"job {self.job!r}: {kind}{error.cause}") from error
        except host.CallError as error:
            raise TrainingError(f"job {self.job!r}: a process is lost or late: {error}") from error


def _compute_s(stage_s: Mapping[str, float]) -> float:
    """The part of m in the stages of a mini-batch [s]; what is sent is serialized as part of the communication."""
    return stage_s["deserialize"] + stage_s["compute"]


class BackgroundLoad(threading.Thread):
    """Background load: lets a team train round after round during a measurement."""

    def __init__(self, team: MeasuredTeam) -> None:
        super().__init__(name=f"beside: {team.job}", daemon=True)
        self.team, self.ended = team, threading.Event()
        self.error: TrainingError | None = None

    def __enter__(self) -> BackgroundLoad:
        """Start the thread."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the current round; raises an error of the thread."""
        self.ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Train until the end."""
        try:
            while not self.ended.is_set():
                self.team.round()
        except TrainingError as error:
            self.error = error
