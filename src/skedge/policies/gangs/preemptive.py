"""Preemptive: the shortest job first takes the workers that let it end earliest, one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from skedge.core.engine.data import look_up, lose, store_all, with_space
from skedge.core.engine.ledger import Data, no_data
from skedge.core.events import Allocate, Event, Order, Suspend, pairs, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.model.network import Delays, upload_delay
from skedge.core.model.time import NEVER
from skedge.core.policy import View
from skedge.platform.jit import compiled, inlined

from .edge import EdgePolicy
from .placement import forgive

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
    low, high
        Bounds of the servers where they are: from `low` up to `high`.
    running
        1 while the job holds them.
    ran
        1 if it has ever run.
    zeta
        Of the last allocation.
    ps_server
        Server of the job's PS; -1 if it has none, or in the cloud.
    left, estimate
        Work left at zeta = 0 and 1 [worker-µs], shape ``(jobs, 2)``, and what jobs are ranked by [µs].
    stale
        1 if these may have changed since they were worked out, or the job has left.
    """

    kind: Ints
    ps_kind: Ints
    most: Ints
    own: Ints
    low: Ints
    high: Ints
    running: Ints
    ran: Ints
    zeta: Ints
    ps_server: Ints
    left: Ints
    estimate: Ints
    stale: Ints


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
        wide = {"own": (0, len(cluster.servers)), "left": (0, 2)}
        self.held = JobState(*(np.zeros(wide.get(name, 0), np.int64) for name in JobState._fields))
        self.stored, self.known = no_data(), 0
        self.ranked: Ints = np.empty(0, np.int64)

    def demand(self, job: int, view: View) -> tuple[int, int]:
        """One worker will do; at most one for each chunk."""
        return 1, int(view.jobs.chunks[job])

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Rank the jobs, let them take in turn, carry out what changes."""
        yield from self.admit(event, view)
        self._note(event, view)
        self._rank(view)
        yield from self._carry_out(*take(self.ranked, self.held, self.stored, self._room(view), view.delays()), view)

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
        held.stale[new] = 1
        self.known = view.arrived
        gone = [*event.left, *event.interrupted]
        held.running[gone], held.stale[gone] = 0, 1
        held.ps_server[list(event.interrupted)] = -1
        if event.measured:
            held.stale[self.active] = 1
        for server, why in event.servers:
            if why:
                held.own[:, server] = 0
                lose(self.stored, server)

    def _rank(self, view: View) -> None:
        """Rank the jobs in the system: the place of one that waits does not change, the others are ranked anew."""
        held = self.held
        anew = self.active[(held.running[self.active] | held.stale[self.active]) == 1]
        # work left shrinks only while a job runs, so the estimates of the others, and their order, stand
        held.stale[anew] = 1
        estimate(anew, view.remaining(anew), view.work, self.slots, held)
        self.ranked = merged(self.ranked, anew[held.estimate[anew].argsort(kind="stable")], held.estimate, held.stale)
        held.stale[anew] = 0

    def estimates(self, jobs: Ints, view: View) -> Ints:
        """Remaining time of each of `jobs` with as many workers as it can ever have, zeta = 0 [µs]."""
        estimate(jobs, view.remaining(jobs), view.work, self.slots, self.held)
        return self.held.estimate[jobs]

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Where its data are."""
        server = np.flatnonzero(self.held.own[job]).tolist()
        return {"data_on": [self.cluster.label(s) for s in server]}

    def _room(self, view: View) -> Room:
        one = self.physics.colocation == "one_server"
        ps_free = np.zeros((len(self.cluster.servers), max(1, len(self.ps_slots))), np.int64)
        if one:
            free = view.ps_job < 0
            np.add.at(ps_free, (self.cluster.ps_server[free], self.cluster.ps_type[free]), 1)
        ps_left = self._ps_left(view, running_stay=False)
        kept = int(self.physics.data == "kept")
        return Room(view.capacity.copy(), ps_left, ps_free, int(one), self.physics.checkpoint_overhead, kept)

    # -- orders --------------------------------------------------------------------------------------------------

    def _carry_out(self, jobs: Ints, plan: Ints, zeta: Ints, view: View) -> Iterator[Order]:
        """Change the workers of `jobs` to `plan`, shape ``(jobs, servers)``, in the order of their ranks.

        First what is taken from running jobs, then what they get, then those that begin: beside their PS first.
        """
        held, running = self.held, self.held.running[jobs] == 1
        own, runs = held.own[jobs] * running[:, None], plan.sum(axis=1) > 0
        kept, kept_ps = np.minimum(plan, own), {}
        keeps, loses = kept.any(axis=1).tolist(), (kept < own).any(axis=1).tolist()
        for n in np.flatnonzero(running).tolist():
            job = int(jobs[n])
            kept_ps[n] = view.ps_of(job)
            if not keeps[n]:
                yield Suspend(job, "moved" if runs[n] else "preempted")
            elif loses[n]:
                yield self._allocate(job, kept[n], kept_ps[n], view)
        # what is given up has to be free before others take it: suspend and shrink first, then grow and begin
        begins = np.flatnonzero(~running)
        grows = np.flatnonzero(running & np.any(plan > own, axis=1))
        for n in (*grows.tolist(), *begins[zeta[begins].argsort(kind="stable")[::-1]].tolist()):
            yield self._allocate(int(jobs[n]), plan[n], kept_ps.get(n), view)
        stopped = jobs[running & ~runs]
        held.running[stopped], held.ps_server[stopped] = 0, -1

    def _allocate(self, job: int, workers: Ints, ps: int | None, view: View) -> Order:
        where = pairs(workers)
        if ps is None:
            ps = self._ps_for(job, where, view, view.ps_job)
        self.stored = with_space(self.stored, 0, len(where))
        store_all(self.stored, job, workers)
        held, at = self.held, -1 if ps < 0 else int(self.cluster.ps_server[ps])
        held.own[job], held.running[job], held.ran[job], held.ps_server[job] = workers, 1, 1, at
        held.low[job], held.high[job] = where[0][0], where[-1][0] + 1
        held.zeta[job] = int(self.physics.colocation == "one_server" and len(where) == 1 and where[0][0] == at)
        return Allocate(job, where, ps_in(ps), "shortest_completion", gang=False)


def _longer(column: Ints, rows: int) -> Ints:
    out = np.zeros((rows, *column.shape[1:]), np.int64)
    out[: len(column)] = column
    return out


@compiled
def estimate(jobs: Ints, left: Ints, work: Ints, slots: Ints, held: JobState) -> None:
    """Set ``left`` and ``estimate`` of `jobs`, whose remaining work is `left`; `slots` are workers by type."""
    for n in range(len(jobs)):
        job, zeta = jobs[n], held.zeta[jobs[n]]
        share, other = left[n] / work[job, zeta], 1 - zeta
        held.left[job, zeta] = max(left[n], 1)
        held.left[job, other] = max(math.ceil(share * work[job, other]), 1)
        held.estimate[job] = -(-held.left[job, 0] // min(held.most[job], slots[held.kind[job]]))


@compiled
def merged(ranked: Ints, anew: Ints, estimate: Ints, stale: Ints) -> Ints:
    """The jobs of `ranked` that are not stale, and those of `anew`, in order of (estimate, job), as both are."""
    out, n, k = np.empty(len(ranked) + len(anew), np.int64), 0, 0
    for job in ranked:
        if stale[job]:
            continue
        while k < len(anew) and (estimate[anew[k]], anew[k]) < (estimate[job], job):
            out[n] = anew[k]
            n, k = n + 1, k + 1
        out[n] = job
        n += 1
    out[n : n + len(anew) - k] = anew[k:]
    return out[: n + len(anew) - k]


@compiled
def take(ranked: Ints, held: JobState, stored: Data, room: Room, delays: Delays) -> tuple[Ints, Ints, Ints]:
    """Let the jobs take workers in their order; returns the jobs whose workers change, with what they take.

    Returns
    -------
    Jobs in their order, their workers by server, shape ``(jobs, servers)``, and whether they are beside their PS.
    """
    total, servers = room.workers.sum(axis=0), len(room.workers)
    delay, there, plan = np.zeros(servers, np.int64), np.zeros(servers, np.int64), np.zeros(servers, np.int64)
    most = min(len(ranked), total.sum() + held.running[ranked].sum())
    jobs, plans, zeta = np.empty(most, np.int64), np.empty((most, servers), np.int64), np.zeros(most, np.int64)
    n = 0
    for job in ranked:
        some, beside = total[held.kind[job]] > 0 and room.ps_left[held.ps_kind[job]] > 0, 0
        # neither holds nor gets anything: nothing changes
        if not some and held.running[job] == 0:
            continue
        if some and held.running[job] and _stays(job, held, room):
            total[held.kind[job]] -= held.most[job]
            continue
        plan[:] = 0
        if some:
            beside = _take(job, held, stored, room, delays, delay, there, plan)
            total[held.kind[job]] -= plan.sum()
        if not _unchanged(job, held, plan):
            jobs[n], plans[n], zeta[n] = job, plan, beside
            n += 1
    return jobs[:n], plans[:n], zeta[:n]


@inlined
def _stays(job: int, held: JobState, room: Room) -> bool:
    """Whether :func:`_take` is known to leave a running job what it has; if so, that is taken of the `room`.

    So it is if the job holds all the workers that it can use, nothing is gained beside a PS, and neither the restore
    of a worker elsewhere nor the work left is so short that a plan that is slower ends in the same microsecond.
    """
    kind, most, n, fits = held.kind[job], held.most[job], 0, True
    low, high, beside = held.low[job], held.high[job], room.one_server
    for s in range(low, high):
        n += held.own[job, s]
        fits = fits and held.own[job, s] <= room.workers[s, kind]
    left = held.left[job, beside]
    if n < most or not fits or room.restore < most or left <= most * (most - 1):
        return False
    if beside and (held.ps_server[job] != low or high != low + 1 or left > held.left[job, 0]):
        return False
    for s in range(low, high):
        room.workers[s, kind] -= held.own[job, s]
    room.ps_left[held.ps_kind[job]] -= 1
    return True


@inlined
def _unchanged(job: int, held: JobState, plan: Ints) -> bool:
    """Whether `plan` is what the job has."""
    same = True
    for s in range(len(plan)):
        same = same and plan[s] == held.own[job, s] * held.running[job]
    return same


@compiled
def _take(
    job: int, held: JobState, stored: Data, room: Room, delays: Delays, delay: Ints, there: Ints, plan: Ints
) -> int:
    """Let a job take of the `room`, which has workers for it; fills `plan`, returns whether it is beside its PS.

    `delay` and `there` are scratch.
    """
    kind, ps_kind = held.kind[job], held.ps_kind[job]
    later = room.restore if held.ran[job] else 0
    at_once = 0 if held.running[job] else later
    for s in range(len(delay)):
        # a server without free workers is never the earliest
        delay[s] = upload_delay(delays, job, s) if room.workers[s, kind] > 0 else NEVER
    if room.kept:
        look_up(stored, job, there)
        forgive(room.workers[:, kind], there, held.most[job], delay)
    for s in range(len(delay)):
        delay[s] += later if delay[s] < NEVER else 0
    server, beside, end = _best_server(job, held, room, delay, at_once)
    # of equal ends one server: beside its PS, and with the fewest moves
    if _spread(job, held, room, delay, at_once, plan) < end:
        beside = 0
    else:
        plan[:] = 0
        plan[server] = min(held.most[job], room.workers[server, kind])
        if beside and held.ps_server[job] < 0:
            room.ps_free[server, ps_kind] -= 1
    for s in range(len(delay)):
        room.workers[s, kind] -= plan[s]
    room.ps_left[ps_kind] -= 1
    return beside


@inlined
def _best_server(job: int, held: JobState, room: Room, delay: Ints, at_once: int) -> tuple[int, int, int]:
    """The one server on which `job` ends first, whether its PS can be there, and the time until then [µs]."""
    best, best_beside, best_end = -1, 0, NEVER
    kind, ps_kind = held.kind[job], held.ps_kind[job]
    for s in range(len(delay)):
        n = min(held.most[job], room.workers[s, kind])
        if n > 0:
            near = held.ps_server[job] == s if held.running[job] else room.ps_free[s, ps_kind] > 0
            beside = 1 if room.one_server and near else 0
            kept = min(held.own[job, s], n)
            end = _end(held.left[job, beside], kept, at_once, n - kept, delay[s])
            if end < best_end:
                best, best_beside, best_end = s, beside, end
    return best, best_beside, best_end


@inlined
def _end(left: int, kept: int, at_once: int, new: int, later: int) -> int:
    """When `kept` workers that begin at `at_once` and `new` ones that begin at `later` have done `left` [µs]."""
    if kept > 0 and (new == 0 or left <= kept * (later - at_once)):
        return at_once - (-left // kept)
    return later - (-(left - kept * (later - at_once)) // (kept + new))


@inlined
def _spread(job: int, held: JobState, room: Room, delay: Ints, at_once: int, spread: Ints) -> int:
    """Let `job` take of all servers; fills `spread`, returns the time until it ends [µs].

    First what it has, then by (delay, server) while a worker still begins before the end.
    """
    kind, rate, begun, left = held.kind[job], 0, at_once, held.left[job, 0]
    for s in range(len(delay)):
        spread[s] = min(held.own[job, s], room.workers[s, kind])
        rate += spread[s]
    while rate < held.most[job]:
        near = _nearest(delay, room.workers, kind, spread)
        if near < 0 or (rate > 0 and begun - (-left // rate) <= delay[near]):
            break
        left -= rate * (delay[near] - begun)
        new = min(room.workers[near, kind] - spread[near], held.most[job] - rate)
        rate, begun = rate + new, delay[near]
        spread[near] += new
    return begun - (-left // rate)


@inlined
def _nearest(delay: Ints, workers: Ints, kind: int, spread: Ints) -> int:
    """The first server of the least delay that has workers besides those of `spread`; -1 if none has."""
    near = -1
    for s in range(len(delay)):
        if workers[s, kind] > spread[s] and (near < 0 or delay[s] < delay[near]):
            near = s
    return near
