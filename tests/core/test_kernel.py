"""The kernel refuses wrong orders by the rule they break, wrong facts, and to show what has not happened yet."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from builders.kernel import A, B, C, S, Script, after_arrivals, again, allocate, arrival, dispatch, handled, scenario
from builders.product import play
from skedge.core.engine.ledger import PS
from skedge.core.engine.orders import ALLOCATE
from skedge.core.errors import OrderError, PolicyError, SkedgeError, StateError
from skedge.core.events import (
    CLOUD,
    Allocate,
    AssignPS,
    Event,
    LaneFacts,
    Order,
    Piece,
    Postpone,
    Price,
    Reject,
    Reserve,
    Suspend,
    Upload,
    WakeAt,
    ps_in,
)
from skedge.core.kernel import accept as accept_module
from skedge.core.kernel import books, storage
from skedge.core.kernel import kernel as kernel_module
from skedge.core.kernel.absorb import absorb
from skedge.core.kernel.accept import accept
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.job_fields import JobColumns
from skedge.core.model.scenario import Jobs
from skedge.core.model.size import UNLIMITED
from skedge.core.policy import View
from skedge.core.record.decisions import Dispatches
from skedge.core.registry import make_policy
from skedge.sim.world import SimulatedWorld

# -- orders -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "something that is no order": ("M1", ("allocate a",)),
    "a wake-up in the past": ("M1", (WakeAt(S - 1),)),
    "a wake-up at this very time": ("M1", (WakeAt(S),)),
    "a wake-up at no time": ("M1", (WakeAt(float("nan")),)),  # type: ignore[arg-type]
    "a wake-up beyond all time": ("M1", (WakeAt(10**400),)),
    "a job that has not arrived": ("M2", (dispatch(C, 0, 1),)),
    "a job that does not exist": ("M2", (Reject(7, "no"),)),
    "a job with a negative number": ("M2", (Reject(-1, "no"),)),
    "a job that was rejected": ("M2", (Reject(A, "no"), dispatch(A, 0, 1))),
    "a lane of another type": ("M3", (dispatch(A, 0, 3),)),
    "a lane that does not exist": ("M3", (dispatch(A, 0, 4),)),
    "a lane below the cloud's number": ("M3", (dispatch(A, 0, -2),)),
    "more workers than are free": ("M4", (allocate(A, (1, 2)),)),
    "workers that another job holds": ("M4", (allocate(A, (0, 2)), allocate(B, (0, 1)))),
    "more workers than chunks": ("M5", (allocate(A, (0, 2), (1, 1)),)),
    "no workers at all": ("M5", (allocate(A),)),
    "a server with no workers": ("M5", (allocate(A, (0, 2), (1, 0)),)),
    "a second dispatch": ("M6", (dispatch(A, 0, 1), dispatch(A, 0, 1))),
    "a dispatch of too few chunks": ("M6", (dispatch(A, 0),)),
    "a dispatch of a gang": ("M6", (allocate(A, (0, 2)), dispatch(A, 0, 1))),
    "an allocation of a dispatched job": ("M6", (dispatch(A, 0, 1), allocate(A, (1, 1)))),
    "an upload of a dispatched job": ("M6", (dispatch(A, 0, 1), Upload(A, ((1, 1),)))),
    "an upload of a gang that has data": ("M6", (allocate(A, (0, 2)), Upload(A, ((1, 1),)))),
    "a PS for a job that does not run": ("M12", (AssignPS(A, 0),)),
    "a second PS": ("M12", (allocate(A, (0, 2), ps=0), AssignPS(A, 1))),
    "a PS of another type": ("M13", (allocate(A, (0, 2), ps=2),)),
    "a PS that does not exist": ("M13", (allocate(A, (0, 2), ps=9),)),
    "a PS that serves another job": ("M13", (allocate(A, (0, 2), ps=0), allocate(B, (1, 1), ps=0))),
    "more than a server stores": ("M17", (dispatch(A, 0, 1), dispatch(B, 0, 2))),
    "a rejection of a dispatched job": ("M18", (dispatch(A, 0, 1), Reject(A, "no"))),
    "a rejection of a gang": ("M18", (allocate(A, (0, 2)), Suspend(A), Reject(A, "no"))),
    "a plan in the past": ("M19", (Reserve(A, 0, 2, 0, 9 * S),)),
    "a plan of no length": ("M19", (Reserve(A, 0, 2, 9 * S, 9 * S),)),
    "a dispatch of a chunk that is not lost": ("M6", (dispatch(A, 0, 1), again(A, (1,), 2))),
    "a plan of nothing": ("M1", (Reserve(A, 0, 0, S, 9 * S, ps=0),)),
    "a plan of fewer than no workers": ("M1", (Reserve(A, 0, -1, S, 9 * S, ps=2),)),
    "a postponement of a gang": ("M18", (allocate(A, (0, 2)), Postpone(A, "no"))),
    "a postponement of a dispatched job": ("M18", (dispatch(A, 0, 1), Postpone(A, "no"))),
    "a price on a server that does not exist": ("M1", (Price(A, (Piece(3, "worker:gpu", S, 2 * S, 0.5),)),)),
    "a price of the past": ("M1", (Price(A, (Piece(0, "worker:gpu", 0, 2 * S, 0.5),)),)),
    "a price below nothing": ("M1", (Price(A, (Piece(0, "worker:gpu", S, 2 * S, -0.5),)),)),
    "an infinite price": ("M1", (Price(A, (Piece(0, "worker:gpu", S, 2 * S, float("inf")),)),)),
    "a suspension of what holds nothing": ("M24", (Suspend(A),)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_order_is_refused_by_the_rule_that_it_breaks(what: str) -> None:
    """Each is the last of a short list; the ones before it are fine."""
    rule, orders = WRONG[what]
    with pytest.raises(OrderError) as refused:
        after_arrivals(*orders)
    assert refused.value.rule == rule
    assert str(refused.value).startswith(f"[{rule}] ")
    after_arrivals(*orders[:-1])


@pytest.mark.parametrize(
    ("rule", "order"), [("M3", dispatch(A, 0, CLOUD)), ("M13", allocate(A, (0, 2), ps=CLOUD))], ids=["lane", "PS"]
)
def test_the_cloud_is_refused_where_there_is_none(rule: str, order: Order) -> None:
    """With a cloud both orders are fine."""
    with pytest.raises(OrderError) as refused:
        after_arrivals(order, cloud=False)
    assert refused.value.rule == rule
    after_arrivals(order)


def test_every_rule_that_the_kernel_names_has_a_wrong_order_here() -> None:
    """The rules named by the kernel and its ledgers are those of the table above, and some that need more.

    M15 and M25: below. M31 is of sites: ``test_sites.py``.
    """
    text = "".join(inspect.getsource(module) for module in (kernel_module, accept_module, books, storage))
    named = set(re.findall(r'OrderError\(\s*"(M\d+)"', text))
    assert named == {rule for rule, _ in WRONG.values()} | {"M15", "M25", "M31"}


def test_ps_of_a_job_wholly_in_the_cloud_is_in_the_cloud() -> None:
    """M15: A's chunks are both in the cloud; a PS slot of s0 is refused, the cloud's is taken."""
    for ps in (0, CLOUD):
        kernel = Kernel(scenario(), Script([dispatch(A, CLOUD, CLOUD)], [AssignPS(A, ps)]))
        handled(kernel, arrival(A))
        if ps == CLOUD:
            handled(kernel, Event(0, started=(A,)))
        else:
            with pytest.raises(OrderError) as refused:
                handled(kernel, Event(0, started=(A,)))
            assert refused.value.rule == "M15"


def test_a_dispatched_job_that_runs_without_a_ps_is_refused() -> None:
    """M12: a job has begun to run and the policy gave it no PS."""
    kernel = Kernel(scenario(), Script([dispatch(A, 0, 1)]))
    with pytest.raises(OrderError) as refused:
        drive_to_end(kernel, SimulatedWorld(kernel))
    assert refused.value.rule == "M12"


def test_a_job_that_has_finished_takes_no_more_orders() -> None:
    """M2: A holds workers from 0 and finishes; then it cannot be suspended."""
    kernel = Kernel(scenario(), Script([allocate(A, (0, 2), ps=0)], [Suspend(A)]))
    with pytest.raises(OrderError) as refused:
        handled(kernel, arrival(A), Event(10 * S, finished=(A,)))
    assert refused.value.rule == "M2"


def test_a_forgotten_job_is_an_error_at_the_end() -> None:
    """A policy that answers nothing has left three jobs unanswered; the first is named."""
    s = scenario()
    with pytest.raises(SkedgeError, match=r"left 3 jobs unanswered, the first is 'a'"):
        drive_to_end(kernel := Kernel(s, Script()), SimulatedWorld(kernel))


def test_a_server_listed_twice_cannot_be_given_more_workers_than_it_has() -> None:
    """M4: s1 has one gpu; ((s1, 1), (s1, 1)) asks for two."""
    with pytest.raises(OrderError) as refused:
        after_arrivals(allocate(A, (1, 1), (1, 1)))
    assert refused.value.rule in {"M4", "M24"}


def test_a_server_with_a_negative_number_is_refused() -> None:
    """-1 is no server; without a cloud it is taken for s1, the last one."""
    with pytest.raises(OrderError):
        after_arrivals(allocate(A, (-1, 1), ps=1), cloud=False)
    with pytest.raises(OrderError) as refused:
        after_arrivals(allocate(A, (0, 1), (-1, 1), ps=1), cloud=False)
    assert refused.value.rule in {"M1", "M24"}


# -- facts ------------------------------------------------------------------------------------------------------------


def test_time_does_not_run_backwards() -> None:
    """A fact of 0 after one of 1 s."""
    kernel = handled(Kernel(scenario(), Script()), arrival(A), arrival(B))
    with pytest.raises(StateError, match="came after"):
        handled(kernel, Event(0))


def test_jobs_arrive_in_order() -> None:
    """B before A."""
    with pytest.raises(StateError, match="arrived before"):
        handled(Kernel(scenario(), Script()), arrival(B))


def test_a_job_that_has_not_arrived_cannot_finish() -> None:
    with pytest.raises(StateError, match="not in the system"):
        handled(Kernel(scenario(), Script()), Event(0, finished=(A,)))


def test_a_job_finishes_once() -> None:
    kernel = handled(Kernel(scenario(), Script([allocate(A, (0, 2), ps=0)])), arrival(A), Event(5, finished=(A,)))
    with pytest.raises(StateError, match="not in the system"):
        handled(kernel, Event(6, finished=(A,)))


@pytest.mark.parametrize(("lane", "job"), [(0, B), (2, A)], ids=["another job's chunk", "an empty lane"])
def test_a_lane_cannot_finish_what_it_does_not_serve(lane: int, job: int) -> None:
    """A's chunks are on lanes 0 and 1."""
    kernel = handled(Kernel(scenario(), Script([dispatch(A, 0, 1)])), arrival(A), arrival(B))
    facts = LaneFacts(np.array([10 * S]), np.array([lane]), np.array([job]))
    with pytest.raises(StateError, match="cannot have finished"):
        handled(kernel, Event(10 * S, chunks=facts))


def test_a_lane_is_told_its_completions_in_order_of_time() -> None:
    """Two completions of lane 0 told as (20 s, 10 s)."""
    s = scenario()
    kernel = handled(Kernel(s, Script([dispatch(A, 0, 0)])), arrival(A))
    facts = LaneFacts(np.array([20 * S, 10 * S]), np.array([0, 0]), np.array([A, A]))
    with pytest.raises(StateError, match="cannot have finished"):
        handled(kernel, Event(20 * S, chunks=facts))


def test_a_job_that_ends_gives_back_all_that_it_held() -> None:
    """Workers, PS and storage are as at the beginning."""
    dispatched = handled(
        Kernel(scenario(), Script([dispatch(A, 0, 1)], [AssignPS(A, 0)])), arrival(A), Event(0, started=(A,))
    )
    assert dispatched.books.storage.free[0] == 0
    assert dispatched.engine.ledger.ps_job[0] == A
    for kernel in (dispatched, handled(Kernel(scenario(), Script([allocate(A, (0, 2), ps=0)])), arrival(A))):
        handled(kernel, Event(20 * S, finished=(A,)))
        kernel.validate_state()
        assert kernel.engine.ledger.free.tolist() == [[2, 0], [1, 1], [0, 0]]
        assert kernel.engine.ledger.ps_job.tolist() == [-1, -1, -1]
        assert kernel.books.storage.free.tolist() == [4_000_000, UNLIMITED, UNLIMITED]


# -- the self-check ---------------------------------------------------------------------------------------------------


def busy_kernel() -> Kernel:
    """A is dispatched to s0, B holds the gpu of s1 with the PS there."""
    return after_arrivals(dispatch(A, 0, 1), allocate(B, (1, 1), ps=1))


def test_sound_books_pass_the_self_check() -> None:
    busy_kernel().validate_state()


@pytest.mark.parametrize("change", [1, -1])
def test_self_check_finds_a_wrong_number_of_free_workers(change: int) -> None:
    kernel = busy_kernel()
    kernel.engine.ledger.free[0, 0] += change
    with pytest.raises(StateError, match="free workers"):
        kernel.validate_state()


def test_self_check_finds_a_worker_given_twice() -> None:
    """Two placements of the one gpu of s1, with books that agree: free is -1."""
    kernel = busy_kernel()
    kernel.engine.leave_slots()  # the engine neither checks it nor counts it
    kernel.engine.allocate(C, ((1, 1),), CLOUD, ALLOCATE, 0, None)
    kernel.engine.ledger.free[1, 0] -= 1
    with pytest.raises(StateError, match="free workers"):
        kernel.validate_state()


def test_self_check_finds_a_ps_slot_of_nobody() -> None:
    kernel = busy_kernel()
    kernel.engine.ledger.ps_job[2] = A
    with pytest.raises(StateError, match="PS slots"):
        kernel.validate_state()


def test_self_check_finds_a_ps_slot_of_another_job() -> None:
    kernel = busy_kernel()
    kernel.engine.ledger.jobs[B, PS] = 0
    with pytest.raises(StateError, match="PS slots"):
        kernel.validate_state()


def test_self_check_finds_lost_storage() -> None:
    kernel = busy_kernel()
    kernel.books.storage.free[0] += 2
    with pytest.raises(StateError, match="storage"):
        kernel.validate_state()


# -- non-anticipation -------------------------------------------------------------------------------------------------


def test_a_job_that_fails_leaves_everything_that_it_held() -> None:
    """Its chunks leave the lanes, the other job's stay; its PS slot and its storage are free."""
    kernel = Kernel(scenario(), Script([dispatch(A, 0, 2)], [dispatch(B, 2, 2)], [AssignPS(A, 0)], []))
    for event in (arrival(A), arrival(B), Event(2 * S, started=(A,)), Event(3 * S, failed=((A, "the loss is nan"),))):
        kernel.handle(event)
    lanes = kernel.belief
    queued = [lanes.rows[lane, i, :4].tolist() for lane in range(4) for i in range(lanes.waiting[lane])]
    assert queued == [[B, 20 * S, 1, 2]], "job, rank, order of dispatch, chunks"
    assert lanes.coming.tolist() == [0, 0, 0, 0]
    assert kernel.engine.ledger.ps_job.tolist() == [-1, -1, -1]
    assert kernel.books.storage.free[0] == 4_000_000
    assert kernel.active().tolist() == [B]
    kernel.validate_state()
    last = kernel.record.decisions_table().row(-1, named=True)
    assert (last["verb"], last["job"], last["reason"], last["time"]) == ("fail", A, "the loss is nan", 3 * S)
    with pytest.raises(StateError, match="not in the system"):
        kernel.handle(Event(4 * S, failed=((A, "again"),)))


def test_a_gang_that_fails_gives_its_workers_back() -> None:
    kernel = Kernel(scenario(), Script([Allocate(A, ((0, 2),), ps_in(0))], []))
    kernel.handle(arrival(A))
    kernel.handle(Event(2 * S, failed=((A, "no module"),)))
    assert kernel.engine.ledger.free.tolist() == kernel.scenario.cluster.workers.tolist()
    assert kernel.engine.ledger.ps_job.tolist() == [-1, -1, -1]
    kernel.validate_state()


def test_a_late_completion_is_found_behind_the_job_that_is_believed_to_run() -> None:
    """B outranks A and is believed to have come; the fact says that A's chunk ended before it did."""
    first, second = dispatch(A, 2, 2), replace(dispatch(B, 2, 2), rank=1)
    kernel = Kernel(scenario(), Script([first], [second], []))
    for event in (arrival(A), arrival(B)):
        kernel.handle(event)
    kernel.handle(Event(9 * S, chunks=LaneFacts(*(np.array([x]) for x in (9 * S, 2, A)))))
    counts = {int(row[0]): int(row[3]) for row in kernel.belief.rows[2, : kernel.belief.waiting[2]]}
    assert counts == {A: 1, B: 2}


def test_view_ends_with_the_last_job_that_has_arrived() -> None:
    """At B's arrival every column by job has two entries, and C appears nowhere."""
    policy = Script()
    handled(Kernel(scenario(), policy), arrival(A), arrival(B))
    view = policy.seen[-1]
    assert view.arrived == 2
    lengths = {len(getattr(view.jobs, f.name)) for f in fields(JobColumns)}
    assert lengths | {len(view.chunk_time), len(view.work), len(view.workers)} == {2}
    assert view.active.tolist() == [A, B]
    assert {len(a) for a in (view.delays().lo, view.delays().hi, view.delays().key)} == {2}


@pytest.mark.parametrize("ask", ["job_id", "placement", "data", "upload_delays"])
def test_view_refuses_to_speak_of_a_job_to_come(ask: str) -> None:
    """C arrives at 5 s; at 1 s its number means nothing, nor does a negative one."""
    policy = Script()
    handled(Kernel(scenario(), policy), arrival(A), arrival(B))
    look = getattr(policy.seen[-1], ask)
    look(B)
    for job in (C, -1):
        with pytest.raises(IndexError, match="has not arrived"):
            look(job)


def test_view_refuses_the_upload_delay_of_a_job_to_come() -> None:
    policy = Script()
    handled(Kernel(scenario(), policy), arrival(A))
    with pytest.raises(IndexError, match="has not arrived"):
        policy.seen[-1].upload_delay(B, 0)


def test_decisions_do_not_depend_on_jobs_to_come() -> None:
    """A_online and SRTF decide up to 5 s as if C were never to arrive: the same scenario without C agrees."""
    full = scenario()
    jobs = Jobs(full.jobs.frame.head(2), full.cluster)
    for spec in ("aonline", "srtf", "tiresias:limit_s=3", "fifo"):
        both = (full, replace(full, jobs=jobs))
        tables = [play(s, make_policy(spec)).schedule.decisions.drop("reason") for s in both]
        early = [table.filter(table["time"] < 5 * S) for table in tables]
        assert early[0].equals(early[1])
        assert len(early[0]) > 0


def test_a_plan_of_two_servers_is_one_plan_that_breaks_once_as_a_whole() -> None:
    """Rows of one instant belong together; a later plan takes their place, and only its end counts."""
    first = [Reserve(A, 0, 1, S, 4 * S), Reserve(A, 1, 1, S, 4 * S, ps=0)]
    again_at_4 = [Reserve(A, 0, 1, 4 * S, 9 * S, "extended")]
    kernel = Kernel(scenario(), Script((), first, again_at_4))
    handled(kernel, arrival(A), arrival(B))
    assert (kernel.plans.start(A), kernel.plans.end(A)) == (S, 4 * S)
    event = absorb(kernel, Event(4 * S))
    assert event.broken == (A,)
    list(kernel.policy.decide(event, kernel.view))
    for order in again_at_4:
        accept(kernel, order)
    table = kernel.record._plans_table()
    assert table.select("server", "workers", "ps", "to", "broken_at").rows() == [
        ("s0", 1, 1, 4 * S, 4 * S),
        ("s1", 1, 0, 4 * S, 4 * S),
        ("s0", 1, 1, 9 * S, None),
    ]
    assert absorb(kernel, Event(5 * S)).broken == ()
    assert absorb(kernel, Event(9 * S)).broken == (A,)


def test_what_a_decision_was_worth_and_its_prices_are_on_record() -> None:
    """Values of allocations, postponements and rejections; null where the policy does not say."""
    piece = Piece(0, "worker:gpu", S, 3 * S, 0.25)
    kernel = after_arrivals(
        Postpone(A, "too_dear", -0.5), Postpone(A, "no_room"),
        Allocate(A, ((0, 1), (1, 1)), ps_in(CLOUD), "r", value=0.75),
        Price(A, (piece,)), Reject(B, "no", 0.0),
    )  # fmt: skip
    table = kernel.record.decisions_table().select("job", "verb", "server", "value")
    assert table.rows() == [
        (A, "postpone", None, -0.5), (A, "postpone", None, None), (A, "allocate", "s0", 0.75),
        (A, "allocate", "s1", 0.75), (B, "reject", None, 0.0),
    ]  # fmt: skip
    assert kernel.record.prices == [(S, A, "s0", "worker:gpu", S, 3 * S, 0.25)]


def test_copies_bring_all_chunks_to_each_server_shares_bring_each_once() -> None:
    """Two chunks to s0 and s1: two to each as copies, one to each as shares; what is there is not brought again."""
    for copies, chunks in ((True, 2), (False, 1)):
        kernel = after_arrivals(Upload(A, ((0, 2), (1, 2)), copies), allocate(A, (1, 1)))
        uploads = kernel.record.uploads_table(Dispatches.from_orders([])).select("to_server", "chunks")
        assert uploads.rows() == [("s0", chunks), ("s1", chunks)]


# -- runs that must end -----------------------------------------------------------------------------------------------


class Insists(Script):
    """Answers every event before 50 s with the same order."""

    def __init__(self, order: Callable[[int], Order]) -> None:
        super().__init__()
        self.order = order
        self.asked: list[int] = []

    def decide(self, event: Event, view: View) -> list[Order]:
        self.asked.append(view.now)
        assert len(self.asked) < 100, "the run does not end"
        return [self.order(view.now)] if view.now < 50 * S else []


def test_a_policy_that_asks_to_be_woken_now_is_refused() -> None:
    """M1, at its first attempt: it would be woken for ever."""
    policy = Insists(WakeAt)
    with pytest.raises(OrderError, match=r"cannot wake at 0 µs: it must be a whole number above 0, which is now"):
        drive_to_end(kernel := Kernel(scenario(), policy), SimulatedWorld(kernel))
    assert policy.asked == [0]


def test_a_plan_that_begins_now_wakes_no_policy_now() -> None:
    """A plan from now to 50 s, made whenever a job arrives (0, 1 and 5 s), wakes at its end alone."""
    policy = Insists(lambda now: Reserve(A, 0, 1, now, 50 * S))
    with pytest.raises(SkedgeError, match="left 3 jobs unanswered"):
        drive_to_end(kernel := Kernel(scenario(), policy), SimulatedWorld(kernel))
    assert policy.asked == [0, S, 5 * S, 50 * S]


def test_a_column_that_is_not_there_is_named_with_the_nearest_and_all_that_are() -> None:
    """As an author mistypes it."""
    view = Kernel(scenario(), Script()).view
    with pytest.raises(PolicyError, match=r"jobs\.chunk: is not a column \(did you mean chunks\?\); there are arr"):
        _ = view.jobs.chunk  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match=r"jobs\.zzz: is not a column; there are arrival, chunks, .*data"):
        _ = view.jobs.zzz  # type: ignore[attr-defined]
