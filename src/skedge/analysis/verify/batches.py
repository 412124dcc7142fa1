"""Rule M36: the batches of She et al.'s framework, the jobs that they decide on, and the prices.

A unit of a server's resource costs (theta^(load / capacity) - 1) / (theta - 1) F per slot, with theta = 2TSU F + 1
for normalised prices; an unlimited resource is free. The load consists of the jobs that hold resources when the batch
begins, up to the ends of their plans, and of those that the batch has accepted so far.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from skedge.analysis.columns import Columns, end_times, failure_times, once, outage_suspensions
from skedge.core.model.cluster import PS, WORKER
from skedge.core.model.ties import TOLERANCE
from skedge.core.model.time import NEVER

from .orders import ALLOCATE, gang_order_rows
from .rules import Findings

Place = tuple[str, int]
"""Name of a resource, and its server."""

_PriceRow = tuple[int, int, int, str, int, int, float]
"""(made_at, job, server, resource, from, to, price)."""


@dataclass
class _BatchLedger:
    """Units held of each resource: (units, number of slots from the batch on). `limits`: the capacities asked for."""

    c: Columns
    params: Mapping[str, Any]
    limits: dict[Place, float]
    holdings: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)

    def take(self, place: Place, units: int, slots: int) -> None:
        if self.capacity(place) < np.inf:
            self.holdings.setdefault(place, []).append((units, slots))

    def steps(self, place: Place, slots: int) -> Iterator[tuple[int, int, float]]:
        """(from, to, unit price) in the first `slots` slots of the batch."""
        holdings = self.holdings.get(place, [])
        # the load, and with it the price, changes only where a plan ends
        ends = sorted({0, slots, *(end for _, end in holdings if end < slots)})
        for a, b in pairwise(ends):
            yield a, b, self._price(place, sum(n for n, end in holdings if end > a))

    def window(self, place: Place, slots: int) -> float:
        """Cost of a unit over the first `slots` slots."""
        if self.capacity(place) == np.inf:
            return 0.0
        return sum((b - a) * price for a, b, price in self.steps(place, slots))

    def _price(self, place: Place, load: int) -> float:
        kind, _ = place
        cluster, worker = self.c.scenario.cluster, kind.startswith(WORKER)
        capacity = self.capacity(place)
        if capacity in (0, np.inf):
            return np.inf if capacity == 0 else 0.0
        types, factor = (cluster.worker_types, self.params["F1"]) if worker else (cluster.ps_types, self.params["F2"])
        # theta = scale F + 1, so that F / (theta - 1) = 1 / scale
        scale = 2 * self.params["T"] * len(cluster.servers) * max(len(types), 1)
        return float(((scale * factor + 1) ** (load / capacity) - 1) / (scale if self.params["normed"] else 1))

    def capacity(self, place: Place) -> float:
        """Units of a resource; inf for no limit."""
        if place not in self.limits:
            self.limits[place] = self._capacity(place)
        return self.limits[place]

    def _capacity(self, place: Place) -> float:
        kind, server = place
        cluster = self.c.scenario.cluster
        if server == cluster.cloud:
            limit = self.params["cloud_capacity"]
            return np.inf if limit is None else float(limit)
        worker = kind.startswith(WORKER)
        types, slots = (cluster.worker_types, cluster.workers) if worker else (cluster.ps_types, cluster.ps)
        name = kind.removeprefix(WORKER if worker else PS)
        return float(slots[server, types.index(name)]) if name in types else 0.0


@dataclass
class _Acceptance:
    """An accepted job: servers of its workers and its PS, and the ends of its plans: (made_at, end) [µs].

    It is accepted at `since` and holds what it was given until `until` [µs]: it ends, or loses a server.
    """

    since: int
    workers: list[tuple[int, int]]
    ps: int
    ends: list[tuple[int, int]]
    until: int


_Acceptances = dict[int, list[_Acceptance]]
"""The acceptances of each job, in order; several if it lost a server."""


def check_batches(c: Columns, findings: Findings, params: Mapping[str, Any]) -> None:
    """Check the batches in order, with the jobs that each accepts and postpones."""
    accepted = _acceptances(c)
    waiting_spans = _waiting_spans(c, accepted)
    expected: list[_PriceRow] = []
    limits: dict[Place, float] = {}
    batches = list(_batches(c))
    due = _due_times(c, max((time for time, _ in batches), default=0))
    _no_batch_missing(due, findings, waiting_spans, {time for time, _ in batches})
    for time, decided in batches:
        _due_now(due, findings, time)
        _decides_on_all(c, findings, time, [job for job, _, _ in decided], waiting_spans)
        ledger = _BatchLedger(c, params, limits)
        for job, acceptance in _active(accepted, time):
            _take(ledger, c, job, acceptance, time)
        for job, verb, value in decided:
            if verb == "postpone":
                if value is not None and value > 0:
                    findings.add("M36", job, time, f"is postponed at a utility of {value:.9g}; it must be at most 0")
                continue
            for acceptance in [acceptance for acceptance in accepted.get(job, []) if acceptance.since == time]:
                # the utility is at the prices before the job is accepted, those on record are after it
                _check_utility(ledger, c, findings, job, acceptance, time, value)
                _take(ledger, c, job, acceptance, time)
                expected += _expected_prices(ledger, c, job, acceptance, time)
    _compare_prices(c, findings, expected)


def _active(accepted: _Acceptances, time: int) -> Iterator[tuple[int, _Acceptance]]:
    """The jobs that hold workers when the batch of this time begins, with the acceptance that gave them."""
    for job in sorted(accepted):
        for acceptance in accepted[job]:
            if acceptance.since < time < acceptance.until:
                yield job, acceptance


def _batches(c: Columns) -> Iterator[tuple[int, list[tuple[int, str, float | None]]]]:
    """(time, (job, verb, value) of its decisions) of each batch."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "allocate", "postpone"))
    times, jobs = d["time"][rows].tolist(), d["job"][rows].tolist()
    verbs, values = (d.frame[name].gather(rows).to_list() for name in ("verb", "value"))
    batches: dict[int, dict[int, tuple[int, str, float | None]]] = {}
    for time, job, verb, value in zip(times, jobs, verbs, values, strict=True):
        batches.setdefault(time, {}).setdefault(job, (job, verb, value))
    for time in sorted(batches):
        yield time, list(batches[time].values())


def _waiting_spans(c: Columns, accepted: _Acceptances) -> dict[int, list[tuple[int, int]]]:
    """When each job waits [µs]: from its arrival, or a loss of a server, to when it is accepted; NEVER: never."""
    rejected = c.decisions["job"][c.decisions.has("verb", "reject")]
    waiting_spans: dict[int, list[tuple[int, int]]] = {}
    failed = failure_times(c)
    for job in sorted(set(range(len(c.scenario.jobs))) - set(rejected.tolist())):
        acceptances, lost = accepted.get(job, []), outage_suspensions(c).get(job, [])
        begins = [
            int(c.scenario.jobs.arrival[job]),
            *(acceptance.until for acceptance in acceptances if acceptance.until in lost),
        ]
        # a job that fails at the time of a batch has left before
        ends = [
            *(acceptance.since for acceptance in acceptances),
            int(failed[job]) - 1 if failed[job] < NEVER else NEVER,
        ]
        waiting_spans[job] = list(zip(begins, ends, strict=False))
    return waiting_spans


def _due_times(c: Columns, last: int) -> list[int]:
    """The times of batches [µs] to beyond `last`: 2^(i-1) slots; where servers fail at most about `mttr` apart."""
    physics, tau, due = c.scenario.physics, 1, [0]
    max_gap = NEVER if physics.mtbf is None else max(1, _ceil_div(physics.mttr, physics.slot))
    while due[-1] <= last:
        # the time from batch to batch doubles, at most to `max_gap` slots
        due.append(tau * physics.slot)
        tau += min(tau, max_gap)
    return due[1:]


def _no_batch_missing(
    due: list[int], findings: Findings, waiting_spans: Mapping[int, list[tuple[int, int]]], times: set[int]
) -> None:
    """Check that there is a batch whenever one is due and a job, accepted later, waits."""
    for tau in [tau for tau in due if tau not in times]:
        for job, spans in waiting_spans.items():
            if any(since < tau <= until < NEVER for since, until in spans):
                findings.add("M36", job, tau, "waits, but no batch decides on it")


def _due_now(due: list[int], findings: Findings, time: int) -> None:
    """Check that a batch is at a time at which one is due."""
    index = bisect_left(due, time)
    if due[index] != time:
        findings.add(
            "M36",
            None,
            time,
            f"a batch decides at {time} µs; it must be at {due[max(index - 1, 0)]} or {due[index]} µs",
        )


def _decides_on_all(
    c: Columns, findings: Findings, time: int, decided: list[int], waiting_spans: Mapping[int, list[tuple[int, int]]]
) -> None:  # fmt: skip
    """Check that a batch decides once on each job that waits since before it."""
    # a job that arrives at the time of a batch is decided on by the next one
    due = {job for job, spans in waiting_spans.items() if any(since < time <= until for since, until in spans)}
    for job in sorted(due ^ set(decided)):
        text = (
            "waits, but the batch does not decide on it" if job in due else "does not wait, but a batch decides on it"
        )
        findings.add("M36", job, time, text)
    d = c.decisions
    rows = np.flatnonzero((d["time"] == time) & d.has("verb", "postpone"))
    for job in sorted({job for job in decided if (d["job"][rows] == job).sum() > 1}):
        findings.add("M36", job, time, "is postponed twice by one batch")


def _acceptances(c: Columns) -> _Acceptances:
    """The holdings and plans of each acceptance."""
    jobs: _Acceptances = {}
    p, orders = c.plans, gang_order_rows(c).with_verbs(ALLOCATE)
    columns = (orders.job, orders.time, orders.server, orders.n)
    for job, time, server, workers in zip(*(column.tolist() for column in columns), strict=True):
        acceptances = jobs.setdefault(job, [])
        if not acceptances or acceptances[-1].since != time:
            acceptances.append(_Acceptance(time, [], -1, [], NEVER))
        acceptances[-1].workers.append((server, workers))
    end_time = end_times(c)
    for job, acceptances in jobs.items():
        ends = [*outage_suspensions(c).get(job, []), int(end_time[job])]
        for acceptance in acceptances:
            acceptance.until = min((end for end in ends if end > acceptance.since), default=NEVER)
    for job, made_at, end, server, ps in zip(
        *(p[name].tolist() for name in ("job", "made_at", "to", "server", "ps")), strict=True
    ):
        for acceptance in [acceptance for acceptance in jobs.get(job, []) if acceptance.since <= made_at][-1:]:
            acceptance.ends.append((made_at, end))
            acceptance.ps = server if ps else acceptance.ps
    return jobs


def _places(c: Columns, job: int, acceptance: _Acceptance) -> list[tuple[Place, int]]:
    """(resource, units) pairs held by a job, its PS last."""
    workers, servers = _slot_names(c)
    worker, ps = workers[job], servers[job]
    return [((worker, server), n) for server, n in acceptance.workers] + [((ps, acceptance.ps), 1)]


@once
def _slot_names(c: Columns) -> tuple[list[str], list[str]]:
    """Names of the worker slots and of the PS slots that each job uses."""
    f = c.scenario.jobs.frame
    return [WORKER + kind for kind in f["worker_type"].to_list()], [PS + kind for kind in f["ps_type"].to_list()]


def _take(ledger: _BatchLedger, c: Columns, job: int, acceptance: _Acceptance, time: int) -> None:
    slots = _slots_left(c, acceptance, time)
    for place, n in _places(c, job, acceptance):
        ledger.take(place, n, slots)


def _slots_left(c: Columns, acceptance: _Acceptance, time: int) -> int:
    """Slots to the end of the newest plan at `time`, at least 1."""
    end = max(((made_at, end) for made_at, end in acceptance.ends if made_at <= time), default=(0, time))[1]
    return max(1, _ceil_div(end - time, c.scenario.physics.slot))


def _ceil_div(a: int, b: int) -> int:
    """The quotient a / b, rounded up."""
    return -(-a // b)


def _check_utility(
    ledger: _BatchLedger,
    c: Columns,
    findings: Findings,
    job: int,
    acceptance: _Acceptance,
    time: int,
    value: float | None,
) -> None:
    """Check that an accepted job's utility is 1 less the cost of its workers and PS for d_j slots, and above 0."""
    scenario, workers = c.scenario, sum(n for _, n in acceptance.workers)
    single_server = len(acceptance.workers) == 1 and acceptance.workers[0][0] == acceptance.ps
    colocated = single_server and (
        acceptance.ps == scenario.cluster.cloud or scenario.physics.colocation == "one_server"
    )
    utilities = []
    for is_colocated in {0, int(colocated)}:  # a spread plan may use one server, but was computed at zeta = 0
        slots = _ceil_div(_ceil_div(int(scenario.announced_work[job, is_colocated]), workers), scenario.physics.slot)
        utilities.append(1 - sum(n * ledger.window(place, slots) for place, n in _places(c, job, acceptance)))
    if value is None or not value > 0 or min(abs(value - utility) for utility in utilities) > TOLERANCE:
        findings.add("M36", job, time, f"is accepted at a utility of {value}; 1 - cost is {utilities[0]:.9g}")


def _expected_prices(
    ledger: _BatchLedger, c: Columns, job: int, acceptance: _Acceptance, time: int
) -> Iterator[_PriceRow]:
    """The prices changed by an accepted job."""
    slots, slot, cluster = _slots_left(c, acceptance, time), c.scenario.physics.slot, c.scenario.cluster
    # a resource without limit is free and has no price on record
    priced_names = {*(WORKER + kind for kind in cluster.worker_types), *(PS + kind for kind in cluster.ps_types)}
    for place, _ in _places(c, job, acceptance):
        if place[0] in priced_names and ledger.capacity(place) < np.inf:
            for a, b, price in ledger.steps(place, slots):
                yield time, job, place[1], place[0], time + a * slot, time + b * slot, price


def _compare_prices(c: Columns, findings: Findings, expected: list[_PriceRow]) -> None:
    """Check that the recorded prices are the expected ones, each once."""
    p = c.prices
    columns = (p["made_at"], p["job"], p["server"], p.frame["resource"], p["from"], p["to"], p["price"])
    actual = sorted(
        zip(
            *(column.tolist() if isinstance(column, np.ndarray) else column.to_list() for column in columns),
            strict=True,
        )
    )
    expected = sorted(expected)
    actual_keys, expected_keys = [row[:6] for row in actual], [row[:6] for row in expected]
    differ = (Counter(actual_keys) - Counter(expected_keys)) + (Counter(expected_keys) - Counter(actual_keys))
    for row in sorted(differ)[: findings.limit]:
        problem = "is not on record" if row not in actual_keys else "follows from no acceptance, or is recorded twice"
        findings.add(
            "M36", row[1], row[0], f"the price of {row[3]} on server {row[2]} from {row[4]} to {row[5]} µs {problem}"
        )
    if actual_keys != expected_keys:
        return
    for actual_row, expected_row in zip(actual, expected, strict=True):
        if abs(actual_row[6] - expected_row[6]) > TOLERANCE * max(abs(expected_row[6]), 1e-12):
            text = (
                f"the price of {actual_row[3]} on server {actual_row[2]} is {actual_row[6]:.9g} from {actual_row[4]} µs"
            )
            findings.add("M36", actual_row[1], actual_row[0], f"{text}; the load gives {expected_row[6]:.9g}")
