"""A record written as it grows is that of the run, and in parts it breaks the rules that the whole breaks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

from builders.chunks import instance
from builders.corruptions import corrupt
from builders.thorough import thorough_after
from skedge.analysis.metrics.metrics import metrics
from skedge.analysis.verify.parts import ranges_of
from skedge.analysis.verify.verify import Violation, verify
from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.jobs_file import JobsFile
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.loops.aonline import simulate
from skedge.loops.streamed import _Window, covers, stream
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run, stored_schedule
from skedge.runs.meta import registered_meta
from skedge.runs.writing import write_table
from skedge.scenario.file import scenario_of
from skedge.scenario.save import JOBS, save_scenario
from skedge.simulate import run

POLICIES = ("aonline", "aonline:cloud=false", "aonline:preempt_running=false", "aonline:q_mode=eq5")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are read a few rows at a time, and a few runs on lanes together."""
    monkeypatch.setattr("skedge.analysis.verify.parts.ROWS", 6)
    monkeypatch.setattr("skedge.analysis.verify.parts.RUNS_PER_FILE", 12)


def make_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on any scenario is a large one, in parts of 3,000 chunks."""
    monkeypatch.setattr("skedge.scenario.file.CHUNKS_IN_PARTS", 1)
    monkeypatch.setattr("skedge.core.model.jobs_file.PART_CHUNKS", 3000)
    monkeypatch.setattr("skedge.analysis.verify.parts.ROWS", 3000)
    monkeypatch.setattr("skedge.analysis.verify.parts.RUNS_PER_FILE", 4000)


def in_file(scenario: Scenario, folder: Path, most: int = 6) -> Scenario:
    """The scenario with its jobs in a file, in parts of about `most` chunks."""
    save_scenario(scenario, folder / "scenario")
    with patch("skedge.core.model.jobs_file.PART_CHUNKS", most):
        file = JobsFile(folder / "scenario" / JOBS, scenario.jobs.fixed_delays, scenario.physics.step)
    return scenario.in_file(file)


def streamed(scenario: Scenario, policy: str, folder: Path, most: int = 6) -> Schedule:
    """The record that is written as it grows."""
    stored, tables = in_file(scenario, folder, most), folder / "tables"
    tables.mkdir()
    stream(stored, prepare_policy(policy, scenario), tables)
    assert sorted(file.name for file in tables.iterdir()) == sorted(f"{name}.parquet" for name in Schedule.names())
    return stored_schedule(tables, scenario)


def outcome(of: Schedule) -> dict[str, Any]:
    """The tables as rows and types."""
    return {name: (table.schema, table.rows()) for name, table in of.tables().items()}


def kept(schedule: Schedule, stored: Scenario, folder: Path) -> Schedule:
    """The tables in files."""
    for name, table in schedule.tables().items():
        write_table(folder, name, table)
    return stored_schedule(folder, stored)


def has_parts(stored: Scenario, schedule: Schedule, meta: Mapping[str, Any], folder: Path) -> bool:
    """Whether the record is verified in several parts."""
    return len(ranges_of(stored, kept(schedule, stored, folder), meta)) > 1


def said(violations: list[Violation]) -> Counter[Violation]:
    """The violations without the order in which they were found.

    Sums are rounded in other ways, and of two runs that begin together on a lane the one or the other is named.
    """
    alike = {"M4": {"job": None}, "M34": {"message": ""}}
    return Counter(
        replace(one, **alike[one.rule]) if one.rule == "M4" or "Lemma 4" in one.message else one for one in violations
    )


@pytest.mark.parametrize("policy", thorough_after(1, POLICIES))
def test_a_record_written_as_it_grows_is_the_record_of_the_run(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for the chunks of one or two jobs, which are also read one or two at a time."""
    monkeypatch.setattr("skedge.loops.streamed.ROWS", 8)
    different = list[int]()
    for seed in range(12):
        scenario = instance(seed)
        if not covers(scenario, prepare_policy(policy, scenario)):
            continue
        try:
            expected = simulate(scenario, prepare_policy(policy, scenario))
        except PolicyError as error:
            with pytest.raises(PolicyError, match=str(error)[:20]):
                streamed(scenario, policy, tmp_path / str(seed))
            continue
        if outcome(streamed(scenario, policy, tmp_path / str(seed))) != outcome(expected):
            different.append(seed)
    assert different == []


def test_a_large_record_written_as_it_grows_is_the_record_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small buffers, so that runs are written while the simulation goes on."""
    scenario = scenario_of("demo-divisible")
    monkeypatch.setattr("skedge.loops.streamed.ROWS", 1000)
    small = sys.modules["skedge.policies.aonline.state"]
    make = small.make_truth
    monkeypatch.setattr(small, "make_truth", lambda *args, **options: make(*args, **options, buffer=64))
    found = streamed(scenario, "aonline", tmp_path / "run", 3000)
    assert outcome(found) == outcome(run(scenario, "aonline").schedule)


def on_one_server(*arrivals_and_sizes: tuple[float, int, int], lanes: int = 2) -> Scenario:
    """Jobs with these arrivals [s], chunks, and mini-batches of a second, which are not uploaded."""
    cluster = Cluster([Server("e", "edge", {"worker:gpu": lanes, "worker:none": 0, "ps:cpu": 20})])
    jobs = [
        Job(str(i), at, epochs=1, chunks=chunks, minibatches=n, minibatch_s=1.0)
        for i, (at, chunks, n) in enumerate(arrivals_and_sizes)
    ]
    return Scenario(cluster, Jobs(job_table(jobs)[0], cluster))


def test_decisions_of_a_border_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made at the instant of a border, whose jobs have been written: a job larger than the columns follows."""
    monkeypatch.setattr("skedge.loops.streamed.ROWS", 10)
    scenario = on_one_server((0, 1, 1), (2, 1, 100), (2, 1, 100), (10, 1, 1), (10, 1, 1), (20, 50, 1))
    assert in_file(scenario, tmp_path / "parts", 5).ranges == [(0, 5), (5, 6)]
    found = streamed(scenario, "aonline", tmp_path / "run", 5)
    assert outcome(found) == outcome(simulate(scenario, prepare_policy("aonline", scenario)))


def test_a_buffer_has_room_for_the_runs_that_arrivals_displace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job displaces the one before: the lane has no event of its own in between."""
    small = sys.modules["skedge.policies.aonline.state"]
    make = small.make_truth
    scenario = on_one_server(*((float(i), 1, 1000 - i) for i in range(40)), lanes=1)
    expected = outcome(simulate(scenario, prepare_policy("aonline", scenario)))
    monkeypatch.setattr(small, "make_truth", lambda *args, **options: make(*args, **options, buffer=3))
    assert outcome(simulate(scenario, prepare_policy("aonline", scenario))) == expected


def test_a_violation_is_found_once_however_long_it_lasts(tmp_path: Path) -> None:
    """Two long jobs on one PS slot, while others come and go."""
    scenario = on_one_server((0, 1, 100), (1, 1, 100), *((float(i), 1, 2) for i in range(2, 14)), lanes=4)
    whole = run(scenario, "aonline")
    ps = whole.schedule.ps
    slot = pl.when(pl.col("job") == 1).then(0).otherwise("slot").cast(ps.schema["slot"]).alias("slot")
    changed = replace(whole.schedule, ps=ps.with_columns(slot))
    meta = registered_meta(whole.meta)
    stored = in_file(scenario, tmp_path, 2)
    found = verify(stored, kept(changed, stored, tmp_path), meta)
    assert said(found) == said(verify(scenario, changed, meta))
    assert [one.rule for one in found].count("M13") == 1


def test_jobs_that_are_rejected_at_the_end_do_not_lengthen_the_run(tmp_path: Path) -> None:
    scenario = on_one_server((0, 1, 10), (500, 1, 10))
    frame = scenario.jobs.frame.with_columns(worker_type=pl.Series(["gpu", "none"]))
    scenario = replace(scenario, jobs=Jobs(frame, scenario.cluster))
    whole = run(scenario, "aonline")
    stored = in_file(scenario, tmp_path, 1)
    parts = metrics(stored, kept(whole.schedule, stored, tmp_path), whole.meta)
    assert (parts["makespan_s"], parts["rejected"], parts) == (10.0, 1, whole.metrics)


@pytest.mark.parametrize("words", [("s4", "pdors"), ("demo", "srtf")])
def test_other_large_folders_have_the_metrics_of_the_whole(
    words: tuple[str, str], skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert skedge("run", words[0], "--policy", words[1], "--out", str(tmp_path / "run")).code == 0
    printed = skedge("metrics", str(tmp_path / "run"), "--json").json
    make_large(monkeypatch)
    again = skedge("metrics", str(tmp_path / "run"), "--json").json
    assert [(key, value is None) for key, value in again.items()] == [(key, v is None) for key, v in printed.items()]
    given = [key for key, value in printed.items() if value is not None]
    assert [again[key] for key in given] == pytest.approx([printed[key] for key in given], rel=1e-12)


def test_only_jobs_at_work_and_the_next_ones_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the demo's jobs, read a hundredth of the chunks at a time."""
    scenario, held = scenario_of("demo-divisible"), list[tuple[int, int]]()
    most = int(scenario.jobs.chunks.sum()) // 100
    run_on = _Window.run
    monkeypatch.setattr(_Window, "run", lambda self, progress: held.append(sizes(self)) or run_on(self, progress))
    monkeypatch.setattr("skedge.loops.streamed.ROWS", 100)
    found = streamed(scenario, "aonline", tmp_path / "run", most)
    assert len(held) > 50
    jobs, chunks = (max(of) for of in zip(*held, strict=True))
    # those at work, those whose runs wait for an older one to be written, and the next ones
    assert jobs < len(found.jobs) / 3
    assert chunks < len(found.decisions) / 3


def sizes(window: _Window) -> tuple[int, int]:
    """Jobs and chunks of which a window has books."""
    assert len(window.books.ledger.jobs) == len(window.number) == len(window.log.colocated)
    return len(window.books.ledger.jobs), len(window.books.truth.links)


def test_parts_have_about_as_many_chunks_as_asked_and_all_jobs_of_a_slot(tmp_path: Path) -> None:
    cluster = Cluster([Server("e", "edge", {"worker:gpu": 1, "ps:cpu": 1})])
    arrivals = [0.0, 1.0, 1.0, 2.0, 2.5, 9.0]
    jobs = [Job(f"j{i}", s, epochs=1, chunks=3, minibatches=1, minibatch_s=1.0) for i, s in enumerate(arrivals)]
    scenario = Scenario(cluster, Jobs(*job_table(jobs)[:1], cluster))
    assert in_file(scenario, tmp_path, 6).ranges == [(0, 3), (3, 5), (5, 6)]
    assert in_file(scenario, tmp_path, 5).ranges == [(0, 3), (3, 5), (5, 6)]
    assert in_file(scenario, tmp_path, 100).ranges == [(0, 6)]
    slots = replace(scenario, physics=Physics(slot=3 * SECOND, slotted=True))
    assert in_file(slots, tmp_path, 1).ranges == [(0, 1), (1, 5), (5, 6)]


def corrupted(policy: str, count: int, tmp_path: Path) -> list[tuple[Run, Schedule]]:
    """Runs at random with one or two changes to their records that can be verified by parts."""
    rng, found = np.random.default_rng(3), []
    for seed in range(count):
        scenario = instance(seed)
        try:
            whole = run(scenario, policy)
        except PolicyError:
            continue
        for _ in range(4):
            made = corrupt(whole, rng, int(rng.integers(1, 3)))
            if made is not None and has_parts(in_file(scenario, tmp_path), made.schedule, whole.meta, tmp_path):
                found.append((whole, made.schedule))
    return found


@pytest.mark.parametrize("policy", thorough_after(1, POLICIES))
def test_parts_break_the_rules_that_the_whole_breaks(policy: str, tmp_path: Path) -> None:
    """Of records that are corrupt at random, cut after every second job, with about three lanes a part."""
    broken, most = set[str](), 10**6
    for whole, changed in corrupted(policy, 10, tmp_path):
        meta, stored = registered_meta(whole.meta), in_file(whole.scenario, tmp_path)
        together = verify(whole.scenario, changed, meta, limit=most)
        parts = verify(stored, kept(changed, stored, tmp_path), meta, limit=most)
        assert said(parts) == said(together)
        broken |= {one.rule for one in together}
    assert broken >= {"M1", "M2", "M4", "M6", "M8", "M9", "M12", "M16", "M18", "M21", "M22", "M34"}


@pytest.mark.parametrize("policy", thorough_after(1, POLICIES))
def test_records_in_parts_have_the_metrics_of_the_whole(policy: str, tmp_path: Path) -> None:
    for seed in range(10):
        scenario = instance(seed)
        try:
            whole = run(scenario, policy)
        except PolicyError:
            continue
        stored = in_file(scenario, tmp_path)
        parts = metrics(stored, kept(whole.schedule, stored, tmp_path), whole.meta)
        together = metrics(scenario, whole.schedule, whole.meta)
        assert list(parts) == list(together)
        given = {key for key, value in together.items() if value is not None}
        assert {key for key, value in parts.items() if value is not None} == given
        assert [parts[key] for key in given] == pytest.approx([together[key] for key in given], rel=1e-12)


@pytest.mark.thorough
def test_parts_are_counted_as_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified are parts of the jobs, and then of the lanes."""
    whole, told = run(scenario_of("demo-divisible"), "aonline"), list[tuple[str, int, int]]()
    monkeypatch.setattr("skedge.analysis.verify.parts.RUNS_PER_FILE", 4000)
    stored = in_file(whole.scenario, tmp_path, 3000)
    tables, jobs = kept(whole.schedule, stored, tmp_path), len(stored.ranges)
    metrics(stored, tables, whole.meta, lambda *done: told.append(done))
    assert told == [("measuring parts", done, jobs) for done in range(1, jobs + 1)]
    told.clear()
    assert verify(stored, tables, registered_meta(whole.meta), steps=lambda *done: told.append(done)) == []
    assert told == [("verifying parts", done, len(told)) for done in range(1, len(told) + 1)]
    assert len(told) > jobs + 2


def test_gangs_outages_and_other_decisions_are_verified_as_a_whole(tmp_path: Path) -> None:
    scenario = scenario_of("demo")
    stored = in_file(scenario, tmp_path)
    gangs = run(scenario, "srtf")
    assert not has_parts(stored, gangs.schedule, gangs.meta, tmp_path)
    chunks = run(scenario, "aonline")
    assert has_parts(stored, chunks.schedule, chunks.meta, tmp_path)
    outage = pl.DataFrame([["e0", 0, None, "lost"]], schema=chunks.schedule.outages.schema, orient="row")
    assert not has_parts(stored, replace(chunks.schedule, outages=outage), chunks.meta, tmp_path)


def test_the_command_writes_a_large_run_as_any_other(
    skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has the same inputs and rows; `skedge verify` checks it by parts, and finds a change."""
    command = ["run", "demo-divisible", "--policy", "aonline", "--out"]
    assert skedge(*command, str(tmp_path / "whole")).code == 0
    make_large(monkeypatch)
    assert skedge(*command, str(tmp_path / "large")).code == 0
    for name in ("scenario.yaml", "jobs.parquet", "run.json"):
        assert (tmp_path / "large" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    written, whole = Run.load(tmp_path / "large"), Run.load(tmp_path / "whole")
    assert outcome(written.schedule) == outcome(whole.schedule)
    assert len(written.scenario.ranges) > 1
    assert skedge("verify", str(tmp_path / "large")).code == 0
    runs = whole.schedule.runs.with_columns(end=pl.col("end") + 1)
    write_table(tmp_path / "large" / "tables", "runs", runs)
    assert skedge("verify", str(tmp_path / "large")).code == 1


def test_the_command_reads_the_jobs_of_a_large_table_as_they_arrive(
    skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved scenario: no part is the whole, and everything is as in a run that is held in memory."""
    file = str(save_scenario(scenario_of("demo-divisible"), tmp_path / "scenario"))
    whole = skedge("run", file, "--policy", "aonline", "--out", str(tmp_path / "whole"))
    make_large(monkeypatch)
    read = list[int]()
    rows = JobsFile.rows
    monkeypatch.setattr(JobsFile, "rows", lambda self, first, end: read.append(end - first) or rows(self, first, end))
    large = skedge("run", file, "--policy", "aonline", "--out", str(tmp_path / "large"))
    assert large.code == 0
    printed = [result.out.split("run folder")[0].split() for result in (large, whole)]
    assert printed[0] == printed[1]
    assert 0 < max(read) < 100
    for name in ("scenario.yaml", "jobs.parquet", "run.json"):
        assert (tmp_path / "large" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert outcome(Run.load(tmp_path / "large").schedule) == outcome(Run.load(tmp_path / "whole").schedule)
    printed = [skedge("metrics", str(tmp_path / name)).out for name in ("whole", "large")]
    assert printed[0] == printed[1]


def test_other_policies_read_the_whole_of_a_large_table(
    skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(save_scenario(scenario_of("demo-divisible"), tmp_path / "scenario"))
    make_large(monkeypatch)
    assert skedge("run", file, "--policy", "fifo", "--out", str(tmp_path / "run")).code == 0
    recorded = Run.load(tmp_path / "run")
    assert recorded.scenario.unread is not None
    assert len(recorded.scenario.ranges) > 1
    assert ranges_of(recorded.scenario, recorded.schedule, {}) == [(0, recorded.scenario.count)]


def test_a_damaged_large_record_has_no_metrics(
    skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large(monkeypatch)
    folder = tmp_path / "run"
    assert skedge("run", "demo-divisible", "--policy", "aonline", "--out", str(folder)).code == 0
    jobs = pl.read_parquet(folder / "tables" / "jobs.parquet")
    write_table(folder / "tables", "jobs", jobs[:-1])
    lacking = skedge("metrics", str(folder))
    assert lacking.code == 1
    assert f"the jobs table does not have the {len(jobs)} jobs of the scenario" in lacking.err
    write_table(folder / "tables", "jobs", jobs.with_columns(arrival=pl.col("arrival") + (pl.col("job") == 60)))
    wrong = skedge("metrics", str(folder))
    assert wrong.code == 1
    assert f"{folder}: the record is damaged: jobs[60] has" in wrong.err
    assert "'job': 60" in wrong.err


def test_a_table_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    scenario = scenario_of("demo-divisible")
    with pytest.raises(OSError, match="No such file"):
        stream(in_file(scenario, tmp_path), prepare_policy("aonline", scenario), tmp_path / "missing")


def test_users_of_jobs_do_not_change_a_record_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts have users of their own, whose numbers the window counts on; the record is that without users."""
    monkeypatch.setattr("skedge.loops.streamed.ROWS", 8)
    scenario = next(one for one in map(instance, range(25)) if covers(one, prepare_policy("aonline", one)))
    users = pl.Series("user", [f"u{i % 3}" if i % 4 else None for i in range(len(scenario.jobs))])
    frame = scenario.jobs.frame.with_columns(users)
    labelled = replace(scenario, jobs=Jobs(frame, scenario.cluster, scenario.jobs.fixed_delays))
    expected = simulate(scenario, prepare_policy("aonline", scenario))
    assert outcome(streamed(labelled, "aonline", tmp_path)) == outcome(expected)
