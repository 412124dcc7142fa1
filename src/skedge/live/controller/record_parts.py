"""The record of a service as it grows: Parquet tables of the jobs that have left, while others are still in the system.

They are written by the process that makes snapshots, one folder for each snapshot, with the jobs that have left since
the one before: ``record/NUMBER/TABLE.parquet``, where NUMBER is the snapshot's journal entry. The tables are those of a
run folder, and ``jobs`` also has the jobs' names. What is written is final. The parts are derived from the journal: if
some are deleted, the next one has their jobs again. ``skedge record`` does not read them, but replays the journal.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from skedge.core.record.record_fields import labels
from skedge.live import host
from skedge.live.durable import make_folder, names_in, put_in_place, read, remove, write_whole

if TYPE_CHECKING:
    from .service import Service

RECORD = "record"


def add_part(service: Service, folder: Path, number: int) -> None:
    """Write the tables of the jobs that have left and are in no part yet; nothing if there are none.

    Parameters
    ----------
    service
        Rebuilt up to entry `number` of its journal.
    folder
        The folder of the parts; made with the first one.
    number
        Number of the journal's last entry.
    """
    left = _left(service) - _written(folder)
    if not left:
        return
    aside = folder / f".{number:012}"
    for name in names_in(aside):  # of a process that was killed
        remove(aside / name)
    make_folder(aside, 0o700)
    for name, table in service.record().schedule.tables().items():
        if "job" in table.columns:
            rows = table.filter(pl.col("job").is_in(left))
            if name == "jobs":
                ids = service.kernel.scenario.jobs.ids
                rows = rows.with_columns(name=pl.Series([ids[job] for job in rows["job"]], dtype=pl.String))
            file = io.BytesIO()
            rows.write_parquet(file, metadata=labels(name))
            write_whole(aside / f"{name}.parquet", file.getvalue())
    put_in_place(aside, folder / f"{number:012}")


def _left(service: Service) -> set[int]:
    """Numbers of the jobs that have arrived and left."""
    return set(range(service.kernel.arrived)) - set(service.kernel.active().tolist())


def _written(folder: Path) -> set[int]:
    """Numbers of the jobs in the parts so far."""
    parts = (folder / name / "jobs.parquet" for name in names_in(folder) if name[0].isdigit())
    files = [io.BytesIO(read(part)) for part in parts if host.disk.exists(part)]
    return {job for file in files for job in pl.read_parquet(file, columns=["job"])["job"]}
