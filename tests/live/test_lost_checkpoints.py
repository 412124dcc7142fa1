"""Checkpoints that are lost or damaged cost time or the job, never a wrong model that is called complete."""

from __future__ import annotations

import io
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import SERVERS
from skedge.core.model.cluster import Cluster, Job, Physics, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.controller.session import LiveRun, train
from skedge.live.worker.checkpoint import Checkpoints, Life, OutlivedError
from skedge.live.worker.program import Program
from skedge.simulate import run

EPOCHS, MINIBATCHES = 5, 6
STEPS = EPOCHS * MINIBATCHES


def progress_of(engine: Engine, job: str) -> list[int]:
    """Mini-batches of each chunk in the newest whole checkpoint; nothing where there is none."""
    saved = Checkpoints(engine.url).read(job)
    return [] if saved is None else list(torch.load(io.BytesIO(saved), weights_only=True)["progress"])


def trained_while(
    engine: Engine, name: str, chunks: int, harm: Callable[[Path], None], due: Callable[[list[int]], bool]
) -> LiveRun:
    """Train one job; once its checkpoint is as `due` says, `harm` its checkpoints and kill its parameter server."""
    import ray  # not earlier: it reads its settings when it is imported

    while engine.lost:  # by a test before
        time.sleep(0.1)
    servers = {actor: ray.get(actor.warm.remote()) for idle in engine.processes.idle.values() for actor in idle}

    def strike() -> None:
        while not due(progress_of(engine, name)):
            time.sleep(0.02)
        time.sleep(0.1)  # by now what the checkpoint holds was reported; before that a chunk may be trained again
        idle = {actor for actors in engine.processes.idle.values() for actor in actors}
        busy = [pid for actor, pid in servers.items() if actor not in idle]
        for pid in busy:
            os.kill(pid, signal.SIGSTOP)  # a frozen one writes no checkpoint after the harm
        harm(Path(engine.url) / name)
        for pid in busy:
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()
    return trained(engine, name, chunks)


def trained(engine: Engine, name: str, chunks: int) -> LiveRun:
    """Train one job."""
    cluster = Cluster(SERVERS)
    job = Job(
        name, 0.0, EPOCHS, chunks, MINIBATCHES, 0.1, 0.01, 0.05, 100.0,
        workers=chunks, upload_edge_s=(0.2, 0.4), upload_cloud_s=(90.0, 90.0),
    )  # fmt: skip
    scenario = Scenario(cluster, Jobs(job_table([job])[0], cluster), Physics(slot=SECOND), 0, "live test")
    args = {"model": "lenet", "chunks": chunks, "samples": 60 * chunks, "size": 8}
    of = {name: Program("skedge.live.examples:images", args, chunks, EPOCHS, MINIBATCHES)}
    return train(scenario, of, run(scenario, "aonline"), engine)


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def damaged(folder: Path) -> None:
    for path in folder.glob("*.ckpt"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("harm", [removed, damaged])
def test_a_job_whose_trained_chunks_are_lost_fails_with_the_sentence(
    engine: Engine, harm: Callable[[Path], None]
) -> None:
    """Four chunks on three lanes, two of which take turns: once the others are trained no lane trains them again."""
    done = trained_while(engine, f"lost-{harm.__name__}", 4, harm, lambda at: STEPS in at and min(at) < STEPS - 6)
    (state,), (reason,) = done.run.jobs["state"].to_list(), done.run.jobs["reason"].to_list()
    assert state == "failed"
    assert "the checkpoint that can be read holds 0 of 30 mini-batches of chunk" in reason
    assert done.run.verify() == []


def test_what_no_chunk_was_reported_for_is_trained_again(engine: Engine) -> None:
    """Three chunks on three lanes, none complete: they start anew, and the last checkpoint has every mini-batch."""
    done = trained_while(engine, "anew", 3, removed, lambda at: bool(at) and 3 < max(at) < STEPS - 6)
    assert done.run.jobs["state"].to_list() == ["finished"]
    assert progress_of(engine, "anew") == [STEPS] * 3
    assert done.run.meta["trained"] == {"anew": [STEPS] * 3}
    assert done.run.schedule.runs["work"].sum() == 3 * STEPS
    assert done.run.verify() == []


def test_a_disk_that_is_full_for_a_while_costs_time_and_no_job(engine: Engine) -> None:
    """From the first checkpoint on none can be written for 3 s, that of the trained job among them; it waits."""

    def strike() -> None:
        folder = Path(engine.url) / "patient"
        while not progress_of(engine, "patient"):
            time.sleep(0.02)
        shutil.rmtree(folder)
        folder.write_bytes(b"no folder can be here")
        time.sleep(3.0)
        folder.unlink()

    threading.Thread(target=strike, daemon=True).start()
    done = trained(engine, "patient", 3)
    assert done.run.jobs["state"].to_list() == ["finished"]
    assert progress_of(engine, "patient") == [STEPS] * 3
    assert done.run.verify() == []


def test_a_life_is_later_than_another_by_its_number_and_not_by_the_clock(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    kept.write("job", Life(1, 9), 70, b"earlier")
    kept.write("job", Life(2, 1), 5, b"later")
    assert kept.read("job") == b"later"
    kept.write("job", Life(2, 1), 6, b"latest")
    with pytest.raises(OutlivedError, match=r"000001-000009-000000000071.ckpt: .* later one, .*/000002-000001-"):
        kept.write("job", Life(1, 9), 71, b"of a process that was given up")
    assert kept.read("job") == b"latest"


def test_checkpoints_named_by_the_clock_are_older_than_all_others(tmp_path: Path) -> None:
    """As they were named before lives had numbers: a state folder of then goes on."""
    kept = Checkpoints(str(tmp_path))
    kept.write("job", Life(0, 1), 1, b"new")
    new = next((tmp_path / "job").iterdir())
    (tmp_path / "job" / "1764000000000000000000000000.ckpt").write_bytes(new.read_bytes())
    kept.write("job", Life(0, 2), 2, b"newest")
    assert kept.read("job") == b"newest"
