"""The decisions of an upload: which piece is sent next, when it waits, begins anew, fails or ends.

It has neither threads nor clocks nor actors: :class:`Sending` receives what has come of its last instruction and
returns the next one. ``tests/live/test_sending.py`` goes through all outcomes of a small one's calls, 24 events deep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class MakeData:
    """Take the chunks from the server that has them, or make them; :meth:`Sending.made` comes next."""


@dataclass(frozen=True)
class SendPiece:
    """Have bytes `start` to `stop` of a chunk stored, after which the chunk is whole if it is the `last` piece.

    :meth:`Sending.stored`, :meth:`Sending.full`, :meth:`Sending.refused` or :meth:`Sending.lost` comes next.
    """

    chunk: int
    start: int
    stop: int
    last: bool


@dataclass(frozen=True)
class KeepPace:
    """Wait until this share of the upload's delay has passed in this attempt; :meth:`Sending.waited` comes next."""

    share: float


@dataclass(frozen=True)
class WaitForServer:
    """Write a line to the job's log unless it is empty, and pause; :meth:`Sending.waited` comes next.

    The server's disk `is_full`, or the attempt has ended.
    """

    line: str
    is_full: bool


@dataclass(frozen=True)
class FailUpload:
    """The job fails for this reason."""

    reason: str


@dataclass(frozen=True)
class EndUpload:
    """The chunks have arrived whole, or are no longer wanted."""


SendingInstruction = MakeData | SendPiece | KeepPace | WaitForServer | FailUpload | EndUpload


class Sending:
    """An upload of chunks to a server, piece by piece, in attempts each of which sends all of them.

    While the server's disk is full, it waits. If the server is lost or refuses a piece, another attempt begins, as long
    as the upload is wanted.

    Parameters
    ----------
    piece
        Size of a piece [bytes].
    failures
        Attempts in a row that the server may refuse.

    Attributes
    ----------
    attempts
        Attempts so far, the one under way included.
    """

    def __init__(self, piece: int, failures: int) -> None:
        self.piece, self.most_failures = piece, failures
        self.attempts, self.failures = 0, 0
        self._is_under_way, self._has_said = False, False
        self._pieces = deque[SendPiece]()
        self._sent, self._total = 0, 0

    def waited(self, *, is_wanted: bool) -> SendingInstruction:
        """A pause is over, or the upload begins.

        Parameters
        ----------
        is_wanted
            Whether its server is still to have the chunks.
        """
        if not self._is_under_way:
            return self._attempt() if is_wanted else EndUpload()
        if not self._pieces:
            return EndUpload()
        return self._pieces[0] if is_wanted else self._again()

    def made(self, sizes: Iterable[tuple[int, int]]) -> SendingInstruction:
        """The data are there: chunks, and their sizes [bytes]."""
        self._pieces = deque(piece for chunk, size in sizes for piece in self._cut(chunk, size))
        self._sent, self._total = 0, sum(piece.stop - piece.start for piece in self._pieces)
        return self._pace()

    def stored(self) -> SendingInstruction:
        """The piece is stored."""
        piece = self._pieces.popleft()
        self._sent += piece.stop - piece.start
        self._has_said = False
        if piece.last:
            self.failures = 0
        return self._pace()

    def full(self) -> SendingInstruction:
        """The server's disk is full."""
        line = f"chunk {self._pieces[0].chunk} waits for its server, whose disk is full"
        return WaitForServer(self._once(line), is_full=True)

    def refused(self, cause: BaseException) -> SendingInstruction:
        """The server could not store the piece for another reason."""
        chunk = self._pieces[0].chunk
        self.failures += 1
        if self.failures > self.most_failures:
            return FailUpload(f"chunk {chunk} cannot be brought to its server: {cause}")
        return self._again(f"chunk {chunk} is brought to its server again: {type(cause).__name__}: {cause}")

    def lost(self) -> SendingInstruction:
        """The server is lost, or has not answered in time: the piece may be stored or not."""
        return self._again()

    def _attempt(self) -> SendingInstruction:
        self.attempts += 1
        self._is_under_way = True
        return MakeData()

    def _again(self, line: str = "") -> SendingInstruction:
        """End this attempt."""
        self._is_under_way = False
        return WaitForServer(self._once(line), is_full=False)

    def _once(self, line: str) -> str:
        """The line, if none has been said since a piece was stored; else empty."""
        if not line or self._has_said:
            return ""
        self._has_said = True
        return line

    def _pace(self) -> SendingInstruction:
        return KeepPace(self._sent / self._total if self._pieces else 1.0)

    def _cut(self, chunk: int, size: int) -> Iterable[SendPiece]:
        for start in range(0, size, self.piece):
            stop = min(start + self.piece, size)
            yield SendPiece(chunk, start, stop, last=stop == size)
