"""Interleavings of coordinator, trainers and controller, each forced by events and not by sleeps, without Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import SERVERS
from skedge.core.kernel.state import State
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.coordinator.client import CoordinatorClient, CoordinatorLostError, LocalCoordinator
from skedge.live.coordinator.coordinator import TrainingCoordinator
from skedge.live.coordinator.instructions import Loaded
from skedge.live.coordinator.messages import Assignment, Command, LastReport, UnattachedError
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.coordinator.trainer import Trainer
from skedge.live.coordinator.training_actors import TrainingActors
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.program import Program
from skedge.live.world import trainers
from skedge.live.world.inputs import Due, Resumed, to_json
from skedge.live.world.ray_world import NoEngine, RayWorld

NONE: Any = None
OF = Program("m:f", {}, 2, 1, 6)
FIRST = (0, "first")
LONG_S = 10.0
"""How long what happens at once may take [s]: only a failing test waits for so long."""


class NoProcesses(TrainingActors):
    """The processes of a coordinator whose trainers train nothing."""

    def __init__(self) -> None: ...

    def clear(self, controllers: int) -> None:
        """Do nothing: there are none."""

    def tidy(self, controllers: int) -> None:
        """Do nothing: there are none."""


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of trainers would ask Ray."""
    monkeypatch.setattr(Trainer, "start", lambda _: None)


@pytest.fixture
def coordinator() -> Iterator[TrainingCoordinator]:
    """A coordinator that waits for a short time for a controller."""
    one = TrainingCoordinator(NoProcesses(), ("m0", "m1"), alone_s=0.2)
    try:
        yield one
    finally:
        one._over.set()


def assigned(number: int = 0) -> Assignment:
    """A job with one team."""
    given = Assignment(number, f"job{number}", OF, Teams(OF), site=0)
    given.put(0, Team(0, (0,), 1), 0)
    return given


def attached(coordinator: TrainingCoordinator) -> Trainer:
    """The trainer of a job, of which the first controller has told the coordinator."""
    coordinator.attach(FIRST, LastReport(), 0, {0: assigned()})
    return coordinator.trainers[0]


def in_thread(run: Callable[[], object]) -> threading.Thread:
    """Run something in a thread of its own."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread) -> bool:
    """Whether a thread ends."""
    thread.join(LONG_S)
    return not thread.is_alive()


class Gate:
    """A method that tells that it was reached, and goes on when it may."""

    def __init__(self, of: object, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
        self.reached, self.opened, self.over = (threading.Event() for _ in range(3))
        self.method, self.when = getattr(of, name), when
        setattr(of, name, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if not self.when(*given, **named):
            return self.method(*given, **named)
        self.reached.set()
        assert self.opened.wait(2 * LONG_S)
        found = self.method(*given, **named)
        self.over.set()
        return found


# -- the coordinator's locks -----------------------------------------------------------------------------------------


def test_news_end_a_pause_while_a_trainer_tells_of_its_team(coordinator: TrainingCoordinator) -> None:
    """The trainer holds its lock and is about to tell; a controller is heard, and wants that lock to end the pause."""
    trainer = attached(coordinator)
    pause = Gate(trainer, "pause", lambda paused: paused)
    pause.opened.set()
    assert pause.over.wait(LONG_S), "no controller is heard"
    telling, resumed = Gate(trainer.clock, "report"), Gate(trainer, "pause", lambda paused: not paused)
    resumed.opened.set()
    trainer.take(0)
    tells = in_thread(lambda: trainer.perform(trainer.rounds.next_teams()))
    assert telling.reached.wait(LONG_S)
    news = in_thread(lambda: coordinator.news(FIRST, 0, 0, 0, 0.0))
    assert resumed.reached.wait(LONG_S)
    telling.opened.set()
    assert ends(news)
    assert ends(in_thread(coordinator.clock))
    trainer.close()
    assert ends(tells)
    assert [report.what for report in coordinator.attachment.reports] == ["stopped"]


def test_a_controller_that_is_heard_while_trainers_begin_to_pause_ends_the_pause(
    coordinator: TrainingCoordinator,
) -> None:
    trainer = attached(coordinator)
    pause = Gate(trainer, "pause", lambda paused: paused)
    assert pause.reached.wait(LONG_S)
    coordinator.attachment.alone_s = 1e9
    news = in_thread(lambda: coordinator.news(FIRST, 0, 0, 0, 0.0))
    news.join(0.5)  # it is heard now, or once the pause has begun
    pause.opened.set()
    assert pause.over.wait(LONG_S)
    assert ends(news)
    assert not trainer.paused
    assert coordinator.attachment.paused_at == 0


def test_a_job_that_is_new_while_trainers_pause_pauses_too(coordinator: TrainingCoordinator) -> None:
    pause = Gate(attached(coordinator), "pause", lambda paused: paused)
    pause.opened.set()
    assert pause.over.wait(LONG_S)
    coordinator.order(FIRST, 1, [Command("open", 1, (assigned(1),))])
    assert coordinator.trainers[1].paused


# -- orders and attaching --------------------------------------------------------------------------------------------


def test_an_attach_that_was_late_does_not_undo_later_orders(coordinator: TrainingCoordinator) -> None:
    attached(coordinator)
    coordinator.order(
        FIRST, 1, [Command("serve_from", 0, (1,)), Command("lose", 0, (0,)), Command("keep_pace", 0, (0.5,))]
    )
    again = coordinator.attach(FIRST, LastReport(), 0, {0: assigned()})
    trainer = coordinator.trainers[0]
    assert (trainer.site, trainer.replies.out, trainer.clock.pace) == (1, {0}, 0.5)
    assert again == coordinator._attached, "its answer is that of the first call"


def test_an_order_that_was_late_is_carried_out_once(coordinator: TrainingCoordinator) -> None:
    trainer = attached(coordinator)
    for number, site in ((1, 1), (2, 0), (1, 1)):
        coordinator.order(FIRST, number, [Command("serve_from", 0, (site,))])
    assert trainer.site == 0
    coordinator.attach((1, "second"), LastReport(), 0, {0: assigned()})
    coordinator.order((1, "second"), 1, [Command("serve_from", 0, (1,))])
    assert trainer.site == 1, "each controller counts its own"


class Late(LocalCoordinator):
    """A coordinator whose answers to some calls are late: they have been carried out or not."""

    def __init__(self, coordinator: TrainingCoordinator, *late: tuple[str, bool]) -> None:
        super().__init__(coordinator)
        self.late = list(late)

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method."""
        for one in [one for one in self.late if one[0] == method][:1]:
            self.late.remove(one)
            if one[1]:
                super().ask(method, *given)
            raise CoordinatorLostError("GetTimeoutError")
        return super().ask(method, *given)


class Forgetful(LocalCoordinator):
    """A coordinator that is lost after it was attached to: the next one knows nobody."""

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method."""
        found = super().ask(method, *given)
        if method == "attach" and given[0][0] == 0:
            self.coordinator.attachment.who = None
        return found


class Heard:
    """A link, and what it has told."""

    def __init__(self, coordinator: Any) -> None:
        self.lost, self.errors = threading.Event(), list[Exception]()
        self.link = CoordinatorClient(
            coordinator, 0, tell=lambda _: None, note=lambda _: None, lost=self.lost.set, broken=self.errors.append,
            journaled=LastReport, now=lambda: 0,
        )  # fmt: skip


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_order_whose_answer_is_late_is_sent_again_and_so_are_those_after_it(
    coordinator: TrainingCoordinator, *, carried_out: bool
) -> None:
    heard = Heard(Late(coordinator, ("order", carried_out), ("order", carried_out)))
    heard.link.attach({0: assigned()})
    paces, last = list[float](), threading.Event()
    coordinator.trainers[0].keep_pace = lambda pace: (paces.append(pace), pace == 3 and last.set())  # type: ignore[assignment]
    for pace in (1, 2, 3):
        heard.link.send(Command("keep_pace", 0, (pace,)))
    assert last.wait(LONG_S)
    heard.link.leave()
    assert paces == [1, 2, 3]
    assert (heard.lost.is_set(), heard.errors) == (False, [])


def test_an_error_of_a_command_ends_the_controller_and_not_the_sender_alone(coordinator: TrainingCoordinator) -> None:
    heard, ended = Heard(LocalCoordinator(coordinator)), threading.Event()
    heard.link.broken = lambda error: (heard.errors.append(error), ended.set())  # type: ignore[assignment]
    heard.link.attach({0: assigned()})
    heard.link.send(Command("no_method", 0))
    assert ended.wait(LONG_S)
    heard.link.leave()
    assert [type(error) for error in heard.errors] == [AttributeError]


class Coordinated(NoEngine):
    """An engine whose servers do nothing, with a coordinator."""

    acts = True

    def __init__(self, asked: Any) -> None:
        super().__init__(len(SERVERS))
        self.asked = asked

    def coordinator(self) -> Any:
        """The coordinator."""
        return self.asked


def scenario() -> Scenario:
    """One job, which comes late."""
    cluster = Cluster(SERVERS)
    return Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))


@pytest.mark.parametrize(
    "asked",
    [
        lambda coordinator: Late(coordinator, ("attach", True)),
        lambda coordinator: Late(coordinator, ("attach", False)),
        lambda coordinator: Late(coordinator, ("news", False)),
        lambda coordinator: Late(coordinator, ("news", False), ("clock", False)),
        Forgetful,
    ],
    ids=["attach late", "attach lost", "news", "news and clock", "anew"],
)
def test_a_coach_lost_before_its_first_news_is_attached_to_again(
    coordinator: TrainingCoordinator, asked: Callable[[TrainingCoordinator], LocalCoordinator]
) -> None:
    world = RayWorld(State(scenario(), preemptive=True), {"a": OF}, Coordinated(asked(coordinator)))
    given = world.inbox.take()
    assert isinstance(given, Resumed), "a new coordinator gets all assignments under a new number"
    assert coordinator.attachment.who is not None
    assert coordinator.attachment.who[0] == 1
    coordinator.tell(Report("stopped", 0, 0))
    assert isinstance(world.inbox.take(), Report)
    world.trainers.leave()


def test_a_coach_that_is_lost_when_it_is_asked_for_its_clock_is_asked_again(
    tmp_path: Path, coordinator: TrainingCoordinator
) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    SqlJournal(url, {"began": 0.0}).take(5 * SECOND, to_json(Due()))
    coordinator.attach(FIRST, LastReport(), 5 * SECOND, {})
    world = RayWorld(
        State(scenario(), preemptive=True),
        {"a": OF},
        Coordinated(Late(coordinator, ("clock", False))),
        journal=SqlJournal(url),
    )
    assert isinstance(world.inbox.take(), Due)
    assert isinstance(world.inbox.take(), Resumed)
    world.trainers.leave()


def test_a_coach_that_is_started_and_knows_nobody_is_one_to_attach_to(coordinator: TrainingCoordinator) -> None:
    with pytest.raises(UnattachedError):
        coordinator.news(FIRST, 0, 0, 0, 0.0)


# -- teams -----------------------------------------------------------------------------------------------------------


def trainer_of(told: list[Report]) -> Trainer:
    """A trainer whose first chunk is trained."""
    trainer = Trainer(0, "j", OF, told.append, NONE, servers=("s",))
    trainer.put(3, Team(0, (0,), 1), order=1)
    trainer.teams.progress = [6, 0]
    trainer.training.ps = Loaded(0, 6, [6, 0], "", trains=False)
    return trainer


def test_a_team_that_is_put_while_the_last_one_is_saved_is_not_dismissed() -> None:
    """The upload of chunk 1 ends while the checkpoint that holds chunk 0 is written."""
    told = list[Report]()
    trainer, both = trainer_of(told), Team(0, (0, 1), 2)

    def save() -> list[int]:
        trainer.put(3, both, order=2)
        return [6, 0]

    trainer.ps.save = save  # type: ignore[method-assign]
    trainer.perform(trainer.rounds.dismiss_finished())
    assert (told, trainer.teams.working, trainer.teams.reported) == ([], {3: both}, set())


def test_the_report_of_a_team_that_was_replaced_meanwhile_does_not_end_the_next() -> None:
    """It was on its way when the controller put a team with another chunk in its place."""
    teams = assigned().teams
    teams.put(0, Team(0, (0, 1), 2))
    teams.recall(Report("finished", 0, 0, (6, 0)))
    assert (set(teams.working), teams.reported, teams.progress) == ({0}, set(), [6, 0])
    teams.recall(Report("finished", 0, 0, (6, 6)))
    assert (teams.working, teams.reported) == ({}, {0, 1})


@pytest.mark.parametrize(("held", "dismissed"), [([6, 0], True), ([5, 0], False)])
def test_a_team_is_finished_once_a_checkpoint_holds_all_its_mini_batches(held: list[int], *, dismissed: bool) -> None:
    told = list[Report]()
    trainer, loaded = trainer_of(told), list[int]()
    trainer.ps.save = lambda: held  # type: ignore[method-assign]
    trainer.ps.move = loaded.append  # type: ignore[method-assign, assignment]
    assert trainer.perform(trainer.rounds.dismiss_finished()) == dismissed
    assert ([report.what for report in told], loaded) == ((["finished"], []) if dismissed else ([], [0]))


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_measurement_that_fails_is_told_and_tried_again(
    coordinator: TrainingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage is away twice, then Ray; then there is no checkpoint any more."""
    answers: list[Any] = [OSError("away"), OSError("away"), b"checkpoint", RuntimeError("Ray"), b"checkpoint", None]
    lines = list[str]()

    def outcome() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    world = RayWorld(State(scenario(), preemptive=True), {"a": OF}, Coordinated(LocalCoordinator(coordinator)))
    world.facts.job_log = lambda _, line: lines.append(line)
    monkeypatch.setattr(trainers, "_AGAIN_S", 0.0)
    monkeypatch.setattr(trainers.Checkpoints, "read", lambda *_: outcome())
    monkeypatch.setattr(world.engine.job_code, "outcome_of", lambda *_: outcome() or {"accuracy": 1.0})
    for result in ({"accuracy": 1.0}, trainers._GONE):
        if result is trainers._GONE:
            answers[:] = [None]
        else:
            answers[-1:] = [b""]
        world.trainers.measure(0)
        given = world.inbox.waiting.get(timeout=LONG_S)
        assert isinstance(given, Report)
        assert (given.what, given.result) == ("result", result)
    assert lines == ["its result cannot be measured, which is tried again: OSError: away"]
    world.trainers.leave()


def test_trainers_that_close_do_not_wait_for_storage_that_is_away(
    coordinator: TrainingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def read(*_: object) -> None:
        asked.set()
        raise OSError

    monkeypatch.setattr(trainers.Checkpoints, "read", read)
    world = RayWorld(State(scenario(), preemptive=True), {"a": OF}, Coordinated(LocalCoordinator(coordinator)))
    world.trainers.measure(0)
    assert asked.wait(LONG_S)
    (thread,) = world.trainers._measuring
    world.trainers.close()
    assert not thread.is_alive()


def test_a_full_object_store_costs_a_trainer_time_and_not_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines, full = list[Report](), list[str](), [host.LostError("ObjectStoreFullError: full")]
    trainer = Trainer(0, "j", OF, told.append, NONE, note=lambda note: lines.append(note.line), servers=("s",))
    trainer.put(0, Team(0, (0,), 1), order=1)
    trainer.serve_from(0)

    def put(_: object) -> bytes:
        if full:
            raise full.pop()
        trainer.close()
        return b"reference"

    monkeypatch.setattr(host, "put", put)
    monkeypatch.setattr(trainer.ps, "move", lambda _: None)
    trainer.run()
    assert (told, trainer.ps.sent) == ([], b"reference")
    assert lines == ["a call cannot be made, and is tried again: ObjectStoreFullError: full"]
