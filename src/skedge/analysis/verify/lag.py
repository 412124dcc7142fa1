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
    takes_turns
        By job: whether its chunks take turns on a lane.
    """

    def __init__(self, k: Chunks, *, live: bool) -> None:
        jobs = k.c.scenario.jobs
        self.k, self.live = k, live
        self.takes_turns: Mask = np.full(len(jobs), live) | (jobs.max_lag > 0)
        self.ends, self.begins = dict[int, Ints](), dict[int, Ints]()
        self.holds: dict[int, list[_Hold]] = {}
        for job in np.flatnonzero(jobs.max_lag).tolist():
            self._follow(job)

    def _follow(self, job: int) -> None:
        """Find when the job's chunks train their epochs, and when they wait between them."""
        first, chunks = int(self.k.c.first_chunk[job]), int(self.k.c.scenario.jobs.chunks[job])
        epochs = [self._epochs(job, first + d) for d in range(chunks)]
        self.begins[job], self.ends[job] = (np.array(times) for times in zip(*epochs, strict=True))
        earliest = self.earliest_starts(job)
        for d in range(chunks):
            ends = self.ends[job][d, :-1]
            waits = np.flatnonzero((ends < NEVER) & (earliest[1:] > ends))
            self.holds[first + d] = [(int(ends[e]), int(earliest[e + 1])) for e in waits]

    def earliest_starts(self, job: int) -> Ints:
        """For each epoch: when all chunks have ended the epoch `max_lag` before it [µs]."""
        lag, ends = int(self.k.c.scenario.jobs.max_lag[job]), self.ends[job]
        earliest = np.zeros(ends.shape[1], np.int64)
        # epoch e may begin when all chunks have ended epoch e - lag; the first `lag` epochs at once
        earliest[lag:] = ends.max(axis=0)[: len(earliest[lag:])]
        return earliest

    def _epochs(self, job: int, chunk: int) -> tuple[Ints, Ints]:
        """Start and end of each epoch of a chunk [µs]: in a simulation from its running time, live from its work."""
        t, jobs = self.k.c.chunks, self.k.c.scenario.jobs
        rows = np.flatnonzero(self.k.run_chunk == chunk)
        rows = rows[np.argsort(t["start"][rows], kind="stable")]
        start, end = t["start"][rows].astype(np.int64), t["end"][rows].astype(np.int64)
        epochs = int(jobs.frame["epochs"][job])
        begins, ends = np.full(epochs, NEVER, np.int64), np.full(epochs, NEVER, np.int64)
        if not len(rows):
            return begins, ends
        # a simulation's times are exact and its mini-batches floats; live, mini-batches are counted and times measured
        progress = np.cumsum(t["work"][rows] if self.live else end - start)
        total = int(jobs.minibatches[job]) if self.live else self._chunk_length(job)
        # rounded down as in the simulation, or a boundary would be off by 1 µs
        after = np.array([e * total // epochs for e in range(epochs + 1)])
        for times, marks, side in ((begins, after[:-1], "right"), (ends, after[1:], "left")):
            run = np.searchsorted(progress, marks, side=side)  # type: ignore[call-overload]
            reached = run < len(rows)
            index = run[reached]
            # progress that the run makes up to the mark
            offset = marks[reached] - np.where(index > 0, progress[index - 1], 0)
            # live, time passes within a run in proportion to its mini-batches
            rate = (
                (end - start)[index] / np.maximum(progress[index] - np.where(index > 0, progress[index - 1], 0), 1)
                if self.live
                else 1
            )
            times[reached] = start[index] + np.round(offset * rate).astype(np.int64)
        return begins, ends

    def _chunk_length(self, job: int) -> int:
        return int(self.k.c.scenario.true_chunk_time[job, self.k.colocation.last[job]])

    def service_windows(self, chunk: int, start: int, end: int) -> list[_Hold]:
        """The intervals from `start` to `end` in which the chunk is not too far ahead."""
        parts = list[_Hold]()
        for hold_start, hold_end in self.holds.get(chunk, []):
            if start < hold_start < end:
                parts.append((start, hold_start))
                start = min(hold_end, end)
        return [*parts, (start, end)]

    def yielding_runs(self, slack: int) -> Mask:
        """Chunk runs after which the chunk is too far ahead, or another chunk of the job takes its turn."""
        t = self.k.c.chunks
        yields = np.zeros(len(t), bool)
        if not self.takes_turns.any():
            return yields
        # neighbours in this order follow each other on a lane
        order = np.lexsort((t["start"], t["lane"]))
        run, after = order[:-1], order[1:]
        turn = (t["lane"][run] >= 0) & (t["lane"][run] == t["lane"][after]) & (t["job"][run] == t["job"][after])
        turn &= self.takes_turns[t["job"][run]] & (np.abs(t["start"][after] - t["end"][run]) <= slack)
        yields[run] = turn & (t["chunk"][run] != t["chunk"][after])
        # in a simulation turns change at the ends of epochs only
        for i in np.flatnonzero(yields & ~self.live):
            job, chunk = int(t["job"][i]), int(t["chunk"][i])
            yields[i] = (self.ends[job][chunk] == t["end"][i]).any()
        for chunk, holds in self.holds.items():
            rows = np.flatnonzero(self.k.run_chunk == chunk)
            yields[rows] |= (
                self._after_whole_epochs(rows)
                if self.live
                else np.isin(t["end"][rows], [hold_start for hold_start, _ in holds])
            )
        return yields

    def _after_whole_epochs(self, rows: Ints) -> Mask:
        """Runs of a chunk after which it has trained whole epochs; live, the times of the others are less exact."""
        t, jobs = self.k.c.chunks, self.k.c.scenario.jobs
        order = np.argsort(t["start"][rows], kind="stable")
        epoch_size = jobs.minibatches[t["job"][rows]] // jobs.frame["epochs"].to_numpy()[t["job"][rows]]
        complete = np.zeros(len(rows), bool)
        complete[order] = np.cumsum(t["work"][rows][order]) % epoch_size[order] == 0
        return complete


def check_lag(lags: Lags, findings: Findings, slack: int) -> None:
    """M39: a chunk begins an epoch only after all chunks of its job have ended the epoch `max_lag` before it."""
    for job, begins in lags.begins.items():
        earliest, room = lags.earliest_starts(job), slack + int(lags.k.c.late[job])
        for chunk, epoch in np.argwhere((begins < NEVER) & (begins < earliest - room))[: findings.limit].tolist():
            lag, time = int(lags.k.c.scenario.jobs.max_lag[job]), int(begins[chunk, epoch])
            # the chunk that holds the others up
            slowest = int(lags.ends[job][:, epoch - lag].argmax())
            text = f"chunk {chunk} begins epoch {epoch + 1} before chunk {slowest} has ended epoch {epoch - lag + 1}"
            findings.add("M39", job, time, f"{text}; max_lag is {lag}")
