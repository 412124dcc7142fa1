"""Storage is counted in whole bytes: what fills a server exactly fits, one byte more does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedge.analysis.verify.verify import verify
from skedge.core.errors import OrderError
from skedge.core.kernel.storage import Storage
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.size import whole_bytes
from skedge.core.policy import View
from skedge.policies.aonline.policy import AOnline
from skedge.policies.aonline.waiting import StorageDemand, StorageQueue
from skedge.recorded_run import Run
from skedge.simulate import run


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
    assert (found.rule, found.message) == ("M17", "server 0 stores 0.6 MB at 0 µs; its storage is 0.599999 MB")


def test_a_server_without_a_limit_takes_chunks_of_any_size() -> None:
    """300 chunks of 100 TB each."""
    result = run(scenario(None, (300, 1e8)), "aonline")
    assert dispatched_at_once(result)
    assert result.verify() == []


# -- jobs that wait for storage ---------------------------------------------------------------------------------------


def test_a_job_that_waits_is_tried_again_only_when_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So 200 jobs, of which 8 or so fit at once, fail 200 times at most, each on its arrival."""
    failed: list[int] = []
    dispatch = AOnline._dispatch

    def counted(self: AOnline, job: int, lost: tuple[int, ...] | None, view: View) -> object:
        order = dispatch(self, job, lost, view)
        failed.extend([job] * (order is None))
        return order

    monkeypatch.setattr(AOnline, "_dispatch", counted)
    result = run(scenario(100, *[(1 + i % 4, 5.0 + i % 3) for i in range(200)], gap_s=0.01), "aonline")
    assert result.verify() == []
    assert 150 < len(failed) == len(set(failed))


KINDS = [np.array([0, 1]), np.array([1, 2, 3]), np.array([], np.int64)]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 9), st.integers(1, 6)), max_size=30),
    st.lists(st.integers(-1, 20), min_size=4, max_size=4),
    st.sets(st.integers(0, 30)),
    st.booleans(),
)
def test_the_first_waiting_job_that_fits_is_found(
    needs: list[tuple[int, int, int]], free: list[int], gone: set[int], anywhere: bool
) -> None:
    """Against counting, server by server, with some jobs gone; and in the same order after compacting."""
    waiting = StorageQueue(KINDS)
    for job, need in enumerate(needs):
        waiting.add(StorageDemand(job, None, *need))
    waiting.remove_jobs(tuple(gone))
    expected = [job for job, need in enumerate(needs) if job not in gone and (anywhere or fits(*need, free))]
    for _ in range(2):
        assert [waiting.demands[at].job for at in places(waiting, free, anywhere=anywhere)] == expected
        waiting.compact()
    assert len(waiting) == len(set(range(len(needs))) - gone)


def fits(kind: int, size: int, chunks: int, free: list[int]) -> bool:
    """Chunk by chunk, on the first server that has room."""
    left = {server: free[server] for server in (KINDS[kind].tolist() if kind >= 0 else []) if free[server] >= 0}
    for _ in range(chunks):
        server = next((one for one, room in left.items() if room >= size), None)
        if server is None:
            return False
        left[server] -= size
    return True


def places(waiting: StorageQueue, free: list[int], *, anywhere: bool) -> list[int]:
    found, room = [], np.array(free)
    at = -1
    while (at := waiting.next_fit(room, at + 1, cloud_available=anywhere)) >= 0:
        found.append(at)
    return found


def test_lost_chunks_of_a_job_are_entries_of_their_own() -> None:
    """One of two entries of a job is taken: the job still waits; with the other it is gone."""
    waiting = StorageQueue(KINDS)
    waiting.add(StorageDemand(7, (0, 2), 0, 5, 2))
    waiting.add(StorageDemand(7, (1,), 0, 5, 1))
    room = np.array([5, 0, 0, 0])
    assert waiting.next_fit(room, 0, cloud_available=False) == 1
    assert waiting.remove(1).lost == (1,)
    assert (len(waiting), waiting.next_fit(room, 0, cloud_available=False)) == (1, -1)
    waiting.remove_jobs((7,))
    assert len(waiting) == 0
