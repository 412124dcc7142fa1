"""What the scheduler knows of the cluster and its jobs. The kernel writes it; policies read it through their view."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.ahead import look_ahead
from skedge.core.engine.engine import AllocationEngine
from skedge.core.engine.lanes import Lanes, bring_to, empty_lanes, read_only
from skedge.core.engine.ledger import ARRIVED, DISPATCHED, STATUS, WAITING
from skedge.core.events import CLOUD
from skedge.core.model.cluster import Ints
from skedge.core.model.job_fields import JobColumns
from skedge.core.model.network import Delays, upload_delay, upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.record.plans import Plans
from skedge.core.record.record import Record

from .books import books_for
from .pending import PendingOrders
from .time_limits import TimeLimits


class State:
    """State of the cluster and of the jobs that have arrived, as known to the scheduler.

    The knowledge of the lanes is a *belief*: announced durations, corrected by facts.

    Attributes
    ----------
    now
        The time of the last event [µs]; the engine of a simulation may be at the next one already.
    dispatches
        Number of dispatches.
    belief
        State of the lanes: as announced, corrected by facts.
    engine
        Allocations, their remaining work, and slots.
    chunk_time, factor
        Time to train a chunk by job and zeta [µs]: as announced, corrected by facts; measured time / announced time.
    in_service
        Whether each server is in service, shape ``(servers,)``.
    plans
        The reservations of the jobs.
    books
        Workers and PSs held by each job, data stored, and at sites the chunks left to train.
    served
        Jobs that have a chunk in service.
    sent, lost
        Lane of each chunk of the dispatched jobs; chunks whose server is out of service, which wait for a re-dispatch.
    record
        The tables of the run that the kernel makes: decisions, PSs, plans.
    limits
        How much of their limited time the jobs have used.
    pending
        Orders that wait until the policy looks at its view or has made all.
    """

    def __init__(self, scenario: Scenario, *, preemptive: bool) -> None:
        self.scenario, physics = scenario, scenario.physics
        self.dispatches = 0
        self._columns: JobColumns | None = None
        self._shown = 0
        self.chunk_time, self.factor = scenario.chunk_time, dict[int, float]()
        overhead = physics.checkpoint_overhead
        self.belief: Lanes = empty_lanes(scenario.cluster.lanes, preemptive=preemptive, overhead=overhead)
        self.engine = AllocationEngine(scenario)
        self.in_service = self.engine.ledger.in_service
        self.books = books_for(scenario, self.engine)
        self.served: set[int] = set()
        self.sent: dict[int, Ints] = {}
        self.lost: dict[int, set[int]] = {}
        self.plans = Plans()
        self.record = Record(scenario, self.plans, self.engine)
        self.now = 0
        self.limits = TimeLimits(scenario)
        self.pending = PendingOrders(self)

    def extend(self, scenario: Scenario) -> None:
        """Add jobs submitted during the run: `scenario` lists them after the present jobs."""
        self.limits.extend(scenario, len(self.scenario.jobs))
        self.chunk_time = np.concatenate([self.chunk_time, scenario.chunk_time[len(self.chunk_time) :]])
        self.scenario, self._columns = scenario, None
        self.books.extend(scenario)
        self.engine.extend(scenario)
        self.record.extend(scenario)

    def release_ps(self, job: int) -> None:
        """Release the PSs of `job`, if it has any, and record how long they served it."""
        self.books.release_ps(job)

    # -- what is asked of it -------------------------------------------------------------------------------------

    @property
    def arrived(self) -> int:
        """Number of jobs that have arrived."""
        return int(self.engine.ledger.counters[ARRIVED])

    @property
    def status(self) -> Ints:
        """State of each job (:mod:`skedge.core.engine.ledger`); it can be written."""
        return self.engine.column(STATUS)

    def name(self, job: int) -> str:
        """Id of `job`."""
        return self.scenario.jobs.ids[job]

    def believed(self, lanes: Ints, weights: Ints | None = None) -> Lanes:
        """The belief, read-only, with `lanes` updated to the present, and what they will do if there are `weights`."""
        bring_to(self.belief, lanes, self.now)
        if weights is not None:
            look_ahead(self.belief, lanes, self.now, weights)
        return read_only(self.belief)

    def columns(self) -> JobColumns:
        """The columns of the jobs that have arrived, read-only."""
        if self._columns is None or self._shown != self.arrived:
            self._columns, self._shown = self.scenario.jobs.first(self.arrived), self.arrived
        return self._columns

    def active(self) -> Ints:
        """Jobs in the system, ascending."""
        return self.engine.in_system()

    def in_system(self, job: int) -> bool:
        """Whether `job` has arrived and not left."""
        return job < self.arrived and self.status[job] in (WAITING, DISPATCHED)

    def is_running(self, job: int) -> bool:
        """Whether `job` holds workers or has a chunk in service."""
        return job in self.served or self.engine.holds(job)

    @property
    def running(self) -> set[int]:
        """Jobs that hold workers or have a chunk in service."""
        return self.served.union(self.engine.holders())

    def wholly_in_cloud(self, job: int) -> bool:
        """Whether the last dispatch of every chunk was to the cloud: zeta of a dispatched job (M10)."""
        return job in self.sent and bool((self.sent[job] == CLOUD).all())

    def upload_delay(self, job: int, server: int) -> int:
        """Upload delay of a chunk of `job` to `server` [µs]."""
        return int(upload_delay(self.scenario.delays, job, server))

    def upload_delays(self, job: int) -> Ints:
        """Upload delay of a chunk of `job` to each server [µs]."""
        return upload_row(self.scenario.delays, job)

    def past_delays(self) -> Delays:
        """Upload delays of the jobs that have arrived."""
        d, n = self.scenario.delays, self.arrived
        return d._replace(lo=d.lo[:n], hi=d.hi[:n], key=d.key[:n], fixed=d.fixed[:n])

    def validate_state(self) -> None:
        """Recompute what the books keep in two forms, and compare.

        Raises
        ------
        StateError
            If the free workers, PS slots or storage are inconsistent with the holdings.
        """
        self.books.validate()
