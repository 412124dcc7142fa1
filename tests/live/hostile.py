"""Requests that a service must refuse, or survive: of schemathesis, from the API's own schema, and a list of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

OURS = "http://service"
"""Where the requests of schemathesis go; whoever sends them takes it away."""

GOOD = {
    "name": "net", "epochs": 2, "chunks": 2, "minibatches": 4, "minibatch_s": 0.1,
    "train": {"factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2}},
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 10**400, 2**63, 90_000_000, "", "x", "9" * 400, "\u202e", "\x00", "../../etc",
    "os:system", "a\nb", [], {}, [[]], {"a": {"b": {"c": {}}}}, "NaN", "Infinity", "${HOME}", "<script>", "'; DROP",
)  # fmt: skip
"""Put in place of each field of a good job."""

BODIES = (
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"name": NaN}', b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"name": "\\ud800"}', b"{" + b'"epochs": 1,' * 20_000 + b'"x": 1}',
    b'{"name": "' + b"x" * 999_000 + b'"}', b"x" * 2_000_000,
)  # fmt: skip
PATHS = (
    "/jobs/..%2f..%2fetc", "/jobs/%00", "/jobs/%ff", "/jobs//", "/jobs/" + "x" * 5_000, "/events?since=-1",
    "/events?since=1e9", "/events?since=" + "9" * 400, "/nowhere", "/jobs/a/logs/b", "/servers/%2e%2e/cordon",
    "/jobs/..%2f/logs",
)  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """One request."""

    method: str
    path: str
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    params: Any = None


def of_our_list() -> Iterator[Hostile]:
    """Wrong values in every field, wrong bodies, wrong paths, wrong headers."""
    for name in (*GOOD, "arrival_s", "unknown"):
        for value in VALUES:
            yield Hostile("POST", "/jobs", json.dumps({**GOOD, name: value}).encode())
    for name in ("factory", "args", "seed", "unknown"):
        for value in VALUES:
            train = {**GOOD["train"], name: value}  # type: ignore[dict-item]
            yield Hostile("POST", "/jobs", json.dumps({**GOOD, "train": train}).encode())
    for body in BODIES:
        yield Hostile("POST", "/jobs", body)
        yield Hostile("GET", "/jobs", body)
    for path in PATHS:
        for method in ("GET", "POST", "PUT", "DELETE"):
            yield Hostile(method, path)
    for name, value in (
        ("Idempotency-Key", "k" * 5_000),
        ("Content-Length", "x"),
        ("Accept", "\t"),
        ("Authorization", ""),
    ):
        yield Hostile("POST", "/jobs", json.dumps({**GOOD, "chunks": 0}).encode(), {name: value})


def of_schemathesis(openapi: dict[str, Any], count: int) -> list[Hostile]:
    """About `count` requests for each operation and mode, right and wrong by the schema; none ends the service."""
    found = list[Hostile]()
    for result in schemathesis.openapi.from_dict(openapi).get_all_operations():
        operation = result.ok()
        for mode in () if operation.path.endswith("/down") else GenerationMode:
            _collect(operation.as_strategy(generation_mode=mode), count, found)
    return found


def _collect(strategy: Any, count: int, found: list[Hostile]) -> None:
    @seed(0)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=strategy)
    def collect(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=OURS)
        content = asked.get("data")
        if "json" in asked:
            content = json.dumps(asked["json"]).encode()
        headers = {k: v for k, v in asked["headers"].items() if k.lower() in ("idempotency-key", "content-type")}
        path = asked["url"].removeprefix(OURS).removeprefix("/v1")
        found.append(
            Hostile(asked["method"], path, content if isinstance(content, bytes) else None, headers, asked["params"])
        )

    with suppress(Unsatisfiable):  # nothing can be wrong with a request without parameters
        collect()
