"""What a token of one tenant is told: of that tenant's jobs all, of others' nothing, wherever it asks."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient
from test_api import SPEC, Controller, _nothing_is_sent  # noqa: F401 - a fixture for all tests here

from skedge.cli.requests import key_of
from skedge.core.errors import InputError
from skedge.core.model.sharing import Sharing, Tenant
from skedge.live.controller.limits import Limits
from skedge.live.service.api import _stream
from skedge.live.service.tenant_view import OTHERS, TenantView
from skedge.live.service.tokens import add_token
from skedge.live.worker.code_archive import digest, pack

GANG: dict[str, Any] = {"resources": {"workers": 1}, "chunks": 1}
SECRET = "the others' secret"


class Halves:
    """Two tenants with a job each, theirs with a secret argument, and a client of ours with the role *submit*."""

    def __init__(self, controller: Controller, folder: Path) -> None:
        self.controller, self.folder = controller, folder
        secret = {**SPEC["train"], "args": {"model": "lenet", "chunks": 1, "secret": SECRET}}
        self.theirs = controller.submit(name="theirs", tenant="speech", train=secret, **GANG).json()
        self.ours = controller.submit(name="ours", tenant="vision", **GANG).json()
        self.client: TestClient = controller.client_with(add_token(folder, "ci", "submit", "vision"))


@pytest.fixture
def halves(tmp_path: Path) -> Iterator[Halves]:
    controller = Controller(tmp_path, "srtf", Sharing({"vision": Tenant(), "speech": Tenant()}))
    yield Halves(controller, tmp_path)
    controller.end()


QUESTIONS = ["/jobs", "/events", "/servers", "/health", "/jobs/ours", "/jobs/ours/logs", "/jobs/ours/workers"]
QUESTIONS += ["/view", "/view/lanes", "/view/map", "/view/jobs/ours", "/view/training/ours"]
OF_A_JOB = ["/jobs/{}", "/jobs/{}/logs", "/jobs/{}/workers", "/view/jobs/{}", "/view/training/{}"]


@pytest.mark.parametrize("path", QUESTIONS)
def test_no_answer_names_a_job_of_another_tenant(halves: Halves, path: str) -> None:
    answer = halves.client.get(path)
    assert answer.status_code == 200
    assert "theirs" not in answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", OF_A_JOB)
def test_a_job_of_another_tenant_is_as_if_it_was_not_there(halves: Halves, path: str) -> None:
    refused, absent = (halves.client.get(path.format(job)) for job in ("theirs", "nobody"))
    assert (refused.status_code, absent.status_code) == (404, 404)
    assert refused.json()["detail"].replace("theirs", "nobody") == absent.json()["detail"]
    assert halves.controller.client.get(path.format("theirs")).status_code == 200, "a token for all sees it"


@pytest.mark.parametrize("what", ["cancel", "resubmit"])
def test_a_job_of_another_tenant_cannot_be_changed(halves: Halves, what: str) -> None:
    assert halves.client.post(f"/jobs/theirs/{what}").status_code == 404
    assert halves.controller.client.get("/jobs/theirs").json()["state"] != "CANCELLED"
    assert len(halves.controller.client.get("/jobs").json()) == 2


def test_queue_and_events_page_over_what_is_hidden(halves: Halves) -> None:
    """Three of theirs lie between two of ours: the pages have ours, one by one, and then end."""
    for _ in range(3):
        halves.controller.submit(name="theirs", tenant="speech", **GANG)
    halves.controller.submit(name="ours", tenant="vision", **GANG)
    assert [row["job"] for row in halves.client.get("/jobs?most=1").json()] == ["ours"]
    assert [row["job"] for row in halves.client.get("/jobs?since=2&most=1").json()] == ["ours-2"]
    whole = halves.client.get("/events").json()
    assert {row["job"] for row in whole} == {"ours", "ours-2"}
    pages, since = list[Any](), 0
    while page := halves.client.get(f"/events?since={since}&most=1").json():
        pages, since = pages + page, page[-1]["n"] + 1
    assert pages == whole


def test_the_stream_has_the_events_of_its_tenant(halves: Halves) -> None:
    whole = halves.client.get("/events").json()

    async def first(tenant: str | None, entries: int) -> list[dict[str, Any]]:
        stream = _stream(TenantView(halves.controller.service, tenant), 0)
        return [json.loads((await anext(stream)).splitlines()[2].removeprefix("data: ")) for _ in range(entries)]

    assert asyncio.run(first("vision", len(whole))) == whole
    theirs = halves.controller.client.get("/events").json()
    assert asyncio.run(first(None, len(theirs))) == theirs


def test_what_a_job_waits_for_is_not_named_if_it_is_anothers(tmp_path: Path) -> None:
    """Two jobs of the others hold both workers."""
    controller = Controller(tmp_path, "fifo", Sharing({"vision": Tenant(), "speech": Tenant()}))
    try:
        for _ in range(2):
            controller.submit(name="theirs", tenant="speech", **GANG)
        controller.submit(name="first", tenant="vision", chunks=2, resources={"workers": 2})
        controller.submit(name="ours", tenant="vision", chunks=2, resources={"workers": 2})
        client = controller.client_with(add_token(tmp_path, "ci", "read", "vision"))
        rows = {row["job"]: row for row in controller.client.get("/jobs").json()}
        blockers = {rows[job]["reason"]["blocker"] for job in ("first", "ours")}
        assert blockers - {None}, "one waits for another"
        told = {row["job"]: row for row in client.get("/jobs").json()}
        for job, row in told.items():
            blocker = rows[job]["reason"]["blocker"]
            hidden = OTHERS if blocker in ("theirs", "theirs-2") else blocker
            assert row["reason"]["blocker"] == hidden
            assert "theirs" not in row["message"]
            assert client.get(f"/jobs/{job}").json()["reason"]["blocker"] == hidden
        assert TenantView(controller.service, "vision").shown_blocker("theirs") == OTHERS
        assert TenantView(controller.service, "vision").shown_blocker("first") == "first"
    finally:
        controller.end()


def test_a_what_if_tells_of_its_tenants_jobs(halves: Halves) -> None:
    spec = {name: value for name, value in SPEC.items() if name != "train"}
    answer = halves.client.post("/whatif", json={"submit": {**spec, **GANG, "name": "next"}}).json()
    assert {row["job"] for row in answer["jobs"]} == {"next", "ours"}
    assert sum(answer["counts"].values()) == 2
    answer = halves.client.post("/whatif", json={"drain": "edge-0"}).json()
    assert [row["job"] for row in answer["jobs"]] == ["ours"]
    other = halves.client.post("/whatif", json={"submit": {**spec, **GANG, "tenant": "speech"}})
    assert other.status_code == 403


def test_metrics_are_of_all_tenants_and_refused(halves: Halves) -> None:
    refused = halves.client.get("/metrics")
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "token 'ci' is for jobs of the tenant 'vision'; metrics are of all tenants: ask with a token without --tenant"
    )
    assert halves.controller.client.get("/metrics").status_code == 200


def test_health_counts_its_tenants_jobs(halves: Halves) -> None:
    assert halves.client.get("/health").json()["jobs"] == 1
    assert halves.controller.client.get("/health").json()["jobs"] == 2


def test_a_record_of_a_tenant_has_its_jobs_alone(halves: Halves) -> None:
    """Others may still be in the system; its own may not."""
    refused = halves.client.get("/record")
    assert refused.status_code == 400
    assert "job 'ours' is still in the system" in refused.json()["detail"]
    halves.client.post("/jobs/ours/cancel")
    halves.controller.comes_to("ours", "CANCELLED")
    content = halves.client.get("/record").content
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        names = {Path(name).name for name in found.namelist() if not name.endswith("/")}
        tables = {
            Path(name).stem: pl.read_parquet(io.BytesIO(found.read(name)))
            for name in found.namelist()
            if name.endswith(".parquet")
        }
        about = json.loads(found.read(next(name for name in found.namelist() if name.endswith("part.json"))))
    assert not {"run.json", "journal.db"} & names
    assert about["tenant"] == "vision"
    assert "cannot be verified" in about["about"]
    assert tables["jobs"]["id"].to_list() == ["ours"]
    assert {job for table in tables.values() if "job" in table.columns for job in table["job"]} == {0}
    assert tables["decisions"].height > 0
    assert b"theirs" not in content


def test_a_key_is_of_its_tenant(halves: Halves) -> None:
    """The same key of another tenant is no clash, and names none of its jobs."""
    halves.controller.submit("k1", name="hidden", tenant="speech", **GANG)
    found = halves.client.post("/jobs", json={**SPEC, **GANG, "name": "mine"}, headers={"Idempotency-Key": "k1"})
    assert (found.status_code, found.json()) == (200, "mine")
    again = halves.client.post("/jobs", json={**SPEC, **GANG, "name": "mine"}, headers={"Idempotency-Key": "k1"})
    assert again.json() == "mine"


# -- which code ran ------------------------------------------------------------------------------------------------


def shipped(controller: Controller, folder: Path, files: dict[str, str], **changes: Any) -> Any:
    """Submit a job with these files as its code; returns what `describe` says of that."""
    place = folder / f"code of {len(controller.client.get('/jobs').json())}"
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    code = pack(place)
    assert controller.client.put(f"/code/{digest(code)}", content=code).status_code == 200
    job = controller.submit(train={"factory": "own:job", "code": digest(code)}, **GANG, **changes).json()
    return digest(code), controller.client.get(f"/jobs/{job}").json()["code"]


def test_describe_says_how_the_code_differs_from_that_of_the_last_job(halves: Halves) -> None:
    controller, folder = halves.controller, halves.folder
    vision = {"tenant": "vision"}
    first, told = shipped(controller, folder, {"own.py": "def job(): ...", "a.py": "1", "b.py": "2"}, **vision)
    assert told == {"sha256": first, "shipped": True, "last": None}
    shipped(controller, folder, {"own.py": "def job(): ... # of others"}, tenant="speech")
    second, told = shipped(controller, folder, {"own.py": "def job(): ...", "a.py": "3", "c.py": "4"}, **vision)
    assert told == {
        "sha256": second,
        "shipped": True,
        "last": {"job": "net", "sha256": first, "added": ["c.py"], "removed": ["b.py"], "changed": ["a.py"]},
    }
    third, told = shipped(controller, folder, {"own.py": "def job(): ...", "a.py": "3", "c.py": "4"}, **vision)
    assert third == second
    assert (told["last"]["sha256"], told["last"]["added"], told["last"]["changed"]) == (second, [], [])


def test_describe_says_that_code_is_installed(halves: Halves) -> None:
    told = halves.client.get("/jobs/ours").json()["code"]
    assert told == {"sha256": None, "shipped": False, "last": None}


# -- a cancellation that waits, and retries without a key -----------------------------------------------------------


def _blocking(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While this event is set, as it is at first, the journal cannot be written."""
    journal, blocked = halves.controller.journal, threading.Event()
    commit = journal._committed
    monkeypatch.setattr("skedge.live.journal.journal._PAUSE_S", 0.05)

    def refuse(entry: Any, *, is_retry: bool) -> bool:
        if blocked.is_set():
            journal.blocked = "the journal cannot be written: database or disk is full"
            return False
        return commit(entry, is_retry=is_retry)

    monkeypatch.setattr(journal, "_committed", refuse)
    blocked.set()
    return blocked


def test_a_cancellation_that_waits_for_the_journal_says_so(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal cannot be written: the answer is 202 with why; it takes effect when that is over."""
    blocked = _blocking(halves, monkeypatch)
    answer = halves.client.post("/jobs/ours/cancel")
    assert answer.status_code == 202
    assert answer.json()["waits"] == (
        "job 'ours' will be cancelled: that waits, as the journal cannot be written: database or disk is full"
    )
    assert halves.client.get("/jobs/ours").json()["state"] != "CANCELLED"
    blocked.clear()
    halves.controller.comes_to("ours", "CANCELLED")
    assert halves.controller.client.post("/jobs/theirs/cancel").status_code == 200


def test_a_cordon_that_waits_for_the_journal_says_so_and_others_are_refused_meanwhile(
    halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was asked for before the journal was known to be blocked takes effect when that is over (202).

    Later ones are refused (503): they would wait behind it, and nobody could know what the server is in the end.
    """
    client = halves.controller.client
    server = client.get("/servers").json()[0]["server"]
    blocked = _blocking(halves, monkeypatch)
    answer = client.post(f"/servers/{server}/cordon")
    assert answer.status_code == 202
    waits = (
        f"server {server!r} will be cordoned: that waits, as the journal cannot be written: database or disk is full"
    )
    assert answer.json()["waits"] == waits
    answer = client.post(f"/servers/{server}/uncordon")
    assert answer.status_code == 503
    assert "database or disk is full" in answer.json()["detail"]
    assert "ask again in a while" in answer.json()["detail"]
    blocked.clear()
    deadline = time.monotonic() + 20
    while client.get("/servers").json()[0]["state"] != "cordoned":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert client.post(f"/servers/{server}/uncordon").status_code == 200


def test_a_submission_without_a_key_that_is_not_taken_is_told_of_the_header(
    halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5e6})())
    for path, body in (("/jobs", {**SPEC, **GANG}), ("/jobs/ours/resubmit", None)):
        bare = halves.client.post(path, json=body)
        keyed = halves.client.post(path, json=body, headers={"Idempotency-Key": "k"})
        assert (bare.status_code, keyed.status_code) == (503, 503)
        assert "header `Idempotency-Key`" in bare.json()["detail"]
        assert "Idempotency-Key" not in keyed.json()["detail"]


# -- packages ------------------------------------------------------------------------------------------------------

OF_INDEX = ["einops", "einops==0.8.0", "a[b,c]>=1,<2", "a ~= 1.4", "a!=1.*; python_version < '3.9'"]
ELSEWHERE = [
    "a @ https://example.org/a.whl", "https://example.org/a.whl", "git+https://example.org/a", "a @ file:///etc/a.whl",
    "a@git+ssh://git@example.org/a", "a.whl", "dist/a.tar.gz", "a.tar.gz", "a==1 ; x @ https://example.org", "a -r b",
    "a --index-url=https://example.org",
]  # fmt: skip


@pytest.mark.parametrize("requirement", OF_INDEX)
def test_packages_with_versions_are_taken(requirement: str) -> None:
    Limits().check_pip([requirement])


@pytest.mark.parametrize("requirement", ELSEWHERE)
def test_packages_from_elsewhere_are_not(requirement: str) -> None:
    with pytest.raises(InputError, match=r"^job spec: train\.pip: .*must be a package with versions"):
        Limits().check_pip([requirement])


def test_what_the_operator_allows_is_taken_and_nothing_beside_it() -> None:
    limits = Limits(allow_pip=("https://good.example", "git+https://code.example/ours/", "file:///srv/wheels"))
    limits.check_pip(
        ["a @ https://good.example/a.whl", "git+https://code.example/ours/a@v1", "file:///srv/wheels/a.whl"]
    )
    for wrong in (
        "https://good.example.evil.example/a.whl", "https://good.example@evil.example/a.whl",
        "file:///srv/wheels/../../etc/a.whl", "file:///srv/wheels/%2e%2e/a.whl", "git+https://code.example/others/a",
        "https://evil.example/https://good.example/a.whl", "a @ https://evil.example/a @ https://good.example/a",
    ):  # fmt: skip
        with pytest.raises(InputError, match="--allow-pip"):
            limits.check_pip([wrong])


def test_a_submission_with_packages_from_elsewhere_is_refused(halves: Halves) -> None:
    refused = halves.client.post("/jobs", json={**SPEC, "train": {**SPEC["train"], "pip": ["git+https://x.example/a"]}})
    assert refused.status_code == 400
    assert "train.pip: 'git+https://x.example/a'" in refused.json()["detail"]


def test_a_key_is_of_the_spec_and_the_time() -> None:
    """Two submissions are two jobs; the beginning says that they had one spec."""
    first, second = key_of({"a": 1, "b": 2}), key_of({"b": 2, "a": 1})
    assert first != second
    assert first.partition("-")[0] == second.partition("-")[0] != key_of({"a": 2}).partition("-")[0]
