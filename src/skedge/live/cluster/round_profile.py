"""Where the time of a round goes: real rounds on the embedded engine by stage, beside plain PyTorch and DDP.

The trainer is the one that jobs have (:mod:`skedge.live.coordinator.timed_trainer`). All workers are on one server and
the parameter server on another; one worker is also measured on the parameter server's own server. Every worker trains
its own copy of the job's chunk 0.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.model.cluster import Cluster, Server
from skedge.live import host
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.coordinator.timed_trainer import STAGES, TimedRound, TimedTrainer
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program

from .embedded import STORE_BYTES
from .engine import Engine, Hosting

WARM_UP = 3
"""Unmeasured rounds before those that are measured: the first load code and data."""

_WORKERS, _PS = 0, 1
"""Numbers of the servers of :func:`cluster_for`."""

_ANSWER_S, _LOOK_S, _PLAIN_S, _END_S = 120.0, 0.2, 600.0, 10.0

_FLOAT_BYTES, _ROUNDS_IN_STORE = 4, 3


@dataclass(frozen=True)
class RoundProfile:
    """The rounds of a model with a number of workers, by stage.

    Attributes
    ----------
    model
        Name of the model.
    parameters, workers
        Their numbers.
    colocated
        Whether the workers are on the server of the parameter server, and so the first of them in its process.
    samples
        Samples of a round: the mini-batches of all workers.
    rounds
        Number of rounds measured.
    stage_s
        Duration of each of :data:`skedge.live.coordinator.timed_trainer.STAGES` [s]: the mean over the middle half of
        the rounds, by duration; of the checkpoints, of which most rounds have none, over all.
    round_s
        The round as measured [s]: the median without checkpoints, and their mean.
    plain_s, ddp_s
        Median duration of a round with the same mini-batches in plain PyTorch, on one thread, and in DDP over gloo with
        a process for each worker [s]; None with one worker.
    """

    model: str
    parameters: int
    workers: int
    colocated: bool
    samples: int
    rounds: int
    stage_s: Mapping[str, float]
    round_s: float
    plain_s: float
    ddp_s: float | None

    @property
    def sum_s(self) -> float:
        """Sum of the stages [s]: the mean of the middle half of the rounds, of which `round_s` has the median."""
        return sum(self.stage_s.values())

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second."""
        return self.samples / self.round_s

    @property
    def over_plain(self) -> float:
        """Duration of a round over that in plain PyTorch."""
        return self.round_s / self.plain_s

    @property
    def over_ddp(self) -> float | None:
        """Duration of a round over that in DDP; None with one worker."""
        return None if self.ddp_s is None else self.round_s / self.ddp_s


def by_stage(rounds: Sequence[TimedRound]) -> tuple[dict[str, float], float]:
    """``stage_s`` and ``round_s`` of :class:`RoundProfile`, of at least one round.

    Medians of stages do not add up to a round; means of the same rounds do, and the middle half has no outliers.
    """
    ordered = sorted(rounds, key=_without_checkpoint)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    stage_s = {name: statistics.fmean(r.stage_s[name] for r in middle) for name in STAGES}
    stage_s["checkpoint"] = statistics.fmean(r.stage_s["checkpoint"] for r in rounds)
    return stage_s, statistics.median(map(_without_checkpoint, rounds)) + stage_s["checkpoint"]


def _without_checkpoint(timed: TimedRound) -> float:
    return timed.whole_s - timed.stage_s["checkpoint"]


def cluster_for(workers: int) -> Cluster:
    """A server with this many workers, and a parameter server on each of two."""
    return Cluster(
        [Server("workers", "edge", {"worker:cpu": workers, "ps:cpu": 1}), Server("ps", "edge", {"ps:cpu": 1})]
    )


def profile_rounds(
    programs: Mapping[str, Program],
    workers: Sequence[int],
    rounds: int,
    folder: Path,
    progress: Callable[[str], None],
) -> list[RoundProfile]:
    """Measure every program with each number of workers: without skedge, then on an embedded engine.

    The nodes of the engine have room for the objects of a few rounds, so that none of them is on disk.

    Parameters
    ----------
    programs
        What is trained, by name; the numbers of their chunks are replaced by those of workers.
    workers
        Numbers of workers, each >= 1.
    rounds
        Number of rounds measured of each, >= 1.
    folder
        An empty folder for chunks and checkpoints.
    progress
        Called with what was measured, after each measurement.

    Raises
    ------
    TrainingError
        If a program cannot be trained; the message names it.
    """
    baselines = []
    for name, program in programs.items():
        for number in workers:
            own = replace(program, chunks=number, epochs=10**6, shuffle=False, local_steps=1)
            baselines.append(_Baseline.of(name, own, rounds))
            progress(f"{baselines[-1].title} without skedge")
    room = max(_FLOAT_BYTES * baseline.parameters * (baseline.program.chunks + 1) for baseline in baselines)
    hosting = Hosting(store_bytes=max(STORE_BYTES, _ROUNDS_IN_STORE * room))
    engine = Engine(cluster_for(max(workers)), folder, str(folder / "checkpoints"), hosting=hosting)
    profiles = []
    try:
        for baseline in baselines:
            for colocated in (True, False):
                timed = _timed_rounds(baseline, rounds, engine, _WORKERS if colocated else _PS)
                profiles.append(baseline.beside(timed, colocated=colocated))
            progress(baseline.title)
    finally:
        engine.stop()
    return profiles


@dataclass(frozen=True)
class _Baseline:
    """A program with a number of workers, and its rounds without skedge."""

    name: str
    program: Program
    parameters: int
    plain_s: float
    ddp_s: float | None

    @staticmethod
    def of(name: str, program: Program, rounds: int) -> _Baseline:
        """Measure a program with as many workers as it has chunks."""
        plain = _plain_rounds(name, program, 1, rounds)
        ddp = _plain_rounds(name, program, program.chunks, rounds) if program.chunks > 1 else None
        return _Baseline(name, program, plain["parameters"], _median_s(plain), None if ddp is None else _median_s(ddp))

    @property
    def title(self) -> str:
        """The model and the number of workers."""
        return f"{self.name}, workers: {self.program.chunks}"

    def beside(self, timed: Sequence[TimedRound], *, colocated: bool) -> RoundProfile:
        """The profile of rounds of the same training."""
        stage_s, round_s = by_stage(timed)
        workers, samples = self.program.chunks, timed[-1].samples
        measured = samples, len(timed), stage_s, round_s, self.plain_s, self.ddp_s
        return RoundProfile(self.name, self.parameters, workers, colocated, *measured)


def _median_s(result: Mapping[str, Any]) -> float:
    return float(statistics.median(result["round_s"][WARM_UP:]))


def _timed_rounds(baseline: _Baseline, rounds: int, engine: Engine, ps: int) -> list[TimedRound]:
    """Rounds of a program on the engine with the parameter server on a server, without those for warm-up."""
    program, job, failures = baseline.program, baseline.title, list[str]()

    def tell(report: Report) -> None:
        if report.what == "failed":
            failures.append(report.reason)

    agent = engine.agents[_WORKERS]
    try:
        content = engine.job_code.contents(program, (0,))[0][1]
        host.answer(
            [host.call(agent, "store", job, i, 0, content, last=True) for i in range(program.chunks)], _ANSWER_S
        )
        trainer = TimedTrainer(
            job, program, tell, engine.processes, servers=engine.cluster.server_ids, rounds=WARM_UP + rounds
        )
        trainer.put(0, Team(_WORKERS, tuple(range(program.chunks)), program.chunks))
        trainer.serve_from(ps)
        trainer.start()
        try:
            while trainer.is_alive():
                trainer.join(_LOOK_S)
        finally:
            trainer.close()
            trainer.join(_ANSWER_S)
            host.answer(host.call(agent, "forget", job), _ANSWER_S)
    except (TrainingError, host.CallError) as error:
        raise TrainingError(f"{baseline.title}: {error}") from error
    timed = trainer.timed[WARM_UP:]
    if failures or not timed:
        raise TrainingError(f"{baseline.title}: {''.join(failures[:1]) or 'no round is whole'}")
    return timed


def _plain_rounds(name: str, program: Program, processes: int, rounds: int) -> dict[str, Any]:
    """The result of the first of some processes that train without skedge (:mod:`.plain_training`)."""
    with tempfile.TemporaryDirectory(prefix="skedge-profile-") as folder, ExitStack() as stack:
        Path(folder, "program").write_bytes(sent(program))
        log = stack.enter_context(Path(folder, "log").open("wb"))
        counts = str(processes), str(WARM_UP + rounds)
        children = []
        for rank in range(processes):
            child = host.Process("skedge.live.cluster.plain_training", folder, str(rank), *counts, log=log)
            stack.callback(child.end, _END_S)
            children.append(child)
        if any(_statuses(children)):
            lines = Path(folder, "log").read_text(encoding="utf-8", errors="replace").splitlines()
            raise TrainingError(f"{name!r} in plain PyTorch, processes: {processes}: {(lines or ['it is late'])[-1]}")
        result: dict[str, Any] = json.loads(Path(folder, "0.json").read_text(encoding="utf-8"))
        return result


def _statuses(children: Iterable[host.Process]) -> list[int | None]:
    """Exit statuses of processes, once all have ended or one has failed."""
    pending, statuses = list(children), list[int | None]()
    deadline = host.monotonic() + _PLAIN_S
    while pending and not any(statuses) and host.monotonic() < deadline:
        pending[0].wait(_LOOK_S)
        for child in list(pending):
            if (status := child.poll()) is not None:
                pending.remove(child)
                statuses.append(status)
    return [*statuses, *(1 for _ in pending)]
