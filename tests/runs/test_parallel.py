"""Work in several processes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
from joblib import delayed
from numpy.typing import NDArray

from skedge.runs.parallel import parallel, prestarted_workers

FEW, PAUSE_S = 6, 0.2


def pause() -> int:
    """The process that does this piece of work."""
    time.sleep(PAUSE_S)
    return os.getpid()


def fail() -> None:
    raise ValueError("a piece of work fails")


def threads_and_files() -> NDArray[np.int64]:
    """How many threads and open files this process has."""
    return np.array([threading.active_count(), len(os.listdir("/proc/self/fd"))])


def work(function: Callable[[], object]) -> list[object]:
    return [delayed(function)() for _ in range(FEW)]


@pytest.mark.parametrize("joining", [False, True])
def test_all_work_is_done_by_as_many_processes_as_asked_for(*, joining: bool) -> None:
    done = list(parallel(work(pause), 2, use_this_process=joining))
    assert len(done) == FEW
    assert len(set(done)) == 2
    assert (os.getpid() in done) == joining


@pytest.mark.parametrize("joining", [False, True])
def test_an_error_in_any_process_ends_the_work(*, joining: bool) -> None:
    with pytest.raises(ValueError, match="a piece of work fails"):
        list(parallel(work(fail), 2, use_this_process=joining))


def test_work_that_is_abandoned_ends() -> None:
    done = parallel(work(pause), 2, use_this_process=True)
    assert next(done) == os.getpid()
    done.close()
    assert len(list(parallel(work(pause), 2, use_this_process=True))) == FEW


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="open files are looked up in /proc")
def test_work_that_is_abandoned_leaves_no_threads_and_no_files() -> None:
    """Whenever that is: loky's thread must not find its queue emptied while work is still handed out."""
    before, deadline = threads_and_files(), time.monotonic() + 20.0
    for number in range(10):
        for _ in parallel([delayed(time.sleep)(0.004) for _ in range(100)], 2):
            if number % 2:
                break
    # the thread that feeds loky's queue is told to end, but not waited for
    while np.any(threads_and_files() > before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert np.all(threads_and_files() <= before)


def test_two_pieces_are_done_side_by_side() -> None:
    """None is left waiting in another process while this one has nothing to do."""
    assert len(set(parallel([delayed(pause)(), delayed(pause)()], 2, use_this_process=True))) == 2


@pytest.mark.parametrize(("processes", "joining"), [(1, False), (2, False), (2, True)])
def test_work_that_is_added_while_results_are_taken_is_done(processes: int, *, joining: bool) -> None:
    left = deque(work(pause)[:2])
    done = []
    for number in parallel(left, processes, use_this_process=joining):
        done.append(number)
        if len(done) <= 2:
            left.append(delayed(pause)())
    assert len(done) == 4
    assert len(set(done)) == processes


def pause_long() -> int:
    time.sleep(4 * PAUSE_S)
    return os.getpid()


def test_other_processes_go_on_while_this_one_works() -> None:
    """It takes the last piece, a long one; all others are done meanwhile, by the other process."""
    done = list(parallel([*work(pause)[:3], delayed(pause_long)()], 2, use_this_process=True))
    assert done[0] == os.getpid()
    assert len(set(done[1:]) - {os.getpid()}) == 1
    assert os.getpid() not in done[1:]


def imported(module: str) -> tuple[int, bool]:
    """This process, and whether it has imported `module`."""
    time.sleep(PAUSE_S)
    return os.getpid(), module in sys.modules


def test_processes_started_ahead_do_the_work_and_have_imported_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skedge.runs.parallel.effective_n_jobs", lambda _: 2)
    with prestarted_workers("colorsys", FEW, -1, use_this_process=True):
        done = list(parallel([delayed(imported)("colorsys") for _ in range(FEW)], 2, use_this_process=True))
    assert {found for number, found in done if number != os.getpid()} == {True}


def test_an_error_ends_the_processes_started_ahead_and_the_next_work_is_done_by_others() -> None:
    list(parallel(work(pause), 2))
    with pytest.raises(ValueError, match="before any work"), prestarted_workers("colorsys", FEW, 2):
        raise ValueError("before any work")
    assert len(set(parallel(work(pause), 2))) == 2


def test_work_that_another_number_of_processes_does_than_was_started_ahead() -> None:
    with prestarted_workers("colorsys", FEW, 3):
        assert len(set(parallel(work(pause), 2))) == 2


def test_results_that_came_with_an_error_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both pieces are over when they are looked at."""
    monkeypatch.setattr("skedge.runs.parallel.wait", lambda sent, **_: wait(sent))
    done = parallel([delayed(fail)(), delayed(pause)()], 2)
    assert isinstance(next(done), int)
    with pytest.raises(ValueError, match="a piece of work fails"):
        next(done)


def test_large_arguments_do_not_stay_in_memory() -> None:
    before = set(Path("/dev/shm").glob("joblib*"))  # noqa: S108 - where joblib puts them; empty where there is none
    assert list(parallel([delayed(len)(np.zeros(10**6)) for _ in range(FEW)], 2)) == [10**6] * FEW
    assert set(Path("/dev/shm").glob("joblib*")) <= before  # noqa: S108


class Memo:
    """What several pieces of work share: each notes attributes in it, as a scenario does what it derives."""

    def __init__(self, size: int) -> None:
        for i in range(size):
            setattr(self, f"first{i}", Slow())

    def note(self) -> int:
        """Note attributes for as long as another thread may be pickling."""
        end = time.monotonic() + PAUSE_S
        while time.monotonic() < end:
            setattr(self, f"noted{len(vars(self))}", Slow())
            time.sleep(1e-4)
        return os.getpid()


class Slow:
    """Pickled by Python code, in the midst of which another thread may run."""

    def __reduce__(self) -> tuple[type[Slow], tuple[()]]:
        return Slow, ()


def test_what_pieces_share_may_note_attributes_while_other_pieces_are_handed_out() -> None:
    """Pickling in a thread found the dictionary changed that this process's own piece wrote to."""
    shared = Memo(20_000)
    before = len(vars(shared))
    done = list(parallel([delayed(shared.note)() for _ in range(2 * FEW)], 2, use_this_process=True))
    assert len(set(done)) == 2
    assert len(vars(shared)) == before, "each piece has its own"
