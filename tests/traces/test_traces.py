"""Trace readers, the trace frame and its description."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from builders.paths import TRACES
from skedge.core.errors import TraceError
from skedge.traces.describe import describe, rows
from skedge.traces.formats import FORMATS, read_trace
from skedge.traces.frame import TRACE_SCHEMA, check_frame, stretched
from skedge.traces.readers.philly import read_machines, read_philly_csv, read_philly_log
from skedge.traces.readers.swf import read_swf

ALL = ("passed", "failed", "killed")
REAL = TRACES / "philly"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces are not here (they are not shipped)")


def frame(**columns: list) -> pl.DataFrame:
    base = {
        "id": ["a", "b", "c"],
        "submit_s": [0.0, 5.0, 5.0],
        "duration_s": [10.0, 20.0, 30.0],
        "gpus": [1, 2, 4],
        "status": ["passed", "failed", "killed"],
        "group": ["x", "x", "y"],
    }
    return pl.DataFrame({**base, **columns})


def attempt(start, end, *gpus_by_machine):
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus_by_machine)]
    return {"start_time": start, "end_time": end, "detail": detail}


def logged(jobid, submitted, *attempts, status="Pass", vc="v1"):
    return {
        "status": status,
        "vc": vc,
        "jobid": jobid,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u",
    }


LOG = [
    # two attempts on 8 GPUs over two machines: 60 s + 120 s of running, submitted second
    logged(
        "twice",
        "2017-10-07 01:00:30",
        attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", 8),
        attempt("2017-10-07 02:00:00", "2017-10-07 02:02:00", 4, 4),
    ),
    logged("first", "2017-10-07 01:00:00", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10", 1), status="Failed"),
    logged("never", "2017-10-07 01:00:10", status="Killed"),
    logged("unlogged", "2017-10-07 01:00:20", attempt("None", "2017-10-07 01:00:10", 1)),
    logged("runs on", "2017-10-07 01:00:20", attempt("2017-10-07 01:00:30", None, 1), status="Killed"),
    logged("when", "None", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10", 1)),
    logged("grew", "2017-10-07 01:10:00",
           attempt("2017-10-07 01:10:00", "2017-10-07 01:10:01", 2),
           attempt("2017-10-07 01:10:05", "2017-10-07 01:10:07", 4)),
]  # fmt: skip


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def write_log(tmp_path: Path, jobs=LOG) -> Path:
    return write(tmp_path / "cluster_job_log", json.dumps(jobs))


# --- the frame


def test_a_sound_frame_is_taken_with_exactly_its_columns():
    assert check_frame(frame(extra=[1, 2, 3]), "x").schema == pl.Schema(TRACE_SCHEMA)


@pytest.mark.parametrize(
    ("column", "values", "row", "shown"),
    [
        ("duration_s", [10.0, float("nan"), 1.0], 1, "nan"),
        ("duration_s", [10.0, 1.0, -3.0], 2, "-3.0"),
        ("duration_s", [float("inf"), 1.0, 1.0], 0, "inf"),
        ("submit_s", [0.0, -1.0, 5.0], 1, "-1.0"),
        ("submit_s", [0.0, 7.0, 5.0], 2, "5.0"),
        ("gpus", [1, 0, 1], 1, "0"),
        ("id", ["a", "b", "b"], 1, "'b'"),
        ("status", ["passed", "Pass", "failed"], 1, "'Pass'"),
        ("group", ["x", None, "x"], 1, "None"),
    ],
)
def test_a_wrong_value_is_refused_with_source_row_column_and_value(column, values, row, shown):
    with pytest.raises(TraceError, match=rf"^here: row {row}, column {column}: {shown}; it must be"):
        check_frame(frame(**{column: values}), "here")


def test_a_missing_column_is_named():
    with pytest.raises(TraceError, match="here: column 'gpus' is missing"):
        check_frame(frame().drop("gpus"), "here")


def test_stretching_scales_every_gap_alike():
    assert stretched(frame(submit_s=[0.0, 1.0, 4.0]), 100.0)["submit_s"].to_list() == [0.0, 25.0, 100.0]


@pytest.mark.parametrize("span", [0.0, -1.0, float("nan"), float("inf")])
def test_a_span_must_be_positive_and_finite(span):
    with pytest.raises(TraceError, match="span_s"):
        stretched(frame(), span)


# --- Philly's job log


def test_a_logged_job_has_its_largest_attempts_gpus_and_its_attempts_added_run_time(tmp_path):
    jobs = read_philly_log(write_log(tmp_path), ALL).frame
    by_id = {row["id"]: row for row in jobs.iter_rows(named=True)}
    assert list(by_id) == ["first", "twice", "grew"]
    assert by_id["twice"] == {
        "id": "twice", "submit_s": 30.0, "duration_s": 180.0, "gpus": 8, "status": "passed", "group": "v1",
        "user": "u",
    }  # fmt: skip
    assert (by_id["grew"]["gpus"], by_id["grew"]["duration_s"]) == (4, 3.0)
    assert by_id["first"]["status"] == "failed"


def test_logged_jobs_that_cannot_be_replayed_are_left_out_and_counted(tmp_path):
    trace = read_philly_log(write_log(tmp_path), ALL)
    assert trace.skipped == {"never ran": 2, "still running": 1, "no submission time": 1}


def test_only_passed_jobs_are_taken_unless_asked_and_time_starts_at_the_first_of_them(tmp_path):
    trace = read_philly_log(write_log(tmp_path))
    assert trace.frame["id"].to_list() == ["twice", "grew"]
    assert trace.frame["submit_s"].to_list() == [0.0, 570.0]
    assert trace.skipped["other status"] == 1


def test_a_gzipped_log_reads_like_the_plain_one(tmp_path):
    packed = tmp_path / "cluster_job_log.gz"
    packed.write_bytes(gzip.compress(json.dumps(LOG).encode()))
    assert read_philly_log(packed, ALL).frame.equals(read_philly_log(write_log(tmp_path), ALL).frame)


def test_truncated_json_is_one_error_with_file_and_position(tmp_path):
    path = write(tmp_path / "log", json.dumps(LOG, indent=1)[:300])
    line = json.dumps(LOG, indent=1)[:300].count("\n") + 1
    with pytest.raises(TraceError, match=rf"log: .*EOF.* at line {line} column \d+") as caught:
        read_philly_log(path)
    assert "\n" not in str(caught.value)


def test_a_log_broken_off_inside_its_compression_is_refused(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(json.dumps(LOG).encode())[:60])
    with pytest.raises(TraceError, match=r"log\.gz: is not a whole gzip file"):
        read_philly_log(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"submitted_time": "yesterday"}, r"jobs\.1: time 'yesterday'"),
        ({"status": "Lost"}, r"jobs\.1\.status"),
        ({"jobid": "twice"}, "column id: 'twice'; it must be unique"),
    ],
)
def test_a_wrong_logged_job_is_named(tmp_path, change, message):
    jobs = [LOG[0], {**LOG[1], **change}]
    with pytest.raises(TraceError, match=message):
        read_philly_log(write_log(tmp_path, jobs), ALL)


def test_a_logged_job_without_a_key_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"jobs\.0\.vc: Field required"):
        read_philly_log(write_log(tmp_path, [{k: v for k, v in LOG[0].items() if k != "vc"}]))


def test_a_missing_file_is_an_error_of_its_own(tmp_path):
    with pytest.raises(TraceError, match="nowhere: cannot be read: No such file"):
        read_philly_log(tmp_path / "nowhere")


# --- the derived CSVs

PASSED_CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-02 00:01:55,108.0,1,108.0,11cb48
2017-10-02 00:01:50,7.5,8,60.0,b436b2
2017-10-03 00:01:50,0.0,1,0.0,b436b2
"""
EVERY = """u_id,submit_time,user,gpu_num,node_num,run_time,new_status
j0,2017-08-07 10:03:01,1,1,1,1389243,Killed
j1,2017-08-07 10:03:02,2,8,4,14405,Failed
j2,2017-08-08 10:03:01,3,16,2,66,Pass
"""


def test_the_csv_of_passed_jobs_is_sorted_and_numbered_by_its_rows(tmp_path):
    trace = read_philly_csv(write(tmp_path / "t.csv", PASSED_CSV))
    assert trace.frame.rows() == [
        ("1", 0.0, 7.5, 8, "passed", "b436b2"),
        ("0", 5.0, 108.0, 1, "passed", "11cb48"),
    ]
    assert trace.skipped == {"no run time": 1}


def test_the_csv_of_all_jobs_gives_the_statuses_asked_for(tmp_path):
    path = write(tmp_path / "t.csv", EVERY)
    assert read_philly_csv(path).frame.rows() == [("j2", 0.0, 66.0, 16, "passed", "3", "3")]
    both = read_philly_csv(path, ("killed", "failed")).frame
    assert both.rows() == [("j0", 0.0, 1389243.0, 1, "killed", "1", "1"), ("j1", 1.0, 14405.0, 8, "failed", "2", "2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PASSED_CSV.replace("num_gpus", "gpus"), "line 1: column 'num_gpus' is missing"),
        (EVERY.replace("gpu_num", "gpus"), "line 1: column 'gpu_num' is missing"),
        (PASSED_CSV.replace("7.5", "NaN"), "line 3, column duration: 'NaN'"),
        (PASSED_CSV.replace("7.5", "an hour"), "line 3, column duration: 'an hour'; it must be a number"),
        (PASSED_CSV.replace(",8,", ",-8,"), "line 3, column num_gpus: '-8'; it must be a number >= 0"),
        (PASSED_CSV.replace(",8,", ",many,"), "line 3, column num_gpus: 'many'"),
        (PASSED_CSV.replace("2017-10-02 00:01:50", "2 Oct"), "line 3, column timestamp: '2 Oct'"),
        (EVERY.replace("Failed", "Lost"), "line 3, column new_status: 'Lost'; it must be one of Pass, Failed, Killed"),
        (EVERY.replace("j1", "j0"), "column id: 'j0'; it must be unique"),
        ("", "cannot be read as CSV"),
    ],
)
def test_a_wrong_csv_is_refused_with_file_line_column_and_value(tmp_path, text, message):
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(TraceError, match=message) as caught:
        read_philly_csv(path, ALL)
    assert str(caught.value).startswith(str(path))


def test_no_job_of_the_statuses_asked_for_is_an_error_that_says_what_there_was(tmp_path):
    with pytest.raises(TraceError, match=r"no job is left \(1 no run time, 2 other status\); statuses taken: killed"):
        read_philly_csv(write(tmp_path / "t.csv", PASSED_CSV), ("killed",))


def test_an_unknown_status_is_refused(tmp_path):
    with pytest.raises(TraceError, match="'Pass' is not a status; there are passed, failed, killed"):
        read_philly_csv(write(tmp_path / "t.csv", PASSED_CSV), ("Pass",))


# --- rows that are left out, or taken as an option says


def test_a_blank_line_at_the_end_of_a_csv_is_left_out_and_counted(tmp_path):
    """Pollux's public copy of Philly's CSV ends with one; lines in between keep their numbers."""
    trace = read_philly_csv(write(tmp_path / "t.csv", PASSED_CSV + "\n"))
    assert trace.frame["id"].to_list() == ["1", "0"]
    assert trace.skipped == {"blank line": 1, "no run time": 1}
    wrong = PASSED_CSV.replace("\n2017-10-02 00:01:50,7.5", "\n\n2017-10-02 00:01:50,never")
    with pytest.raises(TraceError, match="line 4, column duration: 'never'"):
        read_philly_csv(write(tmp_path / "t.csv", wrong))


@pytest.mark.parametrize(
    ("value", "reason"),
    [(("7.5", "-3600"), "ends before it starts"), (("7.5", ""), "no run time"), ((",8,", ",0,"), "no GPU"),
     ((",8,", ",,"), "no GPU"), ((",8,", ",0.5,"), "fraction of a GPU"), ((",8,", ",1.5,"), "fraction of a GPU")],
)  # fmt: skip
def test_a_csv_row_that_cannot_be_replayed_is_left_out_and_counted(tmp_path, value, reason):
    trace = read_philly_csv(write(tmp_path / "t.csv", PASSED_CSV.replace(*value)))
    assert trace.frame["id"].to_list() == ["0"]
    assert trace.skipped[reason] == (2 if reason == "no run time" else 1)
    assert trace.rows == 3


def test_a_fraction_of_a_gpu_is_rounded_up_and_counted_where_the_option_says_so(tmp_path):
    trace = read_trace(write(tmp_path / "t.csv", PASSED_CSV.replace(",8,", ",0.5,")), "philly-csv", fractional="ceil")
    assert trace.frame["gpus"].to_list() == [1, 1]
    assert trace.changed == {"fraction of a GPU rounded up": 1}
    assert describe(trace)["changed"] == trace.changed


def test_a_logged_job_with_a_null_virtual_cluster_is_taken_in_no_group_and_counted(tmp_path):
    trace = read_philly_log(write_log(tmp_path, [{**LOG[0], "vc": None}, LOG[1]]), ALL)
    assert trace.frame.rows_by_key("id", named=True)["twice"][0]["group"] == ""
    assert (len(trace.frame), trace.changed) == (2, {"no virtual cluster": 1})


def test_an_attempt_with_a_null_detail_ran_on_no_machine_and_is_counted(tmp_path):
    """The job keeps its other attempt: 60 s on 8 GPUs; a job of such attempts alone never ran."""
    nameless = {**attempt("2017-10-07 02:00:00", "2017-10-07 02:02:00"), "detail": None}
    jobs = [{**LOG[0], "attempts": [LOG[0]["attempts"][0], nameless]}, {**LOG[1], "attempts": [nameless]}]
    trace = read_philly_log(write_log(tmp_path, jobs), ALL)
    assert trace.frame.select("id", "duration_s", "gpus").rows() == [("twice", 60.0, 8)]
    assert trace.skipped == {"never ran": 1}
    assert trace.changed == {"attempt without machines not counted": 1}


def test_a_job_with_an_attempt_that_ends_before_it_starts_is_left_out_and_counted(tmp_path):
    """The clocks went back on 5 November 2017: 01:50 to 01:10 lasted 20 minutes, which the log cannot tell."""
    back = attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00", 1)
    trace = read_philly_log(write_log(tmp_path, [LOG[0], {**LOG[1], "attempts": [back]}]), ALL)
    assert trace.frame["id"].to_list() == ["twice"]
    assert trace.skipped == {"attempt ends before it starts": 1}


def test_a_fraction_of_a_processor_in_swf_is_left_out_or_rounded_up(tmp_path):
    path = write(tmp_path / "log.swf", SWF.replace("50 4 -1 -1 8", "50 4 -1 -1 2.5") + "\n")
    assert read_swf(path, ALL).skipped["fraction of a processor"] == 1
    taken = read_swf(path, ALL, "ceil")
    assert (taken.frame["gpus"].to_list()[0], taken.changed) == (3, {"fraction of a processor rounded up": 1})


# --- machine lists


def test_both_forms_of_the_machine_list_are_read(tmp_path):
    original = write(tmp_path / "a", "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\nm100,8, 24GB\n")
    revised = write(tmp_path / "b.csv", ",machineId,number of GPUs\n0,m0,8\n1,m1,0\n")
    assert read_machines(original).rows() == [("m0", 2), ("m100", 8)]
    assert read_machines(revised).rows() == [("m0", 8), ("m1", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machineId,GPUs\nm0,2\n", "line 1: column 'number of GPUs' is missing"),
        ("machineId,number of GPUs\nm0,2\nm1,two\n", "line 3, column number of GPUs: 'two'"),
        ("machineId,number of GPUs\nm0,2\nm0,2\n", "line 2, column machineId: 'm0'; it must be unique"),
        ("machineId,number of GPUs\nm0,0\n", "no machine has a GPU"),
    ],
)
def test_a_wrong_machine_list_is_refused(tmp_path, text, message):
    with pytest.raises(TraceError, match=message):
        read_machines(write(tmp_path / "m.csv", text))


# --- the Standard Workload Format


def swf_line(*fields: float) -> str:
    job, submit, run, allocated, requested, status = fields
    return f"{job} {submit} 3 {run} {allocated} -1 -1 {requested} -1 -1 {status} 7 1 1 1 1 -1 -1\n"


SWF = (
    "; Version: 2.2\n;   MaxProcs: 64\n\n"
    + swf_line(1, 100, 50, 4, 8, 1)
    + swf_line(2, 110, 60.5, 4, -1, 0)
    + swf_line(3, 120, 70, 2, 2, 5)
    + swf_line(4, 130, -1, 2, 2, 1)
    + swf_line(5, 140, 10, -1, -1, 1)
    + swf_line(6, 150, 10, 1, 1, 2)
    + swf_line(7, 160, 0, 1, 1, 1)
)


def test_swf_jobs_have_requested_else_allocated_processors_and_their_status(tmp_path):
    trace = read_swf(write(tmp_path / "log.swf", SWF), ALL)
    assert trace.frame.rows() == [
        ("1", 0.0, 50.0, 8, "passed", "7", "7"),
        ("2", 10.0, 60.5, 4, "failed", "7", "7"),
        ("3", 20.0, 70.0, 2, "killed", "7", "7"),
    ]
    assert trace.skipped == {"partial execution": 1, "no run time": 2, "processors unknown": 1}


def test_a_truncated_swf_line_is_refused_with_its_number(tmp_path):
    with pytest.raises(TraceError, match=r"log\.swf: line 10: has 5 fields; a job has 18"):
        read_swf(write(tmp_path / "log.swf", SWF[: SWF.rindex("160")] + "160 3 0 1"))


def test_a_wrong_swf_number_is_refused_with_line_and_column(tmp_path):
    with pytest.raises(TraceError, match="line 5, column run_s: 'nan'"):
        read_swf(write(tmp_path / "log.swf", SWF.replace("60.5", "nan")))


def test_formats_are_read_by_name_and_an_unknown_one_is_refused(tmp_path):
    path = write(tmp_path / "log.swf", SWF)
    assert read_trace(path, "swf", ALL).frame.equals(read_swf(path, ALL).frame)
    known = ", ".join(FORMATS)
    with pytest.raises(TraceError, match=f"format 'csv' is unknown; there are {known}"):
        read_trace(path, "csv")


# --- what is in a trace


def test_the_description_is_what_a_hand_counts():
    figures = describe(frame(submit_s=[0.0, 0.0, 7200.0]), gpus=10)
    # 10·1 + 20·2 + 30·4 = 170 GPU-seconds over 7,200 s; gaps 0 and 7,200: mean and deviation 3,600;
    # hours hold 2, 0, 1 jobs: mean 1, variance 2/3
    assert figures["jobs"] == 3
    assert figures["span_s"] == 7200
    assert figures["gpu_hours"] == pytest.approx(170 / 3600)
    assert figures["load"] == pytest.approx(170 / 7200 / 10)
    assert (figures["gap_s"]["cv"], figures["gap_s"]["zero"]) == (1.0, 0.5)
    assert figures["hour"]["dispersion"] == pytest.approx(2 / 3)
    assert figures["gpus"] == {"1": 1, "2": 1, "4": 1}
    assert figures["duration_s"]["p50"] == 20
    assert ("duration_s p50", "20") in rows(figures)


def test_a_trace_of_one_job_can_be_described():
    figures = describe(frame().head(1), gpus=1)
    assert figures["load"] is None
    assert all(isinstance(value, str) for _, value in rows(figures))


# --- the real files


@needs_real
def test_all_jobs_of_the_real_csv_have_the_published_figures():
    figures = describe(read_philly_csv(REAL / "philly15k_anchored.csv.gz", ALL))
    assert figures["statuses"] == {"failed": 4509, "killed": 1953, "passed": 8538}
    assert figures["gap_s"]["cv"] == pytest.approx(18.24, abs=0.005)
    assert figures["hour"]["dispersion"] == pytest.approx(160.3, abs=0.05)
    assert figures["hour"]["lag1"] == pytest.approx(0.62, abs=0.005)
    assert figures["duration_s"]["p50"] == 289
    assert figures["gpus"]["8"] == 1477


@needs_real
def test_the_real_passed_jobs_and_machine_lists_are_read_whole():
    assert len(read_philly_csv(REAL / "bench_philly_2017-10-02_11-05.csv.gz").frame) == 49_875
    machines = read_machines(REAL / "cluster_machine_list")
    assert (len(machines), machines["gpus"].sum()) == (552, 2490)
    assert read_machines(REAL / "revised_machine_list.csv")["gpus"].sum() == 3205
