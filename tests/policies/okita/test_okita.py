"""Okita: against the plain path and its invariants on random instances, the errata one by one, bad input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from builders.okita import the_fast_path_decides_as_the_plain_one
from builders.site_instances import draw_jobs, draw_sites
from builders.sites_alone import Alone, bandwidth_cost, run
from golden.okita_cases import MIGRATE
from skedge.core.errors import ScenarioError, StateError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.latency import Exponential, LatencyCost, Linear, Piecewise
from skedge.policies.okita.alg1 import Okita, OkitaDecision, OkitaParams, priorities
from skedge.policies.okita.dta import send, transfer
from skedge.policies.okita.osf import every_plan
from skedge.policies.okita.pa import Weights, place, site_rooms, terms
from skedge.policies.okita.sites import SiteJob, SitePlacement, Sites
from skedge.policies.okita.slots import Decision, Progress, SiteScheduler, free_after

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=200, deadline=None)
seeds = st.integers(0, 2**32 - 1)
options = st.fixed_dictionaries(
    {
        "conflict": st.sampled_from(["printed", "cheaper"]),
        "fit": st.booleans(),
        "colocate": st.booleans(),
        "normalise": st.booleans(),
        "late_last": st.booleans(),
        "release": st.sampled_from(["earliest", "latest"]),
        "alpha1": st.sampled_from([0.5, 1.0]),
        "beta2": st.sampled_from([0.25, 1.0]),
    }
)

TWO = Sites(np.array([[3.0], [3.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))


def site_job(number: int = 0, **changes: Any) -> SiteJob:
    """One unit for a worker and for a PS, two chunks a worker and slot, four chunks at the first of two sites."""
    usual: dict[str, Any] = {
        "arrival": 0, "rate": 2, "chunk_mb": 1, "exchange_mb": 1, "data": (4, 0), "worker": (1,),
        "ps": (1,), "latency": Linear(10),
    }  # fmt: skip
    return SiteJob(number, **{**usual, **changes})


def ran(scheduler: SiteScheduler | Alone, jobs: list[SiteJob]) -> list[tuple[int, Sequence[Any]]]:
    return list((scheduler if isinstance(scheduler, Alone) else Alone(scheduler)).run(jobs))


# -- the fast path and the plain one -----------------------------------------------------------------------------------


@FEW
@given(seeds, options)
def test_the_fast_path_decides_as_the_plain_one(seed: int, chosen: dict[str, Any]) -> None:
    the_fast_path_decides_as_the_plain_one(seed, chosen)


@pytest.mark.thorough
@FEW
@given(seeds, options)
def test_the_bounded_search_is_the_enumeration(seed: int, chosen: dict[str, Any]) -> None:
    """On numbers that are not exact, and larger jobs: the same schedule with `search=every`."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng, exact=False)
    jobs = [replace(job, data=tuple(9 * d for d in job.data)) for job in draw_jobs(rng, sites, 5)]
    for (slot, one), (other, two) in zip(
        run(Okita(sites, OkitaParams(**chosen)), jobs),
        run(Okita(sites, OkitaParams(search="every", **chosen)), jobs),
        strict=True,
    ):
        assert slot == other
        for a, b in zip(one, two, strict=True):
            assert isinstance(a, OkitaDecision)
            assert isinstance(b, OkitaDecision)
            assert (a.job, a.verb, a.priority) == (b.job, b.verb, b.priority)
            for x, y in ((a.placement, b.placement), (a.transfer, b.transfer)):
                assert (x is None) == (y is None)
            if a.placement is not None and b.placement is not None:
                assert a.placement.ps == b.placement.ps
                assert (a.placement.workers == b.placement.workers).all()


# -- invariants --------------------------------------------------------------------------------------------------------


@FEW
@given(seeds, options)
def test_every_schedule_satisfies_the_constraints(seed: int, chosen: dict[str, Any]) -> None:
    """(2a)-(2g) on the record, and that what was booked is Eq. (1)."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng, exact=bool(rng.integers(2)), asymmetric=bool(rng.integers(2)))
    jobs = draw_jobs(rng, sites, int(rng.integers(1, 7)))
    scheduler = Alone(Okita(sites, OkitaParams(**chosen)))
    record = ran(scheduler, jobs)
    check_constraints(sites, jobs, record)
    for job in jobs:
        outcome = scheduler.outcomes[job.id]
        mine = [(slot, one) for slot, decisions in record for one in decisions if one.job == job.id]
        assert outcome.status == "done"
        assert outcome.last == max(slot for slot, one in mine if one.placement is not None)
        assert outcome.latency == pytest.approx(job.latency(outcome.last + 1 - job.arrival))
        assert outcome.bandwidth == pytest.approx(bandwidth_cost(sites, job, [one for _, one in mine]))


def check_constraints(sites: Sites, jobs: list[SiteJob], record: list[tuple[int, list[Decision]]]) -> None:
    """Those of Okita itself: what moves is trained in the same slot."""
    left = {job.id: job.chunks.copy() for job in jobs}
    by_id = {job.id: job for job in jobs}
    for slot, decisions in record:
        used = np.zeros_like(sites.capacity)
        assert len({one.job for one in decisions}) == len(decisions)
        for one in decisions:
            job = by_id[one.job]
            assert slot >= job.arrival
            assert (one.left == left[one.job]).all()  # (3)
            if one.placement is None or one.transfer is None:
                continue
            g = np.zeros((len(sites), len(sites)), np.int64)
            np.add.at(g, (one.transfer.moves[:, 0], one.transfer.moves[:, 1]), one.transfer.moves[:, 2])
            assert (np.diag(g) == 0).all()
            g += np.diag(one.transfer.trained - g.sum(axis=0))
            assert (g >= 0).all()
            y, s = one.placement.workers, one.placement.ps
            assert (job.rate * y >= g.sum(axis=0) * (1 - 1e-9)).all()  # (2b)
            assert 0 <= s < len(sites)  # (2c)
            assert y.sum() > 0
            assert g.sum() > 0
            used += np.outer(y, job.worker)
            used[s] += job.ps
            left[one.job] -= g.sum(axis=1)
            assert (left[one.job] >= 0).all()
        assert (used <= sites.capacity * (1 + 1e-9)).all()  # (2d)
    assert all(not rest.any() for rest in left.values())  # (2a), site by site


@FEW
@given(seeds, options)
def test_a_job_migrates_only_where_that_costs_no_more(seed: int, chosen: dict[str, Any]) -> None:
    """Iff cost1 <= cost2; both begin with what the job has paid. As printed cost2 is never below cost1 (O2)."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    jobs = draw_jobs(rng, sites, 7)
    for _, decisions in ran(Okita(sites, OkitaParams(**chosen)), jobs):
        for one in decisions:
            if one.conflict is None:
                assert one.verb == "keep"
            elif one.conflict.migrate_cost is None:
                assert one.verb == "delay"
            else:
                migrates = one.conflict.migrate_cost <= one.conflict.delay_cost * (1 + 1e-9)
                assert migrates or chosen["conflict"] == "cheaper"
                assert one.verb == ("migrate" if migrates else "delay")


@FEW
@given(seeds, options)
def test_with_fit_a_job_waits_only_where_not_one_worker_fits(seed: int, chosen: dict[str, Any]) -> None:
    """As printed; by what the jobs before it left of every site, for a PS at each."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    jobs = {job.id: job for job in draw_jobs(rng, sites, 7)}
    scheduler = Okita(sites, OkitaParams(**chosen | {"conflict": "printed", "fit": True}))
    for _, decisions in ran(scheduler, list(jobs.values())):
        for turn, one in enumerate(decisions):
            free = free_after(sites, jobs, decisions[:turn])
            worker, ps = jobs[one.job].demands
            beside = [free - ps * (np.arange(len(sites)) == at)[:, None] for at in range(len(sites))]
            fits = any((left >= -1e-9).all() and (left >= worker - 1e-9).all(axis=1).any() for left in beside)
            assert fits == (one.placement is not None)


@FEW
@given(seeds)
def test_one_site_costs_no_bandwidth(seed: int) -> None:
    """R = 1: all data, workers and PSs are there, and Q has no 0/0."""
    rng = np.random.default_rng(seed)
    sites = Sites(np.full((1, 2), 8.0), np.zeros((1, 1)))
    jobs = draw_jobs(rng, sites, 4)
    scheduler = Alone(Okita(sites))
    ran(scheduler, jobs)
    assert len(scheduler.outcomes) == 4
    assert all(one.status == "done" and one.bandwidth == 0 for one in scheduler.outcomes.values())


@FEW
@given(seeds)
def test_what_happens_later_changes_nothing(seed: int) -> None:
    """Without the last arrival all slots before it are the same."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    jobs = sorted(draw_jobs(rng, sites, 5), key=lambda job: job.arrival)
    cut = jobs[-1].arrival
    full = [(t, found) for t, found in ran(Okita(sites), jobs) if t < cut]
    part = [(t, found) for t, found in ran(Okita(sites), jobs[:-1]) if t < cut]
    assert [(t, [(one.job, one.verb) for one in found]) for t, found in full] == [
        (t, [(one.job, one.verb) for one in found]) for t, found in part
    ]


# -- data transfer -----------------------------------------------------------------------------------------------------


def draw_transfer(rng: np.random.Generator) -> tuple[Sites, Ints, Ints]:
    """Sites, what lies at each, what each is to train."""
    count = int(rng.integers(2, 7))
    one_way = np.triu(rng.uniform(2, 8, (count, count)) / 100, 1)
    sites = Sites(np.ones((count, 1)), one_way + one_way.T)
    left = rng.integers(0, 12, count)
    return sites, left, rng.multinomial(rng.integers(left.sum() + 1), rng.dirichlet(np.ones(count)))


def optimal_transport(sites: Sites, left: Ints, wanted: Ints) -> float:
    """Problem (7) with what a site may give as its limit, by HiGHS over all g^{rr'}, r = r' at no cost."""
    count = len(sites)
    done = linprog(
        sites.cost.ravel(),
        A_ub=np.kron(np.eye(count), np.ones(count)), b_ub=left,
        A_eq=np.kron(np.ones(count), np.eye(count)), b_eq=wanted,
    )  # fmt: skip
    assert done.status == 0, done.message
    return float(done.fun)


@MANY
@given(seeds)
def test_greedy_transfers_are_feasible_and_never_below_the_optimal_transport(seed: int) -> None:
    """Nobody gives what it is to train itself or more than it has; local data are used first, so that is no loss."""
    sites, left, wanted = draw_transfer(np.random.default_rng(seed))
    made = send(sites, left, wanted)
    out, came = (np.bincount(made.moves[:, i], made.moves[:, 2], len(sites)) for i in (0, 1))
    assert (out <= np.maximum(left - wanted, 0)).all()
    assert (came == np.maximum(wanted - left, 0)).all()
    assert made.cost_per_mb >= optimal_transport(sites, left, wanted) * (1 - 1e-9) - 1e-12


def test_greedy_transfers_are_on_average_close_to_the_optimal_transport() -> None:
    """Within 10 % on 300 instances at S3's prices; `benchmarks/okita.py --gap` prints the distribution."""
    rng = np.random.default_rng(5)
    greedy = best = 0.0
    for _ in range(300):
        sites, left, wanted = draw_transfer(rng)
        greedy += send(sites, left, wanted).cost_per_mb
        best += optimal_transport(sites, left, wanted)
    assert best < greedy < 1.1 * best


def test_what_a_site_trains_is_rounded_down_for_the_site_as_a_whole() -> None:
    """2.5 chunks a worker: three workers train 7, not 6; local data first, the rest by number of the site."""
    three = Sites(np.ones((3, 1)), np.ones((3, 3)) - np.eye(3))
    found = transfer(three, np.array([0, 2, 20]), np.array([3, 1, 0]), 2.5)
    assert found.trained.tolist() == [7, 2, 0]
    assert sorted(found.moves.tolist()) == [[2, 0, 7]]
    assert transfer(three, np.array([0, 2, 3]), np.array([3, 1, 0]), 2.5).trained.tolist() == [3, 2, 0]


# -- the errata one by one ---------------------------------------------------------------------------------------------


def test_where_rounding_down_bites_a_plan_takes_one_slot_more() -> None:
    """Five chunks, one worker at each site, 2.5 chunks a slot: l = 1, but 2 + 2 chunks are trained in the first."""
    scheduler = Alone(Okita(Sites(np.ones((2, 1)), np.zeros((2, 2)))))
    record = ran(scheduler, [site_job(rate=2.5, data=(5, 0), ps=(0,))])
    assert record[0][1][0].tentative is not None
    assert (record[0][1][0].tentative.workers, record[0][1][0].tentative.slots) == (2, 1)
    assert scheduler.outcomes[0].last == 1


def test_a_site_that_cannot_hold_the_ps_is_left_out() -> None:
    """Its workers would be fewer than none; a resource that a worker does not need does not limit it."""
    sites = Sites(np.array([[5.0, 0.0], [1.0, 2.0]]), TWO.cost)
    job = site_job(worker=(1, 0), ps=(0, 1))
    found = place(sites, job, site_rooms(sites, job, job.chunks, sites.capacity, Weights()), 5)
    assert found is not None
    assert (found.workers.tolist(), found.ps) == ([5, 0], 1)


def test_on_request_workers_stand_near_the_ps() -> None:
    """Only site 1 can hold the PS. Q is equal but for the data, of which site 0 has more; its workers would pay 1."""
    sites = Sites(np.array([[4.0, 0.0], [4.0, 1.0]]), TWO.cost)
    job, left = site_job(worker=(1, 0), ps=(0, 1), data=(4, 4)), np.array([4, 2])
    literal, near = (
        place(sites, job, site_rooms(sites, job, left, sites.capacity, Weights(beta1=0, colocate=colocate)), 2)
        for colocate in (False, True)
    )
    assert literal is not None
    assert near is not None
    assert (literal.workers.tolist(), literal.ps, literal.cost) == ([2, 0], 1, 2.0)
    assert (near.workers.tolist(), near.ps, near.cost) == ([0, 2], 1, 0.0)


def test_the_metric_has_no_number_that_is_none() -> None:
    """No capacity, no data, one site: 0/0 is 0; the normalised distance is 1 at the farthest site."""
    sites = Sites(np.array([[0.0, 4.0], [2.0, 2.0], [4.0, 4.0]]), np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0.0]]))
    job = site_job(data=(4, 0, 2), worker=(1, 1), ps=(1, 1), exchange_mb=100)
    found = terms(sites, job, np.array([2, 0, 2]), sites.capacity, Weights(normalise=True, beta2=0.5))
    assert found.free.tolist() == [0.5, 1, 1]
    assert found.distance.tolist() == pytest.approx([-0.5, -1 / 3, -0.5])
    assert found.data.tolist() == [0.5, 0, 1]
    one = Sites(np.array([[4.0]]), np.zeros((1, 1)))
    for normalise in (False, True):
        assert terms(one, site_job(data=(4,)), np.array([4]), one.capacity, Weights(normalise=normalise)).total == [2]


def test_priorities_order_slopes_by_cost_and_deadlines_by_time() -> None:
    """Eq. (4) by kind of latency cost; a passed deadline is most urgent as printed, and least with `late_last`."""
    costs: list[LatencyCost] = [Linear(10), Exponential(40), Piecewise(1, 2, 3), Piecewise(1, 2, 9), Piecewise(1, 2, 5)]
    active = [Progress(job, job.chunks) for job in (site_job(i, latency=f) for i, f in enumerate(costs))]
    active[1].left = np.array([1, 0])
    assert priorities(active, 4, OkitaParams()) == pytest.approx([-0.75, 0.75, -1, -2, -1.2])
    assert priorities(active, 4, OkitaParams(late_last=True)) == pytest.approx([-0.75, 0.75, -2, -2, -1.2])
    assert priorities(active, 4, OkitaParams(alpha1=2, alpha2=0)) == pytest.approx([0.5, 2, 0, -2, -0.4])
    assert priorities(active[:2], 0, OkitaParams()) == pytest.approx([-1, -0.25])


def test_of_several_in_the_way_the_first_to_leave_counts() -> None:
    """Jobs of l = 1 and l = 3 hold a site each; a third needs both sites. `release: latest` takes the other."""
    sites = Sites(np.array([[2.0], [2.0]]), 9 * TWO.cost)
    jobs = [
        site_job(0, data=(2, 0), latency=Linear(1)),
        site_job(1, data=(0, 6), latency=Linear(1)),
        site_job(2, data=(4, 4), latency=Linear(90), exchange_mb=0, chunk_mb=0),
    ]
    for release, expected in (("earliest", (0, 1)), ("latest", (1, 3))):
        decisions = ran(Okita(sites, OkitaParams(release=release)), jobs)[0][1]
        conflict = decisions[2].conflict
        assert conflict is not None
        assert (conflict.occupant, conflict.release) == expected


def test_a_job_that_no_empty_system_holds_is_given_up_and_the_others_run() -> None:
    """Also where no site has anything."""
    scheduler = Alone(Okita(TWO))
    ran(scheduler, [site_job(0, worker=(4,)), site_job(1)])
    assert [scheduler.outcomes[i].status for i in (0, 1)] == ["never", "done"]
    empty = Alone(Okita(Sites(np.zeros((2, 1)), TWO.cost)))
    assert ran(empty, [site_job()]) == []
    assert empty.outcomes[0].status == "never"


def test_a_site_with_no_capacity_gives_its_data_away() -> None:
    """All four chunks of site 0 move to site 1, 1 per MB."""
    scheduler = Alone(Okita(Sites(np.array([[0.0], [3.0]]), TWO.cost)))
    ran(scheduler, [site_job()])
    assert (scheduler.outcomes[0].data_cost, scheduler.outcomes[0].parameter_cost) == (4.0, 0.0)


def test_every_plan_shows_what_each_number_of_workers_costs() -> None:
    """The first job of the second case: N = 1 takes two slots, N = 2 one, next to the PS; no third is looked at."""
    sites = Sites(np.array(MIGRATE.capacity, float), np.array(MIGRATE.cost, float))
    plans = every_plan(sites, MIGRATE.jobs[0], MIGRATE.jobs[0].chunks, Weights())
    assert [(plan.workers, plan.slots, plan.bandwidth) for plan in plans] == [(1, 2, 0.0), (2, 1, 0.0)]


def test_a_run_that_does_not_end_in_time_says_so() -> None:
    """The cap is in slots."""
    with pytest.raises(ScenarioError, match="1 jobs are not complete after 1 slots"):
        list(run(Okita(TWO), [site_job(data=(40, 0))], cap=1))


def test_a_scheduler_that_takes_more_than_there_is_is_stopped() -> None:
    """Two jobs at a site that holds one."""

    class Careless(Okita):
        def decide(self, slot: int) -> list[Decision]:  # type: ignore[override]
            at = SitePlacement(np.array([2, 0]), 0, 0.0)
            return [Decision(job, "run", one.left, at) for job, one in self.active.items()]

    scheduler = Alone(Careless(TWO))
    scheduler.arrive(site_job(0))
    scheduler.step(0)
    scheduler.arrive(site_job(1))
    with pytest.raises(StateError, match="slot 1: site 0 gives 3 of resource 0 more than it has"):
        scheduler.step(1)


# -- latency costs -----------------------------------------------------------------------------------------------------


def test_latency_costs_are_those_of_the_paper() -> None:
    """Sec. V-B."""
    assert Exponential(20)(4) == pytest.approx(20 * math.e)
    assert Linear(20, 50)(3) == 110
    assert [Piecewise(20, 300, 4)(x) for x in (3, 4, 5)] == [20, 300, 300]


@FEW
@given(st.integers(0, 5000), st.integers(-50, 5000))
def test_an_exponential_cost_stays_finite_and_in_order(start: int, more: int) -> None:
    """Its differences are those of the formula where that can be computed, and finite with the right sign elsewhere."""
    f = Exponential(100)
    rise = float(f.rise(start, np.array(start + more)))
    assert math.isfinite(rise)
    assert np.sign(rise) == np.sign(more)
    assert math.isfinite(f(start + more))
    assert f.log(start) == pytest.approx(math.log(100) + 0.25 * start)
    if 0.25 * (start + max(more, 0)) < 80:
        exact = 100 * (math.exp(0.25 * (start + more)) - math.exp(0.25 * start))
        assert rise == pytest.approx(exact, rel=1e-9)


def test_a_cost_beyond_floats_still_decides() -> None:
    """Two jobs of 20,000 slots' wait: the plans are those with the shortest time, of these the least bandwidth."""
    job = site_job(arrival=0, latency=Exponential(50))
    scheduler = Alone(Okita(Sites(np.array([[2.0], [3.0]]), TWO.cost)))
    scheduler.arrive(job)
    decisions: Any = scheduler.scheduler.decide(20_000)
    first = decisions[0].tentative
    assert first is not None
    assert (first.workers, first.slots) == (2, 1)
    scheduler.step(20_000)
    outcome = scheduler.outcomes[0]
    assert math.isfinite(outcome.total)
    assert outcome.log_latency == pytest.approx(math.log(50) + 0.25 * 20_001)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "cost", "said"),
    [
        (np.zeros((0, 1)), np.zeros((0, 0)), r"sites: capacity has shape \(0, 1\); it takes an amount by site"),
        (np.ones((2, 1)), np.zeros((3, 3)), r"sites: cost has shape \(3, 3\); 2 sites take 2 x 2"),
        (np.array([[1.0], [-1.0]]), TWO.cost, "site 1: capacity = -1.0 in column 0; it must be 0 or more"),
        (np.ones((2, 1)), np.array([[0, np.nan], [1, 0]]), "from '0' to '1' it is nan; it must be 0 or more"),
        (np.ones((2, 1)), np.array([[0.0, 1], [1, 2]]), "from '1' to '1' it is 2; a MB that stays must cost 0"),
        (np.ones((2, 1)), np.array([[0.0, 1], [2, 0]]), "from '0' to '1' it is 1 and 2 back; they must be equal"),
    ],
)
def test_sites_that_are_none_are_refused(capacity: Floats, cost: Floats, said: str) -> None:
    """One clear error each."""
    with pytest.raises(ScenarioError, match=said):
        Sites(capacity, cost)


def test_costs_that_differ_by_direction_are_allowed_where_stated() -> None:
    """And both directions count: data go 1 -> 0 for 1 per MB, the exchange 0 -> 1 would cost 9."""
    sites = Sites(np.array([[3.0], [0.0]]), np.array([[0.0, 9.0], [1.0, 0.0]]), asymmetric=True)
    scheduler = Alone(Okita(sites))
    ran(scheduler, [site_job(data=(0, 4))])
    assert scheduler.outcomes[0].bandwidth == 4.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": (0, 0)}, r"data = \(0, 0\); it must be above 0 for some site: there is nothing to train"),
        ({"data": (1, -1)}, r"data = \(1, -1\); it must be 0 or more chunks for each site"),
        ({"rate": 0.95}, "rate = 0.95; it must be at least 1"),
        ({"rate": math.inf}, "rate = inf; it must be at least 1"),
        ({"arrival": -1}, "arrival = -1; it must be 0 or more"),
        ({"chunk_mb": -1}, "chunk_mb = -1; it must be 0 or more"),
        ({"exchange_mb": math.nan}, "exchange_mb = nan; it must be 0 or more"),
        ({"worker": (0,)}, r"worker = \(0,\); it must be above 0 for some resource"),
        ({"worker": (-1,)}, r"worker = \(-1,\); it must be 0 or more for each resource"),
        ({"ps": (1, 1)}, r"ps = \(1, 1\); it must be as many resources as worker"),
    ],
)
def test_jobs_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    """Naming the job, the field, the value and what would be right."""
    with pytest.raises(ScenarioError, match=f"job 3: {said}"):
        site_job(3, **changes)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Exponential(0), "latency cost: tau = 0; it must be above 0"),
        (lambda: Exponential(1, -1), "latency cost: rate = -1; it must be above 0"),
        (lambda: Linear(math.inf), "latency cost: tau = inf; it must be above 0"),
        (lambda: Linear(1, -1), "latency cost: base = -1; it must be 0 or more"),
        (lambda: Piecewise(5, 4, 1), "latency cost: tau_2 = 4; it must be at least tau_1 = 5"),
        (lambda: Piecewise(5, 6, 0), "latency cost: c = 0; it must be above 0"),
    ],
)
def test_latency_costs_that_cannot_be_are_refused(make: Any, said: str) -> None:
    """They must not fall with time."""
    with pytest.raises(ScenarioError, match=said):
        make()


def test_jobs_that_are_not_made_for_these_sites_are_refused() -> None:
    """By number of sites, of resources, and by an id that is taken."""
    scheduler = Alone(Okita(TWO))
    with pytest.raises(ScenarioError, match="job 0: data at 1 sites; there are 2"):
        scheduler.arrive(site_job(data=(1,)))
    with pytest.raises(ScenarioError, match="job 0: demands for 2 resources; the sites have 1"):
        scheduler.arrive(site_job(worker=(1, 1), ps=(1, 1)))
    scheduler.arrive(site_job())
    with pytest.raises(ScenarioError, match="job 0: id = 0 is taken"):
        scheduler.arrive(site_job())
