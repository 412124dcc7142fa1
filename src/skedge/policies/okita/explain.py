"""The terms behind a decision of Okita: what `explain` shows, recomputed from the decisions of the slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .alg1 import OkitaDecision
from .osf import TentativePlan, every_plan
from .pa import Terms, Weights, exchange_costs, site_rooms, terms
from .sites import SiteJob, SitePlacement, Sites
from .slots import Decision, free_after


@dataclass(frozen=True)
class Choice:
    """One N of the enumeration (lines 5-8): its l, and the costs of its plan in bandwidth and latency."""

    workers: int
    slots: int
    parameter_cost: float
    data_cost: float
    latency: float

    @property
    def total(self) -> float:
        """The cost that Alg. 1 line 9 compares."""
        return self.parameter_cost + self.data_cost + self.latency


@dataclass(frozen=True, eq=False)
class PlacementExplanation:
    """The terms behind a job's placement in a slot.

    Attributes
    ----------
    decision
        The decision, with the conflict, if any, its two costs, and the transfers.
    choices
        The enumeration over N for the job alone.
    placement, slots
        The plan that the rest is about, and its l: the one carried out; of a delayed job the tentative one.
    quality
        Q's terms for it, by site.
    exchange
        Cost of the exchange of parameters over the plan with the PS at its site.
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


def explain_decision(
    sites: Sites, weights: Weights, jobs: dict[int, SiteJob], slot: int, decisions: Sequence[Decision], job: int
) -> PlacementExplanation:  # fmt: skip
    """Explain the decision for a job, from the decisions of its slot.

    Parameters
    ----------
    sites, weights
        The sites as they were in the slot, and parameters of PA.
    jobs, slot
        All active jobs by id, and t.
    decisions
        All decisions of the slot, in their order: a migration saw what those before it left.
    job
        The id of the job.

    Raises
    ------
    KeyError
        If the job has no decision in this slot, or one that is not Okita's.
    """
    turn, decision = next(((i, decision) for i, decision in enumerate(decisions) if decision.job == job), (-1, None))
    if not isinstance(decision, OkitaDecision) or decision.tentative is None:
        raise KeyError(job)
    site_job = jobs[job]
    plan: TentativePlan | None = decision.tentative
    free = sites.capacity
    if decision.verb == "migrate" and decision.conflict is not None:
        plan, free = decision.conflict.migrated_plan, free_after(sites, jobs, decisions[:turn])
    assert plan is not None  # noqa: S101 - a migrated job has a plan
    rooms = site_rooms(sites, site_job, decision.left, free, weights)
    costs = plan.slots * exchange_costs(sites, site_job, rooms, plan.workers)
    other_sites = np.flatnonzero(np.isfinite(costs) & (np.arange(len(sites)) != plan.placement.ps))
    runner_up = min(other_sites.tolist(), key=lambda site: (costs[site], -site), default=None)
    waited = slot - site_job.arrival
    return PlacementExplanation(
        decision=decision,
        # recomputed by the plain form, which shows every N; the search skips those that its bounds rule out
        choices=tuple(
            Choice(
                tentative.workers,
                tentative.slots,
                tentative.parameter_cost,
                tentative.data_cost,
                site_job.latency(waited + tentative.slots),
            )
            for tentative in every_plan(sites, site_job, decision.left, weights)
        ),
        placement=plan.placement,
        slots=plan.slots,
        quality=terms(sites, site_job, decision.left, free, weights),
        exchange=float(costs[plan.placement.ps]),
        runner_up=None if runner_up is None else (runner_up, float(costs[runner_up])),
    )


def as_tables(explanation: PlacementExplanation, ids: Sequence[str], name: Callable[[int], str]) -> dict[str, Any]:
    """An explanation in tables, with sites named by `ids` and jobs by `name`."""
    decision, placement = explanation.decision, explanation.placement
    worker_sites, n_workers = np.flatnonzero(placement.workers).tolist(), int(placement.workers.sum())
    runner_up = explanation.runner_up
    table: dict[str, Any] = {
        "compares": "bandwidth cost and latency cost of a plan, by the number of its workers N",
        "decision": decision.verb,
        "priority": decision.priority,
        "plan": f"workers {n_workers}, slots {explanation.slots}",
        "by_workers": [
            {
                "workers": c.workers, "slots": c.slots, "exchange": c.parameter_cost,
                "transfers": c.data_cost, "latency": c.latency, "total": c.total,
            }
            for c in sorted(explanation.choices, key=lambda choice: choice.total)
        ],
        "sites": [
            {
                "site": ids[r], "workers": int(placement.workers[r]), "free": float(explanation.quality.free[r]),
                "distance": float(explanation.quality.distance[r]), "data": float(explanation.quality.data[r]),
                "Q": float(explanation.quality.total[r]),
            }
            for r in worker_sites
        ],
        "ps": [
            {"site": ids[site], "exchange": cost}
            for site, cost in ((placement.ps, explanation.exchange), *([] if runner_up is None else [runner_up]))
        ],
    }  # fmt: skip
    if decision.conflict is not None:
        table["conflict"] = [
            {
                "with": name(decision.conflict.occupant), "leaves_after_slots": decision.conflict.release,
                "migrating_costs": decision.conflict.migrate_cost, "delaying_costs": decision.conflict.delay_cost,
            }
        ]  # fmt: skip
    if decision.transfer is not None:
        table["moved"] = decision.transfer.table(ids)
    return table
