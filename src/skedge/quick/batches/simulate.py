"""Which runs take the compiled path, their batches, and the record made of the arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from skedge.core.engine.ledger import RecordRows
from skedge.core.events import Event
from skedge.core.kernel.plans import PlanRow, Plans
from skedge.core.model.cluster import PS as PS_NAME
from skedge.core.model.cluster import WORKER, Bools, Floats, Ints
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows
from skedge.core.record.schedule import COPIES, VERBS, Schedule
from skedge.platform.jit import CompiledFunction
from skedge.policies.she.batchsche import BatchSche
from skedge.policies.she.policy import Batch, no_server_has, start_of_interval
from skedge.policies.she.prices import LoadProfile
from skedge.policies.she.prices import with_room as book_with_room
from skedge.quick.rows import set_reasons
from skedge.sim.runs import RunLog

from .deploy import deploy, hold
from .state import (
    CHUNKS,
    COPIED,
    COUNT,
    DECISIONS,
    END,
    NO_PS,
    NO_WORKER,
    PLANS,
    PRICES,
    PS,
    RUNS,
    SINCE,
    TYPES,
    UPLOADED,
    make_books,
    make_case,
    with_room,
)

UPLOAD, REJECT = (VERBS.index(verb) for verb in ("upload", "reject"))
_ANY_TIME = np.iinfo(np.int64).max
"""An upload that ends before this is in time."""

_REASONS = (
    COPIES, "one_server", "spread", "too_dear", "not_uploaded", "too_long", "no_room",
    no_server_has("worker"), no_server_has("PS"),
)  # fmt: skip


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy` on `scenario`: where no job outlives its plan."""
    if type(policy) not in (Batch, BatchSche) or "typed slots" not in kind_of(scenario.cluster).offers(scenario):
        return False
    return scenario.physics.data == "kept" and bool((scenario.true_work == scenario.announced_work).all())


def kernel_of(_: Policy) -> CompiledFunction:
    """The compiled loop that :func:`simulate` calls."""
    return cast("CompiledFunction", deploy)


def simulate(scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None = None) -> Schedule:
    """The record of `policy` on `scenario`.

    Parameters
    ----------
    progress
        Called after each batch with the present and the jobs that have completed since the last call.

    Raises
    ------
    PolicyError
        If jobs wait for a batch that is later than the clock can count.
    """
    assert isinstance(policy, Batch)  # noqa: S101 - it is covered
    policy.start(scenario.cluster, scenario.physics, scenario.rng("policy"))
    run = _Batches(scenario, policy)
    for now, finished in run.batches():
        if progress is not None:
            progress(Event(now, finished=tuple(finished)))
    return run.schedule()


class _Batches:
    """A run, batch by batch."""

    def __init__(self, scenario: Scenario, policy: Batch) -> None:
        self.scenario, self.policy, self.slot = scenario, policy, scenario.physics.slot
        self.case, types = make_case(scenario, policy)
        self.books = make_books(scenario, self.case, types)
        of = [policy.qualified_servers(*pair) for pair in self._pairs(types)]
        self.servers = [np.flatnonzero(t.has_worker) for t in of]
        self.lacks = np.array([NO_PS if t.has_worker.any() else NO_WORKER for t in of], np.int64)[types]
        self.fits: Bools = np.array([bool(t.has_worker.any() and t.has_ps.any()) for t in of], np.bool_)[types]

    def _pairs(self, types: Ints) -> list[tuple[int, int]]:
        """The pairs of types, in order of their numbers."""
        jobs, first = self.scenario.jobs, np.unique(types, return_index=True)[1]
        return list(zip(jobs.worker_type[first].tolist(), jobs.ps_type[first].tolist(), strict=True))

    # -- Alg. 1 --------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[int, list[int]]]:
        """Run all; after each batch, and at the end, the present [µs] and the jobs completed since the last one."""
        waiting = held = np.zeros(0, np.int64)
        arrivals, tau = np.flatnonzero(self.fits), 1
        uploaded, end, i = self.books.jobs[arrivals, UPLOADED], self.books.jobs[:, END], 0
        while len(waiting) or i < len(arrivals):
            name, slot = self.policy.name, self.policy.physics.slot
            now = start_of_interval(name, tau, slot, len(waiting)) if len(waiting) else int(uploaded[i])
            here = int(np.searchsorted(uploaded, now, side="right"))
            waiting, i = np.concatenate([waiting, arrivals[i:here]]), here
            slots = now // self.slot
            if slots < tau:
                continue
            # tau_i = 2^(i-1): after an idle time the last one that has passed, not each of those between
            due = 1 << (slots.bit_length() - 1)
            tau, over = 2 * due, end[held] <= now
            finished, held = held[over], held[~over]
            accepted = self._decide(waiting, held, due, now)
            held = np.concatenate([held, accepted])
            waiting = waiting[~np.isin(waiting, accepted)]
            yield now, finished.tolist()
        yield int(end[held].max(initial=0)), held.tolist()

    def _decide(self, waiting: Ints, held: Ints, tau: int, now: int) -> Ints:
        """Alg. 2 on the jobs that arrived before tau_i; returns those that are deployed, in order."""
        policy, books, limit = self.policy, self.books, tau * self.slot
        batch = waiting[books.jobs[waiting, SINCE] < limit]
        if not len(batch):
            return batch
        policy.reset_profiles()
        self._all(held, lambda w, p, jobs: hold(self.case, self.books, w, p, jobs, now))
        due = limit + (not policy.params.strict_upload) if policy.aware_of_uploads else _ANY_TIME
        batch = batch[self._keys(batch).argsort(kind="stable")]
        self._all(batch, lambda w, p, jobs: deploy(self.case, self.books, w, p, jobs, tau, due, now))
        return batch[self.books.jobs[batch, COUNT] > 0]

    def _keys(self, batch: Ints) -> Ints:
        """What orders the jobs of a batch, before their number (H20)."""
        if self.policy.params.order == "arrival":
            return np.zeros(len(batch), np.int64)
        return -(-self.case.work[batch, 1] // self.books.jobs[batch, CHUNKS])

    def _all(self, jobs: Ints, some: Callable[[LoadProfile, LoadProfile, Ints], int]) -> None:
        """Do `some` until all `jobs` are done, with larger arrays whenever one is full."""
        policy = self.policy
        while len(jobs):
            policy.workers, policy.ps = book_with_room(policy.workers), book_with_room(policy.ps)
            steps = max(int(book.size.max()) for book in (policy.workers, policy.ps))
            self.books = with_room(self.books, len(policy.cluster.servers), steps)
            jobs = jobs[some(policy.workers, policy.ps, jobs) :]

    # -- the record ----------------------------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """The tables, made of the rows as :class:`~skedge.core.record.record.Record` and the world's log make them."""
        scenario, books, counters = self.scenario, self.books, self.books.counters
        decisions, values = self._decisions()
        runs, deployed = books.runs[: counters[RUNS]], np.flatnonzero(books.jobs[:, COUNT])
        begun = np.zeros(len(books.jobs), np.int64)
        begun[runs[:, 0]] = runs[:, 3]
        ps = np.column_stack([deployed, books.jobs[deployed, PS], np.ones_like(deployed), begun[deployed]])
        ps = np.column_stack([ps, books.jobs[deployed, END]])
        admitted = np.full(len(books.jobs), -1)
        admitted[deployed] = begun[deployed]
        source = CollectedRows(admitted, RecordRows(decisions, values, ps, self._uploads(), runs))
        record = Record(scenario, self._plans(), source)
        set_reasons(decisions, decisions[:, 5], record.decisions.reasons, lambda reason, _: _REASONS[reason])
        record.rejected = {int(job): _REASONS[self.lacks[job]] for job in np.flatnonzero(~self.fits)}
        record.prices = self._prices()
        return record.schedule(RunLog(scenario, source).table())

    def _plans(self) -> Plans:
        plans, books = Plans(), self.books
        rows = books.plans[: books.counters[PLANS]].tolist()
        # a plan is made when it starts
        plans.rows = [PlanRow(job, server, n, ps, start, end, start) for job, server, n, ps, start, end in rows]
        return plans

    def _prices(self) -> list[tuple[object, ...]]:
        cluster, books = self.scenario.cluster, self.books
        count, ids = books.counters[PRICES], cluster.server_ids
        names = [WORKER + t for t in cluster.worker_types], [PS_NAME + t for t in cluster.ps_types]
        rows = zip(books.prices[:count].tolist(), books.price[:count].tolist(), strict=True)
        return [
            (now, job, ids[server], names[of_ps][kind], start, end, price)
            for (now, job, server, of_ps, kind, start, end), price in rows
        ]

    def _decisions(self) -> tuple[Ints, Floats]:
        """All decisions in order: at one instant those on arrivals come first."""
        books, count = self.books, self.books.counters[DECISIONS]
        rows = np.concatenate([self._on_arrivals(), books.decisions[:count]])
        values = np.concatenate([np.full(len(rows) - count, np.nan), books.values[:count]])
        order = rows[:, 0].argsort(kind="stable")
        return rows[order], values[order]

    def _on_arrivals(self) -> Ints:
        """The decisions on arrivals: a row for each upload, or that of a rejection."""
        jobs, fits = self.books.jobs, self.fits
        of, server = self._copies(np.flatnonzero(fits))
        sent = np.column_stack([jobs[of, UPLOADED], of, np.full_like(of, UPLOAD), server, jobs[of, CHUNKS]])
        sent = np.column_stack([sent, np.full_like(of, COPIED)])
        no = np.flatnonzero(~fits)
        none = np.full_like(no, -1)
        rejected = np.column_stack([jobs[no, UPLOADED], no, np.full_like(no, REJECT), none, none, self.lacks[no]])
        rows = np.concatenate([sent, rejected])
        return rows[rows[:, 1].argsort(kind="stable")]

    def _copies(self, jobs: Ints) -> tuple[Ints, Ints]:
        """(job, server) of each upload of these jobs: to every server with workers of a job's type."""
        types = self.books.jobs[jobs, TYPES]
        of = np.repeat(jobs, np.array([len(servers) for servers in self.servers], np.int64)[types])
        return of, np.concatenate([np.zeros(0, np.int64), *(self.servers[t] for t in types.tolist())])

    def _uploads(self) -> Ints:
        jobs = self.books.jobs
        of, server = self._copies(np.flatnonzero(self.fits))
        return np.column_stack([of, server, jobs[of, CHUNKS], jobs[of, UPLOADED]])
