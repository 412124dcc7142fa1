"""Least loaded with a parameter, a constant taken from historical data, and terms for ``skedge explain``."""

import numpy as np
from least_loaded import LeastLoaded
from pydantic import Field

from skedge.core.events import CLOUD, Dispatch
from skedge.core.model.time import SECOND
from skedge.core.policy import Params


class SpillParams(Params):
    """`spill_s`: longest wait for a first worker before a job goes to the cloud [s]; None: calibrated."""

    spill_s: float | None = Field(default=None, gt=0)


class Spill(LeastLoaded):
    """As least_loaded, but a job that would wait too long goes to the cloud."""

    name = "spill"
    Parameters = SpillParams

    def calibrated(self, scenario):
        """The same policy with `spill_s` set, if it was not: the median time of a chunk."""
        if self.params.spill_s is not None:
            return self
        return Spill(spill_s=float(np.median(scenario.chunk_time[:, 0])) / SECOND)

    def start(self, cluster, physics, rng):
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.why, self.in_cloud = {}, set()

    def place(self, job, view):
        """Send `job` to the cloud if its first worker is too long in coming."""
        lanes = self.cluster.lanes_of(view.jobs.worker_type[job])
        waits = np.maximum(self.busy_until[lanes] - view.now, 0) / SECOND
        first = float(waits.min(initial=np.inf))
        workers = [{"lane": lane, "waiting_s": wait} for lane, wait in zip(lanes.tolist(), waits.tolist(), strict=True)]
        self.why[job] = {"compares": "waiting_s with spill_s", "waiting_s": first, "workers": workers}
        if self.cluster.cloud is None or first <= self.params.spill_s:
            return super().place(job, view)
        self.in_cloud.add(job)
        zeros = np.zeros(int(view.jobs.chunks[job]), np.int64)
        rank = len(zeros) * int(view.chunk_time[job, 0])
        return Dispatch(job, zeros + CLOUD, rank, zeros.astype(float), zeros, "waits_too_long")

    def free_ps(self, job, view):
        """A job that is wholly in the cloud has its PS there (M15)."""
        return CLOUD if job in self.in_cloud else super().free_ps(job, view)

    def terms(self, job, view):  # noqa: ARG002 - what was compared is remembered, not looked up
        """What was compared when the order on `job` was made."""
        return self.why[job]
