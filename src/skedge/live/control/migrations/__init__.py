"""The versions of the journal's tables, and what brings a database to the newest: Alembic's scripts, one per version.

A database states its version in the table ``alembic_version``. To change the tables, add a script to ``versions/``
whose ``down_revision`` is the newest one, and change the tables in ``journal.py`` with it; a test compares the two.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from skedge.core.errors import InputError

_UNSTATED = "0 (from before versions were stated)"


class VersionError(InputError):
    """The tables of a journal are of a version that cannot be used."""


def bring_up_to_date(at: sql.Connection) -> None:
    """Make the tables, or bring those of an earlier version to the newest.

    Raises
    ------
    VersionError
        If the database is of a later version.
    """
    if at.dialect.name == "sqlite":  # which would commit each change of a table on its own
        at.exec_driver_sql("BEGIN IMMEDIATE")
    _check_known(version_of(at))
    command.upgrade(_config(at), "head")


def check_up_to_date(at: sql.Connection) -> None:
    """Check that the database is of the newest version, without a change to it.

    Raises
    ------
    VersionError
        If it is of another version.
    """
    version = version_of(at)
    _check_known(version)
    if version != newest():
        raise VersionError(
            f"its tables are of version {version or _UNSTATED}, not {newest()}; `skedge up`, or `skedge live "
            "--resume`, brings them up to date"
        )


def version_of(at: sql.Connection) -> str | None:
    """The version that a database states; None: a new one, or one from before versions were stated."""
    stated: str | None = MigrationContext.configure(at).get_current_revision()
    return stated


def newest() -> str:
    """The version that this skedge writes."""
    return str(_scripts().get_current_head())


def _check_known(version: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if version not in known | {None}:
        raise VersionError(
            f"its tables are of version {version}, which is later than {newest()}, the newest that this skedge knows; "
            "install the skedge that wrote it, or a later one"
        )


def _config(at: sql.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", "skedge.live.control:migrations")
    config.attributes["connection"] = at
    return config


@cache
def _scripts() -> Any:
    return ScriptDirectory.from_config(_config())
