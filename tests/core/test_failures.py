"""Simulations in which servers fail (``physics.mtbf``)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from builders.drivers import driven
from builders.failing import broken, fail, failing, job, two_servers
from builders.thorough import thorough_except
from skedge.core.errors import ScenarioError, SkedgeError
from skedge.core.events import FAILED, Event, Order
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.explanation.explain import explain
from skedge.loops.streamed import covers
from skedge.loops.which import loop_for
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.sim.failures import CHANGES, Failures
from skedge.simulate import run
from skedge.testing.scenarios import resource_scenarios, site_scenarios, small_scenario

EDGE = [
    "aonline:cloud=false", "aonline:cloud=false,preempt_running=false", "srtf", "tiresias", "preemptive", "drf", "fifo",
]  # fmt: skip
"""Policies that leave the cloud alone."""

PHYSICS = {
    "continuous": Physics(mtbf=30 * SECOND, mttr=5 * SECOND),
    "slotted": Physics(slotted=True, slot=2 * SECOND, mtbf=40 * SECOND, mttr=4 * SECOND),
    "announced wrongly": Physics(
        estimate_error=1.0, checkpoint_overhead=SECOND // 2, mtbf=30 * SECOND, mttr=5 * SECOND
    ),
    "last place": Physics(data="last_place", colocation="one_server", mtbf=20 * SECOND, mttr=8 * SECOND),
}

CELLS = list(product(PHYSICS, EDGE))


@pytest.mark.parametrize(("name", "policy"), thorough_except(CELLS[::2], CELLS))
def test_every_rule_holds_where_servers_fail(name: str, policy: str) -> None:
    """The record is verified; servers do fail, and each job is completed or rejected; it is the same again."""
    physics = PHYSICS[name]
    for seed in range(4):
        done = run(small_scenario(seed, cloud=False, physics=physics), policy)
        assert done.verify() == []
        assert len(done.schedule.outages) > 3
        assert done.schedule.jobs["state"].is_in(["finished", "rejected"]).all()
        again = run(small_scenario(seed, cloud=False, physics=physics), policy)
        assert again.schedule.runs.equals(done.schedule.runs)


def test_what_is_trained_of_a_chunk_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """e0 or e1 fails 4 s after the chunk began at 1: it is sent to the other, begins at 6 and has 6 s left."""
    scenario = two_servers(1)
    first = run(replace(scenario, physics=Physics()), "aonline").schedule.runs["server"][0]
    fail(monkeypatch, (5, 0 if first == "e0" else 1, True))
    runs = run(scenario, "aonline").schedule.runs
    assert (runs["start"] / SECOND).to_list() == [1, 6]
    assert (runs["end"] / SECOND).to_list() == [5, 12]
    assert runs["preempted"].to_list() == [True, False]
    assert runs["work"].to_list() == [4, 6]


def test_a_gang_whose_server_fails_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes from 1 to 5, has 6 s left, and its data are there a second after; then until 12."""
    scenario = two_servers(1)
    first = run(replace(scenario, physics=Physics()), "srtf").schedule.runs["server"][0]
    fail(monkeypatch, (5, 0 if first == "e0" else 1, True))
    done = run(scenario, "srtf")
    assert broken(done) == []
    assert (done.schedule.runs["end"] / SECOND).to_list() == [5, 12]


@pytest.mark.parametrize("n_jobs", [0, 10**9], ids=["loop", "events"])
def test_a_gang_knows_its_data_on_a_server_that_it_came_back_to(
    n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The data of `long` on e0 are lost at 15; it comes back to e0 at 16 and brings them again.

    At 40 it loses e1, and e0 has its data: it goes there, and not to e2, whose upload would be shorter. Policies once
    had a memory of their own, in which the data of a last place were brought once only.
    """
    monkeypatch.setattr("skedge.simulate.LARGE", n_jobs)
    monkeypatch.setattr("skedge.simulate.SMALL", n_jobs)
    fail(monkeypatch, (15, 0, True), (16, 0, False), (40, 1, True))
    servers = [Server(f"e{i}", capacity={"worker:a": 1, "ps:p": 1}) for i in range(3)]
    far = {"e0": 90.0, "e1": 90.0, "e2": 90.0}
    jobs = [
        job("on-e1", 1, minibatches=33, upload_s=far | {"e1": 0.0}),
        job("on-e2", 1, minibatches=38, upload_s=far | {"e2": 0.0}),
        job("long", 1, minibatches=200, upload_s={"e0": 2.0, "e1": 1.0, "e2": 1.5}),
        job("first", 1, minibatches=5, arrival_s=10.0, upload_s=far | {"e0": 0.0}),
        job("second", 1, minibatches=5, arrival_s=30.0, upload_s=far | {"e0": 0.0}),
    ]
    done = run(failing(servers, jobs), "srtf")
    assert broken(done) == []
    uploads = done.schedule.uploads.filter(done.schedule.uploads["job"] == 0)
    assert (uploads["start"] / SECOND).to_list() == [0, 16, 33]
    assert uploads["to_server"].to_list() == ["e0", "e0", "e1"]
    assert done.schedule.runs.filter(done.schedule.runs["job"] == 0)["server"].to_list() == ["e0", "e0", "e1", "e0"]


def test_without_a_server_jobs_wait_for_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fail at 5; e1 is back at 20: its data are lost, so that the chunk runs from 21 to 27."""
    fail(monkeypatch, (5, 0, True), (5, 1, True), (20, 1, False))
    for policy in ("aonline", "srtf"):
        done = run(two_servers(1), policy)
        assert broken(done) == []
        assert done.schedule.runs["end"].max() == 27 * SECOND


def one_server_and_a_cloud(*jobs: Job) -> Scenario:
    """A server with two workers and a PS, and a cloud."""
    return failing([Server("e0", capacity={"worker:a": 2, "ps:p": 1}), Server("cloud", "cloud")], list(jobs))


SLOW_ON_THE_EDGE = {"gradient_mb": 125.0, "bandwidth_mbps": 1000.0, "upload_s": {"e0": 1.0, "cloud": 25.0}}
"""A mini-batch takes 2 s more where communication is not free: a chunk 30 s on the edge, 10 s in the cloud."""


def test_a_lost_chunk_goes_to_the_cloud_and_trains_there_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """On e0 from 1 to 16, half of 30 s; its data are in the cloud at 41, where the other half takes 5 s of 10."""
    fail(monkeypatch, (16, 0, True))
    done = run(one_server_and_a_cloud(job("j", 1, **SLOW_ON_THE_EDGE)), "aonline")
    runs = done.schedule.runs
    assert broken(done) == []
    assert runs.select("server", "start", "end", "colocated", "preempted").rows() == [
        ("e0", SECOND, 16 * SECOND, False, True),
        ("cloud", 41 * SECOND, 46 * SECOND, True, False),
    ]
    assert done.schedule.ps["server"].to_list() == ["e0", "cloud"]


def test_chunks_in_the_cloud_are_hastened_when_their_job_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three are on e0 from 1 to 28, 27 of their 30 s; the third is in the cloud from 25 on, 3 of its 30 s.

    e0 fails at 28. Then the job is wholly in the cloud: the third needs 9 s more, the others 1 s each from 53 on.
    """
    fail(monkeypatch, (28, 0, True))
    done = run(one_server_and_a_cloud(job("j", 3, **SLOW_ON_THE_EDGE)), "aonline")
    runs = done.schedule.runs.filter(done.schedule.runs["server"] == "cloud")
    assert broken(done) == []
    assert (runs["start"] / SECOND).to_list() == [25, 53, 53]
    assert (runs["end"] / SECOND).to_list() == [37, 54, 54]
    assert runs["colocated"].to_list() == [False, True, True]


def test_as_many_chunks_as_there_are_start_in_the_cloud_at_one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 chunks where the edge has two lanes: the list of jobs that may have started was once too short for them."""
    fail(monkeypatch, (10_000, 0, True))
    scenario = one_server_and_a_cloud(job("j", 40, upload_s={"e0": 900.0, "cloud": 25.0}))
    done = run(scenario, "aonline")
    assert broken(done) == []
    assert (done.schedule.runs["start"] / SECOND).to_list() == [25] * 40


def test_who_runs_on_takes_the_last_ps_of_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """e0 has both PSs, e1 one. When e0 fails a loses its only chunk in service, and b runs on on e1: b gets that PS."""
    servers = [
        Server("e0", capacity={"worker:a": 1, "ps:p": 2}),
        Server("e1", capacity={"worker:b": 1, "ps:p": 1}),
        Server("cloud", "cloud"),
    ]
    jobs = [
        job("a", 1, worker_type="a", upload_s={"e0": 1.0, "e1": 1.0, "cloud": 1e5}),
        job("b", 1, worker_type="b", upload_s={"e0": 1.0, "e1": 1.0, "cloud": 1e5}),
    ]
    fail(monkeypatch, (5, 0, True), (20, 0, False))
    done = run(failing(servers, jobs), "aonline")
    ps = done.schedule.ps
    assert broken(done) == []
    assert ps.filter(ps["job"] == 1).select("server", "start", "end").rows() == [
        ("e0", SECOND, 5 * SECOND),
        ("e1", 5 * SECOND, 11 * SECOND),
    ]


def test_failures_go_on_through_a_long_time_in_which_nothing_else_happens() -> None:
    """A long job, and one that is long to come: without each failure the record would lack outages (M48)."""
    scenario = replace(two_servers(1), physics=Physics(mtbf=SECOND, mttr=SECOND))
    late = failing([Server("e0", capacity={"worker:a": 1, "ps:p": 1})], [job("j", 1, arrival_s=100.0)])
    for one in (scenario, replace(late, physics=Physics(mtbf=4 * SECOND, mttr=SECOND))):
        for policy in ("aonline", "srtf"):
            done = run(one, policy)
            assert done.verify() == []
            assert len(done.schedule.outages) > 3


def test_failures_are_the_same_under_every_policy_and_as_often_as_stated() -> None:
    """Up for 50 s and down for 10 s in the mean: 4 servers are out for a sixth of the time."""
    scenario = small_scenario(0, cloud=False, physics=Physics(mtbf=50 * SECOND, mttr=10 * SECOND))
    outages = {policy: run(scenario, policy).schedule.outages for policy in ("srtf", "fifo")}
    shorter = min(map(len, outages.values()))
    assert outages["srtf"].head(shorter)["start"].equals(outages["fifo"].head(shorter)["start"])
    drawn, down, since = Failures(scenario), 0, dict[int, int]()
    while drawn.next < 100_000 * SECOND:
        for now, server, fails in drawn.draw().tolist():
            down += 0 if fails else now - since[server]
            since[server] = now
    assert down / (4 * 100_000 * SECOND) == pytest.approx(1 / 6, rel=0.05)
    assert np.isfinite(down)


def test_failures_are_drawn_in_order_and_with_all_of_an_instant() -> None:
    """Each server has its own times, in whole slots, whatever is drawn at once; the next draw begins at a later one."""
    scenario = small_scenario(0, cloud=False, physics=Physics(mtbf=5 * SECOND, mttr=SECOND, slotted=True, slot=SECOND))
    drawn, expected = Failures(scenario), list[tuple[int, int, int]]()
    for server in range(len(scenario.cluster.servers)):
        rng, time = scenario.rng(f"failures of server {server}"), 0
        for n in range(1000):
            time += max(1, ceil(rng.exponential((5.0, 1.0)[n % 2] * SECOND) / SECOND)) * SECOND
            expected.append((time, server, 1 - n % 2))
    rows = list[list[int]]()
    while len(rows) < 3 * CHANGES:
        block = drawn.draw().tolist()
        assert block[-1][0] < drawn.next
        rows += block
    assert rows == [list(row) for row in sorted(expected)[: len(rows)]]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias", "preemptive", "drf"])
def test_a_compiled_loop_takes_failures_itself(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is asked for no event, and the record is the one that it makes event by event."""
    scenario = small_scenario(1, cloud=False, physics=PHYSICS["continuous"])
    by_events = driven(scenario, policy, compiled=False).schedule.tables()

    def handle(_: Kernel, event: Event) -> list[Order]:
        raise AssertionError(event)

    monkeypatch.setattr(Kernel, "handle", handle)
    done = driven(scenario, policy, compiled=True)
    assert done.schedule.outages.height > 2
    assert (done.schedule.decisions["reason"] == FAILED).any()
    assert {name: table.equals(by_events[name]) for name, table in done.schedule.tables().items() if len(table)} == {
        name: True for name, table in by_events.items() if len(table)
    }


def test_what_is_not_simulated_is_one_sentence() -> None:
    """Servers without slots, and jobs of bounded lag."""
    for other in (resource_scenarios()[0], site_scenarios()[0]):
        with pytest.raises(ScenarioError, match="mtbf: goes with servers that have slots"):
            replace(other, physics=replace(other.physics, mtbf=SECOND))
    with pytest.raises(SkedgeError, match="does not go with jobs that have max_lag"):
        run(replace(two_servers(2, max_lag=1, epochs=2)), "aonline")


def test_a_run_with_failures_is_explained_and_verified_from_its_folder(tmp_path: Path) -> None:
    """The policy is asked again event by event, failures included; no compiled loop takes such a run."""
    scenario = small_scenario(0, cloud=False, physics=PHYSICS["continuous"])
    for policy in ("aonline:cloud=false", "srtf"):
        done = run(scenario, policy)
        assert loop_for(scenario, prepare_policy(policy, scenario)) is None
        assert not covers(scenario, prepare_policy(policy, scenario))
        assert explain(done, scenario.jobs.ids[-1]).job == scenario.jobs.ids[-1]
        done.save(tmp_path / policy[:4])
        again = Run.load(tmp_path / policy[:4])
        assert again.scenario.physics == scenario.physics
        assert again.verify() == []


@pytest.mark.parametrize("policy", thorough_except([*EDGE, "aonline"], [*EDGE, "aonline", "batch", "batchsche"]))
def test_a_cloud_of_limited_size_fails_and_is_repaired_as_any_server(policy: str) -> None:
    """A far server of four workers of each type beside the edge: every rule holds."""
    for seed in range(3):
        edge = small_scenario(seed, cloud=False, physics=Physics(mtbf=40 * SECOND, mttr=5 * SECOND))
        types = edge.cluster.worker_types, edge.cluster.ps_types
        slots = {f"worker:{name}": 4 for name in types[0]} | {f"ps:{name}": 4 for name in types[1]}
        cluster = Cluster([*edge.cluster.servers, Server("cloud", capacity=slots, upload="cloud")])
        done = run(replace(edge, cluster=cluster, jobs=Jobs(edge.jobs.frame, cluster)), policy)
        assert done.verify() == []
        assert len(done.schedule.outages) > 0
