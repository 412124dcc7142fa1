"""A sweep on a Ray cluster of three nodes, one of which is lost on the way: the same results as on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from ray.cluster_utils import Cluster

from skedge.comparison.compare import compare
from skedge.core.errors import InputError, SkedgeError
from skedge.runs.on_ray import on_ray
from skedge.runs.tasks import Executor, KeyedTask, run_tasks
from skedge.simulate import run
from skedge.testing import small_scenario

SEEDS, POLICIES = [3, 4], ("aonline", "srtf")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that does no work, and two nodes of one CPU each."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's processes do not find this file
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def slow(folder: str, number: int) -> int:
    """A point that says when it begins and ends, and takes a while."""
    begun = Path(folder) / f"{number}-{os.getpid()}"
    begun.touch()
    time.sleep(1)
    begun.with_suffix(".ended").touch()
    return number


def refused(_: int) -> int:
    raise InputError("job 'a': is wrong")


def parent_of(stat: Path) -> int | None:
    with suppress(OSError):
        return int(stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
    return None


def test_a_comparison_on_a_cluster_is_that_of_this_machine(cluster: Cluster, tmp_path: Path) -> None:
    """Its runs are written here, verified, and kept."""
    scenario = partial(small_scenario, jobs=6)
    here = compare(scenario, POLICIES, SEEDS, processes=1, folder=tmp_path / "here")
    there = compare(scenario, POLICIES, SEEDS, folder=tmp_path / "there", ray=cluster.address)
    assert there.metrics == here.metrics
    assert there.violations == here.violations == {policy: [[]] * len(SEEDS) for policy in POLICIES}
    first, second = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()}
                     for f in (tmp_path / "here", tmp_path / "there"))  # fmt: skip
    assert first == second
    assert run(scenario(3), "srtf").metrics["jct_mean_s"] == there.metrics["srtf"][0]["jct_mean_s"]


def test_what_a_lost_node_was_doing_is_done_again_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    points = [KeyedTask(str(number), slow, (str(tmp_path), number)) for number in range(8)]
    done = run_tasks(points, Executor(ray=cluster.address))
    found = [next(done), next(done)]
    node, workers = at_work(cluster, tmp_path)
    cluster.remove_node(node, allow_graceful=False)
    for worker in workers:  # a machine takes them with it
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    found += done
    assert sorted(found) == list(range(8))
    begun = [path.name.split("-")[0] for path in tmp_path.iterdir() if path.suffix == ""]
    assert sorted(set(begun)) == [str(number) for number in range(8)]
    assert len(begun) > 8, "what the node was doing was begun again"


def at_work(cluster: Cluster, folder: Path) -> tuple[Any, list[int]]:
    """A node with a point that it has just begun, and the processes of the node's workers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for node in cluster.worker_nodes:
            raylet = node.all_processes["raylet"][0].process.pid
            workers = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if parent_of(path) == raylet]
            begun = [path for worker in workers for path in folder.glob(f"*-{worker}")]
            if any(not path.with_suffix(".ended").exists() for path in begun):
                return node, workers
        time.sleep(0.02)
    raise AssertionError("no node works")


def test_an_error_of_a_point_is_that_error(cluster: Cluster) -> None:
    with pytest.raises(InputError, match=r"^job 'a': is wrong$"):
        list(run_tasks([KeyedTask("", refused, (1,))], Executor(ray=cluster.address)))


def broken() -> str:
    raise ValueError("which nobody expects")


def test_an_error_of_the_process_that_is_connected_is_told(cluster: Cluster) -> None:
    """It is no lost cluster."""
    with pytest.raises(RuntimeError, match="ValueError: which nobody expects"):
        list(on_ray(deque([(slow, ("", 1), {})]), cluster.address, broken))


def test_a_cluster_that_is_lost_is_one_sentence(tmp_path: Path) -> None:
    """Ray ends the process that is connected to it."""
    lost = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        done = run_tasks([KeyedTask(str(n), slow, (str(tmp_path), n)) for n in range(8)], Executor(ray=lost.address))
        assert next(done) in range(8)
        for kind in ("raylet", "gcs_server"):
            lost.head_node.all_processes[kind][0].process.kill()
        with pytest.raises(SkedgeError, match=f"^the Ray cluster at {lost.address} was lost$"):
            list(done)
    finally:
        lost.shutdown()
    assert not list(multiprocessing.active_children())


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(SkedgeError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        list(run_tasks([KeyedTask("", refused, (1,))], Executor(ray="127.0.0.1:1")))
