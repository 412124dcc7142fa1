"""The trainers of a live run, and the measurement of jobs whose trainer has ended before it measured them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skedge.core.time import SECOND
from skedge.live.training.checkpoint import Checkpoints
from skedge.live.training.team import Teams
from skedge.live.training.trainer import Trainer

from .inputs import Report

if TYPE_CHECKING:
    from .ray_world import RayWorld

_JOIN_S = 15.0
"""How long the trainers may take to end: one round, and the measurement of the result [s]."""


class Trainers(dict[int, Trainer]):
    """The trainer of each job in the system that has one.

    Attributes
    ----------
    last
        Mini-batches of each chunk that were in the parameters when a job left.
    zeta
        1 if the job's workers are colocated, else 0: their announced speed.
    unmeasured
        Jobs that have finished and have no result yet.
    """

    def __init__(self, world: RayWorld) -> None:
        super().__init__()
        self.world = world
        self.last: dict[int, list[int]] = {}
        self.zeta: dict[int, int] = {}
        self.unmeasured: set[int] = set()
        self._ending: list[threading.Thread] = []

    def of(self, job: int) -> Trainer:
        """The trainer of `job`, created on first use."""
        if job not in self:
            self.world.facts.progress[job] = [0] * self.world.program(job).chunks
            self[job] = self._made(job)
            # in a rebuild it only takes in old reports; `go_on` starts those that still train
            if not self.world.inbox.rebuilding:
                self[job].start()
        return self[job]

    def _made(self, job: int) -> Trainer:
        world = self.world
        name, log = world.scenario.jobs.ids[job], world.job_log
        trainer = Trainer(
            job,
            name,
            world.program(job),
            world.inbox.tell,
            world.engine,
            self.pace(job, self.zeta.get(job, 0)),
            log=None if log is None else lambda line: log(name, line),
            servers=world.scenario.cluster.server_ids,
            controllers=lambda: world.inbox.resumed,
        )
        trainer.answers.out |= {server for server, why in world.out.items() if "lost" in why}
        return trainer

    def teams(self) -> dict[int, tuple[Teams, int | None]]:
        """Teams and site of each trainer of a rebuilt run, for a snapshot."""
        return {job: (trainer.teams, trainer.site) for job, trainer in self.items()}

    def restore(self, teams: dict[int, tuple[Teams, int | None]]) -> None:
        """Create the trainers of a snapshot."""
        for job, (of_job, site) in teams.items():
            self[job] = self._made(job)
            self[job].teams, self[job].site = of_job, site

    def progress(self, job: int) -> list[int]:
        """Mini-batches of each chunk of `job` that are in the parameters."""
        trainer, chunks = self.get(job), self.world.program(job).chunks
        return trainer.teams.progress if trainer is not None else self.last.get(job) or [0] * chunks

    def result(self, job: int) -> Mapping[str, Any]:
        """What was measured of `job`: its result, or, while it trains, the losses of an update per second."""
        trainer, found = self.get(job), self.world.facts.results.get(job)
        return found or {"losses": [] if trainer is None else list(trainer.losses)}

    def retire(self, job: int) -> None:
        """End the trainer of a job that has left; its thread may still measure the result."""
        trainer = self.pop(job, None)
        if trainer is not None:
            trainer.close()
            self.last[job] = trainer.teams.progress
            self.zeta.pop(job, None)
            self._until_it_ends(trainer)

    def _until_it_ends(self, thread: threading.Thread) -> None:
        """Keep a thread until it has ended, for :meth:`close`."""
        self._ending = [*(other for other in self._ending if other.is_alive()), thread]

    def paced(self, job: int, zeta: int) -> Trainer:
        """The trainer of `job`, from now on at the announced speed of colocated (`zeta` 1) or separate workers."""
        trainer, self.zeta[job] = self.of(job), zeta
        trainer.clock.pace = self.pace(job, zeta)
        return trainer

    def pace(self, job: int, zeta: int) -> float:
        """Least time of a round [s]: the announced time of a mini-batch; 0 on servers with their own speed."""
        return self.announced(job, zeta) if self.world.engine.emulates else 0.0

    def announced(self, job: int, zeta: int) -> float:
        """Announced time of a mini-batch [s]."""
        scenario = self.world.scenario
        return float(scenario.chunk_time[job, zeta]) / SECOND / int(scenario.jobs.minibatches[job])

    def go_on(self) -> None:
        """Start the trainers of a run that was rebuilt, and measure the jobs that the last controller did not."""
        for job in sorted(self.unmeasured):
            self.measure(job)
        for trainer in self.values():
            trainer.clock.forget_joins()  # no delay: the run's clock stood still
            trainer.start()

    def measured(self, report: Report) -> bool:
        """Take in a result, or have it measured again; returns whether the report is about a result."""
        if report.what == "result":
            self.world.facts.results[report.job] = report.result
            self.unmeasured.discard(report.job)
        elif report.what == "unmeasured" and not self.world.inbox.rebuilding and report.job in self.unmeasured:
            self.measure(report.job)
        return report.what in ("result", "unmeasured")

    def measure(self, job: int) -> None:
        """Measure a finished job from its last checkpoint, as its trainer has ended."""
        world = self.world

        def measure() -> None:
            saved = Checkpoints(world.engine.url).read(world.scenario.jobs.ids[job])
            if saved is not None:
                result = world.engine.maker.outcome_of(world.program(job), saved)
                world.inbox.tell(Report("result", job, result=result))

        thread = threading.Thread(target=measure, name=f"measure {job}", daemon=True)
        thread.start()
        self._until_it_ends(thread)

    def close(self) -> None:
        """End all trainers, and wait for them for a while."""
        for trainer in self.values():
            trainer.close()
        end = time.monotonic() + _JOIN_S
        for thread in (*self.values(), *self._ending):
            if thread.is_alive():
                thread.join(timeout=max(end - time.monotonic(), 0.0))
