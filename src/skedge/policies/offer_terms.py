"""Why PD-ORS and OASiS admitted a job or not: what they compared, in tables."""

from __future__ import annotations

import math
from typing import Any

from skedge.core.model import Cluster
from skedge.core.speed import ceil_almost

from .admission import Answer, SlotPlan
from .training_job import TrainingJob


def told(job: TrainingJob, answer: Answer, cluster: Cluster, least_time: float) -> dict[str, Any]:
    """Utility against cost by completion, the best schedule, its dearest charges, what would have admitted the job.

    Slots count from 0, completions are END times; `least_time` is worker-slots per sample at the best rate.
    """
    ids, plan = cluster.server_ids, answer.plan
    found: dict[str, Any] = {
        "compares": "utility and cost of the cheapest schedule, by completion",
        "answer": answer.reason,
        "would_admit": would_admit(job, answer, least_time),
        "completions": [
            {"end": int(end), "utility": float(u), "cost": float(c), "payoff": float(u - c)}
            for end, u, c in zip(answer.ends, answer.utility, answer.cost, strict=True)
            if c < math.inf
        ],
    }
    if plan is not None:
        found["schedule"] = [
            {
                "slot": part.slot, "case": part.kind, "levels": part.quanta, "workers": sum(part.workers),
                "ps": sum(part.ps), "cost": part.cost,
                "workers + PSs by server": _where(part, ids),
            }
            for part in plan.slots
        ]  # fmt: skip
        found["dearest"] = [
            {
                "slot": c.slot, "server": ids[c.machine], "resource": cluster.resources[c.resource],
                "amount": c.amount, "price": c.price, "cost": c.cost,
            }
            for c in answer.dearest
        ]  # fmt: skip
    return found


def _where(part: SlotPlan, ids: list[str]) -> str:
    """Workers and PSs by machine, in a line."""
    counts = zip(part.machines, part.workers, part.ps, strict=True)
    return ", ".join(f"{ids[h]} {w}+{s}" for h, w, s in counts)


def would_admit(job: TrainingJob, answer: Answer, least_time: float) -> str:
    """The smallest change of one of the job's numbers that would have admitted it, in a sentence."""
    if answer.admitted:
        return "it is admitted"
    if answer.plan is not None:
        reachable = [
            (c / u, int(end)) for end, u, c in zip(answer.ends, answer.utility, answer.cost, strict=True) if u > 0
        ]
        factor, end = min(reachable)
        height = f"a height of more than {job.utility.height * factor:.6g} instead of {job.utility.height:g}"
        return f"utility higher by more than {answer.shortfall:.6g}; or {height}, to be complete by slot {end}"
    slots = len(answer.ends)
    if job.shortest(least_time) > slots:
        least = int(ceil_almost(job.work * least_time / slots))
        return (
            f"a batch of {least} or more instead of {job.batch}, or {job.shortest(least_time)} slots before the horizon"
        )
    return "no utility: at no price is there a schedule"
