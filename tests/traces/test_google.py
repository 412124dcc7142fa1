"""Google's trace of 2011: the original job events, and tables made of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.paths import TRACES
from skedge.core.errors import ScenarioError, TraceError
from skedge.scenario.file import load_scenario, scenario_from_dict
from skedge.traces.describe import describe
from skedge.traces.formats import read_trace
from skedge.traces.makers.synthetic import philly_like
from skedge.traces.makers.value_jobs import ValueRanges, value_jobs
from skedge.traces.readers.google import read_google_events, read_google_jobs

Skedge = Callable[..., Any]
ALL = ("passed", "failed", "killed")
REAL = TRACES / "google2011"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real trace is not here (it is not shipped)")

S = 1_000_000


def event(at_s: float, job: int, kind: int, cls: int = 0) -> str:
    """A row as Google writes it: 8 columns, no header, missing info blank."""
    return f"{int(at_s * S)},,{job},{kind},user=,{cls},name=,logical=\n"


FIRST = "".join(
    [
        event(0, 1, 0),  # there before the trace began
        event(600, 7, 0, 3),
        event(602, 7, 1, 3),
        event(603, 8, 0, 1),
        event(604, 8, 1, 1),
        event(610, 9, 0),  # killed before it ran
        event(611, 9, 5),
        event(620, 10, 0),
        event(621, 10, 1),  # runs on
        event(630, 11, 0, 2),
        event(631, 11, 1, 2),
        event(632, 11, 8, 2),  # an update ends nothing
        event(640, 8, 2, 1),  # evicted, and
    ]
)
SECOND = "".join(
    [
        event(641, 8, 0, 1),  # submitted once more,
        event(650, 8, 1, 1),
        event(700, 8, 4, 1),  # and finished
        event(702, 7, 3, 3),
        event(710, 11, 5, 2),
        event(720, 1, 4),
        event(730, 12, 0),
        event(731, 12, 1),
        event(740, 12, 2),  # evicted for good
        event(750, 13, 0),
        event(751, 13, 1),
        event(752, 13, 2),
        event(753, 13, 0),  # waits again
        f"{2**63 - 1},,14,0,user=,0,name=,logical=\n",  # after the trace's end
    ]
)
JOBS = {
    "id": ["7", "8", "11"],
    "submit_s": [0.0, 3.0, 30.0],
    "duration_s": [100.0, 96.0, 79.0],
    "gpus": [1, 1, 1],
    "status": ["failed", "passed", "killed"],
    "group": ["3", "1", "2"],
}
SKIPPED = {
    "no submission in the trace": 2,
    "never ran": 1,
    "still running": 2,
    "evicted or lost": 1,
}


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "job_events"
    folder.mkdir()
    (folder / "part-00000-of-00002.csv.gz").write_bytes(gzip.compress(FIRST.encode()))
    (folder / "part-00001-of-00002.csv").write_text(SECOND)
    return folder


def test_a_job_is_made_of_its_events_over_all_parts(parts: Path) -> None:
    """First submission, first start to last end, the last end's type; what is left out is counted by reason."""
    trace = read_google_events(parts, ALL)
    assert trace.frame.to_dict(as_series=False) == {**JOBS, "user": ["user="] * 3}
    assert trace.skipped == SKIPPED


def test_one_part_alone_is_read_too(parts: Path) -> None:
    """Of the first part 7, 8 and 11 have no end yet, but that 8 was evicted."""
    with pytest.raises(
        TraceError, match=r"no job is left \(1 no submission in the trace, 1 never ran, 3 still running, 1"
    ):
        read_google_events(parts / "part-00000-of-00002.csv.gz", ALL)


def test_a_table_of_jobs_says_the_same(tmp_path: Path) -> None:
    """CSV and Parquet of the same rows; a missing end is a job that runs on."""
    table = pl.DataFrame(
        {
            "job_id": [7, 8, 11, 10, 9, 12],
            "submit_us": [600 * S, 603 * S, 630 * S, 620 * S, 610 * S, 730 * S],
            "sched_class": [3, 1, 2, 0, 0, 0],
            "schedule_us": [602 * S, 604 * S, 631 * S, 621 * S, None, 731 * S],
            "end_us": [702 * S, 700 * S, 710 * S, None, 611 * S, 740 * S],
            "end_event": [3, 4, 5, None, 5, 2],
        }
    )
    table.write_csv(tmp_path / "j.csv")
    table.write_parquet(tmp_path / "j.parquet")
    for name in ("j.csv", "j.parquet"):
        trace = read_google_jobs(tmp_path / name, ALL)
        assert trace.frame.to_dict(as_series=False) == JOBS
        assert trace.skipped == {"never ran": 1, "still running": 1, "evicted or lost": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "has 3 columns; the mapping names 8: time, missing info, job ID"),
        (event(1, 2, 0) + event(1, 2, 9), "line 2, column event type: '9'; it must be a whole number from 0 to 8"),
        (event(1, 2, 0, 4), "line 1, column scheduling class: '4'; it must be a whole number from 0 to 3"),
        ("x,,1,0,u,0,n,l\n", "line 1, column time: 'x'; it must be a whole number >= 0"),
        ("", "no job is left (it is empty)"),
    ],
)
def test_wrong_events_are_one_error_that_names_line_column_and_value(text: str, message: str, tmp_path: Path) -> None:
    """By the file's own lines: there is no header."""
    path = tmp_path / "part-0.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as told:
        read_google_events(path, ALL)
    assert str(told.value).startswith(str(path))
    assert message in str(told.value)


def test_blank_lines_of_events_and_of_tables_of_jobs_are_left_out_and_counted(parts: Path, tmp_path: Path) -> None:
    """Everything else is as without them."""
    (parts / "part-00001-of-00002.csv").write_text(SECOND + "\n")
    trace = read_google_events(parts, ALL)
    assert trace.frame.drop("user").to_dict(as_series=False) == JOBS
    assert trace.skipped == {"blank line": 1, **SKIPPED}
    table = tmp_path / "j.csv"
    table.write_text("job_id,submit_us,sched_class,schedule_us,end_us,end_event\n7,6,3,7,9,4\n\n")
    assert read_google_jobs(table).skipped == {"blank line": 1}


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    """A folder without parts, Parquet that is none, a table without classes."""
    with pytest.raises(TraceError, match=r"has no file named part-\*"):
        read_google_events(tmp_path, ALL)
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(TraceError, match="cannot be read as Parquet"):
        read_google_jobs(tmp_path / "x.parquet", ALL)
    pl.DataFrame({"job_id": [1]}).write_parquet(tmp_path / "y.parquet")
    with pytest.raises(TraceError, match="column 'submit_us' is missing"):
        read_google_jobs(tmp_path / "y.parquet", ALL)


def test_the_classes_are_described(parts: Path, skedge: Skedge) -> None:
    """Jobs by scheduling class, for people and machines."""
    assert describe(read_trace(parts, "google-events", ALL))["groups"] == {"1": 1, "2": 1, "3": 1}
    words = ("--format", "google-events", "--statuses", "passed,failed,killed")
    assert skedge("trace", "describe", parts, *words, "--json").json["groups"] == {"1": 1, "2": 1, "3": 1}


@needs_real
def test_the_real_trace_has_the_published_classes() -> None:
    """Days 0 to 6: 150,096 jobs, of which 152 run on and 15 were evicted or lost."""
    trace = read_google_jobs(REAL / "bench_google2011_days0-6.parquet", ALL)
    assert trace.skipped == {"still running": 152, "evicted or lost": 15}
    assert len(trace.frame) + 152 + 15 == 150_096
    groups = describe(trace)["groups"]
    assert set(groups) == {"0", "1", "2", "3"}
    assert groups["3"] / len(trace.frame) == pytest.approx(0.0064, abs=0.002)


@needs_real
def test_the_small_real_table_is_read() -> None:
    """500 rows, all of which ended."""
    assert len(read_google_jobs(REAL / "test_google2011_500.csv", ALL).frame) == 500


def test_a_scenario_like_s4_is_made_with_its_arrivals(parts: Path, skedge: Skedge, tmp_path: Path) -> None:
    """Three jobs over 80 slots: the last at the beginning of the last one; classes 1 and 2 sensitive, 3 critical."""
    words = ("--format", "google-events", "--statuses", "passed,failed,killed", "--make", "pdors", "--servers", 3)
    told = skedge("trace", "convert", parts, *words, "--slots", 11, "--classes", "--out", tmp_path / "s", "--json").json
    assert told.pop("source")["rows"] == 27  # events, of which those of one job are merged
    assert told == {"scenario": str(tmp_path / "s" / "scenario.yaml"), "jobs": 3, "servers": 3}
    scenario = load_scenario(tmp_path / "s" / "scenario.yaml")
    assert scenario.physics.slots == 11
    assert (scenario.jobs.arrival / scenario.physics.slot).tolist() == pytest.approx([0, 1, 10])
    critical, sensitive, also = (utility.steepness for utility in scenario.jobs.utility if utility is not None)
    assert 4 <= critical <= 6
    assert 0.01 <= sensitive <= 1
    assert 0.01 <= also <= 1


@needs_real
def test_class_0_is_insensitive() -> None:
    """By the paper: 0 insensitive, 1 and 2 sensitive, 3 critical; of 500 real jobs each as its class says."""
    frame = read_google_jobs(REAL / "test_google2011_500.csv", ALL).frame
    jobs = value_jobs(frame, np.random.default_rng(0), slot_s=3600, ranges=ValueRanges(mix="classes"))
    steepness = jobs["utility_steepness"].to_numpy()
    group = frame["group"].to_numpy()
    assert (steepness[group == "0"] == 0).all()
    assert ((steepness[(group == "1") | (group == "2")] <= 1) & (steepness[(group == "1") | (group == "2")] > 0)).all()
    assert (steepness[group == "3"] >= 4).all()


def test_classes_ask_for_a_trace_that_has_them() -> None:
    """A Philly-like one has none; and shares that are none are refused by the file."""
    trace = philly_like(3, np.random.default_rng(0))
    with pytest.raises(TraceError, match="is no scheduling class; the trace must be Google's"):
        value_jobs(trace, np.random.default_rng(0), slot_s=3600, ranges=ValueRanges(mix="classes"))
    data = {
        "cluster": {"draw": {"servers": 1, "resources": {"gpu": 4, "cpu": 9, "memory": 99, "storage": 99}}},
        "workload": {"synthetic": {"jobs": 2}, "make": "pdors", "mix": [1, 2, 3]},
    }
    with pytest.raises(
        ScenarioError, match=r"workload.mix: \[1, 2, 3\]: it must be three shares from 0 to 1, or classes"
    ):
        scenario_from_dict(data, "f", Path())
