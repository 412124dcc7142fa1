"""Every field of the public dataclasses, and hostile values for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from skedge.core.errors import InputError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Exponential
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.value import Sigmoid
from skedge.simulate import run

HOSTILE = [
    True, None, "3", "", b"3", float("nan"), float("inf"), -float("inf"), -1, -0.5, 0, -0.0, 1, 3, 2.0, 2.5, 1e-9,
    5e-324, 1e9, 1e308, -1e308, 2**53, 2**63, 2**64, 10**400, -(10**400), np.float64(2.5), np.float32(0.1), np.int8(3),
    np.uint64(2**64 - 1), np.bool_(True), np.float64("nan"), np.array(2.0), np.array([1.0, 2.0]), Fraction(1, 3),
    Decimal("1.5"), 1j, [], [1], (1, 2), (2.0, 1), (np.int64(1), 2), ("a", "b"), (True, 1), (1, float("nan")), {},
    {"e": 1}, {"e": "1"}, {"e": float("nan")}, {1: 2}, {"gpu": 10**400}, {"worker:gpu": 2.5}, {"worker:gpu": -1},
    object(), int, "edge", "cloud", "a b", "\x00",
]  # fmt: skip
"""What a caller might give for a field."""


def on_slots() -> dict[str, Any]:
    """The parts of a scenario on slots, by name."""
    return {
        "policies": ("aonline", "srtf"),
        "server": Server("e", capacity={"worker:gpu": 2, "ps:cpu": 2}, storage_mb=100.0, site="north", gpus=2.0),
        "job": Job("a", 1.0, 1, 3, 2, 1.0, workers=2, chunk_mb=10.6, upload_edge_s=(1.0, 2.0), upload_s={"e": 1.0}),
        "physics": Physics(slot=5_000_000, checkpoint_overhead=10),
        "cost": None,
    }


def on_resources() -> dict[str, Any]:
    """The parts of a scenario on resources, with a utility."""
    needs: dict[str, Any] = {"worker_needs": {"gpu": 1.0}, "ps_needs": {"memory": 0.5}, "batch": 4, "ratio": 2.0}
    return {
        "policies": ("drf", "pdors"),
        "server": Server("e", capacity={"gpu": 4.0, "memory": 4.5}),
        "job": Job("a", 1.0, 1, 3, 20, 0.5, gradient_mb=5.0, utility=Sigmoid(20.0, 0.5, 3.0), **needs),
        "physics": Physics(slot=5_000_000, slotted=True, colocation="one_server", horizon=60_000_000),
        "cost": None,
    }


def at_sites() -> dict[str, Any]:
    """The parts of a scenario of one site, with a latency cost."""
    more: dict[str, Any] = {"worker_needs": {"gpu": 1.0}, "ps_needs": {"memory": 0.5}, "data": {"e": 3}}
    return {
        "policies": ("okita",),
        "server": Server("e", capacity={"gpu": 4.0, "memory": 4.5}),
        "job": Job("a", 0.0, 1, 3, 2, 0.5, chunk_mb=10.0, exchange_mb=5.0, latency=Exponential(20.0), **more),
        "physics": Physics(slot=5_000_000, slotted=True),
        "cost": np.zeros((1, 1)),
    }


KINDS: list[Callable[[], dict[str, Any]]] = [on_slots, on_resources, at_sites]


FIELDS = [
    (part, field.name)
    for part, made in (("server", Server), ("job", Job), ("physics", Physics))
    for field in fields(made)
]


def scenario(parts: dict[str, Any], **wrong: Any) -> Scenario:
    cluster = Cluster([parts["server"]], parts["cost"])
    table, given_delays = job_table([parts["job"], replace(parts["job"], id="b", arrival_s=2.0)])
    made = Scenario(cluster, Jobs(table, cluster, given_delays), parts["physics"], 7, "fields")
    return replace(made, **wrong) if wrong else made


_SHORTEST_SLOT = 1000
"""Runs of 10 s with shorter slots [µs] are sound and take minutes: such scenarios are only made."""


def attempted(kind: Callable[[], dict[str, Any]], part: str, field: str, value: Any) -> str:
    """What came of a scenario with one field set: "ran", or the sentence of the refusal."""
    try:
        parts = kind()
        if part == "cluster":
            parts["cost"] = value
        elif part != "scenario":
            parts[part] = replace(parts[part], **{field: value})
        made = scenario(parts, **({field: value} if part == "scenario" else {}))
        for policy in parts["policies"] if made.physics.slot >= _SHORTEST_SLOT else ():
            assert run(made, policy).verify() == [], (policy, part, field, value)
    except InputError as error:  # also of the policy: the scenario lacks what it needs
        return str(error)
    return "ran"
