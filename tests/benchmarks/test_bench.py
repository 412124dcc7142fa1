"""`make bench` writes its file and its page, and gives the peer the jobs that skedge simulates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

PEER = """import csv, sys, json
from pathlib import Path
given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
with open(given["trace_file"]) as file:
    jobs = list(csv.DictReader(file))
with open(given["cluster_spec"]) as file:
    spec = list(csv.DictReader(file))
kept = Path(__file__).with_name("calls.json")
calls = json.loads(kept.read_text()) if kept.exists() else []
calls.append({"given": given, "jobs": jobs, "spec": spec})
kept.write_text(json.dumps(calls))
with open(given["log_path"] + "/job.csv", "w") as file:
    file.write("job_id,JCT\\n" + "".join(f"{job['job_id']},{job['duration']}\\n" for job in jobs))
"""


def bench(folder: Path, *options: str) -> dict[str, object]:
    """The file that the command writes, at small sizes; one repeat."""
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--small", "--repeats", "1", *options]
    out = ["--out", str(folder / "bench.json"), "--page", str(folder / "bench.md")]
    subprocess.run([*command, *out], check=True, capture_output=True)
    return json.loads((folder / "bench.json").read_text(encoding="utf-8"))


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A stand-in for Tiresias's simulator, which keeps what it was given."""
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "run_sim.py").write_text(PEER, encoding="utf-8")
    return folder


@pytest.mark.thorough
def test_the_command_writes_its_file_and_calls_the_peer(tmp_path: Path, peer: Path) -> None:
    found = bench(tmp_path, "--only", "gangs", "--peer", str(peer), "--peer-python", sys.executable)
    names = ["gangs fifo", "gangs fifo peer", "gangs tiresias", "gangs tiresias peer"]
    assert list(found["measures"]) == names  # type: ignore[call-overload]
    values = found["measures"]["gangs fifo"]  # type: ignore[index]
    assert values["ratio"][0] == pytest.approx(values["cpu_s"][0] / values["yardstick_s"][0], rel=1e-3)
    assert values["cpu_s"][0] > values["simulate_s"][0] > 0
    page = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in page for name in names)

    calls = json.loads((peer / "calls.json").read_text(encoding="utf-8"))
    assert [call["given"]["schedule"] for call in calls] == ["fifo", "fifo", "dlas-gpu", "dlas-gpu"]
    assert [len(call["jobs"]) for call in calls] == [1, 40, 1, 40]  # start-up, then all jobs
    assert {call["given"]["scheme"] for call in calls} == {"yarn"}
    spec = {"num_switch": "1", "num_node_p_switch": "8", "num_gpu_p_node": "8", "num_cpu_p_node": "64"}
    assert calls[1]["spec"] == [{**spec, "mem_p_node": "256"}]


def test_both_simulators_have_the_same_jobs(tmp_path: Path, peer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gangs  # a script, found by its folder

    jobs = gangs.drawn(40)
    gangs.written(jobs, tmp_path / "scenario")
    ours = pl.read_parquet(tmp_path / "scenario" / "jobs.parquet")
    gangs.peer_run(peer, sys.executable, jobs, "fifo", tmp_path)
    theirs = json.loads((peer / "calls.json").read_text(encoding="utf-8"))[0]["jobs"]
    assert [float(job["submit_time"]) for job in theirs] == ours["arrival_s"].to_list()
    assert [int(job["num_gpu"]) for job in theirs] == ours["workers"].to_list() == ours["chunks"].to_list()
    work = ours.select(pl.col("epochs") * pl.col("minibatches") * pl.col("minibatch_s")).to_series()
    assert [float(job["duration"]) for job in theirs] == work.to_list()
    assert {tuple(job) for job in theirs} == {
        ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
    }


@pytest.mark.thorough
def test_one_part_measured_again_keeps_the_others(tmp_path: Path) -> None:
    first = bench(tmp_path, "--only", "dorm")
    by_hand = "\n\n## What single changes were worth\n\nMuch.\n"
    with (tmp_path / "bench.md").open("a", encoding="utf-8") as file:
        file.write(by_hand)
    both = bench(tmp_path, "--only", "gangs", "--repeats", "2")
    assert both["measures"]["dorm s4"] == first["measures"]["dorm s4"]  # type: ignore[index]
    assert len(both["measures"]) == 3  # type: ignore[arg-type]
    page = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "\n- dorm: 1 repeats at " in page
    assert "\n- gangs: 2 repeats at " in page
    assert page.endswith(by_hand)
