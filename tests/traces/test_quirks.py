"""What public dumps of traces really contain, by format: each loads right, or ends in one sentence.

A row of a table has a name, the content of the file, and what is right: the jobs by (id, submission, duration, GPUs,
status) and the rows omitted, by reason; or the sentence. All values are worked out by hand.
"""

from __future__ import annotations

import codecs
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skedge.core.errors import TraceError
from skedge.scenario.mapping_file import mapping_of
from skedge.traces.formats import read_trace
from skedge.traces.readers.mapping import TraceMapping

ALL = ("passed", "failed", "killed")


class Loads(NamedTuple):
    """The jobs that a file has, rows omitted, jobs changed, and the treatment of fractions."""

    jobs: list[tuple[Any, ...]]
    skipped: dict[str, int] = {}  # noqa: RUF012 - never changed
    changed: dict[str, int] = {}  # noqa: RUF012
    fractional: str = "skip"


def check(path: Path, form: str | TraceMapping, content: str | bytes, right: Loads | str) -> None:
    """Read `content` in the format `form`, and compare."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if isinstance(right, str):
        with pytest.raises(TraceError) as error:
            read_trace(path, form, ALL)
        said = str(error.value)
        assert said.startswith(str(path))
        assert right in said
        assert "\n" not in said
        return
    trace = read_trace(path, form, ALL, right.fractional)
    columns = ("id", "submit_s", "duration_s", "gpus", "status")
    assert trace.frame.select(columns).rows() == right.jobs
    assert (trace.skipped, trace.changed) == (right.skipped, right.changed)


def named(rows: list[tuple[str, str | bytes, Loads | str]]) -> Any:
    """The parameters of a table of quirks."""
    assert len({name for name, _, _ in rows}) == len(rows)
    return pytest.mark.parametrize(("content", "right"), [pytest.param(*row[1:], id=row[0]) for row in rows])


# --- any table of jobs

SIMPLE = mapping_of(
    {"arrival": "at", "duration": "run", "gpus": "gpus", "id": "id", "user": "who", "status": "end"}, "a mapping"
)
HEAD = "id,at,run,gpus,who,end\n"
GOOD = "a,0,60,1,x,passed\nb,30,10,2,y,failed\n"
A, B = ("a", 0.0, 60.0, 1, "passed"), ("b", 30.0, 10.0, 2, "failed")
BOTH = Loads([A, B])


def plus(row: str, **skipped: int) -> tuple[str, Loads]:
    """A file with one more row, which is left out."""
    return HEAD + GOOD + row + "\n", Loads([A, B], {name.replace("_", " "): n for name, n in skipped.items()})


def at(first: str, second: str) -> str:
    """The file with these submissions, which are 30 s apart."""
    return HEAD + GOOD.replace("a,0,", f'a,"{first}",').replace("b,30,", f'b,"{second}",')


def ran(text: str) -> str:
    """The file with this running time of the first job."""
    return HEAD + GOOD.replace(",60,", f',"{text}",')


def lasting(seconds: float) -> Loads:
    return Loads([("a", 0.0, seconds, 1, "passed"), B])


ENCODINGS: list[tuple[str, str | bytes, Loads | str]] = [
    ("gzip without its suffix", gzip.compress((HEAD + GOOD).encode()), BOTH),
    ("a byte order mark within gzip", gzip.compress(codecs.BOM_UTF8 + (HEAD + GOOD).encode()), BOTH),
    ("gzip within gzip", gzip.compress(gzip.compress((HEAD + GOOD).encode())), BOTH),
    ("half a gzip file", gzip.compress((HEAD + GOOD).encode())[:30], "is not a whole gzip file"),
    ("a zip archive", b"PK\x03\x04rest", "is a zip archive or an Excel workbook; it must be text in UTF-8"),
    ("bzip2", b"BZh9rest", "is compressed by bzip2; it must be text in UTF-8"),
    ("xz", b"\xfd7zXZ\x00rest", "is compressed by xz"),
    ("zstd", b"\x28\xb5\x2f\xfdrest", "is compressed by zstd"),
    ("Parquet", b"PAR1rest", "is a Parquet file"),
    ("UTF-16", (HEAD + GOOD).encode("utf-16"), "is text in UTF-16"),
    ("Latin-1", (HEAD + GOOD).replace("x,", "é,").encode("latin-1"), "line 2: byte 0xe9: is not UTF-8"),
    ("lines of an old Mac", (HEAD + GOOD).replace("\n", "\r"), BOTH),
    ("lines of Windows", (HEAD + GOOD).replace("\n", "\r\n"), BOTH),
    ("nothing", "", "cannot be read as CSV: it is empty"),
    ("blank lines alone", "\n \n", "cannot be read as CSV: it is empty"),
    ("a header alone", HEAD, "no job is left (it is empty)"),
]

LAYOUTS: list[tuple[str, str | bytes, Loads | str]] = [
    ("blank lines above the header", "\n\n" + HEAD + GOOD, BOTH),
    ("blank lines above count", "\n\n" + HEAD + GOOD + "c,9,x,1,x,ok\n", "line 6, column run: 'x'"),
    ("lines in quotes count", HEAD + 'a,0,60,1,"x\ny",ok\nc,9,x,1,x,ok\n', "line 4, column run: 'x'"),
    ("a row with more values", HEAD + GOOD + "c,1,2,3,4,5,6\n", "line 4: has 7 values; the file has 6 columns"),
    ("the first row has more", HEAD + "a,0,60,1,x, y,passed\n", "line 2: has 7 values; the file has 6 columns"),
    ("a row cut off", HEAD + GOOD + "c,1,2", "line 4: has 3 values; the file has 6 columns"),
    ("a comment", HEAD + "# of May\n" + GOOD, "line 2: has 1 value; the file has 6 columns"),
    ("a count at the end, as of psql", HEAD + GOOD + "(2 rows)\n", "line 4: has 1 value"),
    ("a separator in quotes", HEAD + GOOD.replace(",x,", ',"x, ""y""",'), BOTH),
    ("a separator after every line", (HEAD + GOOD).replace("\n", ",\n"), BOTH),
    ("a column of numbers without a name", ("," + HEAD + "0," + GOOD).replace("\nb", "\n1,b"), BOTH),
    ("the header again", HEAD + GOOD + HEAD, Loads([A, B], {"header again": 1})),
    ("another separator", (HEAD + GOOD).replace(",", ";"), "stands between columns, as ';' may"),
    ("tabs", (HEAD + GOOD).replace(",", "\t"), "column 'at' is missing"),
    ("an id twice", HEAD + GOOD + "a,40,1,1,x,ok\n", "line 2, column id: 'a'; it must be unique; it is used twice"),
]

SENTINELS: list[tuple[str, str | bytes, Loads | str]] = [
    ("no id", *plus(",40,5,1,x,ok", no_id=1)),
    ("an id NULL", *plus("NULL,40,5,1,x,ok", no_id=1)),
    ("no status", *plus("c,40,5,1,x,", no_status=1)),
    ("a status None", *plus("c,40,5,1,x,None", no_status=1)),
    ("a submission of -1", *plus("c,-1,5,1,x,ok", no_submission_time=1)),
    ("a submission of pandas' NaT", *plus("c,-9223372036854775808,5,1,x,ok", no_submission_time=1)),
    ("a duration of MySQL's null", *plus("c,40,\\N,1,x,ok", no_run_time=1)),
    ("a duration <NA>", *plus("c,40,<NA>,1,x,ok", no_run_time=1)),
    ("a duration of -1", *plus("c,40,-1,1,x,ok", ends_before_it_starts=1)),
    ("a duration without a limit", *plus("c,40,UNLIMITED,1,x,ok", no_run_time=1)),
    ("GPUs -1", *plus("c,40,5,-1,x,ok", no_GPU=1)),
    ("GPUs N/A", *plus("c,40,5,N/A,x,ok", no_GPU=1)),
    ("no user", HEAD + GOOD.replace(",x,", ",,"), BOTH),
    ("a state of Kubernetes", *plus("c,40,5,1,x,Pending", status_to_skip=1)),
    ("GPUs with an exponent", HEAD + GOOD.replace(",2,", ",2e0,"), BOTH),
    ("GPUs of a float", HEAD + GOOD.replace(",2,", ",2.0000000000000004,"), BOTH),
    ("GPUs with a unit", HEAD + GOOD.replace(",2,", ",2 GPUs,"), "line 3, column gpus: '2 GPUs'; it must be a number"),
    ("a thousands separator", ran("1,000"), "line 2, column run: '1,000'; it must be a number"),
    ("a decimal comma", ran("1,5"), "line 2, column run: '1,5'; it must be a number"),
]

TIMES: list[tuple[str, str | bytes, Loads | str]] = [
    ("T between", at("2024-02-29T23:59:50", "2024-03-01T00:00:20"), BOTH),
    ("Z at the end", at("2024-02-29T23:59:50Z", "2024-03-01T00:00:20Z"), BOTH),
    ("GMT and UTC", at("2024-02-29 23:59:50 GMT", "2024-03-01 00:00:20 UTC"), BOTH),
    ("offsets that differ", at("2024-02-29 23:59:50+00:00", "2024-03-01 08:00:20+08"), BOTH),
    (
        "offsets of some",
        at("2024-02-29 23:59:50", "2024-03-01 08:00:20+08"),
        "line 2, column at: '2024-02-29 23:59:50'; it must be a time with its offset from UTC, as other rows have it",
    ),
    ("slashes", at("2024/02/29 23:59:50", "2024/3/1 0:00:20"), BOTH),
    ("fractions of some", at("2024-02-29 23:59:50", "2024-03-01 00:00:20.000000"), BOTH),
    ("a comma before the fraction", at("2024-02-29 23:59:50,250", "2024-03-01 00:00:20,250"), BOTH),
    ("nanoseconds", at("2024-02-29T23:59:50.123456789Z", "2024-03-01T00:00:20.123456789Z"), BOTH),
    ("without separators", at("20240229T235950Z", "20240301T000020Z"), BOTH),
    ("another order", at("2/29/2024 23:59", "3/1/2024 00:00"), "'2/29/2024 23:59'; it must be a time like 2020-04-01"),
    (
        "twelve hours",
        at("2024-02-29 11:59:50 PM", "2024-03-01 00:00:20"),
        "'2024-02-29 11:59:50 PM'; it must be a time",
    ),
    ("the 30th of February", at("2024-02-30 00:00:00", "2024-03-01 00:00:20"), "'2024-02-30 00:00:00'; it must be a"),
    (
        "MySQL's zero",
        at("0000-00-00 00:00:00", "2024-03-01 00:00:20"),
        Loads([("b", 0.0, 10.0, 2, "failed")], {"no submission time": 1}),
    ),
    (
        "the year 9999",
        at("9999-12-31 23:59:59", "2024-03-01 00:00:20"),
        Loads([("b", 0.0, 10.0, 2, "failed")], {"no submission time": 1}),
    ),
    ("a word among numbers", HEAD + GOOD + "c,soon,5,1,x,ok\n", "line 4, column at: 'soon'; it must be a number"),
    (
        "milliseconds since 1970",
        at("1714557600000", "1714557630000"),
        "column at: 1.715e+12 s; `time` must be the unit",
    ),
    ("Slurm's clock", ran("1-02:03:04"), lasting(93784)),
    ("minutes and seconds", ran("01:30"), lasting(90)),
    ("days and hours", ran("1-02"), lasting(93600)),
    ("hours, minutes, seconds", ran("100:00:00.5"), lasting(360000.5)),
    ("pandas' timedelta", ran("0 days 00:01:00.500000"), lasting(60.5)),
    (
        "pandas' negative timedelta",
        ran("-1 days +23:59:50"),
        Loads([("b", 0.0, 10.0, 2, "failed")], {"ends before it starts": 1}),
    ),
    ("Python's timedelta", ran("1 day, 2:03:04"), lasting(93784)),
    ("ISO 8601", ran("PT1H2M3.5S"), lasting(3723.5)),
    ("units", ran("1h30m"), lasting(5400)),
    ("four numbers of a clock", ran("1:2:3:4"), "'1:2:3:4'; it must be a number, or a duration like 02:03:04"),
]


@named([*ENCODINGS, *LAYOUTS, *SENTINELS, *TIMES])
def test_a_table_of_jobs(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "jobs.csv", SIMPLE, content, right)


# --- Slurm

SACCT = "JobIDRaw|User|Submit|Start|End|State|AllocTRES\n"
RAN = "2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:31:00"
ROW = f"1|u|{RAN}|COMPLETED|cpu=1,gres/gpu=1\n"
ONE = ("1", 0.0, 1800.0, 1, "passed")


def by_name(*rows: str) -> str:
    """Accounts with JobID, as sacct prints it by default."""
    return SACCT.replace("JobIDRaw", "JobID") + "".join(rows)


def slurm(name: str, gpus: int = 1, status: str = "passed", run: float = 1800.0) -> tuple[Any, ...]:
    return (name, 0.0, run, gpus, status)


SLURM: list[tuple[str, str | bytes, Loads | str]] = [
    ("a separator at the end (-p)", SACCT.replace("\n", "|\n") + ROW.replace("\n", "|\n"), Loads([ONE])),
    (
        "tasks of an array",
        by_name(
            ROW.replace("1|", "5_1|", 1),
            ROW.replace("1|", "5_2|", 1),
            "5_[3-9%2]|u|2024-05-01T10:00:00|Unknown|Unknown|PENDING|\n",
        ),
        Loads([slurm("5_1"), slurm("5_2")], {"status to skip": 1}),
    ),
    (
        "components of a heterogeneous job",
        by_name(
            f"7+0|u|{RAN}|COMPLETED|gres/gpu=4\n",
            f"7+1|u|{RAN}|COMPLETED|gres/gpu=2\n",
            f"7+0.batch||{RAN}|COMPLETED|gres/gpu=4\n",
        ),
        Loads([slurm("7", 6)], {"step of a job": 1}),
    ),
    (
        "a component that still runs",
        by_name(
            ROW,
            f"7+0|u|{RAN}|COMPLETED|gres/gpu=4\n",
            "7+1|u|2024-05-01T10:00:00|2024-05-01T10:01:00|Unknown|RUNNING|gres/gpu=2\n",
        ),
        Loads([ONE], {"status to skip": 1}),
    ),
    ("cancelled by a user", SACCT + ROW.replace("COMPLETED", "CANCELLED by 1000"), Loads([slurm("1", 1, "killed")])),
    (
        "cancelled before it began",
        SACCT + ROW + "2|u|2024-05-01T10:00:00|None|2024-05-01T10:05:00|CANCELLED by 0|\n",
        Loads([ONE], {"no run time": 1}),
    ),
    (
        "an elapsed time in words",
        SACCT.replace("End|", "End|Elapsed|") + ROW.replace("|COMP", "|1-00:30:00|COMP"),
        Loads([slurm("1", run=88200.0)]),
    ),
    (
        "an elapsed time alone",
        "JobIDRaw|User|Submit|ElapsedRaw|State|AllocTRES\n1|u|2024-05-01T10:00:00|60|COMPLETED|gres/gpu=1\n",
        Loads([slurm("1", run=60.0)]),
    ),
    (
        "no elapsed time in a row",
        SACCT.replace("End|", "End|ElapsedRaw|") + ROW.replace("|COMP", "||COMP"),
        Loads([ONE]),
    ),
    ("ReqTRES", SACCT.replace("AllocTRES", "ReqTRES") + ROW, Loads([ONE])),
    (
        "AllocGRES of an old Slurm",
        SACCT.replace("AllocTRES", "AllocGRES") + f"1|u|{RAN}|COMPLETED|craynetwork:1,gpu:k80:3\n",
        Loads([slurm("1", 3)]),
    ),
    ("slices of a GPU", SACCT + ROW.replace("gres/gpu=1", "gres/gpu:1g.5gb=3"), Loads([slurm("1", 3)])),
    (
        "no GPU but its memory",
        SACCT + ROW + ROW.replace("1|", "2|", 1).replace("gres/gpu=1", "gres/gpumem=0"),
        Loads([ONE], {"no GPU": 1}),
    ),
    (
        "a resized job",
        SACCT + f"1|u|{RAN}|RESIZING|gres/gpu=4\n"
        "1|u|2024-05-01T10:00:00|2024-05-01T10:31:00|2024-05-01T10:41:00|COMPLETED|gres/gpu=2\n",
        Loads([slurm("1", 4, run=2400.0)]),
    ),
    (
        "a number used again",
        SACCT + ROW + ROW.replace("|u|", "|v|"),
        "line 3, column id: '1'; it must be the name of one job",
    ),
    ("a row twice", SACCT + ROW + ROW, Loads([ONE], {"row again": 1})),
    (
        "two outputs in one file",
        SACCT + ROW + SACCT + ROW.replace("1|", "2|", 1),
        Loads([ONE, slurm("2")], {"header again": 1}),
    ),
    ("an unknown state", SACCT + ROW.replace("COMPLETED", "EXPLODED"), "column State: 'EXPLODED'; it must be a status"),
    (
        "the state UNKNOWN",
        SACCT + ROW + ROW.replace("1|", "2|", 1).replace("COMPLETED", "UNKNOWN"),
        Loads([ONE], {"no status": 1}),
    ),
    ("commas for bars", (SACCT + ROW).replace("|", ","), "column 'Submit' is missing"),
    ("fixed widths", "JobIDRaw   User\n---------- ----\n1 u\n", "column 'Submit' is missing"),
    ("a bar in a name", SACCT + ROW.replace("|u|", "|a|b|"), "line 2: has 8 values; the file has 7 columns"),
    ("times since 1970", SACCT + "1|u|1714557600|1714557660|1714559460|COMPLETED|gres/gpu=1\n", Loads([ONE])),
]


@named(SLURM)
def test_accounts_of_slurm(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "jobs.txt", "slurm", content, right)


# --- the Standard Workload Format


def swf(*fields: float | str) -> str:
    job, submit, run, allocated, requested, status = fields
    return f"{job} {submit} 3 {run} {allocated} -1 -1 {requested} -1 -1 {status} 7 1 1 1 1 -1 -1\n"


LOGGED = ("1", 0.0, 10.0, 4, "passed")
SWF: list[tuple[str, str | bytes, Loads | str]] = [
    ("a header", "; Version: 2.2\n;   UnixStartTime: 0\n" + swf(1, 0, 10, 4, -1, 1), Loads([LOGGED])),
    ("gzip without its suffix", gzip.compress(swf(1, 0, 10, 4, -1, 1).encode()), Loads([LOGGED])),
    ("a comment behind a job", swf(1, 0, 10, 4, -1, 1).strip() + " ; note\n", Loads([LOGGED])),
    ("an indented comment in Latin-1", b"  ; Universit\xe9\n" + swf(1, 0, 10, 4, -1, 1).encode(), Loads([LOGGED])),
    ("tabs and CRLF", swf(1, 0, 10, 4, -1, 1).replace(" ", "\t").replace("\n", "\r\n"), Loads([LOGGED])),
    ("a byte order mark", codecs.BOM_UTF8 + swf(1, 0, 10, 4, -1, 1).encode(), Loads([LOGGED])),
    (
        "an unknown submission",
        swf(1, 0, 10, 4, -1, 1) + swf(2, -1, 10, 4, -1, 1),
        Loads([LOGGED], {"no submission time": 1}),
    ),
    ("an unknown run time", swf(1, 0, 10, 4, -1, 1) + swf(2, 0, -1, 4, -1, 1), Loads([LOGGED], {"no run time": 1})),
    (
        "unknown processors",
        swf(1, 0, 10, 4, -1, 1) + swf(2, 0, 9, -1, -1, 1),
        Loads([LOGGED], {"processors unknown": 1}),
    ),
    ("processors asked for", swf(1, 0, 10, 2, 4, 1), Loads([LOGGED])),
    ("an unknown status", swf(1, 0, 10, 4, -1, -1), Loads([LOGGED])),
    ("a part of a job", swf(1, 0, 10, 4, -1, 1) + swf(1, 0, 5, 4, -1, 2), Loads([LOGGED], {"partial execution": 1})),
    ("not in order", swf(2, 50, 9, 4, -1, 5) + swf(1, 0, 10, 4, -1, 1), Loads([LOGGED, ("2", 50.0, 9.0, 4, "killed")])),
    ("one field more", swf(1, 0, 10, 4, -1, 1).strip() + " 5\n", "line 1: has 19 fields; a job has 18"),
    ("a table", "a,b,c\n", "line 1: has 1 field; a job has 18"),
    ("a number below -1", swf(1, 0, -2, 4, -1, 1), "line 1, column run_s: '-2'; it must be a number >= -1"),
    ("a job twice", swf(1, 0, 10, 4, -1, 1) * 2, "column id: '1'; it must be unique"),
    ("comments alone", "; a\n", "no job is left (it is empty)"),
]


@named(SWF)
def test_logs_in_the_standard_workload_format(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "log.swf", "swf", content, right)


# --- Philly


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus)]
    return {"start_time": start and f"2017-10-07 {start}", "end_time": end and f"2017-10-07 {end}", "detail": detail}


def job(**other: Any) -> dict[str, Any]:
    attempts = [attempt("01:12:00", "01:13:00", 1)]
    usual = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": attempts, "user": "u"}
    return usual | {"submitted_time": "2017-10-07 01:11:00"} | other


def log(*jobs: dict[str, Any]) -> str:
    return json.dumps(jobs)


SECOND = job(jobid="b")
TESTED, KEPT = ("a", 0.0, 60.0, 1, "passed"), ("b", 0.0, 60.0, 1, "passed")
TIMELESS = {"attempt without a start or an end not counted": 1}
EVERY = "u_id,submit_time,user,gpu_num,node_num,run_time,new_status\n"
LISTED = "j0,2017-08-07 10:03:01,1,1,1,100,Pass\n"
PHILLY: list[tuple[str, str | bytes, Loads | str]] = [
    ("a byte order mark", codecs.BOM_UTF8 + log(job()).encode(), Loads([TESTED])),
    ("gzip without its suffix", gzip.compress(log(job()).encode()), Loads([TESTED])),
    ("no user", log({k: v for k, v in job().items() if k != "user"}), Loads([TESTED])),
    ("no virtual cluster", log(job(vc=None)), Loads([TESTED], {}, {"no virtual cluster": 1})),
    ("times None", log(job(submitted_time="None"), SECOND), Loads([KEPT], {"no submission time": 1})),
    ("no id", log(job(jobid=""), SECOND), Loads([KEPT], {"no id": 1})),
    ("attempts null", log(job(attempts=None), SECOND), Loads([KEPT], {"never ran": 1})),
    (
        "a machine without GPUs",
        log(job(attempts=[attempt("01:12:00", "01:13:00", 0)]), SECOND),
        Loads([KEPT], {"never ran": 1}),
    ),
    (
        "the last attempt runs",
        log(job(attempts=[attempt("01:12:00", None, 8)]), SECOND),
        Loads([KEPT], {"still running": 1}),
    ),
    (
        "an attempt without a start",
        log(job(attempts=[attempt(None, "01:12:00", 8), attempt("01:12:00", "01:13:00", 1)])),
        Loads([TESTED], {}, TIMELESS),
    ),
    (
        "attempts that overlap",
        log(job(attempts=[attempt("01:12:00", "01:13:00", 1), attempt("01:12:30", "01:12:40", 1)])),
        Loads([TESTED], {}, {"overlap of attempts counted once": 1}),
    ),
    (
        "attempts on several machines",
        log(job(attempts=[attempt("01:12:00", "01:13:00", 8, 8)])),
        Loads([("a", 0.0, 60.0, 16, "passed")]),
    ),
    ("another status", log(job(status="Running")), "jobs.0.status: Input should be 'Pass', 'Failed' or 'Killed'"),
    (
        "T in a time",
        log(job(submitted_time="2017-10-07T01:11:00")),
        "time '2017-10-07T01:11:00'; it must be like 2017-10-07",
    ),
    ("a job twice", log(job(), job()), "column id: 'a'; it must be unique"),
    ("a job a line", log(job())[1:-1] + "\n" + log(SECOND)[1:-1], "trailing characters at line 2"),
    ("a file cut off", log(job())[:50], "EOF while parsing"),
    ("no jobs", "[]", "no job is left (it is empty)"),
    (
        "CSV with CRLF and a byte order mark",
        codecs.BOM_UTF8 + (EVERY + LISTED).replace("\n", "\r\n").encode(),
        Loads([("j0", 0.0, 100.0, 1, "passed")]),
    ),
    (
        "CSV without ids",
        EVERY + LISTED + LISTED.replace("j0", "") * 2,
        Loads([("j0", 0.0, 100.0, 1, "passed")], {"no id": 2}),
    ),
    ("CSV cut off", EVERY + LISTED + "j1,2017-08-07 10:03:01,1,1", "line 3: has 4 values; the file has 7 columns"),
    (
        "CSV with another status",
        EVERY + LISTED.replace("Pass", "pass"),
        "line 2, column new_status: 'pass'; it must be one of",
    ),
    (
        "CSV without a time",
        EVERY + LISTED.replace("2017-08-07 10:03:01", "None"),
        "column submit_time: 'None'; it must be",
    ),
]


@named(PHILLY)
def test_jobs_of_philly(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "cluster_job_log", "philly", content, right)


# --- Helios, Acme, openb

HELIOS_HEAD = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
HELIOS_ROW = "9,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:08:35,2020-04-01 00:08:36,2020-04-01 00:18:36,600,1\n"
HELIOS_JOB = ("9", 0.0, 600.0, 8, "passed")
HELIOS: list[tuple[str, str | bytes, Loads | str]] = [
    ("GPUs as floats", HELIOS_HEAD + HELIOS_ROW.replace(",8,", ",8.0,"), Loads([HELIOS_JOB])),
    ("an index column", "," + HELIOS_HEAD + "0," + HELIOS_ROW, Loads([HELIOS_JOB])),
    (
        "pending",
        HELIOS_HEAD + HELIOS_ROW + "10,u,v,1,1,1,PENDING,2020-04-01 00:08:35,,,,\n",
        Loads([HELIOS_JOB], {"status to skip": 1}),
    ),
    (
        "cancelled in the queue",
        HELIOS_HEAD + HELIOS_ROW + "10,u,v,1,1,1,CANCELLED,2020-04-01 00:08:35,None,None,0,9\n",
        Loads([HELIOS_JOB], {"no run time": 1}),
    ),
    ("a job twice", HELIOS_HEAD + HELIOS_ROW * 2, "line 2, column id: '9'; it must be unique"),
    (
        "no virtual clusters",
        (HELIOS_HEAD + HELIOS_ROW).replace(",vc,", ",").replace(",vcA,", ","),
        "column 'vc' is missing",
    ),
]

ACME_HEAD = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
ACME_ROW = (
    "a,u1,1,8,9,Other,COMPLETED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,8,10,5\n"
)
ACME_JOB = ("a", 0.0, 8.0, 8, "passed")
ACME: list[tuple[str, str | bytes, Loads | str]] = [
    ("a node that failed", ACME_HEAD + ACME_ROW.replace("COMPLETED", "NODE_FAIL"), Loads([(*ACME_JOB[:4], "failed")])),
    (
        "a part of a GPU",
        ACME_HEAD + ACME_ROW.replace(",8,9", ",0.5,9"),
        Loads([("a", 0.0, 8.0, 1, "passed")], {}, {"fraction of a GPU rounded up": 1}, "ceil"),
    ),
    (
        "running",
        ACME_HEAD + ACME_ROW + ACME_ROW.replace("a,u1", "b,u1").replace("COMPLETED", "RUNNING"),
        Loads([ACME_JOB], {"status to skip": 1}),
    ),
    (
        "local times beside others",
        ACME_HEAD + ACME_ROW + ACME_ROW.replace("a,u1", "b,u1").replace("+00:00", ""),
        "line 3, column submit_time: '2023-05-17 11:00:58'; it must be a time with its offset from UTC",
    ),
]

OPENB_HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def pod(
    name: str, gpus: int = 1, milli: int = 1000, phase: str = "Succeeded", start: str = "10", end: str = "100"
) -> str:
    return f"{name},1000,100,{gpus},{milli},V100M16|V100M32,LS,{phase},0,{end},{start}\n"


POD = ("p", 0.0, 90.0, 1, "passed")
OPENB: list[tuple[str, str | bytes, Loads | str]] = [
    ("several types that would do", OPENB_HEAD + pod("p"), Loads([POD])),
    ("a part of a GPU", OPENB_HEAD + pod("p", 1, 460), Loads([POD], {}, {"fraction of a GPU rounded up": 1}, "ceil")),
    ("two halves are a GPU", OPENB_HEAD + pod("p", 2, 500), Loads([POD])),
    (
        "three thirds in thousandths are not",
        OPENB_HEAD + pod("p") + pod("q", 3, 333),
        Loads([POD], {"fraction of a GPU": 1}),
    ),
    ("never scheduled", OPENB_HEAD + pod("p") + pod("q", phase="Failed", start=""), Loads([POD], {"no run time": 1})),
    (
        "pending",
        OPENB_HEAD + pod("p") + pod("q", phase="Pending", start="", end=""),
        Loads([POD], {"status to skip": 1}),
    ),
    ("on CPUs", OPENB_HEAD + pod("p") + pod("q", 0, 0), Loads([POD], {"no GPU": 1})),
]


@pytest.mark.parametrize(
    ("form", "content", "right"),
    [
        pytest.param(form, content, right, id=f"{form}: {name}")
        for form, rows in (("helios", HELIOS), ("acme", ACME), ("openb-2023", OPENB))
        for name, content, right in rows
    ],
)
def test_tables_of_helios_acme_and_openb(tmp_path: Path, form: str, content: str, right: Loads | str) -> None:
    check(tmp_path / "jobs.csv", form, content, right)


# --- PAI's three tables

PAI_JOBS = "j1,x1,ana,Terminated,100.0,260.0\nj2,x2,ben,Failed,104.0,108.0\n"
PAI_TASKS = (
    "j1,worker,1.0,Terminated,109.0,260.0,600,29.3,100,V100\n"
    "j1,ps,1.0,Terminated,109.0,260.0,600,29.3,,\n"
    "j2,tf,1.0,Failed,104,108,600,29,50,MISC\n"
)
INSTANCE = "j1,worker,i1,w1,x1,Terminated,110.0,260.0,m1\n"
TRAINED = ("j1", 0.0, 150.0, 1, "passed")
PAI: list[tuple[str, str | bytes, Loads | str]] = [
    (
        "a PS without GPUs starts first",
        "j1,ps,i0,w0,x1,Terminated,101.0,260.0,m1\n" + INSTANCE,
        Loads([TRAINED], {}, {"part without GPUs not counted": 1}),
    ),
    (
        "an instance without a job",
        INSTANCE + "j9,tf,i9,w9,x9,Terminated,110.0,260.0,m1\n",
        Loads([TRAINED], {"no status": 1}),
    ),
    (
        "an instance without a job's name",
        INSTANCE + ",worker,i9,w9,x9,Terminated,110.0,260.0,m1\n",
        Loads([TRAINED], {"no id": 1}),
    ),
    (
        "an instance that did not end",
        INSTANCE.replace("260.0", "") + "j2,tf,i4,w4,x2,Failed,105.0,108.0,m2\n",
        Loads([("j2", 0.0, 3.0, 1, "failed")], {"no run time": 1}, {"fraction of a GPU rounded up": 1}, "ceil"),
    ),
    (
        "an instance more than columns",
        INSTANCE + INSTANCE.replace(",m1", ",m1,more"),
        "line 2: has 10 values; the file has 9",
    ),
]


@named(PAI)
def test_the_tables_of_pai(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    check(tmp_path / "pai_instance_table.csv", "pai-2020", content, right)


# --- Google's events


def event(at_s: int, kind: int, *, name: int = 1, user: str = "u=") -> str:
    return f"{at_s * 10**6},,{name},{kind},{user},0,n=,l=\n"


WHOLE = event(600, 0) + event(610, 1) + event(700, 4)
GOOGLE: list[tuple[str, str | bytes, Loads | str]] = [
    ("gzip without its suffix", gzip.compress(WHOLE.encode()), Loads([("1", 0.0, 90.0, 1, "passed")])),
    (
        "submitted twice",
        event(600, 0) + event(605, 0) + event(610, 1) + event(700, 4),
        Loads([("1", 0.0, 90.0, 1, "passed")]),
    ),
    ("not in order", event(700, 4) + event(610, 1) + event(600, 0), Loads([("1", 0.0, 90.0, 1, "passed")])),
    ("no user", WHOLE.replace("u=", ""), Loads([("1", 0.0, 90.0, 1, "passed")])),
    (
        "there before the trace",
        WHOLE + event(0, 0, name=2) + event(650, 4, name=2),
        Loads([("1", 0.0, 90.0, 1, "passed")], {"no submission in the trace": 1}),
    ),
    ("a row cut off", WHOLE + "600,,1", "line 4: has 3 values; the file has 8 columns"),
    (
        "a header",
        "time,missing,job,event,user,class,name,logical\n" + WHOLE,
        "line 1, column job ID: 'job'; it must be",
    ),
]


@named(GOOGLE)
def test_events_of_google(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "part-00000-of-00500.csv", "google-events", content, right)


# --- Batsim

DELAY = {"type": "delay", "delay": 9}


def workload(profiles: dict[str, Any] | None = None, **other: Any) -> str:
    one = {"id": "1", "subtime": 0, "res": 4, "profile": "p"} | other
    return json.dumps({"nb_res": 8, "jobs": [one], "profiles": {"p": DELAY} if profiles is None else profiles})


SIMULATED = ("1", 0.0, 9.0, 4, "passed")
BATSIM: list[tuple[str, str | bytes, Loads | str]] = [
    ("a byte order mark", codecs.BOM_UTF8 + workload().encode(), Loads([SIMULATED])),
    ("a walltime that ends the job", workload(walltime=5), Loads([("1", 0.0, 5.0, 4, "killed")])),
    ("a walltime just long enough", workload(walltime=9), Loads([SIMULATED])),
    ("a walltime of -1", workload(walltime=-1), Loads([SIMULATED])),
    ("a walltime of null", workload(walltime=None), Loads([SIMULATED])),
    ("a walltime that is none", workload(walltime="long"), "job 0, walltime: 'long'; it must be a number"),
    ("a code that is returned", workload({"p": DELAY | {"ret": 1}}), Loads([("1", 0.0, 9.0, 4, "failed")])),
    ("an id that is a number", workload(id=3), Loads([("3", *SIMULATED[1:])])),
    (
        "a profile of profiles",
        workload({"q": DELAY, "p": {"type": "composed", "repeat": 2, "seq": ["q", "q"]}}),
        Loads([("1", 0.0, 36.0, 4, "passed")]),
    ),
    (
        "a profile of itself",
        workload({"p": {"type": "composed", "seq": ["p"]}}),
        "no job is left (1 profile without a delay)",
    ),
    ("a profile that is no name", workload(profile=["p"]), "job 0, profile: ['p']; it must be one of `profiles`"),
    ("no resources", workload(res=0), "no job is left (1 no resource)"),
    ("NaN", workload().replace("9}", "NaN}"), "profile 'p', delay: nan; it must be a number of 0 or more"),
    ("a list", "[]", "is no workload of Batsim"),
]


@named(BATSIM)
def test_workloads_of_batsim(tmp_path: Path, content: str | bytes, right: Loads | str) -> None:
    check(tmp_path / "workload.json", "batsim", content, right)


def test_there_are_a_hundred_quirks_of_ten_kinds_of_files() -> None:
    tables = [ENCODINGS, LAYOUTS, SENTINELS, TIMES, SLURM, SWF, PHILLY, HELIOS, ACME, OPENB, PAI, GOOGLE, BATSIM]
    assert sum(map(len, tables)) >= 100
