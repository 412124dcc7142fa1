"""The agent: the Ray actor on every server.

An agent stores the chunks uploaded to its server in a folder, so that they survive its process. Processes of the jobs
compute the gradients of their mini-batches, one process for each lane that asks at the same time, each on its device:
the CPU, or one of the server's GPUs. The agent does no scheduling: a worker is preempted by not asking it for its next
mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.durable import make_folder, names_in, put_in_place, read, remove, write_piece

from .bridge import connection
from .framing import chunk_path, whole
from .job_process import LIMIT_S, Ack
from .job_processes import JobProcessPool
from .links import key_of, machine
from .watchdog import PREPARE_S

GROUPS = {
    "health": ("warm", "pid", "found", "machine"),
    "data": ("store", "contents", "drop"),
    "ends": ("forget", "end", "cut", "jobs"),
}
"""Methods by the group of threads that runs them; the others are mini-batches, and hold up none of these."""


class Agent:
    """One server's agent.

    Parameters
    ----------
    server, folder
        Name of its server, and where it keeps chunks.
    device
        ``cpu``, or anything else to compute on the GPUs that the agent's processes can use, if there are some.
    first
        Number of the GPU of the first process; further processes take the next ones in turn.
    confinement
        That of the jobs' processes.
    """

    def __init__(
        self,
        server: str,
        folder: str,
        device: str = "cpu",
        first: int = 0,
        confinement: Confinement = TRUSTED,
    ) -> None:
        self.server, self.folder = server, Path(folder)
        self.pool = JobProcessPool(server, replace(confinement, group=server))
        self.pool.fork_server.start()  # an agent that answers can train at once
        self.gpus = 0 if device == "cpu" else self._gpus()
        if self.gpus:
            self.pool.devices = (f"cuda:{n % self.gpus}" for n in count(first))
        self.lock = host.Lock()
        self.computing: dict[tuple[str, int], _QueuedCall] = {}
        self.cuts: dict[str, set[tuple[int, str]]] = {}

    def warm(self) -> str:
        """Answer when the agent is up, and jobs can be confined here; returns the server's name."""
        self._gpus()
        return self.server

    def machine(self) -> str:
        """What tells the machine from others: processes of jobs on one are connected (:mod:`.links`)."""
        return machine()

    def found(self) -> int:
        """Number of GPUs that it computes on."""
        return self.gpus

    def _gpus(self) -> int:
        """Number of GPUs that the processes of jobs can use."""
        child = self.pool.fork_server.fork()
        try:
            return int(child.ask("gpus")[0]["gpus"])
        finally:
            child.end()

    def store(
        self, job: str, chunk: int, offset: int, piece: bytes, *, last: bool, attempt: tuple[int, ...] = (0,)
    ) -> int:
        """Store a piece of a chunk; returns the number of bytes of the chunk that are stored.

        Parameters
        ----------
        job, chunk
            Id of the job, and the chunk's number within it.
        offset
            Where in the chunk the piece begins [bytes]; 0: a new file is begun.
        piece
            The bytes.
        last
            True: the piece completes the chunk.
        attempt
            Number of the controller, number of the upload, and how often it was begun: each attempt has its own file.
        """
        path = chunk_path(self.folder / job, chunk)
        make_folder(path.parent)
        aside = path.with_suffix(f".{'-'.join(map(str, attempt))}.partial")
        write_piece(aside, offset, piece)
        if last:
            whole(aside)
            put_in_place(aside, path)
            for name in names_in(path.parent):
                if name.startswith(f"{path.stem}.") and name.endswith(".partial"):
                    remove(path.with_name(name))  # of an attempt that was given up, or begins anew
        return offset + len(piece)

    def contents(self, job: str, chunks: tuple[int, ...]) -> list[bytes]:
        """Chunks as stored, to be moved to another server.

        Raises
        ------
        TrainingError
            If one is missing or damaged.
        """
        paths = [chunk_path(self.folder / job, chunk) for chunk in chunks]
        for path in paths:
            whole(path)
        return [read(path) for path in paths]

    def drop(self, job: str, chunks: tuple[int, ...]) -> None:
        """Remove chunks that were moved to another server."""
        for chunk in chunks:
            remove(chunk_path(self.folder / job, chunk))

    def gradient(
        self,
        job: str,
        program: bytes,
        chunk: int,
        step: int,
        state: bytes,
        limits: tuple[float, float, float] = (PREPARE_S, LIMIT_S, LIMIT_S),
    ) -> tuple[Ack, bytes]:
        """Facts about one mini-batch (time, loss, samples, device), and its gradients.

        While a mini-batch of the chunk is computed, the answer to another request is ``computing``, at once: one that
        is late and is asked for again takes no second thread.

        Parameters
        ----------
        job
            Id of the job.
        program
            The job's program (:func:`.job_processes.sent`).
        chunk, step
            The chunk, and the number of its mini-batch, counted over all epochs from 0.
        state
            Parameters and buffers to compute at, as bytes.
        limits
            Longest time in which a process becomes ready, of its first mini-batch, and of a further one [s].

        Raises
        ------
        JobError
            If the job's code fails, or takes longer: its process is then killed.
        EndedError
            If the job's code ends its process.
        """
        with self._turn(job, chunk) as turn:
            if turn is None:
                return {"computing": chunk}, b""
            prepare_s, first_s, further_s = limits
            with self.pool.of(job, program, chunk, (str(self.folder / job),)) as child:
                if turn.left:  # before the process could be killed with those of its job
                    return {"computing": chunk}, b""
                limit_s = further_s if child.calls else first_s
                arguments = (program, str(chunk_path(self.folder / job, chunk)), chunk, step, state, child.device)
                return child.ask("gradient", *arguments, limit_s=limit_s, prepare_s=prepare_s)

    def work(
        self,
        job: str,
        program: bytes,
        window: int,
        link: tuple[int, str],
        rounds: int,
        limits: tuple[float, float, float] = (PREPARE_S, LIMIT_S, LIMIT_S),
    ) -> Ack:
        """Facts about the mini-batches that a process has computed for a window of the parameter server.

        Without a device if it could not be connected.

        Parameters
        ----------
        job, program, limits
            As :meth:`gradient` has them.
        window, rounds
            Number of the window, and how many mini-batches it has for this process.
        link
            Number of the connection to the parameter server, and the address at which it is made.
        """
        key = key_of(link[0])
        with self._turn(job, key) as turn:
            prepare_s, first_s, further_s = limits
            if turn is None or link in self.cuts.get(job, ()):
                return {"computing": key}
            with self.pool.of(job, program, key, (str(self.folder / job),), link) as child:
                if turn.left:
                    return {"computing": key}
                if is_new := child.link != link:
                    try:
                        with connection(*link) as end:
                            child.give(end, link)
                    except OSError:  # the parameter server has ended, or is not here
                        return {"unreached": key}
                    if link in self.cuts.get(job, ()):  # while it was made
                        child.cut()
                folder, limit_s = str(self.folder / job), further_s if child.calls else first_s
                return child.ask(
                    "work", program, folder, window, child.device, is_new,
                    limit_s=limit_s, prepare_s=prepare_s, rounds=(rounds, further_s),
                )[0]  # fmt: skip

    def cut(self, job: str, link: tuple[int, str]) -> None:
        """Cut a connection to the parameter server: its worker is late, and takes part in no window any more by it."""
        with self.lock:
            self.cuts.setdefault(job, set()).add(link)
        self.pool.cut(job, link)

    def end(self, job: str, chunks: tuple[int, ...]) -> None:
        """Kill the processes that compute mini-batches of these chunks: they are not waited for any more."""
        self.pool.kill(job, chunks)

    def forget(self, job: str) -> None:
        """End the processes and remove the chunks of a job that has left."""
        with self.lock:
            for key in [key for key in self.computing if key[0] == job]:
                self.computing.pop(key).left = True
            self.cuts.pop(job, None)
        self.pool.forget(job)
        for name in names_in(self.folder / job):
            remove(self.folder / job / name)
        with suppress(OSError):  # a late piece of an upload has come meanwhile: it is asked again
            remove(self.folder / job)

    def jobs(self) -> list[str]:
        """The jobs of which it has chunks or processes: some may have left while it was away."""
        return sorted({*names_in(self.folder), *self.pool.jobs()})

    def pid(self) -> int:
        """Process id; an answer also shows that the agent is up."""
        return host.getpid()

    @contextmanager
    def _turn(self, job: str, chunk: int) -> Iterator[_QueuedCall | None]:
        """The turn of this thread to compute a mini-batch of the chunk; None if another one does."""
        own_call = _QueuedCall()
        with self.lock:
            alone = self.computing.setdefault((job, chunk), own_call) is own_call
        try:
            yield own_call if alone else None
        finally:
            with self.lock:
                if self.computing.get((job, chunk)) is own_call:
                    del self.computing[job, chunk]
            if own_call.left:
                self.pool.forget(job)  # it may have left just before this call took a process


class _QueuedCall:
    """A call for a chunk; `left`: its job has left."""

    def __init__(self) -> None:
        self.left = False
