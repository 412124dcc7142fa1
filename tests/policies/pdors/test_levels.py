"""Work levels that follow the job: what is lost by counting in them, against all placements and against finer ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedge.core.model.speed import ceil_almost
from skedge.core.model.value import Sigmoid
from skedge.policies.oasis.on_resources import Oasis, oasis_prices
from skedge.policies.pdors.admission import Admission
from skedge.policies.pdors.alg4 import PdorsAdmission
from skedge.policies.pdors.job import MAX_LEVELS, TrainingJob, levels_of
from skedge.policies.pdors.prices import pdors_prices
from skedge.scenario.file import default_scenario
from skedge.simulate import run

FEW = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def job(work: int, inside: float, outside: float, batch: int, **changes: object) -> TrainingJob:
    """A job of `work` samples with x^(i) = `inside` and x^(e) = `outside`, worth 50 whenever it is complete."""
    tau = inside - 1e-12 if inside < outside else inside
    gradient = (outside - tau) * batch / 2
    internal = 2 * gradient / ((inside - tau) * batch) if inside < outside else 1.0
    made = TrainingJob(0, 0, work, batch, tau, gradient, 1.0, internal, 1.0, (1, 0), (0, 1), Sigmoid(100, 0, 1))
    return replace(made, **changes)


def admits(kind: type[Admission], one: TrainingJob, capacity: np.ndarray, horizon: int) -> bool:
    """Whether an empty cluster takes the job; prices are far below what it is worth."""
    jobs = [one]
    if kind is Oasis:
        return Oasis(capacity, horizon, oasis_prices(jobs, capacity, horizon)).offer(one).plan is not None
    prices = pdors_prices(jobs, capacity, horizon)
    return PdorsAdmission(capacity, horizon, prices, np.random.default_rng(1)).offer(one).plan is not None


def most_samples(one: TrainingJob, capacity: np.ndarray, horizon: int, *, apart: bool) -> float:
    """Samples that the empty cluster can do in `horizon` slots: in each the best of all numbers of workers."""
    best = 0.0
    for workers in range(1, one.batch + 1):
        inside = not apart and bool((capacity[:, 0] >= workers).any() and _one_machine(capacity, workers))
        for_workers = capacity[::2, 0] if apart else capacity[:, 0]
        for_ps = capacity[1::2, 1] if apart else capacity[:, 1]
        if inside:
            best = max(best, workers / one.internal)
        elif for_workers.sum() >= workers and for_ps.sum() >= workers:
            best = max(best, workers / one.external)
    return best * horizon


def _one_machine(capacity: np.ndarray, workers: int) -> bool:
    return bool(((capacity[:, 0] >= workers) & (capacity[:, 1] >= workers)).any())


@FEW
@given(seeds)
def test_a_job_that_fits_an_empty_cluster_is_never_rejected_where_levels_are_exact(seed: int) -> None:
    """Workers and PSs of two resources of their own, one PS a worker; rates in the ratio of small whole numbers.

    Against the samples that all numbers of workers could do, tried one by one.
    """
    rng = np.random.default_rng(seed)
    inside, ratio, batch, horizon = 0.1, float(rng.choice([1, 1.5, 2, 4 / 3])), int(rng.integers(1, 8)), 3
    capacity = rng.integers(1, 5, (int(rng.integers(2, 4)), 2)).astype(float)
    one = job(int(rng.integers(5, 30 * batch)), inside, inside * ratio, batch)
    for kind, apart in ((PdorsAdmission, False), (Oasis, True)):
        rates = (one.external,) if apart else (one.internal, one.external)
        assert levels_of(one, rates).exact
        fits = most_samples(one, capacity, horizon, apart=apart) >= one.work * (1 - 1e-9)
        assert admits(kind, one, capacity, horizon) == fits, (kind, one.work)


@FEW
@given(st.integers(1, 10**7), st.floats(1e-5, 1), st.floats(1, 20), st.integers(1, 200))
def test_the_levels_make_the_job_complete_and_a_slot_loses_no_more_than_is_said(
    work: int, inside: float, slower: float, batch: int
) -> None:
    """All levels do V samples, one less does not; each number of workers does some step, short by less than a level."""
    one = job(work, inside, inside * slower, batch)
    rates = (one.internal, one.external)
    levels = levels_of(one, rates)
    assert levels.total <= MAX_LEVELS + 1
    assert (levels.total - 1) * levels.quantum < work <= levels.total * levels.quantum * (1 + 1e-9)
    for rate in rates:
        needs = [ceil_almost(n) for n in levels.workers(rate).tolist()]
        for workers in {1, batch, (1 + batch) // 2}:
            done = max(levels.steps[i] for i, n in enumerate(needs) if n <= workers) * levels.quantum
            could = min(workers / rate, levels.total * levels.quantum)
            assert could - levels.quantum * (1 + 1e-6) <= done <= could * (1 + 1e-6)
    if work * one.internal <= MAX_LEVELS:
        each = 1 / one.internal / levels.quantum
        assert each == pytest.approx(round(each)), "a worker on one machine does whole levels"


def test_one_rate_makes_a_level_of_a_worker_and_a_slot() -> None:
    """V x = 105 / 10.5 = 10 worker-slots, though a worker does 10.5 samples in a slot."""
    one = job(105, 1 / 10.5, 1 / 10.5, 4)
    levels = levels_of(one, (one.external,))
    assert (levels.total, levels.exact, levels.steps.tolist()) == (10, True, [0, 1, 2, 3, 4])
    assert levels.quantum == pytest.approx(10.5)


def test_rates_in_the_ratio_of_2_to_3_need_three_levels_a_worker() -> None:
    """On one machine a worker does 3 levels, elsewhere 2; slots are tried with the levels of 1 to 4 workers of both."""
    one = job(100, 0.1, 0.15, 4)
    levels = levels_of(one, (one.internal, one.external))
    assert (levels.total, levels.exact) == (30, True)
    assert levels.steps.tolist() == [0, 2, 3, 4, 6, 8, 9, 12]


def test_much_work_is_counted_in_parts_of_itself() -> None:
    one = job(10 * MAX_LEVELS + 7, 1.0, 1.5, 4)
    levels = levels_of(one, (one.internal, one.external))
    assert (levels.total, levels.exact) == (MAX_LEVELS, False)
    assert levels.quantum == one.work / MAX_LEVELS


def test_a_number_of_levels_is_kept_as_it_was() -> None:
    """N_q = 50 of 105 samples: levels of 3 samples, 35 of them, every one looked at that the batch lets be."""
    one = job(105, 0.1, 0.1, 4, levels=50)
    levels = levels_of(one, (one.external,))
    assert (levels.quantum, levels.total, levels.exact) == (math.ceil(105 / 50), 35, False)
    assert levels.steps.tolist() == list(range(14))


@pytest.mark.parametrize("seed", [1, 2])
def test_levels_that_follow_the_job_admit_what_fifty_reject_as_no_room(seed: int) -> None:
    """In s4 fewer jobs have no schedule at all."""
    scenario = default_scenario("s4", seed=seed)
    without = [
        run(scenario, f"pdors:levels={levels}").jobs["reason"].str.contains("^(no_room|never_fits)").sum()
        for levels in ("auto", 50)
    ]
    assert without[0] < without[1]
