"""Okita's decisions on random sites, against loops in exact fractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders.site_instances import draw_jobs, draw_sites
from builders.sites_alone import Alone
from reference.okita import Plain, Row
from skedge.policies.okita.alg1 import Okita, OkitaDecision, OkitaParams


def same(decision: OkitaDecision, row: Row) -> None:
    """Everything that was decided, and the costs."""
    plan = decision.tentative
    assert plan is not None
    assert (decision.job, decision.verb) == (row.job, row.verb)
    assert decision.priority == pytest.approx(float(row.priority), rel=1e-9, abs=1e-12)
    assert (plan.workers, plan.slots) == (row.plan.count, row.plan.slots)
    assert (plan.placement.workers.tolist(), plan.placement.ps) == (row.plan.workers, row.plan.ps)
    assert plan.bandwidth == pytest.approx(float(row.plan.cost), rel=1e-9)
    assert (decision.conflict is None) == (row.costs is None)
    if decision.conflict is not None and row.costs is not None:
        made = decision.conflict
        assert (made.occupant, made.release) == row.occupant
        for got, exact in zip((made.migrate_cost, made.delay_cost), row.costs, strict=True):
            assert got == (None if exact is None else pytest.approx(float(exact), rel=1e-9))
    if row.chosen is None:
        assert decision.placement is None
        return
    assert decision.placement is not None
    assert decision.transfer is not None
    assert (decision.placement.workers.tolist(), decision.placement.ps) == (row.chosen.workers, row.chosen.ps)
    assert decision.transfer.trained.tolist() == row.trained
    moves = {(a, b): n for a, b, n in decision.transfer.moves.tolist()}
    assert moves == {(a, b): n for (a, b), n in row.moved.items() if a != b}


def the_fast_path_decides_as_the_plain_one(seed: int, chosen: dict[str, Any]) -> None:
    """Every decision of every slot, against loops over all N and all PS sites in exact fractions."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng, asymmetric=bool(rng.integers(2)))
    jobs = draw_jobs(rng, sites, int(rng.integers(1, 6)), fits=bool(rng.integers(2)))
    params = OkitaParams(**chosen)
    scheduler, plain = Alone(Okita(sites, params)), Plain(sites, jobs, params)
    for (slot, decisions), (expected, rows) in zip(scheduler.run(jobs), plain.run(), strict=True):
        assert slot == expected
        for decision, row in zip(decisions, rows, strict=True):
            assert isinstance(decision, OkitaDecision)
            same(decision, row)
    never = [job for job, outcome in scheduler.outcomes.items() if outcome.status == "never"]
    assert sorted(never) == sorted(plain.never)
    for job, (last, latency, bandwidth) in plain.done.items():
        outcome = scheduler.outcomes[job]
        assert outcome.last == last
        assert (outcome.latency, outcome.bandwidth) == pytest.approx((float(latency), float(bandwidth)), rel=1e-9)
