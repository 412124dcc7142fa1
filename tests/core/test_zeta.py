"""Zeta of chunks dispatched again after an outage of the cloud (M8, M10, M15): records by hand, and the kernel.

Job c of :mod:`small_records` is sent to the cloud at 4 s and trains its two chunks from 9 s on; a chunk takes 3 s at
zeta = 1 and 9 s at zeta = 0. At 10 s, with a third of each done, the cloud goes out of service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.kernel import A, Script, again, arrival, dispatch, handled
from builders.kernel import scenario as two_servers
from builders.small_records import LIVE, SERVERS, S, dispatched, edit, scenario, table
from skedge.analysis.verify.verify import verify
from skedge.core.errors import OrderError
from skedge.core.events import CLOUD, AssignPS, Event, ps_in
from skedge.core.kernel.kernel import Kernel
from skedge.core.record.schedule import Schedule, schema
from skedge.sim.what_if import Present

RANK = 18 * S


def record(
    *,
    outages: list[tuple[Any, ...]],
    sent: list[tuple[Any, ...]],
    runs: list[tuple[Any, ...]],
    ps: list[tuple[Any, ...]],
    end: int,
) -> Schedule:
    """The record in which c trains from 9 to 10 s in the cloud, with a PS there, and then as these rows say.

    `sent` has (time, chunk, lane, server), `runs` (chunk, server, lane, start, end, work, colocated, preempted).
    """
    base = dispatched()
    first = [(0, "cloud", None, 9, 10, 1.0, True, True), (1, "cloud", None, 9, 10, 1.0, True, True)]
    rows = [(2, d, at, lane, 1, a, a, b, *rest) for d, at, lane, a, b, *rest in [*first, *runs]]
    again = [(t, 2, "redispatch", d, lane, at, RANK, 0, 4.0) for t, d, lane, at in sent]
    uploads = [(2, at, sum(s[0] == t and s[3] == at for s in sent), t) for t, at in {(s[0], s[3]) for s in sent}]
    brought = [(2, at, n, 10.0 * n, t, t + (5 if at == "cloud" else 1)) for _, at, n, t in uploads]
    s = replace(
        base,
        runs=joined(base.runs.filter(pl.col("job") != 2), "runs", " ".join(schema(SERVERS)["runs"]), rows),
        decisions=joined(base.decisions, "decisions", "time job verb chunk lane server rank postponed value", again),
        uploads=joined(base.uploads, "uploads", "job to_server chunks mb start end", brought),
        ps=joined(
            base.ps.filter(pl.col("job") != 2), "ps", "job server slot count start end",
            [(2, at, slot, 1, a, b) for at, slot, a, b in [("cloud", None, 9, 10), *ps]],
        ),
        outages=table("outages", "server start end reason", outages),
    )  # fmt: skip
    return edit("jobs", 2, completion=end, jct=end - 4)(s)


def joined(frame: pl.DataFrame, name: str, columns: str, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    more = pl.concat([frame, table(name, columns, rows)])
    return more.sort("time", maintain_order=True) if "time" in more.columns else more


def rules(s: Schedule) -> set[str]:
    return {found.rule for found in verify(scenario(), s, LIVE)}


def to_the_edge(first_end: int = 17) -> Schedule:
    """Both chunks go to lane 2 of s1: two thirds of 9 s each, from 11 to 17 and to 23 s."""
    runs = [(0, "s1", 2, 11, first_end, 2.0, False, False), (1, "s1", 2, first_end, 23, 2.0, False, False)]
    sent = [(10, 0, 2, "s1"), (10, 1, 2, "s1")]
    return record(outages=[("cloud", 10, None, "lost")], sent=sent, runs=runs, ps=[("s1", 0, 11, 23)], end=23)


def back(end: int = 19, *, colocated: bool = True, ps: tuple[Any, ...] = ("cloud", None)) -> Schedule:
    """Both wait for the cloud, which is back at 12 s: two thirds of 3 s, from 17 to 19 s."""
    runs = [(d, "cloud", None, 17, end, 2.0, colocated, False) for d in (0, 1)]
    sent = [(12, 0, None, "cloud"), (12, 1, None, "cloud")]
    return record(outages=[("cloud", 10, 12, "lost")], sent=sent, runs=runs, ps=[(*ps, 17, end)], end=end)


def divided(end: int = 23, *, colocated: bool = False) -> Schedule:
    """Chunk 0 goes to s1, chunk 1 back to the cloud: zeta = 0, two thirds of 9 s each."""
    runs = [
        (0, "s1", 2, 11, 17, 2.0, False, False),
        (1, "cloud", None, 17, end, 2.0, colocated, False),
    ]
    sent = [(10, 0, 2, "s1"), (12, 1, None, "cloud")]
    return record(outages=[("cloud", 10, 12, "lost")], sent=sent, runs=runs, ps=[("s1", 0, 11, end)], end=end)


def there_and_back(ps: tuple[Any, ...] = ("cloud", None)) -> Schedule:
    """To s1, which is lost at 14 s, and to the cloud again: chunk 0 has a third left (1 s), chunk 1 two (2 s)."""
    runs = [
        (0, "s1", 2, 11, 14, 1.0, False, True),
        (0, "cloud", None, 19, 20, 1.0, True, False),
        (1, "cloud", None, 19, 21, 2.0, True, False),
    ]
    sent = [(10, 0, 2, "s1"), (10, 1, 2, "s1"), (14, 0, None, "cloud"), (14, 1, None, "cloud")]
    outages = [("cloud", 10, 12, "lost"), ("s1", 14, None, "lost")]
    return record(outages=outages, sent=sent, runs=runs, ps=[("s1", 0, 11, 14), (*ps, 19, 21)], end=21)


@pytest.mark.parametrize("made", [to_the_edge, back, divided, there_and_back])
def test_work_done_counts_in_proportion_when_chunks_are_dispatched_again(made: Any) -> None:
    """A third done at zeta = 1 is a third done at zeta = 0."""
    assert verify(scenario(), made(), LIVE) == []


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (to_the_edge(16), "M8"),  # chunk 0 a second too short, chunk 1 a second too long
        (back(20), "M8"),  # trained anew
        (back(23, colocated=False), "M10"),  # as if something were on the edge
        (back(ps=("s1", 0)), "M15"),
        (divided(19, colocated=True), "M10"),
        (divided(22), "M8"),
        (there_and_back(ps=("s0", 0)), "M15"),
    ],
)
def test_a_wrong_zeta_of_a_chunk_dispatched_again_is_found(made: Schedule, rule: str) -> None:
    """Each is one of the sound records with a time, a flag or a PS changed."""
    assert rule in rules(made)


# -- the kernel -------------------------------------------------------------------------------------------------------

OUT = Event(4 * S, servers=((2, "lost"),), lost=((A, (0, 1)),))
BACK = Event(6 * S, servers=((2, ""),))


def started(*answers: Any) -> Kernel:
    """A is sent to the cloud at 0 and gets a PS there; the cloud is lost at 4 s and back at 6 s."""
    kernel = Kernel(two_servers(), Script([dispatch(A, CLOUD, CLOUD)], [AssignPS(A, CLOUD)], *answers))
    return handled(kernel, arrival(A), Event(0, started=(A,)), OUT)


def test_a_job_that_goes_wholly_back_to_the_cloud_is_wholly_in_the_cloud_again() -> None:
    """Its PS must be there (M15), as before the outage."""
    for ps, rule in ((CLOUD, None), (0, "M15")):
        kernel = started((), [again(A, (0, 1), CLOUD, CLOUD)], [AssignPS(A, ps)])
        handled(kernel, BACK)
        assert kernel.view.wholly_in_cloud(A)
        if rule is None:
            handled(kernel, Event(7 * S, started=(A,)))
            assert kernel.books.ps_placement(A) == ps_in(CLOUD)
        else:
            with pytest.raises(OrderError) as refused:
                handled(kernel, Event(7 * S, started=(A,)))
            assert refused.value.rule == rule


def test_a_job_is_not_wholly_in_the_cloud_while_a_chunk_of_it_is_sent_to_the_edge() -> None:
    """Chunk 0 to lane 0, chunk 1 back to the cloud; when s0 is lost too chunk 0 goes back as well."""
    kernel = started([again(A, (0,), 0)], [again(A, (1,), CLOUD)], [again(A, (0,), CLOUD)])
    assert not kernel.view.wholly_in_cloud(A)
    handled(kernel, BACK)
    assert not kernel.view.wholly_in_cloud(A)
    handled(kernel, Event(8 * S, servers=((0, "lost"),), lost=((A, (0,)),)))
    assert kernel.view.wholly_in_cloud(A)


def test_while_the_cloud_is_out_of_service_its_jobs_may_have_a_ps_elsewhere() -> None:
    """A chunk that still finishes its mini-batch there needs one; M15 asks for the cloud only in service."""
    kernel = Kernel(two_servers(), Script([dispatch(A, CLOUD, CLOUD)], [AssignPS(A, CLOUD)], [AssignPS(A, 0)]))
    handled(kernel, arrival(A), Event(0, started=(A,)), Event(4 * S, servers=((2, "lost"),)))
    assert kernel.books.ps_placement(A) == ps_in(0)


def test_the_forecast_of_a_job_that_is_back_in_the_cloud_has_its_whole_or_divided_time() -> None:
    """10 mini-batches of 1 s and 0.016 s of communication each: 10 s where A is wholly in the cloud, else 10.16 s."""
    talkative = two_servers(gradient_mb=1.0)
    p0, p1 = talkative.chunk_time[A].tolist()
    assert (p0, p1) == (10_160_000, 10_000_000)
    wholly = {7 * S: [again(A, (0,), CLOUD)], 9 * S: [again(A, (1,), CLOUD)]}
    divided = {7 * S: [again(A, (0,), 2)], 9 * S: [again(A, (1,), CLOUD)]}
    for orders, end in ((wholly, 9 * S + p1), (divided, 9 * S + p0)):
        kernel = Kernel(talkative, Script([dispatch(A, CLOUD, CLOUD)]))
        handled(kernel, arrival(A), OUT)
        kernel.policy = Answers(orders)
        assert Present(kernel, 6 * S, wakes=orders).foresee().completions == {A: end}
        assert np.array_equal(kernel.sent[A], [CLOUD, CLOUD]), "the forecast is made on a copy"


class Answers(Script):
    """Takes the cloud for back; gives orders by the time at which it is woken, and PSs in the cloud."""

    def __init__(self, orders: dict[int, list[Any]]) -> None:
        super().__init__()
        self.orders = orders

    def decide(self, event: Event, view: Any) -> list[Any]:
        view._state.in_service[2] = True
        return self.orders[event.time] if event.woke else [AssignPS(job, CLOUD) for job in event.started]
