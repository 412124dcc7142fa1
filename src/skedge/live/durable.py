"""Files that are whole or not there, whatever dies in between: the process, or the machine's power.

A new content is written aside, flushed, and renamed; then the folder is flushed, as the rename is on the disk only with
it. A reader finds the old file or the whole new one.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

from . import host

PRIVATE = 0o600
"""Mode of a file that only its owner may read."""


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write a file as a whole; it is on the disk when this returns.

    Parameters
    ----------
    path, content
        The file, and what is in it afterwards; text in UTF-8.
    mode
        Permissions of the file, before the process's umask.
    """
    aside = path.with_name(f".{path.name}.{host.getpid()}-{host.get_ident()}.partial")
    remove(aside)
    try:
        with host.disk.open(aside, "x", mode) as file:
            _write(file, content.encode() if isinstance(content, str) else content)
        put_in_place(aside, path)
    finally:
        remove(aside)


def put_in_place(aside: Path, path: Path) -> None:
    """Let a complete file, written aside in the same folder, replace `path`; it is on the disk when this returns.

    A folder takes the place of none; what is in it must be on the disk.
    """
    flush(aside)
    host.disk.replace(aside, path)
    flush(path.parent)


def write_piece(path: Path, offset: int, piece: bytes) -> None:
    """Write a piece of a file that is put in place later; with `offset` [bytes] 0 the file is begun anew."""
    with host.disk.open(path, "r+" if offset else "w") as file:
        file.seek(offset)
        _write(file, piece)


def append(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Append to a file; it is not flushed, so a power cut may cost what was appended."""
    with host.disk.open(path, "a", mode) as file:
        _write(file, content)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    host.disk.flush(path)


def read(path: Path) -> bytes:
    """The content of a file."""
    with host.disk.open(path) as file:
        return file.readall()


def read_text(path: Path) -> str:
    """The content of a file with text in UTF-8."""
    return read(path).decode()


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none if there is no such folder."""
    with suppress(FileNotFoundError):
        return host.disk.names(folder)
    return []


def remove(path: Path) -> None:
    """Remove a file, or an empty folder, that may be missing."""
    with suppress(FileNotFoundError):
        host.disk.remove(path)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder that may be there already, and those above it; their names are on the disk when this returns.

    Parameters
    ----------
    path
        The folder.
    mode
        Its permissions, before the process's umask; those above it have 0o777.
    """
    if _is_folder(path):
        return
    if path.parent != path:  # where a disk fails, the uppermost may not be found to be one
        make_folder(path.parent)
    try:
        host.disk.mkdir(path, mode)
    except FileExistsError:  # another process has made it meanwhile
        if not _is_folder(path):
            raise
    flush(path.parent)


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return host.disk.size(path) is None
    return False


def _write(file: io.RawIOBase, content: bytes) -> None:
    """Write all of `content`: a file without a buffer may write a part at once."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
