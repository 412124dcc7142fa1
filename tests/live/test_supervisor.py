"""The supervisor of a service, with processes that stand for Ray's host and the controllers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skedge.live.control import daemon
from skedge.live.control.settings import ADDRESS

SERVES = (
    "import json, os, sys, time; sys.stdin.read(); "
    "json.dump({'pid': os.getpid(), 'ready': True}, open(sys.argv[1], 'w')); "
)
STAYS = "import time; time.sleep(600)"


class Stand(daemon.Supervisor):
    """A host that stays, and controllers that answer if they `serve`, else die at once."""

    serve = True

    def _started(self, module: str) -> subprocess.Popen[bytes]:
        code = STAYS if module.endswith("host") else SERVES + "time.sleep(600)" if self.serve else "exit(1)"
        return subprocess.Popen([sys.executable, "-c", code, str(self.state / ADDRESS)], stdin=subprocess.PIPE)


@contextmanager
def supervised(state: Path, *, serve: bool = True) -> Iterator[tuple[Stand, list[int]]]:
    """A supervisor in a thread, and the status with which it has ended, if it has."""
    ended, status = threading.Event(), list[int]()
    with (state / "log").open("ab") as log:
        one = Stand(state, log, ended, 0, embedded=True)
        one.serve = serve
        thread = threading.Thread(target=lambda: status.append(one.run()))
        thread.start()
        try:
            yield one, status
        finally:
            ended.set()
            thread.join()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replaced(one: Stand, name: str) -> None:
    """Kill a process of the supervisor's, and wait until there is another."""
    process = getattr(one, name)
    process.kill()
    process.wait()
    until(lambda: getattr(one, name) is not process)


def test_a_host_that_dies_now_and_then_is_replaced_without_end(tmp_path: Path) -> None:
    """More often than a host may die that no controller came to use."""
    with supervised(tmp_path) as (one, status):
        for _ in range(daemon._TRIES + 2):
            until(lambda: one.controller is not None and daemon._served(tmp_path, one.controller.pid))
            replaced(one, "host")
            replaced(one, "controller")  # it ends when it has lost Ray
        assert status == []
    assert status == [-signal.SIGTERM]


def test_controllers_that_never_answer_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After five, with the status of the last."""
    monkeypatch.setattr(daemon, "_PAUSE_S", 0.01)
    with supervised(tmp_path, serve=False) as (_, status):
        until(lambda: bool(status))
    assert status == [1]
    assert (tmp_path / "log").read_text().count("the controller, process") == daemon._TRIES
