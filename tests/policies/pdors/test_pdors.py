"""PD-ORS and OASiS: against the plain path, enumeration and the paper's claims; bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from builders.pdors import (
    all_jobs_are_offered_as_by_the_plain_path,
    draw_job,
    instance,
    load_at_random,
    make,
    oasis_is_exact_pdors_where_nothing_can_share_a_machine,
    the_payoff_is_the_best_of_all_completions,
    the_quick_path_is_the_plain_path,
    theta_is_the_optimum_of_all_placements,
)
from golden.pdors_cases import CASES
from reference import pdors as plain
from reference import pdors_by_enumeration as enumerated
from reference import pdors_job
from skedge.core.errors import ScenarioError, SolverError
from skedge.core.model.speed import ceil_almost, servers_for
from skedge.core.model.ties import better
from skedge.core.model.value import Sigmoid
from skedge.policies.oasis.on_resources import Oasis, oasis_prices
from skedge.policies.pdors import alg4 as pdors
from skedge.policies.pdors.admission import Admission, AdmissionAnswer, prefix_table
from skedge.policies.pdors.alg4 import PdorsAdmission, PdorsParams, packing_gain
from skedge.policies.pdors.job import TrainingJob
from skedge.policies.pdors.parametric_lp import DONE, GAVE_UP, corners, sweep
from skedge.policies.pdors.prices import MIN_PRICE_RATIO, CalibrationJobs, Prices, calibrate, pdors_prices, split
from skedge.policies.pdors.rounding import Relaxation, Subproblem, relax, room_for, solve, subproblem

FEW = settings(max_examples=60, deadline=None)
TINY = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def total(answers: list[AdmissionAnswer]) -> float:
    return sum(a.plan.utility for a in answers if a.admitted and a.plan)


def admitted(jobs: list[TrainingJob], answers: list[AdmissionAnswer]) -> list[tuple[TrainingJob, Any]]:
    return [(job, a.plan) for job, a in zip(jobs, answers, strict=True) if a.admitted]


# -- the relaxation ----------------------------------------------------------------------------------------------------


@FEW
@given(seeds, st.booleans())
def test_the_sweep_finds_the_optimum_of_every_level(seed: int, alike: bool) -> None:
    """As HiGHS does one by one, to 1e-9, and its solutions satisfy all rows; `alike` machines form classes."""
    jobs, capacity, horizon, rng = instance(seed, small=False)
    scheduler = make(jobs, np.tile(capacity[:1], (len(capacity), 1)) if alike else capacity, horizon)
    if not alike:
        load_at_random(scheduler, rng)
    job, loads = jobs[0], scheduler.loads
    m = subproblem(loads.free(0), loads.price[0], *job.demands, job.ratio, job.batch)
    needs = np.sort(rng.uniform(0.01, 30, 6))
    value, w, s = relaxation = Relaxation(np.zeros(len(needs)), *np.zeros((2, len(needs), len(capacity))))
    assert sweep(m, needs, relaxation) == DONE
    for i, need in enumerate(needs):
        expected, _, _ = plain.relaxed(job, m.free.tolist(), loads.price[0].tolist(), need)
        assert value[i] == pytest.approx(expected, rel=1e-9)
        assert relax(m, need)[0] == pytest.approx(expected, rel=1e-9)
        if expected < np.inf:
            assert (np.outer(w[i], m.worker) + np.outer(s[i], m.ps) <= m.free * (1 + 1e-9)).all()
            assert (w[i].sum(), s[i].sum()) == pytest.approx((need, need / job.ratio), rel=1e-9)
            assert m.worker_price @ w[i] + m.ps_price @ s[i] == pytest.approx(expected, rel=1e-9)


def test_corners_are_those_drawn_by_hand() -> None:
    """w + 2 s <= 8, 2 w + s <= 10, w <= 4.5: (0,4), (4,2), (4.5,1), (4.5,0)."""
    out = np.zeros((6, 2))
    n = corners(np.array([8.0, 10, 4.5]), np.array([1.0, 2, 1]), np.array([2.0, 1, 0]), out)
    assert out[:n].tolist() == [[0, 0], [0, 4], [4, 2], [4.5, 1], [4.5, 0]]


def test_a_machine_that_cannot_hold_one_worker_holds_none_in_the_relaxation() -> None:
    """P16: with 0.9 of a worker on each of three machines the relaxation without that rule has 1 worker."""
    m = subproblem(np.full((3, 1), 0.9), np.ones((3, 1)), np.array([1.0]), np.array([0.1]), 1.0, 1)
    assert relax(m, 1.0)[0] == np.inf
    assert room_for(m.free, m.worker).tolist() == [0, 0, 0]
    relaxation = Relaxation(np.zeros(1), *np.zeros((2, 1, 3)))
    assert sweep(m, np.array([1.0]), relaxation) == DONE
    assert relaxation.cost[0] == np.inf


def test_without_the_ps_row_no_ps_would_be_bought() -> None:
    """P1: W_1 = 3, gamma = 1, price 1 each: 3 workers alone cost 3; with PSs it is 6."""
    m = subproblem(np.array([[10.0]]), np.array([[1.0]]), np.array([1.0]), np.array([1.0]), 1.0, 5)
    assert relax(m, 3.0)[0] == pytest.approx(6)


@FEW
@given(seeds)
def test_where_a_kind_costs_nothing_no_more_of_it_is_taken_than_is_needed(seed: int) -> None:
    """P5: workers, or PSs, of an unpriced resource alone: as many as (26) and the ratio ask for, in both programs."""
    rng = np.random.default_rng(seed)
    free, price = rng.integers(3, 30, (3, 2)).astype(float), np.zeros((3, 2))
    price[:, int(rng.integers(2))] = rng.uniform(0.1, 1, 3)
    need, ratio = float(rng.uniform(0.5, 8)), float(rng.choice([0.5, 1, 2, 3]))
    m = subproblem(free, price, np.array([1.0, 0.0]), np.array([0.0, 1.0]), ratio, 12)
    cost, whole_w, whole_s = solve(m, need)
    _, w, s = relax(m, need)
    if cost < np.inf:
        assert whole_w.sum() == ceil_almost(need)
        assert whole_s.sum() == servers_for(ceil_almost(need), ratio)
        assert (w.sum(), s.sum()) == pytest.approx((need, need / ratio))


# -- one slot ----------------------------------------------------------------------------------------------------------


@FEW
@given(seeds, st.sampled_from([0.7, 1.0, 1.3]), st.booleans())
def test_the_quick_path_is_the_plain_path(seed: int, gain: float, repair: bool) -> None:
    the_quick_path_is_the_plain_path(seed, gain, repair=repair)


@pytest.mark.thorough
@FEW
@given(seeds, st.booleans())
def test_all_jobs_are_offered_as_by_the_plain_path(seed: int, repair: bool) -> None:
    all_jobs_are_offered_as_by_the_plain_path(seed, repair=repair)


@TINY
@given(seeds)
def test_theta_is_the_optimum_of_all_placements(seed: int) -> None:
    theta_is_the_optimum_of_all_placements(seed)


def exhausted(job: TrainingJob, free: Any, prices: Any, v: int, gain: float, likely: float) -> float:
    """The cheapest rounding that holds, of all with a probability of `likely` or more, by (27), (28)."""
    best = np.inf
    need = v * pdors_job.quantum(job) * pdors_job.rate_time(job, inside=False)
    bound, w, s = plain.relaxed(job, free, prices, need)
    if pdors_job.up(need) > job.batch or bound == np.inf:
        return best
    lows = [math.floor(gain * x + 1e-7) for x in (*w, *s)]
    parts = [gain * x - low for x, low in zip((*w, *s), lows, strict=True)]
    ways = [[(low, 1 - p), (low + 1, p)][: 1 + (p > 1e-7)] for low, p in zip(lows, parts, strict=True)]
    for chosen in product(*ways):
        found = tuple(zip(*((n for n, _ in half) for half in (chosen[: len(w)], chosen[len(w) :])), strict=True))
        workers, pss = (sum(part[i] for part in found) for i in (0, 1))
        holds = pdors_job.up(need) <= workers <= job.batch and pss >= pdors_job.servers(job, workers)
        if (
            math.prod(p for _, p in chosen) >= likely
            and holds
            and all(pdors_job.fits(job, row, *counts) for row, counts in zip(free, found, strict=True))
        ):
            best = min(best, pdors_job.price_of(job, prices, found))
    return best


@pytest.mark.thorough
@FEW
@given(seeds, st.sampled_from([1.0, 1.2, 1.35]))
def test_theta_and_the_total_are_those_of_exhaustive_rounding_on_three_machines_and_slots(
    seed: int, gain: float
) -> None:
    """With 2,000 attempts: not below the best of all roundings, and not above the best likely one.

    At G = 1 mostly one rounding holds; above 1 several do.
    """
    rng = np.random.default_rng(seed)
    job = replace(draw_job(rng, 0, 3, resources=2, small=False), arrival=0)
    job = replace(job, levels=int(rng.integers(2, 6)), work=min(job.work, int(8 / job.external)))
    assume(np.linalg.matrix_rank(np.stack(job.demands)) == 2)
    made = make([job], rng.integers(4, 20, (3, 2)).astype(float), 3, seed, gain=gain, tries=2000)
    load_at_random(made, rng)
    theta, loads = made.slot_costs(job), made.loads
    low, high = np.full((2, 3, pdors_job.quanta(job) + 1), np.inf)
    low[:, 0] = high[:, 0] = 0.0
    for t in range(3):
        for v in range(1, theta.shape[1]):
            free, prices = loads.free(t).tolist(), loads.price[t].tolist()
            inside, _ = plain.internal(job, free, prices, v)
            lowest, likely = (min(inside, exhausted(job, free, prices, v, gain, least)) for least in (0.0, 0.01))
            if exhausted(job, free, prices, v, gain, 0.01) < np.inf:
                assert lowest * (1 - 1e-9) <= theta[t, v] <= likely * (1 + 1e-9)
                low[t, v], high[t, v] = lowest, likely
            else:  # repair, which has tests of its own
                low[t, v] = high[t, v] = theta[t, v]
    total, last = np.empty((3, pdors_job.quanta(job) + 1)), np.empty((3, pdors_job.quanta(job) + 1), np.int64)
    prefix_table(theta, np.arange(theta.shape[1]), total, last)
    least, most = (
        enumerated.split_cost(lambda t, v, of=of: of[t, v], 0, 2, pdors_job.quanta(job)) for of in (low, high)
    )
    assert least * (1 - 1e-9) <= total[2, -1] <= most * (1 + 1e-9)


@FEW
@given(seeds)
def test_internal_is_not_dearer_where_prices_are_equal_and_there_is_room(seed: int) -> None:
    """With equal prices, one machine with room for all and F loose; else it need not hold."""
    jobs, capacity, horizon, _ = instance(seed, small=False)
    roomy = np.full_like(capacity, 1e4)
    made = make(jobs, roomy, horizon)
    theta = made.slot_costs(jobs[0])
    assert all(
        made.placement(jobs[0], jobs[0].arrival, v, theta[0, v]).kind == "internal" for v in range(1, theta.shape[1])
    )


# -- the program over slots --------------------------------------------------------------------------------------------


@FEW
@given(seeds)
def test_the_prefix_table_is_the_recursion_and_all_splits(seed: int) -> None:
    """Theta for every last slot, against Alg. 3 memoised and against all splits of the work."""
    rng = np.random.default_rng(seed)
    slots, levels, most = 3, int(rng.integers(1, 6)), int(rng.integers(1, 4))
    theta = np.concatenate([np.zeros((slots, 1)), rng.uniform(1, 9, (slots, most))], axis=1)
    theta[rng.random(theta.shape) < 0.2] = np.inf
    theta[:, 0] = 0
    total, last = np.empty((slots, levels + 1)), np.empty((slots, levels + 1), np.int64)
    prefix_table(theta, np.arange(most + 1), total, last)

    def cost(t: int, v: int) -> float:
        return float(theta[t, v]) if v <= most else np.inf

    for t in range(slots):
        assert total[t, -1] == pytest.approx(plain.alg_3(cost, 0, t, levels)[0])
        assert total[t, -1] == pytest.approx(enumerated.split_cost(cost, 0, t, levels))
        if t > 0:
            assert total[t, -1] <= total[t - 1, -1] * (1 + 1e-9)


@TINY
@given(seeds)
def test_the_payoff_is_the_best_of_all_completions(seed: int) -> None:
    the_payoff_is_the_best_of_all_completions(seed)


# -- whole runs --------------------------------------------------------------------------------------------------------


@FEW
@given(seeds, st.sampled_from(["rounded", "exact"]))
def test_plans_satisfy_the_constraints_and_the_books_balance(seed: int, theta: str) -> None:
    """(3)-(7); payoffs are above 0; P grows by u, D by lambda + sum dp C; prices stay in [L, U] and never fall."""
    jobs, capacity, horizon, _ = instance(seed, small=theta == "exact")
    made = make(jobs, capacity, horizon, theta=theta)
    loads, answers = made.loads, []
    for job in jobs:
        before, prices = made.dual, loads.price.copy()
        answer = made.offer(job)
        answers.append(answer)
        rise = ((loads.price - prices) * capacity).sum()
        assert (loads.price >= prices).all()
        if answer.admitted and answer.plan:
            assert answer.plan.payoff > 0
            assert made.dual - before == pytest.approx(answer.plan.payoff + rise, rel=1e-9, abs=1e-9)
            paid = sum(
                pdors_job.price_of(job, prices[p.slot].tolist(), enumerated.as_placement(p, len(capacity)))
                for p in answer.plan.slots
            )
            assert answer.plan.cost == pytest.approx(paid, rel=1e-9)
            assert answer.plan.utility == pytest.approx(pdors_job.utility(job, answer.plan.completion - job.arrival))
        else:
            assert made.dual == before
            assert rise == 0
    assert enumerated.violations(admitted(jobs, answers), capacity.tolist(), horizon) == []
    high, low = loads.prices.high, loads.prices.low[:, None]
    used = np.broadcast_to(high > 0, loads.price.shape)
    assert (loads.price[used] >= np.broadcast_to(low, loads.price.shape)[used] * (1 - 1e-9)).all()
    assert (loads.price <= high * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("slot", "completion", "rule"),
    [
        ({"workers": (1,), "ps": (1,)}, 2, "(3)"),
        ({"workers": (3,), "ps": (3,)}, 2, "(4)"),
        ({"workers": (2,), "ps": (7,)}, 2, "(5)"),
        ({}, 4, "(6)"),
        ({"slot": 5}, 6, "(7)"),
        ({"ps": (1,)}, 2, "ratio"),
        ({"slot": 0}, 1, "two placements in one slot"),
    ],
)
def test_the_check_of_plans_finds_what_is_planted(slot: dict[str, Any], completion: int, rule: str) -> None:
    """Job 0 of the first case, 2 workers and 2 PSs in slots 0 and 1, with its second slot changed."""
    case = CASES["prices_spread_work"]
    plan = make(list(case.jobs), np.array(case.capacity, float), 4).offer(case.jobs[0]).plan
    assert plan is not None
    assert enumerated.violations([(case.jobs[0], plan)], case.capacity, 4) == []
    wrong = replace(plan, slots=(plan.slots[0], replace(plan.slots[1], **slot)), completion=completion)
    assert any(rule in found for found in enumerated.violations([(case.jobs[0], wrong)], case.capacity, 4))


@TINY
@given(seeds)
def test_no_policy_beats_the_offline_optimum(seed: int) -> None:
    """R-DMLRS over all schedules, as an integer program."""
    jobs, capacity, horizon, _ = instance(seed, small=True)
    jobs, horizon = [job for job in jobs if job.arrival < 2][:2], 2
    jobs = [job for job in jobs if sum(1 for _ in enumerated.placements(job, capacity.tolist())) <= 40]
    if not jobs:
        return
    best = enumerated.offline_optimum(jobs, capacity.tolist(), horizon)
    try:
        schedulers: list[Admission] = [make(jobs, capacity, horizon, theta=mode) for mode in ("rounded", "exact")]
        if len(capacity) > 1:
            schedulers.append(Oasis(capacity, horizon, oasis_prices(jobs, capacity, horizon)))
    except ScenarioError:
        # two slots can be too few for any job to be worth something, and then (14) has no price
        reject()
    for scheduler in schedulers:
        assert total([scheduler.offer(job) for job in jobs]) <= best * (1 + 1e-9) + 1e-9


@TINY
@given(seeds)
def test_the_dual_holds_for_schedules_that_fit_what_was_left(seed: int) -> None:
    """(11) under final prices, in exact mode: lambda >= u - cost of every schedule that fitted at decision time."""
    jobs, capacity, horizon, _ = instance(seed, small=True)
    jobs = [job for job in jobs if sum(1 for _ in enumerated.placements(job, capacity.tolist())) <= 40][:2]
    if not jobs:
        return
    made = make(jobs, capacity, horizon, theta="exact")
    open_to = []
    for job in jobs:
        load = made.loads.load.copy()
        answer = made.offer(job)
        open_to.append((job, load, answer.plan.payoff if answer.admitted and answer.plan else 0.0))
    for job, load, payoff in open_to:
        step = pdors_job.quantum(job)
        for u, parts in enumerated.schedules(job, capacity.tolist(), horizon):
            fits = all(
                pdors_job.fits(job, (capacity[h] - load[t, h]).tolist(), *counts)
                for t, placement in parts
                for h, counts in enumerate(placement)
            )
            rates = [pdors_job.rate_time(job, inside=pdors_job.is_inside(placement)) for _, placement in parts]
            work = sum(
                int(sum(w for w, _ in placement) / x / step + 1e-9)
                for (_, placement), x in zip(parts, rates, strict=True)
            )
            if fits and work >= pdors_job.quanta(job):
                cost = sum(pdors_job.price_of(job, made.loads.price[t].tolist(), placement) for t, placement in parts)
                assert payoff >= u - cost - 1e-6 * max(1.0, cost)


@FEW
@given(seeds)
def test_oasis_separates_workers_from_pss_and_keeps_the_constraints(seed: int) -> None:
    """(3)-(7), and the machines of each kind are those of :func:`split`."""
    jobs, capacity, horizon, _ = instance(seed, small=False)
    capacity = np.concatenate([capacity, capacity])
    made = Oasis(capacity, horizon, oasis_prices(jobs, capacity, horizon))
    answers = [made.offer(job) for job in jobs]
    assert enumerated.violations(admitted(jobs, answers), capacity.tolist(), horizon) == []
    hosts = set(split(len(capacity)).tolist())
    for _, plan in admitted(jobs, answers):
        for part in plan.slots:
            for h, w, s in zip(part.machines, part.workers, part.ps, strict=True):
                assert (w == 0) if h not in hosts else (s == 0)


@TINY
@given(seeds)
def test_oasis_is_exact_pdors_where_nothing_can_share_a_machine(seed: int) -> None:
    oasis_is_exact_pdors_where_nothing_can_share_a_machine(seed)


# -- prices ------------------------------------------------------------------------------------------------------------


@FEW
@given(seeds)
def test_constants_are_those_of_the_formulas(seed: int) -> None:
    """(13), (14) and mu, from the plain path; D_0 = T L sum C is at most half the least utility."""
    jobs, capacity, horizon, _ = instance(seed, small=False)
    high, low, mu = plain.constants(jobs, capacity.tolist(), horizon)
    prices = pdors_prices(jobs, capacity, horizon)
    assert prices.high[0].tolist() == pytest.approx(high, rel=1e-9)
    assert prices.mu[0] == pytest.approx(mu, rel=1e-9)
    assert prices.low[0] == pytest.approx(max(low, MIN_PRICE_RATIO * max(high)), rel=1e-9)
    if low > MIN_PRICE_RATIO * max(high):
        least = min(pdors_job.utility(job, horizon - job.arrival) for job in jobs)
        assert make(jobs, capacity, horizon).dual <= least / 2 * (1 + 1e-9)


@FEW
@given(seeds)
def test_constants_of_oasis_are_those_of_its_formulas_for_each_kind_of_machine(seed: int) -> None:
    """U_1, L_1 and eta_1 of the machines of workers (0, 2, ...), U_2, L_2, eta_2 of those of PSs; all as external.

    1/eta = max ceil(V x) sum w / (T sum c), as mu is kept; L = min f(T - a) / (4 mu ceil(V x) sum w).
    """
    jobs, capacity, horizon, _ = instance(seed, small=False)
    assume(len(capacity) > 1)
    prices = oasis_prices(jobs, capacity, horizon)
    of_job = [math.ceil(job.work * job.external - 1e-9) for job in jobs]
    for side, demands in ((0, [job.worker for job in jobs]), (1, [job.ps for job in jobs])):
        asked = [n * sum(demand) for n, demand in zip(of_job, demands, strict=True)]
        assume(min(asked) > 0)
        mu = max(horizon * capacity[side::2].sum() / one for one in asked)
        high = [
            max(job.utility(job.shortest(job.external)) / d[r] for job, d in zip(jobs, demands, strict=True) if d[r])
            if any(d[r] for d in demands) else 0.0
            for r in range(capacity.shape[1])
        ]  # fmt: skip
        least = min(job.utility(horizon - job.arrival) / (4 * mu * one) for job, one in zip(jobs, asked, strict=True))
        for machine in range(side, len(capacity), 2):
            assert prices.high[machine].tolist() == pytest.approx(high, rel=1e-9)
            assert prices.low[machine] == pytest.approx(max(least, MIN_PRICE_RATIO * max(high)), rel=1e-9)


def test_the_gain_of_lemma_1_is_of_the_least_room_that_holds_one() -> None:
    """Eq. (29): W_b = min(F, least b/B above 0). Machines hold 0, 3 and 8 workers and 0, 6 and 16 PSs; F = 5: 3."""
    job = replace(CASES["prices_spread_work"].jobs[0], batch=5, worker=(2.0,), ps=(1.0,))
    made = make([job], np.array([[0.5], [6.0], [16.0]]), 4, gain="eq29", delta=0.1)
    free = subproblem(np.array([[0.5], [6.0], [16.0]]), np.ones((3, 1)), *job.demands, job.ratio, job.batch)
    found = made._gains(job, free, np.array([1.0, 2.0]))
    assert found.tolist() == pytest.approx([packing_gain(0.1, 4, 3.0)] * 2)


def test_the_low_price_of_a_critical_job_is_kept_above_nought() -> None:
    """P6: u(20) = 1/(1 + e^(6 * 18)) is 1e-47; L = 1e-12 U."""
    job = replace(CASES["prices_spread_work"].jobs[0], utility=Sigmoid(1, 6, 2))
    prices = pdors_prices([job], np.array([[8.0]]), 20)
    assert prices.high[0, 0] == pytest.approx(0.25)
    assert prices.low[0] == pytest.approx(0.25e-12)
    assert np.isfinite(prices.at(np.array([[[0.0]], [[4.0]], [[8.0]]]), np.array([[8.0]]))).all()


def test_prices_run_from_low_to_high_and_grow() -> None:
    """Q(0) = L, Q(C) = U, Q(C/2) = sqrt(L U); nothing for a resource that no job uses."""
    prices, capacity = Prices(np.array([0.25]), np.array([[4.0, 0.0]]), (1.0,)), np.array([[8.0, 8.0]])
    got = [prices.at(np.array([[load, load]]), capacity)[0].tolist() for load in (0.0, 4.0, 8.0)]
    assert got == [[pytest.approx(p, rel=1e-12), 0.0] for p in (0.25, 1.0, 4.0)]


def test_an_unpriced_resource_still_limits() -> None:
    """P5: prices of a window without GPUs; a GPU job is admitted at no price for them, and not beyond what is there."""
    window = [CASES["prices_spread_work"].jobs[0]]
    plain_window = replace(window[0], worker=(1, 0), ps=(1, 0))
    gpu_job = replace(window[0], worker=(1, 1), ps=(1, 0))
    capacity = np.array([[100.0, 4.0]])
    made = PdorsAdmission(capacity, 4, pdors_prices([plain_window], capacity, 4), np.random.default_rng(1))
    answers = [made.offer(gpu_job) for _ in range(5)]
    assert [a.admitted for a in answers] == [True] * 4 + [False]
    assert made.loads.load[:, 0, 1].tolist() == [4, 4, 4, 4]
    assert not made.loads.price[:, 0, 1].any()


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_says_what_every_completion_costs_and_is_worth() -> None:
    """Job 1 of the case with a deadline: 8.93 for slot 0, then 2 L."""
    case = CASES["deadline_against_price"]
    made = make(list(case.jobs), np.array(case.capacity, float), case.horizon)
    made.offer(case.jobs[0])
    answer = made.offer(case.jobs[1])
    assert answer.ends.tolist() == [1, 2, 3]
    assert answer.utility == pytest.approx([20.99916, 20, 19.00083], rel=1e-6)
    assert answer.cost == pytest.approx([8.931979, 20 / 54, 20 / 54], rel=1e-6)
    assert answer.reason.startswith("admitted")
    assert answer.shortfall == 0


def test_a_rejection_names_the_prices_and_the_least_rise_that_would_have_helped() -> None:
    """A job worth 4 at a cost of 8 * 0.8838835 = 7.07; worth the shortfall more (and a little) it is admitted."""
    case = CASES["prices_spread_work"]
    capacity, prices = np.array(case.capacity, float), pdors_prices(case.jobs, np.array(case.capacity, float), 4)

    def third(worth: float) -> AdmissionAnswer:
        made = PdorsAdmission(capacity, 4, prices, np.random.default_rng(1))
        for job in case.jobs[:2]:
            made.offer(job)
        return made.offer(replace(case.jobs[2], utility=Sigmoid(2 * worth, 0, 2)))

    answer = third(4)
    assert not answer.admitted
    assert answer.reason.startswith("too_dear")
    assert answer.shortfall == pytest.approx(7.0710678 - 4, rel=1e-6)
    first = answer.dearest[0]
    assert (first.machine, first.resource, first.amount) == (0, 0, 4)
    assert first.price == pytest.approx(0.8838835, rel=1e-6)
    assert not third(4 + answer.shortfall * 0.999).admitted
    assert third(4 + answer.shortfall * 1.001).admitted


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"work": 400}, "never_fits: it takes 20 slots"),
        ({"work": 70, "levels": 1}, "never_fits: its 1 work levels are too coarse"),
        ({"worker": (9,)}, "never_fits: no server holds one of its workers"),
        ({"ps": (9,)}, "never_fits: no server holds one of its PSs"),
        ({"worker": (8,)}, "no_room"),
    ],
)
def test_a_job_that_cannot_be_complete_is_told_why(change: dict[str, Any], word: str) -> None:
    """Too long for the horizon, for its levels, for the machines."""
    case = CASES["prices_spread_work"]
    made = make(list(case.jobs), np.array(case.capacity, float), 4)
    answer = made.offer(replace(case.jobs[0], **change))
    assert (answer.admitted, answer.plan, answer.shortfall) == (False, None, np.inf)
    assert answer.reason.startswith(word)


def test_an_answer_that_is_only_asked_for_changes_nothing() -> None:
    """It is what the offer then says, the draws being the same; asked for twice, it is the same again."""
    case = CASES["prices_spread_work"]
    asked, offered = (make(list(case.jobs), np.array(case.capacity, float), 4) for _ in range(2))
    for job in case.jobs:
        before = (asked.dual, asked.loads.load.copy())
        first = asked.answer(job)
        assert asked.dual == before[0]
        assert (asked.loads.load == before[1]).all()
        again, then = asked.offer(job), offered.offer(job)
        assert first.plan == again.plan == then.plan
        assert first.reason == again.reason == then.reason


# -- options -----------------------------------------------------------------------------------------------------------


def scarce(**params: Any) -> tuple[PdorsAdmission, TrainingJob]:
    """Four machines that hold 2.5 workers or PSs each, for a job of 6 workers and 3 PSs in one slot."""
    job = TrainingJob(0, 0, 60, 8, 0.1, 0.0, 2, 100, 100, (2,), (2,), Sigmoid(100, 0, 1), 1)
    capacity = np.full((4, 1), 5.0)
    return make([job], capacity, 1, 1, **params), job


def test_repair_makes_up_for_what_no_attempt_holds() -> None:
    """The relaxation has 2.5 + 2.5 + 1 workers, so an attempt that packs has 5 of the 6.

    Four machines hold 8 whole workers or PSs, 9 are asked for: none. A fifth machine takes the sixth worker.
    """
    made, job = scarce()
    assert not made.offer(job).admitted
    assert made.outcomes.tolist() == [1, 0, 0, 0]
    roomy = make([job], np.full((5, 1), 5.0), 1)
    answer = roomy.offer(job)
    assert roomy.outcomes.tolist() == [0, 0, 1, 0]
    assert answer.plan is not None
    assert sum(answer.plan.slots[0].workers) == 6


def test_without_repair_a_job_that_no_attempt_fits_is_discarded() -> None:
    """As printed (Sec. V, l. 521): on the five machines of the test above no attempt has the six workers."""
    _, job = scarce()
    printed = make([job], np.full((5, 1), 5.0), 1, repair=False)
    answer = printed.offer(job)
    assert printed.outcomes.tolist() == [1, 0, 0, 0]
    assert not answer.admitted
    assert answer.plan is None
    assert answer.reason.startswith("no_room")


def test_cover_soft_takes_less_work_instead_of_none() -> None:
    """The same: what packs and has a PS for every 2 workers is taken, though (26) is missed."""
    made, job = scarce(cover_soft=True)
    plan = made.offer(job).plan
    assert plan is not None
    assert 1 <= sum(plan.slots[0].workers) < 6
    assert sum(plan.slots[0].ps) >= servers_for(sum(plan.slots[0].workers), 2)


@TINY
@given(seeds)
def test_the_integer_program_finds_what_repair_misses(seed: int) -> None:
    """With ``milp_after_repair`` a level is infeasible only if it is in exact mode, and no cost is above."""
    jobs, capacity, horizon, rng = instance(seed, small=False)
    one, helped, exact = (
        make(jobs, capacity, horizon, **more)
        for more in ({}, {"milp_after_repair": True}, {"theta": "exact"})  # type: ignore[arg-type]
    )
    state = int(rng.integers(2**31))
    for scheduler in (one, helped, exact):
        load_at_random(scheduler, np.random.default_rng(state))
    costs = [scheduler.slot_costs(jobs[0]) for scheduler in (one, helped, exact)]
    assert (np.isinf(costs[1]) == np.isinf(costs[2])).all()
    assert (costs[1] <= costs[0]).all()
    assert (costs[1] >= costs[2] * (1 - 1e-7)).all()


def test_a_sweep_that_gives_up_leaves_its_levels_to_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same as with HiGHS alone."""

    def surrender(problem: Subproblem, levels: Any, relaxation: Relaxation) -> int:
        relaxation.cost[:] = np.nan
        return GAVE_UP

    case = CASES["rounding_with_integral_lp"]
    expected = [make(list(case.jobs), np.array(case.capacity, float), 3).offer(job) for job in case.jobs[:1]]
    monkeypatch.setattr(pdors, "sweep", surrender)
    got = [make(list(case.jobs), np.array(case.capacity, float), 3).offer(job) for job in case.jobs[:1]]
    assert [a.plan for a in got] == [a.plan for a in expected]


@pytest.mark.parametrize("theta", ["rounded", "exact"])
def test_a_solver_that_fails_rejects_the_job_and_the_run_goes_on(theta: str) -> None:
    """Named in the reason; nothing was allocated for the first job, and the next is admitted."""
    job = TrainingJob(0, 0, 200, 40, 0.1, 0.0, 2, 100, 100, (1, 2, 1), (2, 1, 1), Sigmoid(1e6, 0, 1), 1)
    capacity = np.random.default_rng(1).uniform(5, 9, (40, 3))
    made = make([job], capacity, 1, theta=theta, relaxation="highs", time_limit=1e-12)
    load_at_random(made, np.random.default_rng(1))
    before = made.loads.load.copy()
    answer = made.offer(job)
    assert not answer.admitted
    assert answer.reason.startswith("solver: HiGHS")
    assert "ime limit" in answer.reason
    assert (made.loads.load == before).all()
    made.params = PdorsParams(theta=theta)  # type: ignore[arg-type]
    assert made.offer(job).admitted


def test_highs_names_what_is_neither_optimal_nor_infeasible() -> None:
    """A time limit, for both kinds of program."""
    rng = np.random.default_rng(1)
    free, price = rng.uniform(5, 9, (40, 3)), rng.uniform(1, 2, (40, 3))
    m = subproblem(free, price, np.array([1.0, 2, 1]), np.array([2.0, 1, 1]), 2.0, 50)
    with pytest.raises(SolverError, match="HiGHS"):
        relax(m, 20.0, limit=1e-12)
    with pytest.raises(SolverError, match="HiGHS"):
        solve(m, 20.0, limit=1e-12)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 0}, "job 0: ratio = 0; it must be above 0"),
        ({"batch": 0}, "job 0: batch = 0; it must be 1 or more"),
        ({"work": 0}, "work = 0"),
        ({"levels": 0}, "levels = 0"),
        ({"sample_time": float("nan")}, "sample_time = nan"),
        ({"gradient_mb": -1}, "gradient_mb = -1"),
        ({"external_mb": 300}, "internal_mb = 200; it must be at least external_mb"),
        ({"worker": (0,)}, "worker = (0,); it must be above 0 for some resource"),
        ({"ps": (1, 1)}, "ps = (1, 1); it must be as many resources as worker"),
        ({"arrival": -1}, "arrival = -1"),
    ],
)
def test_a_wrong_job_is_refused_with_its_field(change: dict[str, Any], message: str) -> None:
    """One sentence that says what would be right."""
    with pytest.raises(ScenarioError) as error:
        replace(CASES["prices_spread_work"].jobs[0], **change)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [((0, 1, 1), "theta1 = 0"), ((1, -0.1, 1), "increases with time"), ((1, 1, float("inf")), "theta3 = inf")],
)
def test_a_utility_that_is_none_is_refused(given: tuple[float, float, float], message: str) -> None:
    """Above all one that increases with time."""
    with pytest.raises(ScenarioError, match=message):
        Sigmoid(*given)


def test_a_high_price_below_the_low_one_is_refused() -> None:
    """need = 0.5 and 8, mu = 2/0.5 = 4, L = min(10/(2 * 4 * 0.5), 900/(2 * 4 * 8)) = 2.5; U = 9/0.5 and 9/8."""
    stakes = CalibrationJobs(
        np.array([[0.5, 0.0], [0.0, 8.0]]), np.array([9.0, 9.0]), np.array([10.0, 900.0]), np.ones(2)
    )
    with pytest.raises(ScenarioError, match=r"U = 1\.125 of resource 1 is not above L = 2\.5"):
        calibrate(stakes, np.array([[1.0, 1.0]]), 1, factor=2)


def test_a_cluster_that_does_not_fit_is_refused() -> None:
    """No machine, no job to calibrate from, another number of resources, an arrival after the horizon, one machine."""
    jobs = list(CASES["prices_spread_work"].jobs)
    with pytest.raises(ScenarioError, match=r"capacity: shape \(0, 1\)"):
        pdors_prices(jobs, np.zeros((0, 1)), 4)
    with pytest.raises(ScenarioError, match="no job to calibrate from"):
        pdors_prices([], np.ones((1, 1)), 4)
    with pytest.raises(ScenarioError, match="job 0: demands for 1 resources; the machines have 2"):
        pdors_prices(jobs, np.ones((1, 2)), 4)
    with pytest.raises(ScenarioError, match="job 2: arrival = 2; the last slot is 1"):
        pdors_prices(jobs, np.ones((1, 1)), 2)
    with pytest.raises(ScenarioError, match="it needs at least 2"):
        oasis_prices(jobs, np.ones((1, 1)), 4)


def test_whole_numbers_survive_float_arithmetic() -> None:
    """40 * 0.1 needs 4 workers, not 5; a cost must be better by 1e-9."""
    assert ceil_almost(40 * 0.1 + 1e-12) == 4
    assert ceil_almost(4.0001) == 5
    assert better(1 - 1e-8, 1.0)
    assert not better(1 - 1e-10, 1.0)
    assert better(1.0, np.inf)
    assert not better(np.inf, np.inf)
