"""Verification that a record keeps the rules of the model (``docs/model.md``).

The checks use only the scenario and the record: no kernel, simulator or policy. They can therefore detect errors that
those have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule

from .alpha import check_alpha
from .batches import check_batches
from .chunks import Chunks, check_chunks, check_lanes, check_outages, minibatches
from .data import check_storage, check_uploads
from .gangs import check_gang_slots, check_gang_starts, check_gangs
from .jobs import (
    answers,
    completions,
    decision_times,
    planned,
    plans_kept,
    preempted_flags,
    slot_boundaries,
    undisturbed,
)
from .lag import Lags, check_lag
from .live import check_trained
from .names import known_rows
from .orders import check_orders, check_ps_orders, check_suspensions
from .plans import check_plans
from .prices import check_prices
from .ps import check_edge_first, check_ps, check_ps_slots
from .resources import check_counts, check_resources
from .rules import RULES, Findings, Violation
from .sharing import check_sharing
from .sites import check_sites
from .supplies import check_ahead, check_supplies
from .work import check_gang_work, check_work

__all__ = ["RULES", "Violation", "verify"]


def verify(
    scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any], *, tolerance: int = 0, limit: int = 20
) -> list[Violation]:
    """Check all rules on `schedule`; returns the violations, an empty list if there are none.

    Parameters
    ----------
    meta
        Metadata of the run. ``lanes``: a mapping with ``preemptive`` (bool, default True) and ``rank`` (rule M20 is
        checked if it is ``haprf``). ``params``: rules M29 and M30 are checked if these have ``low`` and ``high``. For a
        live run, which has ``world``, also ``late_s``: by job id, the excess of its training time over the announced
        time, as measured by its trainer, which M8 allows; and ``trained``: by job id, the mini-batches of each chunk in
        its last checkpoint (M38).
    tolerance
        Tolerance in comparisons of times [µs], >= 0: 0 for a simulation; for a live run the delays of clocks and
        messages.
    limit
        Maximum number of violations reported per rule, >= 1.

    Returns
    -------
    Violations by rule, the first `limit` of each. Rows that violate M1 are omitted from all other rules.
    """
    found, live = Findings(scenario, limit), meta.get("world") is not None
    lanes, promises = meta.get("lanes") or {}, meta.get("promises") or {}
    preemptive = bool(lanes.get("preemptive", True))
    c = known_rows(scenario, schedule, found, meta.get("late_s") if live else None)
    answers(c, found)
    if not live:
        undisturbed(c, found)
    completions(c, found, tolerance)
    decision_times(c, found, tolerance)
    plans_kept(c, found, tolerance)
    check_plans(c, found, tolerance)
    slot_boundaries(c, found, tolerance)
    minibatches(c, found)
    chunks = Chunks(c)
    lags = Lags(chunks, live=live)
    check_lag(lags, found, tolerance)
    check_chunks(chunks, lags, found, tolerance, haprf=lanes.get("rank") == "haprf")
    check_outages(c, found, tolerance)
    check_work(chunks, found, measured=live)
    if not live and not scenario.jobs.max_lag.any() and scenario.physics.mtbf is None:
        check_alpha(chunks, found, str(promises.get("alpha")), preemptive=preemptive)
    check_lanes(chunks, lags, found, tolerance, preemptive=preemptive)
    preempted_flags(c, found, chunks.last[chunks.run], lags.gave_up(tolerance), preemptive=preemptive, live=live)
    check_uploads(c, found, tolerance)
    check_orders(c, found, tolerance)
    check_storage(c, found)
    check_ps(c, found, tolerance)
    if not live and promises.get("ps") == "edge_first":
        check_edge_first(c, found, chunks.zeta)
    if not live and isinstance(promises.get("batches"), dict):
        check_batches(c, found, promises["batches"])
    check_gangs(c, found, tolerance)
    _check_kind(chunks, found, tolerance, meta)
    if live:
        check_trained(c, found, meta.get("trained") or {})
    return found.all()


def _check_kind(chunks: Chunks, found: Findings, tolerance: int, meta: Mapping[str, Any]) -> None:
    """Check the rules that apply only to one kind of cluster."""
    c, live, promises = chunks.c, meta.get("world") is not None, meta.get("promises") or {}
    rule, most, slots = "M27", c.scenario.jobs.batch, False
    match c.scenario.cluster.kind:
        case "slots":
            rule, most, slots = "M5", c.scenario.jobs.chunks, True
            check_supplies(c, found)
            check_ps_slots(c, found, tolerance, chunks.zeta)
            check_gang_slots(c, found, tolerance)
            check_sharing(c, found, tolerance, sticky=bool((meta.get("params") or {}).get("sticky")))
            check_gang_starts(c, found, tolerance)
            if not live:
                check_gang_work(c, found)
        case "resources":
            check_supplies(c, found)
            check_resources(c, found, tolerance)
            check_counts(c, found, by_ratio=promises.get("ps") == "ratio")
            check_ps_orders(c, found, tolerance)
            check_gang_starts(c, found, tolerance)
            if not live:
                check_gang_work(c, found)
            check_prices(c, found, meta.get("params") or {})
            if promises.get("plans"):
                planned(c, found)
        case "sites":
            check_resources(c, found, tolerance)
            check_ps_orders(c, found, tolerance)
            check_sites(c, found, tolerance)
    if not live:
        check_suspensions(c, found, str(promises.get("preempts")), slots=slots)
    check_ahead(c, found, tolerance, rule, most, promised=promises.get("uploads") == "with_allocations")
