"""The command line: every command does what the API does, says so to people and to machines, and exits as it should."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from skedge.analysis.verify.verify import Violation
from skedge.cli import demo
from skedge.cli import run as run_command
from skedge.cli.compare import DEMO_POLICIES, split_policies
from skedge.cli.console import amount, duration
from skedge.cli.tables import comparison_tables
from skedge.comparison.columns import COLUMNS
from skedge.comparison.compare import compare
from skedge.core.registry import make_policy, registered
from skedge.recorded_run import Run
from skedge.runs.stopwatch import STAGES
from skedge.scenario.file import load_scenario
from skedge.simulate import run
from skedge.traces.describe import describe
from skedge.traces.formats import read_trace

Skedge = Callable[..., Any]
COMMANDS = ("demo", "run", "compare", "explain", "verify", "metrics", "policies", "trace", "export")


@pytest.fixture
def spoilt(folder: Path, tmp_path: Path) -> Path:
    """A run folder in which the last run of job 3 ends a second late."""
    path = tmp_path / "spoilt"
    shutil.copytree(folder, path)
    file = path / "tables" / "runs.parquet"
    runs = pl.read_parquet(file).with_row_index("row")
    last = runs.filter(pl.col("job") == 3).sort("end")["row"][-1]
    late = pl.when(pl.col("row") == last).then(pl.col("end") + 1_000_000).otherwise(pl.col("end"))
    runs.with_columns(end=late).drop("row").write_parquet(file)
    return path


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    """Twelve jobs, ten minutes apart, of 1 or 2 GPUs for an hour, as the CSV of passed jobs."""
    path = tmp_path / "jobs.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])
        for i in range(12):
            rows.writerow([f"2017-10-07 {i // 6:02}:{i % 6}0:00", 3600, 1 + i % 2, 3600, "vc"])
    return path


# --- help


def test_the_installed_script_lists_every_command() -> None:
    """`skedge --help`, as a program of its own, names each command and exits with 0."""
    script = Path(sys.executable).with_name("skedge")
    told = subprocess.run([script, "--help"], capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0
    assert told.stderr == ""
    for command in COMMANDS:
        assert f" {command} " in told.stdout


@pytest.mark.parametrize("command", [(name,) for name in COMMANDS] + [("trace", "describe"), ("trace", "convert")])
def test_every_command_has_help(command: tuple[str, ...], skedge: Skedge) -> None:
    """--help exits with 0 and shows the usage of that command."""
    told = skedge(*command, "--help")
    assert told.code == 0
    assert f"Usage: skedge {' '.join(command)}" in told.out


def test_without_a_command_help_is_shown(skedge: Skedge) -> None:
    """`skedge` alone is not an error that a traceback explains."""
    told = skedge()
    assert "Usage: skedge" in told.out + told.err
    assert "Traceback" not in told.out + told.err


# --- run


@pytest.mark.parametrize("policy", ["aonline", "srtf", "tiresias:knob=2", "fifo:rule=earliest_server"])
def test_run_makes_a_verified_folder_with_the_numbers_of_the_api(
    policy: str, skedge: Skedge, busy: Path, tmp_path: Path
) -> None:
    """--json has the folder, no violation, exactly the metrics of skedge.run, and how long the decisions took."""
    told = skedge("run", busy, "--policy", policy, "--out", tmp_path / "r", "--json")
    assert (told.code, told.err) == (0, "")
    expected = run(load_scenario(busy), policy)
    found = told.json
    assert found.pop("decisions_s") > 0
    assert found == {"folder": str(tmp_path / "r"), "source": {}, "violations": [], "metrics": expected.metrics}
    loaded = Run.load(tmp_path / "r")
    assert loaded.policy == expected.policy
    assert all(table.equals(expected.schedule.tables()[name]) for name, table in loaded.schedule.tables().items())


def test_profile_gives_the_cpu_time_of_each_stage(skedge: Skedge, small: Path, tmp_path: Path) -> None:
    """--profile: every stage of a small run took time, and they add up; without it the output is as before."""
    told = skedge("run", small, "--policy", "srtf", "--profile", "--out", tmp_path / "a", "--json").json
    profile = told["profile"]
    assert list(profile["cpu_s"]) == list(STAGES)
    assert {stage for stage, seconds in profile["cpu_s"].items() if not seconds} - {"compile"} == {"loop"}
    assert sum(profile["cpu_s"].values()) == pytest.approx(profile["total_cpu_s"])
    assert profile["cpu_s"]["decide"] == told["decisions_s"]
    assert profile["jobs_per_cpu_s"] * profile["total_cpu_s"] == pytest.approx(len(load_scenario(small).jobs))
    assert 0 < profile["peak_gb"] < 64
    assert "profile" not in skedge("run", small, "--policy", "srtf", "--out", tmp_path / "b", "--json").json
    texts = skedge("run", small, "--policy", "srtf", "--profile", "--out", tmp_path / "c").out
    assert {stage for stage in STAGES if stage not in texts} - {"compile"} == {"loop"}
    assert "jobs per CPU-second" in texts


def test_run_without_out_names_the_folder_after_scenario_policy_and_seed(
    skedge: Skedge, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in the names, it is one folder below runs/."""
    monkeypatch.chdir(tmp_path)
    small.write_text(small.read_text().replace("name: small", "name: ../up/here"))
    told = skedge("run", small, "--policy", "aonline:cloud=false,q_mode=eq5", "--seed", 9)
    assert told.code == 0
    assert [p.name for p in Path("runs").iterdir()] == ["..-up-here-aonline-cloud-false-q_mode-eq5-seed9"]
    assert "every rule verified" in told.out
    assert Run.load(next(Path("runs").iterdir())).meta["seed"] == 9


def test_run_says_what_is_measured_in_units_that_a_person_reads(skedge: Skedge, small: Path, tmp_path: Path) -> None:
    """The table has the exact value and its reading side by side."""
    told = skedge("run", small, "--out", tmp_path / "r")
    mean = run(load_scenario(small)).metrics["jct_mean_s"]
    line = next(line for line in told.out.splitlines() if "jct_mean_s" in line)
    assert f"{mean:.10g}" in line
    assert duration(mean) in line


def test_a_shipped_scenario_is_run_by_its_name(skedge: Skedge, tmp_path: Path) -> None:
    """`skedge run demo` takes the 400 jobs of the shipped file."""
    told = skedge("run", "demo", "--policy", "fifo", "--out", tmp_path / "r", "--json")
    assert told.json["metrics"]["jobs"] == 400


def test_run_exits_with_1_when_the_record_breaks_a_rule(
    skedge: Skedge, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is kept, so that the violation can be looked into; --no-verify does not look."""

    def wrong(*given: Any, **more: Any) -> Run:
        made = run(*given, **more)
        runs = made.schedule.runs.with_columns(pl.col("end") + 1)
        return Run(made.scenario, made.meta, type(made.schedule)(**{**made.schedule.tables(), "runs": runs}))

    monkeypatch.setattr(run_command, "run_policy", wrong)
    told = skedge("run", small, "--out", tmp_path / "r")
    assert told.code == 1
    assert "M8" in told.err
    assert (tmp_path / "r" / "run.json").is_file()
    told = skedge("run", small, "--out", tmp_path / "r2", "--no-verify")
    assert (told.code, told.out.endswith("r2, not verified\n")) == (0, True)
    assert skedge("run", small, "--out", tmp_path / "r3", "--no-verify", "--json").json["violations"] is None


# --- verify, metrics


def test_verify_passes_a_sound_run_and_says_so(skedge: Skedge, folder: Path) -> None:
    """Exit code 0; --json is the empty list."""
    told = skedge("verify", folder)
    assert (told.code, told.err) == (0, "")
    assert "every rule holds" in told.out
    assert skedge("verify", folder, "--json").json == []


def test_verify_names_rule_job_and_time_of_a_spoilt_run(skedge: Skedge, spoilt: Path) -> None:
    """A second more than the chunk takes is M8, the work, of job 3; exit code 1, nothing on stdout."""
    told = skedge("verify", spoilt)
    assert (told.code, told.out) == (1, "")
    loaded = Run.load(spoilt)
    end = loaded.schedule.runs.filter(pl.col("job") == 3)["end"].max()
    lines = [line for line in told.err.splitlines() if line.startswith("M8 ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"M8 (2b), (4a): job {loaded.scenario.jobs.ids[3]} at {end!s} µs: ")  # type: ignore[str-bytes-safe]


def test_verify_gives_machines_the_same_violations(skedge: Skedge, spoilt: Path) -> None:
    """--json on stdout is what Run.verify finds; the exit code is 1 all the same, and stderr is left alone."""
    told = skedge("verify", spoilt, "--json")
    assert (told.code, told.err) == (1, "")
    assert told.json == [asdict(v) for v in Run.load(spoilt).verify()]
    assert {"M8"} <= {v["rule"] for v in told.json}


def test_metrics_prints_the_numbers_of_the_run(skedge: Skedge, folder: Path) -> None:
    """--json equals Run.metrics; the table has every key."""
    expected = Run.load(folder).metrics
    assert skedge("metrics", folder, "--json").json == expected
    told = skedge("metrics", folder).out
    assert all(key in told for key in expected)


def test_json_has_null_where_a_number_does_not_apply(skedge: Skedge, tmp_path: Path, text: str) -> None:
    """With all jobs rejected there is no mean: null, not NaN, which is not JSON."""
    path = tmp_path / "s.yaml"
    path.write_text("""
cluster: {servers: [{id: e, workers: {gpu: 1}, ps: {cpu: 1}, storage_mb: 1}]}
workload: {jobs: [{id: x, arrival_s: 0, epochs: 1, chunks: 2, minibatches: 1, minibatch_s: 1, chunk_mb: 9}]}
""")
    told = skedge("run", path, "--out", tmp_path / "r", "--json")
    assert told.code == 0
    assert "NaN" not in told.out
    assert told.json["metrics"]["jct_mean_s"] is None
    assert told.json["metrics"]["rejected"] == 1


# --- compare, demo


def test_compare_gives_the_metrics_of_every_policy_and_seed(skedge: Skedge, busy: Path, tmp_path: Path) -> None:
    """--json equals skedge.compare: every seed from the scenario's own on; the report is one HTML file."""
    report = tmp_path / "c.html"
    words = ("--policies", "srtf,aonline:cloud=false,q_mode=eq5", "--seeds", 2, "--processes", 1, "--report", report)
    told = skedge("compare", busy, *words, "--json")
    assert (told.code, told.err) == (0, "")
    expected = compare(busy, ["srtf", "aonline:cloud=false,q_mode=eq5"], [0, 1], processes=1)
    assert (told.json["seeds"], told.json["metrics"]) == ([0, 1], expected.metrics)
    assert [b["bound"]["value"] for b in told.json["bounds"]] == [r.bound.value for r in expected.references if r]
    page = report.read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "aonline:cloud=false,q_mode=eq5" in page


def test_two_comparisons_write_the_same_bytes_but_for_their_times(skedge: Skedge, busy: Path, tmp_path: Path) -> None:
    """Report, numbers and run folders; with one process and with two. What is printed as JSON is comparison.json."""
    words = ("--policies", "srtf,fifo", "--seeds", 2)
    for name, processes in (("a", 1), ("b", 2)):
        told = skedge("compare", busy, *words, "--processes", processes, "--out", tmp_path / name, "--json")
        assert (told.code, told.json) == (0, json.loads((tmp_path / name / "comparison.json").read_text()))
    one, two = ({p.relative_to(tmp_path / n): p for p in (tmp_path / n).rglob("*") if p.is_file()} for n in "ab")
    assert set(one) == set(two)
    assert {str(name) for name in one if one[name].read_bytes() != two[name].read_bytes()} <= {"times.json"}
    assert {"report.html", "comparison.json", "runs/srtf-seed1/run.json"} <= set(map(str, one))


def test_compare_keeps_all_run_folders_those_of_the_best_policy_or_none(
    skedge: Skedge, busy: Path, tmp_path: Path
) -> None:
    """srtf is the best of the two in the mean JCT of seeds 0 and 1."""
    mean = {
        p: sum(row["jct_mean_s"] for row in rows) for p, rows in compare(busy, ["srtf", "fifo"], [0, 1]).metrics.items()
    }
    assert mean["srtf"] < mean["fifo"]
    best = {"srtf-seed0", "srtf-seed1"}
    for keep, names in (("all", best | {"fifo-seed0", "fifo-seed1"}), ("best", best), ("none", set())):
        words = ("--policies", "srtf,fifo", "--seeds", 2, "--processes", 1, "--keep", keep)
        assert skedge("compare", busy, *words, "--out", tmp_path / keep).code == 0
        assert {path.name for path in (tmp_path / keep).glob("runs/*")} == names
        assert {p.name for p in (tmp_path / keep).iterdir()} - {"runs"} == {
            "report.html", "comparison.json", "times.json",
        }  # fmt: skip
    assert skedge("verify", tmp_path / "best" / "runs" / "srtf-seed1").code == 0


def test_compare_says_that_every_rule_is_verified_on_the_screen_and_in_the_report(
    skedge: Skedge, busy: Path, tmp_path: Path
) -> None:
    told = skedge(
        "compare", busy, "--policies", "srtf", "--seeds", 1, "--processes", 1, "--report", tmp_path / "c.html"
    )
    assert "1 run, every rule verified" in told.out
    assert "every rule verified" in (tmp_path / "c.html").read_text()


def test_a_comparison_with_a_broken_rule_exits_with_1_and_names_it(
    skedge: Skedge, busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report and the JSON are written all the same."""
    broken = [Violation("M8", "(2b)", 3, 17, "a chunk runs too long")]
    monkeypatch.setattr(Run, "verify", lambda self, limit=20: broken)
    words = ("--policies", "srtf", "--seeds", 1, "--processes", 1)
    told = skedge("compare", busy, *words, "--report", tmp_path / "c.html")
    assert told.code == 1
    assert told.err == "srtf, seed 0: M8 (2b): a chunk runs too long\n"
    assert "rules broken by srtf with seed 0: M8" in told.out
    assert "rules broken by srtf with seed 0: M8" in (tmp_path / "c.html").read_text()
    told = skedge("compare", busy, *words, "--report", tmp_path / "d.html", "--json")
    assert (told.code, told.json["verified"], told.json["violations"][0]["rule"]) == (1, False, "M8")


def test_with_fewer_than_5_seeds_no_interval_is_printed(skedge: Skedge, busy: Path, tmp_path: Path) -> None:
    words = ("--policies", "srtf,fifo", "--processes", 1, "--report", tmp_path / "c.html", "--seeds")
    few, enough = (skedge("compare", busy, *words, n).out for n in (4, 5))
    assert "±" not in few
    assert "no intervals with fewer than 5 seeds" in few
    assert "±" in enough
    assert "- srtf" in enough


def test_the_comparison_fits_a_screen_of_80_columns_uncut(skedge: Skedge, busy: Path) -> None:
    """Six policies over five seeds, means, intervals and differences: no column is cut off."""
    comparison = compare(busy, DEMO_POLICIES, [0, 1, 2, 3, 4], processes=1)
    from rich.console import Console

    console = Console(width=80, file=io.StringIO())
    for table in comparison_tables(comparison, console.width):
        console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in printed
    assert all(policy in printed for policy in DEMO_POLICIES)
    assert "±" in printed


def test_demo_puts_runs_and_report_into_one_folder_and_may_be_repeated(
    skedge: Skedge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kind of jobs every policy's run folder and a report; the next replaces it; what it says to type works."""
    monkeypatch.setattr(demo, "DEMO_POLICIES", ("srtf", "aonline:q_mode=eq5"))
    out = tmp_path / "demo"
    told = skedge("demo", "--out", out, "--seeds", 1)
    assert told.code == 0
    assert sorted(p.name for p in out.iterdir()) == ["divisible", "rigid"]
    for kind in out.iterdir():
        assert sorted(p.name for p in kind.iterdir()) == ["aonline-q_mode-eq5", "report.html", "srtf"]
    rigid, divisible = (Run.load(out / kind / "srtf") for kind in ("rigid", "divisible"))
    assert rigid.verify() == divisible.verify() == []
    assert rigid.scenario.jobs.ids == divisible.scenario.jobs.ids
    assert rigid.scenario.jobs.chunks.sum() < divisible.scenario.jobs.chunks.sum()
    for word in (
        "rigid: a job trains on the GPUs that it asked for",
        "divisible: the same work is cut into",
        "within 1 %",
    ):
        assert word in told.out
    hint = told.out.split("skedge explain ")[1].split()
    assert skedge("explain", *hint[:2]).code == 0
    again = skedge("demo", "--out", out, "--seed", 3, "--seeds", 1, "--json")
    for kind, jobs in (("rigid", 399), ("divisible", 400)):  # one gang is larger than all workers, and left out
        assert again.json[kind]["seeds"] == [3]
        assert again.json[kind]["metrics"]["srtf"][0]["jobs"] == jobs
        assert Run.load(out / kind / "srtf").meta["seed"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("srtf", ["srtf"]),
        ("aonline:cloud=false,q_mode=eq5,srtf", ["aonline:cloud=false,q_mode=eq5", "srtf"]),
        ("srtf, fifo:rule=strict, backfill=true ,tiresias", ["srtf", "fifo:rule=strict, backfill=true", "tiresias"]),
        ("fifo:rule=strict,fifo:rule=earliest_server", ["fifo:rule=strict", "fifo:rule=earliest_server"]),
    ],
)
def test_a_list_of_policies_is_split_at_policies_and_not_at_their_parameters(given: str, expected: list[str]) -> None:
    """A part `key=value` belongs to the policy before it; every part is a policy that can be made."""
    parts = [part.strip() for part in split_policies(given)]
    assert parts == expected
    for part in parts:
        make_policy(part)


# --- policies, trace


DEFAULTS = {
    "aonline": "q_mode=marginal,preempt_running=true,cloud=true,ps_choice=lowest",
    "batch": (
        "T=300,F1=1.0,F2=1.0,price_norm=2TSU,literal_cost_d=false,cloud_capacity=none,"
        "order=arrival,strict_upload=true,tie=earliest"
    ),
    "batchsche": (
        "T=300,F1=1.0,F2=1.0,price_norm=2TSU,literal_cost_d=false,cloud_capacity=none,"
        "order=arrival,tie=worker_slots,upload=copies"
    ),
    "dorm": "theta1=0.2,theta2=0.1,whole=true,most_workers=30,nodes=100,gap=0.05,cells=200,stop_at_horizon=false",
    "drf": "counts=dynamic",
    "fifo": "allow_cloud=false,sticky=false,placement=keep_running,rule=strict,backfill=false,most_workers=30",
    "oasis": "levels=auto,completion=end,price_source=trace,low=none,high=none,mu=none,split_sites=true",
    "okita": (
        "beta1=1.0,beta2=1.0,beta3=1.0,normalise=false,colocate=false,alpha1=1.0,alpha2=1.0,"
        "conflict=printed,fit=false,release=earliest,late_last=false,search=bounded"
    ),
    "optimus": "speed=known,samples=8,noise=0.1,servers=ratio,skip=false",
    "pdors": (
        "levels=auto,completion=end,price_source=trace,low=none,high=none,mu=none,theta=rounded,"
        "relaxation=parametric,gain=1.0,delta=0.1,tries=50,cover_soft=false,repair=true,"
        "milp_after_repair=false,time_limit=60.0"
    ),
    "preemptive": "",
    "srtf": "allow_cloud=false,sticky=false,placement=keep_running",
    "tiresias": "allow_cloud=false,sticky=false,placement=keep_running,limit_s=none,knob=inf",
}  # fmt: skip
"""What each policy takes where nothing is said, pinned: a default that changes changes every comparison."""


def test_policies_lists_names_needs_parameters_and_defaults(skedge: Skedge) -> None:
    """Every registered one; a default that is written down is one that the policy takes."""
    rows = skedge("policies", "--json").json
    assert [row["name"] for row in rows] == sorted(registered())
    by_name = {row["name"]: {p["name"]: p["default"] for p in row["parameters"]} for row in rows}
    written = {name: ",".join(f"{key}={value}" for key, value in own.items()) for name, own in by_name.items()}
    assert written == DEFAULTS
    for name, parameters in by_name.items():
        given = ",".join(f"{key}={value}" for key, value in parameters.items() if value != "none")
        assert make_policy(f"{name}:{given}" if given else name).params == make_policy(name).params
    printed = skedge("policies").out
    assert "[bold]" not in printed
    assert "ps_choice=lowest" in printed
    assert "gain=1.0  eq29 | eq30 | number\n" in printed
    assert "low=none  numbers with semicolons between | none\n" in printed


def test_trace_describe_prints_the_figures_of_the_trace(skedge: Skedge, philly: Path) -> None:
    """12 jobs, 18 GPU-hours over 110 min on 18 GPUs: load 18 / (110 / 60) / 18."""
    told = skedge("trace", "describe", philly, "--format", "philly-csv", "--cluster-gpus", 18, "--json").json
    assert told == json.loads(json.dumps(describe(read_trace(philly, "philly-csv"), 18)))
    assert (told["jobs"], told["gpu_hours"], told["span_s"]) == (12, 18.0, 6600.0)
    assert told["load"] == pytest.approx(60 / 110)
    assert "gpu_hours" in skedge("trace", "describe", philly, "--format", "philly-csv").out


def test_trace_convert_writes_a_scenario_that_run_takes(skedge: Skedge, philly: Path, tmp_path: Path) -> None:
    """Of 12 jobs without the first 2, 8: eight jobs on three machines, each of the work of its trace."""
    words = ("--skip", 2, "--first", 8, "--servers", 3, "--worker-types", 2, "--json")
    told = skedge("trace", "convert", philly, "--format", "philly-csv", "--out", tmp_path / "s", *words)
    scenario = load_scenario(tmp_path / "s" / "scenario.yaml")
    assert told.json["jobs"] == len(scenario.jobs) == 8
    assert told.json["lanes"] == scenario.cluster.lanes
    assert (len(scenario.cluster.servers), scenario.cluster.cloud) == (3, None)
    assert scenario.announced_work[:, 0].sum() / 3.6e9 == pytest.approx(12.0)  # 4 of 1 GPU-hour, 4 of 2
    assert skedge("run", told.json["scenario"], "--policy", "srtf", "--out", tmp_path / "r").code == 0


def test_trace_convert_makes_rigid_jobs_with_a_checkpoint_overhead_of_30_s(
    skedge: Skedge, philly: Path, tmp_path: Path
) -> None:
    """The default; another overhead, and divisible jobs of as many chunks as are asked for, by their options."""
    words = ("--format", "philly-csv", "--servers", 3, "--out")
    assert skedge("trace", "convert", philly, *words, tmp_path / "a").code == 0
    rigid = load_scenario(tmp_path / "a" / "scenario.yaml")
    assert rigid.jobs.chunks.tolist() == rigid.jobs.workers.tolist() == [1, 2] * 6
    assert rigid.physics.checkpoint_overhead == 30_000_000
    assert skedge("trace", "convert", philly, *words, tmp_path / "b", "--checkpoint-overhead", "1min").code == 0
    assert load_scenario(tmp_path / "b" / "scenario.yaml").physics.checkpoint_overhead == 60_000_000
    cut = ("--make", "divisible", "--chunks", "5-6")
    assert skedge("trace", "convert", philly, *words, tmp_path / "c", *cut).code == 0
    divisible = load_scenario(tmp_path / "c" / "scenario.yaml")
    assert set(divisible.jobs.chunks.tolist()) == {5, 6}
    assert divisible.physics.checkpoint_overhead == 0
    assert "--make divisible" in skedge("trace", "convert", philly, *words, tmp_path / "d", "--chunks", 5).err
    assert "'5-x'" in skedge("trace", "convert", philly, *words, tmp_path / "d", *cut[:3], "5-x").err


def test_trace_convert_counts_what_it_leaves_out_and_changes_and_keeps_it_in_the_scenario(
    skedge: Skedge, philly: Path, tmp_path: Path
) -> None:
    """Of 12 jobs one has 0 GPUs, one 0.5, one 64, and a blank line ends the file; the last two are not taken.

    By hand: 1-hour jobs of 64, 1 (0.5 rounded up), 2, 1, 2, 1, 2, 1 GPUs and one left out: 74 GPU-hours.
    """
    rows = philly.read_text().splitlines()
    rows[1] = rows[1].replace(",3600,1,", ",3600,64,")
    rows[2] = rows[2].replace(",3600,2,", ",3600,0,")
    rows[3] = rows[3].replace(",3600,1,", ",3600,0.5,")
    philly.write_text("\n".join(rows) + "\n\n")
    words = ("--format", "philly-csv", "--servers", 3, "--fractional", "ceil", "--first", 8)
    cut = ("--make", "divisible", "--chunks", 5)
    told = skedge("trace", "convert", philly, *words, *cut, "--out", tmp_path / "s", "--json").json["source"]
    assert told == {
        "trace": "jobs.csv",
        "format": "philly-csv",
        "rows": 13,
        "skipped": {"blank line": 1, "no GPU": 1},
        "outside skip and first": 3,
        "make": "divisible",
        "jobs": 8,
        "changed": {"fraction of a GPU rounded up": 1, "chunks raised to the GPUs asked for": 1},
        "gpu_hours": {"trace": 74.0, "jobs": 74.0},
    }
    scenario = load_scenario(tmp_path / "s" / "scenario.yaml")
    assert scenario.source == told
    run(scenario, "fifo").save(tmp_path / "r")
    assert Run.load(tmp_path / "r").scenario.source == told
    said = skedge("trace", "convert", philly, *words, *cut, "--out", tmp_path / "t").out
    assert "left out: 1 blank line, 1 no GPU, 3 outside skip and first" in said
    assert "changed: 1 fraction of a GPU rounded up, 1 chunks raised" in said
    assert "GPU-hours of the trace 74, of the jobs 74" in said
    assert said.splitlines()[-2] in skedge("run", tmp_path / "t" / "scenario.yaml", "--out", tmp_path / "q").out


def test_a_converted_scenario_depends_on_the_seed_alone(skedge: Skedge, philly: Path, tmp_path: Path) -> None:
    """Twice with one seed: equal bytes; another seed: another scenario."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        words = ("--format", "philly-csv", "--make", "paper", "--servers", 4, "--seed", seed, "--out", tmp_path / name)
        assert skedge("trace", "convert", philly, *words).code == 0
    a, b, c = ((tmp_path / name / "jobs.parquet").read_bytes() for name in "abc")
    assert a == b != c


# --- what people read


@pytest.mark.parametrize(
    ("key", "value", "reading"),
    [
        ("jct_mean_s", 89.0, "89 s"),
        ("jct_mean_s", 90.0, "1.5 min"),
        ("jct_mean_s", 5400.0, "1.5 h"),
        ("jct_mean_s", 864000.0, "10 d"),
        ("uploaded_mb", 1500.0, "1.5 GB"),
        ("cloud_share", 0.125, "12.5%"),
        ("jct_rate", 0.23456, "0.235"),
        ("preemptions", 12345, "12,345"),
        ("jct_mean_s", None, "–"),
    ],
)
def test_a_metric_is_read_in_the_unit_that_its_name_says(key: str, value: float | None, reading: str) -> None:
    """The end of the key is the unit; the largest unit that keeps it above 1.5 is taken."""
    assert amount(key, value) == reading


def test_every_column_of_a_comparison_is_a_metric_of_a_run(folder: Path) -> None:
    """jct_rate and bound_ratio alone are made by the comparison."""
    assert set(COLUMNS) - set(Run.load(folder).metrics) == {"jct_rate", "bound_ratio"}


def test_ids_and_names_with_brackets_and_colons_are_printed_as_they_are(
    skedge: Skedge, small: Path, tmp_path: Path
) -> None:
    """`[/b]` is no markup and `:smile:` no picture."""
    small.write_text(small.read_text().replace("name: small", "name: '[/red]:smile:'").replace("id: b", "id: '[/b]'"))
    told = skedge("run", small, "--out", tmp_path / "[x]")
    assert told.code == 0
    assert "[/red]:smile:" in told.out
    assert "[x]" in told.out
    assert "job [/b]: dispatch" in skedge("explain", tmp_path / "[x]", "[/b]").out
