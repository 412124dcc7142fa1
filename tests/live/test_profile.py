"""Speeds measured by a few mini-batches of each job on each server type, by the agents of a live run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from conftest import SERVERS
from skedge.cli.profile import scenario_text
from skedge.core.errors import TrainingError
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.cluster.profiling import MINIBATCHES, Speed, announced, profile, server_types, slowest
from skedge.live.worker.program import Program
from skedge.scenario.file import scenario_from_dict

IMAGES = "skedge.live.examples:images"


def scenario(*ids: str) -> Scenario:
    cluster = Cluster(SERVERS)
    jobs = [
        Job(name, 0.0, 2, 2, 6, 0.1, 0.01, 0.05, 100.0, workers=2, upload_edge_s=(0.2, 0.4), upload_cloud_s=(9, 9))
        for name in ids
    ]
    return Scenario(cluster, Jobs(job_table(jobs)[0], cluster), Physics(slot=SECOND), 0, "profile test")


def program(model: str, seed: int = 0, factory: str = IMAGES) -> Program:
    return Program(factory, {"model": model, "chunks": 2, "samples": 120, "size": 8}, 2, 2, 6, seed=seed)


@pytest.fixture(scope="module")
def speeds(engine: Engine) -> list[Speed]:
    works = {"small": program("lenet"), "same": program("lenet", seed=7), "large": program("resnet")}
    return profile(scenario(*works), works, engine, minibatches=3)


def test_every_job_is_measured_on_every_server_type(speeds: list[Speed]) -> None:
    types = server_types(Cluster(SERVERS))
    assert [SERVERS[number].id for number in types] == ["edge-0", "edge-1", "cloud"]
    assert [(s.job, s.server) for s in speeds] == [
        (job, SERVERS[number].id) for job in ("large", "same", "small") for number in types
    ]


def test_what_is_measured_adds_up(speeds: list[Speed]) -> None:
    for speed in speeds:
        assert 0 < speed.compute.low <= speed.compute.median <= speed.compute.high
        assert speed.update.low > 0
        assert speed.communication.low >= 0
        told = speed.announced
        again = told["minibatch_s"] + told["ps_update_s"] + 2 * 8 * told["gradient_mb"] / told["bandwidth_mbps"]
        assert again == pytest.approx(speed.minibatch_s)
        assert speed.samples == pytest.approx(60 / 6, rel=0.25), "120 samples, less those for tests, in 2 chunks"
        assert speed.rho(10.0) == pytest.approx(10.0 / (6 * speed.minibatch_s))


def test_q_is_what_a_worker_sends(speeds: list[Speed]) -> None:
    """LeNet has no buffers: its gradients alone, 4 bytes a parameter."""
    training = program("lenet").make()
    parameters = sum(p.numel() for p in training.model().parameters())
    sent = {s.job: s.gradient_mb for s in speeds}
    assert sent["small"] == pytest.approx(4 * parameters / 1e6, rel=0.01)


def test_jobs_that_train_the_same_are_measured_once(speeds: list[Speed]) -> None:
    assert [s.round for s in speeds if s.job == "small"] == [s.round for s in speeds if s.job == "same"]


def test_the_new_scenario_has_the_speed_of_each_jobs_slowest_server(speeds: list[Speed], tmp_path: Path) -> None:
    source = tmp_path / "stated.yaml"
    job = {
        "id": "small",
        "arrival_s": 0,
        "epochs": 2,
        "chunks": 2,
        "minibatches": 6,
        "minibatch_s": 9,
        "ps_update_s": 9,
    }
    job |= {"gradient_mb": 9, "bandwidth_mbps": 9, "workers": 2}
    cluster = {"servers": [{"id": "edge", "workers": {"gpu": 2}, "ps": {"cpu": 1}}]}
    source.write_text(yaml.safe_dump({"name": "n", "slot": "1s", "cluster": cluster, "workload": {"jobs": [job]}}))
    worst = slowest(speeds)["small"]
    assert worst.minibatch_s == max(s.minibatch_s for s in speeds if s.job == "small")
    found = scenario_from_dict(yaml.safe_load(scenario_text(source, announced(speeds))), "new", tmp_path)
    assert found.jobs.frame["minibatch_s"][0] == pytest.approx(worst.compute.median, rel=1e-4)
    apart = slowest(s for s in speeds if not s.colocated)["small"].communication.median
    each = worst.compute.median + worst.update.median + apart
    assert found.chunk_time[0, 0] / SECOND == pytest.approx(2 * 6 * each, rel=1e-3)


def test_communication_within_the_cloud_is_measured(speeds: list[Speed]) -> None:
    """There the parameter server is beside the workers: m, G and b inside add up to the round, or are less."""
    (cloud,) = (s for s in speeds if s.job == "small" and s.server == "cloud")
    assert cloud.colocated
    assert [s.server for s in speeds if s.job == "small" and s.colocated] == ["cloud"]
    fields = announced(speeds)["small"]
    alone = fields["minibatch_s"] + fields["ps_update_s"]
    inside = 2 * 8 * fields["gradient_mb"] / fields.get("internal_mbps", np.inf)
    assert fields.get("internal_mbps", np.inf) >= fields["bandwidth_mbps"]
    outside = 2 * 8 * fields["gradient_mb"] / fields["bandwidth_mbps"]
    assert alone + inside == pytest.approx(min(max(cloud.minibatch_s, alone), alone + outside))


def test_a_job_that_cannot_be_trained_is_named(engine: Engine) -> None:
    works = {"broken": program("lenet", factory="no.such.module:f")}
    with pytest.raises(TrainingError, match=r"job 'broken': .*No module named 'no'"):
        profile(scenario("broken"), works, engine, minibatches=MINIBATCHES)
