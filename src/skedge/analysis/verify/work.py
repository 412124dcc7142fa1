"""Rule M8 for each row: mini-batches are in proportion to the training time."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, Table, failure_times, gang_intervals, gang_rows
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import NOISE
from skedge.core.model.time import NEVER

from .chunks import Chunks
from .rules import MOST_WORK_ERROR, Findings


def check_work(k: Chunks, found: Findings, *, measured: bool) -> None:
    """Check that each chunk has E_j B_j mini-batches, and each run a part in proportion to its time.

    `measured`: in a live run mini-batches are counted, not computed from times, so only the chunks are checked.
    """
    _of_chunks(k, found)
    if not measured:
        _of_chunk_runs(k, found)


def check_gang_work(c: Columns, found: Findings) -> None:
    """Check that the runs of a gang train all mini-batches of its job; at sites M33 replaces this."""
    if len(c.gangs):
        _of_gangs(c, found)


def _of_chunks(k: Chunks, found: Findings) -> None:
    """Check that the runs of a chunk of a finished job train E_j B_j mini-batches."""
    t, jobs = k.c.jobs, k.c.scenario.jobs
    finished = np.zeros(len(jobs), bool)
    finished[t["job"]] = t.has("state", "finished")
    off = k.work / np.repeat(jobs.minibatches, jobs.chunks)
    off -= 1
    # negated, so that no number (NaN) is wrong too
    wrong = ~(np.abs(off, out=off) <= MOST_WORK_ERROR)
    wrong &= np.repeat(finished, jobs.chunks) & (k.row >= 0)
    chunks = np.flatnonzero(wrong)[: found.limit]
    for chunk, job in zip(chunks, k.job(chunks), strict=True):
        number = chunk - k.c.first_chunk[job]
        text = f"{k.work[chunk]:g} mini-batches of chunk {number} are trained; E B is {jobs.minibatches[job]}"
        found.add("M8", int(job), int(k.last[chunk]), text)


def _of_chunk_runs(k: Chunks, found: Findings) -> None:
    length, displaced = k.times
    scenario, failed = k.c.scenario, failure_times(k.c) < NEVER
    say = "a run of chunk {} does {:g} mini-batches; its time gives {:g}"
    for part in k.parts():
        t = part.c.chunks
        whole = k.c.scenario.jobs.minibatches[t["job"]]
        all_of = length[part.run]
        if failed.any():  # the runs of a chunk that was not finished are not all of it
            each = scenario.true_chunk_time[t["job"], t["colocated"].astype(np.int64)]
            needs = each + scenario.physics.checkpoint_overhead * displaced[part.run]
            all_of = np.where(failed[t["job"]], needs, all_of)
        right = whole * ((t["end"] - t["start"]) / all_of)
        wrong = ~(np.abs(t["work"] - right) <= NOISE * whole)
        found.rows(
            "M8", wrong, t["job"], t["start"],
            lambda i, t=t, right=right: say.format(t["chunk"][i], t["work"][i], right[i]),  # type: ignore[misc]
        )  # fmt: skip


def _of_gangs(c: Columns, found: Findings) -> None:
    """Check that an allocation trains in proportion to its worker time, the last one the rest; likewise its rows."""
    scenario, of, by = c.scenario, gang_intervals(c), gang_rows(c)
    at_of = np.empty(len(c.gangs), np.int64)
    at_of[by.rows] = np.repeat(np.arange(len(of)), np.diff(by.first, append=len(c.gangs)))
    of_job, colocated = of["job"].to_numpy(), of["colocated"].to_numpy().astype(np.int64)
    times = of["spent"].cast(pl.Float64).to_numpy()
    last, total, parts = np.append(of_job[1:] != of_job[:-1], True), of["work"].to_numpy(), of["servers"].to_numpy()
    minibatches: Floats = (scenario.jobs.chunks * scenario.jobs.minibatches).astype(np.float64)
    say = "does {:g} mini-batches on server {}; its worker time gives {:g}"

    def check(t: Table, at: Ints) -> None:
        job, got, server = t["job"], t["work"], t["server"]
        whole = minibatches[job]
        of_time = whole / scenario.true_work[job, colocated[at]]
        time, spent = times[at], t["workers"] * (t["end"] - t["compute_from"])
        share = np.divide(spent, time, out=np.ones(len(spent)), where=time > 0)
        right = np.where(last[at], total[at] * share, of_time * spent)
        room = NOISE * whole + 2 * of_time * (1 + parts[at])
        wrong = ~(np.abs(got - right) <= room)
        found.rows("M8", wrong, job, t["start"], lambda i: say.format(got[i], server[i], right[i]))

    for first, part in c.gangs.parts():
        check(part, at_of[first : first + len(part)])
