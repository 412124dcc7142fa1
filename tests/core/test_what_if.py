"""What-if: what is foreseen of a change is what happens when the change is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders.paths import CASES
from skedge.core.engine.truth import SWITCHES, TOUCHED
from skedge.core.errors import SkedgeError
from skedge.core.events import Dispatch, Event
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.explanation.what_if import (
    Answer,
    Effect,
    answer_fields,
    find_remedies,
    remaining_jobs,
    replay_run,
    state_at,
    what_if,
)
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import scenario_of
from skedge.sim.what_if import Present
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run
from skedge.testing import small_scenario

POLICIES = ["aonline", "aonline:cloud=false", "srtf", "tiresias:limit_s=20", "fifo", "drf", "preemptive", "batch"]
JOBS = 16


def job(number: int, seed: int) -> Job:
    rng = np.random.default_rng([seed, number])
    chunks = int(rng.integers(1, 6))
    return Job(
        id=f"j{number}", arrival_s=number * 9.7, epochs=int(rng.integers(1, 4)), chunks=chunks,
        minibatches=int(rng.integers(1, 12)), minibatch_s=float(rng.uniform(0.5, 3)), ps_update_s=0.05,
        gradient_mb=float(rng.uniform(1, 50)), bandwidth_mbps=400.0, worker_type=str(rng.choice(["a", "b"])),
        ps_type="p", workers=int(rng.integers(1, chunks + 1)), upload_edge_s=(0.0, 9.0), upload_cloud_s=(30.0, 60.0),
    )  # fmt: skip


def scenario(seed: int, jobs: int = JOBS, *, at_once: bool = False) -> Scenario:
    """Jobs that compete for a few servers; `at_once`: all arrive at 0."""
    like = small_scenario(seed, jobs=1)
    given = [replace(job(i, seed), arrival_s=0.0) if at_once else job(i, seed) for i in range(jobs)]
    table, uploads = job_table(given)
    return replace(like, jobs=Jobs(table, like.cluster, uploads))


def completions(of: Run, after: int) -> dict[str, int]:
    """Completions later than `after` [µs], by job id."""
    rows = zip(of.scenario.jobs.ids, of.jobs["completion"].to_list(), strict=True)
    return {name: time for name, time in rows if time is not None and time > after}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_foreseen_of_a_submission_is_what_happens(policy: str, seed: int) -> None:
    """The last job of a run, tried on the state at its arrival, in which it is not known."""
    before, last = scenario(seed, JOBS - 1), job(JOBS - 1, seed)
    now = round(last.arrival_s * SECOND)
    present = state_at(before, policy, last.arrival_s)
    present.submit(last)
    ids = present.kernel.scenario.jobs.ids
    foreseen = {ids[number]: time for number, time in present.foresee().completions.items()}
    assert foreseen == completions(run(scenario(seed), policy), now)


class Drained(SimulatedWorld):
    """A simulation in which a server leaves service, with what truly stands there."""

    kernel: Kernel

    def leave(self, server: int) -> None:
        kernel, truth, now = self.kernel, self.truth, self.now
        lost = Present(kernel, now)._chunks_on(server)
        lanes = np.flatnonzero(self.scenario.cluster.lane_server == server)
        there = truth.lanes.waiting[lanes].sum() + truth.lanes.coming[lanes].sum()
        assert bool(there) == bool(lost), "the kernel believes what is true"
        for lane in lanes.tolist():
            self._empty(lane)
        stopped = [n for n in kernel.engine.holders() if server in dict(kernel.engine.placement(n))]
        stopped += [n for n in kernel.engine.holders() if server in kernel.books.ps_servers(n) and n not in stopped]
        orders = kernel.handle(Event(now, servers=((server, "server_cordoned"),), lost=lost))
        for number in stopped:
            self.holding.stop(number)
        for order in orders:
            self.perform(order)

    def _empty(self, lane: int) -> None:
        truth = self.truth
        if truth.open_chunk[lane] >= 0:
            number, truth.open_chunk[lane] = truth.open_job[lane], -1
            truth.in_service[number] -= 1
            truth.switches[truth.size[SWITCHES], 0] = number
            truth.size[SWITCHES] += 1
        truth.lanes.waiting[lane] = truth.lanes.coming[lane] = 0
        truth.lanes.clock[lane], truth.lanes.serving[lane] = self.now, -1
        if not truth.marked[lane]:
            truth.marked[lane], truth.touched[truth.size[TOUCHED]] = 1, lane
            truth.size[TOUCHED] += 1
        self.unsettled = True

    def _colocated(self, order: Dispatch) -> int:
        return int(self.kernel.wholly_in_cloud(order.job))


@pytest.mark.parametrize("policy", ["aonline", "aonline:cloud=false", "srtf", "fifo", "drf", "preemptive"])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_foreseen_of_a_drained_server_is_what_happens(policy: str, seed: int) -> None:
    """Server 0 is drained at an event, in the run itself and on the state of its record."""
    jobs, made = scenario(seed), prepare_policy(policy, scenario(seed))
    kernel = Kernel(jobs, made)
    world = Drained(kernel)
    world.kernel = kernel
    drained, ends = -1, dict[str, int]()
    while (event := world.next_event()) is not None:
        for order in kernel.handle(event):
            world.perform(order)
        ends |= {jobs.jobs.ids[number]: event.time for number in event.finished}
        if drained < 0 and kernel.arrived == JOBS:
            drained = event.time
            world.leave(0)
    answer = what_if(state_at(jobs, policy, drained / SECOND), {"drain": "e0"})
    foreseen = {one.job: one.completion_after_s for one in answer.effects if one.completion_after_s is not None}
    assert foreseen == {name: end / SECOND for name, end in ends.items() if end > drained}


@pytest.mark.parametrize("policy", ["aonline", "srtf", "drf"])
def test_another_policy_and_another_server_do_what_they_do_in_a_run(policy: str) -> None:
    """All jobs arrive at 0, so that everything is left: the answer is the run itself."""
    jobs = scenario(0, at_once=True)
    present = state_at(jobs, "fifo", 0.0)
    assert completions(run(remaining_jobs(present), policy), 0) == completions(run(jobs, policy), 0)
    answer = what_if(present, {"policy": policy})
    assert {one.job: one.completion_after_s for one in answer.effects} == {
        name: end / SECOND for name, end in completions(run(jobs, policy), 0).items()
    }
    more = {"id": "west", "workers": {"a": 2, "b": 2}, "ps": {"p": 4}}
    wider = Cluster([*jobs.cluster.servers, Server("west", capacity={"worker:a": 2, "worker:b": 2, "ps:p": 4})])
    there = replace(jobs, cluster=wider, jobs=Jobs(jobs.jobs.frame, wider))
    answer = what_if(state_at(jobs, policy, 0.0), {"add": more})
    assert {one.job: one.completion_after_s for one in answer.effects} == {
        name: end / SECOND for name, end in completions(run(there, policy), 0).items()
    }
    assert answer.later_s < 0


def test_what_is_left_of_a_job_shrinks_as_it_trains() -> None:
    jobs = scenario(0)
    shares = [state_at(jobs, "srtf", at).left() for at in (60.0, 70.0, 80.0)]
    both = set(shares[0]) & set(shares[1]) & set(shares[2])
    assert both
    assert all(1 >= shares[0][job] >= shares[1][job] >= shares[2][job] > 0 for job in both)
    assert sum(shares[2][job] for job in both) < sum(shares[0][job] for job in both)


def test_a_question_changes_nothing() -> None:
    present = state_at(scenario(1), "aonline", 100.0)
    before = present.foresee()
    what_if(present, {"drain": "e0"})
    what_if(present, {"submit": SPEC})
    assert present.foresee() == before
    assert present.kernel.in_service.all()


SPEC = {
    "name": "new",
    "epochs": 2,
    "chunks": 2,
    "minibatches": 4,
    "minibatch_s": 1.0,
    "resources": {"worker_type": "a", "ps_type": "p"},
}


def test_a_job_that_is_asked_about_has_a_name_of_its_own() -> None:
    present = state_at(scenario(1), "srtf", 100.0)
    new = what_if(present, {"submit": {**SPEC, "name": "j0"}}).effects[-1]
    assert (new.job, new.completion_before_s) == ("j0-2", None)
    assert new.start_after_s is not None
    assert new.start_after_s >= 100.0


def waiting(present: Present) -> list[int]:
    """The jobs that do not run now and are foreseen to start later."""
    return [job for job, start in present.foresee().starts.items() if start > present.now]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "drf"])
def test_what_would_help_is_found_by_trying(policy: str) -> None:
    """A server that came back, and fewer workers: each starts the job earlier, as a forecast of that change says."""
    present = state_at(scenario(0), policy, 100.0)
    present.drain(0)
    before, found = present.foresee(), dict[str, int]()
    for number in waiting(present):
        for one in find_remedies(present, number):
            assert one.start_s < before.starts[number] / SECOND
            changed, after = present.copy(), number
            if one.change == "if e0 came back":
                changed.restore(0)
            else:
                after = changed.resubmit(number, int(one.change.split()[1]))
            assert one.start_s == changed.foresee().starts[after] / SECOND
            found[one.change.split()[0]] = found.get(one.change.split()[0], 0) + 1
    assert found.get("if", 0) > 0
    assert present.foresee() == before, "nothing is changed by it"


def test_fewer_workers_are_no_help_to_dispatched_chunks() -> None:
    """Job 10 waits, as the lanes of its chunks do; submitted again it would be dispatched to others."""
    present = state_at(scenario(9), "aonline", 100.0)
    present.drain(1)
    assert 10 in waiting(present)
    assert [one.change for one in find_remedies(present, 10) if not one.change.startswith("if ")] == []


def test_fewer_workers_start_a_job_that_waits_for_many() -> None:
    """Every lane but one is taken: with one worker the job starts as it arrives, with two it waits."""
    like = small_scenario(0, jobs=1)
    lanes = int((like.cluster.lane_type == like.cluster.lane_type[0]).sum())
    kind = like.cluster.worker_types[int(like.cluster.lane_type[0])]
    long = {"arrival_s": 0.0, "worker_type": kind, "chunks": lanes, "epochs": 3, "minibatches": 9, "minibatch_s": 9.0}
    taken = replace(job(0, 0), **{**long, "workers": lanes - 1})
    asked = replace(job(1, 0), **{**long, "arrival_s": 1.0, "workers": 2})
    table, uploads = job_table([taken, asked])
    present = state_at(replace(like, jobs=Jobs(table, like.cluster, uploads)), "fifo", 1.0)
    assert waiting(present) == [1]
    (found,) = find_remedies(present, 1)
    assert found.change == "with 1 worker"
    assert found.start_s < present.foresee().starts[1] / SECOND
    assert find_remedies(present, 0) == (), "it runs"


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({}, "what-if: nothing: must be one of submit, drain, add, policy"),
        ({"sell": "e0"}, "what-if: sell: must be one of"),
        ({"drain": "west"}, "drain: server 'west' is unknown; there are e0"),
        ({"submit": {"name": "x", "speed": 1}}, "job spec: speed"),
        ({"submit": [1]}, "job spec: holds no mapping"),
        ({"add": {"id": "west", "wheels": 4}}, "add: wheels: is not a field.*; there are id, "),
        ({"add": {"id": "west", "workers": {"z": 1}}}, "add: worker type 'z' is of no job here; there are a, b"),
        ({"policy": "best"}, "best"),
    ],
)
def test_a_wrong_question_is_one_sentence(question: dict[str, Any], says: str) -> None:
    with pytest.raises(SkedgeError, match=says):
        what_if(state_at(scenario(0, 3), "srtf", 5.0), question)


def test_a_record_is_compared_with_its_jobs_under_another_policy() -> None:
    recorded = run(scenario(0), "fifo")
    answer, after = replay_run(recorded, "srtf")
    same, _ = replay_run(recorded, "fifo")
    assert after.policy == "srtf"
    assert [one.completion_after_s for one in answer.effects] == [time / SECOND for time in after.jobs["completion"]]
    assert same.later_s == 0
    assert answer.later_s != 0


# -- jobs that never complete ------------------------------------------------------------------------------------------


def test_a_gang_that_a_drain_strands_stands_first_and_counts_apart() -> None:
    """4 of its 4 workers are on two servers: with one drained it never runs again, and the others go ahead of it."""
    present = state_at(scenario_of(CASES / "drain-strands-gang.yaml"), "srtf", 10.0)
    answer = what_if(present, {"drain": "n0"})
    assert (answer.ranked[0].job, answer.ranked[0].outcome) == ("gang", "stranded")
    assert answer.counts["stranded"] == 1
    others = [one for one in answer.effects if one.job != "gang"]
    assert answer.later_s == sum(one.completion_after_s - one.completion_before_s for one in others)  # type: ignore[operator]


def test_a_gang_that_blocks_the_queue_strands_all() -> None:
    """As the queue is strict, nobody passes the gang: no job completes, so there is no sum, which is not a sum of 0."""
    present = state_at(scenario_of(CASES / "drain-strands-gang.yaml"), "fifo", 50.0)
    found = answer_fields(what_if(present, {"drain": "n0"}))
    assert (found["counts"]["stranded"], found["later_s"]) == (31, None)
    assert found["jobs"][0]["job"] == "gang"


def test_the_only_job_of_the_only_server_never_completes() -> None:
    jobs = scenario_of(CASES / "drain-only-server.yaml")
    answer = what_if(state_at(jobs, "fifo", 50.0), {"drain": "n0"})
    assert [(one.job, one.outcome) for one in answer.effects] == [("a", "stranded")]
    assert answer.later_s is None


def test_without_a_server_in_service_another_policy_completes_nothing() -> None:
    """At 100 s the only server has failed: a forecast has it out of service under both policies, and says so."""
    present = state_at(scenario_of(CASES / "drain-only-server.yaml"), "fifo", 100.0)
    assert not present.kernel.in_service.any()
    answer = what_if(present, {"policy": "srtf"})
    assert [(one.job, one.outcome) for one in answer.effects] == [("a", "never")]
    assert (answer.later_s, answer.out_of_service) == (None, ("n0",))
    back = what_if(present, {"add": {"id": "n1", "workers": {"gpu": 1}, "ps": {"cpu": 1}}})
    assert [(one.job, one.outcome) for one in back.effects] == [("a", "freed")]


def test_a_submission_that_can_never_run_is_said_to_be_so() -> None:
    """e0 to the last server are drained: the job asked about waits for ever, as all others do."""
    present = state_at(scenario(0), "srtf", 100.0)
    for server in range(len(present.kernel.scenario.cluster.servers)):
        present.drain(server)
    answer = what_if(present, {"submit": SPEC})
    assert {one.outcome for one in answer.effects if not one.submitted} == {"never"}
    assert [one.outcome for one in answer.effects if one.submitted] == ["stranded"]


def test_effects_are_ranked_with_what_never_completes_first() -> None:
    effects = (
        Effect("same", 0, 0, 5, 5), Effect("sooner", 0, 0, 5, 3), Effect("later", 0, 0, 5, 9),
        Effect("new", None, 0, None, 4, submitted=True), Effect("never", None, None, None, None),
        Effect("freed", None, 0, None, 5), Effect("stranded", 0, None, 5, None),
    )  # fmt: skip
    answer = Answer(0.0, effects)
    names = ["stranded", "freed", "never", "new", "later", "sooner", "same"]
    assert [effect.job for effect in answer.ranked] == names
    assert set(answer.counts.values()) == {1}
    assert answer.later_s == 4 - 2


@pytest.mark.parametrize("policy", ["aonline", "srtf"])
def test_a_change_of_policy_is_foreseen_without_failures_and_with_announced_times(policy: str) -> None:
    """A forecast knows neither true durations nor when a server will fail, whichever question is asked."""
    sure = scenario(0, at_once=True)
    unsure = replace(sure, physics=replace(sure.physics, estimate_error=0.4, mtbf=50 * SECOND, mttr=9 * SECOND))
    present = Present(Kernel(unsure, prepare_policy("fifo", unsure)), 0)
    present.submitted = len(unsure.jobs)
    present.happens(Event(0, arrived=tuple(range(len(unsure.jobs)))))
    found = {one.job: one.completion_after_s for one in what_if(present, {"policy": policy}).effects}
    assert found == {name: end / SECOND for name, end in completions(run(sure, policy), 0).items()}
