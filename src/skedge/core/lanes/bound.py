"""A lower bound of the cost of a first chunk on a lane, from totals that are kept while the lane's queue is the same.

It is found by bisection where a projection (:mod:`.projection`) walks through the queue, so that a job can be compared
with thousands of long queues.
"""

from __future__ import annotations

import numpy as np

from skedge.core.jit import inlined, lean
from skedge.core.model import Ints

from .lanes import (
    ARRIVE,
    CHUNKS,
    COUNT,
    EACH,
    LEFT,
    RANK,
    SUM_CHUNKS,
    SUM_RANK,
    SUM_WEIGHT,
    SUM_WORK,
    Lanes,
)
from .projection import Cost


@lean
def sum_up(lanes: Lanes, which: Ints, weights: Ints) -> None:
    """Bring the totals of the lanes `which` up to all groups at the server but the one in service."""
    if lanes.scale[0] != weights[0]:
        for lane in range(len(lanes.summed)):
            lanes.summed[lane] = 0
        lanes.scale[0] = weights[0]
    for lane in which:
        # only the groups that are not summed yet: totals of the worse ones do not depend on the better ones
        for i in range(lanes.summed[lane], lanes.waiting[lane] - 1):
            _add_row(lanes, lane, i, weights)
        lanes.summed[lane] = max(0, lanes.waiting[lane] - 1)


@inlined
def _add_row(lanes: Lanes, lane: int, i: int, weights: Ints) -> None:
    rows, sums, count = lanes.rows, lanes.sums, lanes.rows[lane, i, COUNT]
    sums[lane, i + 1, SUM_RANK] = rows[lane, i, RANK]
    sums[lane, i + 1, SUM_WORK] = sums[lane, i, SUM_WORK] + rows[lane, i, LEFT] + (count - 1) * rows[lane, i, EACH]
    sums[lane, i + 1, SUM_CHUNKS] = sums[lane, i, SUM_CHUNKS] + count
    sums[lane, i + 1, SUM_WEIGHT] = sums[lane, i, SUM_WEIGHT] + count * weights[rows[lane, i, CHUNKS]]


@inlined
def _worse(lanes: Lanes, lane: int, rank: int) -> int:
    """Number of groups at the server, but for the one in service, whose rank is above `rank`; they are the first."""
    low, high = 0, lanes.summed[lane]
    while low < high:
        # rounded up, or low + 1 = high would never end
        middle = (low + high + 1) // 2
        if lanes.sums[lane, middle, SUM_RANK] > rank:
            low = middle
        else:
            high = middle - 1
    return low


@inlined
def _unserved(lanes: Lanes, lane: int, groups: int, budget: int) -> int:
    """Number of the `groups` worst groups that have work left after `budget` µs of service, the best of them first."""
    low, high, work = 0, groups, lanes.sums[lane, groups, SUM_WORK]
    while low < high:
        middle = (low + high) // 2
        if work - lanes.sums[lane, middle, SUM_WORK] <= budget:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _chunks_left(lanes: Lanes, lane: int, i: int, done: int) -> int:
    """Chunks of row `i` that are not complete after `done` µs of service."""
    left, count = lanes.rows[lane, i, LEFT], lanes.rows[lane, i, COUNT]
    return count if done < left else count - 1 - (done - left) // lanes.rows[lane, i, EACH]


@inlined
def _pending(lanes: Lanes, lane: int, budget: int, ahead: int, worse: int, weights: Ints) -> tuple[int, int]:
    """Weight and number of the chunks of A2 that are left after `budget` µs of service.

    At least one group must be at the server, and the totals up to date. `ahead` is the work of A1 at the server, and
    `worse` the number of groups of A2 but for the one in service (:func:`_ahead`).
    """
    sums, best, left, weight, chunks = lanes.sums, lanes.summed[lane], ahead, 0, 0
    if ahead == 0:
        # every group at the server belongs to A2, also the one in service
        left = _work(lanes, lane, best)
        if budget < left:
            chunks = _chunks_left(lanes, lane, best, budget)
            weight = chunks * weights[lanes.rows[lane, best, CHUNKS]]
    # A1 is done before t0, so A2 is served with what is left of the time, its best group first
    if budget > left:
        budget -= left
        unserved = _unserved(lanes, lane, worse, budget)
        if unserved == 0:
            return 0, 0
        done = budget - (sums[lane, worse, SUM_WORK] - sums[lane, unserved, SUM_WORK])
        worse = unserved - 1
        chunks = _chunks_left(lanes, lane, worse, done)
        weight = chunks * weights[lanes.rows[lane, worse, CHUNKS]]
    return sums[lane, worse, SUM_WEIGHT] + weight, sums[lane, worse, SUM_CHUNKS] + chunks


@inlined
def cost_bound(lanes: Lanes, lane: int, arrive: int, rank: int, each: int, own: int, now: int, weights: Ints) -> Cost:
    """A lower bound of :func:`~.projection.insert_cost` if :func:`~.projection.is_plain` and not FRACTIONAL.

    The totals of the lane must be up to date (:func:`sum_up`). It is exact if no group is in transit: Eq. (5). After
    t0 - now of service, A1 (ranks up to the chunk's) runs first and A2 is postponed by p. The chunk's own completion
    takes the groups in transit into account. A2 is counted as if nothing else were in transit, group by group: then
    each chunk completes no later, so each chunk counted is postponed by at least p.
    """
    ahead, weight, postponed = 0, 0, 0
    if lanes.waiting[lane] > 0:
        ahead, worse = _ahead(lanes, lane, rank)
        weight, postponed = _pending(lanes, lane, arrive - now, ahead, worse, weights)
    if lanes.coming[lane] > 0:
        response = _own_completion(lanes, lane, arrive, rank, each, now, ahead) - arrive
        weight += _postponed_on_arrival(lanes, lane, arrive, rank, now, weights)
    else:
        response = max(0, ahead - (arrive - now)) + each
    value = np.float64(own) * response + np.float64(weight) * each
    return own * response + weight * each, value, postponed


@inlined
def _postponed_on_arrival(lanes: Lanes, lane: int, arrive: int, rank: int, now: int, weights: Ints) -> int:
    """Weight of chunks of worse rank that reach the lane by `arrive` and cannot be complete then."""
    weight = 0
    for k in range(lanes.coming[lane] - 1, -1, -1):
        comes, other = lanes.transit[lane, k, ARRIVE], lanes.transit[lane, k, RANK]
        if comes > arrive:
            break
        if other <= rank:
            continue
        left = lanes.transit[lane, k, COUNT]
        # in less than EACH none of its chunks can be complete
        if arrive - comes >= lanes.transit[lane, k, EACH]:
            busy = max(comes - now, _work_ahead(lanes, lane, other - 1))  # one of equal rank may have been sent later
            left -= min(left, max(0, arrive - now - busy) // lanes.transit[lane, k, EACH])
        weight += left * weights[lanes.transit[lane, k, CHUNKS]]
    return weight


@inlined
def late_harm(lanes: Lanes, lane: int, arrive: int, rank: int, each: int, now: int, weights: Ints) -> tuple[int, float]:
    """What :func:`cost_bound` leaves out: harm to groups of worse rank that reach the lane after t0; a lower bound.

    Such a group finds p more work ahead of it, less the time for which the lane would have had nothing of better rank
    to do between t0 and then. While it is on the lane there is no such time, so each of its chunks completes at least
    that much later.
    """
    exact, value = 0, 0.0
    for k in range(lanes.coming[lane] - 1, -1, -1):
        comes, other = lanes.transit[lane, k, ARRIVE], lanes.transit[lane, k, RANK]
        if comes <= arrive or other <= rank:
            continue
        delay = each - _idle(lanes, lane, k, arrive, now)
        if delay > 0:
            weight = lanes.transit[lane, k, COUNT] * weights[lanes.transit[lane, k, CHUNKS]]
            exact += weight * delay
            value += np.float64(weight) * delay
    return exact, value


@inlined
def _idle(lanes: Lanes, lane: int, k: int, since: int, now: int) -> int:
    """Time from `since` to the arrival of transit row `k` at which the lane has nothing to do of a better rank [µs]."""
    rank = lanes.transit[lane, k, RANK] - 1  # a group of equal rank may have been sent later
    done, idle = now + _work_ahead(lanes, lane, rank), 0
    for i in range(lanes.coming[lane] - 1, k - 1, -1):
        comes = lanes.transit[lane, i, ARRIVE]
        if i > k and lanes.transit[lane, i, RANK] > rank:
            continue
        idle += max(0, comes - max(done, since))
        done = max(done, comes) + lanes.transit[lane, i, COUNT] * lanes.transit[lane, i, EACH]
    return idle


@inlined
def _work(lanes: Lanes, lane: int, i: int) -> int:
    """Work of row `i` [µs]."""
    return lanes.rows[lane, i, LEFT] + (lanes.rows[lane, i, COUNT] - 1) * lanes.rows[lane, i, EACH]


@inlined
def _ahead(lanes: Lanes, lane: int, rank: int) -> tuple[int, int]:
    """Work of ranks up to `rank` at the server [µs], and the number of worse groups, not counting the one in service.

    The work is 0 only if the group in service is worse, too, as a group at the server has some work left.
    At least one group must be at the server, and the totals up to date.
    """
    best = lanes.summed[lane]
    if lanes.rows[lane, best, RANK] > rank:
        return 0, best
    worse = _worse(lanes, lane, rank)
    return _work(lanes, lane, best) + lanes.sums[lane, best, SUM_WORK] - lanes.sums[lane, worse, SUM_WORK], worse


@inlined
def _work_ahead(lanes: Lanes, lane: int, rank: int) -> int:
    """Work of ranks up to `rank` at the server [µs], if the totals are up to date."""
    return _ahead(lanes, lane, rank)[0] if lanes.waiting[lane] > 0 else 0


@inlined
def _own_completion(lanes: Lanes, lane: int, arrive: int, rank: int, each: int, now: int, ahead: int) -> int:
    """Completion of a chunk of this rank that arrives at `arrive`; only better ranks, present or coming, delay it.

    `ahead` is the work of those present.
    """
    at = now
    mine = False
    for k in range(lanes.coming[lane] - 1, -1, -1):
        comes = lanes.transit[lane, k, ARRIVE]
        if lanes.transit[lane, k, RANK] > rank:
            continue
        # arrivals come in order of time: the chunk itself takes its turn among them
        if not mine and comes > arrive:
            at, ahead, mine = arrive, max(0, ahead - (arrive - at)) + each, True
        # it is complete before this group comes, and the later ones come later still
        if mine and comes >= at + ahead:
            break
        ahead = max(0, ahead - (comes - at)) + lanes.transit[lane, k, COUNT] * lanes.transit[lane, k, EACH]
        at = comes
    if not mine:
        at, ahead = arrive, max(0, ahead - (arrive - at)) + each
    return at + ahead
