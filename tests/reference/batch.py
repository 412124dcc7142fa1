"""A_online of She et al. as a plain program: loads and prices per slot in lists, every D_u, placements one by one.

The algorithms stand in the order of the paper and comments give their lines; where the printed text cannot be meant,
the entry of ``docs/errata.md`` stands beside the code as H1, H2, ... It knows nothing of the product but the scenario:
announced work, upload delays, capacities. Time is in slots. It is held to the golden cases, and by brute force over all
placements (:meth:`System.all_placements`).
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
    """The policy's parameters.

    `batchsche`: delays are ignored; plans by cost, worker-slots, completion; what runs on is found by the next batch.
    `printed_tie`: among plans of equal cost the first that is tried stays. `where_placed`: uploads begin at tau.
    """

    T: int = 300
    F1: float = 1.0
    F2: float = 1.0
    normed: bool = True
    strict: bool = True
    batchsche: bool = False
    printed_tie: bool = False
    where_placed: bool = False


@dataclass(frozen=True)
class Plan:
    """A schedule l of a job: `kind` C (one server) or D (spread), workers y by server, server of the PS, d_j, cost."""

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
    """The answer to a job that was offered in the batch at tau: its plan and utility, or None and 0."""

    tau: int
    job: int
    plan: Plan | None
    eta: float


Watch = Callable[["System", int, Plan | None], None]
"""Called with the loads, the job and its best plan at each job's turn."""


# -- Alg. 1: A_online -------------------------------------------------------------------------------------------------


def a_online(scenario: Scenario, setting: Setting, watch: Watch | None = None) -> tuple[list[Decision], set[int]]:
    """Alg. 1: all decisions, in order, and the jobs that can never run."""
    jobs, slot = scenario.jobs, scenario.physics.slot
    never = {job for job in range(len(jobs)) if not System(scenario, setting, 1).could_run(job)}
    waiting, decisions = set(range(len(jobs))) - never, []
    running: list[tuple[int, Plan, int]] = []
    tau = 1  # line 1: tau_i = 2^(i-1)
    while waiting:
        # a plan of this policy ends inside its interval, so each batch finds an empty system (H18); BatchSche's may not
        system = System(scenario, setting, tau)
        for job, plan, end in running:
            system.take(job, plan, end)
        # lines 3-5: J_i, the jobs that arrived before tau_i and still wait (H16)
        batch = sorted(job for job in waiting if jobs.arrival[job] < tau * slot)
        # line 7
        for decision in a_maxsche(system, batch, watch):
            decisions.append(decision)
            if decision.plan is not None:
                # lines 8-11: it runs; the others are offered again in the next batch
                running.append((decision.job, decision.plan, system.end(decision.job, decision.plan)))
                waiting.discard(decision.job)
        tau *= 2
    return decisions, never


# -- Alg. 2: A_maxsche ------------------------------------------------------------------------------------------------


def a_maxsche(system: System, batch: list[int], watch: Watch | None) -> Iterator[Decision]:
    """Alg. 2, line 2: the jobs of a batch by arrival and id (H20)."""
    for job in batch:
        plan = best_plan(system, job)
        if watch is not None:
            watch(system, job, plan)
        # line 15: eta_j = 1 - cost > 0, once a job (H6)
        if plan is not None and plan.cost < 1:
            # lines 16-18: f and g rise, and with them the prices that the next job finds
            system.take(job, plan, system.end(job, plan))
            yield Decision(system.tau, job, plan, 1 - plan.cost)
        else:
            yield Decision(system.tau, job, None, 0.0)


def best_plan(system: System, job: int) -> Plan | None:
    """Alg. 2, lines 4-14: over D_u, and over one server and spread, with a tie of H7. c_j follows from D_u (H3)."""
    best: Plan | None = None
    for n in range(1, int(system.scenario.jobs.chunks[job]) + 1):
        for plan in (cost_c(system, job, n), cost_d(system, job, n)):
            if plan is not None and (best is None or _beats(plan, best, system.setting)):
                best = plan
    return best


def _beats(a: Plan, b: Plan, setting: Setting) -> bool:
    """Less cost; then the earliest completion, one server, fewer workers. BatchSche: first fewer worker-slots."""
    if abs(a.cost - b.cost) > 1e-9:
        return a.cost < b.cost
    if setting.printed_tie:  # lines 7 and 11 replace a plan by a cheaper one only
        return False
    if setting.batchsche and a.d * a.workers != b.d * b.workers:
        return a.d * a.workers < b.d * b.workers
    return (a.d, a.kind, a.workers) < (b.d, b.kind, b.workers)


# -- Alg. 3: COST_C ---------------------------------------------------------------------------------------------------


def cost_c(system: System, job: int, n: int) -> Plan | None:
    """Alg. 3: the server on which `n` workers and the PS cost least, over the whole window (H11)."""
    best: Plan | None = None
    for plan in system.on_one_server(job, n):
        # servers with different xi have different d_j: of equal costs the earliest completion
        if best is None or _is_less(plan.cost, best.cost) or (not _is_less(best.cost, plan.cost) and plan.d < best.d):
            best = plan
    return best


# -- Alg. 4: COST_D ---------------------------------------------------------------------------------------------------


def cost_d(system: System, job: int, n: int) -> Plan | None:
    """Alg. 4, exact (H14): workers where they are cheapest, the PS where it is cheapest, over the whole window."""
    u, v = system.types(job)
    # lines 2 and 3
    eligible, d = system.eligible(job), system.slots(job, n, 0)
    if d > system.tau:
        return None
    # lines 4-7: as many as there is room for, the cheapest server first
    y, missing = [0] * system.count, n
    prices = {s: sum(system.lambda_(s, u, t) for t in range(d)) for s in eligible if system.free_workers(s, u, d) >= 1}
    for s in _cheapest_first(prices):
        y[s] = int(min(missing, system.free_workers(s, u, d)))
        missing -= y[s]
    # in place of lines 12-38, which move workers to the server of the PS
    ps_prices = {s: sum(system.mu(s, v, t) for t in range(d)) for s in eligible if system.free_ps(s, v, d) >= 1}
    if missing or not ps_prices:  # lines 8-10, 34-36
        return None
    ps_server = _cheapest_first(ps_prices)[0]
    return Plan("D", tuple(y), ps_server, d, system.cost(job, tuple(y), ps_server, d))


def _cheapest_first(price: dict[int, float]) -> list[int]:
    """Servers by price, those within 1e-9 of each other in the order given."""
    rest, order = dict(price), []
    while rest:
        best = next(iter(rest))
        for s, amount in rest.items():
            if _is_less(amount, rest[best]):
                best = s
        order.append(best)
        del rest[best]
    return order


def _is_less(a: float, b: float) -> bool:
    """Less by more than the rounding of a sum."""
    return a < b * (1 - 1e-9)


# -- (7), (8), (9): loads, prices, costs ------------------------------------------------------------------------------


class System:
    """Loads of the batch at tau: f[s][u][t] and g[s][v][t] below W[s][u] and P[s][v], slots counted from tau."""

    def __init__(self, scenario: Scenario, setting: Setting, tau: int) -> None:
        cluster = scenario.cluster
        self.scenario, self.setting, self.tau = scenario, setting, tau
        self.count = len(cluster.servers)
        cloud = {} if cluster.cloud is None else {cluster.cloud: INFINITE}
        self.W = [[cloud.get(s, float(n)) for n in row] for s, row in enumerate(cluster.workers.tolist())]
        self.P = [[cloud.get(s, float(n)) for n in row] for s, row in enumerate(cluster.ps.tolist())]
        # the batch owns the slots from tau to 2 tau
        self.f = [[[0] * tau for _ in row] for row in self.W]
        self.g = [[[0] * tau for _ in row] for row in self.P]
        self.order = sorted(range(self.count), key=lambda s: (s == cluster.cloud, s))

    def price(self, load: int, capacity: float, F: float, types: int) -> float:
        """(7), (8): theta^(load / capacity) - 1 with the exponent of H1, divided as H2 asks; 0 where all is free."""
        if math.isinf(capacity):
            return 0.0
        scale = 2 * self.setting.T * self.count * types
        price = (scale * F + 1) ** (load / capacity) - 1
        return price / scale if self.setting.normed else price

    def lambda_(self, s: int, u: int, t: int) -> float:
        return self.price(self.f[s][u][t], self.W[s][u], self.setting.F1, len(self.W[s]))

    def mu(self, s: int, v: int, t: int) -> float:
        return self.price(self.g[s][v][t], self.P[s][v], self.setting.F2, len(self.P[s]))

    def cost(self, job: int, y: tuple[int, ...], ps_server: int, d: int) -> float:
        """(9), slot by slot."""
        u, v = self.types(job)
        return sum(
            sum(self.lambda_(s, u, t) * n for s, n in enumerate(y) if n) + self.mu(ps_server, v, t) for t in range(d)
        )

    def take(self, job: int, plan: Plan, end: int) -> None:
        """Raise the loads by a plan up to slot `end`; the batch knows the slots until 2 tau."""
        u, v = self.types(job)
        for t in range(min(end - self.tau, self.tau)):
            for s, n in enumerate(plan.y):
                self.f[s][u][t] += n
            self.g[plan.ps_server][v][t] += 1

    def free_workers(self, s: int, u: int, d: int) -> float:
        return self.W[s][u] - max(self.f[s][u][:d])

    def free_ps(self, s: int, v: int, d: int) -> float:
        return self.P[s][v] - max(self.g[s][v][:d])

    # -- a job --------------------------------------------------------------------------------------------------------

    def types(self, job: int) -> tuple[int, int]:
        """u_j and v_j."""
        return int(self.scenario.jobs.worker_type[job]), int(self.scenario.jobs.ps_type[job])

    def could_run(self, job: int) -> bool:
        """True if some server has a worker, and some a PS, of the job's types."""
        (u, v), cluster = self.types(job), self.scenario.cluster
        return cluster.cloud is not None or bool(cluster.workers[:, u].any() and cluster.ps[:, v].any())

    def slots(self, job: int, n: int, xi: int) -> int:
        """d_j = E D M / (p D_u), rounded up to µs and then to slots (H12)."""
        time = -(-int(self.scenario.announced_work[job, xi]) // n)
        return -(-time // self.scenario.physics.slot)

    def xi_on(self, s: int) -> int:
        """xi of a job that is on server s alone."""
        return int(self.scenario.physics.colocation == "one_server" or s == self.scenario.cluster.cloud)

    def eligible(self, job: int) -> list[int]:
        """Servers with a_j + Delta_js < tau, in the order of ties."""
        slot, arrival = self.scenario.physics.slot, int(self.scenario.jobs.arrival[job])

        def has_data(s: int) -> bool:
            uploaded = arrival + int(upload_delay(self.scenario.delays, job, s))
            return uploaded < self.tau * slot if self.setting.strict else uploaded <= self.tau * slot

        return [s for s in self.order if self.setting.batchsche or has_data(s)]

    def end(self, job: int, plan: Plan) -> int:
        """Slot in which the plan ends: a job waits for its data on its workers."""
        slot = self.scenario.physics.slot
        begin = self.tau if self.setting.where_placed else -(-int(self.scenario.jobs.arrival[job]) // slot)
        uploads = [begin + int(upload_delay(self.scenario.delays, job, s)) // slot for s, n in enumerate(plan.y) if n]
        return max(self.tau, *uploads) + plan.d

    # -- placements, one by one ---------------------------------------------------------------------------------------

    def fits(self, job: int, y: tuple[int, ...], ps_server: int, d: int) -> bool:
        """(9a), (9b), and c_j <= tau_(i+1) (H3)."""
        u, v = self.types(job)
        return (
            d <= self.tau
            and all(self.free_workers(s, u, d) >= n for s, n in enumerate(y) if n)
            and self.free_ps(ps_server, v, d) >= 1
        )

    def on_one_server(self, job: int, n: int) -> Iterator[Plan]:
        """Every way to put n workers and a PS on one server."""
        for s in self.eligible(job):
            y, d = tuple(n * (k == s) for k in range(self.count)), self.slots(job, n, self.xi_on(s))
            if self.fits(job, y, s, d):
                yield Plan("C", y, s, d, self.cost(job, y, s, d))

    def all_placements(self, job: int, n: int) -> Iterator[Plan]:
        """Every way to put n workers and a PS on eligible servers that (9a)-(9c) allow, xi = 0."""
        eligible, d = self.eligible(job), self.slots(job, n, 0)
        if d > self.tau:
            return
        for amounts in product(range(n + 1), repeat=len(eligible)):
            if sum(amounts) != n:
                continue
            y = [0] * self.count
            for s, amount in zip(eligible, amounts, strict=True):
                y[s] = amount
            for ps_server in eligible:
                if self.fits(job, tuple(y), ps_server, d):
                    yield Plan("D", tuple(y), ps_server, d, self.cost(job, tuple(y), ps_server, d))
