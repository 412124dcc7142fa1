"""Rules on tenants and priority classes: M40 to M42."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_intervals
from skedge.analysis.row_groups import merged
from skedge.core.model.sharing import Sharing

from .outages import absent
from .rules import Findings


class HoldingSpan(NamedTuple):
    """A job holds workers of the edge without a break [µs]; `suspended`: it is a decision that ends it."""

    start: int
    end: int
    job: int
    suspended: bool


def check_sharing(c: Columns, findings: Findings, slack: int, *, sticky: bool) -> None:
    """Check the rules on a cluster that has tenants and classes.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    sticky
        Whether a preempted job resumes only in its last place, so that others may begin elsewhere before it: M42 is
        then not checked.
    """
    sharing = c.scenario.cluster.sharing
    if sharing is None or not len(c.gangs):
        return
    spans = sorted(_holding_spans(c, slack))
    # a break shorter than the tolerance is one all the same: others may begin in it
    _quotas(c, findings, sharing, sorted(_holding_spans(c, 0)), slack)
    _preemption_bounds(findings, sharing, spans, slack)
    if slack == 0 and not sticky:
        _classes(c, findings, sharing, spans)


def _holding_spans(c: Columns, slack: int) -> Iterator[HoldingSpan]:
    """When jobs hold workers of the edge; a job that is moved at an instant goes on holding."""
    cloud = c.scenario.cluster.cloud
    # an outage suspends jobs as well, which its server tells from a decision of the policy
    decisions = c.decisions.frame
    orders = decisions.filter(pl.col("verb") == "suspend", pl.col("server").is_null())
    # one that is allocated at the same instant is moved, which a tolerance would take for what ends its holding later
    orders = orders.join(
        decisions.filter(pl.col("verb").is_in(["allocate", "allocate_each"])), on=["job", "time"], how="anti"
    )
    suspended = dict(orders.group_by("job").agg("time").iter_rows())
    rows = gang_intervals(c).filter(pl.col("server").ne_missing(cloud))
    job, start, end = (rows[name].to_numpy() for name in ("job", "start", "end"))
    spans = merged(job, start, end + slack, len(c.scenario.jobs))
    for holder, begin, until in zip(*(column.tolist() for column in spans), strict=True):
        times = np.array(suspended.get(holder, []), np.int64)
        yield HoldingSpan(begin, until - slack, holder, bool((np.abs(times - (until - slack)) <= slack).any()))


def _quotas(c: Columns, findings: Findings, sharing: Sharing, spans: list[HoldingSpan], slack: int) -> None:
    """M40: of each type the jobs of a tenant hold at most its quota."""
    jobs, limits = c.scenario.jobs, sharing.limits(c.scenario.cluster.workers.sum(axis=0))
    used = np.zeros_like(limits)
    changes = [(span.start, 1, span.job) for span in spans]
    changes += [(max(span.start, span.end - slack), 0, span.job) for span in spans]
    # at one time workers are given back before others are taken
    for time, begins, job in sorted(changes):
        pool = int(jobs.tenant[job]), int(jobs.worker_type[job])
        used[pool] += jobs.workers[job] if begins else -jobs.workers[job]
        if begins and used[pool] > limits[pool]:
            name = sharing.names[pool[0]]
            text = f"begins, and the jobs of {name} hold {used[pool]} workers of its type; the quota is {limits[pool]}"
            findings.add("M40", job, time, text)


def _preemption_bounds(findings: Findings, sharing: Sharing, spans: list[HoldingSpan], slack: int) -> None:
    """M41: preemption comes neither too soon nor too often."""
    times = Counter[int]()
    for start, end, job, suspended in spans:
        if not suspended:
            continue
        times[job] += 1
        if end - start < sharing.min_runtime - slack:
            text = f"is preempted after {end - start} µs; min_runtime is {sharing.min_runtime} µs"
            findings.add("M41", job, end, text)
        if sharing.most_preemptions is not None and times[job] > sharing.most_preemptions:
            text = f"is preempted {times[job]} times; most_preemptions is {sharing.most_preemptions}"
            findings.add("M41", job, end, text)


def _classes(c: Columns, findings: Findings, sharing: Sharing, spans: list[HoldingSpan]) -> None:
    """M42: who begins is of no lower class than a job that waits for workers of its type and is within its quota."""
    jobs, limits = c.scenario.jobs, sharing.limits(c.scenario.cluster.workers.sum(axis=0))
    used, waits = np.zeros_like(limits), dict[int, int]()
    holders = {span.job for span in spans}
    kinds = range(len(limits[0]))
    changes = sorted(
        [(int(jobs.arrival[job]), 0, job) for job in holders]
        + [(span.end, 1, span.job) for span in spans]
        + [(span.start, 2, span.job) for span in spans]
    )
    # of several spans the last one: then the job is complete and waits no more
    last = {span.job: span.end for span in spans}
    workers = c.scenario.cluster.workers
    for time, group in groupby(changes, key=itemgetter(0)):
        starters = list[tuple[int, int]]()
        for _, event, job in group:
            pool = int(jobs.tenant[job]), int(jobs.worker_type[job])
            if event == 1:
                used[pool] -= jobs.workers[job]
            elif event == 2:
                used[pool] += jobs.workers[job]
                starters.append((job, sharing.class_after(int(jobs.priority[job]), time - waits.pop(job, time))))
                continue
            if time < last[job] or event == 0:
                waits[job] = time
        # a job for which the servers in service have too few workers holds up no other
        room = [workers[:, k].sum() - absent(c, workers[:, k], np.array([time]))[0] for k in kinds] if starters else []
        for job, job_class in starters:
            for rival, since in waits.items():
                rival_class = sharing.class_after(int(jobs.priority[rival]), time - since)
                pool = int(jobs.tenant[rival]), int(jobs.worker_type[rival])
                same_types = pool[1] == jobs.worker_type[job] and jobs.ps_type[rival] == jobs.ps_type[job]
                could_run = used[pool] + jobs.workers[rival] <= limits[pool] and jobs.workers[rival] <= room[pool[1]]
                if rival_class > job_class and same_types and could_run:
                    text = (
                        f"begins in class {job_class}, while {jobs.ids[rival]!r} of class {rival_class} "
                        "waits for such workers"
                    )
                    findings.add("M42", job, time, text)
