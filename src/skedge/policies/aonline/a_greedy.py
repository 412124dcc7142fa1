"""A_greedy, Alg. 2 of JSAC'22, compiled: give each chunk of a job to the worker with the least Q."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.ahead import cost_ahead, has_lookahead
from skedge.core.engine.lanes import ARRIVE, CHUNKS, COUNT, EACH, FIELDS, HEAD, JOB, LEFT, RANK, SEQ, Lanes
from skedge.core.engine.projection import (
    FRACTIONAL,
    SATURATED,
    TOO_LARGE,
    Cost,
    chunks_on,
    delayed,
    insert_cost,
)
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import Delays, upload_delay
from skedge.core.model.size import UNLIMITED
from skedge.core.model.ties import TOLERANCE
from skedge.platform.jit import compiled, inlined, lean

CLOUD = -1


class JobChunks(NamedTuple):
    """The job to dispatch.

    Attributes
    ----------
    job, seq, chunks, to_place
        Its number, its place in the order of dispatch, D_j, and the number of chunks to place: fewer than D_j if only
        those of a lost server are placed.
    now, release
        Time of the decision and r_j [µs].
    chunk_time
        p at zeta = 0 [µs].
    chunk_bytes
        u_j [bytes].
    cloud_delay
        Delta to the cloud [µs]; -1 if the cloud may not be used.
    cloud_chunk_time
        p in the cloud [µs], by `colocated` (zeta = 0 and 1).
    mode
        Reading of Q (:mod:`skedge.core.engine.projection`).
    """

    job: int
    seq: int
    chunks: int
    to_place: int
    now: int
    release: int
    chunk_time: int
    chunk_bytes: int
    cloud_delay: int
    cloud_chunk_time: tuple[int, int]
    mode: int


@inlined
def fill_group(group: Ints, c: JobChunks, arrive: int, count: int) -> None:
    """Write the job's group of `count` chunks on a lane into `group`; its rank is D p, the inverse of gamma.

    Parameters
    ----------
    group
        A row of a lane, shape ``(FIELDS,)``; overwritten.
    c
        The job.
    arrive
        t0, when the data reach the lane's server [µs].
    count
        Chunks of the job on this lane, 1 to D_j.
    """
    # p at zeta = 0, since a chunk on the edge rules out a job that is wholly in the cloud; the rounded p (J26)
    group[JOB], group[RANK], group[SEQ], group[COUNT] = c.job, c.chunks * c.chunk_time, c.seq, count
    group[EACH] = group[LEFT] = c.chunk_time
    group[CHUNKS], group[HEAD], group[ARRIVE] = c.chunks, 0, arrive


@inlined
def take_storage(free_bytes: Ints, server: int, n_bytes: int) -> None:
    """Store a chunk on `server`; unlimited storage stays unlimited."""
    if free_bytes[server] != UNLIMITED:
        free_bytes[server] -= n_bytes


@inlined
def cloud_cost(c: JobChunks, colocated: int, weights: Ints) -> tuple[int, float]:
    """Q in the cloud, Alg. 3 line 8: (Delta + p) / D with zeta = `colocated` (p / 2 in FRACTIONAL mode)."""
    # every chunk has a worker of its own there (J11), so nothing waits and nothing is postponed
    weight, p = weights[c.chunks], c.cloud_chunk_time[colocated]
    response = c.now - c.release + c.cloud_delay + p
    if c.mode == FRACTIONAL:
        return 0, weights[0] / c.chunks * (response - p / 2.0)
    value = np.float64(weight) * response
    return (SATURATED if value > TOO_LARGE else weight * response), value


@inlined
def with_delay(cost: Cost, c: JobChunks, arrive: int, weights: Ints) -> Cost:
    """Q of Eq. (5): the cost from t0 on and (t0 - r) / D.

    Parameters
    ----------
    cost
        The cost from t0 on (:func:`~skedge.core.engine.projection.insert_cost`).
    c
        The job.
    arrive
        t0 [µs].
    weights
        ``weights[D] = scale // D``.
    """
    exact, value, postponed = cost
    delay = arrive - c.release
    if c.mode == FRACTIONAL:
        return 0, value + weights[0] / c.chunks * delay, -1
    value += np.float64(weights[c.chunks]) * delay
    return (SATURATED if value > TOO_LARGE else exact + weights[c.chunks] * delay), value, postponed


@inlined
def edge_cost(lanes: Lanes, lane: int, group: Ints, c: JobChunks, weights: Ints, scratch: Ints) -> Cost:
    """Q of the last chunk of `group` on `lane`, Eq. (5) in the chosen reading; exact, float, chunks postponed.

    Parameters
    ----------
    lanes, lane
        The belief, advanced to the time of the decision, and the number of the worker.
    group
        The job's chunks there, the new one included (:func:`fill_group`).
    c
        The job.
    weights
        ``weights[D] = scale // D``.
    scratch
        Room for two queues, shape ``(2, groups, FIELDS)``.
    """
    cost = insert_cost(lanes, lane, group, c.now, weights, c.mode, scratch)
    return with_delay(cost, c, group[ARRIVE], weights)


@inlined
def is_better(exact: int, value: float, best_exact: int, best_value: float, fractional: bool) -> bool:
    """Whether a candidate beats the best so far; a tie is not better, so the order of candidates decides it.

    Parameters
    ----------
    exact, value
        Q of the candidate as an integer in µs / scale, SATURATED if it does not fit, and as a float.
    best_exact, best_value
        Those of the best so far.
    fractional
        True: Q is the fractional flow, which has no exact form.
    """
    # sums of integer weights are exact; floats decide only where there are none, or where both sums exceed 64 bits
    if fractional or (exact == SATURATED and best_exact == SATURATED):
        return bool(value < best_value - TOLERANCE * abs(best_value))
    return bool(exact < best_exact)


@inlined
def _precedes(exact: Ints, value: Floats, a: int, b: int, fractional: bool) -> bool:
    """Whether candidate `a` comes before `b`: less Q, and among equals the lower number (J13)."""
    if fractional or (exact[a] == SATURATED and exact[b] == SATURATED):
        if is_better(exact[a], value[a], exact[b], value[b], fractional):
            return True
        return a < b and not is_better(exact[b], value[b], exact[a], value[a], fractional)
    # without a branch, as the processor could not predict it
    return bool((exact[a] < exact[b]) | ((exact[a] == exact[b]) & (a < b)))


@inlined
def _sift_down(heap: Ints, size: int, i: int, exact: Ints, value: Floats, fractional: bool) -> None:
    """Restore the heap of candidates below place `i`."""
    item = heap[i]
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size:
            child += int(_precedes(exact, value, heap[child + 1], heap[child], fractional))
        if not _precedes(exact, value, heap[child], item, fractional):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = item


class CostHeap(NamedTuple):
    """Arrays that :func:`greedy` works on, by candidate; C_j of Alg. 2 is `exact` and `value`, ordered by `heap`.

    Attributes
    ----------
    exact, value
        Q of the next chunk.
    postponed
        Chunks that the next one postpones; -1 if :func:`count_postponed` has to determine them.
    arrive, placed
        t0 [µs], and the job's chunks on this lane so far.
    scratch
        Two queues for :func:`~skedge.core.engine.projection.insert_cost`.
    """

    exact: Ints
    value: Floats
    postponed: Ints
    arrive: Ints
    placed: Ints
    heap: Ints
    group: Ints
    scratch: Ints


def make_cost_heap(candidates: int, groups: int) -> CostHeap:
    """A heap for `candidates` lanes of at most `groups` groups."""
    value, group, scratch = np.zeros(candidates), np.zeros(FIELDS, np.int64), np.zeros((2, groups, FIELDS), np.int64)
    exact, postponed, arrive, placed, heap = (np.zeros(candidates, np.int64) for _ in range(5))
    return CostHeap(exact, value, postponed, arrive, placed, heap, group, scratch)


@lean
def greedy(
    lanes: Lanes,
    c: JobChunks,
    candidates: Ints,
    lane_server: Ints,
    delays: Delays,
    weights: Ints,
    free_bytes: Ints,
    costs: CostHeap,
    lane_of: Ints,
    alpha: Floats,
    postponed: Ints,
) -> bool:
    """A_greedy, Alg. 2, for one job: a worker, or the cloud, for each chunk.

    Line numbers are those of Alg. 2 with ERRATA J4-J6, J13, J19. C_j is a heap.

    Parameters
    ----------
    lanes
        The belief; the candidates have been advanced to ``c.now``.
    c
        The job.
    candidates
        Qualified lanes in order of (server, worker), which decides ties.
    lane_server
        Server of each lane, shape ``(lanes,)``.
    delays
        Upload delays Delta_js.
    weights
        ``weights[D] = scale // D``.
    free_bytes
        Free storage by server [bytes]; used up in place.
    costs
        Scratch for at least this number of candidates (:func:`make_cost_heap`).
    lane_of, alpha, postponed
        Filled, shape ``(c.to_place,)``: lane or CLOUD; alpha_jd [µs]; chunks that the chunk postpones, -1 if unknown.

    Returns
    -------
    False if some chunk finds no storage; the outputs and `free_bytes` then hold the chunks placed before.
    """
    n, fractional = len(candidates), c.mode == FRACTIONAL
    # lines 3-8: C_j, the cost of a first chunk on every qualified worker; then bottom-up to a heap, in O(n)
    _first_costs(lanes, c, candidates, lane_server, delays, weights, costs)
    for i in range(n // 2 - 1, -1, -1):
        _sift_down(costs.heap, n, i, costs.exact, costs.value, fractional)
    # zeta = 1 as long as all chunks may still be in the cloud; a re-dispatched job has some on the edge
    cloud_exact, cloud_value = cloud_cost(c, int(c.to_place == c.chunks), weights)
    d = 0
    while d < c.to_place:
        # line 11: the least Q; edge before cloud, then server, then worker (J13)
        best = costs.heap[0] if n > 0 else -1
        if c.cloud_delay >= 0 and (
            best < 0 or is_better(cloud_exact, cloud_value, costs.exact[best], costs.value[best], fractional)
        ):
            # lines 12-16: this and all remaining chunks go to the cloud (J6)
            for k in range(d, c.to_place):
                lane_of[k], alpha[k], postponed[k] = CLOUD, cloud_value / weights[0], 0
            return True
        if best < 0:
            return False
        lane = candidates[best]
        # room only shrinks while a job is dispatched, so a full server is out for the rest of it
        if free_bytes[lane_server[lane]] < c.chunk_bytes:
            n -= 1
            costs.heap[0] = costs.heap[n]
        else:
            lane_of[d], alpha[d], postponed[d] = lane, costs.value[best] / weights[0], costs.postponed[best]
            take_storage(free_bytes, lane_server[lane], c.chunk_bytes)
            if d == 0:
                # lines 17-20: a chunk is on the edge, so the cloud no longer co-locates (J4)
                cloud_exact, cloud_value = cloud_cost(c, 0, weights)
            # lines 21-22: the cost of the next chunk on this worker, behind the ones just placed (J5)
            costs.placed[best] += 1
            _set_cost(lanes, lane, c, weights, costs, best)
            d += 1
        _sift_down(costs.heap, n, 0, costs.exact, costs.value, fractional)
    return True


@inlined
def _first_costs(
    lanes: Lanes, c: JobChunks, candidates: Ints, lane_server: Ints, delays: Delays, weights: Ints, costs: CostHeap
) -> None:
    """Q of a first chunk on every candidate."""
    server, delay = -1, 0
    for k in range(len(candidates)):
        lane = candidates[k]
        # candidates are in order of servers, and the delay is the server's
        if lane_server[lane] != server:
            server = lane_server[lane]
            delay = upload_delay(delays, c.job, server)
        costs.heap[k], costs.placed[k], costs.arrive[k] = k, 0, c.now + delay
        _set_cost(lanes, lane, c, weights, costs, k)


@inlined
def _set_cost(lanes: Lanes, lane: int, c: JobChunks, weights: Ints, costs: CostHeap, k: int) -> None:
    """Q of the next chunk on candidate `k`: from what the lane will do, where that is known, else by projections."""
    arrive, count = costs.arrive[k], costs.placed[k] + 1
    if has_lookahead(lanes, c.mode):
        cost = cost_ahead(lanes, lane, arrive, c.chunks * c.chunk_time, c.chunk_time, count, weights[c.chunks], c.mode)
        cost = with_delay(cost, c, arrive, weights)
    else:
        fill_group(costs.group, c, arrive, count)
        cost = edge_cost(lanes, lane, costs.group, c, weights, costs.scratch)
    costs.exact[k], costs.value[k], costs.postponed[k] = cost


@compiled
def count_postponed(
    lanes: Lanes,
    c: JobChunks,
    lane_server: Ints,
    delays: Delays,
    weights: Ints,
    scratch: Ints,
    lane_of: Ints,
    postponed: Ints,
) -> None:
    """Fill in `postponed` where it is -1: |A_2|, the number of chunks that each chunk makes complete strictly later.

    Parameters
    ----------
    lanes, c, lane_server, delays, weights
        As in :func:`greedy`.
    scratch
        Room for two queues, shape ``(2, groups, FIELDS)``.
    lane_of, postponed
        Lane of each chunk, and the counts, shape ``(c.to_place,)``; `postponed` is filled in place.
    """
    group = np.zeros(FIELDS, np.int64)
    times = np.zeros((2, 0), np.int64)
    placed = np.zeros(len(lanes.clock), np.int64)
    for d in range(c.to_place):
        lane = lane_of[d]
        if lane == CLOUD:
            continue
        # the d-th chunk is behind the job's earlier ones on its lane (J5)
        placed[lane] += 1
        if postponed[d] >= 0:  # Eq. (5) has counted A_2 by itself
            continue
        fill_group(group, c, c.now + upload_delay(delays, c.job, lane_server[lane]), placed[lane])
        n_times = chunks_on(lanes, lane) + c.chunks
        if times.shape[1] < n_times:
            times = np.zeros((2, 2 * n_times), np.int64)
        postponed[d] = delayed(lanes, lane, group, c.now, weights, scratch, times)
