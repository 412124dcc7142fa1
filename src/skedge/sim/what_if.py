"""What-if: the present state of a kernel, changed if wanted, simulated to the end with announced durations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from skedge.core.engine.agenda import CLOUD_ENDS, CLOUD_STARTS, WAKE
from skedge.core.engine.lanes import COUNT, JOB, Lanes, bring_to
from skedge.core.engine.ledger import DISPATCHED
from skedge.core.engine.truth import SWITCHES, TOUCHED
from skedge.core.errors import StuckError
from skedge.core.events import CANCELLED, CLOUD, Dispatch, Event, Order, Reserve, WakeAt
from skedge.core.kernel.drive import drive
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints, Job
from skedge.core.model.network import upload_delay, upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND, whole_slots

from .progress import ProgressWatchdog
from .world import SimulatedWorld


class InCloud(NamedTuple):
    """Untrained chunks of a job in the cloud: their number, start and end [µs]."""

    chunks: int
    start: int
    end: int

    def merge(self, part: InCloud) -> InCloud:
        """Both, as one part: the job completes with the later of them."""
        return InCloud(self.chunks + part.chunks, min(self.start, part.start), max(self.end, part.end))


class Foreseen(NamedTuple):
    """What a forecast has for each job [µs]; jobs for which it never comes are missing.

    Attributes
    ----------
    starts
        When each job in the system next runs: it holds workers or has a chunk in service; the present if it does now.
    completions
        Expected completions of the jobs in the system.
    """

    starts: dict[int, int]
    completions: dict[int, int]


class Present:
    """The state of a run at one moment: what a forecast starts from, and what changes are tried on.

    The methods that change something change the kernel: take a :meth:`copy` for each question.

    Parameters
    ----------
    kernel
        Policy included.
    now
        The present [µs]; that of the kernel if it is earlier.
    in_cloud
        The chunks in the cloud, by job, which the kernel does not track.
    wakes
        Wake-up times requested by the policy [µs].
    """

    def __init__(
        self, kernel: Kernel, now: int, in_cloud: Mapping[int, InCloud] | None = None, wakes: Iterable[int] = ()
    ) -> None:
        self.kernel, self.now = kernel, max(now, kernel.now)
        self.in_cloud, self.wakes, self.submitted = dict(in_cloud or {}), list(wakes), 0

    def copy(self) -> Present:
        """A copy whose kernel has no journal and an empty record, which grow without end."""
        scenario = self.kernel.scenario
        memo: dict[int, Any] = {id(part): part for part in (scenario, scenario.jobs)}
        return deepcopy(self, memo)

    def foresee(self) -> Foreseen:
        """Run the policy to the end on a copy, with no arrivals but those of :meth:`submit`."""
        return self.copy().run_out()

    def run_out(self) -> Foreseen:
        """:meth:`foresee` on this state itself, which nothing else can be asked afterwards."""
        kernel = self.kernel
        foreseen = Foreseen(dict.fromkeys(kernel.running, self.now), {})

        def note(event: Event, _: list[Order]) -> None:
            foreseen.completions.update(dict.fromkeys(event.finished, event.time))
            for job in kernel.running:
                foreseen.starts.setdefault(job, event.time)

        # what is stuck never completes
        with suppress(StuckError):
            drive(kernel, _ForecastWorld(self), note)
        return foreseen

    @property
    def out(self) -> list[int]:
        """Servers that are out of service."""
        out: list[int] = np.flatnonzero(~self.kernel.in_service).tolist()
        return out

    @property
    def out_of_service(self) -> tuple[str, ...]:
        """Ids of the servers that are out of service."""
        return tuple(self.kernel.scenario.cluster.server_ids[server] for server in self.out)

    # -- changes -------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> int:
        """Have a job arrive now, after all of the scenario; returns its number.

        Raises
        ------
        ScenarioError
            If the job does not fit the cluster, or its id is already used.
        """
        scenario = self.kernel.scenario
        last = int(scenario.jobs.arrival[-1]) if len(scenario.jobs) else -1
        # after all arrivals, as jobs are numbered in their order
        self.kernel.extend(scenario.with_job(replace(job, arrival_s=max(self.now, last + 1) / SECOND)))
        self.submitted += 1
        return len(scenario.jobs)

    def resubmit(self, job: int, workers: int) -> int:
        """Cancel a job that has not begun and submit it again with other workers; returns its new number.

        Its uploads take what they took before.
        """
        scenario, cluster = self.kernel.scenario, self.kernel.scenario.cluster
        name = _unused_id(scenario, scenario.jobs.ids[job])
        last = int(scenario.jobs.arrival[-1])
        arrival = pl.lit(max(self.now, last + 1) / SECOND)
        frame = scenario.jobs.frame[[job]].with_columns(id=pl.lit(name), workers=pl.lit(workers), arrival_s=arrival)
        delays = upload_row(scenario.delays, job) / SECOND
        self.cancel(job)
        self.kernel.extend(scenario.with_rows(frame, {name: dict(zip(cluster.server_ids, delays, strict=True))}))
        self.submitted += 1
        return len(scenario.jobs)

    def cancel(self, job: int) -> None:
        """Remove a job that is in the system."""
        self.in_cloud.pop(job, None)
        self.happens(Event(self._instant(), failed=((job, CANCELLED),)))

    def drain(self, server: int) -> None:
        """Take a server out of service; a chunk under way there counts as a whole one elsewhere."""
        lost = self._chunks_on(server)
        for job, _ in lost if server == self.kernel.scenario.cluster.cloud else ():
            self.in_cloud.pop(job, None)
        self.happens(Event(self._instant(), servers=((server, "server_cordoned"),), lost=lost))

    def restore(self, server: int) -> None:
        """Put a server back into service."""
        self.happens(Event(self._instant(), servers=((server, ""),)))

    def happens(self, event: Event) -> list[Order]:
        """Have the kernel answer an event; note the chunks that its orders send to the cloud, and its wake-ups."""
        orders = self.kernel.handle(event)
        self.now = max(self.now, event.time)
        for job in event.left:
            self.in_cloud.pop(job, None)
        for order in orders:
            if isinstance(order, Dispatch):
                self._send_to_cloud(order)
            elif isinstance(order, WakeAt):
                self.wakes.append(order.time)
            elif isinstance(order, Reserve):
                self.wakes += [order.start, order.end]
        self.wakes = [time for time in self.wakes if time > event.time]
        return orders

    def _instant(self) -> int:
        """The present, or the next boundary between slots if time is slotted [µs]."""
        return int(whole_slots(np.array([self.now]), self.kernel.scenario.physics.step)[0])

    def _send_to_cloud(self, order: Dispatch) -> None:
        kernel, cloud, chunks = self.kernel, self.kernel.scenario.cluster.cloud, int((order.lane == CLOUD).sum())
        if not chunks or cloud is None:
            return
        start = kernel.now + int(upload_delay(kernel.scenario.delays, order.job, cloud))
        colocated = int(kernel.wholly_in_cloud(order.job))
        part = InCloud(chunks, start, start + int(kernel.chunk_time[order.job, colocated]))
        cloud_chunks = self.in_cloud.get(order.job)
        self.in_cloud[order.job] = part if cloud_chunks is None else cloud_chunks.merge(part)

    def _chunks_on(self, server: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The untrained chunks on a server, by job; which of a job's chunks on a lane are left makes no difference."""
        kernel, chunks_by_job = self.kernel, dict[int, list[int]]()
        cluster = kernel.scenario.cluster
        lanes = np.flatnonzero(cluster.lane_server == server)
        bring_to(kernel.belief, lanes, self.now)
        groups = [(lane, job, count) for lane in lanes.tolist() for job, count in _jobs_on(kernel.belief, lane)]
        if server == cluster.cloud:
            groups += [(CLOUD, job, part.chunks) for job, part in self.in_cloud.items()]
        for lane, job, count in groups:
            numbers = set(np.flatnonzero(kernel.sent[job] == lane).tolist()) - kernel.lost.get(job, set())
            chunks_by_job.setdefault(job, []).extend(sorted(numbers)[:count])
        return tuple((job, tuple(chunks)) for job, chunks in sorted(chunks_by_job.items()))

    # -- what is left --------------------------------------------------------------------------------------------

    def left(self) -> dict[int, float]:
        """Share of each job in the system that is left to train, in (0, 1]; a chunk under way counts as a whole one."""
        kernel = self.kernel
        lanes = np.arange(len(kernel.belief.clock))
        bring_to(kernel.belief, lanes, self.now)
        on_lanes, total = _chunks_of(kernel.belief, len(kernel.status)), kernel.scenario.jobs.chunks
        shares = {}
        for job in kernel.active().tolist():
            cloud = self.in_cloud.get(job)
            elsewhere = len(kernel.lost.get(job, ())) + (0 if cloud is None else cloud.chunks)
            if kernel.status[job] == DISPATCHED:
                shares[job] = max(int(on_lanes[job]) + elsewhere, 1) / int(total[job])
            else:
                shares[job] = kernel.books.share_left(job, self.now)
        return shares


class _ForecastWorld(SimulatedWorld):
    """A simulation that begins in the state that a kernel believes in."""

    def __init__(self, present: Present) -> None:
        kernel, now = present.kernel, present.now
        physics = replace(kernel.scenario.physics, estimate_error=0.0)
        scenario = kernel.scenario if physics == kernel.scenario.physics else _with_physics(kernel.scenario, physics)
        # the kernel does not know which chunks are ahead: once some are dispatched, none has to wait in the forecast
        super().__init__(kernel, bound_lag=kernel.dispatches == 0)
        self.scenario, self.kernel = scenario, kernel
        self.now, self.dispatches = now, kernel.dispatches
        self.arrivals = self.arrivals[: kernel.arrived + present.submitted]
        if kernel.dispatches:
            self._lanes_from(kernel)
        self.engine.simulate_announced(now)
        self.holding.resume(kernel.books.work)
        self.progress = ProgressWatchdog(self)
        for job, part in present.in_cloud.items():
            self._cloud_from(job, part)
        for time in present.wakes:
            self.note_at(max(time, now), WAKE, -1)
        for order in kernel.limits.last_order.values():
            self.ends.note(replace(order, time=max(order.time, now)))
        self.unsettled = True

    def _lanes_from(self, kernel: Kernel) -> None:
        # the belief becomes the truth of the forecast: same rows, so the same service discipline
        lanes = deepcopy(kernel.belief)
        bring_to(lanes, np.arange(len(lanes.clock)), self.now)
        truth = self.truth = self.truth._replace(lanes=lanes)
        truth.left[: kernel.arrived] = _chunks_of(lanes, len(truth.left))[: kernel.arrived]
        for job, chunks in kernel.lost.items():
            truth.left[job] += len(chunks)
        dispatched = np.flatnonzero(kernel.status == DISPATCHED)
        truth.was_running[dispatched] = [kernel.is_running(job) for job in dispatched.tolist()]
        for job in kernel.active().tolist():
            n = int(self.scenario.jobs.chunks[job])
            # which chunk of a group is next does not matter here, only that it is a different one
            truth.links[truth.first[job] : truth.first[job + 1]] = (np.arange(n) + 1) % n
        n = len(lanes.clock)
        # every lane is marked as touched: none has chosen yet what it serves
        truth.touched[:], truth.marked[:], truth.size[TOUCHED] = np.arange(n), 1, n
        self._check_again(dispatched)

    def _check_again(self, jobs: Ints) -> None:
        """Make the lanes check whether each of these jobs still runs."""
        first = self.truth.size[SWITCHES]
        self.truth.switches[first : first + len(jobs), 0] = jobs
        self.truth.size[SWITCHES] += len(jobs)

    def _cloud_from(self, job: int, part: InCloud) -> None:
        self.truth.left[job] += part.chunks
        if part.start > self.now:
            self.note_at(part.start, CLOUD_STARTS, job, part.chunks)
        else:
            self.truth.in_service[job] += part.chunks
        self.note_at(max(part.end, self.now + 1, part.start + 1), CLOUD_ENDS, job, part.chunks)

    def _colocated(self, order: Dispatch) -> int:
        return int(self.kernel.wholly_in_cloud(order.job))


def _unused_id(scenario: Scenario, name: str) -> str:
    """`name` with as many apostrophes as make it a new id."""
    while name in scenario.jobs.index:
        name += "'"
    return name


def _with_physics(scenario: Scenario, physics: object) -> Scenario:
    return replace(scenario, physics=physics)  # type: ignore[arg-type]


def _chunks_of(lanes: Lanes, jobs: int) -> Ints:
    """Uncompleted chunks of each job on all lanes."""
    total = np.zeros(jobs, np.int64)
    for table, used in ((lanes.rows, lanes.waiting), (lanes.transit, lanes.coming)):
        rows = table[np.arange(table.shape[1]) < used[:, None]]
        np.add.at(total, rows[:, JOB], rows[:, COUNT])
    return total


def _jobs_on(lanes: Lanes, lane: int) -> list[tuple[int, int]]:
    """(job, uncompleted chunks) of each group on a lane or on its way there."""
    parts = (lanes.rows[lane, : lanes.waiting[lane]], lanes.transit[lane, : lanes.coming[lane]])
    return [(int(row[JOB]), int(row[COUNT])) for part in parts for row in part]
