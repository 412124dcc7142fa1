"""Tables of jobs read by a mapping: five public formats, and files that are wrong in many ways."""

from __future__ import annotations

import codecs
from pathlib import Path

import numpy as np
import pytest
import yaml

from builders.paths import TRACES
from skedge.core.errors import TraceError
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.mapping_file import mapping_of, read_mapping
from skedge.traces.formats import FORMATS, MAPPINGS, read_trace, shipped_mapping
from skedge.traces.frame import TRACE_SCHEMA
from skedge.traces.makers.workload import DATA_MB, rigid_jobs
from skedge.traces.readers.mapped import read_mapped
from skedge.traces.readers.mapping import TraceMapping
from skedge.traces.unmapped import unmapped_error

ALL = ("passed", "failed", "killed")
OPENB = TRACES / "alibaba2023" / "openb_pod_list_default.csv"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def jobs(trace) -> list[tuple]:
    """Name, submission, duration, GPUs, status and group of every job."""
    return trace.frame.select(list(TRACE_SCHEMA)).rows()


# --- five formats, by mappings of at most ten lines; the rows are written by hand from the public descriptions

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "9,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:08:35,2020-04-01 00:08:36,2020-04-01 00:18:36,600,1\n"
    "10,u2,vcB,0,4,1,COMPLETED,2020-04-01 00:09:00,2020-04-01 00:09:00,2020-04-01 00:09:30,30,0\n"
    "11,u2,vcB,1,4,1,CANCELLED,2020-04-01 00:10:35,2020-04-01 00:10:35,2020-04-01 00:10:40,5,0\n"
    "12,u2,vcB,1,4,1,NODE_FAIL,2020-04-01 00:10:36,2020-04-01 00:10:36,2020-04-01 00:10:40,4,0\n"
)
HELIOS_JOBS = [
    ("9", 0.0, 600.0, 8, "passed", "vcA"),
    ("11", 120.0, 5.0, 1, "killed", "vcB"),
    ("12", 121.0, 4.0, 1, "failed", "vcB"),
]
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    "a,u1,8,64,9,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,8,10,5\n"
    "b,u1,1,1,8,Debug,COMPLETED,2023-05-17 19:00:00+08:00,2023-05-17 19:00:08+08:00,2023-05-17 19:01:16+08:00,68,8,68\n"
)
ACME_JOBS = [("b", 0.0, 68.0, 1, "passed", "u1"), ("a", 58.0, 8.0, 64, "failed", "u1")]
SLURM = (
    "JobIDRaw|User|Submit|Start|End|State|AllocTRES\n"
    "1|ana|2024-01-01T10:00:00|2024-01-01T10:00:05|2024-01-01T10:10:05|COMPLETED|billing=8,cpu=8,gres/gpu=4,node=1\n"
    "2|ben|2024-01-01T10:01:00|Unknown|Unknown|PENDING|\n"
    "3|ben|2024-01-01T10:02:00|2024-01-01T10:02:00|2024-01-01T10:02:09|CANCELLED by 1001|cpu=1,gres/gpu=1,node=1\n"
    "4|ben|2024-01-01T10:03:00|2024-01-01T10:03:00|2024-01-01T10:03:09|COMPLETED|billing=8,cpu=8,mem=1G\n"
)
SLURM_JOBS = [("1", 0.0, 600.0, 4, "passed", "ana"), ("3", 120.0, 9.0, 1, "killed", "ben")]
TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "1,2,0,10000,vgg16,300,10\n"
    "2,16,10,9000,resnet50,7200,20\n"
)
TIRESIAS_MAPPING = """\
id: job_id
arrival: submit_time
duration: duration
gpus: num_gpu
user: model_name
time: s
"""
TIRESIAS_JOBS = [("1", 0.0, 300.0, 2, "passed", "vgg16"), ("2", 10.0, 7200.0, 16, "passed", "resnet50")]
PAI_INSTANCES = """\
j1,ps,i1,w1,x1,Terminated,110.0,200.0,m1
j1,worker,i2,w2,x1,Terminated,120.0,260.0,m1
j1,worker,i3,w3,x1,Terminated,130.0,250.0,m2
j2,tf,i4,w4,x2,Failed,105.0,108.0,m2
j3,tf,i5,w5,x3,Running,150.0,,m2
"""
PAI_JOBS = "j1,x1,ana,Terminated,100.0,260.0\nj2,x2,ben,Failed,104.0,108.0\nj3,x3,ben,Running,149.0,\n"
PAI_TASKS = """\
j1,ps,1.0,Terminated,109.0,260.0,600.0,29.3,0.0,
j1,worker,2.0,Terminated,109.0,260.0,400.0,29.3,100.0,V100
j2,tf,1.0,Failed,104.0,108.0,600.0,29.3,50.0,MISC
j3,tf,1.0,Running,149.0,,600.0,29.3,100.0,T4
"""
PAI_FOUND = [("j1", 0.0, 140.0, 2, "passed", "ana"), ("j2", 4.0, 3.0, 1, "failed", "ben")]


@pytest.mark.parametrize(
    ("form", "name", "text", "expected"),
    [
        ("helios", "cluster_log.csv", HELIOS, HELIOS_JOBS),
        ("acme", "trace_kalos.csv", ACME, ACME_JOBS),
        ("slurm", "jobs.txt", SLURM, SLURM_JOBS),
        ("pai-2020", "pai_instance_table.csv", PAI_INSTANCES, PAI_FOUND),
    ],
)
def test_a_public_format_is_read_by_the_mapping_that_ships(tmp_path, form, name, text, expected):
    write(tmp_path / "pai_job_table.csv", PAI_JOBS)
    write(tmp_path / "pai_task_table.csv", PAI_TASKS)
    assert jobs(read_trace(write(tmp_path / name, text), form, ALL, "ceil")) == expected


def test_the_simulator_of_tiresias_has_jobs_that_a_mapping_file_reads(tmp_path):
    mapping = read_mapping(write(tmp_path / "tiresias.yaml", TIRESIAS_MAPPING))
    assert jobs(read_mapped(write(tmp_path / "60_job.csv", TIRESIAS), mapping, ALL)) == TIRESIAS_JOBS


def test_what_public_formats_have_besides_jobs_is_counted(tmp_path):
    write(tmp_path / "pai_job_table.csv", PAI_JOBS)
    write(tmp_path / "pai_task_table.csv", PAI_TASKS)
    assert read_trace(write(tmp_path / "log.csv", HELIOS), "helios").skipped == {"no GPU": 1, "other status": 2}
    assert read_trace(write(tmp_path / "s.txt", SLURM), "slurm", ALL).skipped == {"status to skip": 1, "no GPU": 1}
    pai = read_trace(write(tmp_path / "pai_instance_table.csv", PAI_INSTANCES), "pai-2020", ALL)
    assert pai.skipped == {"status to skip": 1, "fraction of a GPU": 1}


def test_mappings_take_at_most_ten_lines_for_a_table_of_jobs():
    lines = {
        name: [line for line in path.read_text().splitlines() if not line.startswith("#")]
        for name, path in MAPPINGS.items()
    }
    # three tables without headers; steps, attempts and columns that differ between versions
    assert {name for name, used in lines.items() if len(used) > 10} == {"pai-2020", "slurm"}
    flow = yaml.safe_dump(yaml.safe_load("\n".join(lines["pai-2020"])), default_flow_style=None, width=1000)
    assert shipped_mapping("pai-2020") == mapping_of(yaml.safe_load(flow), "flow")


@pytest.mark.skipif(not OPENB.is_file(), reason="the real traces are not here (they are not shipped)")
def test_the_real_pods_of_openb_are_read_whole():
    """8,152 pods, of which 1,052 with a submission ask for no GPU and 2,573 for a part of one."""
    trace = read_trace(OPENB, "openb-2023", ALL, "ceil")
    assert (len(trace.frame), trace.rows) == (6203, 8152)
    assert trace.changed == {"fraction of a GPU rounded up": 2573}


# --- Batsim's workloads

BATSIM = """{"nb_res": 8, "jobs": [
  {"id": "w0!1", "subtime": 5, "walltime": 100, "res": 4, "profile": "short"},
  {"id": "w0!2", "subtime": 2.5, "res": 1, "profile": "compute"}],
 "profiles": {"short": {"type": "delay", "delay": 60}, "compute": {"type": "parallel_homogeneous", "cpu": 1e9}}}"""


def test_a_workload_of_batsim_is_read_and_profiles_without_a_time_are_counted(tmp_path):
    trace = read_trace(write(tmp_path / "w.json", BATSIM), "batsim")
    assert jobs(trace) == [("w0!1", 0.0, 60.0, 4, "passed", "")]
    assert trace.skipped == {"profile without a delay": 1}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"jobs"', '"job"', "a list `jobs`"),
        ('"profile": "short"', '"profile": "long"', "job 0, profile: 'long'; it must be one of"),
        ('"subtime": 5', '"subtime": "x"', "job 0, subtime: 'x'; it must be a number"),
        ('"delay": 60', '"delay": -1', "profile 'short', delay: -1; it must be a number of 0 or more"),
        ("}}", "}", "is not JSON"),
    ],
)
def test_a_wrong_workload_of_batsim_is_refused(tmp_path, before, after, said):
    with pytest.raises(TraceError, match=said):
        read_trace(write(tmp_path / "w.json", BATSIM.replace(before, after)), "batsim")


# --- hostile files

SIMPLE = mapping_of(
    {"arrival": "at", "duration": "run", "gpus": "gpus", "id": "id", "user": "who", "status": "end"}, "a mapping"
)
HEAD = "id,at,run,gpus,who,end\n"
GOOD = "a,0,60,1,x,passed\nb,30,10,2,y,failed\n"
FOUND = [("a", 0.0, 60.0, 1, "passed", "x"), ("b", 30.0, 10.0, 2, "failed", "y")]

LOADS = {
    "a byte order mark": (codecs.BOM_UTF8 + (HEAD + GOOD).encode(), FOUND),
    "CRLF": ((HEAD + GOOD).replace("\n", "\r\n"), FOUND),
    "no newline at the end": ((HEAD + GOOD).rstrip("\n"), FOUND),
    "blank lines": (HEAD + "\n,,,,,\n" + GOOD + "\n\n", FOUND),
    "quotes": (HEAD + GOOD.replace("a,0", '"a","0"').replace(",x,", ',"x",'), FOUND),
    "a separator in quotes": (HEAD + GOOD.replace(",x,", ',"x, y",'), [(*FOUND[0][:5], "x, y"), FOUND[1]]),
    "a newline in quotes": (HEAD + GOOD.replace(",x,", ',"x\ny",'), [(*FOUND[0][:5], "x\ny"), FOUND[1]]),
    "spaces": ((HEAD + GOOD).replace(",", " , "), FOUND),
    "columns that are not used": ((HEAD + GOOD).replace("\n", ",junk\n").replace("junk", "j1", 1), FOUND),
    "unordered": (HEAD + "".join(reversed(GOOD.splitlines(keepends=True))), FOUND),
    "times that begin late": (HEAD + GOOD.replace("a,0", "a,1e9").replace("b,30", "b,1000000030"), FOUND),
    "fractions of a second": (HEAD + "a,0.5,60.0,1,x,passed\nb,30.5,1e1,2.0,y,failed\n", FOUND),
    "states in capitals": (HEAD + GOOD.replace("passed", "COMPLETED").replace("failed", "Failed"), FOUND),
    "NaN as a duration": (HEAD + GOOD + "c,40,NaN,1,x,passed\n", FOUND),
    "no submission": (HEAD + GOOD + "c,None,5,1,x,passed\n", FOUND),
    "no GPUs": (HEAD + GOOD + "c,40,5,,x,passed\nd,40,5,0,x,passed\n", FOUND),
    "a negative duration": (HEAD + GOOD + "c,40,-5,1,x,passed\n", FOUND),
    "names with other letters": (HEAD + GOOD.replace("a,0", "ä→,0"), [("ä→", *FOUND[0][1:]), FOUND[1]]),
    "ids of digits": (HEAD + GOOD.replace("a,0", "007,0"), [("007", *FOUND[0][1:]), FOUND[1]]),
}

REFUSED = {
    "nothing": ("", "cannot be read as CSV"),
    "a header alone": (HEAD, "no job is left"),
    "a column with another name": (HEAD.replace("run", "runs") + GOOD, "'run' is missing (did you mean 'runs'?)"),
    "a column twice": (HEAD.replace("who", "at") + GOOD, "column 'at' is there twice"),
    "a row with more values": (HEAD + GOOD + "c,1,2,3,4,5,6\n", "line 4: has 7 values; the file has 6 columns"),
    "text for a number": (HEAD + GOOD + "c,40,ten,1,x,passed\n", "line 4, column run: 'ten'; it must be a number"),
    "infinity": (HEAD + GOOD + "c,40,inf,1,x,passed\n", "line 4, column run: 'inf'; it must be a number"),
    "a decimal comma": (HEAD + GOOD + 'c,40,"1,5",1,x,passed\n', "line 4, column run: '1,5'; it must be a number"),
    "a duplicate": (HEAD + GOOD + GOOD, "line 2, column id: 'a'; it must be unique"),
    "an unknown state": (HEAD + GOOD + "c,40,5,1,x,exploded\n", "line 4, column end: 'exploded'; it must be a status"),
    "times of two kinds": (HEAD + GOOD + "c,2020-01-01 00:00:00,5,1,x,passed\n", "line 4, column at: '2020-01-01"),
    "an impossible date": (HEAD + "a,2020-13-01 00:00:00,5,1,x,passed\n", "'2020-13-01 00:00:00'; it must be a time"),
    "times in microseconds": (HEAD + GOOD.replace("30,10", "9e15,10"), "column at: the submissions span 9e+15 s"),
    "durations in nanoseconds": (HEAD + GOOD.replace(",60,", ",6e10,"), "column run: a job of 6e+10 s; its unit"),
    "another separator": ((HEAD + GOOD).replace(",", ";"), "column 'at' is missing"),
    "two bytes a letter": ((HEAD + GOOD).encode("utf-16"), "a.csv: "),
    "bytes": (bytes(range(256)) * 4, "a.csv: "),
    "a truncated quote": (HEAD + GOOD + 'c,40,5,1,"x,passed\n', "a.csv: "),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOADS)
def test_a_file_that_is_odd_is_read(tmp_path, kind):
    text, expected = LOADS[kind]
    assert jobs(read_mapped(write(tmp_path / "a.csv", text), SIMPLE, ALL)) == expected


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_wrong_is_refused_in_one_sentence(tmp_path, kind):
    text, said = REFUSED[kind]
    with pytest.raises(TraceError) as error:
        read_mapped(write(tmp_path / "a.csv", text), SIMPLE, ALL)
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "a.csv"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [
        ("ms", "0", "30000"),
        ("min", "0", "0.5"),
        ("iso", "2024-02-29T23:59:50Z", "2024-03-01T01:00:20+01:00"),
        ("auto", "2024-02-29 23:59:50.250", "2024-03-01 00:00:20.250"),
        ("%d/%m/%Y %H:%M:%S", "31/12/2023 23:59:45", "01/01/2024 00:00:15"),
    ],
)
def test_times_in_a_unit_or_a_format_are_the_same(tmp_path, unit, first, second):
    path = write(tmp_path / "a.csv", HEAD + GOOD.replace("a,0", f"a,{first}").replace("b,30", f"b,{second}"))
    assert jobs(read_mapped(path, SIMPLE.model_copy(update={"time": unit}), ALL)) == FOUND


# --- mappings


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"arrival": "at", "gpus": "n"}, "it must have either duration, or start and end"),
        ({"arrival": "at", "gpus": "n", "start": "s"}, "start and end go together"),
        ({"arrival": "at", "gpus": "n", "duration": "r", "arival": "x"}, "arival: is not a field (did you mean arriv"),
        ({"arrival": "at", "duration": "r"}, "gpus: is missing; it is needed"),
        ({"arrival": "at", "gpus": "n", "duration": "r", "gpus_pattern": "("}, "is not a regular expression"),
        ({"arrival": "at", "gpus": "n", "duration": "r", "gpus_pattern": "gpu"}, "has no group in brackets"),
        ({"arrival": "at", "gpus": "n", "duration": "r", "id": "i", "parts": "i"}, "id does not go with parts"),
        ({"arrival": "at", "gpus": "n", "duration": "r", "statuses": {"x": "passed"}}, "statuses goes with status"),
        ([1], "it must be a mapping"),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_refused(fields, said):
    with pytest.raises(TraceError) as error:
        mapping_of(fields, "m.yaml")
    assert "m.yaml" in str(error.value)
    assert said in str(error.value)


def test_a_mapping_chooses_rows_and_says_what_states_mean(tmp_path):
    mapping = mapping_of(
        {**SIMPLE.model_dump(exclude_defaults=True), "where": {"who": ["x", "z"]}, "statuses": {"*": "killed"}}, "m"
    )
    path = write(tmp_path / "a.csv", HEAD + GOOD + "c,40,5,1,z,exploded\n")
    trace = read_mapped(path, mapping, ALL)
    assert [(row[0], row[4]) for row in jobs(trace)] == [("a", "passed"), ("c", "killed")]
    assert trace.skipped == {"other who": 1}


def test_a_joined_table_must_name_each_row_once(tmp_path):
    write(tmp_path / "pai_job_table.csv", PAI_JOBS + PAI_JOBS)
    write(tmp_path / "pai_task_table.csv", PAI_TASKS)
    with pytest.raises(TraceError, match=r"pai_job_table.csv: line 1, column job_name: 'j1'; it must be in one row"):
        read_trace(write(tmp_path / "pai_instance_table.csv", PAI_INSTANCES), "pai-2020")


def test_a_scenario_file_has_a_mapping_inline_or_by_its_path(tmp_path):
    write(tmp_path / "jobs.csv", TIRESIAS)
    write(tmp_path / "m.yaml", TIRESIAS_MAPPING)
    made = [
        scenario_from_dict(
            {"cluster": {"draw": {"servers": 2}}, "workload": {"trace": {"path": "jobs.csv", "map": given}}},
            "here",
            tmp_path,
        )
        for given in ("m.yaml", yaml.safe_load(TIRESIAS_MAPPING))
    ]
    assert made[0].jobs.frame.equals(made[1].jobs.frame)
    assert made[0].source["format"] == "mapped"


# --- a file without a mapping


def test_of_an_unknown_file_the_head_is_shown_and_the_command_that_maps_it(tmp_path):
    said = str(unmapped_error(write(tmp_path / "t.csv", TIRESIAS)))
    assert "--arrival submit_time --duration duration --gpus num_gpu --id job_id" in said
    assert "\n  1,2,0,10000,vgg16,300,10" in said
    assert "--format acme or helios" in str(unmapped_error(write(tmp_path / "h.csv", HELIOS)))
    assert "--format slurm" in str(unmapped_error(write(tmp_path / "s.txt", SLURM)))
    assert "--arrival COLUMN" in str(unmapped_error(write(tmp_path / "x.csv", "a,b\n1,2\n")))


def test_every_format_is_in_the_schema_of_scenarios():
    from skedge.scenario.schema import json_schema

    kinds = json_schema()["$defs"]["TraceForm"]["properties"]["format"]["anyOf"][0]["enum"]
    assert kinds == FORMATS


def test_the_size_of_a_jobs_data_may_be_a_column(tmp_path: Path) -> None:
    """2,000,000,000 bytes of the first job are its 2,000 MB; the second states none, and one is drawn for it."""
    path = tmp_path / "t.csv"
    path.write_text("at,ran,gpus,bytes\n0,100000,2,2000000000\n5,100000,1,\n", encoding="utf-8")
    mapping = TraceMapping(arrival="at", duration="ran", gpus="gpus", data_mb="bytes / 1000000")
    trace = read_trace(path, mapping)
    assert trace.frame["data_mb"].to_list() == [2000.0, None]
    table = rigid_jobs(trace.frame, np.random.default_rng(0), ["gpu"], ["cpu"]).table
    data = (table["chunk_mb"] * table["chunks"]).to_list()
    assert data[0] == pytest.approx(2000)
    assert data[1] in DATA_MB
    path.write_text("at,ran,gpus,bytes\n0,100000,2,0\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"row 0, column data_mb: 0\.0; it must be above 0"):
        read_trace(path, mapping)


def test_a_product_that_divides_by_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gpus 'pct / 0 \* inst' divides by 0"):
        TraceMapping(arrival="at", duration="ran", gpus="pct / 0 * inst")
