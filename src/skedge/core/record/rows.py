"""Rows of a record that no engine keeps: those of a compiled run."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.ledger import RecordRows, no_rows
from skedge.core.model.cluster import Floats, Ints


class CollectedRows:
    """Rows that are made elsewhere, and decisions added to them.

    Attributes
    ----------
    tables
        The rows made elsewhere.
    admitted
        First allocation or dispatch of each job [µs], -1 if there was none.
    now
        The time of the next decision that is added [µs].
    """

    def __init__(self, admitted: Ints, tables: RecordRows | None = None) -> None:
        self.tables, self.admitted, self.now = tables or no_rows(), admitted, 0
        self._decisions: list[tuple[int, ...]] = []
        self._values: list[float] = []

    def admit(self, job: int) -> None:
        """Note the present as the first time that `job` is given something, unless there was an earlier one."""
        if self.admitted[job] < 0:
            self.admitted[job] = self.now

    def add_decision(self, job: int, verb: int, server: int, workers: int, reason: int, value: float | None) -> None:
        """Add a decision, at the present.

        Parameters
        ----------
        job, verb
            The job; index of the verb in VERBS.
        server, workers
            -1 for none.
        reason
            Its number (:meth:`.record.Record.reason`).
        value
            What the policy compared; None if nothing.
        """
        self._decisions.append((self.now, job, verb, server, workers, reason))
        self._values.append(np.nan if value is None else value)

    def rows(self) -> RecordRows:
        """All rows: the added decisions behind the others."""
        if not self._decisions:
            return self.tables
        decisions = np.concatenate([self.tables.decisions, np.array(self._decisions, np.int64)])
        values: Floats = np.concatenate([self.tables.values, self._values])
        return self.tables._replace(decisions=decisions, values=values)
