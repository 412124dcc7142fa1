"""The controller is killed in mid-run; from the state that it left another one goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
import pytest

from builders.paths import ROOT
from skedge.core.errors import InputError
from skedge.live.cluster.embedded_state import end_stale
from skedge.live.controller.session import resume_live
from skedge.recorded_run import Run

TEXT = """
name: recovery
slot: 1s
cluster:
  servers:
    - {id: edge-0, workers: {gpu: 2}, ps: {cpu: 2}}
    - {id: far, kind: cloud}
workload:
  jobs:
"""
JOB = """
    - {{id: {id}, arrival_s: {at}, epochs: {epochs}, chunks: 2, minibatches: 6, minibatch_s: 0.1, ps_update_s: 0.01,
       gradient_mb: 0.05, bandwidth_mbps: 100, workers: 2, upload_edge_s: [0.2, 0.4], upload_cloud_s: [90, 90],
       train: {{factory: "skedge.live.examples:images", args: {{model: resnet, chunks: 2, samples: 300, size: 16}}}}}}
"""
SITES = """
name: recovery
slot: 2s
physics: {slotted: true}
cluster:
  servers:
    - {id: edge-0, resources: {gpu: 2, cpu: 3}}
    - {id: far, resources: {gpu: 2, cpu: 3}}
  transfer_cost: [[0, 0.05], [0.05, 0]]
workload:
  jobs:
"""
SITE_JOB = """
    - {{id: {id}, arrival_s: {at}, epochs: {epochs}, minibatches: 6, minibatch_s: 0.03, chunk_mb: 2, exchange_mb: 5,
       worker_needs: {{gpu: 1}}, ps_needs: {{cpu: 1}}, data: {{edge-0: 1, far: 1}}, latency: {{kind: linear, tau: 9}},
       train: {{factory: "skedge.live.examples:images", args: {{model: resnet, chunks: 2, samples: 300, size: 16}}}}}}
"""
JOBS = {"long": (0, 8), "short": (2, 2), "last": (4, 2)}


def decisions(journal: Path) -> int:
    if not journal.exists():
        return 0
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as at, suppress(sqlite3.OperationalError):
        return int(at.execute("select count(*) from entries where kind = 'decision'").fetchone()[0])
    return 0  # not made yet


@pytest.mark.parametrize(
    ("head", "job", "policy", "after"),
    [
        pytest.param(TEXT, JOB, "aonline", 5, id="lanes"),
        pytest.param(SITES, SITE_JOB, "okita", 2, id="sites", marks=pytest.mark.thorough),
    ],
)
def test_a_killed_controller_is_followed_by_one_that_goes_on(
    tmp_path: Path, head: str, job: str, policy: str, after: int
) -> None:
    """Killed -9 after some decisions; each chunk counts each mini-batch once, and replay decides the same."""
    scenario, state = tmp_path / "recovery.yaml", tmp_path / "state"
    jobs = "".join(job.format(id=name, at=at, epochs=epochs) for name, (at, epochs) in JOBS.items())
    scenario.write_text(head + jobs, encoding="utf-8")
    skedge = [sys.executable, "-m", "skedge", "live"]
    first = subprocess.Popen(
        [*skedge, str(scenario), "--policy", policy, "--state", str(state), "--out", str(tmp_path / "never"), "--json"]
    )
    try:
        deadline = time.monotonic() + 150
        while decisions(state / "journal.db") < after:
            assert first.poll() is None, "the controller ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    except BaseException:
        first.kill()
        end_stale(state)
        raise
    before = decisions(state / "journal.db")
    out = tmp_path / "run"
    done = subprocess.run(
        [*skedge, "--resume", str(state), "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    found = json.loads(done.stdout)
    assert {row["job"]: row["state"] for row in found["jobs"]} == dict.fromkeys(JOBS, "finished")
    assert decisions(state / "journal.db") > before
    record = Run.load(out)
    total = record.schedule.runs.group_by("job").agg(pl.col("work").sum())
    work = {record.scenario.jobs.ids[job]: done for job, done in total.iter_rows()}
    assert work == {name: epochs * 2 * 6 for name, (_, epochs) in JOBS.items()}
    assert found["violations"] == [], "the run's clock stood still while there was no controller"
    assert 0 < record.meta["away_s"] < 120
    page = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")
    assert [name for name in record.meta if f"`{name}`" not in page] == [], (
        "fields of run.json that the page leaves out"
    )
    assert not (tmp_path / "never").exists()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no live run to continue"):
        resume_live(tmp_path)
