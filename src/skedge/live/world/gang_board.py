"""Which gang holds which workers, and which chunks each of its servers trains: the controller's picture."""

from __future__ import annotations

from dataclasses import dataclass, field

from skedge.core.model import Placement
from skedge.core.time import NEVER


@dataclass
class Group:
    """Workers on one server that begin together, of a job that is no gang.

    Attributes
    ----------
    awaits
        Numbers of the uploads that they wait for.
    compute_from
        Since when they compute [µs].
    """

    workers: int
    awaits: set[int]
    compute_from: int = NEVER


@dataclass
class Allocation:
    """A job that holds workers.

    Attributes
    ----------
    shares
        Chunks by server.
    start, compute_from
        When it got them, and since when it computes [µs].
    awaits
        Numbers of the uploads that it waits for.
    teams
        Numbers of its teams, once it computes.
    groups
        By server, where it is no gang, in the order in which they begin: each group for itself has what `awaits` and
        `compute_from` say of a gang.
    """

    where: Placement
    shares: dict[int, range]
    start: int
    colocated: bool
    awaits: set[int]
    compute_from: int = NEVER
    teams: list[int] = field(default_factory=list)
    groups: dict[int, list[Group]] = field(default_factory=dict)


class GangBoard:
    """Gangs and their chunks.

    Attributes
    ----------
    held
        Allocations by job.
    kept
        Whether data stay where they were brought, as in :class:`skedge.core.books.gangs.Gangs`.
    stock
        By job and server: for how many workers data were brought, and the uploads that these await.
    groups
        The last groups of each job that is no gang.
    """

    def __init__(self, *, kept: bool) -> None:
        self.kept = kept
        self.held: dict[int, Allocation] = {}
        self.stock: dict[int, dict[int, list[Group]]] = {}
        self.groups: dict[int, dict[int, list[Group]]] = {}
        self.teams = 0

    def new_team(self, chunks: int) -> int:
        """A number for a team, above those of the job's chunks."""
        self.teams += 1
        return chunks + self.teams

    def lacking(self, job: int, server: int, workers: int) -> int:
        """For how many of these workers no data were brought to the server; their upload has a delay."""
        there = self.stock.setdefault(job, {}).get(server, [])
        return max(workers - sum(group.workers for group in there), 0)

    def supply(self, job: int, server: int, workers: int, awaits: set[int]) -> None:
        """Data for so many more workers are on their way."""
        self.stock[job].setdefault(server, []).append(Group(workers, awaits))

    def settle(self, job: int, where: Placement) -> None:
        """Forget data that do not count any more, now that the job's place is `where`."""
        if not self.kept:
            there = self.stock[job]
            self.stock[job] = {server: part(there.get(server, []), 0, n) for server, n in where}

    def lose(self, server: int) -> None:
        """What lies on a server is lost."""
        for of_job in (*self.stock.values(), *self.groups.values()):
            of_job.pop(server, None)


def part(groups: list[Group], first: int, last: int) -> list[Group]:
    """The workers from number `first` to before number `last`; their uploads are the same."""
    chosen, at = list[Group](), 0
    for group in groups:
        size = min(at + group.workers, last) - max(at, first)
        if size > 0:
            chosen.append(Group(size, group.awaits, group.compute_from))
        at += group.workers
    return chosen


def shares(chunks: int, where: Placement) -> dict[int, range]:
    """Chunks of each server of a gang: spread evenly over its workers, as the record says."""
    given, total = 0, sum(n for _, n in where)
    out = {}
    for server, n in sorted(where):
        out[server] = range(chunks * given // total, chunks * (given + n) // total)
        given += n
    return out
