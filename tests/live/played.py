"""A service whose servers are played: random inputs, as operators, uploads and trainers would send them, without Ray.

The same seed gives the same inputs. Time is a counter that inputs advance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from skedge.core.kernel.drive import drive
from skedge.core.model.cluster import Cluster, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.controller.limits import Limits
from skedge.live.controller.service import Service
from skedge.live.coordinator.report import Report
from skedge.live.journal.journal import SqlJournal
from skedge.live.world.inputs import Cancelled, Due, Input, ServerChanged, Uploaded
from skedge.live.world.ray_world import NoEngine
from skedge.live.world.trainers import TrainerOrders

LIMITS = Limits(allow=("m",))


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


def empty(kind: str) -> Scenario:
    """Two edge servers and a cloud, two machines with resources, or two sites; without jobs."""
    slots = [
        Server("e0", capacity={"worker:gpu": 2, "ps:cpu": 2}),
        Server("e1", capacity={"worker:gpu": 1, "ps:cpu": 1}),
        Server("cloud", "cloud"),
    ]
    machines = [Server(f"e{i}", capacity={"gpu": 4.0 + i}) for i in range(2)]
    cost = np.array([[0.0, 1.0], [1.0, 0.0]])
    cluster = Cluster(slots if kind == "slots" else machines, cost if kind == "sites" else None)
    table, given = job_table([])
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND, slotted=kind == "sites"))


def spec(rng: Generator, name: str, kind: str) -> dict[str, Any]:
    """A job of one to four chunks."""
    chunks = int(rng.integers(1, 5))
    job = {"name": name, "epochs": int(rng.integers(1, 3)), "minibatches": int(rng.integers(1, 4))}
    for limit, most in (("max_wait_s", 20), ("max_run_time_s", 8)):
        if rng.integers(5) == 0:
            job[limit] = float(rng.uniform(1, most))
    needs = {"worker_needs": {"gpu": 1}, "ps_needs": {"gpu": 1}}
    of_kind: dict[str, dict[str, Any]] = {
        "slots": {
            "chunks": chunks, "upload_edge_s": [0.5, 2], "upload_cloud_s": [5, 9],
            "resources": {"workers": min(chunks, int(rng.integers(1, 3))), "worker_type": "gpu", "ps_type": "cpu"},
        },
        "resources": {"chunks": chunks + 3, "batch": 4, "upload_edge_s": [0.5, 2], **needs},
        "sites": {"data": {"e0": chunks, "e1": 1}, "chunk_mb": 1.0, "exchange_mb": 2.0, **needs},
    }  # fmt: skip
    return {
        **job, **of_kind[kind], "minibatch_s": 0.1, "utility": {"height": 9, "steepness": 0.1, "target": 40},
        "train": {"factory": "m:f"}, **({"latency": {"kind": "linear", "tau": 9}} if kind == "sites" else {}),
    }  # fmt: skip


def journal_in(folder: Path, policy: str = "", kind: str = "") -> SqlJournal:
    """A new journal of a service with this policy and kind of cluster; without them, that of its earlier life."""
    about = {"began": 0.0, "id": "played", "policy": policy, "kind": kind} if policy else None
    return SqlJournal(f"sqlite:///{folder / 'journal.db'}", about)


class Played(Service):
    """A service that takes `count` random inputs and then ends; with 0 it only rebuilds."""

    def __init__(
        self, journal: SqlJournal, folder: Path, seed: int = 0, count: int = 0, snapshot: Path | None = None
    ) -> None:
        policy, scenario = journal.about["policy"], empty(journal.about["kind"])
        engine = (Up if count else NoEngine)(len(scenario.cluster.servers))
        super().__init__(scenario, policy, folder, engine, journal, LIMITS, snapshot)
        self.rng, self.left, self.reports = default_rng(seed), count, list[Input]()
        self.passed = 0
        if count:
            inbox: Any = self.world.inbox
            inbox.elapsed, inbox._wait = lambda: inbox.clock + self.passed, self._next

    def run(self) -> None:
        """Serve until all inputs were taken, without the threads of a service."""
        drive(self.kernel, self.world, self._note)
        self.world.close()

    def _next(self) -> Input:
        """The next input; time passes before it."""
        if self.world.inbox._later:  # what was due came before it
            self.passed = 0
            return self.world.inbox._later.popleft()
        self.left -= 1
        if self.left < 0:
            self.world.inbox.ending = True
            return Due()
        self.passed = int(self.rng.integers(1, SECOND))
        if not self.world.inbox.waiting.empty():
            return self.world.inbox.waiting.get()  # type: ignore[return-value]
        while True:
            given = self._one()
            if given is not None:
                return given

    def _one(self) -> Input | None:
        """An input of a kind drawn at random; None if there is none of that kind now."""
        often = [self._trained] * 12 + [self._uploaded] * 5 + [self._submitted] * 2
        kinds = [*often, self._cancelled, self._server, Due]
        return kinds[int(self.rng.integers(len(kinds)))]()

    def _any(self, of: Collection[int]) -> int:
        return int(self.rng.choice(sorted(of)))

    def _trained(self) -> Input | None:
        trainers = self.world.trainers
        if not self.reports and trainers:
            job = self._any(trainers)
            self.reports += round_of(job, trainers[job])
        return self.reports.pop(0) if self.reports else None

    def _uploaded(self) -> Input | None:
        now = self.world.now() + self.passed
        due = [number for number, upload in self.world.uploads.pending.items() if upload.due <= now]
        return Uploaded(self._any(due)) if due else None

    def _submitted(self) -> Input | None:
        scenario = self.world.scenario
        job = spec(self.rng, f"j{len(scenario.jobs)}", scenario.cluster.kind)
        return self.submissions.submitted(job, f"key {len(scenario.jobs)}", Future())

    def _cancelled(self) -> Input | None:
        jobs = self.kernel.active().tolist()
        return Cancelled(self._any(jobs)) if len(jobs) > 4 else None

    def _server(self) -> Input | None:
        server = int(self.rng.integers(2))
        out = self.world.out.get(server, set())
        if out:
            return ServerChanged(server, "back" if "lost" in out else "uncordoned")
        return ServerChanged(server, str(self.rng.choice(["lost", "cordoned"]))) if self.rng.random() < 0.2 else None


def round_of(job: int, orders: TrainerOrders) -> Iterator[Report]:
    """One round of a job: what its trainer would report."""
    teams = deepcopy(orders.teams)

    def fact(what: str, number: int) -> Report:
        return Report(what, job, number, tuple(teams.progress))

    for number in list(teams.let_go()):
        yield fact("stopped", number)
    for what, number in list(teams.hold_back()):
        yield fact(what, number)
    for team in teams.working.values() if orders.site is not None else ():
        for chunk in teams.next_chunks(team):
            teams.progress[chunk] += 1
    for number, team in teams.finished().items():
        teams.dismiss(number, team)
        yield fact("finished", number)
    orders.teams.progress = teams.progress
