"""Lookahead of a lane: its schedule if nothing more is sent to it, and from that Q of one more chunk.

This holds on lanes that preempt at no cost. The future of such a lane is a list of *service intervals*, in each of
which one group is served without interruption. The list stays valid while time passes, until something is sent to the
lane or a chunk does not end as announced. So a job can be compared with thousands of lanes of which few have to be
projected anew; :mod:`.projection` projects the lane, with and without the chunk, each time.

**The chunk itself** is served in the time that intervals of better rank leave from t0 on. **The others**: work q of
rank R, inserted at t0, adds to the work that a chunk of worse rank waits for

    delta = q - (time from t0 to the arrival of its group in which nothing of better rank than the group is served),

if that is positive. The chunk completes later by delta, and by the better intervals that begin before then: each of
these delays it further (the *knock-on delay*). The *tail* is the intervals after the last one of a group that was
still to arrive: they are in order of rank, so there delta = q without any knock-on, and a bisection with suffix sums of
the weights replaces the loop.
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
    insert_group,
)
from .projection import EQ5, FRACTIONAL, Cost, is_plain, serve

# -- service intervals ------------------------------------------------------------------------------------------------


@lean
def look_ahead(lanes: Lanes, lane_ids: Ints, now: int, weights: Ints) -> None:
    """Bring the service intervals of some lanes up to date.

    Parameters
    ----------
    lanes
        The lanes, as announced; changed in place.
    lane_ids
        The lanes. Those that have to be projected anew are advanced to `now`; where chunks may not end as announced,
        all of them must have been before (:func:`~.lanes.bring_to`).
    now
        The present [µs].
    weights
        ``weights[D] = scale // D``, and the scale itself at index 0.
    """
    # the suffix sums contain weights, so that a new scale makes all of them void
    if lanes.scale[0] != weights[0]:
        for lane in range(len(lanes.n_intervals)):
            lanes.n_intervals[lane] = UNKNOWN
        lanes.scale[0] = weights[0]
    for lane in lane_ids:
        if lanes.n_intervals[lane] == UNKNOWN:
            advance(lanes, lane, now)
            lanes.passed[lane] = 0
            lanes.n_intervals[lane] = _project(lanes, lane, now)
            _add_up(lanes, lane, weights)
        while lanes.passed[lane] < lanes.n_intervals[lane] and _ends(lanes, lane, lanes.passed[lane]) <= now:
            lanes.passed[lane] += 1


@inlined
def _project(lanes: Lanes, lane: int, now: int) -> int:
    """Serve a copy of the queue from `now` on; returns the number of intervals.

    WEIGHT_LEFT of each interval is D of its group until :func:`_add_up`, CHUNKS_LEFT the chunks that complete in it.
    """
    # the queue keeps the order of the rows, worst rank first: the group to serve is always the last one
    queue, transit, time, n, coming, m = lanes.queue, lanes.transit, now, lanes.waiting[lane], lanes.coming[lane], 0
    for i in range(n):
        for f in range(FIELDS):
            queue[i, f] = lanes.rows[lane, i, f]
    lanes.tail[lane] = 0
    while n > 0 or coming > 0:
        if n == 0:
            time = max(time, transit[lane, coming - 1, ARRIVE])
        while coming > 0 and transit[lane, coming - 1, ARRIVE] <= time:
            coming -= 1
            insert_group(queue, n, transit[lane, coming])
            n += 1
        # only an arrival can change what is served before the group is complete
        stop = transit[lane, coming - 1, ARRIVE] if coming > 0 else NEVER
        g = n - 1
        left, chunk_time = queue[g, LEFT], queue[g, EACH]
        served, n_done = serve(queue, g, stop - time)
        n -= int(queue[g, COUNT] == 0)
        # a group of worse rank that arrives does not end the interval
        if m == 0 or lanes.lookahead[lane, m - 1, OF_SEQ] != queue[g, SEQ] or _ends(lanes, lane, m - 1) < time:
            _begin(lanes.lookahead[lane, m], queue[g])
            m += 1
        row = lanes.lookahead[lane, m - 1]
        if n_done > 0:
            row[LAST] = time + left + (n_done - 1) * chunk_time
            row[CHUNKS_LEFT] += n_done
        time += served
        row[UNTIL] = time
        # no tail before a group that is still under way: it may displace, or wait behind, groups of any rank
        if row[OF_ARRIVE] > now:
            lanes.tail[lane] = m
    return m


@inlined
def _begin(row: Ints, group: Ints) -> None:
    """Begin a interval of `group`."""
    row[OF_RANK], row[OF_SEQ], row[OF_ARRIVE], row[OF_EACH] = group[RANK], group[SEQ], group[ARRIVE], group[EACH]
    row[LAST], row[WEIGHT_LEFT], row[CHUNKS_LEFT] = -1, group[CHUNKS], 0


@inlined
def _add_up(lanes: Lanes, lane: int, weights: Ints) -> None:
    """Fill in the suffix sums of weights and chunks, and the next interval of better rank (BETTER)."""
    table, m = lanes.lookahead[lane], lanes.n_intervals[lane]
    table[m, WEIGHT_LEFT] = table[m, CHUNKS_LEFT] = 0
    # next better element, with jumps over what is known to be worse: linear in m over all intervals
    for s in range(m - 1, -1, -1):
        table[s, WEIGHT_LEFT] = weights[table[s, WEIGHT_LEFT]] * table[s, CHUNKS_LEFT] + table[s + 1, WEIGHT_LEFT]
        table[s, CHUNKS_LEFT] += table[s + 1, CHUNKS_LEFT]
        k = s + 1
        while k < m and not _better(table, k, s):
            k = table[k, BETTER]  # what is between is no better than k
        table[s, BETTER] = k


@inlined
def _better(table: Ints, k: int, s: int) -> bool:
    """Whether interval `k` is of a better rank than interval `s`."""
    a, b = table[k, OF_RANK], table[s, OF_RANK]
    return bool((a < b) | ((a == b) & (table[k, OF_SEQ] < table[s, OF_SEQ])))


@inlined
def _ends(lanes: Lanes, lane: int, s: int) -> int:
    return lanes.lookahead[lane, s, UNTIL]


@inlined
def _begins(lanes: Lanes, lane: int, s: int) -> int:
    """Start of interval `s` [µs]; of the first one, a time that is not later than it."""
    # no column for it: a lane never idles while a group waits, so it is the later of arrival and end before
    arrive = lanes.lookahead[lane, s, OF_ARRIVE]
    return arrive if s == 0 else max(arrive, _ends(lanes, lane, s - 1))


@inlined
def _first_worse(lanes: Lanes, lane: int, rank: int) -> int:
    """The first interval of the tail whose rank is above `rank`."""
    low, high = lanes.tail[lane], lanes.n_intervals[lane]
    middle = low  # it is the first one for most jobs, and near is in the cache
    while low < high:
        if lanes.lookahead[lane, middle, OF_RANK] > rank:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


# -- Q ---------------------------------------------------------------------------------------------------------------


@inlined
def has_lookahead(lanes: Lanes, mode: int) -> bool:
    """Whether :func:`cost_ahead` gives Q in this reading: on lanes that preempt at no cost, but not FRACTIONAL.

    An overhead would make the length of an interval depend on what interrupts it; FRACTIONAL needs each chunk's
    progress, not only its completion.
    """
    return is_plain(lanes) and mode != FRACTIONAL


@inlined
def cost_ahead(
    lanes: Lanes, lane: int, arrive: int, rank: int, chunk_time: int, count: int, own_weight: int, mode: int
) -> Cost:
    """:func:`~.projection.insert_cost` of the last of `count` chunks, in the readings MARGINAL and EQ5.

    Parameters
    ----------
    lanes, lane
        The lane's service intervals must be up to date (:func:`look_ahead`).
    arrive
        t0 = now + Delta, when the chunks reach the lane [µs].
    rank, chunk_time, count
        RANK of the group, p_j [µs], and the chunks of the job on this lane including the new one, >= 1.
    own_weight
        ``weights[D_j]`` of the job.
    mode
        MARGINAL or EQ5; see :func:`has_lookahead`.

    Returns
    -------
    As :func:`~.projection.insert_cost`; the number of postponed chunks is never -1.
    """
    worse = _first_worse(lanes, lane, rank)
    if mode == EQ5:
        waiting, weight, postponed = _pending(lanes, lane, arrive, rank, worse)
        response = waiting + count * chunk_time
        return (
            own_weight * response + weight * chunk_time,
            np.float64(own_weight) * response + np.float64(weight) * chunk_time,
            postponed,
        )
    # the last chunk of the group completes when all of its work is done
    response = _completion(lanes, lane, arrive, rank, worse, count * chunk_time) - arrive
    exact, value, postponed = _delay_to_others(lanes, lane, arrive, rank, worse, count * chunk_time)
    if count > 1:
        # the others of its group are sent in any case: what they delay is not this chunk's doing
        exact_before, value_before, _ = _delay_to_others(lanes, lane, arrive, rank, worse, (count - 1) * chunk_time)
        exact, value = exact - exact_before, value - value_before
    return own_weight * response + exact, np.float64(own_weight) * response + value, postponed


@inlined
def _completion(lanes: Lanes, lane: int, arrive: int, rank: int, worse: int, work: int) -> int:
    """When `work` of this rank, inserted at `arrive`, is done [µs]: intervals up to the rank go first.

    Here and below, `worse` is :func:`_first_worse`. Equal ranks count as better: those jobs were dispatched earlier.
    """
    free_from, end = arrive, arrive
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        begin, end = max(end, lanes.lookahead[lane, s, OF_ARRIVE]), max(end, lanes.lookahead[lane, s, UNTIL])
        # intervals of worse rank are free time, as the work would displace them
        if lanes.lookahead[lane, s, OF_RANK] <= rank:
            if begin - free_from >= work:
                return free_from + work
            work -= begin - free_from
            free_from = end
    if worse > lanes.tail[lane] and _ends(lanes, lane, worse - 1) > end:
        # in the tail those up to the rank follow each other without a gap: one step for all of them
        if end - free_from >= work:
            return free_from + work
        work -= end - free_from
        free_from = _ends(lanes, lane, worse - 1)
    return free_from + work


@inlined
def _delay_to_others(lanes: Lanes, lane: int, arrive: int, rank: int, worse: int, work: int) -> Cost:
    """What `work` of this rank adds to the weighted completions of others if inserted at `arrive`; how many it delays.

    The sum is kept as a float as well: where it does not fit 62 bits only the float shows it (TOO_LARGE).
    """
    exact, value, postponed = 0, 0.0, 0
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        row = lanes.lookahead[lane, s]
        # better rank, or no chunk of it completes after t0: nothing to delay
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
        if follows < lanes.n_intervals[lane] and _begins(lanes, lane, follows) < row[LAST] + delay:
            # the chunks of an interval are of one job, so of one weight, and the division is exact
            weight_per_chunk, knock_on = weight // chunks, _knock_on_delay(lanes, lane, s, arrive, delay)
            exact += weight_per_chunk * knock_on
            value += np.float64(weight_per_chunk) * knock_on
    weight, chunks = _tail_after(lanes, lane, arrive, worse)
    return exact + weight * work, value + np.float64(weight) * work, postponed + chunks


@inlined
def _after(lanes: Lanes, lane: int, s: int, time: int) -> tuple[int, int]:
    """Weight and number of the chunks that complete in interval `s`, after `time`; at least one does."""
    row, following = lanes.lookahead[lane, s], lanes.lookahead[lane, s + 1]
    weight, chunks = row[WEIGHT_LEFT] - following[WEIGHT_LEFT], row[CHUNKS_LEFT] - following[CHUNKS_LEFT]
    # the chunks complete at LAST, LAST - p, ...: those up to `time` are counted by a division
    first = row[LAST] - (chunks - 1) * row[OF_EACH]
    if first <= time:
        n_before = 1 + (time - first) // row[OF_EACH]
        weight -= n_before * (weight // chunks)
        chunks -= n_before
    return weight, chunks


@inlined
def _tail_after(lanes: Lanes, lane: int, time: int, s: int) -> tuple[int, int]:
    """Weight and number of the chunks that complete in the tail from interval `s` on, after `time`."""
    high, middle = lanes.n_intervals[lane], s
    while s < high:
        # the first interval that ends after `time`
        if _ends(lanes, lane, middle) > time:
            high = middle
        else:
            s = middle + 1
        middle = (s + high) // 2
    if s == lanes.n_intervals[lane]:
        return 0, 0
    weight, chunks = _after(lanes, lane, s, time)
    return weight + lanes.lookahead[lane, s + 1, WEIGHT_LEFT], chunks + lanes.lookahead[lane, s + 1, CHUNKS_LEFT]


@inlined
def _not_absorbed(lanes: Lanes, lane: int, s: int, since: int, work: int) -> int:
    """Delta of the group of interval `s`: `work`, inserted at `since`, that is left when the group arrives; <= 0: none.

    The work is done while nothing of better rank than the group is served: idle time, or time of worse groups.
    """
    until, free_from = lanes.lookahead[lane, s, OF_ARRIVE], since
    for k in range(lanes.passed[lane], s):
        if _ends(lanes, lane, k) > free_from and _better(lanes.lookahead[lane], k, s):
            work -= max(0, min(_begins(lanes, lane, k), until) - free_from)
            if work <= 0:
                return 0
            free_from = _ends(lanes, lane, k)
    return work - max(0, until - free_from)


@inlined
def _knock_on_delay(lanes: Lanes, lane: int, s: int, since: int, delay: int) -> int:
    """Knock-on delay of the chunks of interval `s` that complete after `since`, summed over them, beyond `delay` [µs].

    A chunk that is late by `delay` is still in service when a better group would have found the lane free of it, and
    waits for that one, too.
    """
    table, knock_on = lanes.lookahead[lane], 0
    completion, first = table[s, LAST], _begins(lanes, lane, table[s, BETTER])
    for _ in range(table[s, CHUNKS_LEFT] - table[s + 1, CHUNKS_LEFT]):
        # from the last chunk back: the earlier ones end before the first better interval as well
        if completion <= since or completion + delay <= first:
            break
        # `work` of the chunk is left at its old completion; it fits only between the better intervals that follow
        free_from, work = completion, delay
        for k in range(table[s, BETTER], lanes.n_intervals[lane]):
            if not _better(table, k, s):
                continue
            free = _begins(lanes, lane, k) - free_from
            if free >= work:
                break
            work -= free
            free_from = _ends(lanes, lane, k)
        knock_on += free_from + work - completion - delay
        completion -= table[s, OF_EACH]
    return knock_on


@inlined
def _pending(lanes: Lanes, lane: int, time: int, rank: int, worse: int) -> tuple[int, int, int]:
    """A_1 and A_2 of Eq. (5): time after `time` of intervals up to the rank; weight and number of the other chunks."""
    waiting, weight, chunks = 0, 0, 0
    for s in range(lanes.passed[lane], lanes.tail[lane]):
        row = lanes.lookahead[lane, s]
        if row[OF_RANK] <= rank:
            waiting += max(0, row[UNTIL] - max(_begins(lanes, lane, s), time))
        elif row[LAST] > time:
            interval_weight, interval_chunks = _after(lanes, lane, s, time)
            weight, chunks = weight + interval_weight, chunks + interval_chunks
    if worse > lanes.tail[lane]:
        waiting += max(0, _ends(lanes, lane, worse - 1) - max(_begins(lanes, lane, lanes.tail[lane]), time))
    interval_weight, interval_chunks = _tail_after(lanes, lane, time, worse)
    return waiting, weight + interval_weight, chunks + interval_chunks
