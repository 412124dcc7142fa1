"""Verification that a record keeps the rules of the model (``docs/model.md``).

The checks use only the scenario and the record: no kernel, simulator or policy. They can therefore detect errors that
those have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import Columns
from skedge.analysis.metrics.dual import sum_alpha_s, sum_beta_s
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .alpha import check_cloud_alpha, check_lane_alpha, check_lemma_4
from .batches import check_batches
from .chunks import Chunks, check_chunks, check_minibatches, check_outages
from .data import check_storage, check_uploads
from .gang_uploads import check_early_uploads, check_gang_uploads
from .gangs import check_gang_slots, check_gang_starts, check_gangs
from .jobs import (
    check_answers,
    check_completions,
    check_decision_times,
    check_failures_caused,
    check_planned,
    check_preempted_flags,
    check_runs_in_plans,
    check_slot_boundaries,
)
from .lag import Lags, check_lag
from .lane_parts import RUNS_PER_RANGE, lane_ranges, rows_of_lanes
from .lanes import LaneRows, check_lanes, lane_rows, sort_by_lane
from .live import check_trained
from .names import known_rows
from .orders import check_order, check_orders, check_ps_orders, check_suspensions
from .outages import check_failures
from .plans import check_plans
from .prices import check_prices
from .ps import check_edge_first, check_ps, check_ps_slots, check_slot_types, check_slot_use, cloud_ps
from .resources import check_counts, check_resources
from .rules import RULES, Findings, Rule, Violation, check_all
from .sharing import check_sharing
from .sites import check_sites
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
    findings, live = Findings(scenario, limit), meta.get("world") is not None
    # the other rules index arrays with the numbers in a row, so invalid rows are left to M1
    c = known_rows(scenario, schedule, findings, meta.get("late_s") if live else None)
    colocation, lanes, lags = check_jobs(c, findings, meta, tolerance)
    check_shared(lanes, colocation, lags, findings, meta, tolerance)
    # M38: only live runs have checkpoints
    if live:
        check_trained(c, findings, meta.get("trained") or {})
    return findings.all()


def check_jobs(
    c: Columns, findings: Findings, meta: Mapping[str, Any], slack: int
) -> tuple[Colocation, LaneRows, Lags | None]:
    """Check the rules that look at one job at a time; returns what the others need of the dispatched chunks.

    They can be checked on the jobs part by part, each with its rows of all tables; so can :func:`check_slot_jobs`.

    Parameters
    ----------
    findings
        Receives the violations.
    meta
        Metadata of the run (:func:`verify`).
    slack
        Tolerance in comparisons of times [µs], >= 0.
    """
    live, lanes = meta.get("world") is not None, meta.get("lanes") or {}
    chunks = Chunks(c)
    lags = Lags(chunks, live=live)
    preempted = partial(check_preempted_flags, preemptive=lanes.get("preemptive", True), live=live)
    # no rule reads what another has found, so large records have them checked in threads
    rules: list[Rule] = [
        lambda findings: check_answers(c, findings),
        lambda findings: None if live else check_failures_caused(c, findings),
        lambda findings: check_completions(c, findings, slack),
        lambda findings: check_decision_times(c, findings, slack),
        lambda findings: check_runs_in_plans(c, findings, slack),
        lambda findings: check_plans(c, findings, slack),
        lambda findings: check_slot_boundaries(c, findings, slack),
        lambda findings: check_minibatches(c, findings),
        lambda findings: check_lag(lags, findings, slack),
        lambda findings: check_chunks(chunks, lags, findings, slack, haprf=lanes.get("rank") == "haprf"),
        lambda findings: check_outages(c, findings, slack),
        lambda findings: check_time_limits(c, findings, slack),
        lambda findings: check_work(chunks, findings, measured=live),
        lambda findings: preempted(chunks, findings, lags.yielding_runs(slack)),
        lambda findings: check_uploads(c, findings, slack),
        lambda findings: check_orders(c, findings, slack),
        lambda findings: check_ps(c, findings, slack),
    ]
    check_all(rules, findings, in_threads=len(c.runs) > RUNS_PER_RANGE)
    return chunks.colocation, lane_rows(chunks), lags if lags.takes_turns.any() else None


def check_slot_jobs(c: Columns, colocation: Colocation, findings: Findings, slack: int) -> None:
    """Check the further rules on single jobs of a cluster with slots.

    Parameters
    ----------
    colocation
        Zeta of dispatched jobs, from :func:`check_jobs`.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    """
    check_ps_slots(c, findings, slack, colocation)
    check_slot_types(c, findings)
    check_gang_uploads(c, findings)


def check_shared(
    k: LaneRows, colocation: Colocation, lags: Lags | None, findings: Findings, meta: Mapping[str, Any], slack: int
) -> None:  # fmt: skip
    """Check the rules on what jobs share, and on gangs: lanes, PS slots, storage, resources, the order of decisions.

    Parameters
    ----------
    k, colocation, lags
        What :func:`check_jobs` returns.
    findings
        Receives the violations.
    meta
        Metadata of the run (:func:`verify`).
    slack
        Tolerance in comparisons of times [µs], >= 0.
    """
    c, live, promises = k.c, meta.get("world") is not None, meta.get("promises") or {}
    check_order(c.decisions, findings)
    if not live:
        check_failures(c, findings)
    # M34 restates Q only where lanes are always in service and no chunk waits for slower ones
    steady = c.scenario.physics.mtbf is None and not c.decisions.has("verb", "fail").any()
    projected = not live and not c.scenario.jobs.max_lag.any() and steady
    mode = str(promises.get("alpha")) if projected else ""
    preemptive = bool((meta.get("lanes") or {}).get("preemptive", True))

    def check_range(lanes: tuple[int, int], findings: Findings) -> None:
        part = sort_by_lane(k) if lanes == k.lanes else sort_by_lane(k, lanes, rows_of_lanes(k, lanes))
        check_lane_alpha(part, findings, mode, preemptive=preemptive)
        check_lanes(part, lags, findings, slack, preemptive=preemptive)

    # chunks that take turns are followed through all lanes
    ranges = lane_ranges(k) if lags is None else [k.lanes]
    check_all([partial(check_range, lanes) for lanes in ranges], findings, in_threads=len(ranges) > 1)
    if projected:
        check_cloud_alpha(c, colocation, findings, mode)
        check_lemma_4(c.scenario, findings, mode, sum_alpha_s(c), sum_beta_s(c))
    check_storage(c, findings)
    if not live and promises.get("ps") == "edge_first":
        check_edge_first(c, findings, c.scenario.jobs.ps_type[c.ps["job"]], cloud_ps(c, colocation))
    if not live and isinstance(promises.get("batches"), dict):
        check_batches(c, findings, promises["batches"])
    check_gangs(c, findings, slack)
    _check_kind(c, colocation, findings, slack, meta)


def _check_kind(
    c: Columns, colocation: Colocation, findings: Findings, tolerance: int, meta: Mapping[str, Any]
) -> None:
    """Check the rules that apply only to one kind of cluster."""
    live, promises = meta.get("world") is not None, meta.get("promises") or {}
    rule, max_workers, slots = "M27", c.scenario.jobs.batch, False
    match c.scenario.cluster.kind:
        case "slots":
            rule, max_workers, slots = "M5", c.scenario.jobs.chunks, True
            check_slot_jobs(c, colocation, findings, tolerance)
            check_slot_use(c, findings, tolerance)
            check_gang_slots(c, findings, tolerance)
            check_sharing(c, findings, tolerance, sticky=bool((meta.get("params") or {}).get("sticky")))
            check_gang_starts(c, findings, tolerance)
            if not live:
                check_gang_work(c, findings)
        case "resources":
            check_gang_uploads(c, findings)
            check_resources(c, findings, tolerance)
            check_counts(c, findings, by_ratio=promises.get("ps") == "ratio")
            check_ps_orders(c, findings, tolerance)
            check_gang_starts(c, findings, tolerance)
            if not live:
                check_gang_work(c, findings)
            check_prices(c, findings, meta.get("params") or {})
            if promises.get("plans"):
                check_planned(c, findings)
        case "sites":
            check_resources(c, findings, tolerance)
            check_ps_orders(c, findings, tolerance)
            check_sites(c, findings, tolerance)
    if not live:
        check_suspensions(c, findings, str(promises.get("preempts")), slots=slots)
    check_early_uploads(
        c, findings, tolerance, rule, max_workers, promised=promises.get("uploads") == "with_allocations"
    )
