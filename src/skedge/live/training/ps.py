"""The Ray actor that runs a job's parameter server, in a process of the job, and keeps its checkpoints."""

from __future__ import annotations

import os
from typing import Any

from .apart import Nursery
from .checkpoint import Checkpoints, Life
from .child import LIMIT_S, Ack, Child, EndedError, StalledError
from .watch import WATCH, Watch


class NotLoadedError(Exception):
    """A parameter server's process has no job loaded."""


class PSActor:
    """The parameter server of one job at a time."""

    def __init__(self, url: str, watch: Watch = WATCH) -> None:
        self.nursery, self.checkpoints, self.watch = Nursery(), Checkpoints(url), watch
        self.nursery.start()  # an actor that answers can load a job at once
        self.job, self.life = "", Life()
        self.usual_s, self.stalled = 0.0, ""
        self.child: Child | None = None

    def warm(self) -> int:
        """Answer when the actor is up; returns the process id."""
        return os.getpid()

    def load(self, job: str, program: bytes, life: Life = Life()) -> tuple[Ack, bytes]:  # noqa: B008 - immutable
        """Serve `job` from its newest whole checkpoint, or from the start if there is none.

        `life` grows with every load of a job, so that checkpoints still written by an earlier process sort as older.
        The answer contains the progress of the job's chunks; the caller decides whether it is sufficient.
        """
        self.unload()
        self.job, self.life, self.child = job, life, self.nursery.child()
        self.child.worker, self.usual_s = "ps", 0.0
        return self._ask("load", program, self.checkpoints.read(job))

    def unload(self) -> None:
        """End the current job's process, to make room for the next job."""
        if self.child is not None:
            self.child.end()
        self.job, self.child = "", None

    def apply(self, version: int, *contributions: bytes) -> tuple[Ack, bytes]:
        """Update by the contributions of one round."""
        first_s, further_s = self.watch.limits(self.usual_s, stalled=self.stalled == self.job)
        limit_s = further_s if self.usual_s else first_s
        facts, state = self._ask("apply", version, contributions, limit_s=limit_s)
        self.usual_s, self.stalled = facts["seconds"], ""
        return facts, state

    def save(self) -> int:
        """Write a checkpoint; returns its version."""
        facts, content = self._ask("dump")
        self.checkpoints.write(self.job, self.life, facts["version"], content)
        return int(facts["version"])

    def losses(self) -> list[tuple[int, float]]:
        """(version, mean loss) of every update."""
        return [(version, loss) for version, loss in self._ask("losses")[0]["losses"]]

    def _ask(self, method: str, *given: Any, limit_s: float = LIMIT_S) -> tuple[Ack, bytes]:
        if self.child is None:
            raise NotLoadedError
        try:
            return self.child.ask(method, *given, limit_s=limit_s, prepare_s=self.watch.prepare_s)
        except StalledError:
            self.stalled = self.job
            self.unload()
            raise
        except EndedError:
            self.unload()
            raise
