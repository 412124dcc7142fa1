"""Chunks on their way to servers: the bytes really go, piece by piece, spread over the link's delay."""

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
"""Bytes of a chunk sent at once."""

_PIECE_S = 20.0
"""A piece that has not arrived by then is sent again."""

_PATIENCE_S = 0.5


@dataclass(frozen=True)
class Transport:
    """Chunks of a job on their way to a server; they take at least `delay_s`, so they are due at `due` [µs].

    They come from the server `source`; None: from where the job's data come from.
    """

    number: int
    job: int
    server: int
    chunks: tuple[int, ...]
    delay_s: float
    due: int
    source: int | None = None


class Uploads:
    """All uploads under way, and what has come.

    Attributes
    ----------
    pending
        Uploads under way by number.
    stored
        Chunks that are there, by (job, server).
    """

    def __init__(self) -> None:
        self.pending: dict[int, Transport] = {}
        self.stored: dict[tuple[int, int], set[int]] = {}
        self.count = 0

    def add(
        self, job: int, server: int, chunks: tuple[int, ...], delay_s: float, now: int, source: int | None = None
    ) -> Transport:  # fmt: skip
        """Note an upload that begins `now` [µs]; what comes from a server is no longer there."""
        self.count += 1
        due = now + round(delay_s * SECOND)
        upload = self.pending[self.count] = Transport(self.count, job, server, chunks, delay_s, due, source)
        if source is not None:
            self.stored.get((job, source), set()).difference_update(chunks)
        return upload

    def done(self, number: int) -> Transport | None:
        """Note that an upload is complete; None if its server has gone out of service."""
        upload = self.pending.pop(number, None)
        if upload is None:
            return None
        self.stored.setdefault((upload.job, upload.server), set()).update(upload.chunks)
        return upload

    def lose(self, server: int) -> None:
        """A server is out of service: what is there, and on its way there, is lost."""
        self.pending = {number: upload for number, upload in self.pending.items() if upload.server != server}
        self.stored = {key: chunks for key, chunks in self.stored.items() if key[1] != server}

    def drop(self, job: int) -> None:
        """A job has left: what is on its way for it is not wanted any more."""
        self.pending = {number: upload for number, upload in self.pending.items() if upload.job != job}

    def behind(self, job: int, now: int) -> int:
        """How long the job's latest upload is overdue [µs]; 0 if none is."""
        return max((max(now - upload.due, 0) for upload in self.pending.values() if upload.job == job), default=0)

    def to(self, job: int, server: int) -> list[Transport]:
        """Uploads of a job that are on their way to a server."""
        return [upload for upload in self.pending.values() if (upload.job, upload.server) == (job, server)]

    def lacks(self, job: int, server: int, chunks: Iterable[int]) -> tuple[int, ...]:
        """Which of `chunks` are neither on a server nor on their way to it."""
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
    """Bring an upload to its agent in a thread of its own, and tell when all of it is there, whole.

    It begins anew where the agent is lost, as long as the upload is `wanted`. `source` is the agent that has the
    chunks; where there is none, or it cannot give them, they are made. `say` takes a warning about them.
    """

    def bring() -> None:
        try:
            while wanted(upload.number) and not _copy(upload, job, program, maker, agent, wanted, source):
                time.sleep(_PATIENCE_S)
            if say is not None and source is None and (warning := maker.warning(program)) is not None:
                say(warning)
        except TrainingError as error:
            tell(Told("failed", upload.job, reason=str(error)))
        except Exception as error:  # whatever it is: a thread that ends without a word would leave the job hanging
            tell(Told("failed", upload.job, reason=f"its upload has ended: {type(error).__name__}: {error}"))
        else:
            tell(Uploaded(upload.number))

    threading.Thread(target=bring, name=f"upload {job}", daemon=True).start()


def _copy(
    upload: Transport, job: str, program: Program, maker: Calls, agent: Any, wanted: Callable[[int], bool], source: Any
) -> bool:
    """Send the bytes piece by piece; False if the agent was lost, or they are not wanted any more.

    When this returns True they are whole and checked.

    Raises
    ------
    TrainingError
        If the job's data cannot be made, or the server cannot keep them.
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
    """Chunks as the agent `source` keeps them; nothing if it has not all of them, or does not answer."""
    import ray  # noqa: PLC0415 - Ray is an extra

    if source is None:
        return []
    try:
        return list(zip(chunks, ray.get(source.contents.remote(job, chunks), timeout=_PIECE_S), strict=True))
    except (ray.exceptions.RayError, TrainingError):
        return []


def _store(agent: Any, job: str, chunk: int, upload: int, offset: int, piece: bytes, *, last: bool) -> bool:
    """Whether the piece is there; False if the agent is lost, or late."""
    import ray  # noqa: PLC0415 - Ray is an extra

    try:
        ray.get(agent.store.remote(job, chunk, offset, piece, last=last, upload=upload), timeout=_PIECE_S)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return False
    except ray.exceptions.RayTaskError as error:
        raise TrainingError(f"chunk {chunk} cannot be brought to its server: {error.cause}") from error
    return True
