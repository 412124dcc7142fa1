"""The service as an operator uses it, by its commands; the controller is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import yaml
from script_data import digits

CLUSTER = """
name: service
slot: 1s
cluster:
  servers:
    - {id: edge-0, workers: {gpu: 2}, ps: {cpu: 2}}
    - {id: edge-1, workers: {gpu: 1}, ps: {cpu: 1}}
    - {id: far, kind: cloud}
"""
SPEC: dict[str, Any] = {
    "name": "net", "epochs": 8, "chunks": 2, "minibatches": 6, "minibatch_s": 0.1, "ps_update_s": 0.01,
    "gradient_mb": 0.05, "bandwidth_mbps": 100.0, "upload_edge_s": [0.2, 0.4], "upload_cloud_s": [90, 90],
    "resources": {"workers": 2, "worker_type": "gpu", "ps_type": "cpu"},
    "train": {
        "factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2, "samples": 120, "size": 8}
    },
}  # fmt: skip


TRUST = (
    ["--trust-jobs"]
    if subprocess.run([sys.executable, "-m", "skedge.live.confinement"], check=False).returncode
    else []
)
"""On a machine that does not let jobs be confined, which says so."""


class Operator:
    """Types commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"

    def types(self, *words: str, fails: bool = False, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "skedge", *words, "--state", str(self.state)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={**os.environ, **env},
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def sees(self, *words: str) -> Any:
        return json.loads(self.types(*words, "--json"))

    def submits(self, **changes: Any) -> str:
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump({**SPEC, **changes}), encoding="utf-8")
        return str(self.sees("submit", str(path))["job"])

    def asks(self, path: str) -> Any:
        """The API's answer; a command, which imports half of skedge, takes training's time on a small machine."""
        at, deadline = self.address(), time.monotonic() + 240
        while True:
            answer = httpx.get(at["url"] + path, headers={"Authorization": f"Bearer {at['token']}"}, timeout=120)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                break  # unlike a controller that takes its journal in again
        answer.raise_for_status()
        return answer.json()

    def job(self, name: str) -> Any:
        return self.asks(f"/jobs/{name}")

    def state_of(self, job: str) -> str:
        return str(self.job(job)["state"])

    def waits(self, until: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, self.types("events")
            time.sleep(0.1)

    def address(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "service.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    one = Operator(folder)
    digits(folder / "digits", 600)
    one.types("up", str(folder / "cluster.yaml"), "--allow", "no.such", "--readable", str(folder / "digits"), *TRUST)
    try:
        yield one
    finally:
        if (one.state / "supervisor.pid").exists():
            one.types("down")


def test_commands_use_the_token_and_the_address_of_the_environment(operator: Operator, tmp_path: Path) -> None:
    """So that the holder of a named token has its role, wherever the state's folder is."""
    token = operator.types("token", "add", "looker", "--role", "read").split()[-1]
    assert "token" in operator.types("queue", fails=True, **dict.fromkeys(["SKEDGE_TOKEN"], "wrong"))
    assert "state" in operator.types("queue", SKEDGE_TOKEN=token)
    refused = operator.types("cordon", "edge-0", fails=True, SKEDGE_TOKEN=token)
    assert "token 'looker' has the role read; this needs operate" in refused
    elsewhere = Operator(tmp_path)
    assert "no service is up there" in elsewhere.types("servers", fails=True)
    assert "edge-0" in elsewhere.types("servers", SKEDGE_URL=operator.address()["url"], SKEDGE_TOKEN=token)
    assert "without SKEDGE_TOKEN" in elsewhere.types("servers", fails=True, SKEDGE_URL=operator.address()["url"])


def test_a_job_is_submitted_told_about_and_trained(operator: Operator) -> None:
    name = operator.submits()
    assert operator.submits() == f"{name}-2", "names are unique"
    told = operator.sees("describe", f"{name}-2")
    assert told["state"] in {"PENDING", "RUNNING"}
    assert told["forecast_s"] > told["now_s"]
    operator.waits(lambda: operator.state_of(f"{name}-2") == "COMPLETED")
    told = operator.sees("describe", name)
    assert told["progress_by_chunk"] == [48, 48]
    assert told["devices"].keys() <= {"edge-0", "edge-1"}
    assert {device for of in told["devices"].values() for device in of} == {"cpu"}
    assert told["accuracy"] > 0.3
    assert {"arrived", "dispatch", "started", "finished"} <= {one["what"] for one in told["history"]}
    assert "loss" in operator.types("logs", name)
    fetched = operator.sees("fetch", name, "--out", str(operator.folder / "model"))
    assert fetched["progress"] == [48, 48]
    assert all(torch.isfinite(part).all() for part in torch.load(fetched["file"], weights_only=True).values())
    assert [row["job"] for row in operator.sees("queue")][:2] == [name, f"{name}-2"]


SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "script"
OUTSIDE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import train
model = train.Net()
model.load_state_dict(torch.load(sys.argv[2], weights_only=True))
print(train.worst_recall(model, train.batches_of(sys.argv[3])))
assert not any(name.startswith("skedge") for name in sys.modules)
"""


def test_a_script_is_a_job_with_its_own_code_and_its_model_is_loaded_outside(operator: Operator) -> None:
    """An edit while the job is in the system is for the next job; the command's folder is not what servers import."""
    code = operator.folder / "train_job.py"
    code.write_bytes((SCRIPT / "train_job.py").read_bytes())
    train = {
        "code": str(code),
        "factory": "train_job:job",
        "args": {"folder": str(operator.folder / "digits"), "steps": 48},
    }
    first = operator.submits(name="script", epochs=6, minibatches=8, train=train)
    code.write_text(code.read_text(encoding="utf-8").replace("float((right / all_of).min())", "0.125"))
    second = operator.submits(name="edited", epochs=6, minibatches=8, train=train)
    # it is measured after its completion
    operator.waits(lambda: all(operator.job(job)["accuracy"] is not None for job in (first, second)), 240)
    told = {job: operator.sees("describe", job) for job in (first, second)}
    assert {operator.state_of(job) for job in (first, second)} == {"COMPLETED"}
    assert [told[job]["metric"] for job in (first, second)] == ["worst_recall"] * 2
    assert told[second]["accuracy"] == 0.125
    assert told[first]["accuracy"] > 0.5
    kept = {path.stem for path in (operator.state / "code").iterdir()}
    assert {told[job]["train"]["code"] for job in (first, second)} == kept
    assert len(kept) == 2
    fetched = operator.sees("fetch", first, "--out", str(operator.folder / "script"))
    alone = subprocess.run(
        [sys.executable, "-c", OUTSIDE, str(SCRIPT), fetched["file"], str(operator.folder / "digits" / "test")],
        capture_output=True, text=True, timeout=120, check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert float(alone.stdout) == pytest.approx(told[first]["accuracy"])
    asked = [json.loads(line) for line in (operator.state / "audit.jsonl").read_text(encoding="utf-8").splitlines()]
    submitted = [
        (one["outcome"], one["of"]["code"]) for one in asked if one["what"] == "submit" and "code" in one["of"]
    ]
    assert submitted == [(job, told[job]["train"]["code"]) for job in (first, second)]
    assert all(one["who"].startswith("token:") for one in asked)


def test_a_script_that_states_its_spec_is_submitted_as_it_is(operator: Operator) -> None:
    """The noise is 0.01, so the mean squared error of the right line is 0.0001; of none it is about 1."""
    script = Path(__file__).parents[2] / "docs" / "examples" / "script" / "line.py"
    name = str(operator.sees("submit", str(script))["job"])
    assert name == "line"
    operator.waits(lambda: operator.job(name)["accuracy"] is not None)  # it is measured after its completion
    told = operator.job(name)
    assert told["state"] == "COMPLETED"
    assert told["metric"] == "error"
    assert told["accuracy"] < 0.01


def test_what_waits_says_why_with_numbers_and_can_be_cancelled(operator: Operator) -> None:
    """The first takes all three lanes for 36 s, on a busy machine minutes; the way to the cloud is longer: it waits."""
    images = {"factory": SPEC["train"]["factory"], "args": {**SPEC["train"]["args"], "chunks": 3, "samples": 180}}
    long_job = {"name": "long", "epochs": 60, "chunks": 3, "train": images, "upload_cloud_s": [3600, 3600]}
    long = [operator.submits(**long_job) for _ in range(2)]
    operator.waits(lambda: operator.job(long[1])["reason"]["token"] == "lane_busy")
    reason = operator.sees("describe", long[1])["reason"]
    assert (reason["resource"], reason["need"], reason["free"], reason["blocker"]) == ("worker:gpu", 3, 0, long[0])
    assert [row["job"] for row in operator.sees("queue", "--only", "running")] == [long[0]]
    assert "is no state of a job" in operator.types("queue", "--only", "SLEEPING", fails=True)
    assert operator.types("logs", long[0], "--tail", "1").count("\n") == 1
    for job in long:
        operator.types("cancel", job)
    operator.waits(lambda: {operator.state_of(job) for job in long} == {"CANCELLED"})
    assert "nothing to cancel" in operator.types("cancel", long[0], fails=True)


def test_a_cordoned_server_gets_no_work_until_it_is_back(operator: Operator) -> None:
    job = operator.submits(name="moved", epochs=60)
    operator.waits(lambda: "edge-0" in operator.job(job)["servers"])
    operator.types("cordon", "edge-0")
    operator.waits(lambda: operator.job(job)["servers"] == ["edge-1"])
    assert {row["server"]: row["state"] for row in operator.sees("servers")}["edge-0"] == "cordoned"
    assert "cordoned already" in operator.types("cordon", "edge-0", fails=True)
    operator.types("uncordon", "edge-0")
    operator.types("cancel", job)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epoch": 3}, "did you mean epochs?"),
    ({"epochs": 0}, "epochs: 0"),
    ({"resources": {"gpus": 2}}, "resources.gpus"),
    ({"resources": {"worker_type": "tpu"}}, "worker_type = 'tpu'"),
    ({"upload": {"nowhere": 1}}, "nowhere"),
    ({"name": "../../etc"}, "has a name of at most 100 letters"),
]


def test_a_wrong_spec_is_refused_in_one_sentence(operator: Operator) -> None:
    path, before = operator.folder / "wrong.yaml", len(operator.sees("queue"))
    for changes, says in WRONG:
        path.write_text(yaml.safe_dump({**SPEC, **changes}), encoding="utf-8")
        assert says in operator.types("submit", str(path), fails=True)
    assert len(operator.sees("queue")) == before


def test_a_job_that_cannot_be_trained_fails_and_the_service_lives(operator: Operator) -> None:
    job = operator.submits(name="broken", train={"factory": "no.such.module:f"})
    operator.waits(lambda: operator.state_of(job) == "FAILED")
    assert "No module named 'no'" in operator.sees("describe", job)["message"]


SPY = """
import os, socket
from pathlib import Path

def job(state, port):
    got = []
    for name in ("token", "ray_token", "service.json", "journal.db", "settings.json", "logs"):
        got += [name] if os.access(Path(state, name), os.R_OK) else []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        got += [line] if b"ray" in line or b"control" in line else []
        if os.access(f"/proc/{pid}/environ", os.R_OK) and b"TOKEN" in Path(f"/proc/{pid}/environ").read_bytes():
            got.append(pid)
    for family, place in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, f"{state}/api.sock")):
        with socket.socket(family) as one:
            got += [place] if one.connect_ex(place) == 0 else []
    raise RuntimeError(f"it got {got}")
"""


@pytest.mark.skipif(bool(TRUST), reason="this machine does not let jobs be confined")
def test_a_hostile_job_gets_nothing_of_a_running_service(operator: Operator) -> None:
    code = operator.folder / "spy.py"
    code.write_text(SPY, encoding="utf-8")
    port = int(operator.address()["url"].split(":")[2].split("/")[0])
    train = {"code": str(code), "factory": "spy:job", "args": {"state": str(operator.state), "port": port}}
    job = operator.submits(name="spy", train=train)
    operator.waits(lambda: operator.state_of(job) == "FAILED")
    assert "RuntimeError: it got []" in operator.sees("describe", job)["message"]


def test_no_process_of_the_service_has_a_token_in_its_environment(operator: Operator) -> None:
    """No process of this machine has: those of Ray among them, which inherit the environment of the service."""
    of_ray = os.environ.get("RAY_AUTH_TOKEN_PATH", operator.state / "ray_token")  # the tests share a file
    tokens = [Path(path).read_bytes() for path in (operator.state / "token", of_ray)]
    own = 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            said = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            own += str(operator.state).encode() in said
            assert not any(token in said for token in tokens), path
    assert own >= 4, "supervisor, host of Ray, controller and standby"


def test_commands_ask_by_the_socket_of_the_state(operator: Operator) -> None:
    """Only its owner can connect; a command takes it although the address is another's."""
    assert (operator.state / "api.sock").stat().st_mode & 0o777 == 0o600
    address = operator.state / "service.json"
    content = address.read_text(encoding="utf-8")
    address.write_text(json.dumps({**json.loads(content), "url": "http://127.0.0.1:9/v1"}), encoding="utf-8")
    try:
        assert "edge-0" in operator.types("servers")
    finally:
        address.write_text(content, encoding="utf-8")


def test_the_api_asks_for_its_token_and_listens_on_loopback(operator: Operator) -> None:
    url = operator.address()["url"]
    assert url.startswith("http://127.0.0.1:")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx.get(url + "/jobs", headers=headers).status_code == 401
    assert (operator.state / "service.json").stat().st_mode & 0o077 == 0


def test_a_second_service_on_the_same_state_is_refused(operator: Operator) -> None:
    assert "is up already" in operator.types("up", str(operator.folder / "cluster.yaml"), fails=True)


def pids(operator: Operator, title: str) -> list[int]:
    """Processes of Ray actors of the service, by the beginning of their titles."""
    of_ray = set(json.loads((operator.state / "ray.json").read_text(encoding="utf-8"))["processes"])
    found = []
    for entry in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            if parent in of_ray and (entry / "cmdline").read_bytes().startswith(title.encode()):
                found.append(int(entry.name))
    return found


def test_a_killed_coordinator_is_started_again_and_its_jobs_continue_from_their_checkpoints(operator: Operator) -> None:
    job = operator.submits(name="coached", epochs=14)
    operator.waits(lambda: operator.job(job)["progress"] > 0.1)
    (victim,) = pids(operator, "ray::CoordinatorActor")
    os.kill(victim, signal.SIGKILL)
    operator.waits(lambda: operator.state_of(job) == "COMPLETED")
    assert operator.job(job)["progress_by_chunk"] == [84, 84]
    assert pids(operator, "ray::CoordinatorActor") != [victim]


def test_a_killed_controller_is_started_again_and_its_jobs_go_on(operator: Operator) -> None:
    """Training goes on without one. After that the service ends, and its journal alone gives every decision again."""
    job = operator.submits(name="kept", epochs=24)
    operator.waits(lambda: operator.job(job)["progress"] > 0.05)
    copy = operator.folder / "copy"
    operator.types("backup", "--out", str(copy))
    before = operator.address()["pid"]
    os.kill(before, signal.SIGKILL)
    operator.waits(lambda: (operator.state / "service.json").exists() and operator.address()["pid"] != before, 150)
    coordinator = pids(operator, "ray::CoordinatorActor")
    assert operator.asks("/health")["attached"]["updates"] > 0, "the rounds went on"
    operator.waits(lambda: operator.state_of(job) == "COMPLETED")
    assert operator.job(job)["progress_by_chunk"] == [144, 144]
    assert "goes back by" not in operator.types("logs", job), "no checkpoint was loaded"
    assert pids(operator, "ray::CoordinatorActor") == coordinator
    operator.types("down")
    assert not Path(f"/proc/{coordinator[0]}").exists()
    assert not (operator.state / "service.json").exists()
    assert not (operator.state / "supervisor.pid").exists()
    assert "no service is up" in operator.types("queue", fails=True)
    found = json.loads(operator.types("record", "--out", str(operator.folder / "record"), "--json"))
    assert found["violations"] == []
    assert found["jobs"] >= 7


def test_a_service_goes_on_from_a_backup_that_was_made_while_it_trained(operator: Operator) -> None:
    """The copy was made by the test before, which ended the service that it is of."""
    other = Operator(operator.folder)
    other.state = operator.folder / "copy"
    assert not (other.state / "token").exists()
    other.types("up", str(operator.folder / "cluster.yaml"))
    try:
        assert other.state_of("kept") in {"PENDING", "RUNNING", "SUSPENDED"}
        other.waits(lambda: other.state_of("kept") == "COMPLETED")
        assert other.job("kept")["progress_by_chunk"] == [144, 144]
    finally:
        other.types("down")
    assert other.sees("record", "--out", str(operator.folder / "record-of-copy"))["violations"] == []
