"""Rule M8 for each row: mini-batches are in proportion to the training time."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, Table, among, failure_times, gang_intervals, gang_rows
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import NOISE
from skedge.core.model.time import NEVER

from .chunks import Chunks
from .rules import WORK_TOLERANCE, Findings


def check_work(k: Chunks, findings: Findings, *, measured: bool) -> None:
    """Check that each chunk has E_j B_j mini-batches, and each run a part in proportion to its time.

    `measured`: in a live run mini-batches are counted, not computed from times, so only the chunks are checked.
    """
    _chunk_work(k, findings)
    if not measured:
        _chunk_run_work(k, findings)


def _chunk_work(k: Chunks, findings: Findings) -> None:
    """Check that the runs of a chunk of a finished job train E_j B_j mini-batches."""
    t, jobs = k.c.jobs, k.c.scenario.jobs
    finished = among(k.c, t["job"][t.has("state", "finished")])
    off = k.work / np.repeat(jobs.minibatches, jobs.chunks)
    off -= 1
    # negated, so that no number (NaN) is wrong too
    wrong = ~(np.abs(off, out=off) <= WORK_TOLERANCE)
    wrong &= np.repeat(finished, jobs.chunks) & (k.dispatch_row >= 0)
    for chunk, job, number in k.wrong_chunks(wrong, findings.limit):
        text = f"{k.work[chunk]:g} mini-batches of chunk {number} are trained; E B is {jobs.minibatches[job]}"
        findings.add("M8", job, int(k.last_end[chunk]), text)


def _chunk_run_work(k: Chunks, findings: Findings) -> None:
    length, displaced = k.run_times
    scenario, failed = k.c.scenario, failure_times(k.c) < NEVER
    template = "a run of chunk {} does {:g} mini-batches; its time gives {:g}"
    for part in k.parts():
        t = part.c.chunks
        total = k.c.scenario.jobs.minibatches[t["job"]]
        chunk_time = length[part.run_chunk]
        if failed.any():  # the runs of a chunk that was not finished are not all of it
            duration = scenario.true_chunk_time[t["job"], t["colocated"].astype(np.int64)]
            needs = duration + scenario.physics.checkpoint_overhead * displaced[part.run_chunk]
            chunk_time = np.where(failed[t["job"]], needs, chunk_time)
        expected = total * ((t["end"] - t["start"]) / chunk_time)
        wrong = ~(np.abs(t["work"] - expected) <= NOISE * total)
        findings.add_rows("M8", wrong, t["job"], t["start"], template, t["chunk"], t["work"], expected)


def check_gang_work(c: Columns, findings: Findings) -> None:
    """Check that an allocation trains in proportion to its worker time, the last one the rest; likewise its rows.

    So the runs of a gang train all mini-batches of its job; at sites M33 replaces this.
    """
    if not len(c.gangs):
        return
    scenario, allocations, row_order = c.scenario, gang_intervals(c), gang_rows(c)
    interval_of_row = np.empty(len(c.gangs), np.int64)
    interval_of_row[row_order.rows] = np.repeat(
        np.arange(len(allocations)), np.diff(row_order.first, append=len(c.gangs))
    )
    job_of_interval, colocated = allocations["job"].to_numpy(), allocations["colocated"].to_numpy().astype(np.int64)
    times = allocations["spent"].cast(pl.Float64).to_numpy()
    last, total, parts = (
        np.append(job_of_interval[1:] != job_of_interval[:-1], True),
        allocations["work"].to_numpy(),
        allocations["servers"].to_numpy(),
    )
    minibatches: Floats = (scenario.jobs.chunks * scenario.jobs.minibatches).astype(np.float64)
    template = "does {:g} mini-batches on server {}; its worker time gives {:g}"

    def check(t: Table, interval: Ints) -> None:
        job, actual, server = t["job"], t["work"], t["server"]
        whole_work = minibatches[job]
        of_time = whole_work / scenario.true_work[job, colocated[interval]]
        time, spent = times[interval], t["workers"] * (t["end"] - t["compute_from"])
        share = np.divide(spent, time, out=np.ones(len(spent)), where=time > 0)
        expected = np.where(last[interval], total[interval] * share, of_time * spent)
        room = NOISE * whole_work + 2 * of_time * (1 + parts[interval])
        wrong = ~(np.abs(actual - expected) <= room)
        findings.add_rows("M8", wrong, job, t["start"], template, actual, server, expected)

    for first, part in c.gangs.parts():
        check(part, interval_of_row[first : first + len(part)])
