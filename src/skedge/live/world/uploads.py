"""Uploads of chunks to servers: which are under way, and which chunks are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skedge.core.model.time import SECOND


@dataclass(frozen=True)
class Transport:
    """An upload of a job's chunks to a server; it takes at least `delay_s` and is due at `due` [µs].

    The chunks come from the server `source`; None: from the source of the job's data.
    """

    number: int
    job: int
    server: int
    chunks: tuple[int, ...]
    delay_s: float
    due: int
    source: int | None = None


class Uploads:
    """All uploads under way, and the chunks stored on servers.

    Attributes
    ----------
    pending
        Uploads under way, by number.
    stored
        Chunks stored, by (job, server).
    """

    def __init__(self) -> None:
        self.pending: dict[int, Transport] = {}
        self.stored: dict[tuple[int, int], set[int]] = {}
        self.count = 0

    def add(
        self, job: int, server: int, chunks: tuple[int, ...], delay_s: float, now: int, source: int | None = None
    ) -> Transport:  # fmt: skip
        """Add an upload; chunks that move from a server are no longer stored there.

        Parameters
        ----------
        job, server
            Whose chunks, and to where.
        chunks
            Their numbers.
        delay_s
            Its least duration [s].
        now
            When it starts [µs].
        source
            The server that they move from; None: they come from the source of the job's data.
        """
        self.count += 1
        due = now + round(delay_s * SECOND)
        upload = self.pending[self.count] = Transport(self.count, job, server, chunks, delay_s, due, source)
        if source is not None:
            self.stored.get((job, source), set()).difference_update(chunks)
        return upload

    def done(self, number: int) -> Transport | None:
        """Complete an upload and return it; None if its server has gone out of service."""
        upload = self.pending.pop(number, None)
        if upload is None:
            return None
        self.stored.setdefault((upload.job, upload.server), set()).update(upload.chunks)
        return upload

    def lose(self, server: int) -> None:
        """Forget the chunks stored on, and on their way to, a server out of service."""
        self.pending = {number: upload for number, upload in self.pending.items() if upload.server != server}
        self.stored = {key: chunks for key, chunks in self.stored.items() if key[1] != server}

    def drop(self, job: int) -> None:
        """Forget the uploads and the data of a job that has left."""
        self.pending = {number: upload for number, upload in self.pending.items() if upload.job != job}
        self.stored = {key: chunks for key, chunks in self.stored.items() if key[0] != job}

    def behind(self, job: int, now: int) -> int:
        """Time by which the job's most overdue upload is late [µs]; 0 if none is."""
        return max((max(now - upload.due, 0) for upload in self.pending.values() if upload.job == job), default=0)

    def to(self, job: int, server: int) -> list[Transport]:
        """Uploads of a job under way to a server."""
        return [upload for upload in self.pending.values() if (upload.job, upload.server) == (job, server)]

    def lacks(self, job: int, server: int, chunks: Iterable[int]) -> tuple[int, ...]:
        """Those of `chunks` that are neither stored on a server nor on their way to it."""
        coming = {chunk for upload in self.to(job, server) for chunk in upload.chunks}
        return tuple(sorted(set(chunks) - self.stored.get((job, server), set()) - coming))
