"""Rules where servers fail: planted violations of M48, and what is no violation of M35, M36, M41 and M42."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from builders.failing import broken, fail, failing, job
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run
from skedge.scenario.file import scenario_of
from skedge.simulate import run
from skedge.testing.scenarios import small_scenario

FAILING = Physics(mtbf=30 * SECOND, mttr=5 * SECOND)


def rules(done: Run) -> set[str]:
    return {violation.rule for violation in done.verify()}


def changed(*exprs: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The outages with other values in these columns of the first row."""
    first = pl.int_range(pl.len()) == 0
    return lambda frame: frame.with_columns(
        pl.when(first).then(e).otherwise(pl.col(e.meta.output_name())).alias(e.meta.output_name()) for e in exprs
    )


def ends_later(frame: pl.DataFrame) -> pl.DataFrame:
    """An outage that ends has no end."""
    at = frame["end"].is_not_null().arg_true()[0]
    return frame.with_columns(end=pl.when(pl.int_range(pl.len()) == at).then(None).otherwise(pl.col("end")))


PLANTED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "no outages at all": lambda frame: frame.clear(),
    "one is missing": lambda frame: frame[1:],
    "the last one is missing": lambda frame: frame[:-1],
    "one twice": lambda frame: pl.concat([frame, frame[:1]]),
    "one begins a µs earlier": changed(pl.col("start") - 1),
    "one ends a µs later": changed(pl.col("end") + 1),
    "one does not end": ends_later,
    "on another server": changed(pl.lit("e3").alias("server")),
    "of the cloud": changed(pl.lit("cloud").alias("server")),
    "after all jobs have left": lambda frame: pl.concat(
        [frame, frame[-1:].with_columns(start=pl.col("start") + 10**12, end=None)]
    ),
}


@pytest.fixture(scope="module")
def failed() -> Run:
    """A run in whose record servers fail, and are repaired."""
    done = run(small_scenario(0, physics=FAILING), "srtf")
    assert done.verify() == []
    assert len(done.schedule.outages) > 5
    return done


@pytest.mark.parametrize("what", PLANTED)
def test_a_record_with_other_outages_than_the_seed_gives_is_found(what: str, failed: Run) -> None:
    """M48: each is recomputed from the seed, without the simulator."""
    outages = failed.schedule.outages
    planted = PLANTED[what](outages).select(
        pl.col(name).cast(pl.String).cast(kind) if name == "server" else pl.col(name).cast(kind)
        for name, kind in outages.schema.items()
    )
    assert "M48" in rules(replace(failed, schedule=replace(failed.schedule, outages=planted)))


def test_a_gang_without_a_ps_is_found_during_outages(failed: Run) -> None:
    """M12: outages excuse dispatched jobs alone, which may run while no PS is there."""
    ps = failed.schedule.ps
    for number in ps["job"].unique().to_list():
        without = replace(failed.schedule, ps=ps.filter(pl.col("job") != number))
        assert "M12" in rules(replace(failed, schedule=without))


def test_a_run_that_was_simulated_without_its_failures_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory and, as a run larger than it, in parts."""
    scenario = small_scenario(0)
    done = replace(run(scenario, "aonline"), scenario=replace(scenario, physics=FAILING))
    assert rules(done) == {"M48"}
    done.save(tmp_path / "run")
    monkeypatch.setattr("skedge.scenario.file.CHUNKS_IN_PARTS", 1)
    monkeypatch.setattr("skedge.core.model.jobs_file.PART_CHUNKS", 10)
    again = Run.load(tmp_path / "run")
    assert len(again.scenario.ranges) > 1
    assert rules(again) == {"M48"}


def in_file(text: str, folder: Path) -> Scenario:
    (folder / "scenario.yaml").write_text(text)
    return scenario_of(folder / "scenario.yaml")


ONE_JOB = """
seed: 1
slot: 1s
physics: {slotted: true, mtbf: 60s, mttr: 10s}
cluster:
  servers:
    - {id: n0, workers: {gpu: 1}, ps: {cpu: 1}}
  sharing: {most_preemptions: 1}
workload:
  jobs: [{id: a, arrival_s: 0, epochs: 1, chunks: 1, minibatches: 300, minibatch_s: 1}]
"""

FOUR_JOBS = """
slot: 1s
physics: {slotted: true, mtbf: 300s, mttr: 100s}
cluster:
  servers:
    - {id: n0, workers: {gpu: 2}, ps: {cpu: 4}}
    - {id: n1, workers: {gpu: 2}, ps: {cpu: 4}}
workload:
  jobs:
    - {id: j0, arrival_s: 0, epochs: 1, chunks: 2, minibatches: 100, minibatch_s: 0.6, workers: 2}
    - {id: j1, arrival_s: 40, epochs: 1, chunks: 2, minibatches: 100, minibatch_s: 0.61, workers: 2}
    - {id: j2, arrival_s: 80, epochs: 1, chunks: 3, minibatches: 100, minibatch_s: 0.62, workers: 3}
    - {id: j3, arrival_s: 120, epochs: 1, chunks: 4, minibatches: 100, minibatch_s: 0.63, workers: 4}
"""

WITH_A_CLOUD = """
slot: 1s
physics: {slotted: true, mtbf: 60s, mttr: 10s}
cluster:
  servers:
    - {id: n0, workers: {gpu: 1}, ps: {cpu: 1}}
    - {id: n1, workers: {gpu: 1}, ps: {cpu: 1}}
    - {id: cloud, kind: cloud}
workload:
  jobs:
    - {id: a, arrival_s: 0, epochs: 1, chunks: 6, minibatches: 300, minibatch_s: 1,
       upload: {n0: 1s, n1: 1s, cloud: 20s}}
"""


def test_a_lost_server_is_no_preemption(tmp_path: Path) -> None:
    """M41: the job loses its server more than once, and may be preempted once."""
    done = run(in_file(ONE_JOB, tmp_path), "fifo")
    assert done.verify() == []
    assert (done.schedule.decisions["verb"] == "suspend").sum() > 1


def test_more_preemptions_than_allowed_are_counted_in_words(failed: Run) -> None:
    """Decisions of a policy that preempts still count, and no ordinal is spelled."""
    cluster = failed.scenario.cluster
    bounded = type(cluster)(cluster.servers, sharing=Sharing(most_preemptions=0))
    done = replace(failed, scenario=replace(failed.scenario, cluster=bounded))
    said = [violation.message for violation in done.verify() if violation.rule == "M41"]
    assert said
    assert all("times; most_preemptions is 0" in message for message in said)


@pytest.mark.parametrize("policy", ["batch", "batchsche"])
def test_a_batch_accepts_a_job_again_that_lost_its_server(policy: str, tmp_path: Path) -> None:
    """M36 on 12 seeds; in several a job is accepted twice."""
    scenario, twice = in_file(FOUR_JOBS, tmp_path), 0
    for seed in range(12):
        done = run(replace(scenario, seed=seed), policy)
        assert done.verify() == []
        accepted = done.schedule.decisions.filter(pl.col("verb") == "allocate").unique(["job", "time"])
        twice += int(accepted["job"].is_duplicated().any())
    assert twice > 3


@pytest.mark.parametrize("planted", ["missing", "late"])
def test_a_job_that_waits_again_is_decided_on_by_every_batch(planted: str, tmp_path: Path) -> None:
    """M36: the batch that takes a job again is left out, or is not when one is due."""
    scenario = in_file(FOUR_JOBS, tmp_path)
    done = next(done for seed in range(12) if _is_accepted_twice(done := run(replace(scenario, seed=seed), "batch")))
    d = done.schedule.decisions
    last = d.filter(pl.col("verb") == "allocate")["time"].max()
    here = (pl.col("time") == last) & pl.col("verb").is_in(["allocate", "postpone", "reserve"])
    other = d.filter(~here) if planted == "missing" else d.with_columns(
        time=pl.when(here).then(pl.col("time") + SECOND).otherwise(pl.col("time"))
    )  # fmt: skip
    assert "M36" in rules(replace(done, schedule=replace(done.schedule, decisions=other)))


def _is_accepted_twice(done: Run) -> bool:
    accepted = done.schedule.decisions.filter(pl.col("verb") == "allocate").unique(["job", "time"])
    return bool(accepted["job"].is_duplicated().any())


def test_batches_are_a_mean_repair_apart_at_most(tmp_path: Path) -> None:
    """Intervals double to 64 slots, the largest power of two in 100, then every 100: at 128, 228, 328 ... slots."""
    scenario = in_file(FOUR_JOBS, tmp_path)
    times = set[int]()
    for seed in range(30):
        decisions = run(replace(scenario, seed=seed), "batch").schedule.decisions
        times |= set((decisions.filter(pl.col("verb").is_in(["allocate", "postpone"]))["time"] // SECOND).to_list())
    assert max(times) > 328
    assert times <= {1, 2, 4, 8, 16, 32, 64, *range(128, max(times) + 1, 100)}


def test_chunks_of_a_failed_server_go_where_the_policy_sends_them(tmp_path: Path) -> None:
    """With a cloud: every rule holds on 30 seeds, and chunks go both to lanes and to the cloud."""
    scenario, places = in_file(WITH_A_CLOUD, tmp_path), set[bool]()
    for seed in range(30):
        done = run(replace(scenario, seed=seed), "aonline")
        assert done.verify() == []
        again = done.schedule.decisions.filter(pl.col("verb") == "redispatch")
        places |= set((again["server"] == "cloud").to_list())
    assert places == {True, False}


def test_a_job_that_no_server_in_service_can_hold_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """M42: `large` of class 1 asks for 3 workers, of which 2 are in service; `small` of class 0 begins."""
    servers = [Server("e0", capacity={"worker:a": 2, "ps:p": 9}), Server("e1", capacity={"worker:a": 1, "ps:p": 9})]
    at_once = {"upload_s": {"e0": 0.0, "e1": 0.0}}
    jobs = [
        job("first", 1, workers=1, **at_once),
        job("large", 3, workers=3, arrival_s=2.5, priority=1, tenant="other", **at_once),
        job("small", 1, workers=1, arrival_s=3.0, **at_once),
    ]
    fail(monkeypatch, (2, 1, True), (40, 1, False))
    done = run(failing(servers, jobs, Sharing({"other": Tenant()})), "srtf:placement=keep_running")
    starts = dict(done.jobs.select("id", pl.col("first_start") / SECOND).iter_rows())
    assert broken(done) == []
    assert starts == {"first": 0, "large": 40, "small": 3}


def test_a_ps_slot_of_an_absent_server_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """M35: e1 has the only PS left when its server is out: the job takes one in the cloud."""
    servers = [
        Server("e0", capacity={"worker:a": 1}),
        Server("e1", capacity={"worker:b": 1, "ps:p": 1}),
        Server("cloud", "cloud"),
    ]
    uploads = {"upload_s": {"e0": 5.0, "e1": 5.0, "cloud": 1e5}}
    fail(monkeypatch, (2, 1, True), (60, 1, False))
    done = run(failing(servers, [job("j", 1, **uploads)]), "aonline")
    assert broken(done) == []
    assert done.schedule.ps.select("server", "start").rows() == [("cloud", 5 * SECOND)]
    without = Schedule(**{**done.schedule.tables(), "outages": done.schedule.outages.clear()})
    assert "M35" in rules(replace(done, schedule=without))


@pytest.mark.parametrize(("gap", "breaks"), [(0, False), (2 * SECOND, True)], ids=["goes on", "starts"])
def test_live_a_team_that_was_in_training_goes_on_until_it_has_answered(gap: int, *, breaks: bool) -> None:
    """Its chunks share the time until then, so that the second of them begins in the outage: M25 is of the first."""
    cluster = Cluster([Server("e0", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    table, listed = job_table([Job("a", 0.0, 1, 2, 1, 10.0)])
    done = run(Scenario(cluster, Jobs(table, cluster, listed)), "aonline")
    first, second = done.schedule.runs["end"][0], pl.int_range(pl.len()) == 1
    runs = done.schedule.runs.with_columns(
        pl.when(second).then(pl.col(name) + gap).otherwise(pl.col(name)).alias(name)
        for name in ("start", "compute_from", "end")
    )
    row = {"server": "e0", "start": first - SECOND * 5, "end": first + SECOND * 5, "reason": "server_lost"}
    outages = pl.DataFrame([row], schema=done.schedule.outages.schema)
    meta = {**done.meta, "world": "ray", "tolerance": 1_500_000, "trained": {"a": [1, 1]}}
    live = Run(done.scenario, meta, replace(done.schedule, runs=runs, outages=outages))
    assert any(v.rule == "M25" and "starts on" in v.message for v in live.verify()) is breaks
