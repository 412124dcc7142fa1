"""Lower bounds on the total cost at sites that hold at any size: every job alone, and all jobs in one pool.

**A job alone.** Let it be busy in at most l slots. Per MB data pay at least the cheapest way, a chunk that is trained
at u while the PS is at p pays at least e_{up} = pi q^{up} E / rho for the exchange, as y workers train no more than
rho y / E chunks, and no more than cap_{up} chunks are trained there in a slot. So its bandwidth cost is at least

    min  sum X_{ru} delta way_{ru} + sum n_{up} e_{up}
    with sum_u X_{ru} = D^r, sum_r X_{ru} = sum_p n_{up}, n_{up} <= cap_{up} tau_p, sum_p tau_p <= l; X, n, tau >= 0.

Let v_u be any price of a chunk trained at u. Then a chunk of r pays at least min_u (delta way_{ru} + v_u), and the l
slots bring back at most max_p sum_u cap_{up} max(0, v_u - e_{up}) each:

    bandwidth cost >= sum_r D^r min_u (delta way_{ru} + v_u) - l max_p sum_u cap_{up} max(0, v_u - e_{up}),

a :class:`CostLine` in l, for *every* v. A linear program finds good v; what is reported is this right-hand side. A job
whose last slot is t has been busy in at most t - first + 1 slots, and pays the latency cost of t:
:meth:`JobBound.bound_if_last`.

**In one pool.** The resources of all sites together are sold by :mod:`skedge.optimum.utility.columns_lp`: job i is
worth B_i - least(t), for any B_i that is at most what it costs to end later than in any slot of the table. A job that
is left out costs B_i, so that the total cost is at least sum B_i less the most total worth. Of what it needs, a worker
counts with its part of the PS: a job that trains k chunks in a slot has k E / rho workers at least, and k / cap of a
PS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.optimum.utility.columns_lp import columns
from skedge.optimum.utility.job_slots import JobSlots

from .terms import SiteJobTerms, SiteTerms

if TYPE_CHECKING:
    from scipy import sparse

_MAX_ROUNDS, _MAX_SIZE = 8, 500_000
"""Most linear programs per job; none if jobs times pairs of sites exceed the limit."""
_MEAN_FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_ROUNDING = 1e-11
"""Relative rounding error allowed for in a difference of two sums of floats."""
_COST_MULTIPLE, _MAX_EXTRA_SLOTS = 20.0, 60
"""Limits of a job's slots in the pool: a multiple of its cost alone, and a number of slots."""


class CostLine(NamedTuple):
    """A bound on a job's bandwidth cost: base - fall x slots."""

    base: float
    fall: float


@dataclass(frozen=True)
class JobBound:
    """A job alone at all sites.

    Attributes
    ----------
    min_slots
        Least number of slots in which it can be done.
    value
        Lower bound on its cost.
    """

    job: SiteJobTerms
    lines: tuple[CostLine, ...]
    min_slots: int
    value: float

    @property
    def min_bandwidth_cost(self) -> float:
        """Lower bound on its bandwidth cost, for any number of slots."""
        return self.lines[0].base

    def bound_if_last(self, last: int) -> float:
        """Lower bound on its cost if slot `last` is its last; inf if that is impossible."""
        slots = last - self.job.first + 1
        return _bound_at(self.job, self.lines, slots) if slots >= self.min_slots else np.inf

    def bound_if_after(self, last: int) -> float:
        """Lower bound on its cost if its last slot is after `last`; valid as the latency cost does not fall."""
        return self.job.latency(last + 1) + self.min_bandwidth_cost

    def last(self, budget: float, limit: int) -> int:
        """A slot after which its cost is above `budget`; `limit` if there is none before."""
        last = self.job.first + self.min_slots - 1
        # `later` does not fall, so the first slot above the budget ends the search
        while last < limit and self.bound_if_after(last) <= budget:
            last += 1
        return last

    def table_end(self, multiple: float, extra: int) -> int:
        """Last slot of a job's table: within a multiple of its bound, and `extra` slots more than it needs."""
        return self.last(multiple * self.value, self.job.first + self.min_slots + extra)


def alone(terms: SiteTerms) -> list[JobBound]:
    """Every job alone; without linear programs if there are very many sites and jobs."""
    rounds = _MAX_ROUNDS if len(terms.jobs) * len(terms.capacity) ** 2 <= _MAX_SIZE else 0
    return [_job_bound(terms, job, rounds) for job in terms.jobs]


def cost_line(terms: SiteTerms, job: SiteJobTerms, price: Floats) -> CostLine:
    """The bound that follows from prices by site, shape ``(sites,)``; prices are finite."""
    exchange = job.exchange_mb * terms.cost / job.rate
    min_cost = (job.chunk_mb * terms.path_cost + price).min(axis=1)
    # a slot with the PS at p brings back at most what it trains, each chunk at its price less the exchange
    gains = job.cap * np.maximum(price[:, None] - exchange, 0.0)
    return CostLine(float(job.data @ min_cost), float(gains.sum(axis=0).max()))


def _job_bound(terms: SiteTerms, job: SiteJobTerms, rounds: int) -> JobBound:
    """Compute prices at the best number of slots so far, until that number repeats."""
    lines, slots_tried = [cost_line(terms, job, price) for price in _simple_prices(terms, job)], set[int]()
    min_slots = -(-job.chunks // job.max_chunks)
    slot_range = range(min_slots, max(min_slots, job.chunks) + 1)
    while True:
        best, slots = min((_bound_at(job, lines, slots), slots) for slots in _candidate_slots(job, lines, slot_range))
        # a line is best at the number of slots that it was made for: where that repeats, no new one raises the bound
        if slots in slots_tried or len(slots_tried) == rounds:
            return JobBound(job, tuple(lines), min_slots, best)
        slots_tried.add(slots)
        price = _prices(terms, job, slots)
        if price is not None:
            lines.append(cost_line(terms, job, price))


def _simple_prices(terms: SiteTerms, job: SiteJobTerms) -> list[Floats]:
    """Starting prices: first a chunk's cost with the PS at its best site, then parts of its mean cost.

    With the first no slot brings anything back, so it gives the bound for any number of slots.
    """
    can_train = job.cap > 0
    exchange = job.exchange_mb * terms.cost / job.rate
    mean = (exchange * can_train).sum(axis=1) / np.maximum(can_train.sum(axis=1), 1)
    cheapest = np.where(can_train, exchange, np.inf).min(axis=1)
    # finite, as infinite prices times 0 chunks would be nan
    trainable = can_train.any(axis=1)
    return [
        np.where(trainable, price, _CLOSED_PRICE) for price in (cheapest, *(part * mean for part in _MEAN_FRACTIONS))
    ]


_CLOSED_PRICE = 1e12
"""Price of a chunk at a site where no chunk can be trained."""


def _candidate_slots(job: SiteJobTerms, lines: Sequence[CostLine], slot_range: range) -> list[int]:
    """The numbers of slots at which the cost may be least, up to where latency alone costs more."""
    candidates, best = list[int](), np.inf
    for slots in slot_range:
        # the latency only grows from here, and lines[0] bounds every bandwidth cost
        if job.latency(job.first + slots - 1) + lines[0].base > best:
            break
        best = min(best, _bound_at(job, lines, slots))
        candidates.append(slots)
    return candidates


def _bound_at(job: SiteJobTerms, lines: Sequence[CostLine], slots: int) -> float:
    return job.latency(job.first + slots - 1) + max(cost_line.base - cost_line.fall * slots for cost_line in lines)


def _prices(terms: SiteTerms, job: SiteJobTerms, slots: int) -> Floats | None:
    """Prices from the dual of the linear program for a number of slots."""
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import linprog  # noqa: PLC0415

    count, cap = len(terms.capacity), job.cap
    site_pairs = np.argwhere(cap > 0)
    n, moves = len(site_pairs), np.arange(count**2)
    # variables: n by pair (u, p) of sites, X by pair (r, u), tau by p
    exchange = (job.exchange_mb * terms.cost / job.rate)[tuple(site_pairs.T)]
    cost = np.concatenate([exchange, (job.chunk_mb * terms.path_cost).ravel(), np.zeros(count)])
    outgoing = _matrix(np.ones(count**2), moves // count, n + moves, (count, len(cost)))
    incoming = _matrix(np.ones(count**2), moves % count, n + moves, (count, len(cost)))
    trained_here = _matrix(np.ones(n), site_pairs[:, 0], np.arange(n), (count, len(cost)))
    slot = _matrix(np.ones(n), np.arange(n), np.arange(n), (n, len(cost))) - _matrix(
        cap[tuple(site_pairs.T)].astype(float), np.arange(n), n + count**2 + site_pairs[:, 1], (n, len(cost))
    )
    all_slots = _matrix(np.ones(count), np.zeros(count, int), n + count**2 + np.arange(count), (1, len(cost)))
    solution = linprog(
        cost, A_ub=sparse.vstack([slot, all_slots]), b_ub=np.append(np.zeros(n), slots),
        A_eq=sparse.vstack([outgoing, incoming - trained_here]), b_eq=np.concatenate([job.data, np.zeros(count)]),
        method="highs",
    )  # fmt: skip
    # of the rows of chunks trained at u; any prices are valid, so a failure only costs a line
    return None if solution.status != 0 else -np.asarray(solution.eqlin.marginals[count:])


def _matrix(value: Floats, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sparse.csr_matrix:
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import

    return sparse.csr_matrix((value, (row, column)), shape=shape)


def pooled_bound(terms: SiteTerms, jobs: Sequence[JobBound]) -> float | None:
    """All jobs, their slots and the pooled resources of all sites; None if the table is too large."""
    ends = [b.table_end(_COST_MULTIPLE, _MAX_EXTRA_SLOTS) for b in jobs]
    # what a job costs at least if it ends after its table; the saving is what ending earlier is worth
    late_cost = np.array(
        [min(b.bound_if_after(end), _COST_MULTIPLE * b.value) for b, end in zip(jobs, ends, strict=True)]
    )
    saving = np.full((len(jobs), max(ends) + 1), -np.inf)
    for i, (b, end) in enumerate(zip(jobs, ends, strict=True)):
        for t in range(b.job.first + b.min_slots - 1, end + 1):
            saving[i, t] = late_cost[i] - b.bound_if_last(t)
    max_chunks = np.array([b.job.max_chunks for b in jobs], float)
    chunks, rate = np.array([b.job.chunks for b in jobs], float), np.array([b.job.rate for b in jobs])
    # one step a slot, with the most chunks that any placement trains; D E / rho worker-slots train the whole job
    fractions = np.zeros((len(jobs), 2))
    fractions[:, 0] = max_chunks / chunks
    worth = columns(
        JobSlots(
            needs=np.array([b.job.worker + b.job.ps * b.job.rate / b.job.max_chunks for b in jobs]),
            capacity=terms.capacity.sum(axis=0),
            first_slot=np.array([b.job.first for b in jobs]),
            utility=saving,
            fraction=fractions,
            workers=np.repeat((chunks / rate)[:, None], 2, axis=1),
        )
    )
    if worth is None:
        return None
    # both sums may be far larger than their difference
    return float(late_cost.sum() - worth[0] - _ROUNDING * (late_cost.sum() + worth[0]))
