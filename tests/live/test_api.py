"""The API over a controller whose servers do nothing: what is submitted, refused, and submitted again."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
import uvicorn
import yaml
from fastapi.testclient import TestClient
from hostile import of_our_list, of_schemathesis
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from skedge.cli import requests as commands
from skedge.cli.client import NoAnswerError, ask
from skedge.core.errors import InputError
from skedge.core.model.cluster import Cluster, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND
from skedge.live.controller.limits import Limits
from skedge.live.controller.notify import Message
from skedge.live.controller.service import Service
from skedge.live.controller.settings import CLUSTER, Settings, save_settings
from skedge.live.controller.states import ROLES
from skedge.live.controller.submissions import Submissions
from skedge.live.coordinator.report import Report
from skedge.live.journal.chain import DECISION, Entry
from skedge.live.journal.journal import SqlJournal
from skedge.live.journal.quarantine import put_aside
from skedge.live.service.api import V1, _stream, make_api
from skedge.live.service.guard import Guard
from skedge.live.service.tenant_view import TenantView
from skedge.live.service.tls import certificate
from skedge.live.service.tokens import NAMED_TOKENS, Tokens, add_token
from skedge.live.worker.code_archive import digest, pack
from skedge.live.world.ray_world import NoEngine
from skedge.live.world.upload_thread import UploadThread
from skedge.scenario.save import cluster_fields

TOKEN = "of the test"
SPEC: dict[str, Any] = {
    "name": "net", "epochs": 2, "chunks": 2, "minibatches": 4, "minibatch_s": 0.1, "upload_edge_s": [900, 900],
    "train": {"factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2}},
}  # fmt: skip


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


@pytest.fixture(autouse=True)
def _nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads would ask Ray, which later tests have to import with their own settings."""
    monkeypatch.setattr(UploadThread, "start", lambda _: None)


class Controller:
    """A service in a thread of its own, and a client with its token."""

    def __init__(self, folder: Path, policy: str = "aonline", sharing: Sharing | None = None) -> None:
        cluster = Cluster([Server("edge-0", capacity={"worker:gpu": 2, "ps:cpu": 2})], sharing=sharing)
        table, given = job_table([])
        empty = Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND))
        url = f"sqlite:///{folder / 'journal.db'}"
        fresh = not (folder / "journal.db").exists()
        self.journal = (
            SqlJournal(url, {"began": time.time(), "id": "it", "policy": policy})
            if fresh
            else SqlJournal(url, run_id="it")
        )
        (folder / CLUSTER).write_text(yaml.safe_dump(cluster_fields(empty), sort_keys=False))
        self.service = Service(empty, policy, folder, Up(1), self.journal)
        self.thread = threading.Thread(target=self.service.run, daemon=True)
        self.thread.start()
        self.client = self.client_with(TOKEN)

    def client_with(self, token: str) -> TestClient:
        """A client that sends this token."""
        headers = {"Authorization": f"Bearer {token}"}
        return TestClient(make_api(self.service, TOKEN), f"http://testserver{V1}", headers=headers)

    def submit(self, key: str = "", **changes: Any) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post("/jobs", json={**SPEC, **changes}, headers=headers)

    def comes_to(self, job: str, state: str) -> None:
        """Wait until a job is in a state."""
        deadline = time.monotonic() + 20
        while self.client.get(f"/jobs/{job}").json()["state"] != state:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> None:
        self.service.down()
        self.thread.join(20)
        self.journal.close()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    one = Controller(tmp_path)
    try:
        yield one
    finally:
        one.end()


def test_a_submission_that_is_repeated_with_its_key_is_one_job(controller: Controller) -> None:
    assert [controller.submit("k1").json() for _ in range(4)] == ["net"] * 4
    assert controller.submit("k2").json() == "net-2"
    assert controller.submit().json() == "net-3", "without a key every submission is a job"
    assert [row["job"] for row in controller.client.get("/jobs").json()] == ["net", "net-2", "net-3"]


def test_a_name_in_use_gets_the_first_free_number(controller: Controller) -> None:
    names = ["net", "net-3", "net", "net", "net-3", "net"]
    got = [controller.submit(name=name).json() for name in names]
    assert got == ["net", "net-3", "net-2", "net-4", "net-3-2", "net-5"]


def test_a_what_if_is_answered_and_changes_nothing(controller: Controller) -> None:
    controller.submit()
    more = {name: value for name, value in SPEC.items() if name != "train"}
    answer = controller.client.post("/whatif", json={"submit": more}).json()
    assert [row["job"] for row in answer["jobs"]] == ["net-2", "net"], "the one asked about is first"
    assert answer["jobs"][0]["completion_after_s"] > answer["now_s"]
    assert [row["job"] for row in controller.client.get("/jobs").json()] == ["net"]
    refused = controller.client.post("/whatif", json={"drain": "west"})
    assert refused.status_code == 400
    assert refused.json()["detail"] == "drain: server 'west' is unknown; there are edge-0"


def test_a_job_that_never_completes_is_said_to_be_so(controller: Controller) -> None:
    """Its only server is taken out of service: no forecast, and that the server came back would help."""
    controller.submit()
    assert controller.client.get("/jobs/net").json()["never_completes"] is False
    controller.client.post("/servers/edge-0/cordon")
    found = controller.client.get("/jobs/net").json()
    assert (found["never_completes"], found["forecast_s"]) == (True, None)
    assert [one["change"] for one in found["help"]] == ["if edge-0 came back"]
    assert [row["never_completes"] for row in controller.client.get("/jobs").json()] == [True]


def test_a_job_has_its_forecast_and_what_would_help(controller: Controller) -> None:
    """Its data are on the way for 900 s: it starts then, and nothing helps. No interval, as no error was measured."""
    controller.submit()
    found = controller.client.get("/jobs/net").json()
    assert found["start_s"] >= 900
    assert found["forecast_s"] > found["start_s"]
    assert found["forecast_from_s"] < found["forecast_s"] < found["forecast_to_s"], "wide, as nothing is known"
    assert found["help"] == []
    assert controller.client.get("/jobs").json()[0]["start_s"] == pytest.approx(found["start_s"], abs=60)
    assert controller.client.get("/health").json()["forecasts"] == {"checked": 0, "held": None}


def test_jobs_and_events_come_in_pages(controller: Controller) -> None:
    for _ in range(3):
        controller.submit()
    controller.client.post("/jobs/net-2/cancel")
    controller.comes_to("net-2", "CANCELLED")

    def named(query: str) -> list[str]:
        return [row["job"] for row in controller.client.get(f"/jobs?{query}").json()]

    assert named("most=2") == ["net", "net-2"]
    assert named("since=1&most=1") == ["net-2"]
    assert named("state=PENDING") == ["net", "net-3"]
    assert named("state=PENDING&since=1") == ["net-3"]
    assert named("state=cancelled,running") == ["net-2"]
    assert named("since=3") == []
    events = controller.client.get("/events").json()
    assert controller.client.get("/events?since=2&most=3").json() == events[2:5]
    for query, says in (("state=LAZY", "state 'LAZY'"), ("most=0", "query.most"), ("since=-1", "query.since")):
        answer = controller.client.get(f"/jobs?{query}")
        assert (answer.status_code, says in answer.json()["detail"]) == (400, True)


def test_events_are_streamed_from_where_the_reader_was(controller: Controller) -> None:
    controller.submit()
    events = controller.client.get("/events").json()

    async def first(since: int, entries: int) -> list[str]:
        stream = _stream(TenantView(controller.service, None), since)
        return [await anext(stream) for _ in range(entries)]

    found = asyncio.run(first(1, len(events) - 1))
    assert found[0].splitlines() == ["id: 1", f"event: {events[1]['what']}", f"data: {json.dumps(events[1])}", ""]
    assert len(found) == len(events) - 1
    controller.service.world.inbox.ending = True
    answer = controller.client.get("/events/stream", headers={"Last-Event-ID": "0"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_what_prometheus_scrapes_counts_what_happened(controller: Controller) -> None:
    controller.submit()
    controller.submit()
    controller.client.post("/jobs/net/cancel")
    controller.comes_to("net", "CANCELLED")
    values = {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(controller.client.get("/metrics").text)
        for sample in family.samples
    }
    assert values["skedge_submitted_jobs_total[]"] == 2
    assert values["skedge_finished_jobs_total['CANCELLED']"] == 1
    assert values["skedge_jobs['PENDING']"] == values["skedge_jobs['CANCELLED']"] == 1
    assert values["skedge_jobs['RUNNING']"] == values["skedge_server_busy_ratio['edge-0']"] == 0
    assert values["skedge_pending_jobs['uploading']"] == 1
    assert values["skedge_server_up['edge-0']"] == 1
    assert values["skedge_decision_seconds_count[]"] >= 3
    assert values["skedge_journal_blocked[]"] == 0
    dashboard = (Path(__file__).parents[2] / "deploy" / "grafana.json").read_text()
    shown = {name.removesuffix("_bucket") for name in re.findall(r"skedge_\w+", dashboard)}
    given = {key.partition("[")[0].removesuffix("_bucket") for key in values}
    assert shown - given == {"skedge_forecast_held_ratio"}, "a metric of the dashboard; one has no value yet"


ASKED = {
    "read": [("GET", "/jobs"), ("GET", "/events"), ("GET", "/servers"), ("GET", "/health"), ("GET", "/metrics"),
             ("GET", "/record"), ("GET", "/jobs/x"), ("GET", "/jobs/x/logs"), ("GET", "/jobs/x/workers"),
             ("GET", "/openapi.json"), ("POST", "/nowhere"),
             ("POST", "/whatif"), ("GET", "/view"), ("GET", "/view/lanes"), ("GET", "/view/map"),
             ("GET", "/view/jobs/x"), ("GET", "/view/training/x")],
    "submit": [("POST", "/jobs"), ("PUT", "/code/x"), ("POST", "/jobs/x/cancel"), ("POST", "/jobs/x/resubmit")],
    "operate": [("POST", "/servers/edge-0/cordon"), ("POST", "/servers/edge-0/uncordon")],
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_what_those_before_it_may(controller: Controller, tmp_path: Path, role: str) -> None:
    """Each role on each endpoint but /down: refused with 403 where it is too small, and with nothing else."""
    client = controller.client_with(add_token(tmp_path, "somebody", role))
    for needed, requests in ASKED.items():
        for method, path in requests:
            answer = client.request(method, path)
            assert (answer.status_code == 403) == (ROLES.index(role) < ROLES.index(needed)), (method, path)
            if answer.status_code == 403:
                assert answer.json()["detail"] == f"token 'somebody' has the role {role}; this needs {needed}"
    listed = {
        (method.upper(), path): operation["x-role"]
        for path, operations in client.get("/openapi.json").json()["paths"].items()
        for method, operation in operations.items()
    }
    assert listed.pop(("POST", f"{V1}/down")) == "operate"
    names = {"/jobs/x": "/jobs/{job}", "/training/x": "/training/{job}", "code/x": "code/{name}", "edge-0": "{server}"}
    asked = dict[tuple[str, str], str]()
    for needed, requests in ASKED.items():
        for method, path in requests:
            template = reduce(lambda template, name: template.replace(*name), names.items(), V1 + path)
            asked[method, template] = needed
    assert listed == {request: asked[request] for request in listed}, "programs are told the role that each needs"


def test_tokens_change_while_the_service_runs(controller: Controller, tmp_path: Path) -> None:
    """A replaced one, a revoked one; the file has no token, and the audit log has the name."""
    first, second = (add_token(tmp_path, "ci", "submit") for _ in range(2))
    assert first not in (tmp_path / "tokens.json").read_text()
    assert controller.client_with(first).get("/jobs").status_code == 401
    assert controller.client_with(second).post("/jobs", json=SPEC).status_code == 200
    entry = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])
    assert (entry["who"], entry["what"]) == ("token:ci", "submit")
    NAMED_TOKENS.remove(tmp_path, "ci")
    assert controller.client_with(second).get("/jobs").status_code == 401
    assert controller.client.get("/jobs").status_code == 200
    with pytest.raises(InputError, match="token 'ci' is not there; there are none"):
        NAMED_TOKENS.remove(tmp_path, "ci")
    with pytest.raises(InputError, match="role 'boss': must be one of read, submit, operate"):
        add_token(tmp_path, "ci", "boss")


def made_certificate(folder: Path) -> tuple[str, str]:
    """A certificate for another name than this machine's, and its key."""
    cert, key = (str(folder / name) for name in ("cert.pem", "key.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere", "-days", "2"]
    subprocess.run([*command, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate with")
def test_the_api_is_encrypted_and_commands_trust_its_certificate_alone(controller: Controller, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (cert, key), (another, another_key) = made_certificate(one), made_certificate(other)
    assert certificate(cert, key) == (cert, key)
    listening = socket.create_server(("127.0.0.1", 0))
    given: dict[str, Any] = {"ssl_certfile": cert, "ssl_keyfile": key}
    server = uvicorn.Server(uvicorn.Config(make_api(controller.service, TOKEN), log_level="warning", **given))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = {"url": f"https://127.0.0.1:{listening.getsockname()[1]}{V1}", "token": TOKEN}
    try:
        (tmp_path / "service.json").write_text(json.dumps({**address, "certificate": cert}))
        assert ask(tmp_path, "GET", "/health")["policy"] == "aonline"
        (tmp_path / "service.json").write_text(json.dumps({**address, "certificate": another}))
        with pytest.raises(NoAnswerError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(tmp_path, "GET", "/health")
    finally:
        server.should_exit = True
        thread.join(20)
    for wrong, says in (((cert, another_key), "cannot be used: key values mismatch"), ((cert, None), "go together")):
        with pytest.raises(InputError, match=says):
            certificate(*wrong)


def test_a_job_is_submitted_again_as_it_was(controller: Controller) -> None:
    controller.submit(epochs=3)
    again = controller.client.post("/jobs/net/resubmit", headers={"Idempotency-Key": "k"})
    assert again.json() == controller.client.post("/jobs/net/resubmit", headers={"Idempotency-Key": "k"}).json()
    assert again.json() == "net-2"
    assert controller.client.post("/jobs/net-2/resubmit").json() == "net-3"
    first, last = (controller.client.get(f"/jobs/{job}").json() for job in ("net", "net-3"))
    same = {"train", "minibatches_per_chunk"}
    assert {field: first[field] for field in same} == {field: last[field] for field in same}
    assert first["announced"]["epochs"] == last["announced"]["epochs"] == 3
    assert "unknown" in controller.client.post("/jobs/nobody/resubmit").json()["detail"]


def test_the_service_notifies_of_jobs_that_were_submitted(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Message | None] = []
    monkeypatch.setattr(controller.service.notifier, "_put", said.append)
    controller.submit()
    controller.comes_to("net", "PENDING")
    controller.service.world.inbox.waiting.put(Report("failed", 0, reason="its disk burned"))
    controller.comes_to("net", "FAILED")
    assert said == [Message("failed", "net", "job net failed: its disk burned")]


def test_the_page_is_served_to_everybody_and_its_answers_to_tokens(controller: Controller) -> None:
    anybody = TestClient(controller.client.app, "http://testserver")
    assert "<title>skedge view</title>" in anybody.get("/").text
    script = anybody.get("/view/view.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "default-src 'none'" in script.headers["content-security-policy"]
    assert anybody.get("/view/../secrets").status_code == 401
    assert anybody.get("/view/none.js").status_code == 404
    assert anybody.get(f"{V1}/view").status_code == 401
    assert anybody.post("/").status_code == 401


def test_the_page_is_told_of_the_present_state(controller: Controller) -> None:
    controller.submit()
    controller.comes_to("net", "PENDING")
    overview = controller.client.get("/view").json()
    assert (overview["live"], overview["runs"]) == (True, ["aonline"])
    assert dict(overview["facts"])["jobs"] == "1"
    assert overview["events"] == len(controller.client.get("/events").json())
    assert controller.client.get("/view/lanes").json()["names"] == ["net"]
    controller.client.post("/servers/edge-0/cordon")
    (server,) = controller.client.get("/view/map").json()["servers"]
    assert (server["server"], server["workers"], server["state"]) == ("edge-0", 2, "cordoned")
    found = controller.client.get("/view/jobs/net").json()
    assert (found["job"], found["verb"]) == ("net", "PENDING")
    assert [row["what"] for row in found["timeline"]][:2] == ["arrived", "dispatch"]
    assert controller.client.get("/view/jobs/nobody").status_code == 404
    trained = controller.client.get("/view/training/net").json()
    assert (trained["job"], trained["workers"], trained["losses"], trained["accuracy"]) == ("net", [], [], None)
    assert controller.client.get("/view/training/nobody").status_code == 404


def test_a_log_is_read_on_from_where_the_reader_was(controller: Controller) -> None:
    controller.submit()
    controller.comes_to("net", "PENDING")
    whole = controller.client.get("/jobs/net/logs").text
    assert controller.client.get("/jobs/net/logs?since=10").text == whole[10:]


def test_a_record_is_refused_while_jobs_are_there(controller: Controller, tmp_path: Path) -> None:
    save_settings(tmp_path, Settings("aonline", id="it"))
    cluster = {"servers": [{"id": "edge-0", "workers": {"gpu": 2}, "ps": {"cpu": 2}}]}
    (tmp_path / "cluster.yaml").write_text(json.dumps({"name": "c", "slot": "1s", "cluster": cluster}))
    controller.submit()
    refused = controller.client.get("/record")
    assert refused.status_code == 400
    assert "job 'net' is still in the system" in refused.json()["detail"]
    controller.client.post("/jobs/net/cancel")
    controller.comes_to("net", "CANCELLED")
    with zipfile.ZipFile(io.BytesIO(controller.client.get("/record").content)) as archive:
        assert {"run.json", "scenario.yaml"} <= {Path(name).name for name in archive.namelist()}


def test_a_token_asks_so_often_in_a_minute_and_no_more() -> None:
    tokens = Tokens(Path("nowhere"), TOKEN)
    api = Starlette(routes=[Route("/v1/health", lambda _: PlainTextResponse("up"))])
    client = TestClient(Guard(api, tokens, 1000, 3, api.routes), headers={"Authorization": f"Bearer {TOKEN}"})
    answers = [client.get("/v1/health") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["detail"] == "token 'own' has asked 3 times in this minute, which is the most"
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60


def test_a_key_of_another_spec_is_refused(controller: Controller) -> None:
    controller.submit("k1")
    answer = controller.submit("k1", epochs=3)
    assert answer.status_code == 400
    assert answer.json()["detail"] == "idempotency key 'k1': was used for another spec, job 'net'; give a new key"


def test_keys_are_kept_in_the_journal(tmp_path: Path) -> None:
    """The controller ends before its answer arrives; the client asks the next one."""
    first = Controller(tmp_path)
    first.submit("k1")
    first.end()
    second = Controller(tmp_path)
    try:
        assert second.submit("k1").json() == "net"
        assert len(second.client.get("/jobs").json()) == 1
    finally:
        second.end()


def test_one_small_request_cannot_take_the_memory(controller: Controller) -> None:
    answer = controller.submit(chunks=90_000_000)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("job spec: chunks: 90000000; this service takes at most 10000")
    assert controller.client.get("/jobs").json() == []


def archive(folder: Path, text: str = "def job(): ...") -> bytes:
    (folder / "own.py").write_text(text, encoding="utf-8")
    return pack(folder / "own.py")


def test_code_is_kept_by_its_digest_and_needs_no_allowing(controller: Controller, tmp_path: Path) -> None:
    code = archive(tmp_path)
    assert controller.client.put(f"/code/{digest(code)}", content=code).status_code == 200
    assert controller.submit(train={"factory": "own:job", "code": digest(code)}).json() == "net"
    for factory, sentence in (("other:job", "the job's code has no module other (own)"), ("os:system", "no module os")):
        answer = controller.submit(train={"factory": factory, "code": digest(code)})
        assert answer.status_code == 400
        assert sentence in answer.json()["detail"]
    assert (
        "of no module that this service runs code of"
        in controller.submit(train={"factory": "own:job"}).json()["detail"]
    )


def test_code_that_is_wrong_is_one_sentence(controller: Controller, tmp_path: Path) -> None:
    code = archive(tmp_path)
    wrong = {digest(b"x"): (b"x", "code: is no archive"), "0" * 64: (code, "code: its SHA-256 is")}
    for name, (content, sentence) in wrong.items():
        answer = controller.client.put(f"/code/{name}", content=content)
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith(sentence)
    large = archive(tmp_path, "#" * 1_100_000)
    assert controller.client.put(f"/code/{digest(large)}", content=large).status_code == 413
    for named, sentence in (("train.py", "is no SHA-256"), (digest(code), "is not kept"), ("../../x", "is no SHA-256")):
        answer = controller.submit(train={"factory": "own:job", "code": named})
        assert answer.status_code == 400
        assert sentence in answer.json()["detail"]
    assert controller.client.get("/jobs").json() == []
    assert not (tmp_path / "code").exists()


def test_who_asked_for_what_is_written_down(controller: Controller, tmp_path: Path) -> None:
    """Questions are not; neither is the token."""
    controller.submit("k1", name="ours")
    controller.client.post("/jobs/none/cancel")
    controller.client.post("/jobs/ours/cancel")
    controller.client.get("/jobs")
    text = (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    assert TOKEN not in text
    asked = [json.loads(line) for line in text.splitlines()]
    assert {one["who"] for one in asked} == {"token:own"}
    assert [(one["what"], one["of"].get("job") or one["of"].get("spec"), one["outcome"]) for one in asked] == [
        ("submit", "ours", "ours"),
        ("cancel", "none", "refused: job 'none' is unknown; `skedge queue` lists them"),
        ("cancel", "ours", "done"),
    ]


@pytest.mark.parametrize("factory", ["os:system", "skedge.live.examples_of_another:f", "skedge:run"])
def test_code_of_a_module_that_is_not_allowed_is_refused(controller: Controller, factory: str) -> None:
    answer = controller.submit(train={"factory": factory})
    assert answer.status_code == 400
    assert f"train.factory: '{factory}': is of no module that this service runs code of" in answer.json()["detail"]


def test_a_package_that_is_allowed_is_so_with_its_modules() -> None:
    limits = Limits(allow=("mine",))
    limits.check_factory("mine:f")
    limits.check_factory("mine.deep.down:f")
    with pytest.raises(InputError, match="of no module"):
        limits.check_factory("mines:f")


def asked(headers: dict[str, str], size: int) -> tuple[int, int]:
    """Status of the answer to a body of `size` megabytes, and how many of them were read."""
    read, status = 0, 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b" " * 10**6, "more_body": read < size}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    async def app(*_: Any) -> None:
        raise AssertionError("it was passed on")

    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "headers": given}
    asyncio.run(Guard(app, Tokens(Path("/nowhere"), TOKEN), 10**6, 10, [])(scope, receive, send))
    return status, read


def test_a_large_body_is_refused_before_it_is_read() -> None:
    """By what it says of itself at once; where it says nothing, with the first piece that is too much."""
    known = {"Authorization": f"Bearer {TOKEN}"}
    assert asked({"Authorization": "Bearer wrong"}, 200) == (401, 0)
    assert asked({}, 200) == (401, 0)
    assert asked({**known, "Content-Length": "200000000"}, 200) == (413, 0)
    assert asked({**known, "Content-Length": "-1"}, 200) == (413, 0)
    assert asked(known, 200) == (413, 2)


def test_a_body_that_is_too_large_is_told_the_most_that_is_taken(controller: Controller) -> None:
    answer = controller.client.post("/jobs", content=b"x" * 2_000_000)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Request Entity Too Large",
        "status": 413,
        "detail": "the body has more than 1000000 bytes, which is the most that is taken",
    }


HOSTILE = [
    (b"", "the body is not JSON"),
    (b"{", "the body is not JSON"),
    (b"\xff\xfe", "the body is not JSON"),
    (b"[1]", "the body is a JSON list"),
    (b'{"name": "a", "epochs": NaN}', "NaN is not a number that JSON has"),
    (b'{"name": "a", "epochs": 1e999}', "epochs: inf is not finite"),
    (b'{"name": "a", "train": {"args": {"x": "\\ud800"}}}', "train.args.x: holds half of a surrogate pair"),
    (b'{"a": ' * 30 + b"1" + b"}" * 30, "is nested more than 20 levels deep"),
    (b"[" * 100_000 + b"]" * 100_000, "the body is not JSON"),
]


@pytest.mark.parametrize(("body", "says"), HOSTILE, ids=[says for _, says in HOSTILE])
def test_a_body_that_is_no_job_spec_is_one_sentence(controller: Controller, body: bytes, says: str) -> None:
    answer = controller.client.post("/jobs", content=body)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]
    assert controller.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/events?since=x", 400, "query.since: "),
        ("GET", "/nowhere", 404, "GET /v1/nowhere: Not Found"),
        ("PATCH", "/jobs", 405, "PATCH /v1/jobs: Method Not Allowed"),
        ("GET", "/jobs/none", 404, "job 'none' is unknown"),
        ("GET", "/jobs/%00", 404, "is unknown"),
        ("POST", "/servers/none/cordon", 404, "server 'none' is unknown"),
    ],
)
def test_wrong_requests_have_their_sentence(
    controller: Controller, method: str, path: str, status: int, says: str
) -> None:
    answer = controller.client.request(method, path)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_hostile_requests_are_refused_in_a_sentence_or_do_no_harm(controller: Controller) -> None:
    """`benchmarks/hostile.py` sends more of them to a real service."""
    requests = [*of_our_list(), *of_schemathesis(controller.client.get("/openapi.json").json(), 3)]
    for one in requests:
        answer = controller.client.request(
            one.method, one.path, content=one.content, headers=one.headers, params=one.params
        )
        assert answer.status_code < 500, (one, answer.text)
        assert answer.status_code == 200 or answer.json()["detail"], one
    assert controller.client.get("/health").json()["read_only"] is None


def test_a_full_disk_makes_the_service_read_only_until_there_is_space(controller: Controller) -> None:
    """The database may not grow: questions are answered, jobs are refused, and what was under way goes on after."""
    client, engine = controller.client, controller.journal.engine
    with engine.connect() as at:
        pages = at.exec_driver_sql("PRAGMA page_count").scalar()
        at.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    for _ in range(100):  # the pages that are there fill up first
        answer = controller.submit(train={**SPEC["train"], "args": {"text": "x" * 2000}})
        if answer.status_code != 200:
            break
    assert answer.status_code == 503
    health = client.get("/health").json()
    assert "read-only: the journal cannot be written: database or disk is full" in health["read_only"]
    with engine.connect() as at:
        at.exec_driver_sql("PRAGMA max_page_count=1073741823")
    deadline = time.monotonic() + 20
    while client.get("/health").json()["read_only"] is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert controller.submit().status_code == 200
    names = [row["job"] for row in client.get("/jobs").json()]
    assert len(names) == len(set(names)) >= 2


def test_while_a_decision_cannot_be_written_nobody_is_answered_from_the_middle_of_its_event(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health says why, at once; afterwards the job is there."""
    journal, full, insert = controller.journal, threading.Event(), controller.journal._insert
    monkeypatch.setattr("skedge.live.journal.journal._PAUSE_S", 0.05)

    def refuse(entry: Entry) -> None:
        if full.is_set() and entry.kind == DECISION:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise sql.exc.OperationalError("INSERT", {}, error)
        insert(entry)

    full.set()
    journal._insert = refuse  # type: ignore[method-assign]
    assert controller.submit().status_code == 200, "its entry is an input, and can be written"
    deadline = time.monotonic() + 20
    while not journal.midway:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began = time.monotonic()
    for path in ("/jobs", "/events", "/servers"):
        answer = controller.client.get(path)
        assert (answer.status_code, "disk is full" in answer.json()["detail"]) == (503, True), answer.text
    health = controller.client.get("/health")
    assert health.status_code == 200
    assert "read-only: the journal cannot be written: database or disk is full" in health.json()["read_only"]
    assert time.monotonic() - began < 10
    full.clear()
    while journal.midway:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    controller.comes_to("net", "PENDING")
    assert controller.client.get("/health").json()["read_only"] is None


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_service_whose_state_is_gone_takes_no_job_and_says_so(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It can be ended then, too."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    assert controller.submit().status_code == 200
    if how == "deleted":
        shutil.rmtree(tmp_path)
    else:
        tmp_path.rename(tmp_path.with_name("elsewhere"))
    answer, health = controller.submit(), controller.client.get("/health").json()
    assert answer.status_code == 503
    for said in (answer.json()["detail"], health["read_only"]):
        assert f"{tmp_path / 'journal.db'} is gone or was replaced while the service was up" in said
    if how == "moved":
        tmp_path.with_name("elsewhere").rename(tmp_path)
        deadline = time.monotonic() + 10
        while (again := controller.submit()).status_code != 200:  # looked at anew within a second
            assert time.monotonic() < deadline, again.text
            time.sleep(0.1)


def test_no_job_is_taken_while_little_space_is_left(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5e6})())
    answer = controller.submit()
    assert answer.status_code == 503
    assert "has 5 MB left, less than 100 MB" in answer.json()["detail"]
    assert "5 MB left" in controller.client.get("/health").json()["read_only"]


def test_a_submission_that_the_controller_dies_of_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking it in ends the controller, and the next one, until it is put aside; other jobs are untouched."""
    take = Submissions.take

    def dies(self: Submissions, given: Any, arrival_s: float) -> Any:
        if given.job["id"] == "poison":
            raise OverflowError("90000000 chunks")
        return take(self, given, arrival_s)

    monkeypatch.setattr(Submissions, "take", dies)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr("skedge.live.controller.questions.ANSWER_S", 1.0)
    first = Controller(tmp_path)
    assert first.submit("k1").json() == "net"
    assert first.submit(name="poison").status_code == 503
    first.thread.join(10)
    first.journal.close()
    second = Controller(tmp_path)
    second.thread.join(10)
    assert not second.thread.is_alive(), "it dies of it again"
    with pytest.raises(InputError, match="job 'net': has been taken in"):
        put_aside(second.journal, "net")
    with pytest.raises(InputError, match="job 'other': was not submitted; there are net, poison"):
        put_aside(second.journal, "other")
    put_aside(second.journal, "poison")
    second.journal.close()
    third = Controller(tmp_path)
    try:
        assert [row["job"] for row in third.client.get("/jobs").json()] == ["net"]
        assert third.client.get("/health").json()["quarantined"] == ["poison"]
        assert third.submit(name="next").json() == "next"
    finally:
        third.end()


def test_a_job_that_has_left_leaves_the_working_state(controller: Controller) -> None:
    """What each decision, question and copy walks is that of the jobs in the system."""
    for _ in range(3):
        job = controller.submit().json()
        controller.client.post(f"/jobs/{job}/cancel")
        controller.comes_to(job, "CANCELLED")
    world = controller.service.world
    assert [len(of) for of in (world.trainers, world.lanes.table.chunks, world.uploads.pending)] == [0, 0, 0]
    assert controller.client.get("/jobs/net-2").json()["progress_by_chunk"] == [0, 0]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Controller]:
    """Two workers, of which speech may hold one."""
    it = Controller(tmp_path, "srtf", Sharing({"vision": Tenant(), "speech": Tenant(quota=0.5)}))
    yield it
    it.end()


def test_a_job_of_a_tenant_waits_for_its_quota_and_says_so(shared: Controller) -> None:
    gang = {"resources": {"workers": 1}, "chunks": 1}
    first = shared.submit(tenant="speech", **gang).json()
    second = shared.submit(tenant="speech", priority=3, **gang).json()
    third = shared.submit(**{**gang, "name": "other"}).json()
    rows = {row["job"]: row for row in shared.client.get("/jobs").json()}
    tokens = [rows[job]["reason"]["token"] for job in (first, second, third)]
    assert tokens == ["quota", "uploading", "uploading"], "the second is of a higher class, and has taken its place"
    assert (rows[second]["tenant"], rows[second]["priority"], rows[third]["tenant"]) == ("speech", 3, "default")
    assert rows[first]["message"] == (
        "its tenant's jobs hold as many workers as its quota lets them: needs 1 worker:gpu, 0 free"
    )
    text = shared.client.get("/metrics").text
    assert 'skedge_tenant_workers{tenant="speech"} 1.0' in text
    assert 'skedge_tenant_workers{tenant="vision"} 0.0' in text


def test_the_queue_shows_tenants_and_classes(
    shared: Controller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = shared.submit(tenant="speech", priority=3, chunks=1, resources={"workers": 1}).json()
    monkeypatch.setattr(commands, "out", Console(width=200, height=50, force_terminal=False))
    monkeypatch.setattr(
        commands, "ask", lambda _, method, path, **more: shared.client.request(method, path, **more).json()
    )
    commands.queue(Path("anywhere"), None)
    head, row = re.findall(r"^[┃│](.*)[┃│]$", capsys.readouterr().out, re.MULTILINE)[:2]
    assert [cell.strip() for cell in re.split("[┃│]", head)][:4] == ["job", "tenant", "class", "state"]
    assert [cell.strip() for cell in re.split("[┃│]", row)][:3] == [job, "speech", "3"]
    commands.describe(job, Path("anywhere"))
    assert "tenant speech, class 3\n" in capsys.readouterr().out
    shared.client.post(f"/jobs/{job}/cancel")
    monkeypatch.setattr(commands, "out", Console(width=80, height=50, force_terminal=False))
    commands.queue(Path("anywhere"), None)
    words = capsys.readouterr().out
    assert "CANCELLED" in words, "a state is not cut to fit a pipe"
    assert "cancelled" in words, "nor is a reason"


def test_a_token_of_a_tenant_is_for_its_jobs_alone(shared: Controller, tmp_path: Path) -> None:
    others = shared.submit(tenant="vision").json()
    client = shared.client_with(add_token(tmp_path, "ci", "submit", "speech"))
    mine = client.post("/jobs", json={**SPEC, "name": "mine"}).json()
    assert client.get(f"/jobs/{mine}").json()["tenant"] == "speech"
    refused = client.post("/jobs", json={**SPEC, "tenant": "vision"})
    assert refused.status_code == 403
    assert refused.json()["detail"] == "token 'ci' is for jobs of the tenant 'speech', not of 'vision'"
    assert [client.post(f"/jobs/{others}/{what}").status_code for what in ("cancel", "resubmit")] == [404, 404]
    assert client.post(f"/jobs/{mine}/resubmit").json() == f"{mine}-2"
    assert client.post(f"/jobs/{mine}/cancel").status_code == 200
    assert client.post("/jobs/nobody/cancel").status_code == 404
    with pytest.raises(InputError, match=r"tenant 'x': .* its tenants are vision, speech, default"):
        add_token(tmp_path, "ci", "submit", "x")


def test_what_trackers_are_told_of_a_job(controller: Controller) -> None:
    """It has not begun; it is cancelled, and told of once more as it has left."""
    job, service = controller.submit().json(), controller.service
    (told,) = service.ask(lambda: service.status.trained([]))
    assert (told.job, told.state, told.update, told.progress, told.over) == (job, "PENDING", 0, 0.0, False)
    assert told.spec["factory"] == SPEC["train"]["factory"]
    assert (told.spec["epochs"], told.spec["args.model"]) == (2, "lenet")
    controller.client.post(f"/jobs/{job}/cancel")
    controller.comes_to(job, "CANCELLED")
    assert service.ask(lambda: service.status.trained([])) == []
    (told,) = service.ask(lambda: service.status.trained([job]))
    assert (told.state, told.over, told.accuracy) == ("CANCELLED", True, None)


def test_without_tenants_there_are_none(controller: Controller, tmp_path: Path) -> None:
    refused = controller.submit(tenant="vision")
    assert refused.status_code == 400
    assert "tenant = 'vision'; it must be left out: it goes with cluster.sharing" in refused.json()["detail"]
    assert "tenant" not in controller.client.get(f"/jobs/{controller.submit().json()}").json()
    with pytest.raises(InputError, match="has none of that name; it has no sharing"):
        add_token(tmp_path, "ci", "submit", "vision")
