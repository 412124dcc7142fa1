"""The interface of policies: what a policy is and what it sees.

A policy author reads this file and ``events.py``.

A policy receives what just happened (:class:`~skedge.core.events.Event`), sees what a scheduler may see (:class:`View`)
and returns orders. It does no I/O, reads no clock, draws only from the generator that it is given, and never sees
a true duration or a future arrival. ``docs/write-a-policy.md`` walks through a complete example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from .events import Event, Order, OrderBatch
from .model.cluster import Cluster, Floats, Ints, Physics
from .model.job_fields import JobColumns
from .model.latency import LatencyCost
from .model.value import Sigmoid

if TYPE_CHECKING:
    from numpy.random import Generator

    from .engine.engine import AllocationEngine
    from .engine.lanes import Lanes
    from .kernel.state import State
    from .model.scenario import Scenario


class Params(BaseModel):
    """Base of a policy's parameters: frozen, checked, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Need = Literal[
    "typed slots",
    "resources",
    "sites",
    "typed slots, resources or sites",
    "a utility of every job",
    "resources with a utility of every job, or sites",
    "a horizon",
]
"""Requirements that a policy may have of a scenario."""


@dataclass(frozen=True, slots=True)
class LaneRule:
    """How lanes serve the chunks that a policy dispatches.

    Attributes
    ----------
    preemptive
        Whether a chunk that is ahead in the order interrupts the one in service.
    rank
        What ``Dispatch.rank`` is: ``haprf``, D p, so that the highest average processing rate goes first (checked by
        M20); ``custom``: the policy's own.
    """

    preemptive: bool = True
    rank: Literal["haprf", "custom"] = "haprf"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Properties of a policy's record that are verified beyond the rules for all policies; None: not guaranteed.

    Attributes
    ----------
    alpha
        The reading of Q that ``Dispatch.alpha`` has (M34).
    uploads
        ``with_allocations``: no upload is ordered ahead of an allocation (M16).
    preempts
        ``never``, or ``for_others``: a suspended job makes room for another (M11).
    ps
        ``ratio``: no more PSs than the job's ratio requires (M28); ``edge_first``: a PS in the cloud only where the
        edge has none (M35).
    plans
        Every job that runs has a plan (M19).
    batches
        The parameters of the prices of batches (M36).
    """

    alpha: str | None = None
    uploads: Literal["with_allocations"] | None = None
    preempts: Literal["never", "for_others"] | None = None
    ps: Literal["ratio", "edge_first"] | None = None
    plans: Literal[True] | None = None
    batches: Mapping[str, Any] | None = None

    def recorded(self) -> dict[str, Any]:
        """The guarantees given, by name, as ``run.json`` has them under ``promises``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@runtime_checkable
class Policy(Protocol):
    """A scheduling policy; :class:`BasePolicy` has the usual answers to all but `name` and `decide`.

    Attributes
    ----------
    name
        Its name on the command line.
    needs
        What it requires of a scenario; the command line reports the requirements that a scenario does not meet.
    params
        Its parameters.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Need]]
    params: Params

    @property
    def lanes(self) -> LaneRule:
        """How lanes serve its dispatches."""

    @property
    def guarantees(self) -> Guarantees:
        """Properties of its record that are verified."""

    @property
    def history(self) -> str:
        """File with the jobs that :meth:`calibrated` takes constants from; empty: the scenario's jobs, or none."""

    def calibrated(self, scenario: Scenario) -> Policy:
        """The policy with the constants that it takes from historical data set, as parameters."""

    def incompatibility(self, cluster: Cluster) -> str | None:
        """The reason why it cannot serve unknown jobs on `cluster`; None if it can."""

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run; create all state here."""

    def decide(self, event: Event, view: View) -> Iterable[Order | OrderBatch]:
        """The orders for `event`. May be a generator: it sees the effect of each order once it looks at its view."""

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:
        """The terms behind the decision on `job`, for ``skedge explain``; None if it reports none.

        Called after the order was made and before it is carried out.
        """


AnyPolicy = str | Policy | type[Policy]
"""Forms of a policy as an argument: ``name`` or ``name:key=value,...``, a policy object, or its class."""


class BasePolicy:
    """Common base class of policies; deriving from it is optional.

    A subclass sets :attr:`name` and, if it takes parameters, :attr:`Parameters`.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[Need]] = frozenset({"typed slots"})
    Parameters: ClassVar[type[Params]] = Params

    def __init__(self, **params: Any) -> None:
        self.params: Any = self.Parameters(**params)

    @property
    def lanes(self) -> LaneRule:
        """Lanes preempt, and their order is highest average processing rate first."""
        return LaneRule()

    @property
    def guarantees(self) -> Guarantees:
        """No guarantee beyond the rules for all policies."""
        return Guarantees()

    @property
    def shares(self) -> bool:
        """Whether it keeps to the tenants and priority classes of a cluster that has them (M40 to M42): False."""
        return False

    @property
    def may_use_cloud(self) -> bool | None:
        """Whether it may send to the cloud what the edge could hold; None: what it does tells.

        Comparisons decide nothing between a policy that may and one that may not.
        """
        return None

    @property
    def history(self) -> str:
        """The scenario's own jobs."""
        return ""

    def calibrated(self, scenario: Scenario) -> Policy:  # noqa: ARG002 - for policies that take constants
        """The policy itself: it takes no constants from data."""
        return self

    def incompatibility(self, cluster: Cluster) -> str | None:  # noqa: ARG002 - for policies that cannot serve every cluster
        """None: it can serve every cluster."""
        return None

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Store the cluster, the physics and the generator of the run."""
        self.cluster, self.physics, self.rng = cluster, physics, rng

    def decide(self, event: Event, view: View) -> Iterable[Order | OrderBatch]:
        """The orders for `event`."""
        raise NotImplementedError

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:  # noqa: ARG002 - for policies that report terms
        """None: it reports no terms."""
        return None


class ActivePolicy(Protocol):
    """A policy's algorithm for one kind of cluster, started for a run; the parts of :class:`Policy` that a run uses."""

    def decide(self, event: Event, view: View) -> Iterable[Order | OrderBatch]:
        """As :meth:`Policy.decide`."""

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:
        """The terms behind the decision on `job`, for ``skedge explain``."""


T = TypeVar("T")


class PolicyByKind(BasePolicy):
    """Base of a policy that is one algorithm for each kind of cluster.

    A run calls one of :meth:`on_slots`, :meth:`on_resources` and :meth:`at_sites`, which imports only the module of
    that kind (ADR 20).
    """

    def on_slots(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """The algorithm for servers with typed slots, started."""
        raise NotImplementedError

    def on_resources(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """The algorithm for servers with resources, started."""
        raise NotImplementedError

    def at_sites(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """The algorithm for sites, started."""
        raise NotImplementedError

    @staticmethod
    def of_kind(cluster: Cluster, **choices: T) -> T:
        """The one of `choices`, by kind of cluster, that is for this cluster."""
        return choices[cluster.kind]

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        begin = self.of_kind(cluster, slots=self.on_slots, resources=self.on_resources, sites=self.at_sites)
        self.started = begin(cluster, physics, rng)

    def decide(self, event: Event, view: View) -> Iterable[Order | OrderBatch]:
        """The orders of the algorithm."""
        return self.started.decide(event, view)

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:
        """The terms of the algorithm."""
        return self.started.terms(job, view)


class View:
    """Read-only view of what a scheduler may see: the announced data of the arrived jobs, and the kernel's books.

    Arrays by job cover the arrived jobs only. Times are in µs, work is in worker-µs.
    """

    def __init__(self, state: State) -> None:
        self._of = state

    @property
    def _state(self) -> State:
        """What the kernel knows, with the orders so far."""
        state = self._of
        if state.pending.orders:
            state.pending.apply()
        return state

    @property
    def engine(self) -> AllocationEngine:
        """The arrays of the run, for policies whose decisions are compiled; only the kernel changes them."""
        return self._state.engine

    @property
    def now(self) -> int:
        """The present [µs]."""
        return self._state.now

    @property
    def cluster(self) -> Cluster:
        """Servers and their slots."""
        return self._state.scenario.cluster

    @property
    def arrived(self) -> int:
        """Number of jobs that have arrived: jobs 0 .. arrived - 1."""
        return self._state.arrived

    def job_id(self, job: int) -> str:
        """Name of `job`."""
        return self._state.scenario.jobs.ids[self._arrived_job(job)]

    def _arrived_job(self, job: int) -> int:
        if not 0 <= job < self.arrived:
            raise IndexError(f"job {job} has not arrived; jobs 0 to {self.arrived - 1} have")
        return job

    @property
    def jobs(self) -> JobColumns:
        """The announced jobs as columns: ``view.jobs.workers[job]``, and so on.

        Raises
        ------
        UnknownColumnError
            If there is no such column; the message lists the columns.
        """
        return self._state.columns()

    def utility(self, job: int) -> Sigmoid | None:
        """Value of `job` as a function of its training time in slots; None if not specified."""
        return self._state.scenario.jobs.utility[self._arrived_job(job)]

    def user(self, job: int) -> str:
        """User who submitted `job`; empty if not specified. Jobs of one user have one number in ``jobs.user``."""
        return self._label("user", job)

    def gpu_type(self, job: int) -> str:
        """GPU that `job` asked for; empty if not specified. Its number is in ``jobs.gpu_type``."""
        return self._label("gpu_type", job)

    def _label(self, name: str, job: int) -> str:
        jobs = self._state.scenario.jobs
        return jobs.names[name][int(getattr(jobs, name)[self._arrived_job(job)])]

    @property
    def chunk_time(self) -> Ints:
        """Time to train a chunk, p [µs], for zeta = 0 and 1, shape ``(arrived, 2)``; corrected in live runs."""
        return _read_only(self._state.chunk_time[: self.arrived])

    @property
    def work(self) -> Ints:
        """Announced work of a gang, D p [worker-µs], at zeta = 0 and 1, shape ``(arrived, 2)``."""
        return _read_only(self._state.engine.ledger.announced[: self.arrived])

    def upload_delay(self, job: int, server: int) -> int:
        """Upload delay of a chunk of `job` to `server` [µs]."""
        return self._state.upload_delay(self._arrived_job(job), server)

    def upload_delays(self, job: int) -> Ints:
        """Upload delay of a chunk of `job` to each server [µs], shape ``(servers,)``."""
        return self._state.upload_delays(self._arrived_job(job))

    @property
    def active(self) -> Ints:
        """Jobs that have arrived and have neither finished nor been rejected, ascending."""
        return self._state.active()

    def is_running(self, job: int) -> bool:
        """Whether `job` holds workers (gang) or has a chunk in service (dispatch)."""
        return self._state.is_running(job)

    @property
    def workers(self) -> Ints:
        """Workers held by each arrived job through allocations, shape ``(arrived,)``."""
        return _read_only(self._state.engine.workers_held[: self.arrived])

    def wholly_in_cloud(self, job: int) -> bool:
        """Whether the last dispatch of every chunk of `job` was to the cloud."""
        return self._state.wholly_in_cloud(self._arrived_job(job))

    def placement(self, job: int) -> tuple[tuple[int, int], ...]:
        """(server, workers) pairs held by `job` now."""
        return self._state.engine.placement(self._arrived_job(job))

    def data(self, job: int) -> tuple[tuple[int, int], ...]:
        """(server, workers) pairs: number of workers of `job` whose data are on the server or on their way to it."""
        return tuple(self._state.engine.data(self._arrived_job(job)).items())

    def chunks_left(self, job: int) -> Ints:
        """Untrained chunks of `job` by site, shape ``(servers,)``; for clusters of sites."""
        return _read_only(self._state.books.chunks_left(self._arrived_job(job)))

    @property
    def slot_chunks(self) -> Floats:
        """Chunks that one worker trains per slot, rho / E of Okita, shape ``(arrived,)``."""
        return _read_only(self._state.scenario.slot_chunks[: self.arrived])

    def latency(self, job: int) -> LatencyCost | None:
        """Cost of the response time of `job` in slots; None if not specified."""
        return self._state.scenario.jobs.latency[self._arrived_job(job)]

    def remaining(self, jobs: Ints) -> Ints:
        """Announced remaining gang work of `jobs` [worker-µs], at least 1."""
        state = self._state
        return state.engine.remaining(jobs, state.now, state.arrived)

    def share_left(self, jobs: Ints) -> Floats:
        """Fraction of the announced gang work of `jobs` that remains, in (0, 1]."""
        return self.remaining(jobs) / self._state.engine.total_work(jobs)

    @property
    def in_service(self) -> Any:
        """Whether each server is in service, shape ``(servers,)``; always true in a simulation without failures."""
        return _read_only(self._state.in_service)

    @property
    def capacity(self) -> Ints:
        """Workers of the servers in service, shape ``(servers, worker types)``."""
        return _read_only(self._state.engine.ledger.capacity)

    @property
    def free_workers(self) -> Ints:
        """Workers of the servers in service not held by any job, shape ``(servers, worker types)``."""
        return _read_only(self._state.engine.ledger.free)

    @property
    def amounts(self) -> Floats:
        """Capacity of the servers in service for each resource other than slots, shape ``(servers, resources)``."""
        return _read_only(self._state.books.amounts)

    @property
    def free(self) -> Floats:
        """The part of :attr:`amounts` not held by any job."""
        return _read_only(self._state.books.free)

    @property
    def ps_job(self) -> Ints:
        """The job that each PS slot serves, -1 for none, shape ``(ps slots,)``.

        A slot of a server out of service has a number that is no job's.
        """
        return _read_only(self._state.engine.ledger.ps_job)

    def ps_of(self, job: int) -> int | None:
        """PS slot of `job` (CLOUD = -1), None if it has none; on servers with slots."""
        return self._state.engine.ps_of(job)

    def ps_placement(self, job: int) -> tuple[tuple[int, int], ...]:
        """(place, PSs) pairs held by `job` now, as in ``Allocate.ps``."""
        return self._state.books.ps_placement(self._arrived_job(job))

    @property
    def free_bytes(self) -> Ints:
        """Free storage of each server [bytes], shape ``(servers,)``; 2**62 for no limit.

        A chunk fits where this is at least its ``chunk_bytes``.
        """
        return _read_only(self._state.books.storage.free)

    def belief(self, lanes: Ints, weights: Ints | None = None) -> Lanes:
        """The announced state of all lanes, read-only, with those in `lanes` updated to the present.

        For the costs of :mod:`skedge.core.engine.projection` and, if `weights` are given, those of
        :mod:`skedge.core.engine.ahead`. Other lanes may show an earlier state.
        """
        return self._state.believed(lanes, weights)

    def delays(self) -> Any:
        """Upload delays of the arrived jobs, for compiled searches (:mod:`skedge.core.model.network`)."""
        return self._state.past_delays()

    def next_seq(self) -> int:
        """The sequence number of the next ``Dispatch``."""
        return self._state.dispatches


def _read_only(array: Any) -> Any:
    """A read-only view of `array`: only the kernel writes it."""
    view = array[:]
    # the slice has flags of its own: the kernel goes on writing the array
    view.flags.writeable = False
    return view
