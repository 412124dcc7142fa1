"""Cost of one more chunk on a lane: Q of JSAC'22 Eq. (5) and its corrected forms.

For a chunk that would reach a lane at t0 = now + Delta, this module computes the cost from t0 on. With the delay it is

    Q = (t0 - r) / D + (waiting + p) / D + harm to the others.

Three readings of Q (ERRATA J21-J24):

``MARGINAL``
    The increase of sum_d (c_jd - r_j) / D_j over the lane's chunks, by projecting the lane with and without the chunk.
    Equals Eq. (5) whenever no other chunk reaches the lane after t0.
``EQ5``
    Eq. (5) as printed; pending = assigned and uncompleted at t0, whether arrived or not.
``FRACTIONAL``
    The increase of sum_d (1/D_j) * integral of (remaining / p): the form for which the dual constraint (6a') holds.

**Exactness.** Weights 1/D_j are integers ``weights[D_j] = scale // D_j`` with ``scale`` the least common multiple of
all D_j seen (at most :data:`LARGEST_SCALE`; beyond it they are rounded to that many parts) and times are integers, so
MARGINAL and EQ5 are exact integers and ties are true ties. A Q above :data:`TOO_LARGE` µs / scale is
:data:`SATURATED` and compared as a float; this happens after 11 years with the D_j of the paper's Table II, and after
5 hours with all D_j from 1 to 20. FRACTIONAL uses floats, compared with a relative tolerance of 1e-9.
"""

from __future__ import annotations

import math

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .lanes import (
    ARRIVE,
    CHUNKS,
    COUNT,
    EACH,
    FIELDS,
    HEAD,
    LEFT,
    RANK,
    SEQ,
    Lanes,
)

Cost = tuple[int, float, int]
"""A cost as an exact integer and as a float, and the number of chunks postponed."""

MARGINAL, EQ5, FRACTIONAL = 0, 1, 2
"""The readings of Q."""

LARGEST_SCALE = 2**40
"""Largest common multiple of the D_j for which weights are exact."""

SATURATED = 2**62
"""Any Q that is too large for 62 bits."""

TOO_LARGE = 4.0e18
"""A scaled Q above this is :data:`SATURATED`."""


@lean
def fill_weights(weights: Ints, scale: int) -> None:
    """``weights[D] = scale // D``; ``weights[0]`` is `scale` itself."""
    weights[0] = scale
    for chunks in range(1, len(weights)):
        weights[chunks] = scale // chunks


def weight_table(scale: int, largest: int) -> Ints:
    """The weights of :func:`fill_weights` for D up to `largest`."""
    weights = np.zeros(largest + 1, np.int64)
    fill_weights(weights, scale)
    return weights


@inlined
def common_scale(scale: int, chunks: int) -> int:
    """The scale of weights that are exact at `scale`, and are to be so for 1 / `chunks`, too."""
    factor = scale // math.gcd(scale, chunks)
    # the product, the least common multiple, may exceed 64 bits
    return factor * chunks if factor <= LARGEST_SCALE // chunks else LARGEST_SCALE


# -- a queue: all groups of one lane, best rank first, whether arrived or not ---------------------------------------


@inlined
def load(lanes: Lanes, lane: int, queue: Ints) -> int:
    """Copy the groups of `lane` into `queue`, best rank first; returns their number."""
    n = lanes.waiting[lane]
    for i in range(n):
        for f in range(FIELDS):
            # lanes keep the worst group first, a queue the best
            queue[i, f] = lanes.rows[lane, n - 1 - i, f]
    for k in range(lanes.coming[lane]):
        rank, seq = lanes.transit[lane, k, RANK], lanes.transit[lane, k, SEQ]
        i = _make_place(queue, n, rank, seq)
        for f in range(FIELDS):
            queue[i, f] = lanes.transit[lane, k, f]
        n += 1
    return n


@inlined
def _make_place(queue: Ints, n: int, rank: int, seq: int) -> int:
    """Make room for a group of this rank in a queue of `n` groups; returns its index."""
    i = n
    while i > 0 and (rank < queue[i - 1, RANK] or (rank == queue[i - 1, RANK] and seq < queue[i - 1, SEQ])):
        for f in range(FIELDS):
            queue[i, f] = queue[i - 1, f]
        i -= 1
    return i


@inlined
def place(queue: Ints, n: int, group: Ints) -> int:
    """Insert `group` into a queue of `n` groups by its rank; returns its index."""
    i = _make_place(queue, n, group[RANK], group[SEQ])
    for f in range(FIELDS):
        queue[i, f] = group[f]
    return i


@inlined
def copy_queue(queue: Ints, target: Ints, n: int) -> None:
    """Copy the first `n` groups."""
    for i in range(n):
        for f in range(FIELDS):
            target[i, f] = queue[i, f]


@inlined
def number_chunks(queue: Ints, n: int) -> int:
    """Number the chunks of a queue in order: HEAD is a group's first chunk; returns the number of chunks."""
    total = 0
    for i in range(n):
        queue[i, HEAD] = total
        total += queue[i, COUNT]
    return total


@inlined
def serve(queue: Ints, g: int, max_time: int) -> tuple[int, int]:
    """Serve group `g` for at most `max_time` µs, or until it is complete; returns the time and the chunks completed."""
    left, chunk_time, count = queue[g, LEFT], queue[g, EACH], queue[g, COUNT]
    total = left + (count - 1) * chunk_time
    time, n_done = min(max_time, total), count
    if time < total:
        n_done = 0 if time < left else 1 + (time - left) // chunk_time
        # LEFT is of the first chunk that is not complete
        queue[g, LEFT] = left - time if n_done == 0 else chunk_time - (time - left) % chunk_time
    queue[g, COUNT] = count - n_done
    return time, n_done


@lean
def run_queue(  # noqa: C901 - one loop: a call per step would cost more than the step
    queue: Ints,
    n: int,
    lanes: Lanes,
    serving: int,
    now: int,
    until: int,
    base: int,
    weights: Ints,
    fractional: bool,
    times: Ints,
) -> tuple[int, float, int]:
    """Serve a queue from `now` to `until`, in place, with announced durations; returns its flow and who is in service.

    The flow is the sum of scale / D * (c - base) over the chunks that complete, exactly and as a float. If
    `fractional`, it is the float sum of scale / D * integral of (t - base) / p over the time in service, which
    increases by as much as the fractional flow. `lanes` gives the service discipline, `serving` the SEQ last in
    service; what is returned is that of the chunk begun and not finished at `until`, -1 if there is none. `times`,
    unless empty, receives the completion of each chunk, by chunk number.

    Parameters
    ----------
    queue, n
        Groups by rank, best first, and their number; used up.
    lanes, serving
        Service discipline; SEQ of the group last in service, -1 for none.
    now, until
        Interval to serve [µs]; NEVER for no end.
    base
        Time from which completions count, t0 [µs].
    weights
        ``weights[D] = scale // D``.
    fractional
        True: the fractional flow; the exact integer is then 0.
    times
        Out: completion of each chunk by number [µs]; may be empty.
    """
    total, value, first = 0, 0.0, 0
    while True:
        # the best group that has arrived, and when a better one arrives
        g, stop = -1, until
        for i in range(first, n):
            if queue[i, COUNT] == 0:
                first += int(i == first)  # groups before `first` are complete, and are skipped from now on
                continue
            if queue[i, ARRIVE] <= now:
                g = i
                break
            # a better group on its way may interrupt the one that is found below
            stop = min(stop, queue[i, ARRIVE])
        # nothing has arrived yet: on to the first arrival
        if g < 0:
            if stop >= until:
                return total, value, -1
            now = stop
            continue
        if lanes.preemptive == 0:
            g, stop = _unfinished(queue, n, g, now, until)
        elif lanes.overhead > 0 and serving >= 0 and queue[g, SEQ] != serving:
            _add_restore(queue, n, serving, lanes.overhead)
        serving = -1
        left, chunk_time, count = queue[g, LEFT], queue[g, EACH], queue[g, COUNT]
        time, n_done = serve(queue, g, stop - now)
        weight = weights[queue[g, CHUNKS]]
        if fractional:
            # integral of (t - base) over the time in service is time * (its middle - base)
            value += weights[0] / queue[g, CHUNKS] * time * (now - base + time / 2.0) / chunk_time
        elif n_done > 0:
            # the chunks complete at left, left + each, ...: an arithmetic series
            flow = n_done * (now - base + left) + chunk_time * (n_done * (n_done - 1) // 2)
            total += weight * flow
            # the integer may overflow 64 bits: the float decides whether it is trusted (TOO_LARGE)
            value += np.float64(weight) * flow
        if len(times) > 0:
            for k in range(n_done):
                times[queue[g, HEAD] + k] = now + left + k * chunk_time
            queue[g, HEAD] += n_done
        now += time
        in_chunk = n_done < count and (n_done == 0 or queue[g, LEFT] < chunk_time)
        if now >= until:
            return total, value, queue[g, SEQ] if in_chunk else -1
        # interrupted within a chunk: it has to be restored when it is taken up again
        if lanes.overhead > 0 and in_chunk:
            queue[g, LEFT] += lanes.overhead


@inlined
def _unfinished(queue: Ints, n: int, best: int, now: int, until: int) -> tuple[int, int]:
    """Without preemption: the group with the chunk in service, else the best, and when its chunk ends."""
    for i in range(n):
        if queue[i, COUNT] > 0 and queue[i, ARRIVE] <= now and queue[i, LEFT] < queue[i, EACH]:
            best = i
            break
    return best, min(until, now + queue[best, LEFT])


@inlined
def _add_restore(queue: Ints, n: int, serving: int, overhead: int) -> None:
    for i in range(n):
        if queue[i, SEQ] == serving:
            queue[i, LEFT] += overhead


# -- Q ---------------------------------------------------------------------------------------------------------------


@inlined
def insert_cost(lanes: Lanes, lane: int, group: Ints, now: int, weights: Ints, mode: int, room: Ints) -> Cost:
    """Cost of the last chunk of `group` on `lane` from its arrival t0 on, given the others of the group.

    Here and below, the lane must have been advanced to `now` (:func:`~.lanes.bring_to`).

    Parameters
    ----------
    lanes, lane
        The lanes, and the one that is asked.
    group
        The job's chunks on this lane, including the new one (COUNT >= 1); ARRIVE is t0 >= `now`.
    now
        The present [µs].
    weights
        ``weights[D] = scale // D`` (:func:`weight_table`).
    mode
        How Q is read: MARGINAL, EQ5 or FRACTIONAL.
    room
        Scratch space for two queues, shape ``(2, groups, FIELDS)``.

    Returns
    -------
    exact, value, postponed
        The cost in µs / scale as an integer (0 in FRACTIONAL mode) and as a float: (waiting + p) / D + harm, or the
        increase of the fractional flow. Where the cost is Eq. (5), `postponed` is the number of chunks delayed by the
        insertion; otherwise it is -1, and :func:`delayed` computes the number.
    """
    n, t0, serving = load(lanes, lane, room[0]), group[ARRIVE], lanes.serving[lane]
    if now < t0 or mode == EQ5:
        # until t0 the lane does the same with the chunk as without it; Eq. (5) as printed counts what is displaced now
        serving = run_queue(room[0], n, lanes, serving, now, t0, t0, weights, False, group[:0])[2]
        n = _drop_complete(room[0], n)
    if mode == EQ5 or (mode == MARGINAL and is_plain(lanes) and _all_arrived(room[0], n, t0)):
        return _eq5(room[0], n, group, weights)
    own_index = place(room[0], n, group)
    n += 1
    fractional = mode == FRACTIONAL
    copy_queue(room[0], room[1], n)
    # the same queue without the new chunk: the difference of the two flows is what it adds
    room[1, own_index, COUNT] -= 1
    flow, value, _ = run_queue(room[0], n, lanes, serving, t0, NEVER, t0, weights, fractional, group[:0])
    flow_before, value_before, _ = run_queue(room[1], n, lanes, serving, t0, NEVER, t0, weights, fractional, group[:0])
    return flow - flow_before, value - value_before, -1


@inlined
def is_plain(lanes: Lanes) -> bool:
    """Whether lanes preempt, and at no cost."""
    return bool(lanes.preemptive == 1 and lanes.overhead == 0)


@inlined
def _drop_complete(queue: Ints, n: int) -> int:
    """Remove the groups that are complete; returns the number of the others."""
    n_kept = 0
    for i in range(n):
        if queue[i, COUNT] > 0:
            if n_kept < i:
                for f in range(FIELDS):
                    queue[n_kept, f] = queue[i, f]
            n_kept += 1
    return n_kept


@inlined
def _all_arrived(queue: Ints, n: int, now: int) -> bool:
    """Whether every group has arrived by `now`."""
    arrived = True
    for i in range(n):
        arrived = arrived and queue[i, ARRIVE] <= now
    return arrived


@inlined
def _eq5(queue: Ints, n: int, group: Ints, weights: Ints) -> Cost:
    """Eq. (5) for a queue as it is at t0: exact on lanes that preempt at no cost if nothing more arrives.

    As printed, all chunks assigned and uncompleted at t0 are pending, whether arrived or not.
    """
    # the job's own earlier chunks on this lane tie in rank, so they are in A1
    waiting, weight, postponed = (group[COUNT] - 1) * group[EACH], 0, 0
    for i in range(n):
        count = queue[i, COUNT]
        # ties are in A1, as printed (J28)
        if queue[i, RANK] <= group[RANK]:
            waiting += queue[i, LEFT] + (count - 1) * queue[i, EACH]
        else:
            postponed += count
            weight += count * weights[queue[i, CHUNKS]]
    own_weight = weights[group[CHUNKS]]
    value = np.float64(own_weight) * (waiting + group[EACH]) + np.float64(weight) * group[EACH]
    return own_weight * (waiting + group[EACH]) + weight * group[EACH], value, postponed


@lean
def delayed(lanes: Lanes, lane: int, group: Ints, now: int, weights: Ints, room: Ints, times: Ints) -> int:
    """Number of chunks that the last chunk of `group` delays.

    ``times``, shape ``(2, chunks)`` with the chunks of :func:`chunks_on` and of the group, receives the completion of
    each chunk with and without the new one, numbered in the order of ``room[0]``. HEAD of each group ends one past the
    number of its last chunk.

    Parameters
    ----------
    lanes, lane, now
        The lane, advanced to `now` [µs].
    group
        The job's chunks there, including the new one; ARRIVE is t0.
    weights
        As in :func:`insert_cost`; the number does not depend on them.
    room, times
        Scratch space, shapes ``(2, groups, FIELDS)`` and ``(2, chunks)``.
    """
    n = load(lanes, lane, room[0])
    own_index = place(room[0], n, group)
    n += 1
    total = number_chunks(room[0], n)
    copy_queue(room[0], room[1], n)
    room[1, own_index, COUNT] -= 1
    for k in range(2):
        for d in range(total):
            # a chunk that does not complete compares as never
            times[k, d] = NEVER
        run_queue(room[k], n, lanes, lanes.serving[lane], now, NEVER, now, weights, False, times[k])
    n_delayed = 0
    for k in range(total):
        if times[0, k] > times[1, k]:
            n_delayed += 1
    return n_delayed


@inlined
def chunks_on(lanes: Lanes, lane: int) -> int:
    """Number of uncompleted chunks assigned to `lane`."""
    total = 0
    for i in range(lanes.waiting[lane]):
        total += lanes.rows[lane, i, COUNT]
    for i in range(lanes.coming[lane]):
        total += lanes.transit[lane, i, COUNT]
    return total
