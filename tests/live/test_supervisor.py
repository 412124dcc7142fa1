"""The supervisor of a service, with processes that stand for Ray's host and the controllers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from skedge.live import host
from skedge.live.controller.settings import ADDRESS
from skedge.live.service import supervisor
from skedge.live.service.keeping import Role

SERVES = (
    "import json, os, sys, time; sys.stdin.read(); "
    "json.dump({'pid': os.getpid(), 'ready': True}, open(sys.argv[1], 'w')); "
)
STAYS = "import time; time.sleep(600)"


class Standing(host.Process):
    """A host that stays, or a controller that answers."""

    serves = SERVES + "time.sleep(600)"

    def command(self, module: str, arguments: Sequence[str]) -> list[str]:
        code = STAYS if module.endswith("host") else self.serves
        return [sys.executable, "-c", code, str(Path(*arguments) / ADDRESS)]


class Dying(Standing):
    """A host that stays, or a controller that dies at once."""

    serves = "exit(1)"


@contextmanager
def supervised(state: Path, kind: type[Standing] = Standing) -> Iterator[tuple[supervisor.Supervisor, list[int]]]:
    """A supervisor in a thread, and the status with which it has ended, if it has."""
    ended, status = threading.Event(), list[int]()
    with (
        (state / "log").open("ab") as log,
        (state / "lock").open("ab") as lock,
        host.installed(SimpleNamespace(**{**vars(host), "Process": kind})),
    ):
        one = supervisor.Supervisor(state, log, ended, lock.fileno(), embedded=True)
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


def replaced(one: supervisor.Supervisor, role: Role) -> None:
    """Kill a process of the supervisor's, and wait until there is another."""
    process = one.processes[role]
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: one.processes[role] is not process)


def test_a_host_that_dies_now_and_then_is_replaced_without_end(tmp_path: Path) -> None:
    """More often than a host may die that no controller came to use."""
    with supervised(tmp_path) as (one, status):
        for _ in range(supervisor._TRIES + 2):
            until(one._serves)
            replaced(one, Role.HOST)
            replaced(one, Role.CONTROLLER)  # it ends when it has lost Ray
        assert status == []
    assert status == [-signal.SIGTERM]


def test_controllers_that_never_answer_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After five, with the status of the last."""
    monkeypatch.setattr(supervisor, "_PAUSE_S", 0.01)
    with supervised(tmp_path, Dying) as (_, status):
        until(lambda: bool(status))
    assert status == [1]
    assert (tmp_path / "log").read_text().count("the controller, process") == supervisor._TRIES
