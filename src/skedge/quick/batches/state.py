"""The arrays that the compiled loop over the jobs of a batch works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.ledger import longer
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import Delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import whole_slots
from skedge.platform.jit import lean
from skedge.policies.she.deployment import PlanComparison
from skedge.policies.she.policy import Batch
from skedge.policies.she.prices import LoadProfile

SINCE, UPLOADED, CHUNKS, TYPES, KIND, PS_KIND, FIRST, COUNT, PS, PS_SERVER, PLANNED, END = range(12)
"""Columns of ``BatchBooks.jobs``.

- Time from which uploads count, and their start [µs]; D_j; number of its pair of types; columns of its types in the
  books of workers and of PSs.
- Once it is deployed: its rows of ``BatchBooks.runs``, the first and their number; its PS slot (-1: in the cloud) and
  that one's server; the end of its plan and its completion [µs].
"""

DECISIONS, PLANS, PRICES, RUNS = range(4)
"""Numbers of ``BatchBooks.counters``: rows of the four tables."""

COPIED, ONE_SERVER, SPREAD, TOO_DEAR, NOT_UPLOADED, TOO_LONG, NO_ROOM, NO_WORKER, NO_PS = range(9)
"""Reasons of decisions."""


class BatchCase(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    delays
        Upload delays.
    rule
        How plans are compared.
    work
        Work by job and zeta [worker-µs].
    first, counters, xi
        The servers for jobs of a pair of types, in order of ties, and whether xi = 1 there: those of pair i are
        ``at[first[i] : first[i + 1]]``.
    ps_first, ps_list
        Likewise, the PS slots of each row of the policy's book of PSs.
    widths
        Columns of the books of workers and of PSs for each server.
    slot, step, cloud
        Length of a slot and the step of the clock [µs]; number of the cloud, -1 if there is none.
    one_server
        1 if a job on one edge server with its PS there counts as co-located, too.
    """

    delays: Delays
    rule: PlanComparison
    work: Ints
    first: Ints
    counters: Ints
    xi: Ints
    ps_first: Ints
    ps_list: Ints
    widths: tuple[int, int]
    slot: int
    step: int
    cloud: int
    one_server: int


class BatchBooks(NamedTuple):
    """The jobs, the PS slots, and the rows of the record.

    Attributes
    ----------
    jobs
        A row for each job; the columns are above.
    ps_until
        When each PS slot becomes free [µs].
    decisions, values
        Rows (time, job, verb, server, workers, reason), and the value of each.
    plans
        Rows (job, server, workers, PSs, start, end).
    prices, price
        Rows (time, job, server, 0 for workers or 1 for PSs, type, start, end), and the price of each.
    runs
        Rows as :class:`skedge.sim.runs.RunLog` has those of gangs.
    at
        Numbers; see above.
    """

    jobs: Ints
    ps_until: Ints
    decisions: Ints
    values: Floats
    plans: Ints
    prices: Ints
    price: Floats
    runs: Ints
    counters: Ints


def make_case(scenario: Scenario, policy: Batch) -> tuple[BatchCase, Ints]:
    """The case of a run of `policy`, which has been started; and the number of each job's pair of types."""
    jobs, physics, cloud = scenario.jobs, scenario.physics, scenario.cluster.cloud
    pairs, of = np.unique(np.column_stack([jobs.worker_type, jobs.ps_type]), axis=0, return_inverse=True)
    types = [policy.qualified_servers(kind, ps_kind) for kind, ps_kind in pairs.tolist()]
    width = policy.ps_capacity.shape[1]
    slots = [policy.ps_on.get((row // width, row % width), []) for row in range(policy.ps_capacity.size)]
    case = BatchCase(
        scenario.delays, policy.rule, np.ascontiguousarray(scenario.announced_work),
        _starts([t.servers for t in types]), _joined([t.servers for t in types]), _joined([t.colocated for t in types]),
        _starts(slots), _joined(slots), (policy.worker_capacity.shape[1], width),
        physics.slot, physics.step, -1 if cloud is None else cloud, int(physics.colocation == "one_server"),
    )  # fmt: skip
    return case, of.reshape(-1).astype(np.int64)


def _starts(lists: list[Ints] | list[list[int]]) -> Ints:
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)


def _joined(lists: list[Ints] | list[list[int]]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(of, np.int64) for of in lists)])


def make_books(scenario: Scenario, case: BatchCase, types: Ints) -> BatchBooks:
    """The books before the first event; `types` is the number of each job's pair of types."""
    jobs = scenario.jobs
    table = np.zeros((len(jobs), 12), np.int64)
    table[:, SINCE], table[:, UPLOADED] = jobs.arrival, whole_slots(jobs.arrival, scenario.physics.step)
    table[:, CHUNKS], table[:, TYPES] = jobs.chunks, types
    # a type that only the cloud has, -1, is the last column of the books
    table[:, KIND], table[:, PS_KIND] = jobs.worker_type % case.widths[0], jobs.ps_type % case.widths[1]
    return BatchBooks(
        table,
        np.zeros(len(scenario.cluster.ps_server), np.int64),
        *(np.zeros((0, 6), np.int64), np.zeros(0)),
        np.zeros((0, 6), np.int64),
        *(np.zeros((0, 7), np.int64), np.zeros(0)),
        np.zeros((0, 10), np.int64),
        np.zeros(4, np.int64),
    )


def with_room(books: BatchBooks, servers: int, steps: int) -> BatchBooks:
    """The same with room for the rows of one more job (:func:`has_room`); `steps`: the most of a book's row."""
    counters = books.counters
    prices, decisions = int(counters[PRICES]) + (servers + 1) * (steps + 2), int(counters[DECISIONS]) + 2 * servers + 1
    return books._replace(
        decisions=longer(books.decisions, decisions),
        values=longer(books.values, decisions),
        plans=longer(books.plans, int(counters[PLANS]) + servers + 1),
        prices=longer(books.prices, prices),
        price=longer(books.price, prices),
        runs=longer(books.runs, int(counters[RUNS]) + servers),
    )


@lean
def has_room(case: BatchCase, books: BatchBooks, workers: LoadProfile, ps: LoadProfile) -> bool:
    """Whether every array has room for one more job."""
    servers, counters = len(case.delays.cloud), books.counters
    prices = (servers + 1) * (max(_steps(workers), _steps(ps)) + 2)
    room = len(books.decisions) - counters[DECISIONS] > 2 * servers and len(books.plans) - counters[PLANS] > servers
    room = room and len(books.runs) - counters[RUNS] >= servers and len(books.prices) - counters[PRICES] >= prices
    return room and _steps(workers) + 2 <= workers.starts.shape[1] and _steps(ps) + 2 <= ps.starts.shape[1]


@lean
def _steps(book: LoadProfile) -> int:
    """The most steps of a row of a book."""
    most = 0
    for row in range(len(book.size)):
        most = max(most, book.size[row])
    return most
