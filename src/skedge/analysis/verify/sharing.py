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
from skedge.core.model.sharing import Sharing

from .outages import absent
from .rules import Findings


class Held(NamedTuple):
    """A job holds workers of the edge without a break [µs]; `suspended`: it is a decision that ends it."""

    start: int
    end: int
    job: int
    suspended: bool


def check_sharing(c: Columns, found: Findings, slack: int, *, sticky: bool) -> None:
    """Check the rules on a cluster that has tenants and classes.

    `sticky`: a job that was preempted resumes only in its last place, so that others may begin elsewhere before it.
    """
    sharing = c.scenario.cluster.sharing
    if sharing is None or not len(c.gangs):
        return
    held = sorted(_held(c, slack))
    _quotas(c, found, sharing, held, slack)
    _bounds(found, sharing, held, slack)
    if slack == 0 and not sticky:
        _classes(c, found, sharing, held)


def _held(c: Columns, slack: int) -> Iterator[Held]:
    """When jobs hold workers of the edge; a job that is moved at an instant goes on holding."""
    cloud = c.scenario.cluster.cloud
    # an outage suspends jobs as well, which its server tells from a decision of the policy
    orders = c.decisions.frame.filter(pl.col("verb") == "suspend", pl.col("server").is_null())
    suspended = dict(orders.group_by("job").agg("time").iter_rows())
    rows = gang_intervals(c).filter(pl.col("server").ne_missing(cloud)).select("job", "start", "end").rows()
    for job, group in groupby(rows, key=itemgetter(0)):
        whole: list[list[int]] = []
        for _, start, end in group:
            if whole and start - whole[-1][1] <= slack:
                whole[-1][1] = max(end, whole[-1][1])
            else:
                whole.append([start, end])
        times = np.array(suspended.get(job, []), np.int64)
        for start, end in whole:
            yield Held(start, end, job, bool((np.abs(times - end) <= slack).any()))


def _quotas(c: Columns, found: Findings, sharing: Sharing, held: list[Held], slack: int) -> None:
    """M40: of each type the jobs of a tenant hold at most its quota."""
    jobs, limits = c.scenario.jobs, sharing.limits(c.scenario.cluster.workers.sum(axis=0))
    used = np.zeros_like(limits)
    changes = [(one.start, 1, one.job) for one in held]
    changes += [(max(one.start, one.end - slack), 0, one.job) for one in held]
    for time, begins, job in sorted(changes):
        at = int(jobs.tenant[job]), int(jobs.worker_type[job])
        used[at] += jobs.workers[job] if begins else -jobs.workers[job]
        if begins and used[at] > limits[at]:
            name = sharing.names[at[0]]
            say = f"begins, and the jobs of {name} hold {used[at]} workers of its type; the quota is {limits[at]}"
            found.add("M40", job, time, say)


def _bounds(found: Findings, sharing: Sharing, held: list[Held], slack: int) -> None:
    """M41: preemption comes neither too soon nor too often."""
    times = Counter[int]()
    for start, end, job, suspended in held:
        if not suspended:
            continue
        times[job] += 1
        if end - start < sharing.min_runtime - slack:
            say = f"is preempted after {end - start} µs; min_runtime is {sharing.min_runtime} µs"
            found.add("M41", job, end, say)
        if sharing.most_preemptions is not None and times[job] > sharing.most_preemptions:
            say = f"is preempted {times[job]} times; most_preemptions is {sharing.most_preemptions}"
            found.add("M41", job, end, say)


def _classes(c: Columns, found: Findings, sharing: Sharing, held: list[Held]) -> None:
    """M42: who begins is of no lower class than a job that waits for workers of its type and is within its quota."""
    jobs, limits = c.scenario.jobs, sharing.limits(c.scenario.cluster.workers.sum(axis=0))
    used, waits = np.zeros_like(limits), dict[int, int]()
    ever = {one.job for one in held}
    kinds = range(len(limits[0]))
    changes = sorted(
        [(int(jobs.arrival[job]), 0, job) for job in ever]
        + [(one.end, 1, one.job) for one in held]
        + [(one.start, 2, one.job) for one in held]
    )
    last = {one.job: one.end for one in held}
    workers = c.scenario.cluster.workers
    for time, group in groupby(changes, key=itemgetter(0)):
        begun = list[tuple[int, int]]()
        for _, what, job in group:
            at = int(jobs.tenant[job]), int(jobs.worker_type[job])
            if what == 1:
                used[at] -= jobs.workers[job]
            elif what == 2:
                used[at] += jobs.workers[job]
                begun.append((job, sharing.class_after(int(jobs.priority[job]), time - waits.pop(job, time))))
                continue
            if time < last[job] or what == 0:
                waits[job] = time
        # a job for which the servers in service have too few workers holds up no other
        room = [workers[:, k].sum() - absent(c, workers[:, k], np.array([time]))[0] for k in kinds] if begun else []
        for job, of in begun:
            for other, since in waits.items():
                theirs = sharing.class_after(int(jobs.priority[other]), time - since)
                at = int(jobs.tenant[other]), int(jobs.worker_type[other])
                like = at[1] == jobs.worker_type[job] and jobs.ps_type[other] == jobs.ps_type[job]
                may = used[at] + jobs.workers[other] <= limits[at] and jobs.workers[other] <= room[at[1]]
                if theirs > of and like and may:
                    say = f"begins in class {of}, while {jobs.ids[other]!r} of class {theirs} waits for such workers"
                    found.add("M42", job, time, say)
