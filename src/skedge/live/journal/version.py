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


def create_tables(connection: sql.Connection) -> None:
    """Create the tables of a new database; check the version of another.

    Raises
    ------
    VersionError
        If its tables are of another version, or state none.
    """
    if connection.dialect.name == "sqlite":  # which would commit each table on its own
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    if version_of(connection) is None and not sql.inspect(connection).has_table(RUNS.name):
        META.create_all(connection)
        connection.execute(VERSIONS.insert(), {"version": VERSION})
    check_version(connection)


def check_version(connection: sql.Connection) -> None:
    """Check the version of a database, without a change to it.

    Raises
    ------
    VersionError
        If its tables are of another version, or state none.
    """
    version = version_of(connection)
    if version != VERSION:
        stated = "state no version" if version is None else f"are of version {version}"
        raise VersionError(
            f"its tables {stated}, and this skedge reads version {VERSION}: continue it with the skedge that wrote it"
        )


def version_of(connection: sql.Connection) -> int | None:
    """The version that a database states; None if it states none."""
    if not sql.inspect(connection).has_table(VERSIONS.name):
        return None
    version: int | None = connection.execute(sql.select(sql.func.max(VERSIONS.c.version))).scalar_one()
    return version
