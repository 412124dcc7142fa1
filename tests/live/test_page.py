"""The page at a service's address, in a browser: it asks for a token, and shows what the service says as it happens."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from test_api import TOKEN, Controller

from skedge.live.coordinator.trainer import Trainer
from skedge.live.service.api import make_api
from skedge.live.world.upload_thread import UploadThread


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    """A service whose servers do nothing."""
    monkeypatch.setattr(UploadThread, "start", lambda _: None)
    monkeypatch.setattr(Trainer, "start", lambda _: None)
    one = Controller(tmp_path)
    try:
        yield one
    finally:
        one.end()


@pytest.fixture
def url(controller: Controller) -> Iterator[str]:
    """Address of the service's page."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_api(controller.service, TOKEN), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)


def until(page: Any, true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def test_the_page_shows_the_service_as_things_happen(browser: Any, url: str, controller: Controller) -> None:
    page, complaints = browser.new_page(), list[str]()
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(url) else complaints.append(asked.url))
    page.goto(url)
    page.get_by_label("Token with the role read").fill(TOKEN)
    assert [one for one in complaints if "401" not in one] == []  # the browser says that the first question had none
    complaints.clear()
    page.get_by_role("button", name="View").click()
    until(page, lambda: page.evaluate("Boolean(window.skedgeView && skedgeView.ready)"))
    page.get_by_role("tab", name="Jobs").click()
    assert page.locator("#jobs-table tbody tr").count() == 0
    controller.submit()
    until(page, lambda: page.locator("#jobs-table tbody tr").count() == 1)  # without being asked
    row = page.locator("#jobs-table tbody tr").inner_text()
    said = controller.client.get("/jobs/net").json()
    assert row.split()[:2] == ["net", "PENDING"]
    assert said["message"] in row
    page.get_by_role("button", name="net", exact=True).click()
    until(page, lambda: page.get_by_role("heading", name=re.compile("Job net: PENDING")).count() == 1)
    rows = page.get_by_role("region", name="timeline").locator("tbody tr")
    assert rows.count() == len(said["history"])
    controller.client.post("/servers/edge-0/cordon")
    page.get_by_role("tab", name="Servers").click()
    until(page, lambda: "cordoned" in page.locator("#map-found").inner_text())
    page.get_by_role("tab", name="Lanes").click()
    assert not page.get_by_role("tab", name="Compare").is_visible()
    assert complaints == []
    page.close()
