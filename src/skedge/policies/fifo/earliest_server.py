"""FIFO with ``rule=earliest_server``: on arrival, a reservation on the server that can start the job earliest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skedge.core.events import CLOUD, Allocate, Event, Order, Reject, Reserve, Upload, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.model.time import NEVER
from skedge.core.policy import Params, View
from skedge.platform.jit import lean
from skedge.policies.common.step_functions import add, constant, wider
from skedge.policies.gangs.edge import EdgePolicy

if TYPE_CHECKING:
    from numpy.random import Generator


class EarliestServer(EdgePolicy):
    """Every job is reserved, on arrival, on the server where it can start earliest."""

    def __init__(self, params: Params, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run.

        Parameters
        ----------
        params
            Those of the policy.
        cluster, physics
            Of the scenario.
        rng
            Its generator for the policy, which draws nothing.
        """
        self.params = params
        self.start(cluster, physics, rng)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.profiles = Profiles(cluster)
        self.ps_slots = [np.flatnonzero(cluster.ps_type == kind) for kind in range(len(cluster.ps_types))]
        self.due: list[tuple[int, int, int, int]] = []
        self.planned: dict[int, tuple[int, int, int]] = {}
        self.unplanned: list[int] = []

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Return unused reservations, extend broken ones, reserve for arrivals, and start jobs that are due."""
        for job in event.left:
            self._give_back(job, view)
        for job in event.broken:
            if job in self.planned:  # else its server went out of service, and none is there to plan on
                yield from self._extend(job, view)
        jobs = self._homeless(event, view) if event.servers else []
        for job in (*jobs, *event.arrived):
            yield from self._reserve(job, view)
        yield from self._begin_due(view)

    def _begin_due(self, view: View) -> Iterator[Order]:
        """Start jobs that are due, in order; a job whose workers are still held blocks its successors."""
        self.due.sort()
        waiting = []
        blocked: set[tuple[int, int]] = set()
        for plan in self.due:
            start, job, server, k = plan
            place = server, int(view.jobs.worker_type[job])
            order = None if start > view.now or place in blocked else self._begin(job, server, k, view)
            if order is not None:
                yield order
                continue
            waiting.append(plan)
            # first in, first out per server and type: what is due later must not overtake it there
            if start <= view.now:
                blocked.add(place)
        self.due = waiting

    def _homeless(self, event: Event, view: View) -> list[int]:
        """Jobs whose plan is void, their server being out of service, and those that found none to plan on."""
        void = {job for job, (server, _, _) in self.planned.items() if not view.in_service[server]}
        # by number: the order of a set would not be repeatable
        jobs = sorted(void | set(event.interrupted) | set(self.unplanned))
        for job in jobs:
            self._give_back(job, view)
        self.unplanned = []
        return jobs

    def _give_back(self, job: int, view: View) -> None:
        """The workers that a job no longer needs are free for later plans."""
        if job not in self.planned:
            self.unplanned = [unplanned for unplanned in self.unplanned if unplanned != job]
            return
        server, k, end = self.planned.pop(job)
        self.due = [plan for plan in self.due if plan[1] != job]
        # only what lies ahead can be given back; the cloud is without limit and not booked
        if server != self.cluster.cloud and end > view.now:
            self._book(job, server, -k, view.now, end, view)

    def _extend(self, job: int, view: View) -> Iterator[Order]:
        """Extend the plan of a job that has outlived it, by its originally planned length."""
        server, k, _ = self.planned[job]
        colocated = int(server == self.cluster.cloud or self.physics.colocation == "one_server")
        end = view.now + self._duration(job, k, colocated, view)
        # the cloud has no limit, so that it needs no booking
        self.planned[job] = server, k, end
        if server != self.cluster.cloud:
            self._book(job, server, k, view.now, end, view)
        yield Reserve(job, server, k, view.now, end, "extended")

    def _book(self, job: int, server: int, k: int, start: int, end: int, view: View) -> None:
        """Take k workers and a PS of a server in the profiles; give them back where k is negative."""
        kind, ps_kind = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        self.profiles.make_room()
        reserve(self.profiles.state, server, kind, ps_kind, k, 1 if k > 0 else -1, start, end, view.now)

    def _reserve(self, job: int, view: View) -> Iterator[Order]:
        kind, ps_kind = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        cloud, k = self.cluster.cloud, int(view.jobs.workers[job])
        largest = self._largest(kind, ps_kind)
        # without a cloud a job that no server holds runs with as many workers as the largest can give
        if cloud is None:
            k = min(k, largest)
        if k == 0:
            yield Reject(job, "never_fits: no server has a worker and a PS of its types, and there is no cloud")
            return
        delays = view.upload_delays(job)
        server, start, duration = -1, 0, 0
        if k <= largest:
            colocated = int(self.physics.colocation == "one_server")
            duration = self._duration(job, k, colocated, view)
            ready_us = np.where(view.in_service, view.now + delays, NEVER)
            server, start = earliest(self.profiles.state, kind, ps_kind, k, duration, ready_us)
        cloud = cloud if cloud is not None and view.in_service[cloud] else None
        if server < 0 and cloud is None:
            self.unplanned.append(job)
            return
        # the cloud starts at once when the data are there; of equal starts the shorter upload wins
        if cloud is not None and (server < 0 or (view.now + delays[cloud], delays[cloud]) < (start, delays[server])):
            server, start, duration = cloud, int(view.now + delays[cloud]), self._duration(job, k, 1, view)
        elif server >= 0:
            self._book(job, server, k, start, start + duration, view)
        self.planned[job] = server, k, start + duration
        self.due.append((start, job, server, k))
        yield Upload(job, ((server, k),))
        yield Reserve(job, server, k, start, start + duration, "earliest_server")

    def _largest(self, kind: int, ps_kind: int) -> int:
        if kind < 0 or ps_kind < 0:
            return 0
        with_ps = self.cluster.ps[:, ps_kind] > 0
        return int(self.cluster.workers[with_ps, kind].max(initial=0))

    def _duration(self, job: int, k: int, colocated: int, view: View) -> int:
        step = self.physics.step
        exact = -(-int(view.work[job, colocated]) // k)
        # rounded up twice: to a whole µs of k workers, then to the clock's step
        return -(-exact // step) * step

    def _begin(self, job: int, server: int, k: int, view: View) -> Allocate | None:
        """Start a due job on its server, unless another is late there."""
        if server == self.cluster.cloud:
            return Allocate(job, ((server, k),), ps_in(CLOUD), "earliest_server")
        kind, ps_kind = int(view.jobs.worker_type[job]), int(view.jobs.ps_type[job])
        slots = self.ps_slots[ps_kind]
        free = slots[(view.ps_job[slots] < 0) & (self.cluster.ps_server[slots] == server)]
        if len(free) == 0 or view.free_workers[server, kind] < k:
            return None
        return Allocate(job, ((server, k),), ps_in(int(free[0])), "earliest_server")


# -- free slots over the future: what reservations leave, as step functions ---------------------------------------


class Steps(NamedTuple):
    """Step functions, workers first, then PSs; row = server * types + type.

    Attributes
    ----------
    worker_at, worker_free, worker_size
        From ``at[row, i]`` to ``at[row, i + 1]`` there are ``free[row, i]`` free, ``i < size[row]``.
    ps_at, ps_free, ps_size
        The same for PSs.
    worker_types, ps_types, servers
        Numbers of them.
    """

    worker_at: Ints
    worker_free: Ints
    worker_size: Ints
    ps_at: Ints
    ps_free: Ints
    ps_size: Ints
    worker_types: int
    ps_types: int
    servers: int


class Profiles:
    """The step functions of a cluster, all free at first."""

    def __init__(self, cluster: Cluster) -> None:
        workers, ps = constant(cluster.workers.ravel()), constant(cluster.ps.ravel())
        self.state = Steps(*workers, *ps, cluster.workers.shape[1], cluster.ps.shape[1], len(cluster.servers))

    def make_room(self) -> None:
        """Ensure room for one more reservation in every row; it adds at most two steps to a row."""
        s = self.state
        if int(s.worker_size.max(initial=0)) + 2 > s.worker_at.shape[1]:
            s = s._replace(worker_at=wider(s.worker_at), worker_free=wider(s.worker_free))
        if int(s.ps_size.max(initial=0)) + 2 > s.ps_at.shape[1]:
            s = s._replace(ps_at=wider(s.ps_at), ps_free=wider(s.ps_free))
        self.state = s


@lean
def _first_gap(steps: Ints, free: Ints, row: int, size: int, need: int, start: int, duration: int) -> int:
    """Earliest time >= `start` from which `need` are free for `duration`."""
    i = 0
    while i + 1 < size and steps[row, i + 1] <= start:
        i += 1
    while i < size and steps[row, i] < start + duration:
        if free[row, i] < need:
            # the last step has no end, so what it lacks never becomes free
            if i + 1 == size:
                return NEVER
            start = max(start, steps[row, i + 1])
        i += 1
    return start


@lean
def earliest(s: Steps, kind: int, ps_kind: int, k: int, duration: int, ready_us: Ints) -> tuple[int, int]:
    """The server that can start k workers and a PS earliest for `duration`, and when; (-1, NEVER) if none can.

    `ready_us` is the earliest start by server [µs]; ties go to the earlier `ready_us`, then to the first server.

    Parameters
    ----------
    s
        Free workers and PSs over time.
    kind, ps_kind, k
        Worker type, PS type, number of workers.
    duration
        For which they must be free [µs].
    ready_us
        Earliest start by server [µs]; NEVER where it is out of service.
    """
    best, best_start = -1, NEVER
    for server in range(s.servers):
        row, ps_row = server * s.worker_types + kind, server * s.ps_types + ps_kind
        start = ready_us[server]
        # workers and the PS must be free together: each pushes the start back until neither does
        while start < NEVER:
            next_start = _first_gap(s.worker_at, s.worker_free, row, s.worker_size[row], k, start, duration)
            next_start = (
                _first_gap(s.ps_at, s.ps_free, ps_row, s.ps_size[ps_row], 1, next_start, duration)
                if next_start < NEVER
                else next_start
            )
            if next_start == start:
                break
            start = next_start
        if start < best_start or (start == best_start and best >= 0 and ready_us[server] < ready_us[best]):
            best, best_start = server, start
    return best, best_start


@lean
def reserve(s: Steps, server: int, kind: int, ps_kind: int, k: int, ps: int, start: int, end: int, now: int) -> None:
    """Take k workers and `ps` PSs of `server` from `start` to `end`; steps that are over by `now` are dropped.

    Parameters
    ----------
    s
        Changed in place.
    server, kind, ps_kind
        The server; worker type, PS type.
    k, ps
        Workers and PSs to take; negative: to give back.
    start, end, now
        The interval, and the present [µs].
    """
    row, ps_row = server * s.worker_types + kind, server * s.ps_types + ps_kind
    s.worker_size[row] = add(s.worker_at, s.worker_free, row, s.worker_size[row], -k, start, end, now)
    s.ps_size[ps_row] = add(s.ps_at, s.ps_free, ps_row, s.ps_size[ps_row], -ps, start, end, now)
