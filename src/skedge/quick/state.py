"""The arrays that the compiled loop works on: few and wide ones, as each argument of a function costs compile time."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from skedge.core.engine.kept_data import Stored, empty_stored, with_space
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import Delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, whole_slots
from skedge.platform.jit import lean
from skedge.policies.gangs.placement import Gang, Rule, Scratch, make_scratch
from skedge.policies.gangs.tiresias import Attained, Clocks, no_clocks, with_clocks

A = TypeVar("A", Ints, Floats)

FIFO, SRTF, TIRESIAS, PREEMPTIVE, DRF = range(5)
"""The policies of this package."""

NO_PS = -2
"""Stands for the PS of a job that has none; -1 is the cloud."""

(
    ARRIVAL, WORKERS, KIND, PS_KIND, CHUNKS,
    ANNOUNCED, ANNOUNCED_COLOCATED, WORK, WORK_COLOCATED,
    LEFT, TRUE_LEFT, HELD, SERVERS, COMPUTE_FROM, SINCE, ZETA, VERSION, STARTED, ADMITTED, PS, PS_SINCE, DATA,
) = range(22)  # fmt: skip
"""Columns of ``GangBooks.jobs``.

- Arrival [µs, whole slots], k_j, worker type (-1: none on the edge), PS type (likewise), D_j.
- Announced and true work [worker-µs], each for zeta = 0 and 1.
- Remaining work, announced and true, at the present zeta [worker-µs], exact at ``SINCE``; workers held, and on how many
  servers; when the allocation begins computing and when it was made [µs]; its zeta; its number (an end on the agenda
  with another number is obsolete); 1 once the job has held workers; its first allocation [µs], -1 before it; its PS
  slot (-1: in the cloud), and since when [µs]; the first of its entries of ``GangBooks.data``, -1 if there is none.
"""

ARRIVED, AGENDA, STALE, DONE, NOW, DECISIONS, PS_ROWS, UPLOADS, RUNS, ENTRIES = range(10)
"""Numbers of ``GangBooks.at``: jobs arrived, length of the agenda, its obsolete entries, jobs completed, the present
[µs], rows of the four tables, entries of ``GangBooks.data``."""

ACTIVE, RANKED, CHOSEN, FINISHED, STOPS, MOVES, BEGINS, DECIDED, BEGUN, WAKE_AT = range(10)
"""Numbers of ``PolicyState.at``: lengths of the first lists, the last decision [µs]; of Tiresias-L the jobs that have
begun and its next wake-up [µs]."""

VERDICT, REMAINING, COMPLETED, SPARE, FURTHER = 7, 8, 9, 10, 11
"""Rows of ``PolicyState.lists`` after those of the lists ACTIVE to BEGINS."""


class GangCase(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    delays
        Upload delays.
    slots
        Workers of the edge by type.
    ps_first, ps_list
        PS slots in lists, ascending: list number ``server * types + type`` has those of a server and type, and the
        lists behind have all of a type. List p is ``ps_list[ps_first[p] : ps_first[p + 1]]``.
    ps_places
        Server of each PS slot; the last one is the cloud.
    ps_types
        Number of PS types, at least 1.
    cloud
        Number of the cloud; -1 if there is none.
    step, overhead
        Slot length and checkpoint overhead [µs].
    one_server
        1 if a job on one edge server with its PS there counts as co-located, too.
    """

    delays: Delays
    slots: Ints
    ps_first: Ints
    ps_list: Ints
    ps_places: Ints
    ps_types: int
    cloud: int
    step: int
    overhead: int
    one_server: int


class GangBooks(NamedTuple):
    """The cluster and the progress of the jobs, and the rows of the record.

    Attributes
    ----------
    jobs
        A row for each job; the columns are above.
    placed
        (server, workers) of the present or last allocation, by server, shape ``(jobs, width, 2)``.
    data
        Where the data of jobs are whose workers begin one by one, lists in one pool: (server, further workers whose
        data it has, when these arrive [µs], next entry of the job). Those of gangs are in ``PolicyState.stored``.
    free, ps_job
        Free workers by (server, type); the job of each PS slot, -1 if free.
    agenda
        A heap of (time, job, version); job -1 is a wake-up.
    decisions, ps, uploads, runs
        Rows (time, job, verb, server, workers, reason), (job, slot, 1, start, end), (job, server, chunks, start), and
        those of gangs as :class:`skedge.sim.runs.RunLog` has them.
    at
        Numbers; see above.
    """

    jobs: Ints
    placed: Ints
    data: Ints
    free: Ints
    ps_job: Ints
    agenda: Ints
    decisions: Ints
    ps: Ints
    uploads: Ints
    runs: Ints
    at: Ints


class PolicyState(NamedTuple):
    """The state of the policy.

    Attributes
    ----------
    policy
        FIFO, SRTF or TIRESIAS.
    attained, knob
        Of Tiresias-L: the limit at which jobs are demoted; promotion after `knob` times the executed time.
    rule
        Options of the selection.
    capacity
        Workers by (server, type).
    gang, stored, scratch, clocks
        As the policies have them.
    lists
        Jobs that the edge can hold, those in the order of the last selection, those that run, those that complete at
        this instant; those that the last decision stops, moves and begins; verdicts of a selection, SRTF's remaining
        times by job, the jobs completed so far (``GangBooks.at[DONE]``), and two rows to work on.
    at
        Numbers; see above.
    """

    policy: int
    attained: Attained
    knob: float
    rule: Rule
    capacity: Ints
    gang: Gang
    stored: Stored
    scratch: Scratch
    clocks: Clocks
    lists: Ints
    at: Ints


def make_case(scenario: Scenario) -> GangCase:
    """The case of a run."""
    cluster, physics = scenario.cluster, scenario.physics
    types, server, kind = max(1, len(cluster.ps_types)), cluster.ps_server, cluster.ps_type
    keys, slots = len(cluster.servers) * types, np.arange(len(server))
    first, slot = _lists(np.concatenate([server * types + kind, keys + kind]), keys + types, np.append(slots, slots))
    cloud = -1 if cluster.cloud is None else cluster.cloud
    one_server = int(physics.colocation == "one_server")
    return GangCase(
        scenario.delays, cluster.workers.sum(axis=0), first, slot, cluster.ps_places, types, cloud, physics.step,
        physics.checkpoint_overhead, one_server,
    )  # fmt: skip


def _lists(key: Ints, keys: int, of: Ints) -> tuple[Ints, Ints]:
    """Where the list of each value of `key` begins, and the lists, of the members `of`, one after the other."""
    first = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=keys))])
    return first.astype(np.int64), of[key.argsort(kind="stable")].astype(np.int64)


def make_books(scenario: Scenario, width: int) -> GangBooks:
    """The books before the first event; `width` is the largest number of servers of a gang."""
    cluster, jobs = scenario.cluster, scenario.jobs
    table = np.zeros((len(jobs), 22), np.int64)
    columns = (jobs.workers, jobs.worker_type, jobs.ps_type, jobs.chunks)
    table[:, ARRIVAL] = whole_slots(jobs.arrival, scenario.physics.step)
    table[:, WORKERS : CHUNKS + 1] = np.column_stack(columns)
    table[:, ANNOUNCED : WORK_COLOCATED + 1] = np.column_stack([scenario.announced_work, scenario.true_work])
    table[:, LEFT], table[:, TRUE_LEFT] = table[:, ANNOUNCED], table[:, WORK]
    table[:, ADMITTED], table[:, PS], table[:, DATA] = -1, NO_PS, -1
    return GangBooks(
        table,
        np.zeros((len(jobs), width, 2), np.int64),
        np.zeros((0, 4), np.int64),
        cluster.workers.copy(),
        np.full(len(cluster.ps_server), -1),
        np.zeros((0, 3), np.int64),
        np.zeros((0, 6), np.int64),
        np.zeros((0, 5), np.int64),
        np.zeros((0, 4), np.int64),
        np.zeros((0, 10), np.int64),
        np.zeros(10, np.int64),
    )


def width_of(scenario: Scenario) -> int:
    """The largest number of servers of a gang."""
    return min(int(scenario.jobs.workers.max(initial=1)), len(scenario.cluster.servers))


def make_choice(scenario: Scenario, policy: int, rule: Rule, attained: Attained, knob: float) -> PolicyState:
    """The policy before the first event."""
    cluster, jobs, at = scenario.cluster, scenario.jobs, np.zeros(10, np.int64)
    count, places, at[WAKE_AT] = len(jobs), np.zeros((len(jobs), width_of(scenario)), np.int64), NEVER
    none, lists = np.zeros(count, np.int64), np.zeros((12, count), np.int64)
    lists[REMAINING] = -1
    kinds = jobs.workers.copy(), jobs.worker_type.copy(), np.maximum(jobs.ps_type, 0)
    gang = Gang(*kinds, places, places.copy(), none, none.copy())
    types = len(cluster.worker_types), max(1, len(cluster.ps_types))
    scratch = make_scratch(len(cluster.servers), *types, cluster.lanes)
    stored, clocks = with_space(empty_stored(), count, 0), with_clocks(no_clocks(), count)
    return PolicyState(policy, attained, knob, rule, cluster.workers, gang, stored, scratch, clocks, lists, at)


@lean
def room(slots: Ints, at: Ints, arrivals: int) -> int:
    """Upper bound on the rows and entries that the next event adds to any array.

    At most as many jobs as there are workers, and all in the cloud, end a run, stop or begin; each has a row for each
    of its servers. Each job that arrives has one.
    """
    workers = 0
    for kind in range(len(slots)):
        workers += slots[kind]
    return 3 * workers + at[AGENDA] + arrivals + 1


@lean
def has_room(books: GangBooks, stored: Stored, more: int) -> bool:
    """Whether every array that grows has room for `more` rows or entries."""
    at = books.at
    rows = min(len(books.decisions) - at[DECISIONS], len(books.ps) - at[PS_ROWS], len(books.uploads) - at[UPLOADS])
    others = min(len(books.runs) - at[RUNS], len(books.data) - at[ENTRIES], len(books.agenda) - at[AGENDA])
    return min(rows, others, len(stored.following) - stored.size[0]) >= more


def with_room(books: GangBooks, more: int) -> GangBooks:
    """The same with room for at most `more` further rows, entries and agenda items each."""
    names = {"decisions": DECISIONS, "ps": PS_ROWS, "uploads": UPLOADS, "runs": RUNS, "data": ENTRIES, "agenda": AGENDA}
    return books._replace(**{name: longer(getattr(books, name), int(books.at[i]) + more) for name, i in names.items()})


def choice_with_room(choice: PolicyState, more: int) -> PolicyState:
    """The same with room for at most `more` further entries."""
    return choice._replace(stored=with_space(choice.stored, len(choice.stored.first), more))


def longer(array: A, need: int) -> A:
    """`array` with room for `need` rows; one that grows does so by half at least, and views of it must not be used."""
    if len(array) < need:
        # in place: the system moves a large array without copying it; what is new of it is filled with 0
        array.resize((max(need, 3 * len(array) // 2), *array.shape[1:]), refcheck=False)
    return array
