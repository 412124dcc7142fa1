"""The progress watchdog: a trainer with real processes of a job, without Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import unruly
from here import Machine, machine

from skedge.live.coordinator.messages import ProgressNote
from skedge.live.coordinator.replies import PS, FailureCount
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.coordinator.trainer import Trainer
from skedge.live.worker import links
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.job_process import EndedError, StalledError
from skedge.live.worker.program import Program
from skedge.live.worker.watchdog import WatchdogLimits

QUICK = WatchdogLimits(least_s=0.5, first_s=1.0, restarts=2)


BY_CALLS = pytest.mark.parametrize("here", ["calls"], indirect=True)
BRIDGE = pytest.param("bridge", marks=pytest.mark.thorough)
LATE_BY_ITSELF = pytest.mark.parametrize("here", ["calls", "links", BRIDGE], indirect=True)
NOT_BY_CALLS = pytest.mark.parametrize("here", ["windows", "links", BRIDGE], indirect=True)
IN_WINDOWS = pytest.mark.parametrize("here", ["windows"], indirect=True)


@pytest.fixture(params=["calls", "windows", "links", BRIDGE])
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(tmp_path, monkeypatch, QUICK, request.param) as one:
        yield one


class Trained:
    """A trainer of a job of one kind, and what it tells."""

    def __init__(self, here: Machine, kind: str, at: int = 1, chunks: int = 1, epochs: int = 5) -> None:
        program = Program("unruly:job", {"kind": kind, "at": at}, chunks, epochs, 4)
        for chunk in range(chunks):
            here.agent.store("j", chunk, 0, packed(unruly.points(chunk), program.module()), last=True)
        self.reports, self.notes = list[Report](), list[ProgressNote]()
        processes: Any = here
        self.trainer = Trainer(
            0, "j", program, self.reports.append, processes, note=self.notes.append, servers=("edge-0",)
        )
        self.trainer.replies.blame.watch = QUICK
        self.trainer.serve_from(0)
        self.trainer.put(0, Team(0, tuple(range(chunks)), chunks))

    def runs(self, seconds: float = 60.0) -> list[Report]:
        """Its reports but those of how long rounds take, once it has ended."""
        self.trainer.start()
        self.waits("failed", "result", seconds=seconds)
        self.trainer.close()
        self.trainer.join(timeout=30)
        return [report for report in self.reports if report.what != "measured"]

    def waits(self, *what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not any(report.what in what for report in list(self.reports)):
            assert time.monotonic() < deadline, self.reports
            time.sleep(0.02)

    def waits_until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.reports
            time.sleep(0.01)

    def words(self) -> list[str]:
        return [report.what for report in self.reports if report.what != "measured"]


def test_a_mini_batch_that_never_ends_is_told_started_again_and_then_the_job_fails(here: Machine) -> None:
    of = Trained(here, "hang", at=3)
    reports = of.runs()
    assert of.words() == ["stalled", "stalled", "failed"]
    assert reports[0].reason.startswith("no mini-batch of chunk 0 on edge-0: its code has not returned after ")
    assert reports[0].reason.endswith("its process is started again, 1 of 2 times")
    assert (
        "no mini-batch of chunk 0 on edge-0, 3 times in a row or nearly so: its code has not returned after"
        in of.reports[-1].reason
    )
    assert [note.printed[1] for note in of.notes if note.printed] == ["about to hang\n"] * 3


def test_a_parameter_server_that_hangs_is_told_started_again_and_then_the_job_fails(here: Machine) -> None:
    of = Trained(here, "hang-ps")
    reports = of.runs()
    if here.way == "windows":  # it is in the process of the worker, and then in one of its own
        assert reports.pop(0).reason.startswith("no mini-batch of chunk 0 on edge-0: its code has not returned after")
    assert [report.what for report in reports] == ["stalled", "stalled", "failed"]
    assert reports[0].reason.startswith("no update by the parameter server on edge-0: its code has not returned after")


def test_a_process_that_ends_again_and_again_between_updates_fails_its_job(here: Machine) -> None:
    """It was COMPLETED, and nothing was told: four mini-batches a process were trained each time."""
    of = Trained(here, "exit", at=5, epochs=10)
    reports = of.runs()
    assert of.words() == ["restarted"] * 4 + ["failed"], "the updates between them make good for a part of one"
    assert reports[0].reason.startswith("its process has ended with status 3 on edge-0: it is started again")
    assert "the last: its process has ended with status 3" in of.reports[-1].reason


def test_a_process_that_ends_once_is_told_and_the_job_completes(here: Machine) -> None:
    of = Trained(here, "exit", at=15)
    of.runs()
    # the parameter server is lost with its worker once: the next worker, which ends, too, is in a process of its own
    assert of.words() == ["restarted"] * (2 if here.way == "windows" else 1) + ["finished", "result"]


def test_a_traceback_stands_in_the_jobs_log_and_the_reason_is_one_line(here: Machine) -> None:
    of = Trained(here, "raise", at=2)
    (report,) = of.runs()
    assert "RuntimeError: boom \\x1b[31m red \\n2026-01-01" in report.reason
    assert "(unruly.py, line " in report.reason
    lines = [note.line for note in of.notes if "Traceback" in note.line]
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


@BY_CALLS
def test_a_late_mini_batch_is_waited_for_and_not_asked_for_again(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round gives it up after its patience; its gradients count all the same."""
    asked = list[int]()
    compute = here.agent.gradient

    def slow(*given: Any) -> Any:
        asked.append(given[3])
        time.sleep(0.5 if given[3] == 2 else 0.0)
        return compute(*given)

    monkeypatch.setattr(here.agent, "gradient", slow)
    of = Trained(here, "", epochs=1)
    of.trainer.clock.patience_s = 0.2
    monkeypatch.setattr(of.trainer.clock, "measure", lambda *_: None)  # it would set the patience anew
    of.runs()
    assert of.words() == ["finished", "result"]
    assert asked == [0, 1, 2, 3]


@NOT_BY_CALLS
def test_a_window_ends_after_its_mini_batch_when_the_team_is_to_leave(here: Machine) -> None:
    """Its mini-batches count once, and what is trained again is none of them."""
    of = Trained(here, "", epochs=2000)
    of.trainer.start()
    of.waits_until(lambda: of.trainer.teams.progress[0] > 100)
    for stops in range(1, 6):
        of.trainer.take(0)
        of.waits_until(lambda n=stops: of.words().count("stopped") == n)
        freed_s = next(report.freed_s for report in reversed(of.reports) if report.what == "stopped")
        assert freed_s is not None
        assert freed_s < 0.2
        progress, version = of.trainer.teams.progress[0], of.trainer.training.version
        assert progress == version, "a mini-batch an update"
        of.trainer.put(0, Team(0, (0,), 1))
        of.waits_until(lambda before=progress: of.trainer.teams.progress[0] > before + 100)
    of.trainer.close()
    of.trainer.join(timeout=30)


@IN_WINDOWS
def test_a_late_window_is_waited_for_while_nothing_else_is_to_be_done_and_else_its_process_is_killed(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Trained(here, "hang", at=30, epochs=50)
    of.trainer.replies.blame.watch = WatchdogLimits()
    of.trainer.clock.patience_s = 0.2
    monkeypatch.setattr(of.trainer.clock, "measure", lambda *_: None)  # it would set the patience anew
    of.trainer.start()
    of.waits_until(lambda: of.trainer.teams.progress[0] > 0 and of.trainer.ps.window > 0)
    time.sleep(1.0)
    assert of.words() == [], "it is late, and nothing is lost"
    began = time.monotonic()
    of.trainer.take(0)
    of.waits("stopped")
    assert time.monotonic() - began < 5.0
    assert of.words() == ["stopped"], "that it was killed is not told as the job's fault"
    of.trainer.close()
    of.trainer.join(timeout=30)


@IN_WINDOWS
def test_a_late_window_is_not_killed_for_what_does_not_concern_it(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Trained(here, "slow", at=30, epochs=20)
    of.trainer.replies.blame.watch = WatchdogLimits()
    of.trainer.clock.patience_s = 0.2
    monkeypatch.setattr(of.trainer.clock, "measure", lambda *_: None)
    of.trainer.start()
    of.waits_until(lambda: of.trainer.teams.progress[0] >= 20 and of.trainer.ps.window > 0)
    loads = here.loads
    for _ in range(10):
        of.trainer.lose(7)
        of.trainer.serve_from(0)
        time.sleep(0.2)
    of.waits("result")
    of.trainer.close()
    of.trainer.join(timeout=30)
    assert here.loads == loads
    assert of.words() == ["finished", "result"]


@pytest.mark.parametrize("here", ["calls", "windows", "links"], indirect=True)
def test_a_late_worker_is_left_out_of_its_round_and_trains_on(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third mini-batch of chunk 1 takes 1.5 s; that of chunk 0 is trained by then, and nothing is lost."""
    of = Trained(here, "slow-on", at=1, chunks=2, epochs=3)
    of.trainer.replies.blame.watch = WatchdogLimits()
    of.trainer.clock.patience_s = 0.3
    monkeypatch.setattr(of.trainer.clock, "measure", lambda *_: None)  # it would set the patience anew
    ahead = list[int]()
    updated = of.trainer.training.updated
    monkeypatch.setattr(
        of.trainer.training,
        "updated",
        lambda progress, update: (ahead.append(progress[0] - progress[1]), updated(progress, update))[1],
    )
    of.runs()
    assert of.words() == ["finished", "result"]
    assert of.trainer.teams.progress == [12, 12]
    assert max(ahead) > 0, "the other worker did not wait for it"
    assert not of.trainer.training.late


def test_a_first_mini_batch_may_take_longer_than_others(here: Machine) -> None:
    """1.5 s: more than the second of others, less than the ten of the first of a process."""
    of = Trained(here, "slow-first", chunks=2)
    of.trainer.replies.blame.watch = WatchdogLimits(least_s=1.0, first_s=10.0, restarts=2)
    of.runs()
    assert of.words() == ["finished", "result"]


@LATE_BY_ITSELF
def test_who_is_ready_later_than_a_round_waits_trains_all_the_same(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its factory takes two seconds, and its connection is cut before it has said anything."""
    of = Trained(here, "slow-factory")
    of.trainer.replies.blame.watch = WatchdogLimits()
    of.trainer.clock.patience_s = 0.3
    began = time.monotonic()
    of.runs()
    assert of.words() == ["finished", "result"]
    assert time.monotonic() - began < 20


@LATE_BY_ITSELF
def test_who_is_not_reached_trains_by_calls(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for no connection that cannot be made."""
    monkeypatch.setattr("skedge.live.worker.agent.connection", raises)
    of = Trained(here, "", epochs=2)
    monkeypatch.setattr(here.agent, "machine", machines())
    began = time.monotonic()
    of.runs()
    assert of.words() == ["finished", "result"]
    assert time.monotonic() - began < 9


def raises(*_: Any) -> None:
    """Nobody listens."""
    raise ConnectionRefusedError


def machines() -> Callable[[], str]:
    """A machine that is the same when it is asked first, and another one then."""
    answers = [links.machine()]
    return lambda: answers.pop() if answers else "another one"


@NOT_BY_CALLS
def test_a_stall_in_a_window_is_told_of_its_own_chunk(here: Machine) -> None:
    """Chunks 0 and 1 take turns, and the third mini-batch, the second of chunk 0, hangs in the first process."""
    of = Trained(here, "hang-on", at=1, chunks=2)
    of.trainer.put(0, Team(0, (0, 1), 1))
    reports = of.runs()
    assert reports[0].reason.startswith("no mini-batch of chunk 1 on edge-0")


@LATE_BY_ITSELF
def test_a_team_that_leaves_takes_its_late_mini_batch_along(here: Machine) -> None:
    of = Trained(here, "hang")
    of.trainer.replies.blame.watch = WatchdogLimits()
    of.trainer.clock.patience_s = 0.2
    of.trainer.start()
    deadline = time.monotonic() + 30
    while not of.trainer.training.late:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    of.trainer.take(0)
    of.waits("stopped")
    while here.agent.computing:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not of.trainer.training.late
    of.trainer.close()
    of.trainer.join(timeout=30)


def test_what_rests_or_waits_for_its_server_is_not_stalled(here: Machine) -> None:
    """Only a process that computes can stall: a job that is paused, or whose server gives no answer, asks none."""
    of = Trained(here, "", epochs=1)
    of.trainer.rest()
    of.trainer.start()
    time.sleep(3 * QUICK.first_s)
    assert of.reports == []
    of.trainer.lose(0)
    of.trainer.serve_from(0)
    of.trainer.regain(0)
    of.waits("result")
    of.trainer.close()
    assert of.words() == ["finished", "result"]


def test_limits_grow_with_the_usual_time_and_the_first_is_generous_but_not_twice() -> None:
    watch = WatchdogLimits(least_s=60, rounds=10, first_s=180)
    assert watch.limits(0.1, stalled=False) == (180, 60)
    assert watch.limits(0.1, stalled=True) == (60, 60)
    assert watch.limits(30.0, stalled=False) == (300, 300)


def test_an_announced_round_that_is_long_has_a_long_limit(here: Machine) -> None:
    of = Trained(here, "")
    of.trainer.clock.announced_s = 40.0
    of.trainer.replies.usual_s = of.trainer.clock.usual_s
    assert of.trainer.replies.limits(0) == (600.0, 400.0, 400.0)


def test_updates_of_others_do_not_excuse_a_chunk_that_hangs() -> None:
    blame = FailureCount()
    blame.watch = QUICK
    for times in (1, 2):
        assert f"{times} of 2 times" in blame.stalled(StalledError("late"), 1, "", 0.1)
        blame.updated({0})
    with pytest.raises(Exception, match="no mini-batch of chunk 1, 3 times in a row"):
        blame.stalled(StalledError("late"), 1, "", 0.1)
    for _ in range(150):
        blame.updated({1})
    assert "1 of 2 times" in blame.stalled(StalledError("late"), 1, "", 0.1)
    assert "no update by the parameter server" in blame.stalled(StalledError("late"), PS, "", 0.0)


def test_deaths_are_forgiven_one_for_fifty_updates() -> None:
    blame = FailureCount()
    for _ in range(20):
        blame.ended(EndedError("ended"), "")
        for _ in range(50):
            blame.updated({0})
    for _ in range(3):
        blame.ended(EndedError("ended"), "")
    with pytest.raises(Exception, match="its code ends the process"):
        blame.ended(EndedError("ended"), "")
