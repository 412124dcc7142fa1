"""DTA, Alg. 3 of Okita: data transfers after which every site has the data that its workers train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import whole_chunks
from skedge.platform.jit import compiled

from .sites import Sites


class Transfers(NamedTuple):
    """Chunks trained by site, and the moves of data that this takes.

    Attributes
    ----------
    trained
        d_i^r, chunks, shape ``(sites,)``.
    moves
        g_i^{rr'} for r != r': a row (from, to, chunks) each. What stays, g^{rr} = min(M, d), is not listed (D15).
    cost_per_mb
        Sum of q g; times delta_i it is the cost of line 12.
    """

    trained: Ints
    moves: Ints
    cost_per_mb: float

    def table(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The moves as rows, with sites named by `ids`."""
        moves = self.moves.tolist()
        return [{"from": ids[source], "to": ids[target], "chunks": chunks} for source, target, chunks in moves]


def transfer(sites: Sites, left: Ints, workers: Ints, rate: float, slots: int = 1) -> Transfers:
    """The workload of each site for `workers` in `slots` slots, and DTA's transfers for it.

    Parameters
    ----------
    sites
        Costs between the sites.
    left, workers
        M_i^r and y_i^r, shape ``(sites,)``.
    rate
        rho / E.
    slots
        1 to carry out a slot, l_i for a plan over its window (O13).
    """
    trained = np.empty(len(left), np.int64)
    workloads(left, workers, rate, slots, trained)
    return send(sites, left, trained)


def send(sites: Sites, left: Ints, workload: Ints) -> Transfers:
    """DTA: the transfers that give each site the chunks that it is to train.

    `workload` is d_i^r, shape ``(sites,)``, of a sum not above that of `left`.
    """
    moves = np.empty((2 * len(left), 3), np.int64)
    surplus = left - workload
    count, cost = gather(surplus, sites.donors, sites.cost, moves)
    return Transfers(workload, moves[:count].copy(), float(cost))


@compiled
def workloads(left: Ints, workers: Ints, rate: float, slots: int, trained: Ints) -> None:
    """Fill in d_i^r: own chunks first, then spare capacity by number of the site (D14, O11).

    Parameters
    ----------
    left, workers
        M_i^r and y_i^r, shape ``(sites,)``.
    rate, slots
        rho / E, and the slots in which they are trained.
    trained
        Filled with d_i^r, shape ``(sites,)``.
    """
    total, capacity = 0, 0
    for r in range(len(left)):
        # floor(rho y / E) of the site as a whole, not of each worker (O11)
        limit = slots * whole_chunks(rate, workers[r])
        trained[r] = min(left[r], limit)
        total, capacity = total + left[r], capacity + limit
    # work is conserved (D14): what own data cannot fill is trained from elsewhere, as far as there are workers
    missing = min(total, capacity) - trained.sum()
    for r in range(len(left)):
        if missing == 0:
            break
        extra = min(missing, slots * whole_chunks(rate, workers[r]) - trained[r])
        trained[r] += extra
        missing -= extra


@compiled
def gather(surplus: Ints, donors: Ints, cost: Floats, moves: Ints) -> tuple[int, float]:
    """DTA, Alg. 3 lines 2-11: each site that lacks chunks fetches them from the cheapest donors.

    Parameters
    ----------
    surplus
        H = M - d, shape ``(sites,)``; used up in place, as D16 (O9, O10) has it.
    donors
        By receiver, row: the sites by the cost of a MB from them, shape ``(sites, sites)``.
    cost
        q, per MB from row to column, shape ``(sites, sites)``.
    moves
        Filled, shape ``(2 sites, 3)``: a row (from, to, chunks) is one g^{rr'}.

    Returns
    -------
    Number of rows of `moves` that were filled, and sum of q g.
    """
    count, total = 0, 0.0
    for r in range(len(surplus)):
        if surplus[r] >= 0:
            continue
        for donor in donors[r]:
            if surplus[donor] <= 0:
                continue
            # Alg. 3 line 7: as many as the donor can spare and the receiver lacks
            chunks = min(surplus[donor], -surplus[r])
            surplus[donor] -= chunks
            surplus[r] += chunks
            total += cost[donor, r] * chunks
            # each step ends a donor or a receiver, so there are fewer than 2 R rows
            moves[count, 0], moves[count, 1], moves[count, 2] = donor, r, chunks
            count += 1
            if surplus[r] == 0:
                break
    return count, total
