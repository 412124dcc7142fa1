"""Rules on parameter servers: M12 to M15."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import Columns, dispatched_jobs, next_outage, outage_spans, outage_suspensions, ps_rows
from skedge.analysis.row_groups import in_groups, merged, uncovered
from skedge.core.model.cluster import Bools, Ints

from .outages import absent
from .rules import Findings


def check_ps_slots(c: Columns, findings: Findings, slack: int, colocation: Colocation) -> None:
    """M12, M14, M15: one PS slot per job.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    colocation
        1 while a job is dispatched wholly to the cloud.
    """
    rows, _ = ps_rows(c)
    _one_ps_at_a_time(c, findings, slack, rows)
    _with_cloud_jobs(c, findings, slack, colocation)


def _with_cloud_jobs(c: Columns, findings: Findings, slack: int, colocation: Colocation) -> None:
    """M15: a PS assigned to a job wholly in the cloud is in the cloud, if the cloud is in service."""
    t, cloud = c.ps, c.scenario.cluster.cloud
    edge = np.flatnonzero(t["server"] != cloud)
    job, start = t["job"][edge], t["start"][edge]
    wrong = colocation.always(job, start - slack - 1, start + slack, 1) & ~_is_out(c, cloud, start, slack)
    template = "the job is wholly in the cloud, but its PS is on server {}"
    findings.add_rows("M15", wrong, job, start, lambda i: template.format(t["server"][edge[i]]))


def cloud_ps(c: Columns, colocation: Colocation) -> Bools:
    """Whether each PS is in the cloud, and of a dispatched job that is not wholly there."""
    t = c.ps
    in_cloud: Bools = dispatched_jobs(c)[t["job"]] & (t["slot"] < 0) & (colocation.at(t["job"], t["start"]) == 0)
    return in_cloud


def check_edge_first(c: Columns, findings: Findings, kind: Ints, in_cloud: Bools) -> None:
    """M35: a dispatched job not wholly in the cloud has its PS there only if no edge slot of its type is free.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    kind
        PS type of the job of each row.
    in_cloud
        The rows that are checked (:func:`cloud_ps`).
    """
    t, cluster = c.ps, c.scenario.cluster
    n_held = np.zeros(len(t), np.int64)
    # the last entry is for kind -1: jobs without a PS type
    slots = np.append(np.bincount(cluster.ps_type, minlength=len(cluster.ps_types)), 0)
    for k in np.unique(kind[in_cloud]):
        edge = (t["slot"] >= 0) & (kind == k)
        starts, ends = np.sort(t["start"][edge]), np.sort(t["end"][edge])
        now = t["start"][in_cloud & (kind == k)]
        # held from start to before end: those begun less those ended by then
        n_held[in_cloud & (kind == k)] = np.searchsorted(starts, now, "right") - np.searchsorted(ends, now, "right")
    free = slots[kind] - n_held
    on_server = np.column_stack([cluster.ps, np.zeros(len(cluster.servers), np.int64)])
    for k in np.unique(kind[in_cloud]):
        of_kind = in_cloud & (kind == k)
        free[of_kind] -= absent(c, on_server[:, k], t["start"][of_kind])
    template = "takes a PS in the cloud at {} µs; {} of its type are free at the edge"
    findings.add_rows("M35", in_cloud & (free > 0), t["job"], t["start"], template, t["start"], free)


def check_ps(c: Columns, findings: Findings, slack: int) -> None:
    """M12: a job has a PS exactly while it runs."""
    jobs = len(c.scenario.jobs)
    run_spans, ps_spans = (merged(t["job"], t["start"], t["end"], jobs) for t in (c.runs, c.ps))
    if all(np.array_equal(a, b) for a, b in zip(run_spans, ps_spans, strict=True)):
        return
    for spans, cover, problem in (
        (run_spans, ps_spans, "runs without a PS"),
        (ps_spans, run_spans, "holds a PS without running"),
    ):
        gap = uncovered(spans, cover, slack)
        # in a simulation a gang has its PS as long as its workers, outage or not
        excused = _is_during_outage(c, spans[0], gap) & (dispatched_jobs(c)[spans[0]] | (slack > 0))
        gap = np.where(excused, -1, gap)
        findings.add_rows("M12", gap >= 0, spans[0], gap, f"{problem} at {{}} µs", gap)


def _is_during_outage(c: Columns, job: Ints, time: Ints) -> NDArray[np.bool_]:
    """Whether a server with PSs of the job's type was out of service at each time, so that none may have been free."""
    cluster, kind, is_out = c.scenario.cluster, c.scenario.jobs.ps_type[job], np.zeros(len(time), bool)
    has_ps = np.column_stack([cluster.ps, np.zeros(len(cluster.servers), np.int64)]) > 0
    if cluster.cloud is not None:
        has_ps[cluster.cloud] = True
    has_ps |= np.any(cluster.amounts > 0, axis=1, keepdims=True)  # servers with resources take PSs of any type
    for server, start, end in outage_spans(c):
        is_out |= has_ps[server, kind] & (start <= time) & (time <= end)
    return is_out


def _is_out(c: Columns, server: int | None, time: Ints, slack: int) -> NDArray[np.bool_]:
    """Whether `server` was out of service at each time."""
    is_out = np.zeros(len(time), bool)
    for failed_server, start, end in outage_spans(c):
        is_out |= (failed_server == server) & (start <= time + slack) & (time - slack <= end)
    return is_out


def _one_ps_at_a_time(c: Columns, findings: Findings, slack: int, rows: Ints) -> None:
    """M12: never two PSs at once; M14: no change of PS while the job continues to run."""
    t = c.ps
    findings.add_rows("M12", t["count"] != 1, t["job"], t["start"], "holds {} PSs in one row", t["count"])
    before, after = rows[:-1], rows[1:]
    same = t["job"][before] == t["job"][after]
    job, start, end = t["job"][after], t["start"][after], t["end"][before]
    twice = same & (start < end - slack)
    findings.add_rows("M12", twice, job, start, "takes a second PS at {} µs; the first is held to {} µs", start, end)
    differs = (t["server"][before] != t["server"][after]) | (t["slot"][before] != t["slot"][after])
    server_lost = next_outage(c, t["server"][before], t["start"][before]) <= start + slack
    # a dispatched job has one PS row while it runs on, but each allocation of a gang begins one of its own
    moved = same & ~twice & (start <= end) & (differs | dispatched_jobs(c)[job]) & ~server_lost
    suspended = outage_suspensions(c)
    for i in np.flatnonzero(moved) if suspended else ():
        moved[i] = start[i] not in suspended.get(int(job[i]), ())
    findings.add_rows(
        "M14",
        moved,
        job,
        start,
        "changes its PS at {} µs while it continues to run, or takes the same one again",
        start,
    )


def check_slot_types(c: Columns, findings: Findings) -> None:
    """M13: an edge PS slot has the job's PS type."""
    t, cluster, slot = c.ps, c.scenario.cluster, _slots(c)
    if len(cluster.ps_type):
        wrong = (slot >= 0) & (cluster.ps_type[slot] != c.scenario.jobs.ps_type[t["job"]])
        template = "PS slot {} has type {!r}, not the job's"
        findings.add_rows(
            "M13", wrong, t["job"], t["start"],
            lambda i: template.format(t["slot"][i], cluster.ps_types[cluster.ps_type[slot[i]]]),
        )  # fmt: skip


def _slots(c: Columns) -> Ints:
    """Number of the PS slot of each row among all; -1 in the cloud."""
    t, first = c.ps, np.searchsorted(c.scenario.cluster.ps_server, c.ps["server"])
    return np.where(t["slot"] >= 0, first + t["slot"], -1)


def check_slot_use(c: Columns, findings: Findings, slack: int) -> None:
    """M13: an edge PS slot serves one job at a time."""
    t, cluster, slot = c.ps, c.scenario.cluster, _slots(c)
    rows, _ = in_groups(slot.astype(np.int32), t["start"], len(cluster.ps_type))
    before, after = rows[:-1], rows[1:]
    overlaps = (slot[before] == slot[after]) & (t["start"][after] < t["end"][before] - slack)
    template = "takes PS slot {} of server {} at {} µs; job {!r} holds it to {} µs"
    findings.add_rows(
        "M13", overlaps, t["job"][after], t["start"][after],
        lambda i: template.format(
            t["slot"][after[i]], t["server"][after[i]], t["start"][after[i]], findings.ids[int(t["job"][before[i]])],
            t["end"][before[i]],
        ),
    )  # fmt: skip
