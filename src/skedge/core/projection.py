"""What one more chunk on a lane would cost: Q of JSAC'22 Eq. (5) and its repaired forms.

For a lane and a chunk that would reach it at t0 = now + Delta this gives the cost from t0 on; with the delay it is

    Q = (t0 - r) / D + (waiting + p) / D + harm to the others.

Three readings of Q (ERRATA J21-J24):

``MARGINAL``
    The increase of sum_d (c_jd - r_j) / D_j over the lane's chunks, by projecting the lane with and without the chunk.
    Equals Eq. (5) whenever no other chunk reaches the lane after t0.
``EQ5``
    Eq. (5) as printed; pending = assigned and uncompleted at t0, whether arrived or not.
``FRACTIONAL``
    The increase of sum_d (1/D_j) * integral of (remaining / p): the form for which the dual constraint (6a') holds.

**Exactness.** Weights 1/D_j are integers ``scale // D_j`` with ``scale`` the least common multiple of all D_j seen (at
most :data:`LARGEST_SCALE`; beyond it they are rounded to that many parts), times are integers, so MARGINAL and EQ5
are exact integers and ties are true ties. A value that would leave 62 bits (years of delay) is :data:`SATURATED`.
FRACTIONAL is in floats, compared with a relative tolerance of 1e-9.
"""

from __future__ import annotations

import numpy as np

from .jit import compiled
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
    absorb,
    believe_until,
    finish_head,
    next_arrival,
    pick,
    send,
)
from .model import Floats, Ints

MARGINAL, EQ5, FRACTIONAL = 0, 1, 2
"""The readings of Q."""

LARGEST_SCALE = 2**40
"""Largest common multiple of the D_j with which weights are exact."""

SATURATED = 2**62
"""Stands for every Q too large for 62 bits."""

TOO_LARGE = 4.0e18
"""Above this a scaled Q is :data:`SATURATED`."""


@compiled
def catch_up(lanes: Lanes, lane: int, now: int) -> None:
    """Bring `lane` to `now`, arrivals at `now` included."""
    believe_until(lanes, lane, now)
    absorb(lanes, lane, now)


@compiled
def copy_lane(lanes: Lanes, lane: int, scratch: Lanes) -> None:
    """Copy `lane` into the only lane of `scratch`."""
    n, m = lanes.waiting[lane], lanes.coming[lane]
    for i in range(n):
        for f in range(FIELDS):
            scratch.rows[0, i, f] = lanes.rows[lane, i, f]
    for i in range(m):
        for f in range(FIELDS):
            scratch.transit[0, i, f] = lanes.transit[lane, i, f]
    scratch.waiting[0], scratch.coming[0] = n, m
    scratch.clock[0], scratch.serving[0] = lanes.clock[lane], lanes.serving[lane]


@compiled
def project(scratch: Lanes, until: int, base: int, scale: int, flow: Floats) -> int:
    """Run the scratch lane to `until` with completions as announced; returns its flow of completed chunks.

    The flow is sum of scale / D * (c - base) over the chunks that complete; ``flow[0]`` gets the same as a float and
    ``flow[1]`` the fractional flow, sum of scale / D * integral (remaining / p), of the queued chunks.
    """
    total = 0
    at = scratch.clock[0]
    while at < until:
        absorb(scratch, 0, at)
        stop = min(until, next_arrival(scratch, 0))
        if scratch.waiting[0] == 0:
            if stop == until and scratch.coming[0] == 0:
                break
            at = stop
            continue
        i = pick(scratch, 0)
        row = scratch.rows[0, i]
        step = min(stop - at, row[LEFT])
        flow[1] += _queued_flow(scratch, i, step, scale)
        row[LEFT] -= step
        scratch.serving[0] = row[SEQ]
        at += step
        if row[LEFT] == 0:
            weight = scale // row[CHUNKS]
            total += weight * (at - base)
            flow[0] += np.float64(weight) * (at - base)
            finish_head(scratch, 0, i)
    scratch.clock[0] = until
    absorb(scratch, 0, until)
    return total


@compiled
def _queued_flow(scratch: Lanes, serving: int, step: int, scale: int) -> float:
    """Fractional flow of all queued chunks over `step`, while row `serving` is in service."""
    total = 0.0
    for i in range(scratch.waiting[0]):
        row = scratch.rows[0, i]
        fraction = row[COUNT] - 1 + row[LEFT] / row[EACH]
        if i == serving:
            fraction -= step / (2.0 * row[EACH])
        total += scale / row[CHUNKS] * fraction * step
    return total


@compiled
def drain(scratch: Lanes, base: int, scale: int, flow: Floats) -> int:
    """Run the scratch lane until it is empty; the flow as in :func:`project`."""
    total = 0
    while scratch.coming[0] > 0:
        total += project(scratch, scratch.transit[0, 0, ARRIVE], base, scale, flow)
    if scratch.preemptive == 0 and scratch.waiting[0] > 0:
        i = pick(scratch, 0)
        total += project(scratch, scratch.clock[0] + scratch.rows[0, i, LEFT], base, scale, flow)
    at = scratch.clock[0] - base
    for i in range(scratch.waiting[0] - 1, -1, -1):
        row = scratch.rows[0, i]
        chunks, each, left, weight = row[COUNT], row[EACH], row[LEFT], scale // row[CHUNKS]
        times = chunks * (at + left) + each * (chunks * (chunks - 1) // 2)
        total += weight * times
        flow[0] += np.float64(weight) * times
        fraction = left / each
        flow[1] += (
            scale
            / row[CHUNKS]
            * (fraction * (np.float64(at) + base - scratch.clock[0] + left / 2.0) + _later_chunks(at, base, scratch, row))
        )
        at += left + (chunks - 1) * each
    return total


@compiled
def _later_chunks(at: int, base: int, scratch: Lanes, row: Ints) -> float:
    """Fractional flow of the chunks behind the first one of a group whose service starts at base + `at`."""
    later = row[COUNT] - 1
    wait = np.float64(at) + base - scratch.clock[0] + row[LEFT]
    return later * (wait + row[EACH] / 2.0) + row[EACH] * (later * (later - 1) / 2.0)


@compiled
def completion_times(scratch: Lanes, times: Ints) -> int:
    """Run the scratch lane until it is empty, chunk by chunk; ``times[HEAD + k]`` is when chunk k of a group completes.

    Returns the number of chunks. The caller numbers the groups' chunks by :func:`number_chunks`.
    """
    done = 0
    while scratch.waiting[0] + scratch.coming[0] > 0:
        at = scratch.clock[0]
        absorb(scratch, 0, at)
        if scratch.waiting[0] == 0:
            scratch.clock[0] = next_arrival(scratch, 0)
            continue
        i = pick(scratch, 0)
        row = scratch.rows[0, i]
        step = min(next_arrival(scratch, 0) - at, row[LEFT])
        row[LEFT] -= step
        scratch.serving[0] = row[SEQ]
        scratch.clock[0] = at + step
        if row[LEFT] == 0:
            times[row[HEAD]] = at + step
            row[HEAD] += 1
            finish_head(scratch, 0, i)
            done += 1
    return done


@compiled
def number_chunks(scratch: Lanes) -> int:
    """Number the chunks of the scratch lane: sets HEAD of every group; returns how many there are."""
    total = 0
    for i in range(scratch.coming[0]):
        scratch.transit[0, i, HEAD] = total
        total += scratch.transit[0, i, COUNT]
    for i in range(scratch.waiting[0]):
        scratch.rows[0, i, HEAD] = total
        total += scratch.rows[0, i, COUNT]
    return total


@compiled
def _arrives_later(lanes: Lanes, lane: int, t0: int) -> bool:
    return lanes.coming[lane] > 0 and lanes.transit[lane, 0, ARRIVE] > t0


@compiled
def insert_cost(
    lanes: Lanes, lane: int, group: Ints, now: int, scale: int, mode: int, scratch: Lanes
) -> tuple[int, float, int]:
    """What the last chunk of `group` costs on `lane` from its arrival t0 on, given the others of the group.

    Parameters
    ----------
    group
        The job's chunks on this lane, the new one included (COUNT >= 1); ARRIVE is t0 >= `now`.
    scale
        Weights are ``scale // D_j``.

    Returns
    -------
    exact, value, postponed
        The cost in µs / `scale` as an integer (:data:`SATURATED` if it would not fit; 0 in FRACTIONAL mode) and as a
        float: (waiting + p) / D + harm, or the increase of the fractional flow. `postponed` is the number of chunks
        that complete later because of the insertion; -1 where only :func:`delayed` tells. If it is not -1, one more
        chunk of the group would cost exactly p / D more.
    """
    catch_up(lanes, lane, now)
    plain = mode != FRACTIONAL and lanes.preemptive == 1 and lanes.overhead == 0
    if plain and (mode == EQ5 or not _arrives_later(lanes, lane, group[ARRIVE])):
        return _at_arrival(lanes, lane, group, now, scale, scratch)
    return _with_and_without(lanes, lane, group, scale, mode, scratch)


@compiled
def _at_arrival(
    lanes: Lanes, lane: int, group: Ints, now: int, scale: int, scratch: Lanes
) -> tuple[int, float, int]:
    """Eq. (5): the lane at t0 splits into A1 (runs first: waiting) and A2 (is postponed by p: harm)."""
    state, at, budget = lanes, lane, group[ARRIVE] - now
    if next_arrival(lanes, lane) <= group[ARRIVE]:
        copy_lane(lanes, lane, scratch)
        project(scratch, group[ARRIVE], now, scale, np.zeros(2))
        state, at, budget = scratch, 0, 0
    waiting, weight, postponed = (group[COUNT] - 1) * group[EACH], 0, 0
    for i in range(state.waiting[at] - 1, -1, -1):
        row = state.rows[at, i]
        work = row[LEFT] + (row[COUNT] - 1) * row[EACH]
        done = min(budget, work)
        budget -= done
        if row[RANK] <= group[RANK]:
            waiting += work - done
        else:
            chunks = row[COUNT]
            if done >= row[LEFT]:
                chunks -= 1 + (done - row[LEFT]) // row[EACH]
            postponed += chunks
            weight += chunks * (scale // row[CHUNKS])
    for i in range(state.coming[at]):
        row = state.transit[at, i]
        if row[RANK] <= group[RANK]:
            waiting += row[COUNT] * row[EACH]
        else:
            postponed += row[COUNT]
            weight += row[COUNT] * (scale // row[CHUNKS])
    own = scale // group[CHUNKS]
    value = np.float64(own) * (waiting + group[EACH]) + np.float64(weight) * group[EACH]
    return own * (waiting + group[EACH]) + weight * group[EACH], value, postponed


@compiled
def _with_and_without(
    lanes: Lanes, lane: int, group: Ints, scale: int, mode: int, scratch: Lanes
) -> tuple[int, float, int]:
    """The difference of two projections of the lane, with and without the group's last chunk."""
    before, after = np.zeros(2), np.zeros(2)
    copy_lane(lanes, lane, scratch)
    if group[COUNT] > 1:
        group[COUNT] -= 1
        send(scratch, 0, group)
        group[COUNT] += 1
    without = drain(scratch, group[ARRIVE], scale, before)
    copy_lane(lanes, lane, scratch)
    send(scratch, 0, group)
    with_ = drain(scratch, group[ARRIVE], scale, after)
    if mode == FRACTIONAL:
        return 0, after[1] - before[1], -1
    return with_ - without, after[0] - before[0], -1


@compiled
def delayed(lanes: Lanes, lane: int, group: Ints, now: int, scratch: Lanes, times: Ints) -> int:
    """Number of chunks that complete strictly later because of the last chunk of `group`.

    ``times`` (shape ``(2, room)``) gets every chunk's completion without and with the new one: the lane's chunks by
    :func:`number_chunks`, then the group's own, the new chunk last.
    """
    catch_up(lanes, lane, now)
    chunks = group[COUNT]
    others = 0
    for with_new in range(2):
        copy_lane(lanes, lane, scratch)
        others = number_chunks(scratch)
        group[COUNT], group[HEAD] = chunks - 1 + with_new, others
        if group[COUNT] > 0:
            send(scratch, 0, group)
        completion_times(scratch, times[with_new])
    group[COUNT] = chunks
    later = 0
    for k in range(others + chunks - 1):
        if times[1, k] > times[0, k]:
            later += 1
    return later


@compiled
def chunks_on(lanes: Lanes, lane: int) -> int:
    """Number of uncompleted chunks assigned to `lane`."""
    total = 0
    for i in range(lanes.waiting[lane]):
        total += lanes.rows[lane, i, COUNT]
    for i in range(lanes.coming[lane]):
        total += lanes.transit[lane, i, COUNT]
    return total
