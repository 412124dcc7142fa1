"""Runs the scripts on the connection that :func:`skedge.live.control.migrations.bring_up_to_date` gives (Alembic)."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
