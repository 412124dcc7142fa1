"""Which chunk is on which lane of a live cluster: the controller's view of what really runs.

The rule is that of :mod:`skedge.core.engine.lanes`: of the chunks that have arrived, the best rank runs first. The
difference is that a displaced chunk leaves only when its mini-batch is finished, so it *holds* its lane until the
trainer reports that. If lanes preempt, the chunks of a job that were dispatched to a lane together hold it together:
they are a *team*, and take turns.

The kernel's belief of the lanes does not say this: there chunks arrive when announced, are lost once reported, and a
completion counts for the group of its job that is believed in service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from skedge.core.events import CLOUD, Dispatch


@dataclass(eq=False)
class Chunk:
    """A dispatched chunk.

    Attributes
    ----------
    key
        (rank, order of dispatch, number): smaller runs first.
    server, lane
        Destination; lane is CLOUD for its own worker in the cloud.
    team
        Number of the first chunk of its team.
    before
        Mini-batches trained before this dispatch.
    arrived, done
        True if its data have arrived; if it is trained.
    leaving
        True if it was asked to leave its lane.
    lost
        True if its server went out of service: the chunk waits for a new dispatch, which replaces this object. The
        kernel has it as lost once it is reported, after the mini-batch under way.
    """

    job: int
    number: int
    server: int
    lane: int
    key: tuple[int, int, int]
    team: int
    before: int = 0
    arrived: bool = False
    done: bool = False
    leaving: bool = False
    lost: bool = False


@dataclass
class LaneTable:
    """Lanes and their chunks.

    Attributes
    ----------
    queue
        Unfinished chunks by lane, best first.
    occupant
        Chunk that holds the lane, by lane; any one of its team.
    chunks
        All chunks by dispatched job.
    ahead
        (job, team) of teams that wait until their job's slowest chunk has caught up (``max_lag``).
    dispatches
        Number of dispatches carried out; the kernel's counts those of the same event that are to follow, too.
    """

    preemptive: bool
    queue: dict[int, list[Chunk]] = field(default_factory=dict)
    occupant: dict[int, Chunk] = field(default_factory=dict)
    chunks: dict[int, list[Chunk]] = field(default_factory=dict)
    ahead: set[tuple[int, int]] = field(default_factory=set)
    dispatches: int = 0

    def dispatch(self, order: Dispatch, lane_server: list[int], cloud: int | None) -> list[Chunk]:
        """Process a dispatch, or a re-dispatch of lost chunks; returns the chunks to upload."""
        numbers = range(len(order.lane)) if order.chunks is None else order.chunks
        dispatched, first = [], dict[int, int]()
        for number, lane in zip(numbers, order.lane.tolist(), strict=True):
            server = lane_server[lane] if lane != CLOUD or cloud is None else cloud
            # without preemption a chunk runs to its end, so each is a team of its own
            team = first.setdefault(lane, number) if self.preemptive and lane != CLOUD else number
            dispatched.append(Chunk(order.job, number, server, lane, (order.rank, self.dispatches, number), team))
            self.ahead.discard((order.job, number))
        if order.chunks is None:
            self.chunks[order.job] = dispatched
        else:
            for chunk in dispatched:
                self.chunks[order.job][chunk.number] = chunk
        for chunk in dispatched:
            if chunk.lane != CLOUD:
                self.queue.setdefault(chunk.lane, []).append(chunk)
                self.queue[chunk.lane].sort(key=lambda c: c.key)
        self.dispatches += 1
        return dispatched

    def arrive(self, job: int, server: int, numbers: Collection[int]) -> list[Chunk]:
        """Note that data of `job` have arrived on `server`; returns the chunks dispatched there that they are for."""
        come = [c for c in self.chunks.get(job, ()) if c.number in numbers and c.server == server and not c.arrived]
        for chunk in come:
            chunk.arrived = True
        return come

    def team_members(self, chunk: Chunk) -> list[Chunk]:
        """The unfinished chunks of a chunk's team."""
        of_job = self.chunks.get(chunk.job, [])
        return [c for c in of_job if (c.team, c.key[:2]) == (chunk.team, chunk.key[:2]) and not c.done]

    def changes(self) -> Iterator[tuple[Chunk | None, Chunk]]:
        """(holder or None, a chunk of the better team) for each lane where a better team waits than the holder's."""
        for lane, queue in self.queue.items():
            best = next((chunk for chunk in queue if chunk.arrived and (chunk.job, chunk.team) not in self.ahead), None)
            occupant = self.occupant.get(lane)
            if best is None or (
                occupant is not None and best.key[:2] == occupant.key[:2] and best.team == occupant.team
            ):
                continue
            if occupant is None or (self.preemptive and not occupant.leaving):
                yield occupant, best

    def hold(self, chunk: Chunk) -> None:
        """Let `chunk` and its team hold their lane."""
        if chunk.lane != CLOUD:
            self.occupant[chunk.lane] = chunk

    def leave(self, chunk: Chunk, *, trained: bool) -> None:
        """Let `chunk` and its team leave their lane: they are trained, displaced, or ahead."""
        chunk.leaving = False
        # the lane may have a new holder already: a late report must not take it away
        if chunk.lane != CLOUD and self.occupant.get(chunk.lane) is chunk:
            del self.occupant[chunk.lane]
        for mate in self.team_members(chunk) if trained else ():
            mate.done = True
            if mate.lane != CLOUD and not mate.lost:
                self.queue[mate.lane].remove(mate)

    def lose(self, server: int) -> list[Chunk]:
        """Remove the untrained chunks of a server out of service from its queues; returns them.

        Those that hold a lane still hold it until :meth:`leave`.
        """
        lost_chunks = [
            c for chunks in self.chunks.values() for c in chunks if c.server == server and not (c.done or c.lost)
        ]
        for chunk in lost_chunks:
            chunk.lost = True
            if chunk.lane != CLOUD:
                self.queue[chunk.lane].remove(chunk)
        return lost_chunks

    def drop(self, job: int) -> None:
        """Take a job out of the table; its lanes are free at once."""
        self.ahead = {team for team in self.ahead if team[0] != job}
        self.occupant = {lane: chunk for lane, chunk in self.occupant.items() if chunk.job != job}
        for chunk in self.chunks.pop(job, []):
            if chunk.lane != CLOUD and not (chunk.done or chunk.lost):
                self.queue[chunk.lane].remove(chunk)
