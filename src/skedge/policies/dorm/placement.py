"""Placing workers and PSs, counted by pool of machines, on the machines: a vector packing.

Largest pieces first, each on the machine whose free resources have the direction of its demand (the dot-product rule of
Panigrahy et al., "Heuristics for Vector Bin Packing", 2011, divided by the length). A piece without room is left out.
"""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import NOISE
from skedge.platform.jit import compiled, inlined
from skedge.policies.common.round_robin import fits, place_worker

from .applications import Applications, Partition, PartitionProblem


def packing(of: PartitionProblem, pooled: Applications, pool: Ints, plan: Partition, size: Floats) -> Partition | None:
    """What `plan` changes, placed on the machines; everything else stays where it is.

    Parameters
    ----------
    pooled
        The applications with what they have now by pool.
    pool
        The pool of each machine, shape ``(machines,)``.
    plan
        A partition of the pools.
    size
        Of a worker and of a PS of each application, shape ``(2 * applications,)``: the largest come first.

    Returns
    -------
    None if that does not keep a bound, or leaves a survivor without worker.
    """
    apps, left = of.apps, of.capacity.copy()
    changed = ((plan.workers != pooled.workers) | (plan.servers != pooled.servers)).any(axis=1)
    rows = np.flatnonzero(changed)
    w, s = (np.where(changed[:, None], 0, now) for now in (apps.workers, apps.servers))
    # what does not change holds its room before anything is placed
    left -= w.T @ apps.worker + s.T @ apps.ps
    counts = np.concatenate([np.where(changed[:, None], n, 0) for n in (plan.workers, plan.servers)])
    seats = _seats(counts, np.tile(apps.survivors, 2))
    cells, order = np.zeros((len(counts), len(left)), np.int64), np.argsort(-size, kind="stable")
    # first a seat for each survivor: a large newcomer must not take the room of its last worker
    for some in (seats, counts - seats):
        pack(np.concatenate([apps.worker, apps.ps]), some, order, pool, left, of.price, cells)
    w, s = w + cells[: len(w)], s + cells[len(w) :]
    trim(apps.worker, apps.ps, apps.ratio, rows, left, w, s)
    # the packing may leave pieces out: their room goes to jobs that change anyway, and to newcomers
    rows = np.flatnonzero(changed | ~apps.survivors)
    rows = rows[np.argsort(-(apps.worker[rows] @ of.price), kind="stable")]
    loss = fill(*apps[:4], rows, left, w, s, of.share_of_piece, of.fair, of.bounds.loss)
    if loss > of.bounds.loss + NOISE or not w[apps.survivors].any(axis=1).all():
        return None
    use = (w.sum(axis=1) @ apps.worker + s.sum(axis=1) @ apps.ps) @ of.price
    return Partition(w, s, float(use), plan.bound)


def _seats(counts: Ints, survivors: np.ndarray) -> Ints:
    """One piece of each kind of survivors, in the first pool where it has any: they must not lose their last."""
    seats, first = np.zeros_like(counts), (counts > 0).argmax(axis=1)
    at = np.arange(len(counts))
    seats[at, first] = survivors & (counts[at, first] > 0)
    return seats


@compiled
def pack(pieces: Floats, counts: Ints, order: Ints, pool: Ints, left: Floats, weight: Floats, cells: Ints) -> None:
    """Place `counts` pieces of every kind in each pool, as far as there is room.

    Parameters
    ----------
    pieces
        Demand of a piece, shape ``(kinds, resources)``.
    counts
        Shape ``(kinds, pools)``.
    order
        The kinds, first to last.
    pool
        The pool of each machine, shape ``(machines,)``.
    left
        What is left, shape ``(machines, resources)``; used up in place.
    weight
        Resources are compared in multiples of 1 / weight, shape ``(resources,)``.
    cells
        Pieces by kind and machine, counted up in place.
    """
    for kind in order:
        for p in range(counts.shape[1]):
            for _ in range(counts[kind, p]):
                m = _machine(pieces[kind], p, pool, left, weight)
                if m < 0:
                    break
                left[m] -= pieces[kind]
                cells[kind, m] += 1


@inlined
def _machine(need: Floats, p: int, pool: Ints, left: Floats, weight: Floats) -> int:
    """The machine of pool `p` with room whose free resources are at the smallest angle to `need`; -1 if none."""
    best, largest = -1, -1.0
    for m in range(len(left)):
        if pool[m] == p and fits(need, left[m]):
            along, length = 0.0, 0.0
            for r in range(len(need)):
                free = weight[r] * left[m, r]
                # both in parts of the cluster's total, or the resource with the largest unit would decide the angle
                along += weight[r] * need[r] * free
                length += free * free
            cosine = along / np.sqrt(length)
            if cosine > largest:
                best, largest = m, cosine
    return best


@compiled
def trim(worker: Floats, ps: Floats, ratio: Floats, rows: Ints, left: Floats, w: Ints, s: Ints) -> None:
    """Take workers without a PS, and PSs beyond max(1, ceil(w / gamma)), from the jobs `rows`."""
    for i in rows:
        workers, servers = w[i].sum(), s[i].sum()
        # PSs first decide how many workers can stay; only then are PSs too many
        while workers > 0 and servers < servers_for(workers, ratio[i]):
            m = np.argmax(w[i])
            w[i, m] -= 1
            left[m] += worker[i]
            workers -= 1
        while servers > (servers_for(workers, ratio[i]) if workers > 0 else 0):
            m = np.argmax(s[i])
            s[i, m] -= 1
            left[m] += ps[i]
            servers -= 1


@compiled
def fill(
    worker: Floats, ps: Floats, ratio: Floats, most: Ints, rows: Ints, left: Floats, w: Ints, s: Ints,
    shares: Floats, fair: Floats, bound: float,
) -> float:  # fmt: skip
    """Give the jobs `rows`, one after another, more workers and their PSs while there is room.

    Parameters
    ----------
    shares
        Share of its dominant resource that a worker and a PS of each job are, shape ``(2, jobs)``.
    fair, bound
        A worker that takes the sum of |s_i - shat_i| above `bound` is not given, unless the sum falls.

    Returns
    -------
    The sum.
    """
    share = w.sum(axis=1) * shares[0] + s.sum(axis=1) * shares[1]
    loss = np.abs(share - fair).sum()
    for i in rows:
        workers, servers = w[i].sum(), s[i].sum()
        while workers < most[i]:
            more = servers_for(workers + 1, ratio[i]) - servers
            then = share[i] + shares[0, i] + more * shares[1, i]
            after = loss - abs(share[i] - fair[i]) + abs(then - fair[i])
            if after > max(bound, loss):
                break
            _, given = place_worker(worker[i], ps[i], more, left, w[i], s[i], 0)
            if not given:
                break
            workers, servers, share[i], loss = workers + 1, servers + more, then, after
    return loss
