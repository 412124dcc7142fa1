"""Child processes: how they end, what they read and hold, and those that are known by their number."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from skedge.live import host

LONG_S = 30.0


class Coded(host.Process):
    """Runs code in place of a module."""

    def command(self, module: str, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", module, *arguments]


def test_a_module_runs_with_its_arguments(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = host.Process("calendar", "2026", "11", log=log)
        assert process.wait(LONG_S) == 0
    assert "November 2026" in (tmp_path / "log").read_text()
    assert process.poll() == 0


def test_one_that_runs_has_no_status_until_it_has_ended() -> None:
    process = Coded("import sys; sys.exit(len(sys.stdin.buffer.readline()))")
    assert (process.poll(), process.wait(0.05)) == (None, None)
    assert host.runs(process.pid)
    process.tell(b"go\n")
    assert process.wait(LONG_S) == 3
    assert not host.runs(process.pid)


def test_one_that_ends_before_it_is_told_is_no_error() -> None:
    process = Coded("")
    while host.runs(process.pid) and Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    process.tell(b"go\n")
    assert process.wait(LONG_S) == 0


def test_its_input_ends_with_the_process_that_has_started_it() -> None:
    """As a standby has to end when its supervisor does."""
    code = """
import os, sys
from skedge.live import host
process = host.Process("code", "-q")
print(process.pid, flush=True)
os._exit(0)
"""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as output, os.fdopen(write, "wb") as log:
        process = Coded(code, log=log)
        child = int(output.readline())
    deadline = time.monotonic() + LONG_S
    while host.runs(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not host.runs(child)
    assert process.wait(LONG_S) == 0


@pytest.mark.parametrize(("ignores", "status"), [("", -signal.SIGTERM), ("SIG_IGN", -signal.SIGKILL)])
def test_one_that_does_not_end_is_killed(ignores: str, status: int) -> None:
    ignore = f"signal.signal(signal.SIGTERM, signal.{ignores})" if ignores else ""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as output, os.fdopen(write, "wb") as log:
        process = Coded(f"import signal, time; {ignore}; print(flush=True); time.sleep(600)", log=log)
        output.readline()  # it is up
        assert process.end(0.2 if ignores else LONG_S) == status
        assert (process.poll(), process.end(0.0)) == (status, status)


def test_it_holds_the_files_that_it_is_given(tmp_path: Path) -> None:
    code = "import os, sys; os.write(int(sys.argv[1]), b'held')"
    with (tmp_path / "lock").open("wb") as lock:
        number = lock.fileno()
        assert Coded(code, str(number), files=[number]).wait(LONG_S) == 0
        with (tmp_path / "log").open("wb") as log:
            assert Coded(code, str(number), log=log).wait(LONG_S) == 1
    assert (tmp_path / "lock").read_bytes() == b"held"


def test_a_process_is_killed_only_if_it_is_the_one_that_is_meant() -> None:
    process = Coded("import time; time.sleep(600)", "the one")
    host.kill_named(process.pid, b"another")
    assert process.wait(0.2) is None
    host.kill_named(process.pid, b"the one")
    assert process.wait(LONG_S) == -signal.SIGKILL
    host.kill_named(process.pid, b"the one")  # it has ended
