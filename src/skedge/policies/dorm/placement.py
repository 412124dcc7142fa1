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


def packing(
    problem: PartitionProblem, pooled: Applications, pool: Ints, plan: Partition, size: Floats
) -> Partition | None:
    """Place the changes of `plan` on the machines; everything else stays where it is.

    Parameters
    ----------
    problem
        The problem, machine by machine.
    pooled
        The applications with their workers and PSs now by pool.
    pool
        The pool of each machine, shape ``(machines,)``.
    plan
        A partition of the pools.
    size
        Size of a worker and of a PS of each application, shape ``(2 * applications,)``: the largest come first.

    Returns
    -------
    None if the placement breaks a bound, or leaves a survivor without worker.
    """
    apps, left = problem.apps, problem.capacity.copy()
    changed = ((plan.workers != pooled.workers) | (plan.servers != pooled.servers)).any(axis=1)
    rows = np.flatnonzero(changed)
    w, s = (np.where(changed[:, None], 0, now) for now in (apps.workers, apps.servers))
    # what does not change holds its room before anything is placed
    left -= w.T @ apps.worker + s.T @ apps.ps
    counts = np.concatenate([np.where(changed[:, None], n, 0) for n in (plan.workers, plan.servers)])
    seats = _seats(counts, np.tile(apps.survivors, 2))
    cells, order = np.zeros((len(counts), len(left)), np.int64), np.argsort(-size, kind="stable")
    # first a seat for each survivor: a large newcomer must not take the room of its last worker
    for piece_counts in (seats, counts - seats):
        pack(np.concatenate([apps.worker, apps.ps]), piece_counts, order, pool, left, problem.price, cells)
    # rows of `cells`: workers of every application, then its PSs
    w, s = w + cells[: len(w)], s + cells[len(w) :]
    trim(apps.worker, apps.ps, apps.ratio, rows, left, w, s)
    # the packing may leave pieces out: their room goes to jobs that change anyway, and to newcomers
    rows = np.flatnonzero(changed | ~apps.survivors)
    rows = rows[np.argsort(-(apps.worker[rows] @ problem.price), kind="stable")]
    loss = fill(*apps[:4], rows, left, w, s, problem.share_of_piece, problem.fair, problem.bounds.loss)
    if loss > problem.bounds.loss + NOISE or not w[apps.survivors].any(axis=1).all():
        return None
    use = (w.sum(axis=1) @ apps.worker + s.sum(axis=1) @ apps.ps) @ problem.price
    return Partition(w, s, float(use), plan.bound)


def _seats(counts: Ints, survivors: np.ndarray) -> Ints:
    """One piece of each kind of survivors, in the first pool where the plan has any: a survivor keeps a worker."""
    seats, first = np.zeros_like(counts), (counts > 0).argmax(axis=1)
    rows = np.arange(len(counts))
    seats[rows, first] = survivors & (counts[rows, first] > 0)
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
        Free capacity, shape ``(machines, resources)``; used up in place.
    weight
        Resources are compared in multiples of 1 / weight, shape ``(resources,)``.
    cells
        Pieces by kind and machine, counted up in place.
    """
    for kind in order:
        for p in range(counts.shape[1]):
            for _ in range(counts[kind, p]):
                m = _best_machine(pieces[kind], p, pool, left, weight)
                if m < 0:
                    break
                left[m] -= pieces[kind]
                cells[kind, m] += 1


@inlined
def _best_machine(need: Floats, p: int, pool: Ints, left: Floats, weight: Floats) -> int:
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
    """Take workers without a PS, and PSs beyond max(1, ceil(w / gamma)) (D2), from the jobs `rows`.

    Parameters
    ----------
    worker, ps, ratio
        alpha, beta and gamma by job.
    rows
        The jobs that may be changed.
    left
        Free capacity, shape ``(machines, resources)``; added to in place.
    w, s
        Workers and PSs, shape ``(jobs, machines)``; changed in place.
    """
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
    worker: Floats, ps: Floats, ratio: Floats, max_workers: Ints, rows: Ints, left: Floats, w: Ints, s: Ints,
    shares: Floats, fair: Floats, bound: float,
) -> float:  # fmt: skip
    """Give the jobs `rows`, one after another, more workers and their PSs while there is room.

    Parameters
    ----------
    worker, ps, ratio, max_workers
        alpha, beta, gamma and n_i by job.
    rows
        The jobs that may get more, first to last.
    left
        Free capacity, shape ``(machines, resources)``; used up in place.
    w, s
        Workers and PSs, shape ``(jobs, machines)``; changed in place.
    shares
        Share of its dominant resource that a worker and a PS of each job are, shape ``(2, jobs)``.
    fair, bound
        shat_i, and the bound of sum_i |s_i - shat_i|: a worker that raises the sum above it is not given.

    Returns
    -------
    The sum.
    """
    share = w.sum(axis=1) * shares[0] + s.sum(axis=1) * shares[1]
    loss = np.abs(share - fair).sum()
    for i in rows:
        workers, servers = w[i].sum(), s[i].sum()
        while workers < max_workers[i]:
            extra_ps = servers_for(workers + 1, ratio[i]) - servers
            share_after = share[i] + shares[0, i] + extra_ps * shares[1, i]
            loss_after = loss - abs(share[i] - fair[i]) + abs(share_after - fair[i])
            # the packing may have left the sum above the bound: then a worker must not raise it
            if loss_after > max(bound, loss):
                break
            _, placed = place_worker(worker[i], ps[i], extra_ps, left, w[i], s[i], 0)
            if not placed:
                break
            workers, servers, share[i], loss = workers + 1, servers + extra_ps, share_after, loss_after
    return loss
