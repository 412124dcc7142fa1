"""DTA, Alg. 3 of Okita: data transfers after which every site has the data that its workers train."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import whole_chunks
from skedge.platform.jit import compiled

from .sites import Sites


class Transfers(NamedTuple):
    """What is trained where, and what has to move for it.

    Attributes
    ----------
    trained
        d_i^r, shape ``(sites,)``.
    moves
        (from, to, chunks), from another site, a row each.
    cost_per_mb
        Sum of q g; times the size of a chunk it is the cost.
    """

    trained: Ints
    moves: Ints
    cost_per_mb: float


def transfer(sites: Sites, left: Ints, workers: Ints, rate: float, slots: int = 1) -> Transfers:
    """What `workers` by site train of the chunks `left` by site in `slots` slots, and DTA's transfers.

    Parameters
    ----------
    left, workers
        M_i^r and y_i^r, shape ``(sites,)``.
    rate
        rho / E.
    slots
        1 to carry out a slot, l_i for a plan over its window (O13).
    """
    trained = np.empty(len(left), np.int64)
    share(left, workers, rate, slots, trained)
    return send(sites, left, trained)


def send(sites: Sites, left: Ints, wanted: Ints) -> Transfers:
    """DTA: the transfers that give each site the chunks that it is to train.

    `wanted` is d_i^r, shape ``(sites,)``, of a sum not above that of `left`.
    """
    moves = np.empty((2 * len(left), 3), np.int64)
    surplus = left - wanted
    count, cost = gather(surplus, sites.donors, sites.cost, moves)
    return Transfers(wanted, moves[:count].copy(), float(cost))


@compiled
def share(left: Ints, workers: Ints, rate: float, slots: int, trained: Ints) -> None:
    """Fill in d_i^r: own chunks first, then spare capacity by number of the site (D14 in the package's header)."""
    total, capacity = 0, 0
    for r in range(len(left)):
        most = slots * whole_chunks(rate, workers[r])
        trained[r] = min(left[r], most)
        total, capacity = total + left[r], capacity + most
    # work is conserved (D14): what own data cannot fill is trained from elsewhere, as far as there are workers
    missing = min(total, capacity) - trained.sum()
    for r in range(len(left)):
        if missing == 0:
            break
        more = min(missing, slots * whole_chunks(rate, workers[r]) - trained[r])
        trained[r] += more
        missing -= more


@compiled
def gather(surplus: Ints, donors: Ints, cost: Floats, moves: Ints) -> tuple[int, float]:
    """DTA, Alg. 3 lines 2-11: each site that lacks chunks fetches them from the cheapest donors.

    `surplus` is H = M - d, used up in place; `donors[r]` lists the sites by the cost of a MB from them to r; a row of
    `moves` (from, to, chunks) is one g^{rr'}.

    Returns
    -------
    How many rows of `moves` were filled (at most one for each donor and each receiver), and sum of q g.
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
            moves[count, 0], moves[count, 1], moves[count, 2] = donor, r, chunks
            count += 1
            if surplus[r] == 0:
                break
    return count, total
