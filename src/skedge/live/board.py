"""Which chunk is on which lane, for a live cluster: the controller's picture of what really runs.

The lanes' rule is that of :mod:`skedge.core.lanes`: the best rank that has arrived runs first. What differs is that a
displaced chunk leaves only when its mini-batch is finished, so a lane is *held* by it until the trainer says so.
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
        Where it goes; lane is CLOUD for a worker of its own.
    arrived, done
        Its data are there; it is trained.
    leaving
        It was asked to leave its lane.
    lost
        Its server went out of service: it waits to be dispatched again, and another one takes its place then.
    """

    job: int
    number: int
    server: int
    lane: int
    key: tuple[int, int, int]
    arrived: bool = False
    done: bool = False
    leaving: bool = False
    lost: bool = False


@dataclass
class Board:
    """Lanes and their chunks.

    Attributes
    ----------
    queue
        Chunks of each lane that are not done, best first.
    holder
        Chunk that holds each lane.
    chunks
        All chunks of each dispatched job.
    """

    preemptive: bool
    queue: dict[int, list[Chunk]] = field(default_factory=dict)
    holder: dict[int, Chunk] = field(default_factory=dict)
    chunks: dict[int, list[Chunk]] = field(default_factory=dict)
    dispatches: int = 0

    def dispatch(self, order: Dispatch, lane_server: list[int], cloud: int | None) -> list[Chunk]:
        """Take in a dispatch, or a re-dispatch of lost chunks; the chunks are on their way."""
        numbers = range(len(order.lane)) if order.chunks is None else order.chunks
        sent = []
        for number, lane in zip(numbers, order.lane.tolist(), strict=True):
            server = lane_server[lane] if lane != CLOUD or cloud is None else cloud
            sent.append(Chunk(order.job, number, server, lane, (order.rank, self.dispatches, number)))
        if order.chunks is None:
            self.chunks[order.job] = sent
        else:
            for chunk in sent:
                self.chunks[order.job][chunk.number] = chunk
        for chunk in sent:
            if chunk.lane != CLOUD:
                self.queue.setdefault(chunk.lane, []).append(chunk)
                self.queue[chunk.lane].sort(key=lambda c: c.key)
        self.dispatches += 1
        return sent

    def arrive(self, job: int, server: int, numbers: Collection[int]) -> list[Chunk]:
        """The data of these chunks of `job` are on `server`; returns those of them that go there."""
        come = [c for c in self.chunks.get(job, ()) if c.number in numbers and c.server == server and not c.arrived]
        for chunk in come:
            chunk.arrived = True
        return come

    def changes(self) -> Iterator[tuple[Chunk | None, Chunk]]:
        """For each lane where a better chunk waits than the one that holds it: (holder or None, that chunk)."""
        for lane, queue in self.queue.items():
            best = next((chunk for chunk in queue if chunk.arrived), None)
            holder = self.holder.get(lane)
            if best is None or best is holder:
                continue
            if holder is None or (self.preemptive and not holder.leaving):
                yield holder, best

    def hold(self, chunk: Chunk) -> None:
        """`chunk` takes its lane."""
        if chunk.lane != CLOUD:
            self.holder[chunk.lane] = chunk

    def leave(self, chunk: Chunk, *, done: bool) -> None:
        """`chunk` leaves its lane, trained or displaced."""
        chunk.done, chunk.leaving = done, False
        if chunk.lane == CLOUD:
            return
        if self.holder.get(chunk.lane) is chunk:
            del self.holder[chunk.lane]
        if done and not chunk.lost:
            self.queue[chunk.lane].remove(chunk)

    def lose(self, server: int) -> list[Chunk]:
        """A server is out of service: its chunks that are not trained leave it; returns them.

        Those that hold a lane go on holding it until :meth:`leave`.
        """
        gone = [c for chunks in self.chunks.values() for c in chunks if c.server == server and not (c.done or c.lost)]
        for chunk in gone:
            chunk.lost = True
            if chunk.lane != CLOUD:
                self.queue[chunk.lane].remove(chunk)
        return gone

    def drop(self, job: int) -> list[Chunk]:
        """Take a job off the board; returns its chunks that held lanes."""
        gone = self.chunks.pop(job, [])
        held = [chunk for chunk in gone if self.holder.get(chunk.lane) is chunk]
        for chunk in gone:
            if chunk.lane != CLOUD and not (chunk.done or chunk.lost):
                self.queue[chunk.lane].remove(chunk)
        for chunk in held:
            del self.holder[chunk.lane]
        return held
