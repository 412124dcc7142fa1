"""FIFO, DRF and OASiS in Okita's model: what every schedule satisfies, the rule of each, enumeration."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.site_baselines import TWO, oasis, site_job, the_plan_is_the_cheapest_of_all
from builders.site_instances import draw_jobs, draw_sites
from builders.sites import POLICIES
from builders.sites_alone import Alone, after, bandwidth_cost, run
from builders.thorough import thorough_except
from skedge.core.errors import ScenarioError
from skedge.core.model.latency import Exponential, Linear
from skedge.core.model.speed import whole_chunks
from skedge.policies.oasis.at_sites import site_prices
from skedge.policies.okita.baselines import SiteDrf, SiteFifo, even_split
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.policies.okita.slots import Decision, SiteScheduler
from skedge.policies.pdors.prices import MIN_PRICE_RATIO

FEW = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)

Record = list[tuple[int, list[Decision]]]


def make(policy: str, sites: Sites, jobs: list[SiteJob]) -> SiteScheduler:
    if policy == "fifo":
        return SiteFifo(sites, np.random.default_rng(1))
    if policy == "drf":
        return SiteDrf(sites)
    return oasis(sites, jobs, 400, split_sites=policy == "oasis" and len(sites) > 1)


def of(record: Record, job: int) -> list[tuple[int, Decision]]:
    return [(slot, one) for slot, decisions in record for one in decisions if one.job == job]


@pytest.mark.parametrize("policy", thorough_except(["fifo", "drf"], POLICIES[1:]))
@FEW
@given(seed=seeds)
def test_every_schedule_satisfies_the_constraints(policy: str, seed: int) -> None:
    """Capacity, one PS, chunks neither lost nor trained twice, and what was booked is Eq. (1)."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng, exact=bool(rng.integers(2)))
    jobs = draw_jobs(rng, sites, int(rng.integers(1, 7)), fits=bool(rng.integers(2)))
    scheduler = Alone(make(policy, sites, jobs))
    record = list(scheduler.run(jobs))
    by_id = {job.id: job for job in jobs}
    for _, decisions in record:
        used = np.zeros_like(sites.capacity)
        for one in decisions:
            if one.placement is not None:
                used += np.outer(one.placement.workers, by_id[one.job].worker)
                used[one.placement.ps] += by_id[one.job].ps
        assert (used <= sites.capacity * (1 + 1e-9)).all()
    for job in jobs:
        outcome, mine = scheduler.outcomes[job.id], of(record, job.id)
        if outcome.status == "never":
            assert all(one.placement is None for _, one in mine)
            continue
        left = job.chunks
        for slot, one in mine:
            assert slot >= job.arrival
            assert (one.left == left).all()
            if one.placement is not None and one.transfer is not None:
                most = [whole_chunks(job.rate, int(y)) for y in one.placement.workers]
                assert (one.transfer.trained <= most).all()
                left = after(left, one.transfer)
                assert (left >= 0).all()
        assert not left.any()
        assert sum(one.transfer.trained.sum() for _, one in mine if one.transfer is not None) == job.chunks.sum()
        assert outcome.last == mine[-1][0]
        assert outcome.latency == pytest.approx(job.latency(mine[-1][0] + 1 - job.arrival))
        assert outcome.bandwidth == pytest.approx(bandwidth_cost(sites, job, [one for _, one in mine]))


# -- FIFO and DRF ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "drf"])
@FEW
@given(seed=seeds)
def test_a_job_stays_as_it_began(policy: str, seed: int) -> None:
    """The same workers and PS in every slot without a break; all data move in the first, an equal share per worker."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    jobs = draw_jobs(rng, sites, 6)
    record = list(run(make(policy, sites, jobs), jobs))
    for job in jobs:
        ran = [(slot, one) for slot, one in of(record, job.id) if one.placement is not None]
        assert [slot for slot, _ in ran] == list(range(ran[0][0], ran[0][0] + len(ran)))
        first = ran[0][1].placement
        assert first is not None
        for turn, (_, one) in enumerate(ran):
            assert one.placement is not None
            assert one.transfer is not None
            assert (one.placement.workers == first.workers).all()
            assert one.placement.ps == first.ps
            assert turn == 0 or len(one.transfer.moves) == 0
        moved = ran[0][1].transfer
        assert moved is not None
        there = after(job.chunks, moved._replace(trained=0 * moved.trained))
        share = job.chunks.sum() / first.workers.sum()
        assert (np.abs(there - share * first.workers) < 1).all()


@FEW
@given(seeds)
def test_fifo_begins_in_the_order_of_arrival(seed: int) -> None:
    """Nobody begins in a slot before one that came earlier."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    jobs = draw_jobs(rng, sites, 7)
    record = list(run(make("fifo", sites, jobs), jobs))
    begun = [
        next(slot for slot, one in of(record, job.id) if one.placement is not None)
        for job in sorted(jobs, key=lambda job: (job.arrival, job.id))
    ]
    assert all(a <= b for a, b in pairwise(begun))


def test_fifo_draws_from_one_to_half_of_what_is_free() -> None:
    """Twelve workers are free: 1 to 6, each about equally often; where two are free, one."""
    job = site_job(data=(40, 40))
    counts = []
    for seed in range(600):
        scheduler = SiteFifo(TWO, np.random.default_rng(seed))
        _, decisions = next(run(scheduler, [job]))
        assert decisions[0].placement is not None
        counts.append(int(decisions[0].placement.workers.sum()))
    assert set(counts) == set(range(1, 7))
    assert all(60 < counts.count(n) < 140 for n in range(1, 7))
    tight = SiteFifo(Sites(np.array([[2.0], [0.0]]), TWO.cost), np.random.default_rng(1))
    assert [len(decisions) for _, decisions in run(tight, [job])] == [1] * 40


def test_drf_gives_the_shares_of_its_authors_example() -> None:
    """9 CPUs and 18 GB; A takes 1 and 4, B takes 3 and 1: 3 workers for A, 2 for B (Ghodsi et al., Sec. 4.1)."""
    sites = Sites(np.array([[9.0, 18.0]]), np.zeros((1, 1)))
    jobs = [site_job(i, data=(80,), worker=w, ps=(0, 0)) for i, w in enumerate(((1, 4), (3, 1)))]
    _, decisions = next(run(SiteDrf(sites), jobs))
    assert [one.placement.workers.tolist() for one in decisions if one.placement is not None] == [[3], [2]]


def test_drf_passes_over_what_does_not_fit_and_fifo_does_not() -> None:
    """The first job takes site 0; the second needs both, the third only site 1: under FIFO it waits for the second."""
    sites = Sites(np.array([[3.0], [2.0]]), TWO.cost)
    jobs = [site_job(0, data=(4, 0)), site_job(1, worker=(2,), ps=(2,)), site_job(2, data=(2, 0))]
    for scheduler, expected in ((SiteFifo(sites, np.random.default_rng(1)), False), (SiteDrf(sites), True)):
        _, decisions = next(run(scheduler, jobs))
        assert [one.job for one in decisions] == [0, 1, 2]
        assert [one.placement is not None for one in decisions] == [True, False, expected]


@FEW
@given(seeds)
def test_equal_shares_are_whole_and_lose_nothing(seed: int) -> None:
    """Within one chunk of the exact share; nothing where nobody works."""
    rng = np.random.default_rng(seed)
    left, workers = rng.integers(0, 50, 6), rng.integers(0, 4, 6)
    workers[rng.integers(6)] += 1
    share = even_split(left, workers)
    assert share.sum() == left.sum()
    assert (np.abs(share - left.sum() * workers / workers.sum()) < 1).all()
    assert (share[workers == 0] == 0).all()


# -- OASiS -------------------------------------------------------------------------------------------------------------


def test_prices_are_what_an_early_end_saves() -> None:
    """U = (f(T - a) - f(1)) / (1 + 1) of the job with the largest; L is 1e-12 of it; T = 5, f = 10x and 20x."""
    jobs = [site_job(0), site_job(1, latency=Linear(20), arrival=1)]
    prices = site_prices(jobs, TWO, 5)
    assert prices.high.tolist() == [[30.0], [30.0]]
    assert prices.low == pytest.approx([30 * MIN_PRICE_RATIO] * 2)
    with pytest.raises(ScenarioError, match="no job to calibrate from"):
        site_prices([], TWO, 5)
    assert site_prices([site_job()], TWO, 1).at(np.ones((2, 1)), TWO.capacity).tolist() == [[0], [0]]


@FEW
@given(seeds, st.booleans())
def test_the_plan_is_the_cheapest_of_all(seed: int, split: bool) -> None:
    the_plan_is_the_cheapest_of_all(seed, split=split)


def test_split_sites_hold_workers_or_ps() -> None:
    """As OASiS's own servers: workers at even sites, PSs at odd ones; every worker pays for the exchange."""
    jobs = [site_job(i) for i in range(3)]
    scheduler = Alone(oasis(TWO, jobs, 20))
    for _, decisions in scheduler.run(jobs):
        for one in decisions:
            if one.placement is not None:
                assert (one.placement.workers[1], one.placement.ps) == (0, 1)
                assert one.placement.cost == one.placement.workers[0]
    assert len(scheduler.outcomes) == 3


def test_books_that_cannot_hold_a_job_are_doubled() -> None:
    """One slot holds 11 workers beside a PS, 22 chunks; 24 take two slots, of which the books have one."""
    scheduler = oasis(TWO, [site_job(latency=Exponential(1))], 2, split_sites=False)
    scheduler.arrive(site_job(0, data=(12, 12), arrival=1))
    assert sorted(scheduler.plans[0]) == [1, 2]
    assert len(scheduler.loads.load) == 4
    scheduler.arrive(site_job(1, arrival=9))
    assert sorted(scheduler.plans[1]) == [9]


def test_a_level_is_no_more_than_a_slot_holds() -> None:
    """24 chunks in one level would never fit 22."""
    scheduler = oasis(TWO, [site_job(latency=Exponential(1))], 2, levels=1, split_sites=False)
    scheduler.arrive(site_job(0, data=(12, 12)))
    assert sorted(scheduler.plans[0]) == [0, 1]


def test_a_job_that_no_empty_slot_holds_is_given_up() -> None:
    """Its worker takes more than a site has; nothing is booked."""
    scheduler = oasis(TWO, [site_job()], 2)
    scheduler.arrive(site_job(0, worker=(7,)))
    assert not scheduler.active
    assert not scheduler.loads.load.any()
