"""Tenants and priority classes: a layer around a policy that ranks gangs.

The policy ranks its jobs as always. The layer says which of them are tried, and in which order:

1. jobs that may not be preempted: they hold workers for less than ``min_runtime``, or were preempted
   ``most_preemptions`` times;
2. the others by class, the highest first; a waiting job rises by a class each time ``ageing`` passes;
3. in a class, the next job of the tenant with the fewest workers by weight, counted as the jobs are taken;
4. of a tenant, the jobs as the policy ranks them.

A job that would take its tenant above its quota is left out, and holds up no other.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from skedge.core.model import Cluster, Ints
from skedge.core.policy import View
from skedge.core.sharing import Sharing
from skedge.core.time import NEVER

from .placement import Changes, Gang


class Since(NamedTuple):
    """What decides whether a job may be preempted, and its class; by job.

    Attributes
    ----------
    since
        When it was given its workers [µs]; only of jobs that hold some.
    waits
        When it arrived or lost its workers [µs]; only of jobs that wait.
    preempted
        How often it has lost its workers to other jobs.
    """

    since: Ints
    waits: Ints
    preempted: Ints


class Layer:
    """The layer's state in a run."""

    def __init__(self, sharing: Sharing, cluster: Cluster) -> None:
        self.sharing = sharing
        workers = cluster.workers.sum(axis=0)
        self.limits = sharing.limits(workers)
        self.limited = self.limits < workers
        self.weights = [tenant.weight for tenant in sharing.tenants.values()]
        self.most = NEVER if sharing.most_preemptions is None else sharing.most_preemptions
        self.times = Since(*(np.zeros(0, np.int64) for _ in Since._fields))
        self.known = 0
        self.wake_at = NEVER

    def admit(self, interrupted: tuple[int, ...], view: View) -> None:
        """Take in arrivals, and jobs that have lost their workers with a server, which is no preemption."""
        if view.arrived > len(self.times.since):
            more = np.zeros(max(view.arrived, 64), np.int64)
            self.times = Since(*(np.append(column, more) for column in self.times))
        self.times.waits[self.known : view.arrived] = view.jobs.arrival[self.known : view.arrived]
        self.times.waits[list(interrupted)] = view.now
        self.known = view.arrived

    def note(self, changes: Changes, now: int) -> None:
        """Note who was given workers, and who was preempted."""
        self.times.since[changes.begins] = now
        self.times.waits[changes.stops] = now
        self.times.preempted[changes.stops] += 1

    def keeps(self, job: int, now: int) -> bool:
        """Whether `job`, which holds workers, may not be preempted."""
        short = now - self.times.since[job] < self.sharing.min_runtime
        return bool(short or self.times.preempted[job] >= self.most)

    def class_of(self, job: int, view: View, *, running: bool) -> int:
        """The class of `job` now."""
        own = int(view.jobs.priority[job])
        return own if running else self.sharing.class_after(own, view.now - int(self.times.waits[job]))

    def arranged(
        self, order: Ints, gang: Gang, view: View, held: Ints, free: Ints | None, *, stop_at_first: bool
    ) -> tuple[Ints, int]:
        """The jobs of `order`, ranked by the policy: first those that are to be tried, in that order; and how many.

        Parameters
        ----------
        held, free
            Jobs that keep their workers, which are not in `order`, and the free workers by server and type; no job and
            None: all workers are given out anew.
        stop_at_first
            True: nothing goes ahead of a job whose workers are not left.
        """
        jobs, now = view.jobs, view.now
        left = (view.capacity if free is None else free).sum(axis=0)
        used = np.zeros_like(self.limits)
        np.add.at(used, (jobs.tenant[held], gang.kind[held]), gang.workers[held])
        chosen: list[int] = []

        def taken(job: int) -> bool:
            """Take the job if it is within its tenant's quota and its workers are left; False: they are not left."""
            k, kind, tenant = int(gang.workers[job]), int(gang.kind[job]), int(jobs.tenant[job])
            if self.limited[tenant, kind] and used[tenant, kind] + k > self.limits[tenant, kind]:
                return True
            if k > left[kind]:
                return False
            used[tenant, kind] += k
            left[kind] -= k
            chosen.append(job)
            return True

        running = gang.running[order] > 0
        kept = [job for job in order[running].tolist() if self.keeps(job, now)]
        for job in kept:
            taken(job)
        by_class: dict[int, dict[int, deque[int]]] = {}
        fixed = set(kept)
        for job, runs in zip(order.tolist(), running.tolist(), strict=True):
            if job not in fixed:
                of = by_class.setdefault(self.class_of(job, view, running=runs), {})
                of.setdefault(int(jobs.tenant[job]), deque()).append(job)
        for level in sorted(by_class, reverse=True):
            queues = by_class[level]
            while queues:
                tenant = min(queues, key=lambda t: (used[t].sum() / self.weights[t], t))
                job = queues[tenant].popleft()
                if not queues[tenant]:
                    del queues[tenant]
                if not taken(job) and stop_at_first:
                    return _first(chosen, order)
        return _first(chosen, order)

    def next_change(self, active: Ints, gang: Gang, view: View) -> int:
        """When the order of the jobs changes next by time alone [µs]; NEVER if it does not."""
        runs = gang.running[active] > 0
        waiting, now = active[~runs], view.now
        if not len(waiting):
            return NEVER
        ends = self.times.since[active[runs]] + self.sharing.min_runtime
        due = int(ends[ends > now].min(initial=NEVER))
        ageing = self.sharing.ageing
        if ageing is not None:
            begun = self.times.waits[waiting]
            due = min(due, int((begun + ((now - begun) // ageing + 1) * ageing).min()))
        return due


def _first(chosen: list[int], order: Ints) -> tuple[Ints, int]:
    """The jobs of `order` with the chosen ones first, and how many these are."""
    first = np.array(chosen, np.int64)
    return np.concatenate([first, order[~np.isin(order, first)]]), len(first)
