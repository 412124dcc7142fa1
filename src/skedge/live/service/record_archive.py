"""A service's record as one file for ``GET /record``: a run folder, zipped; or the tables of one tenant's jobs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule
from skedge.live import host
from skedge.live.controller.submissions import BusyError
from skedge.runs.writing import write_table

_PART = (
    "The tables of one tenant's jobs, cut from the record of a service. It cannot be verified or replayed: decisions "
    "depend on the jobs of all tenants, which are left out."
)

_one = host.Lock()


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
    try:
        return _zipped(lambda folder: _make_record(state, folder))
    finally:
        _one.release()


def archived_part(scenario: Scenario, schedule: Schedule, tenant: str) -> tuple[Path, Callable[[], None]]:
    """The ZIP file of the tables of a tenant's jobs, and what removes it."""

    def write(folder: Path) -> None:
        (folder / "tables").mkdir(parents=True)
        about = {"tenant": tenant, "scenario": scenario.name, "jobs": len(scenario.jobs), "about": _PART}
        (folder / "part.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        for name, table in schedule.tables().items():
            write_table(folder / "tables", name, table)

    return _zipped(write)


def _zipped(write: Callable[[Path], None]) -> tuple[Path, Callable[[], None]]:
    """The ZIP file of a folder that `write` makes and fills, and what removes it."""
    folder = Path(mkdtemp(prefix="skedge-record-"))
    remove, record = partial(shutil.rmtree, folder, ignore_errors=True), folder / "record"
    try:
        write(record)
        return Path(shutil.make_archive(str(record), "zip", record)), remove
    except BaseException:
        remove()
        raise


def _make_record(state: Path, folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "skedge", "record", "--state", str(state), "--out", str(folder)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if not folder.exists():  # a record that breaks a rule is there, and says so
        raise InputError(completed.stderr.strip().removeprefix("skedge: ") or "the record could not be made")
