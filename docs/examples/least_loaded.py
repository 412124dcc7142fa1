"""Least loaded: every chunk goes to the worker that can begin it first, data included."""

import numpy as np

from skedge.core.events import CLOUD, AssignPS, Dispatch, Reject
from skedge.core.policy import BasePolicy


class LeastLoaded(BasePolicy):
    """Each chunk to the worker that can begin it first."""

    name = "least_loaded"

    def start(self, cluster, physics, rng):
        """Begin a run: all state is made here."""
        super().start(cluster, physics, rng)
        self.busy_until = np.zeros(cluster.lanes, np.int64)

    def decide(self, event, view):
        """Place the jobs that have arrived; give a PS to those whose first chunk has just begun."""
        for job in event.arrived:
            yield self.place(job, view)
        for job in event.started:
            yield AssignPS(job, self.free_ps(job, view))

    def place(self, job, view):
        """Send each chunk of `job` to a lane, for good."""
        chunks, p = int(view.jobs.chunks[job]), int(view.chunk_time[job, 0])
        lanes = self.cluster.lanes_of(view.jobs.worker_type[job])
        if not len(lanes):
            return Reject(job, "no edge server has a worker of its type")
        lane = np.zeros(chunks, np.int64)
        data_there = view.now + view.upload_delays(job)[self.cluster.lane_server[lanes]]
        for d in range(chunks):
            begin = np.maximum(self.busy_until[lanes], data_there)
            best = begin.argmin()
            lane[d] = lanes[best]
            self.busy_until[lane[d]] = begin[best] + p
        return Dispatch(job, lane, rank=chunks * p, alpha=np.zeros(chunks), postponed=np.zeros(chunks, np.int64))

    def free_ps(self, job, view):
        """The first free PS slot of its type, else one in the cloud."""
        free = np.flatnonzero((self.cluster.ps_type == view.jobs.ps_type[job]) & (view.ps_job < 0))
        return int(free[0]) if len(free) else CLOUD
