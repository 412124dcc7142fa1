"""A_online of She et al. and BatchSche: against the plain path, brute force, the invariants, and by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.batch import SETTINGS, decisions_of, plain_terms, plain_to_compare, played
from builders.product import Run, play
from builders.she_instances import small
from builders.thorough import thorough_after
from golden.she_cases import CASES, HOUR, H, job, scenario
from reference.batch import Decision, Plan, Setting, System, a_online
from skedge.core.errors import PolicyError
from skedge.core.events import Allocate, Event, Order, Reserve
from skedge.core.model.cluster import Physics
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import View
from skedge.core.registry import make_policy
from skedge.explanation.explain import explain
from skedge.policies.she import deployment
from skedge.policies.she.deployment import COST_C, COST_D, NO_PLAN, DeploymentRequest
from skedge.policies.she.policy import Batch
from skedge.policies.she.prices import (
    LoadProfile,
    empty_profile,
    free_units,
    from_zero,
    take,
    window_price,
    with_room,
)
from skedge.simulate import run as kept_run

SEEDS = range(60)


@pytest.mark.parametrize("options", SETTINGS)
def test_the_product_decides_as_the_plain_path(options: str) -> None:
    """60 random instances: every batch offers and accepts the same, with the same plans and utilities."""
    accepted: Counter[str] = Counter()
    for seed in SEEDS:
        run = played(seed, options)
        plain, never = a_online(run.scenario, SETTINGS[options])
        assert plain_to_compare(decisions_of(run)) == plain_terms(plain), seed
        rejected = run.schedule.jobs.filter(pl.col("state") == "rejected")["job"].to_list()
        assert set(rejected) == never
        accepted.update(d.plan.kind if d.plan else "put off" for d in plain)
    assert min(accepted["C"], accepted["D"], accepted["put off"]) > 20


# -- exactness of the parts -------------------------------------------------------------------------------------------


def turns(seed: int, setting: Setting) -> Iterator[tuple[System, int]]:
    """Every system of a run of the plain path as a job finds it at its turn."""
    found: list[tuple[System, int]] = []

    def watch(system: System, job: int, plan: Plan | None) -> None:
        copy = System(system.scenario, system.setting, system.tau)
        copy.f, copy.g = [[list(t) for t in s] for s in system.f], [[list(t) for t in s] for s in system.g]
        found.append((copy, job))

    a_online(small(seed), setting, watch)
    yield from found


def books(system: System) -> tuple[LoadProfile, LoadProfile]:
    """The loads of a system as the product keeps them."""
    made = []
    for loads, capacity, F in ((system.f, system.W, system.setting.F1), (system.g, system.P, system.setting.F2)):
        types = len(capacity[0])
        curve = from_zero(F, 2 * system.setting.T * system.count * types, normed=system.setting.normed)
        book = empty_profile(np.array(capacity).ravel(), curve)
        for row, slots in enumerate(load for server in loads for load in server):
            for t, units in enumerate(slots):
                book = with_room(book)
                take(book, row, units, t, t + 1)
        made.append(book)
    return made[0], made[1]


def asked(system: System, j: int) -> tuple[DeploymentRequest, list[int]]:
    usable, (u, v) = system.eligible(j), system.types(j)
    at, types, ps_types = np.array(usable, np.int64), len(system.W[0]), len(system.P[0])
    xi = np.array([system.xi_on(s) for s in usable], np.int64)
    physics, jobs = system.scenario.physics, system.scenario.jobs
    work, most = system.scenario.announced_work[j], int(jobs.chunks[j])
    return DeploymentRequest(work, most, physics.slot, system.tau, at * types + u, at * ps_types + v, xi), usable


@pytest.mark.parametrize("options", SETTINGS)
def test_cost_c_and_cost_d_are_the_cheapest_of_all_placements(options: str) -> None:
    """At every turn of 60 instances and for every D_u, by brute force over all placements that fit."""
    compared: Counter[int] = Counter()
    for seed in range(60):
        for system, j in turns(seed, SETTINGS[options]):
            (workers, ps), (ask, usable) = books(system), asked(system, j)
            y = np.zeros(len(usable), np.int64)
            for n in range(1, ask.max_workers + 1):
                for deploy, kind, all_of in (
                    (deployment.cost_c, COST_C, system.on_one_server),
                    (deployment.cost_d, COST_D, system.all_placements),
                ):
                    plans = list(all_of(j, n))
                    got = deploy(ask, n, workers, ps, y)
                    assert (got.kind == NO_PLAN) == (not plans)
                    if plans:
                        assert got.cost == pytest.approx(min(plan.cost for plan in plans), abs=1e-12, rel=1e-9)
                        whole = tuple(int(y[usable.index(s)]) if s in usable else 0 for s in range(system.count))
                        assert sum(whole) == n
                        assert system.fits(j, whole, usable[got.ps], got.slots)
                        assert system.cost(j, whole, usable[got.ps], got.slots) == pytest.approx(got.cost, rel=1e-9)
                        compared[kind] += 1
    assert min(compared.values()) > 100


def test_dual_feasibility_holds_for_every_plan_that_was_possible_at_the_jobs_turn() -> None:
    """(5a) under the final prices of each batch, 60 instances: eta_j >= 1 - cost(l) for all D_u and all placements."""
    checked = 0
    for seed in range(60):
        for setting in (Setting(T=5, F1=3.0, F2=2.0), Setting()):
            checked += check_dual(small(seed), setting)
    assert checked > 5_000


def check_dual(made: Scenario, setting: Setting) -> int:
    plans: list[tuple[System, int, float, list[Plan]]] = []

    def watch(system: System, j: int, best: Plan | None) -> None:
        eta = 0.0 if best is None else max(0.0, 1 - best.cost)
        numbers = range(1, int(made.jobs.chunks[j]) + 1)
        possible = [plan for n in numbers for all_of in (system.all_placements, system.on_one_server)
                    for plan in all_of(j, n)]  # fmt: skip
        plans.append((system, j, eta, possible))

    a_online(made, setting, watch)  # now every system has the loads at the end of its batch
    for system, j, eta, possible in plans:
        for plan in possible:
            assert eta >= 1 - system.cost(j, plan.y, plan.ps_server, plan.d) - 1e-9
    return sum(len(possible) for *_, possible in plans)


def test_alg_4_as_printed_never_costs_less_than_the_exact_placement() -> None:
    """H14: at every turn and for every D_u the plan that it finds costs as much or more, and at times more."""
    dearer = equal = 0
    for seed in range(120):
        for system, j in turns(seed, Setting(T=5, F1=3.0, F2=2.0)):
            (workers, ps), (ask, usable) = books(system), asked(system, j)
            y = np.zeros(len(usable), np.int64)
            for n in range(1, ask.max_workers + 1):
                exact = deployment.cost_d(ask, n, workers, ps, y)
                printed = deployment.cost_d_literal(ask, n, workers, ps, y)
                if printed.kind == NO_PLAN:
                    continue
                whole = tuple(int(y[usable.index(s)]) if s in usable else 0 for s in range(system.count))
                assert system.cost(j, whole, usable[printed.ps], printed.slots) == pytest.approx(printed.cost)
                assert exact.cost <= printed.cost * (1 + 1e-9)
                dearer += exact.cost < printed.cost * (1 - 1e-9)
                equal += exact.cost >= printed.cost * (1 - 1e-9)
    assert dearer > 0
    assert equal > 100


def one_row_each(*servers: tuple[float, float]) -> tuple[LoadProfile, LoadProfile]:
    """Servers of one type with these workers and PSs, T = 20, F = 2 at 2TSU = 40: with f of 4 taken (3^f - 1)/40."""
    curve = from_zero(2.0, 40.0, normed=True)
    return (
        empty_profile(np.array([w for w, _ in servers]), curve),
        empty_profile(np.array([p for _, p in servers]), curve),
    )


def slots_on(servers: int, work: int, *, most: int = 1, interval: int = 8) -> DeploymentRequest:
    """A job of `work` worker-slots, at any xi."""
    rows = np.arange(servers)
    return DeploymentRequest(np.array([work, work]), most, 1, interval, rows, rows, np.ones(servers, np.int64))


def test_the_server_that_is_dearer_at_tau_can_be_the_cheaper_one() -> None:
    """H11: f = 2 in slot 0 alone costs 0.2; f = 1 in all 8 slots 0.05 each, 0.4. At tau the second looks cheaper."""
    workers, ps = one_row_each((4.0, 4.0), (4.0, 4.0))
    take(workers, 0, 2, 0, 1)
    take(workers, 1, 1, 0, 8)
    y = np.zeros(2, np.int64)
    plan = deployment.cost_c(slots_on(2, 8), 1, workers, ps, y)
    assert (plan.ps, y.tolist()) == (0, [1, 0])
    assert plan.cost == pytest.approx(0.2)


def test_alg_4_as_printed_finds_no_plan_on_an_empty_server_with_a_worker_to_spare() -> None:
    """H14: all prices are 0, so lines 22-25 move the worker to where it is, the loop ends, and L stays empty."""
    workers, ps = one_row_each((2.0, 1.0))
    y = np.zeros(1, np.int64)
    assert deployment.cost_d_literal(slots_on(1, 4), 1, workers, ps, y).kind == NO_PLAN
    exact = deployment.cost_d(slots_on(1, 4), 1, workers, ps, y)
    assert (exact.kind, exact.cost, y.tolist()) == (COST_D, 0.0, [1])


def test_a_book_is_the_sum_of_what_was_taken_slot_by_slot() -> None:
    """Room, price of a window and pieces of 300 random books against lists."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        capacity, slots = int(rng.integers(5, 9)), 12
        book, loads = empty_profile(np.array([float(capacity)]), from_zero(2.0, 30.0, normed=True)), [0] * slots
        for _ in range(int(rng.integers(0, 5))):
            start = int(rng.integers(0, slots))
            end = int(rng.integers(start + 1, slots + 1))
            book = with_room(book)
            take(book, 0, 1, start, end)
            loads = [n + (start <= t < end) for t, n in enumerate(loads)]
        prices = [((61.0) ** (n / capacity) - 1) / 30 for n in loads]
        a = int(rng.integers(0, slots))
        b = int(rng.integers(a + 1, slots + 1))
        assert free_units(book, 0, a, b) == capacity - max(loads[a:b])
        assert window_price(book, 0, a, b) == pytest.approx(sum(prices[a:b]), abs=1e-12)
        by_slot = [window_price(book, 0, t, t + 1) for t in range(a, b)]
        assert by_slot == pytest.approx(prices[a:b], abs=1e-12)


# -- invariants of ERRATA, section 2 ----------------------------------------------------------------------------------


def test_a_book_with_room_takes_two_steps_more_in_its_fullest_row() -> None:
    """A compiled kernel does not look whether it writes beyond the end of an array."""
    book = with_room(empty_profile(np.array([9.0, 9.0]), from_zero(1.0, 2.0, normed=True)))
    for n in range(1, 20):
        take(book, 0, 1, 3 * n, 3 * n + 1)
        book = with_room(book)
        assert book.size.tolist() == [2 * n + 1, 1]
        assert book.starts.shape == book.load.shape
        assert book.starts.shape[1] >= book.size[0] + 2


@pytest.mark.parametrize("options", thorough_after(2, SETTINGS))
def test_the_invariants_of_the_batch_scheduler_hold(options: str) -> None:
    """60 random instances; what the verifier checks (capacity, one PS, types) is checked by playing them."""
    for seed in SEEDS:
        run = played(seed, options)
        made, slot = run.scenario, run.scenario.physics.slot
        accepted = [d for d in decisions_of(run) if d.plan]
        assert len({d.job for d in accepted}) == len(accepted)
        first_of_batch = {d.tau: d for d in reversed(accepted)}
        for d in accepted:
            assert d.plan is not None
            jobs, xi = made.jobs, int(d.plan.kind == "C")
            start, end = d.tau * slot, (d.tau + d.plan.d) * slot
            assert start < end <= 2 * start
            assert 1 <= d.plan.workers <= jobs.chunks[d.job]
            assert d.plan.d * slot * d.plan.workers >= made.announced_work[d.job, xi * system_xi(run, d)]
            strict = "strict_upload=false" not in options
            delays = run.kernel.upload_delays(d.job)
            for s in {s for s, n in enumerate(d.plan.y) if n} | {d.plan.ps_server}:
                there = jobs.arrival[d.job] + delays[s]
                assert there < start or (not strict and there == start)
            assert 0 < d.eta <= 1
            if made.physics.colocation == "one_server" and d.plan.kind == "D":
                hosts = {s for s, n in enumerate(d.plan.y) if n} | {d.plan.ps_server}
                assert len(hosts) > 1, "one server is a plan of COST_C, which is no worse (H15)"
            assert first_of_batch[d.tau].eta == 1


def system_xi(run: Run, decision: Decision) -> int:
    """Whether one server is enough for xi = 1 there."""
    assert decision.plan is not None
    return System(run.scenario, Setting(), 1).xi_on(decision.plan.ps_server)


def test_prices_on_record_start_at_nothing_and_only_rise_within_a_batch() -> None:
    """From 0 to F, and at F nothing is free."""
    for seed in SEEDS:
        prices = played(seed, ":T=5,F1=3,F2=2").schedule.prices
        latest: dict[tuple[Any, ...], float] = {}
        for row in prices.rows(named=True):
            most = 3.0 if row["resource"].startswith("worker") else 2.0
            assert 0 < row["price"] <= most * (1 + 1e-12)
            for t in range(row["from"] // HOUR, row["to"] // HOUR):
                key = row["made_at"], row["server"], row["resource"], t
                assert row["price"] > latest.get(key, 0.0)
                latest[key] = row["price"]


# -- parameters -------------------------------------------------------------------------------------------------------


def accepted_at(run: Run) -> dict[str, int]:
    """tau at which each job was accepted, by id."""
    return {run.scenario.jobs.ids[d.job]: d.tau for d in decisions_of(run) if d.plan}


def two_ones(**options: Any) -> Scenario:
    """One server with 8 workers and 8 PSs; two jobs of one chunk and one slot (p = 4), there before tau = 2."""
    jobs = [job(name, 1, 1, 1, 4, (0,), **options) for name in ("1", "2")]
    return scenario([((8,), (8,))], jobs)


def test_prices_as_printed_turn_the_second_job_away_with_seven_workers_of_eight_free() -> None:
    """H2: T = 1000, S = U = V = F = 1: theta = 2001; 2001^(1/8) - 1 = 1.59 > 1; divided by 2TSU it is 0.0008."""
    assert accepted_at(play(two_ones(), make_policy("batch:T=1000"))) == {"1": 2, "2": 2}
    assert accepted_at(play(two_ones(), make_policy("batch:T=1000,price_norm=none"))) == {"1": 2, "2": 4}


def test_data_must_be_there_before_tau_or_by_tau() -> None:
    """H10: 1 + 1 < 2 is false, 1 + 1 <= 2 is not."""
    made = scenario([((2,), (1,))], [job("1", 1, 1, 1, 4, (1,))])
    assert accepted_at(play(made, make_policy("batch"))) == {"1": 4}
    assert accepted_at(play(made, make_policy("batch:strict_upload=false"))) == {"1": 2}


def test_a_batch_can_take_the_shortest_first() -> None:
    """H20: one worker; job 1 takes 4 slots, job 2 one: by arrival job 1 runs 4-8 and job 2 waits until 8."""
    made = scenario([((1,), (1,))], [job("1", 2, 1, 1, 16, (0,)), job("2", 3, 1, 1, 4, (0,))])
    assert accepted_at(play(made, make_policy("batch"))) == {"1": 4, "2": 8}
    assert accepted_at(play(made, make_policy("batch:order=shortest"))) == {"2": 4, "1": 8}


def test_a_cloud_with_a_capacity_is_full_in_the_end() -> None:
    """H21: without a limit both jobs of two chunks run in the cloud at 4; with 2 workers, one of them waits until 8."""
    jobs = [job(name, 1, 1, 2, 16, (9,), cloud=1) for name in ("1", "2")]
    made = scenario([((1,), (1,))], jobs, cloud=True)
    assert accepted_at(play(made, make_policy("batch"))) == {"1": 4, "2": 4}
    limited = play(made, make_policy("batch:cloud_capacity=2"))
    assert accepted_at(limited) == {"1": 4, "2": 8}
    assert limited.schedule.prices["server"].unique().to_list() == ["cloud"]
    edge_only = play(made, make_policy("batch:cloud_capacity=0"))
    assert set(edge_only.schedule.runs["server"]) == {"0"}


@pytest.mark.parametrize("spec", ["batch:F1=0", "batch:T=0", "batch:order=longest", "batchsche:strict_upload=false"])
def test_a_parameter_that_cannot_be_is_refused(spec: str) -> None:
    with pytest.raises(PolicyError):
        make_policy(spec)


# -- time that is not slotted, or not as announced --------------------------------------------------------------------


def test_in_continuous_time_a_job_ends_within_its_last_slot() -> None:
    """Work 6 at p = 4 takes 1.5 h on one worker: planned for two slots, it ends at 3.5."""
    made = scenario([((1,), (1,))], [job("1", 1, 1, 1, 6, (0,))])
    run = play(replace(made, physics=Physics(colocation="one_server")), make_policy("batch"))
    assert run.schedule.jobs["completion"].to_list() == [3.5 * HOUR]
    assert run.schedule.plans.select("from", "to").rows() == [(2 * HOUR, 4 * HOUR)]


def test_work_that_outlives_its_plan_keeps_its_workers_and_the_next_batch_finds_it_there() -> None:
    """Announced 2 slots from 2, truly more: the plan is broken at 4 and extended; job 2 cannot start beside it at 4."""
    jobs = [job("1", 1, 1, 1, 8, (0,)), job("2", 3, 1, 1, 4, (0,))]
    for seed in range(20):
        physics = Physics(slotted=True, colocation="one_server", estimate_error=1.0)
        made = replace(scenario([((1,), (1,))], jobs), physics=physics, seed=seed)
        if made.true_work[0, 1] > made.announced_work[0, 1] * 1.2:
            break
    run = play(made, make_policy("batch"))
    assert accepted_at(run) == {"1": 2, "2": 8}
    assert run.schedule.plans.filter(pl.col("job") == 0)["broken_at"].to_list()[0] == 4 * HOUR
    assert run.schedule.decisions.filter(pl.col("reason") == "extended")["time"].to_list()[0] == 4 * HOUR
    assert run.schedule.decisions.filter(pl.col("verb") == "postpone")["time"].to_list() == [4 * HOUR]


def test_without_uploads_charged_data_are_there_at_once() -> None:
    """Fig. 7-8: a job with a delay of 9 slots starts at tau = 2."""
    made = scenario([((1,), (1,))], [job("1", 1, 1, 1, 4, (9,))])
    assert accepted_at(play(made, make_policy("batch"))) == {"1": 16}
    free = replace(made, physics=replace(made.physics, charge_upload=False))
    assert accepted_at(play(free, make_policy("batch"))) == {"1": 2}


def test_data_go_to_every_server_that_has_a_worker_of_the_type() -> None:
    """H10: case "types": job 3 (worker type 1) to server 1 alone, the others to both, all chunks to each."""
    run = play(CASES["types"].scenario, make_policy("batch:T=36"))
    rows = run.schedule.uploads.sort("job", "to_server").select("job", "to_server", "chunks").rows()
    assert rows == [(0, "0", 3), (0, "1", 3), (1, "0", 1), (1, "1", 1), (2, "1", 2), (3, "0", 1), (3, "1", 1)]


def test_too_many_jobs_for_the_servers_are_one_clear_error() -> None:
    """One worker takes one job a batch: 40 jobs of a slot would last until slot 2^40."""
    jobs = [job(str(n), 0, 1, 1, 4, (0,)) for n in range(40)]
    with pytest.raises(PolicyError, match=r"^batch: 9 jobs still wait for slot 2147483648"):
        play(scenario([((1,), (1,))], jobs), make_policy("batch"))


# -- BatchSche --------------------------------------------------------------------------------------------------------


def test_batchsche_chooses_without_regard_to_uploads_and_its_jobs_wait_for_their_data() -> None:
    """Accepted at 2, its data come at 9: it holds the worker from 2, computes 9-10; job 2 finds it taken at 4 and 8."""
    made = scenario([((1,), (1,))], [job("1", 1, 1, 1, 4, (8,)), job("2", 3, 1, 1, 4, (0,))])
    run = play(made, make_policy("batchsche"))
    held = run.schedule.runs.sort("job").select("start", "compute_from", "end").rows()
    assert held == [(2 * HOUR, 9 * HOUR, 10 * HOUR), (16 * HOUR, 16 * HOUR, 17 * HOUR)]
    assert run.schedule.plans.sort("job").select("from", "to").rows()[0] == (2 * HOUR, 10 * HOUR)
    assert run.schedule.plans["broken_at"].null_count() == 2


def test_batchsche_takes_the_fewest_worker_slots_where_cost_is_equal() -> None:
    """Work 4.5 slots, D = 3: one worker takes 5 slots, two 3 (6 worker-slots), three 2 (6). Its batch begins at 8."""
    made = scenario([((4,), (1,))], [job("1", 4, 1, 3, 6, (0,))])
    one, earliest = (play(made, make_policy(spec)) for spec in ("batchsche", "batchsche:tie=earliest"))
    assert one.schedule.runs.select("workers", "start", "end").rows() == [(1, 8 * HOUR, 13 * HOUR)]
    assert earliest.schedule.runs.select("workers", "start", "end").rows() == [(3, 8 * HOUR, 10 * HOUR)]


def test_the_printed_tie_takes_the_fewest_workers() -> None:
    """Work 4.5 slots, D = 3, the batch at 8 owns 8 slots: D_u = 1 ends within them, and ">" keeps it; one server."""
    made = scenario([((4,), (1,)), ((4,), (1,))], [job("1", 4, 1, 3, 6, (0, 0))])
    for spec in ("batch:tie=printed", "batchsche:tie=printed"):
        assert play(made, make_policy(spec)).schedule.runs.select("workers", "start", "end").rows() == [
            (1, 8 * HOUR, 13 * HOUR)
        ]
    assert play(made, make_policy("batch")).schedule.runs["workers"].to_list() == [3]


def test_batchsche_can_upload_where_it_places() -> None:
    """Placed at 2 on one worker: its data are there 8 slots later, at 10; a copy, sent at 1, would be there at 9."""
    made = scenario([((1,), (1,)), ((1,), (1,))], [job("1", 1, 1, 4, 1, (8, 3))])
    run = play(made, make_policy("batchsche:upload=where_placed"))
    assert run.schedule.runs.select("start", "compute_from", "end").rows() == [(2 * HOUR, 10 * HOUR, 11 * HOUR)]
    assert run.schedule.uploads.select("to_server", "chunks", "start").rows() == [("0", 4, 2 * HOUR)]
    assert run.schedule.plans.select("from", "to").rows() == [(2 * HOUR, 11 * HOUR)]


def test_batchsche_takes_the_earliest_completion_where_cost_and_worker_slots_are_equal() -> None:
    """Work 3 slots, D = 4: one worker takes 3 slots, two 2 (4 worker-slots), three 1: of one and three, three."""
    made = scenario([((4,), (1,))], [job("1", 2, 1, 4, 3, (0,))])
    run = play(made, make_policy("batchsche"))
    assert run.schedule.runs.select("workers", "start", "end").rows() == [(3, 4 * HOUR, 5 * HOUR)]


def test_batchsche_sends_jobs_to_the_cloud_that_costs_nothing() -> None:
    """Two jobs, one edge server with two workers: the second finds it priced, the cloud not."""
    made = scenario([((2,), (2,))], [job(name, 1, 1, 1, 8, (0,), cloud=5) for name in ("1", "2")], cloud=True)
    run = play(made, make_policy("batchsche"))
    assert run.schedule.runs.sort("job")["server"].to_list() == ["0", "cloud"]
    assert run.schedule.runs.sort("job")["compute_from"].to_list() == [2 * HOUR, 6 * HOUR]


# -- why --------------------------------------------------------------------------------------------------------------


def test_explain_tells_why_a_job_was_accepted_with_which_workers_and_why_it_waited() -> None:
    """Case "prices", jobs 2 and 3, with the numbers of the hand."""
    run = kept_run(CASES["prices"].scenario, CASES["prices"].policy)
    second = explain(run, "2")
    assert second.terms is not None
    t = second.terms
    assert (second.verb, second.reason, second.time_s) == ("reserve", "one_server", 4 * H)
    assert (t["batch"], t["tau_s"], t["D_u"], t["placement"], t["slots"]) == (3, 4 * H, 2, "one server", 1)
    assert t["eta"] == pytest.approx(0.85)
    assert t["prices"] == [
        {"server": "0", "workers": 2, "ps": 1, "price_of_one": pytest.approx(0.05), "price_of_ps": pytest.approx(0.05)}
    ]
    costs = {(p["D_u"], p["placement"]): p["cost"] for p in t["plans"]}
    hand = {1: (0.2, 0.4), 2: (0.15, 0.3), 3: (0.2, 0.4)}
    assert costs == {
        (n, where): pytest.approx(cost)
        for n, both in hand.items()
        for where, cost in zip(("one server", "spread"), both, strict=True)
    }
    third = explain(run, "3")
    assert third.terms is not None
    assert third.terms["earlier_batches"] == [
        {"tau_s": 4 * H, "postponed": "too_dear", "eta": pytest.approx(-0.15)},
    ]
    told = third.timeline.filter(pl.col("what") == "is postponed").select("time_s", "detail").rows()
    assert told == [(4 * H, "too_dear: its best plan is worth -0.15")]


def test_every_reason_to_wait_is_told() -> None:
    """As the hands say; in case "cloud" at 8 five workers on one server would do, and no server has them."""
    told = {
        (name, run.scenario.jobs.ids[j], time // HOUR): reason
        for name in ("ties_and_capacity", "prices", "cloud_and_spread")
        for run in [play(CASES[name].scenario, make_policy(CASES[name].policy))]
        for time, j, reason in run.schedule.decisions.filter(pl.col("verb") == "postpone")
        .select("time", "job", "reason")
        .rows()
    }
    assert told == {
        ("ties_and_capacity", "1", 2): "not_uploaded",
        ("ties_and_capacity", "3", 4): "no_room",
        ("prices", "1", 2): "too_long",
        ("prices", "3", 4): "too_dear",
        ("cloud_and_spread", "1", 2): "not_uploaded",
        ("cloud_and_spread", "2", 4): "too_long",
        ("cloud_and_spread", "2", 8): "no_room",
    }


@pytest.mark.parametrize(
    ("name", "waiting", "tau", "reason"),
    [
        ("ties_and_capacity", "1", 2, "not_uploaded"),
        ("ties_and_capacity", "3", 4, "no_room"),
        ("prices", "1", 2, "too_long"),
    ],
)
def test_a_job_without_any_plan_is_explained_by_the_reason_alone(
    name: str, waiting: str, tau: int, reason: str
) -> None:
    run = kept_run(CASES[name].scenario, CASES[name].policy)
    told = explain(run, waiting, tau * H)
    assert told.terms is not None
    assert (told.verb, told.reason, told.terms["placement"], told.terms["eta"]) == ("postpone", reason, "none", None)
    assert told.terms["plans"] == told.terms["prices"] == []
    assert told.terms["earlier_batches"] == [{"tau_s": tau * H, "postponed": reason, "eta": 0.0}]


def test_terms_are_those_of_the_jobs_turn_whichever_of_its_orders_they_are_asked_at() -> None:
    """Case "prices", job 2: before the reservation and before the allocation, its own prices are not charged yet."""
    terms: list[Any] = []

    class Asked(Batch):
        def decide(self, event: Event, view: View) -> Iterator[Order]:
            for order in super().decide(event, view):
                if isinstance(order, Reserve | Allocate) and view.job_id(order.job) == "2":
                    terms.append(self.terms(order.job, view))
                yield order

    case = CASES["prices"]
    play(case.scenario, Asked(**make_policy(case.policy).params.model_dump()))
    reserved, allocated = terms
    assert reserved == allocated
    assert reserved["eta"] == pytest.approx(0.85)


def test_no_job_that_has_left_waits_or_holds_workers() -> None:
    policy = Batch()
    assert play(two_ones(), policy).schedule.jobs["state"].to_list() == ["finished", "finished"]
    assert (policy.waiting, policy.held) == ({}, set())


def test_a_job_of_a_type_that_nobody_has_is_explained_too() -> None:
    run = kept_run(CASES["ties_and_capacity"].scenario, "batch:T=20")
    told = explain(run, "4")
    assert (told.verb, told.reason) == ("reject", "never_fits: no server has a PS of its type")
    assert SECOND * told.time_s == HOUR


def test_the_timeline_has_one_line_for_copies_on_many_servers() -> None:
    """Five servers with uploads of 0 to 4 slots; the job is there before tau = 8 on all, and runs on the first."""
    made = scenario([((1,), (1,))] * 5, [job("1", 1, 1, 1, 20, (4, 3, 2, 1, 0))])
    told = explain(kept_run(made, "batch"), "1").timeline
    rows = told.filter(pl.col("what").is_in(["uploads", "is planned"])).select("until_s", "what", "server").rows()
    assert rows == [(5 * H, "uploads", "5 servers"), (None, "is planned", "0")]
    assert told["detail"][1].endswith(": 0, 1, 2, …")
