"""She et al.'s problem (2): exact optima by trying everything and by both solvers, its bounds, what it covers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from builders.she_instances import small
from builders.thorough import thorough_after
from reference.optimum_of_gangs import least_total_of_gangs
from skedge.core.errors import InputError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import HOUR, SECOND
from skedge.explanation.explain import explain
from skedge.optimum.chunks.bounds import chunk_bounds
from skedge.optimum.gangs.bounds import gang_bounds
from skedge.optimum.gangs.problem import SOLVERS, one_gang_each, optimum_of_gangs
from skedge.optimum.problems import covering_problems
from skedge.optimum.types import best_bound
from skedge.recorded_run import Run
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import small_scenario

pytest.importorskip("ortools")
pytest.importorskip("highspy")


@pytest.mark.parametrize("seed", thorough_after(6, [0, 3, 5, 6, 8, 11, 14, 17, 20, 24, 29, 33]))
def test_trying_everything_and_both_solvers_find_the_same_total(seed: int) -> None:
    """Up to three servers and perhaps a cloud, two types of each, three jobs of at most three workers."""
    scenario = small(seed, jobs=3)
    least = least_total_of_gangs(scenario) * HOUR / SECOND
    for solver in SOLVERS:
        found = optimum_of_gangs(scenario, 20, [solver])
        assert found.proved, (solver, found.value, found.bound)
        assert found.value == pytest.approx(least), solver
        assert found.run.metrics["jct_total_s"] == found.value
        assert not found.run.verify()
    assert all(bound.value <= least * (1 + 1e-9) for bound in gang_bounds(scenario))


def hour_jobs(*jobs: dict[str, Any], servers: list[Server], colocation: Literal["cloud", "one_server"]) -> Scenario:
    """Jobs of one chunk and hours as given, whose data are on every server at once."""
    cluster = Cluster(servers)
    fields = {"arrival_s": 0.0, "epochs": 1, "chunks": 1, "minibatches": 1, "minibatch_s": 3600.0}
    made = [Job(**{"id": str(i), "ps_type": "cpu", **fields, **job}) for i, job in enumerate(jobs)]
    table, given = job_table(made)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slotted=True, colocation=colocation))


def edge(name: str, workers: int, ps: int) -> Server:
    return Server(name, capacity={"worker:gpu": workers, "ps:cpu": ps})


@pytest.mark.parametrize("solver", SOLVERS)
def test_two_jobs_share_the_workers_or_follow_one_another(solver: str) -> None:
    """Two workers; a job of 4 h for two workers and one of 1 h: the short one first is 1 + 3 = 4 h, at once is 5 h."""
    scenario = hour_jobs({"chunks": 2, "minibatches": 2}, {}, servers=[edge("e", 2, 2)], colocation="cloud")
    found = optimum_of_gangs(scenario, 10, [solver])
    assert found.proved
    assert found.value == 4 * 3600


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_ps_lets_one_job_run_at_a_time(solver: str) -> None:
    """Workers for three jobs of 1 h, PSs for one: 1 + 2 + 3 h."""
    found = optimum_of_gangs(hour_jobs({}, {}, {}, servers=[edge("e", 3, 1)], colocation="cloud"), 10, [solver])
    assert found.proved
    assert found.value == 6 * 3600


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_job_on_one_server_does_without_communication(solver: str) -> None:
    """Two chunks of 1 h, and 2 h more of communication: spread over two servers (2 x 3) / 2 = 3 h, on one 2 h."""
    job = {"chunks": 2, "gradient_mb": 1.0, "bandwidth_mbps": 16 / 7200}
    servers = [edge("a", 1, 1), edge("b", 1, 1)]
    assert optimum_of_gangs(hour_jobs(job, servers=servers, colocation="cloud"), 10, [solver]).value == 3 * 3600
    assert optimum_of_gangs(hour_jobs(job, servers=servers, colocation="one_server"), 10, [solver]).value == 2 * 3600


def test_continuous_time_is_solved_by_intervals() -> None:
    """Times are whole microseconds there; what is proved is no better than any policy's run."""
    scenario = small_scenario(1, jobs=6, physics=Physics(colocation="one_server", slot=10 * SECOND))
    found = optimum_of_gangs(scenario, 20)
    assert found.proved
    assert found.run.policy == "optimum"
    assert not found.run.verify()
    assert found.value <= min(run(scenario, p).metrics["jct_total_s"] for p in ("batch", "fifo"))


@pytest.mark.parametrize("seed", range(8))
def test_no_run_of_one_gang_a_job_beats_a_bound(seed: int) -> None:
    """In slots and in continuous time, with and without a cloud, and with durations that were not announced."""
    physics = Physics(
        slotted=seed % 2 == 0,
        slot=20 * SECOND,
        colocation="one_server" if seed % 3 else "cloud",
        estimate_error=float(seed % 4 == 3),
    )
    scenario = small_scenario(seed, cloud=seed % 4 < 2, physics=physics)
    bounds = gang_bounds(scenario)
    best, covered = best_bound(bounds, "lower").value, 0
    for policy in ("batch", "batchsche", "fifo", "fifo:rule=earliest_server"):
        result = run(scenario, policy)
        if "gangs" in covering_problems(scenario, result.schedule):
            covered += 1
            assert result.metrics["jct_total_s"] >= best, policy
    assert covered >= 2
    assert best >= best_bound(chunk_bounds(scenario, "work"), "lower").value


def test_what_is_no_single_gang_is_not_covered() -> None:
    """Chunks, preempted gangs, and jobs whose workers come and go."""
    scenario = small_scenario(0)
    assert one_gang_each(scenario, run(scenario, "batch").schedule)
    for policy in ("aonline", "srtf", "drf"):
        assert not one_gang_each(scenario, run(scenario, policy).schedule), policy


def test_without_a_run_that_finishes_there_is_no_optimum() -> None:
    """No server has a worker of the job's type: every policy rejects it."""
    servers = [edge("e", 0, 1), Server("f", capacity={"worker:cpu": 1, "ps:cpu": 1})]
    scenario = hour_jobs({"worker_type": "gpu"}, servers=servers, colocation="cloud")
    with pytest.raises(InputError, match="none of batch, fifo finishes all jobs"):
        optimum_of_gangs(scenario, 1, policies=["batch", "fifo"])
    assert gang_bounds(scenario) == []


Command = Callable[..., Any]


def test_the_command_keeps_a_run_that_is_verified_and_explained(skedge: Command, tmp_path: Path) -> None:
    path = save_scenario(small(5, jobs=3), tmp_path)
    said = skedge("optimum", path, "--problem", "gangs", "--time-limit", 20, "--out", tmp_path / "best", "--json")
    assert said.code == 0, said.err
    assert said.json["proved"]
    assert skedge("verify", tmp_path / "best").code == 0
    kept = Run.load(tmp_path / "best")
    assert kept.policy == "optimum"
    told = skedge("explain", tmp_path / "best", "0")
    assert told.code == 0
    assert "skedge optimum planned with all jobs known in advance" in " ".join(told.out.split())


def test_a_planned_decision_is_explained_from_the_record() -> None:
    scenario = small(5, jobs=3)
    best = optimum_of_gangs(scenario, 20).run
    for job, name in enumerate(scenario.jobs.ids):
        said = explain(best, name)
        first = best.schedule.runs.filter(best.schedule.runs["job"] == job)["start"].min()
        assert (said.verb, said.reason) == ("allocate", "planned")
        assert said.time_s * SECOND == first
    with pytest.raises(InputError, match="never decided on it from 1e\\+09 s on"):
        explain(best, scenario.jobs.ids[0], 1e9)
