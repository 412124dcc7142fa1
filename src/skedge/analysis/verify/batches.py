"""Rule M36: the batches of She et al.'s framework, the jobs that they decide on, and the prices.

A unit of a server's resource costs (theta^(load / capacity) - 1) / (theta - 1) F per slot, with theta = 2TSU F + 1
for normalised prices; an unlimited resource is free. The load consists of the jobs that hold resources when the batch
begins, up to the ends of their plans, and of those that the batch has accepted so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from skedge.analysis.columns import Columns, gang_orders, once
from skedge.core.model import PS, WORKER
from skedge.core.ties import TOLERANCE
from skedge.core.time import NEVER

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
    """An accepted job: servers of its workers and its PS, and the ends of its plans: (made_at, end) [µs]."""

    where: list[tuple[int, int]]
    ps: int
    ends: list[tuple[int, int]]


def check_batches(c: Columns, found: Findings, says: Mapping[str, Any]) -> None:
    """Check the batches in order, with the jobs that each accepts and postpones."""
    accepted = _accepted(c)
    expected: list[_Row] = []
    limits: dict[Place, float] = {}
    gone: set[int] = set()
    done = np.full(len(c.scenario.jobs), NEVER, np.int64)
    done[c.jobs["job"]] = np.where(c.jobs["completion"] >= 0, c.jobs["completion"], NEVER)
    batches = list(_batches(c))
    _when_due(c, found, accepted, {time for time, _ in batches})
    for time, decided in batches:
        _everybody(c, found, time, [job for job, _, _ in decided], gone)
        books = _Books(c, says, limits)
        for job in sorted(gone):
            if done[job] > time:
                _hold(books, c, job, accepted[job], time)
        for job, verb, value in decided:
            if verb == "postpone":
                if value is not None and value > 0:
                    found.add("M36", job, time, f"is postponed at a utility of {value:.9g}; it must be at most 0")
            elif job in accepted:
                _worth(books, c, found, job, accepted[job], time, value)
                gone.add(job)
                _hold(books, c, job, accepted[job], time)
                expected += _priced(books, c, job, accepted[job], time)
    _as_said(c, found, expected)


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


def _when_due(c: Columns, found: Findings, accepted: Mapping[int, _Job], times: set[int]) -> None:
    """Check that there is a batch at each tau = 2^(i-1) slots at which a job waits."""
    slot, arrival = c.scenario.physics.slot, c.scenario.jobs.arrival
    for job, one in accepted.items():
        tau = slot
        until = min((made for made, _ in one.ends), default=0)
        while tau <= until:
            if arrival[job] < tau and tau not in times:
                found.add("M36", job, tau, "waits, but no batch decides on it")
            tau *= 2


def _everybody(c: Columns, found: Findings, time: int, decided: list[int], gone: set[int]) -> None:
    """Check that the batch of tau decides once on each job that arrived before tau and was not accepted or rejected."""
    slot, arrival = c.scenario.physics.slot, c.scenario.jobs.arrival
    tau = (1 << max((time // slot).bit_length() - 1, 0)) * slot
    if time != tau:
        found.add("M36", None, time, f"a batch decides at {time} µs; it must be at {tau} or {2 * tau} µs")
    d = c.decisions
    rejected = set(d["job"][d.has("verb", "reject")].tolist())
    due = {job for job in np.flatnonzero(arrival < tau).tolist() if job not in gone and job not in rejected}
    for job in sorted(due ^ set(decided)):
        text = (
            "waits, but the batch does not decide on it" if job in due else "does not wait, but a batch decides on it"
        )
        found.add("M36", job, time, text)
    rows = np.flatnonzero((d["time"] == time) & d.has("verb", "postpone"))
    for job in sorted({job for job in decided if (d["job"][rows] == job).sum() > 1}):
        found.add("M36", job, time, "is postponed twice by one batch")


def _accepted(c: Columns) -> dict[int, _Job]:
    """The holdings and plans of each allocated job."""
    jobs: dict[int, _Job] = {}
    orders = gang_orders(c)
    p = c.plans
    for job, server, workers in orders.filter(orders["verb"] == "allocate").select("job", "server", "workers").rows():
        jobs.setdefault(job, _Job([], -1, [])).where.append((server, workers))
    for job, made, end, server, ps in zip(
        *(p[name].tolist() for name in ("job", "made_at", "to", "server", "ps")), strict=True
    ):
        one = jobs.get(job)
        if one is not None:
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
