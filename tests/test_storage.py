"""Storage is counted in whole bytes: what fills a server exactly fits, one byte more does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedge.analysis.verify import verify
from skedge.core.errors import OrderError
from skedge.core.model import Cluster, Job, Physics, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.core.size import whole_bytes
from skedge.core.storage import Storage
from skedge.run import Run, run


def scenario(storage_mb: float | None, *chunks: tuple[int, float], gap_s: float = 0.0) -> Scenario:
    """One server of two workers; a job for each (number of chunks, MB of a chunk)."""
    cluster = Cluster([Server("s0", capacity={"worker:gpu": 2, "ps:cpu": 2}, storage_mb=storage_mb)])
    jobs = [Job(str(i), i * gap_s, 1, count, 1, 1.0, chunk_mb=mb) for i, (count, mb) in enumerate(chunks)]
    table, given_delays = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given_delays), Physics(), 0, "storage")


def dispatched_at_once(result: Run) -> bool:
    """Whether every chunk was dispatched at time 0."""
    rows = result.schedule.decisions
    times = rows.filter(rows["verb"] == "dispatch")["time"]
    return len(times) == result.scenario.jobs.chunks.sum() and bool((times == 0).all())


@pytest.mark.parametrize(("jobs", "chunks", "mb", "storage_mb"), [(400, 7, 33.3, 93240), (300, 11, 59.99, 197967)])
def test_jobs_that_fill_a_server_exactly_all_start_at_once(
    jobs: int, chunks: int, mb: float, storage_mb: float
) -> None:
    """400 x 7 x 33.3 = 93240 and 300 x 11 x 59.99 = 197967, none of them a binary fraction."""
    result = run(scenario(storage_mb, *[(chunks, mb)] * jobs), "aonline")
    assert dispatched_at_once(result)
    assert result.verify() == []


def test_a_server_one_byte_too_small_makes_the_last_job_wait() -> None:
    """Two jobs of 0.3 MB in 599,999 bytes: the second starts when the first has ended, after 1 s."""
    result = run(scenario(0.599999, (1, 0.3), (1, 0.3)), "aonline")
    assert result.schedule.decisions.filter(result.schedule.decisions["verb"] == "dispatch")["time"].to_list() == [
        0,
        1_000_000,
    ]
    assert result.verify() == []


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.floats(1e-3, 1e4)), min_size=1, max_size=12), st.booleans())
def test_chunks_of_any_size_fill_a_server_of_their_sum(chunks: list[tuple[int, float]], decimal: bool) -> None:
    """The sum is exact, then rounded to the nearest float."""
    sizes = [(count, round(mb, 3) if decimal else mb) for count, mb in chunks]
    total = float(sum(count * Fraction(mb) for count, mb in sizes))
    if decimal:
        total = float(sum(count * Fraction(repr(mb)) for count, mb in sizes))
    result = run(scenario(total, *sizes), "aonline")
    assert dispatched_at_once(result)
    assert result.verify() == []


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**15))
def test_a_decimal_number_of_mb_is_its_whole_number_of_bytes(size: int) -> None:
    """At most a petabyte, written with six decimals."""
    mb = float(f"{size // 10**6}.{size % 10**6:06d}")
    assert whole_bytes(np.array([mb])).tolist() == [size]


def test_part_of_a_byte_is_dropped() -> None:
    """Two thirds of a MB are 666,666 bytes, so that three of them fit in 2 MB."""
    assert whole_bytes(np.array([2 / 3, 0.0, 4e-7, 1.9999999])).tolist() == [666_666, 0, 0, 1_999_999]


def test_the_ledger_refuses_one_byte_more_than_there_is() -> None:
    """3 x 0.333333 MB are 999,999 bytes; a fourth chunk of one byte fits, a fifth does not."""
    jobs = scenario(1.0, (3, 0.333333), (1, 1e-6), (1, 1e-6)).jobs
    ledger = Storage(Cluster([Server("s0", capacity={"worker:gpu": 2, "ps:cpu": 2}, storage_mb=1)]), jobs)
    ledger.store(0, np.zeros(3, np.int64))
    ledger.store(1, np.zeros(1, np.int64))
    assert ledger.free.tolist() == [0]
    with pytest.raises(OrderError, match=r"\[M17\] server 's0' has no room for the chunks of job '2'"):
        ledger.store(2, np.zeros(1, np.int64))
    ledger.forget(0)
    assert ledger.free.tolist() == [999_999]
    ledger.validate()


def test_the_verifier_counts_bytes() -> None:
    """A record of two jobs at once on a server of exactly their size, and on one a byte smaller."""
    full = run(scenario(0.6, (1, 0.3), (1, 0.3)), "aonline")
    assert full.verify() == []
    smaller = scenario(0.599999, (1, 0.3), (1, 0.3))
    (found,) = verify(smaller, full.schedule, full.meta)
    assert (found.rule, found.message) == ("M17", "server 0 stores 0.6 MB at 0 µs; it has room for 0.599999 MB")


def test_a_server_without_a_limit_takes_chunks_of_any_size() -> None:
    """300 chunks of 100 TB each."""
    result = run(scenario(None, (300, 1e8)), "aonline")
    assert dispatched_at_once(result)
    assert result.verify() == []
