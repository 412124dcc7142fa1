"""The ledger of allocations whose workers begin one by one, against workers followed one by one in unit time.

And the rules on them: the verifier finds what is planted in a record, the kernel refuses what they forbid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from builders.gang_policies import job, scenario
from builders.kernel import A, Script, after_arrivals, allocate, arrival, handled
from builders.product import play
from builders.small_records import Change, again, both, drop
from golden.gang_cases import CASES, HOUR
from skedge.analysis.verify.verify import verify
from skedge.core.engine.allocations import times
from skedge.core.engine.engine import AllocationEngine
from skedge.core.engine.ledger import BLOCK, LEFT, NO_PS, TRUE_LEFT, no_data, with_blocks
from skedge.core.engine.orders import ALLOCATE, ALLOCATE_EACH
from skedge.core.errors import OrderError
from skedge.core.events import Allocate, Event, Order, Suspend, Upload, WakeAt, ps_in
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Job, Physics, Placement
from skedge.core.model.time import SECOND
from skedge.core.policy import View
from skedge.core.record.schedule import Schedule
from skedge.core.registry import make_policy

S = SECOND


@dataclass
class Worker:
    """One worker of a job: on which server, when its data are there, from when it computes."""

    server: int
    ready: int
    begin: int


class Followed:
    """One job, worker by worker, unit of time by unit of time."""

    def __init__(self, left: int, delay: list[int], overhead: int) -> None:
        self.left, self.delay, self.overhead = left, delay, overhead
        self.workers: list[Worker] = []
        self.readys: list[list[int]] = [[] for _ in delay]
        self.holds = self.ran = False
        self.now = self.stopped = 0

    def go_on(self, until: int) -> None:
        for t in range(self.now, until):
            self.left -= sum(w.begin <= t for w in self.workers) if self.holds else 0
        self.now = until

    def stop(self) -> None:
        self.holds, self.stopped = False, self.now

    def place(self, where: dict[int, int]) -> None:
        goes_on = self.holds or (self.ran and self.stopped == self.now)
        restore, kept = self.overhead if self.ran else 0, list[Worker]()
        for server, n in where.items():
            here = sorted((w for w in self.workers if w.server == server), key=lambda w: w.begin)[:n]
            if not goes_on:
                here = [Worker(server, w.ready, max(self.now, w.ready) + restore) for w in here]
            here = [replace(w, begin=max(self.now, w.begin)) for w in here]
            ready = self.now + self.delay[server]
            kept += here + [Worker(server, ready, ready + restore) for _ in range(n - len(here))]
        self.workers, self.holds, self.ran = kept, True, True

    def place_where_data_are_kept(self, where: dict[int, int]) -> None:
        """As :meth:`place`; every server keeps a list of when the data of its first, second, ... worker came."""
        goes_on = self.holds or (self.ran and self.stopped == self.now)
        restore, workers = self.overhead if self.ran else 0, list[Worker]()
        for server, n in where.items():
            here = sorted((w for w in self.workers if w.server == server), key=lambda w: w.begin)[:n] if goes_on else []
            for w in here:
                workers.append(replace(w, begin=max(self.now, w.begin)))
            while len(self.readys[server]) < n:
                self.readys[server].append(self.now + self.delay[server])
            for ready in self.readys[server][len(here) : n]:
                workers.append(Worker(server, ready, max(self.now, ready) + restore))
        self.workers, self.holds, self.ran = workers, True, True


def worker_begins(engine: AllocationEngine) -> list[tuple[int, int, int]]:
    """(server, workers, start of computing [µs]) of the present allocation of job 0."""
    return [(server, n, begin) for server, n, begin in engine._rows(0).tolist()]


class Ledger:
    """The engine's ledger of one job with this work, co-located or not, on servers with these workers."""

    def __init__(self, of: Job, servers: list[tuple[int, int]], work: int, overhead: int = 0, *, kept: bool = True):
        self.engine = AllocationEngine(scenario([of], servers))
        self.engine.case = self.engine.case._replace(overhead=overhead, kept=int(kept), step=1, on_slots=0)
        self.engine.ledger.announced[:] = work
        self.engine.ledger.jobs[0, [LEFT, TRUE_LEFT]] = work

    def place(self, where: Placement, now: int, *, gang: bool = False) -> None:
        self.engine.set_now(now)
        self.engine.allocate(0, where, NO_PS, ALLOCATE if gang else ALLOCATE_EACH, 0, None)

    def suspend(self, now: int) -> None:
        self.engine.set_now(now)
        self.engine.stop(0)

    def ends(self) -> int:
        """When it completes, as announced."""
        self.engine.ledger.jobs[0, TRUE_LEFT] = self.engine.ledger.jobs[0, LEFT]
        return self.engine.finish_time(0)


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "last_place"])
def test_the_ledger_is_the_sum_of_workers_followed_one_by_one(keeps: bool) -> None:
    """400 seeded sequences of placements, growth, loss and pauses on three servers: what is left, and when it ends."""
    rng = np.random.default_rng(7)
    paused = joined = 0
    for _ in range(400):
        delay, overhead = rng.integers(0, 6, 3).tolist(), int(rng.integers(0, 3))
        one = job("a", 0, 1, 1, upload_s={f"s{s}": d / S for s, d in enumerate(delay)}, chunks=9)
        work = 100_000
        ledger = Ledger(one, [(9, 1)] * 3, work, overhead, kept=keeps)
        plain = Followed(work, delay, overhead)
        for _ in range(8):
            plain.go_on(plain.now + int(rng.integers(0, 5)))
            assert ledger.engine.left_of(0, plain.now) == plain.left
            if plain.holds and rng.integers(0, 3) == 0:
                ledger.suspend(plain.now)
                plain.stop()
                paused += 1
                continue
            where = {s: int(n) for s, n in enumerate(rng.integers(0, 4, 3)) if n} or {0: 1}
            ledger.place(tuple(where.items()), plain.now)
            (plain.place_where_data_are_kept if keeps else plain.place)(where)
            joined += len({w.begin for w in plain.workers}) > 1
            got = Counter((s, begin) for s, n, begin in worker_begins(ledger.engine) for _ in range(n))
            assert got == Counter((w.server, w.begin) for w in plain.workers)
        if plain.holds:
            ledger.engine.ledger.jobs[0, LEFT] -= plain.left - 40
            end, plain.left = ledger.ends(), 40
            plain.go_on(end - 1)
            assert plain.left > 0
            plain.go_on(end)
            assert plain.left <= 0
    assert min(paused, joined) > 100


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "last_place"])
def test_workers_on_their_way_are_the_last_to_be_kept_and_the_first_to_go(keeps: bool) -> None:
    """Two compute on s0, a third comes at 4 + 3; at 5 one is taken: the two go on. At 6 it comes again.

    Its data, under way since 4, are there at 7; where only the last place counts they come anew, at 9.
    """
    one = job("a", 0, 1, 100, upload_s={"s0": 3 / S}, chunks=3)
    gangs = Ledger(one, [(3, 1)], 1000, kept=keeps)
    third = 7 if keeps else 9
    for now, n, begins in ((0, 2, [(2, 3)]), (4, 3, [(2, 4), (1, 7)]), (5, 2, [(2, 5)]), (6, 3, [(2, 6), (1, third)])):
        gangs.place(((0, n),), now)
        assert [(k, begin) for _, k, begin in worker_begins(gangs.engine)] == begins
    assert gangs.engine.left_of(0, 10) == 1000 - 2 * 7 - (10 - third)


@pytest.mark.parametrize("gang", [True, False])
def test_a_lost_server_has_no_data_any_more_and_the_others_keep_theirs(gang: bool) -> None:
    """Data on s0 at 3 and on s1 at 4; s0 is lost at 5. At 6 the job returns to both: s1 at once, s0 at 6 + 3."""
    one = job("a", 0, 2, 100, upload_s={"s0": 3 / S, "s1": 4 / S})
    gangs = Ledger(one, [(1, 1), (1, 1)], 1000)
    gangs.place(((0, 1), (1, 1)), 0, gang=gang)
    gangs.suspend(5)
    for leaves in (1, 0):
        gangs.engine.change_servers(np.array([[5, 0, leaves]]), np.zeros((0, 2), np.int64))
    assert gangs.engine.data(0) == {1: 1}
    gangs.place(((0, 1), (1, 1)), 6, gang=gang)
    assert [begin for *_, begin in worker_begins(gangs.engine)] == ([9, 9] if gang else [9, 6])


def test_a_measured_speed_stretches_what_is_left_of_a_job_that_is_no_gang() -> None:
    """One worker from 0, one from 4; of 20 at 2 two are done, 18 become 36: 2 by 4, then two at a time: 4 + 17."""
    one = job("a", 0, 1, 100, upload_s={"s0": 0.0, "s1": 4 / S}, chunks=2)
    gangs = Ledger(one, [(1, 1), (1, 1)], 20)
    gangs.place(((0, 1), (1, 1)), 0)
    assert gangs.ends() == 12
    gangs.engine.stretch(0, 2.0, 2)
    assert gangs.engine.left_of(0, 2) == 36
    assert gangs.ends() == 21


# -- the kernel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gang", [True, False])
def test_a_job_is_a_gang_in_all_of_its_allocations_or_in_none(gang: bool) -> None:
    """M24, also after a suspension."""
    kernel = after_arrivals(replace(allocate(A, (0, 2)), gang=gang))
    accept(kernel, replace(allocate(A, (0, 1)), gang=gang))
    accept(kernel, Suspend(A))
    with pytest.raises(OrderError) as refused:
        accept(kernel, replace(allocate(A, (0, 2)), gang=not gang))
    assert refused.value.rule == "M24"


def test_data_brought_ahead_are_there_for_a_job_that_is_no_gang() -> None:
    """Uploaded at 0 in 3 s, allocated at 2: it computes at 3, 10 s with two workers; verify finds nothing."""
    s = scenario([job("a", 0, 2, 10, upload_s={"s0": 3.0})], [(2, 1)])

    class Ahead(Script):
        def decide(self, event: Event, view: View) -> Iterable[Order]:
            if event.arrived:
                return [Upload(0, ((0, 2),)), WakeAt(2 * S)]
            return [Allocate(0, ((0, 2),), ps_in(0), gang=False)] if event.woke else ()

    played = play(s, Ahead())
    assert played.schedule.runs.select("start", "compute_from", "end").rows() == [(2 * S, 3 * S, 13 * S)]


def test_a_gang_waits_for_its_slowest_upload_and_one_that_is_none_does_not() -> None:
    """Data after 1 and 3 s: both from 3, or each from its own; the default is a gang."""
    s = scenario([job("a", 0, 2, 10, upload_s={"s0": 1.0, "s1": 3.0})], [(1, 1), (1, 1)])
    for order, begins in (
        (Allocate(0, ((0, 1), (1, 1)), ps_in(0)), [3 * S, 3 * S]),
        (Allocate(0, ((0, 1), (1, 1)), ps_in(0), gang=False), [1 * S, 3 * S]),
    ):
        kernel = Kernel(s, Script([order]))
        handled(kernel, arrival(0))
        assert [begin for *_, begin in worker_begins(kernel.engine)] == begins


# -- the verifier ------------------------------------------------------------------------------------------------------


def changed(table: str, keep: pl.Expr, **values: object) -> Change:
    """Change these columns of the rows where `keep` is true."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        new = [pl.when(keep).then(pl.lit(v)).otherwise(n).cast(frame.schema[n]).alias(n) for n, v in values.items()]
        return replace(s, **{table: frame.with_columns(new)})

    return change


AT_6 = (pl.col("job") == 0) & (pl.col("start") == 6 * HOUR * S)
NEW_AT_6 = AT_6 & (pl.col("server") == "1")


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("M7", changed("runs", NEW_AT_6, compute_from=7 * HOUR * S)),
        ("M7", changed("runs", NEW_AT_6, compute_from=9 * HOUR * S)),
        ("M7", changed("runs", AT_6 & (pl.col("server") == "0"), compute_from=7 * HOUR * S)),
        ("M7", lambda s: replace(s, uploads=s.uploads.filter(pl.col("start") != 6 * HOUR * S))),
        ("M8", changed("runs", NEW_AT_6, compute_from=7 * HOUR * S)),
        ("M24", changed("runs", NEW_AT_6, end=8 * HOUR * S)),
        ("M24", changed("runs", NEW_AT_6, server="0", compute_from=6 * HOUR * S)),
        ("M24", changed("decisions", (pl.col("job") == 0) & (pl.col("time") == 0), verb="allocate")),
        ("M2", lambda s: replace(s, decisions=s.decisions.filter(pl.col("time") != 6 * HOUR * S))),
        ("M4", changed("runs", NEW_AT_6, workers=3)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_verifier_finds_what_is_planted(rule: str, change: Change) -> None:
    """In DRF's golden case, data in the last place: job 0 grows at 6, its two workers on server 1 begin at 8."""
    case = CASES["DRF shrinks and grows, data in the last place"]
    run = play(case.scenario, make_policy("drf"))
    found = {v.rule for v in verify(case.scenario, change(run.schedule), run.meta)}
    assert rule in found


def test_workers_of_one_server_may_begin_at_two_times() -> None:
    """a grows on its one server from one worker to two: two rows there, and the record keeps every rule."""
    near = {"s0": 2.0}
    jobs = [job("a", 0, 1, 20, chunks=2, upload_s=near), job("b", 0, 1, 3, upload_s=near)]
    played = play(scenario(jobs, [(2, 2)], physics=Physics(checkpoint_overhead=S)), make_policy("drf"))
    rows = played.schedule.runs.filter((pl.col("job") == 0) & (pl.col("start") == 5 * S))
    assert rows.sort("compute_from").select("server", "workers", "compute_from").rows() == [
        ("s0", 1, 5 * S),
        ("s0", 1, 8 * S),
    ]
    doubled: Callable[[Schedule], Schedule] = both(again("runs", 2), drop("runs", 3))
    assert {"M24"} <= {v.rule for v in verify(played.scenario, doubled(played.schedule), played.meta)}


@pytest.mark.parametrize("more", [1, 2, 7])
def test_every_array_of_data_has_room_for_each_block(more: int) -> None:
    """They once grew each by half of its own length, and the rounding left the entries short of the blocks."""
    data = no_data()
    while int(data.size[0]) < 5000:
        data = with_blocks(data, more)
        data.size[0] += more
        blocks = int(data.size[0])
        assert len(data.following) >= blocks
        assert min(len(data.server), len(data.workers), len(data.ready)) >= BLOCK * blocks


def test_an_allocation_may_end_after_one_microsecond() -> None:
    """The time of an end was once taken for the answer that an array is full, and asked for without end."""
    gangs = Ledger(job("a", 0, 1, 1, upload_s={"s0": 0.0}), [(1, 1)], 1)
    gangs.place(((0, 1),), 0, gang=True)
    assert gangs.ends() == 1


@pytest.mark.parametrize("n", [1, 60, 130, 300])
def test_a_job_on_many_servers_that_holds_few_workers_has_room(n: int) -> None:
    """A row for each of its servers is needed when it shrinks to one worker and when it is suspended."""
    servers = [(1, 1)] * n
    elastic = Ledger(job("a", 0, 1, 1, chunks=n, upload_s={f"s{s}": 0.0 for s in range(n)}), servers, 10**9)
    everywhere, last = tuple((s, 1) for s in range(n)), 0
    for last in range(40):
        elastic.place(everywhere if last % 2 == 0 else ((0, 1),), last)
    elastic.suspend(last + 1)
    assert elastic.engine.left_of(0, last + 1) == 10**9 - 20 * n - 20
    assert len(elastic.engine.rows().decisions) == 20 * n + 20


@pytest.mark.parametrize("gang", [True, False])
def test_a_job_that_is_moved_without_end_keeps_a_block_of_data(gang: bool) -> None:
    """Only the data of the last placement count: what is dropped leaves no entry behind, on 20 servers in turn."""
    delays = {f"s{s}": 0.0 for s in range(20)}
    moved = Ledger(job("a", 0, 2, 1, chunks=2, upload_s=delays), [(2, 1)] * 20, 10**9, kept=False)
    for now in range(500):
        where = ((now % 19, 1), (now % 19 + 1, 1))
        moved.place(where, now, gang=gang)
        assert moved.engine.data(0) == dict(where)
    assert int(moved.engine.ledger.data.size[0]) == 1


def test_work_is_converted_without_overflow() -> None:
    for left, new, old in product((1, 7, 2**61 - 1), (1, 3, 2**61 - 3), (2**61 - 1, 2**61)):
        assert times(left, new, old) == left * new // old


def test_the_blocks_of_a_job_that_has_left_are_used_again() -> None:
    """A service that runs for long holds the data of the jobs in the system, not of all that it has seen."""
    jobs = [job(f"j{n}", 10 * n, 1, 2, chunks=2, upload_s={"s0": 0.0, "s1": 1.0}) for n in range(50)]
    engine = AllocationEngine(scenario(jobs, [(1, 1), (1, 1)]))
    engine.case = engine.case._replace(on_slots=0)
    for number in range(50):
        engine.set_now(10 * number * S)
        assert engine.absorb((), 1) == -1
        engine.allocate(number, ((0, 1), (1, 1)), NO_PS, ALLOCATE, 0, None)
        assert engine.data(number) == {0: 1, 1: 1}
        assert engine.absorb((number,), 0) == -1
        assert engine.data(number) == {}
    assert int(engine.ledger.data.size[0]) == 1


def test_there_is_room_for_the_orders_on_servers_that_come_back() -> None:
    """Jobs are added to a service while a server is out of service: its workers count all the same."""
    jobs = [job(f"j{n}", n, 1, 2, chunks=2, upload_s={"s0": 0.0, "s1": 1.0}) for n in range(9)]
    engine = AllocationEngine(scenario(jobs[:1], [(9, 1), (9, 1)]))
    n_rows = len(engine.orders.rows)
    engine.change_servers(np.array([[0, 0, 1], [0, 1, 1]]), np.zeros((0, 2), np.int64))
    engine.extend(scenario(jobs, [(9, 1), (9, 1)]))
    assert len(engine.orders.rows) > n_rows >= 4 * 18
