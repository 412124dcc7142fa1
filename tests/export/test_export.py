"""Runs in the formats of other tools: Batsim's files as Evalys reads them, Chrome-trace JSON as Perfetto opens it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from builders.small_records import dispatched, gangs, scenario
from skedge.core.model.cluster import Physics
from skedge.core.record.schedule import Schedule
from skedge.export.batsim import COLUMNS, intervals, jobs_table, summary
from skedge.export.chrome import events
from skedge.export.workers import workers_of
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenario

POLICIES = ["aonline", "srtf", "fifo:rule=earliest_server", "drf", "preemptive"]
Skedge = Callable[..., Any]


@pytest.fixture(scope="module", params=POLICIES)
def finished(request: pytest.FixtureRequest) -> Run:
    return run(small_scenario(0, physics=Physics(checkpoint_overhead=500_000)), request.param)


def rows_of(csv_file: Path) -> list[dict[str, str]]:
    with csv_file.open(newline="") as file:
        return list(csv.DictReader(file))


# -- which worker ------------------------------------------------------------------------------------------------------


def test_no_worker_is_held_twice_and_each_is_of_its_server_and_type(finished: Run) -> None:
    """Every row has as many workers as it says; the intervals of one worker do not overlap."""
    s, cluster, runs = finished.scenario, finished.scenario.cluster, finished.schedule.runs
    by_worker: dict[int, list[tuple[int, int]]] = {}
    for row, held in zip(runs.iter_rows(named=True), workers_of(s, runs), strict=True):
        assert len(set(held)) == len(held) == row["workers"]
        for worker in held:
            by_worker.setdefault(worker, []).append((row["start"], row["end"]))
            if worker < cluster.lanes:
                assert cluster.server_ids[cluster.lane_server[worker]] == row["server"]
                assert cluster.lane_type[worker] == s.jobs.worker_type[row["job"]]
            else:
                assert cluster.server_ids[cluster.cloud] == row["server"]
    for times in by_worker.values():
        times.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(times))


def test_a_job_that_goes_on_keeps_its_workers(finished: Run) -> None:
    """Where an allocation touches the one before, on a server that it keeps, none is exchanged for another."""
    runs = finished.schedule.runs
    held, seen = workers_of(finished.scenario, runs), 0
    of: dict[tuple[int, str, int], set[int]] = {}
    for row, workers in zip(runs.iter_rows(named=True), held, strict=True):
        if row["chunk"] is None:
            of.setdefault((row["job"], row["server"], row["end"]), set()).update(workers)
    starts: dict[tuple[int, str, int], set[int]] = {}
    for row, workers in zip(runs.iter_rows(named=True), held, strict=True):
        if row["chunk"] is None:
            starts.setdefault((row["job"], row["server"], row["start"]), set()).update(workers)
    for key, workers in starts.items():
        if key in of:
            assert len(workers & of[key]) == min(len(workers), len(of[key]))
            seen += 1
    assert seen or finished.policy in {"aonline", "fifo:rule=earliest_server", "srtf"}


# -- Batsim ------------------------------------------------------------------------------------------------------------


def batsim(record: Schedule) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    table = jobs_table(scenario(), record)
    return table.to_dicts(), summary(scenario(), record, table)


def test_the_lines_of_a_record_made_by_hand() -> None:
    """a holds both workers of s0 (0, 1) from 0 to 15, with a pause, b lane 2 from 3 to 10, c two of the cloud's."""
    a, b, c, d = batsim(gangs())[0]
    assert tuple(a) == COLUMNS
    times = ("submission_time", "starting_time", "finish_time", "execution_time", "waiting_time", "turnaround_time")
    assert [a[name] for name in times] == [0, 0, 15, 15, 0, 15]
    assert [b[name] for name in times] == [3, 3, 10, 7, 0, 7]
    assert [c[name] for name in times] == [4, 4, 12, 8, 0, 8]
    assert [d[name] for name in times] == [10, None, None, None, None, None]
    assert [job["allocated_resources"] for job in (a, b, c, d)] == ["0-1", "2", "4-5", ""]
    assert [job["final_state"] for job in (a, d)] == ["COMPLETED_SUCCESSFULLY", "REJECTED"]
    assert [job["success"] for job in (a, b, c, d)] == [1, 1, 1, 0]
    assert [job["requested_number_of_resources"] for job in (a, b, c, d)] == [2, 1, 2, 1]


def test_dispatched_chunks_have_the_numbers_of_their_lanes() -> None:
    """a on lanes 0 and 1, b on lane 0, c in the cloud; waiting and stretch of b: 4 - 3, 7 / 6."""
    a, b, c, _ = batsim(dispatched())[0]
    assert [job["allocated_resources"] for job in (a, b, c)] == ["0-1", "0", "4-5"]
    assert b["waiting_time"] == 1
    assert b["stretch"] == pytest.approx(7 / 6)


def test_the_summary_of_a_record_made_by_hand() -> None:
    """Edge workers are held 2 * 7 + 7 + 2 * 6 = 33 s of 4 * 15."""
    found = batsim(gangs())[1]
    assert list(found) == sorted(found)
    assert (found["makespan"], found["nb_computing_machines"]) == (15, 4)
    assert (found["time_computing"], found["time_idle"]) == (33, 27)
    assert [found[f"nb_jobs{which}"] for which in ("", "_finished", "_success", "_rejected")] == [4, 3, 3, 1]
    assert found["mean_turnaround_time"] == 10
    assert (found["max_waiting_time"], found["success_rate"]) == (0, 0.75)


def test_sets_of_numbers_are_written_as_intervals() -> None:
    assert intervals([0, 1, 2, 3, 7, 9, 10]) == "0-3 7 9-10"
    assert intervals([]) == ""


def test_every_job_has_a_line_that_agrees_with_the_metrics(finished: Run) -> None:
    """The mean turnaround time is the mean JCT, the makespan the last completion."""
    table = jobs_table(finished.scenario, finished.schedule)
    assert table["job_id"].to_list() == finished.scenario.jobs.ids
    done = table.filter(pl.col("success") == 1)
    assert done["turnaround_time"].mean() == pytest.approx(finished.metrics["jct_mean_s"])
    found = summary(finished.scenario, finished.schedule, table)
    assert found["makespan"] == finished.jobs["completion"].max() / 1e6
    held = finished.metrics["utilisation_mean"] * finished.metrics["makespan_s"] * finished.scenario.cluster.lanes
    assert found["time_computing"] == pytest.approx(held)


# -- Chrome trace ------------------------------------------------------------------------------------------------------


def test_every_run_is_there_once_on_each_of_its_workers(finished: Run) -> None:
    """Times as in the record [µs]; what Perfetto demands is there: ph, ts, pid, tid, and dur of complete events."""
    made = list(events(finished.scenario, finished.schedule))
    runs = [e for e in made if e.get("cat") == "run"]
    assert Counter(e["args"]["run"] for e in runs) == dict(enumerate(finished.schedule.runs["workers"]))
    rows = finished.schedule.runs.rows(named=True)
    for e in runs:
        row = rows[e["args"]["run"]]
        assert (e["ts"], e["dur"]) == (row["start"], row["end"] - row["start"])
        assert e["name"] == finished.scenario.jobs.ids[row["job"]]
    for e in made:
        assert {"ph", "pid", "tid"} <= set(e)
        assert e["ph"] == "M" or (isinstance(e["ts"], int) and e["ts"] >= 0)
        assert e["ph"] != "X" or e["dur"] > 0
        assert e["ph"] in {"M", "X", "b", "e"}


def test_events_of_a_thread_nest_or_follow_each_other(finished: Run) -> None:
    """Perfetto draws complete events of one thread as slices: they may not overlap by halves."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for e in events(finished.scenario, finished.schedule):
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], -(e["ts"] + e["dur"])))
    for slices in threads.values():
        ends: list[int] = []
        for start, end in sorted(slices):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or -end <= ends[-1]
            ends.append(-end)


def test_every_thread_and_process_with_events_has_a_name(finished: Run) -> None:
    made = list(events(finished.scenario, finished.schedule))
    named = {(e["pid"], e["tid"]) for e in made if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in made if e["ph"] == "X"} == named
    processes = {e["pid"]: e["args"]["name"] for e in made if e["name"] == "process_name"}
    assert set(processes.values()) == {"jobs", *finished.scenario.cluster.server_ids}
    assert {e["pid"] for e in made} <= set(processes)


def test_jobs_are_asynchronous_events_from_arrival_to_completion() -> None:
    pairs = [(e["ph"], e["name"], e["ts"]) for e in events(scenario(), gangs()) if e.get("cat") == "job"]
    assert pairs == [
        ("b", "a", 0), ("e", "a", 15_000_000), ("b", "b", 3_000_000), ("e", "b", 10_000_000),
        ("b", "c", 4_000_000), ("e", "c", 12_000_000),
    ]  # fmt: skip


# -- the command -------------------------------------------------------------------------------------------------------


def test_export_writes_batsims_files(skedge: Skedge, folder: Path, tmp_path: Path) -> None:
    told = skedge("export", folder, "--format", "batsim", "--out", tmp_path / "b")
    assert (told.code, told.err) == (0, "")
    rows = rows_of(tmp_path / "b" / "jobs.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [row["job_id"] for row in rows] == Run.load(folder).scenario.jobs.ids
    assert json.loads((tmp_path / "b" / "schedule.json").read_text())["nb_jobs"] == len(rows) == 25


def test_export_writes_one_valid_json_file_for_perfetto(skedge: Skedge, folder: Path, tmp_path: Path) -> None:
    assert skedge("export", folder, "--format", "chrome", "--out", tmp_path / "trace.json").code == 0
    made = json.loads((tmp_path / "trace.json").read_text())
    loaded = Run.load(folder)
    assert made["traceEvents"] == list(events(loaded.scenario, loaded.schedule))
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("form", ["batsim", "chrome"])
def test_export_says_in_one_sentence_what_is_wrong(skedge: Skedge, folder: Path, tmp_path: Path, form: str) -> None:
    """Something is there already; the folder is no run; the target cannot be made. Nothing is left behind."""
    there = tmp_path / "there"
    there.write_text("mine")
    for source, target, says in (
        (folder, there, "exists already"),
        (tmp_path, tmp_path / "x", "is not a run folder"),
        (folder, there / "below", "cannot be written"),
    ):
        told = skedge("export", source, "--format", form, "--out", target)
        assert told.code == 1
        assert says in told.words
    assert there.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
