"""Whatever is wrong: one clear error on stderr, an exit code that is not 0, and nothing left behind."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from skedge.comparison.compare import compare
from skedge.core.errors import InputError, SkedgeError
from skedge.recorded_run import Run
from skedge.runs.new_folder import new_folder
from skedge.scenario.file import load_scenario
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import resource_scenarios, small_scenario

Skedge = Callable[..., Any]
SCRIPT = Path(sys.executable).with_name("skedge")


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, as a user types them."""
    monkeypatch.chdir(tmp_path)


def refused(told: Any, *parts: str, code: int = 1) -> None:
    """One sentence on stderr that has all `parts`, nothing on stdout, no traceback."""
    assert told.code == code, told
    assert told.out == ""
    assert "Traceback" not in told.err
    if code == 1:
        assert told.err.startswith("skedge: ")
        assert told.err.count("\n") == 1, told.err
    for part in parts:
        assert part in told.words, told.words


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


# --- scenario files

WRONG_SCENARIOS = {
    "an unknown field": ("name: small", "nmae: small", "nmae: is not a field (did you mean name?)"),
    "an unknown field in a job": ("chunks: 3", "chunk: 3, chunks: 3", "workload.jobs[0].chunk: is not a field"),
    "a negative time": ("arrival_s: 10", "arrival_s: -10", "workload.jobs[0].arrival_s: -10: it must be greater than"),
    "a time that is not a number": ("arrival_s: 10", "arrival_s: .nan", "arrival_s: nan: it must be a finite number"),
    "a time without end": ("arrival_s: 10", "arrival_s: .inf", "arrival_s: inf: it must be"),
    "a time beyond all sense": ("arrival_s: 10", "arrival_s: 1e300", "arrival_s: 1e+300: it must be less than"),
    "a time in an unknown unit": ("minibatch_s: 15s", "minibatch_s: 15 parsecs", "'15 parsecs': it must be a duration"),
    "no chunks": ("chunks: 3", "chunks: 0", "workload.jobs[0].chunks: 0: it must be greater than or equal to 1"),
    "half a chunk": ("chunks: 3", "chunks: 2.5", "workload.jobs[0].chunks: 2.5: it must be a whole number"),
    "chunks in words": ("chunks: 3", "chunks: three", "workload.jobs[0].chunks: 'three': it must be a whole number"),
    "more chunks than can be": ("chunks: 3", "chunks: 100000000000", "job 'b': chunks = 1e+11; with the jobs before"),
    "more work than can be": ("epochs: 2", "epochs: 100000000000000", "job 'b': chunks x epochs x minibatches"),
    "a number beyond 64 bits": ("epochs: 2", f"epochs: {10**30}", f"epochs: {10**30}: it must be less than"),
    "work that takes no time": ("minibatch_s: 15s", "minibatch_s: 0", "minibatch_s = 0.0; it must be above 0"),
    "a worker type that no server has": (
        "worker_type: fast", "worker_type: quick", "(id 'a'): worker_type = 'quick'; it must be a type that a",
    ),
    "a PS type that no server has": (
        "worker_type: fast", "worker_type: fast, ps_type: big", "ps_type = 'big'; it must be a type that a server has",
    ),
    "one id for two jobs": ("id: a", "id: b", "(id 'b'): id = 'b'; it must be unique; it is used twice"),
    "a job without an id": ("{id: a, ", "{", "workload.jobs[1].id: is missing"),
    "an empty id": ("id: a", "id: ''", "workload.jobs[1].id: '': it must not be empty"),
    "one id for two servers": ("id: edge2", "id: edge1", "id 'edge1' is used twice"),
    "two clouds": ("{id: edge2", "{id: cloud2, kind: cloud}\n    - {id: edge2", "more than one server has kind cloud"),
    "a cloud with workers": (
        "kind: cloud", "kind: cloud, workers: {fast: 9}", "servers[2]: workers and ps do not go with kind: cloud",
    ),
    "fewer workers than none": ("fast: 2", "fast: -1", "cluster.servers[0].workers.fast: -1: it must be greater than"),
    "more workers than can be": ("fast: 2", "fast: 100000000000", "workers.fast: 100000000000: it must be less than"),
    "no servers at all": ("cluster:", "cluster:\n  draw: {servers: 1}", "it must have exactly one of servers, draw"),
    "two sources of jobs": ("workload:", "workload:\n  synthetic: {jobs: 3}", "it must have exactly one of synthetic"),
    "a delay to nowhere": ("id: a,", "id: a, upload: {moon: 3},", "there is no server 'moon'; there are edge1"),
    "a range upside down": ("id: a,", "id: a, upload_edge_s: [9, 3],", "upload_edge_s"),
    "a seed below 0": ("seed: 3", "seed: -1", "seed: -1: it must be greater than or equal to 0"),
    "a slot of no length": ("seed: 3", "slot: 0", "slot: 0: it must be greater than 0"),
    "a physics that stands still": ("seed: 3", "physics: {speedup: 0}", "physics.speedup: 0: it must be greater"),
    "a field given twice": ("seed: 3", "seed: 3\nseed: 4", "'seed' is given twice"),
    "a bracket that is not closed": ("seed: 3", "seed: [3", "line 4, column"),
    "a tab for a space": ("seed: 3", "\tseed: 3", "line 3, column 1: is not YAML"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_SCENARIOS)
def test_a_wrong_scenario_is_one_error_that_names_file_place_value_and_what_is_right(
    wrong: str, skedge: Skedge, small: Path, text: str
) -> None:
    """Nothing is run and no folder is made."""
    old, new, message = WRONG_SCENARIOS[wrong]
    assert old in text
    small.write_text(text.replace(old, new, 1))
    refused(skedge("run", small, "--out", "r"), str(small), message)
    assert files() == {"small.yaml"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no mapping of fields"),
        (b"just words", "holds no mapping of fields"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"[" * 20000, "are nested too deeply"),
        (b"{}", "cluster: is missing"),
        (b"a: 2017-13-01", "is not YAML"),
    ],
)
def test_a_file_that_is_no_scenario_is_one_error(content: bytes, message: str, skedge: Skedge) -> None:
    """Of whatever bytes it is made."""
    Path("s.yaml").write_bytes(content)
    told = skedge("run", "s.yaml", "--out", "r")
    assert told.code == 1
    assert told.err.startswith("skedge: s.yaml: ")
    assert message in told.err
    assert "Traceback" not in told.err
    assert files() == {"s.yaml"}


def test_all_that_is_wrong_is_told_at_once_a_line_each(skedge: Skedge, small: Path, text: str) -> None:
    """A user corrects a file once, not as often as it has errors."""
    small.write_text(text.replace("seed: 3", "seed: x").replace("chunks: 3", "chunks: 0"))
    told = skedge("run", small, "--out", "r")
    assert [line.split(": ")[-3] for line in told.err.splitlines()] == ["seed", "workload.jobs[0].chunks"]


def test_a_short_file_that_stands_for_a_billion_values_is_refused_at_once(skedge: Skedge) -> None:
    """Aliases of aliases: what is shown of them is short too."""
    lists = "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    Path("s.yaml").write_text("a: &a [x,x,x,x,x,x,x,x,x]\n" + lists + "seed: *i\n")
    told = skedge("run", "s.yaml", "--out", "r")
    assert told.code == 1
    assert max(map(len, told.err.splitlines())) < 200


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("nosuch.yaml", "nosuch.yaml: cannot be read: No such file or directory"),
        ("nosuch", "scenario 'nosuch' is not shipped; there are demo, demo-divisible"),
        (".", ".: cannot be read: Is a directory"),
        ("small.yaml/x.yaml", "small.yaml/x.yaml: cannot be read: Not a directory"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_scenario_that_is_not_there_is_one_error(
    command: str, scenario: str, message: str, skedge: Skedge, small: Path
) -> None:
    """Whatever stands in its place."""
    refused(skedge(command, scenario), message)
    assert files() == {"small.yaml"}


# --- policies and options

WRONG_POLICIES = [
    ("nope", "policy 'nope' is unknown; known are aonline, batch"),
    ("aonlin", "policy 'aonlin' is unknown (did you mean aonline?); known are aonline, batch"),
    ("", "policy '' is unknown"),
    ("aonline:clud=false", "it has no parameter 'clud' (did you mean cloud?); it takes q_mode"),
    ("aonline:cloud=perhaps", "cloud = 'perhaps': it must be true or false"),
    ("aonline:q_mode=best", "q_mode = 'best'"),
    ("aonline:cloud", "'cloud' has no value; write name:key=value"),
    ("aonline:", "no parameter follows the colon; write name:key=value,key=value, or name"),
    ("tiresias:limit_s=-5", "limit_s = '-5'"),
    ("tiresias:limit_s=nan", "limit_s = 'nan'"),
    ("tiresias:knob=often", "knob = 'often'"),
    ("srtf:=1", "it has no parameter ''"),
]


@pytest.mark.parametrize(("policy", "message"), WRONG_POLICIES)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_wrong_policy_is_refused_before_anything_runs(
    command: str, policy: str, message: str, skedge: Skedge, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what there is, or what would be right."""
    monkeypatch.setattr("skedge.simulate.world_of", None)
    option = "--policies" if command == "compare" else "--policy"
    refused(skedge(command, small, option, policy), message)
    assert files() == {"small.yaml"}


WRONG_OPTIONS = [
    (("compare", "demo", "--seeds", 0), "'--seeds'", 2),
    (("compare", "demo", "--seeds", "many"), "'--seeds': 'many': it must be a whole number", 2),
    (("run", "demo", "--seed", -1), "'--seed': '-1': it must be greater than or equal to 0", 2),
    (("optimum", "demo", "--time-limit", "x"), "'--time-limit': 'x': it must be a number", 2),
    (("export", "r", "--format", "pdf", "--out", "x"), "'--format': 'pdf' is not one of 'batsim', 'chrome'", 2),
    (("run", "demo", "--nosuch"), "--nosuch", 2),
    (("run",), "Missing", 2),
    (("nosuch",), "nosuch", 2),
    (("trace", "describe", "x", "--format", "nosuch"), "'nosuch' is not one of", 2),
    (("trace", "describe", "x"), "x: cannot be read: No such file or directory", 1),
    (("trace", "describe", "x", "--arrival", "a"), "options of columns: gpus: is missing; it is needed", 1),
    (("trace", "describe", "x", "--arrival", "a", "--format", "swf"), "give one of them", 1),
    (("trace", "describe", "x", "--map", "m.yaml"), "m.yaml: cannot be read", 1),
    (("compare", "demo", "--processes", 0), "processes: 0; it must be at least 1, or -1", 1),
    (("compare", "demo", "--policies", "srtf,fifo,srtf"), "'srtf' is named twice; name each once", 1),
    (
        ("compare", "demo", "--policies", "aonline,aonline:cloud=true"),
        "'aonline:cloud=true' is the same as 'aonline'",
        1,
    ),
    (("compare", "demo", "--policies", "srtf,"), "policy '' is unknown", 1),
    (("compare", "demo", "--keep", "best"), "--keep best: goes with --out, the folder in which runs are kept", 1),
    (("compare", "s4", "--seeds", 1, "--processes", 1), "pdors; name them with --policies", 1),
]


@pytest.mark.parametrize(("words", "message", "code"), WRONG_OPTIONS)
def test_a_wrong_option_is_refused_before_anything_runs(
    words: tuple[object, ...], message: str, code: int, skedge: Skedge
) -> None:
    """2 where the words themselves are wrong, 1 where what they stand for is."""
    refused(skedge(*words), message, code=code)
    assert files() == set()


def test_a_policy_is_refused_on_a_scenario_that_lacks_what_it_needs(skedge: Skedge) -> None:
    """Neither workers nor a cloud: there is no slot of any type."""
    Path("s.yaml").write_text("""
cluster: {servers: [{id: e, workers: {gpu: 0}, ps: {cpu: 0}}]}
workload: {jobs: [{id: x, arrival_s: 0, epochs: 1, chunks: 1, minibatches: 1, minibatch_s: 1}]}
""")
    refused(skedge("run", "s.yaml", "--out", "r"), "policy 'aonline' needs typed slots")
    assert files() == {"s.yaml"}


def test_a_file_is_no_folder_of_finished_points(skedge: Skedge, small: Path) -> None:
    Path("kept").write_text("mine")
    refused(
        skedge("compare", small, "--policies", "srtf", "--resume", "kept"),
        "kept: finished points cannot be kept in it: it is not a folder",
    )
    assert files() == {"kept", "small.yaml"}


def test_two_policies_that_turn_out_alike_are_compared_all_the_same(skedge: Skedge, tmp_path: Path) -> None:
    """Constants that are calibrated to what the other was given: the report keeps them apart by what was typed."""
    file = save_scenario(resource_scenarios()[0], tmp_path / "s")
    calibrated = run(load_scenario(file), "pdors").meta["policy"]
    words = ("--policies", f"pdors,{calibrated}", "--seeds", 1, "--processes", 1)
    assert skedge("compare", file, *words, "--report", "c.html").code == 0


# --- traces

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ROW = "2017-10-07 01:00:00,60,1,60,vc\n"
WRONG_TRACES = {
    "a missing column": (
        "philly-csv",
        HEADER.replace(",cluster", "") + ROW.replace(",vc", ""),
        "line 1: column 'cluster' is missing",
    ),
    "a column twice": ("philly-csv", "timestamp, " + HEADER + "x," + ROW, "line 1: column 'timestamp' is there twice"),
    "NaN": ("philly-csv", HEADER + ROW + ROW.replace(",60,1", ",nan,1"), "line 3, column duration: 'nan'; it must be"),
    "a negative duration": ("philly-csv", HEADER + ROW.replace(",60,1", ",-60,1"), "no job is left (1 ends before"),
    "no GPU": ("philly-csv", HEADER + ROW.replace(",60,1", ",60,0"), "no job is left (1 no GPU)"),
    "half a GPU": ("philly-csv", HEADER + ROW.replace(",60,1", ",60,0.5"), "no job is left (1 fraction of a GPU)"),
    "fewer than no GPU": ("philly-csv", HEADER + ROW.replace(",60,1", ",60,-1"), "line 2, column num_gpus: '-1'; it"),
    "GPUs beyond 64 bits": ("philly-csv", HEADER + ROW.replace(",60,1", f",60,{10**23}"), "line 2, column num_gpus"),
    "a day that is not": (
        "philly-csv",
        HEADER + ROW.replace("10-07", "13-07"),
        "column timestamp: '2017-13-07 01:00:00'",
    ),
    "an empty file": ("philly-csv", "", "cannot be read as CSV"),
    "no rows": ("philly-csv", HEADER, "no job is left (it is empty)"),
    "JSON that breaks off": ("philly-log", '[{"status": "Pass", "vc": "v", "jobid": "j", "att', "Invalid JSON: EOF"),
    "JSON of another kind": ("philly-log", '{"jobs": []}', "Input should be a valid array"),
    "an empty log": ("philly-log", "[]", "no job is left (it is empty)"),
    "a line cut short": ("swf", "; head\n1 0 0 60 1\n", "line 2: has 5 fields; a job has 18"),
    "a field that is no number": ("swf", " ".join(["1", "0", "0", "x"] + ["1"] * 14), "line 1, column run_s: 'x'"),
    "an SWF log of comments": ("swf", "; nothing\n", "no job is left"),
}


@pytest.mark.parametrize("wrong", WRONG_TRACES)
@pytest.mark.parametrize("command", ["describe", "convert"])
def test_a_wrong_trace_is_one_error_that_names_file_line_column_and_value(
    command: str, wrong: str, skedge: Skedge
) -> None:
    """convert leaves no folder."""
    form, content, message = WRONG_TRACES[wrong]
    Path("t.txt").write_text(content)
    more = ("--out", "s", "--servers", 2) if command == "convert" else ()
    refused(skedge("trace", command, "t.txt", "--format", form, *more), "t.txt: ", message)
    assert files() == {"t.txt"}


def test_a_trace_that_is_not_there_or_not_whole_is_one_error(skedge: Skedge) -> None:
    """A missing file, a folder, a gzip file cut in half."""
    Path("t.gz").write_bytes(gzip.compress(HEADER.encode() * 1000)[:40])
    for path, message in (("no.csv", "No such file"), (".", "Is a directory"), ("t.gz", "is not a whole gzip file")):
        refused(skedge("trace", "describe", path, "--format", "philly-csv"), f"{path}: ", message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--statuses", "finished"), "--statuses 'finished': each must be passed, failed or killed"),
        (("--statuses", ","), "each must be passed, failed or killed"),
        (("--skip", 5), "workload.trace.skip: 5: leaves no job; the trace has 1"),
        (("--machines", "no-list"), "no-list: cannot be read"),
        (("--out", "there"), "there: exists already"),
        (("--out", "t.csv/x"), "t.csv is not a folder"),
        (("--load", "inf"), "load"),
        (("--load", 0.5, "--servers", 3), "--load and --servers: each determines the number of machines"),
        (("--slots", 40), "--slots 40: goes with --make pdors, not with --make rigid"),
        (("--chunks", 5, "--make", "paper"), "--chunks 5: goes with --make divisible, not with --make paper"),
        (("--cloud", "5", "--make", "pdors"), "--cloud 5: goes with --make rigid or divisible or paper"),
        (("--cloud", "0"), "--cloud '0': it must be a number of workers of each type, at least 1, or unlimited"),
        (("--edge-mbps", 5.0, "--make", "paper"), "--edge-mbps 5.0: goes with --make rigid or divisible, not with"),
        (
            ("--upload-share", 0.1, "--cloud", 4, "--cloud-mbps", 5),
            "--cloud-mbps and --upload-share: each determines the upload",
        ),
        (("--cloud-mbps", 5), "--cloud-mbps: goes with --cloud, which is missing"),
        (("--gpus-per-server", 4, "--machines", "x"), "--machines and --gpus-per-server: each determines the GPUs of"),
    ],
)
def test_convert_refuses_what_it_cannot_do_and_leaves_nothing(
    more: tuple[object, ...], message: str, skedge: Skedge
) -> None:
    """A folder that is there stays as it is."""
    Path("t.csv").write_text(HEADER + ROW)
    Path("there").mkdir()
    size = () if "--load" in more else ("--servers", 2)
    refused(skedge("trace", "convert", "t.csv", "--format", "philly-csv", "--out", "s", *size, *more), message)
    assert files() == {"t.csv", "there"}


# --- run folders


@pytest.fixture
def damaged(folder: Path) -> Path:
    """A run folder to damage."""
    return Path(shutil.copytree(folder, "damaged"))


@pytest.mark.parametrize("command", [("verify",), ("metrics",), ("explain", "a")])
@pytest.mark.parametrize("path", ["nosuch", ".", "file"])
def test_what_is_no_run_folder_is_refused(command: tuple[str, ...], path: str, skedge: Skedge) -> None:
    """A missing path, another folder, a file."""
    Path("file").touch()
    refused(skedge(command[0], path, *command[1:]), f"{path}: is not a run folder (there is no run.json)")


WRONG_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda f: (f / "run.json").write_text("{garbage"), "run.json: the run folder is damaged"),
    "bytes": (lambda f: (f / "run.json").write_bytes(b"\xff\xfe"), "run.json: the run folder is damaged"),
    "a list": (lambda f: (f / "run.json").write_text("[]"), "run.json: format is not 2"),
    "another format": (lambda f: (f / "run.json").write_text('{"format": 9}'), "run.json: format is not 2"),
    "no policy": (lambda f: (f / "run.json").write_text('{"format": 2}'), "'policy' is missing or of a wrong type"),
    "no table": (lambda f: (f / "tables" / "ps.parquet").unlink(), "ps.parquet: the run folder is incomplete"),
    "no tables": (lambda f: shutil.rmtree(f / "tables"), "runs.parquet: the run folder is incomplete"),
    "a table of garbage": (
        lambda f: (f / "tables" / "jobs.parquet").write_text("x"),
        "jobs.parquet: the run folder is",
    ),
    "a table cut in half": (
        lambda f: (f / "tables" / "runs.parquet").write_bytes((f / "tables" / "runs.parquet").read_bytes()[:999]),
        "runs.parquet: the run folder is",
    ),
    "a table without a column": (
        lambda f: pl.DataFrame({"job": [1]}).write_parquet(f / "tables" / "ps.parquet"),
        "ps.parquet: the run folder is damaged: it has no column 'server' of text values",
    ),
    "a column of another type": (
        lambda f: change(f, "runs", start=pl.col("start").cast(pl.String)),
        "runs.parquet: the run folder is damaged: it has no column 'start' of whole-number values",
    ),
    "no scenario": (lambda f: (f / "scenario.yaml").unlink(), "scenario.yaml: cannot be read"),
    "no jobs": (lambda f: (f / "jobs.parquet").unlink(), "jobs.parquet: cannot be read"),
}


def change(folder: Path, table: str, **columns: pl.Expr) -> None:
    file = folder / "tables" / f"{table}.parquet"
    pl.read_parquet(file).with_columns(**columns).write_parquet(file)


@pytest.mark.parametrize("command", ["verify", "metrics", "explain"])
@pytest.mark.parametrize("wrong", WRONG_FOLDERS)
def test_a_damaged_run_folder_is_one_error_that_names_the_file(
    wrong: str, command: str, skedge: Skedge, damaged: Path
) -> None:
    """Every command that reads one says it alike."""
    damage, message = WRONG_FOLDERS[wrong]
    damage(damaged)
    refused(skedge(command, damaged, *(["0"] if command == "explain" else [])), "damaged/", message)


IMPOSSIBLE_ROWS: dict[str, tuple[str, dict[str, pl.Expr]]] = {
    "a job that is not": ("runs", {"job": pl.lit(10**6, pl.Int32)}),
    "a job below 0": ("runs", {"job": pl.lit(-7, pl.Int32)}),
    "no job": ("ps", {"job": pl.lit(None, pl.Int32)}),
    "no start": ("runs", {"start": pl.lit(None, pl.Int64)}),
    "a lane that is not": ("decisions", {"lane": pl.lit(10**6, pl.Int32)}),
    "a chunk that is not": ("decisions", {"chunk": pl.lit(10**6, pl.Int32)}),
    "a server that is not": ("runs", {"server": pl.lit("moon")}),
    "another job's id": ("jobs", {"id": pl.lit("x")}),
}


@pytest.mark.parametrize("wrong", IMPOSSIBLE_ROWS)
def test_rows_that_cannot_be_are_named_by_verify_and_refused_by_the_others(
    wrong: str, skedge: Skedge, damaged: Path
) -> None:
    """verify reports M1 and goes on; nothing is computed from such a record, compiled code least of all."""
    table, columns = IMPOSSIBLE_ROWS[wrong]
    change(damaged, table, **columns)
    told = skedge("verify", damaged)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("M1 ")
    for words in (("metrics", damaged), ("explain", damaged, "0")):
        refused(skedge(*words), f"damaged: the record is damaged: {table}[0]")


def test_a_jobs_table_that_lacks_jobs_is_told_by_verify_and_refused_by_the_others(
    skedge: Skedge, damaged: Path
) -> None:
    """M18: every job has one row."""
    file = damaged / "tables" / "jobs.parquet"
    pl.read_parquet(file).head(3).write_parquet(file)
    assert "M18" in skedge("verify", damaged).err
    refused(skedge("metrics", damaged), "the jobs table does not have the 25 jobs of the scenario")


def test_a_run_of_a_policy_that_is_not_installed_can_be_verified_but_not_explained(
    skedge: Skedge, damaged: Path
) -> None:
    """The record speaks for itself; an explanation needs the policy."""
    meta = json.loads((damaged / "run.json").read_text())
    (damaged / "run.json").write_text(json.dumps({**meta, "policy": "theirs:x=1"}))
    assert skedge("verify", damaged).code == 0
    refused(skedge("explain", damaged, "0"), "policy 'theirs' is unknown")


def test_an_unknown_job_is_one_error_with_jobs_that_there_are(skedge: Skedge, folder: Path) -> None:
    """The id as it was typed, and how many there are."""
    refused(skedge("explain", folder, "nobody"), "job 'nobody' is not in this run; its jobs are", "(25 in all)")


# --- where things are written


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("there", "there: exists already; name a new folder or remove it"),
        ("small.yaml", "small.yaml: exists already"),
        ("dangling", "dangling: exists already"),
        ("small.yaml/r", "small.yaml/r: cannot be written"),
        ("new/" + "n" * 300, "cannot be written: File name too long; nothing was left behind"),
        ("", "exists already"),
    ],
)
def test_a_run_folder_that_cannot_be_made_fails_before_the_run(
    out: str, message: str, skedge: Skedge, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after an hour of simulation; and no folder on the way to it stays."""
    monkeypatch.setattr("skedge.cli.run.run_policy", None)
    Path("there").mkdir()
    Path("dangling").symlink_to("nowhere")
    before = files()
    refused(skedge("run", small, "--out", out), message)
    assert files() == before


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("there", "there: the report cannot be written: it is a folder"),
        ("no/c.html", "no is not a folder"),
        ("small.yaml/c.html", "small.yaml is not a folder"),
    ],
)
def test_a_report_that_cannot_be_written_fails_before_the_comparison(
    report: str, message: str, skedge: Skedge, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is looked at first."""
    monkeypatch.setattr("skedge.comparison.compare.compare", None)
    Path("there").mkdir()
    refused(skedge("compare", small, "--report", report), message)
    assert files() == {"small.yaml", "there"}


def test_a_file_that_is_no_report_is_not_replaced_by_one(
    skedge: Skedge, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedge.comparison.compare.compare", None)
    before = small.read_bytes()
    refused(skedge("compare", small, "--report", small), f"{small}: exists and is not a report of skedge")
    assert small.read_bytes() == before


def test_an_earlier_report_is_replaced_and_the_output_says_so(skedge: Skedge, small: Path) -> None:
    words = ("compare", small, "--policies", "srtf", "--seeds", 1, "--processes", 1)
    assert "replaced" not in skedge(*words).out
    assert "comparison.html (an earlier report was replaced)" in skedge(*words).out


def test_a_report_name_that_is_too_long_is_one_error_and_leaves_nothing(skedge: Skedge, small: Path) -> None:
    """What only the system knows is told when it says so."""
    words = ("--policies", "srtf", "--seeds", 1, "--processes", 1, "--report", "n" * 300)
    refused(skedge("compare", small, *words), "the report cannot be written: File name too long")
    assert files() == {"small.yaml"}


@pytest.mark.parametrize("content", [{"report.html": "mine", "thesis.txt": "x"}, {"thesis.txt": "x"}, {}])
def test_demo_does_not_replace_a_folder_that_is_not_a_demos(content: dict[str, str], skedge: Skedge) -> None:
    """Not even one that has a report.html of its own."""
    Path("mine").mkdir()
    for name, words in content.items():
        (Path("mine") / name).write_text(words)
    before = files()
    refused(skedge("demo", "--out", "mine"), "mine: exists and is not an earlier demo; name another folder")
    assert files() == before


def no_space(*given: object, **more: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["polars.DataFrame.write_parquet", "pathlib.Path.write_text", "pathlib.Path.rename"])
def test_a_disk_that_fills_up_is_one_error_and_leaves_nothing(
    fails: str, skedge: Skedge, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write fails, of tables, texts, or the last renaming; folders made on the way go too."""
    with monkeypatch.context() as patched:
        patched.setattr(fails, no_space)
        told = skedge("run", small, "--out", "deep/er/r")
    refused(told, "deep/er/r: cannot be written: No space left on device; nothing was left behind")
    assert files() == {"small.yaml"}
    assert skedge("run", small, "--out", "deep/er/r").code == 0


@pytest.fixture
def tiny() -> Iterator[Path]:
    """A file system of 64 KiB."""
    path = Path("tiny").absolute()
    path.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("mounting a small file system takes root")
    words = [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a small file system be mounted")
    yield path
    subprocess.run([shutil.which("umount") or "umount", str(path)], check=True)


def test_a_disk_that_is_really_full_is_one_error_and_leaves_nothing(skedge: Skedge, tiny: Path) -> None:
    """A run of 400 jobs and a report, on 64 KiB."""
    refused(skedge("run", "demo", "--policy", "fifo", "--out", tiny / "r"), "No space left on device")
    words = ("--policies", "fifo", "--seeds", 1, "--processes", 1)
    refused(skedge("compare", "demo", *words, "--report", tiny / "c.html"), "the report cannot be written: No space")
    assert list(tiny.iterdir()) == []


def test_an_error_of_the_system_that_nobody_expected_is_one_sentence_too(
    skedge: Skedge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be read for want of permission; a machine without memory."""
    for error, message in (
        (PermissionError(errno.EACCES, "Permission denied", "x.parquet"), "skedge: x.parquet: Permission denied\n"),
        (MemoryError(), "skedge: out of memory"),
    ):

        def fails(*given: object, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Run, "verify", fails)
            told = skedge("verify", folder)
        assert told.code == 1
        assert told.err.startswith(message)


# --- what is interrupted


def test_ctrl_c_in_a_run_exits_with_130_and_leaves_nothing() -> None:
    """A run that is under way: its unfinished folder is there before and gone after."""
    Path("long.yaml").write_text(
        "cluster: {draw: {load: 0.9, machines: philly-like}}\nworkload: {synthetic: {jobs: 200000, span: 1000d}}\n"
    )
    words = [SCRIPT, "run", "long.yaml", "--policy", "srtf", "--out", "new/r"]
    begun = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(Path().glob("new/.r.*.partial")) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    assert begun.poll() is None
    begun.send_signal(signal.SIGINT)
    printed, told = begun.communicate(timeout=60)
    assert (begun.returncode, printed) == (130, "")
    assert told == "skedge: interrupted; nothing was written\n"
    assert files() == {"long.yaml"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, SkedgeError])
def test_whatever_ends_the_work_the_folder_aside_goes(error: type[BaseException]) -> None:
    """Also an error of ours, which is not swallowed."""

    def fail() -> None:
        with new_folder("a/b/c") as aside:
            (aside / "half").write_text("x")
            raise error

    with pytest.raises(error):
        fail()
    assert files() == set()


def test_a_folder_made_by_another_meanwhile_is_not_overwritten() -> None:
    """The renaming fails, and says so."""

    def late() -> None:
        with new_folder("r") as aside:
            (aside / "mine").touch()
            Path("r").mkdir()
            Path("r/theirs").touch()

    with pytest.raises(SkedgeError, match="r: cannot be written: Directory not empty; nothing was left behind"):
        late()
    assert files() == {"r", "r/theirs"}


def dies(parent: int, seed: int) -> Any:
    """A scenario, in the process `parent`; another one ends."""
    return small_scenario(seed) if os.getpid() == parent else os._exit(9)


def test_a_run_that_the_system_ends_is_an_error_of_the_comparison() -> None:
    """As when memory runs out: no hanging, no traceback of the pool."""
    with pytest.raises(SkedgeError, match="a run was ended from outside"):
        compare(partial(dies, os.getpid()), ["srtf", "fifo"], [1, 2], processes=2)


def test_a_comparison_of_nothing_is_refused() -> None:
    """No policy, no run."""
    with pytest.raises(InputError, match="name at least one"):
        compare(small_scenario, [])
