"""Ten jobs that misbehave beside ten that do not, on one service: no server, no other job and no record is hurt."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from test_service import TRUST, Operator

from skedge.live.worker.checkpoint import Checkpoints

CODE = Path(__file__).parent / "misbehaving.py"
CLUSTER = """
name: service
cluster:
  servers:
    - {id: edge-0, workers: {gpu: 2}, ps: {cpu: 2}}
    - {id: edge-1, workers: {gpu: 2}, ps: {cpu: 2}}
"""
KINDS = ("hang", "hang", "fork", "leak", "exit", "print", "raises", "patch", "nan", "spy")
OUTCOMES = {
    "hang": r"no mini-batch of chunk 0 on edge-\d, 2 times in a row or nearly so: its code has not returned after \d+",
    "fork": "completed",
    "leak": r"its processes use .* of memory, more than the 1.2 GB that a job may use on a server",
    "exit": r"its code ends the process that it runs in.*its process has ended with status 3",
    "print": "completed",
    "raises": r"RuntimeError: boom \\x1b\[31m red \\n2026.*\(misbehaving.py, line \d+\)",
    "patch": "no parameter has a gradient",
    "nan": "the loss is nan",
    "spy": r"a job can read \[\] and the environment of 0 processes with a token",
}
"""What is told of each in the end, as a pattern."""

STEPS, MARK = 16, f"left-{os.getpid()}"
_HEALTH_S = 0.2
"""Longest answer of `GET /health`, in the median and for nine of ten, while all of them run [s]."""


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    one = Operator(folder)
    limits = ("--stall-s", "3", "--stall-restarts", "1", "--job-memory-mb", "1200", "--policy", "srtf")
    one.types("up", str(folder / "cluster.yaml"), *limits, *TRUST)
    try:
        yield one
    finally:
        if (one.state / "supervisor.pid").exists():
            one.types("down")


def submits(operator: Operator, kind: str) -> str:
    steps = {"exit": 16, "leak": 40}.get(kind, STEPS)
    args = {"kind": kind, "state": str(operator.state), "mark": MARK}
    return operator.submits(
        name=kind, epochs=steps // 4, chunks=1, minibatches=4, minibatch_s=0.02, upload_edge_s=[0, 0],
        resources={"workers": 1, "worker_type": "gpu", "ps_type": "cpu"},
        train={"code": str(CODE), "factory": "misbehaving:job", "args": args, "shuffle": False},
    )  # fmt: skip


def test_ten_jobs_that_misbehave_hurt_no_other(operator: Operator) -> None:
    """Each gets its outcome and its sentence, the others complete with equal parameters, health answers."""
    before = submits(operator, "good")
    operator.waits(lambda: operator.state_of(before) == "COMPLETED")
    names, took = [], []
    at = operator.address()
    with httpx.Client(headers={"Authorization": f"Bearer {at['token']}"}, timeout=30) as client:

        def asks_health() -> None:
            began = time.monotonic()
            assert client.get(at["url"] + "/health").status_code == httpx.codes.OK
            took.append(time.monotonic() - began)

        for kind in KINDS:
            for name in (kind, "good"):
                names.append(submits(operator, name))
                asks_health()
        deadline = time.monotonic() + 240
        while any(operator.state_of(name) not in ("COMPLETED", "FAILED") for name in names):
            assert time.monotonic() < deadline, operator.types("queue")
            asks_health()
            time.sleep(0.1)
    assert sorted(took)[len(took) * 9 // 10] < _HEALTH_S
    good = [name for name in names if name.startswith("good")]
    assert [operator.state_of(name) for name in good] == ["COMPLETED"] * 10
    told = {name: operator.job(name)["message"] for name in names if name not in good}
    assert {name: text for name, text in told.items() if not re.search(OUTCOMES[name.split("-")[0]], text)} == {}
    assert [server["state"] for server in operator.asks("/servers")] == ["up", "up"]
    assert not [event for event in operator.asks("/events?most=10000") if event["what"] == "server"]
    kept = Checkpoints(str(operator.state / "checkpoints"))
    parameters = [parameters_of(kept, name) for name in (before, *good)]
    assert all(equal(parameters[0], other) for other in parameters[1:])
    operator.waits(lambda: not left_behind(), 10)


def parameters_of(kept: Checkpoints, job: str) -> dict[str, Any]:
    content = kept.read(job)
    assert content is not None
    found: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)["model"]
    return found


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def left_behind() -> list[str]:
    """Process ids of what jobs have forked; they bear the name of this run of the tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            found += [path.parent.name] if path.read_text().strip() == MARK else []
    return found
