"""Rule M43: limits of a job's time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from skedge.analysis.columns import Columns, end_times, gang_intervals
from skedge.analysis.row_groups import merged
from skedge.core.model.time import NEVER, SECOND
from skedge.core.model.time_limits import PREFIX, TimeLimit, time_limits, waiting_since

from .rules import Findings

Spans = dict[int, list[tuple[int, int]]]


def check_time_limits(c: Columns, findings: Findings, slack: int) -> None:
    """M43: a job with a limit fails when it is reached, and none fails so before."""
    limits = time_limits(c.scenario.jobs, c.scenario.cluster.sharing)
    failed_jobs = set(c.jobs["job"][c.jobs.frame["reason"].fill_null("").str.starts_with(PREFIX).to_numpy()].tolist())
    if not limits and not failed_jobs:
        return
    spans, left = _spans(c, limits), _departures(c)
    for job in sorted(limits.keys() | failed_jobs):
        due = _due_time(c, job, limits.get(job, TimeLimit()), spans[job])
        if job in failed_jobs and abs(left[job] - due) > slack:
            due_text = "never" if due == NEVER else f"at {due / SECOND:g} s"
            text = f"fails at {left[job] / SECOND:g} s by its time limit, which is reached {due_text}"
            findings.add("M43", job, left[job], text)
        elif job not in failed_jobs and left[job] > due + slack:
            findings.add("M43", job, due, f"reaches its time limit at {due / SECOND:g} s, and does not fail then")


def _due_time(c: Columns, job: int, limit: TimeLimit, spans: list[tuple[int, int]]) -> int:
    """When the job reaches a limit [µs]; NEVER if it does not."""
    step, begins = c.scenario.physics.step, spans[0][0] if spans else NEVER
    if limit.wait < NEVER and begins >= (due := waiting_since(c.scenario, job) + limit.wait):
        return -(-due // step) * step
    # the limit of running counts what the job has run in all, not since it began
    ran = 0
    for start, end in spans if limit.run < NEVER else ():
        if ran + end - start >= limit.run:
            return -(-(start + limit.run - ran) // step) * step
        ran += end - start
    return NEVER


def _spans(c: Columns, limits: dict[int, TimeLimit]) -> Spans:
    """When the jobs with limits held workers or had a chunk in service: intervals [µs] in order, apart."""
    gangs, chunks = gang_intervals(c), c.runs["chunk"] >= 0
    job, start, end = (
        np.concatenate([gangs[name].to_numpy(), c.runs[name][chunks]]) for name in ("job", "start", "end")
    )
    spans: Spans = defaultdict(list)
    for holder, begin, until in zip(*merged(job, start, end, len(c.scenario.jobs)), strict=True):
        if holder in limits:
            spans[int(holder)].append((int(begin), int(until)))
    return spans


def _departures(c: Columns) -> list[int]:
    """When each job left: completed, failed or was rejected [µs]; NEVER if it has not."""
    left, rejected = end_times(c), c.decisions.has("verb", "reject")
    left[c.decisions["job"][rejected]] = c.decisions["time"][rejected]
    return [int(time) for time in left]
