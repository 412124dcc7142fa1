"""A job of sorted chunks that must not be shuffled, preempted on a real Ray cluster, with a bounded lag."""

from __future__ import annotations

from conftest import SERVERS
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.controller.session import train
from skedge.live.worker.program import Program
from skedge.simulate import run


def test_sorted_chunks_with_a_bounded_lag_are_preempted_and_still_learned(engine: Engine) -> None:
    """Short jobs displace them again and again; every rule holds, M39 too."""
    jobs = [Job("sorted", 0.0, 24, 3, 6, 0.05, upload_cloud_s=(60, 60), max_lag=1)]
    jobs += [Job(f"short{i}", 2.5 + 1.0 * i, 1, 1, 6, 0.05, upload_cloud_s=(60, 60)) for i in range(11)]
    cluster = Cluster(SERVERS)
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster), Physics(slot=SECOND), 0, "bounded")
    short = {"model": "lenet", "chunks": 1, "samples": 60, "size": 8}
    works = {job.id: Program("skedge.live.examples:images", short, 1, 1, 6) for job in jobs[1:]}
    works["sorted"] = Program("sorted_jobs:sorted_digits", {"chunks": 3}, 3, 24, 6)
    done = train(scenario, works, run(scenario, "aonline"), engine)
    assert done.run.jobs["state"].to_list() == ["finished"] * 12
    assert done.run.verify() == []
    assert done.run.metrics["preemptions"] >= 1
    assert done.results["sorted"]["accuracy"] > 0.8
