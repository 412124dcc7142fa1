"""A_online (She et al.) put together from Python: batches, prices and plans, on two edge servers and a cloud.

python docs/examples/batch.py
"""

import numpy as np

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import HOUR, SECOND
from skedge.policies.she.deployment import EARLIEST, NO_PLAN, DeploymentRequest, PlanComparison, best_plan
from skedge.policies.she.prices import empty_profile, from_zero, take, with_room


def a_online(scenario, T=300, F1=1.0, F2=1.0):
    """Alg. 1, for one type of worker and of PS: (tau, job, workers by server, plan) of each job, in order."""
    jobs, slot = scenario.jobs, scenario.physics.slot
    tau, waiting, accepted = 1, set(range(len(jobs))), []  # line 1: tau_i = 2^(i-1)
    while waiting:
        batch = sorted(job for job in waiting if jobs.arrival[job] < tau * slot)  # lines 3-5: J_i
        # every plan ends by tau_(i+1), so f = g = 0 again (H18)
        accepted += a_maxsche(scenario, batch, tau, *idle(scenario.cluster, T, F1, F2))  # line 7
        waiting -= {job for _, job, *_ in accepted}  # line 11
        tau *= 2
    return accepted


def idle(cluster, T, F1, F2):
    """Loads f = 0 and g = 0 with the prices lambda and mu, (7) and (8); the cloud has no limit and no price (H21)."""
    limits = (np.append(slots[:-1].sum(axis=1).astype(float), np.inf) for slots in (cluster.workers, cluster.ps))
    scale = 2 * T * len(cluster.servers)  # theta - 1 at F = 1, as U = V = 1
    return [empty_profile(limit, from_zero(F, scale, normed=True)) for limit, F in zip(limits, (F1, F2), strict=True)]


def a_maxsche(scenario, batch, tau, workers, ps):
    """Alg. 2: the jobs of a batch that are accepted."""
    cluster, slot = scenario.cluster, scenario.physics.slot
    colocated = np.arange(len(cluster.servers)) == cluster.cloud  # xi = 1 for a job on this server alone ...
    colocated |= scenario.physics.colocation == "one_server"  # ... which is any server in the paper
    for job in batch:  # line 2
        s = np.flatnonzero(scenario.jobs.arrival[job] + upload_row(scenario.delays, job) < tau * slot)  # Alg. 3, line 3
        work, most = scenario.announced_work[job], int(scenario.jobs.chunks[job])  # E D M / p by xi; D_j
        request = DeploymentRequest(work, most, slot, tau, s, s, colocated[s].astype(np.int64))
        y = np.zeros(len(s), np.int64)
        plan = best_plan(request, workers, ps, PlanComparison(literal=0, tie=EARLIEST), y)  # lines 4-14, 17: y_jsu
        if plan.kind == NO_PLAN or plan.cost >= 1:  # line 15: eta_j = 1 - cost; the next batch offers the job again
            continue
        workers, ps = with_room(workers), with_room(ps)
        for server, n in zip(s[y > 0], y[y > 0], strict=True):  # line 18: f and g rise, and prices with them
            take(workers, server, n, 0, plan.slots)
        take(ps, s[plan.ps], 1, 0, plan.slots)
        yield tau, job, dict(zip(s[y > 0].tolist(), y[y > 0].tolist(), strict=True)), plan


def example():
    """Six jobs of 2 to 6 chunks in slots of an hour."""
    edge = [Server(name, capacity={"worker:gpu": n, "ps:cpu": 2}) for name, n in (("north", 4), ("south", 2))]
    cluster = Cluster([*edge, Server("cloud", "cloud")])
    hour = HOUR / SECOND
    common = {"epochs": 10, "minibatch_s": 60.0, "gradient_mb": 500.0, "bandwidth_mbps": 400.0}
    common |= {"upload_edge_s": (hour / 2, hour), "upload_cloud_s": (10 * hour, 20 * hour)}
    jobs = [
        Job(f"job-{i}", i * hour / 2, chunks=chunks, minibatches=6, worker_type="gpu", ps_type="cpu", **common)
        for i, chunks in enumerate((4, 6, 2, 5, 3, 2))
    ]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slotted=True, colocation="one_server"))


if __name__ == "__main__":
    scenario = example()
    for tau, job, workers, plan in a_online(scenario):
        placement = ", ".join(f"{n} on {scenario.cluster.server_ids[s]}" for s, n in workers.items())
        slots, eta = f"slots {tau} to {tau + plan.slots}", f"eta {1 - plan.cost:.4f}"
        print(f"tau = {tau}: {scenario.jobs.ids[job]}, {slots}, {placement}; {eta}")
