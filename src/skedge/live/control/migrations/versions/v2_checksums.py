"""Version 2: entries have checksums; those of earlier entries, archived ones too, are computed now.

So damage from before is not noticed. A run of this script that was interrupted is repeated, with the same outcome.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import sqlalchemy as sql
from alembic import op

from skedge.core.errors import StateError
from skedge.live.control.journal_archive import JournalArchive, read_rows
from skedge.live.control.journal_chain import Entry, start_of

revision, down_revision = "2", "1"

_BATCH = 1000
_OLD = "SELECT number, time, kind, content FROM entries WHERE run = :run ORDER BY number"


def upgrade() -> None:
    """Copy the entries into a table with a column more."""
    at = op.get_bind()
    if "checksum" in {column["name"] for column in sql.inspect(at).get_columns("entries")}:
        raise StateError("its entries have checksums, although it states an earlier version; it is damaged")
    op.drop_table("entries_2", if_exists=True)
    made = op.create_table(
        "entries_2",
        sql.Column("run", sql.Integer, sql.ForeignKey("runs.id"), primary_key=True),
        sql.Column("number", sql.Integer, primary_key=True),
        sql.Column("time", sql.BigInteger, nullable=False),
        sql.Column("kind", sql.String, nullable=False),
        sql.Column("content", sql.Text, nullable=False),
        sql.Column("checksum", sql.BigInteger, nullable=False),
    )
    runs = sql.Table("runs", sql.MetaData(), sql.Column("id", sql.Integer), sql.Column("about", sql.JSON))
    for run, about in at.execute(sql.select(runs)).all():
        rows = [{"run": run, **entry._asdict()} for entry in _with_checksums(at, run, start_of(dict(about)))]
        for first in range(0, len(rows), _BATCH):
            at.execute(made.insert(), rows[first : first + _BATCH])
    op.drop_table("entries")
    op.rename_table("entries_2", "entries")


def _with_checksums(at: sql.Connection, run: int, checksum: int) -> list[Entry]:
    """The entries of a run that are in the database; its archive's files are written again on the way."""
    text = "content" if at.dialect.name == "sqlite" else "content::text"
    rows = [Entry(*row) for row in at.execute(sql.text(_OLD.replace("content", text)), {"run": run})]
    archive = JournalArchive(Path(str(at.engine.url.database)).with_suffix(".archive"), run)
    files = archive.files() if at.dialect.name == "sqlite" else []
    archived = [[Entry(*row[:4]) for row in read_rows(path)] for _, _, path in files]
    entries = {entry.number: entry for entry in [*chain(*archived), *rows]}
    for number in sorted(entries):
        checksum = entries[number].after(checksum)
        entries[number] = entries[number]._replace(checksum=checksum)
    for of in archived:
        archive.add([entries[entry.number] for entry in of])
    return [entries[row.number] for row in rows]
