"""Which gang holds which workers, and which chunks each of its servers trains: the controller's picture."""

from __future__ import annotations

from dataclasses import dataclass, field

from skedge.core.gangs import Placement
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
    data
        Workers by server of each job's last placement.
    groups
        The last groups of each job that is no gang.
    """

    def __init__(self) -> None:
        self.held: dict[int, Allocation] = {}
        self.data: dict[int, dict[int, int]] = {}
        self.groups: dict[int, dict[int, list[Group]]] = {}
        self.teams = 0

    def new_team(self, chunks: int) -> int:
        """A number for a team, above those of the job's chunks."""
        self.teams += 1
        return chunks + self.teams

    def move(self, job: int, where: Placement) -> dict[int, bool]:
        """The data of a job go to these servers; whether each gets more workers than before, which has a delay."""
        before = self.data.get(job, {})
        self.data[job] = dict(where)
        return {server: n > before.get(server, 0) for server, n in where}


def shares(chunks: int, where: Placement) -> dict[int, range]:
    """Chunks of each server of a gang: spread evenly over its workers, as the record says."""
    given, total = 0, sum(n for _, n in where)
    out = {}
    for server, n in where:
        out[server] = range(chunks * given // total, chunks * (given + n) // total)
        given += n
    return out
