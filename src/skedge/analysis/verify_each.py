"""Rule M7 for jobs that are no gangs: every worker begins when its own data are there, and no later."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import polars as pl

from .columns import Columns, not_gangs
from .rules import Findings

_Part = tuple[int, int, int]
"""(workers, when their data are there [µs], from when they compute [µs])."""


@dataclass
class _Last:
    """A job's last allocation: its workers by server, and when it ended [µs]."""

    end: int | None = None
    parts: dict[int, list[_Part]] = field(default_factory=dict)


def check_begins(c: Columns, found: Findings, slack: int) -> None:
    """Follow each job from allocation to allocation; see that its workers compute from when they should.

    On a server the workers that begin first are kept. They go on if the job held them until now, else they begin when
    their data are there, and restored. Each further one needs an upload begun since the last allocation, and begins
    when that has ended; it is restored too unless the job has never run.
    """
    each = pl.Series(not_gangs(c), dtype=pl.Int32).implode()
    frame = c.gangs.frame.with_columns(pl.Series("server", c.gangs["server"], dtype=pl.Int32))
    frame = frame.filter(pl.col("job").is_in(each)).sort("job", "start", "server", "compute_from")
    rows = frame.select("job", "start", "server", "compute_from", "end", "workers").rows()
    uploads = _uploads(c, each)
    for job, of_job in groupby(rows, itemgetter(0)):
        last = _Last()
        for start, allocation in groupby(of_job, itemgetter(1)):
            _follow(c, found, slack, job, start, list(allocation), last, uploads)


def _uploads(c: Columns, each: pl.Expr | pl.Series) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(begun, ready) of all uploads of a job to a server, in order of time [µs]."""
    u, out = c.uploads, dict[tuple[int, int], list[tuple[int, int]]]()
    table = pl.DataFrame({"job": u["job"], "server": u["to_server"], "begun": u["start"], "ready": u["end"]})
    for job, server, begun, ready in table.filter(pl.col("job").is_in(each)).sort("begun", maintain_order=True).rows():
        out.setdefault((job, server), []).append((begun, ready))
    return out


def _follow(
    c: Columns,
    found: Findings,
    slack: int,
    job: int,
    start: int,
    rows: list[tuple[int, ...]],
    last: _Last,
    uploads: dict[tuple[int, int], list[tuple[int, int]]],
) -> None:
    """Check one allocation against the one before, and make it the last."""
    goes_on = last.end is not None and start <= last.end + slack
    restore = 0 if last.end is None else c.scenario.physics.checkpoint_overhead
    parts: dict[int, list[_Part]] = {}
    for server, on_server in groupby(rows, itemgetter(2)):
        got = [(n, begin) for *_, begin, _, n in on_server]
        kept = _first(last.parts.get(server, []), sum(n for n, _ in got))
        expected = [(k, ready, begin if goes_on else max(start, ready) + restore) for k, ready, begin in kept]
        new = sum(n for n, _ in got) - sum(k for k, _, _ in kept)
        if new:
            since = (0 if last.end is None else last.end) - slack
            near = [up for up in uploads.get((job, server), []) if since <= up[0] <= start + slack]
            if not near:
                text = f"holds {new} more workers on server {server} than before; nothing was uploaded"
                found.add("M7", job, start, text)
            ready = near[-1][1] if near else start
            expected.append((new, ready, max(start, ready) + restore))
        parts[server] = sorted(expected, key=itemgetter(2))
        _compare(found, slack, job, start, rows[0][4], server, got, parts[server])
    last.end, last.parts = rows[0][4], parts


def _first(parts: list[_Part], n: int) -> list[_Part]:
    """The `n` workers of `parts` that begin first; all if there are fewer."""
    kept = []
    for k, ready, begin in parts:
        if n > 0:
            kept.append((min(k, n), ready, begin))
            n -= k
    return kept


def _compare(
    found: Findings,
    slack: int,
    job: int,
    start: int,
    end: int,
    server: int,
    got: list[tuple[int, int]],
    expected: list[_Part],
) -> None:
    """Worker by worker, in the order in which they begin."""
    begun = [begin for n, begin in got for _ in range(n)]
    for computes, (_, _, begin) in zip(begun, (part for part in expected for _ in range(part[0])), strict=True):
        due = min(max(begin, start), end)
        if abs(computes - due) > slack:
            only = " only" if computes > due else ""
            text = f"a worker on server {server} computes from {computes} µs{only}; it can, and should, from {due} µs"
            found.add("M7", job, start, text)
            return
