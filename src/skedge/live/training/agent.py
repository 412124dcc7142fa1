"""The agent: the Ray actor on every server.

An agent keeps the chunks that were uploaded to its server in a folder, so that they survive its process, and has
mini-batches turned into gradients by processes of their jobs, one for each lane that asks at once. It knows nothing of
scheduling: a worker is preempted by not being asked for its next mini-batch.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .apart import Ack, Children
from .framing import whole


class Agent:
    """One server's agent."""

    def __init__(self, server: str, folder: str) -> None:
        self.server, self.folder = server, Path(folder)
        self.children = Children()
        self.children.nursery.start()  # an agent that answers can train at once
        self.lock = threading.Lock()
        self.computing: dict[tuple[str, int], threading.Lock] = {}

    def warm(self) -> str:
        """Say that it is up."""
        return self.server

    def store(self, job: str, chunk: int, offset: int, piece: bytes, *, last: bool, upload: int = 0) -> int:
        """Take a piece of a chunk, of an `upload`; the last one makes it whole. Returns the bytes that are there."""
        path = self._path(job, chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{upload}.partial")
        with open(aside, "wb" if offset == 0 else "r+b") as file:
            file.seek(offset)
            file.write(piece)
        if last:
            whole(aside)
            os.replace(aside, path)
        return offset + len(piece)

    def contents(self, job: str, chunks: tuple[int, ...]) -> list[bytes]:
        """Chunks as they were stored, to be brought to another server.

        Raises
        ------
        TrainingError
            If one is missing or damaged.
        """
        paths = [self._path(job, chunk) for chunk in chunks]
        for path in paths:
            whole(path)
        return [path.read_bytes() for path in paths]

    def drop(self, job: str, chunks: tuple[int, ...]) -> None:
        """Remove chunks that are on another server now."""
        for chunk in chunks:
            self._path(job, chunk).unlink(missing_ok=True)

    def gradient(self, job: str, program: bytes, chunk: int, step: int, state: bytes) -> tuple[Ack, bytes]:
        """One mini-batch: what it cost, and its gradients.

        Raises
        ------
        TrainingError
            If the job's code fails.
        EndedError
            If it ends its process.
        """
        one_at_a_time = self._computing(job, chunk)  # a mini-batch that is late is asked for again
        with one_at_a_time, self.children.of(job, chunk) as child:
            return child.ask("gradient", program, str(self._path(job, chunk)), chunk, step, state)

    def forget(self, job: str) -> None:
        """The job has left: its processes end, its chunks are removed."""
        self.children.forget(job)
        for path in (self.folder / job).glob("*"):
            path.unlink(missing_ok=True)

    def pid(self) -> int:
        """Process number: also says that the agent is up."""
        return os.getpid()

    def _path(self, job: str, chunk: int) -> Path:
        return self.folder / job / f"{chunk:06d}.pt"

    def _computing(self, job: str, chunk: int) -> threading.Lock:
        with self.lock:
            return self.computing.setdefault((job, chunk), threading.Lock())
