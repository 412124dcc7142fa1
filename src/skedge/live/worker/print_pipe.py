"""What a process of a job prints: read while its calls are waited for, and bounded."""

from __future__ import annotations

import os

from skedge.core.model.escape import escaped

MOST = 2**16
"""Most bytes of a process's output that are kept of one call: the last ones."""

_PIECE = 2**16


class PrintPipe:
    """The end of a pipe into which a process of a job writes its standard output and errors.

    Parameters
    ----------
    number
        The open file, which must not block.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.over = self.closed = False
        self._last, self._all = bytearray(), 0

    def read(self) -> None:
        """Read a piece that is there; `over` is true from when no process can write any more."""
        if self.over:
            return
        try:
            piece = os.read(self.number, _PIECE)
        except BlockingIOError:
            return
        self.over = not piece
        self._all += len(piece)
        self._last += piece
        del self._last[:-MOST]

    def take(self) -> str:
        """What was printed since the last call, escaped; of more than :data:`MOST` bytes the last ones."""
        for _ in range(MOST // _PIECE + 1):  # not for ever: what writes all the time must not be waited for
            self.read()
        left_out, text = self._all - len(self._last), self._last.decode("utf-8", "backslashreplace")
        self._last, self._all = bytearray(), 0
        return (f"… {_size(left_out)} left out …\n" if left_out else "") + escaped(text.replace("\r\n", "\n"))

    def close(self) -> None:
        """Close the pipe; once, as its number may be that of another file then."""
        if not self.closed:
            self.over = self.closed = True
            os.close(self.number)


def _size(count: int) -> str:
    """A number of bytes in words: ``3 bytes``, ``1.2 kB``, ``9.9 MB``."""
    unit, length = ("MB", 1e6) if count >= 1e6 else ("kB", 1e3)
    return f"{count / length:.1f} {unit}" if count >= 1e3 else f"{count} bytes"
