"""Version 1: runs and their entries; the tables of journals from before versions were stated are these."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision, down_revision = "1", None


def upgrade() -> None:
    """Make the tables where they are missing."""
    op.create_table(
        "runs",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("about", sql.JSON, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "entries",
        sql.Column("run", sql.Integer, sql.ForeignKey("runs.id"), primary_key=True),
        sql.Column("number", sql.Integer, primary_key=True),
        sql.Column("time", sql.BigInteger, nullable=False),
        sql.Column("kind", sql.String, nullable=False),
        sql.Column("content", sql.JSON, nullable=False),
        if_not_exists=True,
    )
