"""Dorm, DRF, FIFO and Optimus on servers with resources: what each promises, decision by decision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.resource_scenarios import SLOT, resource_scenario, resource_scenarios
from builders.thorough import thorough_after, thorough_except
from skedge.core.errors import PolicyError, SolverError
from skedge.core.events import Event, Order
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.policy import Policy, View
from skedge.explanation.explain import explain
from skedge.policies.dorm import policy as dorm_module
from skedge.policies.dorm.applications import Partition, fair_shares, shares
from skedge.policies.dorm.partition import partition
from skedge.policies.dorm.policy import Dorm
from skedge.policies.drf.policy import Drf
from skedge.policies.fifo.policy import Fifo
from skedge.policies.optimus.policy import Optimus
from skedge.prepare import prepare_policy
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run
from skedge.testing import check_policy

bounded = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MAKERS: dict[str, Callable[[], Policy]] = {
    "drf": Drf,
    "fifo": Fifo,
    "fifo that backfills": lambda: Fifo(backfill=True),
    "dorm": lambda: Dorm(gap=0.1, nodes=20),
    "dorm by pools": lambda: Dorm(cells=1),
    "optimus": Optimus,
    "optimus by test runs": lambda: Optimus(speed="fitted", servers="free", skip=True),
}


class Watched:
    """A policy, and what stood before and after each of its answers."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seen = inner, list[tuple[Event, Any, Any]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        before = self._holdings(view)
        yield from self.inner.decide(event, view)
        self.seen.append((event, before, self._holdings(view)))

    def _holdings(self, view: View) -> dict[int, tuple[Any, Any]]:
        return {job: (view.placement(job), view.ps_placement(job)) for job in range(view.arrived)}


def watched(scenario: Scenario, policy: Any) -> tuple[Watched, Kernel]:
    seen = Watched(policy)
    kernel = Kernel(scenario, seen)  # type: ignore[arg-type]
    drive_to_end(kernel, SimulatedWorld(kernel))
    kernel.validate_state()
    return seen, kernel


def arrays(scenario: Scenario, holds: dict[int, Any], jobs: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Workers and PSs of `jobs` by server."""
    table = np.zeros((2, len(jobs), len(scenario.cluster.servers)), np.int64)
    for row, job in enumerate(jobs):
        for kind in (0, 1):
            for server, n in holds[job][kind]:
                table[kind, row, server] = n
    return table[0], table[1]


# --- the contract


@pytest.mark.parametrize("name", thorough_except([name for name in MAKERS if "dorm" not in name], MAKERS))
def test_the_contract_is_kept(name: str) -> None:
    """Valid orders, every arrival answered, the record's rules, repeatable, not anticipating, rebuilt by replay."""
    check_policy(MAKERS[name], resource_scenarios()[1::2])


@pytest.mark.parametrize("name", ["drf", "fifo"])
def test_one_name_serves_both_kinds_of_cluster(name: str) -> None:
    """As on slots, so on resources; and what a cluster of neither kind lacks is said."""
    assert len(run(resource_scenario(0), name).schedule.runs)
    nothing = Cluster([Server("a")])
    table, _ = job_table([Job("j", 0, epochs=1, chunks=1, minibatches=1, minibatch_s=1)])
    with pytest.raises(Exception, match=r"typed slots, resources or sites|a type that a server has"):
        run(Scenario(nothing, Jobs(table, nothing)), name)


def test_rules_of_slots_are_refused_on_resources() -> None:
    """She et al.'s FIFO plans with slots."""
    with pytest.raises(PolicyError, match="earliest_server goes with typed slots"):
        run(resource_scenario(0), "fifo:rule=earliest_server")


@pytest.mark.parametrize("name", ["dorm", "optimus"])
def test_what_needs_resources_says_so(name: str) -> None:
    """On typed slots."""
    cluster = Cluster([Server("a", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    table, _ = job_table([Job("j", 0, epochs=1, chunks=1, minibatches=1, minibatch_s=1)])
    with pytest.raises(PolicyError, match=f"policy '{name}' needs resources"):
        prepare_policy(name, Scenario(cluster, Jobs(table, cluster), Physics()))


@pytest.mark.parametrize("name", MAKERS)
def test_a_job_that_fits_on_no_empty_server_is_rejected_and_holds_up_nobody(name: str) -> None:
    """Its worker takes more than any server has."""
    big = Job("big", 0, epochs=1, chunks=1, minibatches=10, minibatch_s=1, batch=4, worker_needs={"gpu": 9.0},
              ps_needs={"gpu": 1.0})  # fmt: skip
    small = Job("small", 0, epochs=1, chunks=1, minibatches=10, minibatch_s=1, batch=4, worker_needs={"gpu": 1.0},
                ps_needs={"gpu": 1.0})  # fmt: skip
    cluster = Cluster([Server("a", capacity={"gpu": 8.0}), Server("b", capacity={"gpu": 8.0})])
    physics = Physics(slotted=True, slot=SLOT, colocation="one_server", horizon=20 * SLOT)
    done = run(Scenario(cluster, Jobs(job_table([big, small])[0], cluster), physics), MAKERS[name]())
    states = dict(done.jobs.select("id", "state").iter_rows())
    assert states == {"big": "rejected", "small": "finished"}


# --- each one's promise


@pytest.mark.parametrize("cells", thorough_after(1, [1, 200]))
def test_dorm_keeps_both_bounds_in_every_solution(cells: int) -> None:
    """Whenever a job ran before: changed survivors, and that they stay in; by pools of servers or not."""
    checked = 0
    for seed in range(25):
        scenario = resource_scenario(seed, jobs=8, servers=3)
        seen, _ = watched(scenario, Dorm(theta1=0.1, theta2=0.3, gap=0.1, cells=cells))
        for event, before, after in seen.seen:
            survivors = [job for job in before if any(before[job]) and job not in event.left]
            if not survivors or {j: before[j] for j in before} == {j: after[j] for j in before}:
                continue
            changed = sum(before[job] != after[job] for job in survivors)
            assert changed <= math.ceil(0.3 * len(survivors) - 1e-9)
            assert all(any(after[job]) for job in survivors), "who is in stays in"
            checked += 1
    assert checked > 100


def test_dorm_solves_with_the_bounds_that_its_parameters_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """theta1 2 m, rounded up or not, and theta2 of those that run; solutions keep the loss."""
    asked = []
    solve = dorm_module.partition  # type: ignore[attr-defined]

    def noted(apps: Any, capacity: Any, bounds: Any, **how: Any) -> Any:
        found = solve(apps, capacity, bounds, **how)
        asked.append((apps, capacity, bounds, found))
        return found

    monkeypatch.setattr(dorm_module, "partition", noted)
    run(resource_scenario(0), Dorm(theta1=0.1, theta2=0.2, whole=False, gap=0.05))
    assert len(asked) > 5
    for apps, capacity, bounds, found in asked:
        assert bounds.loss == pytest.approx(0.1 * 2 * 3)
        assert bounds.changed == math.ceil(0.2 * apps.survivors.sum() - 1e-9)
        if found is not None:
            dominant, fair = fair_shares(apps, capacity)
            assert np.abs(shares(apps, *found[:2], dominant, capacity.sum(axis=0)) - fair).sum() <= bounds.loss + 1e-6
    run(resource_scenario(0), Dorm(theta1=0.1, gap=0.05))
    assert asked[-1][2].loss == 1


def test_dorm_with_theta2_of_nought_never_touches_who_runs() -> None:
    """A job has one placement for life."""
    done = run(resource_scenario(1, jobs=15), Dorm(theta2=0.0, gap=0.05))
    per_job = done.schedule.runs.group_by("job").agg(n=pl.col("start").n_unique())
    assert set(per_job["n"]) == {1}


def test_dorms_solver_that_fails_is_named_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newcomers wait, with the solver's words as the reason; who runs, runs on; all are done in the end."""

    def fails(apps: Any, *_: Any, **__: Any) -> Any:
        raise SolverError("HiGHS: Time limit reached")

    monkeypatch.setattr(dorm_module, "partition", fails)
    done = run(resource_scenario(0), Dorm())
    assert set(done.jobs["state"]) == {"finished"}
    told = done.schedule.decisions.filter(verb="postpone")["reason"].cast(str).unique().to_list()
    assert told == ["solver_failed: HiGHS: Time limit reached"]


def test_where_nobody_runs_dorm_does_not_take_a_partition_in_which_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best that is known when the nodes are used up may be the empty one; nothing would ever happen again."""

    def empty(apps: Any, *_: Any, **__: Any) -> Any:
        return Partition(apps.workers * 0, apps.servers * 0, 0.0, 0.0)

    def nothing_new(apps: Any, *_: Any, **__: Any) -> Any:
        return Partition(apps.workers, apps.servers, 0.0, 0.0) if apps.survivors.any() else empty(apps)

    monkeypatch.setattr(dorm_module, "partition", nothing_new)
    assert set(run(resource_scenario(0), Dorm()).jobs["state"]) == {"finished"}


@bounded
@given(st.integers(0, 1000))
def test_no_share_under_drf_could_rise_without_lowering_a_poorer_one(seed: int) -> None:
    """After every answer nobody below F has room for a worker more with its PSs (who is richer: test_fairness)."""
    scenario = resource_scenario(seed)
    seen, _ = watched(scenario, Drf())
    jobs = scenario.jobs
    for _, _, after in seen.seen:
        here = [job for job in after if any(after[job])]
        if not here:
            continue
        w, p = arrays(scenario, after, here)
        used = np.einsum("jh,jr->hr", w, jobs.worker_needs[here]) + np.einsum("jh,jr->hr", p, jobs.ps_needs[here])
        free = scenario.cluster.amounts - used
        assert (free >= -1e-6).all()
        for row, job in enumerate(here):
            n = int(w[row].sum())
            if n == jobs.batch[job]:
                continue
            more = max(1, math.ceil((n + 1) / jobs.ratio[job] - 1e-9)) - int(p[row].sum())
            assert not _has_room(free, jobs.worker_needs[job], jobs.ps_needs[job], more), job


def _has_room(free: np.ndarray, worker: np.ndarray, ps: np.ndarray, more: int) -> bool:
    """Whether a worker and so many PSs fit, wherever."""
    for home in range(len(free)):
        left = free.copy()
        left[home] -= worker
        if (left[home] < -1e-9).any():
            continue
        asked = ps > 0
        if np.maximum(np.floor((left[:, asked] / ps[asked]).min(axis=1) + 1e-9), 0).sum() >= more:
            return True
    return False


@bounded
@given(st.integers(0, 1000), st.booleans())
def test_fifo_starts_in_order_and_keeps_what_it_gave(seed: int, backfill: bool) -> None:
    """Head of line: no job starts before one that arrived earlier; one placement for life, of 1 to 30 workers."""
    scenario = resource_scenario(seed)
    done = run(scenario, Fifo(backfill=backfill))
    runs = done.schedule.runs
    begins = {job: runs.filter(job=job)["start"].unique().to_list() for job in range(len(scenario.jobs))}
    assert {len(of) for of in begins.values()} == {1}
    starts = [begins[job][0] for job in range(len(scenario.jobs))]
    if not backfill:
        assert starts == sorted(starts)
    for job in begins:
        workers = int(runs.filter(job=job)["workers"].sum())
        assert 1 <= workers <= min(30, scenario.jobs.batch[job])


@bounded
@given(st.integers(0, 1000))
def test_optimus_decides_at_the_beginning_of_slots_alone(seed: int) -> None:
    """In continuous time too: in between it lets jobs end and takes note of arrivals."""
    scenario = resource_scenario(seed, slotted=False)
    seen, _ = watched(scenario, Optimus())
    for event, before, after in seen.seen:
        if event.time % SLOT:
            assert all(after[job] == before[job] for job in before)


def test_every_policy_tells_its_terms() -> None:
    """What stood when a job was decided on, by name of resource."""
    for name in ("drf", "fifo", "dorm:gap=0.1", "optimus"):
        told = explain(run(resource_scenario(0), name), "3").terms
        assert told is not None
        assert set(told["worker_needs"]) == {"gpu", "cpu", "memory"}
        assert {"free", "in_system", "compares"} <= set(told)


@pytest.mark.parametrize(("whole", "loss"), [("true", 2), ("false", 1.8)])
def test_dorm_tells_its_bounds(whole: str, loss: float) -> None:
    """Its two rows: fairness loss at most ceil(2 m theta1), 2 x 3 x 0.3, and ceil(0.5 x running jobs) changes."""
    told = explain(run(resource_scenario(0), f"dorm:gap=0.1,theta1=0.3,theta2=0.5,whole={whole}"), "3").terms
    assert told is not None
    assert told["fairness_loss_at_most"] == pytest.approx(loss)
    running = sum(row["workers"] > 0 for row in told["in_system"])
    assert told["changed_at_most"] == -(-running // 2)


def test_fifo_goes_on_with_the_server_after_the_last_one_that_it_gave() -> None:
    """Three jobs of one worker and one PS on three servers: they go to s0 and s1, s2 and s0, s1 and s2."""
    cluster = Cluster([Server(f"s{i}", capacity={"gpu": 2, "memory": 2}) for i in range(3)])
    jobs = [
        Job(f"j{i}", float(i), 1, 4, 10, 100.0, batch=1, worker_needs={"gpu": 1}, ps_needs={"memory": 1})
        for i in range(3)
    ]
    table, given = job_table(jobs)
    done = run(Scenario(cluster, Jobs(table, cluster, given)), "fifo")
    assert done.verify() == []
    assert done.schedule.runs.sort("job")["server"].cast(pl.String).to_list() == ["s0", "s2", "s1"]


def test_jobs_that_wait_for_dorm_are_told_why() -> None:
    """The verb is postpone, the reason a word."""
    done = run(resource_scenario(1, jobs=20, servers=2), Dorm(theta2=0.0, gap=0.1))
    told = done.schedule.decisions.filter(verb="postpone")["reason"].cast(str).unique().to_list()
    assert told
    assert set(told) <= {"no_part_for_it", "no_partition: none keeps the bounds of fairness and overhead"}


@pytest.mark.parametrize("scenario", resource_scenarios(), ids=lambda scenario: scenario.name)
def test_dorm_that_stops_at_the_horizon_decides_as_before_until_then_and_solves_nothing_later(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All orders until T are the same; later no program is solved, and all jobs still complete.

    With slots and without, announced and mis-estimated.
    """
    scenario = replace(scenario, physics=replace(scenario.physics, horizon=8 * SLOT))
    horizon = 8 * SLOT
    solved = list[bool]()

    def counted(*arguments: Any, **options: Any) -> Partition | None:
        solved.append(True)
        return partition(*arguments, **options)

    monkeypatch.setattr(dorm_module, "partition", counted)
    orders, n_solved = [], []
    for policy in ("dorm", "dorm:stop_at_horizon=true"):
        solved.clear()
        result = run(scenario, policy)
        assert result.verify() == []
        assert result.metrics["finished"] == len(scenario.jobs)
        orders.append(result.schedule.decisions.filter(pl.col("time") <= horizon))
        n_solved.append(len(solved))
    assert orders[0].equals(orders[1])
    assert n_solved[0] > n_solved[1] > 0
