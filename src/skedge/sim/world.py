"""The simulated world: performs orders in virtual time with the true durations, and reports facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from skedge.core.engine import truth as truth_of
from skedge.core.engine.agenda import CLOUD_ENDS, CLOUD_STARTS, JOB_FAILS, SLOT_ENDS, WAKE
from skedge.core.engine.lag import make_lag
from skedge.core.engine.lanes import ARRIVE, COUNT, HEAD, JOB, NO_LINKS, group_of, send, send_chunks, with_room
from skedge.core.engine.ledger import ARRIVED
from skedge.core.engine.timeline import Instant
from skedge.core.events import (
    CLOUD,
    NO_FACTS,
    Allocate,
    Dispatch,
    EndAt,
    Event,
    LaneFacts,
    Order,
    OrderBatch,
    Reject,
    Reserve,
    Suspend,
    Transfer,
    WakeAt,
)
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER, whole_slots

from .compiled import EventLoop
from .ends import JobEnds
from .holding import holding_of
from .progress import COUNTED, ProgressWatchdog, lane_work
from .runs import RunLog

_change_in_cloud: Any = truth_of.change_in_cloud.py_func  # type: ignore[attr-defined]


class SimulatedWorld:
    """One simulation of what a kernel orders; pass both to :func:`skedge.core.kernel.drive.drive`.

    Gangs and elastic allocations are in the kernel's engine, which knows their true work as well; the world has the
    lanes, the cloud, and the chunks at sites.
    """

    def __init__(self, kernel: Kernel, *, bound_lag: bool = True) -> None:
        scenario = kernel.scenario
        jobs, physics, preemptive = scenario.jobs, scenario.physics, bool(kernel.belief.preemptive)
        self.engine = kernel.engine
        self.engine.simulate()
        self.scenario = scenario
        epochs = jobs.frame["epochs"].to_numpy().astype(np.int64)
        self.max_lag: Ints = jobs.max_lag if bound_lag else np.zeros(len(jobs), np.int64)
        self.truth = truth_of.make_truth(
            scenario.cluster.lanes, jobs.chunks, preemptive=preemptive, overhead=physics.checkpoint_overhead,
            lag=make_lag(scenario.cluster.lanes, self.max_lag, epochs, jobs.chunks),
        )  # fmt: skip
        self.log = RunLog(scenario, self.engine)
        self.holding = holding_of(self)
        self.takes_batches = not self.holding.notes
        # a job is seen at the first slot boundary at or after its arrival
        self.arrivals: Ints = whole_slots(jobs.arrival, physics.step)
        self.dispatches = 0
        self.now, self.unsettled, self.slot_noted = 0, False, -1
        self.facts: list[Ints] = []
        self.ends = JobEnds(self)
        self.progress = ProgressWatchdog(self)
        self.loop: EventLoop | None = None
        if self.holding.notes:
            holds: dict[type, Any] = {Allocate: self._allocate, Suspend: self._suspend}
        else:
            holds = {}
        self._performers: dict[type, Any] = {
            **holds,
            Dispatch: self._dispatch,
            OrderBatch: self._batch,
            Reserve: self._reserve,
            WakeAt: self._wake_at,
            Transfer: self.holding.transfer,
            Reject: self._reject,
            EndAt: self.ends.note,
        }

    # -- facts ---------------------------------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        """The next event; None at the end.

        Raises
        ------
        StuckError
            If no job gets any further (:mod:`.progress`).
        """
        if self.loop is not None:
            self.loop.run()
        event = self._next_event()
        if event is not None:
            self.progress.note(event)
            if self.loop is not None:
                self.loop.note(event)
        return event

    def known_until(self) -> int:
        """Until when the engine knows all that happens on servers with slots [µs]."""
        return NEVER

    @property
    def arrived(self) -> int:
        """Number of jobs that have arrived."""
        return int(self.engine.ledger.counters[ARRIVED])

    def _next_event(self) -> Event | None:
        while True:
            until = self._next_change()
            if self.dispatches:
                limit = min(until, self.engine.next_time(len(self.arrivals)))
                reason, until = truth_of.run(self.truth, self.now if self.unsettled else -1, limit)
                self.unsettled = False
                # the buffers are emptied into the log, and the same instant is run again
                if reason == truth_of.FULL:
                    self.drain()
                    continue
                if reason == truth_of.SETTLED:
                    self.now = until
                    return self._start_stop_event()
            instant = self.engine.take_instant(until, len(self.arrivals))
            if instant is None:
                self.drain()
                return None
            self.now, self.unsettled = instant.time, True
            # nothing to report: the loop settles the instant and continues
            event = self._present_event(instant)
            if event is not None:
                return event

    def _next_change(self) -> int:
        """When something happens that the engine does not know of [µs]."""
        return NEVER

    def _start_stop_event(self) -> Event:
        """The jobs that have started or paused at this instant."""
        switches = sorted(self.truth.switches[: self.truth.size[truth_of.SWITCHES]].tolist())
        self.truth.size[truth_of.SWITCHES] = 0
        started = tuple(job for job, running in switches if running)
        paused = tuple(job for job, running in switches if not running)
        return Event(self.now, started=started, paused=paused, chunks=self._chunk_facts())

    def _present_event(self, instant: Instant) -> Event | None:
        """Completions, arrivals and wake-ups of this instant; None if there are none."""
        _, finished, woke, entries, n_arrived = instant
        trained: tuple[tuple[int, Placement], ...] = ()
        if self.dispatches:
            finished += self.truth.done[: self.truth.size[truth_of.DONE]].tolist()
            self.truth.size[truth_of.DONE] = 0
        for kind, job, number in entries:
            if kind == SLOT_ENDS:
                trained = self._slot_ends(finished)
            elif kind == JOB_FAILS:
                self.ends.due.append(job)
            elif self._cloud(kind, job, number):
                finished.append(job)
        failed = self.ends.happen(finished) if self.ends.orders else ()
        if not (finished or failed or n_arrived or woke or trained):
            return None
        chunks = self._chunk_facts() if self.dispatches else NO_FACTS
        arrived = tuple(range(self.arrived, self.arrived + n_arrived)) if n_arrived else ()
        done = tuple(sorted(finished)) if len(finished) > 1 else tuple(finished)
        return Event(self.now, done, failed, arrived=arrived, woke=woke, trained=trained, chunks=chunks)

    def _slot_ends(self, finished: list[int]) -> tuple[tuple[int, Placement], ...]:
        """The chunks trained at sites; completed jobs are added to `finished`."""
        trained, completed = self.holding.end_slot()
        finished += completed
        return trained

    def note_slot(self) -> None:
        """Put the end of the present slot on the agenda, once."""
        slot = self.scenario.physics.slot
        end = (self.now // slot + 1) * slot
        if self.slot_noted < end:
            self.slot_noted = end
            self.note_at(end, SLOT_ENDS, -1)

    def _chunk_facts(self) -> LaneFacts:
        """Chunk completions since the last event."""
        if not self.facts and self.truth.size[truth_of.FACTS] == 0:
            return NO_FACTS
        self._drain_facts()
        table = self.facts[0] if len(self.facts) == 1 else np.concatenate(self.facts)
        self.facts = []
        return LaneFacts(*table.T.copy())

    def _drain_facts(self) -> None:
        self.facts.append(self.truth.facts[: self.truth.size[truth_of.FACTS]].copy())
        self.truth.size[truth_of.FACTS] = 0

    def drain(self) -> None:
        """Empty the output buffers."""
        self._drain_facts()
        self.log.lane_runs(self.truth.runs[: self.truth.size[truth_of.RUNS]])
        self.truth.size[truth_of.RUNS] = 0

    # -- orders --------------------------------------------------------------------------------------------------

    def perform(self, order: Order) -> None:
        """Carry out an accepted order now; ``AssignPS`` and others concern only the kernel's books."""
        kind = type(order)
        if kind in COUNTED:
            self.progress.orders += 1
        perform = self._performers.get(kind)
        if perform is not None:
            perform(order)

    def note_at(self, time: int, kind: int, job: int, number: int = 0) -> None:
        """Put an entry on the agenda; `number` is the number of chunks in the cloud.

        Parameters
        ----------
        time
            [µs]; not before the present.
        kind
            One of the kinds of :mod:`skedge.core.engine.agenda`.
        job, number
            The job, -1 for none; and the number of chunks for those in the cloud.
        """
        self.engine.put(time, kind, job, number)

    def _dispatch(self, order: Dispatch) -> None:
        job, truth, scenario = order.job, self.truth, self.scenario
        if self.max_lag[job]:
            self._dispatch_bounded(order)
            return
        self.truth = truth = truth._replace(lanes=with_room(truth.lanes))
        links = truth.links[truth.first[job] : truth.first[job + 1]] if order.chunks is None else NO_LINKS
        chunk_time, total = int(scenario.true_chunk_time[job, 0]), int(scenario.jobs.chunks[job])
        group = group_of(job, self.dispatches, order.rank, chunk_time, total)
        lane_server, delays = scenario.cluster.lane_server, scenario.delays
        send_chunks(truth.lanes, group, order.lane, lane_server, delays, self.now, links)
        self.dispatches += 1
        # lanes choose what to serve only when all orders of the event are carried out
        self.unsettled = True
        truth_of.arrive_now(truth, order.lane, self.now)
        in_cloud = np.flatnonzero(order.lane == CLOUD)
        if len(in_cloud):
            chunks = in_cloud if order.chunks is None else np.array(order.chunks)[in_cloud]
            self._send_to_cloud(job, chunks, self._colocated(order))

    def _dispatch_bounded(self, order: Dispatch) -> None:
        """Send the chunks of a job with bounded lag, each as its own group, in the cloud to lanes of their own."""
        job, lag, scenario, cluster = order.job, self.truth.lag, self.scenario, self.scenario.cluster
        colocated, first, lanes = self._colocated(order), int(lag.first[job]), order.lane.copy()
        for chunk, order_lane in enumerate(order.lane.tolist()):
            server = cluster.cloud if order_lane == CLOUD else int(cluster.lane_server[order_lane])
            assert server is not None  # noqa: S101 - the kernel has checked the order
            # in the cloud a chunk has a lane of its own, so that it can wait for the slower ones
            lanes[chunk] = lane = int(lag.cloud_lane[job]) + chunk if order_lane == CLOUD else order_lane
            chunk_time = int(scenario.true_chunk_time[job, colocated])
            self._send(lane, server, group_of(job, self.dispatches, order.rank, chunk_time, len(lanes)), chunk)
            lag.lane[first + chunk], lag.leader[first + chunk] = lane, int(np.argmax(lanes == lane))
        self.log.note_colocated(job, colocated)
        self.dispatches += 1
        self.unsettled = True
        truth_of.arrive_now(self.truth, lanes, self.now)

    def _send(self, lane: int, server: int, group: Ints, chunk: int) -> None:
        """Send one chunk as a group of its own."""
        group[COUNT], group[HEAD] = 1, chunk
        group[ARRIVE] = self.now + int(upload_delay(self.scenario.delays, int(group[JOB]), server))
        self.truth = self.truth._replace(lanes=with_room(self.truth.lanes))
        send(self.truth.lanes, lane, group)

    def _colocated(self, order: Dispatch) -> int:
        """zeta_j: 1 if the job is wholly in the cloud. Without failures chunks are sent only once."""
        return int((order.lane == CLOUD).all())

    def _send_to_cloud(self, job: int, chunks: Ints, colocated: int) -> None:
        cloud = self.scenario.cluster.cloud
        assert cloud is not None  # noqa: S101 - the kernel has checked the order
        start = self.now + int(upload_delay(self.scenario.delays, job, cloud))
        end = start + int(self.scenario.true_chunk_time[job, colocated])
        self.log.cloud_runs(job, chunks, start, end, colocated)
        # the cloud has a worker for each chunk, so that all of one dispatch start and end together
        self.note_at(start, CLOUD_STARTS, job, len(chunks))
        self.note_at(end, CLOUD_ENDS, job, len(chunks))

    def _cloud(self, kind: int, job: int, chunks: int) -> bool:
        """Start or end `chunks` chunks of `job` in the cloud; returns whether the job is finished."""
        if self.truth.size[truth_of.SWITCHES] == len(self.truth.switches):
            # where servers fail each chunk in the cloud starts and ends by itself, also at one instant
            longer = np.concatenate([self.truth.switches, self.truth.switches])
            self.truth = self.truth._replace(switches=longer)
        return bool(_change_in_cloud(self.truth, kind, job, chunks))

    def _allocate(self, order: Allocate) -> None:
        self.holding.stop(order.job)
        self.holding.allocate(order)

    def _suspend(self, order: Suspend) -> None:
        self.holding.stop(order.job)

    def _batch(self, batch: OrderBatch) -> None:
        self.progress.orders += len(batch.rows)

    def _reject(self, order: Reject) -> None:
        self.progress.further(self.now)
        self.ends.leave(order.job)

    def leave_cloud(self, job: int) -> None:
        """Take a failed job's chunks off the cloud: their runs end now."""
        self.log.cut(job, self.now)
        self.engine.remove_entries(job, CLOUD_STARTS, CLOUD_ENDS)

    def _reserve(self, order: Reserve) -> None:
        for time in (order.start, order.end):
            if time > self.now:
                self.note_at(time, WAKE, order.job)

    def _wake_at(self, order: WakeAt) -> None:
        self.note_at(order.time, WAKE, -1)

    def lane_work(self) -> Ints:
        """Work left of dispatched chunks on the edge, by job [µs]."""
        return lane_work(self.truth.lanes, self.now, len(self.scenario.jobs))

    def chunks_in_cloud(self) -> bool:
        """Whether chunks are in the cloud or on their way there."""
        return len(self.engine.entries(CLOUD_STARTS, CLOUD_ENDS)) > 0

    @property
    def all_arrived(self) -> bool:
        """Whether no job is still to arrive."""
        return self.arrived == len(self.arrivals)

    def runs(self) -> pl.DataFrame:
        """The runs table so far."""
        self.drain()
        return self.log.table()
