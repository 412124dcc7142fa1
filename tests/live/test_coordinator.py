"""The coordinator without Ray: reports come once, later controllers fence earlier ones, training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import SERVERS
from skedge.core.errors import StateError
from skedge.core.kernel.state import State
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.coordinator.client import CoordinatorClient, CoordinatorLostError, LocalCoordinator
from skedge.live.coordinator.coordinator import TrainingCoordinator
from skedge.live.coordinator.messages import Assignment, Command, FencedError, LastReport, ProgressNote, UnattachedError
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.coordinator.trainer import Trainer
from skedge.live.coordinator.training_actors import TrainingActors
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.program import Program
from skedge.live.world.inputs import Due, Resumed, to_json
from skedge.live.world.ray_world import NoEngine, RayWorld

OF = Program("m:f", {}, 2, 1, 6)
FIRST, SECOND_ONE = (0, "first"), (1, "second")


class Nothing(TrainingActors):
    """No processes: there is nothing to clear."""

    def __init__(self) -> None: ...

    def clear(self, controllers: int) -> None:
        """Do nothing."""

    def tidy(self, controllers: int) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of trainers would ask Ray."""
    monkeypatch.setattr(Trainer, "start", lambda _: None)


@pytest.fixture
def coordinator() -> Iterator[TrainingCoordinator]:
    one = TrainingCoordinator(Nothing(), ("m0", "m1"))
    try:
        yield one
    finally:
        one._over.set()


def assigned(job: int = 0) -> Assignment:
    return Assignment(job, f"job{job}", OF, Teams(OF), site=0)


def attach(
    coordinator: TrainingCoordinator, who: tuple[int, str], *assignments: Assignment, after: int = 0, now: int = 0
) -> Any:
    return coordinator.attach(who, LastReport(after, FIRST[0]), now, {one.job: one for one in assignments})


def told(coordinator: TrainingCoordinator, who: tuple[int, str], after: int = 0, journaled: int = 0) -> list[str]:
    return [report.what for report in coordinator.news(who, after, journaled, 0, 0.0).reports]


def comes(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_reports_are_kept_until_they_are_journaled_and_the_next_controller_gets_the_rest(
    coordinator: TrainingCoordinator,
) -> None:
    attach(coordinator, FIRST)
    for what in ("trained", "measured", "finished"):
        coordinator.tell(Report(what, 0))
    assert told(coordinator, FIRST) == ["trained", "measured", "finished"]
    assert told(coordinator, FIRST, after=3, journaled=1) == [], "each is handed out once"
    attach(coordinator, SECOND_ONE, after=1)
    assert told(coordinator, SECOND_ONE, after=1, journaled=1) == ["measured", "finished"], "those that no journal has"
    assert told(coordinator, SECOND_ONE, after=3, journaled=3) == []
    assert coordinator.attachment.reports == []


def test_numbers_continue_above_those_of_a_coordinator_that_was_lost(coordinator: TrainingCoordinator) -> None:
    attach(coordinator, (3, "later"), after=41)
    coordinator.tell(Report("trained", 0))
    (report,) = coordinator.news((3, "later"), 41, 41, 0, 0.0).reports
    assert report.number == 42


@pytest.mark.parametrize("earlier", [FIRST, (1, "other")], ids=["an earlier one", "one of the same number"])
def test_a_controller_that_was_followed_is_refused(coordinator: TrainingCoordinator, earlier: tuple[int, str]) -> None:
    attach(coordinator, SECOND_ONE, assigned())
    for ask in (
        lambda: attach(coordinator, earlier),
        lambda: coordinator.order(earlier, 1, [Command("close", 0)]),
        lambda: coordinator.news(earlier, 0, 0, 0, 0.0),
        lambda: coordinator.close(earlier, 0.0),
    ):
        with pytest.raises(FencedError, match="another controller has taken over"):
            ask()
    assert 0 in coordinator.trainers
    assert issubclass(FencedError, StateError), "the supervisor does not start such a controller again"


def test_a_new_coordinator_tells_that_it_knows_nobody(coordinator: TrainingCoordinator) -> None:
    with pytest.raises(UnattachedError):
        coordinator.order(FIRST, 1, [])
    assert coordinator.clock() is None


def test_what_trains_goes_on_and_what_was_never_sent_takes_effect(coordinator: TrainingCoordinator) -> None:
    """The first controller dies after two orders are journaled; of the second only the journal knows."""
    attach(coordinator, FIRST)
    given, team = assigned(), Team(0, (0,), 1)
    coordinator.order(FIRST, 1, [Command("open", 0, (assigned(),)), Command("put", 0, (0, team, 0, 1))])
    trainer = coordinator.trainers[0]
    trainer.teams.progress = [3, 0]
    put_at = trainer.put_at[0]
    given.put(0, team, 0)
    given.put(1, Team(1, (1,), 1), 5 * SECOND)
    attach(coordinator, SECOND_ONE, given, now=7 * SECOND)
    assert coordinator.trainers[0] is trainer
    assert trainer.teams.progress == [3, 0], "no checkpoint was loaded"
    assert trainer.put_at[0] == put_at
    assert set(trainer.teams.working) == {0, 1}
    assert trainer.put_at[1] == pytest.approx(time.monotonic() - 2, abs=1), "it holds its lane since the decision"
    given.take(0)
    attach(coordinator, (2, "third"), given)
    assert trainer.teams.leaving == {0}


def test_a_team_whose_end_was_reported_is_not_started_again(coordinator: TrainingCoordinator) -> None:
    given = assigned()
    given.put(0, Team(0, (0,), 1), 0)
    attach(coordinator, FIRST, given)
    coordinator.trainers[0].teams.dismiss(0, coordinator.trainers[0].teams.working[0])
    coordinator.tell(Report("finished", 0, 0))
    attach(coordinator, SECOND_ONE, given)
    assert coordinator.trainers[0].teams.working == {}
    assert told(coordinator, SECOND_ONE) == ["finished"]


def test_a_new_coordinator_gets_all_teams_those_that_wait_and_the_progress_of_the_last_report(
    coordinator: TrainingCoordinator,
) -> None:
    given = assigned()
    given.put(0, Team(0, (0,), 1), 0)
    given.put(1, Team(1, (1,), 1, max_lag=1), 0)
    given.teams.recall(Report("held", 0, 1, (2, 6)))
    attach(coordinator, (4, "fifth"), given)
    trainer = coordinator.trainers[0]
    assert (set(trainer.teams.working), set(trainer.teams.held), trainer.teams.progress) == ({0}, {1}, [2, 6])
    assert trainer.site == 0
    assert trainer.ps.controllers() == 4, "checkpoints sort after those of the coordinator that was lost"


def test_jobs_that_have_left_are_closed_and_their_results_are_not_measured_twice(
    coordinator: TrainingCoordinator,
) -> None:
    attach(coordinator, FIRST, assigned(0), assigned(1))
    coordinator.tell(Report("result", 5))
    trainer = coordinator.trainers[1]
    assert attach(coordinator, SECOND_ONE, assigned(0)).measuring == {5}
    assert set(coordinator.trainers) == {0}
    assert trainer.closed.is_set()


def test_without_a_controller_trainers_pause_after_a_while_and_the_clock_stands_still() -> None:
    coordinator = TrainingCoordinator(Nothing(), ("m0",), alone_s=0.3)
    try:
        attach(coordinator, FIRST, assigned(), now=5 * SECOND)
        trainer = coordinator.trainers[0]
        assert trainer._place() == 0
        comes(lambda: trainer.paused)
        assert trainer._place() is None, "it saves a checkpoint and releases its parameter server"
        before = coordinator.clock()
        assert before is not None
        assert before >= 5.3 * SECOND
        time.sleep(0.1)
        assert coordinator.clock() == before
        attach(coordinator, SECOND_ONE, assigned(), now=before)
        assert not trainer.paused
        assert coordinator.clock() == pytest.approx(before, abs=0.2 * SECOND)
    finally:
        coordinator._over.set()


def test_updates_without_a_controller_are_counted(coordinator: TrainingCoordinator) -> None:
    attach(coordinator, FIRST)
    coordinator.note(ProgressNote(0, "", (1, 0), updates=1))
    coordinator.news(FIRST, 0, 0, 0, 0.0)
    coordinator.note(ProgressNote(0, "", (2, 0), updates=1))
    coordinator.note(ProgressNote(0, "update 3", (3, 0), (3.0, 0.5), updates=40))
    found = attach(coordinator, SECOND_ONE)
    assert (found.updates, found.alone_s < 5) == (41, True)
    assert [note.progress for note in coordinator.news(SECOND_ONE, 0, 0, 0, 0.0).notes] == [(3, 0), (2, 0)]


# -- the controller's side ------------------------------------------------------------------------------------------


class Heard:
    """What a link has told."""

    def __init__(self, coordinator: Any, number: int) -> None:
        self.reports: list[Report] = []
        self.fenced: list[Exception] = []
        self.lost = 0
        self.link = CoordinatorClient(
            coordinator,
            number,
            tell=self.reports.append,
            note=lambda _: None,
            lost=self._lose,
            broken=self.fenced.append,
            journaled=LastReport,
            now=lambda: 0,
        )

    def _lose(self) -> None:
        self.lost += 1


def test_of_two_controllers_one_acts(coordinator: TrainingCoordinator) -> None:
    one, other = (Heard(LocalCoordinator(coordinator), number) for number in (0, 1))
    one.link.attach({0: assigned()})
    coordinator.tell(Report("trained", 0))
    comes(lambda: one.reports)
    _, missed = other.link.attach({0: assigned()})
    assert [report.what for report in missed] == ["trained"], "the first has not journaled it"
    one.link.send(Command("close", 0))
    comes(lambda: one.fenced)
    assert 0 in coordinator.trainers, "its order has no effect"
    other.link.send(Command("close", 0))
    comes(lambda: 0 not in coordinator.trainers)
    assert not other.fenced
    other.link.leave()


class Dying:
    """A coordinator that is lost and, some questions later, there again, and knows nobody."""

    def __init__(self) -> None:
        self.deaths = iter([CoordinatorLostError(), CoordinatorLostError(), None])

    def ask(self, method: str, *_: Any) -> Any:
        if method == "news":
            raise CoordinatorLostError
        if method == "clock" and (error := next(self.deaths)) is not None:
            raise error
        return None


def test_a_coordinator_that_was_lost_is_attached_to_again() -> None:
    heard = Heard(Dying(), 0)
    heard.link._threads[1].start()
    comes(lambda: heard.lost)
    assert heard.lost == 1


class WithCoordinator(NoEngine):
    """An engine whose servers do nothing, with a coordinator."""

    acts = True

    def __init__(self, coordinator: TrainingCoordinator) -> None:
        super().__init__(len(SERVERS))
        self.of_run = coordinator

    def coordinator(self) -> Any:
        return LocalCoordinator(self.of_run)


def test_a_new_controller_takes_in_what_it_missed_at_the_times_at_which_it_happened(
    tmp_path: Path, coordinator: TrainingCoordinator
) -> None:
    """The run's clock goes on as the coordinator has kept it, even if the machine's clock was set an hour ahead."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))
    url = f"sqlite:///{tmp_path}/journal.db"
    SqlJournal(url, {"began": 0.0}).take(5 * SECOND, to_json(Due()))
    began = time.time() - 5.0
    attach(coordinator, FIRST, now=5 * SECOND)
    time.sleep(0.3)
    coordinator.tell(Report("finished", 0, 0, late_s=0.25))
    time.sleep(0.3)
    world = RayWorld(
        State(scenario, preemptive=True),
        {"a": OF},
        WithCoordinator(coordinator),
        journal=SqlJournal(url),
        began=began - 3600,
    )
    assert isinstance(world.inbox.take(), Due)
    resumed = world.inbox.take()
    assert isinstance(resumed, Resumed)
    assert resumed.away == pytest.approx(3600 * SECOND, abs=0.2 * SECOND), "training went on: none of it is away"
    assert world.inbox.elapsed() >= 5.6 * SECOND
    report = world.inbox.take()
    assert isinstance(report, Report)
    assert (report.what, report.number, report.since) == ("finished", 1, 0.0)
    assert world.inbox.clock == pytest.approx(5.3 * SECOND, abs=0.15 * SECOND)
    assert report.late_s == pytest.approx(0.25), "nothing has waited for it at that time"
    assert (world.inbox.told, world.inbox.resumed) == ((1, 1), 1)
    world.trainers.leave()
    again = RayWorld(
        State(scenario, preemptive=True), {"a": OF}, NoEngine(len(SERVERS)), journal=SqlJournal(url), began=began
    )
    assert [type(again.inbox.take()).__name__ for _ in range(3)] == ["Due", "Resumed", "Report"]
    assert again.inbox.told.number == 1


def test_an_idle_service_survives_the_death_of_its_controller(tmp_path: Path, coordinator: TrainingCoordinator) -> None:
    """Its first controller dies before anything was submitted; the next one is a later one to the coordinator."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))
    url, began = f"sqlite:///{tmp_path}/journal.db", time.time()
    first = RayWorld(
        State(scenario, preemptive=True),
        {"a": OF},
        WithCoordinator(coordinator),
        journal=SqlJournal(url, {"began": began}),
        began=began,
    )
    first.trainers.leave()
    for before in (1, 2):
        journal = SqlJournal(url)
        assert journal.number == before, "each has journaled that it begins, and nothing else"
        world = RayWorld(
            State(scenario, preemptive=True), {"a": OF}, WithCoordinator(coordinator), journal=journal, began=began
        )
        assert [type(world.inbox.take()) for _ in range(before + 1)] == [Resumed] * (before + 1)
        assert coordinator.attachment.who is not None
        assert (coordinator.attachment.who[0], world.inbox.resumed, world.inbox.lost) == (before + 1, before + 1, 0)
        world.trainers.leave()


class Hasty(LocalCoordinator):
    """A coordinator that reports something between being attached to and being asked for news."""

    def ask(self, method: str, *given: Any) -> Any:
        found = super().ask(method, *given)
        if method == "attach":
            self.coordinator.tell(Report("stopped", 0, 0))
        return found


class WithHasty(WithCoordinator):
    """An engine with such a coordinator."""

    def coordinator(self) -> Any:
        return Hasty(self.of_run)


def test_what_a_new_coordinator_reports_while_it_is_attached_to_is_taken_in(coordinator: TrainingCoordinator) -> None:
    """The coordinator was lost: the first news of the one after it are inputs, too."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))
    world = RayWorld(State(scenario, preemptive=True), {"a": OF}, WithHasty(coordinator))
    world.inbox.waiting.put(Resumed())
    assert isinstance(world.inbox.take(), Resumed)
    world.inbox.waiting.put(Due())
    report = world.inbox.take()
    assert isinstance(report, Report)
    assert report.what == "stopped"
    world.trainers.leave()
