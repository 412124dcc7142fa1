"""PD-ORS on the cases worked out by hand, with both ways to solve the relaxation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from golden.pdors_cases import CASES, Case
from skedge.policies.pdors.admission import AdmissionAnswer
from skedge.policies.pdors.alg4 import PdorsAdmission, PdorsParams
from skedge.policies.pdors.job import levels_of
from skedge.policies.pdors.prices import pdors_prices

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
both_ways = pytest.mark.parametrize("relaxation", ["parametric", "highs"])


def scheduler(case: Case, **params: Any) -> PdorsAdmission:
    capacity, completion = np.array(case.capacity, float), case.completion
    prices = pdors_prices(case.jobs, capacity, case.horizon, completion)  # type: ignore[arg-type]
    chosen = PdorsParams(**{"theta": case.theta, "completion": completion, "tries": 5, **params})
    return PdorsAdmission(capacity, case.horizon, prices, np.random.default_rng(1), chosen)


def check(case: Case, scheduler: PdorsAdmission, answers: list[AdmissionAnswer]) -> None:
    for answer, expected in zip(answers, case.outcomes, strict=True):
        assert answer.admitted == (expected is not None)
        if expected is None:
            continue
        plan = answer.plan
        assert plan is not None
        got = [
            (
                p.slot,
                p.quanta,
                p.kind,
                tuple(zip(p.machines, p.workers, p.ps, strict=True)),
                pytest.approx(p.cost, rel=1e-12),
            )
            for p in plan.slots
        ]
        assert got == list(expected.plan)
        assert plan.completion == expected.completion
        numbers = (plan.utility, plan.cost, plan.payoff)
        assert numbers == pytest.approx((expected.utility, expected.cost, expected.payoff), rel=1e-12)
    total = sum(a.plan.utility for a in answers if a.admitted and a.plan)
    assert total == pytest.approx(case.total_utility, rel=1e-12)
    assert scheduler.dual == pytest.approx(case.dual, rel=1e-12)


@all_cases
def test_price_constants_and_quanta_are_those_worked_out_by_hand(case: Case) -> None:
    """U^r, L, mu, D_0, and the levels of work of every job."""
    made = scheduler(case)
    prices = made.loads.prices
    assert prices.high[0] == pytest.approx(case.high, rel=1e-12)
    assert (prices.low[0], prices.mu[0]) == pytest.approx((case.low, case.mu), rel=1e-12)
    assert made.dual == pytest.approx(case.dual_initial, rel=1e-12)
    levels = [levels_of(job, (job.internal, job.external)) for job in case.jobs]
    assert tuple((one.quantum, one.total) for one in levels) == case.quanta


@all_cases
@both_ways
def test_plans_costs_and_duals_are_those_worked_out_by_hand(case: Case, relaxation: str) -> None:
    """The case in the mode that it is made for."""
    made = scheduler(case, relaxation=relaxation)
    check(case, made, [made.offer(job) for job in case.jobs])


@all_cases
@both_ways
def test_rounding_gives_the_same_on_cases_whose_relaxation_is_integral(case: Case, relaxation: str) -> None:
    """Of the five all are: one machine, where the internal case wins, or one possible placement."""
    made = scheduler(case, relaxation=relaxation, theta="rounded")
    check(case, made, [made.offer(job) for job in case.jobs])
