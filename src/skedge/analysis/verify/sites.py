"""Rules on sites: M31 to M33, which are Okita's (2a) to (2c) and (2e) to (2g); (2d) is M26.

The chunks trained at each site are recomputed, slot by slot, from the recorded workers and transfers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, failure_times
from skedge.core.model.cluster import Ints
from skedge.core.model.ties import NOISE
from skedge.core.model.time import NEVER

from .rules import Findings


@dataclass
class _Move:
    """A row of the uploads table that is a transfer."""

    job: int
    source: int
    target: int
    chunks: int
    mb: float
    time: int


def check_sites(c: Columns, findings: Findings, slack: int) -> None:
    """Check all rules on sites."""
    _one_ps(c, findings, slack)
    moves = _moves(c)
    _sizes(c, findings, moves, slack)
    _transfer_costs(c, findings, moves)
    _training(c, findings, moves)


def _moves(c: Columns) -> list[_Move]:
    moved = c.uploads.frame["from_site"].is_not_null().to_numpy()
    names = ("job", "from_site", "to_server", "chunks", "mb", "start")
    return [_Move(*row) for row in zip(*(c.uploads[name][moved].tolist() for name in names), strict=True)]


def _one_ps(c: Columns, findings: Findings, slack: int) -> None:
    """M32: exactly one PS, exactly while workers are held."""
    holdings = c.gangs.frame.group_by("job", "start", maintain_order=True).agg(pl.col("end").max())
    matched = holdings.join(
        c.ps.frame.group_by("job", "start").agg(pl.col("count").sum(), until=pl.col("end").max()),
        on=["job", "start"],
        how="full",
        coalesce=True,
    ).sort("job", "start")
    for job, start, end, count, until in matched.iter_rows():
        if count != 1 or end is None or abs(end - until) > slack:
            text = f"holds workers until {end} µs, and {count or 0} PSs until {until} µs; it must hold one as long"
            findings.add("M32", job, start, text)


def _sizes(c: Columns, findings: Findings, moves: list[_Move], slack: int) -> None:
    """M31: a transfer has the size of its chunks and goes to another site; M23: at the start of a slot."""
    chunk_mb, slot = c.scenario.jobs.chunk_mb, c.scenario.physics.slot
    for move in moves:
        expected = move.chunks * float(chunk_mb[move.job])
        if abs(move.time - _slot(move.time, slot) * slot) > slack:
            findings.add("M23", move.job, move.time, f"data are moved inside a slot of {slot} µs, not at its start")
        if move.source < 0 or move.source == move.target:
            findings.add(
                "M31", move.job, move.time, "chunks are moved from an unknown site, or to the site where they are"
            )
        elif not math.isclose(move.mb, expected, rel_tol=NOISE):
            text = f"{move.chunks} chunks are moved with {move.mb:g} MB; they have {expected:g}"
            findings.add("M31", move.job, move.time, text)


def _transfer_costs(c: Columns, findings: Findings, moves: list[_Move]) -> None:
    """M31: the cost that a policy accounts for a job's transfers of one instant is their cost, q g, Eq. (1)."""
    cost = c.scenario.cluster.site_cost
    _transfer_decisions(c, findings, moves)
    rows = c.decisions.frame.filter(pl.col("verb") == "transfer", pl.col("value").is_not_null())
    recorded_costs: dict[tuple[int, int], float] = {
        (job, time): value for job, time, value in rows.group_by("job", "time").agg(pl.col("value").sum()).iter_rows()
    }
    true_costs = dict.fromkeys(recorded_costs, 0.0)
    for move in moves:
        if (move.job, move.time) in true_costs and move.source >= 0:
            true_costs[move.job, move.time] += float(cost[move.source, move.target]) * move.mb
    for (job, time), value in sorted(recorded_costs.items()):
        true_cost = true_costs[job, time]
        if not math.isclose(value, true_cost, rel_tol=1e-6, abs_tol=NOISE):
            findings.add("M31", job, time, f"transfers have a cost of {value:g} on record; they cost {true_cost:g}")


def _transfer_decisions(c: Columns, findings: Findings, moves: list[_Move]) -> None:
    """M31: transfers and decisions to transfer match."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "transfer"))
    n_decided = Counter(zip(*(d[name][rows].tolist() for name in ("job", "time", "server")), strict=True))
    n_made = Counter((move.job, move.time, move.target) for move in moves)
    # counters drop what is below 0, so both differences are taken
    for job, time, site in sorted(((n_decided - n_made) + (n_made - n_decided)).keys())[: findings.limit]:
        text = (
            f"{n_decided[job, time, site]} transfers to server {site} are decided, {n_made[job, time, site]} are made"
        )
        findings.add("M31", job, time, text)


def _training(c: Columns, findings: Findings, moves: list[_Move]) -> None:
    """M31, M33: only chunks that are there move; a slot trains min(chunks there, floor(rho y / E))."""
    slot = c.scenario.physics.slot
    by_job: dict[int, dict[int, list[_Move]]] = defaultdict(lambda: defaultdict(list))
    for move in moves:
        by_job[move.job][_slot(move.time, slot)].append(move)
    busy: dict[int, dict[int, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
    t = c.gangs
    columns = (t[name].tolist() for name in ("job", "server", "workers", "start", "end"))
    for row, (job, site, workers, start, end) in enumerate(zip(*columns, strict=True)):
        for k in range(_slot(start, slot), _slot(end, slot)):
            busy[job][k].append((row, site, workers))
    chunks, max_chunks = np.zeros(len(t), np.int64), _most_trained(c)
    for job in sorted(set(by_job) | set(busy)):
        _follow_job(c, findings, job, by_job[job], busy[job], chunks, max_chunks)
    _run_work(c, findings, chunks)


def _most_trained(c: Columns) -> Ints:
    """Maximum that each run can have trained: its record if its job failed or a server was lost, else no limit."""
    t, failed = c.gangs, failure_times(c) < NEVER
    outage_suspensions = c.decisions.frame.filter(
        pl.col("verb") == "suspend", pl.col("reason").cast(pl.String).str.starts_with("server_")
    )
    lost_pairs = set(outage_suspensions.select("job", "time").rows())
    lost = np.array([pair in lost_pairs for pair in zip(t["job"].tolist(), t["end"].tolist(), strict=True)], bool)
    # a slot that was cut short may have trained less than it could; the record is believed
    cut = failed[t["job"]] | lost
    n_done = np.rint(t["work"] / c.scenario.jobs.minibatches[t["job"]]).astype(np.int64)
    return np.where(cut, n_done, NEVER)


def _slot(time: int, slot: int) -> int:
    return round(time / slot)


def _supply_order(moves: list[_Move]) -> list[_Move] | None:
    """The moves of one instant, those that bring data to a site before those that take data on from there.

    The table of transfers does not keep their order; if any order is possible, this is. None: they form a circle.
    """
    sources: dict[int, set[int]] = defaultdict(set)
    for move in moves:
        sources[move.target].add(move.source)
    try:
        place = {site: i for i, site in enumerate(TopologicalSorter(sources).static_order())}
    except CycleError:
        return None
    return sorted(moves, key=lambda move: place[move.source])


def _follow_job(
    c: Columns,
    findings: Findings,
    job: int,
    moves: dict[int, list[_Move]],
    busy: dict[int, list[tuple[int, int, int]]],
    chunks: Ints,
    max_chunks: Ints,
) -> None:
    """Follow one job through its slots; `chunks` receives what each row of its runs trains, at most `max_chunks`."""
    left, rate = c.scenario.jobs.data[job].copy(), float(c.scenario.slot_chunks[job])
    slot = c.scenario.physics.slot
    for k in sorted(set(moves) | set(busy)):
        ordered = _supply_order(moves.get(k, []))
        if ordered is None:
            findings.add("M31", job, k, "data are moved away from a site and back to it at one instant")
        for move in moves[k] if ordered is None else ordered:
            if move.source < 0:
                continue
            if move.chunks > left[move.source]:
                text = f"{move.chunks} chunks are moved from server {move.source}; {left[move.source]} are there"
                findings.add("M31", job, move.time, text)
            # also if they were not there, so that one error is reported once
            left[move.source] -= move.chunks
            left[move.target] += move.chunks
        for row, site, workers in busy.get(k, ()):
            n_done = min(
                max(int(left[site]), 0), math.floor(rate * workers + NOISE), int(max_chunks[row] - chunks[row])
            )
            left[site] -= n_done
            chunks[row] += n_done
        if k in busy and not left.any() and k != max(busy):
            findings.add("M33", job, (k + 1) * slot, "continues to hold workers, but nothing is left to train")
            return
    rows = np.flatnonzero(c.jobs["job"] == job)
    state = c.jobs.frame["state"][int(rows[0])] if len(rows) else None
    # a cancellation may come in the slot in which the last chunks are trained
    if left.any() if state == "finished" else not left.any() and state != "cancelled":
        text = f"is {state}; {int(left.sum())} of its chunks are untrained"
        findings.add("M33", job, None, text)


def _run_work(c: Columns, findings: Findings, chunks: Ints) -> None:
    """M33: each run has trained what its workers could train."""
    t = c.gangs
    expected = chunks * c.scenario.jobs.minibatches[t["job"]]
    wrong = ~np.isclose(t["work"], expected, rtol=NOISE)
    template = "{:g} mini-batches are trained on server {}; its workers and data give {:g}"
    findings.add_rows("M33", wrong, t["job"], t["start"], template, t["work"], t["server"], expected)
