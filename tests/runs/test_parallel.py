"""Work in several processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest
from joblib import delayed

from skedge.runs.parallel import parallel, start_ahead

FEW, PAUSE_S = 6, 0.2


def pause() -> int:
    """The process that does this piece of work."""
    time.sleep(PAUSE_S)
    return os.getpid()


def fail() -> None:
    raise ValueError("a piece of work fails")


def work(function: Callable[[], object]) -> list[object]:
    return [delayed(function)() for _ in range(FEW)]


@pytest.mark.parametrize("joining", [False, True])
def test_all_work_is_done_by_as_many_processes_as_asked_for(*, joining: bool) -> None:
    done = list(parallel(work(pause), 2, joining=joining))
    assert len(done) == FEW
    assert len(set(done)) == 2
    assert (os.getpid() in done) == joining


@pytest.mark.parametrize("joining", [False, True])
def test_an_error_in_any_process_ends_the_work(*, joining: bool) -> None:
    with pytest.raises(ValueError, match="a piece of work fails"):
        list(parallel(work(fail), 2, joining=joining))


def test_work_that_is_abandoned_ends() -> None:
    done = parallel(work(pause), 2, joining=True)
    assert next(done) == os.getpid()
    done.close()
    assert len(list(parallel(work(pause), 2, joining=True))) == FEW


def test_two_pieces_are_done_side_by_side() -> None:
    """None is left waiting in another process while this one has nothing to do."""
    assert len(set(parallel([delayed(pause)(), delayed(pause)()], 2, joining=True))) == 2


def imported(module: str) -> tuple[int, bool]:
    """This process, and whether it has imported `module`."""
    time.sleep(PAUSE_S)
    return os.getpid(), module in sys.modules


@pytest.mark.parametrize("joining", [False, True])
def test_processes_started_ahead_do_the_work_and_have_imported_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, *, joining: bool
) -> None:
    monkeypatch.setattr("skedge.runs.parallel.effective_n_jobs", lambda _: 2)
    start_ahead("colorsys", FEW, -1, joining=joining)
    done = list(parallel([delayed(imported)("colorsys") for _ in range(FEW)], 2, joining=joining))
    assert {found for number, found in done if number != os.getpid()} == {True}
