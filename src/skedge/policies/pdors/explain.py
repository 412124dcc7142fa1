"""The terms behind an admission or rejection by PD-ORS and OASiS, in tables."""

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

    Slots count from 0, completions are END times.

    Parameters
    ----------
    job, answer
        The job that was offered, and the answer.
    cluster
        For the names of servers and resources.
    admits
        As in :func:`would_admit`.
    """
    ids, plan = cluster.server_ids, answer.plan
    table: dict[str, Any] = {
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
        table["schedule"] = [
            {
                "slot": slot_plan.slot, "case": slot_plan.kind, "levels": slot_plan.quanta,
                "workers": sum(slot_plan.workers), "ps": sum(slot_plan.ps), "cost": slot_plan.cost,
                "workers + PSs by server": _where(slot_plan, ids),
            }
            for slot_plan in plan.slots
        ]  # fmt: skip
        table["dearest"] = [
            {
                "slot": c.slot, "server": ids[c.machine], "resource": cluster.resources[c.resource],
                "amount": c.amount, "price": c.price, "cost": c.cost,
            }
            for c in answer.dearest
        ]  # fmt: skip
    return table


def _where(slot_plan: SlotPlan, ids: list[str]) -> str:
    """Workers and PSs by machine, in a line."""
    counts = zip(slot_plan.machines, slot_plan.workers, slot_plan.ps, strict=True)
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
    batch = smallest_true(lambda n: admits(replace(job, batch=n)), job.batch, _MOST_BATCH * job.batch)
    changes = [] if batch is None else [f"a batch of {batch} instead of {job.batch}"]
    # counted in thousandths left out, as `smallest_true` looks for the smallest number
    left_out = smallest_true(lambda n: admits(_with_work(job, _PARTS - n)), 0, _PARTS - 1)
    if left_out is not None:
        work = _with_work(job, _PARTS - left_out).work
        changes.append(f"{work} mini-batches instead of {job.work} ({1 - left_out / _PARTS:.1%} of its work)")
    levels_now = job.levels
    levels = (
        None
        if levels_now is None
        else smallest_true(lambda n: admits(replace(job, levels=n)), levels_now, _MOST_LEVELS * levels_now)
    )
    if levels is not None:
        changes.append(f"{levels} levels of work instead of {levels_now} (the policy's `levels`)")
    finer = "" if levels_now is None else " nor finer levels"
    return "; or ".join(changes) or f"neither a larger batch nor less work{finer}"


_MOST_BATCH, _MOST_LEVELS, _PARTS = 4096, 4, 1000
"""Limits of the changes that are tried: multiples of the batch and of the levels; work in thousandths."""


def _height(job: TrainingJob, answer: AdmissionAnswer) -> str:
    """The shortfall of utility, and the height that makes up for it."""
    # u is proportional to its height theta_1, so cost / utility is the factor that a completion needs
    reachable = [(c / u, int(end)) for end, u, c in zip(answer.ends, answer.utility, answer.cost, strict=True) if u > 0]
    factor, end = min(reachable)
    height = f"a height of more than {job.utility.height * factor:.6g} instead of {job.utility.height:g}"
    return f"utility higher by more than {answer.shortfall:.6g}; or {height}, to be complete by slot {end}"


def _with_work(job: TrainingJob, parts: int) -> TrainingJob:
    """A copy of the job scaled to `parts` / 1000 of its work."""
    return replace(job, work=max(1, job.work * parts // _PARTS))


def smallest_true(holds: Callable[[int], bool], low: int, limit: int) -> int | None:
    """The smallest n in (low, limit] for which `holds(n)`; assumes that `holds` is monotone.

    By doubling the distance, then bisection. None if `holds` is false at every doubling. Where it is not monotone, n is
    some number for which it holds while it does not hold for n - 1.
    """
    step = max(low, 1)
    high = min(low + step, limit)
    while not holds(high):
        if high == limit:
            return None
        step *= 2
        low, high = high, min(high + step, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
