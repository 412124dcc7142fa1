"""The Ray actor that runs a job's parameter server, and keeps its checkpoints."""

from __future__ import annotations

import os
import time

import torch

from .agent import Ack
from .checkpoint import Checkpoints, Life
from .training import Contribution, ParameterServer, Program, State


class NotLoadedError(Exception):
    """A parameter server's process has no job yet."""


class PSActor:
    """The process of a parameter server: one job's at a time."""

    def __init__(self, url: str) -> None:
        torch.set_num_threads(1)
        self.checkpoints = Checkpoints(url)
        self.job, self.life = "", Life()
        self.loaded: ParameterServer | None = None

    @property
    def server(self) -> ParameterServer:
        """The job's parameter server."""
        if self.loaded is None:
            raise NotLoadedError
        return self.loaded

    def warm(self) -> int:
        """Import what is needed; returns the process number."""
        ParameterServer(Program("skedge.live.examples:images", {"samples": 20, "size": 8}, 4, 1, 1))
        return os.getpid()

    def load(self, job: str, program: Program, life: Life = Life()) -> tuple[Ack, State]:  # noqa: B008 - immutable
        """Serve `job` from its newest checkpoint that is whole, or from the start if there is none.

        `life` grows with every load of a job: what a process that had served it before still writes is older then. How
        far the job's chunks are trained is in the answer; whether that is far enough, the caller knows.
        """
        self.job, self.life, self.loaded = job, life, ParameterServer(program)
        saved = self.checkpoints.read(job)
        if saved is not None:
            self.server.restore(saved)
        return self._ack(), self.server.state()

    def unload(self) -> None:
        """Make room for the next job."""
        self.job, self.loaded = "", None

    def apply(self, version: int, *contributions: Contribution) -> tuple[Ack, State]:
        """Update by the contributions of one round."""
        self.server.apply(version, contributions)
        return self._ack(), self.server.state()

    def timed_apply(self, version: int, *contributions: Contribution) -> tuple[Ack, State]:
        """:meth:`apply`, with the ``seconds`` that it took here and the ``bytes`` that one contribution has."""
        began = time.perf_counter()
        ack, state = self.apply(version, *contributions)
        seconds = time.perf_counter() - began
        first = contributions[0]
        sent = sum(tensor.nbytes for part in (first.gradients, first.buffers) for tensor in part.values())
        return {**ack, "seconds": seconds, "bytes": sent}, state

    def save(self) -> int:
        """Write a checkpoint; returns its version."""
        self.checkpoints.write(self.job, self.life, self.server.version, self.server.dump())
        return self.server.version

    def losses(self) -> list[tuple[int, float]]:
        """(version, mean loss) of every update."""
        return self.server.losses

    def _ack(self) -> Ack:
        return {"version": self.server.version, "progress": list(self.server.progress)}
