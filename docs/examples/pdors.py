"""PD-ORS (Yu et al.) put together from Python: prices, admission and randomized rounding, on three machines.

python docs/examples/pdors.py
"""

import numpy as np

from skedge.core.model.value import Sigmoid
from skedge.policies.pdors.alg4 import PdorsAdmission, PdorsParams
from skedge.policies.pdors.job import TrainingJob
from skedge.policies.pdors.prices import pdors_prices


def pd_ors(jobs, history, capacity, horizon, seed=1):
    """Alg. 1: the admitted plans by job, the answers with their reasons, and the loads with their prices."""
    prices = pdors_prices(history, capacity, horizon)  # U^r, mu and L, (13) and (14), from past jobs (P8)
    rounding = PdorsParams(theta="rounded", gain=1.0, tries=50)  # Alg. 4: G_delta and S of (27)-(28)
    pdors = PdorsAdmission(capacity, horizon, prices, np.random.default_rng(seed), rounding)
    loads, plans, answers = pdors.loads, {}, {}  # step 1: rho = 0, so p = Q(0) = L, (12)
    for job in sorted(jobs, key=lambda job: (job.arrival, job.id)):
        # step 2: the best completion (Alg. 2) by Theta (Alg. 3, Eq. (21)), which adds up theta of each slot (Alg. 4)
        answers[job.id] = answer = pdors.answer(job)
        if answer.plan is None or answer.plan.payoff <= 0:  # step 4: x_i = 0, for good
            continue
        plans[job.id] = answer.plan  # step 3: x_i = 1
        for slot_plan in answer.plan.slots:
            load = np.outer(slot_plan.workers, job.worker) + np.outer(slot_plan.ps, job.ps)  # alpha w + beta s
            loads.take(slot_plan.slot, np.array(slot_plan.machines), load)  # rho grows, and with it p = Q(rho)
    return plans, answers, loads


if __name__ == "__main__":
    gpus_and_memory = np.array([[4.0, 32.0], [4.0, 32.0], [2.0, 32.0]])
    kind = {"sample_time": 1e-3, "gradient_mb": 20.0, "ratio": 2.0, "internal_mb": 2e5, "external_mb": 2e4}
    kind |= {"batch": 8, "worker": (1, 4), "ps": (0, 4)}
    jobs = [
        TrainingJob(i, i // 2, work, utility=Sigmoid(height, 1.0, 3.0), **kind)  # theta_1 = height
        for i, (work, height) in enumerate([(10_000, 40.0), (6_000, 40.0), (4_000, 30.0), (2_000, 0.03)])
    ]
    plans, answers, loads = pd_ors(jobs, jobs[:3], gpus_and_memory, horizon=4)
    for i, answer in answers.items():
        print(f"job {i}: {answer.reason}")
        for s in plans[i].slots if i in plans else ():
            print(f"    slot {s.slot}, {s.kind}: machines {s.machines}, workers {s.workers}, PSs {s.ps}")
    utility, payoffs = (sum(getattr(plan, name) for plan in plans.values()) for name in ("utility", "payoff"))
    print(f"total utility {utility:.2f}; dual objective (10) {payoffs + loads.value:.2f}")
