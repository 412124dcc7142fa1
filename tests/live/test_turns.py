"""Live, chunks of a job take turns on a lane and wait where they are ahead: trainer and books, without Ray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import SERVERS
from skedge.core.events import CLOUD, Dispatch, Event
from skedge.core.kernel.absorb import absorb
from skedge.core.kernel.accept import accept
from skedge.core.kernel.state import State
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.worker.program import Program
from skedge.live.world.inputs import ServerChanged
from skedge.live.world.ray_world import NoEngine, RayWorld

EPOCHS, BATCHES, STEPS = 3, 2, 6


class Simulated(Teams):
    """Teams whose mini-batches take no process, and what is reported of them."""

    def __init__(self, chunks: int, teams: dict[int, Team]) -> None:
        super().__init__(Program("m:f", {}, chunks, EPOCHS, BATCHES))
        self.facts: list[Report] = []
        for number, team in teams.items():
            self.put(number, team)

    def report(self) -> None:
        self.facts += [Report(what, 0, number, tuple(self.progress)) for what, number in self.hold_back()]

    def train(self, n: int) -> list[list[int]]:
        """The chunks of each of `n` rounds."""
        trained = []
        for _ in range(n):
            self.report()
            asked = [chunk for team in self.working.values() for chunk in self.next_chunks(team)]
            for chunk in asked:
                self.progress[chunk] += 1
            trained.append(asked)
        self.report()
        return trained

    def said(self) -> list[tuple[str, int]]:
        return [(told.what, told.team) for told in self.facts]


def team(*chunks: int, lag: int = 0) -> Team:
    return Team(0, chunks, 1, len(chunks) > 1, lag)


def test_chunks_of_a_team_take_turns_and_each_chunk_s_worth_is_told() -> None:
    trainer = Simulated(2, {0: team(0, 1)})
    assert trainer.train(8) == [[0], [1]] * 4
    assert trainer.said() == [("trained", 0)]
    assert sum(trainer.facts[0].progress) == STEPS


def test_where_the_lag_is_bounded_epochs_are_told_too() -> None:
    trainer = Simulated(2, {0: team(0, 1, lag=1)})
    trainer.train(2 * STEPS)
    assert [sum(told.progress) for told in trainer.facts] == [4, 6, 8]


@pytest.mark.parametrize("lag", [1, 2])
def test_a_team_that_is_ahead_leaves_and_comes_back_when_the_slowest_has_caught_up(lag: int) -> None:
    """Chunk 1 has a lane of its own, chunk 0 waits for its lane: 1 stops after `lag` epochs."""
    trainer = Simulated(2, {1: team(1, lag=lag)})
    assert trainer.train(5)[: BATCHES * lag] == [[1]] * (BATCHES * lag)
    assert trainer.progress == [0, BATCHES * lag]
    assert trainer.said() == [("held", 1)]
    trainer.put(0, team(0, lag=lag))
    assert trainer.train(BATCHES) == [[0]] * BATCHES
    assert trainer.said()[1:] == [("released", 1)]
    trainer.put(1, team(1, lag=lag))
    assert trainer.train(1) == [[0, 1]]


def test_a_team_that_is_displaced_or_lost_while_it_is_ahead_is_not_told_again() -> None:
    trainer = Simulated(2, {1: team(1, lag=1)})
    trainer.train(3)
    trainer.leaving.add(1)
    assert list(trainer.let_go()) == []
    trainer.put(0, team(0, lag=1))
    trainer.train(BATCHES)
    assert trainer.said() == [("held", 1)]


def test_a_trainer_that_is_made_anew_knows_who_waits() -> None:
    """After the controller was lost: from what was told alone."""
    trainer = Simulated(3, {0: team(0, 1, lag=1), 2: team(2, lag=1)})
    trainer.train(3)
    again = Simulated(3, {0: team(0, 1, lag=1), 2: team(2, lag=1)})
    for told in trainer.facts:
        again.recall(told)
    assert (trainer.progress, trainer.said()) == ([2, 1, 2], [("held", 2)])
    assert (again.progress, list(again.held), list(again.working)) == ([1, 1, 2], [2], [0])
    again.recall(Report("released", 0, 2, (2, 2, 2)))
    assert list(again.held) == []


def world(lag: int | None = None, lanes: tuple[int, ...] = (0, 0, 2)) -> RayWorld:
    """A job of three chunks, dispatched to two lanes; its data are there."""
    cluster = Cluster(SERVERS)
    job = Job("a", 0.0, EPOCHS, 3, BATCHES, 0.1, max_lag=lag)
    scenario = Scenario(cluster, Jobs(job_table([job])[0], cluster), Physics(slot=SECOND), 0, "turns")
    made = RayWorld(
        State(scenario, preemptive=True), {"a": Program("m:f", {}, 3, EPOCHS, BATCHES)}, NoEngine(len(SERVERS))
    )
    made.inbox.rebuilding = True  # no thread is started
    hear(made, made._timed())
    zeros = np.zeros(3)
    order = Dispatch(0, np.array(lanes), 9, zeros, zeros.astype(np.int64))
    accept(made.state, order)
    made.perform(order)
    for upload in list(made.uploads.pending.values()):
        made.lanes.uploaded(upload)
    hear(made, made.lanes.settle())
    return made


def hear(of: RayWorld, event: Event | None) -> None:
    """Have the kernel's state take in an event, which has to be there."""
    assert event is not None
    absorb(of.state, event)


def tell(to: RayWorld, at: float, what: str, number: int, *progress: int) -> Event | None:
    to.inbox.clock = int(at * SECOND)
    return to._take_in(Report(what, 0, number, progress))


def runs(of: RayWorld) -> list[tuple[Any, ...]]:
    return of.runs().select("chunk", "lane", "start", "end", "work", "preempted").rows()


def completions(event: Event | None) -> int:
    return 0 if event is None else len(event.chunks.time)


def test_the_kernel_hears_of_a_chunk_s_worth_and_the_record_of_each_chunk_s_work() -> None:
    """Two chunks on lane 0: at 3 s each is half trained, at 6.5 s both are and it is saved; shares by their work."""
    of = world()
    assert completions(tell(of, 3, "trained", 0, 3, 3, 0)) == 1
    assert completions(tell(of, 4, "trained", 0, 4, 4, 0)) == 0
    assert completions(tell(of, 6.5, "finished", 0, 6, 6, 0)) == 1
    assert [(c, s / SECOND, e / SECOND, w, p) for c, lane, s, e, w, p in runs(of) if lane == 0] == [
        (0, 0, 1.5, 3, False), (1, 1.5, 3, 3, False), (0, 3, 3.5, 1, False), (1, 3.5, 4, 1, False),
        (0, 4, 5.25, 2, False), (1, 5.25, 6.5, 2, False),
    ]  # fmt: skip


def test_a_team_that_is_displaced_comes_back_whole() -> None:
    """The last share is cut short; a chunk that goes on where its run ended has one run."""
    of = world()
    of.trainers[0].take(0)
    tell(of, 1.5, "stopped", 0, 2, 1, 0)
    of.lanes.settle()
    assert of.trainers[0].teams.working[0].chunks == (0, 1)
    tell(of, 3, "trained", 0, 2, 4, 0)
    of.trainers[0].take(0)
    tell(of, 5, "stopped", 0, 2, 6, 0)
    found = [(c, s / SECOND, e / SECOND, w, p) for c, lane, s, e, w, p in runs(of) if lane == 0]
    assert found == [(0, 0, 1, 2, False), (1, 1, 1.5, 1, True), (1, 1.5, 5, 5, False)], "chunk 1 is trained"


def test_a_team_that_is_ahead_gives_its_lane_up_until_it_is_released() -> None:
    of = world(lag=1)
    tell(of, 1, "held", 2, 1, 0, 2)
    assert of.lanes.settle() is None, "the job still runs on lane 0"
    assert (0, 2) not in of.log.open
    assert [(c, p) for c, *_, p in runs(of)] == [(2, False)]
    tell(of, 2, "released", 2, 2, 2, 2)
    of.lanes.settle()
    assert (0, 2) in of.log.open


def test_in_the_cloud_a_chunk_is_its_own_team_and_goes_on_when_it_is_released() -> None:
    of = world(lag=1, lanes=(0, 0, CLOUD))
    assert tell(of, 1, "held", 2, 1, 0, 2) is None
    assert (0, 2) not in of.log.open
    tell(of, 2, "released", 2, 2, 2, 2)
    assert (0, 2) in of.log.open


def test_of_a_lost_server_all_chunks_that_are_not_trained_are_lost_at_once() -> None:
    """The lane has done one chunk's work, which the kernel knows, and neither of its two chunks is trained."""
    of = world()
    tell(of, 3, "trained", 0, 3, 3, 0)
    event = of._take_in(ServerChanged(0, "cordoned"))
    assert event is not None
    assert event.lost == (), "the mini-batch under way is ended"
    stopped = tell(of, 4, "stopped", 0, 4, 3, 0)
    assert stopped is not None
    assert stopped.lost == ((0, (0, 1)),)


def test_a_job_is_finished_when_all_its_teams_have_told_so() -> None:
    of = world()
    first = tell(of, 3, "finished", 2, 3, 3, 6)
    assert completions(first) == 1
    hear(of, first)
    last = tell(of, 6.5, "finished", 0, 6, 6, 6)
    assert last is not None
    assert (last.finished, completions(last)) == ((0,), 2)
    hear(of, last)
    assert of.state.active().tolist() == []
