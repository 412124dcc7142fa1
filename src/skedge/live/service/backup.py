"""Backup: a copy of a service's state, from which a service continues as after a crash.

The journal is copied first, as of one moment. What it refers to is written before its entries, so every file that is
copied later is at least as new as the journal; entries that move into its archive meanwhile are in both. A checkpoint
may have more mini-batches than the journal reports, as after a controller that was killed. Only a job that is cancelled
while the copy is made may be FAILED when a service continues from it, as its chunks may be gone.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from skedge.core.errors import InputError
from skedge.live.controller.service import LOGS
from skedge.live.controller.settings import CLUSTER, SETTINGS, Settings
from skedge.live.journal.journal import ARCHIVE, JOURNAL
from skedge.live.worker.code_archive import CODE

from .audit import AUDIT

_FILES = (SETTINGS, CLUSTER, AUDIT)
_FOLDERS = (Path(JOURNAL).with_suffix(ARCHIVE).name, "servers", "checkpoints", CODE, LOGS)
"""Chunks before checkpoints: a job that ends meanwhile removes its chunks, and its last checkpoint needs none."""


def copy_state(state: Path, settings: Settings, target: Path) -> None:
    """Copy the state of a service, which may be up, to the folder `target`.

    Raises
    ------
    InputError
        If it holds no state, or its journal or checkpoints are elsewhere.
    """
    for part, url in (("journal", settings.journal), ("checkpoints", settings.checkpoints)):
        if url is not None:
            raise InputError(
                f"{state}: its {part} are kept elsewhere, by URL (`skedge up --{part}`); back them up there: the "
                "journal first, then the checkpoints, then this folder"
            )
    if not (state / JOURNAL).exists():
        raise InputError(f"{state}: holds no service's state (there is no {JOURNAL})")
    target.chmod(0o700)
    _copy_journal(state, target)
    for name in _FILES:
        with suppress(FileNotFoundError):
            shutil.copy2(state / name, target / name)
    for name in _FOLDERS:
        _copy_folder(state / name, target / name)


def _copy_journal(state: Path, target: Path) -> None:
    with closing(sqlite3.connect(state / JOURNAL)) as source, closing(sqlite3.connect(target / JOURNAL)) as copy:
        source.backup(copy)


def _copy_folder(source: Path, target: Path) -> None:
    """Copy files until none has vanished meanwhile: newer checkpoints replace older ones."""
    while not all(_copied(path, target / path.relative_to(source)) for path in _files(source)):
        pass


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, without those that are being written."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if not name.endswith(".partial"))


def _copied(path: Path, target: Path) -> bool:
    """Copy a file that is not there yet; False if it has vanished."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not target.exists():
            shutil.copy2(path, target)
    except FileNotFoundError:
        return False
    return True
