"""The runs table of a live run, row by row as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from skedge.core.gangs import Placement
from skedge.core.schedule import schema


@dataclass
class _Open:
    """A chunk that is being trained on a lane, or on a worker of its own in the cloud."""

    server: int
    lane: int | None
    start: int
    done_before: int
    colocated: bool


class RunsLog:
    """Notes runs of chunks and of gangs; times in µs, work in mini-batches."""

    def __init__(self, servers: list[str]) -> None:
        self.servers = servers
        self.open: dict[tuple[int, int], _Open] = {}
        self.rows: list[dict[str, Any]] = []
        self.unsettled: dict[int, list[dict[str, Any]]] = {}
        self.settled: dict[int, int] = {}
        self.last: dict[int, int] = {}  # end of a job's last allocation, whether its workers computed or not

    def begin(self, job: int, chunk: int, server: int, lane: int | None, now: int, done: int, *, zeta: bool) -> None:
        """A chunk with `done` mini-batches begins to run."""
        self.open[job, chunk] = _Open(server, lane, now, done, zeta)

    def end(self, job: int, chunk: int, now: int, done: int, *, preempted: bool) -> None:
        """The run of a chunk ends with `done` mini-batches; one of no length leaves no trace."""
        run = self.open.pop((job, chunk))
        if now > run.start:
            work = float(done - run.done_before)
            self._add(job, chunk, run.server, run.lane, 1, run.start, run.start, now, work, run.colocated, preempted)

    def running(self, job: int) -> list[int]:
        """Chunks of a job that run."""
        return [chunk for other, chunk in self.open if other == job]

    def gang(
        self, job: int, where: Placement, start: int, compute_from: int, now: int, *, zeta: bool, preempted: bool
    ) -> None:
        """An allocation ends; one of no length leaves no trace. Its work is told by :meth:`settle`."""
        if now == start:
            return
        self.last[job] = now
        for server, n in where:
            self._add(job, None, server, None, n, start, min(compute_from, now), now, 0.0, zeta, preempted)
            if compute_from <= now:
                self.unsettled.setdefault(job, []).append(self.rows[-1])

    def site(
        self, job: int, where: Placement, start: int, now: int, work: Mapping[int, int], *, preempted: bool
    ) -> None:  # fmt: skip
        """An allocation at sites ends, with what each has trained; one of no length leaves no trace."""
        if now > start:
            for site, n in where:
                self._add(job, None, site, None, n, start, start, now, float(work.get(site, 0)), False, preempted)

    def settle(self, job: int, done: int, *, finished: bool = False) -> None:
        """Share what a gang has done since the last time, of `done` in all, among the workers by their time.

        One that was suspended while its last mini-batch was trained has finished all the same: nothing was preempted.
        """
        rows = self.unsettled.pop(job, [])
        if not rows:
            return
        for row in rows:
            row["preempted"] &= not (finished and row["end"] == self.last[job])
        spent = [row["workers"] * max(row["end"] - row["compute_from"], 1) for row in rows]
        work, total = done - self.settled.get(job, 0), sum(spent)
        self.settled[job] = done
        for row, part in zip(rows, spent, strict=True):
            row["work"] = work * part / total

    def _add(self, job: int, chunk: int | None, server: int, *rest: Any) -> None:
        names = ("lane", "workers", "start", "compute_from", "end", "work", "colocated", "preempted")
        row = {"job": job, "chunk": chunk, "server": self.servers[server]}
        self.rows.append({**row, **dict(zip(names, rest, strict=True))})

    def table(self) -> pl.DataFrame:
        """The runs table of what has happened."""
        table = pl.DataFrame(self.rows, schema=schema(self.servers)["runs"])
        return table.sort("start", "job", "chunk", "server", maintain_order=True)
