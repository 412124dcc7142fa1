"""The plans that a batch scheduler compared for one job, for ``skedge explain``; not on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import SECOND

from .deployment import COST_C, COST_D, NO_PLAN, Deployment, DeploymentRequest, cost_c
from .prices import LoadProfile, window_price

DeploymentSearch = Callable[[DeploymentRequest, int, LoadProfile, LoadProfile, Ints], Deployment]
"""COST_C or COST_D: the cheapest deployment of D_u workers, whose workers by server go into the last argument."""

_PLACEMENT = {COST_C: "one server", COST_D: "spread", NO_PLAN: "none"}


def compare_plans(
    request: DeploymentRequest,
    plan: Deployment,
    y: Ints,
    workers: LoadProfile,
    ps: LoadProfile,
    cost_d_search: DeploymentSearch,
    names: list[str],
) -> dict[str, Any]:
    """The terms of the plan chosen, the prices that it pays, and the plans that it was chosen from, cheapest first.

    Parameters
    ----------
    request
        The job and the servers that it may use.
    plan
        The plan chosen; NO_PLAN if there was none.
    y
        Workers of the plan by server, shape ``(servers,)``.
    workers, ps
        Loads and prices of the batch.
    cost_d_search
        The COST_D in use.
    names
        Names of the servers, in the order of `request`.
    """
    plans = sorted(_plans(request, workers, ps, cost_d_search), key=lambda p: (p.cost, p.slots, p.kind, p.workers))
    return {
        "compares": "eta = 1 - cost, the price of workers and PS over the window; then completion, one server, D_u",
        "batch": request.interval.bit_length(),
        "tau_s": request.interval * request.slot / SECOND,
        "eta": None if plan.kind == NO_PLAN else 1 - plan.cost,
        "D_u": plan.workers,
        "placement": _PLACEMENT[plan.kind],
        "slots": plan.slots,
        "prices": [
            {
                "server": name,
                "workers": int(y[i]),
                "price_of_one": window_price(workers, int(request.worker_row[i]), 0, plan.slots) if y[i] else 0.0,
                "ps": int(i == plan.ps),
                "price_of_ps": window_price(ps, int(request.ps_row[i]), 0, plan.slots) if i == plan.ps else 0.0,
            }
            for i, name in enumerate(names)
            if y[i] or i == plan.ps
        ],
        "plans": [
            {"D_u": p.workers, "placement": _PLACEMENT[p.kind], "slots": p.slots, "cost": p.cost, "eta": 1 - p.cost}
            for p in plans
        ],
    }


def _plans(
    request: DeploymentRequest, workers: LoadProfile, ps: LoadProfile, cost_d_search: DeploymentSearch
) -> Iterator[Deployment]:
    """The cheapest plan of every D_u on one server, and spread, where there is one."""
    scratch = np.zeros(len(request.colocated), np.int64)
    for n in range(1, request.max_workers + 1):
        for deploy in (cost_c, cost_d_search):
            plan = deploy(request, n, workers, ps, scratch)
            if plan.kind != NO_PLAN:
                yield plan
