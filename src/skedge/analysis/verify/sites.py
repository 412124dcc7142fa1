"""Rules on sites: M31 to M33, which are Okita's (2a) to (2c) and (2e) to (2g); (2d) is M26.

The chunks trained at each site are recomputed, slot by slot, from the recorded workers and transfers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

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


def check_sites(c: Columns, found: Findings, slack: int) -> None:
    """Check all rules on sites."""
    _one_ps(c, found, slack)
    moves = _moves(c)
    _sizes(c, found, moves, slack)
    _booked(c, found, moves)
    _trained(c, found, moves)


def _moves(c: Columns) -> list[_Move]:
    frame = c.uploads.frame.filter(pl.col("from_site").is_not_null())
    place = {name: i for i, name in enumerate(c.scenario.cluster.server_ids)}
    rows = frame.select("job", "from_site", pl.col("to_server").cast(pl.String), "chunks", "mb", "start").iter_rows()
    return [
        _Move(job, place.get(source, -1), place[target], chunks, mb, time)
        for job, source, target, chunks, mb, time in rows
    ]


def _one_ps(c: Columns, found: Findings, slack: int) -> None:
    """M32: exactly one PS, exactly while workers are held."""
    held = c.gangs.frame.group_by("job", "start", maintain_order=True).agg(pl.col("end").max())
    both = held.join(
        c.ps.frame.group_by("job", "start").agg(pl.col("count").sum(), until=pl.col("end").max()),
        on=["job", "start"],
        how="full",
        coalesce=True,
    ).sort("job", "start")
    for job, start, end, count, until in both.iter_rows():
        if count != 1 or end is None or abs(end - until) > slack:
            text = f"holds workers until {end} µs, and {count or 0} PSs until {until} µs; it must hold one as long"
            found.add("M32", job, start, text)


def _sizes(c: Columns, found: Findings, moves: list[_Move], slack: int) -> None:
    """M31: a transfer has the size of its chunks and goes to another site; M23: at the start of a slot."""
    chunk_mb, slot = c.scenario.jobs.chunk_mb, c.scenario.physics.slot
    for move in moves:
        right = move.chunks * float(chunk_mb[move.job])
        if abs(move.time - _slot(move.time, slot) * slot) > slack:
            found.add("M23", move.job, move.time, f"data are moved inside a slot of {slot} µs, not at its start")
        if move.source < 0 or move.source == move.target:
            found.add(
                "M31", move.job, move.time, "chunks are moved from an unknown site, or to the site where they are"
            )
        elif not math.isclose(move.mb, right, rel_tol=NOISE):
            text = f"{move.chunks} chunks are moved with {move.mb:g} MB; they have {right:g}"
            found.add("M31", move.job, move.time, text)


def _booked(c: Columns, found: Findings, moves: list[_Move]) -> None:
    """M31: the cost that a policy accounts for a job's transfers of one instant is their cost, q g, Eq. (1)."""
    cost = c.scenario.cluster.transfer_cost
    assert cost is not None  # noqa: S101 - there are sites
    _decided(c, found, moves)
    rows = c.decisions.frame.filter(pl.col("verb") == "transfer", pl.col("value").is_not_null())
    said: dict[tuple[int, int], float] = {
        (job, time): value for job, time, value in rows.group_by("job", "time").agg(pl.col("value").sum()).iter_rows()
    }
    is_ = dict.fromkeys(said, 0.0)
    for move in moves:
        if (move.job, move.time) in is_ and move.source >= 0:
            is_[move.job, move.time] += float(cost[move.source, move.target]) * move.mb
    for (job, time), value in sorted(said.items()):
        right = is_[job, time]
        if not math.isclose(value, right, rel_tol=1e-6, abs_tol=NOISE):
            found.add("M31", job, time, f"transfers have a cost of {value:g} on record; they cost {right:g}")


def _decided(c: Columns, found: Findings, moves: list[_Move]) -> None:
    """M31: transfers and decisions to transfer match."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "transfer"))
    said = Counter(zip(*(d[name][rows].tolist() for name in ("job", "time", "server")), strict=True))
    made = Counter((move.job, move.time, move.target) for move in moves)
    # counters drop what is below 0, so both differences are taken
    for job, time, site in sorted(((said - made) + (made - said)).keys())[: found.limit]:
        text = f"{said[job, time, site]} transfers to server {site} are decided, {made[job, time, site]} are made"
        found.add("M31", job, time, text)


def _trained(c: Columns, found: Findings, moves: list[_Move]) -> None:
    """M31, M33: only chunks that are there move; a slot trains min(chunks there, floor(rho y / E))."""
    slot = c.scenario.physics.slot
    by_job: dict[int, dict[int, list[_Move]]] = defaultdict(lambda: defaultdict(list))
    for move in moves:
        by_job[move.job][_slot(move.time, slot)].append(move)
    busy: dict[int, dict[int, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
    t = c.gangs
    columns = (t[name].tolist() for name in ("job", "server", "workers", "start", "end"))
    for row, (job, site, workers, start, end) in enumerate(zip(*columns, strict=True)):
        for at in range(_slot(start, slot), _slot(end, slot)):
            busy[job][at].append((row, site, workers))
    chunks, most = np.zeros(len(t), np.int64), _cut_short(c)
    for job in sorted(set(by_job) | set(busy)):
        _follow(c, found, job, by_job[job], busy[job], chunks, most)
    _work(c, found, chunks)


def _cut_short(c: Columns) -> Ints:
    """Maximum that each run can have trained: its record if its job failed or a server was lost, else no limit."""
    t, failed = c.gangs, failure_times(c) < NEVER
    out = c.decisions.frame.filter(
        pl.col("verb") == "suspend", pl.col("reason").cast(pl.String).str.starts_with("server_")
    )
    gone = set(out.select("job", "time").rows())
    lost = np.array([pair in gone for pair in zip(t["job"].tolist(), t["end"].tolist(), strict=True)], bool)
    cut = failed[t["job"]] | lost
    done = np.rint(t["work"] / c.scenario.jobs.minibatches[t["job"]]).astype(np.int64)
    return np.where(cut, done, NEVER)


def _slot(time: int, slot: int) -> int:
    return round(time / slot)


def _comes_back(move: _Move, moves: list[_Move]) -> bool:
    """Whether `moves` could return data from the target of `move` to its source."""
    reached, left = {move.target}, [move.target]
    while left:
        site = left.pop()
        further = {other.target for other in moves if other.source == site} - reached
        reached |= further
        left += further
    return move.source in reached


def _in_order(moves: list[_Move]) -> list[_Move]:
    """The moves of one instant, those that bring data to a site before those that take data on from there.

    The table of transfers does not keep their order; of moves that form no circle, if any order is possible, this is.
    """
    ordered, left = list[_Move](), list(moves)
    while left:
        brought = {move.target for move in left}
        # in a circle no move is ready: the rest in any order
        ready = [move for move in left if move.source not in brought] or left
        ordered += ready
        left = [move for move in left if move not in ready]
    return ordered


def _follow(
    c: Columns,
    found: Findings,
    job: int,
    moves: dict[int, list[_Move]],
    busy: dict[int, list[tuple[int, int, int]]],
    chunks: Ints,
    most: Ints,
) -> None:
    """Follow one job through its slots; `chunks` receives what each row of its runs trains, at most `most`."""
    left, rate = c.scenario.jobs.data[job].copy(), float(c.scenario.slot_chunks[job])
    slot = c.scenario.physics.slot
    for at in sorted(set(moves) | set(busy)):
        if any(move.source >= 0 and _comes_back(move, moves[at]) for move in moves.get(at, ())):
            found.add("M31", job, at, "data are moved away from a site and back to it at one instant")
        for move in _in_order(moves.get(at, [])):
            if move.source < 0:
                continue
            if move.chunks > left[move.source]:
                text = f"{move.chunks} chunks are moved from server {move.source}; {left[move.source]} are there"
                found.add("M31", job, move.time, text)
            left[move.source] -= move.chunks
            left[move.target] += move.chunks
        for row, site, workers in busy.get(at, ()):
            done = min(max(int(left[site]), 0), math.floor(rate * workers + NOISE), int(most[row] - chunks[row]))
            left[site] -= done
            chunks[row] += done
        if at in busy and not left.any() and at != max(busy):
            found.add("M33", job, (at + 1) * slot, "continues to hold workers, but nothing is left to train")
            return
    rows = np.flatnonzero(c.jobs["job"] == job)
    state = c.jobs.frame["state"][int(rows[0])] if len(rows) else None
    if left.any() == (state == "finished"):
        text = f"is {state}; {int(left.sum())} of its chunks are untrained"
        found.add("M33", job, None, text)


def _work(c: Columns, found: Findings, chunks: Ints) -> None:
    """M33: each run has trained what its workers could train."""
    t = c.gangs
    right = chunks * c.scenario.jobs.minibatches[t["job"]]
    wrong = ~np.isclose(t["work"], right, rtol=NOISE)
    say = "{:g} mini-batches are trained on server {}; its workers and data give {:g}"
    found.rows(
        "M33", wrong, t["job"], t["start"], lambda i: say.format(t["work"][i], t["server"][i], right[i])
    )  # fmt: skip
