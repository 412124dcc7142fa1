"""One service for a state: who serves it holds its lock, and is found by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from skedge.cli.state_lock import service_pid, try_lock


def test_a_lock_is_held_by_whoever_has_it_open_and_passed_on(tmp_path: Path) -> None:
    """As the supervisor does to the controller: it is free when the last one has ended."""
    lock = try_lock(tmp_path)
    assert lock is not None
    assert try_lock(tmp_path) is None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    os.close(lock)
    assert try_lock(tmp_path) is None, "the child has it"
    child.communicate(b"\n")
    again = try_lock(tmp_path)
    assert again is not None
    os.close(again)


def test_who_runs_is_the_supervisor_or_a_controller_that_has_lost_it(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text(json.dumps({"pid": 4711}), encoding="utf-8")
    (tmp_path / "supervisor.pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
    assert service_pid(tmp_path) is None, "nobody holds the lock: the files are left over"
    assert service_pid(tmp_path / "nowhere") is None
    lock = try_lock(tmp_path)
    assert lock is not None
    assert service_pid(tmp_path) == os.getpid()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "supervisor.pid").write_text(f"{ended.pid}\n", encoding="utf-8")
    assert service_pid(tmp_path) == 4711
    os.close(lock)
