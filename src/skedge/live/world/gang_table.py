"""Which gang holds which workers, and which chunks each of its servers trains: the controller's view."""

from __future__ import annotations

from dataclasses import dataclass, field

from skedge.core.model.cluster import Placement
from skedge.core.model.time import NEVER


@dataclass
class WorkerGroup:
    """Workers on one server that start together, of a job that is no gang.

    Attributes
    ----------
    awaits
        Numbers of the uploads that they wait for.
    compute_from
        When they started to compute [µs].
    """

    workers: int
    awaits: set[int]
    compute_from: int = NEVER


@dataclass
class HeldWorkers:
    """The workers that a job holds.

    Placement, start and colocation are written to the record when it ends; the engine then has the job's next one, if
    the job is moved.

    Attributes
    ----------
    shares
        Chunks by server.
    start, compute_from
        When the job received them, and when it started to compute [µs].
    awaits
        Numbers of the uploads that it waits for.
    teams
        Numbers of its teams, once it computes.
    """

    where: Placement
    shares: dict[int, range]
    start: int
    colocated: bool
    awaits: set[int]
    compute_from: int = NEVER
    teams: list[int] = field(default_factory=list)


class GangTable:
    """Gangs and their chunks.

    Attributes
    ----------
    held
        Allocations by job.
    kept
        True if data stay where they were brought, as ``Case.kept`` of :mod:`skedge.core.engine.ledger`.
    stock
        Workers whose data were brought, with the uploads that they wait for, by job and server. The engine has their
        numbers, but counts the workers of an order in before the order is carried out, which brings what they lack.
    groups
        The last groups of each job that is no gang, by job and server, in the order in which they start. Each group has
        `awaits` and `compute_from` of its own.
    """

    def __init__(self, *, keeps_data: bool) -> None:
        self.kept = keeps_data
        self.held: dict[int, HeldWorkers] = {}
        self.stock: dict[int, dict[int, list[WorkerGroup]]] = {}
        self.groups: dict[int, dict[int, list[WorkerGroup]]] = {}
        self.teams = 0

    def new_team(self, chunks: int) -> int:
        """A new team number, above the numbers of the job's chunks."""
        self.teams += 1
        return chunks + self.teams

    def lacking(self, job: int, server: int, workers: int) -> int:
        """How many of these workers have no data on the server yet; their upload has a delay."""
        groups = self.stock.setdefault(job, {}).get(server, [])
        return max(workers - sum(group.workers for group in groups), 0)

    def supply(self, job: int, server: int, workers: int, awaits: set[int]) -> None:
        """Note that data for more workers are on their way.

        Parameters
        ----------
        job, server
            Whose workers they are, and where.
        workers
            Their number.
        awaits
            Numbers of the uploads that they wait for; the set is kept, and uploads are removed as they arrive.
        """
        self.stock[job].setdefault(server, []).append(WorkerGroup(workers, awaits))

    def settle(self, job: int, placement: Placement) -> None:
        """Forget data outside the job's new `placement`, unless data are kept."""
        if not self.kept:
            groups = self.stock[job]
            self.stock[job] = {server: part(groups.get(server, []), 0, n) for server, n in placement}

    def forget(self, job: int) -> None:
        """Forget a job that has left the system."""
        self.stock.pop(job, None)
        self.groups.pop(job, None)

    def lose(self, server: int) -> None:
        """Forget all data on a lost server."""
        for of_job in (*self.stock.values(), *self.groups.values()):
            of_job.pop(server, None)


def part(groups: list[WorkerGroup], first: int, last: int) -> list[WorkerGroup]:
    """The workers with numbers in [first, last), in groups with the same uploads."""
    chosen, offset = list[WorkerGroup](), 0
    for group in groups:
        size = min(offset + group.workers, last) - max(offset, first)
        if size > 0:
            chosen.append(WorkerGroup(size, group.awaits, group.compute_from))
        offset += group.workers
    return chosen


def shares(chunks: int, placement: Placement) -> dict[int, range]:
    """Chunks by server of a gang, spread evenly over its workers, as in the record."""
    n_assigned, total = 0, sum(n for _, n in placement)
    out = {}
    for server, n in sorted(placement):
        out[server] = range(chunks * n_assigned // total, chunks * (n_assigned + n) // total)
        n_assigned += n
    return out
