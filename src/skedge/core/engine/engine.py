"""The engine: the ledger of a run and what changes it, for Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from skedge.core.model.cluster import Floats, Ints, Placement

from .agenda import GANG_ENDS
from .allocations import leave, release_ps, take_ps
from .data import data_of
from .ledger import (
    AGENDA,
    AT_SITES,
    COLOCATED,
    COMPUTE_FROM,
    ELASTIC,
    FIRST,
    HELD,
    LEFT,
    NO_PS,
    NO_VALUE,
    NUMBER,
    PS,
    PS_ROWS,
    REJECTED,
    SIZE,
    STALE,
    STYLE,
    TRUE_LEFT,
    VERSION,
)
from .orders import N_INTERRUPTED, N_LOST, N_WITHOUT_PS, STOP, SUSPEND
from .timeline import Timeline

_take_ps: Any = take_ps.py_func  # type: ignore[attr-defined]
_release_ps: Any = release_ps.py_func  # type: ignore[attr-defined]
_leave: Any = leave.py_func  # type: ignore[attr-defined]


class AllocationEngine(Timeline):
    """The ledger of one run, with its transitions and what is asked of it.

    The kernel checks orders before they come here, and keeps what is no slot: resources and chunks at sites.
    """

    # -- time ----------------------------------------------------------------------------------------------------

    def simulate(self) -> None:
        """From now on ends of allocations are put on the agenda, and their runs are noted."""
        self.case = self.case._replace(simulated=1)
        self._refresh()

    def simulate_announced(self, now: int) -> None:
        """As :meth:`simulate`, from a state that is under way, as if all announced work were true."""
        self.ledger = self.ledger._replace(work=self.ledger.announced)
        self.ledger.jobs[:, TRUE_LEFT] = self.ledger.jobs[:, LEFT]
        self.ledger.counters[[AGENDA, STALE]] = 0
        self.set_changes(None)
        self.simulate()
        for job in self.holders():
            if self.ledger.jobs[job, STYLE] != AT_SITES:
                # a gang that is overdue has not ended yet: the earliest that a forecast can say is the next µs
                end = max(self.finish_time(job), now + 1)
                self.put(end, GANG_ENDS, job, int(self.ledger.jobs[job, VERSION]))

    def finish_time(self, job: int) -> int:
        """When the present allocation of `job` has done all of its true work [µs]."""
        return self._call("finish_time", job)

    def apply_rows(self, rows: Ints, places: Ints, values: Floats, reasons: Ints, first: int, n: int) -> int:
        """Check and carry out allocations and suspensions (:func:`.handle.apply_rows`); returns where that ended.

        Parameters
        ----------
        rows, places, values, reasons, first, n
            As :func:`.handle.apply_rows` has them.
        """
        while True:
            done: int = self._call_form("apply_rows", rows, places, values, reasons, first, n)
            if done >= 0:
                return done
            first = -1 - done
            self._grow(2 * len(self.orders.places))

    # -- allocations ---------------------------------------------------------------------------------------------

    def allocate(
        self, job: int, placement: Placement, ps: int, verb: int, reason: int, value: float | None, colocated: int = 0
    ) -> int:  # fmt: skip
        """Have `job` hold a placement, in any order, and a PS; returns the rule that it breaks on slots, 0 if none.

        Parameters
        ----------
        job
            Its number.
        placement
            (server, workers) pairs.
        ps
            PS slot, -1 in the cloud, NO_PS where PSs are no slots.
        verb
            ALLOCATE, ALLOCATE_EACH or TRAIN_AT_SITES.
        reason, value
            Number of the reason, and the value; None for none.
        colocated
            Where they are no slots: 1 if communication between these workers and the PS is free.
        """
        if len(placement) >= len(self._placement):
            return 4  # a server is listed twice
        n = self._set_placement(placement)
        return self._change(verb, job, n, ps, colocated, reason, NO_VALUE if value is None else float(value))

    def _change(
        self, verb: int, job: int, n: int = 0, ps: int = -1, free: int = 0, reason: int = -1, value: float = NO_VALUE
    ) -> int:  # fmt: skip
        return self._call("change", verb, job, n, ps, free, reason, value)

    def suspend(self, job: int, reason: int) -> int:
        """Take its workers from `job`, with a decision; returns the rule that this breaks, 0 if none."""
        return self._change(SUSPEND, job, reason=reason)

    def stop(self, job: int) -> None:
        """Take its workers from `job`, without a decision."""
        self._change(STOP, job)

    def reject(self, job: int) -> None:
        """`job`, which has held nothing, leaves the system."""
        _leave(self.ledger, job, REJECTED)

    def upload(self, job: int, placement: Placement, reason: int, *, copies: bool) -> None:
        """:func:`.allocations.upload` of a placement in any order.

        Parameters
        ----------
        job
            It holds no workers.
        placement
            (server, workers) pairs; each server once.
        reason
            Number of the reason.
        copies
            Whether each server that lacks data receives all chunks.
        """
        self._call("upload", job, self._set_placement(placement), int(copies), reason)

    def stretch(self, job: int, factor: float, now: int) -> None:
        """Scale the announced work of `job` by `factor` from `now` on."""
        self.set_left(job, int(self.left_of(job, now) * factor), now)
        # a view that a policy or a forecast has kept must not change
        announced = self.ledger.announced.copy()
        announced[job] = np.maximum(1, (announced[job] * factor).astype(np.int64))
        self.ledger = self.ledger._replace(announced=announced)
        self._refresh()

    def set_left(self, job: int, left: int, now: int) -> None:
        """Set the remaining work of `job` at `now` [worker-µs], as it is co-located now; at least 1 is left."""
        row = self.ledger.jobs[job]
        if row[HELD] > 0:
            # `left` is exact at `now`, so the workers count as beginning no earlier
            row[COMPUTE_FROM] = max(now, int(row[COMPUTE_FROM]))
            begins = self._rows(job)[:, 2]
            np.maximum(begins, now, out=begins)
        row[LEFT] = max(1, left)

    # -- parameter servers in slots ------------------------------------------------------------------------------

    def take_ps(self, job: int, slot: int) -> None:
        """The PS in this slot, or in the cloud, begins to serve `job`."""
        # a few numbers change: Python does that sooner than a compiled function is called, by the same source
        _take_ps(self.ledger, job, slot)

    def release_ps(self, job: int) -> None:
        """Release the PS slot of `job`, if it has one."""
        if self.ledger.counters[PS_ROWS] == len(self.ledger.rows.ps):
            self._grow(1)
        _release_ps(self.ledger, job)

    def ps_of(self, job: int) -> int | None:
        """The PS slot of `job`, -1 in the cloud; None if it has none."""
        slot = int(self.ledger.jobs[job, PS])
        return None if slot == NO_PS else slot

    # -- what is asked of it -------------------------------------------------------------------------------------

    def holds(self, job: int) -> bool:
        """Whether `job` holds workers."""
        return bool(self.ledger.jobs[job, HELD] > 0)

    def holders(self) -> list[int]:
        """The jobs that hold workers, in the order in which their allocations were made."""
        jobs = np.flatnonzero(self.ledger.jobs[:, HELD] > 0)
        in_order: list[int] = jobs[self.ledger.jobs[jobs, NUMBER].argsort()].tolist()
        return in_order

    def _rows(self, job: int) -> Ints:
        row = self.ledger.jobs[job]
        rows: Ints = self.ledger.workers[row[FIRST] : row[FIRST] + row[SIZE]]
        return rows

    def trains(self, job: int, now: int) -> bool:
        """Whether workers of `job` have been computing before `now`."""
        row = self.ledger.jobs[job]
        return bool(row[HELD] > 0 and row[COMPUTE_FROM] < now)

    def placement(self, job: int) -> Placement:
        """(server, workers) pairs held by `job` now, by server."""
        if not self.holds(job):
            return ()
        rows = self._rows(job)
        if self.ledger.jobs[job, STYLE] != ELASTIC:
            return tuple((server, n) for server, n, _ in rows.tolist())
        counts = dict[int, int]()
        for server, n, _ in rows.tolist():
            counts[server] = counts.get(server, 0) + n
        return tuple(counts.items())

    def has_run(self, job: int) -> bool:
        """Whether `job` has held workers."""
        return bool(self.ledger.jobs[job, STYLE] >= 0)

    def is_elastic(self, job: int) -> bool:
        """Whether the allocations of `job` so far are elastic."""
        return bool(self.ledger.jobs[job, STYLE] == ELASTIC)

    def data(self, job: int) -> dict[int, int]:
        """Number of workers of `job` whose data each server has or is receiving."""
        return data_of(self.ledger.data, job)

    def column(self, name: int) -> Ints:
        """A column of ``ledger.jobs``."""
        return self.ledger.jobs[:, name]

    def remaining(self, jobs: Ints, now: int, n_jobs: int | None = None) -> Ints:
        """Announced remaining work of `jobs` at `now` [worker-µs], as they are co-located now, at least 1.

        Raises
        ------
        IndexError
            If one of them is not among the first `n_jobs`; None: all.
        """
        left, n = np.empty(len(jobs), np.int64), len(self.ledger.jobs) if n_jobs is None else n_jobs
        if self._call("remaining", np.ascontiguousarray(jobs, np.int64), now, left, n):
            raise IndexError(f"not all jobs have arrived; jobs 0 to {n - 1} have")
        return left

    def left_of(self, job: int, now: int) -> int:
        """Announced remaining work of `job` at `now` [worker-µs], as it is co-located now, at least 1."""
        return int(self.remaining(np.array([job]), now)[0])

    def total_work(self, jobs: Ints) -> Ints:
        """Announced work of `jobs` [worker-µs], as they are co-located now."""
        work: Ints = self.ledger.announced[jobs, self.ledger.jobs[jobs, COLOCATED]]
        return work

    @property
    def workers_held(self) -> Ints:
        """Number of workers that each job holds, shape ``(jobs,)``."""
        return self.ledger.jobs[:, HELD]

    # -- servers -------------------------------------------------------------------------------------------------

    def change_servers(self, changes: Ints, elsewhere: Ints) -> tuple[list[int], list[int]]:
        """Take servers out of service or back into it (:func:`.outages.change_servers`).

        Parameters
        ----------
        changes
            Rows as of ``ledger.changes``.
        elsewhere
            Where PSs are no slots: (job, server) rows of the PSs of jobs that hold workers.

        Returns
        -------
        The jobs that lose their workers, and those on lanes that lose their PS; each ascending.
        """
        facts, lists = self.facts, (N_INTERRUPTED, N_WITHOUT_PS)
        facts.counters[[*lists, N_LOST]] = 0
        self._call("change_servers", changes, elsewhere)
        n_interrupted, n_without_ps = facts.counters[[*lists]].tolist()
        return facts.interrupted[:n_interrupted].tolist(), facts.without_ps[:n_without_ps].tolist()
