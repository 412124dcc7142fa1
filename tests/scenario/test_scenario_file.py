"""Scenario files: read, refused, drawn, written and read again."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

import skedge
from builders.paths import ROOT
from skedge.core.errors import ScenarioError, TraceError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.job_fields import JOB_SCHEMA
from skedge.core.model.network import upload_delay, upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import HOUR, SECOND
from skedge.scenario.file import (
    default_scenario,
    job_from_spec,
    json_schema,
    load_scenario,
    scenario_from_dict,
)
from skedge.scenario.jobs import read_jobs_table
from skedge.scenario.load import busy_workers, offered_load, work_s
from skedge.scenario.save import save_scenario
from skedge.scenario.schema import SCHEMAS, job_json_schema

SMALL = """
name: small
seed: 3
slot: 30min
physics: {slotted: true, colocation: one_server, checkpoint_overhead: 250ms, estimate_error: 0.5, speedup: 1.2}
cluster:
  servers:
    - {id: edge1, workers: {fast: 2, slow: 1}, ps: {cpu: 3}, storage_mb: 5000, site: north}
    - {id: edge2, workers: {slow: 4}, ps: {cpu: 1}}
    - {id: far, kind: cloud}
workload:
  jobs:
    - {id: b, arrival_s: 1h, epochs: 2, chunks: 3, minibatches: 4, minibatch_s: 15s, worker_type: slow, ps_type: cpu}
    - id: a
      arrival_s: 5
      epochs: 1
      chunks: 8
      minibatches: 10
      minibatch_s: 0.5
      ps_update_s: 10ms
      gradient_mb: 30
      bandwidth_mbps: 800
      worker_type: fast
      ps_type: cpu
      workers: 2
      chunk_mb: 20
      upload_edge_s: [1min, 2min]
      upload_cloud_s: [600, 900]
      upload: {edge2: 30min, far: 7200}
"""

DRAWN = {
    "cluster": {"draw": {"servers": 20, "worker_types": [3, 5], "ps_types": 2}},
    "workload": {"synthetic": {"jobs": 50, "span": "2d"}},
}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def small(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = SMALL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return write(tmp_path / "small.yaml", text)


def drawn(seed: int = 0, **changes) -> Scenario:
    data = copy.deepcopy(DRAWN)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = data
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
        if value is None:
            del place[last]
    return scenario_from_dict(data, "here", Path(), seed)


def all_delays(s: Scenario) -> list[list[int]]:
    return [[upload_delay(s.delays, j, k) for k in range(len(s.cluster.servers))] for j in range(len(s.jobs))]


def assert_equal(one: Scenario, other: Scenario) -> None:
    assert one.jobs.frame.equals(other.jobs.frame)
    assert one.cluster.servers == other.cluster.servers
    assert (one.physics, one.seed, one.name, one.jobs.fixed_delays) == (
        other.physics,
        other.seed,
        other.name,
        other.jobs.fixed_delays,
    )
    np.testing.assert_array_equal(one.true_chunk_time, other.true_chunk_time)
    assert all_delays(one) == all_delays(other)


# --- what a file says


def test_every_field_reaches_the_scenario(tmp_path):
    s = load_scenario(small(tmp_path))
    assert s.name == "small"
    assert s.seed == 3
    assert s.physics == Physics(
        slot=HOUR // 2,
        slotted=True,
        colocation="one_server",
        checkpoint_overhead=SECOND // 4,
        estimate_error=0.5,
        speedup=1.2,
    )
    assert s.cluster.servers == (
        Server("edge1", "edge", {"worker:fast": 2, "worker:slow": 1, "ps:cpu": 3}, 5000.0, "north"),
        Server("edge2", "edge", {"worker:slow": 4, "ps:cpu": 1}),
        Server("far", "cloud"),
    )
    assert s.jobs.ids == ["a", "b"]
    a, b = s.jobs.frame.iter_rows(named=True)
    assert b["arrival_s"] == 3600
    assert b["minibatch_s"] == 15
    assert a["ps_update_s"] == 0.01
    assert (a["upload_edge_lo_s"], a["upload_edge_hi_s"], a["upload_cloud_lo_s"]) == (60, 120, 600)
    # whole slots of 30 min: edge1 by its range 1..2 min, the others as given
    assert all_delays(s)[0] == [1800 * SECOND, 1800 * SECOND, 7200 * SECOND]


def test_a_slot_is_an_hour_unless_said_otherwise():
    assert drawn(workload__make="divisible").physics == Physics(slot=HOUR)


def test_rigid_jobs_take_30_s_to_be_restored_unless_said_otherwise():
    assert drawn().physics.checkpoint_overhead == 30 * SECOND
    assert drawn(physics={"checkpoint_overhead": 0}).physics.checkpoint_overhead == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600),
        ("30min", 1800),
        ("15s", 15),
        ("250ms", 0.25),
        ("2d", 172800),
        ("1.5 h", 5400),
        ("20", 20),
        (0.5, 0.5),
    ],
)
def test_durations_are_seconds_or_text_with_a_unit(text, seconds):
    assert drawn(slot=text).physics.slot == seconds * SECOND


def test_a_seed_given_to_load_replaces_the_files(tmp_path):
    path = small(tmp_path)
    assert load_scenario(path).seed == 3
    assert load_scenario(path, seed=0).seed == 0


# --- what is refused, and how


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed: 3", "sed: 3", r"sed: is not a field \(did you mean seed\?\); there are name, seed, slot"),
        ("storage_mb: 5000", "storage: 5000", r"cluster\.servers\[0\]\.storage: .*did you mean storage_mb"),
        (
            "colocation: one_server",
            "colocation: near",
            r"physics\.colocation: 'near': it must be 'cloud' or 'one_server'",
        ),
        (
            "arrival_s: 1h",
            "arrival_s: -1",
            r"workload\.jobs\[0\]\.arrival_s: -1: it must be greater than or equal to 0",
        ),
        (
            "arrival_s: 1h",
            "arrival_s: soon",
            r"workload\.jobs\[0\]\.arrival_s: 'soon': it must be a duration: seconds, or",
        ),
        ("arrival_s: 1h", "arrival_s: .nan", r"workload\.jobs\[0\]\.arrival_s: nan: it must be"),
        ("arrival_s: 1h", "arrival_s: true", r"workload\.jobs\[0\]\.arrival_s: True: it must be a duration"),
        ("chunks: 3", "chunks: 0", r"workload\.jobs\[0\]\.chunks: 0: it must be greater than or equal to 1"),
        ("chunks: 3", "chunks: 2.5", r"workload\.jobs\[0\]\.chunks: 2\.5: it must be a whole number"),
        ("minibatches: 4, ", "", r"workload\.jobs\[0\]\.minibatches: is missing"),
        ("gradient_mb: 30", "gradient_mb: .inf", r"workload\.jobs\[1\]\.gradient_mb: inf: it must be a finite number"),
        ("bandwidth_mbps: 800", "bandwidth_mbps: 0", r"workload\.jobs\[1\]\.bandwidth_mbps: 0"),
        ("[600, 900]", "[900, 600]", r"workload\.jobs\[1\]\.upload_cloud_s: \[900, 600\]: .*low at most high"),
        ("{fast: 2, slow: 1}", "{fast: -2}", r"cluster\.servers\[0\]\.workers\.fast: -2"),
        ("slot: 30min", "slot: 0", r"slot: 0: it must be greater than 0"),
        ("speedup: 1.2", "speedup: 0", r"physics\.speedup: 0: it must be greater than 0"),
        ("upload: {edge2", "upload: {edge9", "job 'a': upload: there is no server 'edge9'"),
        ("- {id: far, kind: cloud}", "- {id: edge1, kind: cloud}", "id 'edge1' is used twice"),
        ("id: b,", "id: a,", "id = 'a'; it must be unique"),
    ],
)
def test_a_wrong_field_is_refused_with_file_path_value_and_what_is_right(tmp_path, old, new, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        load_scenario(small(tmp_path, (old, new)))
    assert str(caught.value).startswith(f"{tmp_path / 'small.yaml'}: ")


def test_all_wrong_fields_are_told_at_once_a_line_each(tmp_path):
    path = small(tmp_path, ("seed: 3", "sed: 3"), ("chunks: 3", "chunks: 0"), ("slot: 30min", "slot: never"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{path}: ") for line in lines)


def test_without_a_cloud_a_worker_type_that_no_server_has_is_refused(tmp_path):
    path = small(
        tmp_path,
        ("    - {id: far, kind: cloud}\n", ""),
        (", far: 7200", ""),
        ("worker_type: slow, ps", "worker_type: tpu, ps"),
    )
    with pytest.raises(ScenarioError, match=r"small\.yaml: jobs.*'tpu'; it must be a type that a server has"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\nb: 3\n", r"line 2, column \d+: is not YAML"),
        ("seed: 1\nseed: 2\n", "line 2, column 1: is not YAML: 'seed' is given twice"),
        ("- 1\n", "holds no mapping of fields"),
        ("seed: 2017-13-01\n", r"x\.yaml: is not YAML: month must be in 1\.\.12"),
        ("? [1, 2]\n: 3\n", r"line 1, column 3: is not YAML"),
        ("cluster: 3\nworkload: []\n", "workload: .*it must be a mapping of fields"),
        ("", "holds no mapping of fields"),
        ("seed: 1\n", "cluster: is missing"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario(write(tmp_path / "x.yaml", text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"nothing\.yaml: cannot be read: No such file"):
        load_scenario(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster__draw__load": 0.9}, "exactly one of servers, load; it has servers and load"),
        ({"cluster__draw__servers": None}, "exactly one of servers, load; it has none"),
        ({"workload__table": "x.csv"}, "exactly one of synthetic, trace, jobs, table; it has synthetic and table"),
        ({"workload__bandwidth_mbps": [1, 2]}, "workload: bandwidth_mbps does not go with make: rigid"),
        ({"workload__chunks": [8, 8]}, "workload: chunks does not go with make: rigid"),
        ({"workload__make": "trace"}, r"workload\.make: 'trace': it must be .*rigid.*divisible"),
        ({"source": {"x": 1}}, "source goes with jobs and table"),
        ({"workload__make": "paper", "workload__upload_share": 0.1}, "upload_share does not go with make: paper"),
        ({"workload__upload": {"0": {"e0": 1}}}, "upload goes with table"),
        ({"workload__communication_share": 0.995}, "nothing is left for training"),
        ({"workload__communication_share": 1}, r"workload\.communication_share: 1: it must be less than 1"),
        ({"workload__epochs": "many"}, r"workload\.epochs: 'many': it must be a range \[low, high\]"),
        ({"workload__epochs": [60, 20]}, r"workload\.epochs: \[60, 20\]: .*low at most high"),
        ({"cluster__draw__worker_types": 500}, "fewer than 500 types"),
        ({"cluster__draw__machines": "none.csv"}, r"none\.csv: cannot be read"),
    ],
)
def test_a_wrong_draw_is_refused(changes, message):
    with pytest.raises((ScenarioError, TraceError), match=message):
        drawn(**changes)


def test_a_negative_seed_is_refused():
    with pytest.raises(ScenarioError, match="seed: -1"):
        drawn(seed=-1)


# --- what is drawn


def test_a_cluster_of_so_many_servers_does_not_depend_on_the_jobs():
    few, many = drawn(workload__synthetic__jobs=10), drawn(workload__synthetic__jobs=500)
    assert few.cluster.servers == many.cluster.servers


def test_the_jobs_do_not_depend_on_how_many_servers_there_are():
    assert drawn().jobs.frame.equals(drawn(cluster__draw__servers=40).jobs.frame)


def test_a_larger_cluster_begins_with_the_smaller_one():
    small_one, large_one = drawn(), drawn(cluster__draw__servers=600)
    assert small_one.cluster.servers[:20] == large_one.cluster.servers[:20]


def test_the_same_seed_draws_the_same_and_another_another():
    assert_equal(drawn(seed=4), drawn(seed=4))
    assert drawn(seed=4).cluster.servers != drawn(seed=5).cluster.servers


def test_a_drawn_cluster_has_2_or_8_workers_a_server_and_1_to_4_ps_for_each():
    s = drawn(cluster__draw__storage_mb=100)
    workers, ps = s.cluster.workers.sum(axis=1)[:-1], s.cluster.ps.sum(axis=1)[:-1]
    assert set(workers) == {2, 8}
    assert set(ps // workers) == {1, 2, 3, 4}
    assert (ps % workers == 0).all()
    assert (s.cluster.storage_bytes[:-1] == 100_000_000).all()
    assert s.cluster.cloud == 20


def test_there_can_be_no_cloud():
    assert drawn(cluster__draw__cloud=False).cluster.cloud is None


@pytest.mark.parametrize("seed", range(20))
def test_every_type_has_a_slot_and_their_number_is_in_its_range(seed):
    s = drawn(seed=seed, cluster__draw__servers=3, cluster__draw__worker_types=[5, 6], cluster__draw__ps_types=[5, 6])
    for types, slots in ((s.cluster.worker_types, s.cluster.workers), (s.cluster.ps_types, s.cluster.ps)):
        assert len(types) in {5, 6}
        assert (slots.sum(axis=0) >= 1).all()


@pytest.mark.parametrize("load", [0.5, 0.9, 1.5])
def test_a_load_takes_just_as_many_machines_as_bring_it_down_to_that(load):
    s = drawn(
        cluster__draw__servers=None,
        cluster__draw__load=load,
        cluster__draw__load_over="span",
        workload__synthetic__jobs=400,
    )
    work = (s.jobs.chunks * s.chunk_time[:, 0]).sum() / SECOND
    lanes, last = s.cluster.lanes, s.cluster.workers.sum(axis=1)[-2]
    span = 2 * 86400
    assert work / (lanes * span) <= load * (1 + 1e-9)
    assert work / ((lanes - last) * span) > load


@pytest.mark.parametrize("load", [0.5, 0.9, 1.5])
def test_a_load_over_the_busy_window_takes_as_many_machines_as_the_jobs_want_there(load):
    """Counted minute by minute: the workers wanted between a tenth and nine tenths of the arrivals."""
    s = drawn(cluster__draw__servers=None, cluster__draw__load=load, workload__synthetic__jobs=400)
    arrival, k = s.jobs.arrival / SECOND, s.jobs.workers
    duration = s.jobs.chunks * s.chunk_time[:, 0] / k / SECOND
    first, last = np.quantile(arrival, (0.1, 0.9))
    minutes = np.arange(first, last, 60.0)[:, None]
    wanted = float((k * ((arrival <= minutes) & (minutes < arrival + duration))).sum(axis=1).mean())
    lanes, last_machine = s.cluster.lanes, s.cluster.workers.sum(axis=1)[-2]
    assert wanted / lanes <= load * 1.01
    assert wanted / (lanes - last_machine) > load * 0.99
    found = offered_load(s)
    assert found is not None
    assert found.busy == pytest.approx(wanted / lanes, rel=0.01)


def test_the_busy_workers_of_three_jobs_by_hand():
    """Arrivals 0, 50, 100: the window is [10, 90]. 2 workers for 30 s, 1 for 1000 s, 4 for 5 s: 2·20 + 1·40 over 80."""
    jobs = [
        Job("a", 0.0, 1, 2, 1, 30.0, workers=2, gradient_mb=0.0),
        Job("b", 50.0, 1, 1, 1, 1000.0, workers=1, gradient_mb=0.0),
        Job("c", 100.0, 1, 4, 1, 5.0, workers=4, gradient_mb=0.0),
    ]
    assert busy_workers(job_table(jobs)[0]) == pytest.approx((2 * 20 + 1 * 40) / 80)


def test_jobs_of_which_most_arrive_at_once_have_the_whole_span_as_window():
    """Nine arrive at 0, one at 10 s: 9 workers for 1 s each and none inside for the last, over 10 s."""
    jobs = [Job(str(i), 0.0, 1, 1, 1, 1.0, gradient_mb=0.0) for i in range(19)]
    jobs.append(Job("late", 10.0, 1, 1, 1, 1.0, gradient_mb=0.0))
    assert busy_workers(job_table(jobs)[0]) == pytest.approx(19 / 10)
    assert busy_workers(job_table(jobs[:19])[0]) == 0


def test_machines_of_one_size():
    s = drawn(cluster__draw={"servers": 3, "gpus_per_server": 4})
    assert s.cluster.workers.sum(axis=1).tolist() == [4, 4, 4, 0]
    with pytest.raises(ScenarioError, match="gpus_per_server does not go with machines"):
        drawn(cluster__draw={"servers": 3, "gpus_per_server": 4, "machines": "philly-like"})


def test_a_cloud_of_limited_size_is_a_far_server_with_so_many_workers_of_each_type(tmp_path):
    s = drawn(cluster__draw={"servers": 3, "worker_types": 2, "ps_types": 1, "cloud": 5})
    far = s.cluster.servers[-1]
    assert s.cluster.cloud is None
    assert (far.id, far.kind, far.upload) == ("cloud", "edge", "cloud")
    assert far.capacity == {"worker:gpu1": 5, "worker:gpu2": 5, "ps:cpu": 5}
    load = offered_load(s)
    assert load is not None
    assert load.far == 10
    assert ", 10 of them in the cloud" in load.text
    delays = upload_row(s.delays, 0)
    assert s.delays.lo[0, 1] <= delays[-1] <= s.delays.hi[0, 1]
    assert (delays[:-1] <= s.delays.hi[0, 0]).all()
    save_scenario(s, tmp_path)
    assert load_scenario(tmp_path / "scenario.yaml").cluster.servers[-1] == far


def test_the_work_of_a_jobs_table_is_gpus_times_duration():
    # D E B (m + G + 16 q / b) = 2 · 3 · 5 · (1 + 0.5 + 16 · 10 / 320) = 60 s, twice
    job = Job("a", 0.0, 3, 2, 5, 1.0, 0.5, 10.0, 320.0)
    table, _ = job_table([job, job])
    assert work_s(table) == pytest.approx(120)


def test_a_load_needs_a_span():
    with pytest.raises(ScenarioError, match=r"cluster\.draw\.load: needs jobs that arrive over a span"):
        drawn(cluster__draw__servers=None, cluster__draw__load=0.9, workload__synthetic={"jobs": 1})


def test_machines_are_drawn_from_a_list_without_those_that_have_no_gpu(tmp_path):
    write(tmp_path / "list.csv", "machineId,number of GPUs\na,3\nb,0\nc,4\n")
    data = {**DRAWN, "cluster": {"draw": {"servers": 2, "machines": "list.csv"}}}
    s = scenario_from_dict(data, "here", tmp_path)
    assert sorted(s.cluster.workers.sum(axis=1)) == [0, 3, 4]  # the cloud's capacity is empty
    data["cluster"]["draw"]["servers"] = 3
    with pytest.raises(ScenarioError, match=r"'list\.csv': ends after 2 machines; 3 are asked for"):
        scenario_from_dict(data, "here", tmp_path)


CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-02 00:00:00,100,1,100,x
2017-10-02 00:00:10,200,2,400,x
2017-10-02 00:00:30,300,4,1200,x
2017-10-02 00:01:30,400,8,3200,x
"""


def test_a_part_of_a_trace_file_is_taken_and_stretched(tmp_path):
    write(tmp_path / "t.csv", CSV)
    source = {"path": "t.csv", "format": "philly-csv", "skip": 1, "first": 2, "span": "1min"}
    s = scenario_from_dict({**DRAWN, "workload": {"trace": source}}, "here", tmp_path)
    assert s.jobs.ids == ["1", "2"]
    assert s.jobs.frame["arrival_s"].to_list() == [0.0, 60.0]
    assert s.jobs.workers.tolist() == [2, 4]
    with pytest.raises(ScenarioError, match=r"workload\.trace\.skip: 4: leaves no job; the trace has 4"):
        scenario_from_dict({**DRAWN, "workload": {"trace": {**source, "skip": 4}}}, "here", tmp_path)


def test_options_of_making_jobs_reach_them():
    s = drawn(workload__make="paper", workload__epochs=7, workload__upload_edge_slots=[2, 2], slot="10min")
    assert s.jobs.frame["epochs"].unique().to_list() == [7]
    assert s.jobs.frame["upload_edge_hi_s"].unique().to_list() == [1200.0]
    t = drawn(workload__upload_share=0.0, workload__communication_share=0.0)
    assert t.jobs.frame["upload_cloud_hi_s"].unique().to_list() == [0.0]
    assert t.jobs.frame["gradient_mb"].unique().to_list() == [0.0]


def table_scenario(tmp_path: Path, frame: pl.DataFrame, name: str) -> Scenario:
    path = tmp_path / name
    frame.write_csv(path) if name.endswith(".csv") else frame.write_parquet(path)
    return scenario_from_dict({"cluster": DRAWN["cluster"], "workload": {"table": name}}, "here", tmp_path)


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_jobs_come_from_a_table(tmp_path, name):
    frame = drawn().jobs.frame
    assert table_scenario(tmp_path, frame, name).jobs.frame.equals(frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop("workers"), "column 'workers' is missing"),
        (lambda f: f.clear(), "has no row"),
        (lambda f: f.with_columns(minibatch_s=pl.lit(float("nan"))), "minibatch_s = nan; it must be a number"),
        (lambda f: f.with_columns(id=pl.lit("1")), "id = '1'; it must be unique"),
        (lambda f: f.with_columns(chunks=pl.lit(0)), "chunks = 0; it must be a whole number, at least 1"),
        (lambda f: f.with_columns(arrival_s=pl.lit(-1.0)), r"arrival_s = -1\.0; it must be"),
    ],
)
@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_a_wrong_table_is_refused(tmp_path, change, message, name):
    with pytest.raises(ScenarioError, match=message):
        table_scenario(tmp_path, change(drawn().jobs.frame), name)


@pytest.mark.parametrize("name", ["gone.csv", "gone.parquet", "jobs.xlsx"])
def test_a_table_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ScenarioError, match=rf"here: workload\.table: .*{re.escape(name)}"):
        scenario_from_dict({"cluster": DRAWN["cluster"], "workload": {"table": name}}, "here", tmp_path)


# --- what is written


@pytest.mark.parametrize("kind", ["small", "drawn", "paper"])
def test_a_saved_scenario_loads_as_an_equal_one(tmp_path, kind):
    made = {
        "small": lambda: load_scenario(small(tmp_path)),
        "drawn": lambda: drawn(seed=9, physics__checkpoint_overhead=1 / 3, slot="1000.000001"),
        "paper": lambda: drawn(seed=2, workload__make="paper", physics__slotted=True),
    }
    scenario = made[kind]()
    assert_equal(load_scenario(save_scenario(scenario, tmp_path / "run")), scenario)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["jobs.parquet", "scenario.yaml"]


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        save_scenario(drawn(seed=1), tmp_path / folder)
    for name in ("scenario.yaml", "jobs.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_slots_and_resources_do_not_stand_in_one_cluster() -> None:
    with pytest.raises(ScenarioError, match=r"'ps:cpu' \(e\) and resources such as 'memory_gb' \(e\) are mixed"):
        Cluster([Server("e", "edge", {"worker:gpu": 1, "ps:cpu": 1, "memory_gb": 4})])


def test_delays_given_for_a_job_that_is_not_there_are_refused(tmp_path):
    drawn().jobs.frame.write_parquet(tmp_path / "jobs.parquet")
    workload = {"table": "jobs.parquet", "upload": {"nobody": {"e0": 1}}}
    with pytest.raises(ScenarioError, match=r"workload\.upload: 'nobody': is not the id of a job"):
        scenario_from_dict({"cluster": DRAWN["cluster"], "workload": workload}, "here", tmp_path)


# --- what is shipped


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_shipped_schema_is_the_models(name):
    assert json.loads(Path(skedge.__file__).with_name(name).read_text()) == SCHEMAS[name]()


def test_the_schema_of_a_job_spec_takes_the_examples_and_refuses_what_the_reader_refuses():
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(job_json_schema())
    check.check_schema(job_json_schema())
    spec = yaml.safe_load((ROOT / "docs" / "examples" / "job.yaml").read_text())
    for path in (ROOT / "docs" / "examples").rglob("job.yaml"):
        assert not list(check.iter_errors(yaml.safe_load(path.read_text())))
    refused = {"no name": {"name": None}, "an id": {"id": "a"}, "an arrival": {"arrival_s": 1}, "chunks": {"chunks": 0}}
    refused |= {"resources": {"resources": {"gpus": 1}}, "training": {"train": None}}
    for change in refused.values():
        wrong = {key: value for key, value in (spec | change).items() if value is not None}
        assert list(check.iter_errors(wrong))
        with pytest.raises(ScenarioError):
            job_from_spec(wrong, "job.yaml")


def test_the_shipped_schema_takes_the_shipped_scenarios_and_refuses_an_unknown_field():
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json_schema())
    check.check_schema(json_schema())
    for path in (Path(skedge.__file__).parent / "scenarios").glob("*.yaml"):
        assert not list(check.iter_errors(yaml.safe_load(path.read_text())))
    assert not list(check.iter_errors(yaml.safe_load(SMALL)))
    assert list(check.iter_errors({**DRAWN, "sed": 1}))


def test_the_demo_is_small_and_its_lanes_queue():
    s = default_scenario("demo")
    assert len(s.jobs) == 400
    assert s.cluster.cloud is None
    assert len(s.cluster.worker_types) == 2
    load = offered_load(s)
    assert load is not None
    assert 0.8 < load.busy <= 0.9
    # list scheduling, first come first served, of whole gangs on the lanes of their type: a third waits
    waiting = 0
    for kind in range(2):
        free = np.zeros(len(s.cluster.lanes_of(kind)), np.int64)
        for j in np.flatnonzero(s.jobs.worker_type == kind):
            k = s.jobs.workers[j]
            free.sort()
            start = max(s.jobs.arrival[j], free[k - 1])
            waiting += start > s.jobs.arrival[j]
            free[:k] = start + s.announced_work[j, 0] // k
    assert waiting > 400 / 3


def test_s1_is_the_papers_setting():
    s = default_scenario("s1", seed=3)
    assert len(s.jobs) == 300
    assert len(s.cluster.servers) == 101
    assert len(s.cluster.worker_types) in {8, 9, 10}
    assert len(s.cluster.ps_types) in {8, 9, 10}
    assert s.physics == Physics(slot=HOUR, slotted=True)
    assert s.jobs.arrival.max() == 100 * HOUR
    assert set(s.jobs.chunks) == {27, 60, 115}
    edge = [row[:-1] for row in all_delays(s)]
    assert {d for row in edge for d in row} == {1 * HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR}
    assert {row[-1] for row in all_delays(s)} == {h * HOUR for h in range(10, 16)}


def test_a_scenario_that_is_not_shipped_is_refused_with_those_that_are():
    with pytest.raises(ScenarioError, match=r"'s9' is not shipped; there are demo, demo-divisible, .*s1, s2, s3, s4"):
        default_scenario("s9")


@pytest.mark.parametrize("name", ["plain: 'x'\n", "n\u00e9 \u2603", "\U0001f600 " * 60])
def test_a_saved_scenario_keeps_its_name(tmp_path, name):
    saved = save_scenario(drawn(seed=1, name=name), tmp_path)
    assert load_scenario(saved).name == name


def test_the_jobs_table_of_a_saved_scenario_has_the_schema(tmp_path):
    save_scenario(drawn(), tmp_path)
    assert pl.read_parquet(tmp_path / "jobs.parquet").schema == pl.Schema(JOB_SCHEMA)


@pytest.mark.parametrize(("row", "count"), [("x,1", 2), ("x" + ",1" * 20, 21)])
def test_a_ragged_jobs_table_names_its_line(tmp_path, row, count):
    """A row that is cut off, or has more values than columns; polars fills the first with nulls."""
    path = tmp_path / "jobs.csv"
    path.write_text(f"{','.join(JOB_SCHEMA)}\n\n{row}\n")
    with pytest.raises(
        ScenarioError, match=rf"jobs.csv: line 3: has {count} values; the file has {len(JOB_SCHEMA)} col"
    ):
        read_jobs_table(path)
