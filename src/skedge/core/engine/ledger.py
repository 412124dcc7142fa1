"""The ledger of a run: what each job holds on the servers, what is left of its work, and the rows of the record.

It is a few arrays, so that compiled functions can read and change them. Only the transitions of
:mod:`.allocations` change it; the kernel calls them order by order (:mod:`.engine`), a compiled loop calls the same
ones. Work is counted in worker-µs at the job's present co-location, and converted when that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from skedge.core.model.cluster import Bools, Floats, Ints
from skedge.core.model.network import Delays
from skedge.core.model.time import whole_slots
from skedge.platform.jit import inlined, lean

if TYPE_CHECKING:
    from skedge.core.model.scenario import Scenario

A = TypeVar("A", Ints, Floats)

NO_PS = -2
"""Stands for the PS of a job that has none; -1 is the cloud."""

NO_VALUE = float("nan")
"""The value of a decision that has none."""

GANG, ELASTIC, AT_SITES = range(3)
"""Styles of an allocation: all workers begin together; each when its data are there; slot by slot where data are."""

(
    ARRIVAL, DEMAND, TYPE, PS_TYPE, CHUNKS,
    LEFT, TRUE_LEFT, HELD, COLOCATED, STYLE, COMPUTE_FROM, SINCE, STOPPED, VERSION, NUMBER, TRAINED,
    FIRST, SIZE, ROOM, ADMITTED, PS, PS_SINCE, STATUS,
) = range(23)  # fmt: skip
"""Columns of ``Ledger.jobs``.

- ARRIVAL [µs, whole slots], DEMAND (k_j), TYPE of its workers and PS_TYPE (-1: none on the edge), CHUNKS (D_j).
- LEFT, TRUE_LEFT: remaining work, announced and true [worker-µs], exact at SINCE. HELD: workers held, 0 while it is
  suspended. COLOCATED: 1 if the present or last allocation is. STYLE of its allocations, -1 before the first.
- COMPUTE_FROM: when the first of its workers begins computing [µs]. SINCE: when the allocation was made, STOPPED: when
  the last one ended [µs], -1 if none has. VERSION: its number for the agenda, where an end with another number is
  obsolete. NUMBER: its place in the order in which all allocations were made. TRAINED: the work that the last ended
  allocation did [worker-µs].
- FIRST, SIZE, ROOM: where its rows of ``Ledger.workers`` begin, how many there are, and how many have room there.
- ADMITTED: its first allocation or dispatch [µs], -1 before it. PS: its PS slot (-1: in the cloud, NO_PS: none),
  PS_SINCE: since when [µs]. STATUS: one of the states below.
"""

NOT_ARRIVED, WAITING, DISPATCHED, FINISHED, REJECTED = range(-1, 4)
"""States of a job; one that was allocated workers still is WAITING, a failed one counts as FINISHED."""

(
    ARRIVED, AGENDA, SEQUENCE, STALE, NOW, DECISIONS, PS_ROWS, UPLOADS, RUNS, WORKER_ROWS, ALLOCATIONS,
    DEPARTED, OLDEST, CHANGES, TRAININGS,
) = range(15)  # fmt: skip
"""Numbers of ``Ledger.counters``: jobs arrived; length of the agenda, entries made so far, its obsolete entries;
the present [µs]; rows of the four tables and of ``Ledger.workers``; allocations made so far; jobs that have left; a job
before which all have left; rows of ``Ledger.changes`` that have happened; allocations that were stopped after they had
trained something."""

CHANGE_TIME, CHANGE_SERVER, LEAVES = range(3)
"""Columns of ``Ledger.changes``: when [µs], which server, and 1 if it leaves service, 0 if it returns."""


class Case(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    delays
        Upload delays.
    slots
        Workers of the edge by type.
    capacity
        Those of each server while it is in service, by (server, type).
    ps_first, ps_list
        PS slots in lists, ascending: list number ``server * types + type`` has those of a server and type, and the
        lists behind have all of a type. List p is ``ps_list[ps_first[p] : ps_first[p + 1]]``.
    ps_places, ps_type
        Server and type of each PS slot; the last server is the cloud.
    ps_types
        Number of PS types, at least 1.
    cloud
        Number of the cloud; -1 if there is none.
    step, overhead
        Slot length and checkpoint overhead [µs].
    one_server
        1 if a job on one edge server with its PS there counts as co-located, too.
    kept
        1 if data stay on every server that received them until the job ends or the server is lost; 0 if only the data
        of the last placement count.
    on_slots
        1 if workers and PSs are slots of a type; 0 if they are amounts of resources, which the ledger does not count.
    simulated
        1 in a simulation: ends are put on the agenda and runs are noted; 0 where a live world reports both.
    """

    delays: Delays
    slots: Ints
    capacity: Ints
    ps_first: Ints
    ps_list: Ints
    ps_places: Ints
    ps_type: Ints
    ps_types: int
    cloud: int
    step: int
    overhead: int
    one_server: int
    kept: int
    on_slots: int
    simulated: int


class Data(NamedTuple):
    """Where the data of jobs are: for each upload to a server the further workers whose data it brought.

    The entries of a job are in blocks of one pool, in the order in which they were brought: block b has the entries
    ``b * BLOCK`` and following, which are read together. Empty entries have server -1. A gang has one entry for each
    server, as it waits for the last upload anyway.

    Attributes
    ----------
    first, last
        Oldest and newest block of each job, -1 if it has none.
    server, workers, ready
        Of an entry: where, for how many workers, and when they are there [µs].
    following
        Of a block: the job's next one, or the next free one; -1 if there is none.
    size, free
        Number of blocks that have been used, and the first of those that are free again, -1 if there is none; shape
        ``(1,)``.
    """

    first: Ints
    last: Ints
    server: Ints
    workers: Ints
    ready: Ints
    following: Ints
    size: Ints
    free: Ints


class RecordRows(NamedTuple):
    """The rows of the record that transitions add.

    Attributes
    ----------
    decisions, values
        (time, job, verb, server, workers, reason), and the value of each, NaN if there is none.
    ps
        (job, slot, PSs, start, end).
    uploads
        (job, server, chunks, start).
    runs
        (job, server, workers, start, compute_from, end, work done, all workers of these rows, co-located, preempted).
    """

    decisions: Ints
    values: Floats
    ps: Ints
    uploads: Ints
    runs: Ints


class Ledger(NamedTuple):
    """The state of the allocations of all jobs.

    Attributes
    ----------
    jobs
        A row for each job; the columns are above.
    announced, work
        Total work by job, not co-located and co-located [worker-µs], shape ``(jobs, 2)``: as announced, and true.
    workers
        Workers of the present or last allocation of each job, in one pool: (server, workers, begin of computing [µs]).
    data
        Where data are.
    free, capacity
        Workers that no job holds, and those of the servers in service, by (server, type).
    ps_job
        The job of each PS slot, -1 if free.
    in_service
        Whether each server is in service.
    agenda
        A heap of (time, sequence, kind, job, number): see :mod:`.agenda`.
    changes
        When servers leave service and return in a simulation, as far as it is known: a row each, the columns are above.
        None where no server fails: then nothing about it is compiled.
    rows
        The rows of the record.
    counters
        Numbers; see above.
    """

    jobs: Ints
    announced: Ints
    work: Ints
    workers: Ints
    data: Data
    free: Ints
    capacity: Ints
    ps_job: Ints
    in_service: Bools
    agenda: Ints
    changes: Ints | None
    rows: RecordRows
    counters: Ints


BLOCK = 8
"""Entries of a block of ``Data``."""

EMPTY = -1
"""No block, no server."""


# -- making and growing ----------------------------------------------------------------------------------------------


def make_case(scenario: Scenario) -> Case:
    """The case of a simulation of `scenario` on servers with slots."""
    cluster, physics = scenario.cluster, scenario.physics
    types, server, kind = max(1, len(cluster.ps_types)), cluster.ps_server, cluster.ps_type
    n_lists, slots = len(cluster.servers) * types, np.arange(len(server))
    key = np.concatenate([server * types + kind, n_lists + kind])
    first, slot = _lists(key, n_lists + types, np.append(slots, slots))
    return Case(
        delays=scenario.delays,
        slots=cluster.workers.sum(axis=0),
        capacity=cluster.workers,
        ps_first=first,
        ps_list=slot,
        ps_places=cluster.ps_places,
        ps_type=cluster.ps_type.astype(np.int64),
        ps_types=types,
        cloud=-1 if cluster.cloud is None else cluster.cloud,
        step=physics.step,
        overhead=physics.checkpoint_overhead,
        one_server=int(physics.colocation == "one_server"),
        kept=int(physics.data == "kept"),
        on_slots=1,
        simulated=1,
    )


def _lists(key: Ints, n_lists: int, members: Ints) -> tuple[Ints, Ints]:
    """Where the list of each value of `key` begins, and the lists of `members`, one after the other."""
    first = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=n_lists))])
    return first.astype(np.int64), members[key.argsort(kind="stable")].astype(np.int64)


def make_ledger(scenario: Scenario) -> Ledger:
    """The ledger before the first event."""
    cluster, n = scenario.cluster, len(scenario.jobs)
    return Ledger(
        jobs=job_rows(scenario, 0),
        announced=np.array(scenario.announced_work),
        work=np.array(scenario.true_work),
        workers=np.zeros((0, 3), np.int64),
        data=with_jobs(no_data(), n),
        free=cluster.workers.copy(),
        capacity=cluster.workers.copy(),
        ps_job=np.full(len(cluster.ps_server), -1, np.int64),
        in_service=np.ones(len(cluster.servers), np.bool_),
        agenda=np.zeros((0, 5), np.int64),
        changes=None,
        rows=no_rows(),
        counters=np.zeros(TRAININGS + 1, np.int64),
    )


def job_rows(scenario: Scenario, first: int) -> Ints:
    """The rows of the jobs from number `first` on, before their arrival."""
    jobs = scenario.jobs
    table = np.zeros((len(jobs) - first, STATUS + 1), np.int64)
    table[:, ARRIVAL] = whole_slots(jobs.arrival[first:], scenario.physics.step)
    columns = (jobs.workers, jobs.worker_type, jobs.ps_type, jobs.chunks)
    table[:, DEMAND : CHUNKS + 1] = np.column_stack([column[first:] for column in columns])
    table[:, LEFT], table[:, TRUE_LEFT] = scenario.announced_work[first:, 0], scenario.true_work[first:, 0]
    table[:, ADMITTED] = table[:, STYLE] = table[:, STOPPED] = table[:, STATUS] = -1
    table[:, PS] = NO_PS
    return table


def no_rows() -> RecordRows:
    """No rows."""
    return RecordRows(
        np.zeros((0, 6), np.int64), np.zeros(0), *(np.zeros((0, width), np.int64) for width in (5, 4, 10))
    )


def no_data() -> Data:
    """No data anywhere, of no jobs."""
    columns = {name: np.zeros(0, np.int64) for name in Data._fields}
    return Data(**{**columns, "size": np.zeros(1, np.int64), "free": np.full(1, EMPTY)})


def with_jobs(data: Data, n: int) -> Data:
    """`data` with room for `n` jobs."""
    none = np.full(max(n - len(data.first), 0), EMPTY)
    return data._replace(first=np.append(data.first, none), last=np.append(data.last, none))


def with_blocks(data: Data, more: int) -> Data:
    """`data` with room for `more` further blocks."""
    n_blocks = int(data.size[0]) + more
    if n_blocks <= len(data.following):
        return data
    # one number for all: arrays that grow by a share of their own lengths would differ by their rounding
    n_blocks = max(n_blocks, 3 * len(data.following) // 2, 64)
    entries = {name: longer(getattr(data, name), BLOCK * n_blocks) for name in ("server", "workers", "ready")}
    return data._replace(following=longer(data.following, n_blocks), **entries)


def longer(array: A, need: int) -> A:
    """`array` with room for `need` rows; one that grows does so by half at least, and views of it must not be used."""
    if len(array) < need:
        if not array.flags.owndata:
            array = array.copy()  # one of a snapshot is part of the bytes that were read
        # in place: the system moves a large array without copying it; what is new of it is filled with 0
        array.resize((max(need, 3 * len(array) // 2), *array.shape[1:]), refcheck=False)
    return array


def with_room(ledger: Ledger, more: int) -> Ledger:
    """The same with room for at most `more` further rows, entries and agenda items each."""
    rows, counters = ledger.rows, ledger.counters.tolist()
    decisions = counters[DECISIONS] + more
    return ledger._replace(
        rows=RecordRows(
            longer(rows.decisions, decisions), longer(rows.values, decisions),
            longer(rows.ps, counters[PS_ROWS] + more), longer(rows.uploads, counters[UPLOADS] + more),
            longer(rows.runs, counters[RUNS] + more),
        ),
        data=with_blocks(ledger.data, more),
        workers=longer(ledger.workers, counters[WORKER_ROWS] + more),
        agenda=longer(ledger.agenda, counters[AGENDA] + more),
    )  # fmt: skip


def trimmed(ledger: Ledger) -> RecordRows:
    """The rows of the record so far, without the room behind them."""
    rows, counters = ledger.rows, ledger.counters
    n = counters[DECISIONS]
    return RecordRows(
        rows.decisions[:n], rows.values[:n], rows.ps[: counters[PS_ROWS]], rows.uploads[: counters[UPLOADS]],
        rows.runs[: counters[RUNS]],
    )  # fmt: skip


@lean
def has_room(ledger: Ledger, more: int) -> bool:
    """Whether every array that grows has room for `more` rows or entries."""
    counters, rows = ledger.counters, ledger.rows
    tables = min(
        len(rows.decisions) - counters[DECISIONS],
        len(rows.values) - counters[DECISIONS],
        len(rows.ps) - counters[PS_ROWS],
    )
    others = min(
        len(rows.uploads) - counters[UPLOADS], len(rows.runs) - counters[RUNS], len(ledger.agenda) - counters[AGENDA]
    )
    pools = min(len(ledger.workers) - counters[WORKER_ROWS], len(ledger.data.following) - ledger.data.size[0])
    return min(tables, others, pools) >= more


@inlined
def note_decision(
    ledger: Ledger, job: int, verb: int, server: int, workers: int, reason: int, value: float
) -> None:  # fmt: skip
    """Add a row to the decisions, at the present.

    Parameters
    ----------
    ledger
        It has room for a row.
    job
        The job decided on.
    verb
        Its number in ``events.VERBS``.
    server, workers
        Where, and how many; -1 for none.
    reason, value
        Number of the reason, and the value; NaN for none.
    """
    counters, decisions = ledger.counters, ledger.rows.decisions
    n = counters[DECISIONS]
    decisions[n, 0], decisions[n, 1], decisions[n, 2] = counters[NOW], job, verb
    decisions[n, 3], decisions[n, 4], decisions[n, 5] = server, workers, reason
    ledger.rows.values[n] = value
    counters[DECISIONS] = n + 1
