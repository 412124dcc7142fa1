"""The arrays of a compiled run: the engine's ledger, the lanes as believed and as they are, and the dispatches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.core.engine import ledger as engine
from skedge.core.engine.lanes import Lanes, empty_lanes
from skedge.core.engine.lanes import with_room as with_longer_lanes
from skedge.core.engine.ledger import AGENDA, Case, Ledger
from skedge.core.engine.projection import weight_table
from skedge.core.engine.truth import Truth, make_truth
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.scenario import Scenario
from skedge.platform.jit import inlined, lean

from .a_greedy import CostHeap, make_cost_heap
from .policy import MODES, AOnline

Narrow = NDArray[np.int32]

ANSWERED, UNSETTLED, DISPATCHES, IMPOSSIBLE, STUCK, BASE, MORE, COMPLETED = range(8)
"""Numbers of ``LaneBooks.counters``: jobs that are dispatched or rejected; 1 if the present instant is not settled;
dispatches; 1 after an impossible fact; 1 + the first job for which there is no PS; number of the first chunk of which
the columns of the dispatches have a row; 1 if jobs follow that the ledger does not have yet; length of the list of
completed jobs."""


class LaneCase(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    engine
        The engine's case.
    lane_server, lanes, lanes_first
        Server of each lane; lanes by worker type, those of type k from ``lanes_first[k]`` on.
    free_bytes
        Free storage of the servers: without limit.
    arrival, chunk_bytes
        By job: r_j [µs], as announced, and u_j [bytes].
    chunk_time, true_chunk_time
        Announced and true p [µs], by job and zeta.
    cloud
        Number of the cloud, -1 if chunks may not be sent there.
    mode
        Reading of Q.
    as_announced
        1 if every chunk takes as long as announced: then the lanes are as believed, and the belief is the truth itself.
    """

    engine: Case
    lane_server: Ints
    lanes: Ints
    lanes_first: Ints
    free_bytes: Ints
    arrival: Ints
    chunk_bytes: Ints
    chunk_time: Ints
    true_chunk_time: Ints
    cloud: int
    mode: int
    as_announced: int


class LaneBooks(NamedTuple):
    """The state of a run.

    Attributes
    ----------
    ledger
        Jobs, PSs, the starts and ends of chunks in the cloud, and the rows of rejections and PSs. A job is co-located
        if it is wholly in the cloud.
    belief, truth
        The lanes.
    costs, weights
        As A_greedy has them.
    lane, postponed, alpha
        Columns of the dispatches, by chunk from ``counters[BASE]`` on; alpha in µs.
    order
        Scratch for the chunks of one job: lane, and chunks postponed.
    due
        Scratch for what is due on the agenda.
    completed
        The jobs completed so far, in order.
    counters
        Numbers; see above.
    """

    ledger: Ledger
    belief: Lanes
    truth: Truth
    costs: CostHeap
    weights: Ints
    lane: Narrow
    postponed: Narrow
    alpha: Floats
    order: Ints
    due: Ints
    completed: Ints
    counters: Ints


def make_case(scenario: Scenario, policy: AOnline) -> LaneCase:
    """The case of a run."""
    cluster, jobs, case = scenario.cluster, scenario.jobs, engine.make_case(scenario)
    lanes = [cluster.lanes_of(kind) for kind in range(len(cluster.worker_types))]
    return LaneCase(
        engine=case,
        lane_server=cluster.lane_server,
        lanes=np.concatenate([np.zeros(0, np.int64), *lanes]),
        lanes_first=np.cumsum([0, *map(len, lanes)]),
        free_bytes=cluster.storage_bytes.copy(),
        arrival=jobs.arrival,
        chunk_bytes=jobs.chunk_bytes,
        chunk_time=scenario.chunk_time,
        true_chunk_time=scenario.true_chunk_time,
        cloud=case.cloud if policy.params.cloud else -1,
        mode=MODES[policy.params.q_mode],
        as_announced=int(scenario.physics.estimate_error == 0),
    )


def make_books(scenario: Scenario, case: LaneCase, *, preemptive: bool, most_rows: int | None = None) -> LaneBooks:
    """The books before the first event.

    Parameters
    ----------
    scenario, case
        The run.
    preemptive
        Whether a chunk that arrives on a lane may displace the one in service.
    most_rows
        Chunks for whose dispatches there is room; None: for those of all jobs.
    """
    cluster, chunks, overhead = scenario.cluster, scenario.jobs.chunks, case.engine.overhead
    max_chunks, rows = int(chunks.max(initial=0)), int(chunks.sum()) if most_rows is None else most_rows
    truth = make_truth(cluster.lanes, chunks, preemptive=preemptive, overhead=overhead)
    belief = truth.lanes
    if not case.as_announced:
        belief = empty_lanes(cluster.lanes, preemptive=preemptive, overhead=overhead)
    return LaneBooks(
        ledger=engine.make_ledger(scenario),
        belief=belief,
        truth=truth,
        costs=_costs_for(belief),
        weights=weight_table(1, max_chunks),
        lane=np.zeros(rows, np.int32),
        postponed=np.zeros(rows, np.int32),
        alpha=np.zeros(rows),
        order=np.zeros((2, max_chunks), np.int64),
        due=np.zeros((64, 3), np.int64),
        completed=np.zeros(len(chunks), np.int64),
        counters=np.zeros(COMPLETED + 1, np.int64),
    )


def _costs_for(lanes: Lanes) -> CostHeap:
    """A cost heap with room for all lanes and their groups."""
    return make_cost_heap(len(lanes.clock), 2 * lanes.rows.shape[1] + 1)


# -- room ------------------------------------------------------------------------------------------------------------


@inlined
def has_rows(books: LaneBooks) -> bool:
    """Whether the ledger has room for an event or a decision.

    At most the jobs with a chunk in service return a PS; one in the cloud is on the agenda. A dispatch has two entries.
    """
    ledger = books.ledger
    return engine.has_room(ledger, len(books.truth.next_event) + ledger.counters[AGENDA] + 2)


@inlined
def can_send(books: LaneBooks, job: int) -> bool:
    """Whether there is room for a dispatch of `job`."""
    end = books.truth.first[job + 1] - books.counters[BASE]
    return end <= len(books.lane) and has_rows(books) and _has_room(books.belief) and _has_room(books.truth.lanes)


@lean
def _has_room(lanes: Lanes) -> bool:
    """Whether every lane has room for one more group."""
    enough, room = True, lanes.rows.shape[1]
    for lane in range(len(lanes.clock)):
        enough = enough and lanes.waiting[lane] + lanes.coming[lane] < room
    return enough


def with_room(books: LaneBooks) -> LaneBooks:
    """The same with room on every lane and in the ledger."""
    lanes, ledger = with_longer_lanes(books.truth.lanes), books.ledger
    belief = lanes if books.belief is books.truth.lanes else with_longer_lanes(books.belief)
    return books._replace(
        # twice what is needed now, so that few further entries do not need more
        ledger=engine.with_room(ledger, 2 * (len(lanes.clock) + int(ledger.counters[AGENDA]) + 2)),
        belief=belief,
        truth=books.truth._replace(lanes=lanes),
        costs=books.costs if belief is books.belief else _costs_for(belief),
    )
