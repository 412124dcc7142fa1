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

from skedge.core.colocation import colocated
from skedge.core.engine.gangs import Gangs
from skedge.core.engine.shares import in_order, rows_of
from skedge.core.errors import OrderError, StateError
from skedge.core.events import CLOUD, Allocate, Transfer
from skedge.core.model.cluster import Bools, Floats, Ints, Placement
from skedge.core.model.scenario import Scenario

from .resources import Pool, SitePool
from .site_work import UntrainedChunks
from .slots import Slots
from .storage import Storage


def books_for(scenario: Scenario, in_service: Bools) -> Books:
    """Empty books for a scenario's cluster; `in_service` belongs to the kernel, which writes it."""
    made = {"slots": Books, "resources": ResourceBooks, "sites": SiteBooks}
    return made[scenario.cluster.kind](scenario, in_service)


class Books:
    """The books of servers with typed slots; the other kinds derive from it.

    Attributes
    ----------
    slots, storage
        Free workers and PS slots; free storage.
    pool
        Free resources; None if servers have slots.
    work
        Chunks left to train by site, in a cluster of sites; otherwise None.
    ps_of
        (place, PSs) pairs of each job that has a PS, as in ``Allocate.ps``.
    in_service
        Whether each server is in service, shape ``(servers,)``.
    """

    pool: Pool | None = None
    work: UntrainedChunks | None = None

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        self.scenario, self.cluster, self.in_service = scenario, scenario.cluster, in_service
        self.slots, self.storage = Slots(scenario.cluster, scenario.jobs), Storage(scenario.cluster, scenario.jobs)
        self.ps_of: dict[int, Placement] = {}

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        self.scenario = scenario
        self.slots.jobs = self.storage.jobs = scenario.jobs

    # -- workers -------------------------------------------------------------------------------------------------

    def take(self, job: int, order: Allocate) -> None:
        """Allocate the workers and the PS or PSs of `order` to `job`.

        Raises
        ------
        OrderError
            If a server does not exist (M1), is listed twice (M4), is out of service (M25) or has too little free.
        """
        if not in_order(rows_of(order.where), self.in_service):
            self.check_servers(job, order.where)
            self.check_in_service(job, order.where)
        if [n for _, n in order.ps] != [1]:
            name = self.scenario.jobs.ids[job]
            raise OrderError("M12", f"job {name!r} is given the PSs {order.ps!r}; it has one, in a slot or the cloud")
        self.slots.take(job, order.where)
        self.take_ps(job, order.ps)

    def release(self, job: int) -> None:
        """Release the workers of `job`."""
        self.slots.release(job)

    def place(self, gangs: Gangs, order: Allocate, now: int) -> Ints | None:
        """Start the workers taken by the job of `order`, once their data are there.

        Returns
        -------
        numpy.ndarray or None
            Of how many workers each server of the order had the data before; None if an allocation uploads nothing.
        """
        return gangs.place(order.job, order.where, colocated(self.scenario, order), now, gang=order.gang)

    def begins(self, gangs: Gangs, job: int) -> int:
        """When workers held by `job` begin to compute [µs]."""
        return int(gangs.compute_from[job])

    def most_workers(self, job: int) -> tuple[str, int]:
        """The rule that limits the workers of `job`, and the limit."""
        return "M5", int(self.scenario.jobs.chunks[job])

    # -- parameter servers ---------------------------------------------------------------------------------------

    def take_ps(self, job: int, ps: Placement) -> None:
        """Assign the PS in this slot, or in the cloud, to `job`.

        Raises
        ------
        OrderError
            If the cluster has no cloud (M13), the slot cannot be taken (M13), or it is out of service (M25).
        """
        name, cloud, (slot, _) = self.scenario.jobs.ids[job], self.cluster.cloud, ps[0]
        if slot == CLOUD and cloud is None:
            raise OrderError("M13", f"job {name!r} is given a PS in the cloud, which this cluster does not have")
        if slot == CLOUD and not self.in_service[cloud]:
            raise OrderError("M25", f"job {name!r} is given a PS in the cloud, which is out of service")
        self.slots.take_ps(job, slot)
        self.ps_of[job] = ps

    def check_assign(self, job: int) -> None:
        """Reject a PS that is assigned without an allocation, unless PSs are slots."""

    def decided_ps(self, order: Allocate) -> Placement:  # noqa: ARG002 - resources have some
        """The PSs of `order` that are decisions of their own in the record: none on slots."""
        return ()

    def release_ps(self, job: int) -> Placement | None:
        """Release the PS of `job` and return it."""
        ps = self.ps_of.pop(job, None)
        if ps is not None:
            self.slots.release_ps(ps[0][0])
        return ps

    def ps_servers(self, job: int) -> list[int]:
        """Servers that hold the PSs of `job`."""
        return [int(self.cluster.ps_places[place]) for place, _ in self.ps_of.get(job, ())]

    # -- data at sites -------------------------------------------------------------------------------------------

    def trained(self, job: int, done: Placement) -> None:
        """Record chunks trained by workers at sites."""
        raise _not_there(job, done)

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

    def share_left(self, gangs: Gangs, job: int, now: int) -> float:
        """Share of a gang's work that is left to train, in (0, 1]."""
        return gangs.left_of(job, now) / int(gangs.work[job, gangs.zeta[job]])

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
        """Take `server`, which no job uses, out of service or back into it."""
        self.slots.serve(server, back=back)

    def check_servers(self, job: int, where: Placement, what: str = "worker") -> None:
        """Reject a placement without servers (M5), on an unknown server (M1), or with a server listed twice (M4)."""
        name, servers, count = self.scenario.jobs.ids[job], {server for server, _ in where}, len(self.in_service)
        if not servers:
            raise OrderError("M5", f"job {name!r} is given no {what}; suspend it instead")
        if not 0 <= min(servers) <= max(servers) < count:
            raise OrderError("M1", f"job {name!r} is given {where!r}; servers are numbered 0 to {count - 1}")
        if len(servers) < len(where):
            raise OrderError("M4", f"job {name!r} is given {where!r}; each server must be listed once")

    def check_in_service(self, job: int, where: Placement) -> None:
        """Reject a placement on a server that is out of service (M25)."""
        for server, _ in where:
            if not self.in_service[server]:
                name, label = self.scenario.jobs.ids[job], self.cluster.label(server)
                raise OrderError("M25", f"job {name!r} is given {label!r}, which is out of service")

    def validate(self) -> None:
        """Recompute what the books keep in two forms, and compare.

        Raises
        ------
        StateError
            If the free amounts are inconsistent with the holdings.
        """
        self.slots.validate({job: ps[0][0] for job, ps in self.ps_of.items()})
        self.storage.validate()


class ResourceBooks(Books):
    """The books of servers with resources."""

    ledger: ClassVar[type[Pool]] = Pool

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        super().__init__(scenario, in_service)
        self.pool: Pool = self.ledger(scenario.cluster, scenario.jobs)

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        super().extend(scenario)
        self.pool.jobs = scenario.jobs

    def take(self, job: int, order: Allocate) -> None:
        """Allocate the workers and the PSs of `order` to `job`."""
        self.check_servers(job, order.where)
        self.check_in_service(job, order.where)
        self.check_servers(job, order.ps, "PS")
        self.check_in_service(job, order.ps)
        self.pool.take(job, order.where, order.ps)
        self.ps_of[job] = order.ps

    def release(self, job: int) -> None:
        """Release the workers and PSs of `job`."""
        self.pool.release(job)

    def check_assign(self, job: int) -> None:
        """Reject it: PSs come with an allocation."""
        name = self.scenario.jobs.ids[job]
        raise OrderError("M12", f"job {name!r} is assigned a PS; on servers with resources an allocation has its PSs")

    def decided_ps(self, order: Allocate) -> Placement:
        """All of them."""
        return order.ps

    def release_ps(self, job: int) -> Placement | None:
        """Return the PSs that `job` had; they were released with its workers."""
        return self.ps_of.pop(job, None)

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

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        super().__init__(scenario, in_service)
        self.work: UntrainedChunks = UntrainedChunks(scenario)

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        super().extend(scenario)
        self.work.extend(scenario)

    def place(self, gangs: Gangs, order: Allocate, now: int) -> None:
        """Hold the workers; their training counts at the end of the slot, and nothing is uploaded."""
        gangs.hold(order.job, order.where, now)

    def begins(self, gangs: Gangs, job: int) -> int:
        """When they are held: no data are uploaded."""
        return int(gangs.since[job])

    def trained(self, job: int, done: Placement) -> None:
        """Record chunks trained by workers at sites."""
        if any(chunks > self.work.left[job][site] for site, chunks in done):
            raise _not_there(job, done)
        self.work.trained(job, done)

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
        there = int(self.work.left[job][order.source])
        if not 1 <= order.chunks <= there:
            site = self.cluster.label(order.source)
            raise OrderError("M31", f"job {name!r}: {order.chunks} chunks are to move from {site!r}, which has {there}")
        if self.work.returns(job, order.source, order.target, now):
            raise OrderError("M31", f"job {name!r}: {order!r}: chunks return to a site that they left at this instant")
        self.work.move(job, order.source, order.target, order.chunks, now)

    def chunks_left(self, job: int) -> Ints:
        """Untrained chunks of `job` by site."""
        return self.work.left[job]

    def share_left(self, gangs: Gangs, job: int, now: int) -> float:  # noqa: ARG002 - what is trained counts by slot
        """Share of the chunks that is left to train."""
        return float(self.work.left[job].sum() / self.scenario.jobs.chunks[job])


def _not_there(job: int, done: Placement) -> StateError:
    return StateError(f"job {job} is reported to have trained {done}; it has fewer chunks there")
