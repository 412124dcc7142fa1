"""New folders, which appear complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from skedge.core.errors import RunFolderError
from skedge.core.registry import first_line
from skedge.platform.signals import deferred_signals


@contextmanager
def new_folder(folder: Path | str, *, replacing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` at the end; on any failure nothing is left.

    If entered before the work, it detects early that nothing can be written. With `replacing`, an existing folder is
    removed at the end.

    Raises
    ------
    RunFolderError
        If `folder` already exists (unless `replacing`) or cannot be written.
    """
    target = Path(os.path.abspath(folder))
    if os.path.lexists(target) and not replacing:
        raise RunFolderError(f"{folder}: exists already; name a new folder or remove it")
    # beside the target: a rename within one file system is atomic
    temp_folder = target.parent / f".{target.name}.{os.getpid()}.partial"
    created: list[Path] = []
    try:
        _make_parents(target.parent, created)
        # left by a killed process that had the same number
        shutil.rmtree(temp_folder, ignore_errors=True)
        temp_folder.mkdir()
        yield temp_folder
        if replacing and target.is_dir():
            shutil.rmtree(target)
        temp_folder.rename(target)
        # from here on the parents have a content, so they stay
        created.clear()
    except (OSError, pl.exceptions.ComputeError) as error:
        raise RunFolderError(
            f"{folder}: cannot be written: {_reason(error, temp_folder)}; nothing was left behind"
        ) from error
    finally:
        with deferred_signals():  # a second Ctrl-C must not leave anything behind
            shutil.rmtree(temp_folder, ignore_errors=True)
            _remove_empty(created)


def _make_parents(folder: Path, created: list[Path]) -> None:
    """Create `folder` and its missing parents, and add those created to `created`."""
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
        _make_parents(folder.parent, created)
        folder.mkdir()
        created.append(folder)


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def _reason(error: Exception, folder: Path) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # polars says of a full disk that the file's format is wrong, if it is its last bytes that find no room
    if folder.is_dir() and shutil.disk_usage(folder).free < _LAST_BYTES:
        return os.strerror(errno.ENOSPC)
    return first_line(error)


_LAST_BYTES = 100_000
"""Free space below which a table that could not be written was too large for the disk [bytes]."""
