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

from skedge.analysis.columns import Columns, end_times, failure_times, gang_orders, once
from skedge.core.model.cluster import PS, WORKER
from skedge.core.model.ties import TOLERANCE
from skedge.core.model.time import NEVER

from .rules import Findings

Place = tuple[str, int]
"""Name of a resource, and its server."""

_Row = tuple[int, int, int, str, int, int, float]
"""(made_at, job, server, resource, from, to, price)."""


@dataclass
class _Books:
    """Units held of each resource: (units, number of slots from the batch on). `limits`: the capacities asked for."""

    c: Columns
    says: Mapping[str, Any]
    limits: dict[Place, float]
    held: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)

    def take(self, place: Place, units: int, slots: int) -> None:
        if self.capacity(place) < np.inf:
            self.held.setdefault(place, []).append((units, slots))

    def steps(self, place: Place, slots: int) -> Iterator[tuple[int, int, float]]:
        """(from, to, unit price) in the first `slots` slots of the batch."""
        held = self.held.get(place, [])
        ends = sorted({0, slots, *(end for _, end in held if end < slots)})
        for a, b in pairwise(ends):
            yield a, b, self._price(place, sum(n for n, end in held if end > a))

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
        types, most = (cluster.worker_types, self.says["F1"]) if worker else (cluster.ps_types, self.says["F2"])
        scale = 2 * self.says["T"] * len(cluster.servers) * max(len(types), 1)
        return float(((scale * most + 1) ** (load / capacity) - 1) / (scale if self.says["normed"] else 1))

    def capacity(self, place: Place) -> float:
        """Units of a resource; inf for no limit."""
        if place not in self.limits:
            self.limits[place] = self._capacity(place)
        return self.limits[place]

    def _capacity(self, place: Place) -> float:
        kind, server = place
        cluster = self.c.scenario.cluster
        if server == cluster.cloud:
            limit = self.says["cloud_capacity"]
            return np.inf if limit is None else float(limit)
        worker = kind.startswith(WORKER)
        types, slots = (cluster.worker_types, cluster.workers) if worker else (cluster.ps_types, cluster.ps)
        name = kind.removeprefix(WORKER if worker else PS)
        return float(slots[server, types.index(name)]) if name in types else 0.0


@dataclass
class _Job:
    """An accepted job: servers of its workers and its PS, and the ends of its plans: (made_at, end) [µs].

    It is accepted at `since` and holds what it was given until `until` [µs]: it ends, or loses a server.
    """

    since: int
    where: list[tuple[int, int]]
    ps: int
    ends: list[tuple[int, int]]
    until: int


_Accepted = dict[int, list[_Job]]
"""The acceptances of each job, in order; several if it lost a server."""


def check_batches(c: Columns, found: Findings, says: Mapping[str, Any]) -> None:
    """Check the batches in order, with the jobs that each accepts and postpones."""
    accepted = _accepted(c)
    waits = _waits(c, accepted)
    expected: list[_Row] = []
    limits: dict[Place, float] = {}
    batches = list(_batches(c))
    due = _due_times(c, max((time for time, _ in batches), default=0))
    _when_due(due, found, waits, {time for time, _ in batches})
    for time, decided in batches:
        _in_time(due, found, time)
        _everybody(c, found, time, [job for job, _, _ in decided], waits)
        books = _Books(c, says, limits)
        for job, one in _holding(accepted, time):
            _hold(books, c, job, one, time)
        for job, verb, value in decided:
            if verb == "postpone":
                if value is not None and value > 0:
                    found.add("M36", job, time, f"is postponed at a utility of {value:.9g}; it must be at most 0")
                continue
            for one in [one for one in accepted.get(job, []) if one.since == time]:
                _worth(books, c, found, job, one, time, value)
                _hold(books, c, job, one, time)
                expected += _priced(books, c, job, one, time)
    _as_said(c, found, expected)


def _holding(accepted: _Accepted, time: int) -> Iterator[tuple[int, _Job]]:
    """The jobs that hold workers when the batch of this time begins, with the acceptance that gave them."""
    for job in sorted(accepted):
        for one in accepted[job]:
            if one.since < time < one.until:
                yield job, one


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


def _waits(c: Columns, accepted: _Accepted) -> dict[int, list[tuple[int, int]]]:
    """When each job waits [µs]: from its arrival, or a loss of a server, to when it is accepted; NEVER: never."""
    rejected = c.decisions["job"][c.decisions.has("verb", "reject")]
    waits: dict[int, list[tuple[int, int]]] = {}
    failed = failure_times(c)
    for job in sorted(set(range(len(c.scenario.jobs))) - set(rejected.tolist())):
        mine, lost = accepted.get(job, []), _lost_at(c).get(job, [])
        begins = [int(c.scenario.jobs.arrival[job]), *(one.until for one in mine if one.until in lost)]
        # a job that fails at the time of a batch has left before
        ends = [*(one.since for one in mine), int(failed[job]) - 1 if failed[job] < NEVER else NEVER]
        waits[job] = list(zip(begins, ends, strict=False))
    return waits


@once
def _lost_at(c: Columns) -> dict[int, list[int]]:
    """When each job was suspended because a server went out of service [µs]."""
    d, lost = c.decisions, dict[int, list[int]]()
    rows = np.flatnonzero(d.has("verb", "suspend") & (d["server"] >= 0))
    for job, time in zip(d["job"][rows].tolist(), d["time"][rows].tolist(), strict=True):
        lost.setdefault(job, []).append(time)
    return lost


def _due_times(c: Columns, last: int) -> list[int]:
    """The times of batches [µs] to beyond `last`: 2^(i-1) slots; where servers fail at most about `mttr` apart."""
    physics, tau, due = c.scenario.physics, 1, [0]
    most = NEVER if physics.mtbf is None else max(1, _up(physics.mttr, physics.slot))
    while due[-1] <= last:
        due.append(tau * physics.slot)
        tau += min(tau, most)
    return due[1:]


def _when_due(due: list[int], found: Findings, waits: Mapping[int, list[tuple[int, int]]], times: set[int]) -> None:
    """Check that there is a batch whenever one is due and a job, accepted later, waits."""
    for tau in [tau for tau in due if tau not in times]:
        for job, of in waits.items():
            if any(since < tau <= until < NEVER for since, until in of):
                found.add("M36", job, tau, "waits, but no batch decides on it")


def _in_time(due: list[int], found: Findings, time: int) -> None:
    """Check that a batch is at a time at which one is due."""
    at = bisect_left(due, time)
    if due[at] != time:
        found.add(
            "M36", None, time, f"a batch decides at {time} µs; it must be at {due[max(at - 1, 0)]} or {due[at]} µs"
        )


def _everybody(
    c: Columns, found: Findings, time: int, decided: list[int], waits: Mapping[int, list[tuple[int, int]]]
) -> None:  # fmt: skip
    """Check that a batch decides once on each job that waits since before it."""
    due = {job for job, of in waits.items() if any(since < time <= until for since, until in of)}
    for job in sorted(due ^ set(decided)):
        text = (
            "waits, but the batch does not decide on it" if job in due else "does not wait, but a batch decides on it"
        )
        found.add("M36", job, time, text)
    d = c.decisions
    rows = np.flatnonzero((d["time"] == time) & d.has("verb", "postpone"))
    for job in sorted({job for job in decided if (d["job"][rows] == job).sum() > 1}):
        found.add("M36", job, time, "is postponed twice by one batch")


def _accepted(c: Columns) -> _Accepted:
    """The holdings and plans of each acceptance."""
    jobs: _Accepted = {}
    orders = gang_orders(c)
    p = c.plans
    orders = orders.filter(orders["verb"] == "allocate").select("job", "time", "server", "workers")
    for job, time, server, workers in orders.rows():
        mine = jobs.setdefault(job, [])
        if not mine or mine[-1].since != time:
            mine.append(_Job(time, [], -1, [], NEVER))
        mine[-1].where.append((server, workers))
    over = end_times(c)
    for job, mine in jobs.items():
        ends = [*_lost_at(c).get(job, []), int(over[job])]
        for one in mine:
            one.until = min((end for end in ends if end > one.since), default=NEVER)
    for job, made, end, server, ps in zip(
        *(p[name].tolist() for name in ("job", "made_at", "to", "server", "ps")), strict=True
    ):
        for one in [one for one in jobs.get(job, []) if one.since <= made][-1:]:
            one.ends.append((made, end))
            one.ps = server if ps else one.ps
    return jobs


def _places(c: Columns, job: int, one: _Job) -> list[tuple[Place, int]]:
    """(resource, units) pairs held by a job, its PS last."""
    workers, servers = _types(c)
    worker, ps = workers[job], servers[job]
    return [((worker, server), n) for server, n in one.where] + [((ps, one.ps), 1)]


@once
def _types(c: Columns) -> tuple[list[str], list[str]]:
    """Names of the worker slots and of the PS slots that each job uses."""
    f = c.scenario.jobs.frame
    return [WORKER + kind for kind in f["worker_type"].to_list()], [PS + kind for kind in f["ps_type"].to_list()]


def _hold(books: _Books, c: Columns, job: int, one: _Job, time: int) -> None:
    slots = _slots_left(c, one, time)
    for place, n in _places(c, job, one):
        books.take(place, n, slots)


def _slots_left(c: Columns, one: _Job, time: int) -> int:
    """Slots to the end of the newest plan at `time`, at least 1."""
    end = max(((made, end) for made, end in one.ends if made <= time), default=(0, time))[1]
    return max(1, _up(end - time, c.scenario.physics.slot))


def _up(a: int, b: int) -> int:
    """The quotient a / b, rounded up."""
    return -(-a // b)


def _worth(books: _Books, c: Columns, found: Findings, job: int, one: _Job, time: int, value: float | None) -> None:
    """Check that an accepted job's utility is 1 less the cost of its workers and PS for d_j slots, and above 0."""
    scenario, workers = c.scenario, sum(n for _, n in one.where)
    together = len(one.where) == 1 and one.where[0][0] == one.ps
    xi = together and (one.ps == scenario.cluster.cloud or scenario.physics.colocation == "one_server")
    worths = []
    for zeta in {0, int(xi)}:  # a spread plan may use one server, but was computed at zeta = 0
        slots = _up(_up(int(scenario.announced_work[job, zeta]), workers), scenario.physics.slot)
        worths.append(1 - sum(n * books.window(place, slots) for place, n in _places(c, job, one)))
    if value is None or not value > 0 or min(abs(value - worth) for worth in worths) > TOLERANCE:
        found.add("M36", job, time, f"is accepted at a utility of {value}; 1 - cost is {worths[0]:.9g}")


def _priced(books: _Books, c: Columns, job: int, one: _Job, time: int) -> Iterator[_Row]:
    """The prices changed by an accepted job."""
    slots, slot, cluster = _slots_left(c, one, time), c.scenario.physics.slot, c.scenario.cluster
    known = {*(WORKER + kind for kind in cluster.worker_types), *(PS + kind for kind in cluster.ps_types)}
    for place, _ in _places(c, job, one):
        if place[0] in known and books.capacity(place) < np.inf:
            for a, b, price in books.steps(place, slots):
                yield time, job, place[1], place[0], time + a * slot, time + b * slot, price


def _as_said(c: Columns, found: Findings, expected: list[_Row]) -> None:
    """Check that the recorded prices are the expected ones, each once."""
    p = c.prices
    columns = (p["made_at"], p["job"], p["server"], p.frame["resource"], p["from"], p["to"], p["price"])
    said = sorted(
        zip(
            *(column.tolist() if isinstance(column, np.ndarray) else column.to_list() for column in columns),
            strict=True,
        )
    )
    expected = sorted(expected)
    keys, right = [row[:6] for row in said], [row[:6] for row in expected]
    differ = (Counter(keys) - Counter(right)) + (Counter(right) - Counter(keys))
    for row in sorted(differ)[: found.limit]:
        what = "is not on record" if row not in keys else "follows from no acceptance, or is recorded twice"
        found.add(
            "M36", row[1], row[0], f"the price of {row[3]} on server {row[2]} from {row[4]} to {row[5]} µs {what}"
        )
    if keys != right:
        return
    for one, other in zip(said, expected, strict=True):
        if abs(one[6] - other[6]) > TOLERANCE * max(abs(other[6]), 1e-12):
            text = f"the price of {one[3]} on server {one[2]} is {one[6]:.9g} from {one[4]} µs"
            found.add("M36", one[1], one[0], f"{text}; the load gives {other[6]:.9g}")
