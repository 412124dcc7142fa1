"""What is due in a run: arrivals, the agenda, and when servers leave service and return; for Python."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER

from .agenda import ENTRY_JOB, ENTRY_KIND, ENTRY_TIME, put
from .arrays import EngineArrays
from .ledger import AGENDA, CHANGES
from .orders import N_ARRIVED, N_DUE, N_FINISHED, WOKE
from .outages import next_change
from .step import next_time

_next_change: Any = next_change.py_func  # type: ignore[attr-defined]
_next_time: Any = next_time.py_func  # type: ignore[attr-defined]


class Instant(NamedTuple):
    """What is due at a `time` [µs]."""

    time: int
    finished: list[int]
    woke: bool
    entries: list[list[int]]
    n_arrived: int


class Timeline(EngineArrays):
    """What comes when: the part of the engine that a world drives."""

    @property
    def next_due(self) -> int:
        """The time of the first entry of the agenda [µs]; NEVER if there is none."""
        return int(self.ledger.agenda[0, ENTRY_TIME]) if self.ledger.counters[AGENDA] else NEVER

    def put(self, time: int, kind: int, job: int, number: int = 0) -> None:
        """Put an entry on the agenda (:mod:`.agenda`).

        Parameters
        ----------
        time
            When it is due [µs].
        kind
            Kind of the entry.
        job
            Its job; -1 if it has none.
        number
            Number of chunks in the cloud, or VERSION of an allocation.
        """
        ledger, step = self.ledger, self.case.step
        if ledger.counters[AGENDA] == len(ledger.agenda):
            self._grow(1)
        put(self.ledger.agenda, ledger.counters, -(-time // step) * step, kind, job, number)

    def next_time(self, n_jobs: int) -> int:
        """The time of the next arrival of the first `n_jobs`, or entry of the agenda [µs]; NEVER if there is none."""
        return int(_next_time(self.ledger, n_jobs))

    def take_instant(self, until: int, n_jobs: int) -> Instant | None:
        """Go to the next arrival of the first `n_jobs`, or entry of the agenda, or `until` [µs] if that is earlier.

        None if nothing comes.
        """
        time = self._call_form("take_instant", until, n_jobs)
        if time == NEVER:
            return None
        facts = self.facts
        numbers = facts.counters.tolist()
        n_finished, n_due = numbers[N_FINISHED], numbers[N_DUE]
        finished = facts.left[:n_finished].tolist() if n_finished else []
        entries = facts.due[:n_due].tolist() if n_due else []
        instant = Instant(time, finished, numbers[WOKE] > 0, entries, numbers[N_ARRIVED])
        while n_due == len(facts.due):  # there may be more
            self._call_form("take_instant", time, n_jobs)
            numbers = facts.counters.tolist()
            n_due = numbers[N_DUE]
            instant.entries.extend(facts.due[:n_due].tolist())
            instant.finished.extend(facts.left[: numbers[N_FINISHED]].tolist())
            instant = instant._replace(woke=instant.woke or numbers[WOKE] > 0)
        return instant

    def absorb(self, finished: tuple[int, ...], n_arrived: int) -> int:
        """Take in completions and arrivals; a failed job without workers counts as complete.

        Parameters
        ----------
        finished
            The jobs that have completed.
        n_arrived
            Number of jobs that arrive, the next ones in order.

        Returns
        -------
        -1, or a job of `finished` that was not in the system: then nothing has changed.
        """
        n_finished = len(finished)
        if n_finished == 1:
            self.facts.left[0] = finished[0]
        elif n_finished:
            self.facts.left[:n_finished] = finished
        return self._call("absorb", n_finished, n_arrived) - 1

    def entries(self, *kinds: int) -> Ints:
        """The jobs of the agenda's entries of these kinds."""
        agenda = self.ledger.agenda[: self.ledger.counters[AGENDA]]
        jobs: Ints = agenda[np.isin(agenda[:, ENTRY_KIND], kinds), ENTRY_JOB]
        return jobs

    def remove_entries(self, job: int, *kinds: int) -> None:
        """Take the entries of `job` of these kinds off the agenda."""
        counters = self.ledger.counters
        agenda = self.ledger.agenda[: counters[AGENDA]]
        rest = agenda[~(np.isin(agenda[:, ENTRY_KIND], kinds) & (agenda[:, ENTRY_JOB] == job))]
        # entries in order of (time, sequence) are a heap
        self.ledger.agenda[: len(rest)] = rest[np.lexsort((rest[:, 1], rest[:, 0]))]
        counters[AGENDA] = len(rest)

    # -- servers that leave service and return ------------------------------------------------------------------------

    @property
    def next_change(self) -> int:
        """When the next server leaves service or returns in a simulation [µs]; NEVER if that is not known."""
        return int(_next_change(self.ledger, self.ledger.changes))

    def take_changes(self, now: int) -> list[list[int]]:
        """The changes of service up to `now` [µs] that have not been taken yet."""
        counters, first = self.ledger.counters, int(self.ledger.counters[CHANGES])
        while self.next_change <= now:
            counters[CHANGES] += 1
        return self.changes_since(first)

    def changes_since(self, first: int) -> list[list[int]]:
        """The changes of service that have happened, from number `first` of ``ledger.changes`` on."""
        changes = self.ledger.changes
        return [] if changes is None else changes[first : self.ledger.counters[CHANGES]].tolist()
