"""A scenario scaled in time, renamed, or with a server more; and how two records are compared after that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule

TIMES = {
    "start", "end", "compute_from", "time", "arrival", "admitted", "first_start", "completion", "jct", "from", "to",
    "made_at", "broken_at",
}  # fmt: skip
"""Columns of a record that are times [µs]."""
Numbers = list[float | None]
_SECONDS = ("arrival_s", "minibatch_s", "ps_update_s")
_RATES = ("bandwidth_mbps", "internal_mbps")


def given_delays(scenario: Scenario) -> dict[str, dict[str, float]]:
    """The delay of every pair [s]: what is drawn depends on names, what is given does not."""
    if scenario.cluster.resources:
        return {}
    ids = scenario.cluster.server_ids
    return {
        name: dict(zip(ids, (upload_row(scenario.delays, j) / SECOND).tolist(), strict=True))
        for j, name in enumerate(scenario.jobs.ids)
    }


def pinned(scenario: Scenario, arrivals: np.ndarray | None = None) -> Scenario:
    """The same with its delays given one by one, and its jobs' arrivals as in `arrivals` [s], if that is given."""
    frame = scenario.jobs.frame
    if arrivals is not None:
        frame = frame.with_columns(pl.Series("arrival_s", arrivals))
    return replace(scenario, jobs=Jobs(frame, scenario.cluster, given_delays(scenario)))


def scaled(scenario: Scenario, k: int) -> Scenario:
    """All times are k times as long, all rates a k-th."""
    frame, physics = scenario.jobs.frame, scenario.physics
    columns = [pl.col(name) * k for name in _SECONDS] + [pl.col(c) / k for c in _RATES if c in frame.columns]
    given = {
        job: {server: k * delay for server, delay in row.items()} for job, row in scenario.jobs.fixed_delays.items()
    }
    longer = replace(
        physics,
        slot=k * physics.slot,
        checkpoint_overhead=k * physics.checkpoint_overhead,
        horizon=physics.horizon and k * physics.horizon,
    )
    return replace(scenario, jobs=Jobs(frame.with_columns(columns), scenario.cluster, given), physics=longer)


def renamed(scenario: Scenario, jobs: Mapping[str, str], servers: Mapping[str, str]) -> Scenario:
    """Jobs and servers have other names; the rows of the jobs table are shuffled, the servers stay in their order."""
    old = scenario.cluster
    cluster = Cluster(
        [replace(server, id=servers[server.id]) for server in old.servers], old.transfer_cost, asymmetric=old.asymmetric
    )
    frame = scenario.jobs.frame.with_columns(pl.col("id").replace_strict(jobs))
    frame = frame.rename({f"data.{a}": f"data.{b}" for a, b in servers.items() if f"data.{a}" in frame.columns})
    given = {
        jobs[job]: {servers[server]: delay for server, delay in row.items()}
        for job, row in scenario.jobs.fixed_delays.items()
    }
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    return replace(scenario, cluster=cluster, jobs=Jobs(shuffled, cluster, given))


def with_server(scenario: Scenario, server: Server) -> Scenario:
    """One server more, behind the others; at sites it is as far from each as the others are on average.

    So the mean cost from a site to all others, which Okita's Eq. (6) weighs, stays what it is.
    """
    old, cost = scenario.cluster, scenario.cluster.transfer_cost
    if cost is not None:
        mean = cost.sum(axis=1) / (len(cost) - 1)
        cost = np.block([[cost, mean[:, None]], [mean[None, :], np.zeros((1, 1))]])
    cluster = Cluster([*old.servers, server], cost, asymmetric=old.asymmetric)
    given = {job: {**row, server.id: 0.0} for job, row in scenario.jobs.fixed_delays.items()}
    return replace(scenario, cluster=cluster, jobs=Jobs(scenario.jobs.frame, cluster, given))


def assert_same(
    before: Schedule, after: Schedule, *, k: int = 1, names: Mapping[str, str] | None = None, within: int = 0
) -> None:
    """Every table of `after` is that of `before` with all times k times as long and with other names.

    `within` [µs]: how far times may be off, and numbers that are made of times relatively by as many millionths.
    """
    for name, table in before.tables().items():
        one, other = table, after.tables()[name]
        assert one.columns == other.columns
        assert one.height == other.height, f"{name}: {one.height} rows, then {other.height}"
        for column in one.columns:
            _assert_column(f"{name}.{column}", one, other, k, names or {}, within)


def _assert_column(
    where: str, one: pl.DataFrame, other: pl.DataFrame, k: int, names: Mapping[str, str], within: int
) -> None:
    column = where.split(".")[1]
    was, now = one[column].to_list(), other[column].to_list()
    if column in TIMES or column == "rank":
        _assert_close(where, [None if t is None else k * t for t in was], now, absolute=within)
    elif where == "decisions.value":
        seconds = [k if verb.endswith("dispatch") else 1 for verb in one["verb"]]
        expected = [None if v is None else factor * v for v, factor in zip(was, seconds, strict=True)]
        _assert_close(where, expected, now, relative=1e-9 + within * 1e-6)
    elif one[column].dtype.is_float():
        _assert_close(where, was, now, relative=1e-9 + within * 1e-6)
    elif column == "reason":
        assert [_kind(text) for text in now] == [_kind(text) for text in was], where
    else:
        assert now == [names.get(value, value) if isinstance(value, str) else value for value in was], where


def _assert_close(where: str, was: Numbers, now: Numbers, *, relative: float = 0, absolute: float = 1e-9) -> None:
    for row, (a, b) in enumerate(zip(was, now, strict=True)):
        same = a == b or (a is not None and b is not None and abs(a - b) <= absolute + relative * abs(a))
        assert same, f"{where}[{row}]: {b}, expected {a}"


def _kind(reason: Any) -> Any:
    """A reason without the names and numbers behind its colon."""
    return reason if reason is None else reason.split(":")[0]
