"""Tenants and priority classes: a layer around a policy that ranks gangs.

The policy ranks its jobs as always. The layer says which of them are tried, and in which order:

1. jobs that may not be preempted: they hold workers for less than ``min_runtime``, or were preempted
   ``most_preemptions`` times;
2. the others by class, the highest first; a waiting job rises by a class each time ``ageing`` passes;
3. in a class, the next job of the tenant with the fewest workers by weight, counted as the jobs are taken;
4. of a tenant, the jobs as the policy ranks them.

A job that would take its tenant above its quota is left out, and holds up no other. Where the workers of a job are not
left, no job of a lower class begins on workers of its type: they come free for it. A job takes a PS with its workers;
where none of its type is left it takes nothing, and jobs of a lower class begin with PSs of another type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Cluster, Ints
from skedge.core.model.sharing import Sharing
from skedge.core.model.time import NEVER
from skedge.core.policy import View

from .placement import Changes, Gang


class JobTimes(NamedTuple):
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


class FreeSlots(NamedTuple):
    """What there is to give out, by type.

    Attributes
    ----------
    workers, ps
        Edge workers and PSs; a large number of PSs where the cloud is the fallback.
    """

    workers: Ints
    ps: Ints


class SharingLayer:
    """The layer's state in a run."""

    def __init__(self, sharing: Sharing, cluster: Cluster) -> None:
        self.sharing = sharing
        workers = cluster.workers.sum(axis=0)
        self.limits = sharing.limits(workers)
        self.limited = self.limits < workers
        self.weights = [tenant.weight for tenant in sharing.tenants.values()]
        self.max_preemptions = NEVER if sharing.most_preemptions is None else sharing.most_preemptions
        self.times = JobTimes(*(np.zeros(0, np.int64) for _ in JobTimes._fields))
        self.known = 0
        self.wake_at = NEVER

    def admit(self, interrupted: tuple[int, ...], view: View) -> None:
        """Take in arrivals, and jobs that have lost their workers with a server, which is no preemption."""
        if view.arrived > len(self.times.since):
            n_new = np.zeros(max(view.arrived, 64), np.int64)
            self.times = JobTimes(*(np.append(column, n_new) for column in self.times))
        self.times.waits[self.known : view.arrived] = view.jobs.arrival[self.known : view.arrived]
        self.times.waits[list(interrupted)] = view.now
        self.known = view.arrived

    def quota_of(self, job: int, view: View) -> int:
        """The most workers that `job` may ever have: its tenant's quota."""
        return int(self.limits[view.jobs.tenant[job], max(int(view.jobs.worker_type[job]), 0)])

    def note(self, changes: Changes, now: int) -> None:
        """Note who was given workers, and who was preempted."""
        self.times.since[changes.begins] = now
        self.times.waits[changes.stops] = now
        self.times.preempted[changes.stops] += 1

    def keeps(self, job: int, now: int) -> bool:
        """Whether `job`, which holds workers, may not be preempted."""
        short = now - self.times.since[job] < self.sharing.min_runtime
        return bool(short or self.times.preempted[job] >= self.max_preemptions)

    def class_of(self, job: int, view: View, *, running: bool) -> int:
        """The class of `job` now."""
        own = int(view.jobs.priority[job])
        return own if running else self.sharing.class_after(own, view.now - int(self.times.waits[job]))

    def arrange(
        self, order: Ints, gang: Gang, view: View, holders: Ints, slots: FreeSlots, *, stop_at_first: bool
    ) -> tuple[Ints, int]:
        """The jobs of `order`, ranked by the policy: first those that are to be tried, in that order; and how many.

        Parameters
        ----------
        holders, slots
            Jobs that keep their workers, which are not in `order`, and what there is for those of `order`.
        stop_at_first
            True: nothing goes ahead of a job whose workers are not left.
        """
        running = gang.running[order] > 0
        choice = _Choice(self, gang, view, holders, slots)
        protected = [job for job in order[running].tolist() if self.keeps(job, view.now)]
        for job in protected:
            choice.take(job)
        short_level, capacity = dict[int, int](), view.capacity.sum(axis=0)
        for level, job in self._turns(order[~np.isin(order, protected)], gang, view, choice.used):
            kind = int(gang.kind[job])
            # a waiting job must not take workers that a higher class waits for, which could then wait for ever
            if level < short_level.get(kind, level) and not gang.running[job]:
                continue
            if not choice.take(job):
                if stop_at_first:
                    break
                if choice.left[kind] < gang.workers[job] <= capacity[kind]:
                    short_level.setdefault(kind, level)
        first = np.array(choice.chosen, np.int64)
        return np.concatenate([first, order[~np.isin(order, first)]]), len(first)

    def _turns(self, order: Ints, gang: Gang, view: View, workers_used: Ints) -> Iterator[tuple[int, int]]:
        """The jobs of `order` with their classes: by class, then by what their tenants have been given so far."""
        by_class: dict[int, dict[int, deque[int]]] = {}
        for job in order.tolist():
            queues_of = by_class.setdefault(self.class_of(job, view, running=bool(gang.running[job])), {})
            queues_of.setdefault(int(view.jobs.tenant[job]), deque()).append(job)
        for level in sorted(by_class, reverse=True):
            queues = by_class[level]
            while queues:
                tenant = min(queues, key=lambda t: (workers_used[t].sum() / self.weights[t], t))
                yield level, queues[tenant].popleft()
                if not queues[tenant]:
                    del queues[tenant]

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
            wait_start = self.times.waits[waiting]
            due = min(due, int((wait_start + ((now - wait_start) // ageing + 1) * ageing).min()))
        return due


class _Choice:
    """The jobs chosen so far, the workers and PSs left by type, and the workers given to each tenant."""

    def __init__(self, layer: SharingLayer, gang: Gang, view: View, holders: Ints, slots: FreeSlots) -> None:
        self.layer, self.gang, self.tenant = layer, gang, view.jobs.tenant
        self.left, self.ps_left = slots.workers.copy(), slots.ps.copy()
        self.used = np.zeros_like(layer.limits)
        np.add.at(self.used, (self.tenant[holders], gang.kind[holders]), gang.workers[holders])
        self.chosen: list[int] = []

    def take(self, job: int) -> bool:
        """Take the job if it is within its tenant's quota and its workers and a PS are left; False: they are not."""
        k, kind, tenant = int(self.gang.workers[job]), int(self.gang.kind[job]), int(self.tenant[job])
        if self.layer.limited[tenant, kind] and self.used[tenant, kind] + k > self.layer.limits[tenant, kind]:
            return True
        if k > self.left[kind] or self.ps_left[self.gang.ps_kind[job]] < 1:
            return False
        self.used[tenant, kind] += k
        self.left[kind] -= k
        self.ps_left[self.gang.ps_kind[job]] -= 1
        self.chosen.append(job)
        return True
