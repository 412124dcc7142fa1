"""The books: what each job holds on the servers. One class per kind of cluster, chosen once by :func:`books_for`.

=============  ==============================  ===================================  ===============================
               typed slots                     resources                            sites
=============  ==============================  ===================================  ===============================
papers         JSAC'22, She et al.             PD-ORS                               Okita
workers        slots of a type (M4, M5)        amounts of resources (M26, M27)      amounts of resources
a job's PS     a slot, or the cloud (M13)      (server, PSs) pairs (M28)            one, on a site (M32)
data           uploaded to servers             uploaded to servers                  stored at sites, moved (M31)
=============  ==============================  ===================================  ===============================
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from skedge.core.colocation import colocated
from skedge.core.engine.engine import AllocationEngine
from skedge.core.engine.ledger import COMPUTE_FROM, NO_PS, PS, SINCE
from skedge.core.engine.orders import ALLOCATE, ALLOCATE_EACH, TRAIN_AT_SITES
from skedge.core.errors import OrderError, StateError
from skedge.core.events import CLOUD, OUT_OF_SERVICE, VERBS, Allocate, Transfer
from skedge.core.model.cluster import Floats, Ints, Placement
from skedge.core.model.scenario import Scenario

from .resources import Pool, SitePool
from .site_work import UntrainedChunks
from .storage import Storage

_ASSIGN_PS = VERBS.index("assign_ps")


def books_for(scenario: Scenario, engine: AllocationEngine) -> Books:
    """Empty books for a scenario's cluster."""
    kinds = {"slots": Books, "resources": ResourceBooks, "sites": SiteBooks}
    return kinds[scenario.cluster.kind](scenario, engine)


class Books:
    """The books of servers with typed slots, which are in the engine's ledger; the other kinds derive from it.

    Attributes
    ----------
    storage
        Free storage.
    pool
        Free resources; None if servers have slots.
    work
        Chunks left to train by site, in a cluster of sites; otherwise None.
    in_rows
        Whether several orders about workers are checked and carried out together, as rows.
    """

    in_rows: ClassVar[bool] = True
    pool: Pool | None = None
    work: UntrainedChunks | None = None

    def __init__(self, scenario: Scenario, engine: AllocationEngine) -> None:
        self.scenario, self.cluster, self.engine = scenario, scenario.cluster, engine
        self.in_service = engine.ledger.in_service
        self.storage = Storage(scenario.cluster, scenario.jobs)

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        self.scenario = scenario
        self.storage.jobs = scenario.jobs

    # -- workers -------------------------------------------------------------------------------------------------

    def allocate(self, order: Allocate, reason: int) -> None:
        """Start the workers of `order` once their data are there; the engine checks it.

        Raises
        ------
        OrderError
            If it breaks a rule.
        """
        job, verb = order.job, ALLOCATE if order.gang else ALLOCATE_EACH
        if len(order.ps) != 1 or order.ps[0][1] != 1:
            name = self.scenario.jobs.ids[job]
            raise OrderError("M12", f"job {name!r} is given the PSs {order.ps!r}; it has one, in a slot or the cloud")
        rule = self.engine.allocate(job, order.where, order.ps[0][0], verb, reason, order.value)
        if rule > 0:
            self._make_way(order)
            self.check(order)
            raise StateError(f"{order!r} is refused by M{rule}, which it keeps")

    def _make_way(self, order: Allocate) -> None:
        """An allocation replaces the one before: what the job holds counts as free while the new one is checked."""
        job = order.job
        if self.engine.has_run(job) and self.engine.is_elastic(job) == order.gang:
            name = self.scenario.jobs.ids[job]
            raise OrderError("M24", f"job {name!r} is a gang in some allocations and not in others")
        if self.engine.holds(job):
            self.release(job)
            self.engine.stop(job)

    def check(self, order: Allocate) -> None:
        """Say what is wrong with an order whose job holds no workers.

        Raises
        ------
        OrderError
            If a server does not exist (M1), is listed twice (M4), is out of service (M25) or has too few free workers
            of the job's type (M4), their number is 0 or exceeds its chunks (M5), or the PS cannot be taken.
        """
        job = order.job
        self.check_servers(job, order.where)
        self.check_in_service(job, order.where)
        name, jobs = self.scenario.jobs.ids[job], self.scenario.jobs
        kind, total = int(jobs.worker_type[job]), sum(n for _, n in order.where)
        if not 1 <= total <= jobs.chunks[job] or min(n for _, n in order.where) < 1:
            raise OrderError("M5", f"job {name!r} has {jobs.chunks[job]} chunks; {total} workers are given")
        for server, n in order.where:
            free = int(self.engine.ledger.free[server, kind]) if kind >= 0 else 0
            if server != self.cluster.cloud and free < n:
                label = self.cluster.label(server)
                raise OrderError("M4", f"job {name!r} is given {n} workers on {label!r}; {free} are free")
        self.check_ps(job, order.ps[0][0])

    def release(self, job: int) -> None:
        """Release what `job` holds beside its workers in slots."""

    def finish(self, job: int) -> None:
        """`job` completes: release what it holds beside workers and a PS in slots."""

    def begins(self, job: int) -> int:
        """When workers held by `job` begin to compute [µs]."""
        return int(self.engine.column(COMPUTE_FROM)[job])

    def most_workers(self, job: int) -> tuple[str, int]:
        """The rule that limits the workers of `job`, and the limit."""
        return "M5", int(self.scenario.jobs.chunks[job])

    # -- parameter servers ---------------------------------------------------------------------------------------

    def check_ps(self, job: int, slot: int) -> None:
        """Check that the PS in this slot, or in the cloud, can serve `job`.

        Raises
        ------
        OrderError
            If the cluster has no cloud (M13), the slot has another type or serves another job (M13), or it is out of
            service (M25).
        """
        name, cloud, ps_job = self.scenario.jobs.ids[job], self.cluster.cloud, self.engine.ledger.ps_job
        if slot == CLOUD and cloud is None:
            raise OrderError("M13", f"job {name!r} is given a PS in the cloud, which this cluster does not have")
        if slot == CLOUD and not self.in_service[cloud]:
            raise OrderError("M25", f"job {name!r} is given a PS in the cloud, which is out of service")
        if slot == CLOUD:
            return
        if not 0 <= slot < len(ps_job) or self.cluster.ps_type[slot] != self.scenario.jobs.ps_type[job]:
            raise OrderError("M13", f"job {name!r} is given a PS slot of the wrong type")
        if ps_job[slot] == OUT_OF_SERVICE:
            raise OrderError("M25", f"job {name!r} is given PS slot {slot}, whose server is out of service")
        if ps_job[slot] >= 0:
            raise OrderError("M13", f"PS slot {slot} serves job {self.scenario.jobs.ids[ps_job[slot]]!r} already")

    def check_assign(self, job: int) -> None:
        """Reject a PS that is assigned without an allocation, unless PSs are slots."""

    def release_ps(self, job: int) -> None:
        """Release the PSs of `job`, if it has any, and record how long they served it."""
        self.engine.release_ps(job)

    def has_ps(self, job: int) -> bool:
        """Whether `job` has a PS."""
        return self.engine.ps_of(job) is not None

    def with_ps(self) -> list[int]:
        """The jobs that have a PS."""
        jobs: list[int] = np.flatnonzero(self.engine.column(PS) != NO_PS).tolist()
        return jobs

    def ps_placement(self, job: int) -> Placement:
        """(place, PSs) pairs of `job`, as in ``Allocate.ps``."""
        slot = self.engine.ps_of(job)
        return () if slot is None else ((slot, 1),)

    def ps_servers(self, job: int) -> list[int]:
        """Servers that hold the PSs of `job`."""
        return [int(self.cluster.ps_places[place]) for place, _ in self.ps_placement(job)]

    def ps_elsewhere(self) -> Ints:
        """(job, server) rows of the PSs that are no slots."""
        return np.zeros((0, 2), np.int64)

    # -- data at sites -------------------------------------------------------------------------------------------

    def trained(self, job: int, pairs: Placement) -> None:
        """Record chunks trained by workers at sites."""
        raise _not_there(job, pairs)

    def check_upload(self, job: int) -> None:
        """Reject an upload if data are stored at sites."""

    def transfer(self, order: Transfer, now: int) -> None:  # noqa: ARG002 - sites ask for it
        """Move chunks between sites.

        Raises
        ------
        OrderError
            If the servers are not sites, the chunks are not there, or they return within one instant (M31).
        """
        raise OrderError("M31", f"job {self.scenario.jobs.ids[order.job]!r}: a transfer needs a cluster of sites")

    def share_left(self, job: int, now: int) -> float:
        """Share of a gang's work that is left to train, in (0, 1]."""
        return float(self.engine.left_of(job, now) / self.engine.total_work(np.array([job]))[0])

    def chunks_left(self, job: int) -> Ints:  # noqa: ARG002 - sites ask for it
        """Untrained chunks of `job` by site, shape ``(servers,)``."""
        raise StateError("chunks_left needs a cluster of sites (transfer_cost)")

    # -- servers -------------------------------------------------------------------------------------------------

    @property
    def amounts(self) -> Floats:
        """Capacity of the servers in service for each resource other than slots, shape ``(servers, resources)``."""
        return self.cluster.amounts

    @property
    def free(self) -> Floats:
        """What of :attr:`amounts` no job holds."""
        return self.cluster.amounts

    def serve(self, server: int, *, back: bool) -> None:
        """Take what is no slot on `server`, which no job uses, out of service or back into it."""
        if not back:
            self.storage.lose(server)

    def check_servers(self, job: int, placement: Placement, noun: str = "worker") -> None:
        """Reject a placement without servers (M5), on an unknown server (M1), or with a server listed twice (M4)."""
        count = len(self.in_service)
        if len(placement) == 1 and 0 <= placement[0][0] < count:
            return  # the usual case of a gang
        name, servers = self.scenario.jobs.ids[job], {server for server, _ in placement}
        if not servers:
            raise OrderError("M5", f"job {name!r} is given no {noun}; suspend it instead")
        if not 0 <= min(servers) <= max(servers) < count:
            raise OrderError("M1", f"job {name!r} is given {placement!r}; servers are numbered 0 to {count - 1}")
        if len(servers) < len(placement):
            raise OrderError("M4", f"job {name!r} is given {placement!r}; each server must be listed once")

    def check_in_service(self, job: int, placement: Placement) -> None:
        """Reject a placement on a server that is out of service (M25)."""
        for server, _ in placement:
            if not self.in_service[server]:
                name, label = self.scenario.jobs.ids[job], self.cluster.label(server)
                raise OrderError("M25", f"job {name!r} is given {label!r}, which is out of service")

    def validate(self) -> None:
        """Recompute what is kept in two forms, and compare.

        Raises
        ------
        StateError
            If the free amounts are inconsistent with the holdings.
        """
        engine, free = self.engine, self.engine.ledger.capacity.copy()
        for job in engine.holders():
            for server, n in engine.placement(job):
                if server != self.cluster.cloud:
                    free[server, self.scenario.jobs.worker_type[job]] -= n
        if (free != engine.ledger.free).any() or (free < 0).any():
            raise StateError("free workers do not follow from the placements")
        slots = {job: slot for job in self.with_ps() if (slot := engine.ps_of(job)) != CLOUD}
        if slots != {int(j): int(p) for p, j in enumerate(engine.ledger.ps_job) if 0 <= j < OUT_OF_SERVICE}:
            raise StateError("PS slots do not follow from who holds them")
        self.storage.validate()


class ResourceBooks(Books):
    """The books of servers with resources.

    Attributes
    ----------
    ps_of, ps_since
        (server, PSs) pairs of each job that has PSs, and since when [µs].
    """

    ledger: ClassVar[type[Pool]] = Pool
    in_rows = False

    def __init__(self, scenario: Scenario, engine: AllocationEngine) -> None:
        super().__init__(scenario, engine)
        engine.leave_slots()
        self.pool: Pool = self.ledger(scenario.cluster, scenario.jobs)
        self.ps_of: dict[int, Placement] = {}
        self.ps_since: dict[int, int] = {}

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        super().extend(scenario)
        self.pool.jobs = scenario.jobs

    def check(self, order: Allocate) -> None:
        """Check the servers of the workers and PSs of `order`; amounts are checked as they are taken."""
        job = order.job
        self.check_servers(job, order.where)
        self.check_in_service(job, order.where)
        self.check_servers(job, order.ps, "PS")
        self.check_in_service(job, order.ps)

    def allocate(self, order: Allocate, reason: int) -> None:
        """Take the resources of `order` and start its workers; its PSs are decisions of their own in the record."""
        self._make_way(order)
        self.check(order)
        self.pool.take(order.job, order.where, order.ps)
        self._begin(order, reason)
        self.ps_of[order.job], self.ps_since[order.job] = order.ps, self.engine.now
        for server, n in sorted(order.ps):
            self.engine.add_decision(order.job, _ASSIGN_PS, server, n, reason, None)

    def _begin(self, order: Allocate, reason: int) -> None:
        verb, free = ALLOCATE if order.gang else ALLOCATE_EACH, colocated(self.scenario, order)
        self.engine.allocate(order.job, order.where, NO_PS, verb, reason, order.value, free)

    def finish(self, job: int) -> None:
        """`job` completes: release all that it holds."""
        if self.engine.holds(job):
            self.release(job)
        self.release_ps(job)

    def release(self, job: int) -> None:
        """Release the resources of `job`, and its PSs."""
        self.pool.release(job)
        self.release_ps(job)

    def check_assign(self, job: int) -> None:
        """Reject it: PSs come with an allocation."""
        name = self.scenario.jobs.ids[job]
        raise OrderError("M12", f"job {name!r} is assigned a PS; on servers with resources an allocation has its PSs")

    def release_ps(self, job: int) -> None:
        """Record how long the PSs of `job` served it, if it had any; they are released with its workers."""
        since, now = self.ps_since.pop(job, 0), self.engine.now
        for server, n in self.ps_of.pop(job, ()):
            if since < now:
                self.engine.add_ps(job, server, n, since, now)

    def has_ps(self, job: int) -> bool:
        """Whether `job` has a PS."""
        return job in self.ps_of

    def with_ps(self) -> list[int]:
        """The jobs that have PSs."""
        return list(self.ps_of)

    def ps_placement(self, job: int) -> Placement:
        """(server, PSs) pairs of `job`."""
        return self.ps_of.get(job, ())

    def ps_elsewhere(self) -> Ints:
        """(job, server) rows of the PSs, all of which are no slots."""
        rows = [(job, server) for job, pairs in self.ps_of.items() for server, _ in pairs]
        return np.array(rows, np.int64).reshape(-1, 2)

    def most_workers(self, job: int) -> tuple[str, int]:
        """The batch size F limits the workers of `job` (M27)."""
        return "M27", int(self.scenario.jobs.batch[job])

    @property
    def amounts(self) -> Floats:
        """Capacity of the servers in service for each resource."""
        return self.pool.capacity

    @property
    def free(self) -> Floats:
        """What of :attr:`amounts` no job holds."""
        return self.pool.free

    def serve(self, server: int, *, back: bool) -> None:
        """Take `server` out of service or back into it."""
        super().serve(server, back=back)
        self.pool.serve(server, back=back)

    def validate(self) -> None:
        """Recompute the free amounts, and compare."""
        self.pool.validate()


class SiteBooks(ResourceBooks):
    """The books of a cluster of sites: resources, and chunks that are trained where they are stored."""

    ledger: ClassVar[type[Pool]] = SitePool

    def __init__(self, scenario: Scenario, engine: AllocationEngine) -> None:
        super().__init__(scenario, engine)
        self.work: UntrainedChunks = UntrainedChunks(scenario)

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        super().extend(scenario)
        self.work.extend(scenario)

    def _begin(self, order: Allocate, reason: int) -> None:
        """Hold the workers; their training counts at the end of the slot, and nothing is uploaded."""
        self.engine.allocate(order.job, order.where, NO_PS, TRAIN_AT_SITES, reason, order.value)

    def begins(self, job: int) -> int:
        """When they are held: no data are uploaded."""
        return int(self.engine.column(SINCE)[job])

    def trained(self, job: int, pairs: Placement) -> None:
        """Record chunks trained by workers at sites."""
        if any(chunks > self.work.left[job][site] for site, chunks in pairs):
            raise _not_there(job, pairs)
        self.work.trained(job, pairs)

    def check_upload(self, job: int) -> None:
        """Reject it: data are stored at sites."""
        name = self.scenario.jobs.ids[job]
        raise OrderError(
            "M31", f"job {name!r}: data are uploaded; at sites they are stored and can only be transferred"
        )

    def transfer(self, order: Transfer, now: int) -> None:
        """Move chunks between sites."""
        job, name = order.job, self.scenario.jobs.ids[order.job]
        self.check_servers(job, ((order.source, 1), (order.target, 1)), "transfer")
        self.check_in_service(job, ((order.target, 1),))
        n_present = int(self.work.left[job][order.source])
        if not 1 <= order.chunks <= n_present:
            site = self.cluster.label(order.source)
            raise OrderError(
                "M31", f"job {name!r}: {order.chunks} chunks are to move from {site!r}, which has {n_present}"
            )
        if self.work.returns(job, order.source, order.target, now):
            raise OrderError("M31", f"job {name!r}: {order!r}: chunks return to a site that they left at this instant")
        self.work.move(job, order.source, order.target, order.chunks, now)

    def chunks_left(self, job: int) -> Ints:
        """Untrained chunks of `job` by site."""
        return self.work.left[job]

    def share_left(self, job: int, now: int) -> float:  # noqa: ARG002 - what is trained counts by slot
        """Share of the chunks that is left to train."""
        return float(self.work.left[job].sum() / self.scenario.jobs.chunks[job])


def _not_there(job: int, pairs: Placement) -> StateError:
    return StateError(f"job {job} is reported to have trained {pairs}; it has fewer chunks there")
