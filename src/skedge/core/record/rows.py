"""Rows of a record that no engine keeps: those of a compiled run."""

from __future__ import annotations

from typing import NamedTuple

from skedge.core.engine.ledger import RecordRows
from skedge.core.model.cluster import Ints


class CollectedRows(NamedTuple):
    """All rows of a run that is over.

    Attributes
    ----------
    admitted
        First allocation or dispatch of each job [µs], -1 if there was none.
    tables
        The rows.
    """

    admitted: Ints
    tables: RecordRows

    def rows(self) -> RecordRows:
        """The rows."""
        return self.tables
