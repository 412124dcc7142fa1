"""Notifications arrive where they are wanted, and delay nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from skedge.core.events import CANCELLED, Allocate, Event, Suspend, ps_in
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.controller import notify
from skedge.live.controller.notify import Message, Notifier, Receiver, add_receiver, messages, send

Skedge = Callable[..., Any]


class Inbox(HTTPServer):
    """A web address that keeps what is posted to it, and answers `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Post)
        self.came: list[dict[str, Any]] = []
        self.status, self.got = 200, threading.Event()
        self.url = f"json://user:secret@127.0.0.1:{self.server_port}/hook"


class Post(BaseHTTPRequestHandler):
    """Takes a message."""

    server: Inbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.came.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()
        self.server.got.set()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    one = Inbox()
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.shutdown()
        one.server_close()
        thread.join()


@pytest.fixture
def scenario() -> Scenario:
    cluster = Cluster([Server("edge-0", capacity={"worker:gpu": 2, "ps:cpu": 2})])
    jobs = [Job(f"night-{i}", i, epochs=1, chunks=1, minibatches=1, minibatch_s=1) for i in range(4)]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND))


def test_what_happens_to_jobs_and_servers_is_said(scenario: Scenario) -> None:
    event = Event(
        10 * SECOND,
        finished=(0,),
        failed=((1, "its loss is not finite"), (2, CANCELLED)),
        servers=((0, "lost"), (0, "")),
    )
    assert [(one.what, one.job, one.text) for one in messages(event, [Suspend(3, "displaced")], scenario)] == [
        ("completed", "night-0", "job night-0 completed 10.0 s after its submission"),
        ("failed", "night-1", "job night-1 failed: its loss is not finite"),
        ("preempted", "night-3", "job night-3 was preempted; its data stay where they are"),
        ("server", None, "server edge-0 lost"),
        ("server", None, "server edge-0 is back in service"),
    ]


def test_a_gang_that_is_moved_was_not_preempted(scenario: Scenario) -> None:
    moved = [Suspend(3, "moved"), Allocate(3, ((0, 1),), ps_in(0)), Suspend(2, "preempted")]
    assert [one.job for one in messages(Event(SECOND), moved, scenario)] == ["night-2"]


def test_a_receiver_gets_what_it_wants_of_the_jobs_it_wants() -> None:
    receiver = Receiver("ops", "json://127.0.0.1", ("failed", "server"), "night-*")
    assert receiver.wants(Message("failed", "night-1", ""))
    assert receiver.wants(Message("server", None, ""))
    assert not receiver.wants(Message("failed", "day-1", ""))
    assert not receiver.wants(Message("completed", "night-1", ""))


def test_messages_are_sent_while_receivers_change(tmp_path: Path, scenario: Scenario, inbox: Inbox) -> None:
    notifier = Notifier(tmp_path)
    notifier.start()
    notifier.note(Event(SECOND, finished=(0,)), [], scenario)  # to nobody
    add_receiver(tmp_path, Receiver("ops", inbox.url, ("completed",)))
    notifier.note(Event(2 * SECOND, finished=(1,)), [], scenario)
    assert inbox.got.wait(20)
    notifier.end()
    assert [(one["title"], one["message"]) for one in inbox.came] == [
        ("skedge: night-1 completed", "job night-1 completed 1.0 s after its submission")
    ]


def test_a_message_that_is_not_taken_is_sent_again(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_PAUSE_S", 0.01)
    inbox.status = 500
    assert not send(Receiver("ops", inbox.url, ("failed",)), Message("failed", "a", "job a failed"))
    assert len(inbox.came) == 3


def test_a_full_queue_leaves_messages_out_and_says_so(
    tmp_path: Path, scenario: Scenario, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_WAITING", 1)
    notifier = Notifier(tmp_path)  # its thread is not started: nothing is sent
    notifier.note(Event(SECOND, finished=(0, 1)), [], scenario)
    assert "1 wait already" in capsys.readouterr().err


def test_commands_add_list_test_and_remove_receivers(tmp_path: Path, skedge: Skedge, inbox: Inbox) -> None:
    at = ("--state", str(tmp_path))
    assert "ops is notified: failed" in skedge("notify", "add", "ops", inbox.url, "--on", "failed", *at).out
    (row,) = skedge("notify", "list", "--json", *at).json
    assert (row["name"], row["on"], row["jobs"]) == ("ops", ["failed"], "*")
    assert "secret" not in row["url"]
    assert (tmp_path / "notify.json").stat().st_mode & 0o077 == 0
    assert skedge("notify", "test", "ops", *at).code == 0
    assert inbox.came[-1]["message"] == "skedge can reach you here"
    inbox.status = 500
    assert "did not take the message" in skedge("notify", "test", "ops", *at).err
    assert skedge("notify", "remove", "ops", *at).code == 0
    assert skedge("notify", "list", "--json", *at).json == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "ops", "nowhere://x"), "is of no service that Apprise knows"),
        (("add", "ops", "json://127.0.0.1", "--on", "complete"), "did you mean completed?"),
        (("add", "", "json://127.0.0.1"), "1 to 64 printable characters"),
        (("remove", "ops"), "receiver 'ops' is not there"),
        (("test", "ops"), "receiver 'ops' is not there"),
    ],
)
def test_wrong_receivers_are_one_sentence(tmp_path: Path, skedge: Skedge, words: tuple[str, ...], says: str) -> None:
    done = skedge("notify", *words, "--state", str(tmp_path))
    assert done.code == 1
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_damaged_file_is_one_sentence_and_ends_nothing(
    tmp_path: Path, scenario: Scenario, skedge: Skedge, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notify.json").write_text("[{")
    assert "remove it and add them again" in skedge("notify", "list", "--state", str(tmp_path)).err
    notifier = Notifier(tmp_path)
    notifier.note(Event(SECOND, finished=(0,)), [], scenario)
    notifier.end()
    notifier._send_all()
    assert "remove it and add them again" in capsys.readouterr().err
