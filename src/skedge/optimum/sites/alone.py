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
whose last slot is t has been busy in at most t - first + 1 slots, and pays the latency cost of t: :meth:`Alone.least`.

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

_ROUNDS, _MOST = 8, 500_000
"""Most linear programs per job; none if jobs times pairs of sites exceed the limit."""
_PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_ROUNDED = 1e-11
"""Relative rounding error allowed for in a difference of two sums of floats."""
_TIMES, _SLOTS = 20.0, 60
"""Limits of a job's slots in the pool: a multiple of its cost alone, and a number of slots."""


class CostLine(NamedTuple):
    """A bound on a job's bandwidth cost: base - fall x slots."""

    base: float
    fall: float


@dataclass(frozen=True)
class Alone:
    """A job alone at all sites.

    Attributes
    ----------
    soonest
        Least number of slots in which it can be done.
    value
        Lower bound on its cost.
    """

    job: SiteJobTerms
    lines: tuple[CostLine, ...]
    soonest: int
    value: float

    @property
    def free(self) -> float:
        """Lower bound on its bandwidth cost, for any number of slots."""
        return self.lines[0].base

    def least(self, last: int) -> float:
        """Lower bound on its cost if slot `last` is its last; inf if that is impossible."""
        slots = last - self.job.first + 1
        return _least(self.job, self.lines, slots) if slots >= self.soonest else np.inf

    def later(self, last: int) -> float:
        """Lower bound on its cost if its last slot is after `last`; valid as the latency cost does not fall."""
        return self.job.latency(last + 1) + self.free

    def last(self, budget: float, limit: int) -> int:
        """A slot after which its cost is above `budget`; `limit` if there is none before."""
        last = self.job.first + self.soonest - 1
        # `later` does not fall, so the first slot above the budget ends the search
        while last < limit and self.later(last) <= budget:
            last += 1
        return last


def alone(terms: SiteTerms) -> list[Alone]:
    """Every job alone; without linear programs if there are very many sites and jobs."""
    rounds = _ROUNDS if len(terms.jobs) * len(terms.capacity) ** 2 <= _MOST else 0
    return [_alone(terms, job, rounds) for job in terms.jobs]


def line(terms: SiteTerms, job: SiteJobTerms, price: Floats) -> CostLine:
    """The bound that follows from prices by site, shape ``(sites,)``; prices are finite."""
    exchange = job.exchange_mb * terms.cost / job.rate
    paid = (job.chunk_mb * terms.way + price).min(axis=1)
    gains = job.cap * np.maximum(price[:, None] - exchange, 0.0)
    return CostLine(float(job.data @ paid), float(gains.sum(axis=0).max()))


def _alone(terms: SiteTerms, job: SiteJobTerms, rounds: int) -> Alone:
    """Compute prices at the best number of slots so far, until that number repeats."""
    lines, asked = [line(terms, job, price) for price in _simple_prices(terms, job)], set[int]()
    soonest = -(-job.chunks // job.most)
    every = range(soonest, max(soonest, job.chunks) + 1)
    while True:
        best, slots = min((_least(job, lines, slots), slots) for slots in _worth_it(job, lines, every))
        if slots in asked or len(asked) == rounds:
            return Alone(job, tuple(lines), soonest, best)
        asked.add(slots)
        price = _prices(terms, job, slots)
        if price is not None:
            lines.append(line(terms, job, price))


def _simple_prices(terms: SiteTerms, job: SiteJobTerms) -> list[Floats]:
    """Starting prices: first a chunk's cost with the PS at its best site, then parts of its mean cost.

    With the first no slot brings anything back, so it gives the bound for any number of slots.
    """
    trains = job.cap > 0
    exchange = job.exchange_mb * terms.cost / job.rate
    mean = (exchange * trains).sum(axis=1) / np.maximum(trains.sum(axis=1), 1)
    least = np.where(trains, exchange, np.inf).min(axis=1)
    some = trains.any(axis=1)
    return [np.where(some, price, _FAR) for price in (least, *(part * mean for part in _PARTS))]


_FAR = 1e12
"""Price of a chunk at a site where no chunk can be trained."""


def _worth_it(job: SiteJobTerms, lines: Sequence[CostLine], every: range) -> list[int]:
    """The numbers of slots at which the cost may be least, up to where latency alone costs more."""
    found, best = list[int](), np.inf
    for slots in every:
        # the latency only grows from here, and lines[0] bounds every bandwidth cost
        if job.latency(job.first + slots - 1) + lines[0].base > best:
            break
        best = min(best, _least(job, lines, slots))
        found.append(slots)
    return found


def _least(job: SiteJobTerms, lines: Sequence[CostLine], slots: int) -> float:
    return job.latency(job.first + slots - 1) + max(of.base - of.fall * slots for of in lines)


def _prices(terms: SiteTerms, job: SiteJobTerms, slots: int) -> Floats | None:
    """Prices from the dual of the linear program for a number of slots."""
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import linprog  # noqa: PLC0415

    count = len(terms.capacity)
    cap = job.cap
    on = np.argwhere(cap > 0)
    n, moves = len(on), np.arange(count**2)
    cost = np.concatenate(
        [(job.exchange_mb * terms.cost / job.rate)[tuple(on.T)], (job.chunk_mb * terms.way).ravel(), np.zeros(count)]
    )
    leave = _matrix(np.ones(count**2), moves // count, n + moves, (count, len(cost)))
    come = _matrix(np.ones(count**2), moves % count, n + moves, (count, len(cost)))
    trained = _matrix(np.ones(n), on[:, 0], np.arange(n), (count, len(cost)))
    slot = _matrix(np.ones(n), np.arange(n), np.arange(n), (n, len(cost))) - _matrix(
        cap[tuple(on.T)].astype(float), np.arange(n), n + count**2 + on[:, 1], (n, len(cost))
    )
    all_slots = _matrix(np.ones(count), np.zeros(count, int), n + count**2 + np.arange(count), (1, len(cost)))
    done = linprog(
        cost, A_ub=sparse.vstack([slot, all_slots]), b_ub=np.append(np.zeros(n), slots),
        A_eq=sparse.vstack([leave, come - trained]), b_eq=np.concatenate([job.data, np.zeros(count)]), method="highs",
    )  # fmt: skip
    return None if done.status != 0 else -np.asarray(done.eqlin.marginals[count:])


def _matrix(value: Floats, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sparse.csr_matrix:
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import

    return sparse.csr_matrix((value, (row, column)), shape=shape)


def pooled(terms: SiteTerms, jobs: Sequence[Alone]) -> float | None:
    """All jobs, their slots and the pooled resources of all sites; None if the table is too large."""
    ends = [of.last(_TIMES * of.value, of.job.first + of.soonest + _SLOTS) for of in jobs]
    # what a job costs at least if it ends after its slots here; worth is what ending earlier saves
    out = np.array([min(of.later(end), _TIMES * of.value) for of, end in zip(jobs, ends, strict=True)])
    worth = np.full((len(jobs), max(ends) + 1), -np.inf)
    for i, (of, end) in enumerate(zip(jobs, ends, strict=True)):
        for t in range(of.job.first + of.soonest - 1, end + 1):
            worth[i, t] = out[i] - of.least(t)
    most = np.array([of.job.most for of in jobs], float)
    chunks, rate = np.array([of.job.chunks for of in jobs], float), np.array([of.job.rate for of in jobs])
    part = np.zeros((len(jobs), 2))
    part[:, 0] = most / chunks
    sold = columns(
        JobSlots(
            needs=np.array([of.job.worker + of.job.ps * of.job.rate / of.job.most for of in jobs]),
            capacity=terms.capacity.sum(axis=0),
            first=np.array([of.job.first for of in jobs]),
            worth=worth,
            part=part,
            workers=np.repeat((chunks / rate)[:, None], 2, axis=1),
        )
    )
    return None if sold is None else float(out.sum() - sold[0] - _ROUNDED * (out.sum() + sold[0]))
