"""Chunks in the cloud of jobs that may lose chunks on the edge: where the job becomes colocated, they end earlier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from skedge.core.model.network import upload_delay
from skedge.core.model.scenario import Scenario

from .runs import RunLog


class CloudChunks:
    """The chunks on workers of the cloud, each from the arrival of its data to its end, without interruption.

    Attributes
    ----------
    intervals
        Start and end [µs] of each chunk that has not ended, by job and chunk.
    """

    def __init__(self, scenario: Scenario, log: RunLog) -> None:
        self.scenario, self.log = scenario, log
        self.intervals: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)

    def send(self, job: int, chunk: int, left: int, now: int) -> tuple[int, int]:
        """Upload a chunk to the cloud; returns its start and end [µs].

        Parameters
        ----------
        job, chunk
            Their numbers in the scenario and in the job.
        left
            Training time left at the job's present colocation [µs].
        now
            The present [µs].
        """
        cloud = self.scenario.cluster.cloud
        assert cloud is not None  # noqa: S101 - the kernel has checked the order
        start = now + int(upload_delay(self.scenario.delays, job, cloud))
        self.intervals[job][chunk] = start, start + left
        return self.intervals[job][chunk]

    def ends(self, job: int, chunk: int, now: int) -> bool:
        """Record the run of a chunk if it ends now; False if it does not."""
        start, end = self.intervals[job].get(chunk, (0, -1))
        if end != now:
            return False
        del self.intervals[job][chunk]
        self.log.cloud_runs(job, np.array([chunk]), start, end, int(self.log.colocated[job]))
        return True

    def end(self, job: int, now: int) -> None:
        """Record the runs of the chunks of a job that has failed as far as they came."""
        for chunk, (start, _) in self.intervals.pop(job, {}).items():
            if start < now:
                self.log.cloud_runs(job, np.array([chunk]), start, now, int(self.log.colocated[job]))

    def convert_to_colocated(self, job: int, now: int) -> Iterator[tuple[int, int]]:
        """Convert what is left of a job's chunks to zeta_j = 1 from now on; yields chunk and new end [µs]."""
        for chunk, (start, _) in self.intervals[job].items():
            self.intervals[job][chunk] = start, self._end(job, chunk, start, now)
            yield chunk, self.intervals[job][chunk][1]

    def _end(self, job: int, chunk: int, start: int, now: int) -> int:
        """End of a chunk trained at zeta_j = 0 until now, on the edge and from `start` on in the cloud [µs].

        Earlier time counts in proportion of the two chunk times, but for restores (M8).
        """
        physics = self.scenario.physics
        chunk_times, overhead = self.scenario.true_chunk_time[job].tolist(), physics.checkpoint_overhead
        lengths = self.log.lengths_on_lanes(job, chunk)
        # each run but the first begins with a restore, which may be cut short; it trains nothing
        restored = sum(min(overhead, length) for length in lengths[1:])
        trains_from = start + (overhead if lengths else 0)
        trained = sum(lengths) - restored + max(0, now - trains_from)
        overhead_owed = overhead * (len(lengths) - 1) - restored if lengths else 0
        # the share trained / p(zeta=0) is done, in units of p(zeta=1) rounded down; the rest is trained at zeta = 1
        end = max(now, trains_from) + chunk_times[1] + overhead_owed - trained * chunk_times[1] // chunk_times[0]
        return -(-end // physics.step) * physics.step
