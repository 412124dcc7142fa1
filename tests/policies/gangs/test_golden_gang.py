from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from builders.product import Run, play
from golden.gang_cases import CASES, HOUR, Case
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def product(case: Case) -> Run:
    """Playing a run verifies it."""
    return play(case.scenario, make_policy(case.policy))


def ticks(slots: float) -> int:
    return round(slots * HOUR * SECOND)


def allocations(run: Run, job: int) -> list[tuple[int, int, int, dict[str, int]]]:
    """(from, first computing from, to, workers by server) of a job's allocations, in order of time."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    first: dict[tuple[int, int], int] = {}
    mine = run.schedule.runs.filter(pl.col("job") == job).sort("start")
    for start, compute, end, server, n in mine.select("start", "compute_from", "end", "server", "workers").rows():
        of = rows.setdefault((start, end), {})
        of[server] = of.get(server, 0) + n
        first[start, end] = min(first.get((start, end), compute), compute)
    return [(start, first[start, end], end, where) for (start, end), where in rows.items()]


@all_cases
def test_intervals_are_those_walked_by_hand(case: Case) -> None:
    """When every job holds which workers, and from when it computes."""
    run = product(case)
    for job, intervals in enumerate(case.intervals):
        expected = [(ticks(a), ticks(compute), ticks(b), dict(where)) for a, compute, b, where, _ in intervals]
        assert allocations(run, job) == expected


@all_cases
def test_pss_are_those_walked_by_hand(case: Case) -> None:
    """Every interval of a job has the expected PS for just as long."""
    run = product(case)
    got = run.schedule.ps.sort("job", "start").select("job", "start", "end", "server", "slot").rows()
    expected = [
        (job, ticks(a), ticks(b), *ps) for job, intervals in enumerate(case.intervals) for a, _, b, _, ps in intervals
    ]
    assert got == expected


@all_cases
def test_completions_and_interruptions_are_those_walked_by_hand(case: Case) -> None:
    """Completions exactly, total JCT, preemptions and migrations."""
    run = product(case)
    numbers = run.metrics
    assert run.schedule.jobs["completion"].to_list() == [ticks(c) for c in case.completions]
    assert numbers["jct_total_s"] == pytest.approx(case.total_jct * HOUR, rel=1e-12)
    assert (numbers["preemptions"], numbers["migrations"]) == (case.preemptions, case.migrations)


def test_drf_lets_every_worker_begin_when_its_own_data_are_there() -> None:
    """Job 0: server 0 computes from 1, server 1 from 2; it grows at 6, the first two go on, the others from 8."""
    run = product(CASES["DRF shrinks and grows, data in the last place"])
    rows = run.schedule.runs.filter(pl.col("job") == 0).sort("start", "server")
    got = rows.select("server", "workers", "start", "compute_from", "end").rows()
    walked = [("0", 2, 0, 1, 3), ("1", 2, 0, 2, 3), ("0", 2, 3, 3, 6), ("0", 2, 6, 6, 9), ("1", 2, 6, 8, 9)]
    assert got == [(server, n, *map(ticks, times)) for server, n, *times in walked]
