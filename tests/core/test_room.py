"""Arrays of the engine grow when they are full: in the midst of the orders of an event, and no later than needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from builders.gang_policies import job, random_scenarios, scenario
from builders.kernel import Script
from skedge.core.engine import arrays, ledger
from skedge.core.engine.step import n_arrivals, room_for_event
from skedge.core.events import Allocate, Event, Order, Suspend, ps_in
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.policy import Policy, View
from skedge.core.registry import make_policy
from skedge.platform.jit import interpreted
from skedge.sim.compiled import use_loop
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run


class Undecided(Script):
    """When its job arrives it is allocated and suspended again and again, within one event."""

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        if event.arrived:
            for n in range(500):
                yield Allocate(0, ((0, 1 + n % 2), (1, 1)), ps_in(0), gang=False)
                yield Suspend(0, "again")
            yield Allocate(0, ((0, 2), (1, 1)), ps_in(0), gang=False)


def test_orders_of_one_event_may_be_more_than_any_array_has_room_for() -> None:
    """A policy in Python is asked order by order: each finds the room that it needs, and none is lost or repeated."""
    done = run(scenario([job("a", 0, 3, 10)], [(2, 1), (1, 1)]), Undecided())
    assert done.verify() == []
    decisions = done.schedule.decisions
    assert len(decisions.filter(decisions["verb"] == "suspend")) == 500
    assert decisions["time"].unique().to_list() == [0]
    assert done.schedule.jobs["completion"].to_list() == [10_000_000]


def exact(array: np.ndarray, need: int) -> np.ndarray:
    """The array with room for `need` rows, and for none beside them."""
    longer = np.zeros((max(need, len(array)), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@pytest.fixture
def no_spare_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrays get the room that is asked for, and Python's own functions refuse an index behind their ends."""

    def room(case: ledger.Case, rows: ledger.Ledger, _: int) -> int:
        return room_for_event(case, rows, n_arrivals(rows, len(rows.jobs)))

    monkeypatch.setattr(ledger, "longer", exact)
    monkeypatch.setattr(arrays, "room_for_event", room)
    monkeypatch.setattr(arrays.EngineArrays, "_grow", grow_exactly)
    with interpreted():
        yield


def grow_exactly(engine: arrays.EngineArrays, room: int) -> None:
    """As the engine's own, without room for later orders."""
    engine.ledger = ledger.with_room(engine.ledger, room)
    engine._refresh()


@pytest.mark.usefixtures("no_spare_room")
@pytest.mark.parametrize("compiled", [True, False], ids=["loop", "events"])
@pytest.mark.parametrize("policy", ["srtf", "tiresias:limit_s=2,knob=0.3", "fifo:backfill=true", "preemptive", "drf"])
def test_an_event_and_an_order_add_no_more_rows_than_they_ask_room_for(policy: str, *, compiled: bool) -> None:
    for instance in random_scenarios(range(6)):
        chosen: Policy = make_policy(policy)
        kernel = Kernel(instance, chosen)
        world = SimulatedWorld(kernel)
        assert not compiled or use_loop(world, kernel)
        drive_to_end(kernel, world)
        kernel.validate_state()
