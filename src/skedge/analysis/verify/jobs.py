"""Rules on the life of a job: M2, M9, M11, M18, M19, M23."""

from __future__ import annotations

from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, Table, failure_times, next_outage, once
from skedge.analysis.row_groups import bounds, counts
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.core.model.time_limits import PREFIX

from .chunks import Chunks
from .rules import Findings

Mask = NDArray[np.bool_]

_TIMES = {
    "runs": ("start", "compute_from", "end"),
    "ps": ("start", "end"),
    "uploads": ("start", "end"),
    "plans": ("from", "to", "made_at"),
    "prices": ("from", "to", "made_at"),
    "decisions": ("time",),
}


def check_answers(c: Columns, findings: Findings) -> None:
    """M18: one row per job: finished, rejected or failed. The last two have a reason; rejected jobs never run."""
    jobs, t = c.scenario.jobs, c.jobs
    for job in np.flatnonzero(np.bincount(t["job"], minlength=len(jobs)) != 1)[: findings.limit]:
        rows = int((t["job"] == job).sum())
        findings.add("M18", int(job), int(jobs.arrival[job]), f"has {rows} rows in the jobs table; it must have 1")
    state = t.frame["state"]
    findings.add_rows(
        "M18", t["state"] < 0, t["job"], t["arrival"], "is neither finished, rejected, failed nor cancelled"
    )
    rejected, finished, failed = t.has("state", "rejected"), t.has("state", "finished"), _ended_early(c)
    # only jobs that did not finish must say why
    silent = (rejected | failed) & (t.frame["reason"].fill_null("") == "").to_numpy()
    findings.add_rows("M18", silent, t["job"], t["arrival"], "is {} without a reason", state)
    _match_decisions(c, findings)
    undecided = failed != (failure_times(c)[t["job"]] < NEVER)
    findings.add_rows(
        "M18", undecided, t["job"], t["arrival"], "is {} in the jobs table, but not by its decisions", state
    )
    runs = counts(c.runs["job"], len(jobs))[t["job"]]
    findings.add_rows("M18", rejected & (runs > 0), t["job"], t["arrival"], "is rejected but has {} runs", runs)
    findings.add_rows("M18", finished & (runs == 0), t["job"], t["arrival"], "is finished but never ran")


def _ended_early(c: Columns) -> Mask:
    """The jobs that failed or were cancelled, by row of the jobs table."""
    return c.jobs.has("state", "failed", "cancelled")


def _match_decisions(c: Columns, findings: Findings) -> None:
    """M18: a rejected job has one decision to reject it, with the same reason; a finished job has no reason."""
    d, t = c.decisions, c.jobs
    state, rows = t.frame["state"], np.flatnonzero(d.has("verb", "reject"))
    times = np.bincount(d["job"][rows], minlength=len(c.scenario.jobs))[t["job"]]
    wrong = times != t.has("state", "rejected")
    findings.add_rows("M18", wrong, t["job"], t["arrival"], "is {}, with {} decisions to reject it", state, times)
    last = d.has("verb", "reject", "fail")
    # the usual record needs no join
    if not last.any() and t.frame["reason"].null_count() == len(t):
        return
    ends = d.frame.filter(pl.Series(last)).select("job", why=pl.col("reason").cast(pl.String))
    reasons = t.frame.select("job", "reason").with_row_index("row").join(
        ends.unique("job", keep="first"), on="job", how="left", maintain_order="left"
    )  # fmt: skip
    differs = (reasons["reason"].fill_null("") != reasons["why"].fill_null("")).to_numpy()
    template = "the reason in the jobs table is {!r}; in the decisions it is {!r}"
    findings.add_rows("M18", differs, t["job"], t["arrival"], template, reasons["reason"], reasons["why"])


def check_failures_caused(c: Columns, findings: Findings) -> None:
    """M18, M25: in a simulation a job fails by a time limit only, a server if the physics says so (``mtbf``)."""
    t, state, failed = c.jobs, c.jobs.frame["state"], _ended_early(c)
    if failed.any():
        limited = t.has("state", "failed") & t.frame["reason"].fill_null("").str.starts_with(PREFIX).to_numpy()
        findings.add_rows(
            "M18", failed & ~limited, t["job"], t["arrival"], "is {}, which cannot happen in a simulation", state
        )
    if c.scenario.physics.mtbf is not None:
        return
    for server, start in zip(c.outages["server"].tolist(), c.outages["start"].tolist(), strict=True):
        label = c.scenario.cluster.label(server)
        findings.add("M25", None, start, f"{label!r} goes out of service; in a simulation all servers are in service")
    d = c.decisions
    lost = d.has("verb", "suspend") & (d["server"] >= 0)
    findings.add_rows(
        "M25", lost, d["job"], d["time"], "is suspended because of a server; in a simulation all servers are in service"
    )


def check_completions(c: Columns, findings: Findings, slack: int) -> None:
    """M9: first start, completion and JCT follow from the runs."""
    t = c.jobs
    first, last = run_bounds(c)
    # from tables by job to the rows of the jobs table, which may be in any order
    first, last = first[t["job"]], last[t["job"]]
    ran, failed = last >= 0, failure_times(c)[t["job"]] < NEVER
    checks = [
        ("completion", np.where(ran & ~failed, last, -1), "the end of its last run"),
        ("first_start", np.where(ran, first, -1), "the start of its first run"),
        ("jct", np.where(t["completion"] >= 0, t["completion"] - t["arrival"], -1), "completion - arrival"),
    ]
    for name, expected, source in checks:
        wrong = np.abs(t[name] - expected) > slack
        template = f"{name} is {{}} µs; {source} gives {{}} µs (-1: none)"
        findings.add_rows("M9", wrong, t["job"], expected, template, t[name], expected)


@once
def run_bounds(c: Columns) -> tuple[Ints, Ints]:
    """First start and last end of each job's runs [µs]; NEVER and -1 if it has none."""
    first, last, _ = bounds(c.runs["job"], c.runs["start"], c.runs["end"], len(c.scenario.jobs))
    return first, last


def check_decision_times(c: Columns, findings: Findings, slack: int) -> None:
    """M2: a decision about a job is made while it is in the system."""
    failed, (_, last) = failure_times(c), run_bounds(c)
    # the last run of a failed job may have ended long before its failure
    left_at = np.where(failed < NEVER, failed, last)
    for _, part in c.decisions.parts():
        _in_system(part, c.scenario.jobs.arrival, left_at, findings, slack)


def _in_system(t: Table, arrival: Ints, left_at: Ints, findings: Findings, slack: int) -> None:
    """M2 for these decisions; `left_at`: when each job has ended [µs], -1 if it never ran."""
    job, time, ended_at = t["job"], t["time"], left_at[t["job"]]
    too_early, too_late = time < arrival[job] - slack, (ended_at >= 0) & (time > ended_at + slack)
    template = "decided at {} µs, before the job arrives at {} µs"
    findings.add_rows("M2", too_early, job, time, lambda i: template.format(time[i], arrival[job[i]]))
    findings.add_rows("M2", too_late, job, time, "decided at {} µs; the job ended at {} µs", time, ended_at)


def check_preempted_flags(k: Chunks, findings: Findings, yields: Mask, *, preemptive: bool, live: bool) -> None:
    """M11: a run is preempted if it ends before its chunk (a gang: its job) is finished, unless the chunk gave way.

    Parameters
    ----------
    k
        The runs of dispatched chunks.
    findings
        Receives the violations.
    yields
        By chunk run: whether the chunk gives way after it (:meth:`.lag.Lags.yielding_runs`).
    preemptive
        Whether lanes preempt chunks.
    live
        In a live run a chunk may be displaced as it gives up its lane.
    """
    c, (_, last) = k.c, run_bounds(k.c)
    has_failed = failure_times(c) < NEVER  # the last run of a failed job may or may not have been displaced
    never = np.zeros(len(c.gangs), bool)
    parts = (
        (t, k.last_end[k.run_chunk[first : first + len(t)]], yields[first : first + len(t)])
        for first, t in c.chunks.parts()
    )
    for t, end, part_yields in chain(parts, [(c.gangs, last[c.gangs["job"]], never)]):
        unfinished = (t["end"] != end) & ~(part_yields & ~(t["preempted"] & live))
        wrong = (t["preempted"] != unfinished) & (unfinished | ~has_failed[t["job"]])
        template = "preempted is {} for a run that ends at {} µs; the last run ends at {} µs"
        findings.add_rows("M11", wrong, t["job"], t["end"], template, t["preempted"], t["end"], end)
    if not preemptive:
        t = c.chunks
        # a server out of service stops chunks on any lane
        displaced = t["preempted"] & ~(next_outage(c, t["server"], t["start"]) <= t["end"]) & ~has_failed[t["job"]]
        findings.add_rows("M11", displaced, t["job"], t["end"], "a chunk is preempted on a lane that does not preempt")


def check_runs_in_plans(c: Columns, findings: Findings, slack: int) -> None:
    """M19: a run of a planned job lies within its plan on the server, with at most its workers; likewise its PSs."""
    p = c.plans
    if not len(p):
        return
    plans = pl.DataFrame({k: p[k] for k in ("job", "server", "workers", "ps", "from", "to")})
    # a job whose plan is marked broken may run anywhere
    free = plans.filter(p.frame["broken_at"].is_not_null())["job"]
    for t, count, planned, noun in ((c.runs, "workers", "workers", "workers"), (c.ps, "count", "ps", "PSs")):
        holdings = pl.DataFrame({k: t[k] for k in ("job", "server", "start", "end")}).with_row_index("row")
        holdings = holdings.with_columns(held=pl.Series(t[count]))
        holdings = holdings.filter(pl.col("job").is_in(plans["job"].implode()) & ~pl.col("job").is_in(free.implode()))
        inside = (pl.col("from") - slack <= pl.col("start")) & (pl.col("end") <= pl.col("to") + slack)
        fits = holdings.join(plans, on=["job", "server"]).filter(inside & (pl.col("held") <= pl.col(planned)))
        for r in holdings.join(fits.select("row"), on="row", how="anti").head(findings.limit).iter_rows(named=True):
            text = f"no plan has {r['held']} {noun} on server {r['server']} from {r['start']} to {r['end']} µs"
            findings.add("M19", r["job"], r["start"], text)


def check_planned(c: Columns, findings: Findings) -> None:
    """M19 if the policy promises `plans`: a job that runs has a plan."""
    without = ~np.isin(c.runs["job"], c.plans["job"])
    template = "runs without a plan; its policy promises one"
    findings.add_rows("M19", without, c.runs["job"], c.runs["start"], template)


def check_slot_boundaries(c: Columns, findings: Findings, slack: int) -> None:
    """M23: in slotted time, starts, ends and decisions are multiples of the slot."""
    slot = c.scenario.physics.step
    if slot == 1:
        return
    for name, times in _TIMES.items():
        t = getattr(c, name)
        for column in times:
            # live, a time may be just before a boundary as well as just after it
            remainder = t[column] % slot
            wrong = np.minimum(remainder, slot - remainder) > slack
            template = f"{name}.{column} is {{}} µs, not a multiple of the slot of {slot} µs"
            findings.add_rows("M23", wrong, t["job"], t[column], template, t[column])
