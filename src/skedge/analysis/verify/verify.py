"""Verification that a record keeps the rules of the model (``docs/model.md``).

The checks use only the scenario and the record: no kernel, simulator or policy. They can therefore detect errors that
those have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from skedge.analysis.columns import Columns
from skedge.analysis.metrics.dual import sum_alpha_s, sum_beta_s
from skedge.analysis.zeta import Zeta
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .alpha import check_cloud_alpha, check_lane_alpha, check_lemma_4
from .batches import check_batches
from .chunks import Chunks, check_chunks, check_outages, minibatches
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
from .lane_parts import RUNS, concerned, lane_ranges
from .lanes import OnLanes, by_lane, check_lanes, on_lanes
from .live import check_trained
from .names import known_rows
from .orders import check_order, check_orders, check_ps_orders, check_suspensions
from .outages import check_failures
from .plans import check_plans
from .prices import check_prices
from .ps import check_edge_first, check_ps, check_ps_slots, check_slot_types, check_slot_use, taken_away
from .resources import check_counts, check_resources
from .rules import RULES, Findings, Rule, Violation, check_all
from .sharing import check_sharing
from .sites import check_sites
from .supplies import check_ahead, check_supplies
from .time_limits import check_time_limits
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
    c = known_rows(scenario, schedule, found, meta.get("late_s") if live else None)
    zeta, lanes, lags = check_jobs(c, found, meta, tolerance)
    check_shared(lanes, zeta, lags, found, meta, tolerance)
    if live:
        check_trained(c, found, meta.get("trained") or {})
    return found.all()


def check_jobs(c: Columns, found: Findings, meta: Mapping[str, Any], slack: int) -> tuple[Zeta, OnLanes, Lags | None]:
    """Check the rules that look at one job at a time; returns what the others need of the dispatched chunks.

    They can be checked on the jobs part by part, each with its rows of all tables; so can :func:`check_slot_jobs`.
    """
    live, lanes = meta.get("world") is not None, meta.get("lanes") or {}
    chunks = Chunks(c)
    lags = Lags(chunks, live=live)
    preempted = partial(preempted_flags, preemptive=lanes.get("preemptive", True), live=live)
    rules: list[Rule] = [
        lambda found: answers(c, found),
        lambda found: None if live else undisturbed(c, found),
        lambda found: completions(c, found, slack),
        lambda found: decision_times(c, found, slack),
        lambda found: plans_kept(c, found, slack),
        lambda found: check_plans(c, found, slack),
        lambda found: slot_boundaries(c, found, slack),
        lambda found: minibatches(c, found),
        lambda found: check_lag(lags, found, slack),
        lambda found: check_chunks(chunks, lags, found, slack, haprf=lanes.get("rank") == "haprf"),
        lambda found: check_outages(c, found, slack),
        lambda found: check_time_limits(c, found, slack),
        lambda found: check_work(chunks, found, measured=live),
        lambda found: preempted(chunks, found, lags.gave_up(slack)),
        lambda found: check_uploads(c, found, slack),
        lambda found: check_orders(c, found, slack),
        lambda found: check_ps(c, found, slack),
    ]
    check_all(rules, found, side_by_side=len(c.runs) > RUNS)
    return chunks.zeta, on_lanes(chunks), lags if lags.turns.any() else None


def check_slot_jobs(c: Columns, zeta: Zeta, found: Findings, slack: int) -> None:
    """Check the further rules on single jobs of a cluster with slots."""
    check_ps_slots(c, found, slack, zeta)
    check_slot_types(c, found)
    check_supplies(c, found)


def check_shared(
    k: OnLanes, zeta: Zeta, lags: Lags | None, found: Findings, meta: Mapping[str, Any], slack: int
) -> None:  # fmt: skip
    """Check the rules on what jobs share, and on gangs: lanes, PS slots, storage, resources, the order of decisions."""
    c, live, promises = k.c, meta.get("world") is not None, meta.get("promises") or {}
    check_order(c.decisions, found)
    if not live:
        check_failures(c, found)
    steady = c.scenario.physics.mtbf is None and not c.decisions.has("verb", "fail").any()
    projected = not live and not c.scenario.jobs.max_lag.any() and steady
    mode = str(promises.get("alpha")) if projected else ""
    preemptive = bool((meta.get("lanes") or {}).get("preemptive", True))

    def of_range(lanes: tuple[int, int], found: Findings) -> None:
        part = by_lane(k) if lanes == k.lanes else by_lane(k, lanes, concerned(k, lanes))
        check_lane_alpha(part, found, mode, preemptive=preemptive)
        check_lanes(part, lags, found, slack, preemptive=preemptive)

    # chunks that take turns are followed through all lanes
    ranges = lane_ranges(k) if lags is None else [k.lanes]
    check_all([partial(of_range, lanes) for lanes in ranges], found, side_by_side=len(ranges) > 1)
    if projected:
        check_cloud_alpha(c, zeta, found, mode)
        check_lemma_4(c.scenario, found, mode, sum_alpha_s(c), sum_beta_s(c))
    check_storage(c, found)
    if not live and promises.get("ps") == "edge_first":
        check_edge_first(c, found, c.scenario.jobs.ps_type[c.ps["job"]], taken_away(c, zeta))
    if not live and isinstance(promises.get("batches"), dict):
        check_batches(c, found, promises["batches"])
    check_gangs(c, found, slack)
    _check_kind(c, zeta, found, slack, meta)


def _check_kind(c: Columns, zeta: Zeta, found: Findings, tolerance: int, meta: Mapping[str, Any]) -> None:
    """Check the rules that apply only to one kind of cluster."""
    live, promises = meta.get("world") is not None, meta.get("promises") or {}
    rule, most, slots = "M27", c.scenario.jobs.batch, False
    match c.scenario.cluster.kind:
        case "slots":
            rule, most, slots = "M5", c.scenario.jobs.chunks, True
            check_slot_jobs(c, zeta, found, tolerance)
            check_slot_use(c, found, tolerance)
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
