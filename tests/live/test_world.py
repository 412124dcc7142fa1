"""The live world's books, without Ray."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import SERVERS
from skedge.core.events import Allocate, EndAt, Event, Suspend, WakeAt
from skedge.core.kernel.absorb import absorb
from skedge.core.kernel.accept import accept
from skedge.core.kernel.state import State
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Linear
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.time_limits import reason
from skedge.live import host
from skedge.live.controller.limits import Limits
from skedge.live.controller.service import Service
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.coordinator.trainer import Trainer
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.program import Program
from skedge.live.world.agenda import Agenda
from skedge.live.world.inputs import Due, Resumed, ServerChanged, from_json, to_json
from skedge.live.world.ray_world import NoEngine, RayWorld
from skedge.live.world.site_world import SiteWorld


def test_a_result_that_comes_before_the_last_chunk_is_told_waits_for_it() -> None:
    """All chunks are trained, but one was dispatched again when its server was lost: the job is still in the system."""
    cluster = Cluster(SERVERS)
    made = [Job("a", 0.0, 1, 2, 6, 0.1)]
    scenario = Scenario(cluster, Jobs(job_table(made)[0], cluster), Physics(slot=SECOND), 0, "world test")
    world = RayWorld(State(scenario, preemptive=True), {"a": Program("m:f", {}, 2, 1, 6)}, NoEngine(len(SERVERS)))
    arrival = world._timed()
    assert arrival is not None
    hear(world, arrival)
    assert world._take_in(Report("result", 0, result={"accuracy": 1.0})) is None
    assert world.facts.results[0] == {"accuracy": 1.0}
    assert world.state.in_system(0)
    assert world._take_in(Report("unmeasured", 0)) is None


def test_one_process_stands_for_the_pss_of_a_job_on_the_first_server_that_has_some() -> None:
    """On servers with resources: 2 PSs on m1 and 1 on m2 are one process, on m1."""
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": 4.0}) for i in range(3)])
    needs = {"gpu": 1.0}
    job = Job("a", 0.0, 1, 2, 6, 0.1, batch=2, worker_needs=needs, ps_needs=needs)
    scenario = Scenario(cluster, Jobs(job_table([job])[0], cluster), Physics(slot=SECOND))
    world = RayWorld(State(scenario, preemptive=True), {"a": Program("m:f", {}, 2, 1, 6)}, NoEngine(3))
    hear(world, world._timed())
    for order, site in ((Allocate(0, ((0, 2),), ((1, 2), (2, 1))), 1), (Suspend(0), None)):
        accept(world.state, order)
        world.perform(order)
        assert (world.ps_site(0), world.trainers[0].site) == (site, site)


def hear(world: RayWorld, event: Event | None) -> tuple[tuple[int, str], ...]:
    """Have the kernel's state take in an event, if there is one, as the kernel does; returns its changes of servers."""
    if event is None:
        return ()
    event = absorb(world.state, event)
    assert all(isinstance(order, EndAt) for order in world.state.limits.orders(world.state, event, ()))
    return event.servers


def test_a_site_lost_and_back_within_a_slot_is_out_of_service_for_the_next() -> None:
    """Its workers have trained nothing: the scheduler must hear of it, one change a slot."""
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": 4.0}) for i in range(2)], np.array([[0.0, 1.0], [1.0, 0.0]]))
    job = Job(
        "a", 0.0, 1, 2, 6, 0.1, worker_needs={"gpu": 1.0}, ps_needs={"gpu": 1.0}, exchange_mb=1.0,
        data={"m0": 1, "m1": 1}, latency=Linear(1.0),
    )  # fmt: skip
    table, given = job_table([job])
    physics = Physics(slot=SECOND, slotted=True, horizon=10 * SECOND)
    scenario = Scenario(cluster, Jobs(table, cluster, given), physics)
    world = SiteWorld(State(scenario, preemptive=True), {"a": Program("m:f", {}, 2, 1, 6)}, NoEngine(2))
    sites = world.sites
    assert sites is not None
    for what in ("cordoned", "lost", "uncordoned", "back"):
        world._take_in(ServerChanged(0, what))
    told = [hear(world, sites.end_slot()) for _ in range(3)]
    assert told == [((0, "server_cordoned"),), ((0, ""),), ()]
    for slot in (("lost",), ("back", "lost"), ("back", "lost", "back"), ()):
        for what in slot:
            world._take_in(ServerChanged(0, what))
        told += [hear(world, sites.end_slot())]
    assert told[3:] == [((0, "server_lost"),), (), ((0, ""),), ()], "never back while it is lost"


def test_the_record_says_how_late_wakes_and_ends_were_dealt_with() -> None:
    """No controller could decide when they were due; the verifier allows for that."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([])[0], cluster), Physics(slot=SECOND))
    state = State(scenario, preemptive=True)
    agenda = Agenda(state)
    for order in (WakeAt(2 * SECOND), WakeAt(9 * SECOND)):
        agenda.wake_at(order)
    state.limits.last_order[0] = EndAt(0, 4 * SECOND, "its time limit")
    assert agenda.due_by(5 * SECOND) == ((), True)
    assert agenda.late == 3 * SECOND
    assert [order.job for order in agenda.ended_by(9 * SECOND)] == [0]
    assert agenda.late == 5 * SECOND


def at_one_site() -> SiteWorld:
    """A job of two chunks, which arrives within the first slot."""
    cluster = Cluster([Server("m0", capacity={"gpu": 4.0})], np.array([[0.0]]))
    needs = {"gpu": 1.0}
    job = Job("a", 0.25, 1, 2, 6, 0.1, worker_needs=needs, ps_needs=needs, data={"m0": 2}, latency=Linear(1.0))
    table, listed = job_table([job])
    scenario = Scenario(cluster, Jobs(table, cluster, listed), Physics(slot=SECOND, slotted=True))
    return SiteWorld(State(scenario, preemptive=True), {"a": Program("m:f", {}, 2, 1, 6)}, NoEngine(1))


def test_a_controller_at_sites_sleeps_until_the_slot_ends_when_a_job_has_arrived_within_it() -> None:
    """Else it journals that time has passed, again and again, until the slot is over."""
    world = at_one_site()
    world.sites.end, world.real_now = SECOND, lambda: SECOND // 2  # type: ignore[method-assign]
    assert world.patience() == 0.5


def test_a_job_submitted_at_sites_is_read_from_the_journal_as_it_was_given(tmp_path: Path) -> None:
    """Its latency cost has fields that go with its kind alone: what is left out must stay so."""
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": 4.0}) for i in range(2)], np.array([[0.0, 1.0], [1.0, 0.0]]))
    table, given = job_table([])
    empty = Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND, slotted=True))
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}", {"began": 0.0})
    service = Service(empty, "okita", tmp_path, NoEngine(2), journal, Limits(allow=("m",)))
    spec = {
        "name": "a", "epochs": 1, "minibatches": 5, "minibatch_s": 0.1, "chunk_mb": 1.0, "exchange_mb": 2.0,
        "worker_needs": {"gpu": 1}, "ps_needs": {"gpu": 1}, "data": {"m0": 3, "m1": 1},
        "latency": {"kind": "linear", "tau": 9}, "train": {"factory": "m:f"},
    }  # fmt: skip
    answer = Future[str]()
    submitted = service.submissions.submitted(spec, "", answer)
    assert submitted is not None
    submitted = from_json(to_json(submitted))
    service.world._take_in(submitted)
    jobs = service.kernel.scenario.jobs
    assert answer.result(timeout=0) == "a"
    assert (jobs.ids, jobs.data[0].tolist(), jobs.latency[0]) == (["a"], [3, 1], Linear(9.0))
    journal.close()


def test_a_lost_process_stands_in_the_jobs_log_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that is out of service it says nothing more: that is an event of its own."""

    def lost(_: object) -> object:
        raise host.LostError

    monkeypatch.setattr(host, "ready", lambda refs, _: (refs, []))
    monkeypatch.setattr(host, "answer", lost)
    lines = list[str]()
    none: Any = None
    program = Program("m:f", {}, 2, 1, 6)
    trainer = Trainer(0, "a", program, none, none, note=lambda note: lines.append(note.line), servers=("m0", "m1"))
    assert trainer.replies.of("asked", 1) is None
    trainer.replies.out.add(1)
    assert trainer.replies.of("asked", 1) is None
    assert lines == ["a process on m1 was lost: what it was asked for is done again"]


def next_teams(trainer: Trainer) -> None:
    """Have a trainer look which teams train next."""
    trainer.perform(trainer.rounds.next_teams())


def test_a_chunk_that_joins_a_job_behind_its_pace_does_not_train_faster_than_announced() -> None:
    """Slow rounds are made up for by those who trained in them; what is left then counts as late."""
    none: Any = None
    program = Program("m:f", {}, 2, 1, 60)
    trainer = Trainer(0, "a", program, none, none, pace=0.1, servers=("m0", "m1"))
    clock = trainer.clock
    trainer.serve_from(0)
    trainer.put(0, Team(0, (0,), 1))
    next_teams(trainer)
    clock.due -= 3
    clock.keep()
    next_teams(trainer)
    assert clock.due < time.monotonic() - 2, "nobody joined: it is made up for"
    trainer.put(1, Team(1, (1,), 1))
    next_teams(trainer)
    assert clock.due == pytest.approx(time.monotonic(), abs=0.5)
    assert (clock.late_s, clock.behind_s) == (pytest.approx(2.9, abs=0.5), 0.0)


def test_a_team_is_delayed_from_the_event_that_gave_it_its_lanes_to_its_first_round() -> None:
    none: Any = None
    trainer = Trainer(0, "a", Program("m:f", {}, 1, 1, 60), none, none, pace=0.1, servers=("m0",))
    trainer.put(0, Team(0, (0,), 1), 2.0)
    trainer.serve_from(0)
    next_teams(trainer)
    assert trainer.fact("stopped", 0).late_s == pytest.approx(2.0, abs=0.5)
    next_teams(trainer)
    assert trainer.fact("stopped", 0).late_s == pytest.approx(0.0, abs=0.1), "it is counted once"


@pytest.mark.parametrize(("what", "late"), [("finished", 3.5), ("stopped", 3.5), ("measured", 0.5)])
def test_a_report_that_waits_delays_the_teams_that_it_ends(what: str, late: float) -> None:
    told = Report(what, 0, late_s=0.5).queued(10.0).taken(13.0)
    assert told == Report(what, 0, late_s=late)


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


@pytest.mark.parametrize("shift_s", [-3600.0, 0.0, 3600.0])
def test_a_run_goes_on_where_it_was_however_the_clock_was_set_meanwhile(tmp_path: Path, shift_s: float) -> None:
    """The controller ended 5 s into the run; the next one finds the clock an hour back, right, or an hour ahead."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))
    url = f"sqlite:///{tmp_path}/journal.db"
    began = time.time() - 5.0 - shift_s
    SqlJournal(url, {"began": began}).take(5 * SECOND, to_json(Due()))
    world = RayWorld(State(scenario, preemptive=True), {}, Up(len(SERVERS)), journal=SqlJournal(url), began=began)
    assert isinstance(world.inbox.take(), Due)
    assert isinstance(world.inbox.take(), Resumed)
    before = world.real_now()
    assert 5 * SECOND <= before < 6 * SECOND
    time.sleep(0.05)
    assert before < world.real_now() < 6 * SECOND, "and it is not the clock that has to catch up"


def test_a_clock_that_is_set_back_before_the_first_controller_begins_does_not_stop_the_runs_clock(
    tmp_path: Path,
) -> None:
    """As between the journal's start and the controller's; the next controller finds the clock that the first has."""
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table([Job("a", 1e6, 1, 2, 6, 0.1)])[0], cluster), Physics(slot=SECOND))
    url, began = f"sqlite:///{tmp_path}/journal.db", time.time() + 3600.0
    world = RayWorld(
        State(scenario, preemptive=True), {}, Up(len(SERVERS)), journal=SqlJournal(url, {"began": began}), began=began
    )
    assert 0 <= world.real_now() < SECOND
    following = RayWorld(State(scenario, preemptive=True), {}, Up(len(SERVERS)), journal=SqlJournal(url), began=began)
    assert isinstance(following.inbox.take(), Resumed)
    assert 0 <= following.real_now() < SECOND


def test_a_team_of_a_site_that_stopped_in_the_slot_before_does_not_end_that_of_this_slot() -> None:
    """Both have the number of the site; the first was asked to stop, and says so late (simulation, seed 71)."""
    world = at_one_site()
    world.sites.end = world.inbox.clock = SECOND
    arrival = world._timed()
    assert arrival is not None
    hear(world, arrival)
    world.perform(Allocate(0, ((0, 2),), ((0, 1),)))
    assert world._timed() is None
    for upload in list(world.uploads.pending.values()):
        world.sites.uploaded(upload)
    (key,) = world.sites.open
    world.perform(Suspend(0))
    world.perform(Allocate(0, ((0, 2),), ((0, 1),)))
    world.sites.begun = False
    assert world._timed() is None
    assert world._take_in(Report("stopped", *key, progress=(0, 0))) is None
    assert list(world.sites.open) == [key], "the slot waits for it"
    assert world._take_in(Report("finished", *key, progress=(6, 6))) is None
    assert world.sites.open == {}


def test_what_is_due_comes_before_what_happens_later_and_each_at_an_instant_of_its_own() -> None:
    """Two events at one instant would be one to the policy and the verifier (simulation, seeds 74 and 320)."""
    cluster = Cluster(SERVERS)
    table, listed = job_table([Job("a", 0.0, 1, 2, 6, 0.1, max_wait_s=5.0), Job("b", 0.0, 1, 2, 6, 0.1)])
    scenario = Scenario(cluster, Jobs(table, cluster, listed), Physics(slot=SECOND), 0, "world test")
    world = RayWorld(
        State(scenario, preemptive=True), dict.fromkeys("ab", Program("m:f", {}, 2, 1, 6)), NoEngine(len(SERVERS))
    )
    now = 0
    world.real_now = lambda: now  # type: ignore[method-assign]
    world.engine.acts = True  # inputs are new ones
    event = world.next_event()
    assert event is not None
    assert (event.time, event.arrived) == (0, (0, 1))
    hear(world, event)
    world.perform(WakeAt(0))
    event = world.next_event()
    assert event is not None
    assert (event.time, event.woke) == (1, True), "not at the instant of the arrival"
    hear(world, event)
    now = 6 * SECOND
    for server in (0, 1):
        world.inbox.waiting.put(ServerChanged(server, "lost"))
    told = []
    for _ in range(3):
        event = world.next_event()
        assert event is not None
        hear(world, event)
        told.append((event.time, event.failed, event.servers))
    assert told == [
        (now, ((0, reason("wait", 5 * SECOND)),), ()),
        (now + 1, (), ((0, "server_lost"),)),
        (now + 2, (), ((1, "server_lost"),)),
    ]


def test_the_clock_of_a_run_begins_with_its_first_controller() -> None:
    """Whatever has become of the machine's clock since the run was made, hours either way (simulation, seed 315)."""
    cluster = Cluster(SERVERS)
    for jump_s in (-3600.0, 3600.0):
        table, listed = job_table([])
        scenario = Scenario(cluster, Jobs(table, cluster, listed), Physics(slot=SECOND))
        world = RayWorld(State(scenario, preemptive=True), {}, NoEngine(len(SERVERS)), began=time.time() - jump_s)
        assert 0 <= world.real_now() < SECOND
