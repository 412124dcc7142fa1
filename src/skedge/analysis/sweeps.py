"""Compiled sweeps over the rows of a record."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from skedge.core.jit import compiled
from skedge.core.model import Ints
from skedge.core.time import NEVER

Small = NDArray[np.int32]


@compiled
def in_groups(group: Small, key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Rows by group, within each group by `key`, stably; rows of group -1 are omitted.

    Returns the rows, and the start of each group among them, shape ``(groups + 1,)``.
    """
    first = np.zeros(groups + 1, np.int64)
    for g in group:
        if g >= 0:
            first[g + 1] += 1
    for g in range(groups):
        first[g + 1] += first[g]
    rows, fill = np.empty(first[groups], np.int64), first.copy()
    for i in range(len(group)):
        g = group[i]
        if g >= 0:
            rows[fill[g]] = i
            fill[g] += 1
    for g in range(groups):
        _sort_by(rows[first[g] : first[g + 1]], key)
    return rows, first


@compiled
def _sort_by(rows: Ints, key: Ints) -> None:
    """Sort `rows` by `key` in place, stably; rows already in order, the usual case, cost one comparison each."""
    in_order = True
    for i in range(1, len(rows)):
        if key[rows[i]] < key[rows[i - 1]]:
            in_order = False
            break
    if not in_order:
        rows[:] = rows[np.argsort(key[rows], kind="mergesort")]


@compiled
def bounds(group: Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """First start, last end and number of rows of each group; NEVER and -1 if it has none."""
    first, last, count = np.full(groups, NEVER, np.int64), np.full(groups, -1, np.int64), np.zeros(groups, np.int64)
    for i in range(len(group)):
        g = group[i]
        first[g] = min(first[g], start[i])
        last[g] = max(last[g], end[i])
        count[g] += 1
    return first, last, count


@compiled
def totals(group: Ints, start: Ints, end: Ints, flag: NDArray[np.bool_], groups: int) -> tuple[Ints, Ints]:
    """Total length and number of flagged rows of each group."""
    length, flagged = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for i in range(len(group)):
        length[group[i]] += end[i] - start[i]
        flagged[group[i]] += flag[i]
    return length, flagged


@compiled
def merged(rows: Ints, first: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Union of each group's intervals as (group, start, end); adjacent intervals are merged.

    `rows` and `first` as :func:`in_groups` gives them.
    """
    who, begin, stop = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    n = 0
    for g in range(len(first) - 1):
        for k in range(first[g], first[g + 1]):
            i = rows[k]
            if k > first[g] and start[i] <= stop[n - 1]:
                stop[n - 1] = max(stop[n - 1], end[i])
            else:
                who[n], begin[n], stop[n] = g, start[i], end[i]
                n += 1
    return who[:n].copy(), begin[:n].copy(), stop[:n].copy()


@compiled
def uncovered(a: tuple[Ints, Ints, Ints], b: tuple[Ints, Ints, Ints], slack: int) -> Ints:
    """Start of the first gap of more than `slack` µs that `b` leaves in each interval of `a`; -1 if it is covered.

    Both as :func:`merged` gives them.
    """
    open_at, k = np.full(len(a[0]), -1, np.int64), 0
    for i in range(len(a[0])):
        job, at = a[0][i], a[1][i]
        while k < len(b[0]) and (b[0][k] < job or (b[0][k] == job and b[2][k] <= at)):
            k += 1
        m = k
        while m < len(b[0]) and b[0][m] == job and b[1][m] <= at + slack and at + slack < a[2][i]:
            at = max(at, b[2][m])
            m += 1
        if at + slack < a[2][i]:
            open_at[i] = at
    return open_at


@compiled
def lane_service(  # noqa: C901 - one sweep: a call per event would cost more than the event
    rows: Ints,
    first: Ints,
    start: Ints,
    end: Ints,
    place: Ints,
    group: Ints,
    coming: Ints,
    coming_first: Ints,
    ready: Ints,
    gone: Ints,
    preemptive: bool,
    slack: int,
    room: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Follow each lane with the queue of chunks that have arrived there and are not finished.

    Parameters
    ----------
    rows, first
        Runs by lane and start; `start`, `end` and `place` are the times of each run and the place of its chunk.
    coming, coming_first
        Places of the chunks sent to each lane, by arrival. A place is a chunk's position in the order of rank, so the
        chunk with the smaller place runs first. `group` is the first place of the chunks that take turns with it, which
        may run in any order.
    ready, gone
        Arrival of the chunk of each place, and end of its last run (NEVER if it never runs) [µs].
    slack
        Tolerance [µs].
    room
        Maximum number of rows of each table returned.

    Returns
    -------
    Three tables of (time, run, place): runs that begin before the previous one has ended (place -1); runs while a
    chunk of smaller place waits; and, for each run (-1: none) before which the lane was idle, a chunk that waited.
    """
    twice, worse, idle = np.empty((room, 3), np.int64), np.empty((room, 3), np.int64), np.empty((room, 3), np.int64)
    twices = worses = idles = 0
    for lane in range(len(first) - 1):
        queue = [np.int64(0) for _ in range(0)]
        a, last, at = coming_first[lane], coming_first[lane + 1], np.int64(0)
        for k in range(first[lane], first[lane + 1]):
            i = rows[k]
            mine = place[i]
            if k > first[lane] and start[i] < at - slack and twices < room:
                twice[twices] = (start[i], i, -1)
                twices += 1
            while len(queue) > 0 and gone[queue[0]] <= at:
                heapq.heappop(queue)
            waits, since = (queue[0], at) if len(queue) > 0 else (np.int64(-1), NEVER)
            while a < last and ready[coming[a]] <= start[i]:
                if waits < 0:
                    waits, since = coming[a], max(at, ready[coming[a]])
                heapq.heappush(queue, coming[a])
                a += 1
            if waits >= 0 and since < start[i] - slack and idles < room:
                idle[idles] = (since, i, waits)
                idles += 1
            while len(queue) > 0 and gone[queue[0]] <= start[i]:
                heapq.heappop(queue)
            better = np.int64(-1)
            when = start[i]
            if len(queue) > 0 and group[queue[0]] < group[mine] and ready[queue[0]] + slack <= start[i]:
                better = queue[0]
            while a < last and ready[coming[a]] < end[i]:
                c = coming[a]
                if preemptive and better < 0 and group[c] < group[mine] and ready[c] < end[i] - slack:
                    better, when = c, ready[c]
                heapq.heappush(queue, c)
                a += 1
            if better >= 0 and worses < room:
                worse[worses] = (when, i, better)
                worses += 1
            at = max(at, end[i])
    return twice[:twices], worse[:worses], idle[:idles]
