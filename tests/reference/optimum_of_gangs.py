"""She et al.'s problem (2) by trying everything: every placement of workers and PS, every start, slot by slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, inf

from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario

Usage = Counter[tuple[str, int, str, int]]
"""Workers, or PSs, of a type in use: by role, server, type and slot."""

Option = tuple[int, int, tuple[int, ...], int]
"""Completion, start, workers by server, server of the PS."""


def least_total_of_gangs(scenario: Scenario) -> float:
    """Least sum of c_j - a_j in slots; the cloud has workers and PSs of every type without limit."""
    rows = list(scenario.jobs.frame.iter_rows(named=True))
    until = sum(ceil(_work(row, colocated=False)) for row in rows) + max(
        _ready(scenario, j, row, s) for j, row in enumerate(rows) for s in range(len(scenario.cluster.servers))
    )
    options = [sorted(_options(scenario, j, row, until)) for j, row in enumerate(rows)]
    arrivals = sum(Fraction(row["arrival_s"]) for row in rows) / _slot(scenario)
    return float(_least(scenario, rows, options, 0, Counter(), inf) - arrivals)


def _slot(scenario: Scenario) -> Fraction:
    return Fraction(scenario.physics.slot, 10**6)


def _work(row: dict[str, float | str], *, colocated: bool) -> Fraction:
    """E D M / p in worker-slots of an hour, Eq. (1)."""
    minibatch_s = Fraction(row["minibatch_s"]) + Fraction(row["ps_update_s"])
    if not colocated:
        minibatch_s += Fraction(2 * 8 * row["gradient_mb"] / row["bandwidth_mbps"]).limit_denominator(1000)  # type: ignore[operator]
    return Fraction(row["epochs"]) * Fraction(row["chunks"]) * Fraction(row["minibatches"]) * minibatch_s / 3600


def _ready(scenario: Scenario, j: int, row: dict[str, float | str], server: int) -> int:
    delay = Fraction(int(upload_row(scenario.delays, j)[server]), scenario.physics.slot)
    return ceil(Fraction(row["arrival_s"]) / _slot(scenario)) + ceil(delay)


def _options(scenario: Scenario, j: int, row: dict[str, float | str], until: int) -> Iterator[Option]:
    servers, max_workers = scenario.cluster.servers, int(row["chunks"])
    one_server = scenario.physics.colocation == "one_server"
    room = [_room(s, "worker", row["worker_type"], max_workers) for s in servers]
    ps_servers = [s for s, server in enumerate(servers) if _room(server, "ps", row["ps_type"], 1)]
    for y in product(*(range(min(n, max_workers) + 1) for n in room)):
        if not 1 <= sum(y) <= max_workers:
            continue
        used = [s for s, n in enumerate(y) if n]
        earliest = max(_ready(scenario, j, row, s) for s in used)
        for ps in ps_servers:
            colocated = used == [ps] and (one_server or servers[ps].kind == "cloud")
            duration = ceil(_work(row, colocated=colocated) / sum(y))
            for start in range(earliest, until - duration + 1):
                yield start + duration, start, y, ps


def _room(server: object, role: str, type_name: object, unlimited: int) -> int:
    return unlimited if server.kind == "cloud" else int(server.capacity.get(f"{role}:{type_name}", 0))  # type: ignore[attr-defined]


def _least(
    scenario: Scenario,
    rows: list[dict[str, float | str]],
    options: list[list[Option]],
    j: int,
    usage: Usage,
    best: float,
) -> float:
    """Least sum of the completions of the jobs from `j` on beside this usage, if it is below `best`; else `best`.

    Branch and bound: options are in order of completion, and the other jobs take at least their earliest ones.
    """
    if j == len(options):
        return min(best, 0)
    least_rest = sum(choices[0][0] for choices in options[j + 1 :])
    for completion, start, y, ps in options[j]:
        if completion + least_rest >= best:
            break
        demand = _usage(scenario, rows[j], y, ps, range(start, completion))
        usage_after = usage + demand
        if all(usage_after[key] <= _limit(scenario, key) for key in demand):
            best = min(best, completion + _least(scenario, rows, options, j + 1, usage_after, best - completion))
    return best


def _usage(scenario: Scenario, row: dict[str, float | str], y: tuple[int, ...], ps: int, slots: range) -> Usage:
    edge = [s for s, server in enumerate(scenario.cluster.servers) if server.kind != "cloud"]
    usage: Usage = Counter()
    for t in slots:
        usage.update({("worker", s, str(row["worker_type"]), t): y[s] for s in edge if y[s]})
        if ps in edge:
            usage[("ps", ps, str(row["ps_type"]), t)] += 1
    return usage


def _limit(scenario: Scenario, key: tuple[str, int, str, int]) -> int:
    role, server, type_name, _ = key
    return int(scenario.cluster.servers[server].capacity.get(f"{role}:{type_name}", 0))
