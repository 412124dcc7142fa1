"""A_greedy, Alg. 2 of JSAC'22, compiled: give each chunk of a job to the worker with the least Q."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.jit import compiled
from ..core.lanes import ARRIVE, CHUNKS, COUNT, EACH, FIELDS, JOB, LEFT, RANK, SEQ, Lanes
from ..core.model import Floats, Ints
from ..core.network import Delays, upload_delay
from ..core.projection import FRACTIONAL, SATURATED, TOO_LARGE, chunks_on, delayed, insert_cost

CLOUD = -1
TOLERANCE = 1e-9
"""In floats a candidate is better only if it is better by more than this, relatively."""


class Chunks(NamedTuple):
    """The job to dispatch.

    Attributes
    ----------
    job, seq, chunks
        Its number, its rank of dispatch, D_j.
    now, release
        Time of the decision and r_j [µs].
    each
        p at zeta = 0 [µs].
    chunk_mb
        u_j [MB].
    cloud_delay
        Delta to the cloud [µs]; -1 where the cloud may not be used.
    cloud_each
        p in the cloud, zeta = 0 and 1 [µs].
    scale
        Weights are ``scale // D``.
    mode
        Reading of Q (:mod:`skedge.core.projection`).
    """

    job: int
    seq: int
    chunks: int
    now: int
    release: int
    each: int
    chunk_mb: float
    cloud_delay: int
    cloud_each: tuple[int, int]
    scale: int
    mode: int


@compiled
def new_group(c: Chunks, arrive: int) -> Ints:
    """The job's group on a lane, with one chunk; its rank is D p, the inverse of gamma."""
    group = np.zeros(FIELDS, np.int64)
    group[JOB], group[RANK], group[SEQ], group[COUNT] = c.job, c.chunks * c.each, c.seq, 1
    group[EACH] = group[LEFT] = c.each
    group[CHUNKS], group[ARRIVE] = c.chunks, arrive
    return group


@compiled
def cloud_cost(c: Chunks, zeta: int) -> tuple[int, float]:
    """Q in the cloud, Alg. 3 line 8: (Delta + p) / D at the given zeta (p / 2 in FRACTIONAL mode)."""
    own, p = c.scale // c.chunks, c.cloud_each[zeta]
    response = c.now - c.release + c.cloud_delay + p
    if c.mode == FRACTIONAL:
        return 0, c.scale / c.chunks * (response - p / 2.0)
    value = np.float64(own) * response
    return (SATURATED if value > TOO_LARGE else own * response), value


@compiled
def edge_cost(lanes: Lanes, lane: int, group: Ints, c: Chunks, scratch: Lanes) -> tuple[int, float, int]:
    """Q of the last chunk of `group` on `lane`, Eq. (5) in the chosen reading; exact, float, chunks postponed."""
    exact, value, postponed = insert_cost(lanes, lane, group, c.now, c.scale, c.mode, scratch)
    delay = group[ARRIVE] - c.release
    if c.mode == FRACTIONAL:
        return 0, value + c.scale / c.chunks * delay, -1
    own = c.scale // c.chunks
    value += np.float64(own) * delay
    return (SATURATED if value > TOO_LARGE else exact + own * delay), value, postponed


@compiled
def is_better(exact: int, value: float, best_exact: int, best_value: float, fractional: bool) -> bool:
    """Whether a candidate beats the best so far; a tie is not better, so the order of candidates decides it."""
    if fractional or (exact == SATURATED and best_exact == SATURATED):
        return bool(value < best_value - TOLERANCE * abs(best_value))
    return bool(exact < best_exact)


@compiled
def greedy(
    lanes: Lanes,
    c: Chunks,
    candidates: Ints,
    lane_server: Ints,
    delays: Delays,
    free_storage: Floats,
    scratch: Lanes,
    lane_of: Ints,
    alpha: Floats,
    postponed: Ints,
) -> bool:
    """Alg. 2 for one job; fills `lane_of`, `alpha` [µs] and `postponed`. False if a chunk finds no place.

    `candidates` are the qualified lanes in order of (server, worker), `free_storage` [MB] by server is used up in
    place. Line numbers are those of Alg. 2 with ERRATA J4-J6, J13, J19.
    """
    n = len(candidates)
    exact, value = np.zeros(n, np.int64), np.zeros(n)
    harmed, group = np.zeros(n, np.int64), np.zeros((n, FIELDS), np.int64)
    fractional = c.mode == FRACTIONAL
    # lines 3-8: C_j, the cost of a first chunk on every qualified worker
    for k in range(n):
        lane = candidates[k]
        group[k] = new_group(c, c.now + upload_delay(delays, c.job, lane_server[lane]))
        exact[k], value[k], harmed[k] = edge_cost(lanes, lane, group[k], c, scratch)
    cloud_exact, cloud_value = (0, 0.0)
    if c.cloud_delay >= 0:
        cloud_exact, cloud_value = cloud_cost(c, 1)
    own = c.scale // c.chunks
    for d in range(c.chunks):
        # line 11: the least Q; edge before cloud, then server, then worker (J13)
        best = -1
        for k in range(n):
            if free_storage[lane_server[candidates[k]]] < c.chunk_mb:
                continue
            if best < 0 or is_better(exact[k], value[k], exact[best], value[best], fractional):
                best = k
        if c.cloud_delay >= 0 and (
            best < 0 or is_better(cloud_exact, cloud_value, exact[best], value[best], fractional)
        ):
            # lines 12-16: this and all remaining chunks go to the cloud (J6)
            lane_of[d:], alpha[d:], postponed[d:] = CLOUD, cloud_value / c.scale, 0
            return True
        if best < 0:
            return False
        lane = candidates[best]
        lane_of[d], alpha[d] = lane, value[best] / c.scale
        free_storage[lane_server[lane]] -= c.chunk_mb
        if harmed[best] < 0:
            times = np.zeros((2, chunks_on(lanes, lane) + c.chunks), np.int64)
            postponed[d] = delayed(lanes, lane, group[best], c.now, scratch, times)
        else:
            postponed[d] = harmed[best]
        if d == 0 and c.cloud_delay >= 0:
            # lines 17-20: a chunk is on the edge, so the cloud no longer co-locates (J4)
            cloud_exact, cloud_value = cloud_cost(c, 0)
        # lines 21-22: the cost of the next chunk on this worker, behind the one just placed (J5)
        group[best, COUNT] += 1
        if harmed[best] >= 0 and exact[best] != SATURATED:
            exact[best] += own * c.each
            value[best] += np.float64(own) * c.each
        else:
            exact[best], value[best], harmed[best] = edge_cost(lanes, lane, group[best], c, scratch)
    return True
