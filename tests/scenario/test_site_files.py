"""Sites in scenario files: what is drawn, what is read, and what is refused in a sentence."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.paths import TRACES
from skedge.core.errors import ScenarioError
from skedge.core.model.latency import Exponential, Linear, Piecewise
from skedge.core.model.scenario import Scenario
from skedge.scenario.file import default_scenario, load_scenario, scenario_from_dict
from skedge.scenario.save import save_scenario
from skedge.scenario.site_draw import EC2, LARGEST, STORAGE_GB
from skedge.simulate import run

EDGE = TRACES / "edge"
JOB: dict[str, Any] = {
    "id": "a", "arrival_s": 0, "epochs": 2, "minibatches": 10, "minibatch_s": 1, "chunk_mb": 20, "exchange_mb": 5,
    "worker_needs": {"gpu": 1}, "ps_needs": {"gpu": 1}, "data": {"x": 3, "y": 1},
    "latency": {"kind": "exponential", "tau": 20},
}  # fmt: skip


def small(
    *, cluster: dict[str, Any] | None = None, physics: dict[str, Any] | None = None, **job: Any
) -> dict[str, Any]:
    given = {key: value for key, value in {**JOB, **job}.items() if value is not None}
    return {
        "slot": "60s",
        "physics": {"slotted": True, **(physics or {})},
        "cluster": {
            "servers": [{"id": "x", "resources": {"gpu": 4}}, {"id": "y", "resources": {"gpu": 0}}],
            "transfer_cost": [[0, 0.5], [0.5, 0]],
            **(cluster or {}),
        },
        "workload": {"jobs": [given]},
    }


def load(data: dict[str, Any], base: Path = Path()) -> Scenario:
    return scenario_from_dict(data, "here", base)


def test_a_job_has_the_chunks_that_lie_at_its_sites() -> None:
    scenario = load(small())
    assert scenario.jobs.data.tolist() == [[3, 1]]
    assert scenario.jobs.chunks.tolist() == [4]
    assert scenario.jobs.latency == [Exponential(20.0)]
    assert scenario.slot_chunks.tolist() == [3.0], "60 s a slot, 20 s a chunk"
    assert run(scenario, "okita").verify() == []


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"kind": "exponential", "tau": 2, "rate": 0.5}, Exponential(2.0, 0.5)),
        ({"kind": "linear", "tau": 2, "base": 7}, Linear(2.0, 7.0)),
        ({"kind": "linear", "tau": 2}, Linear(2.0)),
        ({"kind": "piecewise", "early": 1, "late": 2, "deadline": 3}, Piecewise(1.0, 2.0, 3.0)),
    ],
)
def test_latency_costs_are_read(given: dict[str, Any], made: object) -> None:
    assert load(small(latency=given)).jobs.latency == [made]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (small(data=None, chunks=4), r"data = 0; it must be above 0 for some site: there is nothing to train"),
        (small(data={"x": 0, "y": 0}), r"data: there is no chunk at any site"),
        (small(data={"z": 4}), r"data.z = 4; it must be for one of the sites \(x, y\)"),
        (small(chunks=5), r"chunks 5: data has 4 over its sites; leave chunks out"),
        (small(data=None), r"chunks is missing; it is needed, or data by site"),
        (small(latency=None), r"latency is missing; a job at sites has a latency cost"),
        (small(latency={"kind": "sigmoid"}), r"latency.kind: 'sigmoid': it must be 'exponential'"),
        (small(latency={"kind": "linear"}), r"tau is missing; kind: linear takes tau, base"),
        (small(latency={"kind": "linear", "tau": 1, "rate": 2}), r"rate does not go with kind: linear"),
        (small(latency={"kind": "piecewise", "early": 3, "late": 2, "deadline": 1}), r"would fall with time"),
        (small(minibatch_s=7), r"job 'a': a worker trains 0.429 chunks in a slot; it must be at least 1"),
        (small(physics={"slotted": False}), r"physics.slotted: is false; a cluster with transfer_cost works slot by"),
        (small(physics={"estimate_error": 0.5}), r"physics.estimate_error: does not go with"),
        (small(cluster={"transfer_cost": [[0, 1], [2, 0]]}), r"from 'x' to 'y' it is 1 and 2 back; they must be equal"),
        (small(cluster={"transfer_cost": [[1, 1], [1, 0]]}), r"from 'x' to 'x' it is 1; a MB that stays must cost 0"),
        (small(cluster={"transfer_cost": [[0, -1], [-1, 0]]}), r"from 'x' to 'y' it is -1; it must be 0 or more"),
        (small(cluster={"transfer_cost": [[0, 1]]}), r"has shape \(1, 2\); 2 servers take 2 rows of 2"),
        (small(cluster={"transfer_cost": [[0, 1], [1]]}), r"transfer_cost\[1\]: has 1 numbers; there are 2 servers"),
        (small(cluster={"transfer_cost": "nowhere.csv"}), r"nowhere.csv: cannot be read"),
        (small(cluster={"transfer_cost": None}), r"it must be left out: it goes with a cluster that has"),
        (small(cluster={"transfer_cost": None, "asymmetric": True}), r"cluster.asymmetric: goes with transfer_cost"),
        (small(cluster={"servers": [{"id": "x", "workers": {"gpu": 1}}], "transfer_cost": [[0]]}), r"not slots"),
        (small(upload_edge_s=[0, 5]), r"upload_edge_hi_s = 5.0; it must be 0: at sites data move at once"),
        (small(upload={"x": 3, "y": 3}), r"job 'a': upload: at sites data move at once; leave it out"),
        (small(worker_needs={"gpu": 0}), r"worker_needs.\* = 0.0; it must be above 0 for one of gpu"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        load(wrong)


def test_two_directions_may_differ_where_that_is_stated() -> None:
    cost = load(small(cluster={"transfer_cost": [[0, 1], [2, 0]], "asymmetric": True})).cluster.transfer_cost
    assert cost is not None
    assert cost.tolist() == [[0, 1], [2, 0]]


def test_a_job_that_no_site_can_hold_is_rejected_with_the_reason() -> None:
    done = run(load(small(worker_needs={"gpu": 9})), "okita")
    assert done.jobs["reason"][0].startswith("never_fits: ")
    assert done.verify() == []


@pytest.mark.parametrize("policy", ["okita", "fifo", "drf"])
def test_a_site_without_capacity_lends_only_its_data(policy: str) -> None:
    done = run(load(small()), policy)
    assert done.verify() == []
    assert set(done.schedule.runs["server"]) == {"x"}
    assert done.metrics["moved_mb"] == 20.0


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_the_papers_setting_is_in_its_ranges() -> None:
    scenario = default_scenario("s3", seed=3)
    cost, jobs = scenario.cluster.transfer_cost, scenario.jobs
    assert cost is not None
    apart = cost[~np.eye(50, dtype=bool)]
    assert 0.02 <= apart.min() < 0.0205
    assert 0.0795 < apart.max() <= 0.08
    assert (cost == cost.T).all()
    assert {tuple(row[:3]) for row in scenario.cluster.amounts.tolist()} <= set(EC2.values())
    assert (jobs.data.min(), jobs.data.max()) == (10, 20)
    assert 5 <= scenario.slot_chunks.min() <= scenario.slot_chunks.max() <= 15
    exchange = jobs.exchange_mb
    assert 30 <= exchange.min() <= exchange.max() <= 575
    assert all(isinstance(f, Exponential) and 20 <= f.tau <= 100 and f.rate == 0.25 for f in jobs.latency)
    assert set((jobs.arrival % scenario.physics.slot).tolist()) == {0}


def test_sites_may_be_the_largest_instances_or_have_several() -> None:
    """Each site's GPUs, vCPUs and memory are those of its instances together; fewer sites are the first of more."""

    def sites(**draw: Any) -> np.ndarray:
        data = small() | {"cluster": {"draw": draw, "transfer_cost": {"range": [0.02, 0.08]}}}
        data["workload"] = {"synthetic": {"jobs": 1, "span": "1h", "arrivals": "uniform"}, "make": "okita"}
        return load(data).cluster.amounts

    largest = sites(servers=40, shapes="ec2-largest")
    assert {tuple(row[:3]) for row in largest.tolist()} == {EC2[name] for name in LARGEST}
    pairs = {tuple(np.add(a, b)) for a in EC2.values() for b in EC2.values()}
    two = sites(servers=40, shapes="ec2", instances=2)
    assert {tuple(row[:3]) for row in two.tolist()} <= pairs
    assert set(two[:, 3]) == {2 * STORAGE_GB}
    assert (sites(servers=7, shapes="ec2", instances=2) == two[:7]).all()


def test_a_jobs_data_may_be_given_in_all() -> None:
    """One of the numbers, spread so that no two sites differ by more than a chunk."""
    data = small() | {"cluster": {"draw": {"servers": 9, "shapes": "ec2"}, "transfer_cost": {"range": [0.02, 0.08]}}}
    synthetic = {"jobs": 60, "span": "1h", "arrivals": "uniform"}
    data["workload"] = {"synthetic": synthetic, "make": "okita", "job_chunks": [27, 115, 150]}
    chunks = load(data).jobs.data
    assert set(chunks.sum(axis=1)) == {27, 115, 150}
    assert set(chunks.max(axis=1) - chunks.min(axis=1)) == {0, 1}
    assert (chunks > chunks.min(axis=1)[:, None]).any(axis=0).all(), "each site has the chunk more for some job"


def drawn(servers: int, cost: dict[str, Any], base: Path) -> Any:
    data = {
        "seed": 5, "slot": "1h", "physics": {"slotted": True},
        "cluster": {"draw": {"servers": servers, "shapes": "ec2"}, "transfer_cost": cost},
        "workload": {"synthetic": {"jobs": 3, "span": "5h", "arrivals": "uniform"}, "make": "okita"},
    }  # fmt: skip
    return load(data, base).cluster.transfer_cost


def test_more_sites_begin_with_the_fewer() -> None:
    few, many = (drawn(n, {"range": [0.02, 0.08]}, Path()) for n in (4, 9))
    assert (many[:4, :4] == few).all()


def test_costs_go_by_distance(tmp_path: Path) -> None:
    """On the equator a degree is a degree: 0, 1 and 3 degrees are 1, 3 and 2 apart."""
    (tmp_path / "at.csv").write_text("SITE,LATITUDE,LONGITUDE\na,0,0\nb,0,1\nc,0,3\nd,50,50\n")
    cost = drawn(3, {"range": [1, 7], "by": "at.csv"}, tmp_path)
    assert np.allclose(cost, [[0, 3, 7], [3, 0, 5], [7, 5, 0]])


def test_costs_go_by_round_trips_of_both_directions(tmp_path: Path) -> None:
    text = "0 2 9\n4 0 9\n9 9 0\n"
    (tmp_path / "rtt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "rtt.txt").write_text(text)
    expected = [[0, 1 + 3 / 9, 2], [1 + 3 / 9, 0, 2], [2, 2, 0]]
    assert np.allclose(drawn(3, {"range": [1, 2], "by": "rtt.txt"}, tmp_path), expected)
    assert np.allclose(drawn(3, {"range": [1, 2], "by": "rtt.gz"}, tmp_path), expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("LAT,LON\n1,2\n", r"must have columns LATITUDE and LONGITUDE"),
        ("LATITUDE,LONGITUDE\n1,east\n", r"must have columns LATITUDE and LONGITUDE of numbers"),
        ("LATITUDE,LONGITUDE\n1,2\n", r"has 1 sites; the cluster has 3"),
    ],
)
def test_a_file_of_sites_that_is_wrong_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "at.csv").write_text(text)
    with pytest.raises(ScenarioError, match=says):
        drawn(3, {"range": [1, 2], "by": "at.csv"}, tmp_path)


@pytest.mark.parametrize("text", ["0 1\n1\n", "0 1 2\n1 0 2\n", "0 x\nx 0\n", "0 -1\n-1 0\n", "0 nan\nnan 0\n"])
def test_a_matrix_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rtt.txt").write_text(text)
    with pytest.raises(ScenarioError, match="must be a square matrix of numbers"):
        drawn(2, {"range": [1, 2], "by": "rtt.txt"}, tmp_path)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    scenario = default_scenario("s3")
    loaded = load_scenario(save_scenario(scenario, tmp_path))
    assert (loaded.cluster.transfer_cost == scenario.cluster.transfer_cost).all()
    assert loaded.jobs.frame.equals(scenario.jobs.frame)
    (tmp_path / "transfer_cost.csv").write_text("m0,m1\n0,1\n1,0\n")
    with pytest.raises(ScenarioError, match="its header must name the servers in their order, from 'm0' on"):
        load_scenario(tmp_path / "scenario.yaml")


@pytest.mark.skipif(not EDGE.is_dir(), reason="the edge data are not here (they are not shipped)")
@pytest.mark.parametrize("file", ["site-optus-melbCBD.csv", "PlanetLabData_1.gz"])
def test_real_sites_are_read(file: str) -> None:
    cost = drawn(125, {"range": [0.02, 0.08], "by": file}, EDGE)
    assert cost.shape == (125, 125)
    assert math.isclose(cost.max(), 0.08)
    assert (cost == cost.T).all()
    assert len(np.unique(cost)) > 5000, "no two pairs are alike"


def test_what_no_site_can_hold_is_told_by_run_compare_and_explain(skedge: Any, tmp_path: Path) -> None:
    """A cost of 0 is not good news where nothing is trained."""
    text = """
name: none
slot: 1h
physics: {slotted: true}
cluster:
  servers: [{id: a, resources: {gpu: 0, cpu: 1}}, {id: b, resources: {gpu: 0, cpu: 2}}]
  transfer_cost: [[0, 1], [1, 0]]
workload:
  jobs:
    - {id: big, arrival_s: 0, epochs: 20, minibatches: 50, minibatch_s: 0.5, chunk_mb: 40, data: {a: 6, b: 4},
       exchange_mb: 200, worker_needs: {gpu: 1}, ps_needs: {cpu: 2}, latency: {kind: linear, tau: 50}}
"""
    path = tmp_path / "none.yaml"
    path.write_text(text)
    told = skedge("run", path, "--policy", "okita", "--out", tmp_path / "r")
    assert "1 of 1 jobs did not finish; the first, big: never_fits" in told.out
    told = skedge("explain", tmp_path / "r", "big")
    assert (told.code, "no placement on the sites is feasible" in told.out) == (0, True)
    told = skedge("compare", path, "--policies", "okita,fifo", "--seeds", 1, "--report", tmp_path / "c.html")
    assert "jobs not finished, which count in no time and no cost: okita 100.0%, fifo 100.0%" in told.out


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ("[[0, .nan], [.nan, 0]]", ["cluster.transfer_cost[0][1]: nan", "cluster.transfer_cost[1][0]: nan"]),
        ("{range: [0.08, 0.02]}", ["cluster.transfer_cost.range: [0.08, 0.02]: it must be a range"]),
        ("{range: [0, 1], buy: x}", ["cluster.transfer_cost.buy: is not a field (did you mean by?)"]),
        ("5", ["cluster.transfer_cost: 5: it must be"]),
    ],
)
def test_wrong_costs_are_told_in_the_words_of_the_form_that_was_meant(
    skedge: Any, tmp_path: Path, costs: str, says: list[str]
) -> None:
    path = tmp_path / "s.yaml"
    servers = "servers: [{id: a, resources: {gpu: 1}}, {id: b, resources: {gpu: 1}}]"
    path.write_text(
        f"cluster: {{{servers}, transfer_cost: {costs}}}\nworkload: {{synthetic: {{jobs: 1}}, make: okita}}\n"
    )
    told = skedge("run", path, "--out", tmp_path / "r")
    lines = told.err.splitlines()
    assert told.code == 1
    assert len(lines) == len(says), lines
    assert all(said in line for said, line in zip(says, lines, strict=True))
