"""A_online of She et al. as a plain program: loads and prices per slot in lists, every D_u, placements one by one.

It knows nothing of the product but the scenario: announced work, upload delays, capacities. Time is in slots. It is
held to the golden cases, and by brute force over all placements (:func:`all_placements`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from skedge.core.model.network import upload_delay
from skedge.core.model.scenario import Scenario

INFINITE = math.inf


@dataclass(frozen=True)
class Setting:
    """The policy's parameters."""

    T: int = 300
    F1: float = 1.0
    F2: float = 1.0
    normed: bool = True
    strict: bool = True
    batchsche: bool = False
    """Delays are ignored; plans by cost, worker-slots, completion; what runs on is found by the next batch."""


@dataclass(frozen=True)
class Plan:
    """Where, for how long, at what price."""

    kind: str
    y: tuple[int, ...]
    ps_server: int
    d: int
    cost: float

    @property
    def workers(self) -> int:
        return sum(self.y)


@dataclass(frozen=True)
class Decision:
    """What became of a job that was offered in the batch at tau: its plan and utility, or None and 0."""

    tau: int
    job: int
    plan: Plan | None
    eta: float


class System:
    """Loads of the batch at tau: f[s][u][t] and g[s][v][t], slots counted from tau."""

    def __init__(self, scenario: Scenario, setting: Setting, tau: int) -> None:
        cluster = scenario.cluster
        self.scenario, self.setting, self.tau = scenario, setting, tau
        self.count = len(cluster.servers)
        cloud = {} if cluster.cloud is None else {cluster.cloud: INFINITE}
        self.W = [[cloud.get(s, float(n)) for n in row] for s, row in enumerate(cluster.workers.tolist())]
        self.P = [[cloud.get(s, float(n)) for n in row] for s, row in enumerate(cluster.ps.tolist())]
        self.f = [[[0] * tau for _ in row] for row in self.W]
        self.g = [[[0] * tau for _ in row] for row in self.P]
        self.order = sorted(range(self.count), key=lambda s: (s == cluster.cloud, s))

    def price(self, load: int, capacity: float, F: float, types: int) -> float:
        """(7), (8) with the exponent, and with the norm of H2."""
        if math.isinf(capacity):
            return 0.0
        scale = 2 * self.setting.T * self.count * types
        raised = (scale * F + 1) ** (load / capacity) - 1
        return raised / scale if self.setting.normed else raised

    def lambda_(self, s: int, u: int, t: int) -> float:
        return self.price(self.f[s][u][t], self.W[s][u], self.setting.F1, len(self.W[s]))

    def mu(self, s: int, v: int, t: int) -> float:
        return self.price(self.g[s][v][t], self.P[s][v], self.setting.F2, len(self.P[s]))

    def free_workers(self, s: int, u: int, d: int) -> float:
        return self.W[s][u] - max(self.f[s][u][:d])

    def free_ps(self, s: int, v: int, d: int) -> float:
        return self.P[s][v] - max(self.g[s][v][:d])

    def slots(self, job: int, n: int, xi: int) -> int:
        exact = -(-int(self.scenario.announced_work[job, xi]) // n)
        return -(-exact // self.scenario.physics.slot)

    def eligible(self, job: int) -> list[int]:
        """Servers with a_j + Delta_js < tau, in the order of ties."""
        slot, arrival = self.scenario.physics.slot, int(self.scenario.jobs.arrival[job])

        def there(s: int) -> bool:
            at = arrival + int(upload_delay(self.scenario.delays, job, s))
            return at < self.tau * slot if self.setting.strict else at <= self.tau * slot

        return [s for s in self.order if self.setting.batchsche or there(s)]

    def types(self, job: int) -> tuple[int, int]:
        return int(self.scenario.jobs.worker_type[job]), int(self.scenario.jobs.ps_type[job])

    def xi_on(self, s: int) -> int:
        """Where a job that is on server s alone has xi = 1."""
        return int(self.scenario.physics.colocation == "one_server" or s == self.scenario.cluster.cloud)

    def cost(self, job: int, y: tuple[int, ...], ps_server: int, d: int) -> float:
        """(9), slot by slot."""
        u, v = self.types(job)
        return sum(
            sum(self.lambda_(s, u, t) * n for s, n in enumerate(y) if n) + self.mu(ps_server, v, t) for t in range(d)
        )

    def fits(self, job: int, y: tuple[int, ...], ps_server: int, d: int) -> bool:
        u, v = self.types(job)
        return (
            d <= self.tau
            and all(self.free_workers(s, u, d) >= n for s, n in enumerate(y) if n)
            and self.free_ps(ps_server, v, d) >= 1
        )

    def all_placements(self, job: int, n: int) -> Iterator[Plan]:
        """Every way to put n workers and a PS on eligible servers that (9a)-(9c) allow, xi = 0."""
        usable, d = self.eligible(job), self.slots(job, n, 0)
        if d > self.tau:
            return
        for amounts in product(range(n + 1), repeat=len(usable)):
            if sum(amounts) != n:
                continue
            y = [0] * self.count
            for s, amount in zip(usable, amounts, strict=True):
                y[s] = amount
            for ps_server in usable:
                if self.fits(job, tuple(y), ps_server, d):
                    yield Plan("D", tuple(y), ps_server, d, self.cost(job, tuple(y), ps_server, d))

    def on_one_server(self, job: int, n: int) -> Iterator[Plan]:
        """Every way to put n workers and a PS on one server."""
        for s in self.eligible(job):
            y, d = tuple(n * (other == s) for other in range(self.count)), self.slots(job, n, self.xi_on(s))
            if self.fits(job, y, s, d):
                yield Plan("C", y, s, d, self.cost(job, y, s, d))

    def greedy(self, job: int, n: int) -> Plan | None:
        """COST_D: workers where they are cheapest, the PS where it is cheapest."""
        u, v = self.types(job)
        usable, d = self.eligible(job), self.slots(job, n, 0)
        if d > self.tau:
            return None
        y, left = [0] * self.count, n
        window = {s: sum(self.lambda_(s, u, t) for t in range(d)) for s in usable if self.free_workers(s, u, d) >= 1}
        for s in _cheapest_first(window):
            y[s] = int(min(left, self.free_workers(s, u, d)))
            left -= y[s]
        hosts = {s: sum(self.mu(s, v, t) for t in range(d)) for s in usable if self.free_ps(s, v, d) >= 1}
        if left or not hosts:
            return None
        ps_server = _cheapest_first(hosts)[0]
        return Plan("D", tuple(y), ps_server, d, self.cost(job, tuple(y), ps_server, d))

    def best(self, job: int) -> Plan | None:
        """Alg. 2, lines 4-14, with the ties of H7."""
        best: Plan | None = None
        for n in range(1, int(self.scenario.jobs.chunks[job]) + 1):
            central = list(self.on_one_server(job, n))
            found = [_first_least(central)] if central else []
            spread = self.greedy(job, n)
            for plan in [*found, *([spread] if spread else [])]:
                if best is None or _beats(plan, best, self.setting.batchsche):
                    best = plan
        return best

    def end(self, job: int, plan: Plan) -> int:
        """Slot in which the plan ends: a job waits for its data on its workers."""
        slot = self.scenario.physics.slot
        seen = -(-int(self.scenario.jobs.arrival[job]) // slot)
        ready = [seen + int(upload_delay(self.scenario.delays, job, s)) // slot for s, n in enumerate(plan.y) if n]
        return max(self.tau, *ready) + plan.d

    def take(self, job: int, plan: Plan, until: int) -> None:
        """Book a plan up to a slot; the batch knows the slots until 2 tau."""
        u, v = self.types(job)
        for t in range(min(until - self.tau, self.tau)):
            for s, n in enumerate(plan.y):
                self.f[s][u][t] += n
            self.g[plan.ps_server][v][t] += 1


def _cheapest_first(price: dict[int, float]) -> list[int]:
    """By price, those within 1e-9 of each other in the order given."""
    left, out = dict(price), []
    while left:
        best = next(iter(left))
        for s, amount in left.items():
            if amount < left[best] * (1 - 1e-9):
                best = s
        out.append(best)
        del left[best]
    return out


def _first_least(plans: list[Plan]) -> Plan:
    best = plans[0]
    for plan in plans:
        if plan.cost < best.cost * (1 - 1e-9) or (not best.cost < plan.cost * (1 - 1e-9) and plan.d < best.d):
            best = plan
    return best


def _beats(a: Plan, b: Plan, batchsche: bool) -> bool:
    if abs(a.cost - b.cost) > 1e-9:
        return a.cost < b.cost
    if batchsche and a.d * a.workers != b.d * b.workers:
        return a.d * a.workers < b.d * b.workers
    return (a.d, a.kind, a.workers) < (b.d, b.kind, b.workers)


Watch = Callable[[System, int, Plan | None], None]


def a_online(scenario: Scenario, setting: Setting, watch: Watch | None = None) -> tuple[list[Decision], set[int]]:
    """All decisions, in order, and the jobs that can never run; `watch` is called at each job's turn."""
    jobs, cluster, slot = scenario.jobs, scenario.cluster, scenario.physics.slot
    empty = System(scenario, setting, 1)
    never = {
        job
        for job in range(len(jobs))
        if cluster.cloud is None
        and not (cluster.workers[:, empty.types(job)[0]].any() and cluster.ps[:, empty.types(job)[1]].any())
    }
    waiting, decisions, tau = set(range(len(jobs))) - never, [], 1
    held: list[tuple[int, Plan, int]] = []
    while waiting:
        system = System(scenario, setting, tau)
        for job, accepted, end in held:
            system.take(job, accepted, end)
        for job in sorted(job for job in waiting if jobs.arrival[job] < tau * slot):
            plan = system.best(job)
            if watch is not None:
                watch(system, job, plan)
            if plan is not None and plan.cost < 1:
                held.append((job, plan, system.end(job, plan)))
                system.take(*held[-1])
                waiting.discard(job)
                decisions.append(Decision(tau, job, plan, 1 - plan.cost))
            else:
                decisions.append(Decision(tau, job, None, 0.0))
        tau *= 2
    return decisions, never
