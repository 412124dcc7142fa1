"""Okita (Han et al.) put together from Python: Alg. 1 line by line, with OSF, PA and DTA, on three sites.

python docs/examples/okita.py
"""

import numpy as np

from skedge.core.model.latency import Linear
from skedge.policies.okita.alg1 import OkitaParams, overdrawn, priorities
from skedge.policies.okita.dta import transfer
from skedge.policies.okita.osf import every_plan, least_cost_plan, osf
from skedge.policies.okita.pa import site_rooms
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.policies.okita.slots import Progress


def okita(sites, jobs, params):
    """Alg. 1: last slot and total cost (2) of each job; every job must fit the empty sites."""
    active, ends, t = {}, {}, 0
    while len(ends) < len(jobs):  # line 2; no rule of the paper ends a job at T (O27)
        active |= {job.id: Progress(job, job.chunks) for job in jobs if job.arrival == t}  # 3
        plans = {}
        for i, p in active.items():  # 4-10: for every N the plan of OSF, which is PA and DTA; then the cheapest N
            plans[i] = least_cost_plan(p.job, every_plan(sites, p.job, p.left, params), t - p.job.arrival)
        rank = dict(zip(active, -priorities(list(active.values()), t, params), strict=True))  # 11, Eq. (4)
        free = sites.capacity.copy()  # Av
        for i in sorted(active, key=lambda i: (rank[i], active[i].job.arrival, i)):  # 12-13
            job, left, plan = active[i].job, active[i].left, plans[i]
            if overdrawn(free, plan.placement.demand(job)).any():  # 14: a conflict
                rooms = site_rooms(sites, job, left, free, params)  # Q and A of PA, in what is left
                plan = osf(sites, job, left, rooms, plan.workers, plan.slots)  # 15: migrate
                if plan is None:  # 18-20: delay; as printed only where there is no room to migrate to (O2, O3)
                    continue
            moved = transfer(sites, left, plan.placement.workers, job.rate)  # 22-23: DTA, for this slot
            free = np.maximum(free - plan.placement.demand(job), 0)  # 24
            active[i].parameter_cost += plan.placement.cost
            active[i].data_cost += job.chunk_mb * moved.cost_per_mb
            leaves = np.bincount(moved.moves[:, 0], moved.moves[:, 2], len(sites)).astype(int)
            active[i].left = left - np.minimum(left, moved.trained) - leaves  # Eq. (3)
            if not active[i].left.any():  # 25-28
                ends[i] = t, active[i].bandwidth + job.latency(t + 1 - job.arrival)
        active, t = {i: p for i, p in active.items() if i not in ends}, t + 1
    return ends


if __name__ == "__main__":
    gpus_and_memory = np.array([[4.0, 32.0], [2.0, 16.0], [4.0, 16.0]])
    cost = np.array([[0.0, 0.02, 0.05], [0.02, 0.0, 0.03], [0.05, 0.03, 0.0]])  # per MB
    sites = Sites(gpus_and_memory, cost)
    kind = {"rate": 5.0, "chunk_mb": 40.0, "exchange_mb": 100.0, "worker": (1, 4), "ps": (0, 4)}
    jobs = [SiteJob(i, i // 2, data=(20, 10, 12), latency=Linear(10.0 + i), **kind) for i in range(4)]
    done = okita(sites, jobs, OkitaParams())
    for i, (last, total) in sorted(done.items()):
        print(f"job {i}: slots {jobs[i].arrival} to {last}, cost {total:.1f}")
    print(f"total cost {sum(total for _, total in done.values()):.1f}")
