"""Forecast: the present state of a kernel, simulated to the end with announced durations and no further arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from skedge.core.drive import drive
from skedge.core.events import Dispatch, Event, Order
from skedge.core.kernel import Kernel
from skedge.core.lanes.lanes import COUNT, JOB, Lanes, bring_to
from skedge.core.model import Ints
from skedge.core.scenario import Scenario
from skedge.core.state import DISPATCHED

from .lanes import TOLD, TOUCHED
from .world import CLOUD_ENDS, CLOUD_STARTS, WAKE, SimulatedWorld


class InCloud(NamedTuple):
    """Untrained chunks of a job in the cloud: their number, start and end [µs]."""

    chunks: int
    start: int
    end: int


def forecast(
    kernel: Kernel, now: int, in_cloud: Mapping[int, InCloud] | None = None, wakes: Iterable[int] = ()
) -> dict[int, int]:
    """Expected completion of each job in the system [µs], by running the policy on a copy of the kernel.

    Parameters
    ----------
    kernel
        Not changed.
    now
        The present [µs], not before the kernel's present.
    in_cloud
        The chunks in the cloud, by job, which the kernel does not track.
    wakes
        Wake-up times requested by the policy [µs].

    Returns
    -------
    Completions by job. Jobs that will never complete in the present state (servers out of service) are omitted.
    """
    copy = _copy(kernel)
    world = _Ahead(copy, now, in_cloud or {}, wakes)
    completions: dict[int, int] = {}

    def note(event: Event, _: list[Order]) -> None:
        completions.update(dict.fromkeys(event.finished, event.time))

    drive(copy, world, note)
    return completions


def _copy(kernel: Kernel) -> Kernel:
    """A copy of `kernel` without its journal and its record, which grow without end."""
    scenario, plans = kernel.scenario, deepcopy(kernel.plans)
    memo: dict[int, Any] = {id(part): part for part in (scenario, scenario.jobs)}
    memo |= {id(kernel.journal): None, id(kernel.plans): plans, id(kernel.record): kernel.record.emptied(plans)}
    return deepcopy(kernel, memo)


class _Ahead(SimulatedWorld):
    """A simulation that begins in the state that a kernel believes in."""

    def __init__(self, kernel: Kernel, now: int, in_cloud: Mapping[int, InCloud], wakes: Iterable[int]) -> None:
        physics = replace(kernel.scenario.physics, estimate_error=0.0)
        scenario = kernel.scenario if physics == kernel.scenario.physics else _with(kernel.scenario, physics)
        # the kernel does not know which chunks are ahead, so the forecast assumes that none has to wait
        super().__init__(scenario, preemptive=bool(kernel.belief.preemptive), bound_lag=False)
        self.kernel = kernel
        self.now, self.arrived, self.dispatches = now, kernel.arrived, kernel.dispatches
        self.arrivals = self.arrivals[: kernel.arrived]
        self._lanes_from(kernel)
        self.gangs = deepcopy(kernel.gangs)
        self.holding.resume(kernel.books.work)
        for job, part in in_cloud.items():
            self._cloud_from(job, part)
        for time in wakes:
            self._note(max(time, now), WAKE, -1)
        self.unsettled = True

    def _lanes_from(self, kernel: Kernel) -> None:
        lanes = deepcopy(kernel.belief)
        bring_to(lanes, np.arange(len(lanes.clock)), self.now)
        truth = self.truth = self.truth._replace(lanes=lanes)
        truth.left[:] = _chunks_of(lanes, len(truth.left))
        for job, chunks in kernel.lost.items():
            truth.left[job] += len(chunks)
        dispatched = np.flatnonzero(kernel.standing == DISPATCHED)
        truth.was_running[dispatched] = [kernel.is_running(job) for job in dispatched.tolist()]
        for job in kernel.active().tolist():
            n = int(self.scenario.jobs.chunks[job])
            # which chunk of a group is next does not matter here, only that it is a different one
            truth.links[truth.first[job] : truth.first[job + 1]] = (np.arange(n) + 1) % n
        n = len(lanes.clock)
        truth.touched[:], truth.marked[:], truth.size[TOUCHED] = np.arange(n), 1, n
        self._tell_again(dispatched)

    def _tell_again(self, jobs: Ints) -> None:
        """Make the lanes check whether each of these jobs still runs."""
        first = self.truth.size[TOLD]
        self.truth.told[first : first + len(jobs), 0] = jobs
        self.truth.size[TOLD] += len(jobs)

    def _cloud_from(self, job: int, part: InCloud) -> None:
        self.truth.left[job] += part.chunks
        if part.start > self.now:
            self._note(part.start, CLOUD_STARTS, job, part.chunks)
        else:
            self.truth.in_service[job] += part.chunks
        self._note(max(part.end, self.now + 1, part.start + 1), CLOUD_ENDS, job, part.chunks)

    def _zeta(self, order: Dispatch) -> int:
        return int(self.kernel.wholly_in_cloud(order.job))


def _with(scenario: Scenario, physics: object) -> Scenario:
    return replace(scenario, physics=physics)  # type: ignore[arg-type]


def _chunks_of(lanes: Lanes, jobs: int) -> Ints:
    """Uncompleted chunks of each job on all lanes."""
    total = np.zeros(jobs, np.int64)
    for table, used in ((lanes.rows, lanes.waiting), (lanes.transit, lanes.coming)):
        rows = table[np.arange(table.shape[1]) < used[:, None]]
        np.add.at(total, rows[:, JOB], rows[:, COUNT])
    return total
