"""Jobs tables made from traces."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from builders.paths import TRACES
from skedge.core.errors import TraceError
from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.job_fields import JOB_SCHEMA
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import ticks
from skedge.traces.makers.synthetic import philly_like
from skedge.traces.makers.workload import (
    DATA_MB,
    PaperRanges,
    TraceShares,
    divisible_jobs,
    paper_jobs,
    rigid_jobs,
)
from skedge.traces.readers.philly import read_philly_csv

GPU, CPU = ("gpu1", "gpu2", "gpu3"), ("cpu1", "cpu2")
CLUSTER = Cluster([Server("e0", "edge", {**{f"worker:{t}": 4 for t in GPU}, **{f"ps:{t}": 1 for t in CPU}})])
REAL = TRACES / "philly" / "bench_philly_2017-10-02_11-05.csv.gz"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def trace() -> pl.DataFrame:
    return philly_like(3000, rng(1))


@pytest.fixture(scope="module")
def by_paper(trace):
    return paper_jobs(trace, rng(2), GPU, CPU).table


@pytest.fixture(scope="module")
def rigid(trace):
    return rigid_jobs(trace, rng(2), GPU, CPU).table


@pytest.fixture(scope="module")
def by_trace(trace):
    return divisible_jobs(trace, rng(2), GPU, CPU).table


def communication(jobs: pl.DataFrame) -> np.ndarray:
    """2 · 8 · q / b seconds: 2 q / b with q in MB and b in Mbit/s."""
    return (16 * jobs["gradient_mb"] / jobs["bandwidth_mbps"]).to_numpy()


@pytest.mark.parametrize("made", ["by_paper", "by_trace", "rigid"])
def test_a_jobs_table_has_the_schema_and_the_core_takes_it(made, request):
    table = request.getfixturevalue(made)
    assert table.schema == pl.Schema(JOB_SCHEMA)
    assert len(Jobs(table, CLUSTER)) == 3000


@pytest.mark.parametrize("made", ["by_paper", "by_trace", "rigid"])
def test_arrivals_and_gpu_counts_are_the_traces(made, request, trace):
    table = request.getfixturevalue(made)
    assert table["id"].equals(trace["id"])
    assert table["arrival_s"].to_list() == trace["submit_s"].to_list()
    assert table["workers"].to_list() == [
        min(g, d) for g, d in zip(trace["gpus"], table["chunks"], strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("epochs", 20, 60),
        ("minibatch_s", 3.6, 180.0),  # 0.001 and 0.05 h
        ("ps_update_s", 0.010, 0.100),
        ("gradient_mb", 30, 575),
        ("bandwidth_mbps", 100, 5120),
        ("chunk_mb", 20, 60),
    ],
)
def test_the_papers_draws_fill_their_ranges_evenly(by_paper, column, low, high):
    values = by_paper[column].to_numpy()
    assert low <= values.min()
    assert values.max() <= high
    # four standard errors of the mean of 3,000 uniform draws (integers: the same to 5 %)
    assert values.mean() == pytest.approx((low + high) / 2, abs=4.2 * (high - low) / np.sqrt(12 * 3000))


def test_chunks_and_minibatches_are_rows_of_table_ii_drawn_alike(by_paper):
    counted = by_paper.group_by("chunks", "minibatches").len().sort("chunks")
    assert counted.select("chunks", "minibatches").rows() == [(27, 58), (60, 58), (115, 58)]
    # 1,000 each, deviation sqrt(3000 · 1/3 · 2/3) = 25.8
    assert all(abs(n - 1000) < 4 * 25.8 for n in counted["len"])


def test_types_are_drawn_evenly_from_those_that_exist(by_paper):
    for column, types in (("worker_type", GPU), ("ps_type", CPU)):
        share = {t: n / 3000 for t, n in by_paper[column].value_counts().iter_rows()}
        assert share == pytest.approx({t: 1 / len(types) for t in types}, abs=0.04)


def test_the_papers_upload_delays_are_in_slots(trace):
    table = paper_jobs(trace, rng(), GPU, CPU, slot_s=60.0).table
    ends = table.select(pl.col("^upload_.*$").unique()).row(0)
    assert ends == (60.0, 240.0, 600.0, 900.0)


def test_a_range_can_be_changed(trace):
    table = paper_jobs(trace, rng(), GPU, CPU, ranges=PaperRanges(epochs=(3, 3), minibatch_h=(0.5, 0.5))).table
    assert table["epochs"].unique().to_list() == [3]
    assert table["minibatch_s"].unique().to_list() == [1800.0]


def test_sizes_are_drawn_from_ranges_where_they_are_given(trace):
    """Of She et al. Sec. VI, ends included; nothing else changes."""
    table = paper_jobs(trace, rng(), GPU, CPU, ranges=PaperRanges(chunks=(20, 50), minibatches=(10, 50))).table
    assert (table["chunks"].min(), table["chunks"].max()) == (20, 50)
    assert (table["minibatches"].min(), table["minibatches"].max()) == (10, 50)
    assert table["chunks"].n_unique() == 31


def test_a_range_of_chunks_alone_is_refused():
    with pytest.raises(TraceError, match="give both"):
        PaperRanges(chunks=(20, 50))


@pytest.mark.parametrize("made", ["by_trace", "rigid"])
def test_a_traced_job_alone_on_its_gpus_takes_its_real_duration(made, request, trace):
    by_trace = request.getfixturevalue(made)
    scenario = Scenario(CLUSTER, Jobs(by_trace, CLUSTER))
    index = [scenario.jobs.index[name] for name in trace["id"]]
    chunk, chunks, workers = scenario.chunk_time[index, 0], scenario.jobs.chunks[index], scenario.jobs.workers[index]
    # D p / k: a chunk is rounded up to the microsecond, so D chunks add at most D microseconds
    took, real = chunks * chunk / workers, ticks(trace["duration_s"].to_numpy())
    assert (took >= real - 1).all()
    assert (took - real <= chunks + 1).all()


def test_the_parts_of_a_minibatch_are_the_shares_asked_for(trace):
    table = divisible_jobs(trace, rng(), GPU, CPU, shares=TraceShares(communication=0.3, ps_update=0.05)).table
    each = (table["minibatch_s"] + table["ps_update_s"]).to_numpy() + communication(table)
    np.testing.assert_allclose(communication(table) / each, 0.3, rtol=1e-9)
    np.testing.assert_allclose(table["ps_update_s"].to_numpy() / each, 0.05, rtol=1e-9)


def test_a_tenth_of_a_minibatch_is_communication_unless_said_otherwise(by_trace):
    each = (by_trace["minibatch_s"] + by_trace["ps_update_s"]).to_numpy() + communication(by_trace)
    np.testing.assert_allclose(communication(by_trace) / each, 0.1, rtol=1e-9)


def test_without_communication_no_gradient_is_sent_and_the_duration_stays(trace):
    table = divisible_jobs(trace, rng(), GPU, CPU, shares=TraceShares(communication=0.0)).table
    assert (table["gradient_mb"] == 0).all()
    work = table["chunks"] * table["epochs"] * table["minibatches"] * (table["minibatch_s"] + table["ps_update_s"])
    np.testing.assert_allclose(work / table["workers"], trace["duration_s"], rtol=1e-9)


def test_upload_delays_are_a_share_of_the_duration_where_one_is_given_and_four_times_that_to_the_cloud(trace):
    by_trace = divisible_jobs(trace, rng(), GPU, CPU, shares=TraceShares(upload=0.05)).table
    duration = trace["duration_s"].to_numpy()
    for column, factor in (("edge_lo", 0.025), ("edge_hi", 0.075), ("cloud_lo", 0.1), ("cloud_hi", 0.3)):
        np.testing.assert_allclose(by_trace[f"upload_{column}_s"], factor * duration, rtol=1e-12)


def test_upload_delays_follow_the_size_of_a_chunk_and_the_rate(trace):
    """1,000 MB in D chunks at 100 and 10 Mbit/s: 80 s and 800 s, over D, half and one and a half times that."""
    shares = TraceShares(data_mb=[1000.0], edge_mbps=100.0, cloud_mbps=10.0)
    long = trace.with_columns(duration_s=pl.lit(1e5))
    table = divisible_jobs(long, rng(), GPU, CPU, shares=shares).table
    chunks = table["chunks"].to_numpy()
    np.testing.assert_allclose(table["chunk_mb"], 1000 / chunks, rtol=1e-12)
    for column, right in (("edge_lo", 40), ("edge_hi", 120), ("cloud_lo", 400), ("cloud_hi", 1200)):
        np.testing.assert_allclose(table[f"upload_{column}_s"], right / chunks, rtol=1e-12)


def test_a_job_has_no_more_data_than_its_gpus_can_read_once_in_its_time(trace):
    """50 MB/s a GPU: 10 s of 1 GPU are 500 MB of the 1,000."""
    short = trace.head(4).with_columns(duration_s=pl.lit(10.0), gpus=pl.Series([1, 2, 4, 1]))
    table = rigid_jobs(short, rng(), GPU, CPU, shares=TraceShares(data_mb=[1000.0])).table
    np.testing.assert_allclose(table["chunk_mb"] * table["chunks"], [500, 1000, 1000, 500], rtol=1e-12)


def test_a_third_of_the_jobs_has_each_data_set_of_table_ii():
    trace = philly_like(3000, rng()).with_columns(duration_s=pl.lit(1e6))
    table = rigid_jobs(trace, rng(), GPU, CPU).table
    sizes, counts = np.unique(np.round(table["chunk_mb"] * table["chunks"]), return_counts=True)
    assert sizes.tolist() == sorted(DATA_MB)
    assert (abs(counts - 1000) < 100).all()


@pytest.mark.parametrize(
    "shares",
    [
        {"communication": 1.0},
        {"communication": 0.5, "ps_update": 0.5},
        {"upload": -1.0},
        {"edge_mbps": 0.0},
        {"data_mb": []},
    ],
)
def test_shares_that_leave_no_time_for_training_are_refused(shares):
    with pytest.raises(TraceError):
        TraceShares(**shares)


def test_a_job_of_no_duration_has_no_work(trace):
    with pytest.raises(TraceError, match="row 0, column duration_s: 0"):
        divisible_jobs(trace.head(1).with_columns(duration_s=pl.lit(0.0)), rng(), GPU, CPU)


def test_there_must_be_types_to_draw_from(trace):
    with pytest.raises(TraceError, match="at least one worker type"):
        paper_jobs(trace, rng(), (), CPU)


@pytest.mark.parametrize("make", [paper_jobs, divisible_jobs, rigid_jobs])
def test_the_same_seed_makes_the_same_jobs(make, trace):
    one, same, other = (make(trace, rng(seed), GPU, CPU).table for seed in (7, 7, 8))
    assert one.equals(same)
    assert not one.equals(other)


def frame(gpus: list[int]) -> pl.DataFrame:
    """Jobs of an hour each, a minute apart."""
    n = len(gpus)
    at = {"submit_s": [60.0 * i for i in range(n)], "duration_s": [3600.0] * n}
    return pl.DataFrame({"id": [str(i) for i in range(n)], **at, "gpus": gpus, "status": "passed", "group": ""})


def gpu_hours(table: pl.DataFrame) -> float:
    """D p of all jobs, from the table's own columns: D E B (m + G + 2 q / b)."""
    each = (table["minibatch_s"] + table["ps_update_s"]).to_numpy() + communication(table)
    return float((table["chunks"] * table["epochs"] * table["minibatches"] * each).sum()) / 3600


def test_a_rigid_job_has_a_chunk_and_a_worker_for_each_gpu_and_all_its_work():
    """Jobs of an hour on 1, 2, 128 GPUs: 131 GPU-hours, as many as were asked for; nothing is changed."""
    made = rigid_jobs(frame([1, 2, 128]), rng(), GPU, CPU)
    assert made.table["chunks"].to_list() == made.table["workers"].to_list() == [1, 2, 128]
    assert gpu_hours(made.table) == pytest.approx(131, rel=1e-12)
    assert made.changed == {}


def test_the_chunk_of_a_rigid_job_takes_its_duration_to_the_microsecond():
    """Rounding a chunk's time up adds less than a microsecond."""
    made = rigid_jobs(frame([1, 2, 128]), rng(), GPU, CPU)
    times = Scenario(CLUSTER, Jobs(made.table, CLUSTER)).chunk_time[:, 0]
    assert set(times - 3600 * 10**6) <= {0, 1}


def test_a_divisible_job_of_more_gpus_than_chunks_gets_a_chunk_for_each_and_keeps_its_work():
    """D = 8 for all: a job of 128 GPUs would lose 120 of its 128 GPU-hours; its chunks are raised, and counted."""
    made = divisible_jobs(frame([1, 8, 128]), rng(), GPU, CPU, shares=TraceShares(chunks=(8, 8)))
    assert made.table["chunks"].to_list() == [8, 8, 128]
    assert made.table["workers"].to_list() == [1, 8, 128]
    assert gpu_hours(made.table) == pytest.approx(137, rel=1e-12)
    assert made.changed == {"chunks raised to the GPUs asked for": 1}


def test_gangs_that_the_papers_draw_makes_smaller_than_asked_for_are_counted():
    made = paper_jobs(frame([1, 128, 128]), rng(), GPU, CPU)
    assert list(made.changed.values()) == [2]


def test_rigid_and_divisible_versions_of_a_trace_are_the_same_jobs_but_for_their_chunks(rigid, by_trace):
    """Arrivals, epochs, types, gradients, uploads: all that is drawn; a mini-batch differs as the chunks do."""
    same = ["id", "arrival_s", "workers", "epochs", "gradient_mb", "worker_type", "ps_type"]
    assert rigid.select(same).equals(by_trace.select(same))
    for column in ("chunk_mb", "upload_edge_lo_s", "upload_edge_hi_s", "upload_cloud_lo_s", "upload_cloud_hi_s"):
        of_the_job = [table[column] * table["chunks"] for table in (rigid, by_trace)]
        np.testing.assert_allclose(of_the_job[0], of_the_job[1], rtol=1e-12)
    np.testing.assert_allclose(
        rigid["minibatch_s"] * rigid["chunks"], by_trace["minibatch_s"] * by_trace["chunks"], rtol=1e-12
    )


@pytest.mark.skipif(not REAL.is_file(), reason="the real traces are not here (they are not shipped)")
def test_the_real_traces_49_875_jobs_are_made():
    frame = read_philly_csv(REAL).frame
    table = divisible_jobs(frame, rng(), GPU, CPU).table
    numbers = table.select(pl.col(pl.Float64).is_finite().all())
    assert all(numbers.row(0))
    assert len(Jobs(table, CLUSTER)) == 49_875


def test_a_gang_may_have_a_share_of_its_jobs_chunks(trace):
    """A tenth of 27, 115 and 60 chunks are 3, 12 (11.5 to even) and 6; the other draws stay."""
    plain = paper_jobs(trace, rng(2), GPU, CPU).table
    table = paper_jobs(trace, rng(2), GPU, CPU, ranges=PaperRanges(gang_share=0.1)).table
    assert set(zip(table["chunks"], table["workers"], strict=True)) <= {(27, 3), (115, 12), (60, 6)}
    assert table.drop("workers").equals(plain.drop("workers"))
    with pytest.raises(TraceError, match="gang_share 0: must be above 0"):
        PaperRanges(gang_share=0)
