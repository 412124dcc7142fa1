"""PD-ORS and OASiS as policies: the contract, what is carried out of plans, constants, bad input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.primal_dual import SLOT, one, system
from builders.thorough import thorough_except
from conftest import Said
from skedge.core.errors import PolicyError, ScenarioError, SolverError
from skedge.core.events import Event, Order, Reject, Reserve
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Jobs
from skedge.core.model.value import Sigmoid
from skedge.core.policy import View
from skedge.core.registry import make_policy
from skedge.explanation.explain import explain
from skedge.policies.pdors import alg4 as pdors
from skedge.policies.pdors.alg4 import PdOrs
from skedge.policies.pdors.explain import smallest_true
from skedge.policies.pdors.policy import Allocation, fallback_allocation, reservations
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import default_scenario, load_scenario, scenario_from_dict
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.studies.kinds.varied import scenario_fields
from skedge.testing import check_policy, resource_scenario, resource_scenarios, small_scenario

Skedge = Callable[..., Said]
BOTH = ("pdors", "oasis")


@pytest.mark.parametrize("policy", thorough_except(["oasis"], BOTH))
def test_the_contract_holds_on_s4(policy: str) -> None:
    check_policy(lambda: make_policy(policy), [default_scenario("s4")])


@pytest.mark.parametrize("policy", BOTH)
def test_what_is_admitted_is_complete_by_the_end_of_its_plan(policy: str) -> None:
    done = run(default_scenario("s4"), policy)
    ends = done.schedule.plans.group_by("job").agg(pl.col("to").max())
    both = done.jobs.join(ends, on="job", how="left")
    assert (both["to"].is_null() == (both["state"] == "rejected")).all()
    assert (both["completion"] <= both["to"]).all()
    assert not done.schedule.plans["broken_at"].is_not_null().any()
    assert (both["state"] == "finished").sum() > 10


@pytest.mark.parametrize("policy", BOTH)
def test_u_of_the_index_is_u_of_the_end_with_a_target_one_slot_later(policy: str) -> None:
    """theta_3 enters u as t - a - theta_3 alone: so a scenario can have the printed reading for all policies alike."""
    size = {"workload.synthetic.jobs": 15, "cluster.draw.servers": 10}
    printed, shifted = (
        run(scenario_from_dict(scenario_fields("s4", size | {"workload.target": target}, 2), "s4", Path()), spec)
        for target, spec in (([1.0, 15.0], f"{policy}:completion=index"), ([2.0, 16.0], policy))
    )
    assert printed.metrics["acceptance_share"] > 0
    assert printed.schedule.plans.equals(shifted.schedule.plans)
    assert printed.metrics["utility_total"] == pytest.approx(shifted.metrics["utility_total"], rel=1e-9)


def test_a_small_run_by_hand() -> None:
    """4 worker-slots and F = 4: with u constant the cheapest end wins, all on one machine; u = 10, cost far below."""
    done = run(system(one()), "pdors")
    assert done.schedule.runs["server"].unique().to_list() == ["m0"]
    assert done.schedule.runs.select(pl.col("workers") * (pl.col("end") - pl.col("start"))).sum().item() == 4 * SLOT
    assert done.schedule.plans["workers"].to_list() == done.schedule.runs["workers"].to_list()
    assert done.verify() == []


def test_work_that_outlives_its_plan_goes_on_and_planned_jobs_go_first() -> None:
    """True times are up to twice the announced ones: plans break, all jobs are complete all the same."""
    broken = 0
    for seed in range(4):
        scenario = resource_scenario(seed, physics=resource_scenarios()[3].physics)
        done = run(scenario, "pdors")
        broken += done.schedule.plans["broken_at"].is_not_null().sum()
        assert done.verify() == []
        assert set(done.jobs["state"].unique()) <= {"finished", "rejected"}
        assert (done.schedule.decisions["reason"].cast(pl.String) == "extended").any()
    assert broken > 0


def test_a_server_that_goes_out_of_service_breaks_the_plans_on_it() -> None:
    scenario = system(one(minibatches=80, utility=Sigmoid(10.0, 4.0, 6.0)))
    kernel = Kernel(scenario, prepare_policy("pdors", scenario))
    kernel.handle(Event(0, arrived=(0,)))
    stood = {server for server, _ in kernel.view.placement(0)}
    assert stood == {0}
    kernel.handle(Event(SLOT // 2, servers=((0, "lost"),)))
    assert {server for server, _ in kernel.view.placement(0)} == {1}
    kernel.validate_state()


@pytest.mark.parametrize("policy", BOTH)
def test_a_plan_that_has_passed_before_the_job_could_begin_is_outlived(policy: str) -> None:
    """As where a live service could not decide: it begins with the last allocation of its plan, and is worked off."""
    scenario = system(one(utility=Sigmoid(10.0, 4.0, 6.0)))
    kernel = Kernel(scenario, prepare_policy(policy, scenario))
    planned = [order for order in kernel.handle(Event(SLOT // 2, arrived=(0,))) if isinstance(order, Reserve)]
    end, now = max(order.end for order in planned), 9 * SLOT
    assert end < now
    assert not kernel.view.placement(0)
    extended = [order for order in kernel.handle(Event(now, woke=True)) if isinstance(order, Reserve)]
    assert {(order.reason, order.start) for order in extended} == {("extended", now)}
    last = {(order.server, order.workers, order.ps) for order in planned if order.end == end}
    assert {(order.server, order.workers, order.ps) for order in extended} == last
    assert set(kernel.view.placement(0)) == {(server, workers) for server, workers, _ in last if workers}
    kernel.validate_state()


def test_a_run_of_equal_slots_is_one_reservation() -> None:
    a, b = Allocation(((0, 2),), ((1, 1),)), Allocation(((0, 2),), ((1, 2),))
    assert reservations({3: a, 4: a, 5: b, 7: b}) == [
        (0, 2, 0, 3, 6), (1, 0, 1, 3, 5), (1, 0, 2, 5, 6), (0, 2, 0, 7, 8), (1, 0, 2, 7, 8),
    ]  # fmt: skip


def test_anywhere_takes_the_first_machines_and_fewer_workers_where_not_all_fit() -> None:
    """3 workers of 2 and 2 PSs of 1 do not fit on 3 + 3; 2 workers and 1 PS do."""
    needs, last = (np.array([2.0]), np.array([1.0])), Allocation(((0, 3),), ((0, 2),))
    assert fallback_allocation(np.array([[3.0], [3.0]]), needs, last, 2.0) == Allocation(((0, 1), (1, 1)), ((0, 1),))
    assert fallback_allocation(np.array([[1.0], [1.0]]), needs, last, 2.0) is None


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", BOTH)
def test_constants_are_frozen_in_the_run_and_make_the_same_run(policy: str) -> None:
    scenario = resource_scenarios()[0]
    done = run(scenario, policy)
    assert {"low", "high", "mu"} <= set(done.meta["params"])
    again = run(scenario, done.policy)
    for name, table in done.schedule.tables().items():
        assert table.equals(again.schedule.tables()[name]), name


@pytest.mark.parametrize("suffix", [".yaml", ".parquet"])
def test_constants_can_come_from_a_file(tmp_path: Path, suffix: str) -> None:
    history, scenario = resource_scenario(7, physics=resource_scenarios()[0].physics), resource_scenarios()[0]
    save_scenario(history, tmp_path)
    path = tmp_path / ("scenario.yaml" if suffix == ".yaml" else "jobs.parquet")
    made = prepare_policy(f"pdors:price_source=file:{path}", scenario)
    own = prepare_policy("pdors", replace(scenario, jobs=Jobs(history.jobs.frame, scenario.cluster)))
    assert (made.params.low, made.params.high) == (own.params.low, own.params.high)  # type: ignore[attr-defined]
    assert made.params.low != prepare_policy("pdors", scenario).params.low  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("pdors:low=1,high=0.5,mu=1", "U = 0.5 is not above L"),
        ("pdors:low=1", "low, high and mu go together; given is low"),
        ("pdors:price_source=yesterday", "price_source = 'yesterday': it must be trace, or file:<"),
        ("pdors:price_source=file:", "price_source = 'file:': it must be trace, or file:<"),
        ("oasis:low=0,high=1,mu=1", "': low must be above 0"),
        ("pdors:low=1,high=inf;2,mu=1", "low, high and mu must be finite"),
        ("pdors:low=1,high=a;2,mu=1", "high = 'a;2': it must be numbers with semicolons between"),
        ("pdors:levels=0", "levels = '0': it must be 'auto', or greater than or equal to 1"),
        ("pdors:gain=eq31", "gain = 'eq31': it must be 'eq29' or 'eq30', or a number"),
        ("pdors:gain=-1", "gain = '-1': it must be 'eq29' or 'eq30', or greater than 0"),
    ],
)
def test_wrong_constants_are_refused(spec: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        make_policy(spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("pdors:low=1;2,high=5;6;7;8,mu=1", "pdors: low has 2 numbers; it must have 1"),
        ("oasis:low=1,high=5;6,mu=1", "oasis: low has 1 numbers; it must have 2"),
        ("pdors:low=1,high=5;6;7,mu=1", "pdors: high is of 3 resources; the servers have gpu, memory"),
    ],
)
def test_constants_of_another_cluster_are_refused(spec: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        run(resource_scenarios()[0], spec)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(PolicyError, match=r"price_source: nowhere\.yaml: cannot be read"):
        prepare_policy("pdors:price_source=file:nowhere.yaml", resource_scenarios()[0])


def test_a_cluster_for_which_u_is_below_l_is_refused() -> None:
    """A billionth of a GPU: mu = T C / (ceil(V x) (alpha + beta)) is tiny and so L, which is over it, above U."""
    with pytest.raises(ScenarioError, match=r"^pdors: prices: U = .* of resource 0 .*resources are 0: gpu"):
        run(system(one(utility=Sigmoid(1.0, 0.0, 0.0), minibatches=1), gpus=(1e-9, 1e-9)), "pdors")


# -- bad input and what does not fit -----------------------------------------------------------------------------------


def test_the_command_line_says_what_a_scenario_lacks(skedge: Skedge, small: Path, tmp_path: Path) -> None:
    said = skedge("run", small, "--policy", "pdors", "--out", tmp_path / "run")
    assert said.code != 0
    assert (
        "policy 'pdors' needs a horizon, a utility of every job, resources, which the scenario does not have"
        in said.words
    )
    said = skedge("run", "s4", "--policy", "aonline", "--out", tmp_path / "run")
    assert "policy 'aonline' needs typed slots, which the scenario does not have" in said.words


TEXT = """
physics: {slotted: true, colocation: one_server, horizon: 5h}
cluster: {servers: [{id: m0, resources: {gpu: 4, memory: 8}}]}
workload:
  jobs:
    - {id: a, arrival_s: 0, epochs: 1, chunks: 1, minibatches: 8, minibatch_s: 1800, batch: 4, ratio: 2,
       worker_needs: {gpu: 1}, ps_needs: {memory: 1}, utility: {height: 10, steepness: 0.5, target: 3}}
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("worker_needs: {gpu: 1}", "worker_needs: {tpu: 1}", "worker_needs.tpu = 1.0; it must be of a resource that"),
        ("ratio: 2", "ratio: 0", "ratio: 0: it must be greater than or equal to 0.0"),
        ("batch: 4", "batch: 0", "batch: 0: it must be greater than or equal to 1"),
        ("steepness: 0.5", "steepness: -0.5", "steepness -0.5: the utility increases with time; it must be 0 or more"),
        (", target: 3}", "}", "utility: steepness 0.5 without target; it must have the slots at which it falls"),
        ("horizon: 5h", "horizon: 90min", "horizon: 5400 s; it must be a whole number of slots of 3600 s"),
        ("memory: 8}", "'ps:cpu': 8}", "resources.ps:cpu: is the name of a slot"),
        ("resources: {gpu", "workers: {gpu: 1}, resources: {gpu", "resources do not go with workers and ps"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.replace(before, after))
    with pytest.raises(ScenarioError) as refused:
        load_scenario(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_saved_scenario_of_resources_is_the_same_again(tmp_path: Path) -> None:
    scenario = default_scenario("s4")
    again = load_scenario(save_scenario(scenario, tmp_path))
    assert again.jobs.frame.equals(scenario.jobs.frame)
    assert again.physics == scenario.physics
    assert again.cluster.servers == scenario.cluster.servers


def test_a_solver_that_fails_rejects_the_job_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first call fails: job a is rejected with what HiGHS said, b is complete."""
    real, calls = pdors.relax, []  # type: ignore[attr-defined]

    def fails_once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise SolverError("HiGHS: time limit reached")
        return real(*args)

    monkeypatch.setattr(pdors, "relax", fails_once)
    done = run(system(one(), one(id="b")), "pdors:relaxation=highs")
    assert done.jobs["state"].to_list() == ["rejected", "finished"]
    assert done.jobs["reason"][0] == "solver: HiGHS: time limit reached"
    assert done.verify() == []


def test_a_job_that_arrives_after_the_horizon_is_rejected() -> None:
    done = run(system(one(), one(id="late", arrival_s=21 * 3600.0)), "pdors")
    assert done.jobs["reason"].to_list() == [None, "too_late: it arrives in slot 21; the last before the horizon is 19"]


def test_oasis_needs_two_machines() -> None:
    with pytest.raises(ScenarioError, match="oasis: the cluster has 1 machine"):
        run(system(one(), gpus=(12.0,)), "oasis")


# -- why ---------------------------------------------------------------------------------------------------------------


def crowded() -> Run:
    """30 jobs for few machines: some are too dear."""
    return run(resource_scenario(5, physics=resource_scenarios()[0].physics, jobs=60), "pdors")


def test_explain_tells_why_a_job_was_too_dear_and_what_would_have_admitted_it() -> None:
    done = crowded()
    dear = [row for row in done.jobs.iter_rows(named=True) if (row["reason"] or "").startswith("too_dear")]
    assert dear
    for row in dear[:3]:
        why = explain(done, row["id"])
        assert why.terms is not None
        assert why.verb == "reject"
        best = max(why.terms["completions"], key=lambda c: c["payoff"])
        assert best["payoff"] < 0
        assert why.terms["dearest"][0]["cost"] == max(c["cost"] for c in why.terms["dearest"])
        needed = float(why.terms["would_admit"].split("a height of more than ")[1].split()[0])
        assert _changed(done, row["job"], utility_height=needed * (1 + 1e-4)) == "finished"
        assert _changed(done, row["job"], utility_height=needed * (1 - 1e-4)) == "rejected"


def _changed(done: Run, job: int, **columns: float) -> str:
    """What becomes of a job with other numbers, at the constants of the run."""
    frame = done.scenario.jobs.frame
    at = pl.int_range(pl.len()) == job
    frame = frame.with_columns(
        pl.when(at).then(value).otherwise(name).cast(frame.schema[name]).alias(name) for name, value in columns.items()
    )
    changed = replace(done.scenario, jobs=Jobs(frame, done.scenario.cluster))
    return str(run(changed, done.policy).jobs["state"][job])


@pytest.mark.thorough
def test_explain_says_what_would_have_admitted_a_job_for_which_there_is_no_schedule() -> None:
    """The least batch and the most work: tried in the scenario both are admitted, and one less and 0.1 % more not."""
    done, tried = run(default_scenario("s4"), "pdors"), 0
    for row in done.jobs.filter(pl.col("reason").is_not_null()).head(2).iter_rows(named=True):
        job, terms = row["job"], explain(done, row["id"]).terms
        assert terms is not None
        batch = re.match(r"a batch of (\d+) instead of", terms["would_admit"])
        work = re.search(r"(\d+) mini-batches instead of (\d+)", terms["would_admit"])
        if batch is not None:
            assert _changed(done, job, batch=int(batch[1])) == "finished"
            assert _changed(done, job, batch=int(batch[1]) - 1) == "rejected"
        if work is not None:
            few, more = int(work[1]), int(work[1]) + int(work[2]) // 1000 + 1
            assert _changed(done, job, epochs=1, minibatches=few) == "finished"
            assert _changed(done, job, epochs=1, minibatches=more) == "rejected"
        tried += batch is not None and work is not None
    assert tried == 2


def test_explain_says_that_finer_levels_would_have_admitted_a_job() -> None:
    """Seed 1 of s4, job 33, for which 50 levels are too coarse: admitted at the number told, and not at one less."""
    done = run(default_scenario("s4", seed=1), "pdors:levels=50")
    terms = explain(done, "33").terms
    assert terms is not None
    found = re.search(r"(\d+) levels of work instead of 50", terms["would_admit"])
    assert found is not None
    for levels, state in ((int(found[1]), "finished"), (int(found[1]) - 1, "rejected")):
        assert _at_levels(done, 33, levels) == state


def _params(done: Run) -> dict[str, Any]:
    return prepare_policy(done.policy, done.scenario).params.model_dump()  # type: ignore[attr-defined,no-any-return]


def _at_levels(done: Run, number: int, levels: int) -> str:
    """What becomes of one job if its work, and no other's, has so many levels."""

    class Finer(PdOrs):
        def _offer(self, job: int, view: View) -> Iterator[Order]:
            given = self.params
            if job == number:
                self.params = given.model_copy(update={"levels": levels})
            yield from super()._offer(job, view)
            self.params = given

    return str(run(done.scenario, Finer(**_params(done))).jobs["state"][number])


@pytest.mark.thorough
def test_asking_for_terms_changes_no_decision() -> None:
    """The policy is asked about rejected jobs in between, which tries changes: the run is the same."""
    scenario = default_scenario("s4")
    plain = run(scenario, "pdors")

    class Asked(PdOrs):
        def decide(self, event: Event, view: View) -> Iterator[Order]:
            for order in super().decide(event, view):
                if isinstance(order, Reject) and order.job % 3 == 0:
                    self.terms(order.job, view)
                yield order

    asked = run(scenario, Asked(**_params(plain)))
    assert asked.schedule.runs.equals(plain.schedule.runs)
    assert asked.schedule.prices.equals(plain.schedule.prices)


@pytest.mark.parametrize(
    ("low", "most", "first", "found"),
    [(8, 100, 9, 9), (8, 100, 16, 16), (8, 100, 77, 77), (8, 100, 100, 100), (8, 100, 101, None), (0, 9, 5, 5)],
)
def test_the_least_number_is_found_by_doubling_and_bisection(low: int, most: int, first: int, found: int) -> None:
    assert smallest_true(lambda n: n >= first, low, most) == found


def test_explain_shows_the_schedule_slot_by_slot() -> None:
    done = crowded()
    admitted = done.jobs.filter(pl.col("state") == "finished")["id"][0]
    why = explain(done, admitted)
    assert why.terms is not None
    assert why.verb == "reserve"
    held = done.schedule.ps.filter(pl.col("job") == done.scenario.jobs.index[admitted])["count"].to_list()
    told = why.timeline.filter(pl.col("what") == "has its PS")["detail"].to_list()
    assert sorted(told) == sorted(f"{n} PS" if n == 1 else f"{n} PSs" for n in held), "on servers there is no cloud"
    slots = [row["slot"] * done.scenario.physics.slot for row in why.terms["schedule"]]
    runs = done.schedule.runs.filter(pl.col("job") == done.scenario.jobs.index[admitted])
    assert set(runs["start"].to_list()) <= set(slots)
    assert sum(row["cost"] for row in why.terms["schedule"]) == pytest.approx(
        min(c["cost"] for c in why.terms["completions"] if c["end"] == why.terms["schedule"][-1]["slot"] + 1)
    )


def test_policies_for_slots_do_not_run_on_resources_and_the_other_way_round() -> None:
    with pytest.raises(PolicyError, match="needs a horizon, resources with a utility of every job, or sites"):
        run(small_scenario(0), "oasis")
    with pytest.raises(PolicyError, match="needs typed slots"):
        run(resource_scenarios()[0], "aonline")
