"""The runs table of a live run, row by row as it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from skedge.core.model.cluster import Placement
from skedge.core.record.schedule import schema


@dataclass
class _OpenRun:
    """An open run: chunks that take turns on a lane, or one chunk on its own worker in the cloud."""

    server: int
    lane: int | None
    start: int
    before: dict[int, int]
    colocated: bool


class RunsLog:
    """Records runs of chunks and of gangs; times in µs, work in mini-batches."""

    def __init__(self, servers: list[str]) -> None:
        self.servers = servers
        self.open: dict[tuple[int, int], _OpenRun] = {}
        self.rows: list[dict[str, Any]] = []
        self.newest: dict[tuple[int, int], dict[str, Any]] = {}
        self.recorded = Counter[tuple[int, int]]()  # mini-batches in the rows of a chunk
        self.unsettled: dict[int, list[dict[str, Any]]] = {}
        self.settled: dict[int, int] = {}
        self.last: dict[int, int] = {}  # end of a job's last allocation, whether its workers computed or not

    def begin(
        self, job: int, team: int, server: int, lane: int | None, now: int, progress: dict[int, int], *, zeta: bool
    ) -> None:  # fmt: skip
        """Open the run of a team.

        If the coordinator was lost while the chunk's last run ended, that end was reported with too low a progress: by
        the new coordinator, which knew only the last report. What is missing is added to that run, or else to the one
        that begins.

        Parameters
        ----------
        job, team
            The job, and the team's number within it.
        server, lane
            Where it runs; the lane is None for a chunk on its own worker in the cloud.
        now
            The present [µs].
        progress
            Mini-batches trained so far, by chunk of the team.
        zeta
            True: the job's workers and its PS share a server.
        """
        for chunk, trained in progress.items():
            if (job, chunk) in self.newest:
                self._count(job, chunk, trained - self.recorded[job, chunk])
        self.open[job, team] = _OpenRun(
            server, lane, now, {chunk: self.recorded[job, chunk] for chunk in progress}, zeta
        )

    def end(
        self, job: int, team: int, now: int, progress: Sequence[int], steps: int, *, preempted: bool
    ) -> None:  # fmt: skip
        """Close the run of a team: its time is divided among its chunks in proportion to work.

        The chunks get consecutive rows. Fully trained ones come first, as a displaced chunk is the last one
        running. A row of zero length is not recorded: what is trained within it is added to the chunk's row before, or
        gets one of 1 µs. (Reports that a controller has missed can all have the time at which it takes over.)

        Parameters
        ----------
        job, team
            Those of :meth:`begin`.
        now
            The present [µs].
        progress
            Mini-batches trained so far, of each chunk of the job.
        steps
            Mini-batches of a fully trained chunk, E_j B_j.
        preempted
            True: the team had to leave; the last row says so, unless its chunk is fully trained.
        """
        run, cumulated = self.open.pop((job, team)), 0
        work = {chunk: progress[chunk] - before for chunk, before in run.before.items()}
        chunks = sorted((c for c in work if work[c] > 0), key=lambda c: (progress[c] < steps, c)) or [min(work)]
        start, total = run.start, max(sum(work.values()), 1)
        for chunk in chunks:
            cumulated += work[chunk]
            last = chunk == chunks[-1]
            # from cumulated work, so that the rows join without gaps and the last one ends now
            end = now if last else run.start + (now - run.start) * cumulated // total
            if end <= start and work[chunk] > 0:
                if (job, chunk) in self.newest:
                    self._count(job, chunk, work[chunk])
                    continue
                end = start + 1
            if end > start:
                cut = preempted and last and progress[chunk] < steps
                self._chunk(job, chunk, run, start, end, work[chunk], preempted=cut)
            start = max(start, end)

    def _chunk(self, job: int, chunk: int, run: _OpenRun, start: int, end: int, work: int, *, preempted: bool) -> None:
        """Record a run of a chunk, merged with its last run if it continues that one."""
        last = self.newest.get((job, chunk))
        if last is not None and (last["end"], last["lane"], last["preempted"]) == (start, run.lane, False):
            last |= {"end": end, "preempted": preempted}
        else:
            self._add(job, chunk, run.server, run.lane, 1, start, start, end, 0.0, run.colocated, preempted)
            self.newest[job, chunk] = self.rows[-1]
        self._count(job, chunk, work)

    def _count(self, job: int, chunk: int, work: int) -> None:
        """Add mini-batches to the last row of a chunk."""
        self.newest[job, chunk]["work"] += work
        self.recorded[job, chunk] += work

    def chunks(self, job: int, team: int) -> list[int]:
        """The chunks of a running team."""
        return list(self.open[job, team].before)

    def running(self, job: int) -> list[int]:
        """The running teams of a job."""
        return [team for owner, team in self.open if owner == job]

    def gang(
        self, job: int, placement: Placement, start: int, compute_from: int, now: int, *, zeta: bool, preempted: bool
    ) -> None:
        """Record an allocation that ends; one of zero length is dropped. :meth:`settle` fills in its work.

        Parameters
        ----------
        job, placement
            The job, and (server, workers) pairs: a row each.
        start, compute_from, now
            When the workers were given to it, when they began to compute (NEVER: they have not), and the present [µs].
        zeta
            True: the workers and the PS share a server.
        preempted
            False: it ends because the job has left the system.
        """
        if now == start:
            return
        self.last[job] = now
        for server, n in placement:
            self._add(job, None, server, None, n, start, min(compute_from, now), now, 0.0, zeta, preempted)
            if compute_from <= now:
                self.unsettled.setdefault(job, []).append(self.rows[-1])

    def site(
        self, job: int, placement: Placement, start: int, now: int, work: Mapping[int, int], *, preempted: bool
    ) -> None:  # fmt: skip
        """Record an allocation at sites that ends; one of zero length is dropped.

        Parameters
        ----------
        job, placement
            The job, and (site, workers) pairs: a row each.
        start, now
            When the workers were given to it, and the present [µs].
        work
            Mini-batches trained in it, by site; a site that is missing has trained none.
        preempted
            False: it ends because the job has left the system.
        """
        if now > start:
            for site, n in placement:
                self._add(job, None, site, None, n, start, start, now, float(work.get(site, 0)), False, preempted)

    def settle(self, job: int, trained: int, *, finished: bool = False) -> None:
        """Divide a gang's work since the last call (`trained` is the total) among its workers by their time.

        A gang suspended during its last mini-batch has finished all the same, so its rows are not preempted.
        """
        rows = self.unsettled.pop(job, [])
        if not rows:
            return
        for row in rows:
            row["preempted"] &= not (finished and row["end"] == self.last[job])
        spent = [row["workers"] * max(row["end"] - row["compute_from"], 1) for row in rows]
        work, total = trained - self.settled.get(job, 0), sum(spent)
        self.settled[job] = trained
        for row, part in zip(rows, spent, strict=True):
            row["work"] = work * part / total

    def _add(self, job: int, chunk: int | None, server: int, *rest: Any) -> None:
        names = ("lane", "workers", "start", "compute_from", "end", "work", "colocated", "preempted")
        row = {"job": job, "chunk": chunk, "server": self.servers[server]}
        self.rows.append({**row, **dict(zip(names, rest, strict=True))})

    def table(self) -> pl.DataFrame:
        """The runs table so far."""
        table = pl.DataFrame(self.rows, schema=schema(self.servers)["runs"])
        return table.sort("start", "job", "chunk", "server", maintain_order=True)
