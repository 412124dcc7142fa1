"""One Ray cluster for all tests that need one: two edge servers and a cloud, on loopback; it ends whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from skedge.core.model.cluster import Cluster, Server
from skedge.live.cluster.engine import Engine
from skedge.live.cluster.loopback import on_loopback

on_loopback()  # some tests import Ray before any starts it, and with several processes they may be the first
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # what asks Ray before it is started fails, instead of starting another
os.environ.setdefault("RAY_worker_niceness", "0")
"""By default Ray's workers, which do most of the tests' work, give way to all else on the machine (15)."""

SERVERS = [
    Server("edge-0", "edge", {"worker:gpu": 2, "ps:cpu": 2}),
    Server("edge-1", "edge", {"worker:gpu": 1, "ps:cpu": 1}),
    Server("cloud", "cloud"),
]


LONGEST = (
    "test_service.py",
    "test_simulated.py",
    "test_cluster.py",
)
"""The files that take minutes, the longest first: one that began last would run alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def _ended_by_sigterm() -> None:
    """Whoever ends the tests ends what they have started: fixtures are torn down."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", returncode=143))


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("live")
    here = str(Path(__file__).parent)  # Ray's workers find bad_jobs.py there
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    up = Engine(Cluster(SERVERS), folder, str(folder / "checkpoints"))
    try:
        yield up
    finally:
        up.stop()
