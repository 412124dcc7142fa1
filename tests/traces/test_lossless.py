"""Nothing of a trace is lost in silence: small inputs with the right answers, by hand."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from skedge.core.errors import TraceError
from skedge.scenario.file import load_scenario
from skedge.scenario.mapping_file import mapping_of
from skedge.traces.describe import describe
from skedge.traces.formats import read_trace
from skedge.traces.frame import Trace
from skedge.traces.readers.mapped import read_mapped

ALL = ("passed", "failed", "killed")
PARTS = {"parts": "job", "arrival": "submit", "start": "start", "end": "end", "gpus": "gpus", "status": "state"}
HEAD = "job,submit,start,end,gpus,state\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def of_parts(folder: Path, text: str) -> Trace:
    return read_mapped(write(folder / "parts.csv", HEAD + text), mapping_of(PARTS, "parts"), ("passed", "failed"))


def jobs(trace: Trace) -> list[tuple]:
    """Name, duration, GPUs and status of every job."""
    return trace.frame.select("id", "duration_s", "gpus", "status").rows()


# --- parts of jobs


def test_parts_without_an_id_are_left_out_and_counted(tmp_path):
    """They were one job of 4 GPUs over 14,749 s. Two GPUs for 100 s are 0.056 GPU-h; the file has 5 rows."""
    trace = of_parts(
        tmp_path,
        "j1,0,0,100,1,Terminated\nj1,0,5,100,1,Terminated\n,65351,65351,65517,1,Terminated\n"
        "NaN,70000,70000,70100,1,Terminated\n,80000,80000,80100,2,Terminated\n",
    )
    assert jobs(trace) == [("j1", 100.0, 2, "passed")]
    assert (trace.rows, trace.merged, trace.skipped) == (5, 1, {"no id": 3})


def test_a_job_of_which_a_part_still_runs_is_left_out_whole(tmp_path):
    """j1 was taken on 4 of its 8 GPUs, as passed. j3's worst part failed; it ran until its last part's end."""
    trace = of_parts(
        tmp_path,
        "j1,0,0,100,4,Terminated\nj1,0,0,,4,Running\nj2,0,0,100,1,Terminated\n"
        "j3,0,0,100,2,Terminated\nj3,0,0,200,2,Failed\n",
    )
    assert jobs(trace) == [("j2", 100.0, 1, "passed"), ("j3", 200.0, 4, "failed")]
    assert (trace.rows, trace.merged, trace.skipped) == (5, 2, {"status to skip": 1})


def test_a_part_without_an_end_leaves_its_job_without_a_run_time(tmp_path):
    trace = of_parts(tmp_path, "j1,0,0,100,4,Terminated\nj1,0,0,,4,Terminated\nj2,0,0,100,1,Terminated\n")
    assert jobs(trace) == [("j2", 100.0, 1, "passed")]
    assert trace.skipped == {"no run time": 1}


@pytest.mark.parametrize("gpus", ["0", "", "NaN"])
def test_a_part_without_gpus_takes_no_part_in_the_time_and_is_counted(tmp_path, gpus):
    """A PS on CPUs ran from 0 to 1,000 s, the GPUs of j1 from 10 to 110 s: 200 GPU-seconds, and not 2,000."""
    trace = of_parts(tmp_path, f"j1,0,0,1000,{gpus},Terminated\nj1,0,10,110,2,Terminated\nj2,0,0,10,0,Terminated\n")
    assert jobs(trace) == [("j1", 100.0, 2, "passed")]
    assert (trace.changed, trace.skipped) == ({"part without GPUs not counted": 1}, {"no GPU": 1})


def test_rows_are_those_of_the_file_whatever_becomes_of_them(tmp_path):
    """Two parts merged into one, one job of three parts left out as failed, a blank line, a row without an id."""
    trace = of_parts(
        tmp_path,
        "a,0,0,9,1,Terminated\na,0,0,9,1,Terminated\n\nb,1,1,9,1,Terminated\n,1,1,9,1,Terminated\n"
        "c,1,1,9,1,Cancelled\nc,1,1,9,1,Cancelled\nc,1,1,9,1,Cancelled\n",
    )
    assert trace.skipped == {"blank line": 1, "no id": 1, "other status": 1}
    assert (len(trace.frame), trace.merged, trace.rows) == (2, 3, 8)
    assert describe(trace)["rows"] == 8


# --- exact numbers of GPUs


def test_every_product_of_a_percentage_and_a_number_of_instances_is_exact(tmp_path):
    """Of 100 percentages and 100 numbers, 253 of those that are whole were lost in floats, as 7 / 100 * 100 is."""
    pairs = [(percent, count) for percent in range(1, 101) for count in range(1, 101)]
    rows = "".join(f"{percent}-{count},0,1,{percent},{count}\n" for percent, count in pairs)
    mapping = {"id": "id", "arrival": "at", "duration": "run", "gpus": "plan / 100 * inst"}
    path = write(tmp_path / "a.csv", "id,at,run,plan,inst\n" + rows)
    trace = read_mapped(path, mapping_of(mapping, "m"))
    right = {f"{p}-{n}": p * n // 100 for p, n in pairs if p * n % 100 == 0}
    assert dict(trace.frame.select("id", "gpus").rows()) == right
    assert trace.skipped == {"fraction of a GPU": len(pairs) - len(right)}
    up = read_mapped(path, mapping_of(mapping, "m"), fractional="ceil")
    assert dict(up.frame.select("id", "gpus").rows()) == {f"{p}-{n}": -(-p * n // 100) for p, n in pairs}


@pytest.mark.parametrize(("parts", "gpus"), [(10, "0.7"), (3, "0.1"), (30, "0.1"), (7, "0.3"), (3, "1 / 3")])
def test_fractions_of_parts_add_up_exactly(tmp_path, parts, gpus):
    """10 x 0.7 is 7, and 3 x 1/3 is 1."""
    numerator, _, denominator = gpus.partition(" / ")
    mapping = PARTS | {"gpus": f"gpus / {denominator}" if denominator else "gpus"}
    text = HEAD + f"j,0,0,10,{numerator},Terminated\n" * parts
    total = parts * Fraction(numerator) / int(denominator or 1)
    trace = read_mapped(write(tmp_path / "a.csv", text), mapping_of(mapping, "m"), fractional="ceil")
    assert trace.frame["gpus"].to_list() == [-(-total.numerator // total.denominator)]
    assert trace.changed == ({} if total.denominator == 1 else {"fraction of a GPU rounded up": 1})


def test_floats_that_a_dump_already_has_are_healed(tmp_path):
    text = HEAD + "a,0,0,10,6.999999999999999,Terminated\nb,0,0,10,0.30000000000000004,Terminated\n" * 1
    trace = of_parts(tmp_path, text.removeprefix(HEAD))
    assert (jobs(trace), trace.skipped) == ([("a", 10.0, 7, "passed")], {"fraction of a GPU": 1})


def test_the_instances_of_pai_are_whole_gpus(tmp_path):
    """30 x 10 % is 3, 10 x 70 % is 7: 3 x 890 + 7 x 790 + 4 x 590 = 10,560 GPU-s. The file has 46 rows."""
    instances = [
        *(f"jA,worker,jA-{i},w,i1,Terminated,110,1000,m1" for i in range(30)),
        *(f"jB,worker,jB-{i},w,i2,Terminated,210,1000,m1" for i in range(10)),
        *(f"jC,worker,jC-{i},w,i3,Terminated,310,900,m1" for i in range(4)),
        "jD,worker,jD-0,w,i4,Failed,320,900,m1",
        "jE,worker,jE-0,w,i5,Running,330,,m1",
    ]
    write(
        tmp_path / "pai_job_table.csv",
        "jA,i1,u1,Terminated,100,1000\njB,i2,u2,Terminated,200,1000\njC,i3,u3,Terminated,300,900\n"
        "jD,i4,u4,Failed,310,900\njE,i5,u5,Running,320,\n",
    )
    write(
        tmp_path / "pai_task_table.csv",
        "jA,worker,30,Terminated,100,1000,600,29,10,MISC\njB,worker,10,Terminated,200,1000,600,29,70,MISC\n"
        "jC,worker,4,Terminated,300,900,600,29,100,V100\njD,worker,1,Failed,310,900,600,29,50,T4\n"
        "jE,worker,1,Running,320,,600,29,100,T4\n",
    )
    trace = read_trace(write(tmp_path / "pai_instance_table.csv", "\n".join(instances) + "\n"), "pai-2020")
    assert jobs(trace) == [("jA", 890.0, 3, "passed"), ("jB", 790.0, 7, "passed"), ("jC", 590.0, 4, "passed")]
    assert trace.frame.select("user", "gpu_type").rows() == [("u1", "MISC"), ("u2", "MISC"), ("u3", "V100")]
    assert (trace.rows, trace.merged) == (46, 41)
    assert describe(trace)["gpu_hours"] == pytest.approx(10_560 / 3600)


# --- times


@pytest.mark.parametrize(("unit", "one"), [("ns", 10**9), ("us", 10**6), ("ms", 10**3), ("s", 1)])
def test_epochs_in_a_stated_unit_are_read_and_in_another_refused(tmp_path, unit, one):
    """Two submissions a second apart. Without the unit, times of the year 5138 or later are in no seconds."""
    text = "job,submit,dur,gpus\n" + "".join(f"{name},{at * one},100,1\n" for name, at in (("a", 1714557600), ("b", 1714557601)))  # fmt: skip  # noqa: E501
    columns = {"arrival": "submit", "duration": "dur", "gpus": "gpus", "id": "job"}
    path = write(tmp_path / "epoch.csv", text)
    trace = read_mapped(path, mapping_of({**columns, "time": unit}, "m"))
    assert describe(trace)["span_s"] == pytest.approx(1, abs=1e-6)
    if unit != "s":
        with pytest.raises(TraceError, match=r"column submit: .* `time` must be"):
            read_mapped(path, mapping_of(columns, "m"))


def test_gaps_between_submissions_add_up_over_all_rows(tmp_path):
    """5, 3, 8 and 4 s after the row before; the second row is not taken, and its gap counts."""
    text = "id,gap,run,gpus,end\na,5,10,1,ok\nb,3,10,1,running\nc,8,10,1,ok\nd,4,10,1,ok\n"
    columns = {"id": "id", "duration": "run", "gpus": "gpus", "status": "end"}
    path = write(tmp_path / "gaps.csv", text)
    trace = read_mapped(path, mapping_of({**columns, "interarrival": "gap"}, "m"))
    assert trace.frame.select("id", "submit_s").rows() == [("a", 0.0), ("c", 11.0), ("d", 15.0)]
    assert trace.note == ""
    backwards = write(tmp_path / "back.csv", "gap,run,gpus\n30,9,1\n20,9,1\n10,9,1\n")
    last_first = mapping_of({"arrival": "gap", "duration": "run", "gpus": "gpus"}, "m")
    assert read_mapped(backwards, last_first).note == ""
    assert "give the column as interarrival" in read_mapped(path, mapping_of({**columns, "arrival": "gap"}, "m")).note


def test_gaps_and_gpus_may_be_products_and_numbers(tmp_path):
    """1,500 ms after the row before, as a product and by the unit; every job on 4 GPUs."""
    path = write(tmp_path / "gaps.csv", "gap,run\n0,10\n1500,10\n")
    for columns in ({"interarrival": "gap / 1000"}, {"interarrival": "gap", "time": "ms"}):
        trace = read_mapped(path, mapping_of({**columns, "duration": "run", "gpus": "4"}, "m"))
        assert trace.frame.select("submit_s", "gpus").rows() == [(0.0, 4), (1.5, 4)]
    with pytest.raises(TraceError, match="interarrival '5' names no column"):
        mapping_of({"interarrival": "5", "duration": "run", "gpus": "4"}, "m")


@pytest.mark.parametrize("gap", ["-1", "", "x"])
def test_a_gap_that_is_none_is_refused_with_its_line(tmp_path, gap):
    text = f"gap,run,gpus\n5,10,1\n{gap},10,1\n"
    with pytest.raises(TraceError, match="line 3, column gap"):
        read_mapped(
            write(tmp_path / "a.csv", text),
            mapping_of({"interarrival": "gap", "duration": "run", "gpus": "gpus"}, "m"),
        )


def test_the_command_line_takes_gaps_and_says_where_arrivals_look_like_some(tmp_path, skedge):
    path = write(tmp_path / "gaps.csv", "gap,run,gpus\n0,60,1\n30,60,1\n10,60,1\n20,60,1\n")
    words = ("--duration", "run", "--gpus", "gpus")
    told = skedge("trace", "describe", path, "--interarrival", "gap", *words, "--json").json
    assert (told["span_s"], told["note"]) == (60, None)
    wrong = skedge("trace", "describe", path, "--arrival", "gap", *words)
    assert "does not increase" in wrong.out
    assert "--interarrival gap" in skedge("trace", "describe", path).err


# --- Philly's attempts and Slurm's rows


def attempt(start, end, gpus):
    return {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}]}


def day(clock):
    return f"2017-10-07 {clock}"


PHILLY = {
    "a start without an end": [attempt(day("01:12:00"), None, 8), attempt(day("03:12:00"), day("03:22:00"), 2)],
    "an end without a start": [attempt(None, day("02:12:00"), 8), attempt(day("03:12:00"), day("03:22:00"), 2)],
    "at the end": [attempt(day("03:12:00"), day("03:22:00"), 2), attempt(None, day("05:12:00"), 8)],
}


@pytest.mark.parametrize("kind", PHILLY)
def test_an_attempt_without_a_start_or_an_end_is_counted_as_changed(tmp_path, kind):
    """What it ran on, and for how long, is in no figure of the trace: 8 GPUs became 2 in silence."""
    job = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": PHILLY[kind], "submitted_time": day("01:11:39")}
    trace = read_trace(write(tmp_path / "log.json", json.dumps([job])), "philly")
    assert jobs(trace) == [("a", 600.0, 2, "passed")]
    assert trace.changed == {"attempt without a start or an end not counted": 1}


def test_attempts_that_overlap_hold_their_gpus_once(tmp_path):
    attempts = [attempt(day("01:12:00"), day("03:12:00"), 8), attempt(day("02:12:00"), day("03:12:00"), 2)]
    job = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": attempts, "submitted_time": day("01:11:39")}
    trace = read_trace(write(tmp_path / "log.json", json.dumps([job])), "philly")
    assert jobs(trace) == [("a", 7200.0, 8, "passed")]
    assert trace.changed == {"overlap of attempts counted once": 1}


SACCT = "JobIDRaw|User|Submit|Start|End|State|AllocTRES\n"
RAN = "2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:31:00"


def test_steps_of_a_slurm_job_are_no_jobs(tmp_path):
    text = SACCT + "".join(
        f"{name}|{user}|{RAN}|COMPLETED|cpu=4,gres/gpu=2,mem=32G,node=1\n"
        for name, user in (("200", "u1"), ("200.batch", ""), ("200.0", ""), ("200.extern", ""))
    )
    trace = read_trace(write(tmp_path / "s.txt", text), "slurm")
    assert jobs(trace) == [("200", 1800.0, 2, "passed")]
    assert (trace.rows, trace.skipped, describe(trace)["gpu_hours"]) == (4, {"step of a job": 3}, 1.0)


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=4,cpu=4,gres/gpu:a100=2,mem=32G,node=1", 2),
        ("billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=32G,node=1", 2),
        ("billing=4,gres/gpumem=40G,gres/gpuutil=10,gres/gpu=4,mem=32G,node=1", 4),
        ("gres/gpu:a100=2,gres/gpu:v100=1,node=1", 3),
        ("gpu:2", 2),
        ("gpu:tesla:2", 2),
        ("gpu:a100:4(S:0-1)", 4),
        ("gres:gpu:1", 1),
    ],
)
def test_the_gpus_of_a_slurm_job_are_those_of_all_types(tmp_path, tres, gpus):
    trace = read_trace(write(tmp_path / "s.txt", f"{SACCT}300|u1|{RAN}|COMPLETED|{tres}\n"), "slurm")
    assert jobs(trace) == [("300", 1800.0, gpus, "passed")]


SLURM_STATES = {
    "passed": ("COMPLETED",),
    "failed": ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    "killed": ("CANCELLED", "CANCELLED by 1000", "DEADLINE", "PREEMPTED"),
    "skip": (
        *("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
        *("RESIZING", "RESV_DEL_HOLD", "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED"),
        *("POWER_UP_NODE", "UPDATE_DB", "EXPEDITING"),
    ),
}


@pytest.mark.parametrize(("meaning", "state"), [(m, state) for m, of in SLURM_STATES.items() for state in of])
def test_every_state_of_sacct_is_known(tmp_path, meaning, state):
    text = f"{SACCT}1|u|{RAN}|COMPLETED|gres/gpu=1\n2|u|{RAN}|{state}|gres/gpu=1\n"
    trace = read_trace(write(tmp_path / "s.txt", text), "slurm", ALL)
    assert trace.frame["status"].to_list()[1:] == ([] if meaning == "skip" else [meaning])
    assert trace.skipped == ({"status to skip": 1} if meaning == "skip" else {})


def test_the_elapsed_time_of_a_slurm_job_counts_before_its_local_times(tmp_path):
    """The clocks went back on 2024-11-03: 01:30 to 01:30 is an hour; in spring 01:30 to 03:30 is one, too."""
    head = SACCT.replace("End|", "End|ElapsedRaw|")
    text = head + (
        "1|u|2024-11-03T01:00:00|2024-11-03T01:30:00|2024-11-03T01:30:00|3600|COMPLETED|gres/gpu=1\n"
        "2|u|2024-11-03T01:00:00|2024-11-03T01:40:00|2024-11-03T01:10:00|1800|COMPLETED|gres/gpu=1\n"
    )
    assert jobs(read_trace(write(tmp_path / "s.txt", text), "slurm")) == [
        ("1", 3600.0, 1, "passed"),
        ("2", 1800.0, 1, "passed"),
    ]


def test_a_requeued_slurm_job_is_one_job_and_counts_all_its_runs(tmp_path):
    """sacct --duplicates: 600 s until its node failed, 1,200 s to the end; 4 rows, 2 jobs, one of which waits again."""
    text = SACCT + (
        "7|u|2024-05-01T10:00:00|2024-05-01T10:10:00|2024-05-01T10:20:00|NODE_FAIL|gres/gpu=2\n"
        "8|u|2024-05-01T10:00:00|2024-05-01T10:10:00|2024-05-01T10:20:00|PREEMPTED|gres/gpu=1\n"
        "7|u|2024-05-01T10:20:00|2024-05-01T10:30:00|2024-05-01T10:50:00|COMPLETED|gres/gpu=2\n"
        "8|u|2024-05-01T10:20:00|Unknown|Unknown|PENDING|\n"
    )
    trace = read_trace(write(tmp_path / "s.txt", text), "slurm")
    assert jobs(trace) == [("7", 1800.0, 2, "passed")]
    assert (trace.rows, trace.merged, trace.skipped) == (4, 2, {"status to skip": 1})


# --- what the trace counts, and what jobs keep


@pytest.mark.parametrize(
    ("form", "text", "unit", "key"),
    [
        ("swf", "1 0 0 10 4 -1 -1 4 -1 -1 1 7 1 1 1 1 -1 -1\n", "processor", "processors"),
        ("batsim", json.dumps({"jobs": [{"id": 1, "subtime": 0, "res": 4, "profile": "p"}],
                               "profiles": {"p": {"type": "delay", "delay": 9}}}), "resource", "resources"),
        ("google-jobs", "job_id,submit_us,sched_class,schedule_us,end_us,end_event\n7,6,3,7,9000000,4\n",
         "slot", "slots"),
    ],
)  # fmt: skip
def test_a_trace_without_gpus_does_not_speak_of_gpus(tmp_path, skedge, form, text, unit, key):
    path = write(tmp_path / "trace.csv", text)
    figures = describe(read_trace(path, form))
    assert figures["unit"].startswith(unit)
    assert {key, f"{unit}_hours", f"mean_{key}"} <= set(figures)
    assert "gpu" not in skedge("trace", "describe", path, "--format", form).out.lower()
    convert = skedge("trace", "convert", path, "--format", form, "--servers", 1, "--out", tmp_path / "out")
    assert f"{unit}-hours of the trace" in convert.out
    assert "GPU" not in convert.out


LABELLED = (
    "id,at,run,gpus,who,kind,team,class\na,0,60,1,ana,A100,vision,2\nb,30,60,2,ben,,speech,0\nc,60,60,1,ana,T4,,\n"
)
LABELS = {
    "id": "id", "arrival": "at", "duration": "run", "gpus": "gpus",
    "user": "who", "gpu_type": "kind", "tenant": "team", "priority": "class",
}  # fmt: skip


def converted(folder: Path, skedge, columns: dict[str, str]):
    options = [word for name, column in columns.items() for word in (f"--{name.replace('_', '-')}", column)]
    path = write(folder / "jobs.csv", LABELLED)
    told = skedge("trace", "convert", path, *options, "--servers", 1, "--out", folder / "out")
    assert told.code == 0, told.err
    return load_scenario(folder / "out" / "scenario.yaml"), told.out


def test_users_and_gpu_types_are_kept_through_conversion(tmp_path, skedge):
    scenario, _ = converted(tmp_path, skedge, {k: v for k, v in LABELS.items() if k not in ("tenant", "priority")})
    frame = scenario.jobs.frame
    assert frame.select("id", "user", "gpu_type").rows() == [
        ("a", "ana", "A100"),
        ("b", "ben", None),
        ("c", "ana", "T4"),
    ]
    assert (scenario.jobs.user.tolist(), scenario.jobs.names["user"]) == ([0, 1, 0], ("ana", "ben"))
    assert scenario.cluster.sharing is None


def test_the_tenants_and_classes_of_a_trace_share_the_cluster_that_is_made(tmp_path, skedge):
    scenario, told = converted(tmp_path, skedge, LABELS)
    assert scenario.cluster.sharing.names == ["vision", "speech", "default"]
    assert scenario.jobs.tenant.tolist() == [0, 1, 2]
    assert scenario.jobs.priority.tolist() == [2, 0, 0]
    assert "tenant and priority of the trace: cluster.sharing has 3 tenants of weight 1 without a quota" in told


def test_a_trace_without_labels_makes_the_jobs_that_it_made(tmp_path, skedge):
    scenario, _ = converted(tmp_path, skedge, {k: LABELS[k] for k in ("id", "arrival", "duration", "gpus")})
    assert not {"user", "gpu_type", "tenant", "priority"} & set(scenario.jobs.frame.columns)
    assert set(scenario.source) == {
        *("trace", "format", "rows", "skipped", "outside skip and first", "make", "jobs", "changed", "gpu_hours"),
    }


def test_a_mapping_file_names_labels_too(tmp_path):
    path = write(tmp_path / "jobs.csv", LABELLED)
    mapping = mapping_of(yaml.safe_load(yaml.safe_dump({**LABELS, "group": "kind", "unit": "CPU"})), "m")
    trace = read_mapped(path, mapping)
    assert trace.frame.columns[6:] == ["user", "gpu_type", "tenant", "priority"]
    assert trace.frame["group"].to_list() == ["A100", "", "T4"]
    assert describe(trace)["cpus"] == {"1": 2, "2": 1}


def test_a_class_that_is_none_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "jobs.csv", LABELLED.replace("vision,2", "vision,high"))
    with pytest.raises(TraceError, match="line 2, column class: 'high'; it must be a whole number"):
        read_mapped(path, mapping_of(LABELS, "m"))
