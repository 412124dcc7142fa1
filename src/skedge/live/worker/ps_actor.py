"""The Ray actor that runs a job's parameter server, in a process of the job, and keeps its checkpoints."""

from __future__ import annotations

from typing import Any

from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement

from .checkpoint import Checkpoints, Life, UnreadError
from .job_confinement import confined
from .job_process import LIMIT_S, Ack, EndedError, JobProcess, StalledError
from .job_processes import ForkServerClient
from .watchdog import WATCH, WatchdogLimits


class NotLoadedError(Exception):
    """A parameter server does not serve the job in this life: its process has ended, or another one was loaded."""


class PSActor:
    """The parameter server of one job at a time.

    Every call names its job and life. A message of a coordinator that was lost, or that was frozen for a while, may
    arrive after the next coordinator has loaded a job here: it must not reach that job.
    """

    def __init__(self, url: str, watch: WatchdogLimits = WATCH, confinement: Confinement = TRUSTED) -> None:
        self.fork_server, self.checkpoints, self.watch = ForkServerClient(confinement), Checkpoints(url), watch
        self.fork_server.start()  # an actor that answers can load a job at once
        self.job, self.life = "", Life()
        self.usual_s, self.stalled = 0.0, ""
        self.child: JobProcess | None = None

    def warm(self) -> int:
        """Answer when the actor is up; returns the process id."""
        return host.getpid()

    def load(self, job: str, program: bytes, life: Life) -> tuple[Ack, bytes]:
        """Serve `job` from its newest whole checkpoint, or from the start if there is none.

        `life` grows with every load of any job of a run, so that a late call, and a checkpoint still written by an
        earlier process, count as older. The answer contains the progress of the job's chunks; the caller decides
        whether it is sufficient.

        Raises
        ------
        NotLoadedError
            If a job is loaded in a later life.
        UnreadError
            If the storage cannot be read now.
        """
        if life < self.life:
            raise NotLoadedError
        self._end()
        self.job, self.life = job, life
        self.child = self.fork_server.fork(confined(self.fork_server, job, program))
        self.child.worker, self.usual_s = "ps", 0.0
        try:
            saved = self.checkpoints.read(job)
        except OSError as error:
            raise UnreadError(f"the checkpoints of {job} cannot be read: {error.strerror or error}") from error
        return self._ask(job, life, "load", program, saved)

    def unload(self, life: Life) -> None:
        """End the process of the current job, if its life is `life` or earlier, to make room for the next job."""
        if self.life <= life:
            self._end()
            # the next run of the same process of Ray may count its lives anew
            self.life = Life()

    def apply(self, job: str, life: Life, version: int, *contributions: bytes) -> tuple[Ack, bytes]:
        """Update by the contributions of one round.

        Parameters
        ----------
        job, life
            Those of the last :meth:`load`; any other raises :class:`NotLoadedError`.
        version
            Version of the parameters that the gradients were computed at; if not the present one, nothing changes.
        contributions
            A :class:`.sgd.Contribution` of each worker, as bytes.
        """
        first_s, further_s = self.watch.limits(self.usual_s, stalled=self.stalled == job)
        limit_s = further_s if self.usual_s else first_s
        start = host.monotonic()
        facts, state = self._ask(job, life, "apply", version, contributions, limit_s=limit_s)
        self.usual_s, self.stalled = host.monotonic() - start, ""
        return facts, state

    def save(self, job: str, life: Life) -> list[int]:
        """Write a checkpoint; returns the mini-batches of each chunk that it holds."""
        facts, content = self._ask(job, life, "dump")
        self.checkpoints.write(job, life, facts["version"], content)
        return [int(steps) for steps in facts["progress"]]

    def losses(self, job: str, life: Life) -> list[tuple[int, float]]:
        """(version, mean loss) of every update."""
        return [(version, loss) for version, loss in self._ask(job, life, "losses")[0]["losses"]]

    def _ask(self, job: str, life: Life, method: str, *arguments: Any, limit_s: float = LIMIT_S) -> tuple[Ack, bytes]:
        if self.child is None or (job, life) != (self.job, self.life):
            raise NotLoadedError
        try:
            return self.child.ask(method, *arguments, limit_s=limit_s, prepare_s=self.watch.prepare_s)
        except StalledError:
            self.stalled = job
            self._end()
            raise
        except EndedError:
            self._end()
            raise

    def _end(self) -> None:
        if self.child is not None:
            self.child.end()
        self.job, self.child = "", None
