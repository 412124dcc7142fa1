"""Rule M34: alpha and the number of postponed chunks of a dispatch follow from the policy's reading of Q."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import Columns
from skedge.analysis.row_groups import in_groups, plain
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.ties import RESTATED
from skedge.core.model.time import SECOND

from .lane_projection import MODES, LaneRecord, compute_alpha, queue_scratch
from .lanes import LaneRows, SortedLaneRows
from .rules import Findings


def check_lane_alpha(b: SortedLaneRows, findings: Findings, mode: str, *, preemptive: bool) -> None:
    """Check M34 for the chunks that are dispatched to lanes.

    Parameters
    ----------
    b
        The dispatches by lane.
    findings
        Receives the violations.
    mode
        The promised reading of Q, a key of :data:`MODES`; no other mode is checked.
    preemptive
        Whether lanes preempt chunks.
    """
    rows = len(b.k.c.dispatches)
    if mode in MODES and rows:
        _compare(
            b.k.c, findings, np.arange(rows) < b.first_dispatch[-1], *_lane_alpha(b, MODES[mode], preemptive=preemptive)
        )


def check_cloud_alpha(c: Columns, colocation: Colocation, findings: Findings, mode: str) -> None:
    """Check M34 for the chunks that are dispatched to the cloud, where none is postponed.

    Parameters
    ----------
    c
        Columns of the record.
    colocation
        Zeta of dispatched jobs.
    findings
        Receives the violations.
    mode
        The promised reading of Q, a key of :data:`MODES`; no other mode is checked.
    """
    away = c.dispatches["lane"] < 0
    if mode in MODES and away.any():
        _compare(c, findings, away, _cloud_alpha(c, colocation, MODES[mode]), np.zeros(len(away), np.int64))


def _compare(c: Columns, findings: Findings, mask: NDArray[np.bool_], alpha: Floats, postponed: Ints) -> None:
    """Compare alpha [s] and the number of postponed chunks with the record in `mask` of the dispatch rows."""
    d = c.dispatches
    recorded_alpha = d["value"]
    # negated, so that an alpha that is missing (NaN) is wrong too
    # relative, and absolute for alpha of 0
    wrong = mask & ~(np.abs(recorded_alpha - alpha) <= RESTATED * np.abs(alpha) + 1e-9)
    template = "alpha of chunk {} is {:.9g} s; Q gives {:.9g} s"
    findings.add_rows("M34", wrong, d["job"], d["time"], template, d["chunk"], recorded_alpha, alpha)
    miscounted = mask & (d["postponed"] != postponed)
    say_later = "chunk {} postpones {} chunks on record; Q gives {}"
    findings.add_rows("M34", miscounted, d["job"], d["time"], say_later, d["chunk"], d["postponed"], postponed)


def check_lemma_4(scenario: Scenario, findings: Findings, mode: str, alpha: float | None, beta: float | None) -> None:
    """Check that sum alpha = sum beta [s], if Q is the marginal increase and the announced durations are true.

    Parameters
    ----------
    scenario
        That of the record.
    findings
        Receives the violations.
    mode
        The promised reading of Q.
    alpha, beta
        Their sums over all chunks and jobs [s]; None if there are none.
    """
    if mode != "marginal" or scenario.physics.estimate_error != 0 or alpha is None or beta is None:
        return
    if not abs(alpha - beta) <= RESTATED * abs(beta):
        findings.add("M34", None, None, f"alpha sums to {alpha:.9g} s, beta to {beta:.9g} s; by Lemma 4 they agree")


def _cloud_alpha(c: Columns, colocation: Colocation, mode: int) -> Floats:
    """(t - r + Delta + p) / D of each dispatch row [s], as if sent to the cloud; Alg. 3 line 8."""
    d, scenario = c.dispatches, c.scenario
    job = d["job"]
    p = scenario.chunk_time[job, colocation.at(job, d["time"])]
    response = d["time"] - scenario.jobs.arrival[job] + upload_delays(scenario.delays, job, d["server"]) + p
    alpha: Floats = (response - (p / 2 if mode == MODES["fractional"] else 0)) / scenario.jobs.chunks[job] / SECOND
    return alpha


def _lane_alpha(b: SortedLaneRows, mode: int, *, preemptive: bool) -> tuple[Floats, Ints]:
    """Alpha [s] and number of postponed chunks by dispatch row; 0 for those elsewhere."""
    rows, physics = len(b.k.c.dispatches), b.k.c.scenario.physics
    estimates_exact, overhead = physics.estimate_error == 0, physics.checkpoint_overhead
    alpha, postponed = np.zeros(rows), np.zeros(rows, np.int64)
    scratch = queue_scratch(int(np.diff(b.first_dispatch).max(initial=0)))
    compute_alpha(
        b.first_dispatch, _lane_record(b.k), estimates_exact, overhead, preemptive, mode, scratch, alpha, postponed
    )
    return alpha / SECOND, postponed


def _lane_record(k: LaneRows) -> LaneRecord:
    """The data of rows by lane."""
    d, t = k.c.dispatches, k.c.chunks
    last_end = chunk = runs = run_first = np.empty(0, np.int64)
    if k.c.scenario.physics.estimate_error:
        last_end, chunk = k.last_end, k.first
        runs, run_first = in_groups(k.chunk_row, t["start"], len(d))
    duration, chunks, release = k.job_values
    job, time, rank, arrival, duration, release, last_end, chunk, runs, run_first = (
        plain(column, np.int64)
        for column in (d["job"], d["time"], d["rank"], k.arrival, duration, release, last_end, chunk, runs, run_first)
    )
    weight = plain(1 / chunks, np.float64)
    return LaneRecord(
        job, time, rank, arrival, duration, weight, release, last_end, chunk, runs, run_first, t["start"], t["end"],
        t["preempted"],
    )  # fmt: skip
