"""A file of the state that commands change while the service runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from skedge.live import host

Content = TypeVar("Content")


class ReloadingFile(Generic[Content]):
    """The content of a file, read again when the file has changed.

    Parameters
    ----------
    path
        The file.
    read
        Reads the file; a file that does not exist must be no error.
    """

    def __init__(self, path: Path, read: Callable[[], Content]) -> None:
        self._path, self._read = path, read
        self._stamp: tuple[int, int, int] | None = None

    @property
    def content(self) -> Content:
        """The content as of now."""
        try:
            stamp = host.disk.stamp(self._path)
        except FileNotFoundError:
            stamp = (0, 0, 0)
        if stamp != self._stamp:
            self._content, self._stamp = self._read(), stamp
        return self._content
