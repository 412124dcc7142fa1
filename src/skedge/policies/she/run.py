"""Whole runs of the batch schedulers without events: a batch at a time, as nothing is decided between two batches.

No job is preempted, and where jobs take as long as announced the completion of a job is known once it is deployed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skedge.core.engine.ledger import RecordRows
from skedge.core.events import VERBS
from skedge.core.model.cluster import Bools, Floats, Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import whole_slots
from skedge.core.record.schedule import COPIES

from .alg2 import (
    CHUNKS,
    COUNT,
    OUTCOMES,
    PLAN_END,
    PLANS,
    PS_KIND,
    PS_SERVER,
    PS_SLOT,
    REASONS,
    SLOTS,
    UPLOAD_START,
    WORKERS,
    BatchConditions,
    deploy,
)
from .policy import Batch, no_server_has, start_of_interval

ALLOCATE, RESERVE, POSTPONE, UPLOAD, REJECT = (
    VERBS.index(verb) for verb in ("allocate", "reserve", "postpone", "upload", "reject")
)

TEXTS = (*REASONS, COPIES, no_server_has("worker"), no_server_has("PS"))
"""Reasons in the rows of decisions, by number."""

COPIED, NO_WORKER, NO_PS = range(len(REASONS), len(TEXTS))


class BatchRun:
    """A run of a policy that has been started.

    Attributes
    ----------
    fits
        Whether some server has workers, and some server PSs, of each job's types.
    ends
        The completion of each job [µs], once it is deployed.
    """

    def __init__(self, scenario: Scenario, policy: Batch) -> None:
        self.scenario, self.policy = scenario, policy
        jobs, case = scenario.jobs, policy.case
        self.has_worker: Bools = policy.worker_capacity.T > 0
        self.worker_fits: Bools = np.logical_or.reduce(self.has_worker, axis=1)[jobs.worker_type]
        self.fits: Bools = self.worker_fits & np.logical_or.reduce(policy.ps_capacity > 0, axis=0)[jobs.ps_type]
        self.uploads_start = whole_slots(jobs.arrival, scenario.physics.step)
        self.ends = np.zeros(len(jobs), np.int64)
        table = np.zeros((len(jobs), policy.state.jobs.shape[1]), np.int64)
        types = jobs.worker_type % case.widths[0], jobs.ps_type % case.widths[1]
        table[:, : PS_KIND + 1] = np.column_stack([jobs.arrival, self.uploads_start, jobs.chunks, *types])
        policy.state = policy.state._replace(jobs=table)

    # -- Alg. 1 --------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[int, list[int]]]:
        """Run all; after each batch, and at the end, the present [µs] and the jobs completed since the last one."""
        policy, slot = self.policy, self.policy.physics.slot
        waiting = held = np.zeros(0, np.int64)
        arrivals, i = np.flatnonzero(self.fits), 0
        times = self.uploads_start[arrivals]
        while len(waiting) or i < len(arrivals):
            now = start_of_interval(policy.name, policy.tau, slot, len(waiting)) if len(waiting) else int(times[i])
            n_arrived = int(np.searchsorted(times, now, side="right"))
            waiting, i = np.concatenate([waiting, arrivals[i:n_arrived]]), n_arrived
            if now // slot < policy.tau:
                continue
            tau, over = policy.last_due(now // slot), self.ends[held] <= now
            policy.tau = 2 * tau
            finished, held = held[over], held[~over]
            accepted = self._decide(tau, now, waiting, held, finished)
            held = np.concatenate([held, accepted])
            waiting = waiting[~np.isin(waiting, accepted)]
            yield now, finished.tolist()
        yield int(self.ends[held].max(initial=0)), held.tolist()

    def _decide(self, tau: int, now: int, waiting: Ints, held: Ints, finished: Ints) -> Ints:
        """Alg. 2 on the jobs that arrived before tau_i; returns those that are deployed, in order."""
        policy, scenario = self.policy, self.scenario
        ps = policy.state.jobs[finished, PS_SLOT]
        policy.state.ps_job[ps[ps >= 0]] = -1
        in_service = np.ones(len(scenario.cluster.servers), np.bool_)
        conditions = BatchConditions(0, 0, now, scenario.delays, scenario.announced_work, in_service)
        batch = policy.open_batch(tau, waiting, held, conditions)
        policy.each(batch, lambda state, jobs: deploy(policy.case, state, jobs, policy.conditions))
        accepted = batch[policy.state.jobs[batch, COUNT] > 0]
        ends = self._ready(accepted) - (-self._work(accepted) // policy.state.jobs[accepted, WORKERS])
        self.ends[accepted] = whole_slots(ends, scenario.physics.step)
        return accepted

    def _ready(self, jobs: Ints) -> Ints:
        """When the workers of deployed jobs begin to compute [µs]."""
        columns = self.policy.state.jobs[jobs]
        ready: Ints = columns[:, PLAN_END] - columns[:, SLOTS] * self.policy.physics.slot
        return ready

    def _work(self, jobs: Ints) -> Ints:
        """Work of deployed jobs [worker-µs]."""
        return self.scenario.announced_work[jobs, self._colocated(jobs)]

    def _colocated(self, jobs: Ints) -> Ints:
        """Zeta of deployed jobs, as :func:`skedge.core.colocation.colocated`."""
        columns, case = self.policy.state.jobs[jobs], self.policy.case
        together = (columns[:, PS_SERVER] == case.cloud) | (case.one_server == 1)
        return ((columns[:, COUNT] == 1) & together).astype(np.int64)

    # -- the record ----------------------------------------------------------------------------------------------

    @property
    def plans(self) -> Ints:
        """The rows of all plans: (job, server, workers, PSs, start, end)."""
        return self.policy.state.plans[: self.policy.state.counters[PLANS]]

    def rejected(self) -> dict[int, str]:
        """The reasons of the jobs that no server fits."""
        jobs = np.flatnonzero(~self.fits)
        return {job: TEXTS[lack] for job, lack in zip(jobs.tolist(), self._lack(jobs).tolist(), strict=True)}

    def _lack(self, jobs: Ints) -> Ints:
        return np.where(self.worker_fits[jobs], NO_PS, NO_WORKER)

    def rows(self) -> tuple[Ints, RecordRows]:
        """When each job is given workers [µs], -1: never; and the rows of the record, reasons by number in TEXTS."""
        columns, plans = self.policy.state.jobs, self.plans
        job, server, workers, _, start, _ = plans[plans[:, 2] > 0].T
        end = self.ends[job]
        runs = _table(
            job, server, workers, start, np.minimum(self._ready(job), end), end, self._work(job),
            columns[job, WORKERS], self._colocated(job), 0,
        )  # fmt: skip
        admitted = np.full(len(columns), -1)
        admitted[job] = start
        deployed = np.flatnonzero(admitted >= 0)
        ps = _table(deployed, columns[deployed, PS_SLOT], 1, admitted[deployed], self.ends[deployed])
        copies = self._copies() if self.policy.copies else np.zeros((0, 4), np.int64)
        uploads = copies if self.policy.copies else self._uploads_where_placed()
        return admitted, RecordRows(*self._decisions(copies), ps, uploads, runs)

    def _copies(self) -> Ints:
        """A row (job, server, chunks, start) for each server with workers of a job's type."""
        columns, jobs = self.policy.state.jobs, np.flatnonzero(self.fits)
        i, servers = np.nonzero(self.has_worker[self.scenario.jobs.worker_type[jobs]])
        return _table(jobs[i], servers, columns[jobs[i], CHUNKS], columns[jobs[i], UPLOAD_START])

    def _uploads_where_placed(self) -> Ints:
        """A row (job, server, chunks, start) for each server of a plan: its share of the chunks, in whole ones."""
        columns, plans = self.policy.state.jobs, self.plans
        job, server, workers, _, start, _ = plans[plans[:, 2] > 0].T
        first = np.flatnonzero(np.diff(job, prepend=-1))
        # shares by cumulated counts, so that they add up to all chunks however they round
        total = np.cumsum(workers)
        before = total - workers
        before -= np.repeat(before[first], np.diff(first, append=len(job)))
        chunks, n_workers = columns[job, CHUNKS], columns[job, WORKERS]
        share = chunks * (before + workers) // n_workers - chunks * before // n_workers
        return _table(job, server, share, start)[share > 0]

    def _decisions(self, copies: Ints) -> tuple[Ints, Floats]:
        """All decisions in order: at one instant those on arrivals come first."""
        job, server, chunks, start = copies.T
        rejected = np.flatnonzero(~self.fits)
        arrivals = np.concatenate([
            _table(start, job, UPLOAD, server, chunks, COPIED),
            _table(self.uploads_start[rejected], rejected, REJECT, -1, -1, self._lack(rejected)),
        ])  # fmt: skip
        arrivals = arrivals[arrivals[:, 1].argsort(kind="stable")]
        batches, values = self._decisions_of_batches()
        rows, values = np.concatenate([arrivals, batches]), np.concatenate([np.full(len(arrivals), np.nan), values])
        order = rows[:, 0].argsort(kind="stable")
        return rows[order], values[order]

    def _decisions_of_batches(self) -> tuple[Ints, Floats]:
        """For each outcome in turn: a row for each server of a plan, for each that has workers, or that of a delay."""
        state, plans = self.policy.state, self.plans
        n = int(state.counters[OUTCOMES])
        outcomes, values = state.outcomes[:n], state.values[:n]
        accepted, postponed = np.repeat(np.arange(n), outcomes[:, 3]), np.flatnonzero(outcomes[:, 3] == 0)
        has_workers = plans[:, 2] > 0
        allocated = plans[has_workers]
        rows = np.concatenate([
            _table(accepted, RESERVE, plans[:, 1], -1),
            _table(accepted[has_workers], ALLOCATE, allocated[:, 1], allocated[:, 2]),
            _table(postponed, POSTPONE, -1, -1),
        ])  # fmt: skip
        outcome, verb, server, workers = rows[rows[:, 0].argsort(kind="stable")].T
        time, job, reason, _ = outcomes[outcome].T
        return _table(time, job, verb, server, workers, reason), np.where(verb == RESERVE, np.nan, values[outcome])


def _table(*columns: Ints | int) -> Ints:
    """Rows of these columns; a number is the same in all of them."""
    return np.column_stack(np.broadcast_arrays(*columns))
