"""Windows: rounds that the process of a parameter server trains by itself, and how they end."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from skedge.core.errors import TrainingError
from skedge.live.coordinator.round_clock import RoundClock
from skedge.live.coordinator.rounds_state import RoundsState
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.coordinator.windows import Windows
from skedge.live.worker.framing import chunk_path
from skedge.live.worker.job_process import JobError, JobProcess, StalledError
from skedge.live.worker.print_pipe import PrintPipe
from skedge.live.worker.program import Program
from skedge.live.worker.round_window import RoundMinibatch, RoundWindow
from skedge.live.worker.worker_main import Caller, JobWorker

MANY = 12


class Told(Caller):
    """A caller that revokes a window after some rounds."""

    def __init__(self, after: int = MANY) -> None:
        super().__init__()
        self.after, self.asked = after, 0

    def link(self) -> socket.socket:
        """A socket at which no worker is connected."""
        return socket.socket(socket.AF_UNIX)

    def revokes(self, window: int, wait_s: float) -> bool:
        """Whether it was asked before as many rounds."""
        self.asked += 1
        return self.asked > self.after


def loaded(caller: Caller, tmp_path: Path) -> tuple[JobWorker, str]:
    """A parameter server with two chunks of a job of three epochs of four mini-batches, and where they are."""
    program = pickle.dumps(
        Program("skedge.live.examples:mlp", {"parameters": 1000, "chunks": 2, "samples": 40}, 2, 3, 4)
    )
    worker = JobWorker(caller)
    facts, content = worker.contents(program, (0, 1))
    start = 0
    for chunk, size in enumerate(facts["sizes"]):
        chunk_path(tmp_path, chunk).write_bytes(content[start : start + size])
        start += size
    worker.load(program, None)
    return worker, str(tmp_path)


def window(version: int, *minibatches: tuple[int, int], number: int = 1) -> RoundWindow:
    return RoundWindow(number, version, tuple((RoundMinibatch(chunk, step),) for chunk, step in minibatches))


def test_a_window_trains_its_mini_batches_and_only_at_its_version(tmp_path: Path) -> None:
    worker, folder = loaded(Told(), tmp_path)
    facts, _ = worker.train(window(0, (0, 0), (0, 1), (1, 0)), folder)
    assert (facts["rounds"], facts["version"], facts["progress"], facts["samples"]) == (3, 3, [2, 1], 30)
    again, _ = worker.train(window(0, (0, 0), (0, 1), (1, 0)), folder)
    assert (again["rounds"], again["version"], again["progress"]) == (0, 3, [2, 1]), "an answer was lost"
    assert len(worker.losses()[0]["losses"]) == 3


def test_a_window_that_is_revoked_ends_after_its_mini_batch(tmp_path: Path) -> None:
    worker, folder = loaded(Told(after=2), tmp_path)
    facts, _ = worker.train(window(0, *((0, step) for step in range(12))), folder)
    assert (facts["rounds"], facts["progress"]) == (2, [2, 0])


def test_a_revocation_that_comes_before_its_window_is_kept_and_ends_no_other() -> None:
    own_end, far_end = socket.socketpair()
    parent, caller = Connection(own_end.detach()), Caller(Connection(far_end.detach()))
    parent.send_bytes(pickle.dumps(("revoke", (2,))))
    parent.send_bytes(pickle.dumps(("train", ("a",))))
    assert caller.call() == ("train", ("a",))
    assert not caller.revokes(1, 0.0)
    assert caller.revokes(2, 0.0)
    assert not caller.revokes(3, 0.0)
    parent.send_bytes(pickle.dumps(("revoke", (3,))))
    assert caller.revokes(3, 10.0)
    parent.close()


def test_rounds_are_kept_apart_as_announced() -> None:
    paced = replace(window(0, (0, 0), (0, 1), (0, 2)), pace_s=0.5, due_s=0.2)
    assert paced.wait_s(1, 0.05) == pytest.approx(0.15)
    assert paced.wait_s(3, 0.25) == pytest.approx(0.95)
    assert paced.wait_s(1, 9.0) == 0.0


def test_rounds_of_several_mini_batches_are_kept_apart_by_each_of_them() -> None:
    """One that is trained alone at the same time costs nothing."""
    rounds = ((RoundMinibatch(0, 0, length=3), RoundMinibatch(1, 1)), (RoundMinibatch(0, 3, length=2),))
    paced = RoundWindow(1, 0, rounds, pace_s=0.5, due_s=1.4)
    assert [paced.length(n) for n in range(3)] == [0, 3, 5]
    assert (paced.wait_s(1, 1.0), paced.wait_s(2, 1.0)) == (pytest.approx(0.4), pytest.approx(1.4))


# -- what the trainer plans ------------------------------------------------------------------------------------------


def teams(team: Team, chunks: int = 2, epochs: int = 3, progress: tuple[int, ...] = (0, 0)) -> Teams:
    made = Teams(Program("m:f", {}, chunks, epochs, 4))
    made.put(0, team)
    made.progress = list(progress)
    assert list(made.hold_back()) == []
    return made


@pytest.mark.parametrize(
    ("team", "progress", "watch", "ahead"),
    [
        (Team(0, (0, 1), 1), (0, 0), False, "01" * 12),
        (Team(0, (0, 1), 1), (3, 0), False, "111" + "01" * 9),
        (Team(0, (1,), 1), (0, 5), False, "1" * 7),
        (Team(0, (0, 1), 1, turns=True), (0, 0), False, "01" * 6),
        (Team(0, (0,), 1, turns=True, max_lag=1), (0, 0), False, "0" * 4),
        (Team(0, (0, 1), 1), (0, 0), True, "01" * 4),
    ],
    ids=["all", "least trained first", "own chunks alone", "a chunk's worth of turns", "ahead", "watched epochs"],
)
def test_a_window_ends_where_something_is_to_be_told_or_decided(
    team: Team, progress: tuple[int, ...], watch: bool, ahead: str
) -> None:
    of = teams(team, progress=progress)
    planned = of.ahead({0: team}, 100, watch=watch)
    assert "".join(str(chunk) for ((_, _, chunk, _),) in planned) == ahead
    assert of.progress == list(progress), "it is a plan"
    assert of.ahead({0: team}, 3, watch=watch) == planned[:3]
    for ((_, _, chunk, step),) in planned:
        assert of.next_chunks(team)[0] == chunk
        assert of.progress[chunk] == step
        of.progress[chunk] += 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 4, "version": 9, "progress": [4, 1]},
        {"rounds": 2**50, "version": 5 + 2**50},
        {"version": 7},
        {"progress": [4, 0]},
        {"progress": [3, 1, 1]},
        {"rounds": 0},
        {"progress": [4, 0], "missing": [(0, 0)]},
        {"progress": [2, 1], "missing": [(0, 0)]},
        {"missing": [(0, 7)]},
        {"missing": [(2**50, 0)]},
    ],
)
def test_what_is_no_outcome_of_a_window_fails_the_job(wrong: dict[str, Any]) -> None:
    """The job's code runs in the process that answers."""
    program, of = Program("m:f", {}, 2, 3, 4), window(5, (0, 2), (1, 0), (0, 3))
    windows = Windows(RoundsState(program, Teams(program), RoundClock(0.0)))
    windows.training.teams.progress = [2, 0]
    right = {"rounds": 3, "version": 8, "progress": [4, 1], "missing": []}
    windows._check_answer(right, of)
    windows._check_answer({"rounds": 0, "version": 5, "progress": [2, 0], "missing": [(0, 0)]}, of)
    with pytest.raises(TrainingError, match="its parameter server tells of"):
        windows._check_answer(right | wrong, of)


# -- what a process may tell -----------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[tuple[JobProcess, Connection]]:
    """A process of a job as trusted code sees it, and the other end of its connection."""
    own_end, far_end = socket.socketpair()
    word, far_word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    far = Connection(far_end.detach())
    links, far_links = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = JobProcess(Connection(own_end.detach()), word, links, os.getpid(), PrintPipe(reading))
    yield process, far
    process.end()
    far.close()
    far_word.close()
    far_links.close()
    os.close(writing)


FACTS = (
    b'{"version": 2, "progress": [2], "module": "m", "rounds": 2, "missing": [], "samples": 2, "loss": 1.0, '
    b'"first_ago_s": 0.1'
)


def test_rounds_are_told_before_the_answer(process: tuple[JobProcess, Connection]) -> None:
    child, far = process
    for content in (b'{"ready": true}', b'{"round": 1}', b'{"round": 2}', FACTS + b', "stage_s": {}}', b""):
        far.send_bytes(content)
    assert child.ask("train", rounds=(2, 10.0))[0]["rounds"] == 2


def test_a_process_that_stalls_in_a_window_is_late_since_the_last_round_that_it_told_of(
    process: tuple[JobProcess, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, far = process
    monkeypatch.setattr(child, "kill", lambda: None)
    for content in (b'{"ready": true}', b'{"round": 1}', b'{"round": 4}'):
        far.send_bytes(content)
    with pytest.raises(StalledError, match=r"after 0\.05 s") as raised:
        child.ask("train", limit_s=10.0, rounds=(8, 0.05))
    assert raised.value.rounds == 4


def test_a_process_that_waits_for_others_is_not_late_and_says_so_twice_a_round_at_most(
    process: tuple[JobProcess, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, far = process
    monkeypatch.setattr(child, "kill", lambda: None)
    monkeypatch.setattr("skedge.live.worker.job_process.WAITS_S", 0.6)
    for content in (b'{"ready": true}', b'{"waits": 0}'):
        far.send_bytes(content)
    began = time.monotonic()
    with pytest.raises(StalledError):
        child.ask("train", limit_s=0.05, rounds=(8, 0.05))
    assert time.monotonic() - began > 0.5


def test_who_waits_may_be_late_again_once_it_computes(
    process: tuple[JobProcess, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, far = process
    monkeypatch.setattr(child, "kill", lambda: None)
    told = [b'{"ready": true}', *(b'{"waits": 0}', b'{"computes": 0}') * 2, b'{"waits": 0}', b'{"waits": 7}']
    for content in told:
        far.send_bytes(content)
    began = time.monotonic()
    with pytest.raises((StalledError, JobError)):
        child.ask("train", limit_s=0.05, rounds=(8, 0.05))
    assert time.monotonic() - began < 10


def test_a_process_that_tells_of_more_rounds_than_there_are_is_ended(process: tuple[JobProcess, Connection]) -> None:
    """It could keep its worker for ever, as each one extends its time."""
    child, far = process
    for content in (b'{"ready": true}', b'{"round": 1}', b'{"round": 2}', b'{"round": 3}', b""):
        far.send_bytes(content)
    with pytest.raises(JobError, match="answers 'train' with a wrong"):
        child.ask("train", rounds=(2, 10.0))
