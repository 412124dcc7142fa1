"""What a lane will do if nothing more is sent to it, and what one more chunk changes: Q without a projection for each.

This holds on lanes that preempt at no cost. The future of such a lane is a list of *stretches*, in each of which one
group is served without interruption. It stays the same while time passes, until something is sent to the lane or a
chunk does not end as announced. A job is therefore compared with thousands of lanes of which few have to be projected
anew; :mod:`.projection` projects the lane, with and without the chunk, each time.

**The chunk itself** takes the time that better stretches leave from t0 on. **The others**: work q of rank R, put in at
t0, adds to what a chunk of worse rank has ahead of it

    delta = q - (time from t0 to the arrival of its group in which nothing of better rank than the group is served),

if that is positive. The chunk completes later by delta, and by the better stretches that begin before then: each of
these postpones it further. A *tail* of stretches, whose groups were there when the lane was projected, is in order of
rank, so there delta = q and nothing better follows: it is searched by bisection, with totals of weights.
"""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .lanes import (
    ARRIVE,
    BETTER,
    CHUNKS,
    CHUNKS_LEFT,
    COUNT,
    EACH,
    FIELDS,
    LAST,
    LEFT,
    OF_ARRIVE,
    OF_EACH,
    OF_RANK,
    OF_SEQ,
    RANK,
    SEQ,
    UNKNOWN,
    UNTIL,
    WEIGHT_LEFT,
    Lanes,
    advance,
)
from .projection import EQ5, FRACTIONAL, Cost, is_plain, serve

# -- the stretches ---------------------------------------------------------------------------------------------------


@lean
def look_ahead(lanes: Lanes, which: Ints, now: int, weights: Ints) -> None:
    """Bring the stretches of the lanes `which` up to date.

    Lanes that have to be projected anew are advanced to `now`; all must have been (:func:`~.lanes.bring_to`) if chunks
    may not end as announced.
    """
    if lanes.scale[0] != weights[0]:
        for lane in range(len(lanes.stretches)):
            lanes.stretches[lane] = UNKNOWN
        lanes.scale[0] = weights[0]
    for lane in which:
        if lanes.stretches[lane] == UNKNOWN:
            advance(lanes, lane, now)
            lanes.passed[lane] = 0
            lanes.stretches[lane] = _project(lanes, lane, now)
            _add_up(lanes, lane, weights)
        while lanes.passed[lane] < lanes.stretches[lane] and _ends(lanes, lane, lanes.passed[lane]) <= now:
            lanes.passed[lane] += 1


@inlined
def _project(lanes: Lanes, lane: int, now: int) -> int:
    """Serve a copy of the queue from `now` on; returns the number of stretches.

    Of each stretch, WEIGHT_LEFT is D of the group, and CHUNKS_LEFT the chunks that complete in it, as yet.
    """
    queue, transit, at, n, coming, m = lanes.queue, lanes.transit, now, lanes.waiting[lane], lanes.coming[lane], 0
    for i in range(n):
        for f in range(FIELDS):
            queue[i, f] = lanes.rows[lane, i, f]
    lanes.tail[lane] = 0
    while n > 0 or coming > 0:
        if n == 0:
            at = max(at, transit[lane, coming - 1, ARRIVE])
        while coming > 0 and transit[lane, coming - 1, ARRIVE] <= at:
            coming -= 1
            _join(queue, n, transit[lane, coming])
            n += 1
        stop = transit[lane, coming - 1, ARRIVE] if coming > 0 else NEVER
        g = n - 1
        left, each = queue[g, LEFT], queue[g, EACH]
        time, done = serve(queue, g, stop - at)
        n -= int(queue[g, COUNT] == 0)
        # a group of worse rank that arrives does not end the stretch
        if m == 0 or lanes.ahead[lane, m - 1, OF_SEQ] != queue[g, SEQ] or _ends(lanes, lane, m - 1) < at:
            _begin(lanes.ahead[lane, m], queue[g])
            m += 1
        row = lanes.ahead[lane, m - 1]
        if done > 0:
            row[LAST] = at + left + (done - 1) * each
            row[CHUNKS_LEFT] += done
        at += time
        row[UNTIL] = at
        if row[OF_ARRIVE] > now:
            lanes.tail[lane] = m
    return m


@inlined
def _join(queue: Ints, n: int, group: Ints) -> None:
    """Put `group` into a queue of `n` groups, worst rank first."""
    i = n
    while i > 0 and (
        queue[i - 1, RANK] < group[RANK] or (queue[i - 1, RANK] == group[RANK] and queue[i - 1, SEQ] < group[SEQ])
    ):
        for f in range(FIELDS):
            queue[i, f] = queue[i - 1, f]
        i -= 1
    for f in range(FIELDS):
        queue[i, f] = group[f]


@inlined
def _begin(row: Ints, group: Ints) -> None:
    """Begin a stretch of `group`."""
    row[OF_RANK], row[OF_SEQ], row[OF_ARRIVE], row[OF_EACH] = group[RANK], group[SEQ], group[ARRIVE], group[EACH]
    row[LAST], row[WEIGHT_LEFT], row[CHUNKS_LEFT] = -1, group[CHUNKS], 0


@inlined
def _add_up(lanes: Lanes, lane: int, weights: Ints) -> None:
    """Fill in what follows each stretch: totals, and the first one of better rank."""
    table, m = lanes.ahead[lane], lanes.stretches[lane]
    table[m, WEIGHT_LEFT] = table[m, CHUNKS_LEFT] = 0
    for s in range(m - 1, -1, -1):
        table[s, WEIGHT_LEFT] = weights[table[s, WEIGHT_LEFT]] * table[s, CHUNKS_LEFT] + table[s + 1, WEIGHT_LEFT]
        table[s, CHUNKS_LEFT] += table[s + 1, CHUNKS_LEFT]
        k = s + 1
        while k < m and not _better(table, k, s):
            k = table[k, BETTER]  # what is between is no better than k
        table[s, BETTER] = k


@inlined
def _better(table: Ints, k: int, s: int) -> bool:
    """Whether stretch `k` is of a better rank than stretch `s`."""
    a, b = table[k, OF_RANK], table[s, OF_RANK]
    return bool((a < b) | ((a == b) & (table[k, OF_SEQ] < table[s, OF_SEQ])))


@inlined
def _ends(lanes: Lanes, lane: int, s: int) -> int:
    return lanes.ahead[lane, s, UNTIL]


@inlined
def _begins(lanes: Lanes, lane: int, s: int) -> int:
    """Start of stretch `s` [µs]; of the first one, a time that is not later than it."""
    arrive = lanes.ahead[lane, s, OF_ARRIVE]
    return arrive if s == 0 else max(arrive, _ends(lanes, lane, s - 1))


@inlined
def _first_worse(lanes: Lanes, lane: int, rank: int) -> int:
    """The first stretch of the tail whose rank is above `rank`."""
    low, high = lanes.tail[lane], lanes.stretches[lane]
    middle = low  # it is the first one for most jobs, and near is in the cache
    while low < high:
        if lanes.ahead[lane, middle, OF_RANK] > rank:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


# -- Q ---------------------------------------------------------------------------------------------------------------


@inlined
def foreseen(lanes: Lanes, mode: int) -> bool:
    """Whether :func:`cost_ahead` gives Q in this reading: on lanes that preempt at no cost, but for FRACTIONAL."""
    return is_plain(lanes) and mode != FRACTIONAL


@inlined
def cost_ahead(lanes: Lanes, lane: int, arrive: int, rank: int, each: int, count: int, own: int, mode: int) -> Cost:
    """:func:`~.projection.insert_cost` of the last of `count` chunks, in the readings MARGINAL and EQ5.

    The stretches of the lane must be up to date (:func:`look_ahead`); `own` is the weight of the chunk.
    """
    worse = _first_worse(lanes, lane, rank)
    if mode == EQ5:
        waiting, weight, postponed = _pending(lanes, lane, arrive, rank, worse)
        response = waiting + count * each
        return own * response + weight * each, np.float64(own) * response + np.float64(weight) * each, postponed
    response = _completion(lanes, lane, arrive, rank, worse, count * each) - arrive
    exact, value, postponed = _harm(lanes, lane, arrive, rank, worse, count * each)
    if count > 1:
        # the chunk is behind the others of its group
        less, part, _ = _harm(lanes, lane, arrive, rank, worse, (count - 1) * each)
        exact, value = exact - less, value - part
    return own * response + exact, np.float64(own) * response + value, postponed


@inlined
def _completion(lanes: Lanes, lane: int, arrive: int, rank: int, worse: int, work: int) -> int:
    """When `work` of this rank, there at `arrive`, is done: in the time that stretches up to the rank leave.

    Here and below, `worse` is :func:`_first_worse`.
    """
    at, end = arrive, arrive
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        begin, end = max(end, lanes.ahead[lane, s, OF_ARRIVE]), max(end, lanes.ahead[lane, s, UNTIL])
        if lanes.ahead[lane, s, OF_RANK] <= rank:
            if begin - at >= work:
                return at + work
            work -= begin - at
            at = end
    if worse > lanes.tail[lane] and _ends(lanes, lane, worse - 1) > end:
        # those up to the rank follow each other, as they were there
        if end - at >= work:
            return at + work
        work -= end - at
        at = _ends(lanes, lane, worse - 1)
    return at + work


@inlined
def _harm(lanes: Lanes, lane: int, arrive: int, rank: int, worse: int, work: int) -> Cost:
    """What `work` of this rank, put in at `arrive`, adds to the completion of others; and how many it postpones."""
    exact, value, postponed = 0, 0.0, 0
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        row = lanes.ahead[lane, s]
        if row[OF_RANK] <= rank or row[LAST] <= arrive:
            continue
        delay = work if row[OF_ARRIVE] <= arrive else _not_absorbed(lanes, lane, s, arrive, work)
        if delay <= 0:
            continue
        weight, chunks = _after(lanes, lane, s, arrive)
        exact += weight * delay
        value += np.float64(weight) * delay
        postponed += chunks
        follows = row[BETTER]
        if follows < lanes.stretches[lane] and _begins(lanes, lane, follows) < row[LAST] + delay:
            each, more = weight // chunks, _pushed_on(lanes, lane, s, arrive, delay)
            exact += each * more
            value += np.float64(each) * more
    weight, chunks = _tail_after(lanes, lane, arrive, worse)
    return exact + weight * work, value + np.float64(weight) * work, postponed + chunks


@inlined
def _after(lanes: Lanes, lane: int, s: int, time: int) -> tuple[int, int]:
    """Weight and number of the chunks that complete in stretch `s`, after `time`; at least one does."""
    row, following = lanes.ahead[lane, s], lanes.ahead[lane, s + 1]
    weight, chunks = row[WEIGHT_LEFT] - following[WEIGHT_LEFT], row[CHUNKS_LEFT] - following[CHUNKS_LEFT]
    first = row[LAST] - (chunks - 1) * row[OF_EACH]
    if first <= time:
        before = 1 + (time - first) // row[OF_EACH]
        weight -= before * (weight // chunks)
        chunks -= before
    return weight, chunks


@inlined
def _tail_after(lanes: Lanes, lane: int, time: int, s: int) -> tuple[int, int]:
    """Weight and number of the chunks that complete in the tail from stretch `s` on, after `time`."""
    high, middle = lanes.stretches[lane], s
    while s < high:
        # the first stretch that ends after `time`
        if _ends(lanes, lane, middle) > time:
            high = middle
        else:
            s = middle + 1
        middle = (s + high) // 2
    if s == lanes.stretches[lane]:
        return 0, 0
    weight, chunks = _after(lanes, lane, s, time)
    return weight + lanes.ahead[lane, s + 1, WEIGHT_LEFT], chunks + lanes.ahead[lane, s + 1, CHUNKS_LEFT]


@inlined
def _not_absorbed(lanes: Lanes, lane: int, s: int, since: int, work: int) -> int:
    """What is left of `work`, there from `since` on, when the group of stretch `s` arrives: below or 0 if none is.

    It is done while nothing of a better rank than the group's is served.
    """
    until, at = lanes.ahead[lane, s, OF_ARRIVE], since
    for k in range(lanes.passed[lane], s):
        if _ends(lanes, lane, k) > at and _better(lanes.ahead[lane], k, s):
            work -= max(0, min(_begins(lanes, lane, k), until) - at)
            if work <= 0:
                return 0
            at = _ends(lanes, lane, k)
    return work - max(0, until - at)


@inlined
def _pushed_on(lanes: Lanes, lane: int, s: int, since: int, delay: int) -> int:
    """By how much more than `delay` the chunks of stretch `s` complete later, in all, if after `since` [µs]."""
    table, more = lanes.ahead[lane], 0
    done, first = table[s, LAST], _begins(lanes, lane, table[s, BETTER])
    for _ in range(table[s, CHUNKS_LEFT] - table[s + 1, CHUNKS_LEFT]):
        if done <= since or done + delay <= first:
            break
        at, work = done, delay
        for k in range(table[s, BETTER], lanes.stretches[lane]):
            if not _better(table, k, s):
                continue
            free = _begins(lanes, lane, k) - at
            if free >= work:
                break
            work -= free
            at = _ends(lanes, lane, k)
        more += at + work - done - delay
        done -= table[s, OF_EACH]
    return more


@inlined
def _pending(lanes: Lanes, lane: int, time: int, rank: int, worse: int) -> tuple[int, int, int]:
    """The time that stretches up to the rank take after `time`; weight and number of the chunks of the others."""
    waiting, weight, chunks = 0, 0, 0
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        row = lanes.ahead[lane, s]
        if row[OF_RANK] <= rank:
            waiting += max(0, row[UNTIL] - max(_begins(lanes, lane, s), time))
        elif row[LAST] > time:
            of_weight, of_chunks = _after(lanes, lane, s, time)
            weight, chunks = weight + of_weight, chunks + of_chunks
    if worse > lanes.tail[lane]:
        waiting += max(0, _ends(lanes, lane, worse - 1) - max(_begins(lanes, lane, lanes.tail[lane]), time))
    of_weight, of_chunks = _tail_after(lanes, lane, time, worse)
    return waiting, weight + of_weight, chunks + of_chunks
