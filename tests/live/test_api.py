"""The API over a controller whose servers do nothing: what is submitted, refused, and submitted again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hostile import of_our_list, of_schemathesis

from skedge.core.errors import InputError
from skedge.core.model import Cluster, Physics, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.core.time import SECOND
from skedge.live.control.api import make_api
from skedge.live.control.guard import Guard
from skedge.live.control.journal import SqlJournal
from skedge.live.control.limits import Limits
from skedge.live.control.service import Service
from skedge.live.control.submissions import Submissions
from skedge.live.training.code import digest, pack
from skedge.live.training.trainer import Trainer
from skedge.live.world.carrier import Carrier
from skedge.live.world.ray_world import NoEngine

TOKEN = "of the test"
SPEC: dict[str, Any] = {
    "name": "net", "epochs": 2, "chunks": 2, "minibatches": 4, "minibatch_s": 0.1, "upload_edge_s": [900, 900],
    "train": {"factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2}},
}  # fmt: skip


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


@pytest.fixture(autouse=True)
def _nothing_is_sent_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads and trainers would ask Ray, which later tests have to import with their own settings."""
    monkeypatch.setattr(Carrier, "start", lambda _: None)
    monkeypatch.setattr(Trainer, "start", lambda _: None)


class Controller:
    """A service in a thread of its own, and a client with its token."""

    def __init__(self, folder: Path) -> None:
        cluster = Cluster([Server("edge-0", capacity={"worker:gpu": 2, "ps:cpu": 2})])
        table, given = job_table([])
        empty = Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND))
        url = f"sqlite:///{folder / 'journal.db'}"
        fresh = not (folder / "journal.db").exists()
        self.journal = SqlJournal(url, {"began": time.time(), "id": "it"}) if fresh else SqlJournal(url, of="it")
        self.service = Service(empty, "aonline", folder, Up(1), self.journal)
        self.thread = threading.Thread(target=self.service.run, daemon=True)
        self.thread.start()
        self.client = TestClient(make_api(self.service, TOKEN), headers={"Authorization": f"Bearer {TOKEN}"})

    def submit(self, key: str = "", **changes: Any) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post("/jobs", json={**SPEC, **changes}, headers=headers)

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


def test_a_what_if_is_answered_and_changes_nothing(controller: Controller) -> None:
    controller.submit()
    more = {name: value for name, value in SPEC.items() if name != "train"}
    answer = controller.client.post("/whatif", json={"submit": more}).json()
    assert [row["job"] for row in answer["jobs"]] == ["net", "net-2"]
    assert answer["jobs"][1]["completion_after_s"] > answer["now_s"]
    assert [row["job"] for row in controller.client.get("/jobs").json()] == ["net"]
    refused = controller.client.post("/whatif", json={"drain": "west"})
    assert refused.status_code == 400
    assert refused.json()["error"] == "drain: server 'west' is unknown; there are edge-0"


def test_a_job_has_its_forecast_and_what_would_help(controller: Controller) -> None:
    """Its data are on the way for 900 s: it starts then, and nothing helps. No interval, as no error was measured."""
    controller.submit()
    found = controller.client.get("/jobs/net").json()
    assert found["start_s"] >= 900
    assert found["forecast_s"] > found["start_s"]
    assert (found["forecast_from_s"], found["forecast_to_s"], found["help"]) == (None, None, [])
    assert controller.client.get("/jobs").json()[0]["start_s"] == pytest.approx(found["start_s"], abs=60)
    assert controller.client.get("/health").json()["forecasts"] == {"checked": 0, "held": None}


def test_a_key_of_another_spec_is_refused(controller: Controller) -> None:
    controller.submit("k1")
    answer = controller.submit("k1", epochs=3)
    assert answer.status_code == 400
    assert answer.json()["error"] == "idempotency key 'k1': was used for another spec, job 'net'; give a new key"


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
    assert answer.json()["error"].startswith("job spec: chunks: 90000000; this service takes at most 10000")
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
        assert sentence in answer.json()["error"]
    assert (
        "of no module that this service runs code of" in controller.submit(train={"factory": "own:job"}).json()["error"]
    )


def test_code_that_is_wrong_is_one_sentence(controller: Controller, tmp_path: Path) -> None:
    code = archive(tmp_path)
    wrong = {digest(b"x"): (b"x", "code: is no archive"), "0" * 64: (code, "code: its SHA-256 is")}
    for name, (content, sentence) in wrong.items():
        answer = controller.client.put(f"/code/{name}", content=content)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(sentence)
    large = archive(tmp_path, "#" * 1_100_000)
    assert controller.client.put(f"/code/{digest(large)}", content=large).status_code == 413
    for named, sentence in (("train.py", "is no SHA-256"), (digest(code), "is not kept"), ("../../x", "is no SHA-256")):
        answer = controller.submit(train={"factory": "own:job", "code": named})
        assert answer.status_code == 400
        assert sentence in answer.json()["error"]
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
    who = f"token:{hashlib.sha256(TOKEN.encode()).hexdigest()[:12]}"
    assert {one["who"] for one in asked} == {who}
    assert [(one["what"], one["of"].get("job") or one["of"].get("spec"), one["outcome"]) for one in asked] == [
        ("submit", "ours", "ours"),
        ("cancel", "none", "refused: job 'none' is unknown; `skedge queue` lists them"),
        ("cancel", "ours", "done"),
    ]


@pytest.mark.parametrize("factory", ["os:system", "skedge.live.examples_of_another:f", "skedge:run"])
def test_code_of_a_module_that_is_not_allowed_is_refused(controller: Controller, factory: str) -> None:
    answer = controller.submit(train={"factory": factory})
    assert answer.status_code == 400
    assert f"train.factory: '{factory}': is of no module that this service runs code of" in answer.json()["error"]


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
    asyncio.run(Guard(app, TOKEN, 10**6)({"type": "http", "headers": given}, receive, send))
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
    assert answer.json() == {"error": "the body has more than 1000000 bytes, which is the most that is taken"}


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
    assert says in answer.json()["error"]
    assert controller.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/events?since=x", 400, "query.since: "),
        ("GET", "/nowhere", 404, "GET /nowhere: Not Found"),
        ("PATCH", "/jobs", 405, "PATCH /jobs: Method Not Allowed"),
        ("GET", "/jobs/none", 400, "job 'none' is unknown"),
        ("GET", "/jobs/%00", 400, "is unknown"),
        ("POST", "/servers/none/cordon", 400, "server 'none' is unknown"),
    ],
)
def test_wrong_requests_have_their_sentence(
    controller: Controller, method: str, path: str, status: int, says: str
) -> None:
    answer = controller.client.request(method, path)
    assert answer.status_code == status
    assert says in answer.json()["error"]


def test_hostile_requests_are_refused_in_a_sentence_or_do_no_harm(controller: Controller) -> None:
    """`benchmarks/hostile.py` sends more of them to a real service."""
    requests = [*of_our_list(), *of_schemathesis(controller.client.get("/openapi.json").json(), 3)]
    for one in requests:
        answer = controller.client.request(
            one.method, one.path, content=one.content, headers=one.headers, params=one.params
        )
        assert answer.status_code < 500, (one, answer.text)
        assert answer.status_code == 200 or answer.json()["error"], one
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


def test_no_job_is_taken_while_little_space_is_left(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5e6})())
    answer = controller.submit()
    assert answer.status_code == 503
    assert "has 5 MB left, less than 100 MB" in answer.json()["error"]
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
    monkeypatch.setattr("skedge.live.control.service._ANSWER_S", 1.0)
    first = Controller(tmp_path)
    assert first.submit("k1").json() == "net"
    assert first.submit(name="poison").status_code == 503
    first.thread.join(10)
    first.journal.close()
    second = Controller(tmp_path)
    second.thread.join(10)
    assert not second.thread.is_alive(), "it dies of it again"
    with pytest.raises(InputError, match="job 'net': has been taken in"):
        second.journal.put_aside("net")
    with pytest.raises(InputError, match="job 'other': was not submitted; there are net, poison"):
        second.journal.put_aside("other")
    second.journal.put_aside("poison")
    second.journal.close()
    third = Controller(tmp_path)
    try:
        assert [row["job"] for row in third.client.get("/jobs").json()] == ["net"]
        assert third.client.get("/health").json()["quarantined"] == ["poison"]
        assert third.submit(name="next").json() == "next"
    finally:
        third.end()
