"""The terms behind a decision of Okita: what `explain` shows, recomputed from the decisions of the slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .alg1 import OkitaDecision
from .osf import TentativePlan, every_plan
from .pa import Terms, Weights, exchange_costs, rooms, terms
from .sites import SiteJob, SitePlacement, Sites
from .slots import Decision, free_after


@dataclass(frozen=True)
class Choice:
    """One N of the enumeration: its l, and what the plan costs in bandwidth and latency."""

    workers: int
    slots: int
    parameters: float
    data: float
    latency: float

    @property
    def total(self) -> float:
        """What is compared (Alg. 1 line 9)."""
        return self.parameters + self.data + self.latency


@dataclass(frozen=True, eq=False)
class Explained:
    """The reasons for a job's placement in a slot.

    Attributes
    ----------
    decision
        With the conflict, if there was one, and both of its costs; with what moved.
    choices
        The enumeration over N for the job alone.
    placement, slots
        The plan that the rest is about, and its l: the one carried out; of a delayed job the tentative one.
    quality
        Q's terms for it, by site.
    exchange
        What the exchange of parameters costs over the plan with the PS at its site.
    runner_up
        The next best site for the PS, and its cost; None if no other has room.
    """

    decision: OkitaDecision
    choices: tuple[Choice, ...]
    placement: SitePlacement
    slots: int
    quality: Terms
    exchange: float
    runner_up: tuple[int, float] | None


def explained(
    sites: Sites, weights: Weights, jobs: dict[int, SiteJob], slot: int, decisions: Sequence[Decision], job: int
) -> Explained:  # fmt: skip
    """Explain what `decisions`, all of the slot in their order, have for a job.

    Raises
    ------
    KeyError
        If the job has no decision in this slot, or one that is not Okita's.
    """
    turn, one = next(((i, one) for i, one in enumerate(decisions) if one.job == job), (-1, None))
    if not isinstance(one, OkitaDecision) or one.tentative is None:
        raise KeyError(job)
    asked = jobs[job]
    plan: TentativePlan | None = one.tentative
    free = sites.capacity
    if one.verb == "migrate" and one.conflict is not None:
        plan, free = one.conflict.migrated, free_after(sites, jobs, decisions[:turn])
    assert plan is not None  # noqa: S101 - a migrated job has a plan
    costs = plan.slots * exchange_costs(sites, asked, rooms(sites, asked, one.left, free, weights), plan.workers)
    others = np.flatnonzero(np.isfinite(costs) & (np.arange(len(sites)) != plan.placement.ps))
    second = min(others.tolist(), key=lambda site: (costs[site], -site), default=None)
    waited = slot - asked.arrival
    return Explained(
        decision=one,
        choices=tuple(
            Choice(found.workers, found.slots, found.parameters, found.data, asked.latency(waited + found.slots))
            for found in every_plan(sites, asked, one.left, weights)
        ),
        placement=plan.placement,
        slots=plan.slots,
        quality=terms(sites, asked, one.left, free, weights),
        exchange=float(costs[plan.placement.ps]),
        runner_up=None if second is None else (second, float(costs[second])),
    )


def as_tables(found: Explained, ids: Sequence[str], name: Callable[[int], str]) -> dict[str, Any]:
    """The same in tables, sites by `ids` and jobs by `name`."""
    one, stands = found.decision, found.placement
    workers, workers_of = np.flatnonzero(stands.workers).tolist(), int(stands.workers.sum())
    second = found.runner_up
    table: dict[str, Any] = {
        "compares": "bandwidth cost and latency cost of a plan, by the number of its workers N",
        "decision": one.verb,
        "priority": one.priority,
        "plan": f"workers {workers_of}, slots {found.slots}",
        "by_workers": [
            {
                "workers": c.workers, "slots": c.slots, "exchange": c.parameters, "transfers": c.data,
                "latency": c.latency, "total": c.total,
            }
            for c in sorted(found.choices, key=lambda one: one.total)
        ],
        "sites": [
            {
                "site": ids[r], "workers": int(stands.workers[r]), "free": float(found.quality.free[r]),
                "distance": float(found.quality.distance[r]), "data": float(found.quality.data[r]),
                "Q": float(found.quality.total[r]),
            }
            for r in workers
        ],
        "ps": [
            {"site": ids[site], "exchange": cost}
            for site, cost in ((stands.ps, found.exchange), *([] if second is None else [second]))
        ],
    }  # fmt: skip
    if one.conflict is not None:
        table["conflict"] = [
            {
                "with": name(one.conflict.occupant), "leaves_after_slots": one.conflict.release,
                "migrating_costs": one.conflict.migrate_cost, "delaying_costs": one.conflict.delay_cost,
            }
        ]  # fmt: skip
    if one.transfer is not None:
        table["moved"] = [
            {"from": ids[source], "to": ids[target], "chunks": chunks}
            for source, target, chunks in one.transfer.moves.tolist()
        ]
    return table
