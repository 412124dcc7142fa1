"""Orders that wait until the policy looks at its view, and orders as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from builders.gang_policies import random_scenarios
from builders.kernel import A, B, Script, allocate, arrival, handled, scenario
from builders.thorough import thorough_after
from skedge.core.errors import OrderError
from skedge.core.events import VERBS, Allocate, Event, Order, OrderBatch, Suspend, batch_of
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.policy import BasePolicy, View
from skedge.core.registry import make_policy
from skedge.sim.world import SimulatedWorld

ALLOCATE, SUSPEND, REJECT = (VERBS.index(verb) for verb in ("allocate", "suspend", "reject"))
REASONS = ("first", "second")


def row(verb: int, job: int, reason: int, first: int = 0, size: int = 0) -> list[int]:
    return [verb, job, -1, reason, first, size]


def rows(*lines: list[int], places: Any = ((0, 1), (1, 1), (0, 1), (1, 1))) -> OrderBatch:
    return batch_of(np.array(lines, np.int64), np.array(places, np.int64), REASONS)


def after_a_batch(batch: OrderBatch, *, singly: bool) -> tuple[list[Any], list[Any]]:
    """The decisions on record and the workers held after a batch that answers the arrival of B, and its error."""
    kernel = Kernel(scenario(), Script((), [batch]))
    kernel.splits_batches = singly
    handled(kernel, arrival(A))
    error = ""
    try:
        kernel.handle(arrival(B))
    except OrderError as refused:
        error = str(refused)
    return [error, *kernel.record.decisions_table().to_dicts()], [kernel.view.placement(A), kernel.view.placement(B)]


class Looks(BasePolicy):
    """Allocates, looks at its view, and suspends what it has just allocated."""

    name: ClassVar[str] = "looks"

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []
        self.kernel: Kernel | None = None

    def decide(self, event: Event, view: View) -> Iterable[Order]:
        assert self.kernel is not None
        yield allocate(event.arrived[0], (0, 1), (1, 1))
        self.waiting.append(len(self.kernel.pending.orders))
        assert view.is_running(event.arrived[0])
        self.waiting.append(len(self.kernel.pending.orders))
        yield Suspend(event.arrived[0], "again")


class Swallows(BasePolicy):
    """Allocates what is not there, and hides the error that it is told."""

    name: ClassVar[str] = "swallows"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield allocate(event.arrived[0], (0, 5))
        with pytest.raises(OrderError, match="M5"):
            view.is_running(0)
        assert not view.is_running(0)


def test_an_order_waits_until_the_view_is_looked_at_or_all_are_made() -> None:
    policy = Looks()
    policy.kernel = kernel = Kernel(scenario(), policy)
    orders = kernel.handle(arrival(A))
    assert policy.waiting == [1, 0]
    assert not kernel.is_running(A)
    assert [type(order) for order in orders] == [Allocate, Suspend]


def test_an_order_that_is_refused_ends_the_run_though_the_policy_hides_the_error() -> None:
    with pytest.raises(OrderError, match="M5"):
        Kernel(scenario(), Swallows()).handle(arrival(A))


def test_a_number_beyond_64_bits_is_refused_as_any_other() -> None:
    with pytest.raises(OrderError, match="M2"):
        Kernel(scenario(), Script([allocate(10**30, (0, 1), (1, 1))])).handle(arrival(A))


BATCHES = {
    "two allocations, one taken away": [row(ALLOCATE, A, 0, 0, 2), row(SUSPEND, A, 1), row(ALLOCATE, B, 0, 2, 2)],
    "too many workers": [row(ALLOCATE, A, 0, 0, 2), row(ALLOCATE, B, 1, 2, 2)],
    "a job that has not arrived": [row(ALLOCATE, A, 0, 0, 2), row(ALLOCATE, 2, 1, 2, 2)],
    "a suspension of what does not run": [row(SUSPEND, A, 0)],
}


@pytest.mark.parametrize("lines", BATCHES.values(), ids=BATCHES)
def test_a_batch_means_what_its_orders_mean(lines: list[list[int]]) -> None:
    assert after_a_batch(rows(*lines), singly=False) == after_a_batch(rows(*lines), singly=True)


@pytest.mark.parametrize(
    "line",
    [
        row(REJECT, A, 0),
        row(-1, A, 0),
        row(99, A, 0),
        row(ALLOCATE, A, 2, 0, 2),
        row(ALLOCATE, A, -1, 0, 2),
        row(ALLOCATE, A, 256, 0, 2),
        row(ALLOCATE, A, 0, 3, 2),
        row(ALLOCATE, A, 0, -1, 2),
        row(ALLOCATE, A, 0, 0, -1),
    ],
    ids=str,
)
@pytest.mark.parametrize("singly", [False, True])
def test_a_row_that_stands_for_no_order_is_refused(line: list[int], singly: bool) -> None:
    kernel = Kernel(scenario(), Script([rows(line)]))
    kernel.splits_batches = singly
    with pytest.raises(OrderError, match=r"M1.*row 0 of a batch"):
        kernel.handle(arrival(A))


GOOD = rows(row(ALLOCATE, A, 0, 0, 2))
OF_ANOTHER_FORM = {
    "five columns": batch_of(GOOD.rows[:, :5], GOOD.places, REASONS),
    "not whole": batch_of(GOOD.rows * 1.0, GOOD.places, REASONS),  # type: ignore[arg-type]
    "one dimension": batch_of(GOOD.rows, GOOD.places[0], REASONS),
    "lists": replace(GOOD, rows=GOOD.rows.tolist()),
}


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize("batch", OF_ANOTHER_FORM.values(), ids=OF_ANOTHER_FORM)
def test_a_batch_of_another_form_is_refused(batch: OrderBatch, singly: bool) -> None:
    kernel = Kernel(scenario(), Script([batch]))
    kernel.splits_batches = singly
    with pytest.raises(OrderError, match=r"M1.*int64"):
        kernel.handle(arrival(A))


@pytest.mark.parametrize("singly", [False, True])
def test_a_batch_is_made_of_whole_numbers_of_any_kind_or_of_none(singly: bool) -> None:
    for made, expected in (
        (batch_of(GOOD.rows.astype(np.int32), GOOD.places.tolist(), REASONS), 2),  # type: ignore[arg-type]
        (batch_of(np.array([]), np.array([]), REASONS), 0),
    ):
        kernel = Kernel(scenario(), Script([made]))
        kernel.splits_batches = singly
        kernel.handle(arrival(A))
        assert len(kernel.record.decisions_table()) == expected


@pytest.mark.parametrize(
    "name", thorough_after(4, ["srtf", "tiresias:limit_s=3", "fifo:backfill=true", "preemptive", "drf", "fifo"])
)
def test_runs_are_equal_whether_batches_are_expanded_or_not(name: str) -> None:
    """A watch is shown single orders; without one the kernel takes rows."""
    for instance in random_scenarios(range(8)):
        records = []
        for watch in (None, lambda _event, _orders: None):
            kernel = Kernel(instance, make_policy(name))
            world = SimulatedWorld(kernel)
            drive_to_end(kernel, world, watch)
            records.append(kernel.record.schedule(world.runs()))
        assert all(table.equals(records[1].tables()[key]) for key, table in records[0].tables().items())
        assert len(records[0].decisions) > 0
