"""Whether a simulation gets anywhere: a run in which no job gets any further ends with an error that names the jobs.

A run *gets further* when a job arrives or leaves, when a chunk is completed or a slot's chunks are trained, and when an
allocation has trained something by its end or trains now. After :data:`ORDERS` orders for each job in the system (at
most :data:`MOST_ORDERS`), or :data:`EVENTS` events, without that, what the lanes have left is compared with what they
had left at the look before.

The run is stuck if no job has less, no job is still to arrive, and more time has passed than any upload, restore or
horizon takes (docs/model.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.engine.lanes import COUNT, EACH, JOB, LEFT, Lanes
from skedge.core.errors import StuckError
from skedge.core.events import Allocate, Dispatch, Event, Postpone, Reserve, Suspend, Transfer, Upload
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_row
from skedge.core.model.time import SECOND

if TYPE_CHECKING:
    from .world import SimulatedWorld

ORDERS = 1_000
"""Orders for each job in the system from one look at what is left to the next."""

MOST_ORDERS = 20_000
"""Most orders from one look to the next, whatever the number of jobs: a run that is stuck ends within seconds."""

MOST_BOUNDED = 20_000
"""Most orders that are added where preemptions are bounded: what jobs may lose before the bound protects them."""

EVENTS = 100_000
"""Events from one look at what is left to the next, if there are not as many orders."""

COUNTED = frozenset({Allocate, Dispatch, Suspend, Reserve, Postpone, Transfer, Upload})
"""Orders that decide something about a job, without which nothing else of it would be taken away or put off."""

_NOTHING: Ints = np.zeros(0, np.int64)

_NAMED = 5
"""Most jobs that the error names."""


class ProgressWatchdog:
    """Watches one simulation.

    Parameters
    ----------
    world
        The simulation.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self.world, self.since, self.last = world, world.now, world.now
        self.trainings = world.engine.trainings
        self.orders, self.events, self.left = 0, 0, _NOTHING
        sharing = world.scenario.cluster.sharing
        # a job that may be preempted so often and no more may lose its workers as often without training
        self.bound = 0 if sharing is None else sharing.most_preemptions or 0

    def note(self, event: Event) -> None:
        """Process an event; ends the run if it is stuck.

        Raises
        ------
        StuckError
            Names the jobs in the system.
        """
        if event.arrived or event.finished or event.failed or event.trained or len(event.chunks.time):
            self.last = event.time
            self.further(event.time)
            return
        if self.world.engine.trainings != self.trainings:
            # by the event before and its orders
            self.further(self.last)
        self.events, self.last = self.events + 1, event.time
        if self.orders > self._patience() or self.events > EVENTS:
            self._look(event.time)

    def _patience(self) -> int:
        """Orders from one look to the next."""
        jobs = self.world.engine.n_in_system
        return min(ORDERS * jobs, MOST_ORDERS) + min(4 * self.bound * jobs, MOST_BOUNDED)

    def further(self, now: int) -> None:
        """A job got further at `now` [µs]."""
        self.orders, self.events, self.since = 0, 0, now
        self.left, self.trainings = _NOTHING, self.world.engine.trainings

    def _look(self, now: int) -> None:
        """Compare what is left with the look before."""
        left, before = self.world.lane_work(), self.left
        if _trains(self.world) or (len(before) and (left < before).any()):
            self.further(now)
        # an arrival to come may free the others, and a long upload is no standstill
        elif len(before) and self.world.all_arrived and now - self.since > self._longest_wait():
            raise StuckError(self._sentence(now))
        self.left, self.orders, self.events = left, 0, 0

    def _longest_wait(self) -> int:
        """Longest time in which jobs in the system may have to wait for data, a checkpoint or the horizon [µs]."""
        physics, delays = self.world.scenario.physics, self.world.scenario.delays
        uploads = max((int(upload_row(delays, job).max(initial=0)) for job in self.world.engine.in_system()), default=0)
        return max(uploads + physics.checkpoint_overhead, physics.horizon or 0)

    def _sentence(self, now: int) -> str:
        ids, physics = self.world.scenario.jobs.ids, self.world.scenario.physics
        names = [repr(ids[job]) for job in self.world.engine.in_system().tolist()]
        jobs = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        failing = "" if physics.mtbf is None else ", or too few servers are in service at a time"
        return (
            f"the run does not end: from {self.since / SECOND:g} s to {now / SECOND:g} s no job trained anything, and "
            f"none is still to arrive; in the system: {jobs}. Each time the policy puts them off, or they lose their "
            "workers before their data are there and their checkpoint is restored "
            f"({physics.checkpoint_overhead / SECOND:g} s){failing}"
        )


def _trains(world: SimulatedWorld) -> bool:
    """Whether a gang trains now, or chunks are in the cloud or on their way there."""
    engine = world.engine
    return world.chunks_in_cloud() or any(engine.trains(job, world.now) for job in engine.holders())


def lane_work(lanes: Lanes, now: int, jobs: int) -> Ints:
    """Work left on all lanes at `now`, restores included, by job [µs]."""
    total = np.zeros(jobs, np.int64)
    for table, used in ((lanes.rows, lanes.waiting), (lanes.transit, lanes.coming)):
        rows = table[np.arange(table.shape[1]) < used[:, None]]
        np.add.at(total, rows[:, JOB], rows[:, LEFT] + (rows[:, COUNT] - 1) * rows[:, EACH])
    busy = np.flatnonzero(lanes.waiting)
    # the last row of a lane is the one in service, counted as of the lane's clock
    served = lanes.rows[busy, lanes.waiting[busy] - 1, JOB]
    np.subtract.at(total, served, np.maximum(now - lanes.clock[busy], 0))
    return total
