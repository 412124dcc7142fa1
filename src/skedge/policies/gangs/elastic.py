"""Base of policies that give and take single workers, and what their compiled decisions share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from skedge.core.engine.data import look_up
from skedge.core.engine.ledger import FIRST, HELD, SIZE, TYPE, Case, Ledger
from skedge.core.engine.orders import N_PLACES, OrderRows
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .edge import EdgePolicy, EdgeState, count_ps, order_allocate

if TYPE_CHECKING:
    from numpy.random import Generator


class Room(NamedTuple):
    """What a decision may still give out, and arrays to work on.

    Attributes
    ----------
    workers
        Workers by (server, type).
    total, ps_left
        Workers, and PSs, that are up for selection by type; PSs are a large number where the cloud is the fallback.
    ps_free
        PS slots that no job holds, by (server, PS type).
    free, delay, with_data, own, plan
        Of one job, by server: workers that it may be given; upload delay [µs]; of how many workers the data are there;
        workers of its present or last placement, and those that it is to have.
    servers, counts
        Workers of several placements, one after the other: room for all workers.
    """

    workers: Ints
    total: Ints
    ps_left: Ints
    ps_free: Ints
    free: Ints
    delay: Ints
    with_data: Ints
    own: Ints
    plan: Ints
    servers: Ints
    counts: Ints


class ElasticState(NamedTuple):
    """What every compiled elastic policy keeps: the jobs in the system, and its scratch."""

    edge: EdgeState
    room: Room


class ElasticPolicy(EdgePolicy):
    """Base of Preemptive and DRF: a job runs with any number of workers, up to one for each chunk."""

    elastic: ClassVar[bool] = True

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        n_servers, n_types, n_ps_types = (len(x) for x in (cluster.servers, cluster.worker_types, cluster.ps_types))
        shapes = (
            (n_servers, n_types), n_types, max(1, n_ps_types), (n_servers, max(1, n_ps_types)), *5 * (n_servers,),
            *2 * (cluster.lanes,),
        )  # fmt: skip
        self.room = Room(*(np.zeros(shape, np.int64) for shape in shapes))

    def state(self) -> Any:
        """The arrays of the policy."""
        return ElasticState(self.edge, self.room)


@lean
def fill_room(case: Case, ledger: Ledger, room: Room, workers: Ints, running_stay: bool) -> None:
    """Count what there is to give out.

    Parameters
    ----------
    case, ledger
        The run.
    room
        Out: `workers`, `total` and `ps_left`.
    workers
        Workers that there are to give out, by (server, type).
    running_stay
        Whether running jobs keep what they hold; else all workers and PSs are up for selection.
    """
    count_ps(case, ledger, running_stay, room.ps_left)
    for kind in range(len(room.total)):
        room.total[kind] = 0
        for server in range(len(workers)):
            room.workers[server, kind] = workers[server, kind]
            room.total[kind] += workers[server, kind] if running_stay else ledger.capacity[server, kind]


@lean
def look_at(case: Case, ledger: Ledger, room: Room, job: int) -> None:
    """Fill the arrays of one job but ``plan``.

    Parameters
    ----------
    case, ledger
        The run.
    room
        In and out; the delay is NEVER where no worker is free.
    job
        The job.
    """
    job_row = ledger.jobs[job]
    look_up(ledger.data, job, room.with_data)
    look_up_own(ledger, job, room.own)
    for server in range(len(room.free)):
        room.free[server] = room.workers[server, job_row[TYPE]]
        room.delay[server] = upload_delay(case.delays, job, server) if room.free[server] > 0 else NEVER
    if job_row[HELD] == 0:
        # its last placement is nothing to return to where the data are lost
        for server in range(len(room.own)):
            room.own[server] = min(room.own[server], room.with_data[server])


@lean
def look_up_own(ledger: Ledger, job: int, own: Ints) -> None:
    """Fill `own`: workers of the present or last placement of `job`, by server."""
    job_row = ledger.jobs[job]
    for server in range(len(own)):
        own[server] = 0
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        own[ledger.workers[i, 0]] += ledger.workers[i, 1]


@lean
def order_plan(case: Case, ledger: Ledger, state: ElasticState, job: int, orders: OrderRows) -> None:
    """Allocate the workers of ``plan`` to `job`.

    Parameters
    ----------
    case, ledger, state, job
        The run, and the job whose plan it is.
    orders
        Out.
    """
    plan, places, n = state.room.plan, orders.places[orders.counters[N_PLACES] :], 0
    for server in range(len(plan)):
        if plan[server] > 0:
            places[n, 0], places[n, 1] = server, plan[server]
            n += 1
    order_allocate(case, ledger, state.edge, job, n, orders)
