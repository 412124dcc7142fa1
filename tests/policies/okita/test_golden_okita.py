"""Okita on the cases worked out by hand, with both ways to find the tentative plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders.sites_alone import Alone, run
from golden.okita_cases import CASES, Case, Row
from skedge.policies.okita.alg1 import Okita, OkitaDecision, OkitaParams
from skedge.policies.okita.osf import TentativePlan
from skedge.policies.okita.sites import Sites

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
both_ways = pytest.mark.parametrize("search", ["bounded", "every"])


def scheduler(case: Case, **params: Any) -> Okita:
    sites = Sites(np.array(case.capacity, float), np.array(case.cost, float))
    return Okita(sites, OkitaParams(**case.params, **params))


def shown(plan: TentativePlan) -> tuple[Any, ...]:
    at = plan.placement
    return plan.workers, plan.slots, tuple(at.workers.tolist()), at.ps, pytest.approx(plan.bandwidth, rel=1e-9)


def check(case: Case, decision: OkitaDecision, row: Row) -> None:
    assert (decision.job, decision.verb) == (row.job, row.verb)
    assert decision.priority == pytest.approx(row.priority, rel=1e-9)
    assert tuple(decision.left.tolist()) == row.left
    assert decision.tentative is not None
    assert shown(decision.tentative) == row.plan
    assert (decision.conflict is None) == (row.conflict is None)
    if decision.conflict is not None and row.conflict is not None:
        made = decision.conflict
        assert (made.occupant, made.release) == row.conflict[:2]
        bandwidth = None if made.migrated_plan is None else made.migrated_plan.bandwidth
        for got, expected in zip((bandwidth, made.migrate_cost, made.delay_cost), row.conflict[2:], strict=True):
            assert got == (expected if expected is None else pytest.approx(expected, rel=1e-9))
    if row.ps is None:
        assert decision.placement is None
        assert decision.transfer is None
        return
    assert decision.placement is not None
    assert decision.transfer is not None
    assert (tuple(decision.placement.workers.tolist()), decision.placement.ps) == (row.workers, row.ps)
    assert tuple(decision.transfer.trained.tolist()) == row.trained
    assert sorted(map(tuple, decision.transfer.moves.tolist())) == sorted(row.moves)
    one = next(one for one in case.jobs if one.id == row.job)
    costs = (decision.placement.cost, one.chunk_mb * decision.transfer.cost_per_mb)
    assert costs == pytest.approx((row.parameter_cost, row.data_cost), rel=1e-9)


@all_cases
@both_ways
def test_every_slot_is_the_one_worked_out_by_hand(case: Case, search: str) -> None:
    """Order, tentative plans, conflicts, placements, what is trained and what moves."""
    made = list(run(scheduler(case, search=search), case.jobs))
    assert [(slot, len(decisions)) for slot, decisions in made] == [(slot, len(rows)) for slot, rows in case.slots]
    for (_, decisions), (_, rows) in zip(made, case.slots, strict=True):
        for decision, row in zip(decisions, rows, strict=True):
            check(case, decision, row)


@all_cases
def test_costs_are_those_worked_out_by_hand(case: Case) -> None:
    """Last slots, latency and bandwidth costs of the jobs, and the sums."""
    made = Alone(scheduler(case))
    for _ in made.run(case.jobs):
        pass
    for job, last, latency, bandwidth in case.outcomes:
        outcome = made.outcomes[job]
        assert (outcome.status, outcome.last) == ("done", last)
        assert (outcome.latency, outcome.bandwidth) == pytest.approx((latency, bandwidth), rel=1e-9)
    done = made.outcomes.values()
    assert sum(one.latency for one in done) == pytest.approx(case.latency, rel=1e-9)
    assert sum(one.bandwidth for one in done) == pytest.approx(case.bandwidth, rel=1e-9)
