"""A_online of She et al. on random scenarios: the settings, and its decisions in the plain path's terms."""

from __future__ import annotations

from functools import cache
from typing import Any

import polars as pl
import pytest

from builders.product import Run, play
from builders.she_instances import small
from golden.she_cases import HOUR
from reference.batch import Decision, Plan, Setting
from skedge.core.registry import make_policy

SETTINGS = {
    "": Setting(),
    ":T=5,F1=3,F2=2": Setting(T=5, F1=3.0, F2=2.0),
    ":price_norm=none": Setting(normed=False),
    ":T=5,strict_upload=false": Setting(T=5, strict=False),
    ":tie=printed": Setting(printed_tie=True),
}


KINDS = {"one_server": "C", "spread": "D"}


def decisions_of(run: Run) -> list[Decision]:
    """What the product decided, in the plain path's terms."""
    s, servers, found = run.schedule, run.scenario.cluster.server_ids, []
    told = s.decisions.filter(pl.col("verb").is_in(["allocate", "postpone"]))
    for r in told.unique(["time", "job"], keep="first", maintain_order=True).rows(named=True):
        plan, eta = None, 0.0
        if r["verb"] == "allocate":
            runs = s.runs.filter(pl.col("job") == r["job"])
            (host,) = s.ps.filter(pl.col("job") == r["job"])["server"].to_list()
            held = dict(runs.select("server", "workers").rows())
            slots = (runs["end"][0] - runs["compute_from"][0]) // HOUR
            y, eta = tuple(held.get(name, 0) for name in servers), r["value"]
            plan = Plan(KINDS[r["reason"]], y, servers.index(host), slots, 1 - eta)
        found.append(Decision(r["time"] // HOUR, r["job"], plan, eta))
    return found


def plain_terms(decisions: list[Decision]) -> list[Any]:
    """To be compared: costs to 1e-9."""
    return [
        (d.tau, d.job, d.plan and (d.plan.kind, d.plan.y, d.plan.ps_server, d.plan.d), pytest.approx(d.eta, abs=1e-9))
        for d in decisions
    ]


def plain_to_compare(decisions: list[Decision]) -> list[Any]:
    return [(d.tau, d.job, d.plan and (d.plan.kind, d.plan.y, d.plan.ps_server, d.plan.d), d.eta) for d in decisions]


@cache
def played(seed: int, options: str = "") -> Run:
    """Playing a run verifies it."""
    return play(small(seed), make_policy(f"batch{options}"))
