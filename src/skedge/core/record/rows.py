"""Rows of a record that compiled code has made: of a run without an engine, and reasons that are still codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

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


def number_reasons(rows: Ints, keys: Ints, number: Callable[[list[int]], int]) -> Ints:
    """The record's number of the reason of each row of decisions, given in order of first use.

    Parameters
    ----------
    rows, keys
        Rows of decisions; rows of the same key have the same reason.
    number
        Takes the first row of a key, and returns the number of its reason (:meth:`.record.Record.reason`).
    """
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.zeros(len(first), np.int64)
    for i in np.argsort(first).tolist():
        numbers[i] = number(rows[first[i]].tolist())
    return numbers[place]
