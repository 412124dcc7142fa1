"""Preemptive: the shortest job first takes the workers that let it end earliest, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from skedge.core.events import Allocate, Event, Order, Suspend, ps_in
from skedge.core.jit import compiled, inlined
from skedge.core.model import Cluster, Ints, Physics, Placement
from skedge.core.network import Delays, upload_delay
from skedge.core.policy import View
from skedge.core.time import NEVER

from .edge import EdgePolicy
from .placement import Stored, empty_stored, forgive, look_up, lose, store, with_space

if TYPE_CHECKING:
    from numpy.random import Generator


class JobState(NamedTuple):
    """The jobs' data for :func:`take`; arrays are by job.

    Attributes
    ----------
    kind, ps_kind, most
        Worker type, PS type, D_j.
    own
        Workers of the last placement, shape ``(jobs, servers)``.
    running
        1 while the job holds them.
    ran
        1 if it has ever run.
    zeta
        Of the last allocation.
    ps_server
        Server of the job's PS; -1 if it has none, or in the cloud.
    """

    kind: Ints
    ps_kind: Ints
    most: Ints
    own: Ints
    running: Ints
    ran: Ints
    zeta: Ints
    ps_server: Ints


class Room(NamedTuple):
    """What is left to take, used up by :func:`take`.

    Attributes
    ----------
    workers
        Shape ``(servers, worker types)``.
    ps_left
        PSs by type; a large number where the cloud is the fallback.
    ps_free
        PS slots that no job holds, shape ``(servers, PS types)``.
    one_server
        1 where communication on one server is free.
    restore
        Checkpoint overhead [µs].
    kept
        1 where data stay where they were brought.
    """

    workers: Ints
    ps_left: Ints
    ps_free: Ints
    one_server: int
    restore: int
    kept: int


class Preemptive(EdgePolicy):
    """Shortest completion first, worker by worker."""

    name: ClassVar[str] = "preemptive"
    compares: ClassVar[str] = "remaining time with up to D_j workers, shortest first"

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.held = JobState(
            *(np.zeros((0, len(cluster.servers)) if name == "own" else 0, np.int64) for name in JobState._fields)
        )
        self.stored, self.known = empty_stored(), 0

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """One worker will do; at most one for each chunk."""
        return 1, int(view.jobs.chunks[job])

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Rank the jobs, let them take in turn, carry out what changes."""
        yield from self.admit(event, view)
        self._note(event, view)
        ranked = self.active[self.estimates(self.active, view).argsort(kind="stable")]
        plan, zeta = np.zeros((len(ranked), len(self.cluster.servers)), np.int64), np.zeros(len(ranked), np.int64)
        left, room = self._remaining(ranked, view), self._room(view)
        take(ranked, left, self.held, self.stored, room, view.delays(), plan, zeta)
        yield from self._carry_out(ranked, plan, zeta, view)

    # -- what it knows -------------------------------------------------------------------------------------------

    def _note(self, event: Event, view: View) -> None:
        """Process arrivals, and jobs that lost workers with a server."""
        held, new = self.held, slice(self.known, view.arrived)
        if view.arrived > len(held.kind):
            rows = max(2 * len(held.kind), view.arrived, 64)
            self.held = held = JobState(*(_longer(column, rows) for column in held))
            self.stored = with_space(self.stored, rows, 0)
        held.kind[new], held.most[new] = view.jobs.worker_type[new], view.jobs.chunks[new]
        held.ps_kind[new], held.ps_server[new] = np.maximum(view.jobs.ps_type[new], 0), -1
        self.known = view.arrived
        held.running[list(event.left)] = held.running[list(event.interrupted)] = 0
        held.ps_server[list(event.interrupted)] = -1
        for server, why in event.servers:
            if why:
                held.own[:, server] = 0
                lose(self.stored, server)

    def _remaining(self, jobs: Ints, view: View) -> Ints:
        """Work left of `jobs` by zeta [worker-µs], shape ``(jobs, 2)``."""
        left, work, zeta = view.remaining(jobs), view.work[jobs], self.held.zeta[jobs]
        share = left / work[np.arange(len(jobs)), zeta]
        both = np.ceil(share[:, None] * work).astype(np.int64)
        both[np.arange(len(jobs)), zeta] = left
        return np.maximum(both, 1)

    def estimates(self, jobs: Ints, view: View) -> Ints:
        """Remaining time of each of `jobs` with as many workers as it can ever have, zeta = 0 [µs]."""
        kind = view.jobs.worker_type[jobs]
        most = np.minimum(view.jobs.chunks[jobs], self.slots[kind])
        return -(-self._remaining(jobs, view)[:, 0] // most)

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Where its data are."""
        server = np.flatnonzero(self.held.own[job]).tolist()
        return {"data_on": [self.cluster.label(s) for s in server]}

    def _room(self, view: View) -> Room:
        free = view.ps_job < 0
        ps_free = np.zeros((len(self.cluster.servers), max(1, len(self.ps_slots))), np.int64)
        np.add.at(ps_free, (self.cluster.ps_server[free], self.cluster.ps_type[free]), 1)
        ps_left = self._ps_left(view, running_stay=False)
        one = int(self.physics.colocation == "one_server")
        kept = int(self.physics.data == "kept")
        return Room(view.capacity.copy(), ps_left, ps_free, one, self.physics.checkpoint_overhead, kept)

    # -- orders --------------------------------------------------------------------------------------------------

    def _carry_out(self, jobs: Ints, plan: Ints, zeta: Ints, view: View) -> Iterator[Order]:
        """First what is taken from running jobs, then what they get, then those that begin: beside their PS first."""
        held, running = self.held, self.held.running[jobs] == 1
        own, runs = held.own[jobs] * running[:, None], plan.sum(axis=1) > 0
        changed = np.any(plan != own, axis=1)
        kept_ps = {}
        for n in np.flatnonzero(changed & running).tolist():
            job, kept, kept_ps[n] = int(jobs[n]), np.minimum(plan[n], own[n]), view.ps_of(int(jobs[n]))
            if not kept.any():
                yield Suspend(job, "moved" if runs[n] else "preempted")
            elif (kept < own[n]).any():
                yield self._allocate(job, kept, kept_ps[n], view)
        begins = np.flatnonzero(runs & ~running)
        for n in (
            *np.flatnonzero(changed & running & np.any(plan > own, axis=1)),
            *begins[zeta[begins].argsort()[::-1]],
        ):
            yield self._allocate(int(jobs[n]), plan[n], kept_ps.get(int(n)), view)
        for n in np.flatnonzero(changed & running & ~runs).tolist():
            held.running[jobs[n]], held.ps_server[jobs[n]] = 0, -1

    def _allocate(self, job: int, workers: Ints, ps: int | None, view: View) -> Order:
        where: Placement = tuple((int(s), int(workers[s])) for s in np.flatnonzero(workers))
        if ps is None:
            ps = self._ps_for(job, where, view, view.ps_job)
        self.stored = with_space(self.stored, 0, len(where))
        for server, n in where:
            store(self.stored, job, server, n)
        held, at = self.held, -1 if ps < 0 else int(self.cluster.ps_server[ps])
        held.own[job], held.running[job], held.ran[job], held.ps_server[job] = workers, 1, 1, at
        held.zeta[job] = int(self.physics.colocation == "one_server" and len(where) == 1 and where[0][0] == at)
        return Allocate(job, where, ps_in(ps), "shortest_completion", gang=False)


def _longer(column: Ints, rows: int) -> Ints:
    out = np.zeros((rows, *column.shape[1:]), np.int64)
    out[: len(column)] = column
    return out


@compiled
def take(
    ranked: Ints, left: Ints, held: JobState, stored: Stored, room: Room, delays: Delays, plan: Ints, zeta: Ints
) -> None:
    """Let the jobs take workers in their order.

    Parameters
    ----------
    left
        Work left by zeta [worker-µs], shape ``(jobs, 2)``, in the order of `ranked`.
    plan, zeta
        Out, zeros before: workers by server, shape ``(jobs, servers)``, and whether they are beside their PS.
    """
    total = room.workers.sum(axis=0)
    delay, spread = np.zeros(len(room.workers), np.int64), np.zeros(len(room.workers), np.int64)
    there = np.zeros(len(room.workers), np.int64)
    for n in range(len(ranked)):
        job = ranked[n]
        kind, ps_kind = held.kind[job], held.ps_kind[job]
        if total[kind] == 0 or room.ps_left[ps_kind] == 0:
            continue
        later = room.restore if held.ran[job] else 0
        at_once = 0 if held.running[job] else later
        for s in range(len(delay)):
            delay[s] = upload_delay(delays, job, s) if room.workers[s, kind] > 0 else NEVER
        if room.kept:
            look_up(stored, job, there)
            forgive(room.workers[:, kind], there, held.most[job], delay)
        delay[delay < NEVER] += later
        server, beside, end = _best_server(job, left[n], held, room, delay, at_once)
        if _spread(job, left[n, 0], held, room, delay, at_once, spread) < end:
            plan[n] = spread
        else:
            plan[n, server], zeta[n] = min(held.most[job], room.workers[server, kind]), beside
            if beside and held.ps_server[job] < 0:
                room.ps_free[server, ps_kind] -= 1
        for s in range(len(delay)):
            room.workers[s, kind] -= plan[n, s]
            total[kind] -= plan[n, s]
        room.ps_left[ps_kind] -= 1


@inlined
def _best_server(job: int, left: Ints, held: JobState, room: Room, delay: Ints, at_once: int) -> tuple[int, int, int]:
    """The one server on which `job` ends first, whether its PS can be there, and the time until then [µs]."""
    best, best_beside, best_end = -1, 0, NEVER
    kind, ps_kind = held.kind[job], held.ps_kind[job]
    for s in range(len(delay)):
        n = min(held.most[job], room.workers[s, kind])
        if n > 0:
            near = held.ps_server[job] == s if held.running[job] else room.ps_free[s, ps_kind] > 0
            beside = 1 if room.one_server and near else 0
            kept = min(held.own[job, s], n)
            end = _end(left[beside], kept, at_once, n - kept, delay[s])
            if end < best_end:
                best, best_beside, best_end = s, beside, end
    return best, best_beside, best_end


@inlined
def _end(left: int, kept: int, at_once: int, new: int, later: int) -> int:
    """When `kept` workers that begin at `at_once` and `new` ones that begin at `later` have done `left` [µs]."""
    if kept > 0 and (new == 0 or left <= kept * (later - at_once)):
        return at_once - (-left // kept)
    return later - (-(left - kept * (later - at_once)) // (kept + new))


@compiled
def _spread(job: int, left: int, held: JobState, room: Room, delay: Ints, at_once: int, spread: Ints) -> int:
    """Let `job` take of all servers; fills `spread`, returns the time until it ends [µs].

    First what it has, then by (delay, server) while a worker still begins before the end.
    """
    kind, rate, begun = held.kind[job], 0, at_once
    for s in range(len(delay)):
        spread[s] = min(held.own[job, s], room.workers[s, kind])
        rate += spread[s]
    for s in np.argsort(delay, kind="mergesort"):
        new = min(room.workers[s, kind] - spread[s], held.most[job] - rate)
        if new <= 0:
            continue
        if rate > 0 and begun - (-left // rate) <= delay[s]:
            break
        left -= rate * (delay[s] - begun)
        rate, begun = rate + new, delay[s]
        spread[s] += new
    return begun - (-left // rate)
