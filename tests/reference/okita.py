"""Okita without any of the product's shortcuts: loops, lists, exact fractions; every N, every PS site, as printed.

It shares with the product only the data of jobs and sites. Numbers are fractions, so equal costs are equal; only the
exponential latency cost is rounded, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from skedge.core.model.latency import Exponential, Linear, Piecewise
from skedge.policies.okita.alg1 import OkitaParams
from skedge.policies.okita.sites import SiteJob, Sites

F = Fraction
Matrix = list[list[Fraction]]


@dataclass
class Plan:
    """OSF's answer: N, l, y, PS site, cost."""

    count: int
    slots: int
    workers: list[int]
    ps: int
    cost: Fraction


@dataclass
class Row:
    """A decision; the fields are those of the product's."""

    job: int
    verb: str
    priority: Fraction
    plan: Plan
    chosen: Plan | None
    trained: list[int]
    moved: dict[tuple[int, int], int]
    costs: tuple[Fraction | None, Fraction | None] | None
    occupant: tuple[int, int] | None


def latency(job: SiteJob, slots: int) -> Fraction:
    f = job.latency
    if isinstance(f, Exponential):
        return F(f(slots))
    if isinstance(f, Linear):
        return F(f.tau) * slots + F(f.base)
    return F(f.early) if slots < f.deadline else F(f.late)


class Plain:
    """One run."""

    def __init__(self, sites: Sites, jobs: Sequence[SiteJob], params: OkitaParams) -> None:
        self.capacity: Matrix = [[F(x) for x in row] for row in sites.capacity.tolist()]
        self.q: Matrix = [[F(x) for x in row] for row in sites.cost.tolist()]
        self.R, self.K = len(self.capacity), len(self.capacity[0])
        self.jobs = {job.id: job for job in jobs}
        self.params = params
        self.left: dict[int, list[int]] = {}
        self.spent: dict[int, Fraction] = {}
        self.never: list[int] = []
        self.done: dict[int, tuple[int, Fraction, Fraction]] = {}

    def run(self) -> Iterator[tuple[int, list[Row]]]:
        """Alg. 1."""
        t = 0
        while len(self.done) + len(self.never) < len(self.jobs):
            for job in self.jobs.values():
                if job.arrival == t:
                    self.left[job.id], self.spent[job.id] = list(job.data), F(0)
            rows = self.slot(t)
            if rows:
                yield t, rows
            t += 1

    def slot(self, t: int) -> list[Row]:
        plans: dict[int, Plan] = {}
        for i in list(self.left):
            plan = self.tentative(i, t)
            if plan is None:
                self.never.append(i)
                del self.left[i]
            else:
                plans[i] = plan
        values = self.priorities(t)
        free = [list(row) for row in self.capacity]
        placed: list[tuple[int, Plan]] = []
        rows = []
        for i in sorted(plans, key=lambda i: (-values[i], self.jobs[i].arrival, i)):
            row = self.decide(i, t, plans[i], values[i], free, placed)
            rows.append(row)
            if row.chosen is not None:
                workers, ps = row.chosen.workers, row.chosen.ps
                placed.append((i, row.chosen))
                job = self.jobs[i]
                for r in range(self.R):
                    for k in range(self.K):
                        free[r][k] -= self.demand(job, workers, ps, r, k)
                self.spent[i] += F(job.exchange_mb) * sum(self.q[r][ps] * workers[r] for r in range(self.R))
                self.spent[i] += F(job.chunk_mb) * sum(self.q[a][b] * n for (a, b), n in row.moved.items())
                for (a, _), n in row.moved.items():
                    self.left[i][a] -= n
                if sum(self.left[i]) == 0:
                    self.done[i] = (t, latency(job, t + 1 - job.arrival), self.spent[i])
                    del self.left[i]
        return rows

    def decide(self, i: int, t: int, plan: Plan, value: Fraction, free: Matrix, placed: list[tuple[int, Plan]]) -> Row:
        job, chosen, verb, costs, occupant = self.jobs[i], plan, "keep", None, None
        over = [
            r
            for r in range(self.R)
            if any(self.demand(job, plan.workers, plan.ps, r, k) > free[r][k] for k in range(self.K))
        ]
        if over:
            occupants = [(i2, p.slots) for i2, p in placed if any(p.workers[r] > 0 or p.ps == r for r in over)]
            first_or_last = min if self.params.release == "earliest" else max
            release = first_or_last(slots for _, slots in occupants)
            occupant = (next(i2 for i2, slots in occupants if slots == release), release)
            migrated = self.migrated(i, plan, free)
            costs = self.cost1_and_cost2(i, t - job.arrival, plan, migrated, release)
            if migrated is None or (costs[0] is not None and costs[1] is not None and costs[0] > costs[1]):
                return Row(i, "delay", value, plan, None, [], {}, costs, occupant)
            chosen, verb = migrated, "migrate"
        d = self.workload(job, self.left[i], chosen.workers, 1)
        moved = self.dta(self.left[i], d)
        return Row(i, verb, value, plan, chosen, d, moved, costs, occupant)

    def migrated(self, i: int, plan: Plan, free: Matrix) -> Plan | None:
        """Line 15; with `fit` one worker less, and one less, as long as there is no room."""
        for count in range(plan.count, 0 if self.params.fit else plan.count - 1, -1):
            migration = self.osf(i, free, count, ceil(sum(self.left[i]) / F(self.jobs[i].rate) / count))
            if migration is not None:
                return migration
        return None

    def cost1_and_cost2(
        self, i: int, waited: int, plan: Plan, migrated: Plan | None, release: int
    ) -> tuple[Fraction | None, Fraction | None]:
        """Lines 16 and 17; None is infinite."""
        job, cost1, cost2 = self.jobs[i], None, None
        if migrated is not None:
            end = waited + migrated.slots
            cost1 = self.spent[i] + migrated.cost + latency(job, end)
            cost2 = cost1 - latency(job, end) + latency(job, end + release)
        if self.params.conflict == "cheaper":
            cost2 = self.spent[i] + plan.cost + latency(job, waited + plan.slots + release)
        return cost1, cost2

    def priorities(self, t: int) -> dict[int, Fraction]:
        """Eq. (4)."""
        waits: dict[int, Fraction] = {}
        for i in self.left:
            f, waited = self.jobs[i].latency, t - self.jobs[i].arrival
            waits[i] = waited - F(f.deadline) if isinstance(f, Piecewise) else F(f.tau) * waited
        values = {}
        for i, left in self.left.items():
            kind = isinstance(self.jobs[i].latency, Piecewise)
            largest = max(abs(w) for j, w in waits.items() if isinstance(self.jobs[j].latency, Piecewise) == kind)
            first = waits[i] / largest if largest else F(0)
            if kind:
                first = F(-1) if self.params.late_last and waits[i] >= 0 else min(first, F(0))
            data = F(sum(left), sum(self.jobs[i].data))
            values[i] = F(self.params.alpha1) * first - F(self.params.alpha2) * data
        return values

    def tentative(self, i: int, t: int) -> Plan | None:
        """Alg. 1 lines 5-9."""
        job, best, least = self.jobs[i], None, F(0)
        work = sum(self.left[i]) / F(job.rate)
        for count in range(1, ceil(work) + 1):
            slots = ceil(work / count)
            plan = self.osf(i, self.capacity, count, slots)
            if plan is None:
                continue
            cost = plan.cost + latency(job, t + slots - job.arrival)
            if best is None or cost < least:
                best, least = plan, cost
        return best

    def osf(self, i: int, free: Matrix, count: int, slots: int) -> Plan | None:
        job, left = self.jobs[i], self.left[i]
        placement = self.pa(job, left, free, count)
        if placement is None:
            return None
        cost, workers, ps = placement
        moved = self.dta(left, self.workload(job, left, workers, slots))
        data = F(job.chunk_mb) * sum(self.q[a][b] * n for (a, b), n in moved.items())
        return Plan(count, slots, workers, ps, slots * cost + data)

    def pa(self, job: SiteJob, left: list[int], free: Matrix, count: int) -> tuple[Fraction, list[int], int] | None:
        """Alg. 2, the cost of one slot."""
        best: tuple[Fraction, list[int], int] | None = None
        for ps in range(self.R):
            if any(free[ps][k] < F(job.ps[k]) for k in range(self.K)):
                continue
            order = sorted(range(self.R), key=lambda r: (-self.quality(job, left, free, r, ps), r))
            workers, missing = [0] * self.R, count
            for r in order:
                free_beside_ps = [free[r][k] - (F(job.ps[k]) if r == ps else 0) for k in range(self.K)]
                room = min(floor(free_beside_ps[k] / F(job.worker[k])) for k in range(self.K) if job.worker[k] > 0)
                workers[r] = min(room, missing)
                missing -= workers[r]
            cost = F(job.exchange_mb) * sum(self.q[r][ps] * workers[r] for r in range(self.R))
            if missing == 0 and (best is None or cost <= best[0]):
                best = cost, workers, ps
        return best

    def quality(self, job: SiteJob, left: list[int], free: Matrix, r: int, ps: int) -> Fraction:
        """Eq. (6)."""
        p = self.params
        share = sum((free[r][k] / self.capacity[r][k] for k in range(self.K) if self.capacity[r][k]), F(0)) / self.K
        n_others = max(1, self.R - 1)
        means = [sum(self.q[a], F(0)) / n_others for a in range(self.R)]
        scale = F(job.exchange_mb)
        if p.normalise:
            scale = 1 / max(means) if max(means) else F(0)
        value = F(p.beta1) * share - F(p.beta2) * scale * means[r]
        if p.colocate:
            value -= F(p.beta2) * scale * self.q[r][ps]
        return value + (F(p.beta3) * F(left[r], job.data[r]) if job.data[r] else 0)

    @staticmethod
    def workload(job: SiteJob, left: list[int], workers: list[int], slots: int) -> list[int]:
        """d_i^r (O11)."""
        limit = [slots * floor(F(job.rate) * y) for y in workers]
        d = [min(a, b) for a, b in zip(left, limit, strict=True)]
        for r in range(len(d)):
            d[r] += min(limit[r] - d[r], min(sum(left), sum(limit)) - sum(d))
        return d

    def dta(self, left: list[int], d: list[int]) -> dict[tuple[int, int], int]:
        """Alg. 3: g, local use included."""
        g = {(r, r): min(left[r], d[r]) for r in range(self.R)}
        for r in range(self.R):
            for donor in sorted(range(self.R), key=lambda a: (self.q[a][r], a)):
                sent = sum(n for (a, _), n in g.items() if a == donor)
                received = sum(n for (_, b), n in g.items() if b == r)
                chunks = min(left[donor] - max(sent, min(left[donor], d[donor])), d[r] - received)
                if donor != r and chunks > 0:
                    g[donor, r] = chunks
        return {key: n for key, n in g.items() if n}

    @staticmethod
    def demand(job: SiteJob, workers: list[int], ps: int, r: int, k: int) -> Any:
        return F(job.worker[k]) * workers[r] + (F(job.ps[k]) if r == ps else 0)
