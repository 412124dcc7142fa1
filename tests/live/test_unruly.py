"""Processes whose job's code hangs, ends, raises or prints: what trusted code is told, and what it keeps."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import unruly
from wire import state_bytes

from skedge.core.model.escape import escaped, one_line
from skedge.live.worker.agent import Agent
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.job_process import EndedError, JobError, StalledError
from skedge.live.worker.job_processes import sent
from skedge.live.worker.print_pipe import MOST
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer

HARMFUL = "\x1b\x00\u202e\u2066\x9b\u2028"


def of(kind: str, at: int = 1) -> Program:
    return Program("unruly:job", {"kind": kind, "at": at}, 1, 5, 4)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), before])
    try:
        yield Agent("edge-0", str(tmp_path_factory.mktemp("agent")))
    finally:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def asks(agent: Agent) -> Iterator[Callable[..., Any]]:
    """Asks for mini-batches of a job of one kind, which has a process of its own."""
    asked = list[str]()

    def ask(kind: str, step: int = 0, at: int = 1, limits: tuple[float, float, float] = (60.0, 60.0, 60.0)) -> Any:
        program = of(kind, at)
        asked.append(f"{kind}-{at}")
        if step == 0:
            agent.store(asked[-1], 0, 0, packed(unruly.points(0), program.module()), last=True)
        return agent.gradient(asked[-1], sent(program), 0, step, state_bytes(ParameterServer(of(""))), limits)[0]

    yield ask
    for job in asked:
        agent.forget(job)


def test_what_raises_is_told_with_type_file_line_and_traceback(asks: Callable[..., Any]) -> None:
    """And nothing in it can steer a terminal, or be taken for a line of a log."""
    with pytest.raises(JobError) as caught:
        asks("raise")
    sentence, line = str(caught.value), step_line("raise RuntimeError")
    assert sentence.startswith("chunk 0, mini-batch 0: RuntimeError: boom \\x1b[31m red \\n2026")
    assert sentence.endswith(f"\\u202egnp.exe \\x00 (unruly.py, line {line})")
    worker, printed = caught.value.printed
    assert worker == "edge-0-1"
    for text in (caught.value.traceback, printed):
        assert f'unruly.py", line {line}, in step' in text
        assert "RuntimeError: boom" in text
    assert not set(HARMFUL) & set(sentence + caught.value.traceback + printed)
    assert "\n" not in sentence


def step_line(text: str) -> int:
    lines = Path(unruly.__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def test_what_is_printed_comes_with_the_answer_escaped_and_bounded(asks: Callable[..., Any]) -> None:
    worker, text = asks("forge")["printed"]
    assert (worker, text) == ("edge-0-1", escaped(unruly.FORGED) + "\n")
    assert not set(HARMFUL) & set(text)
    worker, text = asks("print")["printed"]
    assert text.startswith("… 9.9 MB left out …\n")
    assert len(text) < 1.1 * MOST
    assert text.endswith("A" * 99 + "\n")


def test_a_process_that_closes_its_output_goes_on(asks: Callable[..., Any]) -> None:
    assert "printed" not in asks("close")
    assert "printed" not in asks("close", step=1)


def test_a_process_that_ends_tells_its_status(asks: Callable[..., Any]) -> None:
    asks("exit", at=2)
    with pytest.raises(EndedError, match="its process has ended with status 3"):
        asks("exit", step=1, at=2)
    assert asks("exit", step=1, at=2)["step"] == 1, "a new process computes it"


def test_what_hangs_is_ended_after_its_limit_with_what_it_has_printed(asks: Callable[..., Any]) -> None:
    began = time.monotonic()
    with pytest.raises(StalledError, match=r"its code has not returned after 1\.5 s") as caught:
        asks("hang", limits=(60.0, 1.5, 0.1))
    assert time.monotonic() - began < 30
    assert caught.value.printed == ("edge-0-1", "about to hang\n")


def test_the_first_mini_batch_of_a_process_has_a_longer_limit(asks: Callable[..., Any]) -> None:
    asks("hang", at=2, limits=(60.0, 60.0, 0.5))
    with pytest.raises(StalledError, match=r"after 0\.5 s"):
        asks("hang", step=1, at=2, limits=(60.0, 60.0, 0.5))


def test_packages_and_imports_have_a_limit_of_their_own(agent: Agent) -> None:
    """The limits of mini-batches begin when the process is ready."""
    late = Program("signal:pause", {}, 1, 1, 1)
    agent.store("late", 0, 0, packed(unruly.points(0), ""), last=True)
    with pytest.raises(StalledError, match=r"has not become ready \(packages, imports, factory\) after 0.7 s"):
        agent.gradient("late", sent(late), 0, 0, b"", (0.7, 0.1, 0.1))
    agent.forget("late")


def test_a_late_mini_batch_that_is_asked_for_again_takes_no_thread(agent: Agent, asks: Callable[..., Any]) -> None:
    """The answer is there at once, however often it is asked; and the job's end ends what hangs."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asks, "hang")
        until(lambda: any(agent.pool.busy.values()))
        began = time.monotonic()
        assert [asks("hang", step=1) for _ in range(50)] == [{"computing": 0}] * 50
        assert time.monotonic() - began < 5
        agent.forget("hang-1")
        with pytest.raises((EndedError, JobError)):  # its process may have been about to read the chunk
            first.result(timeout=30)
    assert not agent.computing
    assert not agent.pool.busy


def test_a_suspended_team_leaves_no_process_that_hangs(agent: Agent, asks: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asks, "hang")
        until(lambda: any(agent.pool.busy.values()))
        agent.end("hang-1", (7,))
        assert not first.done(), "another chunk is not concerned"
        agent.end("hang-1", (0,))
        with pytest.raises(EndedError):
            first.result(timeout=30)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\n2026 finished", "a\\n2026 finished"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u2028\u200b\ud800", "\\u2028\\u200b\\ud800"),
        ("größer\u00a0als 5 €, 你好", "größer\u00a0als 5 €, 你好"),
    ],
)
def test_control_characters_are_escaped_and_text_is_not(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert escaped(text) == shown.replace("\\n", "\n")


def test_a_sentence_is_cut() -> None:
    assert one_line("a" * 3000) == "a" * 2000 + "… (3,000 characters in all)"
