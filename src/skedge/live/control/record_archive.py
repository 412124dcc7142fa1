"""A service's record as one file for ``GET /record``: a run folder, zipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from skedge.core.errors import InputError

from .submissions import BusyError

_one = threading.Lock()


def archived(state: Path) -> tuple[Path, Callable[[], None]]:
    """The ZIP file of the record so far, and what removes it.

    ``skedge record`` makes it in a process of its own: taking every decision again would delay the new ones.

    Raises
    ------
    InputError
        If a job is still in the system.
    BusyError
        If another record is being made.
    """
    if not _one.acquire(blocking=False):
        raise BusyError("a record is being made for another request; ask again in a while")
    folder = Path(mkdtemp(prefix="skedge-record-"))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    try:
        return _made(state, folder), remove
    except BaseException:
        remove()
        raise
    finally:
        _one.release()


def _made(state: Path, folder: Path) -> Path:
    made = folder / "record"
    command = [sys.executable, "-P", "-m", "skedge", "record", "--state", str(state), "--out", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if not made.exists():  # a record that breaks a rule is there, and says so
        raise InputError(done.stderr.strip().removeprefix("skedge: ") or "the record could not be made")
    return Path(shutil.make_archive(str(made), "zip", made))
