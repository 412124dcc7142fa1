"""What a compiled decision reads and writes: the facts of an event, and orders as rows.

A decision reads the ledger and the facts, and writes orders; :mod:`.apply` carries them out. So one decision serves a
compiled loop, which applies the rows, and Python, which makes an :class:`~skedge.core.events.Order` of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.events import VERBS
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined

ALLOCATE, ALLOCATE_EACH, SUSPEND, REJECT, UPLOAD = (
    VERBS.index(verb) for verb in ("allocate", "allocate_each", "suspend", "reject", "upload")
)
WAKE_AT, TRAIN_AT_SITES, STOP = range(len(VERBS), len(VERBS) + 3)
"""Changes that no record has by such a verb: to be woken; an allocation at sites; the end of an allocation that the
world reports."""

ORDER_VERB, ORDER_JOB, ORDER_PS, ORDER_REASON, ORDER_FIRST, ORDER_SIZE = range(6)
"""Columns of ``OrderRows.rows``; of WAKE_AT the job is -1, and ORDER_FIRST is the time [µs]."""

N_ORDERS, N_PLACES, WRONG = range(3)
"""Numbers of ``OrderRows.counters``: orders, rows of their placements, and the order that broke a rule."""

N_FINISHED, N_LEFT, N_INTERRUPTED, N_WITHOUT_PS, N_LOST, FIRST_ARRIVED, MEASURED, UNTIL, WOKE, N_DUE, N_ARRIVED = range(
    11
)
"""Numbers of ``EventFacts.counters``: jobs that have completed; lengths of the four lists; the first of the jobs that
arrive now, which end at ``ledger.counters[ARRIVED]``; 1 if the speed of a job was corrected; when a compiled loop
stops, as something else happens then [µs]; 1 if a time asked for has come; rows of `due`; and jobs that arrive."""


class EventFacts(NamedTuple):
    """What has happened since the last decision.

    Attributes
    ----------
    left
        Jobs that have completed, ascending; then those that have failed.
    interrupted
        Jobs that lost their workers with a server, ascending.
    without_ps
        Dispatched jobs that lost their PS with a server, ascending.
    lost
        Servers that are out of service from now on.
    due
        (kind, job, number) of entries of the agenda that are due, but for wake-ups and ends of allocations.
    counters
        Numbers; see above.
    """

    left: Ints
    interrupted: Ints
    without_ps: Ints
    lost: Ints
    due: Ints
    counters: Ints


class OrderRows(NamedTuple):
    """The orders of one decision, in order.

    Attributes
    ----------
    rows
        A row for each order; the columns are above.
    places
        (server, workers) rows of the placements, each ascending by server, in one pool.
    counters
        Numbers; see above.
    """

    rows: Ints
    places: Ints
    counters: Ints


def make_facts(n_jobs: int, n_servers: int) -> EventFacts:
    """Room for the facts of an event, if there are at most so many jobs."""
    left, interrupted, without_ps, lost = (np.zeros(n, np.int64) for n in (n_jobs, n_jobs, n_jobs, n_servers))
    due, counters = np.zeros((64, 3), np.int64), np.zeros(N_ARRIVED + 1, np.int64)
    facts = EventFacts(left, interrupted, without_ps, lost, due, counters)
    facts.counters[UNTIL] = NEVER
    return facts


def make_orders(n_jobs: int, n_workers: int) -> OrderRows:
    """Room for the orders of one decision of a policy that runs jobs on at most `n_workers` workers of the edge.

    Such a policy stops or shrinks, moves or grows, and begins at most as many jobs as there are workers, and each job
    has one order more at most, when it arrives or goes to the cloud.
    """
    n_rows = 4 * n_workers + n_jobs + 8
    return OrderRows(np.zeros((n_rows, 6), np.int64), np.zeros((n_rows, 2), np.int64), np.zeros(3, np.int64))


@inlined
def add_order(orders: OrderRows, verb: int, job: int, ps: int, reason: int, n_places: int) -> None:
    """Add an order; its placement is in the next rows of the pool, from ``counters[N_PLACES]`` on.

    Parameters
    ----------
    orders
        It has room.
    verb, job
        ALLOCATE to WAKE_AT, and the job.
    ps
        PS slot; -1 in the cloud, and for orders without one.
    reason
        The policy's number of the reason.
    n_places
        Servers of the placement, which has been written, ascending.
    """
    row, counters = orders.rows[orders.counters[N_ORDERS]], orders.counters
    row[ORDER_VERB], row[ORDER_JOB], row[ORDER_PS], row[ORDER_REASON] = verb, job, ps, reason
    row[ORDER_FIRST], row[ORDER_SIZE] = counters[N_PLACES], n_places
    counters[N_ORDERS] += 1
    counters[N_PLACES] += n_places


@inlined
def add_wake(orders: OrderRows, time: int) -> None:
    """Ask to be woken at `time` [µs]."""
    add_order(orders, WAKE_AT, -1, -1, -1, 0)
    orders.rows[orders.counters[N_ORDERS] - 1, ORDER_FIRST] = time
