"""Okita's sites in the model: policies on the kernel decide as the algorithms alone do, and the record says so."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from builders.site_instances import draw_jobs, draw_sites
from builders.sites import POLICIES, SLOT, TOGETHER, scenario_of, with_ps_needs
from builders.sites_alone import Alone
from builders.thorough import thorough_after, thorough_except
from golden import okita_cases
from skedge.analysis.columns import columns
from skedge.analysis.metrics.costs import moved_mb
from skedge.core.engine.ledger import FINISHED, REJECTED
from skedge.core.errors import OrderError, PolicyError, ScenarioError
from skedge.core.events import Allocate, Event, Order, Reject, Suspend, Transfer, Upload, WakeAt
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Physics
from skedge.core.model.latency import Linear
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy
from skedge.core.registry import make_policy
from skedge.policies.oasis.at_sites import SiteOasis, SiteOasisParams, site_prices
from skedge.policies.okita.alg1 import Okita
from skedge.policies.okita.baselines import SiteDrf, SiteFifo
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.policies.okita.slots import SiteScheduler, site_jobs, sites_of
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import check_policy, resource_scenario, site_scenario, site_scenarios, small_scenario


def alone(scenario: Scenario, policy: str) -> Alone:
    """The algorithm without kernel and world."""
    sites, jobs = sites_of(scenario.cluster), site_jobs(scenario)
    if policy == "okita":
        made: SiteScheduler = Okita(sites)
    elif policy == "fifo":
        made = SiteFifo(sites, scenario.rng("policy"))
    elif policy == "drf":
        made = SiteDrf(sites)
    else:
        horizon, params = scenario.physics.slots or 1, SiteOasisParams(split_sites=policy != TOGETHER)
        made = SiteOasis(sites, horizon, site_prices(jobs, sites, horizon), params)
    done = Alone(made)
    for _ in done.run(jobs):
        pass
    return done


@pytest.mark.parametrize("case", okita_cases.CASES)
def test_the_cases_worked_out_by_hand_come_out_of_a_whole_run(case: str) -> None:
    given = okita_cases.CASES[case]
    scenario = scenario_of(Sites(np.array(given.capacity, float), np.array(given.cost, float)), list(given.jobs))
    params = ",".join(f"{name}={value}" for name, value in given.params.items())
    done = run(scenario, f"okita:{params}".rstrip(":"))
    assert done.verify() == []
    numbers = done.metrics
    assert numbers["cost_latency"] == pytest.approx(given.latency)
    assert numbers["cost_bandwidth"] == pytest.approx(given.bandwidth)
    ends = {row["id"]: row["completion"] // SLOT - 1 for row in done.jobs.iter_rows(named=True)}
    assert ends == {str(job): last for job, last, _, _ in given.outcomes}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", thorough_after(8, range(40)))
def test_a_run_is_what_the_algorithm_alone_decides(policy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng, exact=seed % 2 == 0, asymmetric=seed % 5 == 0)
    jobs = with_ps_needs(draw_jobs(rng, sites, int(rng.integers(1, 9)), fits=seed % 3 > 0))
    scenario = scenario_of(sites, jobs, seed=seed)
    if policy == "oasis" and len(sites) == 1:
        with pytest.raises(ScenarioError, match="oasis: 1 site"):
            run(scenario, policy)
        return
    done, expected = run(scenario, policy), alone(scenario, policy)
    assert done.verify() == []
    for row in done.jobs.iter_rows(named=True):
        outcome = expected.outcomes[row["job"]]
        last = None if outcome.last is None else (outcome.last + 1) * SLOT
        assert (row["state"], row["completion"]) == ("finished" if last else "rejected", last)
    costs = done.metrics
    outcomes = expected.outcomes.values()
    assert costs["cost_latency"] == pytest.approx(sum(one.latency for one in outcomes))
    assert costs["cost_exchange"] == pytest.approx(sum(one.parameter_cost for one in outcomes))
    assert costs["cost_transfers"] == pytest.approx(sum(one.data_cost for one in outcomes))


@pytest.mark.parametrize("policy", POLICIES)
def test_bandwidth_recomputed_by_eq_1_is_what_the_policy_booked(policy: str) -> None:
    done = run(site_scenario(1, jobs=40), policy)
    decisions, numbers = done.schedule.decisions, done.metrics
    booked = float(decisions.filter(decisions["verb"] == "transfer")["value"].sum())
    assert booked == pytest.approx(numbers["cost_transfers"])
    given = decisions.filter(decisions["verb"] == "allocate").unique(["job", "time"])
    held = done.schedule.runs.unique(["job", "start"]).join(given, left_on=["job", "start"], right_on=["job", "time"])
    slots = (held["end"] - held["start"]) / done.scenario.physics.slot
    assert float((held["value"] * slots).sum()) == pytest.approx(numbers["cost_exchange"])
    assert numbers["cost_total"] == pytest.approx(
        numbers["cost_latency"] + numbers["cost_exchange"] + numbers["cost_transfers"]
    )
    assert moved_mb(columns(done.scenario, done.schedule)).sum() == pytest.approx(numbers["moved_mb"])


@pytest.mark.parametrize("policy", thorough_except(["okita", "drf"], POLICIES))
def test_the_policies_keep_the_contract(policy: str) -> None:
    several = [one for one in site_scenarios() if policy != "oasis" or len(one.cluster.servers) > 1]
    check_policy(lambda: make_policy(policy), several)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_arrives_within_a_slot_begins_with_the_next(policy: str) -> None:
    """Nothing else happens at that time: the policy has to ask to be woken."""
    sites = Sites(np.array([[2.0], [1.0]]), np.array([[0.0, 0.5], [0.5, 0.0]]))
    job = SiteJob(0, 0, 1, 2, 3, (1, 0), (1.0,), (1.0,), Linear(5))
    made = scenario_of(sites, [job])
    late = made.jobs.frame.with_columns(arrival_s=pl.lit(SLOT / SECOND / 2))
    done = run(replace(made, jobs=Jobs(late, made.cluster)), policy)
    assert done.verify() == []
    assert done.schedule.runs.select("start", "end").rows() == [(SLOT, 2 * SLOT)]


def test_one_site_costs_no_bandwidth() -> None:
    numbers = run(site_scenario(2, sites=1), "okita").metrics
    assert numbers["cost_bandwidth"] == 0
    assert numbers["cost_latency"] > 0


@pytest.mark.thorough
def test_a_latency_beyond_floats_stays_a_number() -> None:
    sites = Sites(np.array([[2.0]]), np.zeros((1, 1)))
    jobs = [SiteJob(i, 0, 1.0, 1, 1, (3000,), (1,), (1,), okita_cases.Exponential(50.0)) for i in range(2)]
    numbers = run(scenario_of(sites, jobs), "okita").metrics
    assert math.isfinite(numbers["cost_total"])
    assert numbers["cost_latency_log10"] == pytest.approx((math.log(50) + 0.25 * 6000) / math.log(10), abs=1e-6)


def test_a_site_without_capacity_gives_its_data_away() -> None:
    sites = Sites(np.array([[4.0], [0.0]]), np.array([[0, 0.5], [0.5, 0]]))
    jobs = [SiteJob(0, 0, 2.0, 10, 0, (0, 4), (1,), (1,), okita_cases.Linear(10, 0))]
    done = run(scenario_of(sites, jobs), "okita")
    assert done.verify() == []
    moved = done.schedule.uploads.select("from_site", "to_server", "chunks", "mb").rows()
    assert moved == [("s1", "s0", 4, 40.0)]
    assert done.metrics["cost_transfers"] == pytest.approx(4 * 10 * 0.5)


class Wrong(BasePolicy):
    """Gives the orders that it is made with when the first job arrives."""

    name, needs = "wrong", frozenset({"sites"})

    def __init__(self, *orders: object) -> None:
        super().__init__()
        self.orders = orders

    def decide(self, event, view):  # type: ignore[no-untyped-def]
        if event.arrived:
            yield from self.orders
        if not event.finished:
            yield WakeAt(view.now + SLOT)


@pytest.mark.parametrize(
    ("orders", "rule"),
    [
        ((Transfer(0, 0, 1, 9),), "M31"),
        ((Transfer(0, 0, 1, 0),), "M31"),
        ((Transfer(0, 0, 1, 1), Transfer(0, 1, 0, 5)), "M31"),
        ((Transfer(0, 0, 0, 1),), "M4"),
        ((Transfer(0, 0, 7, 1),), "M1"),
        ((Transfer(3, 0, 1, 1),), "M2"),
        ((Allocate(0, ((0, 1),), ((0, 2),)),), "M32"),
        ((Allocate(0, ((0, 1),), ((0, 1), (1, 1))),), "M32"),
        ((Allocate(0, ((0, 9),), ((0, 1),)),), "M26"),
    ],
)
def test_a_wrong_order_is_refused(orders: tuple[object, ...], rule: str) -> None:
    sites = Sites(np.array([[4.0], [4.0]]), np.array([[0, 0.5], [0.5, 0]]))
    jobs = [SiteJob(0, 0, 2.0, 10, 0, (4, 4), (1,), (1,), okita_cases.Linear(10, 0))]
    with pytest.raises(OrderError) as error:
        run(scenario_of(sites, jobs), Wrong(*orders))
    assert error.value.rule == rule


def test_data_are_moved_on_at_the_instant_at_which_they_come() -> None:
    """A chunk goes from s2 by s1 to s0, with the chunk that lay at s1; the table has the later move first."""
    sites = Sites(np.full((3, 1), 4.0), np.ones((3, 3)) - np.eye(3))
    jobs = [SiteJob(0, 0, 2.0, 10, 0, (0, 1, 1), (1,), (1,), okita_cases.Linear(10, 0))]
    orders = (Transfer(0, 2, 1, 1), Transfer(0, 1, 0, 2), Allocate(0, ((0, 1),), ((0, 1),)))
    done = run(scenario_of(sites, jobs), Wrong(*orders))
    assert done.schedule.uploads.select("from_site", "to_server", "chunks").rows() == [("s1", "s0", 2), ("s2", "s1", 1)]
    assert done.verify() == []
    more = done.schedule.uploads.with_columns(chunks=pl.lit(2, pl.Int32), mb=pl.lit(20.0))
    assert "M31" in {v.rule for v in replace(done, schedule=replace(done.schedule, uploads=more)).verify()}


def test_data_are_not_moved_where_there_are_no_sites() -> None:
    slot = Physics(slotted=True, slot=SLOT, horizon=12 * SLOT)
    wrong = Wrong(Transfer(0, 0, 1, 1))
    wrong.needs = frozenset()  # type: ignore[misc]
    with pytest.raises(OrderError, match="M31"):
        run(resource_scenario(0, physics=slot), wrong)


def test_a_policy_that_moves_no_data_is_not_for_sites() -> None:
    for policy in ("pdors", "optimus", "dorm", "aonline"):
        with pytest.raises(PolicyError, match="needs"):
            prepare_policy(policy, site_scenario(0))
    with pytest.raises(PolicyError, match="needs sites"):
        prepare_policy("okita", small_scenario(0))


def test_a_run_is_loaded_as_it_was(tmp_path) -> None:  # type: ignore[no-untyped-def]
    done = run(site_scenario(0), "okita")
    done.save(tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert loaded.metrics == done.metrics
    assert loaded.verify() == []
    assert (loaded.scenario.cluster.transfer_cost == done.scenario.cluster.transfer_cost).all()


def carried_through(kernel: Kernel, outages: dict[int, tuple[tuple[int, str], ...]], cap: int = 40) -> list[Order]:
    """Slot after slot: servers change at the beginning of the slots named, then what has workers is trained."""
    engine, sites, orders, arrived = kernel.engine, kernel.books.work, list[Order](), (0,)
    assert sites is not None
    for slot in range(cap):
        trained, finished = {job: sites.trains(job, engine.placement(job)) for job in engine.holders()}, []
        for job, done in trained.items():
            left = sites.left[job].sum() - sum(chunks for _, chunks in done)
            finished += [job] if left == 0 else []
        facts = tuple((job, done) for job, done in trained.items() if done)
        event = Event(
            slot * SLOT, finished=tuple(finished), arrived=arrived, trained=facts, servers=outages.get(slot, ())
        )
        orders += kernel.handle(event._replace(woke=True))
        arrived = ()
        if kernel.status[0] in (FINISHED, REJECTED):
            return orders
    raise AssertionError("the job never ends")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_waits_for_a_site_out_of_service_and_is_not_rejected(policy: str) -> None:
    """Workers fit at site 0 alone: it is out of service at first, then again in the middle of the training."""
    sites = Sites(np.array([[4.0, 8.0], [0.0, 8.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    job = SiteJob(0, 0, 1.0, 2.0, 1.0, (6, 6), (1.0, 1.0), (0.0, 1.0), Linear(1.0))
    scenario = scenario_of(sites, [job])
    kernel = Kernel(scenario, prepare_policy(make_policy(policy), scenario))
    lost, back = ((0, "lost"),), ((0, ""),)
    orders = carried_through(kernel, {0: lost, 3: back, 4: lost, 20: back})
    assert kernel.status[0] == FINISHED
    assert not any(isinstance(order, Reject) for order in orders)
    assert sum(isinstance(order, Allocate) for order in orders) >= 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slot", [0, 1, 2])
def test_a_site_that_never_comes_back_holds_nobody_up_for_ever(policy: str, slot: int) -> None:
    """Four equal sites; what was planned on the lost one is done on the others."""
    sites = Sites(np.array([[4.0, 8.0]] * 4), 1 - np.eye(4))
    job = SiteJob(0, 0, 1.0, 2.0, 1.0, (9, 9, 0, 0), (1.0, 1.0), (0.0, 1.0), Linear(1.0))
    scenario = scenario_of(sites, [job])
    kernel = Kernel(scenario, prepare_policy(make_policy(policy), scenario))
    carried_through(kernel, {slot: ((0, "lost"),)})
    assert kernel.status[0] == FINISHED


@pytest.mark.parametrize("policy", POLICIES)
def test_what_no_sites_can_hold_is_rejected_on_arrival(policy: str) -> None:
    sites = Sites(np.array([[4.0, 8.0], [0.0, 8.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    job = SiteJob(0, 0, 1.0, 2.0, 1.0, (6, 6), (5.0, 1.0), (0.0, 1.0), Linear(1.0))
    scenario = scenario_of(sites, [job])
    (order,) = carried_through(Kernel(scenario, prepare_policy(make_policy(policy), scenario)), {})
    assert isinstance(order, Reject)


def test_a_job_that_has_begun_cannot_be_rejected_and_sites_take_no_uploads() -> None:
    sites = Sites(np.array([[4.0, 8.0]]), np.zeros((1, 1)))
    job = SiteJob(0, 0, 1.0, 2.0, 1.0, (6,), (1.0, 1.0), (0.0, 1.0), Linear(1.0))
    scenario = scenario_of(sites, [job])
    kernel = Kernel(scenario, prepare_policy(make_policy("okita"), scenario))
    kernel.handle(Event(0, arrived=(0,)))
    with pytest.raises(OrderError, match="uploaded; at sites"):
        accept(kernel, Upload(0, ((0, 1),)))
    accept(kernel, Suspend(0, "moved"))
    with pytest.raises(OrderError, match="has started and cannot be rejected"):
        accept(kernel, Reject(0, "never_fits"))
