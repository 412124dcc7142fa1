"""The books: who holds what on the servers. One kind for each kind of cluster, chosen once by :func:`books_for`.

=============  ==============================  ===================================  ===============================
               typed slots                     resources                            sites
=============  ==============================  ===================================  ===============================
papers         JSAC'22, She et al.             PD-ORS                               Okita
workers        slots of a type (M4, M5)        amounts of resources (M26, M27)      amounts of resources
a job's PS     a slot, or the cloud (M13)      (server, PSs) pairs (M28)            one, on a site (M32)
data           uploaded to servers             uploaded to servers                  lie at sites, are moved (M31)
=============  ==============================  ===================================  ===============================
"""

from __future__ import annotations

from skedge.core.colocation import colocated
from skedge.core.errors import OrderError, StateError
from skedge.core.events import CLOUD, Allocate, Transfer
from skedge.core.model import Bools, Floats, Ints, Placement
from skedge.core.scenario import Scenario

from .gangs import Gangs
from .resources import Pool
from .site_work import SiteWork
from .slots import Slots
from .storage import Storage


def books_for(scenario: Scenario, in_service: Bools) -> Books:
    """The books of a scenario's cluster, empty; `in_service` is the kernel's, which writes it."""
    made = {"slots": Books, "resources": ResourceBooks, "sites": SiteBooks}
    return made[scenario.cluster.kind](scenario, in_service)


class Books:
    """The books of servers with typed slots; other kinds derive from it.

    Attributes
    ----------
    slots, storage
        What servers have left of workers, PS slots and room for chunks.
    pool
        What servers with resources have left; None where servers have slots.
    work
        What is left to train where, in a cluster of sites; None elsewhere.
    ps_of
        PS slot, or (server, count) pairs, of every job that has one.
    in_service
        Whether each server is in service, shape ``(servers,)``.
    """

    takes = "a PS slot"
    """What an allocation gives as a job's PS."""

    pool: Pool | None = None
    work: SiteWork | None = None

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        self.scenario, self.cluster, self.in_service = scenario, scenario.cluster, in_service
        self.slots, self.storage = Slots(scenario.cluster, scenario.jobs), Storage(scenario.cluster, scenario.jobs)
        self.ps_of: dict[int, int | Placement] = {}

    def extend(self, scenario: Scenario) -> None:
        """Take in jobs behind those that are there."""
        self.scenario = scenario
        self.slots.jobs = self.storage.jobs = scenario.jobs

    # -- workers -------------------------------------------------------------------------------------------------

    def take(self, job: int, order: Allocate) -> None:
        """Give `job` its workers and its PS, or PSs.

        Raises
        ------
        OrderError
            If a server does not exist (M1), stands there twice (M4), is out of service (M25) or has not enough left.
        """
        self.check_servers(job, order.where)
        self.check_in_service(job, order.where)
        if isinstance(order.ps, tuple):
            raise self._wrong_ps(job, order)
        self.slots.take(job, order.where)
        self.take_ps(job, order.ps)

    def release(self, job: int) -> None:
        """Take back the workers of `job`."""
        self.slots.release(job)

    def place(self, gangs: Gangs, order: Allocate, now: int) -> None:
        """Let the workers that `job` has taken begin, when their data are there."""
        gangs.place(order.job, order.where, colocated(self.scenario, order), now, gang=order.gang)

    def most_workers(self, job: int) -> tuple[str, int]:
        """How many workers `job` can have, and the rule that says so."""
        return "M5", int(self.scenario.jobs.chunks[job])

    # -- parameter servers ---------------------------------------------------------------------------------------

    def takes_slot(self) -> bool:
        """Whether a PS is a slot, which can be assigned apart from an allocation."""
        return self.pool is None

    def take_ps(self, job: int, ps: int) -> None:
        """Give `job` this PS slot, or a PS in the cloud.

        Raises
        ------
        OrderError
            If there is none (M13), or it is out of service (M25).
        """
        name, cloud = self.scenario.jobs.ids[job], self.cluster.cloud
        if ps == CLOUD and cloud is None:
            raise OrderError("M13", f"job {name!r} is given a PS in the cloud, and there is none")
        if ps == CLOUD and not self.in_service[cloud]:
            raise OrderError("M25", f"job {name!r} is given a PS in the cloud, which is out of service")
        self.slots.take_ps(job, ps)
        self.ps_of[job] = ps

    def release_ps(self, job: int) -> int | Placement | None:
        """Take back the PS of `job`; returns which it was."""
        ps = self.ps_of.pop(job, None)
        if ps is not None and not isinstance(ps, tuple):
            self.slots.release_ps(ps)
        return ps

    def ps_servers(self, job: int) -> list[int | None]:
        """Servers of the PSs of `job`."""
        ps = self.ps_of.get(job, ())
        if isinstance(ps, tuple):
            return [server for server, _ in ps]
        return [self.cluster.cloud if ps == CLOUD else int(self.cluster.ps_server[ps])]

    # -- data at sites -------------------------------------------------------------------------------------------

    def trained(self, job: int, done: Placement) -> None:
        """Note chunks that workers at sites have trained."""
        raise _not_there(job, done)

    def check_upload(self, job: int) -> None:
        """Refuse an upload where data lie at sites."""

    def transfer(self, order: Transfer, now: int) -> None:  # noqa: ARG002 - sites ask for it
        """Move chunks between sites.

        Raises
        ------
        OrderError
            If the servers are no sites, or the chunks do not lie there, or come back at one instant (M31).
        """
        raise OrderError("M31", f"job {self.scenario.jobs.ids[order.job]!r}: data are moved; the servers are no sites")

    def chunks_left(self, job: int) -> Ints:  # noqa: ARG002 - sites ask for it
        """Chunks of `job` that are not trained yet, where they lie, shape ``(servers,)``."""
        raise StateError("chunks_left is of a cluster of sites, which has transfer_cost; this one has none")

    # -- servers -------------------------------------------------------------------------------------------------

    @property
    def amounts(self) -> Floats:
        """What the servers in service have of each resource, shape ``(servers, resources)``; slots are none."""
        return self.cluster.amounts

    @property
    def free(self) -> Floats:
        """What of :attr:`amounts` no job holds."""
        return self.cluster.amounts

    def serve(self, server: int, *, back: bool) -> None:
        """Take `server`, on which no job is, out of service, or back into it."""
        self.slots.serve(server, back=back)

    def check_servers(self, job: int, where: Placement, what: str = "worker") -> None:
        """Refuse a placement on no server (M5), on one that does not exist (M1), or on one twice (M4)."""
        name, servers, count = self.scenario.jobs.ids[job], {server for server, _ in where}, len(self.in_service)
        if not servers:
            raise OrderError("M5", f"job {name!r} is given no {what}; suspend it instead")
        if not 0 <= min(servers) <= max(servers) < count:
            raise OrderError("M1", f"job {name!r} is given {where!r}; servers are numbered 0 to {count - 1}")
        if len(servers) < len(where):
            raise OrderError("M4", f"job {name!r} is given {where!r}; each server must stand there once")

    def check_in_service(self, job: int, where: Placement) -> None:
        """Refuse a placement on a server that is out of service (M25)."""
        for server, _ in where:
            if not self.in_service[server]:
                name, label = self.scenario.jobs.ids[job], self.cluster.label(server)
                raise OrderError("M25", f"job {name!r} is given {label!r}, which is out of service")

    def validate(self) -> None:
        """Recompute what the books hold twice, and compare.

        Raises
        ------
        StateError
            If what is free does not follow from who holds it.
        """
        self.slots.validate({job: ps for job, ps in self.ps_of.items() if not isinstance(ps, tuple)})
        self.storage.validate()

    def _wrong_ps(self, job: int, order: Allocate) -> OrderError:
        name = self.scenario.jobs.ids[job]
        return OrderError("M12", f"job {name!r} is given {order.ps!r}; here it takes {self.takes}")


class ResourceBooks(Books):
    """The books of servers with resources."""

    takes = "(server, PSs) pairs"

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        super().__init__(scenario, in_service)
        self.pool: Pool = Pool(scenario.cluster, scenario.jobs)

    def extend(self, scenario: Scenario) -> None:
        """Take in jobs behind those that are there."""
        super().extend(scenario)
        self.pool.jobs = scenario.jobs

    def take(self, job: int, order: Allocate) -> None:
        """Give `job` its workers and its PSs."""
        self.check_servers(job, order.where)
        self.check_in_service(job, order.where)
        if not isinstance(order.ps, tuple):
            raise self._wrong_ps(job, order)
        self.check_servers(job, order.ps, "PS")
        self.check_in_service(job, order.ps)
        self.pool.take(job, order.where, order.ps)
        self.ps_of[job] = order.ps

    def release(self, job: int) -> None:
        """Take back the workers and PSs of `job`."""
        self.pool.release(job)

    def most_workers(self, job: int) -> tuple[str, int]:
        """F workers at most (M27)."""
        return "M27", int(self.scenario.jobs.batch[job])

    @property
    def amounts(self) -> Floats:
        """What the servers in service have of each resource."""
        return self.pool.capacity

    @property
    def free(self) -> Floats:
        """What of :attr:`amounts` no job holds."""
        return self.pool.free

    def serve(self, server: int, *, back: bool) -> None:
        """Take `server` out of service, or back into it."""
        super().serve(server, back=back)
        self.pool.serve(server, back=back)

    def validate(self) -> None:
        """Recompute what is free, and compare."""
        self.pool.validate()


class SiteBooks(ResourceBooks):
    """The books of a cluster of sites: resources, and chunks that are trained where they lie."""

    def __init__(self, scenario: Scenario, in_service: Bools) -> None:
        super().__init__(scenario, in_service)
        self.work: SiteWork = SiteWork(scenario)

    def extend(self, scenario: Scenario) -> None:
        """Take in jobs behind those that are there."""
        super().extend(scenario)
        self.work.extend(scenario)

    def place(self, gangs: Gangs, order: Allocate, now: int) -> None:
        """Hold the workers; they train at the end of the slot."""
        gangs.hold(order.job, order.where, now)

    def trained(self, job: int, done: Placement) -> None:
        """Note chunks that workers at sites have trained."""
        if any(chunks > self.work.left[job][site] for site, chunks in done):
            raise _not_there(job, done)
        self.work.trained(job, done)

    def check_upload(self, job: int) -> None:
        """Refuse it: data lie at sites."""
        name = self.scenario.jobs.ids[job]
        raise OrderError("M31", f"job {name!r}: data are uploaded; at sites they lie there, and are moved")

    def transfer(self, order: Transfer, now: int) -> None:
        """Move chunks between sites."""
        job, name = order.job, self.scenario.jobs.ids[order.job]
        self.check_servers(job, ((order.source, 1), (order.target, 1)), "transfer")
        self.check_in_service(job, ((order.target, 1),))
        there = int(self.work.left[job][order.source])
        if not 1 <= order.chunks <= there:
            site = self.cluster.label(order.source)
            raise OrderError("M31", f"job {name!r}: {order.chunks} chunks are moved from {site!r}; {there} lie there")
        if self.work.returns(job, order.source, order.target, now):
            raise OrderError("M31", f"job {name!r}: {order!r}: data come back to a site that they have left just now")
        self.work.move(job, order.source, order.target, order.chunks, now)

    def chunks_left(self, job: int) -> Ints:
        """Chunks of `job` that are not trained yet, where they lie."""
        return self.work.left[job]


def _not_there(job: int, done: Placement) -> StateError:
    return StateError(f"job {job} is reported to have trained {done}; it has fewer chunks there")
