"""The arrays that the compiled loop works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model import Cluster, Ints
from skedge.core.network import Delays
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER, whole_slots
from skedge.policies.gangs.placement import Gang, Rule, Scratch, Stored, empty_stored, make_scratch, with_space
from skedge.policies.gangs.tiresias import Clocks, no_clocks, with_clocks

FIFO, SRTF, TIRESIAS = range(3)
"""The policies of this package."""

NO_PS = -2
"""Stands for the PS of a job that has none; -1 is the cloud."""


class Case(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    policy
        FIFO, SRTF or TIRESIAS.
    limit, knob
        Parameters of Tiresias-L: attained service at which a job is demoted [worker-µs]; promotion after `knob` times
        the executed time.
    rule
        Options of the selection.
    arrival, workers, kind, ps_kind, chunks
        Arrival [µs, whole slots], k_j, worker type (-1: none on the edge), PS type (likewise) and D_j, by job.
    announced, work
        Announced and true work by job and zeta [worker-µs].
    slots
        Workers of the edge by type.
    ps_first, ps_list
        PS slots by (server, type), ascending: those of pair number p are ``ps_list[ps_first[p] : ps_first[p + 1]]``.
    kind_first, kind_list
        PS slots by type, likewise.
    ps_places
        Server of each PS slot; the last one is the cloud.
    cloud
        Number of the cloud; -1 if there is none.
    step, overhead
        Slot length and checkpoint overhead [µs].
    one_server
        1 if a job on one edge server with its PS there counts as co-located, too.
    """

    policy: int
    limit: float
    knob: float
    rule: Rule
    delays: Delays
    arrival: Ints
    workers: Ints
    kind: Ints
    ps_kind: Ints
    chunks: Ints
    announced: Ints
    work: Ints
    capacity: Ints
    slots: Ints
    ps_first: Ints
    ps_list: Ints
    kind_first: Ints
    kind_list: Ints
    ps_places: Ints
    cloud: int
    step: int
    overhead: int
    one_server: int


class Jobs(NamedTuple):
    """The state of the jobs; all arrays are by job.

    Attributes
    ----------
    left, true_left
        Remaining work at the present zeta [worker-µs], announced and true, exact at `since`.
    held
        Workers held now.
    compute_from, since
        When the present allocation begins computing, and when it was made [µs].
    zeta
        Of the present or last allocation.
    version
        Number of the allocation; an end on the agenda that has another number is obsolete.
    started
        1 once the job has held workers.
    admitted
        First allocation [µs]; -1 before it.
    ps, ps_since
        PS slot, -1 in the cloud, NO_PS if none; and since when [µs].
    """

    left: Ints
    true_left: Ints
    held: Ints
    compute_from: Ints
    since: Ints
    zeta: Ints
    version: Ints
    started: Ints
    admitted: Ints
    ps: Ints
    ps_since: Ints


class Data(NamedTuple):
    """Where the data of jobs are: a list by job, its entries in one pool, as :class:`~.placement.Stored`.

    Attributes
    ----------
    ready
        Of an entry: when the data brought last arrive [µs].
    """

    first: Ints
    server: Ints
    workers: Ints
    ready: Ints
    following: Ints
    size: Ints


class Rows(NamedTuple):
    """Rows of the record, and how many of each table there are.

    Attributes
    ----------
    decisions
        (time, job, verb, server, workers, reason).
    ps
        (job, slot, 1, start, end).
    uploads
        (job, server, chunks, start).
    runs
        As :class:`skedge.sim.runs.RunLog` has the rows of gangs.
    count
        Number of rows of the four tables.
    """

    decisions: Ints
    ps: Ints
    uploads: Ints
    runs: Ints
    count: Ints


DECISIONS, PS, UPLOADS, RUNS = range(4)
"""Tables of :class:`Rows`."""


class State(NamedTuple):
    """What changes during a run.

    Attributes
    ----------
    jobs, data, rows
        See there.
    gang, stored, scratch, clocks
        As the policies have them. The placement of a running job is that of `gang`, by server.
    free, ps_job
        Free workers by (server, type); the job of each PS slot, -1 if free.
    active, ranked, chosen, verdict
        Jobs that the edge can hold, those in SRTF's order, those that run, and the verdicts of a selection.
    remaining
        SRTF's remaining times by job.
    agenda
        A heap of (time, job, version); job -1 is a wake-up.
    finished
        Jobs that complete at this instant.
    at
        The numbers below, by name.
    """

    jobs: Jobs
    data: Data
    rows: Rows
    gang: Gang
    stored: Stored
    scratch: Scratch
    clocks: Clocks
    free: Ints
    ps_job: Ints
    active: Ints
    ranked: Ints
    chosen: Ints
    verdict: Ints
    remaining: Ints
    agenda: Ints
    finished: Ints
    at: Ints


ARRIVED, ACTIVE, RANKED, CHOSEN, AGENDA, STALE, FINISHED, DONE, NOW, DECIDED, BEGUN, WAKE_AT = range(12)
"""Numbers of ``State.at``: jobs arrived, lengths of the arrays of the same name, obsolete entries of the agenda, jobs
completed in all, the present, the last decision, jobs that have begun (Tiresias-L), its next wake-up [µs]."""


def make_case(scenario: Scenario, policy: int, rule: Rule, limit: float, knob: float) -> Case:
    """The case of a run."""
    cluster, jobs, physics = scenario.cluster, scenario.jobs, scenario.physics
    kinds, server, kind = max(1, len(cluster.ps_types)), cluster.ps_server, cluster.ps_type
    ps_first, ps_list = _lists(server * kinds + kind, len(cluster.servers) * kinds)
    kind_first, kind_list = _lists(kind, kinds)
    return Case(
        policy, limit, knob, rule, scenario.delays, whole_slots(jobs.arrival, physics.step), jobs.workers.copy(),
        jobs.worker_type, jobs.ps_type, jobs.chunks, scenario.announced_work, scenario.true_work, cluster.workers,
        cluster.workers.sum(axis=0), ps_first, ps_list, kind_first, kind_list, cluster.ps_places,
        -1 if cluster.cloud is None else cluster.cloud, physics.step, physics.checkpoint_overhead,
        int(physics.colocation == "one_server"),
    )  # fmt: skip


def _lists(key: Ints, keys: int) -> tuple[Ints, Ints]:
    """The positions of each value of `key`, one list after the other, and where each begins."""
    first = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=keys))])
    return first.astype(np.int64), key.argsort(kind="stable").astype(np.int64)


def make_state(scenario: Scenario) -> State:
    """The state before the first event."""
    cluster, jobs = scenario.cluster, scenario.jobs
    count, none = len(jobs), np.zeros(0, np.int64)
    width = min(int(jobs.workers.max(initial=1)), len(cluster.servers))
    zeros = (np.zeros(count, np.int64) for _ in range(64))
    ps = np.full(count, NO_PS)
    progress = Jobs(
        scenario.announced_work[:, 0].copy(), scenario.true_work[:, 0].copy(), *(next(zeros) for _ in range(6)),
        np.full(count, -1), ps, next(zeros),
    )  # fmt: skip
    places = np.zeros((count, width), np.int64)
    gang = Gang(
        jobs.workers.copy(), jobs.worker_type.copy(), np.maximum(jobs.ps_type, 0), places, places.copy(),
        next(zeros), next(zeros),
    )  # fmt: skip
    at = np.zeros(12, np.int64)
    at[WAKE_AT] = NEVER
    return State(
        progress,
        Data(np.full(count, -1), none, none, none, none, np.zeros(1, np.int64)),
        Rows(*(np.zeros((0, width), np.int64) for width in (6, 5, 4, 10)), np.zeros(4, np.int64)),
        gang,
        with_space(empty_stored(), count, 0),
        make_scratch(len(cluster.servers), len(cluster.worker_types), cluster.lanes),
        with_clocks(no_clocks(), count),
        cluster.workers.copy(),
        np.full(len(cluster.ps_server), -1),
        *(next(zeros) for _ in range(4)),
        np.full(count, -1),
        np.zeros((0, 3), np.int64),
        next(zeros),
        at,
    )


def with_room(state: State, more: int) -> State:
    """`state` with room for what an event adds: at most `more` rows of each table, entries of a pool or of the agenda."""
    count, data, rows = state.rows.count, state.data, state.rows
    pool = {name: _longer(getattr(data, name), int(data.size[0]) + more) for name in ("server", "workers", "ready", "following")}
    tables = {name: _longer(getattr(rows, name), int(count[i]) + more) for i, name in enumerate(rows._fields[:4])}
    return state._replace(
        data=data._replace(**pool),
        rows=rows._replace(**tables),
        stored=with_space(state.stored, len(state.stored.first), more),
        agenda=_longer(state.agenda, int(state.at[AGENDA]) + more),
    )


def _longer(array: Ints, need: int) -> Ints:
    """`array` with room for `need` rows, at least doubled if it grows."""
    if len(array) >= need:
        return array
    out = np.zeros((max(need, 2 * len(array)), *array.shape[1:]), np.int64)
    out[: len(array)] = array
    return out
