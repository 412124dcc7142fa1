"""What `explain` shows of Okita, against the numbers worked out by hand in the golden cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders.sites_alone import run
from golden.okita_cases import DATA_TRANSFER, MIGRATE, PRIORITY, Case
from skedge.explanation.explain import explain
from skedge.policies.okita.alg1 import Okita, OkitaParams
from skedge.policies.okita.explain import PlacementExplanation, explain_decision
from skedge.policies.okita.sites import Sites
from skedge.simulate import run as whole_run
from skedge.testing import site_scenario


def terms_of(case: Case, slot: int, job: int) -> PlacementExplanation:
    sites = Sites(np.array(case.capacity, float), np.array(case.cost, float))
    decisions = dict(run(Okita(sites, OkitaParams(**case.params)), case.jobs))[slot]
    return explain_decision(sites, OkitaParams(), {one.id: one for one in case.jobs}, slot, decisions, job)


def test_the_enumeration_and_the_ps_sites_of_a_job_alone() -> None:
    """Job 3 of the second case: 16 for N = 1, 12 for N = 2; every PS site costs 6, the last wins, site 1 is next."""
    found = terms_of(MIGRATE, 2, 3)
    assert [
        (one.workers, one.slots, one.parameter_cost, one.data_cost, one.latency, one.total) for one in found.choices
    ] == [
        (1, 2, 6, 0, 10, 16),
        (2, 1, 6, 0, 6, 12),
    ]
    assert (found.placement.ps, found.exchange, found.runner_up) == (2, 6, (1, 6))
    assert found.quality.free.tolist() == [1, 1, 1]
    assert found.quality.distance.tolist() == [-4.5, -3, -4.5]
    assert found.quality.data.tolist() == [0, 1, 0]
    assert found.quality.total.tolist() == [-3.5, -1, -3.5]


def test_a_migrated_job_is_explained_by_what_was_left() -> None:
    """Job 2 of the second case: site 0 is full, so Q = (-0.5, 0, -0.5); the PS at site 2 would cost 2."""
    found = terms_of(MIGRATE, 1, 2)
    assert found.quality.total.tolist() == [-0.5, 0, -0.5]
    assert (found.placement.ps, found.exchange, found.runner_up) == (1, 0, (2, 2))
    assert found.decision.conflict is not None
    assert (found.decision.conflict.migrate_cost, found.decision.conflict.delay_cost) == (70, 100)
    assert found.decision.transfer is not None
    assert found.decision.transfer.moves.tolist() == [[0, 1, 4]]


def test_all_numbers_of_workers_of_the_third_case() -> None:
    """Bandwidth 2, 10, 10, 14 in windows of 4, 2, 2, 1 slots; job 2 migrates: its PS is at 2, and could be at 1."""
    found = terms_of(DATA_TRANSFER, 1, 1)
    bandwidths = [(one.slots, one.parameter_cost + one.data_cost) for one in found.choices]
    assert bandwidths == [(4, 2), (2, 10), (2, 10), (1, 14)]
    second = terms_of(DATA_TRANSFER, 1, 2)
    assert [one.total for one in second.choices] == [122, 70, 70, 44]
    assert (second.placement.ps, second.exchange, second.runner_up) == (2, 6, (1, 6))


def test_explain_has_the_enumeration_in_tables() -> None:
    """A row for each number of workers that is compared."""
    done = whole_run(site_scenario(1, jobs=10), "okita")
    told = [explain(done, name).terms for name in done.scenario.jobs.ids]
    rows = [terms["by_workers"] for terms in told if terms is not None and "by_workers" in terms]
    assert len(rows) > 5
    workers = [[row["workers"] for row in table] for table in rows]
    assert all(len(set(one)) == len(one) and min(one) >= 1 for one in workers)


def test_a_delayed_job_is_explained_by_its_tentative_plan() -> None:
    """Job 3 of the fourth case: N = 2 next to the PS at site 0, 4 + 90 e^0.25; it finds no room and waits."""
    found = terms_of(PRIORITY, 2, 3)
    assert found.decision.verb == "delay"
    assert [one.total for one in found.choices] == pytest.approx([2 + 90 * math.exp(0.5), 4 + 90 * math.exp(0.25)])
    assert (found.placement.ps, found.exchange, found.runner_up) == (0, 4, (1, 8))
    with pytest.raises(KeyError):
        terms_of(PRIORITY, 3, 1)
