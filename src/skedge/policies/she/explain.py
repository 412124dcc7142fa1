"""The plans that a batch scheduler compared for one job, for ``skedge explain``; not on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import SECOND

from .deployment import COST_C, COST_D, NO_PLAN, Ask, Deployment, cost_c
from .prices import Book, window_price

Deploy = Callable[[Ask, int, Book, Book, Ints], Deployment]
"""COST_C or COST_D: the cheapest deployment of D_u workers, whose workers by server go into the last argument."""

_PLACEMENT = {COST_C: "one server", COST_D: "spread", NO_PLAN: "none"}


def compared(
    ask: Ask, chosen: Deployment, y: Ints, workers: Book, ps: Book, spread: Deploy, names: list[str]
) -> dict[str, Any]:
    """The terms of the plan chosen, the prices that it pays, and the plans that it was chosen from, cheapest first.

    `y` are its workers by server, `names` the servers, both in the order of `ask`; `spread` is the COST_D in use.
    """
    plans = sorted(_plans(ask, workers, ps, spread), key=lambda p: (p.cost, p.slots, p.kind, p.workers))
    return {
        "compares": "eta = 1 - cost, the price of workers and PS over the window; then completion, one server, D_u",
        "batch": ask.interval.bit_length(),
        "tau_s": ask.interval * ask.slot / SECOND,
        "eta": 1 - chosen.cost,
        "D_u": chosen.workers,
        "placement": _PLACEMENT[chosen.kind],
        "slots": chosen.slots,
        "prices": [
            {
                "server": name,
                "workers": int(y[i]),
                "price_of_one": window_price(workers, int(ask.worker_row[i]), 0, chosen.slots) if y[i] else 0.0,
                "ps": int(i == chosen.ps),
                "price_of_ps": window_price(ps, int(ask.ps_row[i]), 0, chosen.slots) if i == chosen.ps else 0.0,
            }
            for i, name in enumerate(names)
            if y[i] or i == chosen.ps
        ],
        "plans": [
            {"D_u": p.workers, "placement": _PLACEMENT[p.kind], "slots": p.slots, "cost": p.cost, "eta": 1 - p.cost}
            for p in plans
        ],
    }


def _plans(ask: Ask, workers: Book, ps: Book, spread: Deploy) -> Iterator[Deployment]:
    """The cheapest plan of every D_u on one server, and spread, where there is one."""
    scratch = np.zeros(len(ask.xi), np.int64)
    for n in range(1, ask.most + 1):
        for deploy in (cost_c, spread):
            plan = deploy(ask, n, workers, ps, scratch)
            if plan.kind != NO_PLAN:
                yield plan
