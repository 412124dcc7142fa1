"""Dorm's integer program against brute force, and its bounds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skedge.core.errors import SolverError
from skedge.core.model.speed import max_units, servers_for
from skedge.policies.common.round_robin import round_robin
from skedge.policies.dorm.applications import Applications, Bounds, Partition, fair_shares, problem, shares
from skedge.policies.dorm.partition import partition, pools
from skedge.policies.dorm.program import middle_ratio
from skedge.policies.drf.progressive_filling import progressive_filling

bounded = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LOOSE = Bounds(loss=100.0, changed=100)


def drawn(rng: np.random.Generator, n: int, machines: int, most: int) -> tuple[Applications, np.ndarray]:
    """A small instance whose applications have what round robin gave some of them."""
    worker, ps = rng.integers(1, 4, (n, 2)).astype(float), rng.integers(0, 3, (n, 2)).astype(float)
    ps[:, 0] += ps.sum(axis=1) == 0
    capacity = rng.integers(3, 9, (machines, 2)).astype(float)
    ratio, limit = rng.choice([1.0, 1.5, 2.0, 3.0], n), rng.integers(1, most + 1, n)
    left, now = capacity.copy(), np.zeros((2, n, machines), np.int64)
    for i in range(n):
        if rng.random() < 0.5:
            before = left.copy()
            placed, _ = round_robin(worker[i], ps[i], int(rng.integers(1, limit[i] + 1)), float(ratio[i]), left, 0)
            now[:, i] = placed
            left = left if placed[0].any() else before
    return Applications(worker, ps, ratio, limit, now[0], now[1]), capacity


def optimal(apps: Applications, capacity: np.ndarray, bounds: Bounds, gap: float = 0.0) -> Partition | None:
    """By the program of machines, searched to the end."""
    return partition(apps, capacity, bounds, cells=10**9, nodes=2**31 - 1, gap=gap)


def utilisation(apps: Applications, capacity: np.ndarray, w: np.ndarray, s: np.ndarray) -> float:
    return float(((w.sum(axis=1) @ apps.worker + s.sum(axis=1) @ apps.ps) / capacity.sum(axis=0)).sum())


def allowed(apps: Applications, capacity: np.ndarray, bounds: Bounds, w: np.ndarray, s: np.ndarray) -> bool:
    """Every sentence of the module, word for word."""
    used = np.einsum("ih,ir->hr", w, apps.worker) + np.einsum("ih,ir->hr", s, apps.ps)
    counts, servers = w.sum(axis=1), s.sum(axis=1)
    want = [max(1, math.ceil(c / g - 1e-9)) if c else 0 for c, g in zip(counts, apps.ratio, strict=True)]
    changed = ((w != apps.workers) | (s != apps.servers)).any(axis=1) & apps.survivors
    dominant, fair = fair_shares(apps, capacity)
    loss = np.abs(shares(apps, w, s, dominant, capacity.sum(axis=0)) - fair).sum()
    return bool(
        (used <= capacity + 1e-9).all()
        and (counts <= apps.max_workers).all()
        and servers.tolist() == want
        and (counts[apps.survivors] > 0).all()
        and changed.sum() <= bounds.changed
        and loss <= bounds.loss + 1e-6
    )


def brute_force(apps: Applications, capacity: np.ndarray, bounds: Bounds) -> float | None:
    """The best utilisation of all partitions there are."""
    n, machines = apps.workers.shape
    options = []
    for i in range(n):
        fit = [
            (np.array(w), np.array(s))
            for w in product(range(int(apps.max_workers[i]) + 1), repeat=machines)
            for s in product(range(int(apps.max_workers[i]) + 1), repeat=machines)
            if sum(w) <= apps.max_workers[i]
            and (np.outer(w, apps.worker[i]) + np.outer(s, apps.ps[i]) <= capacity).all()
        ]
        options.append(fit)
    best = None
    for chosen in product(*options):
        w, s = (np.array([one[k] for one in chosen]) for k in (0, 1))
        if allowed(apps, capacity, bounds, w, s):
            value = utilisation(apps, capacity, w, s)
            best = value if best is None else max(best, value)
    return best


@bounded
@given(st.integers(0, 10_000), st.sampled_from([LOOSE, Bounds(0.3, 1), Bounds(0.1, 0), Bounds(0.5, 2)]))
def test_the_program_finds_what_brute_force_finds(seed: int, bounds: Bounds) -> None:
    """Two applications on two machines: the same utilisation, and a partition that keeps every bound."""
    apps, capacity = drawn(np.random.default_rng(seed), 2, 2, 2)
    found, best = optimal(apps, capacity, bounds), brute_force(apps, capacity, bounds)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert allowed(apps, capacity, bounds, *found[:2])
    assert utilisation(apps, capacity, *found[:2]) == pytest.approx(best, abs=1e-6)


@bounded
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([LOOSE, Bounds(0.5, 1), Bounds(0.3, 0), Bounds(1.0, 2)]))
def test_pools_of_machines_give_a_partition_and_a_bound_around_the_optimum(
    seed: int, one: bool, bounds: Bounds
) -> None:
    """With all machines in one pool, or those of one capacity in each; "no room" is the only other answer."""
    rng = np.random.default_rng(seed)
    apps, capacity = drawn(rng, int(rng.integers(2, 6)), 3, 4)
    capacity[:2] = capacity[:2].max(axis=0)
    best = optimal(apps, capacity, bounds)
    try:
        found = partition(apps, capacity, bounds, cells=1 if one else 2 * len(apps.max_workers), nodes=10**6, gap=0.0)
    except SolverError:
        return
    if found is None:
        assert best is None
        return
    assert best is not None
    assert allowed(apps, capacity, bounds, found.workers, found.servers)
    assert found.use == pytest.approx(utilisation(apps, capacity, found.workers, found.servers))
    assert found.use <= best.use + 1e-6
    assert best.use <= found.bound + 1e-6


@bounded
@given(st.integers(0, 10_000), st.sampled_from([0, 1, 5]))
def test_pools_of_machines_use_no_less_than_what_is_there(seed: int, changed: int) -> None:
    """Unchanged survivors are one of the partitions tried, and stay unchanged if none may be changed."""
    apps, capacity = drawn(np.random.default_rng(seed), 6, 4, 5)
    found = partition(apps, capacity, Bounds(100.0, changed), cells=1, nodes=100, gap=0.05)
    assert found is not None
    assert found.use >= utilisation(apps, capacity, apps.workers, apps.servers) - 1e-9
    assert allowed(apps, capacity, Bounds(100.0, changed), found.workers, found.servers)


@pytest.mark.parametrize("seed", range(4))
def test_at_the_sizes_of_the_paper_the_gap_is_small(seed: int) -> None:
    """30 equal machines and 40 jobs, of which those that round robin placed run: 8 % at most."""
    rng = np.random.default_rng(seed)
    worker, ps = rng.integers([0, 1, 2, 5], [5, 11, 33, 11], (2, 40, 4)).astype(float)
    ps[:, 0], capacity = 0.0, np.tile([36.0, 99.0, 306.0, 135.0], (30, 1))
    ratio, most, now = rng.integers(1, 11, 40).astype(float), rng.integers(1, 31, 40), np.zeros((2, 40, 30), np.int64)
    left = capacity.copy()
    for i in range(30):
        now[:, i] = round_robin(worker[i], ps[i], int(most[i]), float(ratio[i]), left, 0)[0]
    found = partition(
        Applications(worker, ps, ratio, most, *now), capacity, Bounds(2.0, 3), cells=200, nodes=100, gap=0.05
    )
    assert found is not None
    assert found.use <= found.bound <= 1.08 * found.use


def test_pools_are_the_finest_that_are_few_enough() -> None:
    """Every machine its own, machines of equal capacity together, or all together."""
    capacity = np.array([[2.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    assert pools(capacity, 3).tolist() == [0, 1, 2]
    assert pools(capacity, 2).tolist() == [1, 0, 1]
    assert pools(capacity, 1).tolist() == pools(capacity, 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", [4, 99, *range(200, 220)])
def test_no_ps_is_bought_beyond_the_ratio(seed: int) -> None:
    """As many as max(1, ceil(w / gamma)), where one more would raise the utilisation (D2); 4 and 99 had one more."""
    rng = np.random.default_rng(seed)
    apps, capacity = drawn(rng, int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 7)))
    bounds = [LOOSE, Bounds(0.5, 1), Bounds(1.0, 2)][seed % 3]
    found = optimal(apps, capacity, bounds)
    if found is not None:
        assert allowed(apps, capacity, bounds, *found[:2])


@bounded
@given(st.floats(0.1, 60), st.integers(1, 60))
def test_the_middle_ratio_needs_as_many_pss_and_is_far_from_needing_others(ratio: float, most: int) -> None:
    """The rows w / gamma <= s <= w / gamma + 1 hold for the right number by 1e-5 and exclude its neighbours by 1e-5."""
    middle = middle_ratio(ratio, most)
    for workers in range(1, most + 1):
        right = servers_for(workers, ratio)
        assert workers / middle + 1e-5 < right
        assert right == 1 or right - 1 + 1e-5 < workers / middle


@bounded
@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from([0.2, 0.5, 1.0, 100.0]))
def test_fairness_and_overhead_are_within_their_bounds(seed: int, changed: int, loss: float) -> None:
    """Five applications on three machines, whatever is asked for."""
    apps, capacity = drawn(np.random.default_rng(seed), 5, 3, 4)
    found = optimal(apps, capacity, Bounds(loss, changed), gap=0.05)
    if found is not None:
        assert allowed(apps, capacity, Bounds(loss, changed), *found[:2])


@bounded
@given(st.integers(0, 10_000))
def test_no_change_allowed_freezes_those_that_were_in(seed: int) -> None:
    """theta2 = 0: survivors keep every worker and PS; the others may come in beside them."""
    apps, capacity = drawn(np.random.default_rng(seed), 5, 3, 4)
    found = optimal(apps, capacity, Bounds(100.0, 0))
    assert found is not None
    for now, then in zip((apps.workers, apps.servers), found[:2], strict=True):
        assert (then[apps.survivors] == now[apps.survivors]).all()


@bounded
@given(st.integers(0, 10_000))
def test_with_loose_bounds_it_uses_at_least_what_drf_does(seed: int) -> None:
    """DRF's partition is one of those that are looked at."""
    apps, capacity = drawn(np.random.default_rng(seed), 4, 3, 4)
    found = optimal(apps._replace(workers=apps.workers * 0, servers=apps.servers * 0), capacity, LOOSE)
    assert found is not None
    fair = progressive_filling(
        apps.worker, apps.ps, apps.ratio, apps.max_workers, capacity.copy(), capacity.sum(axis=0)
    )
    assert utilisation(apps, capacity, *found[:2]) >= utilisation(apps, capacity, *fair) - 1e-6


def test_fairness_alone_can_make_it_impossible() -> None:
    """One that holds all of the only machine cannot be left alone beside a newcomer whose share is a half."""
    has = np.array([[4], [0]])
    apps = Applications(np.ones((2, 1)), np.ones((2, 1)), np.full(2, 4.0), np.array([4, 4]), has, (has > 0).astype(int))
    assert optimal(apps, np.array([[5.0]]), Bounds(0.1, 0)) is None
    assert optimal(apps, np.array([[5.0]]), Bounds(2.0, 0)) is not None


def test_one_ps_serves_however_many_workers_a_ratio_lets_it() -> None:
    """gamma = 1e7: 4 workers and a PS, 5 in all, fill the machine; w / gamma is below what a solver can tell from 0."""
    none = np.zeros((1, 1), np.int64)
    apps = Applications(np.ones((1, 1)), np.ones((1, 1)), np.array([1e7]), np.array([9]), none, none)
    found = optimal(apps, np.array([[5.0]]), LOOSE)
    assert found is not None
    assert (found.workers.tolist(), found.servers.tolist()) == ([[4]], [[1]])


def test_the_fair_share_is_that_of_the_dominant_resource() -> None:
    """NSDI'11: of 9 CPU and 18 GB A with <1, 4> has 12/18, B with <3, 1> 6/9, 2/3 each."""
    none = np.zeros((2, 1), np.int64)
    apps = Applications(
        np.array([[1.0, 4.0], [3.0, 1.0]]), np.zeros((2, 2)), np.full(2, 1e9), np.array([9, 9]), none, none
    )
    dominant, fair = fair_shares(apps, np.array([[9.0, 18.0]]))
    assert dominant.tolist() == [1, 0]
    assert fair == pytest.approx([2 / 3, 2 / 3])


def test_a_solver_that_knows_nothing_at_the_last_node_is_named() -> None:
    """No nodes at all: the message says that it was HiGHS, and why."""
    apps, capacity = drawn(np.random.default_rng(1), 20, 20, 30)
    with pytest.raises(SolverError, match=r"HiGHS: "):
        partition(apps, capacity, LOOSE, cells=10**9, nodes=0, gap=0.0)


def test_round_robin_goes_on_where_it_stopped() -> None:
    """Workers and PSs take machine after machine; a machine without room is passed over; short room ends it."""
    left = np.array([[2.0], [1.0], [3.0]])
    placed, turn = round_robin(np.array([1.0]), np.array([1.0]), 3, 2.0, left, 1)
    # worker 1 on 1, its PS on 2, worker 2 on 0, worker 3 on 2 (1 is full), its PS on 0
    assert placed.tolist() == [[1, 1, 1], [1, 0, 1]]
    assert (turn, left.ravel().tolist()) == (1, [0.0, 0.0, 1.0])
    placed, _ = round_robin(np.array([1.0]), np.array([1.0]), 2, 1.0, left, turn)
    assert not placed.any(), "a worker without room for its PS is none"
    assert left.ravel().tolist() == [0.0, 0.0, 1.0]


def test_pieces_are_whole_and_never_negative() -> None:
    """The scarcest resource decides; one that is not asked for does not; float noise is forgiven."""
    free = np.array([[1.0, 8.0], [0.3, 0.0], [-1e-12, 5.0]])
    assert max_units(free, np.array([0.1, 0.0])).tolist() == [10, 3, 0]
    assert max_units(free, np.array([0.5, 8.0])).tolist() == [1, 0, 0]


def test_where_all_machines_are_out_of_service_nothing_is_placed_and_nothing_divided_by_zero() -> None:
    apps, capacity = drawn(np.random.default_rng(0), 3, 2, 4)
    nothing = np.zeros_like(apps.workers)
    apps = apps._replace(workers=nothing, servers=nothing)
    empty = problem(apps, np.zeros_like(capacity), Bounds(10.0, 3))
    assert not empty.fair.any()
    assert not empty.share_of_piece.any()
    solution = optimal(apps, np.zeros_like(capacity), Bounds(10.0, 3))
    assert solution is not None
    assert not solution.workers.any()
