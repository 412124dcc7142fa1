"""All of live takes threads, locks, queues, clocks and marks from one module, where another host replaces them."""

from __future__ import annotations

import ast
import queue
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders.paths import ROOT
from skedge.live import host
from skedge.live.coordinator.client import CoordinatorClient
from skedge.live.coordinator.messages import LastReport
from skedge.live.coordinator.round_clock import RoundClock

LIVE = ROOT / "src" / "skedge" / "live"


class Later:
    """A host whose time passes when a thread sleeps, and that runs a thread when it is joined."""

    def __init__(self) -> None:
        self.now, self.ended, self.marks = 100.0, list[threading.Thread](), iter("ab")

    def start(self, thread: threading.Thread) -> None:
        thread._ident = 1  # type: ignore[attr-defined]

    def join(self, thread: threading.Thread, timeout: float | None = None) -> None:
        thread.run()
        self.ended.append(thread)

    def is_alive(self, thread: threading.Thread) -> bool:
        return thread.ident is not None and thread not in self.ended

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __getattr__(self, name: str) -> Any:
        changed = {"monotonic": lambda: self.now, "mark": lambda: next(self.marks)}
        return changed.get(name) or getattr(host, name)


class Counter(host.Thread):
    """A subclass that is older than any host that is installed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.runs = 0

    def run(self) -> None:
        self.runs += 1


def test_the_host_is_the_standard_library_itself() -> None:
    """So a call costs the same."""
    sources = {
        threading: ("Lock", "Condition", "Event", "get_ident"),
        queue: ("SimpleQueue", "Queue", "Empty", "Full"),
        futures: ("Future", "wait"),
        time: ("monotonic", "perf_counter", "sleep", "time", "strftime"),
    }
    assert [
        name for module, names in sources.items() for name in names if vars(host)[name] is not vars(module)[name]
    ] == []


def test_a_thread_of_the_host_runs() -> None:
    thread = Counter()
    assert (thread.is_alive(), thread.ident) == (False, None)
    thread.start()
    thread.join(10)
    assert (thread.is_alive(), thread.runs) == (False, 1)


def test_a_thread_that_waits_is_alive() -> None:
    end = host.Event()
    thread = host.Thread(target=end.wait, daemon=True)
    thread.start()
    thread.join(0.01)
    assert thread.is_alive()
    end.set()
    thread.join()
    assert not thread.is_alive()


def test_marks_differ() -> None:
    marks = {host.mark() for _ in range(100)}
    assert len(marks) == 100
    assert {len(mark) for mark in marks} == {16}


def test_another_host_runs_the_threads_of_older_subclasses() -> None:
    thread = Counter()
    with host.installed(Later()):
        thread.start()
        assert (thread.is_alive(), thread.runs) == (True, 0)
        thread.join()
        assert (thread.is_alive(), thread.runs) == (False, 1)


def test_another_host_has_its_own_time_in_modules_that_are_imported() -> None:
    """A round of an hour lasts an hour of its time."""
    simulated, began = Later(), time.monotonic()
    with host.installed(simulated):
        clock = RoundClock(pace=3600.0)
        clock.begin()
        clock.keep()
    assert simulated.now == 3700.0
    assert time.monotonic() - began < 60


def mark_of_new_link() -> tuple[int, str]:
    """Number and mark of a controller with a new link."""

    def unused(*_: object) -> int:
        return 0

    return CoordinatorClient(
        SimpleNamespace(), 7, tell=unused, note=unused, lost=unused, broken=unused, journaled=LastReport, now=unused
    ).who


def test_another_host_marks_controllers() -> None:
    with host.installed(Later()):
        assert [mark_of_new_link(), mark_of_new_link()] == [(7, "a"), (7, "b")]


def fail_under(other: object) -> None:
    with host.installed(other):
        assert host.sleep is not time.sleep
        raise ZeroDivisionError


def test_the_host_is_back_after_an_error() -> None:
    before = dict(vars(host))
    with pytest.raises(ZeroDivisionError):
        fail_under(Later())
    assert dict(vars(host)) == before


def test_a_host_that_lacks_a_name_replaces_nothing() -> None:
    before = dict(vars(host))
    part = SimpleNamespace(**{name: print for name in host.NAMES if name != "wait"})
    with pytest.raises(AttributeError, match="wait"), host.installed(part):
        pass
    assert dict(vars(host)) == before


# --- the rules that the seam depends on


def imported_from_host(text: str) -> list[str]:
    """The names that a module imports from ``live.host`` one by one: they would stay when a host is installed."""
    return [
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition("live.")[2].partition(".")[0] == "host"
        for alias in node.names
    ]


@pytest.mark.parametrize(
    "path", sorted(LIVE.rglob("*.py")), ids=lambda path: str(path.relative_to(LIVE)) if isinstance(path, Path) else None
)
def test_no_module_binds_a_name_of_the_host(path: Path) -> None:
    assert imported_from_host(path.read_text("utf-8")) == []


def test_a_planted_binding_is_seen() -> None:
    assert imported_from_host("from skedge.live.host import sleep, Event") == ["sleep", "Event"]
    assert imported_from_host("from .host import mark\nfrom ..host import wait") == ["mark", "wait"]
    assert imported_from_host("from skedge.live.host.actors import call") == ["call"]
    assert imported_from_host("from .host.actors import put") == ["put"]
    assert imported_from_host("from skedge.live import host\nfrom . import host") == []


def banned(text: str, path: str) -> int:
    """Number of imports in a module at `path` that the linter rejects."""
    command = [str(Path(sys.executable).with_name("ruff")), "check", "--select", "TID251", "--output-format", "concise"]
    done = subprocess.run(
        [*command, "--stdin-filename", path, "-"], input=text, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.count("TID251")


PLANTED = [
    "import threading", "import queue", "import time", "import secrets", "import concurrent.futures",
    "from threading import Lock", "from time import sleep", "from concurrent import futures",
    "from concurrent.futures import Future", "import concurrent.futures.thread", "import ray",
    "from ray import exceptions", "from ray.exceptions import RayError", "import subprocess",
    "from subprocess import Popen",
]  # fmt: skip


@pytest.mark.parametrize(
    "path", ["cluster/engine.py", "world/inbox.py", "coordinator/coordinator.py", "controller/service.py"]
)
def test_planted_imports_are_refused_in_live(path: str) -> None:
    assert banned("\n".join(PLANTED), f"src/skedge/live/{path}") == len(PLANTED)


@pytest.mark.parametrize(
    "path", ["src/skedge/core/clock.py", "src/skedge/live/host/__init__.py", "src/skedge/live/service/tokens.py"]
)
def test_they_are_allowed_elsewhere_and_in_the_files_that_are_listed(path: str) -> None:
    assert banned("\n".join(PLANTED), path) == 0
