"""What several test files share: the command line in this process, scenario files, a finished run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from builders.browsers import browser  # noqa: F401 - a fixture
from skedge.cli.main import app
from skedge.platform.jit import CompiledFunction
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import small_scenario

# every run of the tests draws the same instances
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

TEXT = """
name: small
seed: 3
cluster:
  servers:
    - {id: edge1, workers: {fast: 2, slow: 1}, ps: {cpu: 3}}
    - {id: edge2, workers: {slow: 4}, ps: {cpu: 1}}
    - {id: far, kind: cloud}
workload:
  jobs:
    - {id: b, arrival_s: 10, epochs: 2, chunks: 3, minibatches: 4, minibatch_s: 15s, worker_type: slow}
    - {id: a, arrival_s: 5, epochs: 1, chunks: 4, minibatches: 10, minibatch_s: 0.5, worker_type: fast, workers: 2}
"""


@dataclass(frozen=True)
class Said:
    """What a command exited with and printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def words(self) -> str:
        """Standard error on one line, without the frame of usage errors."""
        return " ".join(self.err.replace("│", " ").split())


@pytest.fixture(autouse=True, scope="session")
def checked_forms() -> Iterator[None]:
    """Calls of a compiled form have arguments of its types: the product looks at them only once.

    The first calls of each and then every 32nd are checked, as looking takes several times as long as the call.
    """
    form = CompiledFunction.form

    def checked_form(function: CompiledFunction, *first: Any) -> Callable[..., Any]:
        compiled = form(function, *first)
        if compiled is function.py_func:
            return compiled
        types = [function.dispatcher.typeof_pyval(argument) for argument in first]
        calls = count()

        def checked(*arguments: Any) -> Any:
            number = next(calls)
            if number < 16 or number % 32 == 0:
                assert [function.dispatcher.typeof_pyval(argument) for argument in arguments] == types
            return compiled(*arguments)

        return checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledFunction, "form", checked_form)
        yield


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the seed of the order of the tests, which ``-q`` leaves out: the same one makes the same order again."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Commands that tests interrupt can be: a shell's ``&`` leaves SIGINT ignored, and processes inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def _heeding_hangups() -> Iterator[None]:
    """SIGHUP ends processes, also where it is ignored (``nohup make test``), which processes inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def skedge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command `skedge`, from its entry point on, in this process."""

    def command(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["skedge", *map(str, words)])
        capsys.readouterr()
        try:
            app()
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
        printed = capsys.readouterr()
        return Said(code, printed.out, printed.err)

    return command


@pytest.fixture
def text() -> str:
    """A scenario file of two jobs, to be changed."""
    return TEXT


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario file of two jobs."""
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scenario file of 25 jobs that contend for a few workers."""
    return save_scenario(small_scenario(0), tmp_path_factory.mktemp("busy"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of A_online on 25 jobs; not to be changed."""
    return run(small_scenario(0), "aonline").save(tmp_path_factory.mktemp("runs") / "aonline")
