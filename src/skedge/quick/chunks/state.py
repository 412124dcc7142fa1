"""The arrays that the compiled loop works on."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.core.engine.lanes import FIELDS, Lanes, empty_lanes
from skedge.core.engine.lanes import with_room as with_longer_lanes
from skedge.core.engine.projection import common_scale
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import Delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import whole_slots
from skedge.platform.jit import inlined, lean
from skedge.policies.aonline.a_greedy import CostHeap, make_cost_heap
from skedge.policies.aonline.policy import MODES, AOnline
from skedge.sim.lanes import Truth, make_truth

Narrow = NDArray[np.int32]

NO_PS = -2
"""Stands for the PS of a job that has none; -1 is the cloud."""

(
    ARRIVAL, RELEASE, KIND, PS_KIND, CHUNKS, FIRST, BYTES, EACH, EACH_IN_CLOUD, TRUE_EACH, TRUE_IN_CLOUD, SCALE,
    IN_CLOUD, PS, PS_SINCE, SENT,
) = range(16)  # fmt: skip
"""Columns of ``LaneBooks.jobs``.

- Arrival [µs], in whole slots and as announced; worker and PS type (-1: none on the edge); D_j; number of its first
  chunk, through all jobs; u_j [bytes]; announced and true p at zeta = 0 and 1 [µs]; scale of the weights 1/D.
- 1 if it is wholly in the cloud; its PS slot (-1: in the cloud), and since when [µs]; its dispatch [µs], -1: rejected.
"""

(
    ARRIVED, AGENDA, SEQUENCE, COMING, NOW, UNSETTLED, DONE, PS_ROWS, CLOUD_ROWS, DISPATCHES, IMPOSSIBLE, STUCK, BASE,
    PLACED, MORE,
) = range(15)  # fmt: skip
"""Numbers of ``LaneBooks.counters``: jobs that have been answered; length of the agenda and entries made so far
(as :mod:`skedge.core.engine.agenda` has them); jobs that have arrived; the present [µs], and whether its instant is not
settled; jobs completed; rows of two tables; dispatches; 1 after an impossible fact; 1 + the first job for which there
is no PS; number of the first chunk of which the columns of the dispatches have a row; what is known of the places of
the job at hand, 0: nothing; 1 if jobs follow that the books do not have yet."""


class LaneCase(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    delays
        Upload delays.
    lane_server, lanes, lanes_first
        Server of each lane; lanes by worker type, those of type k from ``lanes_first[k]`` on.
    slots, slots_first
        PS slots by PS type, likewise.
    free_bytes
        Free storage of the servers: without limit.
    cloud, cloud_ps
        Number of the cloud, -1 if it may not be used; 1 if it has PSs.
    step
        Slot length [µs].
    mode
        Reading of Q.
    as_announced
        1 if every chunk takes as long as announced: then the lanes are as believed, and the belief is the truth itself.
    """

    delays: Delays
    lane_server: Ints
    lanes: Ints
    lanes_first: Ints
    slots: Ints
    slots_first: Ints
    free_bytes: Ints
    cloud: int
    cloud_ps: int
    step: int
    mode: int
    as_announced: int


class LaneBooks(NamedTuple):
    """The lanes as believed and as they are, the PSs, and the rows of the record.

    Attributes
    ----------
    jobs
        A row for each job; the columns are above.
    belief, truth
        The lanes.
    costs, weights
        As A_greedy has them.
    ps_job
        The job of each PS slot, -1 if it is free.
    agenda
        Starts and ends of chunks in the cloud, as :mod:`skedge.core.engine.agenda` has them.
    lane, postponed, alpha
        Columns of the dispatches, by chunk from ``at[BASE]`` on; alpha in µs.
    order
        Scratch for the chunks of one job: lane, chunks postponed, and their times.
    ps, cloud_runs
        Rows (job, slot, 1, start, end) and (job, chunks, start, end, zeta).
    completed
        The jobs completed so far, in order.
    at
        Numbers; see above.
    """

    jobs: Ints
    belief: Lanes
    truth: Truth
    costs: CostHeap
    weights: Ints
    ps_job: Ints
    agenda: Ints
    lane: Narrow
    postponed: Narrow
    alpha: Floats
    order: Ints
    ps: Ints
    cloud_runs: Ints
    completed: Ints
    group: Ints
    counters: Ints


def make_case(scenario: Scenario, policy: AOnline) -> LaneCase:
    """The case of a run."""
    cluster, may = scenario.cluster, policy.params.cloud
    kinds, of_ps = range(len(cluster.worker_types)), range(len(cluster.ps_types))
    return LaneCase(
        scenario.delays,
        cluster.lane_server,
        *_lists([cluster.lanes_of(k) for k in kinds]),
        *_lists([np.flatnonzero(cluster.ps_type == k) for k in of_ps]),
        cluster.storage_bytes.copy(),
        -1 if cluster.cloud is None or not may else cluster.cloud,
        int(cluster.cloud is not None),
        scenario.physics.step,
        MODES[policy.params.q_mode],
        int(scenario.physics.estimate_error == 0),
    )


def _lists(parts: list[Ints]) -> tuple[Ints, Ints]:
    """The parts one after the other, and where each begins."""
    return np.concatenate([np.zeros(0, np.int64), *parts]), np.cumsum([0, *(len(part) for part in parts)])


def make_books(scenario: Scenario, case: LaneCase, *, preemptive: bool, most_rows: int | None = None) -> LaneBooks:
    """The books before the first event, with room for the dispatches of `most_rows` chunks; None: of all."""
    cluster, jobs, overhead = scenario.cluster, scenario.jobs, scenario.physics.checkpoint_overhead
    most, total = int(jobs.chunks.max(initial=0)), int(jobs.chunks.sum())
    rows = total if most_rows is None else most_rows
    truth = make_truth(cluster.lanes, jobs.chunks, preemptive=preemptive, overhead=overhead)
    belief = truth.lanes
    if not case.as_announced:
        belief = empty_lanes(cluster.lanes, preemptive=preemptive, overhead=overhead)
    return LaneBooks(
        jobs=job_rows(scenario, case),
        belief=belief,
        truth=truth,
        costs=make_cost_heap(cluster.lanes, _groups(belief)),
        weights=np.zeros(most + 1, np.int64),
        ps_job=np.full(len(cluster.ps_server), -1),
        agenda=np.zeros((2 * len(jobs), 5), np.int64),
        lane=np.zeros(rows, np.int32),
        postponed=np.zeros(rows, np.int32),
        alpha=np.zeros(rows),
        order=np.zeros((2, most), np.int64),
        ps=np.zeros((0, 5), np.int64),
        cloud_runs=np.zeros((len(jobs), 5), np.int64),
        completed=np.zeros(len(jobs), np.int64),
        group=np.zeros(FIELDS, np.int64),
        counters=np.zeros(15, np.int64),
    )


def job_rows(scenario: Scenario, case: LaneCase, scale: int = 1) -> Ints:
    """The rows of jobs before they arrive; `scale` is that of the weights of the jobs before them.

    Jobs that will be rejected have no weight.
    """
    jobs, table = scenario.jobs, np.zeros((len(scenario.jobs), 16), np.int64)
    weighed = np.where(np.isin(jobs.worker_type, scenario.cluster.lane_type) | (case.cloud >= 0), jobs.chunks, 1)
    # the scale changes only where a number of chunks is the first of its size
    _, first = np.unique(weighed, return_index=True)
    first.sort()
    scales = list(accumulate(weighed[first].tolist(), common_scale, initial=scale))
    table[:, SCALE] = np.array(scales)[first.searchsorted(np.arange(len(table)), side="right")]
    table[:, ARRIVAL], table[:, RELEASE] = whole_slots(jobs.arrival, scenario.physics.step), jobs.arrival
    table[:, KIND], table[:, PS_KIND] = jobs.worker_type, jobs.ps_type
    table[:, CHUNKS], table[:, BYTES] = jobs.chunks, jobs.chunk_bytes
    table[1:, FIRST] = np.cumsum(jobs.chunks)[:-1]
    table[:, EACH : EACH_IN_CLOUD + 1] = scenario.chunk_time
    table[:, TRUE_EACH : TRUE_IN_CLOUD + 1] = scenario.true_chunk_time
    table[:, PS], table[:, SENT] = NO_PS, -1
    return table


def _groups(lanes: Lanes) -> int:
    """Groups for which a cost heap needs room."""
    return 2 * lanes.rows.shape[1] + 1


@inlined
def has_rows(books: LaneBooks) -> bool:
    """Whether the table of PSs has room for all jobs in the system."""
    return len(books.ps) - books.counters[PS_ROWS] > books.counters[ARRIVED] - books.counters[DONE]


@inlined
def can_send(books: LaneBooks, job: int) -> bool:
    """Whether the columns of the dispatches have room for `job`."""
    return books.jobs[job, FIRST] + books.jobs[job, CHUNKS] - books.counters[BASE] <= len(books.lane)


@lean
def has_room(lanes: Lanes) -> bool:
    """Whether every lane has room for one more group."""
    enough, room = True, lanes.rows.shape[1]
    for lane in range(len(lanes.clock)):
        enough = enough and lanes.waiting[lane] + lanes.coming[lane] < room
    return enough


def with_room(books: LaneBooks) -> LaneBooks:
    """The same with room on every lane and in the table of PSs."""
    lanes = with_longer_lanes(books.truth.lanes)
    belief = lanes if books.belief is books.truth.lanes else with_longer_lanes(books.belief)
    if belief is not books.belief:
        books = books._replace(belief=belief, costs=make_cost_heap(len(belief.clock), _groups(belief)))
    if len(books.ps) - books.counters[PS_ROWS] <= len(books.jobs):
        grown = np.zeros((2 * len(books.ps) + len(books.jobs) + 1, 5), np.int64)
        grown[: len(books.ps)] = books.ps
        books = books._replace(ps=grown)
    return books._replace(truth=books.truth._replace(lanes=lanes))
