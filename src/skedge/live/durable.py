"""Files that are whole or not there, whatever dies in between: the process, or the machine's power.

A new content is written aside, flushed, and renamed; then the folder is flushed, as the rename is on the disk only with
it. A reader finds the old file or the whole new one.
"""

from __future__ import annotations

import os
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
    aside = path.with_name(f".{path.name}.{os.getpid()}-{host.get_ident()}.partial")
    with suppress(FileNotFoundError):
        aside.unlink()
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        put_in_place(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def put_in_place(aside: Path, path: Path) -> None:
    """Let a complete file, written aside in the same folder, replace `path`; it is on the disk when this returns."""
    flush(aside)
    os.replace(aside, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder that may be there already; its name is on the disk when this returns."""
    if not path.is_dir():
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        flush(path.parent)
