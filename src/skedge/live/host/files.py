"""Files of this machine, as the operating system has them: ``host.disk``.

What is written is seen by every process at once, and is on the disk once it was flushed; a new name, once its folder
was. :mod:`skedge.live.durable` writes files that are whole or not there.
"""

from __future__ import annotations

import io
import os
import shutil

PathLike = str | os.PathLike[str]


class Disk:
    """Operations on files; each raises ``OSError`` as the operating system does."""

    def open(self, path: PathLike, mode: str = "r", permissions: int = 0o666) -> io.RawIOBase:
        """Open a file of bytes, without a buffer: a write may write a part.

        Parameters
        ----------
        path
            The file.
        mode
            ``r``, ``r+``, ``w``, ``a`` or ``x``.
        permissions
            Of a new file, before the process's umask.
        """
        return io.FileIO(path, mode, opener=lambda name, flags: os.open(name, flags, permissions))

    def flush(self, path: PathLike) -> None:
        """Wait until a file, or the names in a folder, are on the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: PathLike, target: PathLike) -> None:
        """Rename a file or folder within its folder; a file takes the place of a file of that name."""
        os.replace(source, target)

    def remove(self, path: PathLike) -> None:
        """Remove a file or an empty folder."""
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def mkdir(self, path: PathLike, permissions: int = 0o777) -> None:
        """Make a folder; `permissions` are those before the process's umask."""
        os.mkdir(path, permissions)

    def names(self, path: PathLike) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(path))

    def size(self, path: PathLike) -> int | None:
        """Size of a file [bytes]; None for a folder."""
        return None if os.path.isdir(path) else os.stat(path).st_size

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or a folder."""
        return os.path.exists(path)

    def stamp(self, path: PathLike) -> tuple[int, int, int]:
        """What tells a file or folder from another of its name: device, number there, and time of the last change."""
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def free(self, path: PathLike) -> int:
        """Space that is left where a folder lies [bytes]."""
        return shutil.disk_usage(path).free
