"""PD-ORS and OASiS on random machines, against the plain path and enumeration."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume

from reference import pdors as plain
from reference import pdors_by_enumeration as enumerated
from reference import pdors_job
from skedge.core.model.cluster import Floats
from skedge.core.model.value import Sigmoid
from skedge.policies.oasis.on_resources import Oasis
from skedge.policies.pdors.admission import Admission
from skedge.policies.pdors.alg4 import PdorsAdmission, PdorsParams
from skedge.policies.pdors.job import TrainingJob
from skedge.policies.pdors.prices import pdors_prices


def draw_job(rng: np.random.Generator, number: int, horizon: int, *, resources: int, small: bool) -> TrainingJob:
    """A job whose work fills a few slots with a few workers, and that its batch lets be complete before the horizon.

    `small`: with placements few enough to enumerate.
    """
    while (job := _draw_job(rng, number, horizon, resources=resources, small=small)).shortest(job.external) > (
        horizon - job.arrival
    ):
        pass
    return job


def _draw_job(rng: np.random.Generator, number: int, horizon: int, *, resources: int, small: bool) -> TrainingJob:
    batch = int(rng.integers(1, 4 if small else 25))
    tau = float(rng.choice([0.05, 0.08, 0.1]))
    worker, ps = rng.integers(0, 4, (2, resources))
    worker[rng.integers(resources)], ps[rng.integers(resources)] = 1, 1
    external = float(rng.choice([50, 100, 400]))
    return TrainingJob(
        id=number, arrival=int(rng.integers(0, horizon)),
        work=int(rng.integers(5, 30) * batch), batch=batch, sample_time=tau,
        gradient_mb=float(rng.choice([0, 1, 5])), ratio=float(rng.choice([0.5, 1, 1.5, 3])),
        internal_mb=external * float(rng.choice([1, 2, 10])), external_mb=external,
        worker=tuple(worker.tolist()), ps=tuple(ps.tolist()),
        utility=Sigmoid(float(rng.uniform(1, 100)), float(rng.choice([0, 0.5, 2])), float(rng.uniform(1, 4))),
        levels=int(rng.integers(1, 4 if small else 9)),
    )  # fmt: skip


def instance(seed: int, *, small: bool) -> tuple[list[TrainingJob], Floats, int, np.random.Generator]:
    rng = np.random.default_rng(seed)
    horizon, resources = (3, int(rng.integers(1, 3))) if small else (6, int(rng.integers(1, 5)))
    machines = int(rng.integers(1, 3 if small else 9))
    jobs = [draw_job(rng, i, horizon, resources=resources, small=small) for i in range(3 if small else 8)]
    jobs.sort(key=lambda job: (job.arrival, job.id))
    capacity = rng.integers(1, 5 if small else 30, (machines, resources)).astype(float)
    return jobs, capacity, horizon, rng


def load_at_random(scheduler: Admission, rng: np.random.Generator) -> None:
    """Take random parts of all machines, so that no two placements cost the same."""
    machines = np.arange(len(scheduler.loads.capacity))
    for t in range(scheduler.horizon):
        part = rng.uniform(0, 0.6, scheduler.loads.capacity.shape)
        scheduler.loads.take(t, machines, part * scheduler.loads.capacity)


def make(jobs: list[TrainingJob], capacity: Floats, horizon: int, seed: int = 1, **params: Any) -> PdorsAdmission:
    prices = pdors_prices(jobs, capacity, horizon)
    return PdorsAdmission(capacity, horizon, prices, np.random.default_rng(seed), PdorsParams(**params))


def the_quick_path_is_the_plain_path(seed: int, gain: float, *, repair: bool = True) -> None:
    """Same costs and placements for the same draws, in every slot and at every level.

    Where worker and PS ask for resources in the same proportion they can change places at no cost: the relaxation then
    has several optima, and the draws are of different ones.
    """
    jobs, capacity, horizon, rng = instance(seed, small=False)
    assume(np.linalg.matrix_rank(np.stack(jobs[0].demands)) == 2)
    quick = make(jobs, capacity, horizon, seed, gain=gain, tries=7, repair=repair)
    load_at_random(quick, rng)
    draws = np.random.default_rng(seed)
    job = jobs[0]
    theta = quick.slot_costs(job)
    for t in range(len(theta)):
        free, prices = quick.loads.free(job.arrival + t).tolist(), quick.loads.price[job.arrival + t].tolist()
        for v in range(1, theta.shape[1]):
            cost, where = plain.internal(job, free, prices, v)
            other, outside = plain.rounded(job, free, prices, v, rng=draws, gain=gain, tries=7, repair=repair)
            if plain.below(other, cost):
                cost, where = other, outside
            assert theta[t, v] == pytest.approx(cost, rel=1e-9)
            if where is not None:
                part = quick.placement(job, job.arrival + t, v, cost)
                assert enumerated.as_placement(part, len(capacity)) == where


def all_jobs_are_offered_as_by_the_plain_path(seed: int, *, repair: bool = True) -> bool:
    """Alg. 1 to 4 on loads at random, with the same draws: payoffs and schedules. False if no job is admitted.

    As in :func:`the_quick_path_is_the_plain_path`, workers and PSs must differ in what they ask for.
    """
    jobs, capacity, horizon, rng = instance(seed, small=False)
    assume(all(np.linalg.matrix_rank(np.stack(job.demands)) == 2 for job in jobs))
    quick = make(jobs, capacity, horizon, seed, gain=1.0, tries=7, repair=repair)
    load_at_random(quick, rng)
    theta = partial(plain.alg_4, rng=np.random.default_rng(seed), gain=1.0, tries=7, repair=repair)
    offers = plain.pd_ors(jobs, capacity.tolist(), horizon, theta, quick.loads.load.copy())
    admitted = 0
    for job, offer in zip(jobs, offers, strict=True):
        answer = quick.offer(job)
        assert (answer.plan.payoff if answer.plan else -np.inf) == pytest.approx(offer.payoff, rel=1e-6, abs=1e-6)
        if answer.admitted and answer.plan is not None:
            plan = [(part.slot, enumerated.as_placement(part, len(capacity))) for part in answer.plan.slots]
            assert plan == offer.schedule
            admitted += 1
        else:
            assert offer.schedule == []
    return admitted > 0


def theta_is_the_optimum_of_all_placements(seed: int) -> None:
    """In exact mode, on one or two machines; rounded theta is never below it."""
    jobs, capacity, horizon, _ = instance(seed, small=True)
    exact, rounded = (make(jobs, capacity, horizon, theta=mode) for mode in ("exact", "rounded"))
    for job in jobs:
        found, other = exact.slot_costs(job), rounded.slot_costs(job)
        free, prices = exact.loads.free(job.arrival).tolist(), exact.loads.price[job.arrival].tolist()
        for v in range(found.shape[1]):
            assert found[0, v] == pytest.approx(enumerated.exact_theta(job, free, prices, v), rel=1e-7)
            assert other[0, v] >= found[0, v] * (1 - 1e-7)
        assert (
            found.shape[1] > pdors_job.quanta(job)
            or enumerated.exact_theta(job, free, prices, found.shape[1]) == np.inf
        )


def the_payoff_is_the_best_of_all_completions(seed: int) -> None:
    """Alg. 2 in exact mode, against the plain path over enumerated theta; Theta grows with V there."""
    jobs, capacity, horizon, _ = instance(seed, small=True)
    made, job = make(jobs, capacity, horizon, theta="exact"), jobs[0]
    free, prices = capacity.tolist(), made.loads.price[0].tolist()
    memo = [enumerated.exact_theta(job, free, prices, v) for v in range(pdors_job.quanta(job) + 1)]
    levels = range(pdors_job.quanta(job) + 1)
    grown = [plain.alg_3(lambda _, v: memo[v], job.arrival, horizon - 1, v)[0] for v in levels]
    assert grown == sorted(grown)
    expected, answer = enumerated.best_payoff(lambda _, v: memo[v], job, horizon), made.offer(job)
    if expected == -np.inf:
        assert answer.plan is None
        assert answer.shortfall == np.inf
    else:
        assert answer.plan is not None
        assert answer.plan.payoff == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert answer.admitted == (answer.plan.payoff > 0)


def oasis_is_exact_pdors_where_nothing_can_share_a_machine(seed: int) -> None:
    """At the same prices, with workers and PSs of different resources on machines that have one of them each."""
    rng = np.random.default_rng(seed)
    jobs = [
        TrainingJob(
            i, int(rng.integers(0, 3)), int(rng.integers(10, 60)), 4, 0.05, float(rng.integers(0, 20)),
            float(rng.choice([1, 2, 3])), 200, 100, (int(rng.integers(1, 3)), 0), (0, int(rng.integers(1, 3))),
            Sigmoid(float(rng.uniform(5, 50)), float(rng.choice([0, 1])), 2), 3,
        )
        for i in range(4)
    ]  # fmt: skip
    jobs.sort(key=lambda job: (job.arrival, job.id))
    capacity = np.array([[6.0, 0], [0, 5], [4, 0], [0, 7]])
    prices = pdors_prices(jobs, capacity, 4)
    both = [PdorsAdmission(capacity, 4, prices, rng, PdorsParams(theta="exact")), Oasis(capacity, 4, prices)]
    for scheduler in both:
        load_at_random(scheduler, np.random.default_rng(seed))
    for job in jobs:
        one, other = (scheduler.offer(job) for scheduler in both)
        assert one.admitted == other.admitted
        assert one.cost == pytest.approx(other.cost, rel=1e-6)
