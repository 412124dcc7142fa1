"""Optimus on arrays: the speed model, the allocation by marginal gains, the placement."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skedge.core.errors import InputError
from skedge.policies.drf.progressive_filling import ONE_PS
from skedge.policies.optimus.marginal_gain import Demands, allocate, iteration, place
from skedge.policies.optimus.speed_model import fit, measure, terms, true_coefficients

bounded = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
SPEED = st.tuples(*[st.floats(0, 2, allow_subnormal=False)] * 6).map(np.array)


def unit_demands(left: list[float], speed: list[np.ndarray], batch: int = 50) -> Demands:
    """Jobs whose workers and PSs each take 1 of one resource, and which need one PS whatever their workers."""
    n = len(left)
    ones = np.ones((n, 1))
    return Demands(ones, ones, np.full(n, ONE_PS), np.full(n, batch), np.array(left, float), np.array(speed))


def drawn(rng: np.random.Generator, n: int) -> Demands:
    speed = np.array(
        [true_coefficients(rng.uniform(1e-5, 1e-4), rng.uniform(30, 575), rng.uniform(1e4, 1e6)) for _ in range(n)]
    )
    worker, ps = rng.integers(1, 5, (n, 3)).astype(float), rng.integers(0, 4, (n, 3)).astype(float)
    ps[:, 0] += ps.sum(axis=1) == 0
    return Demands(worker, ps, rng.uniform(0.5, 5, n), rng.integers(1, 60, n), rng.uniform(10, 1e4, n), speed)


# --- the speed model


@bounded
@given(st.integers(0, 1000))
def test_least_squares_recover_the_coefficients(seed: int) -> None:
    """Without noise from as many different test runs as there are coefficients, or more."""
    rng = np.random.default_rng(seed)
    truth = np.append(rng.uniform(0, 2, 5) * (rng.random(5) < 0.7), 0.0)
    truth[1] += 0.1
    w, p = np.array([1, 2, 4, 7, 10, 3, 9]), np.array([1, 5, 2, 1, 10, 8, 4])
    found = fit(30.0, w, p, terms(30.0, w, p) @ truth)
    assert found == pytest.approx(truth, abs=1e-6)


@bounded
@given(st.integers(0, 1000), st.floats(0, 0.3))
def test_coefficients_are_never_negative(seed: int, noise: float) -> None:
    """Whatever the noise; the predicted times of the test runs are then positive too."""
    rng = np.random.default_rng(seed)
    truth = true_coefficients(rng.uniform(1e-5, 1e-4), rng.uniform(30, 575), rng.uniform(1e4, 1e6))
    w, p, slots = measure(truth, 100.0, 8, noise, rng)
    found = fit(100.0, w, p, slots)
    assert (found >= 0).all()
    assert (terms(100.0, w, p) @ found > 0).all()


def test_the_fit_stands_in_for_the_truth_where_it_was_measured() -> None:
    """Eight noiseless runs of PD-ORS' own form, whose 1/p the paper's model lacks: off by 20 % at most."""
    truth = true_coefficients(5e-5, 300.0, 1e6)
    w, p, slots = measure(truth, 100.0, 8, 0.0, np.random.default_rng(3))
    assert terms(100.0, w, p) @ fit(100.0, w, p, slots) == pytest.approx(slots, rel=0.2)


def test_pd_ors_time_is_its_equation_1() -> None:
    """With w/p = gamma an iteration of F samples takes F (tau + 2 g gamma/(b F)) / w."""
    tau, g, b, gamma, batch, w = 2e-5, 100.0, 4e5, 4.0, 80, 8
    assert terms(batch, [w], [w / gamma]) @ true_coefficients(tau, g, b) == pytest.approx(
        batch * (tau + 2 * g * gamma / (b * batch)) / w
    )


def test_too_few_samples_are_refused() -> None:
    """Five coefficients ask for five."""
    with pytest.raises(InputError, match="4 samples; it has 5 coefficients"):
        fit(10.0, np.arange(1, 5), np.arange(1, 5), np.ones(4))


# --- the allocation


@pytest.mark.parametrize("dust", [-1e-12, 0.0, 1e-12])
def test_gains_that_differ_by_rounding_tie(dust: float) -> None:
    """Three equal jobs with a worker and a PS each and one worker more: the first has it, whatever the last digits."""
    demands = unit_demands([1.0, 1.0 + dust, 1.0 + 2 * dust], [true_coefficients(0.02, 0.0, 1.0)] * 3)
    workers, servers = allocate(demands, np.array([7.0]), np.array([7.0]), False, False)
    assert workers.tolist() == [2, 1, 1]
    assert servers.tolist() == [1, 1, 1]


def test_a_gain_that_is_larger_by_more_than_rounding_wins() -> None:
    demands = unit_demands([1.0, 1.0 + 1e-8, 1.0], [true_coefficients(0.02, 0.0, 1.0)] * 3)
    workers, _ = allocate(demands, np.array([7.0]), np.array([7.0]), False, False)
    assert workers.tolist() == [1, 2, 1]


def test_what_saves_nothing_but_rounding_is_no_task() -> None:
    """The time of an iteration does not depend on the PSs, but for the last digits: no PS is added."""
    speed = np.array([0.0, 0.3, 0.0, 0.0, 0.0, 1e-13])
    workers, servers = allocate(unit_demands([1.0], [speed]), np.array([9.0]), np.array([9.0]), True, False)
    assert (workers.tolist(), servers.tolist()) == ([1], [1])


@bounded
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 5), st.floats(0, 5)), min_size=1, max_size=2),
       st.integers(0, 9), st.booleans())  # fmt: skip
def test_the_allocation_is_that_of_brute_force(jobs: list[tuple[float, float, float]], room: int, extra: bool) -> None:
    """One resource, equal tasks, convex times a M/w + f/p: no other allocation has a smaller sum of remaining times."""
    speed = [np.array([a, 0, 0, 0, 0, f]) for _, a, f in jobs]
    d = unit_demands([q for q, _, _ in jobs], speed)
    room += 2 * len(jobs)
    w, p = allocate(d, np.array([float(room)]), np.array([float(room)]), extra, False)

    def rest(w: tuple[int, ...], p: tuple[int, ...]) -> float:
        return sum(d.left[j] * iteration(d.speed[j], 50, w[j], p[j]) for j in range(len(jobs)))

    ways = [range(1, room)] * len(jobs)
    others = (
        rest(v, u)
        for v in product(*ways)
        for u in (product(*ways) if extra else [(1,) * len(jobs)])
        if sum(v) + sum(u) <= room
    )
    assert sum(w) + sum(p) <= room
    assert rest(tuple(w), tuple(p)) == pytest.approx(min(others), rel=1e-6)


@bounded
@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.integers(5, 80))
def test_every_job_gets_one_worker_before_any_gets_two(seed: int, extra: bool, skip: bool, size: int) -> None:
    """What is given fits, PSs suffice, w <= F; a job has none only if its first task did not fit."""
    rng = np.random.default_rng(seed)
    d, total = drawn(rng, 5), np.full(3, float(size))
    left = total.copy()
    w, p = allocate(d, left, total, extra, skip)
    assert left == pytest.approx(total - w @ d.worker - p @ d.ps)
    assert (left >= -1e-6).all()
    assert (w <= d.batch).all()
    assert (p[w > 0] * d.ratio[w > 0] >= w[w > 0] - 1e-6).all()
    at_first = total.copy()
    for job in range(5):
        need = d.worker[job] + max(1, np.ceil(1 / d.ratio[job])) * d.ps[job]
        assert (w[job] > 0) == bool((need <= at_first + 1e-9).all())
        at_first -= need * (w[job] > 0)


@bounded
@given(st.integers(0, 10_000), SPEED)
def test_gains_of_a_job_fall(seed: int, speed: np.ndarray) -> None:
    """Times are convex in w, so one more worker is worth less and less; a job alone stops where time would grow."""
    d = unit_demands([1.0], [speed], batch=30)
    w, _ = allocate(d, np.array([100.0]), np.array([100.0]), False, False)
    times = [iteration(speed, 30, n, 1) for n in range(1, 31)]
    gains = -np.diff(times)
    assert (np.diff(gains) <= 1e-9).all()
    assert times[w[0] - 1] == pytest.approx(min(times), rel=1e-6, abs=1e-12)


def test_the_one_that_gains_most_for_its_size_is_first() -> None:
    """Two jobs that differ in what a worker takes, 1 and 2: of 4 left after 1 + 1 each, gains over sizes count."""
    speed = np.array([[1.0, 0, 0, 0, 0, 0]] * 2)
    d = Demands(np.array([[1.0], [2.0]]), np.ones((2, 1)), np.full(2, ONE_PS), np.full(2, 20), np.ones(2), speed)
    # times 20/w: gains 10, 3.33, ... of the first, 5, 1.67, ... of the second: 10 (1), 5 (2), 3.33 (1)
    total = np.array([5.0 + 4.0])
    w, p = allocate(d, total.copy(), total, False, False)
    assert (w.tolist(), p.tolist()) == ([3, 2], [1, 1])


def test_a_pick_that_does_not_fit_ends_it_unless_it_is_skipped() -> None:
    """The big job gains most and has no room for its second worker; the small one goes on only with `skip`."""
    speed = np.array([[100.0, 0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]])
    d = Demands(np.array([[4.0], [1.0]]), np.ones((2, 1)), np.full(2, ONE_PS), np.full(2, 9), np.ones(2), speed)
    total = np.array([10.0])
    assert allocate(d, total.copy(), total, False, False)[0].tolist() == [1, 1]
    assert allocate(d, total.copy(), total, False, True)[0].tolist() == [1, 4]


def test_at_a_tie_a_ps_is_added() -> None:
    """A worker and a PS that gain alike and take alike: the PS."""
    d = unit_demands([1.0], [np.array([1.0, 0, 0, 0, 0, 50.0])])
    w, p = allocate(d, np.array([3.0]), np.array([3.0]), True, False)
    assert (w.tolist(), p.tolist()) == ([1], [2])


# --- the placement


@bounded
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans())
def test_what_is_placed_fits_and_is_a_job_or_nothing(seed: int, machines: int, extra: bool) -> None:
    """Never more than was allocated, never a worker without its PSs, never a PS without a worker."""
    rng = np.random.default_rng(seed)
    d, capacity = drawn(rng, 6), rng.integers(3, 30, (machines, 3)).astype(float)
    total = capacity.sum(axis=0)
    w, p = allocate(d, total.copy(), total, extra, True)
    left = capacity.copy()
    at_w, at_p = place(d, w, p, left, total)
    used = np.einsum("jh,jr->hr", at_w, d.worker) + np.einsum("jh,jr->hr", at_p, d.ps)
    assert left == pytest.approx(capacity - used)
    assert (left >= -1e-6).all()
    counts, servers = at_w.sum(axis=1), at_p.sum(axis=1)
    assert (counts <= w).all()
    assert (servers <= p).all()
    assert ((counts > 0) == (servers > 0)).all()
    assert (servers * d.ratio >= counts - 1e-6).all()


def test_a_job_takes_the_fewest_machines_over_which_it_is_even() -> None:
    """Three workers and a PS, 1 each: 4 fit on the machine with most room; on machines of 2 they take two of them."""
    d = unit_demands([1.0], [np.zeros(6)])
    one, three = np.array([1]), np.array([3])
    total = np.array([9.0])
    w, p = place(d, three, one, np.array([[2.0], [4.0], [3.0]]), total)
    assert (w.tolist(), p.tolist()) == ([[0, 3, 0]], [[0, 1, 0]])
    w, p = place(d, three, one, np.array([[2.0], [2.0], [3.0]]), total)
    assert (w.tolist(), p.tolist()) == ([[1, 0, 2]], [[0, 0, 1]])


def test_where_it_cannot_be_even_it_is_put_alternately_and_shrinks() -> None:
    """Room for 1, 1 and 1: a PS, a worker, a worker; the third worker finds none."""
    d = unit_demands([1.0], [np.zeros(6)])
    w, p = place(d, np.array([3]), np.array([1]), np.ones((3, 1)), np.array([3.0]))
    assert (w.tolist(), p.tolist()) == ([[0, 1, 1]], [[1, 0, 0]])
    w, p = place(d, np.array([3]), np.array([1]), np.ones((1, 1)), np.array([1.0]))
    assert (w.tolist(), p.tolist()) == ([[0]], [[0]]), "a PS alone is given back"


def test_small_jobs_are_placed_first() -> None:
    """The later, smaller job gets the machine that both want; the larger one what is left."""
    d = unit_demands([1.0, 1.0], [np.zeros(6)] * 2)
    w, p = place(d, np.array([3, 1]), np.array([1, 1]), np.array([[4.0], [2.0]]), np.array([6.0]))
    assert (w[1] + p[1]).tolist() == [2, 0]
    assert (w[0] + p[0]).sum() == 4
