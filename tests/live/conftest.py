"""One Ray cluster for all tests that need one: two edge servers and a cloud, on loopback; it ends whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skedge.core.model import Cluster, Server
from skedge.live.engine import Engine

SERVERS = [
    Server("edge-0", "edge", {"worker:gpu": 2, "ps:cpu": 2}),
    Server("edge-1", "edge", {"worker:gpu": 1, "ps:cpu": 1}),
    Server("cloud", "cloud"),
]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("live")
    up = Engine(Cluster(SERVERS), folder, str(folder / "checkpoints"))
    try:
        yield up
    finally:
        up.stop()
