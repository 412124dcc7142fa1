"""Where a gang goes: the placement rule that the gang baselines share, compiled.

A gang of k workers is put on exactly its last servers if their counts are free (its data are there; with
``keep_running`` a job that returns leaves them to the jobs that run there if other free workers do); else on the
smallest set of servers that holds k; among those on the one with the smallest largest delay, then the smallest sum of
delays, then the lexicographically first; the servers are filled in order of (delay, server). Where data are kept, the
delay to a server that has the data of as many workers as it could take, min(k, free), counts as 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.data import look_up
from skedge.core.engine.ledger import BLOCK, DEMAND, EMPTY, FIRST, HELD, PS_TYPE, SIZE, TYPE, Case, Data, Ledger
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled, inlined, lean


class Rule(NamedTuple):
    """Options of :func:`scan`.

    Attributes
    ----------
    stop_at_first
        1: stop at the first job that does not fit (strict head of line); 0: scan on (backfill).
    sticky
        1: a job that has data somewhere runs only there.
    keep_running
        1: prefer workers that no running job holds, so that fewer jobs are moved.
    """

    stop_at_first: int
    sticky: int
    keep_running: int


class Scratch(NamedTuple):
    """Arrays that :func:`scan` works on.

    Attributes
    ----------
    free, unheld
        Free workers, and those that no running job holds, by (server, type).
    total
        Free workers by type.
    ps_left
        PS slots left by type, a large number where the cloud is the fallback.
    delay, room, there
        Upload delay, room of each server for one job, and of how many workers it has the data.
    servers, counts
        Placements of the jobs that are placed anew, one after the other: room for all workers.
    """

    free: Ints
    unheld: Ints
    total: Ints
    ps_left: Ints
    delay: Ints
    room: Ints
    there: Ints
    servers: Ints
    counts: Ints


def make_scratch(servers: int, types: int, ps_types: int, workers: int) -> Scratch:
    """A scratch for a cluster of this size.

    Parameters
    ----------
    servers, types, ps_types, workers
        Numbers of servers, worker types, PS types, and of all workers.
    """
    by_type, by_server = np.zeros((servers, types), np.int64), np.zeros(servers, np.int64)
    places = np.zeros(workers + 1, np.int64)
    rows = (by_server, by_server.copy(), by_server.copy())
    by_kind = (np.zeros(types, np.int64), np.zeros(ps_types, np.int64))
    return Scratch(by_type, by_type.copy(), *by_kind, *rows, places, places.copy())


@lean
def scan(
    case: Case, ledger: Ledger, has_place: Ints, order: Ints, first: int, rule: Rule, scratch: Scratch, verdict: Ints
) -> None:
    """Try the jobs from number `first` of `order` on, giving each its whole demand if that is left; others wait.

    Parameters
    ----------
    case, ledger
        The run; it has the jobs, their last placements, and where their data are.
    has_place
        By job: 1 if the last placement is one to return to.
    order
        Jobs, in the order in which they are tried.
    first
        Index in `order`; the verdicts before it stay.
    rule
        Options.
    scratch
        With `free`, `unheld`, `total` and `ps_left` as the jobs before `first` leave them.
    verdict
        For each job of `order`: 0 waits, -1 keeps its last placement, n > 0 is placed anew on n servers. In: 0.
    """
    n_filled = left = 0
    for kind in range(len(scratch.total)):
        left += scratch.total[kind]
    for n in range(first, len(order)):
        # nothing is left for the other jobs of the queue, however many they are
        if left == 0:
            return
        job = order[n]
        kind, k, ps_kind = ledger.jobs[job, TYPE], ledger.jobs[job, DEMAND], max(ledger.jobs[job, PS_TYPE], 0)
        # enough workers in all is enough for a gang: its workers may be on any servers
        if scratch.total[kind] >= k and scratch.ps_left[ps_kind] > 0:
            if has_place[job] and _keeps_place(ledger, job, rule, scratch):
                verdict[n] = -1
            elif has_place[job] == 0 or rule.sticky == 0:
                verdict[n] = _place_anew(case, ledger, job, rule, scratch, n_filled)
        if verdict[n] == 0:
            if rule.stop_at_first:
                return
            continue
        scratch.total[kind] -= k
        scratch.ps_left[ps_kind] -= 1
        n_filled = _take(ledger, job, scratch, verdict[n], n_filled)
        left -= k


@inlined
def _take(ledger: Ledger, job: int, scratch: Scratch, verdict: int, n_filled: int) -> int:
    """Take the workers of a job that is to run; returns how many places are filled."""
    kind = ledger.jobs[job, TYPE]
    if verdict == -1:
        add_last_place(ledger, job, scratch.free, -1)
        if ledger.jobs[job, HELD] == 0:
            add_last_place(ledger, job, scratch.unheld, -1)
        return n_filled
    for i in range(n_filled, n_filled + verdict):
        scratch.free[scratch.servers[i], kind] -= scratch.counts[i]
        scratch.unheld[scratch.servers[i], kind] -= scratch.counts[i]
    return n_filled + verdict


@inlined
def add_last_place(ledger: Ledger, job: int, room: Ints, sign: int) -> None:
    """Add the workers of the job's present or last placement to `room`.

    Parameters
    ----------
    ledger, job
        The run, and the job.
    room
        In and out: workers by (server, type).
    sign
        1 to add them, -1 to take them away.
    """
    job_row = ledger.jobs[job]
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        room[ledger.workers[i, 0], job_row[TYPE]] += sign * ledger.workers[i, 1]


@inlined
def _keeps_place(ledger: Ledger, job: int, rule: Rule, scratch: Scratch) -> bool:
    """Whether the job's last placement is free, and is not held by others where it is to take free workers first."""
    if not _fits(ledger, job, scratch.free):
        return False
    if rule.keep_running == 0 or rule.sticky or ledger.jobs[job, HELD] > 0 or _fits(ledger, job, scratch.unheld):
        return True
    # its last place is in part a running job's: it takes it only where the free workers are too few
    return _unheld(ledger.jobs[job, TYPE], scratch) < ledger.jobs[job, DEMAND]


@inlined
def _fits(ledger: Ledger, job: int, room: Ints) -> bool:
    """Whether `room`, by (server, type), holds the job's last placement."""
    job_row, fits = ledger.jobs[job], True
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        fits = fits and room[ledger.workers[i, 0], job_row[TYPE]] >= ledger.workers[i, 1]
    return fits


@inlined
def _unheld(kind: int, scratch: Scratch) -> int:
    """Let the room of each server be its free workers that no running job holds; returns how many these are."""
    unheld = 0
    for s in range(len(scratch.room)):
        scratch.room[s] = max(0, min(scratch.free[s, kind], scratch.unheld[s, kind]))
        unheld += scratch.room[s]
    return unheld


@lean
def _place_anew(case: Case, ledger: Ledger, job: int, rule: Rule, scratch: Scratch, n_filled: int) -> int:
    """Place a job whose demand is left somewhere; returns on how many servers."""
    kind, k, delays = ledger.jobs[job, TYPE], ledger.jobs[job, DEMAND], case.delays
    if rule.keep_running == 0 or _unheld(kind, scratch) < k:
        for s in range(len(scratch.room)):
            scratch.room[s] = scratch.free[s, kind]
    nearest = _nearest_for_all(case, ledger.data, job, k, scratch.room)
    if nearest >= 0:
        scratch.servers[n_filled], scratch.counts[n_filled] = nearest, k
        return 1
    for s in range(len(scratch.room)):
        scratch.delay[s] = upload_delay(delays, job, s) if scratch.room[s] > 0 else NEVER
    if case.kept:
        look_up(ledger.data, job, scratch.there)
        forgive(scratch.room, scratch.there, k, scratch.delay)
    return place(scratch.room, scratch.delay, k, scratch.servers[n_filled:], scratch.counts[n_filled:])


@inlined
def _nearest_for_all(case: Case, data: Data, job: int, k: int, room: Ints) -> int:
    """The server of least (delay, server) that holds all `k` workers, -1 if none does: :func:`place` for one server."""
    best, best_delay, delays = -1, NEVER, case.delays
    block = data.first[job] if case.kept else EMPTY
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            server = data.server[i]
            # its data are there, for all workers
            if server != EMPTY and room[server] >= k and data.workers[i] >= k and (best < 0 or server < best):
                best, best_delay = server, 0
        block = data.following[block]
    if best_delay == 0 and delays.fixed.shape[0] == 0 and min(delays.lo[job, 0], delays.lo[job, 1]) > 0:
        return best  # all other delays are longer
    for s in range(len(room)):
        if room[s] >= k:
            delay = upload_delay(delays, job, s)
            if delay < best_delay or (delay == best_delay and s < best):
                best, best_delay = s, delay
    return best


@lean
def forgive(room: Ints, with_data: Ints, k: int, delay: Ints) -> None:
    """Let the delay to a server be 0 that has the data, of `with_data` workers, of all that it could take of `k`.

    Parameters
    ----------
    room, with_data
        By server: workers it could give, and workers whose data it has.
    k
        Workers wanted, > 0.
    delay
        In and out: upload delay by server [µs].
    """
    for s in range(len(room)):
        # the data of all workers that it would get there, else an upload is due all the same
        if 0 < min(k, room[s]) <= with_data[s]:
            delay[s] = 0


@lean
def place(room: Ints, delay: Ints, k: int, server: Ints, count: Ints) -> int:
    """Choose servers for `k` workers by the rule of this module; fills `server` and `count`, returns how many.

    `room` and `delay` are by server; the sum of `room` is at least `k`.

    Parameters
    ----------
    room, delay
        By server: workers it could give; upload delay [µs].
    k
        Workers wanted; at most the sum of `room`.
    server, count
        Out: the chosen servers by (delay, server), and the workers on each.
    """
    best = -1
    for s in range(len(room)):
        if room[s] >= k and (best < 0 or delay[s] < delay[best]):
            best = s
    if best >= 0:
        server[0], count[0] = best, k
        return 1
    return _spread(room, delay, k, server, count)


@lean
def _spread(room: Ints, delay: Ints, k: int, server: Ints, count: Ints) -> int:
    """Choose several servers: the smallest set, then the least largest delay, then the least sum of delays."""
    size, min_room = _smallest_set(room, k)
    # if the nearest servers of those that can be in such a set hold k, no other set has a smaller delay or sum
    if _nearest(room, delay, size, min_room, server) < k:
        _search(room, delay, k, size, server, count)
    left = k
    for i in range(size):
        count[i] = min(left, room[server[i]])
        left -= count[i]
    return size


@inlined
def _smallest_set(room: Ints, k: int) -> tuple[int, int]:
    """Fewest servers that hold `k` workers, and the least room of a server that can be one of them."""
    left, size, last_room = k, 0, NEVER
    while left > 0:
        largest, n_largest = 0, 0
        for server_room in room:
            if largest < server_room < last_room:
                largest, n_largest = server_room, 0
            if server_room == largest:
                n_largest += 1
        n_servers = min(n_largest, -(-left // largest))
        # greedily the largest rooms: no set of fewer servers holds k
        left, size, last_room = left - n_servers * largest, size + n_servers, largest
    return size, last_room + left


@inlined
def _nearest(room: Ints, delay: Ints, size: int, min_room: int, server: Ints) -> int:
    """Fill `server` with the `size` servers of least (delay, server) among those of this room; returns their room."""
    n = 0
    for s in range(len(room)):
        if room[s] >= min_room and (n < size or delay[s] < delay[server[n - 1]]):
            # insertion into a list of at most `size` servers; when it is full the farthest one falls out
            i = min(n, size - 1)
            while i > 0 and delay[server[i - 1]] > delay[s]:
                server[i] = server[i - 1]
                i -= 1
            server[i] = s
            n = min(n + 1, size)
    total = 0
    for i in range(n):
        total += room[server[i]]
    return total


@compiled
def _search(room: Ints, delay: Ints, k: int, size: int, server: Ints, scratch: Ints) -> None:
    """Fill `server`, by (delay, server), where the nearest servers do not hold `k` workers."""
    nearest = np.empty((2, len(room)), np.int64)
    for s in range(len(room)):
        nearest[0, s] = s
    sort_by(delay, nearest, len(room))
    limit = _least_largest_delay(room, delay, nearest[0], k, size, scratch)
    # only servers within the least largest delay matter: the sum is minimised among these
    n_near = _within(room, delay, limit, nearest[1])
    sums = np.empty((n_near + 1, size + 1, k + 1), np.int64)
    _sum_delays(room, delay, nearest[1], n_near, sums)
    _choose(room, delay, nearest, n_near, sums)
    # the chosen ones are by number now; workers are filled in by (delay, server)
    sort_by(delay, nearest, size)
    for i in range(size):
        server[i] = nearest[0, i]


@lean
def sort_by(key: Ints, items: Ints, n: int) -> None:
    """Sort the first `n` of ``items[0]`` by their keys, stably, by merging; ``items[1]`` is scratch space."""
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for to in range(low, high):
                if i < middle and (j >= high or key[items[0, i]] <= key[items[0, j]]):
                    items[1, to] = items[0, i]
                    i += 1
                else:
                    items[1, to] = items[0, j]
                    j += 1
        for i in range(n):
            items[0, i] = items[1, i]
        width *= 2


@inlined
def _least_largest_delay(room: Ints, delay: Ints, nearest: Ints, k: int, size: int, rooms: Ints) -> int:
    """Smallest delay such that `size` servers at most so far away hold `k` workers; `rooms` is scratch space."""
    total = 0
    for i in range(size):
        # the `size` largest rooms among the servers so far, nearest first
        rooms[i] = 0
    for s in nearest:
        smallest = 0
        for i in range(1, size):
            if rooms[i] < rooms[smallest]:
                smallest = i
        if room[s] > rooms[smallest]:
            total += room[s] - rooms[smallest]
            rooms[smallest] = room[s]
        # by delay ascending: the first server with which k fit is the least largest delay
        if total >= k:
            return delay[s]
    return NEVER


@inlined
def _within(room: Ints, delay: Ints, limit: int, servers: Ints) -> int:
    """Fill `servers` with the servers that have room within `limit`; returns how many these are."""
    n = 0
    for s in range(len(room)):
        if delay[s] <= limit and room[s] > 0:
            servers[n] = s
            n += 1
    return n


@inlined
def _sum_delays(room: Ints, delay: Ints, servers: Ints, n: int, sums: Ints) -> None:
    """Fill least[i, c, r]: the least sum of delays of c servers of `servers` from number i on that hold r workers.

    Dynamic programming from the last of the `n` servers back.
    """
    for c in range(sums.shape[1]):
        for r in range(sums.shape[2]):
            sums[n, c, r] = NEVER
    sums[n, 0, 0] = 0
    # from the last back, so that the choice below can prefer the lowest server
    for i in range(n - 1, -1, -1):
        d, a = delay[servers[i]], room[servers[i]]
        for c in range(sums.shape[1]):
            for r in range(sums.shape[2]):
                best = sums[i + 1, c, r]
                if c > 0:
                    rest_sum = sums[i + 1, c - 1, max(0, r - a)]
                    if rest_sum < NEVER:
                        best = min(best, rest_sum + d)
                sums[i, c, r] = best


@inlined
def _choose(room: Ints, delay: Ints, nearest: Ints, n: int, sums: Ints) -> None:
    """Fill ``nearest[0]`` with the choice of least sum among the `n` servers ``nearest[1]``, first by number."""
    size, r = sums.shape[1] - 1, sums.shape[2] - 1
    # the lowest server that some optimal set contains is taken first: the lexicographically first set
    c = size
    for i in range(n):
        s = nearest[1, i]
        if c > 0 and sums[i, c, r] < NEVER:
            rest_sum = sums[i + 1, c - 1, max(0, r - room[s])]
            if rest_sum < NEVER and rest_sum + delay[s] == sums[i, c, r]:
                nearest[0, size - c] = s
                c, r = c - 1, max(0, r - room[s])
