"""Why a job waits: the token, what it lacks with numbers, and who is before it."""

from __future__ import annotations

import pytest

from builders.kernel import A, B, S, Script, after_arrivals, allocate, arrival, dispatch, handled, scenario
from skedge.core.events import CANCELLED, CLOUD, Event, Reject, Reserve, Suspend
from skedge.core.kernel.kernel import Kernel
from skedge.explanation.wait_reason import TOKENS, WaitReason, wait_reason


def facts(found: WaitReason) -> tuple[object, ...]:
    return found.token, found.resource, found.need, found.free, found.blocker


def test_a_gang_that_finds_too_few_workers_names_who_has_them() -> None:
    kernel = after_arrivals(allocate(A, (0, 2)))
    assert facts(wait_reason(kernel, A)) == ("running", None, None, None, None)
    assert facts(wait_reason(kernel, B)) == ("no_workers", "worker:gpu", 2, 1, "a")
    assert (
        str(wait_reason(kernel, B))
        == "fewer workers of its type are free than it needs: needs 2 worker:gpu, 1 free, a is before it"
    )


def test_a_gang_without_a_free_ps_names_who_has_it() -> None:
    kernel = after_arrivals(allocate(A, (1, 1), ps=0), cloud=False)
    kernel = handled(kernel, Event(2 * S))
    kernel.engine.ledger.ps_job[1] = A
    assert facts(wait_reason(kernel, B)) == ("no_ps", "ps:cpu", 1, 0, "a")


def test_what_has_all_it_needs_is_behind_another() -> None:
    assert facts(wait_reason(after_arrivals(), B)) == ("behind", None, None, None, "a")


def test_a_reserved_job_says_from_when() -> None:
    kernel = after_arrivals(Reserve(B, 0, 2, 5 * S, 9 * S))
    assert (wait_reason(kernel, B).token, wait_reason(kernel, B).until_s) == ("reserved", 5.0)


def test_chunks_behind_better_ones_name_their_job() -> None:
    kernel = after_arrivals(dispatch(A, 2, CLOUD), dispatch(B, 2, CLOUD))
    handled(kernel, Event(2 * S))
    assert facts(wait_reason(kernel, B)) == ("lane_busy", "worker:gpu", 1, 0, "a")


def test_what_a_server_out_of_service_leaves_without_a_place_says_so() -> None:
    kernel = Kernel(scenario(cloud=False), Script([dispatch(A, 0, 1)]))
    handled(kernel, arrival(A), Event(S, servers=((0, "server_lost"),), lost=((A, (0, 1)),)))
    assert facts(wait_reason(kernel, A)) == ("server_out", "worker:gpu", 2, 1, None)
    gangs = Kernel(scenario(cloud=False), Script())
    handled(gangs, arrival(A), Event(S, servers=((0, "server_lost"),)))
    assert wait_reason(gangs, A).token == "server_out"


def test_what_has_left_or_never_fits_says_so() -> None:
    kernel = after_arrivals(Reject(A, "never_fits"), allocate(B, (0, 2)))
    assert wait_reason(kernel, A).token == "never_fits"
    handled(kernel, Event(3 * S, finished=(B,)))
    assert wait_reason(kernel, B).token == "completed"
    for reason, token in (("its loss is nan", "failed"), (f"{CANCELLED} by its owner", "cancelled")):
        gone = after_arrivals(allocate(B, (0, 2)))
        handled(gone, Event(3 * S, failed=((B, reason),)))
        assert wait_reason(gone, B).token == token


def test_what_has_come_is_not_on_its_way_any_more() -> None:
    """B's data reach lane 2 at 3 s, after the kernel's last event; by the clock of a live run they wait there then."""
    kernel = Kernel(scenario(upload_s=2.0), Script([dispatch(A, 2, CLOUD)], [dispatch(B, 2, CLOUD)]))
    handled(kernel, arrival(A), arrival(B))
    assert (wait_reason(kernel, B).token, wait_reason(kernel, B).until_s) == ("uploading", 3.0)
    waits = wait_reason(kernel, B, 3 * S)
    assert (waits.token, waits.on) == ("lane_busy", ("s1",))
    assert "needs 1 worker:gpu on s1, 0 free" in str(waits)


def test_what_is_overdue_is_on_its_way_whatever_the_kernel_believes() -> None:
    dispatched = Kernel(scenario(upload_s=2.0), Script([dispatch(A, 2, CLOUD)], [dispatch(B, 2, CLOUD)]))
    handled(dispatched, arrival(A), arrival(B))
    for kernel, job in ((dispatched, B), (after_arrivals(allocate(A, (0, 2))), A)):
        late = wait_reason(kernel, job, 5 * S, overdue=2 * S)
        assert (late.token, late.until_s, late.late_s) == ("uploading", None, 2.0)
        assert str(late) == "its data are on their way, 2.0 s later than announced"


@pytest.mark.parametrize("token", TOKENS)
def test_every_token_has_a_sentence(token: str) -> None:
    assert str(WaitReason(token)) == TOKENS[token]


def test_a_suspended_gang_waits_for_workers_again() -> None:
    kernel = after_arrivals(allocate(A, (0, 2)), Suspend(A), allocate(B, (0, 2)))
    assert facts(wait_reason(kernel, A))[:4] == ("no_workers", "worker:gpu", 2, 1)
