"""Simulations in which servers fail (``physics.mtbf``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skedge.core.errors import ScenarioError, SkedgeError
from skedge.core.model import Cluster, Job, Physics, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.core.time import SECOND
from skedge.explain import explain
from skedge.quick.which import loop_for
from skedge.run import Run, prepared, run
from skedge.sim.failures import Failures
from skedge.testing.scenarios import resource_scenarios, site_scenarios, small_scenario

LATE = 10**6
SENT_TO_THE_CLOUD = 0
"""A seed of which a chunk goes from a failed server to the cloud."""

EDGE = [
    "aonline:cloud=false", "aonline:cloud=false,preempt_running=false", "srtf", "tiresias", "preemptive", "drf", "fifo",
]  # fmt: skip
"""Policies that leave the cloud alone."""

PHYSICS = [
    Physics(mtbf=30 * SECOND, mttr=5 * SECOND),
    Physics(slotted=True, slot=2 * SECOND, mtbf=40 * SECOND, mttr=4 * SECOND),
    Physics(estimate_error=1.0, checkpoint_overhead=SECOND // 2, mtbf=30 * SECOND, mttr=5 * SECOND),
    Physics(data="last_place", colocation="one_server", mtbf=20 * SECOND, mttr=20 * SECOND),
]


def two_servers(chunks: int, *, epochs: int = 1, max_lag: int | None = None) -> Scenario:
    """Two servers with a worker and a PS each, and a job of `chunks` chunks of 10 s whose data take a second."""
    cluster = Cluster([Server(f"e{i}", capacity={"worker:a": 1, "ps:p": 1}) for i in range(2)])
    one = Job(
        "j", arrival_s=0, epochs=epochs, chunks=chunks, minibatches=10, minibatch_s=1.0, worker_type="a", ps_type="p",
        upload_s={"e0": 1.0, "e1": 1.0}, max_lag=max_lag,
    )  # fmt: skip
    table, given = job_table([one])
    return Scenario(cluster, Jobs(table, cluster, given), Physics(mtbf=SECOND, mttr=SECOND), 0, "two")


def fail(monkeypatch: pytest.MonkeyPatch, *changes: tuple[float, int, bool]) -> None:
    """Servers fail (True) and are repaired at these times [s] only."""

    def until(self: Failures, now: int) -> list[tuple[int, bool]]:
        found = [(server, fails) for time, server, fails in self.queue if time <= now]
        self.queue = [change for change in self.queue if change[0] > now]
        return found

    def given(self: Failures, _: Scenario) -> None:
        self.queue = [(round(time * SECOND), server, fails) for time, server, fails in (*changes, (LATE, 0, True))]

    monkeypatch.setattr(Failures, "__init__", given)
    monkeypatch.setattr(Failures, "until", until)


@pytest.mark.parametrize("policy", EDGE)
@pytest.mark.parametrize("physics", PHYSICS, ids=["continuous", "slotted", "announced wrongly", "last place"])
def test_every_rule_holds_where_servers_fail(policy: str, physics: Physics) -> None:
    """The record is verified; servers do fail, and each job is completed or rejected; it is the same again."""
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
    assert done.verify() == []
    assert (done.schedule.runs["end"] / SECOND).to_list() == [5, 12]


def test_without_a_server_jobs_wait_for_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fail at 5; e1 is back at 20: its data are lost, so that the chunk runs from 21 to 27."""
    fail(monkeypatch, (5, 0, True), (5, 1, True), (20, 1, False))
    for policy in ("aonline", "srtf"):
        done = run(two_servers(1), policy)
        assert done.verify() == []
        assert done.schedule.runs["end"].max() == 27 * SECOND


def test_failures_are_the_same_under_every_policy_and_as_often_as_stated() -> None:
    """Up for 50 s and down for 10 s in the mean: 4 servers are out for a sixth of the time."""
    scenario = small_scenario(0, cloud=False, physics=Physics(mtbf=50 * SECOND, mttr=10 * SECOND))
    outages = {policy: run(scenario, policy).schedule.outages for policy in ("srtf", "fifo")}
    shorter = min(map(len, outages.values()))
    assert outages["srtf"].head(shorter)["start"].equals(outages["fifo"].head(shorter)["start"])
    drawn, down, since = Failures(scenario), 0, dict[int, int]()
    while drawn.next < 100_000 * SECOND:
        now = drawn.next
        for server, fails in drawn.until(now):
            down += 0 if fails else now - since[server]
            since[server] = now
    assert down / (4 * 100_000 * SECOND) == pytest.approx(1 / 6, rel=0.05)
    assert np.isfinite(down)


def test_what_is_not_simulated_is_one_sentence() -> None:
    """Servers without slots, jobs of bounded lag, and chunks that go to the cloud when their server fails."""
    failing = Physics(mtbf=30 * SECOND, mttr=5 * SECOND)
    for other in (resource_scenarios()[0], site_scenarios()[0]):
        with pytest.raises(ScenarioError, match="mtbf: goes with servers that have slots"):
            replace(other, physics=replace(other.physics, mtbf=SECOND))
    with pytest.raises(SkedgeError, match="does not go with jobs that have max_lag"):
        run(replace(two_servers(2, max_lag=1, epochs=2)), "aonline")
    with pytest.raises(SkedgeError, match="is sent to the cloud, which is not simulated"):
        run(small_scenario(SENT_TO_THE_CLOUD, physics=failing), "aonline")


def test_a_run_with_failures_is_explained_and_verified_from_its_folder(tmp_path: Path) -> None:
    """The policy is asked again event by event, failures included; no compiled loop takes such a run."""
    scenario = small_scenario(0, cloud=False, physics=PHYSICS[0])
    for policy in ("aonline:cloud=false", "srtf"):
        done = run(scenario, policy)
        assert loop_for(scenario, prepared(policy, scenario)) is None
        assert explain(done, scenario.jobs.ids[-1]).job == scenario.jobs.ids[-1]
        done.save(tmp_path / policy[:4])
        again = Run.load(tmp_path / policy[:4])
        assert again.scenario.physics == scenario.physics
        assert again.verify() == []
