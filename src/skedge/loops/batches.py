"""Whole runs of the batch schedulers of She et al., without events: which take this path, and their record."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from skedge.core.events import Event
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.core.record.plans import PlanRow, Plans
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows, number_reasons
from skedge.core.record.schedule import Schedule
from skedge.platform.jit import CompiledFunction
from skedge.policies.she.alg2 import deploy
from skedge.policies.she.batchsche import BatchSche
from skedge.policies.she.policy import Batch
from skedge.policies.she.run import TEXTS, BatchRun
from skedge.sim.runs import RunLog


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy` on `scenario`: where no job outlives its plan."""
    if type(policy) not in (Batch, BatchSche) or "typed slots" not in kind_of(scenario.cluster).offers(scenario):
        return False
    return scenario.physics.data == "kept" and bool((scenario.true_work == scenario.announced_work).all())


def kernel_of(_: Policy) -> CompiledFunction:
    """The compiled function that :func:`simulate` calls."""
    return cast("CompiledFunction", deploy)


def simulate(scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None = None) -> Schedule:
    """The record of `policy` on `scenario`.

    Parameters
    ----------
    scenario, policy
        A run that :func:`covers` allows.
    progress
        Called after each batch with the present and the jobs that have completed since the last call.

    Raises
    ------
    PolicyError
        If jobs wait for a batch that is later than the clock can count.
    """
    assert isinstance(policy, Batch)  # noqa: S101 - it is covered
    policy.start(scenario.cluster, scenario.physics, scenario.rng("policy"))
    run = BatchRun(scenario, policy)
    for now, finished in run.batches():
        if progress is not None:
            progress(Event(now, finished=tuple(finished)))
    admitted, rows = run.rows()
    plans, source = Plans(), CollectedRows(admitted, rows)
    # a plan is made when it starts
    plans.rows = [
        PlanRow(job, server, n, ps, start, end, start) for job, server, n, ps, start, end in run.plans.tolist()
    ]
    record = Record(scenario, plans, source)
    codes = rows.decisions[:, 5]
    codes[:] = number_reasons(rows.decisions, codes, lambda row: record.reason(TEXTS[row[5]]))
    record.rejected, ids = run.rejected(), scenario.cluster.server_ids
    record.prices = [(now, job, ids[piece.server], *piece[1:]) for now, job, piece in policy.priced_pieces()]
    return record.schedule(RunLog(scenario, source).table())
