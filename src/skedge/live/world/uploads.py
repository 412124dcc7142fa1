"""Uploads of chunks to servers: real bytes are sent, piece by piece, spread over the link's delay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.time import SECOND
from skedge.live.training.maker import Calls
from skedge.live.training.training import Program

from .inputs import Told, Uploaded

_PIECE = 2**18
"""Size of a piece, the part of a chunk sent at once [bytes]."""

_PIECE_S = 20.0
"""Time after which a piece that has not arrived is sent again [s]."""

_PATIENCE_S = 0.5


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
        """Add an upload that starts `now` [µs]; chunks that move from a server are no longer stored there."""
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
        """Forget the uploads of a job that has left."""
        self.pending = {number: upload for number, upload in self.pending.items() if upload.job != job}

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


def carry(
    upload: Transport,
    job: str,
    program: Program,
    maker: Calls,
    agent: Any,
    tell: Callable[[Told | Uploaded], None],
    wanted: Callable[[int], bool],
    source: Any = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Send an upload to its agent in its own thread, and report when it has arrived whole.

    The upload restarts if the agent is lost, as long as it is `wanted`. `source` is the agent that has the chunks;
    without one, or if it cannot provide them, they are made. `say` is called with a warning about the data, if any.
    """

    def bring() -> None:
        try:
            while wanted(upload.number) and not _copy(upload, job, program, maker, agent, wanted, source):
                time.sleep(_PATIENCE_S)
            if say is not None and source is None and (warning := maker.warning(program)) is not None:
                say(warning)
        except TrainingError as error:
            tell(Told("failed", upload.job, reason=str(error)))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            tell(Told("failed", upload.job, reason=f"its upload has ended: {type(error).__name__}: {error}"))
        else:
            tell(Uploaded(upload.number))

    threading.Thread(target=bring, name=f"upload {job}", daemon=True).start()


def _copy(
    upload: Transport, job: str, program: Program, maker: Calls, agent: Any, wanted: Callable[[int], bool], source: Any
) -> bool:
    """Send the bytes piece by piece; False if the agent was lost, or the upload is no longer wanted.

    True means that the chunks have arrived whole and were checked.

    Raises
    ------
    TrainingError
        If the job's data cannot be made, or the server cannot store them.
    """
    began = time.monotonic()
    contents = _from(source, job, upload.chunks) or maker.contents(program, upload.chunks)
    total, sent = sum(len(content) for _, content in contents), 0
    for chunk, content in contents:
        for offset in range(0, len(content), _PIECE):
            piece = content[offset : offset + _PIECE]
            last = offset + len(piece) == len(content)
            if not (wanted(upload.number) and _store(agent, job, chunk, upload.number, offset, piece, last=last)):
                return False
            sent += len(piece)
            time.sleep(max(began + upload.delay_s * sent / total - time.monotonic(), 0.0))
    time.sleep(max(began + upload.delay_s - time.monotonic(), 0.0))
    return True


def _from(source: Any, job: str, chunks: tuple[int, ...]) -> list[tuple[int, bytes]]:
    """Chunks as stored by the agent `source`; empty if it lacks one of them or does not answer."""
    import ray  # noqa: PLC0415 - Ray is an extra

    if source is None:
        return []
    try:
        return list(zip(chunks, ray.get(source.contents.remote(job, chunks), timeout=_PIECE_S), strict=True))
    except (ray.exceptions.RayError, TrainingError):
        return []


def _store(agent: Any, job: str, chunk: int, upload: int, offset: int, piece: bytes, *, last: bool) -> bool:
    """Store a piece at the agent; False if the agent is lost or late."""
    import ray  # noqa: PLC0415 - Ray is an extra

    try:
        ray.get(agent.store.remote(job, chunk, offset, piece, last=last, upload=upload), timeout=_PIECE_S)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return False
    except ray.exceptions.RayTaskError as error:
        raise TrainingError(f"chunk {chunk} cannot be brought to its server: {error.cause}") from error
    return True
