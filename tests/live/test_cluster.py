"""Real training on a real Ray cluster: preempted, failed, killed; the record keeps the model's rules."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.thorough import thorough_after, thorough_except
from conftest import SERVERS
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Exponential
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid
from skedge.live.cluster.engine import Engine
from skedge.live.controller.session import LiveRun, train
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.program import Program
from skedge.live.world.ray_world import NoEngine
from skedge.simulate import run

_NUMBER = iter(range(1000))

SMALL = {"model": "lenet", "samples": 120, "size": 8}
RESNET = {"model": "resnet", "samples": 300, "size": 16}
"""The first is trained in a few milliseconds, so that waiting for the announced pace is most of a test."""


def job(arrival_s: float, chunks: int, epochs: int, **more: Any) -> Job:
    given: dict[str, Any] = {"minibatch_s": 0.08, "ps_update_s": 0.01, "gradient_mb": 0.05, "bandwidth_mbps": 100.0}
    given |= {"workers": chunks, "upload_edge_s": (0.2, 0.4), "upload_cloud_s": (60.0, 60.0), **more}
    return Job(f"job{next(_NUMBER)}", arrival_s, epochs, chunks, 6, **given)


def staged(
    jobs: list[Job], factory: dict[int, str] | None = None, args: dict[int, dict[str, Any]] | None = None
) -> tuple[Scenario, dict[str, Program]]:
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster), Physics(slot=SECOND), 0, "live test")
    return scenario, programs(jobs, factory or {}, args or {})


def programs(jobs: list[Job], factory: dict[int, str], args: dict[int, dict[str, Any]]) -> dict[str, Program]:
    made = {}
    for i, one in enumerate(jobs):
        given = {**SMALL, "chunks": one.chunks, **args.get(i, {})}
        by = factory.get(i, "skedge.live.examples:images")
        made[one.id] = Program(by, given, one.chunks, one.epochs, one.minibatches, seed=i)
    return made


def live(engine: Engine, jobs: list[Job], policy: str = "aonline", **more: Any) -> LiveRun:
    scenario, of = staged(jobs, **more)
    return train(scenario, of, run(scenario, policy), engine)


def states(done: LiveRun) -> list[str]:
    return done.run.jobs["state"].to_list()


def test_a_preempted_job_is_trained_to_its_end_and_the_record_keeps_the_rules(engine: Engine, tmp_path: Path) -> None:
    """From its journal alone the run is made again, each decision as it was taken."""
    scenario, of = staged([job(0, 3, 8), job(2, 3, 2), job(3, 1, 2)], args=dict.fromkeys(range(3), RESNET))
    url = f"sqlite:///{tmp_path}/journal.db"
    expected = run(scenario, "aonline")
    done = train(scenario, of, expected, engine, journal=SqlJournal(url, {"began": time.time()}))
    assert states(done) == ["finished"] * 3
    assert done.run.verify() == []
    assert done.run.metrics["preemptions"] >= 1
    assert len(done.preemption_s) >= 1
    accuracies = [result["accuracy"] for result in done.results.values()]
    assert max(accuracies) > 0.8
    assert min(accuracies) > 0.2, "a guess is right in a tenth; how much two epochs learn depends on the chunks' order"
    assert done.run.metrics["jct_mean_s"] >= 0.95 * done.simulated.metrics["jct_mean_s"], "none is sooner than foreseen"
    again = train(scenario, of, expected, NoEngine(len(SERVERS)), journal=SqlJournal(url))
    assert again.run.schedule.decisions.equals(done.run.schedule.decisions)
    assert again.run.schedule.runs.equals(done.run.schedule.runs)


@pytest.mark.parametrize(
    "policy",
    thorough_except(
        ["srtf", "drf", "batch"],
        ["srtf", "tiresias", "fifo", "fifo:rule=earliest_server", "drf", "preemptive", "batch", "batchsche"],
    ),
)
def test_gangs_train_too(engine: Engine, policy: str) -> None:
    fast = {"minibatch_s": 0.05, "upload_edge_s": (0.1, 0.2)}
    done = live(engine, [job(0, 2, 6, **fast), job(1, 2, 2, **fast), job(1.2, 1, 1, **fast)], policy)
    assert states(done) == ["finished"] * 3
    assert done.run.verify() == []
    assert done.run.metrics["jct_mean_s"] >= 0.95 * done.simulated.metrics["jct_mean_s"], "none is sooner than foreseen"


@pytest.mark.parametrize("policy", thorough_after(3, ["pdors", "dorm", "drf", "oasis", "optimus", "fifo"]))
def test_policies_on_servers_with_resources_train_too(engine: Engine, policy: str) -> None:
    """Workers and PSs by resource, changed at slot boundaries; the embedded servers are those of the other tests."""
    servers = [Server(name, "edge", {"gpu": 3, "cpu": 6}) for name in ("edge-0", "edge-1")]
    needs: dict[str, Any] = {"worker_needs": {"gpu": 1, "cpu": 1}, "ps_needs": {"cpu": 1}, "batch": 2, "ratio": 2.0}
    needs |= {"upload_edge_s": (0.0, 0.0), "internal_mbps": 1000.0, "utility": Sigmoid(50.0, 0.1, 8.0)}
    needs |= {"minibatch_s": 0.04, "ps_update_s": 0.005, "gradient_mb": 0.025}
    jobs = [job(0, 2, 4, **needs), job(0.25, 2, 2, **needs), job(1.25, 2, 2, **needs)]
    cluster = Cluster(servers)
    physics = Physics(slot=SECOND, colocation="one_server", horizon=20 * SECOND)
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster), physics, 0, "live test")
    done = train(scenario, programs(jobs, {}, {}), run(scenario, policy), engine)
    assert states(done) == ["finished"] * 3
    assert done.run.verify() == []


def sited(count: int = 3) -> tuple[Scenario, dict[str, Program]]:
    """Jobs whose data lie at both sites; slots of 1 s, in which a worker trains 2 chunks."""
    servers = [Server(name, "edge", {"gpu": 2, "cpu": 3}) for name in ("edge-0", "edge-1")]
    needs: dict[str, Any] = {"worker_needs": {"gpu": 1, "cpu": 1}, "ps_needs": {"cpu": 1}, "chunk_mb": 2.0}
    needs |= {
        "exchange_mb": 5.0,
        "latency": Exponential(20.0),
        "minibatch_s": 0.035,
        "ps_update_s": 0.0,
        "upload_edge_s": (0.0, 0.0),
        "upload_cloud_s": (0.0, 0.0),
    }
    needs |= {"gradient_mb": 0.0, "data": {"edge-0": 2, "edge-1": 4}}
    jobs = [job(1.0 * i, 6, 2, **needs) for i in range(count)]
    cluster = Cluster(servers, np.array([[0, 0.05], [0.05, 0]]))
    physics = Physics(slot=SECOND, slotted=True, horizon=20 * SECOND)
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster), physics, 0, "live test")
    return scenario, programs(jobs, {}, {i: {"samples": 300} for i in range(count)})


@pytest.mark.parametrize("policy", thorough_after(2, ["okita", "oasis", "fifo", "drf"]))
def test_policies_at_sites_train_too(engine: Engine, tmp_path: Path, policy: str) -> None:
    """Workers, PS and data change place slot by slot; the record is that of the simulation, and so is the journal's."""
    scenario, of = sited()
    url = f"sqlite:///{tmp_path}/journal.db"
    expected = run(scenario, policy)
    done = train(scenario, of, expected, engine, journal=SqlJournal(url, {"began": time.time()}))
    assert states(done) == ["finished"] * 3
    assert done.run.verify() == []
    assert done.run.metrics["moved_mb"] > 0
    assert done.run.metrics["cost_total"] == pytest.approx(expected.metrics["cost_total"])
    assert done.run.schedule.uploads.equals(expected.schedule.uploads)
    assert all(result["accuracy"] > 0.3 for result in done.results.values())
    again = train(scenario, of, expected, NoEngine(len(SERVERS)), journal=SqlJournal(url))
    assert again.run.schedule.decisions.equals(done.run.schedule.decisions)
    assert again.run.schedule.runs.equals(done.run.schedule.runs)


def at_work(engine: Engine) -> tuple[list[int], Callable[[], list[int]]]:
    """Process ids of the agents of edge servers; when asked, those of the parameter servers that then serve a job."""
    import ray  # not earlier: it reads its settings when it is imported

    agents = [ray.get(engine.agents[server].pid.remote()) for server in range(2)]
    servers = {actor: _process_of(actor) for idle in engine.processes.idle.values() for actor in idle}

    def serving() -> list[int]:
        """An idle one has nothing to lose, and each that is started again delays the others."""
        idle = {actor for actors in engine.processes.idle.values() for actor in actors}
        busy = [pid for actor, pid in servers.items() if actor not in idle]
        assert busy
        return busy

    return agents, serving


def _process_of(idle: Any) -> int:
    """Process id of an idle parameter server; one that an earlier test killed may still be starting."""
    import ray

    for _ in range(300):
        try:
            return int(ray.get(idle.warm.remote()))
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.1)
    raise TimeoutError("an idle parameter server has not started again within 30 s")


def kill(*processes: int) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)


def test_at_sites_killed_processes_lose_nothing_and_time_stands_still(engine: Engine) -> None:
    """Kill -9 of agents and parameter servers: the slot ends when its work is done, so that no rule is broken."""
    agents, serving = at_work(engine)
    scenario, of = sited(2)
    expected = run(scenario, "okita")
    _soon(lambda: kill(*agents, *serving()), 1.3)
    done = train(scenario, of, expected, engine)
    assert states(done) == ["finished"] * 2
    assert done.run.verify() == []
    assert done.run.meta["slot_overrun_s"] > 0.5
    assert done.run.schedule.runs.equals(expected.schedule.runs)


def test_at_sites_a_lost_server_and_a_job_that_fails_leave_the_others_alone(engine: Engine) -> None:
    while engine.lost:  # by a test before
        time.sleep(0.1)
    raylet = engine.embedded.nodes["edge-0"].all_processes["raylet"][0].process.pid
    scenario, of = sited(3)
    names = scenario.jobs.ids
    of[names[1]] = Program("no.such.module:f", {}, 6, 2, 6)
    _soon(lambda: os.kill(raylet, signal.SIGKILL), 1.5)
    done = train(scenario, of, run(scenario, "okita"), engine)
    assert states(done) == ["finished", "failed", "finished"]
    assert "No module named 'no'" in done.run.jobs["reason"][1]
    assert done.run.schedule.outages["server"].to_list() == ["edge-0"]
    assert done.run.verify() == []


def test_a_job_that_cannot_be_trained_fails_with_its_reason_and_others_go_on(engine: Engine) -> None:
    jobs = [job(0, 2, 3), job(0.5, 1, 3), job(1, 1, 3), job(1.5, 1, 3)]
    done = live(
        engine,
        jobs,
        factory={1: "no.such.module:f"},
        args={2: {"lr": 1e30, "model": "alexnet"}, 3: {"samples": 4}},
    )
    assert states(done) == ["finished", "failed", "failed", "failed"]
    reasons = done.run.jobs["reason"].to_list()
    assert "No module named 'no'" in reasons[1]
    assert "the loss is" in reasons[2]
    assert "fewer than its 6 mini-batches" in reasons[3]
    assert not any("Traceback" in str(reason) for reason in reasons)
    assert done.run.verify() == []


def test_code_that_ends_processes_fails_its_job_and_a_test_that_fails_does_not(engine: Engine) -> None:
    """The first shares its server with the second, each in processes of its own."""
    jobs = [job(0, 1, 3), job(0, 2, 3)]
    done = live(engine, jobs, factory={0: "bad_jobs:ends_its_process", 1: "bad_jobs:has_no_test"})
    assert states(done) == ["failed", "finished"]
    assert done.run.jobs["reason"].to_list()[0].startswith("its code ends the process that it runs in, or there is too")
    assert "FileNotFoundError: no test data" in done.results[jobs[1].id]["unmeasured"]
    assert done.run.verify() == []


def test_damaged_chunks_and_a_checkpoint_that_cannot_be_written_fail_their_jobs_alone(engine: Engine) -> None:
    """The second and third wait behind the first while their chunk files are cut short or removed."""
    jobs = [job(0, 3, 6), job(0.5, 3, 7), job(0.5, 3, 7), job(1, 1, 2)]
    cut, removed, unsaved = (one.id for one in jobs[1:])
    (Path(engine.url) / unsaved).parent.mkdir(parents=True, exist_ok=True)
    (Path(engine.url) / unsaved).write_text("in the way of the folder", encoding="utf-8")

    def damage() -> None:
        """As soon as all six are there: those jobs' turn comes later."""
        there: dict[str, list[Path]] = {}
        while len(there.get(cut, [])) < 3 or len(there.get(removed, [])) < 3:
            time.sleep(0.05)
            there = {name: list(engine.folder.glob(f"servers/*/{name}/*.pt")) for name in (cut, removed)}
        for name, chunks in there.items():
            for chunk in chunks:
                chunk.unlink() if name == removed else os.truncate(chunk, 100)

    _soon(damage, 0.0)
    done = live(engine, jobs)
    assert states(done) == ["finished", "failed", "failed", "failed"]
    reasons = done.run.jobs["reason"].to_list()
    assert "is truncated or damaged (100 bytes)" in reasons[1]
    assert "No such file or directory" in reasons[2]
    assert f"checkpoint {engine.url}/{unsaved}/" in reasons[3]
    assert "cannot be written" in reasons[3]
    assert done.run.verify() == []


def _soon(do: Callable[[], None], after_s: float) -> None:
    def wait() -> None:
        time.sleep(after_s)
        do()

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize(
    ("how", "policy"),
    thorough_after(2, [("killed", "srtf"), ("frozen", "aonline"), ("killed", "aonline"), ("frozen", "srtf")]),
)
def test_a_lost_server_is_recorded_and_its_work_goes_on_elsewhere(
    engine: Engine, how: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its raylet is killed, or all its processes are stopped; it is started again, and may be used again."""
    import ray  # not earlier: it reads its settings when it is imported

    while engine.lost:  # by the test before
        time.sleep(0.1)
    monkeypatch.setattr("skedge.live.cluster.engine._FROZEN_S", 8.0)
    one = job(0, 3, 8, workers=2)
    raylet = engine.embedded.nodes["edge-0"].all_processes["raylet"][0].process.pid
    agent = ray.get(engine.agents[0].pid.remote())

    idle = engine.processes.idle
    warm = sum(map(len, idle.values()))

    def lose() -> None:
        """In mid-training: a node that is lost before the job comes is up again by then."""
        while sum(map(len, idle.values())) == warm:
            time.sleep(0.05)
        time.sleep(1.0)
        if how == "killed":
            os.kill(raylet, signal.SIGKILL)
        else:
            for pid in (raylet, agent):
                os.kill(pid, signal.SIGSTOP)

    _soon(lose, 0.0)
    done = live(engine, [one], policy)
    assert states(done) == ["finished"]
    assert done.run.schedule.runs["work"].sum() == 3 * 8 * 6
    (outage,) = done.run.schedule.outages.rows(named=True)
    assert (outage["server"], outage["reason"]) == ("edge-0", "server_lost")
    assert outage["end"] > outage["start"]
    verbs = done.run.schedule.decisions.filter(pl.col("reason").is_in(["server_lost", "server_out"]))["verb"].to_list()
    assert set(verbs) == {"redispatch" if policy == "aonline" else "suspend"}
    assert done.run.verify() == []


@pytest.mark.parametrize("victim", ["agent", "parameter server"])
def test_a_killed_process_costs_time_and_nothing_else(engine: Engine, victim: str) -> None:
    """Kill -9 in mid-training: each chunk counts each mini-batch once, in the parameters and in the record."""
    one = job(0, 2, 8)
    agents, serving = at_work(engine)
    _soon(lambda: kill(*(agents if victim == "agent" else serving())), 2.0)
    done = live(engine, [one])
    assert states(done) == ["finished"]
    losses = done.results[one.id]["losses"]
    assert [version for version, _ in losses] == list(range(1, len(losses) + 1))
    assert done.run.schedule.runs["work"].sum() == 2 * 8 * 6
    assert [v for v in done.run.verify() if v.rule not in {"M8", "M22"}] == [], "the time of recovery is time held"
    assert all(v.message.startswith("chunk") and "is trained for" in v.message for v in done.run.verify())


def test_agents_have_the_priority_of_the_service(engine: Engine) -> None:
    """Ray starts workers at niceness 15, behind whatever else the machine does."""
    import ray

    agent = ray.get(engine.agents[0].pid.remote())
    assert os.getpriority(os.PRIO_PROCESS, agent) == os.getpriority(os.PRIO_PROCESS, 0)
