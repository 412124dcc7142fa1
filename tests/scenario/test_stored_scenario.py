"""A scenario whose jobs stay in their table is, part by part, the scenario that is read as a whole."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Job, job_table
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.scenario.file import load_scenario, scenario_of
from skedge.scenario.save import digest_of

CLUSTER = """
seed: 3
physics: {estimate_error: 0.3}
cluster:
  servers:
    - {id: e, kind: edge, workers: {gpu: 2}, ps: {cpu: 1}}
    - {id: c, kind: cloud}
"""


def jobs_at(*arrivals: float, names: Sequence[str] = ()) -> pl.DataFrame:
    """Jobs with these arrivals [s], some of which bound their lag."""
    jobs = [
        Job(
            names[i] if names else f"j{i}", at, epochs=2, chunks=3 + i, minibatches=2, minibatch_s=5.0,
            upload_edge_s=(1.0, 9.0), max_lag=1 if i == 4 else None,
        )
        for i, at in enumerate(arrivals)
    ]  # fmt: skip
    return job_table(jobs)[0]


def scenario_file(folder: Path, table: pl.DataFrame, more: str = "", name: str = "jobs.parquet") -> Path:
    """A scenario of the cluster and these jobs."""
    if name.endswith(".csv"):
        table.write_csv(folder / name)
    else:
        table.write_parquet(folder / name)
    file = folder / "scenario.yaml"
    file.write_text(f"{CLUSTER}workload:\n  table: {name}\n{more}", encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any scenario is a large one, and a job of three chunks is a part."""
    monkeypatch.setattr("skedge.scenario.file.CHUNKS_IN_PARTS", 1)
    monkeypatch.setattr("skedge.core.model.jobs_file.PART_CHUNKS", 1)


def in_memory(file: Path) -> Scenario:
    """The scenario, read as a whole."""
    with patch("skedge.scenario.file.CHUNKS_IN_PARTS", 10**6):
        scenario = load_scenario(file)
    assert scenario.unread is None
    return scenario


@pytest.mark.parametrize("most", [1, 8, 1000])
def test_the_parts_of_a_scenario_are_those_of_the_whole(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedge.core.model.jobs_file.PART_CHUNKS", most)
    delays = "  upload: {j2: {e: 4, c: 70}, j5: {e: 2, c: 8}}\n"
    file = scenario_file(tmp_path, jobs_at(0, 1, 1, 2, 3, 10), delays)
    parts, whole = load_scenario(file), in_memory(file)
    assert len(parts.ranges) == {1: 5, 8: 3, 1000: 1}[most]
    assert (parts.name, parts.seed, parts.count, parts.chunks) == (whole.name, whole.seed, 6, whole.jobs.chunks.sum())
    assert [parts.ids[job] for job in range(6)] == whole.jobs.ids
    seen = 0
    for first, part in parts.parts():
        assert first == seen
        for job in range(len(part.jobs)):
            assert upload_row(part.delays, job).tolist() == upload_row(whole.delays, first + job).tolist()
        seen += len(part.jobs)
        same = whole.only(slice(first, seen))
        assert part.jobs.frame.select(same.jobs.frame.columns[:17]).equals(same.jobs.frame[:, :17])
        assert part.jobs.max_lag.tolist() == same.jobs.max_lag.tolist()
        assert part.true_chunk_time.tolist() == same.true_chunk_time.tolist()
        assert part.cluster.servers == whole.cluster.servers
    assert seen == 6
    of_both = [scenario.any(name) for scenario in (parts, whole) for name in ("max_lag", "chunk_mb")]
    assert of_both == [True, False] * 2


def test_all_jobs_are_read_once_they_are_asked_for(tmp_path: Path) -> None:
    """The scenario is then in memory, in one part. Another process, which may not have the file, gets the jobs."""
    file = scenario_file(tmp_path, jobs_at(0, 1, 2, 3), "  upload: {j2: {e: 4, c: 70}}\n")
    scenario, whole = load_scenario(file), in_memory(file)
    sent = pickle.loads(pickle.dumps(scenario))  # noqa: S301 - our own
    assert scenario.ranges == sent.ranges == whole.ranges == [(0, 4)]
    for read in (scenario, sent, replace(load_scenario(file), seed=whole.seed)):
        assert read.unread is None
        assert read.jobs.frame.equals(whole.jobs.frame)
        assert read.jobs.fixed_delays == whole.jobs.fixed_delays
        assert read.part(1, 3).jobs.ids == ["j1", "j2"]
    assert digest_of(load_scenario(file)) == digest_of(whole)


def test_no_other_attribute_reads_the_jobs(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(tmp_path, jobs_at(0, 1)))
    with pytest.raises(AttributeError, match="job"):
        scenario.job  # type: ignore[attr-defined] # noqa: B018
    assert scenario.unread is not None


@pytest.mark.parametrize(
    ("names", "in_parts"),
    [
        (("9", "10", "11"), True),  # whole numbers, in the order of numbers
        (("10", "11", "9"), False),
        (("10", "11", "9", "a"), True),  # text, for one of them is none
        (("9", "10", "11", "a"), False),
        (("b", "a"), False),
    ],
)
def test_jobs_of_one_instant_are_in_the_order_of_the_whole_or_read_as_a_whole(
    tmp_path: Path, names: tuple[str, ...], in_parts: bool
) -> None:
    """Another job comes before, so that there are two parts."""
    file = scenario_file(tmp_path, jobs_at(1.0, *[5.0] * len(names), names=("0", *names)))
    scenario = load_scenario(file)
    assert (len(scenario.ranges) > 1) == in_parts
    ordered = [name for _, part in scenario.parts() for name in part.jobs.ids]
    assert ordered == in_memory(file).jobs.ids


def test_other_scenarios_are_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs in another order, or in CSV, or too few; jobs drawn; and a cluster drawn by their load."""
    late_first = scenario_file(tmp_path, jobs_at(1, 0))
    assert load_scenario(late_first).unread is None
    assert load_scenario(scenario_file(tmp_path, jobs_at(0, 1), name="jobs.csv")).unread is None
    file = scenario_file(tmp_path, jobs_at(0, 1))
    for least, stays in ((7, True), (8, False)):
        monkeypatch.setattr("skedge.scenario.file.CHUNKS_IN_PARTS", least)
        assert (load_scenario(file).unread is not None) == stays
    monkeypatch.setattr("skedge.scenario.file.CHUNKS_IN_PARTS", 1)
    assert scenario_of("demo").unread is None
    file.write_text("cluster: {draw: {load: 0.5}}\nworkload: {table: jobs.parquet}\n", encoding="utf-8")
    assert load_scenario(file).unread is None


WRONG = {
    "a number": (pl.when(pl.col("id") == "j2").then(0).otherwise("epochs").alias("epochs"), "'j2'.*epochs = 0"),
    "a type": (pl.col("worker_type").replace("gpu", "tpu"), "'j0'.*worker_type = 'tpu'"),
    "a fraction": (
        pl.when(pl.col("id") == "j1").then(3.5).otherwise("chunks").alias("chunks"),
        r"'j1'.*chunks = 3\.5.*whole",
    ),
    "no number": (
        pl.when(pl.col("id") == "j2").then(pl.lit("abc")).otherwise("arrival_s").alias("arrival_s"),
        "'j2'.*'abc'; it must be a number",
    ),
    "a list": (pl.concat_list("epochs").alias("epochs"), "'j0'.*it must be a whole number"),
    "an id": (pl.col("id").replace("j2", "j0"), "id = 'j0'.*it is used twice"),
    "no arrival": (pl.when(pl.col("id") != "j1").then("arrival_s").alias("arrival_s"), "'j1'.*arrival_s = None"),
    "a late arrival": (pl.lit(1e300).alias("arrival_s"), r"'j0'.*arrival_s = 1e\+300"),
    "an endless wait": (pl.lit(float("inf")).alias("arrival_s"), "'j0'.*arrival_s = inf"),
    "no value": (pl.when(pl.col("id") != "j1").then("batch").alias("minibatch_s"), "'j1'.*minibatch_s = None"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_job_is_named_with_the_file(tmp_path: Path, wrong: str) -> None:
    change, says = WRONG[wrong]
    table = jobs_at(0, 1, 2).with_columns(batch=pl.lit(8.0)).with_columns(change).drop("batch")
    file = scenario_file(tmp_path, table)
    with pytest.raises(ScenarioError, match=f"^{file}: .*{says}"):
        load_scenario(file)


@pytest.mark.parametrize("upload", ["{j9: {e: 1}}", "{j1: {x: 1}}"])
def test_delays_of_unknown_jobs_and_servers_are_refused_as_in_memory(tmp_path: Path, upload: str) -> None:
    file = scenario_file(tmp_path, jobs_at(0, 1, 2), f"  upload: {upload}\n")
    with pytest.raises(ScenarioError) as whole:
        in_memory(file)
    with pytest.raises(ScenarioError) as parts:
        load_scenario(file)
    assert str(parts.value).replace(f"{tmp_path / 'jobs.parquet'}: ", "") == str(whole.value)


def test_a_table_that_is_none_is_refused_as_in_memory(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, jobs_at(0, 1).drop("chunks"))
    with pytest.raises(ScenarioError, match="column 'chunks' is missing"):
        load_scenario(file)
    (tmp_path / "jobs.parquet").write_text("nothing")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(file)
