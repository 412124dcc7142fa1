"""Verification that a record keeps the rules of the model (``docs/model.md``).

The checks use only the scenario and the record: no kernel, simulator or policy. They can therefore detect errors that
those have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import Columns
from skedge.analysis.parts import Steps, counting, parts_of
from skedge.core.model.job_fields import Kind
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
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
from .lane_parts import RUNS_PER_RANGE
from .lanes import LaneRows, check_lanes, lane_rows
from .live import check_trained
from .names import known_rows
from .orders import check_order, check_orders, check_ps_orders, check_suspensions
from .outages import check_failures
from .parts import SharedRows, ranges_of, shared_rows
from .plans import check_plans
from .prices import check_prices
from .ps import check_edge_first, check_ps, check_ps_slots, check_slot_types, check_slot_use
from .resources import check_counts, check_resources
from .rules import RULES, Findings, Rule, Violation, check_all
from .sharing import check_sharing
from .sites import check_sites
from .time_limits import check_time_limits
from .work import check_gang_work, check_work

__all__ = ["RULES", "Violation", "verify"]


def verify(
    scenario: Scenario,
    schedule: Schedule,
    meta: Mapping[str, Any],
    *,
    tolerance: int = 0,
    limit: int = 20,
    steps: Steps | None = None,
) -> list[Violation]:
    """Check all rules on `schedule`; returns the violations, an empty list if there are none.

    Parameters
    ----------
    scenario, schedule
        The run.
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
    steps
        Called after each part of the jobs, and of the lanes.

    Returns
    -------
    Violations by rule, the first `limit` of each. Rows that violate M1 are omitted from all other rules. Of a run in
    several parts, of two runs that begin together on a lane (M4), or of chunks of one job that wait (M21), another one
    may be named, and the first violations are those by job.
    """
    findings, ranges = Findings(scenario, limit), ranges_of(scenario, schedule, meta)
    with shared_rows(scenario, schedule, several=len(ranges) > 1) as shared:
        done = counting(steps, "verifying parts", len(ranges) + len(shared.lanes.ranges))
        for first, part, rows in parts_of(scenario, schedule, ranges, done):
            _check_part(part, rows, first, shared, findings, meta, tolerance)
        _check_lanes(shared, findings, meta, tolerance, done)
    for decisions in shared.decisions():
        check_order(decisions, findings)
    _check_ps_use(shared, findings, meta, tolerance)
    if len(ranges) == 1:
        _check_undivided(shared.base, findings, meta, tolerance)
    return findings.all()


def _check_part(
    part: Scenario,
    rows: Schedule,
    first: int,
    shared: SharedRows,
    findings: Findings,
    meta: Mapping[str, Any],
    slack: int,
) -> None:
    """Check the rules that look at one job at a time on the jobs of `part`, numbered from `first` on."""
    part_findings, late_s = Findings(part, findings.limit), meta.get("late_s") if _is_live(meta) else None
    # the other rules index arrays with the numbers in a row, so invalid rows are left to M1
    c = known_rows(part, rows, part_findings, late_s, first)
    shared.add(c, rows, first, *check_jobs(c, part_findings, meta, slack))
    findings.extend(part_findings)


def _is_live(meta: Mapping[str, Any]) -> bool:
    return meta.get("world") is not None


def _promises(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    promises: Mapping[str, Any] = meta.get("promises") or {}
    return promises


def check_jobs(
    c: Columns, findings: Findings, meta: Mapping[str, Any], slack: int
) -> tuple[Colocation, LaneRows, Lags | None]:
    """Check the rules that look at one job at a time; returns what the others need of the dispatched chunks.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    meta
        Metadata of the run (:func:`verify`).
    slack
        Tolerance in comparisons of times [µs], >= 0.
    """
    live, lanes = _is_live(meta), meta.get("lanes") or {}
    # what a policy has planned to do at a time waits while no controller can decide
    planned_slack = slack + (int(meta.get("decided_late_s", 0.0) * SECOND) if live else 0)
    chunks = Chunks(c)
    lags = Lags(chunks, live=live)
    preempted = partial(check_preempted_flags, preemptive=lanes.get("preemptive", True), live=live)
    # no rule reads what another has found, so large records have them checked in threads
    rules: list[Rule] = [
        lambda findings: check_answers(c, findings),
        lambda findings: None if live else check_failures_caused(c, findings),
        lambda findings: check_completions(c, findings, slack),
        lambda findings: check_decision_times(c, findings, slack),
        lambda findings: check_runs_in_plans(c, findings, planned_slack),
        lambda findings: check_plans(c, findings, planned_slack),
        lambda findings: check_slot_boundaries(c, findings, slack),
        lambda findings: check_minibatches(c, findings),
        lambda findings: check_lag(lags, findings, slack),
        lambda findings: check_chunks(chunks, lags, findings, slack, haprf=lanes.get("rank") == "haprf"),
        lambda findings: check_outages(c, findings, slack),
        lambda findings: check_time_limits(c, findings, planned_slack),
        lambda findings: check_work(chunks, findings, measured=live),
        lambda findings: preempted(chunks, findings, lags.yielding_runs(slack)),
        lambda findings: check_uploads(c, findings, slack),
        lambda findings: check_orders(c, findings, slack),
        lambda findings: check_ps(c, findings, slack),
    ]
    check_all(rules, findings, in_threads=len(c.runs) > RUNS_PER_RANGE)
    _kind_rules(c).of_jobs(c, findings, slack, chunks.colocation)
    check_cloud_alpha(c, chunks.colocation, findings, _alpha_mode(c, meta))
    return chunks.colocation, lane_rows(chunks), lags if lags.takes_turns.any() else None


def _alpha_mode(c: Columns, meta: Mapping[str, Any]) -> str:
    """The promised reading of Q where M34 restates it: lanes are always in service, and no chunk waits for others."""
    restated = not _is_live(meta) and c.scenario.physics.mtbf is None and not c.scenario.jobs.max_lag.any()
    return str(_promises(meta).get("alpha")) if restated and not c.decisions.has("verb", "fail").any() else ""


def _check_lanes(
    shared: SharedRows, findings: Findings, meta: Mapping[str, Any], slack: int, done: Callable[[], None]
) -> None:  # fmt: skip
    """Check the rules on lanes, range by range of the lanes; `done` is called after each."""
    mode, preemptive = _alpha_mode(shared.base, meta), bool((meta.get("lanes") or {}).get("preemptive", True))

    def check_range(number: int, findings: Findings) -> None:
        rows = shared.lanes.sorted_rows(number, shared.base)
        check_lane_alpha(rows, findings, mode, preemptive=preemptive)
        check_lanes(rows, shared.lags, findings, slack, preemptive=preemptive)
        done()

    checks = [partial(check_range, number) for number in range(len(shared.lanes.ranges))]
    check_all(checks, findings, in_threads=shared.in_memory and len(checks) > 1)
    check_lemma_4(shared.base.scenario, findings, mode, *shared.lemma_4_sums())


def _check_ps_use(shared: SharedRows, findings: Findings, meta: Mapping[str, Any], slack: int) -> None:
    """Check that PS slots serve one job at a time, and that PSs are taken in the cloud only where the edge has none."""
    c = shared.ps()
    if len(c.scenario.cluster.ps_type):
        check_slot_use(c, findings, slack)
    if not _is_live(meta) and _promises(meta).get("ps") == "edge_first":
        check_edge_first(c, findings, c.ps["kind"], c.ps["in_cloud"])


def _check_undivided(c: Columns, findings: Findings, meta: Mapping[str, Any], slack: int) -> None:
    """Check the rules that look at all rows together; in a run in several parts there is nothing for them to check."""
    live, promises = _is_live(meta), _promises(meta)
    if live:
        # M38: only live runs have checkpoints
        check_trained(c, findings, meta.get("trained") or {})
    else:
        check_failures(c, findings)
    check_storage(c, findings)
    if not live and isinstance(promises.get("batches"), dict):
        check_batches(c, findings, promises["batches"])
    check_gangs(c, findings, slack)
    _check_kind(c, findings, slack, meta)


def _check_kind(c: Columns, findings: Findings, slack: int, meta: Mapping[str, Any]) -> None:
    """Check the rules that apply only to one kind of cluster."""
    rules, live, promises = _kind_rules(c), _is_live(meta), _promises(meta)
    rules.of_all(c, findings, slack, meta)
    if rules.has_gangs:
        check_gang_starts(c, findings, slack)
        if not live:
            check_gang_work(c, findings)
    if not live:
        check_suspensions(c, findings, str(promises.get("preempts")), slots=rules.limit == "M5")
    max_workers = c.scenario.jobs.chunks if rules.limit == "M5" else c.scenario.jobs.batch
    promised = promises.get("uploads") == "with_allocations"
    check_early_uploads(c, findings, slack, rules.limit, max_workers, promised=promised)


class _KindRules(NamedTuple):
    """The rules of a kind of cluster.

    Attributes
    ----------
    of_jobs, of_all
        Those on single jobs, and those on all rows together.
    limit
        The rule on how many workers a job may have.
    has_gangs
        Whether jobs may hold workers for longer than a slot.
    """

    of_jobs: Callable[[Columns, Findings, int, Colocation], None]
    of_all: Callable[[Columns, Findings, int, Mapping[str, Any]], None]
    limit: str = "M27"
    has_gangs: bool = True


def _check_slot_jobs(c: Columns, findings: Findings, slack: int, colocation: Colocation) -> None:
    check_ps_slots(c, findings, slack, colocation)
    check_slot_types(c, findings)
    check_gang_uploads(c, findings)


def _check_slots(c: Columns, findings: Findings, slack: int, meta: Mapping[str, Any]) -> None:
    check_gang_slots(c, findings, slack)
    check_sharing(c, findings, slack, sticky=bool((meta.get("params") or {}).get("sticky")))


def _check_resources(c: Columns, findings: Findings, slack: int, meta: Mapping[str, Any]) -> None:
    promises = _promises(meta)
    check_resources(c, findings, slack)
    check_counts(c, findings, by_ratio=promises.get("ps") == "ratio")
    check_ps_orders(c, findings, slack)
    check_prices(c, findings, meta.get("params") or {})
    if promises.get("plans"):
        check_planned(c, findings)


def _check_sites(c: Columns, findings: Findings, slack: int, _: Mapping[str, Any]) -> None:
    check_resources(c, findings, slack)
    check_ps_orders(c, findings, slack)
    check_sites(c, findings, slack)


_KIND_RULES: dict[Kind, _KindRules] = {
    "slots": _KindRules(_check_slot_jobs, _check_slots, "M5"),
    "resources": _KindRules(lambda c, findings, *_: check_gang_uploads(c, findings), _check_resources),
    "sites": _KindRules(lambda *_: None, _check_sites, has_gangs=False),
}


def _kind_rules(c: Columns) -> _KindRules:
    return _KIND_RULES[c.scenario.cluster.kind]
