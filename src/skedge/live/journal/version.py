"""The version of the journal's tables, which a database states in a table of its own.

A database of another version is refused: its jobs end under the release that wrote it.
"""

from __future__ import annotations

import sqlalchemy as sql

from skedge.core.errors import InputError

from .tables import META, RUNS, VERSIONS

VERSION = 2
"""The version that this skedge reads and writes; it changes with the tables in :mod:`.tables`."""


class VersionError(InputError):
    """The tables of a journal are of a version that cannot be used."""


def create_tables(at: sql.Connection) -> None:
    """Create the tables of a new database; check the version of another.

    Raises
    ------
    VersionError
        If its tables are of another version, or state none.
    """
    if at.dialect.name == "sqlite":  # which would commit each table on its own
        at.exec_driver_sql("BEGIN IMMEDIATE")
    if version_of(at) is None and not sql.inspect(at).has_table(RUNS.name):
        META.create_all(at)
        at.execute(VERSIONS.insert(), {"version": VERSION})
    check_version(at)


def check_version(at: sql.Connection) -> None:
    """Check the version of a database, without a change to it.

    Raises
    ------
    VersionError
        If its tables are of another version, or state none.
    """
    version = version_of(at)
    if version != VERSION:
        stated = "state no version" if version is None else f"are of version {version}"
        raise VersionError(
            f"its tables {stated}, and this skedge reads version {VERSION}: continue it with the skedge that wrote it"
        )


def version_of(at: sql.Connection) -> int | None:
    """The version that a database states; None if it states none."""
    if not sql.inspect(at).has_table(VERSIONS.name):
        return None
    version: int | None = at.execute(sql.select(sql.func.max(VERSIONS.c.version))).scalar_one()
    return version
