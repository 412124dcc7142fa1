"""Lanes: queues of data chunks on worker slots, and the rule that the highest rank runs first.

The same code serves the kernel's *belief* (announced durations, completions only by facts), the simulated *truth*
(:mod:`skedge.core.engine.truth`), and *projections* into the future (:mod:`skedge.core.engine.projection`).

Each row of a lane is a *group*: the chunks of one job on that lane, which are identical but for their number. Rows are
sorted worst rank first: the group in service is last, so that progress touches only the last row. Groups still being
uploaded are in ``transit``, latest arrival first. The rank is a pair (``RANK``, ``SEQ``), smaller first. For A_online,
RANK is D p, the inverse of the average processing rate gamma = 1/(D p) of JSAC'22 Sec. IV-C. SEQ is the order of
dispatch, so that jobs of equal rate are served first in, first out (ERRATA J28). The rank is frozen at dispatch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.core.model.cluster import Ints
from skedge.core.model.network import Delays, upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

JOB, RANK, SEQ, COUNT, EACH, LEFT, CHUNKS, HEAD, ARRIVE = range(9)
"""Columns of a row: job; rank and sequence; number of chunks; time of a whole chunk and remaining time of the first
one [µs]; D_j of the job (its weight is 1/D_j); number of the first chunk; arrival at the server [µs]."""

FIELDS = 9
_FIRST_ROOM = 16

UNTIL, OF_RANK, OF_SEQ, OF_ARRIVE, OF_EACH, LAST, BETTER, WEIGHT_LEFT, CHUNKS_LEFT = range(9)
"""Columns of ``Lanes.lookahead``: end of a service interval [µs]; RANK, SEQ, ARRIVE and EACH of the group served;
completion of the last chunk that completes in it [µs], -1 if none does; the next interval of a better rank, the number
of intervals if there is none; weight and number of the chunks that complete in it and later."""

UNKNOWN = -1
"""Number of service intervals of a lane that has to be projected anew."""


class Lanes(NamedTuple):
    """State of all lanes.

    Attributes
    ----------
    rows, transit
        Groups at the server and in transit, shape ``(lanes, room, FIELDS)``.
    waiting, coming
        Number of valid groups in each, shape ``(lanes,)``.
    clock
        Time to which each lane has been advanced [µs], shape ``(lanes,)``.
    serving
        SEQ of the group last in service, -1 for none, shape ``(lanes,)``.
    lookahead, n_intervals
        Service intervals of each lane (:mod:`~skedge.core.engine.ahead`), and their number or UNKNOWN.
    passed, tail
        By lane: number of intervals that have ended; the first one after which no group was still to arrive.
    queue
        Scratch space for the groups of a lane, shape ``(room, FIELDS)``.
    scale
        Scale of the weights in ``lookahead``, shape ``(1,)``.
    preemptive
        1: a group of better rank displaces the chunk in service; 0: the chunk in service is finished first.
    overhead
        Time added to a displaced chunk [µs].
    """

    rows: NDArray[np.int64]
    transit: NDArray[np.int64]
    waiting: Ints
    coming: Ints
    clock: Ints
    serving: Ints
    lookahead: NDArray[np.int64]
    n_intervals: Ints
    passed: Ints
    tail: Ints
    queue: Ints
    scale: Ints
    preemptive: int
    overhead: int


_ARRAYS = tuple(name for name in Lanes._fields if name not in ("preemptive", "overhead"))


def empty_lanes(lanes: int, *, preemptive: bool = True, overhead: int = 0, room: int = _FIRST_ROOM) -> Lanes:
    """`lanes` idle lanes at time 0.

    Parameters
    ----------
    lanes
        Number of lanes.
    preemptive, overhead
        See :class:`Lanes`.
    room
        Groups for which each lane has space; :func:`with_room` adds more.
    """
    return Lanes(
        rows=np.zeros((lanes, room, FIELDS), np.int64),
        transit=np.zeros((lanes, room, FIELDS), np.int64),
        waiting=np.zeros(lanes, np.int64),
        coming=np.zeros(lanes, np.int64),
        clock=np.zeros(lanes, np.int64),
        serving=np.full(lanes, -1, np.int64),
        **_empty_lookahead(lanes, room),
        scale=np.zeros(1, np.int64),
        preemptive=int(preemptive),
        overhead=overhead,
    )


def _empty_lookahead(lanes: int, room: int) -> dict[str, Any]:
    """The arrays of the lookahead, all UNKNOWN."""
    # each group has one interval, and each arrival divides at most one: 2 room, and one for the sums' end
    return {
        "lookahead": np.zeros((lanes, 2 * room + 1, FIELDS), np.int64),
        "n_intervals": np.full(lanes, UNKNOWN, np.int64),
        "passed": np.zeros(lanes, np.int64),
        "tail": np.zeros(lanes, np.int64),
        "queue": np.zeros((room, FIELDS), np.int64),
    }


def with_room(lanes: Lanes) -> Lanes:
    """`lanes`, with room for one more group on each lane."""
    n_needed = int((lanes.waiting + lanes.coming).max(initial=0)) + 1
    room = lanes.rows.shape[1]
    if n_needed <= room:
        return lanes
    rows = np.zeros((len(lanes.waiting), 2 * room, FIELDS), np.int64)
    rows[:, :room] = lanes.rows
    coming = np.zeros_like(rows)
    coming[:, :room] = lanes.transit
    return lanes._replace(rows=rows, transit=coming, **_empty_lookahead(len(lanes.waiting), 2 * room))


@inlined
def _place_in_transit(lanes: Lanes, lane: int, arrive: int) -> int:
    """Where a group that arrives then goes in transit: before those that arrive no later."""
    i = lanes.coming[lane]
    while i > 0 and lanes.transit[lane, i - 1, ARRIVE] <= arrive:
        i -= 1
    return i


@lean
def send(lanes: Lanes, lane: int, group: Ints) -> None:
    """Put `group` in transit to `lane`; groups that arrive together keep their order of dispatch."""
    n, i, transit = lanes.coming[lane], _place_in_transit(lanes, lane, group[ARRIVE]), lanes.transit
    for k in range(n, i, -1):
        for f in range(FIELDS):
            transit[lane, k, f] = transit[lane, k - 1, f]
    for f in range(FIELDS):
        transit[lane, i, f] = group[f]
    lanes.coming[lane] = n + 1
    lanes.n_intervals[lane] = UNKNOWN


@inlined
def absorb(lanes: Lanes, lane: int, now: int) -> None:
    """Move the groups that have arrived by `now` into the queue, in order of rank."""
    while lanes.coming[lane] > 0 and lanes.transit[lane, lanes.coming[lane] - 1, ARRIVE] <= now:
        lanes.coming[lane] -= 1
        insert_group(lanes.rows[lane], lanes.waiting[lane], lanes.transit[lane, lanes.coming[lane]])
        lanes.waiting[lane] += 1


@inlined
def insert_group(queue: Ints, n: int, group: Ints) -> None:
    """Put `group` into a queue of `n` groups, worst rank first."""
    i = n
    while i > 0 and (
        queue[i - 1, RANK] < group[RANK] or (queue[i - 1, RANK] == group[RANK] and queue[i - 1, SEQ] < group[SEQ])
    ):
        for f in range(FIELDS):
            queue[i, f] = queue[i - 1, f]
        i -= 1
    for f in range(FIELDS):
        queue[i, f] = group[f]


@inlined
def next_arrival(lanes: Lanes, lane: int) -> int:
    """When the next group reaches `lane` [µs]; NEVER if none is in transit."""
    n = lanes.coming[lane]
    return lanes.transit[lane, n - 1, ARRIVE] if n > 0 else NEVER


@inlined
def pick(lanes: Lanes, lane: int) -> int:
    """Row of the group to serve: the best rank, or, on lanes that do not preempt, the chunk in service if there is one.

    If the choice displaces a chunk, the checkpoint overhead is added to that chunk.
    """
    n, serving = lanes.waiting[lane], lanes.serving[lane]
    if lanes.preemptive == 0:
        for i in range(n):
            # a first chunk with less than a whole one left has been begun, so it is the one in service
            if lanes.rows[lane, i, LEFT] < lanes.rows[lane, i, EACH]:
                return i
    elif lanes.overhead > 0 and serving >= 0 and serving != lanes.rows[lane, n - 1, SEQ]:
        for i in range(n - 1):
            if lanes.rows[lane, i, SEQ] == serving:
                lanes.rows[lane, i, LEFT] += lanes.overhead
        lanes.serving[lane] = -1
    return n - 1


@inlined
def finish_head(lanes: Lanes, lane: int, i: int) -> None:
    """Remove the first chunk of row `i` from the queue."""
    lanes.serving[lane] = -1
    lanes.rows[lane, i, COUNT] -= 1
    lanes.rows[lane, i, LEFT] = lanes.rows[lane, i, EACH]
    if lanes.rows[lane, i, COUNT] == 0:
        lanes.waiting[lane] = _remove_row(lanes.rows, lane, i, lanes.waiting[lane])


@inlined
def _remove_row(table: NDArray[np.int64], lane: int, i: int, n: int) -> int:
    """Remove row `i` of the `n` rows of a lane; returns the number left."""
    for k in range(i, n - 1):
        for f in range(FIELDS):
            table[lane, k, f] = table[lane, k + 1, f]
    return n - 1


@inlined
def believe_until(lanes: Lanes, lane: int, now: int) -> None:
    """Advance `lane` to `now` as announced; an overdue chunk keeps 1 µs until a fact reports its completion.

    Groups that arrive exactly at `now` stay in transit, so that a completion at `now` comes first.
    """
    time = lanes.clock[lane]
    # strictly before `now`: a group that arrives at `now` must not displace a chunk that completes at `now`
    while time < now:
        absorb(lanes, lane, time)
        stop = min(now, next_arrival(lanes, lane))
        if lanes.waiting[lane] > 0:
            i = pick(lanes, lane)
            left = lanes.rows[lane, i, LEFT] - (stop - time)
            # overdue: the projection assumed a completion that has not come
            if left < 1:
                lanes.n_intervals[lane] = UNKNOWN
            lanes.rows[lane, i, LEFT] = max(1, left)
            lanes.serving[lane] = lanes.rows[lane, i, SEQ]
        time = stop
    lanes.clock[lane] = now


@inlined
def advance(lanes: Lanes, lane: int, now: int) -> None:
    """Advance `lane` to `now`, including arrivals at `now`."""
    believe_until(lanes, lane, now)
    absorb(lanes, lane, now)


@lean
def bring_to(lanes: Lanes, lane_ids: Ints, now: int) -> None:
    """:func:`advance` the lanes `lane_ids`."""
    for lane in lane_ids:
        advance(lanes, lane, now)


def read_only(lanes: Lanes) -> Lanes:
    """`lanes` with read-only arrays; a kernel that writes to them does not compile."""
    view = lanes._replace(**{name: getattr(lanes, name).view() for name in _ARRAYS})
    for name in _ARRAYS:
        getattr(view, name).flags.writeable = False
    return view


@inlined
def _row_of(lanes: Lanes, lane: int, job: int) -> int:
    """Row of the group in service if it is `job`'s, else of the job's group in the queue; -1 if there is none.

    In a live run the belief may have a better group arrive slightly before it does.
    """
    n = lanes.waiting[lane]
    if n == 0:
        return -1
    # a fact names the job, not the chunk: the group in service is the likely one
    i = pick(lanes, lane)
    if lanes.rows[lane, i, JOB] == job:
        return i
    for k in range(n):
        if lanes.rows[lane, k, JOB] == job:
            return k
    return -1


@lean
def believe_finished(lanes: Lanes, times: Ints, lane_of: Ints, jobs: Ints) -> int:
    """Correct the belief by completions (time, lane, job); returns the index of the first impossible one, or -1.

    Parameters
    ----------
    lanes
        The lanes as the scheduler believes them; changed in place.
    times, lane_of, jobs
        Of each completed chunk: time [µs], in order on each lane; lane; job.
    """
    for k in range(len(times)):
        lane = lane_of[k]
        # a belief cannot be taken back: facts come in order of time on each lane
        if lanes.clock[lane] > times[k]:
            return k
        believe_until(lanes, lane, times[k])
        i = _row_of(lanes, lane, jobs[k])
        if i < 0:
            return k
        finish_head(lanes, lane, i)
        lanes.n_intervals[lane] = UNKNOWN
    return -1


@lean
def believe_failed(lanes: Lanes, job: int, now: int) -> None:
    """Remove the groups of a job that has failed at `now` from all lanes."""
    for lane in range(len(lanes.waiting)):
        believe_until(lanes, lane, now)
        forget(lanes, lane, job)


@inlined
def has(lanes: Lanes, lane: int, job: int) -> bool:
    """Whether a group of a job is on a lane, or on its way there."""
    present = False
    for i in range(lanes.waiting[lane]):
        present |= lanes.rows[lane, i, JOB] == job
    for i in range(lanes.coming[lane]):
        present |= lanes.transit[lane, i, JOB] == job
    return present


@inlined
def forget(lanes: Lanes, lane: int, job: int) -> None:
    """Remove the groups of a job from a lane; one of another job that is in service stays in service."""
    serving = lanes.serving[lane]
    lanes.waiting[lane] = _remove_job(lanes.rows, lane, lanes.waiting[lane], job)
    lanes.coming[lane] = _remove_job(lanes.transit, lane, lanes.coming[lane], job)
    lanes.serving[lane], lanes.n_intervals[lane] = -1, UNKNOWN
    for i in range(lanes.waiting[lane]):
        if lanes.rows[lane, i, SEQ] == serving:
            lanes.serving[lane] = serving


@lean
def believe_lost(lanes: Lanes, lane: int, job: int, now: int) -> bool:
    """Remove one chunk of a job from a lane whose server is out of service; returns whether there was one.

    Parameters
    ----------
    lanes
        The lanes as the scheduler believes them; changed in place.
    lane, job
        Where the chunk was, and whose it was.
    now
        When the server left service [µs].
    """
    believe_until(lanes, lane, now)
    lanes.serving[lane], lanes.n_intervals[lane] = -1, UNKNOWN
    for i in range(lanes.waiting[lane]):
        if lanes.rows[lane, i, JOB] == job:
            finish_head(lanes, lane, i)
            return True
    for i in range(lanes.coming[lane]):
        if lanes.transit[lane, i, JOB] == job:
            lanes.transit[lane, i, COUNT] -= 1
            if lanes.transit[lane, i, COUNT] == 0:
                lanes.coming[lane] = _remove_row(lanes.transit, lane, i, lanes.coming[lane])
            return True
    return False


@lean
def believe_slower(lanes: Lanes, job: int, factor: float, now: int) -> None:
    """Scale the announced time of the chunks of `job` by `factor`, from `now` on.

    Parameters
    ----------
    lanes
        The lanes as the scheduler believes them; changed in place.
    job, factor
        The job; > 0, new time over the time believed so far.
    now
        Progress up to then is kept as it was [µs].
    """
    for lane in range(len(lanes.waiting)):
        believe_until(lanes, lane, now)
        lanes.n_intervals[lane] = UNKNOWN
        for i in range(lanes.waiting[lane]):
            _scale_times(lanes.rows, lane, i, job, factor)
        for i in range(lanes.coming[lane]):
            _scale_times(lanes.transit, lane, i, job, factor)


@inlined
def _scale_times(table: NDArray[np.int64], lane: int, i: int, job: int, factor: float) -> None:
    if table[lane, i, JOB] == job:
        chunk_time, left = int(table[lane, i, EACH] * factor), int(table[lane, i, LEFT] * factor)
        # rounding must leave neither a chunk of no length, nor more left than a whole chunk
        table[lane, i, EACH] = max(1, chunk_time)
        table[lane, i, LEFT] = max(1, min(chunk_time, left))


@inlined
def _remove_job(table: NDArray[np.int64], lane: int, n: int, job: int) -> int:
    """Remove a job's rows from a lane with `n` rows; returns the number left."""
    n_rows = 0
    for i in range(n):
        if table[lane, i, JOB] != job:
            for f in range(FIELDS):
                table[lane, n_rows, f] = table[lane, i, f]
            n_rows += 1
    return n_rows


Links = NDArray[np.int32]
"""By chunk, the next one of its group; as 32 bits, for there is one of every chunk of a scenario."""

NO_LINKS: Links = np.empty(0, np.int32)
"""Argument of :func:`send_chunks` when individual chunks need not be tracked."""


def group_of(job: int, seq: int, rank: int, chunk_time: int, total: int) -> Ints:
    """The row of a group of chunks of `job`, which has `total` chunks of `chunk_time` µs; what its lane adds is 0.

    Parameters
    ----------
    job, seq, rank
        The job; order of dispatch; RANK, smaller first.
    chunk_time, total
        p_j of a whole chunk [µs], D_j.
    """
    group = np.zeros(FIELDS, np.int64)
    group[JOB], group[RANK], group[SEQ], group[CHUNKS] = job, rank, seq, total
    group[EACH] = group[LEFT] = chunk_time
    return group


@lean
def send_chunks(
    lanes: Lanes, group: Ints, lane_of: Ints, lane_server: Ints, delays: Delays, now: int, links: Links
) -> None:
    """Send chunks of a job to their lanes, one copy of `group` per lane.

    Parameters
    ----------
    lanes
        They have room for a group more on each lane; changed in place.
    group
        Template of the rows (:func:`group_of`); COUNT, HEAD and ARRIVE are overwritten.
    lane_of
        Lane of each chunk, -1: cloud. Shape ``(D,)``.
    lane_server, delays
        Server of each lane, and upload delays, which give ARRIVE.
    now
        Time of the dispatch [µs].
    links
        Shape ``(D,)`` or empty; unless it is empty, ``links[d]`` is set to the next chunk of d's group, and HEAD of a
        group to its first chunk.
    """
    # from the last chunk back, so that each is put before those of its group that follow it
    for d in range(len(lane_of) - 1, -1, -1):
        lane = lane_of[d]
        if lane < 0:
            continue
        group[COUNT], group[HEAD] = 1, d
        group[ARRIVE] = now + upload_delay(delays, group[JOB], lane_server[lane])
        following = _put_first(lanes, lane, group)
        if len(links) > 0:
            links[d] = following


@inlined
def _put_first(lanes: Lanes, lane: int, group: Ints) -> int:
    """Put the chunk of `group` before those of its dispatch on `lane`; returns the next of them, -1 if it is alone."""
    i, transit = _place_in_transit(lanes, lane, group[ARRIVE]), lanes.transit
    if i == lanes.coming[lane] or transit[lane, i, SEQ] != group[SEQ]:
        send(lanes, lane, group)
        return -1
    following = transit[lane, i, HEAD]
    transit[lane, i, HEAD] = group[HEAD]
    transit[lane, i, COUNT] += 1
    lanes.n_intervals[lane] = UNKNOWN
    return following
