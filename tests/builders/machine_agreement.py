"""Dorm and Optimus on random servers with resources, set against programs of their own: what disagrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from builders.resource_scenarios import SLOT, resource_scenario
from reference import dorm, optimus
from reference.dorm import Tenant
from reference.drf import filling
from reference.machines import JobDemand, n_ps_for, place_worker
from skedge.core.events import Event, Order
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.policy import View
from skedge.policies.dorm.policy import Dorm
from skedge.recorded_run import Run
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run

Holdings = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""By job: workers and PSs by server."""


# --- Optimus


def optimus_disagreement(seed: int) -> str:
    """Where a whole run of Optimus and the plain one part; empty if nowhere."""
    skip, free = bool(seed & 1), bool(seed & 2)
    scenario = resource_scenario(seed, jobs=4 + seed % 9, servers=1 + seed % 5)
    done = run(scenario, f"optimus:skip={skip},servers={'free' if free else 'ratio'}")
    fitting = [i for i in range(len(scenario.jobs)) if _fits(scenario, _demand(scenario, i))]
    rejected = [row["job"] for row in done.jobs.iter_rows(named=True) if row["state"] == "rejected"]
    if sorted({*range(len(scenario.jobs))} - {*fitting}) != rejected:
        return f"rejected {rejected}, of which some fit an empty cluster, or not all that do not"
    jobs = [_job(scenario, i) for i in fitting]
    slots = max((row["completion"] or 0 for row in done.jobs.iter_rows(named=True)), default=0) // SLOT + 2
    expected = optimus.run(jobs, scenario.cluster.amounts.tolist(), slots, skip=skip, free=free)
    for t, held in enumerate(expected):
        theirs = {fitting[i]: (tuple(w), tuple(p)) for i, (w, p) in held.items()}
        ours = _held(done, t)
        if ours != theirs:
            return f"slot {t}: {ours} against {theirs}"
    return ""


def _demand(scenario: Scenario, job: int) -> JobDemand:
    row, resources = scenario.jobs.frame.row(job, named=True), scenario.cluster.resources
    worker, ps = (tuple(row.get(f"{kind}_needs.{name}") or 0.0 for name in resources) for kind in ("worker", "ps"))
    return JobDemand(worker, ps, float(scenario.jobs.ratio[job]), int(scenario.jobs.batch[job]))


def _fits(scenario: Scenario, demand: JobDemand) -> bool:
    left = scenario.cluster.amounts.tolist()
    nowhere = [0] * len(left)
    return place_worker(demand, n_ps_for(1, demand.ratio), left, nowhere, nowhere.copy(), 0)[1]


def _job(scenario: Scenario, i: int) -> optimus.Job:
    """The job's numbers from what it announces, an hour being a slot."""
    row, demand = scenario.jobs.frame.row(i, named=True), _demand(scenario, i)
    samples = row["epochs"] * row["chunks"] * row["minibatches"]
    compute = row["minibatch_s"] + row["ps_update_s"]
    exchange = {name: 16 * row["gradient_mb"] / row[f"{name}_mbps"] for name in ("internal", "bandwidth")}
    inside, outside = (
        samples * (compute + exchange[name] * demand.ratio / demand.max_workers) / 3600
        for name in ("internal", "bandwidth")
    )
    return optimus.Job(
        demand, int(row["arrival_s"]) // 3600, samples / demand.max_workers, compute / 3600,
        exchange["bandwidth"] / 3600, inside, outside,
    )  # fmt: skip


def _held(done: Run, slot: int) -> Holdings:
    """Workers and PSs of every job in a slot, by the record."""
    servers = done.scenario.cluster.server_ids
    found: dict[int, tuple[list[int], list[int]]] = {}
    for kind, table, name in ((0, done.schedule.runs, "workers"), (1, done.schedule.ps, "count")):
        for row in table.filter((table["start"] <= slot * SLOT) & (table["end"] > slot * SLOT)).iter_rows(named=True):
            held = found.setdefault(row["job"], ([0] * len(servers), [0] * len(servers)))
            held[kind][servers.index(row["server"])] += row[name]
    return {job: (tuple(w), tuple(p)) for job, (w, p) in found.items()}


# --- Dorm


class Watched(Dorm):
    """Dorm, and what every job held before and after each of its answers."""

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Note both."""
        before = self._holdings(view)
        yield from super().decide(event, view)
        self.seen = [*getattr(self, "seen", []), (event, before, self._holdings(view))]

    def _holdings(self, view: View) -> Holdings:
        found = {}
        for job in range(view.arrived):
            cells = np.zeros((2, len(self.cluster.servers)), np.int64)
            for kind, placement in enumerate((view.placement(job), view.ps_placement(job))):
                for server, n in placement:
                    cells[kind, server] = n
            found[job] = (tuple(cells[0].tolist()), tuple(cells[1].tolist()))
        return found


def dorm_scenario(seed: int) -> Scenario:
    """Two servers on which few jobs have few workers each, so that all partitions can be tried."""
    rng = np.random.default_rng(seed)
    scenario = resource_scenario(seed, jobs=3 + seed % 3, servers=2)
    servers = [
        Server(s.id, capacity={"gpu": float(rng.integers(2, 6)), "cpu": 15.5, "memory": 40.0})
        for s in scenario.cluster.servers
    ]
    cluster = Cluster(servers)
    return replace(scenario, cluster=cluster, jobs=Jobs(scenario.jobs.frame, cluster, scenario.jobs.fixed_delays))


def dorm_disagreement(seed: int) -> tuple[str, int]:
    """What is wrong with one of Dorm's partitions, empty if nothing, and how many partitions were judged."""
    scenario, most = dorm_scenario(seed), 1 + seed % 3
    theta1, theta2, whole = (0.05, 0.1, 0.3)[seed % 3], (0.0, 0.4, 1.0)[seed // 3 % 3], seed % 5 == 0
    policy = Watched(theta1=theta1, theta2=theta2, whole=whole, most_workers=most, gap=0, nodes=10**9)
    kernel = Kernel(scenario, policy)
    drive_to_end(kernel, SimulatedWorld(kernel))
    active: list[int] = []
    judged = 0
    for event, before, after in policy.seen:
        rows = {job: _demand(scenario, job) for job in before}
        come = [job for job in event.arrived if _fits(scenario, rows[job])]
        active = [job for job in active if job not in event.left] + come
        if not active or not (event.arrived or event.left):
            if before != after:
                return f"{event}: changed with nothing to decide", judged
            continue
        demands = [replace(rows[job], max_workers=min(most, rows[job].max_workers)) for job in active]
        had = [Tenant(one, *before[job]) for one, job in zip(demands, active, strict=True)]
        has = [Tenant(one, *after[job]) for one, job in zip(demands, active, strict=True)]
        wrong = _wrong(scenario, had, has, theta1, theta2, whole=whole)
        judged += 1
        if wrong:
            return f"at {event}: {wrong}", judged
    return "", judged


def _wrong(
    scenario: Scenario, had: list[Tenant], has: list[Tenant], theta1: float, theta2: float, *, whole: bool
) -> str:
    capacity = tuple(map(tuple, scenario.cluster.amounts.tolist()))
    total = scenario.cluster.amounts.sum(axis=0).tolist()
    running = sum(one.runs for one in had)
    loss, changed = dorm.bounds_of(theta1, theta2, len(total), running, round_loss=whole)
    best = dorm.best_use(had, capacity, loss, changed)
    if not running and not best:
        w, p = filling([one.demand for one in had], [list(row) for row in capacity], total)
        same = [(tuple(a), tuple(b)) for a, b in zip(w, p, strict=True)] == [(one.workers, one.servers) for one in has]
        return "" if same else f"DRF's filling is {w}, {p}"
    if best is None:
        return "" if had == has else "a change although no partition keeps the bounds"
    if any(sum(one.servers) != (n_ps_for(sum(one.workers), one.demand.ratio) if one.runs else 0) for one in has):
        return "PSs other than max(1, ceil(w / gamma))"
    differ = sum(a != b for a, b in zip(had, has, strict=True) if a.runs)
    apart = dorm.loss_of(has, dorm.fair_shares(has, total), total)
    if differ > changed or apart > loss + 1e-6:
        return f"{differ} changed of {changed}, loss {apart} of {loss}"
    use = dorm.use_of(has, capacity)
    return "" if abs(use - best) <= 1e-6 else f"utilisation {use}, the best is {best}"
