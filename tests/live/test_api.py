"""The API over a controller whose servers do nothing: what is submitted, refused, and submitted again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from skedge.core.model import Cluster, Physics, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.core.time import SECOND
from skedge.live.api import make_api
from skedge.live.journal import SqlJournal
from skedge.live.ray_world import NoEngine
from skedge.live.service import Service

TOKEN = "of the test"
SPEC: dict[str, Any] = {
    "name": "net", "epochs": 2, "chunks": 2, "minibatches": 4, "minibatch_s": 0.1, "upload_edge_s": [900, 900],
    "train": {"factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2}},
}  # fmt: skip


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


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
