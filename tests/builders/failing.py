"""Small scenarios whose servers fail when a test says so, instead of when the seed does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skedge.analysis.verify.verify import Violation
from skedge.core.model.cluster import Cluster, Ints, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing
from skedge.core.model.time import NEVER, SECOND
from skedge.recorded_run import Run
from skedge.sim.failures import Failures

LATE = 10**6
"""A failure that no run reaches [s]."""


def two_servers(chunks: int, *, epochs: int = 1, max_lag: int | None = None) -> Scenario:
    """Two servers with a worker and a PS each, and a job of `chunks` chunks of 10 s whose data take a second."""
    servers = [Server(f"e{i}", capacity={"worker:a": 1, "ps:p": 1}) for i in range(2)]
    return failing(servers, [job("j", chunks, epochs=epochs, upload_s={"e0": 1.0, "e1": 1.0}, max_lag=max_lag)])


def job(name: str, chunks: int, **fields: Any) -> Job:
    """A job of `chunks` chunks of 10 s that arrives at 0."""
    fine = {"arrival_s": 0.0, "epochs": 1, "minibatches": 10, "minibatch_s": 1.0, "worker_type": "a", "ps_type": "p"}
    return Job(name, chunks=chunks, **{**fine, **fields})


def failing(servers: list[Server], jobs: list[Job], sharing: Sharing | None = None) -> Scenario:
    """A scenario whose servers fail as :func:`fail` says."""
    cluster = Cluster(servers, sharing=sharing)
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(mtbf=SECOND, mttr=SECOND), 0, "failing")


def broken(done: Run) -> list[Violation]:
    """What is violated, but for M48: the outages of :func:`fail` are not those of the seed."""
    return [violation for violation in done.verify() if violation.rule != "M48"]


def fail(monkeypatch: pytest.MonkeyPatch, *changes: tuple[float, int, bool]) -> None:
    """Servers fail (True) and are repaired at these times [s] only."""

    rows = [(round(time * SECOND), server, fails) for time, server, fails in (*changes, (LATE, 0, True))]

    def draw(self: Failures) -> Ints:
        self.queue = [(NEVER, 0, False)]
        return np.array(sorted(rows), np.int64)

    def given(self: Failures, _: Scenario) -> None:
        self.queue = [(0, 0, False)]

    monkeypatch.setattr(Failures, "__init__", given)
    monkeypatch.setattr(Failures, "draw", draw)
