"""Every order about workers is checked once, compiled; what says it in words finds the same rule, or none."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from builders.kernel import after_arrivals
from skedge.core.engine.apply import broken_rule
from skedge.core.engine.ledger import Case, Ledger
from skedge.core.engine.orders import ALLOCATE, ALLOCATE_EACH, REJECT, SUSPEND, EventFacts, OrderRows, add_order
from skedge.core.errors import OrderError
from skedge.core.events import Allocate, Order, Reject, Suspend, ps_in
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
from skedge.platform.jit import CompiledFunction, interpreted
from skedge.policies.gangs import srtf
from skedge.policies.gangs.base import GangState
from skedge.simulate import run
from skedge.testing import small_scenario

_VERB_OF: dict[type, int] = {Suspend: SUSPEND, Reject: REJECT}


def _random_order(rng: np.random.Generator) -> Order:
    """An order that is often right and often wrong, on one of the two jobs that have arrived or on none."""
    job = int(rng.choice([0, 1, 1, 2]))
    kind = rng.integers(8)
    if kind == 0:
        return Suspend(job)
    if kind == 1:
        return Reject(job, "no")
    servers = rng.choice([-1, 0, 0, 1, 1, 2, 3], size=rng.integers(0, 3))
    placement = tuple((int(server), int(n)) for server, n in zip(servers, rng.integers(0, 3, 2), strict=False))
    return Allocate(job, placement, ps_in(int(rng.integers(-1, 4))), gang=bool(rng.integers(5)))


def _rule(kernel: Kernel, order: Order) -> int:
    """The rule that the compiled checks say."""
    engine = kernel.engine
    if not isinstance(order, Allocate):
        placement, ps, verb = np.zeros((0, 2), np.int64), -1, _VERB_OF[type(order)]
    else:
        placement = np.array(sorted(order.where), np.int64).reshape(-1, 2)
        ps, verb = order.ps[0][0], ALLOCATE if order.gang else ALLOCATE_EACH
    with interpreted():
        return int(broken_rule(engine.case, engine.ledger, verb, order.job, placement, ps))


def _words(kernel: Kernel, order: Order) -> str:
    """The rule in the sentence about the order; empty if there is none."""
    try:
        if isinstance(order, Allocate) and 0 <= order.job < kernel.arrived and kernel.in_system(order.job):
            kernel.books._make_way(order)
            kernel.books.check(order)
        else:
            accept(kernel, order)
    except OrderError as error:
        return error.rule
    return ""


@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_checks_say_what_the_sentences_say(seed: int) -> None:
    """500 random orders, one after the other where they are right; every rule of workers in slots is among them."""
    rng, rules = np.random.default_rng(seed), set[int]()
    kernel = after_arrivals(cloud=bool(seed % 2))
    for _ in range(500):
        order = _random_order(rng)
        rule = _rule(kernel, order)
        assert _words(deepcopy(kernel), order) == (f"M{rule}" if rule else ""), order
        rules.add(rule)
        if rule == 0:
            accept(kernel, order)
        if not len(kernel.active()):
            kernel = after_arrivals(cloud=bool(seed % 2))
    assert {0, 1, 2, 4, 5, 13, 24} <= rules


def test_a_compiled_decision_that_breaks_a_rule_ends_the_run_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It suspends a job that holds nothing."""

    def decide(_case: Case, _ledger: Ledger, _state: GangState, _facts: EventFacts, orders: OrderRows) -> None:
        add_order(orders, SUSPEND, 0, -1, 0, 0)

    def loop(handle: Any, state: GangState, events: int) -> int:
        return int(srtf.run(handle.case, handle.ledger, state, handle.facts, handle.orders, events))

    monkeypatch.setattr(srtf, "decide", decide)
    monkeypatch.setattr(srtf.Srtf, "loop", CompiledFunction(loop))
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    monkeypatch.setattr("skedge.simulate.SMALL", 0)
    with interpreted(), pytest.raises(OrderError, match="holds no workers: nothing to suspend"):
        run(small_scenario(0), "srtf")
