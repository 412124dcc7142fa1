"""The Ray actor that runs a job's parameter server, in a process of the job, and keeps its checkpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.durable import make_folder

from .bridge import Door
from .checkpoint import Checkpoints, Life, UnreadError
from .job_confinement import confined
from .job_process import LIMIT_S, Ack, EndedError, JobProcess, StalledError
from .job_processes import ForkServerClient
from .links import Listener, machine
from .round_window import RoundWindow
from .watchdog import WATCH, WatchdogLimits

GROUPS = {"control": (1, ("revoke",))}
"""Number of threads, and methods, by the group of threads that runs them: a window is revoked while it is trained."""


class NotLoadedError(Exception):
    """A parameter server does not serve the job in this life: its process has ended, or another one was loaded."""


class PSActor:
    """The parameter server of one job at a time.

    Every call names its job and life. A message of a coordinator that was lost, or that was frozen for a while, may
    arrive after the next coordinator has loaded a job here: it must not reach that job.

    Parameters
    ----------
    url
        URL of the checkpoints.
    watch
        How long jobs' code may take.
    confinement
        That of the jobs' processes.
    folder
        Where the agent of its server keeps chunks, if a parameter server may train these itself; else empty.
    """

    def __init__(
        self, url: str, watch: WatchdogLimits = WATCH, confinement: Confinement = TRUSTED, folder: str = ""
    ) -> None:
        self.folder = folder
        self.fork_server, self.checkpoints, self.watch = ForkServerClient(confinement), Checkpoints(url), watch
        self.fork_server.start()  # an actor that answers can load a job at once
        self.job, self.life = "", Life()
        self.usual_s, self.stalled, self.trained = 0.0, "", False
        self.child: JobProcess | None = None
        self.listener: Listener | None = None
        self.door: Door | None = None

    def warm(self) -> int:
        """Answer when the actor is up; returns the process id."""
        return host.getpid()

    def load(self, job: str, program: bytes, life: Life) -> tuple[Ack, bytes]:
        """Serve `job` from its newest whole checkpoint, or from the start if there is none.

        `life` grows with every load of any job of a run, so that a late call, and a checkpoint still written by an
        earlier process, count as older. The answer contains the progress of the job's chunks; the caller decides
        whether it is sufficient. ``address`` is where workers are connected to it, from the same ``machine``, and
        ``door`` from others.

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
        self.child = self.fork_server.fork(confined(self.fork_server, job, program, self._own(job)))
        self.child.worker, self.usual_s, self.trained = "ps", 0.0, False
        try:
            saved = self.checkpoints.read(job)
        except OSError as error:
            raise UnreadError(f"the checkpoints of {job} cannot be read: {error.strerror or error}") from error
        facts, state = self._ask(job, life, "load", program, saved)
        self.listener = Listener()
        self.door = Door(self.listener.address)
        self.child.give(self.listener.socket)
        places = {"machine": machine(), "address": self.listener.address, "door": self.door.address}
        return facts | places, state

    def _own(self, job: str) -> tuple[str, ...]:
        """Folder of the job's chunks here, which its process may read; those that come later are seen there, too."""
        if not self.folder or self.fork_server.confinement.trusted:
            return ()
        folder = Path(self.folder, job)
        try:
            make_folder(folder)
        except OSError as error:
            raise UnreadError(f"the chunks of {job} cannot be read: {error.strerror or error}") from error
        return (str(folder),)

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

    def train(self, job: str, life: Life, window: RoundWindow) -> Ack:
        """Train the rounds of a window, with the workers that are connected; ends when it is revoked.

        Parameters
        ----------
        job, life
            Those of the last :meth:`load`; any other raises :class:`NotLoadedError`.
        window
            The rounds.
        """
        first_s, further_s = window.limits
        limit_s, rounds = further_s if self.trained else first_s, (len(window.rounds), further_s)
        folder = str(Path(self.folder, job))
        try:
            facts, _ = self._ask(job, life, "train", window, folder, limit_s=limit_s, rounds=rounds)
        except StalledError as error:
            error.chunk = window.own_chunk(error.rounds)
            raise
        self.trained = True
        return facts

    def revoke(self, job: str, life: Life, window: int, *, kill: bool) -> None:
        """Have a window end after the mini-batch that is computed.

        Parameters
        ----------
        job, life
            Those of the last :meth:`load`; in any other life nothing is done.
        window
            Number of the window, which may come after this call.
        kill
            True: its mini-batch is late, and the process is killed.
        """
        child = self.child
        if child is not None and (job, life) == (self.job, self.life):
            (child.kill if kill else partial(child.revoke, window))()

    def state(self, job: str, life: Life, version: int) -> tuple[Ack, bytes]:
        """The parameters of a version, the current one."""
        return self._ask(job, life, "state", version)

    def save(self, job: str, life: Life) -> list[int]:
        """Write a checkpoint; returns the mini-batches of each chunk that it holds."""
        facts, content = self._ask(job, life, "dump")
        self.checkpoints.write(job, life, facts["version"], content)
        return [int(steps) for steps in facts["progress"]]

    def losses(self, job: str, life: Life) -> list[tuple[int, float]]:
        """(version, mean loss) of every update."""
        return [(version, loss) for version, loss in self._ask(job, life, "losses")[0]["losses"]]

    def _ask(
        self,
        job: str,
        life: Life,
        method: str,
        *arguments: Any,
        limit_s: float = LIMIT_S,
        rounds: tuple[int, float] = (0, 0.0),
    ) -> tuple[Ack, bytes]:
        if self.child is None or (job, life) != (self.job, self.life):
            raise NotLoadedError
        try:
            prepare_s = self.watch.prepare_s
            return self.child.ask(method, *arguments, limit_s=limit_s, prepare_s=prepare_s, rounds=rounds)
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
        for listening in (self.door, self.listener):
            if listening is not None:
                listening.close()
        self.job, self.child, self.listener, self.door = "", None, None, None
