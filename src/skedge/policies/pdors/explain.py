"""Why PD-ORS and OASiS admitted a job or not: what they compared, in tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skedge.core.model.cluster import Cluster

from .admission import AdmissionAnswer, SlotPlan
from .job import TrainingJob


def as_tables(
    job: TrainingJob, answer: AdmissionAnswer, cluster: Cluster, admits: Callable[[TrainingJob], bool]
) -> dict[str, Any]:  # fmt: skip
    """Utility against cost by completion, the best schedule, its dearest charges, what would have admitted the job.

    Slots count from 0, completions are END times; `admits` as in :func:`would_admit`.
    """
    ids, plan = cluster.server_ids, answer.plan
    found: dict[str, Any] = {
        "compares": "utility and cost of the cheapest schedule, by completion, at the run's prices",
        "answer": answer.reason,
        "would_admit": would_admit(job, answer, admits),
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


def would_admit(job: TrainingJob, answer: AdmissionAnswer, admits: Callable[[TrainingJob], bool]) -> str:
    """The smallest change of one of the job's numbers that would have admitted it, in a sentence.

    All at the prices of the run and with the same draws. Where the best schedule is too dear the height is computed;
    where there is none, a larger batch, less work and, where the policy's `levels` is a number, finer levels are tried,
    one at a time: `admits` says of a changed job whether it would have been admitted.
    """
    if answer.admitted:
        return "it is admitted"
    if answer.reason.startswith("solver"):
        return "a solver that ends in time, see the reason"
    if answer.plan is not None:
        return _height(job, answer)
    batch = least(lambda n: admits(replace(job, batch=n)), job.batch, _MOST_BATCH * job.batch)
    found = [] if batch is None else [f"a batch of {batch} instead of {job.batch}"]
    # less work is a larger part left out
    less = least(lambda n: admits(_part(job, _PARTS - n)), 0, _PARTS - 1)
    if less is not None:
        found.append(
            f"{_part(job, _PARTS - less).work} mini-batches instead of {job.work} ({1 - less / _PARTS:.1%} of its work)"
        )
    now = job.levels
    levels = None if now is None else least(lambda n: admits(replace(job, levels=n)), now, _MOST_LEVELS * now)
    if levels is not None:
        found.append(f"{levels} levels of work instead of {now} (the policy's `levels`)")
    finer = "" if now is None else " nor finer levels"
    return "; or ".join(found) or f"neither a larger batch nor less work{finer}"


_MOST_BATCH, _MOST_LEVELS, _PARTS = 4096, 4, 1000
"""How far changes are tried: multiples of the batch and of the levels; work in parts of a thousand."""


def _height(job: TrainingJob, answer: AdmissionAnswer) -> str:
    """By how much the utility falls short, and the height that makes up for it: u is a multiple of theta1."""
    reachable = [(c / u, int(end)) for end, u, c in zip(answer.ends, answer.utility, answer.cost, strict=True) if u > 0]
    factor, end = min(reachable)
    height = f"a height of more than {job.utility.height * factor:.6g} instead of {job.utility.height:g}"
    return f"utility higher by more than {answer.shortfall:.6g}; or {height}, to be complete by slot {end}"


def _part(job: TrainingJob, parts: int) -> TrainingJob:
    """A copy of the job scaled to `parts` / 1000 of its work."""
    return replace(job, work=max(1, job.work * parts // _PARTS))


def least(holds: Callable[[int], bool], low: int, most: int) -> int | None:
    """A number above `low`, at most `most`, for which `holds` is, while of the one before it it is not.

    By doubling the distance, then bisection: the least there is, if `holds` changes once. None if no doubling holds.
    """
    step = max(low, 1)
    high = min(low + step, most)
    while not holds(high):
        if high == most:
            return None
        step *= 2
        low, high = high, min(high + step, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
