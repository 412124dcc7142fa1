"""Rules on prices that rise with the load, M29 and M30: those of PD-ORS, (12) and Alg. 1, and of OASiS.

They apply if the run gives the lowest and highest prices: parameters ``low`` and ``high`` of ``run.json``, by group of
servers; with n groups, server i belongs to group i mod n. Loads and prices are recomputed from the tables of plans and
prices, admission by admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skedge.analysis.columns import Columns, Table
from skedge.core.model.cluster import Floats
from skedge.core.model.ties import RESTATED, SAME

from .rules import Findings


@dataclass
class _PriceLedger:
    """Load and price by (slot, server, resource), and bounds L and U of the price by (server, resource)."""

    load: Floats
    price: Floats
    low: Floats
    high: Floats

    def prices_at(self, capacity: Floats) -> Floats:
        """The price (12) at the present load: L (U/L)^(rho/C); 0 if there is no price."""
        share = np.divide(self.load, capacity, out=np.ones_like(self.load), where=capacity > 0)
        priced = self.high > 0
        ratio = np.where(priced, self.high, 1.0) / np.where(priced, self.low, 1.0)
        return np.where(priced, self.low * ratio ** np.minimum(share, 1.0), 0.0)


def check_prices(c: Columns, findings: Findings, params: Mapping[str, Any]) -> None:
    """Check both rules, if the run gives its lowest prices."""
    low, high, horizon = params.get("low"), params.get("high"), c.scenario.physics.slots
    if low is None or high is None or horizon is None:
        return
    ledger = _empty_ledger(c, _numbers(low), _numbers(high), horizon)
    first = _admissions(c.plans)
    _bounds(c, findings, ledger)
    for job in dict.fromkeys(c.plans["job"].tolist()):
        rows = first[job]
        _payoff(c, findings, ledger, job, rows, int(params.get("completion") == "index"))
        _add_load(c, ledger, job, rows)
        _price_changes(c, findings, ledger, job)
    unplanned = ~np.isin(c.prices["job"], c.plans["job"])
    template = "changes prices, but has no plan"
    findings.add_rows("M29", unplanned, c.prices["job"], c.prices["made_at"], template)
    _rejections(c, findings)


def _numbers(value: object) -> Floats:
    """Numbers from ``run.json``, which stores them as text separated by semicolons."""
    return np.array(value.split(";") if isinstance(value, str) else value, np.float64)


def _empty_ledger(c: Columns, low: Floats, high: Floats, horizon: int) -> _PriceLedger:
    cluster = c.scenario.cluster
    group = np.arange(len(cluster.servers)) % len(low)
    by_server = high.reshape(len(low), -1)[group]
    ledger = _PriceLedger(np.zeros((horizon, *cluster.amounts.shape)), np.zeros(0), low[group][:, None], by_server)
    ledger.price = ledger.prices_at(cluster.amounts)
    return ledger


def _admissions(plans: Table) -> dict[int, list[int]]:
    """Rows of each job's first plan, with which it was admitted."""
    first = dict[int, list[int]]()
    made_at = plans["made_at"]
    for row, job in enumerate(plans["job"].tolist()):
        rows = first.setdefault(job, [])
        # later plans of the job change nothing of its admission
        if not rows or made_at[rows[0]] == made_at[row]:
            rows.append(row)
    return first


def _slots(c: Columns, row: int) -> slice:
    slot = c.scenario.physics.slot
    return slice(int(c.plans["from"][row]) // slot, int(c.plans["to"][row]) // slot)


def _demand(c: Columns, job: int, row: int) -> Floats:
    """Amount of each resource that a row of a plan takes."""
    jobs, p = c.scenario.jobs, c.plans
    return p["workers"][row] * jobs.worker_needs[job] + p["ps"][row] * jobs.ps_needs[job]


def _payoff(c: Columns, findings: Findings, ledger: _PriceLedger, job: int, rows: list[int], index: int) -> None:
    """M30: an admitted job's value is its utility less its cost at the prices before its admission, and above 0."""
    utility, slot, made_at = c.scenario.jobs.utility[job], c.scenario.physics.slot, int(c.plans["made_at"][rows[0]])
    if utility is None:
        findings.add("M30", job, made_at, "is planned at prices, but has no utility")
        return
    server = c.plans["server"]
    cost = sum(float((ledger.price[_slots(c, row), server[row]] @ _demand(c, job, row)).sum()) for row in rows)
    end = max(_slots(c, row).stop for row in rows)
    # slots from the admission to the end; the last one is counted from 0 where completion is an index
    payoff = utility(end - -(-made_at // slot) - index) - cost
    recorded_value = _value(c, job, "reserve")
    if recorded_value is None or abs(recorded_value - payoff) > RESTATED * max(1.0, abs(payoff), cost):
        findings.add(
            "M30",
            job,
            made_at,
            f"the value of its plan is {recorded_value} on record; utility less cost is {payoff:.9g}",
        )
    elif not recorded_value > 0:
        findings.add("M30", job, made_at, f"is admitted with a plan of value {recorded_value:.9g}; it must be above 0")


def _value(c: Columns, job: int, verb: str) -> float | None:
    d = c.decisions
    rows = np.flatnonzero((d["job"] == job) & d.has("verb", verb))
    value = d.frame["value"][int(rows[0])] if len(rows) else None
    return None if value is None else float(value)


def _rejections(c: Columns, findings: Findings) -> None:
    """M30: a rejected job has no plan with a value above 0."""
    d = c.decisions
    value = d.frame["value"].fill_null(0.0).to_numpy()
    wrong = d.has("verb", "reject") & (value > 0)
    findings.add_rows(
        "M30", wrong, d["job"], d["time"], "is rejected with a plan of value {:.9g}; it must be at most 0", value
    )


def _add_load(c: Columns, ledger: _PriceLedger, job: int, rows: list[int]) -> None:
    for row in rows:
        ledger.load[_slots(c, row), c.plans["server"][row]] += _demand(c, job, row)


def _bounds(c: Columns, findings: Findings, ledger: _PriceLedger) -> None:
    """M29: prices are from L to U."""
    p, place = c.prices, _resource(c)
    price, low, high = p["price"], ledger.low[p["server"], 0], ledger.high[p["server"], place]
    wrong = (price < low * (1 - RESTATED)) | (price > high * (1 + RESTATED))
    template = "a price is {:.9g}; it must be from L = {:.9g} to U = {:.9g}"
    findings.add_rows("M29", wrong, p["job"], p["made_at"], template, price, low, high)


def _resource(c: Columns) -> np.ndarray:
    place = {name: i for i, name in enumerate(c.scenario.cluster.resources)}
    return np.array([place[name] for name in c.prices.frame["resource"].to_list()], np.int64)


def _price_changes(c: Columns, findings: Findings, ledger: _PriceLedger, job: int) -> None:
    """M29: a decision never lowers prices, and afterwards all prices follow from the load."""
    p, slot, place = c.prices, c.scenario.physics.slot, _resource(c)
    made_at = int(c.plans["made_at"][np.flatnonzero(c.plans["job"] == job)[0]])
    names, servers = c.scenario.cluster.resources, c.scenario.cluster.server_ids
    for row in np.flatnonzero(p["job"] == job):
        if p["made_at"][row] != made_at:
            text = f"changes prices at {int(p['made_at'][row])} µs; it was admitted at {made_at} µs"
            findings.add("M29", job, int(p["made_at"][row]), text)
        cells = (slice(int(p["from"][row]) // slot, int(p["to"][row]) // slot), p["server"][row], place[row])
        before = ledger.price[cells].max(initial=0.0)
        if p["price"][row] < before * (1 - RESTATED):
            findings.add(
                "M29", job, int(p["made_at"][row]), f"a price falls from {before:.9g} to {p['price'][row]:.9g}"
            )
        elif p["price"][row] <= before * (1 + SAME):
            findings.add(
                "M29",
                job,
                int(p["made_at"][row]),
                f"a price is recorded as changed to {before:.9g}, which it was already",
            )
        ledger.price[cells] = p["price"][row]
    expected = ledger.prices_at(c.scenario.cluster.amounts)
    wrong = np.abs(ledger.price - expected) > RESTATED * expected
    for t, h, r in zip(*(axis[: findings.limit] for axis in np.nonzero(wrong)), strict=True):
        text = f"the price of {names[r]} on {servers[h]} in slot {t} is {ledger.price[t, h, r]:.9g}"
        findings.add("M29", job, made_at, f"{text}; the plans give {expected[t, h, r]:.9g}")
    # on from the right prices, so that one error is found once
    ledger.price = np.where(wrong, expected, ledger.price)
