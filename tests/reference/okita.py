"""Okita as a plain program: loops, lists, exact fractions; every N, every PS site, as printed.

The algorithms stand in the order of the paper and comments give their lines; where the printed text cannot be meant,
the entry of ``docs/errata-okita.md`` stands beside the code as O1, O2, ... It shares with the product only the data of
jobs and sites, and the policy's parameters. Numbers are fractions, so equal costs are equal; only the exponential
latency cost is rounded, once.
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
    """f_i of a response of this number of slots (Sec. V-B)."""
    f = job.latency
    if isinstance(f, Exponential):
        return F(f(slots))
    if isinstance(f, Linear):
        return F(f.tau) * slots + F(f.base)
    return F(f.early) if slots < f.deadline else F(f.late)


class Plain:
    """A run.

    Attributes
    ----------
    capacity, q
        C_r^k, and the cost of a MB from site to site.
    left
        M_i^r(t) of the uncompleted jobs J_a.
    spent
        bcost*_i, the bandwidth cost so far.
    never
        Jobs that no empty system holds (O26).
    done
        Of each completed job: last slot, latency cost, bandwidth cost.
    """

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
        """Alg. 1, line 2: slot after slot, until all jobs are complete (O27)."""
        t = 0
        while len(self.done) + len(self.never) < len(self.jobs):
            for job in self.jobs.values():  # line 3
                if job.arrival == t:
                    self.left[job.id], self.spent[job.id] = list(job.data), F(0)
            rows = self.slot(t)
            if rows:
                yield t, rows
            t += 1

    def slot(self, t: int) -> list[Row]:
        """Alg. 1, lines 4-29."""
        plans: dict[int, Plan] = {}
        # lines 4-10; each job is planned as if it were alone (O15)
        for i in list(self.left):
            plan = self.tentative(i, t)
            if plan is None:
                self.never.append(i)
                del self.left[i]
            else:
                plans[i] = plan
        values = self.priorities(t)  # line 11
        free = [list(row) for row in self.capacity]
        placed: list[tuple[int, Plan]] = []
        rows = []
        # lines 12 and 13
        for i in sorted(plans, key=lambda i: (-values[i], self.jobs[i].arrival, i)):
            row = self.decide(i, t, plans[i], values[i], free, placed)
            rows.append(row)
            if row.chosen is not None:
                # line 24
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
                # lines 25-28; M(t) without what slot t has trained, and the END time t + 1 (O6, O7)
                if sum(self.left[i]) == 0:
                    self.done[i] = (t, latency(job, t + 1 - job.arrival), self.spent[i])
                    del self.left[i]
        return rows

    def decide(self, i: int, t: int, plan: Plan, value: Fraction, free: Matrix, placed: list[tuple[int, Plan]]) -> Row:
        """Alg. 1, lines 14-23: keep the plan, migrate, or delay.

        Parameters
        ----------
        i, t
            Job and slot.
        plan, value
            Its tentative plan, and O_i(t).
        free
            Av_r^k(t), after the jobs of higher priority.
        placed
            Their numbers and plans.
        """
        job, chosen, verb, costs, occupant = self.jobs[i], plan, "keep", None, None
        # line 14: sites where the plan overdraws a resource (O4)
        overdrawn = [
            r
            for r in range(self.R)
            if any(self.demand(job, plan.workers, plan.ps, r, k) > free[r][k] for k in range(self.K))
        ]
        if overdrawn:
            occupants = [(i2, p.slots) for i2, p in placed if any(p.workers[r] > 0 or p.ps == r for r in overdrawn)]
            # l* of a job that is in the way: of several the first to leave (O1, O5)
            first_or_last = min if self.params.release == "earliest" else max
            release = first_or_last(slots for _, slots in occupants)
            occupant = (next(i2 for i2, slots in occupants if slots == release), release)
            migrated = self.migrated(i, plan, free)
            costs = self.cost1_and_cost2(i, t - job.arrival, plan, migrated, release)
            # lines 18-20; without room there is nothing to migrate to (O3)
            if migrated is None or (costs[0] is not None and costs[1] is not None and costs[0] > costs[1]):
                return Row(i, "delay", value, plan, None, [], {}, costs, occupant)
            chosen, verb = migrated, "migrate"
        # lines 22 and 23, for this slot alone (O13)
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
        """Lines 16 and 17; None is infinite. With ``conflict=cheaper`` cost2 takes the tentative plan (O2).

        Parameters
        ----------
        i
            Job.
        waited
            Slots since its arrival.
        plan, migrated
            Tentative plan, and the one in what is left.
        release
            l* of the job in the way.
        """
        job, cost1, cost2 = self.jobs[i], None, None
        if migrated is not None:
            end = waited + migrated.slots
            cost1 = self.spent[i] + migrated.cost + latency(job, end)
            cost2 = cost1 - latency(job, end) + latency(job, end + release)
        if self.params.conflict == "cheaper":
            cost2 = self.spent[i] + plan.cost + latency(job, waited + plan.slots + release)
        return cost1, cost2

    def priorities(self, t: int) -> dict[int, Fraction]:
        """O_i(t), Eq. (4), with 0/0 = 0 and the absolute maximum (O20)."""
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
        """Alg. 1 lines 5-9: the cheapest plan of all N; None if no N has a place."""
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
        """Function OSF, Alg. 1 lines 32-38: PA and DTA, both costs of the whole window (O13).

        Parameters
        ----------
        i
            Job.
        free
            U_r^k.
        count, slots
            N and l.
        """
        job, left = self.jobs[i], self.left[i]
        placement = self.pa(job, left, free, count)
        if placement is None:
            return None
        cost, workers, ps = placement
        moved = self.dta(left, self.workload(job, left, workers, slots))
        data = F(job.chunk_mb) * sum(self.q[a][b] * n for (a, b), n in moved.items())
        return Plan(count, slots, workers, ps, slots * cost + data)

    def pa(self, job: SiteJob, left: list[int], free: Matrix, count: int) -> tuple[Fraction, list[int], int] | None:
        """Alg. 2, PA: cost of one slot, workers by site, PS site; None if no site leaves room.

        Parameters
        ----------
        job, left
            Job, and M_i^r(t).
        free
            U_r^k.
        count
            N.
        """
        best: tuple[Fraction, list[int], int] | None = None
        for ps in range(self.R):  # line 2
            # a site that cannot hold the PS is left out (O16)
            if any(free[ps][k] < F(job.ps[k]) for k in range(self.K)):
                continue
            # lines 4-8
            order = sorted(range(self.R), key=lambda r: (-self.quality(job, left, free, r, ps), r))
            workers, missing = [0] * self.R, count
            for r in order:  # lines 9-11
                free_beside_ps = [free[r][k] - (F(job.ps[k]) if r == ps else 0) for k in range(self.K)]
                room = min(floor(free_beside_ps[k] / F(job.worker[k])) for k in range(self.K) if job.worker[k] > 0)
                workers[r] = min(room, missing)
                missing -= workers[r]
            cost = F(job.exchange_mb) * sum(self.q[r][ps] * workers[r] for r in range(self.R))
            # lines 12-14; "<=": the later of equal PS sites (O25)
            if missing == 0 and (best is None or cost <= best[0]):
                best = cost, workers, ps
        return best

    def quality(self, job: SiteJob, left: list[int], free: Matrix, r: int, ps: int) -> Fraction:
        """Q_i^r(t), Eq. (6), with 0/0 = 0 (O19).

        Parameters
        ----------
        job, left
            Job, and M_i^r(t).
        free
            U_r^k.
        r, ps
            Site, and PS site, which counts with ``colocate`` alone (O18).
        """
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
        """d_i^r, which is not printed (O11): local data first, then what else there is, by number of the site.

        Parameters
        ----------
        job, left
            Job, and M_i^r(t).
        workers, slots
            y_i^r, and the number of slots.
        """
        limit = [slots * floor(F(job.rate) * y) for y in workers]
        d = [min(a, b) for a, b in zip(left, limit, strict=True)]
        for r in range(len(d)):
            d[r] += min(limit[r] - d[r], min(sum(left), sum(limit)) - sum(d))
        return d

    def dta(self, left: list[int], d: list[int]) -> dict[tuple[int, int], int]:
        """Alg. 3, DTA: g from donor to receiver, local use included (O8)."""
        g = {(r, r): min(left[r], d[r]) for r in range(self.R)}
        for r in range(self.R):  # line 2
            # lines 4 and 5: donors by the cost to the receiver
            for donor in sorted(range(self.R), key=lambda a: (self.q[a][r], a)):
                outgoing = sum(n for (a, _), n in g.items() if a == donor)
                incoming = sum(n for (_, b), n in g.items() if b == r)
                # line 7: the donor's surplus less what it gave, and what the receiver lacks (O9, O10)
                chunks = min(left[donor] - max(outgoing, min(left[donor], d[donor])), d[r] - incoming)
                if donor != r and chunks > 0:
                    g[donor, r] = chunks
        return {key: n for key, n in g.items() if n}

    @staticmethod
    def demand(job: SiteJob, workers: list[int], ps: int, r: int, k: int) -> Any:
        """Amount of resource k at site r: m_i^k y_i^r + n_i^k s_i^r."""
        return F(job.worker[k]) * workers[r] + (F(job.ps[k]) if r == ps else 0)
