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
    kind, ps_kind, max_workers
        Worker type, PS type, D_j.
    own
        Workers of the last placement, shape ``(jobs, servers)``.
    low, high
        Bounds of the servers where they are: from `low` up to `high`.
    running
        1 while the job holds them.
    ran
        1 if it has ever run.
    colocated
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
    max_workers: Ints
    own: Ints
    low: Ints
    high: Ints
    running: Ints
    ran: Ints
    colocated: Ints
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
        self.state = JobState(*(np.zeros(wide.get(name, 0), np.int64) for name in JobState._fields))
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
        yield from self._carry_out(*take(self.ranked, self.state, self.stored, self._room(view), view.delays()), view)

    # -- what it knows -------------------------------------------------------------------------------------------

    def _note(self, event: Event, view: View) -> None:
        """Process arrivals, and jobs that lost workers with a server."""
        state, arrivals = self.state, slice(self.known, view.arrived)
        if view.arrived > len(state.kind):
            rows = max(2 * len(state.kind), view.arrived, 64)
            self.state = state = JobState(*(_longer(column, rows) for column in state))
            self.stored = with_space(self.stored, rows, 0)
        state.kind[arrivals], state.max_workers[arrivals] = view.jobs.worker_type[arrivals], view.jobs.chunks[arrivals]
        state.ps_kind[arrivals], state.ps_server[arrivals] = np.maximum(view.jobs.ps_type[arrivals], 0), -1
        state.stale[arrivals] = 1
        self.known = view.arrived
        departed = [*event.left, *event.interrupted]
        state.running[departed], state.stale[departed] = 0, 1
        state.ps_server[list(event.interrupted)] = -1
        if event.measured:
            state.stale[self.active] = 1
        for server, reason in event.servers:
            if reason:
                state.own[:, server] = 0
                lose(self.stored, server)

    def _rank(self, view: View) -> None:
        """Rank the jobs in the system: the place of one that waits does not change, the others are ranked anew."""
        state = self.state
        anew = self.active[(state.running[self.active] | state.stale[self.active]) == 1]
        # work left shrinks only while a job runs, so the estimates of the others, and their order, stand
        state.stale[anew] = 1
        estimate(anew, view.remaining(anew), view.work, self.slots, state)
        self.ranked = merged(
            self.ranked, anew[state.estimate[anew].argsort(kind="stable")], state.estimate, state.stale
        )
        state.stale[anew] = 0

    def estimates(self, jobs: Ints, view: View) -> Ints:
        """Remaining time of each of `jobs` with as many workers as it can ever have, zeta = 0 [µs]."""
        estimate(jobs, view.remaining(jobs), view.work, self.slots, self.state)
        return self.state.estimate[jobs]

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Where its data are."""
        server = np.flatnonzero(self.state.own[job]).tolist()
        return {"data_on": [self.cluster.label(s) for s in server]}

    def _room(self, view: View) -> Room:
        one_server = self.physics.colocation == "one_server"
        ps_free = np.zeros((len(self.cluster.servers), max(1, len(self.ps_slots))), np.int64)
        if one_server:
            free = view.ps_job < 0
            np.add.at(ps_free, (self.cluster.ps_server[free], self.cluster.ps_type[free]), 1)
        ps_left = self._ps_left(view, running_stay=False)
        data_kept = int(self.physics.data == "kept")
        return Room(
            view.capacity.copy(), ps_left, ps_free, int(one_server), self.physics.checkpoint_overhead, data_kept
        )

    # -- orders --------------------------------------------------------------------------------------------------

    def _carry_out(self, jobs: Ints, plan: Ints, colocated: Ints, view: View) -> Iterator[Order]:
        """Change the workers of `jobs` to `plan`, shape ``(jobs, servers)``, in the order of their ranks.

        First what is taken from running jobs, then what they get, then those that begin: beside their PS first.
        """
        state, running = self.state, self.state.running[jobs] == 1
        own, runs = state.own[jobs] * running[:, None], plan.sum(axis=1) > 0
        remaining, ps_of = np.minimum(plan, own), {}
        keeps, loses = remaining.any(axis=1).tolist(), (remaining < own).any(axis=1).tolist()
        for n in np.flatnonzero(running).tolist():
            job = int(jobs[n])
            ps_of[n] = view.ps_of(job)
            if not keeps[n]:
                yield Suspend(job, "moved" if runs[n] else "preempted")
            elif loses[n]:
                yield self._allocate(job, remaining[n], ps_of[n], view)
        # what is given up has to be free before others take it: suspend and shrink first, then grow and begin
        begins = np.flatnonzero(~running)
        grows = np.flatnonzero(running & np.any(plan > own, axis=1))
        for n in (*grows.tolist(), *begins[colocated[begins].argsort(kind="stable")[::-1]].tolist()):
            yield self._allocate(int(jobs[n]), plan[n], ps_of.get(n), view)
        stopped = jobs[running & ~runs]
        state.running[stopped], state.ps_server[stopped] = 0, -1

    def _allocate(self, job: int, workers: Ints, ps: int | None, view: View) -> Order:
        placement = pairs(workers)
        if ps is None:
            ps = self._ps_for(job, placement, view, view.ps_job)
        self.stored = with_space(self.stored, 0, len(placement))
        store_all(self.stored, job, workers)
        state, ps_server = self.state, -1 if ps < 0 else int(self.cluster.ps_server[ps])
        state.own[job], state.running[job], state.ran[job], state.ps_server[job] = workers, 1, 1, ps_server
        state.low[job], state.high[job] = placement[0][0], placement[-1][0] + 1
        state.colocated[job] = int(
            self.physics.colocation == "one_server" and len(placement) == 1 and placement[0][0] == ps_server
        )
        return Allocate(job, placement, ps_in(ps), "shortest_completion", gang=False)


def _longer(column: Ints, rows: int) -> Ints:
    out = np.zeros((rows, *column.shape[1:]), np.int64)
    out[: len(column)] = column
    return out


@compiled
def estimate(jobs: Ints, left: Ints, work: Ints, slots: Ints, state: JobState) -> None:
    """Set ``left`` and ``estimate`` of `jobs`, whose remaining work is `left`; `slots` are workers by type.

    Parameters
    ----------
    jobs, left
        Jobs, and work left of each [worker-µs] at its present colocation.
    work
        Announced work at zeta = 0 and 1 [worker-µs], shape ``(jobs, 2)``.
    slots
        Workers of the edge by type.
    state
        Out: `left` and `estimate`.
    """
    for n in range(len(jobs)):
        job, zeta = jobs[n], state.colocated[jobs[n]]
        # the same share of the work is left at either zeta, but it takes a different time
        share, alternative = left[n] / work[job, zeta], 1 - zeta
        state.left[job, zeta] = max(left[n], 1)
        state.left[job, alternative] = max(math.ceil(share * work[job, alternative]), 1)
        state.estimate[job] = -(-state.left[job, 0] // min(state.max_workers[job], slots[state.kind[job]]))


@compiled
def merged(ranked: Ints, anew: Ints, estimate: Ints, stale: Ints) -> Ints:
    """The jobs of `ranked` that are not stale, and those of `anew`, in order of (estimate, job), as both are.

    Parameters
    ----------
    ranked, anew
        Two lists of jobs, each in order of (estimate, job).
    estimate, stale
        By job: rank [µs]; 1 for the jobs of `ranked` to drop.
    """
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
def take(ranked: Ints, state: JobState, stored: Data, room: Room, delays: Delays) -> tuple[Ints, Ints, Ints]:
    """Let the jobs take workers in their order; returns the jobs whose workers change, with what they take.

    Parameters
    ----------
    ranked
        Jobs in the system, first to choose first.
    state, stored
        The jobs, and data on the servers.
    room
        What there is to take; used up.
    delays
        Upload delays [µs].

    Returns
    -------
    Jobs in their order, their workers by server, shape ``(jobs, servers)``, and whether they are beside their PS.
    """
    total, servers = room.workers.sum(axis=0), len(room.workers)
    delay, with_data, plan = np.zeros(servers, np.int64), np.zeros(servers, np.int64), np.zeros(servers, np.int64)
    max_rows = min(len(ranked), total.sum() + state.running[ranked].sum())
    jobs, plans, colocated = (
        np.empty(max_rows, np.int64),
        np.empty((max_rows, servers), np.int64),
        np.zeros(max_rows, np.int64),
    )
    n = 0
    for job in ranked:
        has_free, colocated_job = total[state.kind[job]] > 0 and room.ps_left[state.ps_kind[job]] > 0, 0
        # neither holds nor gets anything: nothing changes
        if not has_free and state.running[job] == 0:
            continue
        if has_free and state.running[job] and _stays(job, state, room):
            total[state.kind[job]] -= state.max_workers[job]
            continue
        plan[:] = 0
        if has_free:
            colocated_job = _take(job, state, stored, room, delays, delay, with_data, plan)
            total[state.kind[job]] -= plan.sum()
        if not _unchanged(job, state, plan):
            jobs[n], plans[n], colocated[n] = job, plan, colocated_job
            n += 1
    return jobs[:n], plans[:n], colocated[:n]


@inlined
def _stays(job: int, state: JobState, room: Room) -> bool:
    """Whether :func:`_take` is known to leave a running job what it has; if so, that is taken of the `room`.

    So it is if the job holds all the workers that it can use, nothing is gained beside a PS, and neither the restore
    of a worker elsewhere nor the work left is so short that a plan that is slower ends in the same microsecond.
    """
    kind, max_workers, n, fits = state.kind[job], state.max_workers[job], 0, True
    low, high, colocated = state.low[job], state.high[job], room.one_server
    for s in range(low, high):
        n += state.own[job, s]
        fits = fits and state.own[job, s] <= room.workers[s, kind]
    left = state.left[job, colocated]
    if n < max_workers or not fits or room.restore < max_workers or left <= max_workers * (max_workers - 1):
        return False
    if colocated and (state.ps_server[job] != low or high != low + 1 or left > state.left[job, 0]):
        return False
    for s in range(low, high):
        room.workers[s, kind] -= state.own[job, s]
    room.ps_left[state.ps_kind[job]] -= 1
    return True


@inlined
def _unchanged(job: int, state: JobState, plan: Ints) -> bool:
    """Whether `plan` is what the job has."""
    same = True
    for s in range(len(plan)):
        same = same and plan[s] == state.own[job, s] * state.running[job]
    return same


@compiled
def _take(
    job: int, state: JobState, stored: Data, room: Room, delays: Delays, delay: Ints, with_data: Ints, plan: Ints
) -> int:
    """Let a job take of the `room`, which has workers for it; fills `plan`, returns whether it is beside its PS.

    `delay` and `with_data` are scratch.
    """
    kind, ps_kind = state.kind[job], state.ps_kind[job]
    restore = room.restore if state.ran[job] else 0
    own_start = 0 if state.running[job] else restore
    for s in range(len(delay)):
        # a server without free workers is never the earliest
        delay[s] = upload_delay(delays, job, s) if room.workers[s, kind] > 0 else NEVER
    if room.kept:
        look_up(stored, job, with_data)
        forgive(room.workers[:, kind], with_data, state.max_workers[job], delay)
    for s in range(len(delay)):
        delay[s] += restore if delay[s] < NEVER else 0
    server, colocated, end = _best_server(job, state, room, delay, own_start)
    # of equal ends one server: beside its PS, and with the fewest moves
    if _spread(job, state, room, delay, own_start, plan) < end:
        colocated = 0
    else:
        plan[:] = 0
        plan[server] = min(state.max_workers[job], room.workers[server, kind])
        if colocated and state.ps_server[job] < 0:
            room.ps_free[server, ps_kind] -= 1
    for s in range(len(delay)):
        room.workers[s, kind] -= plan[s]
    room.ps_left[ps_kind] -= 1
    return colocated


@inlined
def _best_server(job: int, state: JobState, room: Room, delay: Ints, own_start: int) -> tuple[int, int, int]:
    """The one server on which `job` ends first, whether its PS can be there, and the time until then [µs]."""
    best, best_colocated, best_end = -1, 0, NEVER
    kind, ps_kind = state.kind[job], state.ps_kind[job]
    for s in range(len(delay)):
        n = min(state.max_workers[job], room.workers[s, kind])
        if n > 0:
            ps_here = state.ps_server[job] == s if state.running[job] else room.ps_free[s, ps_kind] > 0
            colocated = 1 if room.one_server and ps_here else 0
            n_own = min(state.own[job, s], n)
            end = _end(state.left[job, colocated], n_own, own_start, n - n_own, delay[s])
            if end < best_end:
                best, best_colocated, best_end = s, colocated, end
    return best, best_colocated, best_end


@inlined
def _end(left: int, n_own: int, own_start: int, n_new: int, new_start: int) -> int:
    """When `left` is done by `n_own` workers from `own_start` on and `n_new` ones from `new_start` on [µs]."""
    if n_own > 0 and (n_new == 0 or left <= n_own * (new_start - own_start)):
        return own_start - (-left // n_own)
    return new_start - (-(left - n_own * (new_start - own_start)) // (n_own + n_new))


@inlined
def _spread(job: int, state: JobState, room: Room, delay: Ints, own_start: int, spread: Ints) -> int:
    """Let `job` take of all servers; fills `spread`, returns the time until it ends [µs].

    First what it has, then by (delay, server) while a worker still begins before the end.
    """
    kind, rate, time, left = state.kind[job], 0, own_start, state.left[job, 0]
    for s in range(len(delay)):
        spread[s] = min(state.own[job, s], room.workers[s, kind])
        rate += spread[s]
    # water-filling: each new worker joins at its delay as long as the job would not have ended by then
    while rate < state.max_workers[job]:
        nearest = _nearest(delay, room.workers, kind, spread)
        if nearest < 0 or (rate > 0 and time - (-left // rate) <= delay[nearest]):
            break
        left -= rate * (delay[nearest] - time)
        n_new = min(room.workers[nearest, kind] - spread[nearest], state.max_workers[job] - rate)
        rate, time = rate + n_new, delay[nearest]
        spread[nearest] += n_new
    return time - (-left // rate)


@inlined
def _nearest(delay: Ints, workers: Ints, kind: int, spread: Ints) -> int:
    """The first server of the least delay that has workers besides those of `spread`; -1 if none has."""
    best = -1
    for s in range(len(delay)):
        if workers[s, kind] > spread[s] and (best < 0 or delay[s] < delay[best]):
            best = s
    return best
