"""Rule M39: the lag between a job's dispatched chunks, and the waits of chunks that are too far ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER

from .rules import Findings

if TYPE_CHECKING:
    from .chunks import Chunks

Mask = NDArray[np.bool_]
_Hold = tuple[int, int]


class Lags:
    """The epochs of jobs that bound their chunks' lag.

    Attributes
    ----------
    ends
        By job: end of each epoch of each chunk [µs], shape ``(D_j, E_j)``; NEVER if there is none.
    begins
        Start of each epoch, likewise.
    holds
        By chunk, numbered through all jobs: intervals in which it is too far ahead, [end of an epoch, may continue).
    turns
        By job: whether its chunks take turns on a lane.
    """

    def __init__(self, k: Chunks, *, live: bool) -> None:
        jobs = k.c.scenario.jobs
        self.k, self.live = k, live
        self.turns: Mask = np.full(len(jobs), live) | (jobs.max_lag > 0)
        self.ends, self.begins = dict[int, Ints](), dict[int, Ints]()
        self.holds: dict[int, list[_Hold]] = {}
        for job in np.flatnonzero(jobs.max_lag).tolist():
            self._follow(job)

    def _follow(self, job: int) -> None:
        """Find when the job's chunks train their epochs, and when they wait between them."""
        first, chunks = int(self.k.c.first_chunk[job]), int(self.k.c.scenario.jobs.chunks[job])
        epochs = [self._epochs(job, first + d) for d in range(chunks)]
        self.begins[job], self.ends[job] = (np.array(times) for times in zip(*epochs, strict=True))
        may_begin = self.may_begin(job)
        for d in range(chunks):
            ends = self.ends[job][d, :-1]
            ahead = np.flatnonzero((ends < NEVER) & (may_begin[1:] > ends))
            self.holds[first + d] = [(int(ends[e]), int(may_begin[e + 1])) for e in ahead]

    def may_begin(self, job: int) -> Ints:
        """For each epoch: when all chunks have ended the epoch `max_lag` before it [µs]."""
        lag, ends = int(self.k.c.scenario.jobs.max_lag[job]), self.ends[job]
        at = np.zeros(ends.shape[1], np.int64)
        # epoch e may begin when all chunks have ended epoch e - lag; the first `lag` epochs at once
        at[lag:] = ends.max(axis=0)[: len(at[lag:])]
        return at

    def _epochs(self, job: int, chunk: int) -> tuple[Ints, Ints]:
        """Start and end of each epoch of a chunk [µs]: in a simulation from its running time, live from its work."""
        t, jobs = self.k.c.chunks, self.k.c.scenario.jobs
        rows = np.flatnonzero(self.k.run == chunk)
        rows = rows[np.argsort(t["start"][rows], kind="stable")]
        start, end = t["start"][rows].astype(np.int64), t["end"][rows].astype(np.int64)
        epochs = int(jobs.frame["epochs"][job])
        begins, ends = np.full(epochs, NEVER, np.int64), np.full(epochs, NEVER, np.int64)
        if not len(rows):
            return begins, ends
        done = np.cumsum(t["work"][rows] if self.live else end - start)
        whole = int(jobs.minibatches[job]) if self.live else self._whole(job)
        # rounded down as in the simulation, or a boundary would be off by 1 µs
        after = np.array([e * whole // epochs for e in range(epochs + 1)])
        for times, marks, side in ((begins, after[:-1], "right"), (ends, after[1:], "left")):
            run = np.searchsorted(done, marks, side=side)  # type: ignore[call-overload]
            there = run < len(rows)
            at = run[there]
            part = marks[there] - np.where(at > 0, done[at - 1], 0)
            rate = (end - start)[at] / np.maximum(done[at] - np.where(at > 0, done[at - 1], 0), 1) if self.live else 1
            times[there] = start[at] + np.round(part * rate).astype(np.int64)
        return begins, ends

    def _whole(self, job: int) -> int:
        return int(self.k.c.scenario.true_chunk_time[job, self.k.zeta.last[job]])

    def split(self, chunk: int, ready: int, gone: int) -> list[_Hold]:
        """The intervals from `ready` to `gone` in which the chunk is not too far ahead."""
        parts = list[_Hold]()
        for ahead, until in self.holds.get(chunk, []):
            if ready < ahead < gone:
                parts.append((ready, ahead))
                ready = min(until, gone)
        return [*parts, (ready, gone)]

    def gave_up(self, slack: int) -> Mask:
        """Chunk runs after which the chunk is too far ahead, or another chunk of the job takes its turn."""
        t = self.k.c.chunks
        kept = np.zeros(len(t), bool)
        if not self.turns.any():
            return kept
        order = np.lexsort((t["start"], t["lane"]))
        run, after = order[:-1], order[1:]
        turn = (t["lane"][run] >= 0) & (t["lane"][run] == t["lane"][after]) & (t["job"][run] == t["job"][after])
        turn &= self.turns[t["job"][run]] & (np.abs(t["start"][after] - t["end"][run]) <= slack)
        kept[run] = turn & (t["chunk"][run] != t["chunk"][after])
        for i in np.flatnonzero(kept & ~self.live):
            job, chunk = int(t["job"][i]), int(t["chunk"][i])
            kept[i] = (self.ends[job][chunk] == t["end"][i]).any()
        for chunk, holds in self.holds.items():
            rows = np.flatnonzero(self.k.run == chunk)
            kept[rows] |= self._whole_epochs(rows) if self.live else np.isin(t["end"][rows], [at for at, _ in holds])
        return kept

    def _whole_epochs(self, rows: Ints) -> Mask:
        """Runs of a chunk after which it has trained whole epochs; live, the times of the others are less exact."""
        t, jobs = self.k.c.chunks, self.k.c.scenario.jobs
        order = np.argsort(t["start"][rows], kind="stable")
        each = jobs.minibatches[t["job"][rows]] // jobs.frame["epochs"].to_numpy()[t["job"][rows]]
        whole = np.zeros(len(rows), bool)
        whole[order] = np.cumsum(t["work"][rows][order]) % each[order] == 0
        return whole


def check_lag(lags: Lags, found: Findings, slack: int) -> None:
    """M39: a chunk begins an epoch only after all chunks of its job have ended the epoch `max_lag` before it."""
    for job, begins in lags.begins.items():
        may, room = lags.may_begin(job), slack + int(lags.k.c.late[job])
        for chunk, epoch in np.argwhere((begins < NEVER) & (begins < may - room))[: found.limit].tolist():
            lag, when = int(lags.k.c.scenario.jobs.max_lag[job]), int(begins[chunk, epoch])
            slowest = int(lags.ends[job][:, epoch - lag].argmax())
            text = f"chunk {chunk} begins epoch {epoch + 1} before chunk {slowest} has ended epoch {epoch - lag + 1}"
            found.add("M39", job, when, f"{text}; max_lag is {lag}")
