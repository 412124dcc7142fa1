"""A job that is no gang, without Ray: who computes when, which chunks a team trains, what the runs log says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import pytest

from skedge.core.events import Allocate, Suspend, ps_in
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import NEVER
from skedge.live.coordinator.teams import Team
from skedge.live.world.gang_work import GangWork
from skedge.live.world.runs_log import RunsLog
from skedge.live.world.uploads import Uploads


class FakeTrainer:
    """Notes its teams: chunks and width by server."""

    def __init__(self) -> None:
        self.teams: dict[int, tuple[tuple[int, ...], int]] = {}
        self.ps: int | None = None

    def put(self, number: int, team: Team, now: int) -> None:
        self.teams[team.server] = team.chunks, team.width
        assert number in (5 + team.server, *range(5, 9))

    def take(self, number: int) -> None:
        self.teams.pop(number - 5, None)

    def rest(self) -> None:
        self.ps = None


class FakeTrainers(dict[int, FakeTrainer]):
    """Makes a trainer for each job that is asked for."""

    def paced(self, job: int, zeta: int) -> FakeTrainer:
        return self.setdefault(job, FakeTrainer())


class FakeWorld:
    """What GangWork asks of the world, with a clock that is set by hand."""

    def __init__(self, physics: Physics | None = None) -> None:
        servers = [Server(f"s{s}", capacity={"worker:gpu": 3, "ps:cpu": 1}) for s in range(2)]
        cluster = Cluster(servers)
        frame, given = job_table([Job("a", 0.0, 1, 4, 5, 1.0, workers=4)])
        self.scenario = Scenario(cluster, Jobs(frame, cluster, given), physics or Physics())
        self.uploads, self.log = Uploads(), RunsLog(cluster.server_ids)
        self.trainers = FakeTrainers()
        self.facts = SimpleNamespace(progress={0: [0, 0, 0, 0]})
        self.clock = 0
        self.sent: list[tuple[int, tuple[int, ...], bool]] = []

    def now(self) -> int:
        return self.clock

    def serve_from(self, job: int, ps: int) -> None:
        self.trainers[job].ps = ps

    def ps_site(self, job: int) -> int | None:
        return self.trainers[job].ps

    def send(self, job: int, server: int, chunks: tuple[int, ...], *, charged: bool = True) -> None:
        self.sent.append((server, chunks, charged))
        self.uploads.add(job, server, tuple(chunks), 0.0, 0)


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


def arrive(world: FakeWorld, work: GangWork, now: int) -> None:
    """All uploads that are under way are complete at `now`."""
    world.clock = now
    for number in list(world.uploads.pending):
        done = world.uploads.done(number)
        assert done is not None
        work.uploaded(done)


def allocate(*where: tuple[int, int]) -> Allocate:
    return Allocate(0, where, ps_in(0), gang=False)


def test_workers_begin_as_their_data_come_and_those_that_are_there_go_on(world: FakeWorld) -> None:
    """One worker on s0; at 10 three more on s1 and one on s0; s0's first goes on, the second comes at 12."""
    work = GangWork(world)  # type: ignore[arg-type]
    work.allocate(allocate((0, 1)))
    assert world.sent == [(0, (0, 1, 2, 3), True)]
    assert world.trainers[0].teams == {}
    arrive(world, work, 2)
    assert world.trainers[0].teams == {0: ((0, 1, 2, 3), 1)}
    world.clock = 10
    work.allocate(allocate((0, 2), (1, 2)))
    assert world.sent[1:] == [(0, (), True), (1, (2, 3), True)]
    assert world.trainers[0].teams == {0: ((0, 1), 1)}, "the one that was there goes on, with its part of the chunks"
    arrive(world, work, 12)
    assert world.trainers[0].teams == {0: ((0, 1), 2), 1: ((2, 3), 2)}
    world.clock = 20
    work.allocate(allocate((0, 1)))
    assert world.trainers[0].teams == {0: ((0, 1, 2, 3), 1)}, "s0 has had all chunks from the beginning"
    world.clock = 25
    work.suspend(Suspend(0))
    assert world.trainers[0].teams == {}
    rows = world.log.table().select("server", "workers", "start", "compute_from", "end").rows()
    assert sorted(rows) == [
        ("s0", 1, 0, 2, 10),
        ("s0", 1, 10, 10, 20),
        ("s0", 1, 10, 12, 20),
        ("s0", 1, 20, 20, 25),
        ("s1", 2, 10, 12, 20),
    ]


def test_workers_that_compute_are_kept_before_those_whose_data_are_under_way(world: FakeWorld) -> None:
    """One on s0 since 2, a second ordered at 10; at 11 one is taken: the first goes on, also when data come at 12."""
    work = GangWork(world)  # type: ignore[arg-type]
    work.allocate(allocate((0, 1)))
    arrive(world, work, 2)
    world.clock = 10
    work.allocate(allocate((0, 2)))
    world.clock = 11
    work.allocate(allocate((0, 1)))
    assert world.trainers[0].teams == {0: ((0, 1, 2, 3), 1)}
    arrive(world, work, 12)
    assert world.trainers[0].teams == {0: ((0, 1, 2, 3), 1)}


def test_a_gang_begins_when_the_last_of_its_uploads_has_come(world: FakeWorld) -> None:
    """However long they take: to s0 until 2, to s1 until 7."""
    work = GangWork(world)  # type: ignore[arg-type]
    work.allocate(replace(allocate((0, 1), (1, 2)), gang=True))
    for time, number, servers in ((2, 1, set()), (7, 2, {0, 1})):
        world.clock, transport = time, world.uploads.done(number)
        assert transport is not None
        work.uploaded(transport)
        assert set(world.trainers[0].teams) == servers
    world.clock = 9
    work.suspend(Suspend(0))
    assert set(world.log.table().select("start", "compute_from", "end").rows()) == {(0, 7, 9)}


def test_a_suspended_job_begins_anew_where_its_data_are(world: FakeWorld) -> None:
    work = GangWork(world)  # type: ignore[arg-type]
    work.allocate(allocate((0, 1), (1, 1)))
    arrive(world, work, 3)
    work.suspend(Suspend(0))
    world.clock = 8
    work.allocate(allocate((0, 1), (1, 1)))
    assert len(world.sent) == 2
    assert world.trainers[0].teams == {0: ((0, 1), 1), 1: ((2, 3), 1)}
    world.clock = 9
    work.lose(1)
    assert 0 not in work.table.held
    work.allocate(allocate((0, 1)))
    world.log.settle(0, 12)
    rows = world.log.table().select("server", "compute_from", "end", "work").rows()
    assert sorted(rows) == [("s0", 3, 3, 3.0), ("s0", 8, 9, 3.0), ("s1", 3, 3, 3.0), ("s1", 8, 9, 3.0)]


@pytest.mark.parametrize("gang", [True, False])
@pytest.mark.parametrize(("data", "charged"), [("kept", [True, True]), ("last_place", [True, True, True])])
def test_a_job_pays_no_delay_where_its_data_are_kept(
    gang: bool, data: Literal["kept", "last_place"], charged: list[bool]
) -> None:
    """On s0, on s1, and on s0 again: its data are still there, unless the last place alone counts."""
    world = FakeWorld(Physics(data=data))
    work = GangWork(world)  # type: ignore[arg-type]
    for now, server in ((0, 0), (10, 1), (20, 0)):
        world.clock = now
        work.allocate(replace(allocate((server, 2)), gang=gang))
        arrive(world, work, now + 3)
        work.suspend(Suspend(0))
    assert [paid for *_, paid in world.sent] == charged
    rows = world.log.table().sort("start").select("start", "compute_from").rows()
    assert rows == [(0, 3), (10, 13), (20, 20 if data == "kept" else 23)]


def test_workers_that_never_computed_have_the_last_run_of_a_job_that_finishes_meanwhile() -> None:
    """Its first workers are taken at 4 s with the last mini-batch under way, the next still await their data."""
    log = RunsLog(["m0", "m1"])
    log.gang(0, ((0, 2),), 0, 0, 4_000_000, zeta=False, preempted=True)
    log.gang(0, ((1, 2),), 4_000_000, NEVER, 4_050_000, zeta=False, preempted=False)
    log.settle(0, 24, finished=True)
    rows = [(row["end"], row["preempted"], row["work"]) for row in log.rows]
    assert rows == [(4_000_000, True, 24.0), (4_050_000, False, 0.0)]
